package taskstore

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
)

// Limits on runs over datasets.
const (
	MaxRuns      = 20       // kept per kind and dataset
	MaxRunResult = 16 << 10 // bytes of DatasetRun.Result and of RunOptions.Config
)

// RunState is the state of a run over a dataset. While its task is open it is the
// task's state; afterwards it is the run's outcome.
type RunState string

// States of runs.
const (
	RunQueued    RunState = "queued"
	RunRunning   RunState = "running"
	RunParked    RunState = "parked" // at its budget, keeping its results; it continues when resumed
	RunSucceeded RunState = "succeeded"
	RunPartial   RunState = "partially_succeeded" // part of it failed; a resumed run retries that
	RunFailed    RunState = "failed"
	RunCanceled  RunState = "canceled"
)

// Open reports whether the run blocks others of its kind over the dataset.
func (s RunState) Open() bool { return s == RunQueued || s == RunRunning }

// RunOptions are the options of a run.
type RunOptions struct {
	MaxTokens int64           `json:"max_tokens,omitempty"` // that a model may read and write for it; 0 for no limit
	MaxPrice  float64         `json:"max_price,omitempty"`  // in the currency of Price; 0 for no limit
	Price     float64         `json:"price,omitempty"`      // per million tokens
	Config    json.RawMessage `json:"config,omitempty"`     // options of the kind
	// AutoUpdate, if not 0, starts the next run automatically this long after this one
	// ended, if documents have changed by then.
	AutoUpdate time.Duration `json:"auto_update,omitempty"`
}

// Tokens is the token limit implied by both budgets, 0 for none.
func (o RunOptions) Tokens() int64 {
	most := o.MaxTokens
	if o.MaxPrice > 0 && o.Price > 0 {
		if n := max(int64(o.MaxPrice/o.Price*1e6), 1); most == 0 || n < most {
			most = n
		}
	}
	return most
}

// Spending is an account that language model tokens are charged to.
type Spending struct {
	Name string
	Cap  int64 // in tokens; 0 for none
	// Raised names the cap that users have set in place of Cap, if higher; "" if it
	// cannot be raised.
	Raised string
}

// NoCap is a cap that is never reached.
const NoCap = math.MaxInt64 / 2

// VersionSpending is the account of a version of a document.
func VersionSpending(documentID string, generation int, most int64) Spending {
	of := fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("%s/%d", documentID, generation)))
	return Spending{Name: "run/" + of, Cap: most, Raised: "cap/" + of}
}

// Failure codes of tasks waiting at a cap.
const (
	BudgetSpent    = "budget_spent"     // of the version of its document
	DayBudgetSpent = "day_budget_spent" // of the tenant's day
)

// RunProgress is a run's progress and spending.
type RunProgress struct {
	Phase  string `json:"phase,omitempty"` // set by the kind: a word or two for people
	Done   int    `json:"done"`            // of the phase
	Total  int    `json:"total"`
	Tokens int64  `json:"tokens"` // that a model read and wrote, over all attempts
	Calls  int    `json:"calls"`  // to a model, over all attempts
	Cached int    `json:"cached"` // answers from the cache, in the latest attempt
}

// DatasetRun is one run of a kind over the documents of a dataset.
type DatasetRun struct {
	ID        string
	TenantID  string
	DatasetID string
	Kind      sheaf.TaskKind
	Number    int // sequence number among the runs of its kind over the dataset; only the highest may write
	TaskID    string
	State     RunState
	Options   RunOptions
	Progress  RunProgress
	Cause     string          // why it is parked, partial or failed, one sentence
	Result    json.RawMessage // set by the kind; nil for none
	Documents int             // live when it began
	Behind    int             // documents changed, added or removed since; set by Run only
	Failure   *sheaf.Failure  // of its latest attempt

	CreatedAt  time.Time
	StartedAt  time.Time // zero until it runs
	FinishedAt time.Time // zero until it ends
}

// RunDocument is a document as a run reads it.
type RunDocument struct {
	ID         string
	Name       string
	MediaType  string
	Generation int
	Ranges     []RunRange // in order
	// Users' edits: Edited are ranges of one chunk each; Version changes with every
	// edit.
	Edited  []RunEdit
	Version int
}

// RunEdit is a chunk that users edited.
type RunEdit struct {
	BaseRange string // range of the chunk it replaces or follows
	ChunkID   string // the chunk it replaces or hides, or that an added one follows; "" at the end
	RangeID   string // range with its content; "" if it is hidden
	Added     bool
}

// RunRange is a stored range result of a document.
type RunRange struct {
	Range       sheaf.Range
	RangeID     string
	ArtifactKey string
	Chunks      int
}

// RunSource is a document whose text a result contains, as it was read.
type RunSource struct {
	DocumentID string
	Generation int
	Version    int // RunDocument.Version
}

// RunResult is a run's result for search: a stored range, visible while each of its
// sources is live in the generation that was read. It is removed with the first
// source that is deleted, re-parsed or edited.
type RunResult struct {
	RangeID    string // begins with sheaf.RunRangePrefix, and is reserved
	Kind       sheaf.TaskKind
	DocumentID string // one of the sources, stored with its artifacts
	Name       string // identifies all its inputs, at most 64 bytes; a result with an existing name is not made again
	Layer      int    // 0 for a result of one document, otherwise its height above those
	Chunks     int
	Tokens     int
	Sources    []RunSource // set on Put
}

// MaxRunSources bounds the documents per result.
const MaxRunSources = 1000

// RunForecast counts what a run would cover.
type RunForecast struct {
	Documents int   // live ones
	Current   int   // of these, with a result of the kind
	Chunks    int64 // of the others
	Tokens    int64 // of the others
}

// RunEnd is the outcome of a run whose task is done.
type RunEnd struct {
	State    RunState // RunSucceeded, RunPartial or RunParked
	Cause    string
	Progress RunProgress
	Result   json.RawMessage
}

// RunOpen says that a run of the kind is open over the dataset.
type RunOpen struct {
	ID   string
	Kind sheaf.TaskKind
}

func (e *RunOpen) Error() string {
	return fmt.Sprintf("the run %s of %s is not over; wait for it, or cancel it first", e.ID, e.Kind)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *RunOpen) Is(target error) bool { return target == sheaf.ErrConflict }
