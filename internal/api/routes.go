package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/doctor"
	"sheaf/internal/search"
	"sheaf/internal/settings"
	"sheaf/internal/watch"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// Inputs shared by many routes.
type (
	ListInput struct {
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"items per page"`
		Cursor string `query:"cursor" format:"cursor" doc:"previous page's next_cursor"`
		Order  string `query:"order" enum:"newest,oldest" default:"newest"`
		FieldsInput
	}
	DatasetPath struct {
		Dataset string `path:"ds" doc:"id or name of the dataset" maxLength:"255"`
	}
	DocumentPath struct {
		DatasetPath
		Document string `path:"doc" doc:"id of the document; its dataset may be given as -" maxLength:"64"`
	}
	UploadPath struct {
		DatasetPath
		Upload string `path:"upload" doc:"id of the upload" maxLength:"64"`
	}
	JobPath struct {
		Job string `path:"job" doc:"id of the job" maxLength:"64"`
	}
	TraceHeader struct {
		Traceparent string `header:"traceparent" doc:"W3C trace context"`
	}
	DryRunParam struct {
		DryRun bool `query:"dry_run" doc:"return what would be done and change nothing"`
	}
	NotBeforeParam struct {
		NotBefore time.Time `query:"not_before" doc:"earliest start, at most a year ahead; a past time means immediately"`
	}
	FilterInput struct {
		State         []string  `query:"state,explode" enum:"unstarted,queued,running,finalizing,succeeded,partially_succeeded,failed,canceling,canceled" doc:"repeat for OR"`
		Query         string    `query:"q" maxLength:"255" doc:"part of the name"`
		MediaType     []string  `query:"media_type,explode" pattern:"^[^/ ]+/[^/ ]+$" patternDescription:"a media type such as application/pdf" doc:"repeat for OR"`
		ID            []string  `query:"id,explode" maxItems:"1000" doc:"repeat for OR; ids that do not exist are omitted"`
		Parent        string    `query:"parent" maxLength:"64" doc:"id of an archive, for the files in it"`
		FailureCode   []string  `query:"failure_code,explode" maxItems:"100" doc:"code of the document's failure, such as encrypted; repeat for OR"`
		Warning       []string  `query:"warning,explode" maxItems:"100" doc:"code of one of its warnings, such as rows_clipped; repeat for OR"`
		Job           []string  `query:"job,explode" maxItems:"100" doc:"id of the last job that processed the document; repeat for OR"`
		Language      []string  `query:"language,explode" maxItems:"100" doc:"its declared language; repeat for OR"`
		Tag           []string  `query:"tag,explode" maxItems:"100" doc:"the attribute sheaf.tag; repeat for OR"`
		CreatedAfter  time.Time `query:"created_after"`
		CreatedBefore time.Time `query:"created_before"`
	}
)

func (l ListInput) page() taskstore.Page {
	return taskstore.Page{Limit: l.Limit, Cursor: l.Cursor, Ascending: l.Order == "oldest"}
}

func (f FilterInput) filter() taskstore.DocumentFilter {
	out := taskstore.DocumentFilter{IDs: f.ID, Query: f.Query, MediaTypes: f.MediaType, ParentID: f.Parent, CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore,
		Issues: f.FailureCode, Warnings: f.Warning, JobIDs: f.Job, Languages: f.Language, Tags: f.Tag}
	for _, st := range f.State {
		out.States = append(out.States, sheaf.DocumentState(st))
	}
	return out
}

// List is one page of a listing.
type List[T any] struct {
	Items      []T     `json:"items" nullable:"false"`
	NextCursor *string `json:"next_cursor" doc:"null on the last page"`
}

func listOf[T any](items []T, next string) *output[List[T]] {
	l := List[T]{Items: items}
	if items == nil {
		l.Items = []T{}
	}
	if next != "" {
		l.NextCursor = &next
	}
	return &output[List[T]]{Body: l}
}

type output[T any] struct{ Body T }

// tagged is a cacheable response: a request with its ETag as If-None-Match gets 304
// Not Modified while it is unchanged.
type tagged[T any] struct {
	Status int
	ETag   string `header:"ETag"`
	Age    int    `header:"Age" doc:"seconds since the answer was read, at most 15, if many share it or it takes long to read, so that it may lack newer changes; otherwise 0"`
	Body   T
}

// ETagInput carries the ETag of the client's copy.
type ETagInput struct {
	IfNoneMatch string `header:"If-None-Match" doc:"ETag of an earlier answer; 304 without a body if it is still current"`
}

// sharedPage is the largest list page that is cached for all its readers.
const sharedPage = 100

// snapshotOf serves many readers from one read.
func snapshotOf[T any](ctx context.Context, s *Server, in ETagInput, scope watch.Scope, read func(context.Context) (any, error)) (*tagged[T], error) {
	snap, lag, err := s.hub.Read(ctx, scope, read)
	if err != nil {
		return nil, err
	}
	age := int((lag + time.Second - 1) / time.Second)
	if slices.Contains(strings.Split(strings.ReplaceAll(in.IfNoneMatch, " ", ""), ","), snap.ETag) {
		return &tagged[T]{Status: http.StatusNotModified, ETag: snap.ETag, Age: age}, nil
	}
	return &tagged[T]{Status: http.StatusOK, ETag: snap.ETag, Age: age, Body: snap.Value.(T)}, nil
}

type accepted[T any] struct {
	Location string `header:"Location"`
	Body     T
}

// handle registers a route whose errors go through problemOf. The operation has
// declared its scope: get, post and change set it, and needs overrides it.
func handle[I, O any](s *Server, op huma.Operation, f func(ctx context.Context, in *I) (*O, error)) {
	if op.Metadata == nil {
		op.Metadata = map[string]any{}
	}
	op.Metadata[metaSchemas] = s.api.OpenAPI().Components.Schemas
	if op.OperationID == "" {
		op.OperationID = operationID(op.Method, op.Path)
	}
	if len(op.Tags) == 0 {
		op.Tags = []string{tagOf(op.Path)}
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, in)
		if err != nil {
			p := s.problemOf(ctx, err)
			if p.Status == 429 || p.Status == 503 {
				return nil, huma.ErrorWithHeaders(p, http.Header{"Retry-After": {"5"}})
			}
			return nil, p
		}
		return out, nil
	})
}

// holds is the verb for pause and resume in summaries.
func holds(verb string) string {
	if verb == "pause" {
		return "Hold"
	}
	return "Free"
}

// tagOf returns the tag of a route: the subject of its path.
func tagOf(path string) string {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' })[1:]
	if parts[0] == "admin" {
		return "admin"
	}
	for _, tag := range []string{"jobs", "search", "uploads", "webhooks", "receipts", "queries", "evaluations", "chunks", "edits", "documents"} {
		if slices.Contains(parts, tag) {
			switch tag {
			case "edits":
				return "chunks"
			case "queries":
				return "evaluations"
			}
			return tag
		}
	}
	return parts[0]
}

func get(path, summary string) huma.Operation {
	return needs(huma.Operation{Method: http.MethodGet, Path: path, Summary: summary}, scopeRead)
}

func post(path, summary string) huma.Operation { return change(http.MethodPost, path, summary) }

// change is an operation that requires the scope write.
func change(method, path, summary string) huma.Operation {
	return needs(huma.Operation{Method: method, Path: path, Summary: summary}, scopeWrite)
}

func (s *Server) routes() {
	s.datasetRoutes()
	s.documentRoutes()
	s.jobRoutes()
	s.searchRoutes()
	s.graphRoutes()
	s.embeddingRoutes()
	s.queueRoutes()
	s.uploadRoutes()
	s.partialRoutes()
	s.webhookRoutes()
	s.flowRoutes()
	s.evaluationRoutes()
	s.exportRoute()
	s.editRoutes()
	s.runRoutes()
	s.datasetRunRoutes()
	s.statsRoutes()
	s.indexRoutes()
	s.versionRoutes()
	s.previewRoutes()
	s.receiptRoutes()
	s.operationRoutes()
	s.infoRoutes()
	s.diagnosticsRoutes()
}

// dataset finds the dataset of a path within the caller's tenant.
func (s *Server) dataset(ctx context.Context, p DatasetPath) (*sheaf.Dataset, error) {
	return s.cfg.Catalog.Dataset(ctx, tenantOf(ctx), p.Dataset)
}

// anyDataset in a path stands for the dataset of the document it names.
const anyDataset = "-"

// document finds the document of a path within its dataset and tenant.
func (s *Server) document(ctx context.Context, p DocumentPath) (*sheaf.Document, error) {
	within := ""
	if p.Dataset != anyDataset {
		ds, err := s.dataset(ctx, p.DatasetPath)
		if err != nil {
			return nil, err
		}
		within = ds.ID
	}
	d, err := s.cfg.Catalog.Document(ctx, tenantOf(ctx), p.Document)
	if err != nil {
		return nil, err
	}
	if within != "" && d.DatasetID != within {
		return nil, sheaf.ErrNotFound
	}
	return public(d), nil
}

// shown returns a dataset for display: with its settings except the password.
func shown(d *sheaf.Dataset) *sheaf.Dataset {
	if d != nil {
		hidePassword(&d.ParseConfig)
	}
	return d
}

// hidePassword removes the write-only setting.
func hidePassword(c *sheaf.ParseConfig) {
	if c.Password.V != "" {
		c.Password = sheaf.Opt[string]{}
	}
}

// public hides a document's internals.
func public(d *sheaf.Document) *sheaf.Document {
	hidePassword(&d.ParseConfig)
	if d.Warnings == nil {
		d.Warnings = []sheaf.Warning{}
	}
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	return d
}

// DocumentAnswer is a document with all its settings.
type DocumentAnswer struct {
	sheaf.Document
	MadeWith sheaf.ParseConfig `json:"made_with" doc:"parser_config with the defaults of what it omits"`
}

func publicAll(ds []sheaf.Document) []sheaf.Document {
	for i := range ds {
		public(&ds[i])
	}
	return ds
}

// NewDataset is the body that creates or changes a dataset.
type NewDataset struct {
	Name        string            `json:"name" minLength:"1" maxLength:"255" pattern:"^[^/\\x00-\\x1f]+$" patternDescription:"a name without slashes and control characters" doc:"unique; usable in place of the id"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty"`
	Attributes  sheaf.Attributes  `json:"attributes,omitempty" doc:"data that your program stores with the dataset; Sheaf does not read or search it. Begin keys with the program's name. At most 256 KiB as JSON"`
}

func nameTaken(name string) error {
	return newProblem(409, "", fmt.Sprintf("there is a dataset named %s already; use that one, or choose another name", quoted(name)))
}

// checkConfig rejects settings that could not parse any of the tenant's documents.
func (s *Server) checkConfig(ctx context.Context, c sheaf.ParseConfig) error {
	if err := cmp.Or(s.cfg.Ingest.CheckConfig(c, ""), s.checkRunSettings(c)); err != nil {
		return err
	}
	return s.cfg.Ingest.CheckNamed(ctx, tenantOf(ctx), c)
}

// DatasetChange is the body that changes a dataset.
type DatasetChange struct {
	Name        string            `json:"name,omitempty" minLength:"1" maxLength:"255" pattern:"^[^/\\x00-\\x1f]+$" patternDescription:"a name without slashes and control characters"`
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty" doc:"settings to change, for future documents; re-parse applies them to existing ones. null resets a setting"`
	Attributes  sheaf.Attributes  `json:"attributes,omitempty" doc:"keys that are not named stay; a key with null is removed"`
}

// DocumentChange is the body that changes a document's name and attributes.
type DocumentChange struct {
	Name       string           `json:"name,omitempty" minLength:"1" maxLength:"500" doc:"shown in lists and search results; words of a new name are found once the document has been parsed again"`
	Attributes sheaf.Attributes `json:"attributes,omitempty" doc:"data that your program stores with the document: keys that are not named stay; a key with null is removed. Sheaf does not read it. At most 16 KiB as JSON"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *DocumentChange) UnmarshalJSON(b []byte) error {
	type plain DocumentChange
	return decodeChange(b, (*plain)(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *DatasetChange) UnmarshalJSON(b []byte) error {
	type plain DatasetChange
	return decodeChange(b, (*plain)(c), "parser_config")
}

// maxChanges is how often a change is retried after losing to a concurrent one.
const maxChanges = 5

// changeDataset applies a change to the current dataset. It returns ErrStale if the
// dataset changed in between.
func (s *Server) changeDataset(ctx context.Context, path DatasetPath, to DatasetChange) (*sheaf.Dataset, error) {
	d, err := s.dataset(ctx, path)
	if err != nil {
		return nil, err
	}
	if to.Name != "" {
		d.Name = to.Name
	}
	if !settings.Empty(to.ParseConfig) {
		d.ParseConfig = settings.Patch(to.ParseConfig, d.ParseConfig, sheaf.ParseConfig{})
		if err := s.checkConfig(ctx, d.ParseConfig); err != nil {
			return nil, err
		}
	}
	if len(to.Attributes) > 0 {
		d.Attributes = d.Attributes.Change(to.Attributes)
	}
	err = s.cfg.Catalog.UpdateDataset(ctx, *d)
	if errors.Is(err, sheaf.ErrConflict) {
		err = nameTaken(d.Name)
	}
	if err != nil {
		return nil, err
	}
	return s.cfg.Catalog.CountedDataset(ctx, d.TenantID, d.ID)
}

func (s *Server) datasetRoutes() {
	type createIn struct{ Body NewDataset }
	op := post("/v1/datasets", "Create a dataset")
	op.DefaultStatus = http.StatusCreated
	handle(s, op, func(ctx context.Context, in *createIn) (*output[*sheaf.Dataset], error) {
		if err := s.checkConfig(ctx, in.Body.ParseConfig); err != nil {
			return nil, err
		}
		id := s.origin(ctx, "").ID(tenantOf(ctx), "dataset", 0)
		config := settings.Merge(in.Body.ParseConfig, sheaf.ParseConfig{}) // drops nulls
		d, err := s.cfg.Catalog.CreateDataset(ctx, sheaf.Dataset{ID: id, TenantID: tenantOf(ctx), Name: in.Body.Name, ParseConfig: config, Attributes: sheaf.Attributes(nil).Change(in.Body.Attributes)})
		if errors.Is(err, sheaf.ErrConflict) {
			if begun, lookErr := s.cfg.Catalog.Dataset(ctx, tenantOf(ctx), id); lookErr == nil {
				d, err = begun, nil // created by an earlier attempt of this request
			} else {
				err = nameTaken(in.Body.Name)
			}
		}
		return &output[*sheaf.Dataset]{shown(d)}, err
	})
	type listIn struct {
		ListInput
		Query string   `query:"q" maxLength:"255" doc:"part of the name"`
		ID    []string `query:"id,explode" maxItems:"1000" doc:"repeat for OR; ids that do not exist are omitted"`
	}
	handle(s, get("/v1/datasets", "List datasets"), func(ctx context.Context, in *listIn) (*output[List[sheaf.Dataset]], error) {
		ds, next, err := s.cfg.Catalog.Datasets(ctx, tenantOf(ctx), taskstore.DatasetFilter{Query: in.Query, IDs: in.ID}, in.page())
		for i := range ds {
			shown(&ds[i])
		}
		return listOf(ds, next), err
	})
	read := get("/v1/datasets/{ds}", "Read a dataset")
	s.streaming(&read, s.streamDataset)
	handle(s, read, func(ctx context.Context, in *DatasetPath) (*output[*sheaf.Dataset], error) {
		d, err := s.cfg.Catalog.CountedDataset(ctx, tenantOf(ctx), in.Dataset)
		return &output[*sheaf.Dataset]{shown(d)}, err
	})
	type patchIn struct {
		DatasetPath
		Body DatasetChange
	}
	patch := change(http.MethodPatch, "/v1/datasets/{ds}", "Change a dataset")
	patch.Description = "What is named is changed and the rest stays (RFC 7396): null resets a setting to its default, and parser_config null resets all of them."
	handle(s, patch, func(ctx context.Context, in *patchIn) (*output[*sheaf.Dataset], error) {
		d, err := s.changeDataset(ctx, in.DatasetPath, in.Body)
		for n := 1; errors.Is(err, sheaf.ErrStale) && n < maxChanges; n++ {
			d, err = s.changeDataset(ctx, in.DatasetPath, in.Body)
		}
		return &output[*sheaf.Dataset]{shown(d)}, err
	})
	handle(s, change(http.MethodDelete, "/v1/datasets/{ds}", "Delete a dataset with its documents"), func(ctx context.Context, in *struct {
		DatasetPath
		DryRunParam
	}) (*output[DeleteAnswer], error) {
		d, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			return wouldDelete(s.cfg.Ingest.DryRunDeleteDataset(ctx, d))
		}
		return deleted(s.cfg.Ingest.DeleteDataset(ctx, d.TenantID, d.ID))
	})
	for verb, paused := range map[string]bool{"pause": true, "resume": false} {
		handle(s, post("/v1/datasets/{ds}:"+verb, holds(verb)+" the dataset's queued work"), func(ctx context.Context, in *DatasetPath) (*output[Paused], error) {
			d, err := s.dataset(ctx, *in)
			if err != nil {
				return nil, err
			}
			n, err := s.cfg.Ingest.Pause(ctx, d.TenantID, taskstore.PauseScope{DatasetID: d.ID}, paused)
			return &output[Paused]{Paused{paused, n}}, err
		})
	}
}

// DoctorReport is the doctor's findings, and how the parsers of this process are
// sandboxed.
type DoctorReport struct {
	doctor.Report
	Parsers []child.Protection `json:"parsers" nullable:"false" doc:"what isolates the processes that read documents from the rest of the system; executors log theirs at start"`
}

// Paused reports what a pause or resume did.
type Paused struct {
	Paused bool `json:"paused"`
	Tasks  int  `json:"tasks" doc:"queued tasks held or freed"`
}

// ReparseRequest is the body of a batch re-parse.
type ReparseRequest struct {
	Selection
	ParseConfig sheaf.ParseConfig `json:"parser_config,omitempty" doc:"settings named here replace the documents' own; null takes the dataset's current setting, or the default"`
	Fresh       bool              `json:"fresh,omitempty" doc:"parse everything again, the text in pictures and recordings too; vectors and answers of language models for the same text are not made again"`
}

// RetryRequest is the body of a batch retry.
type RetryRequest struct {
	Selection
	Scope ingest.RetryScope `json:"scope,omitempty" enum:"failed,all,stage:parse,stage:chunk,stage:embed,stage:index" default:"failed" doc:"failed: units that could not be read. A stage is repeated with those after it: stage:embed makes new vectors of the stored chunks, stage:index writes them to the index again"`
	Units Units             `json:"units,omitempty" nullable:"false" maxItems:"1000" doc:"with the scope failed: only these pages, rows or parts, as [from, to]"`
	Codes OneOf[string]     `json:"codes,omitempty" nullable:"false" maxItems:"100" doc:"with the scope failed: only units that failed with one of these codes"`
}

func (s *Server) documentRoutes() {
	type listIn struct {
		DatasetPath
		ListInput
		FilterInput
	}
	list := get("/v1/datasets/{ds}/documents", "List documents")
	list.Description = "Documents named by id are found in all datasets if the dataset is `-`."
	handle(s, list, func(ctx context.Context, in *listIn) (*output[List[sheaf.Document]], error) {
		f := in.filter()
		if in.Dataset != anyDataset || len(f.IDs) == 0 {
			ds, err := s.dataset(ctx, in.DatasetPath)
			if err != nil {
				return nil, err
			}
			f.DatasetID = ds.ID
		}
		docs, next, err := s.cfg.Catalog.Documents(ctx, tenantOf(ctx), f, in.page())
		return listOf(publicAll(docs), next), err
	})
	s.facetRoutes()
	op := get("/v1/datasets/{ds}/documents/{doc}", "Read a document")
	s.streaming(&op, s.streamDocument)
	handle(s, op, func(ctx context.Context, in *DocumentPath) (*output[DocumentAnswer], error) {
		d, err := s.document(ctx, *in)
		if err != nil {
			return nil, err
		}
		return &output[DocumentAnswer]{DocumentAnswer{*d, settings.WithDefaults(d.ParseConfig)}}, nil
	})
	type patchIn struct {
		DocumentPath
		Body DocumentChange
	}
	patch := change(http.MethodPatch, "/v1/datasets/{ds}/documents/{doc}", "Rename a document, or change its attributes")
	patch.Description = "What is named is changed and the rest stays (RFC 7396). Nothing is parsed again."
	handle(s, patch, func(ctx context.Context, in *patchIn) (*output[*sheaf.Document], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		// An upload's name may be a path and is cleaned; here a user chose it.
		if name := in.Body.Name; name != "" && name != ingest.CleanName(name) {
			return nil, fmt.Errorf("%w: %q cannot be a document's name; %q can", sheaf.ErrInvalid, name, ingest.CleanName(name))
		}
		if d, err = s.cfg.Catalog.ChangeDocument(ctx, d.TenantID, d.ID, in.Body.Name, in.Body.Attributes); err != nil {
			return nil, err
		}
		return &output[*sheaf.Document]{public(d)}, nil
	})
	handle(s, change(http.MethodDelete, "/v1/datasets/{ds}/documents/{doc}", "Delete a document"), func(ctx context.Context, in *struct {
		DocumentPath
		DryRunParam
	}) (*output[DeleteAnswer], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		if in.DryRun {
			return wouldDelete(s.cfg.Ingest.DryRunDelete(ctx, &sheaf.Dataset{ID: d.DatasetID, TenantID: d.TenantID}, taskstore.DocumentFilter{IDs: []string{d.ID}}))
		}
		return deleted(s.cfg.Ingest.Delete(ctx, tenantOf(ctx), []string{d.ID}))
	})
	type pagesIn struct {
		DocumentPath
		Generation int `query:"generation" minimum:"0" doc:"0 means the newest"`
	}
	handle(s, get("/v1/datasets/{ds}/documents/{doc}/pages", "Read the page ledger"), func(ctx context.Context, in *pagesIn) (*output[Pages], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		l, err := s.cfg.Catalog.UnitLedger(ctx, tenantOf(ctx), d.ID, in.Generation)
		if l == nil {
			l = sheaf.Ledger{}
		}
		return &output[Pages]{Pages{Unit: d.Unit, Units: d.Units, Counts: l.Counts(), Runs: l}}, err
	})
	handle(s, get("/v1/datasets/{ds}/documents/{doc}/generations", "List generations"), func(ctx context.Context, in *DocumentPath) (*output[List[sheaf.Generation]], error) {
		d, err := s.document(ctx, *in)
		if err != nil {
			return nil, err
		}
		gens, err := s.cfg.Catalog.Generations(ctx, tenantOf(ctx), d.ID)
		for i := range gens {
			hidePassword(&gens[i].ParseConfig)
		}
		return listOf(gens, ""), err
	})
	handle(s, get("/v1/datasets/{ds}/documents/{doc}/tasks", "List the tasks of a generation"), func(ctx context.Context, in *pagesIn) (*output[List[Task]], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		tasks, err := s.cfg.Catalog.Tasks(ctx, tenantOf(ctx), d.ID, in.Generation)
		return listOf(tasksOf(tasks), ""), err
	})
	type chunksIn struct {
		DocumentPath
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"50"`
		Cursor string `query:"cursor" format:"chunk-cursor"`
		FieldsInput
		Page    int    `query:"page" minimum:"0" doc:"only chunks on this page"`
		RangeID string `query:"range_id" maxLength:"64"`
		Version int    `query:"generation" minimum:"0" doc:"0 means the live one; an unfinished one has what is done so far; results of a replaced one are kept for keeper.keep_versions, then the answer is 410 with code generation_gone"`
	}
	handle(s, get("/v1/datasets/{ds}/documents/{doc}/chunks", "List the chunks of a generation in reading order"), func(ctx context.Context, in *chunksIn) (*output[List[ListedChunk]], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		chunks, next, err := s.chunks(ctx, d, chunkQuery{generation: in.Version, limit: in.Limit, cursor: in.Cursor, page: in.Page, rangeID: in.RangeID})
		return listOf(chunks, next), err
	})
	events := get("/v1/datasets/{ds}/documents/{doc}/events", "Read a document's events")
	s.streaming(&events, s.streamDocument)
	handle(s, events, func(ctx context.Context, in *struct {
		DocumentPath
		EventsInput
	}) (*output[Events], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		return s.events(ctx, taskstore.EventFilter{DocumentID: d.ID}, in.EventsInput)
	})
	reparse := post("/v1/datasets/{ds}/documents:reparse", "Parse documents again")
	reparse.DefaultStatus = http.StatusAccepted
	reparse.Description = "Starts a new generation of every selected document. Search results change only when a new generation has succeeded; unchanged ranges are reused."
	handle(s, reparse, func(ctx context.Context, in *struct {
		DatasetPath
		TraceHeader
		DryRunParam
		NotBeforeParam
		Body ReparseRequest
	}) (*accepted[BatchAnswer], error) {
		ds, f, err := s.selected(ctx, in.DatasetPath, &in.Body.Selection)
		if err != nil {
			return nil, err
		}
		from, err := s.originAt(ctx, in.Traceparent, in.NotBefore)
		if err != nil {
			return nil, err
		}
		r := ingest.ReparseRequest{Filter: f, Config: in.Body.ParseConfig, Fresh: in.Body.Fresh, From: from}
		if in.DryRun || in.Body.DryRun {
			return previewed(s.cfg.Ingest.DryRunReparse(ctx, ds, r))
		}
		return again(s.cfg.Ingest.Reparse(ctx, ds, r))
	})
	retry := post("/v1/datasets/{ds}/documents:retry", "Retry what failed")
	retry.DefaultStatus = http.StatusAccepted
	handle(s, retry, func(ctx context.Context, in *struct {
		DatasetPath
		TraceHeader
		DryRunParam
		NotBeforeParam
		Body RetryRequest
	}) (*accepted[BatchAnswer], error) {
		ds, f, err := s.selected(ctx, in.DatasetPath, &in.Body.Selection)
		if err != nil {
			return nil, err
		}
		scope, only := in.Body.Scope, taskstore.RetryOnly{Units: in.Body.Units, Codes: in.Body.Codes}
		if (in.Body.Units != nil || in.Body.Codes != nil) && scope != ingest.RetryFailed {
			return nil, newProblem(400, "", "units and codes narrow the scope failed; leave scope out, or units and codes")
		}
		from, err := s.originAt(ctx, in.Traceparent, in.NotBefore)
		if err != nil {
			return nil, err
		}
		f.None = f.None || in.Body.Units != nil && len(in.Body.Units) == 0 || in.Body.Codes.none()
		if in.DryRun || in.Body.DryRun {
			return previewed(s.cfg.Ingest.DryRunRetry(ctx, ds, f, scope, only))
		}
		if !only.Empty() {
			return again(s.cfg.Ingest.RetryUnits(ctx, ds, f, only, from))
		}
		return again(s.cfg.Ingest.RetryDocuments(ctx, ds, f, scope, from))
	})
	type selectIn struct {
		DatasetPath
		DryRunParam
		Body Selection
	}
	handle(s, post("/v1/datasets/{ds}/documents:cancel", "Stop the newest generation of documents"), func(ctx context.Context, in *selectIn) (*output[CancelAnswer], error) {
		ds, filter, err := s.selected(ctx, in.DatasetPath, &in.Body)
		if err != nil {
			return nil, err
		}
		if in.DryRun || in.Body.DryRun {
			f, err := s.cfg.Ingest.DryRunCancel(ctx, ds, filter)
			return &output[CancelAnswer]{CancelAnswer{Forecast: f}}, err
		}
		ids, err := s.cfg.Ingest.IDs(ctx, ds, filter)
		if err != nil || len(ids) == 0 {
			return &output[CancelAnswer]{}, err
		}
		r, err := s.cfg.Ingest.Cancel(ctx, tenantOf(ctx), ids)
		return &output[CancelAnswer]{CancelAnswer{CancelReceipt: r}}, err
	})
	handle(s, post("/v1/datasets/{ds}/documents:delete", "Delete documents"), func(ctx context.Context, in *selectIn) (*output[DeleteAnswer], error) {
		ds, filter, err := s.selected(ctx, in.DatasetPath, &in.Body)
		if err != nil {
			return nil, err
		}
		if in.DryRun || in.Body.DryRun {
			return wouldDelete(s.cfg.Ingest.DryRunDelete(ctx, ds, filter))
		}
		ids, err := s.cfg.Ingest.IDs(ctx, ds, filter)
		if err != nil || len(ids) == 0 {
			return &output[DeleteAnswer]{DeleteAnswer{DeleteReceipt: taskstore.DeleteReceipt{DocumentIDs: []string{}}}}, err
		}
		return deleted(s.cfg.Ingest.Delete(ctx, tenantOf(ctx), ids))
	})
}

// selected resolves the dataset and documents of a batch action.
func (s *Server) selected(ctx context.Context, p DatasetPath, sel *Selection) (*sheaf.Dataset, taskstore.DocumentFilter, error) {
	ds, err := s.dataset(ctx, p)
	if err != nil {
		return nil, taskstore.DocumentFilter{}, err
	}
	f, err := sel.documents()
	return ds, f, err
}

// BatchAnswer is the job of a batch action, or its plan.
type BatchAnswer struct {
	Job   *sheaf.Job           `json:"job,omitempty"`
	Plans []ingest.PlanPreview `json:"plans,omitempty" doc:"of a dry run: at most the first 100 documents"`
	// Documents and Skipped are 0 in a dry run; Forecast counts them instead.
	Documents int              `json:"documents" doc:"that are run again; if none, there is no job"`
	Skipped   int              `json:"skipped" doc:"selected, but unchanged because of their state"`
	Forecast  *ingest.Forecast `json:"forecast,omitempty" doc:"of a dry run: all documents together"`
}

// CancelAnswer is the receipt of a cancel, or what it would cancel.
type CancelAnswer struct {
	taskstore.CancelReceipt
	Forecast *ingest.Forecast `json:"forecast,omitempty" doc:"of a dry run"`
}

// DeleteAnswer is the receipt of a delete, or what it would delete.
type DeleteAnswer struct {
	taskstore.DeleteReceipt
	Forecast *ingest.Forecast `json:"forecast,omitempty" doc:"of a dry run"`
}

func previewed(plans []ingest.PlanPreview, f *ingest.Forecast, err error) (*accepted[BatchAnswer], error) {
	return &accepted[BatchAnswer]{Body: BatchAnswer{Plans: plans, Forecast: f}}, err
}

func again(r ingest.Rerun, err error) (*accepted[BatchAnswer], error) {
	out := &accepted[BatchAnswer]{Body: BatchAnswer{Job: r.Job, Documents: r.Documents, Skipped: r.Skipped}}
	if r.Job != nil {
		out.Location = "/v1/jobs/" + r.Job.ID
	}
	return out, err
}

// mostListed bounds the ids in the answer to a delete. With more, it would be too
// large to be kept for an Idempotency-Key, and a repeated request would delete what
// was added meanwhile.
const mostListed = 10_000

func deleted(r taskstore.DeleteReceipt, err error) (*output[DeleteAnswer], error) {
	r.DocumentIDs = r.DocumentIDs[:min(len(r.DocumentIDs), mostListed)]
	return &output[DeleteAnswer]{DeleteAnswer{DeleteReceipt: r}}, err
}

func wouldDelete(f *ingest.Forecast, err error) (*output[DeleteAnswer], error) {
	return &output[DeleteAnswer]{DeleteAnswer{DeleteReceipt: taskstore.DeleteReceipt{DocumentIDs: []string{}}, Forecast: f}}, err
}

// Pages is a document's page ledger.
type Pages struct {
	Unit   sheaf.Unit         `json:"unit"`
	Units  int                `json:"units"`
	Counts sheaf.LedgerCounts `json:"counts"`
	Runs   sheaf.Ledger       `json:"runs" nullable:"false" doc:"verdicts on runs of units, in order"`
}

// Task is a task as callers see it.
type Task struct {
	ID         string            `json:"id"`
	DocumentID string            `json:"document_id"`
	JobID      string            `json:"job_id"`
	Generation int               `json:"generation"`
	Kind       sheaf.TaskKind    `json:"kind"`
	Node       string            `json:"node,omitempty" doc:"of the flow, for a task that runs one node"`
	Pool       string            `json:"pool,omitempty" doc:"of the executors that may run it; absent for default"`
	Unit       sheaf.Unit        `json:"unit,omitempty"`
	Range      *sheaf.Range      `json:"range,omitempty"`
	Cost       int               `json:"cost"`
	Lane       sheaf.Lane        `json:"lane"`
	State      sheaf.TaskState   `json:"state"`
	Attempts   int               `json:"attempts"`
	Failures   int               `json:"failures"`
	Lost       int               `json:"lost"`
	Worker     string            `json:"worker,omitempty"`
	RunAt      time.Time         `json:"run_at"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  time.Time         `json:"started_at,omitzero"`
	FinishedAt time.Time         `json:"finished_at,omitzero"`
	DurationMS int64             `json:"duration_ms,omitempty"`
	RangeID    string            `json:"range_id,omitempty"`
	Chunks     int               `json:"chunks"`
	Tokens     int               `json:"tokens"`
	Reused     bool              `json:"reused,omitempty"`
	Digest     string            `json:"digest,omitempty"`
	Ledger     sheaf.Ledger      `json:"ledger,omitempty"`
	Stages     []sheaf.StageTime `json:"stages,omitempty"`
	Failure    *sheaf.Failure    `json:"failure,omitempty"`
	Warnings   []sheaf.Warning   `json:"warnings,omitempty"`
	Output     *sheaf.NodeOutput `json:"output,omitempty" doc:"output of a node"`
	Content    string            `json:"content,omitempty" doc:"path of the bytes that the task reads"`
}

func tasksOf(ts []sheaf.Task) []Task {
	out := make([]Task, len(ts))
	for i := range ts {
		out[i] = taskOf(&ts[i])
	}
	return out
}

func taskOf(t *sheaf.Task) Task {
	out := Task{
		ID: t.ID, DocumentID: t.DocumentID, JobID: t.JobID, Generation: t.Generation, Kind: t.Kind, Unit: t.Unit, Cost: t.Cost, Lane: t.Lane,
		State: t.State, Attempts: t.Attempts, Failures: t.FailCount, Lost: t.LostCount, Worker: t.WorkerID,
		RunAt: t.RunAt, CreatedAt: t.CreatedAt, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
		RangeID: t.Result.RangeID, Chunks: t.Result.Chunks, Tokens: t.Result.Tokens, Reused: t.Result.Reused, Digest: t.Digest,
		Ledger: t.Result.Ledger, Stages: t.Result.Stages, Failure: t.Failure, Warnings: t.Result.Warnings, Output: t.Result.Output, Content: contentPath(t), Pool: t.Pool,
	}
	if t.Kind == sheaf.KindDataflow { // other kinds use it internally
		out.Node = t.Node
	}
	if t.Range.From > 0 {
		r := t.Range
		out.Range = &r
	}
	if !t.StartedAt.IsZero() && !t.FinishedAt.IsZero() {
		out.DurationMS = t.FinishedAt.Sub(t.StartedAt).Milliseconds()
	}
	return out
}

func (s *Server) jobRoutes() {
	type jobIn struct {
		JobPath
		ETagInput
		Wait string `query:"wait" format:"duration" doc:"long-poll: respond when the job ends or after this long, at most 60s"`
	}
	op := get("/v1/jobs/{job}", "Read a job")
	s.streaming(&op, s.streamJob)
	handle(s, op, func(ctx context.Context, in *jobIn) (*tagged[*sheaf.Job], error) {
		ended, err := s.waitForJob(ctx, in.Job, in.Wait)
		if err != nil {
			return nil, err
		}
		of := s.jobStatus(tenantOf(ctx), in.Job)
		if ended { // the shared snapshot may be older; a caller that waited for the end must see it
			if snap, _, err := s.hub.Read(ctx, of.scope, of.read); err == nil && !of.ended(snap.Value) {
				s.hub.Changed(of.scope.TenantID, in.Job)
			}
		}
		return snapshotOf[*sheaf.Job](ctx, s, in.ETagInput, of.scope, of.read)
	})
	type listIn struct {
		ListInput
		ETagInput
		Dataset   string   `query:"dataset" doc:"id or name"`
		Kind      []string `query:"kind,explode" enum:"ingest,reparse,retry" doc:"repeat for OR"`
		State     []string `query:"state,explode" enum:"unstarted,queued,running,succeeded,partially_succeeded,failed,canceling,canceled" doc:"current state of the job; repeat for OR. At most 10,000 jobs are read for a page, for about a second: it may hold fewer than limit, or none, and have a next_cursor"`
		Requester string   `query:"requester" maxLength:"255" doc:"name of the key that asked for it"`
		Query     string   `query:"q" maxLength:"255" doc:"part of the job's given name, or of the name of one of its first two files"`
	}
	handle(s, get("/v1/jobs", "List jobs"), func(ctx context.Context, in *listIn) (*tagged[List[sheaf.Job]], error) {
		f := taskstore.JobFilter{Requester: in.Requester, Query: in.Query}
		for _, k := range in.Kind {
			f.Kinds = append(f.Kinds, sheaf.JobKind(k))
		}
		for _, st := range in.State {
			f.States = append(f.States, sheaf.DocumentState(st))
		}
		if in.Dataset != "" {
			ds, err := s.dataset(ctx, DatasetPath{in.Dataset})
			if err != nil {
				return nil, err
			}
			f.DatasetID = ds.ID
		}
		tenant, page := tenantOf(ctx), in.page()
		read := func(ctx context.Context) (any, error) {
			jobs, next, err := s.cfg.Catalog.Jobs(ctx, tenant, f, page)
			return listOf(jobs, next).Body, err
		}
		if page.Cursor != "" || page.Limit > sharedPage || f.Query != "" || f.Requester != "" { // unlikely to be shared
			list, err := read(ctx)
			return &tagged[List[sheaf.Job]]{Status: http.StatusOK, Body: list.(List[sheaf.Job])}, err
		}
		return snapshotOf[List[sheaf.Job]](ctx, s, in.ETagInput, watch.Scope{TenantID: tenant, DatasetID: f.DatasetID, MayLag: true, What: fmt.Sprintf("jobs %+v %+v", f, page)}, read)
	})
	type pageIn struct {
		JobPath
		ListInput
	}
	handle(s, get("/v1/jobs/{job}/documents", "List a job's documents"), func(ctx context.Context, in *pageIn) (*output[List[sheaf.Document]], error) {
		docs, next, err := s.cfg.Catalog.JobDocuments(ctx, tenantOf(ctx), in.Job, in.page())
		return listOf(publicAll(docs), next), err
	})
	handle(s, get("/v1/jobs/{job}/errors", "List what failed in a job"), func(ctx context.Context, in *pageIn) (*output[List[taskstore.JobError]], error) {
		errs, next, err := s.cfg.Catalog.JobErrors(ctx, tenantOf(ctx), in.Job, in.page())
		return listOf(errs, next), err
	})
	handle(s, get("/v1/jobs/{job}/warnings", "List the warnings of a job's documents"), func(ctx context.Context, in *pageIn) (*output[List[taskstore.JobWarnings]], error) {
		warned, next, err := s.cfg.Catalog.JobWarnings(ctx, tenantOf(ctx), in.Job, in.page())
		return listOf(warned, next), err
	})
	events := get("/v1/jobs/{job}/events", "Read a job's events")
	s.streaming(&events, s.streamJob)
	handle(s, events, func(ctx context.Context, in *struct {
		JobPath
		EventsInput
	}) (*output[Events], error) {
		if _, err := s.cfg.Catalog.Job(ctx, tenantOf(ctx), in.Job); err != nil {
			return nil, err
		}
		return s.events(ctx, taskstore.EventFilter{JobID: in.Job}, in.EventsInput)
	})
	type openIn struct {
		DatasetPath
		Body struct {
			Name string `json:"name,omitempty" maxLength:"200" doc:"name of the job; default: its first files"`
			Idle string `json:"idle,omitempty" format:"duration" doc:"it closes after this long without additions, such as 30m; at most 24h" default:"10m"`
		}
	}
	open := post("/v1/datasets/{ds}/jobs", "Open a job that several uploads join")
	open.DefaultStatus = http.StatusCreated
	open.Description = "Pass its id as job in uploads and in uploads:submit; their files are one job of at most 10,000. It ends only after :close, or when nothing has been added for a while."
	handle(s, open, func(ctx context.Context, in *openIn) (*accepted[*sheaf.Job], error) {
		idle, err := time.ParseDuration(cmp.Or(in.Body.Idle, "10m"))
		if err != nil || idle < time.Second || idle > maxIdle {
			return nil, newProblem(400, "", "the field idle must be a duration from 1s to 24h, such as 30m")
		}
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		job, err := s.cfg.Ingest.OpenJob(ctx, ds, in.Body.Name, idle, s.origin(ctx, ""))
		if err != nil {
			return nil, err
		}
		return &accepted[*sheaf.Job]{Location: "/v1/jobs/" + job.ID, Body: job}, nil
	})
	closing := post("/v1/jobs/{job}:close", "Close an open job")
	closing.Description = "The job ends when its documents do. Closing a closed job changes nothing."
	handle(s, closing, func(ctx context.Context, in *JobPath) (*output[*sheaf.Job], error) {
		job, err := s.cfg.Ingest.CloseJob(ctx, tenantOf(ctx), in.Job)
		return &output[*sheaf.Job]{job}, err
	})
	type cancelIn struct {
		JobPath
		DryRunParam
	}
	handle(s, post("/v1/jobs/{job}:cancel", "Stop a job"), func(ctx context.Context, in *cancelIn) (*output[CancelAnswer], error) {
		if in.DryRun {
			f, err := s.cfg.Ingest.DryRunCancelJob(ctx, tenantOf(ctx), in.Job)
			return &output[CancelAnswer]{CancelAnswer{Forecast: f}}, err
		}
		r, err := s.cfg.Ingest.CancelJob(ctx, tenantOf(ctx), in.Job)
		return &output[CancelAnswer]{CancelAnswer{CancelReceipt: r}}, err
	})
	for verb, paused := range map[string]bool{"pause": true, "resume": false} {
		handle(s, post("/v1/jobs/{job}:"+verb, holds(verb)+" a job's queued work"), func(ctx context.Context, in *JobPath) (*output[Paused], error) {
			n, err := s.cfg.Ingest.Pause(ctx, tenantOf(ctx), taskstore.PauseScope{JobID: in.Job}, paused)
			return &output[Paused]{Paused{paused, n}}, err
		})
	}
	type retryIn struct {
		JobPath
		TraceHeader
		DryRunParam
		NotBeforeParam
		Body struct {
			DryRun bool   `json:"dry_run,omitempty" doc:"return the plan and change nothing"`
			Scope  string `json:"scope,omitempty" enum:"failed,all,stage:parse,stage:chunk,stage:embed,stage:index" default:"failed" doc:"failed: only units that could not be read. A stage is repeated with those after it: stage:embed makes new vectors of the stored chunks, stage:index writes them to the index again"`
		}
	}
	retry := post("/v1/jobs/{job}:retry", "Retry what failed in a job")
	retry.DefaultStatus = http.StatusAccepted
	handle(s, retry, func(ctx context.Context, in *retryIn) (*accepted[BatchAnswer], error) {
		scope := ingest.RetryScope(in.Body.Scope)
		if in.DryRun || in.Body.DryRun {
			return previewed(s.cfg.Ingest.DryRunRetryJob(ctx, tenantOf(ctx), in.Job, scope))
		}
		from, err := s.originAt(ctx, in.Traceparent, in.NotBefore)
		if err != nil {
			return nil, err
		}
		return again(s.cfg.Ingest.Retry(ctx, tenantOf(ctx), in.Job, scope, from))
	})
}

// maxIdle bounds how long an open job waits for more: its stored uploads are kept
// for a day.
const maxIdle = 24 * time.Hour

// maxWait bounds a long poll.
const maxWait = time.Minute

// waitForJob waits up to wait for a job to end and reports whether it has.
func (s *Server) waitForJob(ctx context.Context, id, wait string) (ended bool, _ error) {
	var d time.Duration
	var err error
	if wait != "" {
		if d, err = time.ParseDuration(wait); err != nil || d < 0 {
			return false, newProblem(400, "", "wait must be a duration such as 30s")
		}
	}
	if d = min(d, maxWait); d == 0 {
		return false, nil
	}
	begun := time.Now()
	var sub *watch.Subscription
	defer func() {
		if sub != nil {
			sub.Close()
		}
	}()
	for {
		// Summing a job over all its tasks is measurable work, so it is done only
		// once, for the response.
		ended, err = s.cfg.Catalog.JobEnded(ctx, tenantOf(ctx), id)
		waited := time.Since(begun)
		if err != nil || ended || waited >= d {
			return ended, err
		}
		pause := min(max(waited/8, 20*time.Millisecond), time.Second)
		var news <-chan struct{} // nil: it is looked at again without any
		if waited >= waitsLong {
			if sub == nil {
				if sub, _, err = s.hub.Subscribe(ctx, tenantOf(ctx), taskstore.EventFilter{JobID: id}); err != nil {
					return false, err
				}
				continue // what happened before is not news
			}
			if _, lost := sub.Take(); lost {
				sub.Close()
				sub = nil
				continue
			}
			// As other watchers do, it leaves more time the more there are.
			news, pause = sub.Ready, max(pause, s.hub.Pace())
		}
		on, err := s.sleep(ctx, min(pause, d-waited), nil)
		if on && news != nil {
			on, err = s.sleep(ctx, min(lookAnyway, d-time.Since(begun)), news)
		}
		if !on {
			return false, err
		}
	}
}

// A request that waits for a job looks at it in short intervals at first: most jobs
// that anyone waits for end soon. Later it looks when there is news of the job, and
// at times without, should its end be none.
const (
	waitsLong  = time.Second
	lookAnyway = 5 * time.Second
)

// sleep waits for d, or for news. It returns false when the request or the server
// ends, with an error for the first.
func (s *Server) sleep(ctx context.Context, d time.Duration, news <-chan struct{}) (on bool, _ error) {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-news:
	case <-s.cfg.Stopping:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return true, nil
}

func (s *Server) searchRoutes() {
	type in struct {
		DatasetPath
		Body search.Request
	}
	handle(s, needs(post("/v1/datasets/{ds}/search", "Search a dataset"), scopeRead), func(ctx context.Context, in *in) (*output[*search.Response], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		if in.Body.Datasets != nil {
			return nil, newProblem(400, "", "datasets does nothing here, where the address names one; leave it out, or search at /v1/search")
		}
		in.Body.Datasets = []string{ds.ID}
		in.Body.TagsOf(ds.ParseConfig)
		out, err := s.cfg.Search.Search(ctx, ds.TenantID, in.Body)
		return &output[*search.Response]{out}, err
	})
	type all struct{ Body search.Request }
	handle(s, needs(post("/v1/search", "Search several datasets, or all"), scopeRead), func(ctx context.Context, in *all) (*output[*search.Response], error) {
		if in.Body.Graph != "" {
			return nil, newProblem(400, "", "graph searches one dataset; search at /v1/datasets/{ds}/search, or leave graph out")
		}
		for i, name := range in.Body.Datasets {
			ds, err := s.dataset(ctx, DatasetPath{name})
			if err != nil {
				return nil, err
			}
			in.Body.Datasets[i] = ds.ID
			in.Body.TagsOf(ds.ParseConfig)
		}
		if in.Body.Datasets == nil && in.Body.Mode != search.Text {
			if err := s.tagsOfAll(ctx, &in.Body); err != nil {
				return nil, err
			}
		}
		out, err := s.cfg.Search.Search(ctx, tenantOf(ctx), in.Body)
		return &output[*search.Response]{out}, err
	})
}

// tagsOfAll tags a query over all datasets the way their chunks are tagged, with up
// to search.MaxTagSets tag sets, oldest datasets first.
func (s *Server) tagsOfAll(ctx context.Context, r *search.Request) error {
	all, err := s.cfg.Catalog.TaggedDatasets(ctx, tenantOf(ctx), 10*search.MaxTagSets)
	if err != nil {
		return err
	}
	for _, ds := range all {
		if n := len(ds.ParseConfig.TagKBIDs.V); n > 0 && len(r.TagSets)+n <= search.MaxTagSets {
			r.TagsOf(ds.ParseConfig)
		}
	}
	return nil
}

// maxQueues bounds the queues in one response.
const maxQueues = 1000

func (s *Server) queueRoutes() {
	handle(s, get("/v1/queues", "Read the tenant's queue"), func(ctx context.Context, _ *struct{}) (*output[List[taskstore.TenantQueue]], error) {
		if !s.cfg.Auth { // the embedded default shows its one user everything
			qs, _, err := s.cfg.Catalog.Queues(ctx, taskstore.Page{Limit: maxQueues})
			return listOf(qs, ""), err
		}
		q, err := s.cfg.Catalog.Queue(ctx, tenantOf(ctx))
		if err != nil {
			return nil, err
		}
		return listOf([]taskstore.TenantQueue{*q}, ""), nil
	})
	for verb, paused := range map[string]bool{"pause": true, "resume": false} {
		handle(s, post("/v1/queues:"+verb, holds(verb)+" the tenant's queued work"), func(ctx context.Context, _ *struct{}) (*output[Paused], error) {
			n, err := s.cfg.Ingest.Pause(ctx, tenantOf(ctx), taskstore.PauseScope{Tenant: true}, paused)
			return &output[Paused]{Paused{paused, n}}, err
		})
	}
	handle(s, get("/v1/executors", "List live executors"), func(ctx context.Context, _ *struct{}) (*output[List[taskstore.WorkerStatus]], error) {
		ws, err := s.cfg.Catalog.Workers(ctx)
		if s.cfg.Auth {
			// Do not expose task ids of other tenants.
			for i := range ws {
				ws[i].Running = nil
			}
		}
		return listOf(ws, ""), err
	})
	s.deadLetterRoutes()
	s.tenantRoutes()
	if s.cfg.Doctor != nil {
		type doctorIn struct {
			DryRunParam
			Body struct {
				Repair bool `json:"repair,omitempty" doc:"repair what can be"`
			}
		}
		handle(s, needs(post("/v1/doctor", "Compare database, index and blob store"), scopeAdmin), func(ctx context.Context, in *doctorIn) (*output[DoctorReport], error) {
			r, err := s.cfg.Doctor(ctx, in.Body.Repair && !in.DryRun)
			if err != nil {
				return nil, err
			}
			out := DoctorReport{Report: *r, Parsers: []child.Protection{}}
			if s.cfg.Confinement != nil {
				if out.Parsers, err = s.cfg.Confinement(ctx); err != nil {
					// Parsers that fail to start are one more finding.
					out.Parsers = []child.Protection{{Name: "parsers", Detail: sheaf.AsFailure(err, "").Message}}
				}
			}
			return &output[DoctorReport]{out}, nil
		})
	}
	type taskIn struct {
		Task string `path:"task" maxLength:"64"`
	}
	handle(s, get("/v1/tasks/{task}", "Read a task with its history"), func(ctx context.Context, in *taskIn) (*output[TaskHistory], error) {
		return s.taskHistory(ctx, tenantOf(ctx), in.Task)
	})
	cancel := post("/v1/tasks/{task}:cancel", "Stop one task")
	cancel.Description = "A canceled range leaves its units unread, with the code canceled, and its document ends partially succeeded; without its plan or finalize task a document ends canceled. For a task that has ended the answer is 409. POST /v1/dead-letters:retry with its id restores it."
	handle(s, cancel, func(ctx context.Context, in *struct {
		Task string `path:"task" maxLength:"64"`
		DryRunParam
	}) (*output[CanceledTask], error) {
		r, err := s.cfg.Ingest.CancelTask(ctx, tenantOf(ctx), in.Task, in.DryRun)
		return &output[CanceledTask]{CanceledTask{Queued: r.Queued, Running: r.Running, DryRun: in.DryRun}}, err
	})
}

// CanceledTask reports what canceling a task did.
type CanceledTask struct {
	Queued  int  `json:"queued" doc:"1 if the task was waiting and is canceled"`
	Running int  `json:"running" doc:"1 if the task was running and was asked to stop"`
	DryRun  bool `json:"dry_run,omitempty" doc:"nothing was changed: this would be done"`
}

func (s *Server) taskHistory(ctx context.Context, tenantID, id string) (*output[TaskHistory], error) {
	t, err := s.cfg.Catalog.Task(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	evs, err := s.cfg.Catalog.TaskEvents(ctx, tenantID, id)
	if evs == nil {
		evs = []sheaf.Event{}
	}
	return &output[TaskHistory]{TaskHistory{Task: taskOf(t), Tries: triesOf(evs), Events: evs}}, err
}

// TaskHistory is a task and everything that happened to it.
type TaskHistory struct {
	Task
	Tries  []Try         `json:"tries" nullable:"false" doc:"attempts, oldest first"`
	Events []sheaf.Event `json:"events" nullable:"false"`
}

// Count is the number of rows an action changed.
type Count struct {
	Count  int  `json:"count"`
	DryRun bool `json:"dry_run,omitempty" doc:"nothing was changed, only counted"`
}

// EventsInput pages through the log.
type EventsInput struct {
	After int64 `query:"after" minimum:"0" doc:"sequence number of the last event seen"`
	Limit int   `query:"limit" minimum:"1" maximum:"3000" default:"200"`
}

// Events is a slice of the log.
type Events struct {
	Items []sheaf.Event `json:"items" nullable:"false"`
	Last  int64         `json:"last" doc:"pass it as after next"`
}

func (s *Server) events(ctx context.Context, f taskstore.EventFilter, in EventsInput) (*output[Events], error) {
	evs, err := s.cfg.Catalog.Events(ctx, tenantOf(ctx), f, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := Events{Items: evs, Last: in.After}
	if evs == nil {
		out.Items = []sheaf.Event{}
	}
	if n := len(evs); n > 0 {
		out.Last = evs[n-1].Seq
	}
	return &output[Events]{out}, nil
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s) // 0 for anything else
	return n
}
