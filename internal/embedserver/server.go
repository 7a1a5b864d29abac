// Package embedserver answers POST /v1/embeddings from a local model. It is the
// program sheaf-embed, a separate process: the service starts it and uses it like
// any other embedding server, so that a crash of the native library affects only
// the calls in progress.
package embedserver

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Encoder computes the vector of one text, and returns how many tokens it read. It
// is safe for concurrent use.
type Encoder interface {
	Embed(text string) (vector []float32, tokens int, err error)
}

// Config configures a server. See each field for the meaning of zero.
type Config struct {
	Model   string        // name in requests; others are refused
	Threads int           // texts embedded concurrently; 0: one per CPU
	Queue   int           // waiting texts; a request beyond that is answered 429. 0: 4096
	Stuck   time.Duration // a text that takes longer makes the server unhealthy; 0: 60 s
}

// Limits of one request.
const (
	maxTexts = 2048 // as OpenAI's
	maxBody  = 16 << 20
)

// Server divides the processor among requests, one text per thread. It is an
// http.Handler.
type Server struct {
	config  Config
	encoder Encoder
	mux     *http.ServeMux

	mu      sync.Mutex
	ready   *sync.Cond
	one     []*text // from requests with one text, for which a user may be waiting
	many    []*text
	turns   int            // taken since the start
	running map[*text]bool // start times are in since
	closed  bool
}

// text is one text of a request.
type text struct {
	request *request
	at      int
	since   time.Time
}

// request is a request in progress.
type request struct {
	ctx     context.Context
	texts   []string
	vectors [][]float32
	done    chan struct{}

	mu     sync.Mutex
	left   int
	tokens int
	err    error // the first one
}

// New starts a server's threads, which Close stops.
func New(e Encoder, c Config) *Server {
	if c.Threads <= 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	if c.Queue <= 0 {
		c.Queue = 4096
	}
	if c.Stuck <= 0 {
		c.Stuck = time.Minute
	}
	s := &Server{config: c, encoder: e, mux: http.NewServeMux(), running: map[*text]bool{}}
	s.ready = sync.NewCond(&s.mu)
	s.mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]string{"id": c.Model, "object": "model", "owned_by": "sheaf"}}})
	})
	s.mux.HandleFunc("GET /health", s.health)
	for range c.Threads {
		go s.work()
	}
	return s
}

// Close stops the threads after their current texts.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.ready.Broadcast()
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// add queues the texts of a request; false if the queue is full.
func (s *Server) add(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An empty queue accepts a request that alone exceeds the limit.
	if waiting := len(s.one) + len(s.many); s.closed || waiting > 0 && waiting+len(r.texts) > s.config.Queue {
		return false
	}
	for i := range r.texts {
		t := &text{request: r, at: i}
		if len(r.texts) == 1 {
			s.one = append(s.one, t)
		} else {
			s.many = append(s.many, t)
		}
	}
	s.ready.Broadcast()
	return true
}

// oneInTurn is how often a text of a large request is taken although requests with
// one text wait: every fourth time.
const oneInTurn = 4

// next waits for a text, nil after Close. Requests with one text go first: queries
// wait only for the text in progress and not for the documents.
func (s *Server) next() *text {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.one)+len(s.many) == 0 && !s.closed {
		s.ready.Wait()
	}
	if s.closed {
		return nil
	}
	from := &s.one
	if s.turns++; len(s.one) == 0 || len(s.many) > 0 && s.turns%oneInTurn == 0 {
		from = &s.many
	}
	t := (*from)[0]
	(*from)[0] = nil
	*from = (*from)[1:]
	t.since = time.Now()
	s.running[t] = true
	return t
}

func (s *Server) work() {
	for {
		t := s.next()
		if t == nil {
			return
		}
		r := t.request
		var vector []float32
		tokens, err := 0, r.ctx.Err() // skipped if the request is canceled
		if err == nil {
			vector, tokens, err = s.encoder.Embed(r.texts[t.at])
		}
		s.mu.Lock()
		delete(s.running, t)
		s.mu.Unlock()
		r.mu.Lock()
		r.vectors[t.at], r.tokens = vector, r.tokens+tokens
		if err != nil && r.err == nil {
			r.err = err
		}
		if r.left--; r.left == 0 {
			close(r.done)
		}
		r.mu.Unlock()
	}
}

// health is good while no text takes too long.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	longest := time.Duration(0)
	for t := range s.running {
		longest = max(longest, time.Since(t.since))
	}
	waiting := len(s.one) + len(s.many)
	s.mu.Unlock()
	if longest > s.config.Stuck {
		refuse(w, http.StatusServiceUnavailable, "a text has been under way for %s", longest.Round(time.Second))
		return
	}
	reply(w, http.StatusOK, map[string]any{"status": "ok", "waiting": waiting, "threads": s.config.Threads})
}

type item struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model      string          `json:"model"`
		Input      json.RawMessage `json:"input"`
		Encoding   string          `json:"encoding_format"`
		Dimensions int             `json:"dimensions"`
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		refuse(w, http.StatusRequestEntityTooLarge, "the request has more than %d bytes", maxBody)
		return
	}
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the request is not JSON: %v", err)
		return
	}
	texts, err := input(body.Input)
	switch {
	case body.Model != "" && body.Model != s.config.Model:
		refuse(w, http.StatusNotFound, "the model %q is not served here; %q is", body.Model, s.config.Model)
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	case len(texts) > maxTexts:
		refuse(w, http.StatusRequestEntityTooLarge, "the request has %d texts, more than %d", len(texts), maxTexts)
		return
	case body.Dimensions != 0:
		refuse(w, http.StatusBadRequest, "the vectors of this model cannot be cut: leave dimensions out")
		return
	case body.Encoding != "" && body.Encoding != "float" && body.Encoding != "base64":
		refuse(w, http.StatusBadRequest, "encoding_format is float or base64, not %q", body.Encoding)
		return
	}
	req := &request{ctx: r.Context(), texts: texts, vectors: make([][]float32, len(texts)), left: len(texts), done: make(chan struct{})}
	if !s.add(req) {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "%d texts wait already", s.config.Queue)
		return
	}
	select {
	case <-req.done:
	case <-r.Context().Done(): // its texts are skipped when their turn comes
		return
	}
	if req.err != nil {
		refuse(w, http.StatusInternalServerError, "%v", req.err)
		return
	}
	items := make([]item, len(texts))
	for i, v := range req.vectors {
		items[i] = item{"embedding", i, v}
		if body.Encoding == "base64" {
			b := make([]byte, 0, 4*len(v))
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			items[i].Embedding = base64.StdEncoding.EncodeToString(b)
		}
	}
	reply(w, http.StatusOK, map[string]any{
		"object": "list", "data": items, "model": s.config.Model,
		"usage": map[string]int{"prompt_tokens": req.tokens, "total_tokens": req.tokens},
	})
}

// input reads a text or a list of texts.
func input(raw json.RawMessage) (texts []string, err error) {
	var one *string
	if json.Unmarshal(raw, &one) == nil && one != nil {
		texts = []string{*one}
	} else {
		var list []*string
		if json.Unmarshal(raw, &list) != nil || len(list) == 0 {
			return nil, errors.New("input must be a text or a list of texts")
		}
		for i, t := range list {
			if t == nil {
				return nil, fmt.Errorf("input %d is null", i)
			}
			texts = append(texts, *t)
		}
	}
	for i, t := range texts {
		if t == "" {
			return nil, fmt.Errorf("input %d is empty", i)
		}
	}
	return texts, nil
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	reply(w, status, map[string]any{"error": map[string]string{"message": fmt.Sprintf(format, args...), "type": kind}})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}
