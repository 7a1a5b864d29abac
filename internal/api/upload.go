package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/webhook"
)

// Bounds of one upload request.
const (
	maxFiles      = 1000
	maxFieldBytes = 64 << 10
	fetchTimeout  = 10 * time.Minute
)

// SubmitAnswer is the answer to an upload.
type SubmitAnswer struct {
	Job       *sheaf.Job           `json:"job,omitempty"`
	Documents []sheaf.Document     `json:"documents" nullable:"false"`
	Rejected  []Rejected           `json:"rejected,omitempty" doc:"files of a multipart upload that were not taken; the others were"`
	Plans     []ingest.PlanPreview `json:"plans,omitempty" doc:"of a dry run: at most the first 100 files"`
	Forecast  *ingest.Forecast     `json:"forecast,omitempty" doc:"of a dry run: all files together"`
}

// Rejected is a file that was not taken.
type Rejected struct {
	Name     string        `json:"name"`
	UploadID string        `json:"upload_id,omitempty" doc:"of an upload in pieces"`
	Failure  sheaf.Failure `json:"failure"`
}

// uploadRoutes are served by hand, since a body of any size must stream; they
// are described to OpenAPI beside.
func (s *Server) uploadRoutes() {
	s.mux.HandleFunc("POST /v1/datasets/{ds}/documents", func(w http.ResponseWriter, r *http.Request) { s.upload(w, r, "") })
	s.mux.HandleFunc("PUT /v1/datasets/{ds}/documents/{doc}", func(w http.ResponseWriter, r *http.Request) { s.upload(w, r, r.PathValue("doc")) })
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/content", s.content)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/artifacts/{range}", s.artifactFile)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/pages/{n}/image", s.pageImage)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/pictures/{picture}", s.picture)
	s.describeUploads()
}

// upload takes one or many files and answers when their bytes are stored and
// their jobs are queued.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, id string) {
	ctx := r.Context()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a large file over a slow line may take long
	ds, err := s.dataset(ctx, DatasetPath{r.PathValue("ds")})
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var staged []*ingest.Staged
	var rejected []Rejected
	err = s.stage(ctx, "store", func(ctx context.Context) error {
		staged, rejected, err = s.stageFiles(r.WithContext(ctx), ds, id)
		return err
	})
	if err == nil && len(staged) == 0 {
		err = errors.New("no file was sent")
		if len(rejected) > 0 {
			err = &rejected[0].Failure
		}
	}
	if err != nil {
		s.cfg.Ingest.Discard(ctx, staged...)
		s.writeProblem(w, r, err)
		return
	}
	answer := SubmitAnswer{Documents: []sheaf.Document{}, Rejected: rejected}
	if r.URL.Query().Get("dry_run") == "true" {
		defer s.cfg.Ingest.Discard(ctx, staged...)
		if answer.Plans, answer.Forecast, err = s.cfg.Ingest.DryRunStaged(ctx, ds, staged); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, answer)
		return
	}
	var done *ingest.Submission
	err = s.stage(ctx, "submit", func(ctx context.Context) error {
		done, err = s.cfg.Ingest.Submit(ctx, ds, staged, s.origin(ctx, r.Header.Get("traceparent")))
		return err
	})
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	answer.Job, answer.Documents = done.Job, publicAll(done.Documents)
	s.waitForAnswer(ctx, &answer, r.URL.Query().Get("wait"))
	if s.cfg.Trace != nil {
		s.cfg.Trace.Annotate(ctx, slog.String("job", done.Job.ID))
	}
	w.Header().Set("Location", "/v1/jobs/"+done.Job.ID)
	writeJSON(w, http.StatusAccepted, answer)
}

// waitForAnswer brings an answer up to date when its job has ended, or after
// wait, unless that is "".
func (s *Server) waitForAnswer(ctx context.Context, answer *SubmitAnswer, wait string) {
	if wait == "" {
		return
	}
	job, err := s.waitForJob(ctx, answer.Job.ID, wait)
	if err != nil {
		return // what was submitted is answered as it was
	}
	answer.Job = job
	for i := range answer.Documents {
		if d, err := s.cfg.Catalog.Document(ctx, tenantOf(ctx), answer.Documents[i].ID); err == nil {
			answer.Documents[i] = *public(d)
		}
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

// stageFiles stores the files of a request, whatever form it has.
func (s *Server) stageFiles(r *http.Request, ds *sheaf.Dataset, id string) ([]*ingest.Staged, []Rejected, error) {
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, nil, newProblem(400, "", "the Content-Type header cannot be read")
	}
	q := r.URL.Query()
	u := ingest.Upload{Origin: s.origin(r.Context(), ""), ID: id, Name: q.Get("name"), Size: r.ContentLength, Lane: sheaf.Lane(atoi(q.Get("lane")))}
	if c := q.Get("parser_config"); c != "" {
		if err := decodeSettings([]byte(c), &u.Config); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case media == "multipart/form-data":
		return s.stageParts(r, ds, params["boundary"], u)
	case media == "application/json" && q.Get("name") == "":
		return s.stageURL(r, ds, u)
	}
	if u.Name == "" {
		if _, p, err := mime.ParseMediaType(r.Header.Get("Content-Disposition")); err == nil {
			u.Name = p["filename"]
		}
	}
	if media != "application/x-www-form-urlencoded" { // curl's default says nothing about the file
		u.MediaType = media
	}
	u.Body = r.Body
	st, err := s.cfg.Ingest.Stage(r.Context(), ds, u)
	if err != nil {
		return nil, nil, err
	}
	return []*ingest.Staged{st}, nil, nil
}

// stageParts streams a multipart body. Fields before a file apply to it and to
// those after it; a file that is refused does not stop the others.
func (s *Server) stageParts(r *http.Request, ds *sheaf.Dataset, boundary string, u ingest.Upload) (staged []*ingest.Staged, rejected []Rejected, err error) {
	if boundary == "" {
		return nil, nil, newProblem(400, "", "the multipart body has no boundary")
	}
	parts := multipart.NewReader(r.Body, boundary)
	u.Size = -1
	for files := 0; ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return staged, rejected, nil
		}
		if err != nil {
			return staged, rejected, newProblem(400, "", "the upload broke off or is not valid multipart; nothing was kept, send it again")
		}
		name := fileName(part)
		if name == "" {
			if err := s.field(part, &u); err != nil {
				return staged, rejected, err
			}
			continue
		}
		if files++; files > maxFiles {
			return staged, rejected, newProblem(413, "too_many_files", fmt.Sprintf("a request may carry %d files; send the rest in another", maxFiles))
		}
		one := u
		one.N, one.Name, one.Body, one.MediaType = files, name, part, part.Header.Get("Content-Type")
		if len(staged) > 0 {
			one.ID = "" // a chosen id names one document
		}
		st, err := s.cfg.Ingest.Stage(r.Context(), ds, one)
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && !f.Retryable {
			rejected = append(rejected, Rejected{Name: ingest.CleanName(name), Failure: *f})
			_, _ = io.Copy(io.Discard, io.LimitReader(part, 1<<40)) // go on to the next part
			continue
		}
		if err != nil {
			return staged, rejected, err
		}
		staged = append(staged, st)
	}
}

// fileName is the name a part was sent under, with its folders, which
// Part.FileName would cut off.
func fileName(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func (s *Server) field(p *multipart.Part, u *ingest.Upload) error {
	b, err := io.ReadAll(io.LimitReader(p, maxFieldBytes+1))
	if err != nil {
		return newProblem(400, "", "the upload broke off; nothing was kept, send it again")
	}
	if len(b) > maxFieldBytes {
		return newProblem(413, "", fmt.Sprintf("the field %q is larger than %d bytes", p.FormName(), maxFieldBytes))
	}
	switch p.FormName() {
	case "parser_config":
		return decodeSettings(b, &u.Config)
	case "metadata":
		return decodeField("metadata", b, &u.Metadata)
	case "lane":
		u.Lane = sheaf.Lane(atoi(string(b)))
	case "id":
		u.ID = string(b)
	default:
		return newProblem(400, "", fmt.Sprintf("unknown field %q; there are file, parser_config, metadata, lane and id", p.FormName()))
	}
	return nil
}

func decodeField(name string, b []byte, v any) error {
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return newProblem(400, "", fmt.Sprintf("%s: %v", name, err))
	}
	if _, err := dec.Token(); err != io.EOF {
		return newProblem(400, "", name+": something follows the JSON value; send one value")
	}
	return nil
}

// decodeSettings lays settings in JSON over those in c.
func decodeSettings(b []byte, c *sheaf.ParseConfig) error {
	if unknown := sheaf.UnknownSetting(b); unknown != "" {
		return newProblem(400, "", fmt.Sprintf("parser_config: unknown key %q; the keys are %s", unknown, strings.Join(sheaf.SettingNames(), ", ")))
	}
	return decodeField("parser_config", b, c)
}

// URLSubmit names a document to be fetched.
type URLSubmit struct {
	URL         string            `json:"url"`
	Name        string            `json:"name,omitempty"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Lane        sheaf.Lane        `json:"lane,omitempty"`
}

// stageURL fetches a document from a host that the configuration allows: a
// service that fetches anything is a door into its network.
func (s *Server) stageURL(r *http.Request, ds *sheaf.Dataset, u ingest.Upload) ([]*ingest.Staged, []Rejected, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxFieldBytes))
	if err != nil {
		return nil, nil, newProblem(400, "", "the request broke off")
	}
	var ask URLSubmit
	if err := decodeField("body", b, &ask); err != nil {
		return nil, nil, err
	}
	var settings struct {
		ParseConfig json.RawMessage `json:"parser_config"`
	}
	if err := json.Unmarshal(b, &settings); err == nil && len(settings.ParseConfig) > 0 {
		if err := decodeSettings(settings.ParseConfig, &u.Config); err != nil { // over those of the address
			return nil, nil, err
		}
	}
	src, err := url.Parse(ask.URL)
	if err != nil || src.Scheme != "http" && src.Scheme != "https" || src.Host == "" {
		return nil, nil, newProblem(400, "", `send {"url": "https://…"}, or the file itself with ?name=`)
	}
	if !s.allowed(src) {
		return nil, nil, newProblem(403, "url_not_allowed", fmt.Sprintf("documents may not be fetched from %s; add it to server.allow_urls or send the file itself", src.Host))
	}
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, src.String(), nil)
	if err != nil {
		return nil, nil, newProblem(400, "", "the url cannot be requested")
	}
	client := &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > 5 || !s.allowed(req.URL) {
			return errors.New("redirected to a host that is not allowed")
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unavailable", "%s did not answer: %v", src.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, sheaf.Fail(sheaf.CategorySource, "source_unavailable", "%s answered %s", src.Host, resp.Status)
	}
	u.Name = ask.Name
	if u.Name == "" {
		u.Name = src.Path
	}
	u.Body, u.Size, u.Metadata, u.Lane = resp.Body, resp.ContentLength, ask.Metadata, cmp.Or(ask.Lane, u.Lane)
	u.MediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	st, err := s.cfg.Ingest.Stage(ctx, ds, u)
	if err != nil {
		return nil, nil, err
	}
	return []*ingest.Staged{st}, nil, nil
}

func (s *Server) allowed(u *url.URL) bool { return webhook.Hosts(s.cfg.AllowURLs).Allow(u) }

// describeUploads adds the hand-served routes to the OpenAPI document.
func (s *Server) describeUploads() {
	reg := s.api.OpenAPI().Components.Schemas
	answer := func(v any) *huma.Schema { return huma.SchemaFromType(reg, reflect.TypeOf(v)) }
	ok := func(status, text string, schema *huma.Schema, media string) map[string]*huma.Response {
		return map[string]*huma.Response{
			status:    {Description: text, Content: map[string]*huma.MediaType{media: {Schema: schema}}},
			"default": {Description: "a problem", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: answer(Problem{})}}},
		}
	}
	path := func(names ...string) []*huma.Param {
		var out []*huma.Param
		for _, n := range names {
			out = append(out, &huma.Param{Name: n, In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
		}
		return out
	}
	query := func(name, doc, typ string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: typ}}
	}
	binary := &huma.Schema{Type: "string", Format: "binary"}
	body := &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: binary},
		"multipart/form-data": {Schema: &huma.Schema{Type: "object", Properties: map[string]*huma.Schema{
			"file":          {Type: "array", Items: binary, Description: "one or many"},
			"parser_config": {Type: "string", Description: "JSON; applies to the files after it"},
			"metadata":      {Type: "string", Description: "JSON object of strings; applies to the files after it"},
			"lane":          {Type: "integer"},
			"id":            {Type: "string", Description: "of the first file's document: repeat an upload safely"},
		}}},
		"application/json": {Schema: answer(URLSubmit{})},
	}}
	common := []*huma.Param{
		query("name", "of the document, when the body is the file itself", "string"), query("parser_config", "JSON", "string"), query("lane", "1 interactive, 2 normal, 3 backfill", "integer"),
		query("wait", "answer when the job has ended or after this long", "string"), query("dry_run", "answer the plan and change nothing", "boolean"),
	}
	add := func(op huma.Operation) {
		op.Tags = []string{"documents"}
		s.api.OpenAPI().AddOperation(&op)
	}
	add(huma.Operation{OperationID: "submit-documents", Method: "POST", Path: "/v1/datasets/{ds}/documents", Summary: "Upload documents", Parameters: append(path("ds"), common...), RequestBody: body, Responses: ok("202", "queued; Location names the job", answer(SubmitAnswer{}), "application/json")})
	add(huma.Operation{OperationID: "put-document", Method: "PUT", Path: "/v1/datasets/{ds}/documents/{doc}", Summary: "Upload a document under an id of your choice, or replace its bytes", Parameters: append(path("ds", "doc"), common...), RequestBody: body, Responses: ok("202", "queued; Location names the job", answer(SubmitAnswer{}), "application/json")})
	add(huma.Operation{OperationID: "get-document-content", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/content", Summary: "Download the original bytes; byte ranges work", Parameters: append(path("ds", "doc"), query("redirect", "answer 307 with an address of the blob store, valid for 15 minutes, where it serves files itself", "boolean")), Responses: ok("200", "the file", binary, "application/octet-stream")})
	add(huma.Operation{OperationID: "get-document-artifact", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/artifacts/{range}", Summary: "Download a range result as Parquet", Parameters: path("ds", "doc", "range"), Responses: ok("200", "chunks with vectors", binary, "application/vnd.apache.parquet")})
	add(huma.Operation{OperationID: "get-page-image", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/pages/{n}/image", Summary: "Draw a page, or a part of it", Parameters: append(path("ds", "doc", "n"), query("dpi", "36–300, default 96", "integer"), query("box", "x0,y0,x1,y1 in points from the page's top left: what lies in it alone, such as the figure of a chunk", "string")), Responses: ok("200", "the page", binary, "image/jpeg")})
	add(huma.Operation{OperationID: "get-picture", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/pictures/{picture}", Summary: "Draw a picture that lies inside a document, as metadata.pictures of a chunk names it", Parameters: append(path("ds", "doc", "picture"), query("side", "pixels of the longer side at most, 16–4096, default 1024", "integer")), Responses: ok("200", "the picture", binary, "image/jpeg")})
}
