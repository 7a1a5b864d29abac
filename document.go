package sheaf

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// DocumentState is the state of a document, or of a job as the rollup of its
// documents' states.
type DocumentState string

const (
	DocUnstarted          DocumentState = "unstarted"
	DocQueued             DocumentState = "queued"
	DocRunning            DocumentState = "running"
	DocFinalizing         DocumentState = "finalizing"
	DocSucceeded          DocumentState = "succeeded"
	DocPartiallySucceeded DocumentState = "partially_succeeded"
	DocFailed             DocumentState = "failed"
	DocCanceling          DocumentState = "canceling"
	DocCanceled           DocumentState = "canceled"
)

// Terminal reports whether the state ends a generation.
func (s DocumentState) Terminal() bool {
	switch s {
	case DocSucceeded, DocPartiallySucceeded, DocFailed, DocCanceled:
		return true
	}
	return false
}

// Tenant owns datasets. Weight and Cap govern its share of the executors.
type Tenant struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Weight    int       `json:"weight"` // share of service relative to other tenants, ≥ 1
	Cap       int       `json:"cap"`    // tasks running at once; 0 for FleetCap
	Paused    bool      `json:"paused"`
	Quota     Quota     `json:"quota"`
	CreatedAt time.Time `json:"created_at"`
}

// leastCap is also the cap before the first executor is up.
const leastCap = 8

// FleetCap returns the cap of tenants without one of their own in a fleet with so
// many workers: a tenant that is alone may use them all. It is a third more than
// the workers, since executors claim ahead, and a power of two: otherwise each
// executor that comes or goes would have the shares of all tenants sent to the queue
// again.
func FleetCap(workers int) int {
	fleet := leastCap
	for fleet < workers+workers/3 {
		fleet *= 2
	}
	return fleet
}

// Quota bounds what a tenant may hold. Zero means no bound.
type Quota struct {
	Documents   int   `json:"documents"`
	Bytes       int64 `json:"bytes"`
	QueuedTasks int   `json:"queued_tasks"`
}

// Key is an API key. Only a hash of the secret is stored.
type Key struct {
	ID        string    `json:"id"`
	TenantID  string    `json:"tenant_id"`
	Name      string    `json:"name"`
	Scopes    []string  `json:"scopes"` // read, write, admin
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // from then on it is refused; zero means never
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Dataset groups documents that are searched together and share settings.
type Dataset struct {
	ID          string      `json:"id"`
	TenantID    string      `json:"-"`
	Name        string      `json:"name"` // unique within the tenant
	ParseConfig ParseConfig `json:"parser_config"`
	Paused      bool        `json:"paused"`
	Documents   int         `json:"documents"`
	Chunks      int         `json:"chunks"`
	Attributes  Attributes  `json:"attributes,omitempty"`
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// Attributes are JSON values that client programs store with a dataset or a
// document, by keys that begin with the program's name ("crm.id"). The pipeline does
// not read them and search does not see them. Values are kept as written: decoding
// would lose the digits of large integers.
type Attributes map[string]json.RawMessage

// Limits on attributes, as JSON: lists show up to a thousand documents with theirs.
const (
	MaxDatasetAttributes  = 256 << 10
	MaxDocumentAttributes = 16 << 10
)

// Change merges to over a; a null value removes its key. Neither map is modified.
func (a Attributes) Change(to Attributes) Attributes {
	out := maps.Clone(a)
	if out == nil {
		out = Attributes{}
	}
	for key, value := range to {
		if out[key] = value; len(value) == 0 || string(value) == "null" {
			delete(out, key)
		}
	}
	return out
}

// Encode returns a as JSON, or "" when it is empty. More than most bytes are
// refused; errors are ErrInvalid and name the owner, of.
func (a Attributes) Encode(of string, most int) (string, error) {
	if len(a) == 0 {
		return "", nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("%w: the attributes of %s are no JSON: %w", ErrInvalid, of, err)
	}
	if len(text) > most {
		return "", fmt.Errorf("%w: the attributes of %s take at most %d KiB as JSON, these %d; shorten them", ErrInvalid, of, most>>10, (len(text)+1023)>>10)
	}
	return string(text), nil
}

// Document is a file and its processing state.
type Document struct {
	ID             string            `json:"id"`
	TenantID       string            `json:"-"`
	DatasetID      string            `json:"dataset_id"`
	Name           string            `json:"name"`
	MediaType      string            `json:"media_type"`
	Size           int64             `json:"size"`
	SHA256         string            `json:"sha256"`
	BlobKey        string            `json:"-"`
	State          DocumentState     `json:"state"`
	Progress       float64           `json:"progress"` // 0–1, never falls within a generation
	Units          int               `json:"units"`
	Unit           Unit              `json:"unit,omitempty"`
	Generation     int               `json:"generation"`      // the newest requested
	LiveGeneration int               `json:"live_generation"` // the one search sees; 0 before the first
	Chunks         int               `json:"chunks"`          // of the live generation
	Tokens         int               `json:"tokens"`
	Ledger         LedgerCounts      `json:"ledger"` // of the newest generation
	Failure        *Failure          `json:"failure,omitempty"`
	Warnings       []Warning         `json:"warnings"`
	Parser         string            `json:"parser,omitempty"`
	ParseConfig    ParseConfig       `json:"parser_config"`
	Metadata       map[string]string `json:"metadata"`
	Attributes     Attributes        `json:"attributes,omitempty"`
	DuplicateOf    string            `json:"duplicate_of,omitempty"`
	ParentID       string            `json:"parent_id,omitempty"` // the archive it is a member of
	Path           string            `json:"path,omitempty"`      // within that archive
	Depth          int               `json:"-"`                   // archives around it; 0 for an uploaded file
	JobID          string            `json:"job_id,omitempty"`
	Lane           Lane              `json:"lane"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	StartedAt      time.Time         `json:"started_at,omitzero"`
	FinishedAt     time.Time         `json:"finished_at,omitzero"`
	NotBefore      time.Time         `json:"not_before,omitzero"` // of a queued document: its scheduled time
	FinalizeEpoch  int64             `json:"-"`                   // increases each time a generation is found complete
}

// Generation is one parse request of a document and its outcome.
type Generation struct {
	DocumentID  string        `json:"document_id"`
	Generation  int           `json:"generation"`
	JobID       string        `json:"job_id"`
	State       DocumentState `json:"state"`
	ParseConfig ParseConfig   `json:"parser_config"`
	Parser      string        `json:"parser,omitempty"`
	Units       int           `json:"units"`
	Unit        Unit          `json:"unit,omitempty"`
	Chunks      int           `json:"chunks"`
	Tokens      int           `json:"tokens"`
	Ledger      LedgerCounts  `json:"ledger"`
	Failure     *Failure      `json:"failure,omitempty"`
	CreatedAt   time.Time     `json:"created_at"`
	FinishedAt  time.Time     `json:"finished_at,omitzero"`
	PublishedAt time.Time     `json:"published_at,omitzero"`
	Flow        *FlowDecision `json:"-"` // nil for the standard pipeline
}

// JobKind is what a job was asked to do.
type JobKind string

const (
	JobIngest  JobKind = "ingest"
	JobReparse JobKind = "reparse"
	JobRetry   JobKind = "retry"
)

// Job is one request over one or many documents: the thing a caller waits for.
type Job struct {
	ID         string         `json:"id"`
	TenantID   string         `json:"-"`
	DatasetID  string         `json:"dataset_id"`
	Kind       JobKind        `json:"kind"`
	Name       string         `json:"name"`                // set by the client, or taken from its first files
	Requester  string         `json:"requester,omitempty"` // the name of the key that asked for it
	OpenUntil  time.Time      `json:"open_until,omitzero"` // of a job that accepts more files: when it closes unless some arrive
	Files      []string       `json:"-"`                   // the first files it was given, for its name
	State      DocumentState  `json:"state"`
	Paused     bool           `json:"paused"`
	Progress   float64        `json:"progress"`
	Documents  JobDocuments   `json:"documents"`
	Stages     []JobStage     `json:"stages"`
	Statistics JobStatistics  `json:"statistics"`
	Usage      Usage          `json:"usage"`
	Reused     Reused         `json:"reused"`
	Queue      *QueuePosition `json:"queue,omitempty"`
	// UnservedPools are the pools in which tasks of the job wait but which no executor
	// serves. Lists of jobs omit it.
	UnservedPools []string  `json:"unserved_pools,omitempty"`
	NotBefore     time.Time `json:"not_before,omitzero"` // while documents wait for their scheduled time
	CreatedAt     time.Time `json:"created_at"`
	StartedAt     time.Time `json:"started_at,omitzero"`
	FinishedAt    time.Time `json:"finished_at,omitzero"`
}

// MaxJobDocuments is the maximum number of files per job.
const MaxJobDocuments = 10_000

// JobDocuments counts a job's documents by state.
type JobDocuments struct {
	Total   int                   `json:"total"`
	ByState map[DocumentState]int `json:"by_state"`
}

// JobStage is the progress of one stage over all tasks of a job, in units.
type JobStage struct {
	Name       string    `json:"name"` // parse, chunk, embed, index
	Total      int       `json:"total"`
	Done       int       `json:"done"`   // have passed the stage, including Reused
	Failed     int       `json:"failed"` // ended in it; canceled tasks are neither done nor failed
	Reused     int       `json:"reused"` // of Done: the stage did not run for them
	Unit       string    `json:"unit"`
	StartedAt  time.Time `json:"started_at,omitzero"`  // of the first stage: when the first task began
	FinishedAt time.Time `json:"finished_at,omitzero"` // of the last stage: when the last task ended
}

// JobStatistics is what a job found out about its files.
type JobStatistics struct {
	Scanned   int `json:"scanned"`
	New       int `json:"new"`
	Modified  int `json:"modified"`
	Unchanged int `json:"unchanged"`
	Deleted   int `json:"deleted"`
	Skipped   int `json:"skipped"`
	Failed    int `json:"failed"`
}

// Reused counts the work that did not have to be repeated.
type Reused struct {
	Ranges int `json:"ranges"`
	Pages  int `json:"pages"`
	Chunks int `json:"chunks"`
	Tokens int `json:"tokens"`
}

// QueuePosition is an estimate of how long a job may still take, as a range.
type QueuePosition struct {
	AheadOwn    int `json:"ahead_own"`    // tasks of the same tenant that will be served first
	AheadOthers int `json:"ahead_others"` // of other tenants
	ETASeconds  ETA `json:"eta_seconds"`
	// Delayed describes postponed work; nil when there is none.
	Delayed *Delay `json:"delayed,omitempty"`
}

// Delay is why a runnable task is waiting, and until when.
type Delay struct {
	Reason string    `json:"reason"`  // in words, e.g. that the embedding server asks to slow down
	NextAt time.Time `json:"next_at"` // when it is tried again
}

// ETA holds quantiles in seconds; nil where nothing has been measured yet.
type ETA struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
}

// PlanResult is what planning found out about the document. It is written to the
// document and its generation when the plan completes.
type PlanResult struct {
	Parser   string // id and version, "pdf/1"
	Unit     Unit
	Units    int               // in the file, not only those requested
	Metadata map[string]string // title, author, producer …
	Warnings []Warning
	Flow     *FlowDecision // nil for the standard pipeline
}

// MetadataWith adds what the uploader said about the document, which takes precedence.
func (p *PlanResult) MetadataWith(given map[string]string) map[string]string {
	all := make(map[string]string, len(p.Metadata)+len(given))
	maps.Copy(all, p.Metadata)
	maps.Copy(all, given)
	return all
}

// FlowDecision is how a flow runs over a generation.
type FlowDecision struct {
	Ref     string            `json:"ref"`             // contracts@3
	Mode    string            `json:"mode"`            // whole or nodes
	Reason  string            `json:"reason"`          // why this mode, in one sentence
	Nodes   []string          `json:"nodes"`           // ids in execution order
	Kinds   []string          `json:"kinds,omitempty"` // of Nodes, in the same order
	Tasks   []string          `json:"tasks,omitempty"` // ids of nodes that have tasks of their own
	Last    []string          `json:"last,omitempty"`  // ids of nodes that run over the whole document, after its ranges
	Skipped map[string]string `json:"skipped,omitempty"`
	Asks    []string          `json:"asks,omitempty"` // ids of nodes that call a language model
}

// MaxNameRunes is the maximum length of a document's name in the store.
const MaxNameRunes = 500

// ClipName shortens an overlong name in the middle, because its end shows the
// format.
func ClipName(name string) string {
	if r := []rune(name); len(r) > MaxNameRunes {
		const end = 50
		name = string(r[:MaxNameRunes-end-1]) + "…" + string(r[len(r)-end:])
	}
	return name
}
