package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
)

// embedder serves the built-in model like any /v1/embeddings server, and can be
// told to refuse.
type embedder struct {
	addr   string
	server *http.Server
	refuse atomic.Int32 // status of every answer; 0 to return vectors
}

const (
	embedModel = "chaos"
	embedDim   = 256
	// embedSpace is the product's name for the vectors of this server.
	embedSpace = embedModel + "@256"
)

func startEmbedder() (*embedder, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &embedder{addr: ln.Addr().String()}
	e.server = &http.Server{Handler: http.HandlerFunc(e.answer), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = e.server.Serve(ln) }() // ends with close
	return e, nil
}

func (e *embedder) answer(w http.ResponseWriter, r *http.Request) {
	if status := int(e.refuse.Load()); status != 0 {
		http.Error(w, `{"error": {"message": "`+http.StatusText(status)+`"}}`, status)
		return
	}
	var ask struct{ Input []string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 16<<20)).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	vectors, err := static.Default().Embed(r.Context(), ask.Input, embed.Passage)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	type vector struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	var out struct {
		Data []vector `json:"data"`
	}
	for i, v := range vectors {
		out.Data = append(out.Data, vector{i, v})
	}
	_ = json.NewEncoder(w).Encode(out) // the client may be gone
}

// refuseFor answers every request with a status for a while.
func (e *embedder) refuseFor(ctx context.Context, status int, d time.Duration) {
	e.refuse.Store(int32(status))
	pause(ctx, d)
	e.refuse.Store(0)
}

func (e *embedder) close() { _ = e.server.Close() }
