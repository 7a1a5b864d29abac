package facade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sheaf"
)

// ConvertWait is how long a conversion may take before it is canceled.
const ConvertWait = 120 * time.Second

// Conversions is the dataset of files that are converted and not kept. Its settings
// apply to all conversions.
const Conversions = "conversions"

// dropTimeout bounds canceling and deleting a conversion whose caller is gone.
const dropTimeout = 30 * time.Second

// maxConverted bounds the documents read per conversion: an archive holds many.
const maxConverted = 1000

// Conversion is a file to convert.
type Conversion struct {
	Name      string // of the file; its extension helps to detect its type
	MediaType string // "" if unknown
	Body      io.Reader
	URL       string         // to fetch the file from, instead of Body
	Dataset   string         // in which to keep the document; "" deletes it afterwards
	Settings  map[string]any // parser_config; may be nil
	Job       string         // an open one for the document to join; "" creates one
}

// DatasetOf returns the dataset in a conversion request, or "". It rejects other
// parameters: a typo in the name would delete a document that was to be kept.
func DatasetOf(r *http.Request) (string, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "dataset" {
			return "", &Error{Status: http.StatusBadRequest, Code: "invalid", Detail: fmt.Sprintf("There is no parameter %q; there is dataset, which keeps the document there", name)}
		}
	}
	if query.Has("dataset") && query.Get("dataset") == "" {
		return "", &Error{Status: http.StatusBadRequest, Code: "invalid", Detail: "The parameter dataset is empty; give the id or the name of a dataset, or leave it out"}
	}
	return query.Get("dataset"), nil
}

// Converted is one document of a conversion with its chunks.
type Converted struct {
	sheaf.Document
	Chunks []sheaf.Chunk
}

// Convert uploads a file, waits until it is processed and reads the result: the
// document, and those in it if it is an archive. Unless kept, it is deleted, even
// if ctx ends, which cancels the work. Errors are *Error; an unreadable file is a
// 422.
func (c *Client) Convert(ctx context.Context, in Conversion) ([]Converted, error) {
	job, docs, err := c.Submit(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.Dataset == "" {
		defer c.Drop(ctx, docs)
	}
	if err := c.wait(ctx, job.ID); err != nil {
		return nil, err
	}
	return c.converted(ctx, job.ID)
}

// Submit uploads a file, or has it fetched, without waiting for it to be processed.
func (c *Client) Submit(ctx context.Context, in Conversion) (*sheaf.Job, []sheaf.Document, error) {
	dataset := in.Dataset
	if dataset == "" {
		dataset = Conversions
		if err := c.EnsureDataset(ctx, dataset); err != nil {
			return nil, nil, err
		}
	}
	q, header, body := url.Values{}, http.Header{}, &Watched{Reader: in.Body}
	if in.Job != "" {
		q.Set("job", in.Job)
	}
	if in.URL != "" {
		b, err := json.Marshal(map[string]any{"url": in.URL, "name": in.Name, "parser_config": in.Settings, "lane": sheaf.LaneInteractive})
		if err != nil {
			return nil, nil, err
		}
		body.Reader = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	} else {
		q.Set("name", in.Name)
		q.Set("lane", strconv.Itoa(int(sheaf.LaneInteractive)))
		if in.Settings != nil {
			b, err := json.Marshal(in.Settings)
			if err != nil {
				return nil, nil, err
			}
			q.Set("parser_config", string(b))
		}
		if in.MediaType != "" {
			header.Set("Content-Type", in.MediaType)
		}
	}
	resp, err := c.Do(ctx, http.MethodPost, Path("v1", "datasets", dataset, "documents")+"?"+q.Encode(), body, header)
	if e := (*Error)(nil); body.Err != nil && errors.As(err, &e) && (e.Status >= http.StatusInternalServerError || e.Code == "broken_off") {
		return nil, nil, &Error{Status: http.StatusBadRequest, Code: "broken_off", Detail: "The file broke off on its way; send it again", Retryable: true}
	}
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	var sent struct {
		Job       sheaf.Job        `json:"job"`
		Documents []sheaf.Document `json:"documents"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&sent); err != nil {
		return nil, nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &sent.Job, sent.Documents, nil
}

// Watched records in Err why its reader stopped early, to tell a body that broke
// off from a server that rejected it.
type Watched struct {
	Reader io.Reader
	Err    error
}

// Read implements io.Reader.
func (w *Watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && err != io.EOF {
		w.Err = err
	}
	return n, err
}

// EnsureDataset creates the dataset unless it exists.
func (c *Client) EnsureDataset(ctx context.Context, name string) error {
	err := c.Call(ctx, http.MethodGet, Path("v1", "datasets", name), nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusNotFound {
		return err
	}
	err = c.Call(ctx, http.MethodPost, "/v1/datasets", map[string]string{"name": name}, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusConflict {
		return nil // another request was faster
	}
	return err
}

// wait returns when a job has ended.
func (c *Client) wait(ctx context.Context, id string) error {
	for begun := time.Now(); ; {
		left := ConvertWait - time.Since(begun)
		if left <= 0 {
			return &Error{Status: http.StatusGatewayTimeout, Code: "conversion_timeout", Retryable: true, Detail: fmt.Sprintf("The document was not read within %s; send it to /v1/datasets/{ds}/documents, which does not wait", ConvertWait)}
		}
		var job sheaf.Job
		if err := c.Call(ctx, http.MethodGet, Path("v1", "jobs", id)+"?wait="+min(left, 20*time.Second).String(), nil, &job); err != nil {
			return err
		}
		if job.State.Terminal() {
			return nil
		}
	}
}

// Drop deletes documents, which ends their tasks.
func (c *Client) Drop(ctx context.Context, docs []sheaf.Document) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	for _, d := range docs {
		// A document that is kept because the store is down is in the dataset's
		// list, where it can be deleted manually.
		_ = c.Call(ctx, http.MethodDelete, Path("v1", "datasets", d.DatasetID, "documents", d.ID), nil, nil)
	}
}

// Documents lists those of a job, oldest first. More than 1,000 are an error.
func (c *Client) Documents(ctx context.Context, job string) ([]sheaf.Document, error) {
	var list List[sheaf.Document]
	err := c.Call(ctx, http.MethodGet, Path("v1", "jobs", job, "documents")+fmt.Sprintf("?order=oldest&limit=%d", maxConverted), nil, &list)
	if err == nil && list.NextCursor != nil {
		err = &Error{Status: http.StatusRequestEntityTooLarge, Code: "too_many_documents", Detail: fmt.Sprintf("More than %d documents are in there; send them to /v1/datasets/{ds}/documents", maxConverted)}
	}
	return list.Items, err
}

// converted reads the documents of a job that has ended.
func (c *Client) converted(ctx context.Context, job string) ([]Converted, error) {
	docs, err := c.Documents(ctx, job)
	if err != nil {
		return nil, err
	}
	var out []Converted
	var failed *sheaf.Failure
	for _, d := range docs {
		switch d.State {
		case sheaf.DocSucceeded, sheaf.DocPartiallySucceeded:
		default:
			if failed == nil {
				failed = d.Failure
			}
			continue
		}
		chunks, err := c.Read(ctx, d.DatasetID, d.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, Converted{d, chunks})
	}
	switch {
	case len(out) > 0:
		return out, nil
	case failed != nil:
		return nil, &Error{Status: statusOf(failed), Code: failed.Code, Detail: failed.Message, Retryable: failed.Retryable}
	}
	return nil, &Error{Status: http.StatusConflict, Code: "canceled", Detail: "The conversion was canceled; send the file again", Retryable: true}
}

// statusOf tells whether the document or the service is at fault.
func statusOf(f *sheaf.Failure) int {
	if f.Retryable {
		return http.StatusServiceUnavailable
	}
	return http.StatusUnprocessableEntity
}

// Text returns the text of chunks in reading order, without heading marks.
func Text(chunks []sheaf.Chunk) string {
	var b []byte
	for i := range chunks {
		if i > 0 {
			b = append(b, "\n\n"...)
		}
		b = append(b, chunks[i].Text...)
	}
	return string(b)
}
