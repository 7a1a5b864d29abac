package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sheaf"
	"sheaf/internal/facade"
)

// defaultDataset receives documents if no dataset is named.
const defaultDataset = "default"

type searchIn struct {
	Query   string   `json:"query" jsonschema:"what to look for, in words or as a question"`
	Dataset string   `json:"dataset,omitempty" jsonschema:"id or name of a dataset; all datasets without it"`
	Filters *filters `json:"filters,omitempty" jsonschema:"only passages that match all of these"`
	Limit   int      `json:"limit,omitempty" jsonschema:"most passages, 1 to 100; 10 without it"`
}

type filters struct {
	DocumentIDs []string          `json:"document_ids,omitempty" jsonschema:"of one of these documents"`
	MediaTypes  []string          `json:"media_types,omitempty" jsonschema:"of one of these types, such as application/pdf"`
	Pages       *pages            `json:"pages,omitempty" jsonschema:"on these pages"`
	Metadata    map[string]string `json:"metadata,omitempty" jsonschema:"of documents with these values"`
	Languages   []string          `json:"languages,omitempty" jsonschema:"in one of these languages, as ISO 639-1, such as en"`
	Keywords    []string          `json:"keywords,omitempty" jsonschema:"with one of these keywords"`
	Tags        []string          `json:"tags,omitempty" jsonschema:"with one of these tags"`
}

type pages struct {
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
}

type searchOut struct {
	Passages []passage `json:"passages"`
}

type passage struct {
	Text      string      `json:"text"`
	Score     float64     `json:"score"`
	Document  string      `json:"document" jsonschema:"id of the document"`
	Name      string      `json:"name" jsonschema:"of the document"`
	Dataset   string      `json:"dataset" jsonschema:"id of the dataset"`
	Headings  []string    `json:"headings" jsonschema:"above the passage, outermost first"`
	Pages     []int       `json:"pages"`
	Boxes     []sheaf.Box `json:"boxes" jsonschema:"where the text stands: points from the top left of its page"`
	PageImage string      `json:"page_image,omitempty" jsonschema:"URI of the resource that shows the first page with the passage framed"`
}

type datasetsIn struct {
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the answer before"`
}

type datasetsOut struct {
	Datasets   []dataset `json:"datasets"`
	NextCursor string    `json:"next_cursor,omitempty"`
}

type dataset struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type documentsIn struct {
	Dataset string `json:"dataset" jsonschema:"id or name of the dataset"`
	Query   string `json:"query,omitempty" jsonschema:"part of the document's name"`
	State   string `json:"state,omitempty" jsonschema:"one of unstarted, queued, running, finalizing, succeeded, partially_succeeded, failed, canceling, canceled"`
	Cursor  string `json:"cursor,omitempty" jsonschema:"next_cursor of the answer before"`
}

type documentsOut struct {
	Documents  []document `json:"documents"`
	NextCursor string     `json:"next_cursor,omitempty"`
}

type document struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	MediaType string         `json:"media_type"`
	State     string         `json:"state"`
	Progress  float64        `json:"progress" jsonschema:"0 to 1"`
	Units     int            `json:"units" jsonschema:"number of pages, rows, slides or parts"`
	Unit      string         `json:"unit,omitempty"`
	Failure   *sheaf.Failure `json:"failure,omitempty"`
}

type readIn struct {
	Document string `json:"document" jsonschema:"id of the document"`
	From     int    `json:"from" jsonschema:"first page, from 1"`
	To       int    `json:"to" jsonschema:"last page; up to 20 pages at once"`
}

type readOut struct {
	Markdown string `json:"markdown"`
	Pages    int    `json:"pages" jsonschema:"number of pages of the whole document"`
}

type urlIn struct {
	URL     string `json:"url" jsonschema:"of a host that server.allow_urls names"`
	Dataset string `json:"dataset,omitempty" jsonschema:"id or name; default without it"`
}

type fileIn struct {
	Name    string `json:"name" jsonschema:"file name with its extension"`
	Base64  string `json:"base64" jsonschema:"the bytes of the file, up to 47 MB"`
	Dataset string `json:"dataset,omitempty" jsonschema:"id or name; default without it"`
}

type jobIn struct {
	Job string `json:"job" jsonschema:"id of the job"`
}

type jobOut struct {
	Job       string         `json:"job"`
	State     string         `json:"state" jsonschema:"ask job_status again while it is queued, running or finalizing"`
	Progress  float64        `json:"progress" jsonschema:"0 to 1"`
	Documents map[string]int `json:"documents" jsonschema:"number of documents by state"`
	Ingested  []string       `json:"ingested,omitempty" jsonschema:"ids of the documents that were sent"`
	Failures  []failure      `json:"failures,omitempty" jsonschema:"the first ten"`
}

type failure struct {
	Document string `json:"document"`
	Code     string `json:"code"`
	Message  string `json:"message"`
}

var (
	yes     = true
	no      = false
	reading = &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	adding  = &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	fetches = &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &yes}
)

// tool registers f, which receives the caller's client.
func tool[In, Out any](s *service, m *sdk.Server, name, description string, hints *sdk.ToolAnnotations, f func(ctx context.Context, c *facade.Client, in In, report reporter) (Out, error)) {
	sdk.AddTool(m, &sdk.Tool{Name: name, Description: description, Annotations: hints}, func(ctx context.Context, r *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		out, err := f(ctx, s.client(r), in, reporterOf(r))
		return nil, out, err
	})
}

// reporter reports a job's progress to the caller, from 0 to 1.
type reporter func(ctx context.Context, progress float64, message string)

// reporterOf sends progress if the caller requested it. The protocol requires
// increasing numbers.
func reporterOf(r *sdk.CallToolRequest) reporter {
	token, last := r.Params.GetProgressToken(), -1.0
	return func(ctx context.Context, progress float64, message string) {
		if token == nil || progress <= last {
			return
		}
		last = progress
		// The caller may be gone; the job does not depend on it.
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: progress, Total: 1, Message: message})
	}
}

func (s *service) readingTools(m *sdk.Server) {
	tool(s, m, "search", "Find passages by words and meaning, best first. Each comes with its document, pages, boxes and a link to the page image.", reading, search)
	tool(s, m, "list_datasets", "List the datasets that can be searched.", reading, listDatasets)
	tool(s, m, "list_documents", "List the documents of a dataset, newest first, with their state.", reading, listDocuments)
	tool(s, m, "read_pages", "Read the text of pages of a document as Markdown.", reading, readPages)
	tool(s, m, "job_status", "Read how far a job is, and what failed in it.", reading, func(ctx context.Context, c *facade.Client, in jobIn, _ reporter) (jobOut, error) {
		return jobStatus(ctx, c, in.Job, "")
	})
}

func (s *service) writingTools(m *sdk.Server) {
	tool(s, m, "ingest_url", "Fetch a document by its URL and make it searchable. Answers when that is done, or after 50 seconds with a job to ask for.", fetches, func(ctx context.Context, c *facade.Client, in urlIn, report reporter) (jobOut, error) {
		return ingest(ctx, c, in.Dataset, "", bytes.NewReader(jsonOf(map[string]string{"url": in.URL})), "application/json", report)
	})
	tool(s, m, "ingest_file", "Upload a file and make it searchable. Answers when that is done, or after 50 seconds with a job to ask for.", adding, func(ctx context.Context, c *facade.Client, in fileIn, report reporter) (jobOut, error) {
		b, err := base64.StdEncoding.DecodeString(in.Base64)
		if err != nil {
			return jobOut{}, fmt.Errorf("base64 cannot be decoded (%w); send the bytes of the file in standard base64 with padding", err)
		}
		if in.Name == "" {
			return jobOut{}, fmt.Errorf("name is empty; give the file name with its extension")
		}
		return ingest(ctx, c, in.Dataset, in.Name, bytes.NewReader(b), "", report)
	})
}

func search(ctx context.Context, c *facade.Client, in searchIn, _ reporter) (searchOut, error) {
	path := "/v1/search"
	if in.Dataset != "" {
		path = facade.Path("v1", "datasets", in.Dataset, "search")
	}
	ask := map[string]any{"query": in.Query}
	if in.Filters != nil {
		ask["filter"] = in.Filters
	}
	if in.Limit != 0 {
		ask["limit"] = in.Limit
	}
	var found struct {
		Hits []struct {
			Score    float64     `json:"score"`
			Chunk    sheaf.Chunk `json:"chunk"`
			Document struct {
				ID        string `json:"id"`
				Name      string `json:"name"`
				DatasetID string `json:"dataset_id"`
			} `json:"document"`
		} `json:"hits"`
	}
	if err := c.Call(ctx, http.MethodPost, path, ask, &found); err != nil {
		return searchOut{}, err
	}
	out := searchOut{Passages: []passage{}}
	for _, h := range found.Hits {
		p := passage{
			Text: h.Chunk.Text, Score: h.Score, Document: h.Document.ID, Name: h.Document.Name, Dataset: h.Document.DatasetID,
			Headings: orEmpty(h.Chunk.HeadingPath), Pages: orEmpty(h.Chunk.Pages), Boxes: orEmpty(h.Chunk.Boxes),
		}
		if len(p.Boxes) > 0 {
			p.PageImage = pageImageURI(p.Document, p.Boxes)
		}
		out.Passages = append(out.Passages, p)
	}
	return out, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func listDatasets(ctx context.Context, c *facade.Client, in datasetsIn, _ reporter) (datasetsOut, error) {
	var list facade.List[dataset]
	err := c.Call(ctx, http.MethodGet, "/v1/datasets?"+pageOf(in.Cursor).Encode(), nil, &list)
	return datasetsOut{orEmpty(list.Items), nextOf(list)}, err
}

func pageOf(cursor string) url.Values {
	q := url.Values{"limit": {"100"}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

func nextOf[T any](list facade.List[T]) string {
	if list.NextCursor == nil {
		return ""
	}
	return *list.NextCursor
}

func listDocuments(ctx context.Context, c *facade.Client, in documentsIn, _ reporter) (documentsOut, error) {
	q := pageOf(in.Cursor)
	if in.Query != "" {
		q.Set("q", in.Query)
	}
	if in.State != "" {
		q.Set("state", in.State)
	}
	var list facade.List[document]
	err := c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", in.Dataset, "documents")+"?"+q.Encode(), nil, &list)
	return documentsOut{orEmpty(list.Items), nextOf(list)}, err
}

// maxPages limits how many pages are read at once.
const maxPages = 20

func readPages(ctx context.Context, c *facade.Client, in readIn, _ reporter) (readOut, error) {
	if in.From < 1 || in.To < in.From || in.To-in.From >= maxPages {
		return readOut{}, fmt.Errorf("pages %d to %d cannot be read; give from and to, counted from 1, of up to %d pages", in.From, in.To, maxPages)
	}
	var d document
	if err := c.Call(ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents", in.Document), nil, &d); err != nil {
		return readOut{}, err
	}
	if in.From > d.Units {
		return readOut{}, fmt.Errorf("the document has %d pages; page %d is behind its end", d.Units, in.From)
	}
	chunks, err := c.ReadPages(ctx, "-", in.Document, in.From, min(in.To, d.Units))
	return readOut{facade.Markdown(chunks), d.Units}, err
}

// ingestWait is how long an upload waits for its end. Assistants abandon a call
// after a minute.
const ingestWait = 50 * time.Second

// ingest sends a document and follows its job. The job continues if the caller
// disconnects.
func ingest(ctx context.Context, c *facade.Client, dataset, name string, body *bytes.Reader, media string, report reporter) (jobOut, error) {
	if dataset == "" {
		dataset = defaultDataset
	}
	path := facade.Path("v1", "datasets", dataset, "documents")
	header := http.Header{}
	if name != "" {
		path += "?" + url.Values{"name": {name}}.Encode()
	}
	if media != "" {
		header.Set("Content-Type", media)
	}
	var sent struct {
		Job       sheaf.Job `json:"job"`
		Documents []struct {
			ID string `json:"id"`
		} `json:"documents"`
	}
	resp, err := c.Do(ctx, http.MethodPost, path, body, header)
	if err != nil {
		return jobOut{}, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&sent); err != nil {
		return jobOut{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, ingestWait+10*time.Second)
	defer cancel()
	for begun := time.Now(); ; {
		out, err := jobStatus(ctx, c, sent.Job.ID, "1s")
		if err != nil {
			return jobOut{}, err
		}
		report(ctx, out.Progress, out.State)
		if sheaf.DocumentState(out.State).Terminal() || time.Since(begun) > ingestWait {
			for _, d := range sent.Documents {
				out.Ingested = append(out.Ingested, d.ID)
			}
			return out, nil
		}
	}
}

// maxFailures limits the failures listed in a status.
const maxFailures = 10

// jobStatus reads a job; wait, such as 1s, waits for its end.
func jobStatus(ctx context.Context, c *facade.Client, id, wait string) (jobOut, error) {
	path := facade.Path("v1", "jobs", id)
	query := ""
	if wait != "" {
		query = "?wait=" + wait
	}
	var job sheaf.Job
	if err := c.Call(ctx, http.MethodGet, path+query, nil, &job); err != nil {
		return jobOut{}, err
	}
	out := jobOut{Job: job.ID, State: string(job.State), Progress: job.Progress, Documents: map[string]int{}}
	for state, n := range job.Documents.ByState {
		out.Documents[string(state)] = n
	}
	if !slices.ContainsFunc([]sheaf.DocumentState{sheaf.DocFailed, sheaf.DocPartiallySucceeded}, func(st sheaf.DocumentState) bool { return job.Documents.ByState[st] > 0 }) {
		return out, nil
	}
	var list facade.List[struct {
		DocumentID string        `json:"document_id"`
		Failure    sheaf.Failure `json:"failure"`
	}]
	if err := c.Call(ctx, http.MethodGet, path+"/errors?limit="+strconv.Itoa(maxFailures), nil, &list); err != nil {
		return jobOut{}, err
	}
	for _, e := range list.Items {
		out.Failures = append(out.Failures, failure{e.DocumentID, e.Failure.Code, e.Failure.Message})
	}
	return out, nil
}
