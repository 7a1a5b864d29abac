package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/search"
)

// defaultDataset is where documents go that name no other.
const defaultDataset = "default"

// client speaks to a server as any program does.
type client struct{ base, key string }

func newClient(base, key string) *client { return &client{base: base, key: key} }

// call sends a request and decodes its JSON answer into out, if not nil.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
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

// do sends a request; an answer that is not 2xx is an error in the server's words.
func (c *client) do(ctx context.Context, method, path string, body io.Reader, contentType string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	var p api.Problem
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p) == nil && p.Detail != "" {
		return nil, fmt.Errorf("%s (%s)", p.Detail, p.Code)
	}
	return nil, errors.New(method + " " + path + ": " + resp.Status)
}

// source is a file to upload.
type source struct {
	name string
	open func() (io.ReadCloser, error)
}

// submitAnswer uploads files in one request, streaming.
func (c *client) submitAnswer(ctx context.Context, dataset string, files []source, fields map[string]string, query string) (*api.SubmitAnswer, error) {
	pr, pw := io.Pipe()
	defer pr.Close()
	w := multipart.NewWriter(pw)
	write := func() error {
		for k, v := range fields {
			if err := w.WriteField(k, v); err != nil {
				return err
			}
		}
		for _, f := range files {
			r, err := f.open()
			if err != nil {
				return err
			}
			part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition("file", f.name)}})
			if err == nil {
				_, err = io.Copy(part, r)
			}
			if err = errors.Join(err, r.Close()); err != nil {
				return err
			}
		}
		return w.Close()
	}
	go func() { pw.CloseWithError(write()) }()
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

// job reads a job, waiting up to wait for its end.
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
	return &out, c.call(ctx, http.MethodPost, "/v1/datasets/"+url.PathEscape(dataset)+"/search", body, &out)
}
