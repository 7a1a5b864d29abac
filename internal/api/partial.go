package api

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/ingest"
	"sheaf/taskstore"
)

// Resumable uploads: the tus protocol 1.0.0 (tus.io/protocols/resumable-upload)
// with its extensions creation, creation-with-upload, expiration, checksum and
// termination. A complete upload becomes a document automatically or, if created
// with the metadata key "hold", together with others by :submit.

const (
	tusVersion    = "1.0.0"
	tusExtensions = "creation,creation-with-upload,expiration,checksum,termination"
	tusMedia      = "application/offset+octet-stream"
	// statusChecksum is tus's own status for a checksum mismatch.
	statusChecksum = 460
	// maxMetadata bounds the Upload-Metadata header.
	maxMetadata = 48 << 10
)

// checksums are the algorithms supported in Upload-Checksum.
var checksums = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "crc32": func() hash.Hash { return crc32.NewIEEE() },
}

// UploadStatus is the progress of a resumable upload.
type UploadStatus struct {
	ID          string    `json:"id"`
	DatasetID   string    `json:"dataset_id"`
	DocumentID  string    `json:"document_id" doc:"of the document that it becomes"`
	Name        string    `json:"name"`
	Size        int64     `json:"size" doc:"announced, in bytes"`
	Offset      int64     `json:"offset" doc:"bytes stored: continue from here"`
	Complete    bool      `json:"complete"`
	Hold        bool      `json:"hold" doc:"waits to be submitted"`
	JobID       string    `json:"job_id,omitempty" doc:"of the job that it was submitted to"`
	Fingerprint string    `json:"fingerprint,omitempty" doc:"as the sender gave it"`
	CreatedAt   time.Time `json:"created_at"`
	ExpiresAt   time.Time `json:"expires_at" doc:"removed then unless more bytes come"`
}

func uploadStatus(u *taskstore.PartialUpload) UploadStatus {
	return UploadStatus{
		ID: u.ID, DatasetID: u.DatasetID, DocumentID: u.DocumentID, Name: u.Spec.Name, Size: u.Size, Offset: u.Offset, Complete: u.Complete(), Hold: u.Spec.Hold,
		JobID: u.JobID, Fingerprint: u.Fingerprint, CreatedAt: u.CreatedAt, ExpiresAt: u.ExpiresAt,
	}
}

func (s *Server) partialRoutes() {
	s.mux.HandleFunc("OPTIONS /v1/datasets/{ds}/uploads", s.tusOptions)
	s.mux.HandleFunc("POST /v1/datasets/{ds}/uploads", s.tus(s.createUpload))
	s.mux.HandleFunc("HEAD /v1/datasets/{ds}/uploads/{upload}", s.tus(s.headUpload))
	s.mux.HandleFunc("PATCH /v1/datasets/{ds}/uploads/{upload}", s.tus(s.patchUpload))
	s.mux.HandleFunc("DELETE /v1/datasets/{ds}/uploads/{upload}", s.tus(s.deleteUpload))
	// For clients limited to GET and POST.
	s.mux.HandleFunc("POST /v1/datasets/{ds}/uploads/{upload}", s.tus(s.overriddenUpload))
	type listIn struct {
		DatasetPath
		ListInput
		Fingerprint string `query:"fingerprint" maxLength:"128" doc:"only those that were created with it"`
	}
	handle(s, get("/v1/datasets/{ds}/uploads", "List uploads in pieces"), func(ctx context.Context, in *listIn) (*output[List[UploadStatus]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		ups, next, err := s.cfg.Catalog.Uploads(ctx, ds.TenantID, ds.ID, in.Fingerprint, in.page())
		items := make([]UploadStatus, len(ups))
		for i := range ups {
			items[i] = uploadStatus(&ups[i])
		}
		return listOf(items, next), err
	})
	handle(s, get("/v1/datasets/{ds}/uploads/{upload}", "Read an upload in pieces"), func(ctx context.Context, in *UploadPath) (*output[UploadStatus], error) {
		u, err := s.partial(ctx, *in)
		if err != nil {
			return nil, err
		}
		return &output[UploadStatus]{uploadStatus(u)}, nil
	})
	type submitIn struct {
		DatasetPath
		TraceHeader
		DryRunParam
		NotBeforeParam
		Wait string `query:"wait" format:"duration" doc:"respond when the job ends or after this long"`
		Body struct {
			IDs []string `json:"ids" minItems:"1" maxItems:"1000" doc:"of complete uploads"`
			Job string   `json:"job,omitempty" doc:"id of an open job that they join; absent: they get their own job"`
		}
	}
	submit := post("/v1/datasets/{ds}/uploads:submit", "Submit complete uploads as documents of one job")
	submit.DefaultStatus = http.StatusAccepted
	submit.Description = "Repeating the request returns the same job until the uploads expire."
	handle(s, submit, func(ctx context.Context, in *submitIn) (*accepted[SubmitAnswer], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			answer, err := s.previewUploads(ctx, ds, in.Body.IDs)
			return &accepted[SubmitAnswer]{Body: *answer}, err
		}
		from, err := s.originAt(ctx, in.Traceparent, in.NotBefore)
		if err != nil {
			return nil, err
		}
		from.Job = in.Body.Job
		answer, err := s.submitUploads(ctx, ds, in.Body.IDs, from)
		if err != nil {
			return nil, err
		}
		if answer.Job == nil {
			return &accepted[SubmitAnswer]{Body: *answer}, nil
		}
		s.waitForAnswer(ctx, answer, in.Wait)
		return &accepted[SubmitAnswer]{Location: "/v1/jobs/" + answer.Job.ID, Body: *answer}, nil
	})
	presign := post("/v1/datasets/{ds}/uploads/{upload}:presign", "Get a URL to send an upload directly to the blob store")
	presign.Description = "For an upload that was created with its length and has no bytes yet: PUT the whole file to the URL, then call :complete. The bytes bypass this server."
	handle(s, presign, func(ctx context.Context, in *UploadPath) (*output[DirectUpload], error) {
		u, err := s.partial(ctx, *in)
		if err != nil {
			return nil, err
		}
		address, until, err := s.cfg.Ingest.PresignUpload(ctx, u.TenantID, u.ID)
		return &output[DirectUpload]{DirectUpload{URL: address, Method: http.MethodPut, Size: u.Size, ExpiresAt: until.UTC()}}, err
	})
	complete := post("/v1/datasets/{ds}/uploads/{upload}:complete", "Complete an upload sent to the blob store")
	complete.Description = "The bytes are read once, for their hash. Unless the upload is held, it becomes a document."
	handle(s, complete, func(ctx context.Context, in *struct {
		UploadPath
		TraceHeader
	}) (*output[UploadStatus], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		u, err := s.partial(ctx, in.UploadPath)
		if err != nil {
			return nil, err
		}
		if u, err = s.cfg.Ingest.CompleteUpload(ctx, u.TenantID, u.ID); err != nil {
			return nil, err
		}
		if err := s.submitWhole(ctx, ds, u, in.Traceparent); err != nil {
			return nil, err
		}
		return &output[UploadStatus]{uploadStatus(u)}, nil
	})
	s.describePartial()
}

// DirectUpload is where to upload bytes without going through the server.
type DirectUpload struct {
	URL       string    `json:"url"`
	Method    string    `json:"method"`
	Size      int64     `json:"size" doc:"the Content-Length it takes"`
	ExpiresAt time.Time `json:"expires_at"`
}

// partial finds the upload of a path within its dataset and tenant.
func (s *Server) partial(ctx context.Context, p UploadPath) (*taskstore.PartialUpload, error) {
	ds, err := s.dataset(ctx, p.DatasetPath)
	if err != nil {
		return nil, err
	}
	u, err := s.cfg.Catalog.Upload(ctx, ds.TenantID, p.Upload)
	if err == nil && u.DatasetID != ds.ID {
		err = fmt.Errorf("%w: upload %s", sheaf.ErrNotFound, p.Upload)
	}
	return u, err
}

func (s *Server) previewUploads(ctx context.Context, ds *sheaf.Dataset, ids []string) (*SubmitAnswer, error) {
	answer := &SubmitAnswer{Documents: []sheaf.Document{}}
	var uploads []taskstore.PartialUpload
	for _, id := range ids {
		u, err := s.cfg.Catalog.Upload(ctx, ds.TenantID, id)
		if err != nil {
			return answer, err
		}
		if !u.Complete() {
			return answer, fmt.Errorf("%w: of upload %s %d of %d bytes are stored; send the rest first", sheaf.ErrConflict, id, u.Offset, u.Size)
		}
		uploads = append(uploads, *u)
	}
	all, err := s.cfg.Ingest.StageUploads(ctx, ds, uploads)
	if err != nil {
		return answer, err
	}
	staged := answer.refuse(all)
	defer s.cfg.Ingest.Discard(ctx, staged...)
	answer.Plans, answer.Forecast, err = s.cfg.Ingest.DryRunStaged(ctx, ds, staged)
	return answer, err
}

func (s *Server) submitUploads(ctx context.Context, ds *sheaf.Dataset, ids []string, from ingest.Origin) (*SubmitAnswer, error) {
	answer := &SubmitAnswer{Documents: []sheaf.Document{}}
	done, all, err := s.cfg.Ingest.SubmitUploads(ctx, ds, ids, from)
	if err != nil {
		return nil, err
	}
	answer.refuse(all)
	if done != nil {
		answer.Job, answer.Documents = done.Job, publicAll(done.Documents)
	}
	return answer, nil
}

// refuse records the rejected uploads and returns the others.
func (a *SubmitAnswer) refuse(all []ingest.StagedUpload) (staged []*ingest.Staged) {
	for _, st := range all {
		if st.Failure != nil {
			a.Rejected = append(a.Rejected, Rejected{Name: st.Name, UploadID: st.UploadID, Failure: *st.Failure})
			continue
		}
		staged = append(staged, st.Staged)
	}
	return staged
}

// tus wraps a handler in the protocol's terms and rejects other versions of it.
func (s *Server) tus(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Tus-Resumable", tusVersion)
		w.Header().Set("Cache-Control", "no-store")
		if r.Header.Get("Tus-Resumable") != tusVersion {
			w.Header().Set("Tus-Version", tusVersion)
			s.writeProblem(w, r, newProblem(412, "tus_version", "send the header Tus-Resumable: "+tusVersion))
			return
		}
		if err := f(w, r); err != nil {
			s.writeProblem(w, r, err)
		}
	}
}

func (s *Server) tusOptions(w http.ResponseWriter, r *http.Request) {
	if _, err := s.dataset(r.Context(), DatasetPath{r.PathValue("ds")}); err != nil {
		s.writeProblem(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Tus-Resumable", tusVersion)
	h.Set("Tus-Version", tusVersion)
	h.Set("Tus-Extension", tusExtensions)
	h.Set("Tus-Checksum-Algorithm", strings.Join(slices.Sorted(maps.Keys(checksums)), ","))
	h.Set("Tus-Max-Size", strconv.FormatInt(s.cfg.MaxUploadBytes, 10))
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) overriddenUpload(w http.ResponseWriter, r *http.Request) error {
	switch method := r.Header.Get("X-HTTP-Method-Override"); method {
	case http.MethodPatch:
		return s.patchUpload(w, r)
	case http.MethodDelete:
		return s.deleteUpload(w, r)
	default:
		return newProblem(405, "", fmt.Sprintf("POST is not possible here without X-HTTP-Method-Override: PATCH or DELETE, not %q", method))
	}
}

func (s *Server) createUpload(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	ds, err := s.dataset(ctx, DatasetPath{r.PathValue("ds")})
	if err != nil {
		return err
	}
	size, err := strconv.ParseInt(r.Header.Get("Upload-Length"), 10, 64)
	if err != nil || size < 0 {
		return newProblem(400, "", "send the size of the file as Upload-Length, in bytes")
	}
	u := ingest.Upload{Origin: s.origin(ctx, ""), Size: size}
	fingerprint, hold, err := describeUpload(r.Header.Get("Upload-Metadata"), &u)
	if err != nil {
		return err
	}
	if job := u.Origin.Job; job != "" {
		if hold {
			return newProblem(400, "", "Upload-Metadata: an upload on hold joins a job when it is submitted; give job or hold")
		}
		if err := s.cfg.Catalog.JobTakes(ctx, ds.TenantID, ds.ID, job, 1); err != nil {
			return err
		}
	}
	sends := r.Header.Get("Content-Type") == tusMedia || size == 0
	made, writer, err := s.cfg.Ingest.BeginUpload(ctx, ds, u, fingerprint, withoutSecrets(r.Header.Get("Upload-Metadata")), hold, sends)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/datasets/"+url.PathEscape(r.PathValue("ds"))+"/uploads/"+made.ID)
	if sends {
		// If this is interrupted, PATCH continues it.
		done, err := s.receive(r, func(body io.Reader, verify func() error) (*taskstore.PartialUpload, error) {
			if !writer {
				return s.cfg.Ingest.AppendUpload(ctx, made.TenantID, made.ID, 0, body, verify)
			}
			return s.cfg.Ingest.WriteUpload(ctx, made, body, verify)
		})
		if done == nil {
			return err
		}
		made = done
		if err != nil && made.Offset == 0 {
			return err
		}
		if err := s.finishUpload(w, r, ds, made); err != nil {
			return err
		}
	}
	uploadHeaders(w, made)
	writeJSON(w, http.StatusCreated, uploadStatus(made))
	return nil
}

// uploadKeys are the keys allowed in Upload-Metadata.
var uploadKeys = []string{"attributes", "filename", "filetype", "fingerprint", "hold", "id", "job", "lane", "metadata", "parser_config"}

// describeUpload parses Upload-Metadata: pairs of a key and a base64 value.
func describeUpload(header string, u *ingest.Upload) (fingerprint string, hold bool, err error) {
	if len(header) > maxMetadata {
		return "", false, newProblem(413, "", fmt.Sprintf("Upload-Metadata is larger than %d bytes", maxMetadata))
	}
	given := map[string]bool{}
	for key, value := range uploadPairs(header) {
		if given[key] {
			return "", false, newProblem(400, "", fmt.Sprintf("Upload-Metadata: the key %s is given twice; give it once", quoted(key)))
		}
		given[key] = true
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return "", false, newProblem(400, "", fmt.Sprintf("Upload-Metadata: the value of %s is not base64; encode each value", quoted(key)))
		}
		text := string(b)
		switch key {
		case "filename", "name":
			u.Name = text
		case "filetype", "type":
			u.MediaType = text
		case "id":
			u.ID = text
		case "lane":
			u.Lane, err = laneOf(text)
		case "fingerprint":
			fingerprint = text
		case "job":
			u.Origin.Job = text
		case "hold":
			switch text {
			case "", "true":
				hold = true
			case "false":
				hold = false
			default:
				err = newProblem(400, "", fmt.Sprintf("Upload-Metadata: hold cannot be %s; give true or false", quoted(text)))
			}
		case "parser_config":
			err = decodeSettings(b, &u.Config)
		case "metadata":
			err = decodeField(key, b, &u.Metadata)
		case "attributes":
			err = decodeAttributes(b, u)
		case "relativePath": // some clients add it; the name is enough
		default:
			err = newProblem(400, "", fmt.Sprintf("Upload-Metadata: there is no key %s; %s", quoted(key), didYouMean(key, uploadKeys)))
		}
		if err != nil {
			return "", false, err
		}
	}
	return fingerprint, hold, nil
}

func uploadPairs(header string) func(yield func(key, value string) bool) {
	return func(yield func(string, string) bool) {
		for pair := range strings.SplitSeq(header, ",") {
			key, value, _ := strings.Cut(strings.TrimSpace(pair), " ")
			if key != "" && !yield(key, strings.TrimSpace(value)) {
				return
			}
		}
	}
}

// withoutSecrets returns Upload-Metadata as HEAD may return it: without the parser
// settings, which may hold a password.
func withoutSecrets(header string) string {
	var kept []string
	for key, value := range uploadPairs(header) {
		if key != "parser_config" {
			kept = append(kept, strings.TrimSpace(key+" "+value))
		}
	}
	return strings.Join(kept, ",")
}

func uploadHeaders(w http.ResponseWriter, u *taskstore.PartialUpload) {
	w.Header().Set("Upload-Offset", strconv.FormatInt(u.Offset, 10))
	w.Header().Set("Upload-Expires", u.ExpiresAt.UTC().Format(http.TimeFormat))
}

func (s *Server) headUpload(w http.ResponseWriter, r *http.Request) error {
	u, err := s.partial(r.Context(), uploadPath(r))
	if err != nil {
		return err
	}
	uploadHeaders(w, u)
	w.Header().Set("Upload-Length", strconv.FormatInt(u.Size, 10))
	if u.Spec.Header != "" {
		w.Header().Set("Upload-Metadata", u.Spec.Header)
	}
	if u.JobID != "" {
		w.Header().Set("Sheaf-Job", u.JobID)
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func uploadPath(r *http.Request) UploadPath {
	return UploadPath{DatasetPath{r.PathValue("ds")}, r.PathValue("upload")}
}

func (s *Server) patchUpload(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Content-Type") != tusMedia {
		return newProblem(415, "", "send the bytes as Content-Type: "+tusMedia)
	}
	offset, err := strconv.ParseInt(r.Header.Get("Upload-Offset"), 10, 64)
	if err != nil || offset < 0 {
		return newProblem(400, "", "send the offset of the first byte as Upload-Offset")
	}
	u, err := s.partial(r.Context(), uploadPath(r))
	if err != nil {
		return err
	}
	ds, err := s.dataset(r.Context(), DatasetPath{r.PathValue("ds")})
	if err != nil {
		return err
	}
	done, err := s.receive(r, func(body io.Reader, verify func() error) (*taskstore.PartialUpload, error) {
		return s.cfg.Ingest.AppendUpload(r.Context(), u.TenantID, u.ID, offset, body, verify)
	})
	if done != nil {
		uploadHeaders(w, done)
	}
	if err != nil {
		return err
	}
	if err := s.finishUpload(w, r, ds, done); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// receive has write store the body of a request. It returns nil if the upload's offset
// is unknown.
func (s *Server) receive(r *http.Request, write func(body io.Reader, verify func() error) (*taskstore.PartialUpload, error)) (*taskstore.PartialUpload, error) {
	tenant := tenantOf(r.Context())
	if !s.uploads.enter(tenant) {
		return nil, tooManyUploads(s.uploads.most)
	}
	defer s.uploads.leave(tenant)
	body := io.Reader(lineReader{r.Body})
	var verify func() error
	if header := r.Header.Get("Upload-Checksum"); header != "" {
		name, value, _ := strings.Cut(header, " ")
		algorithm, ok := checksums[name]
		want, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, newProblem(400, "checksum_algorithm", "Upload-Checksum is the name of one of "+strings.Join(slices.Sorted(maps.Keys(checksums)), ", ")+" and the sum in base64")
		}
		sum := algorithm()
		body = io.TeeReader(body, sum)
		verify = func() error {
			if subtle.ConstantTimeCompare(sum.Sum(nil), want) == 1 {
				return nil
			}
			p := newProblem(statusChecksum, "checksum_mismatch", "the bytes were changed on their way and nothing of this request was kept; send them again")
			p.Title, p.Retryable = "Checksum Mismatch", true
			return p
		}
	}
	if verify == nil && repeatsBody(r.Context()) {
		verify = func() error { return nil } // compared at EOF: nothing of a different body is kept
	}
	u, err := write(body, verify)
	if err != nil && errors.Is(err, errLine) {
		p := newProblem(400, "upload_broke_off", "the upload broke off; what came before is kept, go on at Upload-Offset")
		p.Retryable = true
		err = p
	}
	return u, err
}

// finishUpload turns a complete upload that is not held into a document and names
// it in the response headers.
func (s *Server) finishUpload(w http.ResponseWriter, r *http.Request, ds *sheaf.Dataset, u *taskstore.PartialUpload) error {
	if err := s.submitWhole(r.Context(), ds, u, r.Header.Get("traceparent")); err != nil || u.JobID == "" {
		return err
	}
	w.Header().Set("Sheaf-Job", u.JobID)
	w.Header().Set("Sheaf-Document", u.DocumentID)
	return nil
}

// submitWhole submits an upload that is complete, not held and has no job yet, and
// sets u.JobID.
func (s *Server) submitWhole(ctx context.Context, ds *sheaf.Dataset, u *taskstore.PartialUpload, trace string) error {
	if !u.Complete() || u.Spec.Hold || u.JobID != "" {
		return nil
	}
	from := s.origin(ctx, trace)
	from.Job = u.Spec.Job
	answer, err := s.submitUploads(ctx, ds, []string{u.ID}, from)
	if err != nil {
		return err
	}
	if answer.Job == nil {
		return &answer.Rejected[0].Failure
	}
	u.JobID = answer.Job.ID
	return nil
}

func (s *Server) deleteUpload(w http.ResponseWriter, r *http.Request) error {
	u, err := s.partial(r.Context(), uploadPath(r))
	if err != nil {
		return err
	}
	if err := s.cfg.Catalog.DropUpload(r.Context(), u.TenantID, u.ID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// errLine marks an error of the client's connection, as opposed to the store.
var errLine = errors.New("the line broke")

// lineReader marks errors from reading a body.
type lineReader struct{ io.Reader }

func (l lineReader) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", errLine, err)
	}
	return n, err
}

// describePartial adds the protocol's routes to the OpenAPI document.
func (s *Server) describePartial() {
	reg := s.api.OpenAPI().Components.Schemas
	schema := func(v any) *huma.Schema { return huma.SchemaFromType(reg, reflect.TypeOf(v)) }
	text := &huma.Schema{Type: "string"}
	in := func(where, name, doc string, required bool) *huma.Param {
		return &huma.Param{Name: name, In: where, Description: doc, Required: required, Schema: text}
	}
	version := in("header", "Tus-Resumable", tusVersion, true)
	one := []*huma.Param{in("path", "ds", "", true), in("path", "upload", "", true)}
	problem := &huma.Response{Description: "a problem", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema(Problem{})}}}
	bytes := map[string]*huma.MediaType{tusMedia: {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	add := func(id, method, path, summary, status, answer string, params []*huma.Param, body *huma.RequestBody) {
		response := &huma.Response{Description: answer}
		if status == "201" {
			response.Content = map[string]*huma.MediaType{"application/json": {Schema: schema(UploadStatus{})}}
		}
		scope := scopeWrite
		if method == http.MethodHead || method == http.MethodOptions {
			scope = scopeRead
		}
		op := needs(huma.Operation{
			OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{"uploads"}, Parameters: params, RequestBody: body,
			Responses: map[string]*huma.Response{status: response, "default": problem},
		}, scope)
		s.api.OpenAPI().AddOperation(&op)
	}
	offset := in("header", "Upload-Offset", "position of the first byte, as HEAD says", true)
	checksum := in("header", "Upload-Checksum", "algorithm and sum in base64; nothing is kept unless it matches", false)
	const all, single = "/v1/datasets/{ds}/uploads", "/v1/datasets/{ds}/uploads/{upload}"
	add("create-upload", "POST", all, "Start an upload in pieces (tus 1.0.0)", "201", "Location takes the bytes",
		[]*huma.Param{one[0], version, in("header", "Upload-Length", "size in bytes", true),
			in("header", "Upload-Metadata", "pairs of a key and a value in base64: filename, filetype, id, lane, fingerprint, hold, parser_config, metadata, attributes", false), checksum}, &huma.RequestBody{Content: bytes})
	add("upload-options", "OPTIONS", all, "Read the tus capabilities", "204", "Tus-Extension, Tus-Max-Size and Tus-Checksum-Algorithm", one[:1], nil)
	add("head-upload", "HEAD", single, "Read the upload offset", "200", "Upload-Offset, Upload-Length, Upload-Expires", append(slices.Clone(one), version), nil)
	add("patch-upload", "PATCH", single, "Send bytes from an offset on", "204", "Upload-Offset is what is stored now; Sheaf-Job names the job of a complete upload that is not held", append(slices.Clone(one), version, offset, checksum), &huma.RequestBody{Required: true, Content: bytes})
	add("delete-upload", "DELETE", single, "Delete an upload", "204", "deleted", append(slices.Clone(one), version), nil)
	add("post-upload", "POST", single, "PATCH or DELETE for clients limited to POST", "204", "as for the method in X-HTTP-Method-Override",
		append(slices.Clone(one), version, in("header", "X-HTTP-Method-Override", "PATCH or DELETE", true), in("header", "Upload-Offset", "of a PATCH: position of the first byte", false), checksum), &huma.RequestBody{Content: bytes})
}
