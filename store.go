package sheaf

import (
	"context"
	"encoding/json"
	"time"
)

// The roles of the store, one per consumer. taskstore implements all of them
// over SQLite, MySQL and PostgreSQL; storetest holds the contract. Every
// method may fail with ErrUnavailable (retry may help) besides what it names.
// All times in the database come from the database's own clock.

// TaskStore is what an executor writes. Every method but Claim changes nothing
// and fails with ErrStale when the claim's epoch is no longer the task's.
type TaskStore interface {
	// Claim makes a pending, due, unpaused task running under a new epoch.
	// When the task is in any other state it fails with *NotClaimable. An
	// error that is not *NotClaimable leaves open whether the claim happened.
	Claim(ctx context.Context, taskID, workerID string, lease time.Duration) (*Task, error)
	// Heartbeat extends the leases of held and records the worker as alive.
	// It answers which of held are no longer the worker's, and which were
	// asked to stop.
	Heartbeat(ctx context.Context, w WorkerStatus, lease time.Duration, held []Claim) (HeartbeatReply, error)
	// Complete makes the task done and writes, in the same transaction, what
	// follows from it.
	Complete(ctx context.Context, c Claim, done Completion) error
	// FailTask ends the attempt: retry_wait, or dead when the budget is spent
	// or the failure is not retryable, or canceled when that was asked. It
	// returns the state the task went to.
	FailTask(ctx context.Context, c Claim, r FailReport) (TaskState, error)
	// Snooze puts the task back for later without touching any budget.
	Snooze(ctx context.Context, c Claim, delay time.Duration, reason string) error
	// Held answers which of the tasks the worker holds.
	Held(ctx context.Context, workerID string, taskIDs []string) ([]Claim, error)
	// Release gives the task back at once without touching any budget.
	Release(ctx context.Context, c Claim) error
	// AppendEvents adds lines to the log. Only Kind, Level, Text and Detail
	// are read from events.
	AppendEvents(ctx context.Context, c Claim, events []Event) error
	// GenerationTasks lists the tasks of a generation ordered by range.
	GenerationTasks(ctx context.Context, documentID string, generation int) ([]Task, error)
	// DocumentByID reads a document of any tenant; ErrNotFound when it is
	// gone or being deleted. For executors, which act for all tenants.
	DocumentByID(ctx context.Context, documentID string) (*Document, error)
	// ReusableRanges finds done range results of the tenant by reuse key. At
	// most one per key: one of document prefer if there is such a one.
	ReusableRanges(ctx context.Context, tenantID, prefer string, keys []string) (map[string]ReusableRange, error)
	// Members lists the documents that are files of an archive.
	Members(ctx context.Context, archiveID string) ([]Document, error)
	// CreateMembers makes documents of an archive's files for the holder of
	// its plan task, in the task's job, and answers for each what became of it.
	// A document that is there gets a new generation, with new bytes when its
	// SHA256 differs. Made again, by whichever attempt, the call changes
	// nothing more.
	CreateMembers(ctx context.Context, c Claim, ask NewMembers) ([]MemberOutcome, error)
	// Deregister removes the worker from the list of live executors.
	Deregister(ctx context.Context, workerID string) error
}

// NewMembers is part of an archive on its way to become documents.
type NewMembers struct {
	Files []NewDocument // Document: ID, Name, Path, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata
	// Keep leaves documents that are there as they are; they belong to the
	// archive's new generation all the same.
	Keep bool
	// MaxDocuments and MaxBytes bound all that comes out of the outermost
	// archive, with the archives inside it.
	MaxDocuments int
	MaxBytes     int64
}

// MemberOutcome is what became of one file of an archive.
type MemberOutcome struct {
	Failure *Failure // why it is no document; nil when it is
	Stored  bool     // its BlobKey is in use
	Wait    bool     // the tenant's queue is full: to be tried again
}

// NotClaimable says why a claim was refused. The hint that led to it is spent.
type NotClaimable struct {
	TaskID string
	State  TaskState // "" when there is no such task
}

func (e *NotClaimable) Error() string {
	if e.State == "" {
		return "task " + e.TaskID + " does not exist"
	}
	return "task " + e.TaskID + " is " + string(e.State) + ", not claimable"
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *NotClaimable) Is(target error) bool { return target == ErrConflict }

// WorkerStatus is what an executor says about itself with each heartbeat.
type WorkerStatus struct {
	ID        string          `json:"id"` // unique per process start
	Host      string          `json:"host"`
	PID       int             `json:"pid"`
	Version   string          `json:"version"`
	Slots     int             `json:"slots"`
	Running   []string        `json:"running"` // task ids
	RSSBytes  int64           `json:"rss_bytes"`
	Info      json.RawMessage `json:"info,omitempty"`
	StartedAt time.Time       `json:"started_at"`
	SeenAt    time.Time       `json:"seen_at"`
}

// HeartbeatReply lists claims of the call that need attention.
type HeartbeatReply struct {
	Lost     []Claim // not this worker's any more: drop the work
	Canceled []Claim // still held, and asked to stop
}

// Completion is what a finished task leaves.
type Completion struct {
	Result  TaskResult
	Plan    *PlanResult  // of a plan task
	Spawn   []NewTask    // inserted in the same transaction; conflicts on (document, generation, kind, node, range) are ignored
	Publish *Publication // of a finalize task

	// CanWait is how long the end may be put off, so that it is written together
	// with the claims and ends that come meanwhile; 0 for at once.
	CanWait time.Duration
	// NextFunc is told of the task that finishes the document when this was the
	// last of its pieces, so that neither waits for the keeper: it is written
	// then, right after the end. Without it, and where that failed, the keeper
	// writes the task. It is called before Complete returns. May be nil.
	NextFunc func(h Hint)
}

// Publication ends a generation. With a State of succeeded or
// partially_succeeded the generation becomes the live one; with failed the one
// that was live stays so.
type Publication struct {
	State    DocumentState
	Failure  *Failure
	Ledger   LedgerCounts
	Chunks   int
	Tokens   int
	Warnings []Warning
}

// FailReport ends an attempt that did not work out.
type FailReport struct {
	Failure  Failure       // Retryable false makes the task dead at once
	Delay    time.Duration // until the next attempt
	MaxFails int           // dead when fail_count reaches it
}

// ReusableRange is a stored range result that a new generation may list or copy.
type ReusableRange struct {
	DocumentID string
	TaskID     string
	Range      Range
	Result     TaskResult
}

// Feed is what the SQL queue and the feeder read.
type Feed interface {
	// Runnable lists due, unpaused pending tasks of one tenant in the order
	// they should run: lane (a task whose place is longer ago than ageAfter
	// counts one lane higher), then phase, place and id. ageAfter 0 means never.
	// limit is for each lane, and in it for PhaseFinish with PhaseRanges, for
	// PhaseBegin, and for PhaseBulk: whose turn it is among these the queue
	// decides.
	Runnable(ctx context.Context, tenantID string, limit int, ageAfter time.Duration) ([]Hint, error)
	// RunnableTenants lists tenants with due, unpaused pending tasks, with
	// their weight, cap and number of running tasks.
	RunnableTenants(ctx context.Context) ([]TenantLoad, error)
}

// TenantLoad is what a fair pick needs to know of a tenant.
type TenantLoad struct {
	TenantID string
	Weight   int
	Cap      int
	Running  int
}

// KeeperStore is what the keeper's loops run. Each method is idempotent and
// guarded, so that two keepers at once do no harm, handles at most limit rows,
// and returns how many it changed.
type KeeperStore interface {
	Feed
	ReceiptStore
	// Feedable lists pending tasks that no queue is known to hold: never
	// enqueued, or longer than requeueAfter ago, in the order of lane, phase,
	// place and id. It looks at as many of a tenant's tasks as Runnable with a
	// limit of window.
	Feedable(ctx context.Context, window int, requeueAfter time.Duration) ([]Hint, error)
	// MarkEnqueued notes that a queue holds the hints. A task that was claimed
	// since its hint was read (its epoch moved on) is left as it is: its hint
	// is spent, and if it is pending again it needs another.
	MarkEnqueued(ctx context.Context, hints []Hint) error
	// ForgetEnqueued marks every pending task that is fed to one of the lanes as
	// not enqueued: the queue lost its memory of them.
	ForgetEnqueued(ctx context.Context, lanes []Lane) (int, error)
	// PromoteDue makes due retry_wait tasks pending.
	PromoteDue(ctx context.Context, limit int) (int, error)
	// Reap takes tasks away from workers that are gone. They are pending again
	// at once, and from the second loss on after a wait.
	Reap(ctx context.Context, p ReapPolicy, limit int) (int, error)
	// WatchClock answers the time by the store's clock. When that has gone back
	// since an earlier call of any process, what lies ahead of it (due times,
	// leases, signs of life) is brought back too, and back says by how much.
	WatchClock(ctx context.Context) (now time.Time, back time.Duration, err error)
	// ClockJumped is told that the store's clock has just jumped ahead by so
	// much. What would be forgotten or removed for its age (unfinished uploads,
	// idempotency keys, garbage that somebody may still write) gets that long
	// more. It must be called once for a jump.
	ClockJumped(ctx context.Context, ahead time.Duration) error
	// HardCancel fences running tasks whose cancel was asked longer than grace ago.
	HardCancel(ctx context.Context, grace time.Duration, limit int) (int, error)
	// WakeParked makes parked tasks pending whose parents are all done.
	WakeParked(ctx context.Context, limit int) (int, error)
	// Fold brings documents whose tasks changed up to date: state, progress,
	// counts, and the finalize task of those that are complete. A document that
	// runs, has tasks left and was brought up to date less than apart ago is left
	// for later, and later says that there is one: the end of its last task
	// matters at once, its progress to people who look.
	Fold(ctx context.Context, limit int, apart time.Duration) (changed int, later bool, err error)
	// Garbage lists what may be removed from index and blob store now.
	Garbage(ctx context.Context, limit int) ([]Garbage, error)
	// ExpireUploads drops uploads whose life is over.
	ExpireUploads(ctx context.Context, limit int) (int, error)
	// GarbageDone forgets entries that have been removed.
	GarbageDone(ctx context.Context, ids []int64) error
	// Cleanup removes events, terminal tasks of superseded generations, dead
	// workers, idempotency records and messages to webhooks older than retention.
	Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (CleanupReport, error)
	// Meta reads a value of the queue's own bookkeeping; "" when absent.
	Meta(ctx context.Context, key string) (string, error)
	SetMeta(ctx context.Context, key, value string) error
	// AcquireLease makes holder the owner of the named lease for ttl, if it is
	// free, expired or already holder's, and reports whether it did.
	AcquireLease(ctx context.Context, name, holder string, ttl time.Duration) (bool, error)
	// ReleaseLease gives the lease up if holder owns it.
	ReleaseLease(ctx context.Context, name, holder string) error
	// Running lists the ids of running tasks by tenant.
	Running(ctx context.Context) (map[string][]string, error)
	// ReleaseRunning gives back every running task, for the start of a
	// process that knows it is the only one.
	ReleaseRunning(ctx context.Context) (int, error)
}

// ReapPolicy says when a running task is lost.
type ReapPolicy struct {
	MaxLost       int           // dead when lost_count reaches it, default 3
	MaxJitter     time.Duration // a task that was lost before runs after a random wait up to this
	WorkerTimeout time.Duration // a worker not heard of for this long is gone before its leases end; 0 means leases only
	// TakenFunc is told of each task after it was taken back. May be nil.
	TakenFunc func(tenantID, taskID string)
}

// Garbage is something the index or the blob store holds in vain. DocumentID
// alone means everything of the document; RangeID one range result.
type Garbage struct {
	ID          int64
	TenantID    string
	DocumentID  string
	RangeID     string
	ArtifactKey string // "" unless the range's artifact goes too
	BlobPrefix  string // "" unless every blob under it goes too
	ReceiptID   string // of the deletion that waits for it; "" for none
	Counted     bool   // what it stands for is in the receipt
}

// CleanupReport counts what retention removed, or would remove.
type CleanupReport struct {
	Events      int `json:"events"`
	Tasks       int `json:"tasks"`
	Workers     int `json:"workers"`
	Idempotency int `json:"idempotency"`
	Deliveries  int `json:"deliveries"` // messages to webhooks
}

// Catalog is what uploads, the API and the CLI read and write. Every method
// is scoped by tenant: another tenant's id answers ErrNotFound.
type Catalog interface {
	TenantCatalog
	DatasetCatalog
	DocumentCatalog
	UploadCatalog
	WebhookCatalog
	JobCatalog
	QueueCatalog
	ReceiptCatalog
}

// TenantCatalog holds tenants and their keys.
type TenantCatalog interface {
	CreateTenant(ctx context.Context, t Tenant) (*Tenant, error) // ErrConflict when the id exists
	Tenant(ctx context.Context, id string) (*Tenant, error)
	// Tenants lists by id, ascending whatever the page says.
	Tenants(ctx context.Context, p Page) ([]Tenant, string, error)
	// ChangeTenant changes what the change names and answers the tenant as it
	// is then. Changes of different fields at once do not undo each other.
	ChangeTenant(ctx context.Context, id string, change TenantChange) (*Tenant, error)
	CreateKey(ctx context.Context, k Key, hash string) error
	KeyByHash(ctx context.Context, hash string) (*Key, error) // ErrNotFound when unknown or revoked
	Keys(ctx context.Context, tenantID string, p Page) ([]Key, string, error)
	Key(ctx context.Context, tenantID, id string) (*Key, error)
	// ChangeKey changes a key's name and scopes. ErrConflict when it is revoked.
	ChangeKey(ctx context.Context, tenantID, id string, change KeyChange) (*Key, error)
	RevokeKey(ctx context.Context, tenantID, id string) error
}

// DatasetCatalog holds datasets.
type DatasetCatalog interface {
	CreateDataset(ctx context.Context, d Dataset) (*Dataset, error) // ErrConflict when the name is taken
	// Dataset finds by id, or else by name.
	Dataset(ctx context.Context, tenantID, idOrName string) (*Dataset, error)
	Datasets(ctx context.Context, tenantID string, p Page) ([]Dataset, string, error)
	// TaggedDatasets lists those whose settings name tag sets, oldest first and
	// at most limit; what they hold is not counted. Every search in all datasets
	// asks for them.
	TaggedDatasets(ctx context.Context, tenantID string, limit int) ([]Dataset, error)
	// UpdateDataset writes name and settings. ErrStale when the dataset was
	// changed since d was read, as its UpdatedAt says; zero writes anyway.
	UpdateDataset(ctx context.Context, d Dataset) error
	// DeleteDataset deletes its documents too, and says which.
	DeleteDataset(ctx context.Context, tenantID, id string) (DeleteReceipt, error)
}

// Page asks for part of a list. Lists answer the next cursor, "" at the end.
type Page struct {
	Limit     int // 1–1,000, 0 means 50
	Cursor    string
	Ascending bool // oldest first
}

// DocumentFilter selects documents; empty fields select all.
type DocumentFilter struct {
	None          bool   // selects nothing: what an empty list asks for
	DatasetID     string // "" means all of the tenant's
	IDs           []string
	States        []DocumentState
	MediaTypes    []string
	Query         string // substring of the name, case-insensitive
	SHA256        string
	ParentID      string // files of this archive
	CreatedAfter  time.Time
	CreatedBefore time.Time
}

// NewDocument is a document to be created, or, when a document of that ID
// exists in the dataset, to replace its bytes under a new generation.
type NewDocument struct {
	Document Document // ID, Name, MediaType, Size, SHA256, BlobKey, ParseConfig, Metadata, DuplicateOf
	Plan     NewTask
}

// DocumentCatalog holds documents.
type DocumentCatalog interface {
	// CreateDocuments writes the job, the documents, their first generations
	// and plan tasks in one transaction. ErrLimit when a quota is full.
	// replaced lists the ids that existed and got new bytes.
	CreateDocuments(ctx context.Context, job Job, docs []NewDocument, trace string) (replaced []string, err error)
	Document(ctx context.Context, tenantID, id string) (*Document, error)
	Documents(ctx context.Context, tenantID string, f DocumentFilter, p Page) ([]Document, string, error)
	// Reparse starts a new generation of each document: running work of older
	// generations is superseded, what is live stays live.
	Reparse(ctx context.Context, job Job, docs []ReparseDocument, trace string) error
	// CancelDocuments stops the newest generation of each document.
	CancelDocuments(ctx context.Context, tenantID string, ids []string) (CancelReceipt, error)
	// DeleteDocuments hides the documents at once, stops their work, empties
	// the rows that tell of them, and leaves the removal of chunks and blobs to
	// the collector. The receipt follows that to its end.
	DeleteDocuments(ctx context.Context, tenantID string, ids []string) (DeleteReceipt, error)
	Generations(ctx context.Context, tenantID, documentID string) ([]Generation, error)
	// Tasks lists tasks of a document's generation (0: the newest), ordered by range.
	Tasks(ctx context.Context, tenantID, documentID string, generation int) ([]Task, error)
	// UnitLedger is the verdict on every unit of a generation: of overlapping
	// ranges the best verdict counts.
	UnitLedger(ctx context.Context, tenantID, documentID string, generation int) (Ledger, error)
	// Visible answers, of the given range ids, those that a live generation
	// lists. It is the authoritative filter of every search.
	Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]VisibleRange, error)
	// Events reads the log after seq, oldest first.
	Events(ctx context.Context, tenantID string, f EventFilter, after int64, limit int) ([]Event, error)
	// Usage sums what the tenant holds, for quotas.
	Holdings(ctx context.Context, tenantID string) (Quota, error)
}

// ReparseDocument asks for a new generation of one document.
type ReparseDocument struct {
	DocumentID  string
	ParseConfig ParseConfig
	MediaType   string // of its bytes, where that has to change; "" leaves it
	Plan        NewTask
}

// VisibleRange says whose chunks a visible range holds.
type VisibleRange struct {
	DocumentID string
	DatasetID  string
	Name       string
	MediaType  string
	Generation int
}

// EventFilter selects events; empty fields select all.
type EventFilter struct {
	DatasetID  string
	DocumentID string
	JobID      string
	Kinds      []string
}

// CancelReceipt counts what a cancel did.
type CancelReceipt struct {
	Documents int `json:"documents"`
	Queued    int `json:"queued"`  // tasks that left the queue at once
	Running   int `json:"running"` // tasks asked to stop
	// RunningTasks are the ids of those asked to stop, for the queue's fast signal.
	RunningTasks []string `json:"-"`
}

// DeleteReceipt counts what a delete took away at once and what the collector
// will remove elsewhere; ReceiptID names the receipt that follows that.
type DeleteReceipt struct {
	ReceiptID    string   `json:"receipt_id,omitempty" doc:"of /v1/receipts/{id}, which is completed when the last object, chunk and vector is gone; absent when nothing was deleted"`
	Documents    int      `json:"documents"`
	Generations  int      `json:"generations"`
	Tasks        int      `json:"tasks"`
	Chunks       int      `json:"chunks"` // of live generations, gone from search at once
	Bytes        int64    `json:"bytes"`  // of originals, removed by the collector
	DocumentIDs  []string `json:"document_ids"`
	RunningTasks []string `json:"-"`
}

// JobCatalog holds jobs.
type JobCatalog interface {
	// Job reads a job with its documents, stages, statistics, usage and
	// receipt summed; Queue is left nil.
	Job(ctx context.Context, tenantID, id string) (*Job, error)
	// JobEnded tells whether Job would show a terminal state, at a fraction of
	// its cost: who waits for the end asks this, and Job once.
	JobEnded(ctx context.Context, tenantID, id string) (bool, error)
	Jobs(ctx context.Context, tenantID, datasetID string, p Page) ([]Job, string, error)
	JobDocuments(ctx context.Context, tenantID, jobID string, p Page) ([]Document, string, error)
	// JobErrors lists the failures of a job: of documents, tasks and units.
	JobErrors(ctx context.Context, tenantID, jobID string, p Page) ([]JobError, string, error)
	// SetPaused holds or frees the pending tasks of a job, dataset or tenant
	// (exactly one id set), and those that will be spawned.
	SetPaused(ctx context.Context, tenantID string, scope PauseScope, paused bool) (tasks int, err error)
	// Speed measures how fast tasks end: cost units a second, all executors
	// together, and the ratio of the 90th percentile of seconds per cost to the
	// median, ≥ 1. With stages, of tasks that run only those, as many at once.
	// Both are 0 when nothing has been measured.
	Speed(ctx context.Context, stages ...string) (costPerSec, spreadP90 float64, err error)
	// OpenTasks counts what CancelDocuments would stop.
	OpenTasks(ctx context.Context, tenantID string, ids []string) (queued, running int, err error)
	// Remaining measures what stands between a job and its end.
	Remaining(ctx context.Context, tenantID, jobID string) (Remaining, error)
	// Idempotent gives a try the key for the length of the lease, or says what
	// became of an earlier one. A key whose holder neither ended nor renewed
	// it in time is given to the next try. ErrConflict when the key was used
	// with another request hash.
	Idempotent(ctx context.Context, r KeyedRequest, lease time.Duration) (KeyedState, error)
	// ReadIdempotent notes the digest of the whole body that a try has read,
	// before it makes anything of it. ErrConflict when an earlier try of the key
	// read another body, ErrStale when another try has the key.
	ReadIdempotent(ctx context.Context, r KeyedRequest, body string) error
	// RenewIdempotent extends the lease; ErrStale when another try has the key.
	RenewIdempotent(ctx context.Context, r KeyedRequest, lease time.Duration) error
	// FinishIdempotent keeps the answer for every later try; ErrStale when
	// another try has the key.
	FinishIdempotent(ctx context.Context, r KeyedRequest, answer []byte) error
	// LeaveIdempotent ends a try of which nobody knows for certain what it
	// did. The next one has the key at once and finishes the work.
	LeaveIdempotent(ctx context.Context, r KeyedRequest) error
}

// KeyedRequest is one try of a request under an idempotency key.
type KeyedRequest struct {
	TenantID string
	Key      string // the client's, at most 128 bytes
	Hash     string // of what is asked for, without the body
	Former   string // the same as versions before 0010_idempotency_body hashed it
	Holder   string // of this try alone
}

// KeyedState is how a key stands when a try asks for it.
type KeyedState struct {
	Held   bool      // by this try, which shall do the work and end with Finish or Leave
	Since  time.Time // when the key was first used: the same for all tries
	Body   string    // digest of the body of the first try that read it to its end; "" while there is none
	Answer []byte    // of the try that finished; nil while another is at work, and empty where it cannot be shown any more
}

// JobError is one failure of a job.
type JobError struct {
	DocumentID string  `json:"document_id"`
	Document   string  `json:"document"`
	TaskID     string  `json:"task_id,omitempty"`
	Failure    Failure `json:"failure"`
}

// PauseScope names what is paused; exactly one field is set, or Tenant.
type PauseScope struct {
	JobID     string
	DatasetID string
	Tenant    bool
}

// Remaining is the work between a job and its end, in cost units (pages).
type Remaining struct {
	Own         int     // cost of the job's tasks not yet terminal
	Unplanned   int     // documents whose plan is not done
	AheadOwn    int     // pending tasks of the tenant that come first
	AheadOthers int     // pending tasks of other tenants in the same or a higher lane
	AheadCost   int     // their cost together
	CostPerSec  float64 // measured over the last finished tasks, all executors together; 0 when unknown
	SpreadP90   float64 // ratio of the 90th percentile of seconds per cost to the median, ≥ 1; 0 when unknown
	Delayed     *Delay  // of the task that is tried again next; nil while none was put off
}

// QueueCatalog is what operators look at.
type QueueCatalog interface {
	Queue(ctx context.Context, tenantID string) (*TenantQueue, error)
	// Queues lists the queues of all tenants, as Tenants lists these.
	Queues(ctx context.Context, p Page) ([]TenantQueue, string, error)
	DeadLetters(ctx context.Context, tenantID string, f DeadLetterFilter, p Page) ([]Task, string, error)
	// RetryDead makes dead tasks pending again under a new epoch, budgets reset.
	RetryDead(ctx context.Context, tenantID string, f DeadLetterFilter) (int, error)
	// PurgeDead removes dead tasks of generations that are over.
	PurgeDead(ctx context.Context, tenantID string, f DeadLetterFilter) (int, error)
	Workers(ctx context.Context) ([]WorkerStatus, error)
	Task(ctx context.Context, tenantID, id string) (*Task, error)
	// TaskEvents is the history of one task, oldest first.
	TaskEvents(ctx context.Context, tenantID, id string) ([]Event, error)
}

// DeadLetterFilter selects dead tasks; empty fields select all.
type DeadLetterFilter struct {
	IDs        []string
	Kind       TaskKind
	Code       string // failure code
	Category   Category
	DocumentID string
	JobID      string
	DatasetID  string
	None       bool // selects nothing: what an empty list asks for
	DryRun     bool // count what the call would change, and change nothing
	// AllTenants selects the tasks of every tenant where the call names none.
	// For operators alone.
	AllTenants bool
}

// TenantQueue is the state of one tenant's queue.
type TenantQueue struct {
	TenantID         string      `json:"tenant_id"`
	Weight           int         `json:"weight"`
	Cap              int         `json:"cap"`
	Paused           bool        `json:"paused"`
	Running          int         `json:"running"`
	RetryWait        int         `json:"retry_wait"`
	Parked           int         `json:"parked"`
	Dead             int         `json:"dead"`
	Lanes            []LaneDepth `json:"lanes"`
	OldestPendingAge float64     `json:"oldest_pending_age_seconds"`
}

// LaneDepth is how much waits in one lane.
type LaneDepth struct {
	Lane             Lane    `json:"lane"`
	Pending          int     `json:"pending"`
	Cost             int     `json:"cost"`
	OldestPendingAge float64 `json:"oldest_pending_age_seconds"`
}
