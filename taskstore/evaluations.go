package taskstore

import "time"

// Limits on saved queries and evaluations.
const (
	MaxQueries     = 1000 // per dataset
	MaxExpected    = 20   // hits per query
	MaxEvaluations = 100  // per dataset; older ones are deleted
	MaxQuestion    = 2000 // characters
)

// ExpectedAnswer is a hit that a query should have: pages of a document, the whole
// document, or a text, in that document or any.
type ExpectedAnswer struct {
	DocumentID string `json:"document_id,omitempty" doc:"absent: any document that says the text"`
	From       int    `json:"from,omitempty" doc:"first page that answers; absent: any of the document"`
	To         int    `json:"to,omitempty" doc:"last page that answers; absent: from"`
	Text       string `json:"text,omitempty" doc:"that the hit says, whatever the case and white space"`
}

// QuerySource is what a saved query was generated from.
type QuerySource string

// Sources; "" means written by a user.
const (
	SourceHeadings QuerySource = "headings"
	SourceChunks   QuerySource = "chunks"
)

// DatasetRef names a dataset.
type DatasetRef struct{ TenantID, DatasetID string }

// SavedQuery is a question about a dataset with known answers.
type SavedQuery struct {
	ID        string           `json:"id"`
	TenantID  string           `json:"-"`
	DatasetID string           `json:"dataset_id"`
	Version   int              `json:"version" doc:"grows with each change: evaluations compare a query with itself only while it is the same"`
	Question  string           `json:"question" doc:"as it is asked"`
	Source    QuerySource      `json:"source,omitempty" enum:"headings,chunks" doc:"what the question was generated from; absent: somebody wrote it"`
	Expected  []ExpectedAnswer `json:"expected" nullable:"false" doc:"empty when the documents that were expected are deleted: the query is left out of evaluations then"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

// FoundPage is a page that search found.
type FoundPage struct {
	DocumentID string `json:"document_id"`
	Page       int    `json:"page,omitempty" doc:"absent: the document has none"`
}

// QueryResult is an evaluation's result for one query. It contains no text, so that
// it keeps nothing of a document.
type QueryResult struct {
	QueryID string  `json:"query_id" doc:"id of the saved query"`
	Version int     `json:"version" doc:"of the query that was asked"`
	Rank    int     `json:"rank" doc:"of the first expected page among the pages that were found, from 1; 0: not among them"`
	Recall  float64 `json:"recall" doc:"share of the expected hits on the first ten pages"`
	NDCG    float64 `json:"ndcg" doc:"of the first ten pages: 1 when all expected hits come first"`

	First []FoundPage `json:"first,omitempty" doc:"the first three pages that were found"`
}

// Measures aggregates the results of queries. All but Queries are means, 0–1.
type Measures struct {
	Queries int     `json:"queries" doc:"that were asked"`
	Hit1    float64 `json:"hit_1" doc:"share of the queries with an expected hit on the first page"`
	Hit5    float64 `json:"hit_5" doc:"on the first five pages"`
	Hit10   float64 `json:"hit_10" doc:"on the first ten pages"`
	Recall  float64 `json:"recall" doc:"mean share of the expected hits on the first ten pages"`
	MRR     float64 `json:"mrr" doc:"mean of 1/rank"`
	NDCG    float64 `json:"ndcg" doc:"mean nDCG of the first ten pages"`
}

// EvaluationCause is why an evaluation ran.
type EvaluationCause string

// Causes. The keeper detects all but the first.
const (
	CauseRequest  EvaluationCause = "request"
	CauseQueries  EvaluationCause = "queries"
	CauseModel    EvaluationCause = "model"
	CauseSettings EvaluationCause = "settings"
	CauseReparse  EvaluationCause = "reparse"
)

// EvaluationCauses lists all causes.
var EvaluationCauses = []EvaluationCause{CauseRequest, CauseQueries, CauseModel, CauseSettings, CauseReparse}

// EvaluatedState is what determines a dataset's search results, besides the model.
// It is empty in evaluations of earlier versions.
type EvaluatedState struct {
	Queries  string `json:"queries,omitempty"`  // digest of the saved queries
	Settings string `json:"settings,omitempty"` // digest of the dataset's
	Reparse  string `json:"reparse,omitempty"`  // id of the last re-parse job
}

// Evaluation is one measurement of a dataset's saved queries.
type Evaluation struct {
	ID        string          `json:"id"`
	TenantID  string          `json:"-"`
	DatasetID string          `json:"dataset_id"`
	Cause     EvaluationCause `json:"cause,omitempty" doc:"why it ran: a request, or a change of saved queries, model or settings, or documents that were parsed again"`
	State     EvaluatedState  `json:"-"`
	Model     string          `json:"model" doc:"of the index that was searched"`
	Stale     bool            `json:"stale,omitempty" doc:"some searches did not see all there is: compare with care, or run it again"`
	Measures  Measures        `json:"measures" doc:"sums over the queries"`
	Results   []QueryResult   `json:"results,omitempty" doc:"of each query; absent in lists"`
	CreatedAt time.Time       `json:"created_at"`
}
