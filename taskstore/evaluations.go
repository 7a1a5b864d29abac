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
	DocumentID string `json:"document_id,omitempty" doc:"absent: any document that contains the text"`
	From       int    `json:"from,omitempty" doc:"first page that answers; absent: any of the document"`
	To         int    `json:"to,omitempty" doc:"last page that answers; absent: from"`
	Text       string `json:"text,omitempty" doc:"text that the hit contains, ignoring case and white space"`
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
	Version   int              `json:"version" doc:"increases with each change: evaluations compare a query only with the same version"`
	Question  string           `json:"question" doc:"the question as asked"`
	Source    QuerySource      `json:"source,omitempty" enum:"headings,chunks" doc:"what the question was generated from; absent: written by a user"`
	Expected  []ExpectedAnswer `json:"expected" nullable:"false" doc:"empty if the expected documents were deleted: the query is then skipped in evaluations"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

// FoundPage is a page that search found.
type FoundPage struct {
	DocumentID string `json:"document_id"`
	Page       int    `json:"page,omitempty" doc:"page; absent if the document has none"`
}

// QueryResult is an evaluation's result for one query. It contains no text, so that
// it keeps nothing of a document.
type QueryResult struct {
	QueryID string  `json:"query_id" doc:"id of the saved query"`
	Version int     `json:"version" doc:"version of the query"`
	Rank    int     `json:"rank" doc:"rank of the first expected page among the found pages, from 1; 0: not found"`
	Recall  float64 `json:"recall" doc:"fraction of the expected hits in the first ten pages"`
	NDCG    float64 `json:"ndcg" doc:"nDCG of the first ten pages: 1 if all expected hits come first"`

	First []FoundPage `json:"first,omitempty" doc:"the first three pages that were found"`
}

// Measures aggregates the results of queries. All but Queries are means, 0–1.
type Measures struct {
	Queries int     `json:"queries" doc:"queries that were run"`
	Hit1    float64 `json:"hit_1" doc:"fraction of queries with an expected hit in first place"`
	Hit5    float64 `json:"hit_5" doc:"the same within the first five pages"`
	Hit10   float64 `json:"hit_10" doc:"the same within the first ten pages"`
	Recall  float64 `json:"recall" doc:"mean fraction of the expected hits in the first ten pages"`
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
	Cause     EvaluationCause `json:"cause,omitempty" doc:"trigger: a request, a change of saved queries, model or settings, or a re-parse"`
	State     EvaluatedState  `json:"-"`
	Model     string          `json:"model" doc:"model of the searched index"`
	Stale     bool            `json:"stale,omitempty" doc:"some searches ran on an incomplete index: compare with care, or run it again"`
	Measures  Measures        `json:"measures" doc:"aggregates over all queries"`
	Results   []QueryResult   `json:"results,omitempty" doc:"results by query; absent in lists"`
	CreatedAt time.Time       `json:"created_at"`
}
