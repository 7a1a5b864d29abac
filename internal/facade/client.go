// Package facade is the basis of the third-party interfaces: requests to /v1 on
// behalf of the caller, and the content of documents as Markdown.
package facade

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Client makes requests to /v1 for one caller. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
	key  string // "" for none
}

// New returns a client of the server at base, such as http://127.0.0.1:8080.
func New(base, key string) *Client {
	return &Client{base: strings.TrimRight(base, "/"), http: &http.Client{}, key: key}
}

// Inside returns a client of the server that v1 belongs to, on behalf of the caller
// who sent these headers.
func Inside(v1 http.RoundTripper, from http.Header) *Client {
	return &Client{base: "http://localhost", http: &http.Client{Transport: v1}, key: Key(from)}
}

// Key returns the API key in a request, or "". Programs send it as Authorization:
// Bearer, as X-Api-Key, or as Api-Key.
func Key(h http.Header) string {
	if scheme, key, ok := strings.Cut(h.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	if key := h.Get("X-Api-Key"); key != "" {
		return key
	}
	return h.Get("Api-Key")
}

// Error is a non-2xx response of /v1.
type Error struct {
	Status    int
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Retryable bool   `json:"retryable"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Detail, e.Code) }

// AsError returns the *Error in err. Any other error becomes a 502.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Status: http.StatusBadGateway, Code: "unavailable", Detail: err.Error(), Retryable: true}
}

// maxErrorBytes is how much of an error is read.
const maxErrorBytes = 1 << 20

// Do sends a request. A non-2xx response is an *Error.
func (c *Client) Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", c.base, errors.Unwrap(err))
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &Error{Status: resp.StatusCode}
	if json.NewDecoder(io.LimitReader(resp.Body, maxErrorBytes)).Decode(e) != nil || e.Detail == "" {
		e.Code, e.Detail = "unexpected_answer", fmt.Sprintf("%s answered %s to %s; is it a Sheaf?", c.base, resp.Status, path)
	}
	return nil, e
}

// Call sends in as JSON, unless it is nil, and decodes the response into out,
// unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	header := http.Header{}
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(ctx, method, path, body, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return nil
}

// Unreadable describes what in a JSON body could not be decoded, in the sender's
// terms: Go's own message names our types.
func Unreadable(err error) string {
	bad, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("%s cannot be a JSON %s", cmp.Or(bad.Field, "the body"), bad.Value)
}

// Path joins segments to a path, escaping each.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// List is one page of a listing.
type List[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// Answer sends v as JSON, with the status of e if that is not nil.
func Answer(w http.ResponseWriter, e *Error, v any) {
	status := http.StatusOK
	if e != nil {
		status = e.Status
	}
	w.Header().Set("Content-Type", "application/json")
	Status(w, status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// Status sends a status with the headers it requires.
func Status(w http.ResponseWriter, status int) {
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(status)
}
