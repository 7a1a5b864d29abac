package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/search"
)

// client talks to a running server.
type client struct {
	base string
	key  string
	http *http.Client
}

func newClient(base, key string) *client {
	return &client{base: strings.TrimRight(base, "/"), key: key, http: &http.Client{}}
}

// client finds the server to talk to: the named one, or the one that uses the data
// folder.
func (g *global) client() (*client, error) {
	key := cmp.Or(g.key, os.Getenv("SHEAF_KEY"))
	if g.server != "" {
		base, err := serverAddress(g.server)
		if err != nil {
			return nil, err
		}
		return newClient(base, key), nil
	}
	cfg, err := g.load()
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(cfg.DataDir, "server.json"))
	if err == nil {
		var a announcement
		if json.Unmarshal(b, &a) == nil && a.URL != "" {
			return newClient(a.URL, key), nil
		}
	}
	return newClient("http://"+cfg.Server.Listen, key), nil
}

// serverAddress parses --server: an address with or without scheme.
func serverAddress(said string) (string, error) {
	address := strings.TrimRight(strings.TrimSpace(said), "/")
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usageError{cured(fmt.Errorf("--server %s is not an address", said), "Write it as 127.0.0.1:8080 or https://sheaf.example.org.")}
	}
	return address, nil
}

// written is a JSON body that is sent verbatim, line breaks included.
type written []byte

// call sends a request and decodes the JSON response into out, if not nil.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	var r io.Reader
	if body != nil {
		b, ready := body.(written)
		if !ready {
			var err error
			if b, err = json.Marshal(body); err != nil {
				return err
			}
		}
		r = bytes.NewReader(b)
	}
	resp, err := c.do(ctx, method, path, r, "application/json")
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

// do sends a request; a non-2xx response becomes an error in the server's words.
func (c *client) do(ctx context.Context, method, path string, body io.Reader, contentType string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	return c.send(req)
}

// answerError is a non-2xx response, in the server's words.
type answerError struct {
	status    int
	code, msg string
	requestID string
	details   []api.ProblemDetail
}

func (e *answerError) Error() string { return e.msg }

// unreachableError means that no server answered.
type unreachableError struct{ error }

func (e unreachableError) Unwrap() error { return e.error }

// netError is why a request got no response, without the addresses.
func netError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		if sys, ok := errors.AsType[*os.SyscallError](op.Err); ok {
			return sys.Err
		}
		return op.Err
	}
	return cmp.Or(errors.Unwrap(err), err)
}

// isMissing reports whether the server said that the object does not exist.
func isMissing(err error) bool {
	a, ok := errors.AsType[*answerError](err)
	return ok && a.status == http.StatusNotFound && a.code != "" // otherwise it was not Sheaf that answered
}

func (c *client) send(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unreachableError{cured(fmt.Errorf("no Sheaf answers at %s: %w", c.base, netError(err)), "Start one with `sheaf up`, or name one with --server or SHEAF_URL.")}
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var p api.Problem
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p) == nil && p.Detail != "" {
		return nil, &answerError{resp.StatusCode, p.Code, fmt.Sprintf("%s (%s)", p.Detail, p.Code), p.RequestID, p.Errors}
	}
	return nil, &answerError{status: resp.StatusCode, msg: fmt.Sprintf("%s %s: %s; is %s a Sheaf?", req.Method, req.URL.Path, resp.Status, c.base)}
}

// source is a file to upload.
type source struct {
	name string
	path string // "" if it is not a file
	size int64  // of the file
	open func() (io.ReadCloser, error)
}

// submit uploads files in one request, streaming.
func (c *client) submit(ctx context.Context, dataset string, files []source, fields map[string]string) (*sheaf.Job, error) {
	answer, err := c.submitAnswer(ctx, dataset, files, fields, "")
	if err != nil {
		return nil, err
	}
	for _, r := range answer.Rejected {
		fmt.Fprintf(os.Stderr, "%s: not taken: %s (%s)\n", r.Name, r.Failure.Message, r.Failure.Code)
	}
	return answer.Job, nil
}

func (c *client) submitAnswer(ctx context.Context, dataset string, files []source, fields map[string]string, query string) (*api.SubmitAnswer, error) {
	pr, pw := io.Pipe()
	w := multipart.NewWriter(pw)
	go func() {
		pw.CloseWithError(func() error {
			for k, v := range fields {
				if err := w.WriteField(k, v); err != nil {
					return err
				}
			}
			for _, f := range files {
				if err := writePart(w, f); err != nil {
					return err
				}
			}
			return w.Close()
		}())
	}()
	defer pr.Close()
	resp, err := c.do(ctx, http.MethodPost, "/v1/datasets/"+url.PathEscape(dataset)+"/documents"+query, pr, w.FormDataContentType())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer api.SubmitAnswer
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &answer, nil
}

func writePart(w *multipart.Writer, f source) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close()
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", multipart.FileContentDisposition("file", f.name))
	part, err := w.CreatePart(h)
	if err != nil {
		return err
	}
	_, err = io.Copy(part, r)
	return err
}

// job reads a job, waiting up to wait for it to end.
func (c *client) job(ctx context.Context, id, wait string) (*sheaf.Job, error) {
	var job sheaf.Job
	path := "/v1/jobs/" + id
	if wait != "" {
		path += "?wait=" + wait
	}
	return &job, c.call(ctx, http.MethodGet, path, nil, &job)
}

func (c *client) search(ctx context.Context, dataset string, body map[string]any) (*search.Response, error) {
	var out search.Response
	path := "/v1/search"
	if dataset != "" {
		path = "/v1/datasets/" + url.PathEscape(dataset) + "/search"
	}
	return &out, c.call(ctx, http.MethodPost, path, body, &out)
}

func printHits(w io.Writer, r *search.Response) {
	if len(r.Hits) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	for i, h := range r.Hits {
		where := h.Document.Name
		if unit := unitOf(h.Document.MediaType); unit != "" && len(h.Chunk.Pages) > 0 {
			where += fmt.Sprintf(", %s %d", unit, h.Chunk.Pages[0])
		}
		if len(h.Chunk.Boxes) > 0 {
			b := h.Chunk.Boxes[0]
			where += fmt.Sprintf(", box (%.0f, %.0f)–(%.0f, %.0f) pt", b.X0, b.Y0, b.X1, b.Y1)
		}
		fmt.Fprintf(w, "%d. %.3f  %s\n", i+1, h.Score, where)
		if len(h.Chunk.HeadingPath) > 0 {
			fmt.Fprintf(w, "   %s\n", strings.Join(h.Chunk.HeadingPath, " › "))
		}
		fmt.Fprintf(w, "   %s\n", excerpt(h.Chunk.Text, 280))
		if labels := labelsOf(&h.Chunk); labels != "" {
			fmt.Fprintf(w, "   %s\n", labels)
		}
	}
}

// unitOf is the unit that documents of a type are counted in, as the page names it;
// empty for formats without units, such as Markdown.
func unitOf(mediaType string) string {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(mediaType, p) })
	}
	switch {
	case has("presentation", "powerpoint"):
		return "slide"
	case has("spreadsheet", "excel", "csv", "tab-separated", "x-ndjson"):
		return "row"
	case has("epub", "mbox", "rfc822", "outlook"):
		return "part"
	case mediaType == "application/pdf", strings.HasPrefix(mediaType, "image/"):
		return "page"
	}
	return ""
}

// labelsOf lists a chunk's filterable labels on one line.
func labelsOf(c *sheaf.Chunk) string {
	var parts []string
	if c.Language != "" {
		parts = append(parts, "language "+c.Language)
	}
	if len(c.Keywords) > 0 {
		parts = append(parts, "keywords "+strings.Join(c.Keywords, ", "))
	}
	if len(c.Tags) > 0 {
		names := make([]string, len(c.Tags))
		for i, t := range c.Tags {
			names[i] = t.Name
		}
		parts = append(parts, "tags "+strings.Join(names, ", "))
	}
	return excerpt(strings.Join(parts, " · "), 280)
}
