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
	"sheaf/taskstore"
)

// maxReplay bounds a response stored for an Idempotency-Key.
const maxReplay = 1 << 20

// keyLease is how long a request holds its key after the last renewal. If the
// process dies, the next attempt can proceed after that.
const keyLease = 15 * time.Second

// keyed is what handlers know about their request's idempotency key.
type keyed struct {
	key   string
	since time.Time
	body  *keyedBody
}

// storedAnswer is the stored form of a response.
type storedAnswer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// keyReused is the response to a key that belongs to a different request.
func keyReused() *Problem {
	return newProblem(422, "idempotency_key_reused", "this Idempotency-Key was used with another request: with another address, another body or other headers; send this one under a new key, or the first one again as it was")
}

// keyAtWork is the response while another attempt is in progress.
func keyAtWork() *Problem {
	p := newProblem(409, "in_progress", "the first request with this Idempotency-Key is still at work; ask again")
	p.Retryable = true
	return p
}

// idempotent replays the first response to a repeated POST or PUT. An attempt
// without a definite outcome leaves the key to the next attempt, which uses the
// same ids (ingest.Origin) and so finds or finishes what exists. The key stands for
// one request, body included: see keyedBody.
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
		try := taskstore.KeyedRequest{TenantID: tenantOf(r.Context()), Key: key, Hash: requestDigest(r), Former: formerDigest(r), Holder: sheaf.NewID()}
		state, err := s.cfg.Catalog.Idempotent(r.Context(), try, keyLease)
		switch {
		case errors.Is(err, sheaf.ErrConflict):
			s.writeProblem(w, r, keyReused())
		case err != nil:
			s.writeProblem(w, r, err)
		case state.Held:
			s.firstTime(w, r, next, try, state)
		case state.Answer == nil:
			w.Header().Set("Retry-After", "1")
			s.writeProblem(w, r, keyAtWork())
		default:
			s.replay(w, r, state)
		}
	})
}

// formerDigest is the request digest from before bodies were hashed; keys from then
// stay in use for a day.
func formerDigest(r *http.Request) string {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", r.Method, r.URL.RequestURI(), media, r.ContentLength))
	return hex.EncodeToString(sum[:])
}

// replay sends the first attempt's response if this one sends the same body.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, state taskstore.KeyedState) {
	var k storedAnswer
	if err := json.Unmarshal(state.Answer, &k); err != nil || k.Status == 0 { // taskstore.ForgottenAnswer, or sealed with a lost key
		s.writeProblem(w, r, newProblem(410, "idempotency_key_forgotten", "the first request with this Idempotency-Key was answered, and the answer is not kept any more, since what it told of was deleted; send the request under a new key to make it again"))
		return
	}
	if err := sameBody(r, state.Body); err != nil {
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

// sameBody reads and discards a body and checks that it matches a digest. It stops
// as soon as the body is longer.
func sameBody(r *http.Request, want string) error {
	if want == "" { // written by a version without digests
		return nil
	}
	body := &keyedBody{ReadCloser: io.NopCloser(lineReader{r.Body}), digest: newBodyDigest(r.Header.Get("Content-Type")), want: want}
	if body.digest.delimiter == nil && r.ContentLength >= 0 && r.ContentLength != digestBytes(want) {
		return keyReused()
	}
	_, err := io.Copy(io.Discard, body)
	if errors.Is(err, errLine) {
		return newProblem(400, "", "the request broke off before it could be compared with the first one under its Idempotency-Key; send it again")
	}
	return err
}

// firstTime executes the request under a key that this attempt holds.
func (s *Server) firstTime(w http.ResponseWriter, r *http.Request, next http.Handler, try taskstore.KeyedRequest, state taskstore.KeyedState) {
	// The client may be gone, but the key must still be closed.
	ctx := context.WithoutCancel(r.Context())
	body := &keyedBody{ReadCloser: r.Body, digest: newBodyDigest(r.Header.Get("Content-Type")), want: state.Body}
	body.note = func(digest string) error {
		err := s.cfg.Catalog.ReadIdempotent(r.Context(), try, digest)
		switch {
		case errors.Is(err, sheaf.ErrConflict):
			return keyReused()
		case errors.Is(err, sheaf.ErrStale):
			return keyAtWork() // taken over, perhaps with another body
		}
		return err
	}
	rec := &keeper{ResponseWriter: w, status: 200}
	rec.instead = func() bool {
		if body.refused != nil {
			w.Header().Del("Location")
			s.writeProblem(w, r, body.refused)
		}
		return body.refused != nil
	}
	done := false
	renewing, stop := context.WithCancel(ctx)
	go s.renew(renewing, try)
	defer func() {
		stop()
		end, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var err error
		if done && certain(rec.status) && rec.body.Len() <= maxReplay && body.whole(w, rec.status) {
			b, _ := json.Marshal(storedAnswer{Status: rec.status, Header: storedHeaders(w.Header()), Body: withoutSecret(rec.body.Bytes())})
			err = s.cfg.Catalog.FinishIdempotent(end, try, b)
		} else {
			err = s.cfg.Catalog.LeaveIdempotent(end, try)
		}
		if err != nil {
			s.log.WarnContext(end, "an idempotency key was not closed; the next try has it when its lease ends", "error", err)
		}
	}()
	r = r.WithContext(context.WithValue(r.Context(), keyedKey, keyed{try.Key, state.Since, body}))
	r.Body = body
	next.ServeHTTP(rec, r)
	done = true
}

// withoutSecret returns a response as it may be stored. A secret is shown only
// once.
func withoutSecret(body []byte) []byte {
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) != nil || len(answer["secret"]) == 0 {
		return body
	}
	delete(answer, "secret")
	answer["secret_note"], _ = json.Marshal(secretShown) // a string always encodes
	b, _ := json.Marshal(answer)                         // decoded JSON always encodes
	return append(b, '\n')
}

// secretShown replaces the secret in a repeated response.
const secretShown = "The secret was shown once, in the first answer, and is not kept. If it did not arrive, delete this and make another, or choose the secret yourself."

// renew extends the key's lease while the request runs; an upload over a slow line
// may run for a long time.
func (s *Server) renew(ctx context.Context, try taskstore.KeyedRequest) {
	tick := time.NewTicker(keyLease / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.cfg.Catalog.RenewIdempotent(ctx, try, keyLease); errors.Is(err, sheaf.ErrStale) {
			return // taken over; both attempts do the same work, and one of them answers
		}
	}
}

// certain reports whether a retry would get the same response, so that it need not
// run again.
func certain(status int) bool {
	return status < 500 && !slices.Contains([]int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests, 499}, status)
}

func storedHeaders(from http.Header) http.Header {
	h := http.Header{}
	for _, name := range []string{"Content-Type", "Location", "Etag", "Tus-Resumable", "Upload-Offset", "Upload-Expires", "Sheaf-Job", "Sheaf-Document"} {
		if v := from.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	return h
}

const (
	// maxUnread bounds how much of a body is read beyond what its handler read.
	maxUnread = 256 << 10
	// unreadTime bounds how long that may take.
	unreadTime = 5 * time.Second
)

// keyedBody is the body of a request with a key. At EOF its digest is recorded,
// which fails if an earlier attempt had another body: the reader then gets the
// error instead of EOF, so nothing is made of the body. A body longer than the
// earlier attempt's fails immediately.
type keyedBody struct {
	io.ReadCloser
	digest  *bodyDigest
	want    string                    // the earlier attempt's digest, "" if none
	note    func(digest string) error // nil: only compare with want
	ended   bool
	broken  bool  // the connection broke
	refused error // returned instead of EOF
}

func (b *keyedBody) Read(p []byte) (int, error) {
	if b.refused != nil {
		return 0, b.refused
	}
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	_, _ = b.digest.Write(p[:n])
	switch {
	case err == io.EOF:
		b.ended = true
		if b.refused = b.end(); b.refused != nil {
			return 0, b.refused
		}
	case err != nil:
		b.broken = true
	case b.want != "" && b.digest.n > digestBytes(b.want):
		b.refused = keyReused()
		return 0, b.refused
	}
	return n, err
}

func (b *keyedBody) end() error {
	digest := b.digest.String()
	if b.want != "" && digest != b.want {
		return keyReused()
	}
	if b.note == nil {
		return nil
	}
	return b.note(digest)
}

// readRest reads what a handler left of the body, so that all of it is known before
// the request takes effect.
func (b *keyedBody) readRest() error {
	n, err := io.Copy(io.Discard, io.LimitReader(b, maxUnread))
	if err == nil && n == maxUnread && !b.ended {
		err = newProblem(400, "", "the body goes on behind what is wanted of it; leave the rest out")
	}
	return err
}

// whole reports whether the entire body is known after the response. An error found
// without reading the body will be found again the same way.
func (b *keyedBody) whole(w http.ResponseWriter, status int) bool {
	if !b.ended && !b.broken && b.refused == nil && status < 400 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadTime)) // a writer without deadlines waits until the connection ends
		_ = b.readRest()
	}
	return b.ended && b.refused == nil
}

// wholeBody verifies, before a request changes anything, that its body is the one
// its idempotency key stands for.
func wholeBody(ctx context.Context) error {
	if k, ok := ctx.Value(keyedKey).(keyed); ok {
		return k.body.readRest()
	}
	return nil
}

// repeatsBody reports whether an earlier attempt has read its body.
func repeatsBody(ctx context.Context) bool {
	k, ok := ctx.Value(keyedKey).(keyed)
	return ok && k.body.want != ""
}

// keeper records a response on its way to the client.
type keeper struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	wrote   bool
	instead func() bool // may respond instead of the handler; reports whether it did
	dropped bool
}

func (k *keeper) WriteHeader(n int) {
	if n < 200 || k.wrote {
		k.ResponseWriter.WriteHeader(n)
		return
	}
	k.wrote = true
	if k.dropped = k.instead(); k.dropped {
		return
	}
	k.status = n
	k.ResponseWriter.WriteHeader(n)
}

func (k *keeper) Write(b []byte) (int, error) {
	if !k.wrote {
		k.WriteHeader(http.StatusOK)
	}
	if k.dropped {
		return len(b), nil
	}
	if k.body.Len() <= maxReplay {
		k.body.Write(b)
	}
	return k.ResponseWriter.Write(b)
}

func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }
