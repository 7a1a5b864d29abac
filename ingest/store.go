package ingest

import (
	"context"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/taskstore"
)

// Catalog is what requests read and change. Every method is scoped by tenant:
// another tenant's id gives ErrNotFound.
type Catalog interface {
	Documents
	Changes
	Uploads
	Jobs
	Estimates
	flow.Versions
}

// Documents finds documents and their datasets.
type Documents interface {
	Dataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error)
	Document(ctx context.Context, tenantID, id string) (*sheaf.Document, error)
	Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error)
	Twins(ctx context.Context, tenantID, datasetID string, sums []string) (map[string][2]string, error)
	UnitLedger(ctx context.Context, tenantID, documentID string, generation int) (sheaf.Ledger, error)
}

// Changes makes, stops and deletes documents.
type Changes interface {
	CreateDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) (replaced []string, err error)
	HoldDocuments(ctx context.Context, tenantID, datasetID string, docs []sheaf.Document) error
	Reparse(ctx context.Context, job sheaf.Job, docs []taskstore.ReparseDocument, trace string) error
	CancelDocuments(ctx context.Context, tenantID string, ids []string) (taskstore.CancelReceipt, error)
	CancelTask(ctx context.Context, tenantID, id string, dryRun bool) (taskstore.CancelReceipt, error)
	StartRun(ctx context.Context, r taskstore.DatasetRun, trace string) (*taskstore.DatasetRun, error)
	ResumeRun(ctx context.Context, tenantID, datasetID, id string, options taskstore.RunOptions, trace string) (*taskstore.DatasetRun, error)
	Run(ctx context.Context, tenantID, datasetID, id string) (*taskstore.DatasetRun, error)
	RunsDue(ctx context.Context, limit int) ([]taskstore.DatasetRun, error)
	Runs(ctx context.Context, tenantID, datasetID string, kind sheaf.TaskKind, p taskstore.Page) ([]taskstore.DatasetRun, string, error)
	DatasetsThatRun(ctx context.Context, after string, limit int) ([]sheaf.Dataset, error)
	DatasetRest(ctx context.Context, tenantID, datasetID string) (live int, quiet time.Duration, err error)
	CancelRun(ctx context.Context, tenantID, datasetID, id string) (taskstore.CancelReceipt, error)
	DeleteDocuments(ctx context.Context, tenantID string, ids []string) (taskstore.DeleteReceipt, error)
	DeleteDataset(ctx context.Context, tenantID, id string) (taskstore.DeleteReceipt, error)
	SetPaused(ctx context.Context, tenantID string, scope taskstore.PauseScope, paused bool) (tasks int, err error)
}

// Uploads stores files that arrive in several requests.
type Uploads interface {
	CreateUpload(ctx context.Context, u taskstore.PartialUpload, life time.Duration) (*taskstore.PartialUpload, error)
	Upload(ctx context.Context, tenantID, id string) (*taskstore.PartialUpload, error)
	ClaimUpload(ctx context.Context, tenantID, id string, offset int64, life time.Duration) (*taskstore.PartialUpload, error)
	AdvanceUpload(ctx context.Context, u *taskstore.PartialUpload, last bool) error
	BindUploads(ctx context.Context, tenantID string, ids []string, jobID string) ([]taskstore.PartialUpload, error)
	UnbindUploads(ctx context.Context, tenantID, jobID string) error
}

// Jobs reads jobs, and opens those that take files from several requests.
type Jobs interface {
	OpenJob(ctx context.Context, job sheaf.Job, idle time.Duration) error
	JobTakes(ctx context.Context, tenantID, datasetID, id string, n int) error
	AddDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) (replaced []string, err error)
	CloseJob(ctx context.Context, tenantID, id string) error
	Job(ctx context.Context, tenantID, id string) (*sheaf.Job, error)
	JobGiven(ctx context.Context, tenantID, id string) (*sheaf.Job, error)
	JobDocuments(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]sheaf.Document, string, error)
}

// Estimates measures the work ahead, and what a change would stop.
type Estimates interface {
	Queue(ctx context.Context, tenantID string) (*taskstore.TenantQueue, error)
	Remaining(ctx context.Context, tenantID, jobID string) (taskstore.Remaining, error)
	Speed(ctx context.Context, stages ...string) (map[string]taskstore.Pace, error)
	StageTimes(ctx context.Context, tenantID string) (map[string]time.Duration, error)
	OpenTasks(ctx context.Context, tenantID string, ids []string) (queued, running int, err error)
}
