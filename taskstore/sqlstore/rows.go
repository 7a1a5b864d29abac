package sqlstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	fastjson "github.com/segmentio/encoding/json"

	"sheaf"
	"sheaf/taskstore"
)

func (s *handle) toDocuments(rows []documentRow) []sheaf.Document { return mapped(rows, s.toDocument) }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The rows as stored. Times are milliseconds, 0 for "not set"; JSON is text, "" for
// "none" where the column says so. Only this package sees them.

type tenantRow struct {
	ID        string `gorm:"primaryKey"`
	Name      string
	Weight    int
	Cap       int
	Paused    int
	Quota     string
	CreatedAt int64 `gorm:"autoCreateTime:false"`
}

func (tenantRow) TableName() string { return "tenants" }

func (r tenantRow) toDomain() sheaf.Tenant {
	t := sheaf.Tenant{ID: r.ID, Name: r.Name, Weight: r.Weight, Cap: r.Cap, Paused: r.Paused != 0, CreatedAt: toTime(r.CreatedAt)}
	decode(r.Quota, &t.Quota)
	return t
}

type keyRow struct {
	ID        string `gorm:"primaryKey"`
	TenantID  string
	Name      string
	Hash      string
	Scopes    string // JSON list
	CreatedAt int64  `gorm:"autoCreateTime:false"`
	ExpiresAt int64
	RevokedAt int64
}

func (keyRow) TableName() string { return "api_keys" }

func (r keyRow) toDomain() sheaf.Key {
	k := sheaf.Key{ID: r.ID, TenantID: r.TenantID, Name: r.Name, CreatedAt: toTime(r.CreatedAt), ExpiresAt: toTime(r.ExpiresAt), RevokedAt: toTime(r.RevokedAt)}
	decode(r.Scopes, &k.Scopes)
	return k
}

type datasetRow struct {
	ID          string `gorm:"primaryKey"`
	TenantID    string
	Name        string
	ParseConfig string
	Paused      int
	Attributes  string
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	UpdatedAt   int64 `gorm:"autoUpdateTime:false"`
}

func (datasetRow) TableName() string { return "datasets" }

// toDomain leaves Documents and Chunks for the caller to count.
func (r datasetRow) toDomain(v vault) sheaf.Dataset {
	d := sheaf.Dataset{ID: r.ID, TenantID: r.TenantID, Name: r.Name, Paused: r.Paused != 0, CreatedAt: toTime(r.CreatedAt), UpdatedAt: toTime(r.UpdatedAt)}
	decode(v.reveal(r.TenantID, r.ParseConfig), &d.ParseConfig)
	decode(r.Attributes, &d.Attributes)
	return d
}

type jobRow struct {
	ID         string `gorm:"primaryKey"`
	TenantID   string
	DatasetID  string
	Kind       string
	Paused     int
	Statistics string
	Name       string
	Files      string // JSON list of the first files
	Requester  string
	OpenUntil  int64
	OpenFor    int64
	Summary    string // JSON, "" for none; see summaries.go
	CreatedAt  int64  `gorm:"autoCreateTime:false"`
}

func (jobRow) TableName() string { return "jobs" }

// toDomain sets what the row itself holds; the rest is summed over the job's
// documents and tasks.
func (r jobRow) toDomain() sheaf.Job {
	j := sheaf.Job{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Kind: sheaf.JobKind(r.Kind), Paused: r.Paused != 0, CreatedAt: toTime(r.CreatedAt),
		Name: r.Name, Requester: r.Requester, OpenUntil: toTime(r.OpenUntil)}
	decode(r.Statistics, &j.Statistics)
	decode(r.Files, &j.Files)
	if j.Name == "" {
		j.Name = nameByFiles(j.Files, j.Statistics.Scanned-j.Statistics.Skipped)
	}
	return j
}

// nameByFiles names a job of n files after the first of them.
func nameByFiles(first []string, n int) string {
	switch more := n - len(first); {
	case more > 0 && len(first) > 0:
		return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), more)
	default:
		return strings.Join(first, " and ")
	}
}

type documentRow struct {
	ID          string `gorm:"primaryKey"`
	TenantID    string
	DatasetID   string
	Name        string
	MediaType   string
	Size        int64
	SHA256      string `gorm:"column:sha256"`
	BlobKey     string
	State       string
	Progress    float64
	Units       int
	Unit        string
	Gen         int
	LiveGen     int
	FinEpoch    int64
	ChunkCount  int
	TokenCount  int
	Ledger      string
	Failure     string
	Warnings    string
	Parser      string
	ParseConfig string
	Metadata    string
	Attributes  string
	DuplicateOf string
	ParentID    string
	RootID      string // the outermost archive
	ParentGen   int    // the parent's newest generation that contains it
	Depth       int
	MemberPath  string
	JobID       string
	Lane        int
	DeletedAt   int64
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	UpdatedAt   int64 `gorm:"autoUpdateTime:false"`
	StartedAt   int64
	FinishedAt  int64
}

func (documentRow) TableName() string { return "documents" }

func (r documentRow) id() string  { return r.ID }
func (r documentRow) sum() string { return r.SHA256 }

func (r documentRow) toDomain(v vault) sheaf.Document {
	d := sheaf.Document{
		ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, Name: r.Name, MediaType: r.MediaType, Size: r.Size,
		SHA256: r.SHA256, BlobKey: r.BlobKey, State: sheaf.DocumentState(r.State), Progress: r.Progress, Units: r.Units,
		Unit: sheaf.Unit(r.Unit), Generation: r.Gen, LiveGeneration: r.LiveGen, Chunks: r.ChunkCount, Tokens: r.TokenCount,
		Failure: decodeFailure(r.Failure), Parser: r.Parser, DuplicateOf: r.DuplicateOf, ParentID: r.ParentID, Path: r.MemberPath, Depth: r.Depth,
		JobID: r.JobID, Lane: sheaf.Lane(r.Lane), CreatedAt: toTime(r.CreatedAt), UpdatedAt: toTime(r.UpdatedAt), StartedAt: toTime(r.StartedAt), FinishedAt: toTime(r.FinishedAt),
		FinalizeEpoch: r.FinEpoch,
	}
	decode(r.Ledger, &d.Ledger)
	decode(r.Warnings, &d.Warnings)
	decode(v.reveal(r.TenantID, r.ParseConfig), &d.ParseConfig)
	decode(r.Metadata, &d.Metadata)
	decode(r.Attributes, &d.Attributes)
	return d
}

type generationRow struct {
	DocID       string `gorm:"primaryKey"`
	Gen         int    `gorm:"primaryKey;autoIncrement:false"`
	TenantID    string
	JobID       string
	State       string
	ParseConfig string
	Parser      string
	Units       int
	Unit        string
	ChunkCount  int
	TokenCount  int
	Ledger      string
	Failure     string
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	FinishedAt  int64
	PublishedAt int64
	Flow        string // JSON; "" for the standard pipeline
}

func (generationRow) TableName() string { return "generations" }

func (r generationRow) toDomain(v vault) sheaf.Generation {
	g := sheaf.Generation{
		DocumentID: r.DocID, Generation: r.Gen, JobID: r.JobID, State: sheaf.DocumentState(r.State), Parser: r.Parser,
		Units: r.Units, Unit: sheaf.Unit(r.Unit), Chunks: r.ChunkCount, Tokens: r.TokenCount, Failure: decodeFailure(r.Failure),
		CreatedAt: toTime(r.CreatedAt), FinishedAt: toTime(r.FinishedAt), PublishedAt: toTime(r.PublishedAt),
	}
	decode(r.Ledger, &g.Ledger)
	decode(v.reveal(r.TenantID, r.ParseConfig), &g.ParseConfig)
	if r.Flow != "" {
		g.Flow = &sheaf.FlowDecision{}
		decode(r.Flow, g.Flow)
	}
	return g
}

type taskRow struct {
	ID                string `gorm:"primaryKey"`
	TenantID          string
	DatasetID         string
	DocID             string
	JobID             string
	Gen               int
	Kind              string
	Node              string
	Unit              string
	FromUnit          int
	ToUnit            int
	Cost              int
	Lane              int
	State             string
	Paused            int // 1 if held, plus 2 for a task of a pool
	Epoch             int64
	WorkerID          string
	LeaseUntil        int64
	RunAt             int64
	Phase             int
	Place             int64 // 0 in tasks of versions without places
	EnqueuedAt        int64 // 0: not known to be in any queue
	Attempts          int
	FailCount         int
	LostCount         int
	Unmet             int
	CancelRequestedAt int64
	DoneEpoch         int64
	Pool              string
	OnFailure         string
	ReuseKey          string
	Digest            string
	RangeID           string // "" also after the range went to the garbage
	ArtifactKey       string
	ChunkCount        int
	TokenCount        int
	Reused            int
	Payload           string
	Result            string
	Failure           string
	FailureCode       string
	Trace             string
	CreatedAt         int64 `gorm:"autoCreateTime:false"`
	StartedAt         int64
	FinishedAt        int64

	Now     int64 // the database's time, in queries that select it
	Deleted int   // whether its document is deleted, likewise
}

func (taskRow) TableName() string { return "tasks" }

func (r taskRow) id() string { return r.ID }

// taskFields are the columns of a task in the order of fields.
const taskFields = `id, tenant_id, dataset_id, doc_id, job_id, gen, kind, node, unit, from_unit, to_unit, cost, lane, state, paused, epoch, worker_id,
	lease_until, run_at, phase, place, enqueued_at, attempts, fail_count, lost_count, unmet, cancel_requested_at, done_epoch, pool, on_failure, reuse_key, digest, range_id,
	artifact_key, chunk_count, token_count, reused, payload, result, failure, failure_code, trace, created_at, started_at, finished_at`

// taskColumn is the index in fields of each column.
var taskColumn = func() map[string]int {
	at := map[string]int{}
	for i, c := range append(strings.Split(strings.Join(strings.Fields(taskFields), ""), ","), "now", "deleted") {
		at[c] = i
	}
	return at
}()

// fields returns the scan destinations for the columns of taskFields, the database's
// time and whether the document is deleted.
func (r *taskRow) fields() []any {
	return []any{
		&r.ID, &r.TenantID, &r.DatasetID, &r.DocID, &r.JobID, &r.Gen, &r.Kind, &r.Node, &r.Unit, &r.FromUnit, &r.ToUnit, &r.Cost, &r.Lane, &r.State,
		&r.Paused, &r.Epoch, &r.WorkerID, &r.LeaseUntil, &r.RunAt, &r.Phase, &r.Place, &r.EnqueuedAt, &r.Attempts, &r.FailCount, &r.LostCount, &r.Unmet,
		&r.CancelRequestedAt, &r.DoneEpoch, &r.Pool, &r.OnFailure, &r.ReuseKey, &r.Digest, &r.RangeID, &r.ArtifactKey, &r.ChunkCount, &r.TokenCount, &r.Reused, &r.Payload,
		&r.Result, &r.Failure, &r.FailureCode, &r.Trace, &r.CreatedAt, &r.StartedAt, &r.FinishedAt, &r.Now, &r.Deleted,
	}
}

func (r *taskRow) toDomain(v vault) sheaf.Task {
	t := sheaf.Task{
		ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, JobID: r.JobID, Generation: r.Gen,
		Kind: sheaf.TaskKind(r.Kind), Node: r.Node, Pool: r.Pool, Unit: sheaf.Unit(r.Unit), Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit},
		Cost: r.Cost, Lane: sheaf.Lane(r.Lane), State: sheaf.TaskState(r.State), Epoch: r.Epoch, WorkerID: r.WorkerID,
		Attempts: r.Attempts, FailCount: r.FailCount, LostCount: r.LostCount,
		RunAt: toTime(r.RunAt), CreatedAt: toTime(r.CreatedAt), StartedAt: toTime(r.StartedAt), FinishedAt: toTime(r.FinishedAt),
		LeaseUntil: toTime(r.LeaseUntil), CancelRequestedAt: toTime(r.CancelRequestedAt),
		ReuseKey: r.ReuseKey, Digest: r.Digest, Failure: decodeFailure(r.Failure), Trace: r.Trace,
	}
	if r.Payload != "" {
		t.Payload = json.RawMessage(v.reveal(r.TenantID, r.Payload))
	}
	decode(r.Result, &t.Result)
	// The columns decide what can still be listed; the JSON is history.
	if r.RangeID == "" {
		t.Result.FormerArtifact = t.Result.ArtifactKey
	}
	t.Result.RangeID, t.Result.ArtifactKey = r.RangeID, r.ArtifactKey
	return t
}

// hasRange reports whether attempts at the task write a range result.
func (r *taskRow) hasRange() bool {
	return isRange(sheaf.TaskKind(r.Kind))
}

func (r *taskRow) event(kind string, epoch int64) eventRow {
	return eventRow{TenantID: r.TenantID, DatasetID: r.DatasetID, JobID: r.JobID, DocID: r.DocID, Gen: r.Gen,
		TaskID: r.ID, SubjectID: r.ID, Epoch: epoch, Kind: kind, WorkerID: r.WorkerID}
}

type eventRow struct {
	Seq       int64 `gorm:"primaryKey"`
	TenantID  string
	DatasetID string
	JobID     string
	DocID     string
	Gen       int
	TaskID    string
	SubjectID string // the task, or the document for EventDocument
	Epoch     int64  // of the task, or the document's generation
	Kind      string
	N         int64 // distinguishes events of one subject, epoch and kind; 0 for transitions
	WorkerID  string
	Level     string
	Text      string
	Detail    string
	At        int64
}

func (eventRow) TableName() string { return "events" }

func (r eventRow) toDomain() sheaf.Event {
	e := sheaf.Event{
		Seq: r.Seq, TenantID: r.TenantID, DatasetID: r.DatasetID, JobID: r.JobID, DocumentID: r.DocID, Generation: r.Gen,
		TaskID: r.TaskID, Epoch: r.Epoch, Kind: r.Kind, Worker: r.WorkerID, Level: r.Level, Text: r.Text, At: toTime(r.At),
	}
	if e.TaskID == "" {
		e.Epoch = 0
	}
	if r.Detail != "" {
		e.Detail = json.RawMessage(r.Detail)
	}
	return e
}

type garbageRow struct {
	ID          int64 `gorm:"primaryKey"`
	TenantID    string
	DocID       string
	RangeID     string
	ArtifactKey string
	BlobPrefix  string
	NotBefore   int64
	ReceiptID   string
	Counted     int
}

func (garbageRow) TableName() string { return "garbage" }

func (r garbageRow) toDomain() taskstore.Garbage {
	return taskstore.Garbage{ID: r.ID, TenantID: r.TenantID, DocumentID: r.DocID, RangeID: r.RangeID, ArtifactKey: r.ArtifactKey, BlobPrefix: r.BlobPrefix,
		ReceiptID: r.ReceiptID, Counted: r.Counted != 0}
}

type workerRow struct {
	ID        string `gorm:"primaryKey"`
	Status    string
	StartedAt int64
	SeenAt    int64
}

func (workerRow) TableName() string { return "workers" }

func (r workerRow) toDomain() taskstore.WorkerStatus {
	var w taskstore.WorkerStatus
	decode(r.Status, &w)
	w.ID, w.StartedAt, w.SeenAt = r.ID, toTime(r.StartedAt), toTime(r.SeenAt)
	return w
}

type idempotencyRow struct {
	TenantID    string `gorm:"primaryKey"`
	K           string `gorm:"primaryKey"`
	RequestHash string
	Answer      string
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	Holder      string
	LeaseUntil  int64
	BodyDigest  string
}

func (idempotencyRow) TableName() string { return "idempotency" }

func toTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func toMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// encode returns v as JSON. The values are the package's own structs, maps and
// RawMessages; an invalid one becomes null rather than a broken row.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(b)
}

// encodeList is encode, with [] for nil.
func encodeList[T any](v []T) string {
	if v == nil {
		return "[]"
	}
	return encode(v)
}

// encodeMap is encode, with {} for nil.
func encodeMap(m map[string]string) string {
	if m == nil {
		return "{}"
	}
	return encode(m)
}

// decode reads JSON that encode wrote; "" leaves v unchanged. Planning and finishing
// a document reads hundreds of range results: encoding/json takes five times as long
// for them, a twentieth of the cost of a changed page.
func decode(s string, v any) {
	if s == "" {
		return
	}
	if m, is := v.(*map[string]string); is && *m == nil {
		*m = map[string]string{} // the library would make one for 64 entries
	}
	_ = fastjson.Unmarshal([]byte(s), v)
}

func encodeFailure(f *sheaf.Failure) string {
	if f == nil {
		return ""
	}
	return encode(f)
}

func decodeFailure(s string) *sheaf.Failure {
	if s == "" {
		return nil
	}
	var f sheaf.Failure
	decode(s, &f)
	return &f
}

// clip truncates s to at most n bytes without splitting a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func (s *handle) toTasks(rows []taskRow) []sheaf.Task { return mapped(rows, s.toTask) }

func (s *handle) toDataset(r datasetRow) sheaf.Dataset         { return r.toDomain(s.vault) }
func (s *handle) toDocument(r documentRow) sheaf.Document      { return r.toDomain(s.vault) }
func (s *handle) toTask(r taskRow) sheaf.Task                  { return r.toDomain(s.vault) }
func (s *handle) toWebhook(r webhookRow) taskstore.Webhook     { return r.toDomain(s.vault) }
func (s *handle) toUpload(r uploadRow) taskstore.PartialUpload { return r.toDomain(s.vault) }

// value returns what p points at, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
