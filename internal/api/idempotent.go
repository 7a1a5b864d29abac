package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
)

// maxReplay bounds an answer that is kept for a repeated Idempotency-Key.
const maxReplay = 1 << 20

// keyLease is how long a request's key is its own after it was last renewed:
// when the process dies, the next try goes on after this.
const keyLease = 15 * time.Second

// keyed is what handlers know of the idempotency key of their request.
type keyed struct {
	key   string
	since time.Time
}

// kept is an answer as it is stored.
type kept struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// idempotent answers a repeated POST or PUT with the first one's answer. A try
// that ended without one that is certain leaves the key to the next try, which
// runs under the same ids (ingest.Origin) and so finds or finishes what is
// there.
func (s *Server) idempotent(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" || r.Method != http.MethodPost && r.Method != http.MethodPut || !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		if len(key) > 128 {
			s.writeProblem(w, r, newProblem(400, "", "Idempotency-Key is longer than 128 characters"))
			return
		}
		media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";") // the boundary differs each time
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", r.Method, r.URL.RequestURI(), media, r.ContentLength))
		try := sheaf.KeyedRequest{TenantID: tenantOf(r.Context()), Key: key, Hash: hex.EncodeToString(sum[:]), Holder: sheaf.NewID()}
		state, err := s.cfg.Catalog.Idempotent(r.Context(), try, keyLease)
		switch {
		case errors.Is(err, sheaf.ErrConflict):
			s.writeProblem(w, r, newProblem(422, "idempotency_key_reused", "this Idempotency-Key was used with another request; use a new one"))
		case err != nil:
			s.writeProblem(w, r, err)
		case state.Held:
			s.firstTime(w, r, next, try, state.Since)
		case state.Answer == nil:
			w.Header().Set("Retry-After", "1")
			s.writeProblem(w, r, newProblem(409, "in_progress", "the first request with this Idempotency-Key is still at work; ask again"))
		default:
			s.replay(w, r, state.Answer)
		}
	})
}

func (s *Server) replay(w http.ResponseWriter, r *http.Request, answer []byte) {
	var k kept
	if err := json.Unmarshal(answer, &k); err != nil {
		s.writeProblem(w, r, err)
		return
	}
	for name, vs := range k.Header {
		w.Header()[name] = vs
	}
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(k.Status)
	_, _ = w.Write(k.Body)
}

// firstTime does what is asked for, under a key that this try holds.
func (s *Server) firstTime(w http.ResponseWriter, r *http.Request, next http.Handler, try sheaf.KeyedRequest, since time.Time) {
	rec := &keeper{ResponseWriter: w, status: 200}
	body := &watchedBody{ReadCloser: r.Body}
	done := false
	// The client may be gone: the key must be closed all the same.
	ctx := context.WithoutCancel(r.Context())
	renewing, stop := context.WithCancel(ctx)
	go s.renew(renewing, try)
	defer func() {
		stop()
		end, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		if done && !body.broken && certain(rec.status) && rec.body.Len() <= maxReplay {
			b, _ := json.Marshal(kept{Status: rec.status, Header: keptHeaders(w.Header()), Body: rec.body.Bytes()})
			err = s.cfg.Catalog.FinishIdempotent(end, try, b)
		} else {
			err = s.cfg.Catalog.LeaveIdempotent(end, try)
		}
		if err != nil {
			s.log.WarnContext(end, "an idempotency key was not closed; the next try has it when its lease ends", "error", err)
		}
	}()
	r = r.WithContext(context.WithValue(r.Context(), keyedKey, keyed{try.Key, since}))
	r.Body = body
	next.ServeHTTP(rec, r)
	done = true
}

// renew keeps the key while the request is at work, which an upload over a
// slow line may be for long.
func (s *Server) renew(ctx context.Context, try sheaf.KeyedRequest) {
	tick := time.NewTicker(keyLease / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.cfg.Catalog.RenewIdempotent(ctx, try, keyLease); errors.Is(err, sheaf.ErrStale) {
			return // taken over; both tries do the same work, and one of them answers
		}
	}
}

// certain reports whether a repeat of the request would be answered the same,
// so that it need not be run again.
func certain(status int) bool {
	return status < 500 && !slices.Contains([]int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, 499}, status)
}

func keptHeaders(from http.Header) http.Header {
	h := http.Header{}
	for _, name := range []string{"Content-Type", "Location"} {
		if v := from.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	return h
}

// watchedBody remembers whether the request broke off.
type watchedBody struct {
	io.ReadCloser
	broken bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.broken = b.broken || err != nil && err != io.EOF
	return n, err
}

// keeper copies an answer while it is sent.
type keeper struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (k *keeper) WriteHeader(n int) {
	k.status = n
	k.ResponseWriter.WriteHeader(n)
}

func (k *keeper) Write(b []byte) (int, error) {
	if k.body.Len() <= maxReplay {
		k.body.Write(b)
	}
	return k.ResponseWriter.Write(b)
}

func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }
