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

// ConvertWait is how long a conversion may take before it is stopped.
const ConvertWait = 120 * time.Second

// Conversions is the dataset of what is read for somebody and not kept. Its
// settings hold for all conversions.
const Conversions = "conversions"

// dropTimeout is the time to stop and delete a conversion whose caller is gone.
const dropTimeout = 30 * time.Second

// maxConverted documents of one conversion are read: an archive holds many.
const maxConverted = 1000

// Conversion is a file to be read and handed back.
type Conversion struct {
	Name      string // of the file; its extension helps to tell its type
	MediaType string // "" for unknown
	Body      io.Reader
	URL       string         // where the file is fetched from, instead of Body
	Dataset   string         // where the document is kept; "" deletes it afterwards
	Settings  map[string]any // parser_config; nil for none
	Job       string         // open, which the document joins; "" makes one
}

// DatasetOf is the dataset that the request of a conversion names, "" for none.
// Other parameters are refused: a document that was to be kept would be deleted
// for a slip in the name.
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

// Converted is one document of a conversion and what it says.
type Converted struct {
	sheaf.Document
	Chunks []sheaf.Chunk
}

// Convert uploads a file, waits for its end and reads what was found: the
// document, and those in it if it is an archive. What is not kept is deleted,
// also when ctx ends, which cancels the work. Errors are *Error; a file that
// cannot be read is a 422.
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

// Submit uploads a file, or has it fetched, and does not wait for its end.
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

// Watched remembers in Err why its reader stopped before the end, so that a body
// that broke off is told from a server that refused it.
type Watched struct {
	Reader io.Reader
	Err    error
}

// Read reads of the reader.
func (w *Watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil && err != io.EOF {
		w.Err = err
	}
	return n, err
}

// EnsureDataset makes a dataset of that name unless there is one.
func (c *Client) EnsureDataset(ctx context.Context, name string) error {
	err := c.Call(ctx, http.MethodGet, Path("v1", "datasets", name), nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != http.StatusNotFound {
		return err
	}
	err = c.Call(ctx, http.MethodPost, "/v1/datasets", map[string]string{"name": name}, nil)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusConflict {
		return nil // another request was first
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

// Drop deletes documents, whose tasks end with them.
func (c *Client) Drop(ctx context.Context, docs []sheaf.Document) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	for _, d := range docs {
		// A document that stays because the store is away is in the list of the
		// dataset, where it can be deleted by hand.
		_ = c.Call(ctx, http.MethodDelete, Path("v1", "datasets", d.DatasetID, "documents", d.ID), nil, nil)
	}
}

// Documents are those of a job, oldest first. More than 1,000 are an error.
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

// statusOf says whether a document or the service is at fault.
func statusOf(f *sheaf.Failure) int {
	if f.Retryable {
		return http.StatusServiceUnavailable
	}
	return http.StatusUnprocessableEntity
}

// Text is what chunks in reading order say, without marks of headings.
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
