// Package openaiapi calls servers that speak OpenAI's protocol and classifies their
// refusals: slow down, come back later, wrong key, wrong input. The embedder, the
// chat client and the reranker use it.
package openaiapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/retryafter"
)

// Server is one endpoint. It is safe for concurrent use.
type Server struct {
	Endpoint string        // "https://host/v1/embeddings"
	What     string        // name in messages, "embedding server"
	Code     string        // prefix of its failure codes: "embed" gives embed_timeout
	Section  string        // of the configuration; "" means Code
	Key      func() string // returns the current key, sent as "Authorization: Bearer …"; nil or "" sends none
	Model    string        // in messages
	Timeout  time.Duration // per call
	Client   *http.Client
}

// Endpoint joins the base address of a server, up to and including "/v1", and the
// path of one of its operations.
func Endpoint(base, path string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%w: the address of the server must be like https://host:port/v1", sheaf.ErrInvalid)
	}
	return strings.TrimSuffix(base, "/") + path, nil
}

// NewClient returns the client that Server needs.
func NewClient() *http.Client {
	return &http.Client{
		Transport: http.DefaultTransport.(*http.Transport).Clone(),
		// A redirect would forward the texts and the key to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// maxErrorBytes limits how much of a refusal is read.
const maxErrorBytes = 4 << 10

// Post sends a request as JSON and returns the body of the answer, of at most
// limit bytes. An answer with an error status is a *Refusal. A call without an
// answer has the code Code_timeout or Code_unavailable, both retryable.
func (s *Server) Post(ctx context.Context, request any, limit int64) ([]byte, error) {
	payload, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, err)
	}
	call, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(call, http.MethodPost, s.Endpoint, bytes.NewReader(payload))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sheaf.ErrInvalid, err)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Key != nil {
		if key := s.Key(); key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, s.broken(ctx, call, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
		return nil, &Refusal{Status: resp.StatusCode, Message: message(text), wait: resp.Header.Get("Retry-After"), server: s}
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, s.broken(ctx, call, err)
	}
	if int64(len(text)) > limit {
		return nil, s.BadAnswer("it has more than %d bytes", limit)
	}
	return text, nil
}

// BadAnswer is the failure of an answer that violates the protocol.
func (s *Server) BadAnswer(format string, args ...any) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryTarget, s.Code+"_bad_answer", "the %s %s gave a wrong answer: %s; check its model and version", s.What, s.Endpoint, fmt.Sprintf(format, args...))
}

// broken explains a call without an answer.
func (s *Server) broken(ctx, call context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if call.Err() != nil {
		return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTimeout, s.Code+"_timeout",
			"the %s %s did not answer within %s; if it is slow, make batches smaller or the timeout longer", s.What, s.Endpoint, s.Timeout), sheaf.ErrUnavailable)
	}
	return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, s.Code+"_unavailable",
		"the %s %s cannot be reached: %v; check that it runs", s.What, s.Endpoint, err), sheaf.ErrUnavailable)
}

// Refusal is an answer with an error status.
type Refusal struct {
	Status  int
	Message string // the server's own message
	wait    string // Retry-After
	server  *Server
}

func (r *Refusal) Error() string { return r.Failure().Error() }

// AboutInput reports whether the server rejected the input. Some servers use the
// same status for an unknown key or model.
func (r *Refusal) AboutInput() bool {
	if m := strings.ToLower(r.Message); strings.Contains(m, "api key") || strings.Contains(m, "api_key") || strings.Contains(m, "model_not_found") {
		return false
	}
	return r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity || r.Status == http.StatusRequestEntityTooLarge
}

// Failure classifies the refusal; all classes are retryable: Code_rate_limited
// (with a *sheaf.RateLimited), Code_unavailable, and Code_unauthorized and
// Code_refused, which are sheaf.ErrMisconfigured: the next request would be refused
// too.
func (r *Refusal) Failure() error {
	s := r.server
	switch {
	case r.Status == http.StatusTooManyRequests && !quotaSpent(r.Message), r.Status == http.StatusServiceUnavailable && r.wait != "":
		return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryCapacity, s.Code+"_rate_limited",
			"the %s %s asks to slow down (%d): %s", s.What, s.Endpoint, r.Status, r.Message),
			&sheaf.RateLimited{After: retryafter.Parse(r.wait, time.Now())})
	case r.Status >= 500:
		return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, s.Code+"_unavailable",
			"the %s %s failed (%d): %s", s.What, s.Endpoint, r.Status, r.Message), sheaf.ErrUnavailable)
	case r.Status == http.StatusUnauthorized, r.Status == http.StatusForbidden:
		return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, s.Code+"_unauthorized",
			"the %s %s refuses the API key (%d): %s; set %s.api_key, and the work that waits goes on", s.What, s.Endpoint, r.Status, r.Message, cmp.Or(s.Section, s.Code)), sheaf.ErrMisconfigured)
	}
	return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, s.Code+"_refused",
		"the %s %s refuses the call (%d): %s; check %s.url and the model %q, and the work that waits goes on", s.What, s.Endpoint, r.Status, r.Message, cmp.Or(s.Section, s.Code), s.Model), sheaf.ErrMisconfigured)
}

// quotaSpent distinguishes OpenAI's "no money left" from "slow down": both are 429.
func quotaSpent(message string) bool { return strings.Contains(message, "insufficient_quota") }

// message extracts the message from an error body.
func message(body []byte) string {
	var shape struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &shape) == nil {
		var inner struct{ Message, Code string }
		var plain string
		switch {
		case json.Unmarshal(shape.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
			if inner.Code != "" {
				text += " (" + inner.Code + ")"
			}
		case json.Unmarshal(shape.Error, &plain) == nil && plain != "":
			text = plain
		case shape.Message != "":
			text = shape.Message
		case len(shape.Detail) > 0:
			text = string(shape.Detail)
		}
	}
	if text == "" {
		text = "it gave no reason"
	}
	return strings.ToValidUTF8(text[:min(len(text), 500)], "")
}
