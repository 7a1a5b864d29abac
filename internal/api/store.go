package api

import (
	"context"
	"time"

	"sheaf"
	"sheaf/internal/watch"
	"sheaf/taskstore"
)

// Catalog is what the API reads and changes directly; documents are created and
// canceled through ingest. Every method is scoped by tenant: another tenant's id
// returns ErrNotFound.
type Catalog interface {
	Tenants
	Keys
	Datasets
	Documents
	Jobs
	Uploads
	Webhooks
	Flows
	Evaluations
	Splits
	Runs
	Deliveries
	Receipts
	Idempotency
	Queues
	DeadLetters
	Log
	watch.Log
}

// Tenants stores tenants.
type Tenants interface {
	CreateTenant(ctx context.Context, t sheaf.Tenant) (*sheaf.Tenant, error)
	Tenant(ctx context.Context, id string) (*sheaf.Tenant, error)
	Tenants(ctx context.Context, p taskstore.Page) ([]sheaf.Tenant, string, error)
	ChangeTenant(ctx context.Context, id string, change taskstore.TenantChange) (*sheaf.Tenant, error)
	QuotaUsage(ctx context.Context, tenantID string) (sheaf.Quota, error)
}

// Keys stores the keys of tenants.
type Keys interface {
	CreateKey(ctx context.Context, k sheaf.Key, hash string) error
	KeyByHash(ctx context.Context, hash string) (*sheaf.Key, error)
	Keys(ctx context.Context, tenantID string, p taskstore.Page) ([]sheaf.Key, string, error)
	Key(ctx context.Context, tenantID, id string) (*sheaf.Key, error)
	ChangeKey(ctx context.Context, tenantID, id string, change taskstore.KeyChange) (*sheaf.Key, error)
	RevokeKey(ctx context.Context, tenantID, id string) error
}

// Datasets stores datasets.
type Datasets interface {
	CreateDataset(ctx context.Context, d sheaf.Dataset) (*sheaf.Dataset, error)
	Dataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error)
	CountedDataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error)
	Datasets(ctx context.Context, tenantID string, f taskstore.DatasetFilter, p taskstore.Page) ([]sheaf.Dataset, string, error)
	TaggedDatasets(ctx context.Context, tenantID string, limit int) ([]sheaf.Dataset, error)
	UpdateDataset(ctx context.Context, d sheaf.Dataset) error
}

// Documents reads documents and their tasks.
type Documents interface {
	Document(ctx context.Context, tenantID, id string) (*sheaf.Document, error)
	ChangeDocument(ctx context.Context, tenantID, id, name string, attributes sheaf.Attributes) (*sheaf.Document, error)
	Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error)
	Facets(ctx context.Context, tenantID string, f taskstore.DocumentFilter) (*taskstore.Facets, error)
	TagDocuments(ctx context.Context, tenantID string, f taskstore.DocumentFilter, tag string) (int, error)
	Generations(ctx context.Context, tenantID, documentID string) ([]sheaf.Generation, error)
	// NewestGenerations returns the newest generations of the tenant's documents by
	// document id. Documents that do not exist or have none are omitted.
	NewestGenerations(ctx context.Context, tenantID string, documentIDs []string) (map[string]sheaf.Generation, error)
	Tasks(ctx context.Context, tenantID, documentID string, generation int) ([]sheaf.Task, error)
	UnitLedger(ctx context.Context, tenantID, documentID string, generation int) (sheaf.Ledger, error)
}

// Jobs reads jobs.
type Jobs interface {
	JobWaitsFor(ctx context.Context, jobID, documentID string, within time.Duration) ([]string, error)
	Job(ctx context.Context, tenantID, id string) (*sheaf.Job, error)
	JobEnded(ctx context.Context, tenantID, id string) (bool, error)
	JobTakes(ctx context.Context, tenantID, datasetID, id string, n int) error
	Jobs(ctx context.Context, tenantID string, f taskstore.JobFilter, p taskstore.Page) ([]sheaf.Job, string, error)
	JobDocuments(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]sheaf.Document, string, error)
	JobWarnings(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]taskstore.JobWarnings, string, error)
	JobErrors(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]taskstore.JobError, string, error)
}

// Uploads reads and drops unfinished uploads.
type Uploads interface {
	Upload(ctx context.Context, tenantID, id string) (*taskstore.PartialUpload, error)
	Uploads(ctx context.Context, tenantID, datasetID, fingerprint string, p taskstore.Page) ([]taskstore.PartialUpload, string, error)
	DropUpload(ctx context.Context, tenantID, id string) error
}

// Webhooks stores webhooks.
type Webhooks interface {
	CreateWebhook(ctx context.Context, w taskstore.Webhook) (*taskstore.Webhook, error)
	Webhook(ctx context.Context, tenantID, datasetID, id string) (*taskstore.Webhook, error)
	Webhooks(ctx context.Context, tenantID, datasetID string) ([]taskstore.Webhook, error)
	UpdateWebhook(ctx context.Context, w taskstore.Webhook) error
	DeleteWebhook(ctx context.Context, tenantID, datasetID, id string) error
}

// Runs reads and wipes runs over datasets.
type Runs interface {
	Runs(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, p taskstore.Page) ([]taskstore.DatasetRun, string, error)
	Run(ctx context.Context, tenantID, datasetID, id string) (*taskstore.DatasetRun, error)
	WipeRuns(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind) (int, error)
	Spent(ctx context.Context, tenantID, name string) (int64, error)
	RaiseCap(ctx context.Context, tenantID, name string, tokens int64) error
	RunForecast(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, sameOptions bool) (taskstore.RunForecast, error)
	RunResults(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, documentID, after string, limit int) ([]taskstore.RunResult, error)
}

// Splits stores names that datasets' graphs keep apart.
type Splits interface {
	AddSplit(ctx context.Context, tenantID, datasetID string, names []string) (*taskstore.Split, error)
	Splits(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Split, string, error)
	RemoveSplit(ctx context.Context, tenantID, datasetID, id string) error
}

// Flows stores the versions of flows.
type Flows interface {
	CreateFlow(ctx context.Context, f taskstore.FlowVersion, dryRun bool) (*taskstore.FlowVersion, error)
	Flow(ctx context.Context, tenantID, name string, version int) (*taskstore.FlowVersion, error)
	Flows(ctx context.Context, tenantID string, p taskstore.Page) ([]taskstore.FlowVersion, string, error)
	FlowVersions(ctx context.Context, tenantID, name string) ([]taskstore.FlowVersion, error)
	DeleteFlow(ctx context.Context, tenantID, name string, version int) ([]int, error)
}

// Deliveries reads and resends webhook deliveries.
type Deliveries interface {
	Deliveries(ctx context.Context, w *taskstore.Webhook, states []taskstore.DeliveryState, p taskstore.Page) ([]taskstore.Delivery, string, error)
	ReplayDeliveries(ctx context.Context, w *taskstore.Webhook, r taskstore.Replay) (int, error)
	PingWebhook(ctx context.Context, w *taskstore.Webhook) (*taskstore.Delivery, error)
}

// Receipts reads deletion receipts.
type Receipts interface {
	Receipts(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Receipt, string, error)
	Receipt(ctx context.Context, tenantID, id string) (*taskstore.Receipt, error)
	ReceiptDocuments(ctx context.Context, tenantID, id string, p taskstore.Page) ([]taskstore.ReceiptDocument, string, error)
}

// Idempotency stores idempotency keys.
type Idempotency interface {
	Idempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) (taskstore.KeyedState, error)
	ReadIdempotent(ctx context.Context, r taskstore.KeyedRequest, body string) error
	RenewIdempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) error
	FinishIdempotent(ctx context.Context, r taskstore.KeyedRequest, answer []byte) error
	LeaveIdempotent(ctx context.Context, r taskstore.KeyedRequest) error
}

// Queues is the operators' view of the queues.
type Queues interface {
	Queue(ctx context.Context, tenantID string) (*taskstore.TenantQueue, error)
	Queues(ctx context.Context, p taskstore.Page) ([]taskstore.TenantQueue, string, error)
	Workers(ctx context.Context) ([]taskstore.WorkerStatus, error)
	Task(ctx context.Context, tenantID, id string) (*sheaf.Task, error)
}

// DeadLetters reads, retries and purges dead tasks, and cleans up old data.
type DeadLetters interface {
	DeadLetters(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter, p taskstore.Page) ([]sheaf.Task, string, error)
	RetryDead(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (int, error)
	PurgeDead(ctx context.Context, tenantID string, f taskstore.DeadLetterFilter) (int, error)
	Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error)
}

// Log reads events and statistics.
type Log interface {
	Events(ctx context.Context, tenantID string, f taskstore.EventFilter, after int64, limit int) ([]sheaf.Event, error)
	LastEventOf(ctx context.Context, tenantID string, f taskstore.EventFilter) (int64, error)
	TaskEvents(ctx context.Context, tenantID, id string) ([]sheaf.Event, error)
	Stats(ctx context.Context, tenantID string, minutes, bucket int) (*taskstore.Stats, error)
}
