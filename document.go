package sheaf

import (
	"encoding/json"
	"time"
)

// DocumentState is the state of a document, and of a job, which folds those of
// its documents.
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
	Cap       int       `json:"cap"`    // tasks running at once, ≥ 1
	Paused    bool      `json:"paused"`
	Quota     Quota     `json:"quota"`
	CreatedAt time.Time `json:"created_at"`
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
	CreatedAt   time.Time   `json:"created_at"`
	UpdatedAt   time.Time   `json:"updated_at"`
}

// ParseConfig shapes how a document becomes chunks. A field that was not set
// means "as the dataset says", and there "the default"; see Merge and
// WithDefaults. A zero that JSON names is set, and JSON keeps it: 0, "", false
// and []. null takes the setting back; see Patch. A zero that Go code assigns
// is not set. Each field has its line in Settings.
type ParseConfig struct {
	ChunkMethod       string   `json:"chunk_method,omitempty"`       // "general"
	ChunkTokenNum     int      `json:"chunk_token_num,omitempty"`    // most tokens (cl100k_base) in a chunk, default 512
	Delimiter         string   `json:"delimiter,omitempty"`          // characters that end a piece; `backticked` strings always cut
	OverlappedPercent int      `json:"overlapped_percent,omitempty"` // 0–50: tokens of a chunk repeated at the start of the next
	ChildrenDelimiter string   `json:"children_delimiter,omitempty"` // cuts chunks into children, written like Delimiter; default none
	HTML4Excel        *bool    `json:"html4excel,omitempty"`         // tables as HTML instead of Markdown
	TOCExtraction     *bool    `json:"toc_extraction,omitempty"`     // one more chunk per range: its headings with their pages
	ImageContextSize  int      `json:"image_context_size,omitempty"` // tokens of text around an image embedded with it
	TableContextSize  int      `json:"table_context_size,omitempty"` // tokens of text around a table embedded with it
	OCRPictures       *bool    `json:"ocr_pictures,omitempty"`       // text in pictures of documents, decks and books
	AutoKeywords      int      `json:"auto_keywords,omitempty"`      // keywords a chunk, by the chat model, else by counting
	AutoQuestions     int      `json:"auto_questions,omitempty"`     // questions a chunk answers, by the chat model
	AutoContext       *bool    `json:"auto_context,omitempty"`       // a sentence or two, by the chat model, on where a chunk stands
	PII               string   `json:"pii,omitempty"`                // personal data: "none", "find" or "redact"
	TagKBIDs          []string `json:"tag_kb_ids,omitempty"`         // datasets cut by method tag whose tags the chunks get
	TopNTags          int      `json:"topn_tags,omitempty"`          // tags a chunk gets, default 3
	TaskPageSize      int      `json:"task_page_size,omitempty"`     // pages per task, default 12
	Pages             []Range  `json:"pages,omitempty"`              // units to read, [from, to], 1-based inclusive; default all
	TableRows         int      `json:"table_rows,omitempty"`         // rows per task of a spreadsheet or CSV, default 3,000
	Encoding          string   `json:"encoding,omitempty"`           // of text files, when the guess is wrong
	MediaType         string   `json:"media_type,omitempty"`         // overrides what sniffing found
	Password          string   `json:"password,omitempty"`           // write-only: never returned

	zeros fieldSet // fields set to their zero value
	nulls fieldSet // fields set to null
}

// DefaultParseConfig is what a field left empty everywhere means, unless the
// chunk method has a default of its own.
var DefaultParseConfig = ParseConfig{
	ChunkMethod:   "general",
	ChunkTokenNum: 512,
	Delimiter:     "\n。；！？",
	TaskPageSize:  12,
	TopNTags:      3,
	TableRows:     3000,
}

// NeedsChat names the setting that no chunk can get without a chat model, ""
// where there is none.
func (c ParseConfig) NeedsChat() string {
	switch {
	case c.AutoQuestions > 0:
		return "auto_questions"
	case c.AutoContext != nil && *c.AutoContext:
		return "auto_context"
	}
	return ""
}

// Document is a file and what became of it.
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
	DuplicateOf    string            `json:"duplicate_of,omitempty"`
	ParentID       string            `json:"parent_id,omitempty"` // the archive that it is a file of
	Path           string            `json:"path,omitempty"`      // in that archive
	Depth          int               `json:"-"`                   // archives around it; 0 for what was uploaded
	JobID          string            `json:"job_id,omitempty"`
	Lane           Lane              `json:"lane"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
	StartedAt      time.Time         `json:"started_at,omitzero"`
	FinishedAt     time.Time         `json:"finished_at,omitzero"`
	FinalizeEpoch  int64             `json:"-"` // grows each time a generation is decided complete
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
}

// JobKind says what a job was asked to do.
type JobKind string

const (
	JobIngest  JobKind = "ingest"
	JobReparse JobKind = "reparse"
	JobRetry   JobKind = "retry"
)

// Job is one request over one or many documents: the thing that a caller
// waits for.
type Job struct {
	ID         string         `json:"id"`
	TenantID   string         `json:"-"`
	DatasetID  string         `json:"dataset_id"`
	Kind       JobKind        `json:"kind"`
	State      DocumentState  `json:"state"`
	Paused     bool           `json:"paused"`
	Progress   float64        `json:"progress"`
	Documents  JobDocuments   `json:"documents"`
	Stages     []JobStage     `json:"stages"`
	Statistics JobStatistics  `json:"statistics"`
	Usage      Usage          `json:"usage"`
	Reused     Reused         `json:"reused"`
	Queue      *QueuePosition `json:"queue,omitempty"`
	CreatedAt  time.Time      `json:"created_at"`
	StartedAt  time.Time      `json:"started_at,omitzero"`
	FinishedAt time.Time      `json:"finished_at,omitzero"`
}

// JobDocuments counts a job's documents by state.
type JobDocuments struct {
	Total   int                   `json:"total"`
	ByState map[DocumentState]int `json:"by_state"`
}

// JobStage is the progress of one stage over all tasks of a job.
type JobStage struct {
	Name       string    `json:"name"` // parse, chunk, embed, index
	Total      int       `json:"total"`
	Done       int       `json:"done"`
	Failed     int       `json:"failed"`
	Reused     int       `json:"reused"`
	Unit       string    `json:"unit"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// JobStatistics is what a job found out about the files it was given.
type JobStatistics struct {
	Scanned   int `json:"scanned"`
	New       int `json:"new"`
	Modified  int `json:"modified"`
	Unchanged int `json:"unchanged"`
	Deleted   int `json:"deleted"`
	Skipped   int `json:"skipped"`
	Failed    int `json:"failed"`
}

// Reused is the receipt for work that did not have to be done again.
type Reused struct {
	Ranges int `json:"ranges"`
	Pages  int `json:"pages"`
	Chunks int `json:"chunks"`
	Tokens int `json:"tokens"`
}

// QueuePosition is how long a job may still take, honestly: as a range.
type QueuePosition struct {
	AheadOwn    int `json:"ahead_own"`    // tasks of the same tenant that will be served first
	AheadOthers int `json:"ahead_others"` // of other tenants
	ETASeconds  ETA `json:"eta_seconds"`
	// Delayed tells of work that was put off; nil where none is.
	Delayed *Delay `json:"delayed,omitempty"`
}

// Delay is why a task waits though it could run, and until when.
type Delay struct {
	Reason string    `json:"reason" doc:"in words, such as that the embedding server asks to slow down"`
	NextAt time.Time `json:"next_at" doc:"when it is tried again"`
}

// ETA holds quantiles in seconds; nil where nothing has been measured yet.
type ETA struct {
	P50 *float64 `json:"p50"`
	P90 *float64 `json:"p90"`
}

// PlanResult is what planning found out about the document itself; it is
// written to the document and its generation with the completion of the plan.
type PlanResult struct {
	Parser   string // id and version, "pdf/1"
	Unit     Unit
	Units    int               // in the file, not only those requested
	Metadata map[string]string // title, author, producer …
	Warnings []Warning
	Outline  json.RawMessage // []Heading
}

// MaxNameRunes bounds a document's name: what the store takes.
const MaxNameRunes = 500

// ClipName cuts a name that is too long in the middle, since its end tells the
// format.
func ClipName(name string) string {
	if r := []rune(name); len(r) > MaxNameRunes {
		const end = 50
		name = string(r[:MaxNameRunes-end-1]) + "…" + string(r[len(r)-end:])
	}
	return name
}
