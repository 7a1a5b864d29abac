package docling

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/facade"
)

// formats are the result formats.
var formats = []string{"html", "json", "md", "text"}

// plan is what to do with the documents of a task.
type plan struct {
	chunker    string // hybrid or hierarchical; "" for a conversion
	formats    []string
	zip        bool
	batch      bool     // the result has URLs
	includeDoc bool     // chunks are returned with the document
	raw        bool     // chunks are returned only with their text
	ignored    []string // options without effect here
}

// task is a job and its plan. Its id encodes both, so that any process can answer
// for it: JOB.KIND.WORDS.IGNORED.
type task struct {
	job string
	plan
}

const (
	wordZip = "zip"
	wordDoc = "doc"
	wordRaw = "raw"

	wordBatch = "batch"
)

func (t *task) id() string {
	words := slices.Clone(t.formats)
	for word, set := range map[string]bool{wordZip: t.zip, wordDoc: t.includeDoc, wordRaw: t.raw, wordBatch: t.batch} {
		if set {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return strings.Join([]string{t.job, cmp.Or(t.chunker, "convert"), strings.Join(words, "-"), strings.Join(t.ignored, "-")}, ".")
}

// errNoTask uses the wording that clients know.
var errNoTask = &facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: "Task not found."}

func taskOf(id string) (*task, error) {
	parts := strings.Split(id, ".")
	if len(parts) != 4 || !sheaf.ValidID(parts[0]) || !slices.Contains([]string{"convert", "hybrid", "hierarchical"}, parts[1]) {
		return nil, errNoTask
	}
	t := &task{job: parts[0], plan: plan{chunker: parts[1]}}
	if t.chunker == "convert" {
		t.chunker = ""
	}
	for word := range strings.SplitSeq(parts[2], "-") {
		switch {
		case word == wordZip:
			t.zip = true
		case word == wordDoc:
			t.includeDoc = true
		case word == wordRaw:
			t.raw = true
		case word == wordBatch:
			t.batch = true
		case slices.Contains(formats, word):
			t.formats = append(t.formats, word)
		default:
			return nil, errNoTask
		}
	}
	if parts[3] != "" {
		t.ignored = strings.Split(parts[3], "-")
	}
	return t, nil
}

type counts struct {
	Docs      int `json:"num_docs"`
	Processed int `json:"num_processed"`
	Succeeded int `json:"num_succeeded"`
	Partially int `json:"num_partially_succeeded"`
	Failed    int `json:"num_failed"`
}

type failure struct {
	Category  string            `json:"category"`
	Message   string            `json:"message"`
	Retryable bool              `json:"retryable"`
	Phase     string            `json:"phase"`
	Details   map[string]string `json:"details"`
}

type status struct {
	ID       string   `json:"task_id"`
	Type     string   `json:"task_type"`
	Status   string   `json:"task_status"`
	Position *int     `json:"task_position"`
	Meta     *counts  `json:"task_meta"`
	Error    *string  `json:"error_message"`
	Failure  *failure `json:"failure"`
}

func (s *status) ended() bool { return s.Status == statusSuccess || s.Status == statusFailure }

// States of tasks and documents. Clients wait for success or failure: a partly
// successful task is a success.
const (
	statusPending = "pending"
	statusStarted = "started"
	statusSuccess = "success"
	statusPartial = "partial_success"
	statusFailure = "failure"
)

// status queries the job, waiting at most wait for its end.
func (t *task) status(ctx context.Context, c *facade.Client, wait time.Duration) (*status, error) {
	var job sheaf.Job
	err := c.Call(ctx, http.MethodGet, facade.Path("v1", "jobs", t.job)+"?wait="+wait.String(), nil, &job)
	if err != nil {
		if e := facade.AsError(err); e.Status == http.StatusNotFound {
			return nil, errNoTask
		}
		return nil, err
	}
	if job.Documents.Total == 0 { // they have been deleted
		return nil, errNoTask
	}
	by := job.Documents.ByState
	st := &status{ID: t.id(), Type: "convert", Meta: &counts{
		Docs: job.Documents.Total, Succeeded: by[sheaf.DocSucceeded], Partially: by[sheaf.DocPartiallySucceeded], Failed: by[sheaf.DocFailed] + by[sheaf.DocCanceled],
	}}
	st.Meta.Processed = st.Meta.Succeeded + st.Meta.Partially + st.Meta.Failed
	if t.chunker != "" {
		st.Type = "chunk"
	}
	switch job.State {
	case sheaf.DocUnstarted, sheaf.DocQueued:
		st.Status = statusPending
		if job.Queue != nil {
			ahead := job.Queue.AheadOwn + job.Queue.AheadOthers
			st.Position = &ahead
		}
	case sheaf.DocSucceeded, sheaf.DocPartiallySucceeded:
		st.Status = statusSuccess
	case sheaf.DocFailed, sheaf.DocCanceled:
		st.Status = statusFailure
		docs, err := c.Documents(ctx, t.job)
		if err != nil {
			return nil, err
		}
		st.Failure = &failure{Category: "policy", Message: "The task was canceled", Retryable: true, Phase: "execution", Details: map[string]string{}}
		for _, d := range docs {
			if f := d.Failure; f != nil && d.State == sheaf.DocFailed {
				st.Failure = &failure{Category: categoryOf(f.Category), Message: f.Message, Retryable: f.Retryable, Phase: "execution", Details: map[string]string{"code": f.Code, "document": d.Name}}
				break
			}
		}
		st.Error = &st.Failure.Message
	default:
		st.Status = statusStarted
	}
	return st, nil
}

// ended returns nil if a task's result is available.
func (t *task) ended(ctx context.Context, c *facade.Client) error {
	st, err := t.status(ctx, c, 0)
	if err == nil && !st.ended() {
		err = &facade.Error{Status: http.StatusNotFound, Code: "not_ready", Detail: "Task result not found. Please wait for a completion status."}
	}
	return err
}

// pollStep is how long one query for a job waits.
const pollStep = 20 * time.Second

// wait returns once a task has ended, or after most.
func (t *task) wait(ctx context.Context, c *facade.Client, most time.Duration) (*status, error) {
	for begun := time.Now(); ; {
		st, err := t.status(ctx, c, max(0, min(most-time.Since(begun), pollStep)))
		if err != nil || st.ended() || time.Since(begun) >= most {
			return st, err
		}
	}
}

// drop deletes the documents of a task.
func (t *task) drop(ctx context.Context, c *facade.Client) {
	if docs, err := c.Documents(context.WithoutCancel(ctx), t.job); err == nil {
		c.Drop(ctx, slices.DeleteFunc(docs, func(d sheaf.Document) bool { return d.ParentID != "" })) // they are deleted with their archive
	}
}

// categoryOf maps a category to docling's names.
func categoryOf(c sheaf.Category) string {
	switch c {
	case sheaf.CategoryPolicy, sheaf.CategoryCapacity, sheaf.CategorySource, sheaf.CategoryTarget, sheaf.CategoryTimeout, sheaf.CategoryInternal:
		return string(c)
	case sheaf.CategoryBadInput, sheaf.CategoryEncrypted, sheaf.CategoryCrash:
		return "backend_failure"
	case sheaf.CategoryCanceled:
		return "policy"
	}
	return "unknown"
}

type problem struct {
	Component string `json:"component_type"`
	Module    string `json:"module_name"`
	Message   string `json:"error_message"`
	Category  string `json:"category"`
	Page      *int   `json:"page_no"`
}

type contents struct {
	Filename string    `json:"filename"`
	Markdown *string   `json:"md_content"`
	JSON     *document `json:"json_content"`
	HTML     *string   `json:"html_content"`
	Text     *string   `json:"text_content"`
	Doctags  *string   `json:"doctags_content"`
}

// result is the outcome of one source.
type result struct {
	doc    sheaf.Document
	chunks []sheaf.Chunk // including those of files inside it
	status string
	errors []problem
}

// Values of source in results for all sources' chunks, and none.
const (
	all  = -1
	none = -2
)

// results reads the documents of a task that has ended: one for each source, in
// order. Chunks are those of one source, or of all.
func (t *task) results(ctx context.Context, c *facade.Client, source int) ([]*result, time.Duration, error) {
	docs, err := c.Documents(ctx, t.job)
	if err != nil {
		return nil, 0, err
	}
	var out []*result
	rootOf := map[string]*result{}
	var begun, ended time.Time
	for _, d := range docs {
		r := rootOf[d.ParentID]
		if r == nil {
			r = &result{doc: d, status: statusOf(d.State), errors: []problem{}}
			for _, name := range t.ignored {
				r.errors = append(r.errors, problem{Component: "user_input", Module: "sheaf", Message: fmt.Sprintf("The option %s is not supported and was ignored", name), Category: "policy"})
			}
			out = append(out, r)
		} else if s := statusOf(d.State); s != r.status {
			r.status = statusPartial
		}
		rootOf[d.ID] = r
		if begun.IsZero() || d.CreatedAt.Before(begun) {
			begun = d.CreatedAt
		}
		if d.FinishedAt.After(ended) {
			ended = d.FinishedAt
		}
		r.note(&d)
		if statusOf(d.State) == statusFailure || source != all && (source < 0 || source >= len(out) || r != out[source]) {
			continue
		}
		chunks, err := c.Read(ctx, d.DatasetID, d.ID)
		if err != nil {
			return nil, 0, err
		}
		r.chunks = append(r.chunks, chunks...)
	}
	if len(out) == 0 {
		return nil, 0, errNoTask
	}
	return out, max(0, ended.Sub(begun)), nil
}

func statusOf(s sheaf.DocumentState) string {
	switch s {
	case sheaf.DocSucceeded:
		return statusSuccess
	case sheaf.DocPartiallySucceeded:
		return statusPartial
	}
	return statusFailure
}

// note records what went wrong with a document.
func (r *result) note(d *sheaf.Document) {
	add := func(category, message string, page int) {
		p := problem{Component: "document_backend", Module: cmp.Or(d.Parser, "sheaf"), Message: message, Category: category}
		if page > 0 {
			p.Page = &page
		}
		r.errors = append(r.errors, p)
	}
	switch f := d.Failure; {
	case f != nil:
		add(categoryOf(f.Category), f.Message, f.Page)
	case d.State == sheaf.DocCanceled:
		add("policy", "The task was canceled", 0)
	}
	if d.State == sheaf.DocSucceeded {
		return // its warnings are not errors
	}
	for _, w := range d.Warnings {
		add("unknown", w.Message, w.Page)
	}
}

// contents returns the formats requested by the plan.
func (t *task) contents(r *result) contents {
	out := contents{Filename: path.Base(r.doc.Name)}
	if r.status == statusFailure {
		return out
	}
	var items []item // not needed by Markdown and text
	if slices.Contains(t.formats, "html") || slices.Contains(t.formats, "json") {
		items = itemsOf(r.chunks)
	}
	for _, f := range t.formats {
		switch f {
		case "md":
			text := facade.Markdown(r.chunks)
			out.Markdown = &text
		case "text":
			text := facade.Text(r.chunks)
			out.Text = &text
		case "html":
			text := htmlOf(out.Filename, items)
			out.HTML = &text
		case "json":
			out.JSON = documentOf(&r.doc, items)
		}
	}
	return out
}

// write answers with the result of a task that has ended.
func (t *task) write(w http.ResponseWriter, r *http.Request, c *facade.Client) {
	source := all
	if t.batch {
		source = none // chunks are read at the URLs
	}
	sources, took, err := t.results(r.Context(), c, source)
	if err != nil {
		refuse(w, err)
		return
	}
	switch {
	case t.batch:
		t.writeAddresses(w, r, sources, took)
	case t.chunker != "":
		t.writeChunks(w, sources, took)
	case t.zip || len(sources) > 1:
		t.writeZip(w, sources)
	default:
		facade.Answer(w, nil, map[string]any{
			"document": t.contents(sources[0]), "status": sources[0].status, "errors": sources[0].errors, "processing_time": seconds(took), "timings": map[string]any{},
		})
	}
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// artifacts are the formats as named in URLs.
var artifacts = map[string]struct{ kind, media string }{
	"md": {"markdown", "text/markdown"}, "json": {"json", "application/json"}, "html": {"html", "text/html"}, "text": {"text", "text/plain"},
}

// writeAddresses answers with the URLs of each format of each source.
func (t *task) writeAddresses(w http.ResponseWriter, r *http.Request, sources []*result, took time.Duration) {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	counted := map[string]int{}
	documents := []map[string]any{}
	for i, one := range sources {
		counted[one.status]++
		name := path.Base(one.doc.Name)
		addresses := []map[string]any{}
		for _, f := range t.formats {
			if one.status == statusFailure {
				break
			}
			u := url.URL{Scheme: scheme, Host: r.Host, Path: Prefix + facade.Path("v1", "artifacts", t.id(), strconv.Itoa(i), f)}
			addresses = append(addresses, map[string]any{"artifact_type": artifacts[f].kind, "mime_type": artifacts[f].media, "uri": u.String(), "url_expires_at": one.doc.FinishedAt.Add(resultLife)})
		}
		documents = append(documents, map[string]any{"source_index": i, "source_uri": name, "filename": name, "status": one.status, "errors": one.errors, "timings": map[string]any{}, "artifacts": addresses})
	}
	facade.Answer(w, nil, map[string]any{
		"processing_time": seconds(took), "num_converted": len(sources), "num_succeeded": counted[statusSuccess], "num_partially_succeeded": counted[statusPartial], "num_failed": counted[statusFailure], "documents": documents,
	})
}

// artifact answers with one format of one source.
func (s *service) artifact(w http.ResponseWriter, r *http.Request) {
	i, notNumber := strconv.Atoi(r.PathValue("source"))
	if notNumber != nil || i < 0 {
		i = none
	}
	t, c, err := s.of(r)
	var sources []*result
	if err == nil {
		err = t.ended(r.Context(), c)
	}
	if err == nil {
		sources, _, err = t.results(r.Context(), c, i)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	format := r.PathValue("format")
	if i == none || i >= len(sources) || !slices.Contains(t.formats, format) {
		refuse(w, &facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: "The task has no such result"})
		return
	}
	t.formats = []string{format}
	content := t.contents(sources[i])
	w.Header().Set("Content-Type", artifacts[format].media+"; charset=utf-8")
	switch text := cmp.Or(content.Markdown, content.HTML, content.Text); {
	case content.JSON != nil:
		_ = json.NewEncoder(w).Encode(content.JSON) // the client may be gone
	case text != nil:
		_, _ = io.WriteString(w, *text) // the client may be gone
	default:
		refuse(w, &facade.Error{Status: http.StatusNotFound, Code: "not_found", Detail: "The document was not converted; its status says why"})
	}
}

// writeZip answers with an archive with a file per source and format.
func (t *task) writeZip(w http.ResponseWriter, sources []*result) {
	var b bytes.Buffer
	archive := zip.NewWriter(&b)
	used := map[string]bool{}
	for i, r := range sources {
		content := t.contents(r)
		base := strings.TrimSuffix(content.Filename, path.Ext(content.Filename))
		if used[base] {
			base += "-" + strconv.Itoa(i+1)
		}
		used[base] = true
		put := func(extension string, text *string) {
			if text == nil {
				return
			}
			if f, err := archive.Create(base + extension); err == nil {
				_, _ = f.Write([]byte(*text)) // writing to a buffer never fails
			}
		}
		put(".md", content.Markdown)
		put(".html", content.HTML)
		put(".txt", content.Text)
		if content.JSON != nil {
			if encoded, err := json.Marshal(content.JSON); err == nil {
				text := string(encoded)
				put(".json", &text)
			}
		}
		if len(r.errors) > 0 {
			if encoded, err := json.Marshal(map[string]any{"status": r.status, "errors": r.errors}); err == nil {
				text := string(encoded)
				put(".errors.json", &text)
			}
		}
	}
	_ = archive.Close() // writes to a buffer
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="converted_docs.zip"`)
	_, _ = w.Write(b.Bytes()) // the client may be gone
}

type chunkItem struct {
	Filename string         `json:"filename"`
	Index    int            `json:"chunk_index"`
	Text     string         `json:"text"`
	Raw      *string        `json:"raw_text"`
	Tokens   *int           `json:"num_tokens"`
	Headings []string       `json:"headings"`
	Captions []string       `json:"captions"`
	Items    []string       `json:"doc_items"`
	Pages    []int          `json:"page_numbers"`
	Metadata map[string]any `json:"metadata"`
}

// writeChunks answers with chunks as in hybrid, or with each element separately.
func (t *task) writeChunks(w http.ResponseWriter, sources []*result, took time.Duration) {
	chunks, documents := []chunkItem{}, []map[string]any{}
	for _, r := range sources {
		items := itemsOf(r.chunks)
		refs := documentOf(&r.doc, items).refs
		name := path.Base(r.doc.Name)
		add := func(c *sheaf.Chunk, raw string, tokens *int, refs []string) {
			one := chunkItem{Filename: name, Index: len(chunks), Text: strings.Join(append(slices.Clone(c.HeadingPath), raw), "\n"), Tokens: tokens, Headings: c.HeadingPath, Items: refs, Pages: c.Pages, Metadata: map[string]any{"boxes": c.Boxes, "kind": c.Kind}}
			if t.raw {
				one.Raw = &raw
			}
			chunks = append(chunks, one)
		}
		for i, from := 0, 0; i < len(r.chunks); i++ {
			c, to := &r.chunks[i], from
			for to < len(items) && items[to].chunk == i {
				to++
			}
			if t.chunker == "hybrid" {
				_, body := facade.Headings(c)
				add(c, body, &c.Tokens, refs[from:to:to])
			} else {
				for j := from; j < to; j++ {
					if items[j].label != "section_header" {
						add(c, items[j].markdown(), nil, refs[j:j+1:j+1])
					}
				}
			}
			from = to
		}
		content := contents{Filename: name}
		if t.includeDoc {
			content = t.contents(r)
		}
		documents = append(documents, map[string]any{"kind": "ExportResult", "content": content, "status": r.status, "errors": r.errors, "timings": map[string]any{}})
	}
	facade.Answer(w, nil, map[string]any{"chunks": chunks, "documents": documents, "processing_time": seconds(took)})
}

// markdown returns an item as Markdown.
func (it *item) markdown() string {
	switch it.label {
	case "code":
		return "```" + it.lang + "\n" + it.text + "\n```"
	case "table":
		var b strings.Builder
		for r, row := range it.rows {
			for _, c := range row {
				b.WriteString("| " + strings.ReplaceAll(c, "|", `\|`) + " ")
			}
			b.WriteString("|\n")
			if r == 0 {
				b.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
			}
		}
		return strings.TrimSpace(b.String())
	}
	return it.text
}

// of returns the task named by a request.
func (s *service) of(r *http.Request) (*task, *facade.Client, error) {
	t, err := taskOf(r.PathValue("task"))
	return t, facade.Inside(s.v1, r.Header), err
}

// poll answers with a task's status, once it has ended or after ?wait= seconds.
func (s *service) poll(w http.ResponseWriter, r *http.Request) {
	t, c, err := s.of(r)
	var wait float64
	if text := r.URL.Query().Get("wait"); err == nil && text != "" {
		if wait, err = strconv.ParseFloat(text, 64); err != nil || !(wait >= 0) {
			err = unprocessable("wait: Input should be a number of seconds")
		}
	}
	var st *status
	if err == nil {
		st, err = t.wait(r.Context(), c, time.Duration(min(wait, facade.ConvertWait.Seconds())*float64(time.Second)))
	}
	if err != nil {
		refuse(w, err)
		return
	}
	facade.Answer(w, nil, st)
}

func (s *service) result(w http.ResponseWriter, r *http.Request) {
	t, c, err := s.of(r)
	if err == nil {
		err = t.ended(r.Context(), c)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	t.write(w, r, c)
}

// cancel ends a task and deletes its documents.
func (s *service) cancel(w http.ResponseWriter, r *http.Request) {
	t, c, err := s.of(r)
	if err == nil {
		_, err = t.status(r.Context(), c, 0)
	}
	if err == nil {
		err = c.Call(r.Context(), http.MethodPost, facade.Path("v1", "jobs", t.job)+":cancel", nil, nil)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	t.drop(r.Context(), c)
	facade.Answer(w, nil, map[string]string{"status": "ok"})
}
