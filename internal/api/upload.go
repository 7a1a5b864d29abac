package api

import (
	"bytes"
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/settings"
	"sheaf/internal/webhook"
	"sheaf/taskstore"
)

// Bounds of one upload request.
const (
	maxFiles      = 1000
	maxFieldBytes = 64 << 10
	fetchTimeout  = 10 * time.Minute
)

// MaxSubmit bounds the resumable uploads in one job.
const MaxSubmit = 1000

// SubmitAnswer is the response to an upload.
type SubmitAnswer struct {
	Job       *sheaf.Job           `json:"job,omitempty"`
	Documents []sheaf.Document     `json:"documents" nullable:"false"`
	Rejected  []Rejected           `json:"rejected,omitempty" doc:"files of a multipart upload that were refused; others were taken"`
	Plans     []ingest.PlanPreview `json:"plans,omitempty" doc:"of a dry run: at most the first 100 files"`
	Forecast  *ingest.Forecast     `json:"forecast,omitempty" doc:"of a dry run: all files together"`
}

// Rejected is a file that was not accepted.
type Rejected struct {
	Name     string        `json:"name"`
	UploadID string        `json:"upload_id,omitempty" doc:"of an upload in pieces"`
	Failure  sheaf.Failure `json:"failure"`
}

// uploadRoutes are registered by hand, since a body of any size must stream, and
// described to OpenAPI separately.
func (s *Server) uploadRoutes() {
	s.mux.HandleFunc("POST /v1/datasets/{ds}/documents", func(w http.ResponseWriter, r *http.Request) { s.upload(w, r, "") })
	s.mux.HandleFunc("PUT /v1/datasets/{ds}/documents/{doc}", func(w http.ResponseWriter, r *http.Request) { s.upload(w, r, r.PathValue("doc")) })
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/content", s.content)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/artifacts/{range}", s.artifactFile)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/pages/{n}/image", s.pageImage)
	s.mux.HandleFunc("GET /v1/datasets/{ds}/documents/{doc}/pictures/{picture}", s.picture)
	s.describeUploads()
}

// upload accepts one or many files and responds when their bytes are stored and
// their jobs are queued.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, id string) {
	ctx := r.Context()
	if !s.uploads.enter(tenantOf(ctx)) {
		s.writeProblem(w, r, tooManyUploads(s.uploads.most))
		return
	}
	defer s.uploads.leave(tenantOf(ctx))
	body := &stallWatch{ReadCloser: r.Body}
	r.Body = body
	ds, err := s.dataset(ctx, DatasetPath{r.PathValue("ds")})
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var notBefore time.Time
	if text := r.URL.Query().Get("not_before"); text != "" {
		if notBefore, err = time.Parse(time.RFC3339, text); err != nil {
			s.writeProblem(w, r, newProblem(400, "", fmt.Sprintf("not_before cannot be %s; give a time such as 2026-01-31T22:00:00Z", quoted(text))))
			return
		}
	}
	from, err := s.originAt(ctx, r.Header.Get("traceparent"), notBefore)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	hold, err := held(r.URL.Query())
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	var staged []*ingest.Staged
	var rejected []Rejected
	if from.Job = r.URL.Query().Get("job"); from.Job != "" { // checked before the bytes arrive
		if err := s.cfg.Catalog.JobTakes(ctx, ds.TenantID, ds.ID, from.Job, 1); err != nil {
			s.writeProblem(w, r, err)
			return
		}
	}
	err = s.stage(ctx, "store", func(ctx context.Context) error {
		staged, rejected, err = s.stageFiles(r.WithContext(ctx), ds, id)
		if err == nil {
			err = wholeBody(ctx)
		}
		return err
	})
	if err == nil && len(staged) == 0 {
		err = newProblem(400, "no_file", "the body carries no file; send each as a part with a file name, such as curl -F file=@report.pdf, or the bytes of one as the whole body with ?name=")
		if len(rejected) > 0 {
			err = &rejected[0].Failure
		}
	}
	switch {
	case body.stalled:
		err = s.stalled()
	case body.brokenOff:
		err = brokenOff()
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
	if hold {
		docs, err := s.cfg.Ingest.Hold(ctx, ds, staged)
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		answer.Documents = publicAll(docs)
		writeJSON(w, http.StatusCreated, answer)
		return
	}
	var done *ingest.Submission
	err = s.stage(ctx, "submit", func(ctx context.Context) error {
		from.Trace = s.taskTrace(ctx, r.Header.Get("traceparent")) // of this stage
		done, err = s.cfg.Ingest.Submit(ctx, ds, staged, from)
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

// held reads the parameter hold, which rules out some others.
func held(q url.Values) (bool, error) {
	switch q.Get("hold") {
	case "", "false":
		return false, nil
	case "true":
	default:
		return false, newProblem(400, "", fmt.Sprintf("hold cannot be %s; give true or false", quoted(q.Get("hold"))))
	}
	for _, name := range []string{"job", "not_before", "wait", "lane"} {
		if q.Has(name) {
			return false, newProblem(400, "", fmt.Sprintf("the parameter %s does nothing beside hold, with which no work is queued; leave one of them out", name))
		}
	}
	return true, nil
}

// waitForAnswer refreshes a response when its job has ended or wait has passed. An
// empty wait is a no-op.
func (s *Server) waitForAnswer(ctx context.Context, answer *SubmitAnswer, wait string) {
	if wait == "" {
		return
	}
	if _, err := s.waitForJob(ctx, answer.Job.ID, wait); err != nil {
		return // respond with what was submitted
	}
	job, err := s.cfg.Ingest.Job(ctx, tenantOf(ctx), answer.Job.ID)
	if err != nil {
		return
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

// stageFiles stores the files of a request of any form.
func (s *Server) stageFiles(r *http.Request, ds *sheaf.Dataset, id string) ([]*ingest.Staged, []Rejected, error) {
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil && r.Header.Get("Content-Type") != "" {
		return nil, nil, newProblem(400, "", "the Content-Type header cannot be read; send one such as application/pdf, or none")
	}
	q := r.URL.Query()
	u := ingest.Upload{Origin: s.origin(r.Context(), ""), ID: id, Name: q.Get("name"), Size: r.ContentLength, Lane: sheaf.Lane(atoi(q.Get("lane"))), Hold: q.Get("hold") == "true"}
	switch {
	case media == "multipart/form-data" && q.Has("name"):
		return nil, nil, newProblem(400, "", "the parameter name does nothing for a multipart body, whose parts have their file names; leave it out")
	case media == "application/json" && !q.Has("name"):
		for _, field := range []string{"attributes", "parser_config", "lane"} {
			if q.Has(field) {
				return nil, nil, newProblem(400, "", fmt.Sprintf(`the parameter %s does nothing for a body {"url": …}; give %s in the body. To upload the JSON itself as a file, name it with ?name=`, field, field))
			}
		}
	}
	if a := q.Get("attributes"); a != "" {
		if err := decodeAttributes([]byte(a), &u); err != nil {
			return nil, nil, err
		}
	}
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

// stageParts streams a multipart body. Fields before the files apply to all of
// them; such a field may be repeated between two files, for the files after it. A
// rejected file does not stop the others.
func (s *Server) stageParts(r *http.Request, ds *sheaf.Dataset, boundary string, u ingest.Upload) (staged []*ingest.Staged, rejected []Rejected, err error) {
	if boundary == "" {
		return nil, nil, newProblem(400, "", "the multipart body has no boundary; let the HTTP library set the Content-Type header")
	}
	parts := multipart.NewReader(r.Body, boundary)
	u.Size = -1
	stager := partStager{ingest: s.cfg.Ingest, ctx: r.Context(), dataset: ds}
	stager.group.SetLimit(ingest.StagedAtOnce)
	defer func() {
		var failed error
		staged, rejected, failed = stager.wait()
		err = cmp.Or(err, failed)
	}()
	fields := partFields{first: map[string]bool{}, since: map[string]bool{}}
	for name := range r.URL.Query() {
		fields.first[name], fields.since[name] = true, true
	}
	for files := 0; ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil, nil, fields.end(files)
		}
		if err != nil {
			return nil, nil, newProblem(400, "", "the upload broke off or is not valid multipart; nothing was kept, send it again")
		}
		name := fileName(part)
		if name == "" {
			if err := fields.take(part.FormName(), files); err != nil {
				return nil, nil, err
			}
			_ = stager.group.Wait() // files being stored read the fields; its error is reported at the end
			if err := readField(part, &u); err != nil {
				return nil, nil, err
			}
			continue
		}
		if slices.Contains(uploadFields, part.FormName()) {
			return nil, nil, newProblem(400, "", fmt.Sprintf("the field %s came as a file, %s; nothing was kept. Send its text without a file name: with curl, -F '%s=<FILE' instead of -F %s=@FILE", part.FormName(), quoted(name), part.FormName(), part.FormName()))
		}
		if files++; files > maxFiles {
			return nil, nil, newProblem(413, "too_many_files", fmt.Sprintf("a request may carry %d files; send the rest in another", maxFiles))
		}
		clear(fields.since)
		one := u
		one.N, one.Name, one.Body, one.MediaType = files, name, part, part.Header.Get("Content-Type")
		if files > 1 {
			one.ID = "" // a chosen id applies to one document, whatever becomes of it
		}
		if one.ID == "" {
			one.ID = u.Origin.ID(ds.TenantID, "document", files) // assigned here, so that lists keep the order of the request
		}
		if err := stager.stage(one); err != nil {
			return nil, nil, err
		}
	}
}

// smallFile is the size up to which a file is buffered while it is stored, so the
// next one can be read.
const smallFile = 64 << 10

// partStager stores the files of a request, small ones concurrently.
type partStager struct {
	ingest  *ingest.Service
	ctx     context.Context
	dataset *sheaf.Dataset
	group   errgroup.Group
	files   []*partFile
}

// partFile is a file and its outcome.
type partFile struct {
	staged  *ingest.Staged
	refused *Rejected
}

// stage stores one file, or starts to. A rejected file is not an error.
func (p *partStager) stage(u ingest.Upload) error {
	f := &partFile{}
	p.files = append(p.files, f)
	part := u.Body
	head, err := io.ReadAll(io.LimitReader(part, smallFile))
	if err == nil && len(head) < smallFile {
		u.Body, u.Size = bytes.NewReader(head), int64(len(head))
		p.group.Go(func() error { return p.stageFile(f, u) })
		return nil
	}
	u.Body = io.MultiReader(bytes.NewReader(head), part)
	if err := p.stageFile(f, u); err != nil {
		return err
	}
	if f.refused != nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(part, 1<<40)) // skip to the next part
	}
	return nil
}

func (p *partStager) stageFile(f *partFile, u ingest.Upload) error {
	st, err := p.ingest.Stage(p.ctx, p.dataset, u)
	if no, ok := errors.AsType[*sheaf.Failure](err); ok && !no.Retryable {
		f.refused = &Rejected{Name: ingest.CleanName(u.Name), Failure: *no}
		return nil
	}
	f.staged = st
	return err
}

// wait returns what was stored and what was rejected, each in file order, even
// after an error.
func (p *partStager) wait() (staged []*ingest.Staged, rejected []Rejected, err error) {
	err = p.group.Wait()
	for _, f := range p.files {
		switch {
		case f.staged != nil:
			staged = append(staged, f.staged)
		case f.refused != nil:
			rejected = append(rejected, *f.refused)
		}
	}
	return staged, rejected, err
}

// fileName returns a part's file name including folders, which Part.FileName would
// cut off.
func fileName(p *multipart.Part) string {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

// uploadFields are the non-file parts of an upload.
var uploadFields = []string{"attributes", "id", "lane", "metadata", "parser_config"}

// partFields tracks where the fields of an upload appear.
type partFields struct {
	first map[string]bool // before the first file
	since map[string]bool // since the last file
}

// take rejects a field that is unknown or could not have the intended effect.
func (f *partFields) take(name string, files int) error {
	switch {
	case name == "file":
		return newProblem(400, "no_file", "the part file has no file name, so that it is no file; with curl, send it as -F file=@FILE. Nothing was kept")
	case !slices.Contains(uploadFields, name):
		return newProblem(400, "", fmt.Sprintf("there is no field %s; %s, and file. Nothing was kept", quoted(name), didYouMean(name, uploadFields)))
	case f.since[name]:
		return newProblem(400, "", fmt.Sprintf("%s is given twice; give it once. Nothing was kept", name))
	case files > 0 && (!f.first[name] || name == "id"):
		return fieldTooLate(name)
	}
	f.since[name] = true
	if files == 0 {
		f.first[name] = true
	}
	return nil
}

// end rejects fields that no file follows.
func (f *partFields) end(files int) error {
	for _, name := range uploadFields {
		if files > 0 && f.since[name] {
			return fieldTooLate(name)
		}
	}
	return nil
}

func fieldTooLate(name string) error {
	return newProblem(400, "field_after_file", fmt.Sprintf("the field %s comes after a file, to which it could not apply any more, and nothing was kept; send %s before the first file", name, name))
}

// readField reads a part that is not a file.
func readField(p *multipart.Part, u *ingest.Upload) error {
	name := p.FormName()
	b, err := io.ReadAll(io.LimitReader(p, maxFieldBytes+1))
	if err != nil {
		return newProblem(400, "", "the upload broke off; nothing was kept, send it again")
	}
	if len(b) > maxFieldBytes {
		return newProblem(413, "", fmt.Sprintf("the field %s is larger than %d bytes; shorten it", name, maxFieldBytes))
	}
	switch name {
	case "parser_config":
		return decodeSettings(b, &u.Config)
	case "metadata":
		return decodeField(name, b, &u.Metadata)
	case "attributes":
		return decodeAttributes(b, u)
	case "lane":
		u.Lane, err = laneOf(string(b))
	case "id":
		if u.ID != "" && u.ID != string(b) {
			return newProblem(400, "", "the field id is another document than the address names; leave it out")
		}
		u.ID = string(b)
		if !sheaf.ValidID(u.ID) {
			return newProblem(400, "", fmt.Sprintf("the field id cannot be %s; an id is 32 lower-case hex characters", quoted(u.ID)))
		}
	}
	return err
}

// decodeAttributes reads the attributes of a new document.
func decodeAttributes(b []byte, u *ingest.Upload) error {
	u.Attributes = nil
	if err := decodeField("attributes", b, &u.Attributes); err != nil {
		return err
	}
	if u.Attributes == nil { // JSON's null
		return newProblem(400, "", `attributes cannot be null; give an object such as {"crm.id": 17}, or leave it out`)
	}
	return nil
}

// laneOf parses a lane number.
func laneOf(text string) (sheaf.Lane, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if lane := sheaf.Lane(n); err == nil && slices.Contains(sheaf.Lanes[:], lane) {
		return lane, nil
	}
	return 0, newProblem(400, "", fmt.Sprintf("lane cannot be %s; give 1 (interactive), 2 (normal) or 3 (backfill)", quoted(text)))
}

var unknownField = regexp.MustCompile(`unknown field "([^"]*)"`)

func decodeField(name string, b []byte, v any) error {
	err := checkNames(b)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		err = dec.Decode(v)
		if err == nil && dec.More() {
			err = errors.New("something follows the JSON value; send one value")
		}
	}
	if err == nil {
		return nil
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		known := jsonNames(reflect.TypeOf(v).Elem())
		return newProblem(400, "", fmt.Sprintf("%s: there is no key %s; %s", name, quoted(m[1]), didYouMean(m[1], unique(known))))
	}
	if bad, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return newProblem(400, "", fmt.Sprintf("%s: %s cannot be a JSON %s; give %s", name, cmp.Or(bad.Field, "it"), bad.Value, goKind(bad.Type)))
	}
	if _, bad := errors.AsType[*json.SyntaxError](err); bad || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return newProblem(400, "", fmt.Sprintf("%s is no JSON that can be read (%v); correct it", name, err))
	}
	return newProblem(400, "", fmt.Sprintf("%s: %v", name, err))
}

// decodeSettings merges JSON settings into c.
func decodeSettings(b []byte, c *sheaf.ParseConfig) error {
	if unknown := settings.Unknown(b); unknown != "" {
		return newProblem(400, "", fmt.Sprintf("parser_config: there is no key %s; %s", quoted(unknown), didYouMean(unknown, sorted(settings.DatasetNames()))))
	}
	return decodeField("parser_config", b, (*saidSettings)(c))
}

// saidSettings decodes with errors that name the setting.
type saidSettings sheaf.ParseConfig

func (c *saidSettings) UnmarshalJSON(b []byte) error {
	return settings.Decode(b, (*sheaf.ParseConfig)(c))
}

// jsonNames lists the JSON keys of a struct.
func jsonNames(t reflect.Type) []string {
	var out []string
	if t.Kind() == reflect.Struct {
		for f := range t.Fields() {
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
				out = append(out, key)
			}
		}
	}
	return out
}

func unique(names []string) []string { return slices.Compact(sorted(names)) }

// goKind names a Go type in JSON terms.
func goKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// URLSubmit names a document to fetch or copy.
type URLSubmit struct {
	URL         string            `json:"url,omitempty"`
	From        string            `json:"from,omitempty" doc:"instead of url, the id of one of your documents in any dataset: its bytes are copied in storage. Name and metadata are its own unless given"`
	Copies      []CopySubmit      `json:"copies,omitempty" maxItems:"2000" doc:"instead of url, documents to copy in one job, all or none"`
	Name        string            `json:"name,omitempty"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Attributes  sheaf.Attributes  `json:"attributes,omitempty" doc:"stored with the document if it is new; at most 16 KiB as JSON"`
	Lane        sheaf.Lane        `json:"lane,omitempty"`
}

// CopySubmit is one of many documents to copy.
type CopySubmit struct {
	From        string            `json:"from" doc:"id of one of your documents, in any dataset"`
	ID          string            `json:"id,omitempty" doc:"of the copy, 32 lower-case hex characters; an existing one gets the bytes as a new version"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty"`
	Attributes  sheaf.Attributes  `json:"attributes,omitempty" doc:"stored with the copy if it is new; at most 16 KiB as JSON"`
}

// Bounds of the documents copied by one request.
const (
	maxCopies    = 2000
	maxCopyBytes = 40 << 20 // as JSON, with the maximum attributes
)

// stageURL fetches a document from a host that the configuration allows; a service
// that fetches any URL would expose its network.
func (s *Server) stageURL(r *http.Request, ds *sheaf.Dataset, u ingest.Upload) ([]*ingest.Staged, []Rejected, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxCopyBytes+1))
	if err != nil {
		return nil, nil, newProblem(400, "", "the request broke off; send it again")
	}
	if len(b) > maxCopyBytes {
		return nil, nil, newProblem(413, "", fmt.Sprintf("the body is larger than %d MiB; send less at once", maxCopyBytes>>20))
	}
	var said struct {
		ParseConfig json.RawMessage `json:"parser_config"`
		Copies      []struct {
			ParseConfig json.RawMessage `json:"parser_config"`
		} `json:"copies"`
	}
	known := json.Unmarshal(b, &said) == nil
	if known && len(said.ParseConfig) > 0 {
		if err := decodeSettings(said.ParseConfig, &u.Config); err != nil { // on top of those in the query
			return nil, nil, err
		}
	}
	configs := make([]sheaf.ParseConfig, len(said.Copies))
	for i := range configs {
		configs[i] = u.Config
		if known && len(said.Copies[i].ParseConfig) > 0 {
			if err := decodeSettings(said.Copies[i].ParseConfig, &configs[i]); err != nil {
				return nil, nil, err
			}
		}
	}
	var ask URLSubmit
	if err := decodeField("body", b, &ask); err != nil {
		return nil, nil, err
	}
	u.Metadata, u.Attributes, u.Lane = ask.Metadata, ask.Attributes, cmp.Or(ask.Lane, u.Lane)
	if ask.Copies != nil {
		if ask.URL != "" || ask.From != "" || ask.Name != "" || ask.Metadata != nil || ask.Attributes != nil || u.ID != "" {
			return nil, nil, newProblem(400, "", "copies say by themselves what they are of; beside them give parser_config and lane alone, and no id in the address")
		}
		return s.stageCopies(r.Context(), ds, u, ask.Copies, configs)
	}
	if ask.From != "" {
		if ask.URL != "" {
			return nil, nil, newProblem(400, "", "url and from both say where the bytes are; give one of them")
		}
		return s.stageCopy(r.Context(), ds, u, &ask)
	}
	src, err := url.Parse(ask.URL)
	if err != nil || src.Scheme != "http" && src.Scheme != "https" || src.Host == "" {
		return nil, nil, newProblem(400, "", `send {"url": "https://…"}, {"from": "the id of a document"}, or the file itself with ?name=`)
	}
	if !s.allowed(src) {
		return nil, nil, newProblem(403, "url_not_allowed", fmt.Sprintf("documents may not be fetched from %s; add it to server.allow_urls or send the file itself", src.Host))
	}
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, src.String(), nil)
	if err != nil {
		return nil, nil, newProblem(400, "", "the url cannot be requested; give one of http:// or https://")
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
	u.Body, u.Size = resp.Body, resp.ContentLength
	u.MediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	st, err := s.cfg.Ingest.Stage(ctx, ds, u)
	if err != nil {
		return nil, nil, err
	}
	return []*ingest.Staged{st}, nil, nil
}

// stageCopy stages the bytes of an existing document.
func (s *Server) stageCopy(ctx context.Context, ds *sheaf.Dataset, u ingest.Upload, ask *URLSubmit) ([]*ingest.Staged, []Rejected, error) {
	src, err := s.cfg.Catalog.Document(ctx, ds.TenantID, ask.From)
	if err != nil {
		return nil, nil, err
	}
	u.From, u.Name, u.Size, u.MediaType = src, cmp.Or(ask.Name, src.Name), src.Size, src.MediaType
	if u.Metadata == nil {
		u.Metadata = src.Metadata
	}
	st, err := s.cfg.Ingest.Stage(ctx, ds, u)
	if err != nil {
		return nil, nil, err
	}
	return []*ingest.Staged{st}, nil, nil
}

// stageCopies stages the bytes of many existing documents, all or none.
func (s *Server) stageCopies(ctx context.Context, ds *sheaf.Dataset, u ingest.Upload, copies []CopySubmit, configs []sheaf.ParseConfig) (staged []*ingest.Staged, _ []Rejected, err error) {
	if len(copies) == 0 || len(copies) > maxCopies {
		return nil, nil, newProblem(400, "", fmt.Sprintf("copies has %d documents; give 1 to %d", len(copies), maxCopies))
	}
	sources := make(map[string]*sheaf.Document, len(copies))
	for some := range slices.Chunk(copies, 500) {
		ids := make([]string, len(some))
		for i, one := range some {
			ids[i] = one.From
		}
		docs, _, err := s.cfg.Catalog.Documents(ctx, ds.TenantID, taskstore.DocumentFilter{IDs: ids}, taskstore.Page{Limit: len(ids)})
		if err != nil {
			return nil, nil, err
		}
		for i := range docs {
			sources[docs[i].ID] = &docs[i]
		}
	}
	for _, one := range copies {
		if sources[one.From] == nil {
			return nil, nil, fmt.Errorf("%w: document %s is not there to be copied; give the id of one of yours", sheaf.ErrNotFound, quoted(one.From))
		}
	}
	staged = make([]*ingest.Staged, len(copies))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(ingest.StagedAtOnce)
	for i, one := range copies {
		src, u := sources[one.From], u
		u.N, u.From, u.ID, u.Name, u.Size, u.MediaType = i+1, src, one.ID, src.Name, src.Size, src.MediaType
		u.Config, u.Metadata, u.Attributes = configs[i], src.Metadata, one.Attributes
		if u.ID == "" {
			u.ID = u.Origin.ID(ds.TenantID, "document", u.N) // assigned here, so that lists keep the order of the request
		}
		group.Go(func() (err error) {
			staged[i], err = s.cfg.Ingest.Stage(within, ds, u)
			return err
		})
	}
	err = group.Wait()
	if err != nil {
		staged = slices.DeleteFunc(staged, func(st *ingest.Staged) bool { return st == nil })
	}
	return staged, nil, err
}

func (s *Server) allowed(u *url.URL) bool { return webhook.Hosts(s.cfg.AllowURLs).Allow(u) }

// describeUploads adds the hand-registered routes to the OpenAPI document.
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
	number := func(name, doc string, from, to float64) *huma.Param {
		p := query(name, doc, "integer")
		p.Schema.Minimum, p.Schema.Maximum = &from, &to
		return p
	}
	wait := query("wait", "respond when the job ends or after this long, such as 30s", "string")
	wait.Schema.Format = formatDuration
	notBefore := query("not_before", "earliest start, at most a year ahead; a past time means immediately", "string")
	notBefore.Schema.Format = "date-time"
	binary := &huma.Schema{Type: "string", Format: "binary"}
	body := &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: binary},
		"multipart/form-data": {Schema: &huma.Schema{Type: "object", Properties: map[string]*huma.Schema{
			"file":          {Type: "array", Items: binary, Description: "one or many"},
			"parser_config": {Type: "string", Description: "JSON; before the files; repeat between files for those after it"},
			"metadata":      {Type: "string", Description: "JSON object of strings; before the files; repeat between files for those after it"},
			"attributes":    {Type: "string", Description: "JSON object of at most 16 KiB, stored with each new document; before the files; repeat between files for those after it"},
			"lane":          {Type: "integer", Description: "1 interactive, 2 normal, 3 backfill; before the files"},
			"id":            {Type: "string", Description: "of the first file's document, for safe repeats; before the files"},
		}}},
		"application/json": {Schema: answer(URLSubmit{})},
	}}
	common := []*huma.Param{
		query("name", "of the document, when the body is the file itself", "string"), query("parser_config", "JSON, when the body is the file itself or multipart", "string"), query("attributes", "JSON object of at most 16 KiB, stored with each new document; when the body is the file itself or multipart", "string"), number("lane", "1 interactive, 2 normal, 3 backfill; when the body is the file itself or multipart", 1, 3),
		query("job", "id of an open job that the documents join", "string"), wait, notBefore, query("dry_run", "return the plan and change nothing", "boolean"),
		query("hold", "keep the documents unstarted, without a job, and return 201; documents:reparse starts them", "boolean"),
	}
	add := func(op huma.Operation) {
		op = needs(op, scopeWrite)
		if op.Method == http.MethodGet {
			op = needs(op, scopeRead)
		}
		op.Tags = []string{"documents"}
		s.api.OpenAPI().AddOperation(&op)
	}
	add(huma.Operation{OperationID: "upload-documents", Method: "POST", Path: "/v1/datasets/{ds}/documents", Summary: "Upload documents", Parameters: append(path("ds"), common...), RequestBody: body, Responses: ok("202", "queued; Location names the job", answer(SubmitAnswer{}), "application/json")})
	add(huma.Operation{OperationID: "put-document", Method: "PUT", Path: "/v1/datasets/{ds}/documents/{doc}", Summary: "Upload a document with an id of your choice, or replace its bytes", Parameters: append(path("ds", "doc"), common...), RequestBody: body, Responses: ok("202", "queued; Location names the job", answer(SubmitAnswer{}), "application/json")})
	add(huma.Operation{OperationID: "get-document-content", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/content", Summary: "Download the original bytes, or byte ranges", Parameters: append(path("ds", "doc"), query("redirect", "return 307 with a URL of the blob store, valid for 15 minutes, if it serves files itself", "boolean")), Responses: ok("200", "the file", binary, "application/octet-stream")})
	add(huma.Operation{OperationID: "get-document-artifact", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/artifacts/{range}", Summary: "Download a range result as Parquet", Parameters: path("ds", "doc", "range"), Responses: ok("200", "chunks with vectors", binary, "application/vnd.apache.parquet")})
	add(huma.Operation{OperationID: "get-page-image", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/pages/{n}/image", Summary: "Render a page or part of it", Parameters: append(path("ds", "doc", "n"), number("dpi", "default 96", 36, 300), query("box", "x0,y0,x1,y1 in points from the page's top left: render only this area, such as a chunk's figure", "string")), Responses: ok("200", "the page", binary, "image/jpeg")})
	add(huma.Operation{OperationID: "get-picture", Method: "GET", Path: "/v1/datasets/{ds}/documents/{doc}/pictures/{picture}", Summary: "Get a picture inside a document, as metadata.pictures of a chunk names it", Parameters: append(path("ds", "doc", "picture"), number("side", "maximum pixels of the longer side, default 1024", 16, 4096)), Responses: ok("200", "the picture", binary, "image/jpeg")})
}
