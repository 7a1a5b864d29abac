// Package ingest decides what becomes of an upload: where its bytes go, which
// tasks read them, what of an earlier result is used again, and how re-parse,
// retry, cancel and delete change that. It stands between the API and the
// store; executors run what it plans.
package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/flow"
	"sheaf/internal/queue"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/taskstore"
)

// DryRunner plans a document without storing anything: what the plan found and
// the tasks it would spawn.
type DryRunner interface {
	DryRun(ctx context.Context, doc *sheaf.Document, ask taskstore.PlanPayload) (taskstore.Completion, error)
}

// Service is the entry to the pipeline. It is safe for concurrent use.
type Service struct {
	Catalog Catalog
	Blobs   blob.Store
	Queue   queue.Notifier
	Formats *parser.Registry
	Planner DryRunner // nil refuses dry runs
	Log     *slog.Logger
	// Changed is called after something was submitted, canceled or deleted, so
	// that the keeper need not wait for its tick. May be nil, and must not block.
	Changed        func()
	MaxUploadBytes int64         // of one file; 0 means 5 GiB
	Chat           bool          // a chat model is configured
	ChatPrice      float64       // of a million of its tokens, 0 where nobody says
	Window         int           // tokens that the embedder reads together; 0 refuses late chunking
	Settled        time.Duration // after the last change of a dataset until a run begins by itself; 0 for a minute
	// UploadLife is how long an upload in pieces is stored after its last byte;
	// 0 means a day.
	UploadLife time.Duration
	Price      Price // what work is charged, for dry runs

	warned  seldom // of datasets whose runs cannot start
	growing growing
}

// maxDefaultUpload is the bound on one file where none is configured.
const maxDefaultUpload = 5 << 30

// submitTime is how long the store may take to make documents of staged files.
const submitTime = 2 * time.Minute

// bulkTime bounds a change of many documents.
const bulkTime = 30 * time.Minute

// Lasting returns the context of a change of many documents. It goes on when its
// caller leaves, or a proxy does not wait any longer: otherwise a part of it would be
// done, and nobody be told which. It ends with ctx for any other cause, such as the
// server's stop.
func Lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	timed, end := context.WithTimeout(context.WithoutCancel(ctx), bulkTime)
	lasting, cancel := context.WithCancelCause(timed)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			cancel(cause)
		}
	})
	return lasting, func() {
		stop()
		cancel(nil)
		end()
	}
}

// Origin says which request asked for something.
type Origin struct {
	Trace string // W3C traceparent for the tasks, "" for none
	// Key, of an idempotent request, makes the ids of what it creates: when it
	// is repeated after nobody knows what, it finds or finishes what its first
	// try began. "" mints new ids.
	Key   string
	Since time.Time // of the first try
	// NotBefore is when what it asks for may begin; zero means at once.
	NotBefore time.Time
	// Requester is the name of the key that asks, "" without keys.
	Requester string
	// Job is the open job that the documents join, "" for a job of their own.
	Job string
}

// maxLater is how far ahead work can be asked for.
const maxLater = 366 * 24 * time.Hour

// CheckNotBefore refuses as ErrInvalid a time that is too far ahead, and answers
// zero, for at once, for one that is past.
func CheckNotBefore(at, now time.Time) (time.Time, error) {
	switch {
	case at.IsZero() || !at.After(now):
		return time.Time{}, nil
	case at.After(now.Add(maxLater)):
		return at, fmt.Errorf("%w: not_before is %s, which is more than a year ahead; give an earlier time, or upload later", sheaf.ErrInvalid, at.UTC().Format(time.RFC3339))
	}
	return at, nil
}

// ID names the n-th thing of a kind that the request creates.
func (o Origin) ID(tenantID, kind string, n int) string {
	if o.Key == "" {
		return sheaf.NewID()
	}
	return sheaf.DerivedID(o.Since, n, tenantID, o.Key, kind, strconv.Itoa(n))
}

// Upload is one file on its way in.
type Upload struct {
	Origin    Origin
	N         int    // of the file within its request
	ID        string // of the document; "" mints one
	Name      string
	MediaType string // "" sniffs
	Body      io.Reader
	Size      int64 // -1 when unknown
	Config    sheaf.ParseConfig
	Metadata  map[string]string
	// Attributes are stored with a document that is new; one that is there keeps its own.
	Attributes sheaf.Attributes
	Lane       sheaf.Lane // 0 means normal
	// From is the document whose bytes these are, in place of Body: the blob store
	// copies them. nil for none.
	From *sheaf.Document
	// Hold is set for what Hold takes. A program that its format needs may be
	// missing: nothing reads the file yet, and maybe nothing ever will.
	Hold bool
}

// Staged is a file whose bytes are stored and which is not yet a document.
type Staged struct{ Document sheaf.Document }

// Stage streams a file's bytes to the blob store while hashing them, and
// sniffs what they are. The file is not opened beyond that: a hostile one
// cannot hurt the API. When the upload breaks off nothing is left.
func (s *Service) Stage(ctx context.Context, dataset *sheaf.Dataset, u Upload) (*Staged, error) {
	if err := s.check(u); err != nil {
		return nil, err
	}
	doc := newDocument(dataset, u)
	doc.BlobKey = sheaf.OriginalPrefix(doc.TenantID, doc.ID) + sheaf.NewID()
	limit := s.uploadLimit()
	body := &limitReader{r: u.Body, left: limit}
	var stored blob.Info
	var err error
	if from := u.From; from != nil {
		stored = blob.Info{Key: doc.BlobKey, Size: from.Size, SHA256: from.SHA256}
		err = s.Blobs.Compose(ctx, doc.BlobKey, []string{from.BlobKey})
	} else {
		stored, err = s.Blobs.Put(ctx, doc.BlobKey, body, u.Size)
	}
	if body.over {
		err = tooLarge(limit)
	}
	if err != nil {
		return nil, err // neither leaves anything behind
	}
	staged := &Staged{Document: doc}
	if err := s.describe(ctx, staged, u, stored, body.head); err != nil {
		s.Discard(ctx, staged)
		return nil, err
	}
	return staged, nil
}

func (s *Service) uploadLimit() int64 { return cmp.Or(s.MaxUploadBytes, maxDefaultUpload) }

// check refuses what could not become a document whatever its bytes are.
func (s *Service) check(u Upload) error {
	if err := cmp.Or(s.CheckConfig(u.Config, ""), checkDocument(u.Config)); err != nil {
		return err
	}
	if u.ID != "" && !sheaf.ValidID(u.ID) {
		return fmt.Errorf("%w: document id %q: an id is 32 lower-case hex characters", sheaf.ErrInvalid, u.ID)
	}
	if u.Lane != 0 && (u.Lane < sheaf.LaneInteractive || u.Lane > sheaf.LaneBackfill) {
		return fmt.Errorf("%w: lane %d: lanes are 1 (interactive), 2 (normal) and 3 (backfill)", sheaf.ErrInvalid, u.Lane)
	}
	if limit := s.uploadLimit(); u.Size > limit {
		return tooLarge(limit)
	}
	_, err := u.Attributes.Encode("a document", sheaf.MaxDocumentAttributes)
	return err
}

func newDocument(dataset *sheaf.Dataset, u Upload) sheaf.Document {
	doc := sheaf.Document{
		ID: cmp.Or(u.ID, u.Origin.ID(dataset.TenantID, "document", u.N)), TenantID: dataset.TenantID, DatasetID: dataset.ID,
		Name: CleanName(u.Name), Metadata: u.Metadata, Attributes: sheaf.Attributes(nil).Change(u.Attributes), Lane: cmp.Or(u.Lane, sheaf.LaneNormal),
		ParseConfig: settings.OfDocument(settings.Merge(u.Config, dataset.ParseConfig)),
	}
	if doc.Metadata == nil {
		doc.Metadata = map[string]string{}
	}
	return doc
}

// describe fills in what is known of the bytes once they are stored; head is
// their begin, as far as it was stored.
func (s *Service) describe(ctx context.Context, st *Staged, u Upload, stored blob.Info, head []byte) error {
	d := &st.Document
	d.Size, d.SHA256 = stored.Size, stored.SHA256
	if d.Size == 0 {
		return emptyFile(d.Name)
	}
	d.MediaType = d.ParseConfig.MediaType.V
	if d.MediaType == "" {
		src := &blobReader{ctx: ctx, store: s.Blobs, key: d.BlobKey, size: d.Size, head: head}
		d.MediaType = s.Formats.Sniff(src, d.Size, d.Name)
		if src.err != nil {
			return fmt.Errorf("reading back %s: %w", d.Name, src.err)
		}
	}
	if _, ok := s.Formats.ByMediaType(d.MediaType); !ok && u.MediaType != "" {
		// The bytes say nothing useful; what the sender said may.
		if _, ok := s.Formats.ByMediaType(u.MediaType); ok && d.MediaType == parser.MediaBinary {
			d.MediaType = u.MediaType
		}
	}
	format, ok := s.Formats.ByMediaType(d.MediaType)
	if !ok {
		return parser.Unsupported(d.Name, d.MediaType)
	}
	if err := s.CheckConfig(d.ParseConfig, d.MediaType); err != nil {
		return err
	}
	if err := s.CheckNamed(ctx, d.TenantID, d.ParseConfig); err != nil {
		return err
	}
	if u.Hold {
		return nil
	}
	// Said now, to the uploader, and not by a task some minutes later.
	return parser.Available(format)
}

// Discard removes the bytes of a staged file that will not become a document.
func (s *Service) Discard(ctx context.Context, staged ...*Staged) {
	for _, st := range staged {
		// The caller may be gone; the bytes must go all the same.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		if err := s.Blobs.Delete(clean, st.Document.BlobKey); err != nil {
			s.Log.WarnContext(ctx, "could not delete the bytes of a failed upload; sheaf doctor finds them", "key", st.Document.BlobKey, "error", err)
		}
		cancel()
	}
}

// Submission is what a submit answers.
type Submission struct {
	Job       *sheaf.Job       `json:"job"`
	Documents []sheaf.Document `json:"documents"`
}

// Submit makes documents of staged files: rows, a job, and a plan task each,
// in one transaction. A document whose id exists gets the new bytes as a new
// generation; identical bytes under another id are marked as a duplicate.
func (s *Service) Submit(ctx context.Context, dataset *sheaf.Dataset, staged []*Staged, from Origin) (*Submission, error) {
	return s.submit(ctx, dataset, cmp.Or(from.Job, from.ID(dataset.TenantID, "job", 0)), staged, from)
}

// submit is Submit under a job id that may have been tried before.
func (s *Service) submit(ctx context.Context, dataset *sheaf.Dataset, jobID string, staged []*Staged, from Origin) (*Submission, error) {
	job := sheaf.Job{ID: jobID, TenantID: dataset.TenantID, DatasetID: dataset.ID, Kind: sheaf.JobIngest, Paused: dataset.Paused, Requester: from.Requester, NotBefore: from.NotBefore}
	job.Statistics.Scanned = len(staged)
	docs := make([]taskstore.NewDocument, len(staged))
	sums := make([]string, len(staged))
	for i, st := range staged {
		sums[i] = st.Document.SHA256
	}
	twins, err := s.Catalog.Twins(ctx, dataset.TenantID, dataset.ID, sums)
	if err != nil {
		s.Discard(ctx, staged...)
		return nil, fmt.Errorf("looking for duplicates: %w", err)
	}
	seen := map[string]string{}
	for i, st := range staged {
		d := st.Document
		d.JobID = job.ID
		for _, twin := range [...]string{twins[d.SHA256][1], twins[d.SHA256][0], seen[d.SHA256]} { // the first of the request wins, then the oldest
			if twin != "" && twin != d.ID {
				d.DuplicateOf = twin
			}
		}
		seen[d.SHA256] = cmp.Or(seen[d.SHA256], d.ID)
		job.Files = append(job.Files, d.Name)
		docs[i] = taskstore.NewDocument{Document: d, Plan: taskstore.PlanTask(taskstore.PlanPayload{})}
	}
	// With the bytes there, the client may hang up: a commit that is cut off
	// would leave it open whether they are in use.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTime)
	defer cancel()
	create := s.Catalog.CreateDocuments
	if from.Job != "" {
		create = s.Catalog.AddDocuments
	}
	replaced, err := create(ctx, job, docs, from.Trace)
	if err != nil {
		if !errors.Is(err, sheaf.ErrUnavailable) && ctx.Err() == nil { // after an ambiguous commit the bytes may be in use
			s.Discard(ctx, staged...)
		}
		return nil, err
	}
	s.Log.InfoContext(ctx, "submitted", "job", job.ID, "tenant", job.TenantID, "documents", len(docs), "replaced", len(replaced))
	s.Wake(ctx)
	return s.submission(ctx, job, from.Job != "", staged)
}

// Hold makes documents of staged files that nothing is done with before they are
// re-parsed: they are unstarted, and belong to no job.
func (s *Service) Hold(ctx context.Context, dataset *sheaf.Dataset, staged []*Staged) ([]sheaf.Document, error) {
	docs := make([]sheaf.Document, len(staged))
	for i, st := range staged {
		docs[i] = st.Document
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTime) // as in submit
	defer cancel()
	if err := s.Catalog.HoldDocuments(ctx, dataset.TenantID, dataset.ID, docs); err != nil {
		if !errors.Is(err, sheaf.ErrUnavailable) && ctx.Err() == nil {
			s.Discard(ctx, staged...)
		}
		return nil, err
	}
	s.Log.InfoContext(ctx, "held", "tenant", dataset.TenantID, "dataset", dataset.ID, "documents", len(docs))
	return s.made(ctx, dataset.TenantID, staged)
}

// defaultIdle is how long an open job waits for more files.
const defaultIdle = 10 * time.Minute

// OpenJob makes a job that several requests add files to, by Origin.Job, until
// it is closed or nothing was added for idle, 0 for ten minutes. It is called
// name, or by its first files.
func (s *Service) OpenJob(ctx context.Context, dataset *sheaf.Dataset, name string, idle time.Duration, from Origin) (*sheaf.Job, error) {
	job := sheaf.Job{ID: from.ID(dataset.TenantID, "job", 0), TenantID: dataset.TenantID, DatasetID: dataset.ID, Kind: sheaf.JobIngest, Paused: dataset.Paused, Name: name, Requester: from.Requester}
	if err := s.Catalog.OpenJob(ctx, job, cmp.Or(idle, defaultIdle)); err != nil {
		return nil, err
	}
	return s.Job(ctx, job.TenantID, job.ID)
}

// CloseJob lets an open job end when its documents have.
func (s *Service) CloseJob(ctx context.Context, tenantID, jobID string) (*sheaf.Job, error) {
	if err := s.Catalog.CloseJob(ctx, tenantID, jobID); err != nil {
		return nil, err
	}
	if s.Changed != nil {
		s.Changed()
	}
	return s.Job(ctx, tenantID, jobID)
}

// submission reads what was made of staged files: a job, or more documents of one
// that grows. Bytes that another try of the same request has stored already are not
// stored twice.
func (s *Service) submission(ctx context.Context, job sheaf.Job, grows bool, staged []*Staged) (*Submission, error) {
	out := &Submission{}
	read := s.Job
	if grows {
		read = s.grownJob
	}
	var err error
	if out.Job, err = read(ctx, job.TenantID, job.ID); err != nil {
		return nil, err
	}
	out.Documents, err = s.made(ctx, job.TenantID, staged)
	return out, err
}

// made reads the documents that were made of staged files, in their order.
func (s *Service) made(ctx context.Context, tenantID string, staged []*Staged) (out []sheaf.Document, err error) {
	ids := make([]string, len(staged))
	for i, st := range staged {
		ids[i] = st.Document.ID
	}
	made, err := s.documents(ctx, tenantID, ids)
	if err != nil {
		return nil, err
	}
	for _, st := range staged {
		d, ok := made[st.Document.ID]
		if !ok || d.BlobKey != st.Document.BlobKey {
			s.Discard(ctx, st)
		}
		if !ok {
			return nil, fmt.Errorf("%w: document %s", sheaf.ErrNotFound, st.Document.ID)
		}
		out = append(out, d)
	}
	return out, nil
}

// documents reads those of ids that exist.
func (s *Service) documents(ctx context.Context, tenantID string, ids []string) (map[string]sheaf.Document, error) {
	found := make(map[string]sheaf.Document, len(ids))
	for some := range slices.Chunk(ids, 500) {
		docs, _, err := s.Catalog.Documents(ctx, tenantID, taskstore.DocumentFilter{IDs: some}, taskstore.Page{Limit: len(some), Ascending: true})
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			found[d.ID] = d
		}
	}
	return found, nil
}

// ReparseRequest selects documents and says how to parse them again.
type ReparseRequest struct {
	Filter taskstore.DocumentFilter
	Config sheaf.ParseConfig // what it sets wins over the document's; null stands for what the dataset says now
	From   Origin
	Fresh  bool // use no stored result
}

// maxSelected bounds the documents that are held in memory at once, for what
// looks at all of them together.
const maxSelected = 100_000

// rerunSlice is how many documents are read and begun at a time; a request may
// be for any number of them. Smaller in a test.
var rerunSlice = 10_000

// Rerun is what became of documents that were selected to be run again.
type Rerun struct {
	Job       *sheaf.Job // nil when there was nothing to run
	Documents int        // that are run again
	Skipped   int        // left as they are because of their state
}

// Reparse starts a new generation of every document that the filter selects.
// What search sees changes only when a new generation has succeeded.
func (s *Service) Reparse(ctx context.Context, dataset *sheaf.Dataset, r ReparseRequest) (Rerun, error) {
	if err := checkDocument(r.Config); err != nil {
		return Rerun{}, err
	}
	job := sheaf.Job{ID: r.From.ID(dataset.TenantID, "job", 0), TenantID: dataset.TenantID, DatasetID: dataset.ID, Kind: sheaf.JobReparse, Paused: dataset.Paused, Requester: r.From.Requester}
	return s.again(ctx, job, s.selected(dataset, r.Filter), r.From, r.decision(dataset))
}

func (r ReparseRequest) decision(dataset *sheaf.Dataset) decision {
	return func(d *sheaf.Document) (sheaf.ParseConfig, taskstore.PlanPayload, bool) {
		return settings.OfDocument(settings.Patch(r.Config, d.ParseConfig, dataset.ParseConfig)), taskstore.PlanPayload{Fresh: r.Fresh}, true
	}
}

// findType looks at the bytes of a document whose type was overridden, and is
// no longer. "" where its type is known.
func (s *Service) findType(ctx context.Context, d *sheaf.Document, config sheaf.ParseConfig) (string, error) {
	if config.MediaType.V != "" || d.ParseConfig.MediaType.V == "" || d.MediaType != d.ParseConfig.MediaType.V {
		return "", nil
	}
	src := &blobReader{ctx: ctx, store: s.Blobs, key: d.BlobKey, size: d.Size}
	mediaType := s.Formats.Sniff(src, d.Size, d.Name)
	if src.err != nil {
		return "", fmt.Errorf("reading back %s: %w", d.Name, src.err)
	}
	if _, ok := s.Formats.ByMediaType(mediaType); !ok {
		return "", parser.Unsupported(d.Name, mediaType)
	}
	return mediaType, nil
}

// RetryScope says what of a job is run again.
type RetryScope string

const (
	RetryFailed RetryScope = "failed" // the units that could not be read
	RetryAll    RetryScope = "all"
	// A stage and what follows it, for all documents, and what failed before.
	RetryParse RetryScope = "stage:parse" // the same as all
	RetryChunk RetryScope = "stage:chunk" // the same: what pages hold is not stored
	RetryEmbed RetryScope = "stage:embed" // the stored chunks get new vectors
	RetryIndex RetryScope = "stage:index" // the stored chunks and vectors are written again
)

// RetryScopes lists what may be asked for.
var RetryScopes = []RetryScope{RetryFailed, RetryAll, RetryParse, RetryChunk, RetryEmbed, RetryIndex}

// Retry runs again what failed in the documents of a job. With scope failed a
// document that has readable units keeps them and only the others are read.
func (s *Service) Retry(ctx context.Context, tenantID, jobID string, scope RetryScope, from Origin) (Rerun, error) {
	old, err := s.Catalog.Job(ctx, tenantID, jobID)
	if err != nil {
		return Rerun{}, err
	}
	return s.retry(ctx, tenantID, old.DatasetID, s.ofJob(tenantID, jobID), scope, from)
}

// documentPages passes documents on, page by page; it may be called again.
type documentPages func(ctx context.Context, each func([]sheaf.Document) error) error

// ofJob reads the documents of a job.
func (s *Service) ofJob(tenantID, jobID string) documentPages {
	return pagesBy(func(ctx context.Context, p taskstore.Page) ([]sheaf.Document, string, error) {
		return s.Catalog.JobDocuments(ctx, tenantID, jobID, p)
	})
}

// selected reads the documents of a dataset that a filter selects.
func (s *Service) selected(dataset *sheaf.Dataset, f taskstore.DocumentFilter) documentPages {
	f.DatasetID = dataset.ID
	return pagesBy(func(ctx context.Context, p taskstore.Page) ([]sheaf.Document, string, error) {
		return s.Catalog.Documents(ctx, dataset.TenantID, f, p)
	})
}

func pagesBy(read func(context.Context, taskstore.Page) ([]sheaf.Document, string, error)) documentPages {
	return func(ctx context.Context, each func([]sheaf.Document) error) error {
		page := taskstore.Page{Limit: min(1000, rerunSlice), Ascending: true}
		for {
			docs, next, err := read(ctx, page)
			if err != nil {
				return err
			}
			if err := each(docs); err != nil || next == "" {
				return err
			}
			page.Cursor = next
		}
	}
}

// gather reads all pages, ErrInvalid when they hold more than maxSelected.
func gather(ctx context.Context, pages documentPages) (docs []sheaf.Document, err error) {
	err = pages(ctx, func(some []sheaf.Document) error {
		if docs = append(docs, some...); len(docs) > maxSelected {
			return tooMany(maxSelected)
		}
		return nil
	})
	return docs, err
}

func tooMany(most int) error {
	return fmt.Errorf("%w: more than %d documents are selected; narrow the selection", sheaf.ErrInvalid, most)
}

// these are documents that were read already.
func these(docs []sheaf.Document) documentPages {
	return func(_ context.Context, each func([]sheaf.Document) error) error { return each(docs) }
}

// RetryDocuments is Retry for chosen documents of a dataset.
func (s *Service) RetryDocuments(ctx context.Context, dataset *sheaf.Dataset, f taskstore.DocumentFilter, scope RetryScope, from Origin) (Rerun, error) {
	return s.retry(ctx, dataset.TenantID, dataset.ID, s.selected(dataset, f), scope, from)
}

func (s *Service) retry(ctx context.Context, tenantID, datasetID string, docs documentPages, scope RetryScope, from Origin) (Rerun, error) {
	decide, err := retryOf(scope)
	if err != nil {
		return Rerun{}, err
	}
	job := sheaf.Job{ID: from.ID(tenantID, "job", 0), TenantID: tenantID, DatasetID: datasetID, Kind: sheaf.JobRetry, Requester: from.Requester}
	return s.again(ctx, job, docs, from, decide)
}

// decision says how a document is planned again, and whether it is at all.
type decision func(*sheaf.Document) (sheaf.ParseConfig, taskstore.PlanPayload, bool)

// retryOf decides by a document's state what a retry of that scope does with it.
func retryOf(scope RetryScope) (decision, error) {
	if !slices.Contains(RetryScopes, scope) {
		return nil, fmt.Errorf("%w: scope %q: choose among %q", sheaf.ErrInvalid, scope, RetryScopes)
	}
	return func(d *sheaf.Document) (sheaf.ParseConfig, taskstore.PlanPayload, bool) {
		stage := ""
		switch scope {
		case RetryAll, RetryParse, RetryChunk:
			return d.ParseConfig, taskstore.PlanPayload{Fresh: true}, d.State.Terminal()
		case RetryEmbed, RetryIndex:
			stage = strings.TrimPrefix(string(scope), "stage:")
		}
		switch d.State {
		case sheaf.DocSucceeded:
			return d.ParseConfig, taskstore.PlanPayload{Stage: stage, Base: d.Generation}, stage != ""
		case sheaf.DocPartiallySucceeded, sheaf.DocFailed:
			return d.ParseConfig, taskstore.PlanPayload{Scope: "failed", Stage: stage, Base: d.Generation}, true
		case sheaf.DocCanceled:
			// What a canceled run had finished is being collected: plan anew.
			return d.ParseConfig, taskstore.PlanPayload{}, true
		}
		return d.ParseConfig, taskstore.PlanPayload{}, false
	}, nil
}

// again starts a new generation of the documents that decide accepts, if any.
// They are all looked at before the first is begun, and read a second time
// where they are too many to be held.
func (s *Service) again(ctx context.Context, job sheaf.Job, docs documentPages, from Origin, decide decision) (Rerun, error) {
	var held []taskstore.ReparseDocument
	job.NotBefore = from.NotBefore
	accepted := 0
	err := docs(ctx, func(some []sheaf.Document) error {
		planned, names, err := s.plannedAgain(ctx, job.TenantID, some, decide)
		if err != nil {
			return err
		}
		job.Statistics.Scanned += len(some)
		if len(job.Files) == 0 {
			job.Files = names
		}
		if accepted += len(planned); accepted <= rerunSlice {
			held = append(held, planned...)
		} else {
			held = nil
		}
		return nil
	})
	if err != nil {
		return Rerun{}, err
	}
	job.Statistics.Skipped = job.Statistics.Scanned - accepted
	if accepted == 0 && from.Key != "" {
		// An earlier try may have begun them all: they are not what the filter
		// selects any more.
		if begun, err := s.Job(ctx, job.TenantID, job.ID); !errors.Is(err, sheaf.ErrNotFound) {
			return rerun(begun), err
		}
	}
	ctx, cancel := Lasting(ctx)
	defer cancel()
	switch {
	case accepted == 0:
		return Rerun{Skipped: job.Statistics.Scanned}, nil
	case held != nil:
		err = s.Catalog.Reparse(ctx, job, held, from.Trace)
	default:
		begun := 0
		err = docs(ctx, func(some []sheaf.Document) error {
			planned, _, err := s.plannedAgain(ctx, job.TenantID, some, decide)
			if err == nil && len(planned) > 0 {
				err = s.Catalog.Reparse(ctx, job, planned, from.Trace)
			}
			if errors.Is(err, sheaf.ErrNotFound) { // all of these were deleted meanwhile
				err = nil
			}
			if err != nil {
				return fmt.Errorf("of %d documents %d are begun by job %s; ask again for the others: %w", accepted, begun, job.ID, err)
			}
			begun += len(planned)
			return nil
		})
	}
	if err != nil {
		return Rerun{}, err
	}
	s.Log.InfoContext(ctx, "submitted", "job", job.ID, "tenant", job.TenantID, "kind", job.Kind, "documents", accepted)
	s.Wake(ctx)
	begun, err := s.Job(ctx, job.TenantID, job.ID)
	return rerun(begun), err
}

// plannedAgain plans those of the documents that decide accepts, and names them.
func (s *Service) plannedAgain(ctx context.Context, tenantID string, docs []sheaf.Document, decide decision) (again []taskstore.ReparseDocument, names []string, err error) {
	var named sheaf.ParseConfig // checked last: most often all documents name the same
	for i := range docs {
		config, payload, ok := decide(&docs[i])
		if !ok {
			continue
		}
		found, err := s.findType(ctx, &docs[i], config)
		if err != nil {
			return nil, nil, err
		}
		if err := s.CheckConfig(config, cmp.Or(found, docs[i].MediaType)); err != nil {
			return nil, nil, err
		}
		if !slices.Equal(config.TagKBIDs.V, named.TagKBIDs.V) || config.Flow.V != named.Flow.V {
			if err := s.CheckNamed(ctx, tenantID, config); err != nil {
				return nil, nil, err
			}
			named = config
		}
		names = append(names, docs[i].Name)
		again = append(again, taskstore.ReparseDocument{DocumentID: docs[i].ID, ParseConfig: config, MediaType: found, Plan: taskstore.PlanTask(payload)})
	}
	return again, names, nil
}

func rerun(job *sheaf.Job) Rerun {
	if job == nil {
		return Rerun{}
	}
	return Rerun{Job: job, Documents: job.Statistics.Scanned - job.Statistics.Skipped, Skipped: job.Statistics.Skipped}
}

func (s *Service) selectDocuments(ctx context.Context, dataset *sheaf.Dataset, f taskstore.DocumentFilter) ([]sheaf.Document, error) {
	return gather(ctx, s.selected(dataset, f))
}

// maxIDs bounds the documents of a cancel or a delete, whose ids are held in memory
// at once.
const maxIDs = 1_000_000

// IDs lists the documents of a dataset that a filter selects.
func (s *Service) IDs(ctx context.Context, dataset *sheaf.Dataset, f taskstore.DocumentFilter) (ids []string, err error) {
	err = s.selected(dataset, f)(ctx, func(some []sheaf.Document) error {
		for i := range some {
			ids = append(ids, some[i].ID)
		}
		if len(ids) > maxIDs {
			return tooMany(maxIDs)
		}
		return nil
	})
	return ids, err
}

// Cancel stops the newest generation of the documents; what is live stays.
func (s *Service) Cancel(ctx context.Context, tenantID string, ids []string) (taskstore.CancelReceipt, error) {
	ctx, cancel := Lasting(ctx)
	defer cancel()
	r, err := s.Catalog.CancelDocuments(ctx, tenantID, ids)
	if err != nil {
		return r, err
	}
	s.signal(ctx, r.RunningTasks)
	return r, nil
}

// CancelTask stops one task; a dry run says whether it waits or runs.
func (s *Service) CancelTask(ctx context.Context, tenantID, id string, dryRun bool) (taskstore.CancelReceipt, error) {
	r, err := s.Catalog.CancelTask(ctx, tenantID, id, dryRun)
	if err == nil && !dryRun {
		s.signal(ctx, r.RunningTasks)
	}
	return r, err
}

// StartRun begins a run over a dataset.
func (s *Service) StartRun(ctx context.Context, r taskstore.DatasetRun, trace string) (*taskstore.DatasetRun, error) {
	run, err := s.Catalog.StartRun(ctx, r, trace)
	if err == nil {
		s.signal(ctx, nil)
	}
	return run, err
}

// ResumeRun queues a run anew, with other options.
func (s *Service) ResumeRun(ctx context.Context, tenantID, datasetID, id string, options taskstore.RunOptions, trace string) (*taskstore.DatasetRun, error) {
	run, err := s.Catalog.ResumeRun(ctx, tenantID, datasetID, id, options, trace)
	if err == nil {
		s.signal(ctx, nil)
	}
	return run, err
}

// dueRuns bounds the runs that are looked at in one step.
const dueRuns = 1000

// StartDueRuns begins the runs over datasets that begin by themselves: the next one
// after each that is to be followed by one, and those that settings ask for.
func (s *Service) StartDueRuns(ctx context.Context) (started int, err error) {
	followed, err := s.startFollowing(ctx)
	if err != nil {
		return followed, err
	}
	wanted, err := s.startWantedRuns(ctx)
	return followed + wanted, err
}

// startFollowing begins the next run after each that is to be followed by one,
// where documents have changed since.
func (s *Service) startFollowing(ctx context.Context) (started int, err error) {
	due, err := s.Catalog.RunsDue(ctx, dueRuns)
	if err != nil {
		return 0, err
	}
	for _, r := range due {
		now, err := s.Catalog.Run(ctx, r.TenantID, r.DatasetID, r.ID)
		if err == nil && now.Behind > 0 {
			_, err = s.StartRun(ctx, taskstore.DatasetRun{TenantID: r.TenantID, DatasetID: r.DatasetID, Kind: r.Kind, Options: r.Options}, "")
			if err == nil {
				started++
			}
		}
		// Deleted meanwhile, or begun by somebody else.
		if err != nil && !errors.Is(err, sheaf.ErrNotFound) && !errors.Is(err, sheaf.ErrConflict) {
			return started, fmt.Errorf("starting the run after %s: %w", r.ID, err)
		}
	}
	return started, nil
}

// How long after its documents changed a run over a dataset begins by itself: when
// none has changed for the first, or at the latest so long after the run before.
const (
	settled   = time.Minute
	unsettled = 10 * time.Minute
)

// startWantedRuns begins runs over the datasets whose settings ask for them
// (use_raptor, use_graphrag), where documents have changed since the run before and
// then been left alone for a while. Such a run has the budget of the settings, or
// else of the one before.
func (s *Service) startWantedRuns(ctx context.Context) (started int, err error) {
	for after := ""; ; {
		some, err := s.Catalog.DatasetsThatRun(ctx, after, dueRuns)
		if err != nil {
			return started, err
		}
		for i := range some {
			d := &some[i]
			after = d.ID
			for _, kind := range settings.Runs {
				options, wanted := kind.In(d.ParseConfig)
				if !wanted || d.Paused || kind.Kind == sheaf.KindGraphRAG && !s.Chat {
					continue
				}
				budget, err := kind.BudgetIn(d.ParseConfig)
				if err != nil || budget.MaxPrice > 0 && s.ChatPrice == 0 { // it was refused, or the price was known then
					if s.warned.due(d.ID + string(kind.Kind)) {
						s.Log.WarnContext(ctx, "no run starts automatically: its budget cannot be kept; correct it in the dataset's settings, or set chat.price_per_million_tokens", "dataset", d.ID, "kind", kind.Kind, "error", err)
					}
					continue
				}
				begun, err := s.startWanted(ctx, d, kind.Kind, options, budget)
				// Deleted meanwhile, or begun by somebody else.
				if err != nil && !errors.Is(err, sheaf.ErrNotFound) && !errors.Is(err, sheaf.ErrConflict) {
					return started, fmt.Errorf("starting a run of %s over dataset %s: %w", kind.Kind, d.ID, err)
				}
				if begun {
					started++
				}
			}
		}
		if len(some) < dueRuns {
			return started, nil
		}
	}
}

// startWanted begins a run unless one goes on, is parked at its budget, or has all
// that there is.
func (s *Service) startWanted(ctx context.Context, d *sheaf.Dataset, kind sheaf.TaskKind, config json.RawMessage, budget settings.Budget) (bool, error) {
	runs, _, err := s.Catalog.Runs(ctx, d.TenantID, d.ID, kind, taskstore.Page{Limit: 1})
	if err != nil {
		return false, err
	}
	o, since := taskstore.RunOptions{Config: config}, d.UpdatedAt
	if len(runs) > 0 {
		before := runs[0]
		if before.State.Open() || before.State == taskstore.RunParked {
			return false, nil
		}
		now, err := s.Catalog.Run(ctx, d.TenantID, d.ID, before.ID)
		if err != nil || now.Behind == 0 {
			return false, err
		}
		o.MaxTokens, o.MaxPrice, o.Price, o.AutoUpdate = before.Options.MaxTokens, before.Options.MaxPrice, before.Options.Price, before.Options.AutoUpdate
		if before.FinishedAt.After(since) {
			since = before.FinishedAt
		}
	}
	if budget != (settings.Budget{}) {
		o.MaxTokens, o.MaxPrice, o.Price = budget.MaxTokens, budget.MaxPrice, s.ChatPrice
	}
	live, quiet, err := s.Catalog.DatasetRest(ctx, d.TenantID, d.ID)
	if err != nil || live == 0 && len(runs) == 0 {
		return false, err
	}
	if quiet < cmp.Or(s.Settled, settled) && time.Since(since) < unsettled {
		return false, nil
	}
	_, err = s.StartRun(ctx, taskstore.DatasetRun{TenantID: d.TenantID, DatasetID: d.ID, Kind: kind, Options: o}, "")
	return err == nil, err
}

// CancelRun stops a run.
func (s *Service) CancelRun(ctx context.Context, tenantID, datasetID, id string) (taskstore.CancelReceipt, error) {
	r, err := s.Catalog.CancelRun(ctx, tenantID, datasetID, id)
	if err == nil {
		s.signal(ctx, r.RunningTasks)
	}
	return r, err
}

// CancelJob stops all documents of a job that it is still the newest job of. An
// open job takes no more.
func (s *Service) CancelJob(ctx context.Context, tenantID, jobID string) (taskstore.CancelReceipt, error) {
	ctx, cancel := Lasting(ctx)
	defer cancel()
	var sum taskstore.CancelReceipt
	if err := s.Catalog.CloseJob(ctx, tenantID, jobID); err != nil {
		return sum, err
	}
	page := taskstore.Page{Limit: 1000, Ascending: true}
	for {
		docs, next, err := s.Catalog.JobDocuments(ctx, tenantID, jobID, page)
		if err != nil {
			return sum, err
		}
		var ids []string
		for i := range docs {
			if stopsWith(&docs[i], jobID) {
				ids = append(ids, docs[i].ID)
			}
		}
		if len(ids) > 0 {
			r, err := s.Cancel(ctx, tenantID, ids)
			if err != nil {
				return sum, err
			}
			sum.Documents += r.Documents
			sum.Queued += r.Queued
			sum.Running += r.Running
		}
		if next == "" {
			return sum, nil
		}
		page.Cursor = next
	}
}

// stopsWith reports whether a cancel of the job stops the document: while the
// job is its newest.
func stopsWith(d *sheaf.Document, jobID string) bool { return d.JobID == jobID && !d.State.Terminal() }

// Delete hides documents at once and leaves their chunks and bytes to the
// collector.
func (s *Service) Delete(ctx context.Context, tenantID string, ids []string) (taskstore.DeleteReceipt, error) {
	ctx, cancel := Lasting(ctx)
	defer cancel()
	r, err := s.Catalog.DeleteDocuments(ctx, tenantID, ids)
	if err == nil {
		s.signal(ctx, r.RunningTasks)
	}
	return r, err
}

// DeleteDataset deletes a dataset and all its documents.
func (s *Service) DeleteDataset(ctx context.Context, tenantID, id string) (taskstore.DeleteReceipt, error) {
	ctx, cancel := Lasting(ctx)
	defer cancel()
	r, err := s.Catalog.DeleteDataset(ctx, tenantID, id)
	if err == nil {
		s.signal(ctx, r.RunningTasks)
	}
	return r, err
}

// Pause holds or frees what a scope has pending.
func (s *Service) Pause(ctx context.Context, tenantID string, scope taskstore.PauseScope, paused bool) (int, error) {
	ctx, cancel := Lasting(ctx)
	defer cancel()
	n, err := s.Catalog.SetPaused(ctx, tenantID, scope, paused)
	if err == nil && !paused {
		s.Wake(ctx)
	}
	return n, err
}

// Job reads a job with an estimate of how long it may still take.
func (s *Service) Job(ctx context.Context, tenantID, id string) (*sheaf.Job, error) {
	job, err := s.Catalog.Job(ctx, tenantID, id)
	if err != nil || job.State.Terminal() {
		return job, err
	}
	left, err := s.Catalog.Remaining(ctx, tenantID, id)
	if err != nil {
		return nil, fmt.Errorf("measuring what is left of job %s: %w", id, err)
	}
	left.Wait = max(time.Until(job.NotBefore), 0)
	job.Queue = &sheaf.QueuePosition{AheadOwn: left.AheadOwn, AheadOthers: left.AheadOthers, ETASeconds: estimate(left), Delayed: left.Delayed}
	return job, nil
}

// estimate turns remaining work into seconds by measured speed. Before anything like
// it was measured, for unplanned documents that are like none before them, and while
// work waits for a server that is away, it says nothing: an invented number is
// worse than none.
func estimate(left taskstore.Remaining) sheaf.ETA {
	if left.Like.PerSecond <= 0 || left.Stalled || left.Unplanned > 0 && left.UnplannedCost == 0 {
		return sheaf.ETA{}
	}
	p50 := float64(left.Own+left.UnplannedCost) / left.Like.PerSecond
	if left.AheadCost > 0 {
		p50 += float64(left.AheadCost) / cmp.Or(left.All.PerSecond, left.Like.PerSecond)
	}
	p90 := p50 * spread(left.Like, left.Tasks)
	if left.Unplanned > 0 {
		p90 *= 1 + float64(left.UnplannedCost)/float64(left.Own+left.UnplannedCost) // they may be twice as long
	}
	p50, p90 = p50+left.Wait.Seconds(), p90+left.Wait.Seconds()
	return sheaf.ETA{P50: &p50, P90: &p90}
}

// spread is how many times as long as expected tasks take in one of ten cases, ≥ 1.2. The
// more of them there are and the more were measured, the less it matters how much single
// ones differ. The time of all is taken to be lognormal: it is never negative, and rather
// much longer than much shorter.
func spread(p taskstore.Pace, tasks int) float64 {
	const z90 = 1.2816 // standard deviations below which nine of ten values of a normal distribution are
	variance := p.Variation * p.Variation * (1/float64(max(tasks, 1)) + 1/float64(max(p.Tasks, 1)))
	return max(math.Exp(z90*math.Sqrt(math.Log1p(variance))), 1.2)
}

// Wake tells executors and the keeper that there is work.
func (s *Service) Wake(ctx context.Context) {
	if err := s.Queue.Notify(ctx); err != nil {
		s.Log.DebugContext(ctx, "executors were not notified; the keeper's tick will find the work", "error", err)
	}
	if s.Changed != nil {
		s.Changed()
	}
}

func (s *Service) signal(ctx context.Context, tasks []string) {
	if len(tasks) > 0 {
		if err := s.Queue.SignalCancel(ctx, tasks); err != nil {
			s.Log.DebugContext(ctx, "the cancel signal was not sent; the heartbeat carries it", "error", err)
		}
	}
	if s.Changed != nil {
		s.Changed()
	}
}

// checkDocument refuses settings that only a dataset has.
func checkDocument(c sheaf.ParseConfig) error {
	if err := settings.CheckDocument(c); err != nil {
		return fmt.Errorf("%w: parser_config: %w", sheaf.ErrInvalid, err)
	}
	return nil
}

// CheckConfig refuses settings that no parse could obey, before anything is
// stored. mediaType is the file's, or "" while it is not known.
func (s *Service) CheckConfig(c sheaf.ParseConfig, mediaType string) error {
	err := settings.Check(c)
	if setting := settings.NeedsChat(c); err == nil && setting != "" && !s.Chat {
		err = fmt.Errorf("%s needs a chat model, and none is configured: set chat.url and chat.model, or leave it out", setting)
	}
	if err == nil && c.ChunkMethod.V == settings.MethodLate {
		if size := settings.WithDefaults(c).ChunkTokenNum.V; s.Window == 0 {
			err = errors.New("chunk_method late needs an embedding model that reads many chunks in one context: set embed.driver to openai and embed.late_window to the tokens it reads, with a server that knows late_chunking such as Jina's, or choose another method")
		} else if size > s.Window {
			err = fmt.Errorf("chunk_token_num is %d and the embedding model reads %d tokens together (embed.late_window): choose a smaller one", size, s.Window)
		}
	}
	if err == nil && mediaType != "" {
		err = s.Formats.Check(c, cmp.Or(c.MediaType.V, mediaType))
	}
	if err != nil {
		return fmt.Errorf("%w: parser_config: %w", sheaf.ErrInvalid, err)
	}
	return nil
}

// CheckNamed refuses settings that name a flow or tag sets that the tenant has not.
func (s *Service) CheckNamed(ctx context.Context, tenantID string, c sheaf.ParseConfig) error {
	if name := c.Flow.V; name != "" {
		ref, err := flow.ParseRef(name)
		if err != nil {
			return fmt.Errorf("%w: parser_config: flow: %s", sheaf.ErrInvalid, strings.TrimPrefix(err.Error(), sheaf.ErrInvalid.Error()+": "))
		}
		switch _, err := flow.Find(ctx, s.Catalog, tenantID, ref); {
		case errors.Is(err, sheaf.ErrNotFound):
			return fmt.Errorf("%w: parser_config: flow: there is no flow %s; create it first, or leave it out for the standard pipeline", sheaf.ErrInvalid, ref)
		case err != nil:
			return err
		}
	}
	return s.checkTagSets(ctx, tenantID, c)
}

// checkTagSets refuses tag_kb_ids that name anything but the tenant's tag sets.
func (s *Service) checkTagSets(ctx context.Context, tenantID string, c sheaf.ParseConfig) error {
	for _, id := range c.TagKBIDs.V {
		ds, err := s.Catalog.Dataset(ctx, tenantID, id)
		switch {
		case errors.Is(err, sheaf.ErrNotFound) || err == nil && ds.ID != id:
			return fmt.Errorf("%w: parser_config: tag_kb_ids: there is no dataset with the id %q", sheaf.ErrInvalid, id)
		case err != nil:
			return err
		case ds.ParseConfig.ChunkMethod.V != "tag":
			return fmt.Errorf("%w: parser_config: tag_kb_ids: the dataset %s (%s) is no tag set: set its chunk_method to tag, and upload a table with a column of texts and one of their tags", sheaf.ErrInvalid, ds.Name, id)
		}
	}
	return nil
}

// CleanName makes a name fit to store and show: base name only, valid UTF-8,
// no control characters, at most 500 characters. A longer name is cut in the
// middle, since its end is what tells the format.
func CleanName(name string) string {
	name = strings.ToValidUTF8(strings.ReplaceAll(name, "\\", "/"), "\uFFFD")
	name = path.Base("/" + name)
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, name))
	if name == "" || name == "/" {
		return "unnamed"
	}
	return sheaf.ClipName(name)
}

func tooLarge(limit int64) error {
	return sheaf.Fail(sheaf.CategoryPolicy, "too_large", "the file is larger than %d bytes; raise server.max_upload_bytes or split it", limit)
}

// limitReader fails instead of ending when more than left bytes come.
type limitReader struct {
	r    io.Reader
	left int64
	over bool
	head []byte // the first parser.SniffHeadBytes, which need not be fetched again
}

func (l *limitReader) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.r.Read(p)
	if missing := parser.SniffHeadBytes - int64(len(l.head)); missing > 0 {
		l.head = append(l.head, p[:min(int64(n), missing)]...)
	}
	if l.left -= int64(n); l.left < 0 {
		l.over = true
		return 0, errors.New("the file is too large")
	}
	return n, err
}

// blobReader reads an object at any offset, for sniffing. It remembers the
// first error of the store, which is not the file's fault.
type blobReader struct {
	ctx   context.Context
	store blob.Store
	key   string
	size  int64
	head  []byte // the object's begin, or nothing
	err   error
}

func (b *blobReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.size {
		return 0, io.EOF
	}
	want := min(int64(len(p)), b.size-off)
	if off+want <= int64(len(b.head)) {
		n := copy(p, b.head[off:])
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}
	r, err := b.store.Open(b.ctx, b.key, off, want)
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return 0, err
	}
	defer r.Close()
	n, err := io.ReadFull(r, p[:want])
	if err != nil {
		b.err = cmp.Or(b.err, err)
		return n, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
