package taskstore

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
)

// Bounds on runs over datasets.
const (
	MaxRuns      = 20       // of a kind and dataset that are remembered
	MaxRunResult = 16 << 10 // bytes of DatasetRun.Result and of RunOptions.Config
)

// RunState is where a run over a dataset stands. While its task is open the
// state is the task's; afterwards it is what the run came to.
type RunState string

// States of runs.
const (
	RunQueued    RunState = "queued"
	RunRunning   RunState = "running"
	RunParked    RunState = "parked" // at its budget, with what it has; it goes on when it is resumed
	RunSucceeded RunState = "succeeded"
	RunPartial   RunState = "partially_succeeded" // something of it failed; a resumed run tries that again
	RunFailed    RunState = "failed"
	RunCanceled  RunState = "canceled"
)

// Open reports whether the run holds its dataset: no other of its kind begins.
func (s RunState) Open() bool { return s == RunQueued || s == RunRunning }

// RunOptions is what a run was asked for.
type RunOptions struct {
	MaxTokens int64           `json:"max_tokens,omitempty"` // that a model may read and write for it; 0 for no bound
	MaxPrice  float64         `json:"max_price,omitempty"`  // in the currency of Price; 0 for no bound
	Price     float64         `json:"price,omitempty"`      // of a million tokens
	Config    json.RawMessage `json:"config,omitempty"`     // of the kind
	// AutoUpdate, unless it is 0, begins the next run by itself so long after this
	// one ended, where documents have changed by then.
	AutoUpdate time.Duration `json:"auto_update,omitempty"`
}

// Tokens is the bound on tokens that both budgets come to, 0 for none.
func (o RunOptions) Tokens() int64 {
	most := o.MaxTokens
	if o.MaxPrice > 0 && o.Price > 0 {
		if n := max(int64(o.MaxPrice/o.Price*1e6), 1); most == 0 || n < most {
			most = n
		}
	}
	return most
}

// Spending is what tokens of a language model are spent on.
type Spending struct {
	Name string
	Cap  int64 // in tokens; 0 for none
	// Raised names the cap that people have set in place of Cap, where it is higher;
	// "" where nobody can.
	Raised string
}

// NoCap is a cap that nothing reaches.
const NoCap = math.MaxInt64 / 2

// VersionSpending is what a version of a document spends.
func VersionSpending(documentID string, generation int, most int64) Spending {
	of := fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprintf("%s/%d", documentID, generation)))
	return Spending{Name: "run/" + of, Cap: most, Raised: "cap/" + of}
}

// Codes of failures with which a task waits at a cap.
const (
	BudgetSpent    = "budget_spent"     // of the version of its document
	DayBudgetSpent = "day_budget_spent" // of the tenant's day
)

// RunProgress is how far a run is, and what it has spent.
type RunProgress struct {
	Phase  string `json:"phase,omitempty"` // of the kind: a word or two for people
	Done   int    `json:"done"`            // of the phase
	Total  int    `json:"total"`
	Tokens int64  `json:"tokens"` // that a model read and wrote, over all attempts
	Calls  int    `json:"calls"`  // of a model, over all attempts
	Cached int    `json:"cached"` // answers that were there, in the latest attempt
}

// DatasetRun is one run of a kind over the documents of a dataset.
type DatasetRun struct {
	ID        string
	TenantID  string
	DatasetID string
	Kind      sheaf.TaskKind
	Number    int // counts the runs of its kind over the dataset; of two the higher may write
	TaskID    string
	State     RunState
	Options   RunOptions
	Progress  RunProgress
	Cause     string          // why it is parked, partial or failed, in a sentence
	Result    json.RawMessage // what the kind says of it; nil for nothing
	Documents int             // that were live when it began
	Behind    int             // documents that have changed, come or gone since; set by Run alone
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
	Ranges     []RunRange // in their order
	// What people edited: Edited are ranges of one chunk each, Version changes with
	// any edit.
	Edited  []RunEdit
	Version int
}

// RunEdit is a chunk that people edited.
type RunEdit struct {
	BaseRange string // range of the chunk that it replaces, or stands behind
	ChunkID   string // that it replaces or hides, or that an added one follows; "" at the end
	RangeID   string // that holds what it says; "" for one that is hidden
	Added     bool
}

// RunRange is a stored range result of a document.
type RunRange struct {
	Range       sheaf.Range
	RangeID     string
	ArtifactKey string
	Chunks      int
}

// RunSource is a document whose text a result holds, as it was read.
type RunSource struct {
	DocumentID string
	Generation int
	Version    int // RunDocument.Version
}

// RunResult is what a run leaves for search: a stored range, visible while each
// of its sources is live in the generation that was read. With the first source
// that is deleted, parsed anew or edited it is gone.
type RunResult struct {
	RangeID    string // begins with sheaf.RunRangePrefix, and is reserved
	Kind       sheaf.TaskKind
	DocumentID string // one of the sources, with whose artifacts it lies
	Name       string // of all that made it, at most 64 bytes: the same is not made again
	Layer      int    // 0 for that of one document, else its height above those
	Chunks     int
	Tokens     int
	Sources    []RunSource // set when it is put
}

// MaxRunSources bounds the documents of one result.
const MaxRunSources = 1000

// RunForecast counts what a run would find.
type RunForecast struct {
	Documents int   // that are live
	Current   int   // of them that have a result of the kind
	Chunks    int64 // of the others
	Tokens    int64 // of the others
}

// RunEnd is how a run ends whose task is done.
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
