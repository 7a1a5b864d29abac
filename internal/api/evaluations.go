package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sheaf"
	"sheaf/internal/eval"
	"sheaf/taskstore"
)

// QueryPath names a saved query of a dataset.
type QueryPath struct {
	DatasetPath
	Query string `path:"query" maxLength:"64" doc:"id of the saved query"`
}

// EvaluationPath names an evaluation of a dataset.
type EvaluationPath struct {
	DatasetPath
	Evaluation string `path:"evaluation" maxLength:"64" doc:"id of the evaluation"`
}

// ExpectedHit is a hit that a query is expected to return.
type ExpectedHit struct {
	Document string `json:"document,omitempty" maxLength:"512" doc:"id or name of the document that answers; absent: any with the text"`
	From     int    `json:"from,omitempty" minimum:"1" doc:"first page that answers; absent: any of the document"`
	To       int    `json:"to,omitempty" minimum:"1" doc:"last page that answers; absent: from"`
	Text     string `json:"text,omitempty" maxLength:"2000" doc:"that the hit contains, ignoring case and white space"`
}

// NewQuery is a question with its expected hits.
type NewQuery struct {
	Question string        `json:"question" minLength:"1" maxLength:"2000" doc:"as users ask it"`
	Expected []ExpectedHit `json:"expected" minItems:"1" maxItems:"20" nullable:"false" doc:"hits that answer it"`
}

// QueriesImport saves many questions at once.
type QueriesImport struct {
	Queries []NewQuery `json:"queries" minItems:"1" maxItems:"1000" nullable:"false" doc:"an existing question gets these expected hits"`
}

// QueriesImported reports how many queries were saved.
type QueriesImported struct {
	Saved int `json:"saved" doc:"queries that are now as given"`
}

// GenerateQueries says what to generate questions from.
type GenerateQueries struct {
	From   taskstore.QuerySource `json:"from,omitempty" enum:"headings,chunks" default:"headings" doc:"headings: each is a question, answered by the pages of its section; chunks: the language model of chat.url writes a question about each"`
	Limit  int                   `json:"limit" required:"false" minimum:"1" maximum:"200" default:"50" doc:"maximum questions, across all documents"`
	DryRun bool                  `json:"dry_run,omitempty" doc:"save nothing and ask no model; show what would be made"`
}

// GeneratedQueries reports what was generated.
type GeneratedQueries struct {
	Saved   int                    `json:"saved" doc:"questions that were saved"`
	Queries []taskstore.SavedQuery `json:"queries" nullable:"false" doc:"those questions; with dry_run those that would be saved, without ids"`
	Asks    int                    `json:"asks,omitempty" doc:"requests to the language model; with dry_run, how many it would take"`
	Tokens  int                    `json:"tokens,omitempty" doc:"of the text that the model reads"`
	Failed  int                    `json:"failed,omitempty" doc:"chunks for which the model wrote no question"`
	Failure string                 `json:"failure,omitempty" doc:"why the first of them has none"`
	DryRun  bool                   `json:"dry_run,omitempty" doc:"nothing was saved"`
}

// RankedQuery is the result of one query in an evaluation.
type RankedQuery struct {
	taskstore.QueryResult
	Question string `json:"question,omitempty" doc:"absent if the query was deleted or changed since"`
}

// ChangedRank is a query that two evaluations ranked differently.
type ChangedRank struct {
	QueryID  string `json:"query_id" doc:"id of the saved query"`
	Question string `json:"question,omitempty" doc:"absent if the query was deleted or changed since"`
	Was      int    `json:"was" doc:"rank in the evaluation compared against; 0: not found"`
	Is       int    `json:"is" doc:"rank in this one"`
	Why      string `json:"why,omitempty" doc:"what now ranks where the answer did, if known"`
}

// EvaluationAnswer is an evaluation with the ranks of its queries.
type EvaluationAnswer struct {
	ID          string                    `json:"id"`
	DatasetID   string                    `json:"dataset_id"`
	Cause       taskstore.EvaluationCause `json:"cause,omitempty" doc:"why it ran: a request, changed saved queries, model or settings, or documents that were parsed again"`
	Model       string                    `json:"model" doc:"of the index that was searched"`
	Stale       bool                      `json:"stale,omitempty" doc:"some searches did not see everything: run it again before comparing"`
	Measures    taskstore.Measures        `json:"measures" doc:"sums over the queries"`
	CreatedAt   time.Time                 `json:"created_at"`
	Results     []RankedQuery             `json:"results" nullable:"false" doc:"of each query"`
	Against     *taskstore.Evaluation     `json:"against,omitempty" doc:"the evaluation compared against, without its results"`
	Differences []string                  `json:"differences,omitempty" doc:"what else differs from the evaluation compared against"`
	Changes     []ChangedRank             `json:"changes,omitempty" doc:"queries whose rank changed, those that became worse first; without queries that were edited in between"`
}

// Evaluations holds saved queries and their evaluations.
type Evaluations interface {
	SaveQueries(ctx context.Context, tenantID, datasetID string, qs []taskstore.SavedQuery) ([]taskstore.SavedQuery, error)
	SavedQueries(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.SavedQuery, string, error)
	ChangeQuery(ctx context.Context, q taskstore.SavedQuery) (*taskstore.SavedQuery, error)
	DeleteQuery(ctx context.Context, tenantID, datasetID, id string) error
	RecordEvaluation(ctx context.Context, e taskstore.Evaluation) (*taskstore.Evaluation, error)
	Evaluations(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Evaluation, string, error)
	Evaluation(ctx context.Context, tenantID, datasetID, id string) (*taskstore.Evaluation, error)
	LastReparse(ctx context.Context, tenantID, datasetID string) (string, error)
	DatasetsWithQueries(ctx context.Context, after string, limit int) ([]taskstore.DatasetRef, error)
}

// checked resolves queries, with documents given by id or name, and reports all
// errors at once.
func (s *Server) checked(ctx context.Context, ds *sheaf.Dataset, qs []NewQuery) ([]taskstore.SavedQuery, error) {
	var refused *Problem
	wrong := func(i, k int, text string) {
		const most = 20 // errors reported
		if refused == nil {
			refused = newProblem(400, "", text)
		}
		if len(refused.Errors) < most {
			refused.Errors = append(refused.Errors, ProblemDetail{Location: fmt.Sprintf("query %d, expected hit %d", i+1, k+1), Message: capital(text)})
		}
	}
	known := map[string]string{} // document ids by the id or name given
	out := make([]taskstore.SavedQuery, len(qs))
	for i, q := range qs {
		out[i].Question = q.Question
		for k, e := range q.Expected {
			switch {
			case e.Document == "" && e.Text == "":
				wrong(i, k, "an expected hit says neither document nor text; name the document that answers, or a text that the hit says")
				continue
			case e.Document == "" && e.From > 0, e.From == 0 && e.To > 0:
				wrong(i, k, "pages need a document and the first page, from")
				continue
			case e.To > 0 && e.To < e.From:
				wrong(i, k, fmt.Sprintf("pages end at %d before they begin at %d; exchange from and to", e.To, e.From))
				continue
			}
			id, ok := known[e.Document]
			if e.Document != "" && !ok {
				var err error
				id, err = s.documentCalled(ctx, ds, e.Document)
				if p, bad := errors.AsType[*Problem](err); bad {
					wrong(i, k, p.Detail)
					continue
				} else if err != nil {
					return nil, err
				}
				known[e.Document] = id
			}
			out[i].Expected = append(out[i].Expected, taskstore.ExpectedAnswer{DocumentID: id, From: e.From, To: e.To, Text: e.Text})
		}
	}
	if refused != nil {
		return nil, refused
	}
	return out, nil
}

// documentCalled finds a document of the dataset by id or name.
func (s *Server) documentCalled(ctx context.Context, ds *sheaf.Dataset, name string) (string, error) {
	d, err := s.cfg.Catalog.Document(ctx, ds.TenantID, name)
	if err == nil && d.DatasetID == ds.ID {
		return d.ID, nil
	}
	if err != nil && !errors.Is(err, sheaf.ErrNotFound) {
		return "", err
	}
	id := ""
	p := taskstore.Page{Limit: 1000}
	const looks = 10 // pages of names containing the name; beyond that, use the id
	for range looks {
		some, next, err := s.cfg.Catalog.Documents(ctx, ds.TenantID, taskstore.DocumentFilter{DatasetID: ds.ID, Query: name}, p)
		if err != nil {
			return "", err
		}
		for i := range some {
			switch {
			case some[i].Name != name:
			case id != "":
				return "", newProblem(400, "", "several documents of the dataset are named "+quoted(name)+"; give the id of the one that answers")
			default:
				id = some[i].ID
			}
		}
		if p.Cursor = next; next == "" {
			break
		}
	}
	if id == "" {
		return "", newProblem(400, "", "the dataset has no document with the id or name "+quoted(name)+"; list them at /v1/datasets/{ds}/documents")
	}
	return id, nil
}

// questions returns a lookup of a dataset's questions by query id and version.
func (s *Server) questions(ctx context.Context, ds *sheaf.Dataset) (func(id string, version int) string, error) {
	qs, _, err := s.cfg.Catalog.SavedQueries(ctx, ds.TenantID, ds.ID, taskstore.Page{Limit: taskstore.MaxQueries})
	type key struct {
		id      string
		version int
	}
	text := make(map[key]string, len(qs))
	for _, q := range qs {
		text[key{q.ID, q.Version}] = q.Question
	}
	return func(id string, version int) string { return text[key{id, version}] }, err
}

// evaluation renders an evaluation, compared with another if one is given.
func (s *Server) evaluation(ctx context.Context, ds *sheaf.Dataset, e, against *taskstore.Evaluation) (*output[EvaluationAnswer], error) {
	question, err := s.questions(ctx, ds)
	if err != nil {
		return nil, err
	}
	out := EvaluationAnswer{ID: e.ID, DatasetID: e.DatasetID, Cause: e.Cause, Model: e.Model, Stale: e.Stale, Measures: e.Measures, CreatedAt: e.CreatedAt, Results: make([]RankedQuery, len(e.Results))}
	versions := make(map[string]int, len(e.Results))
	for i, r := range e.Results {
		out.Results[i] = RankedQuery{r, question(r.QueryID, r.Version)}
		versions[r.QueryID] = r.Version
	}
	if against != nil {
		out.Differences = differences(against, e)
		for _, c := range eval.Compare(against.Results, e.Results) {
			changed := ChangedRank{QueryID: c.QueryID, Question: question(c.QueryID, versions[c.QueryID]), Was: c.Was, Is: c.Is}
			if changed.Why, err = s.why(ctx, ds, c); err != nil {
				return nil, err
			}
			out.Changes = append(out.Changes, changed)
		}
		without := *against
		without.Results = nil
		out.Against = &without
	}
	return &output[EvaluationAnswer]{out}, nil
}

// differences lists what changed between two evaluations besides the documents.
func differences(was, is *taskstore.Evaluation) (out []string) {
	if was.Model != is.Model {
		out = append(out, "the model was "+was.Model+" and is "+is.Model)
	}
	a, b := was.State, is.State
	if a == (taskstore.EvaluatedState{}) || b == (taskstore.EvaluatedState{}) {
		return out // recorded by an earlier version
	}
	if a.Settings != b.Settings {
		out = append(out, "the settings of the dataset were changed")
	}
	if a.Reparse != b.Reparse && b.Reparse != "" {
		out = append(out, "documents were parsed again by job "+b.Reparse)
	}
	if a.Queries != b.Queries {
		out = append(out, "saved queries were added, changed or deleted")
	}
	return out
}

// why names the page that now ranks first in place of another.
func (s *Server) why(ctx context.Context, ds *sheaf.Dataset, c eval.Change) (string, error) {
	if len(c.First) == 0 || c.Is == 1 || len(c.WasFirst) > 0 && c.First[0] == c.WasFirst[0] {
		return "", nil
	}
	first := c.First[0]
	d, err := s.cfg.Catalog.Document(ctx, ds.TenantID, first.DocumentID)
	if errors.Is(err, sheaf.ErrNotFound) || err == nil && d.DatasetID != ds.ID {
		return "a document that was deleted since came first", nil
	}
	if err != nil {
		return "", err
	}
	if first.Page > 0 {
		return fmt.Sprintf("page %d of %s came first", first.Page, d.Name), nil
	}
	return d.Name + " came first", nil
}

// sources reads the documents of a dataset to generate questions from.
func (s *Server) sources(ctx context.Context, ds *sheaf.Dataset, from taskstore.QuerySource, limit int) ([]eval.Source, error) {
	const lists = 10 // pages of a thousand documents to choose from
	var docs []sheaf.Document
	p := taskstore.Page{Limit: 1000}
	for range lists {
		some, next, err := s.cfg.Catalog.Documents(ctx, ds.TenantID, taskstore.DocumentFilter{DatasetID: ds.ID}, p)
		if err != nil {
			return nil, err
		}
		for i := range some {
			if some[i].LiveGeneration > 0 {
				docs = append(docs, some[i])
			}
		}
		if p.Cursor = next; next == "" {
			break
		}
	}
	var out []eval.Source
	docs = eval.Sample(docs)
	for _, d := range docs {
		const most = 2000 // chunks per document
		listed, _, err := s.chunks(ctx, &d, chunkQuery{limit: most})
		if errors.Is(err, sheaf.ErrNotFound) {
			continue // deleted or replaced in the meantime
		}
		if err != nil {
			return nil, err
		}
		chunks := make([]sheaf.Chunk, len(listed))
		for i := range listed {
			chunks[i] = listed[i].Chunk
		}
		out = append(out, eval.Source{Document: d, Chunks: eval.Keep(chunks, from, limit, len(docs))})
	}
	return out, nil
}

// generate makes questions from a dataset's content and saves them.
func (s *Server) generate(ctx context.Context, ds *sheaf.Dataset, in GenerateQueries) (*GeneratedQueries, error) {
	chunks := in.From == taskstore.SourceChunks
	if chunks && s.cfg.Chat == nil {
		return nil, newProblem(http.StatusConflict, "", "no language model is configured, which would write the questions; set chat.url and chat.model, or generate them from headings")
	}
	have, _, err := s.cfg.Catalog.SavedQueries(ctx, ds.TenantID, ds.ID, taskstore.Page{Limit: taskstore.MaxQueries})
	if err != nil {
		return nil, err
	}
	if len(have) >= taskstore.MaxQueries {
		return nil, newProblem(http.StatusConflict, "", fmt.Sprintf("the dataset has %d saved queries, and takes no more; delete some", len(have)))
	}
	taken := make(map[string]bool, len(have))
	for _, q := range have {
		taken[q.Question] = true
	}
	limit := min(in.Limit, taskstore.MaxQueries-len(have))
	sources, err := s.sources(ctx, ds, in.From, limit)
	if err != nil {
		return nil, err
	}
	out := &GeneratedQueries{Queries: []taskstore.SavedQuery{}, DryRun: in.DryRun}
	var made []taskstore.SavedQuery
	if chunks {
		passages := eval.Passages(sources, limit)
		out.Asks = len(passages)
		for _, p := range passages {
			out.Tokens += p.Chunk.Tokens
		}
		if in.DryRun {
			return out, nil
		}
		var failure error
		made, out.Failed, failure = eval.FromPassages(ctx, s.cfg.Chat, passages, taken)
		if failure != nil {
			out.Failure = failure.Error()
		}
		if failure != nil && len(made) == 0 {
			return nil, failure
		}
	} else {
		made = eval.FromHeadings(sources, taken, limit)
	}
	if len(made) == 0 || in.DryRun {
		out.Queries = append(out.Queries, made...)
		return out, nil
	}
	// Save what was paid for, even after the deadline.
	saved, err := s.cfg.Catalog.SaveQueries(context.WithoutCancel(ctx), ds.TenantID, ds.ID, made)
	out.Saved, out.Queries = len(saved), saved
	return out, err
}

func (s *Server) evaluationRoutes() {
	generate := post("/v1/datasets/{ds}/queries:generate", "Generate queries from headings or chunks")
	generate.Description = "Makes questions with known answers from what the dataset holds: its headings, or a question that the configured language model writes about each of some chunks. They are saved beside those that users wrote; source says what they were made from. An existing question is unchanged. Takes two minutes at most; what was made until then is saved."
	handle(s, generate, func(ctx context.Context, in *struct {
		DatasetPath
		Body GenerateQueries
	}) (*output[*GeneratedQueries], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		if !s.evaluating.enter(ds.TenantID) {
			p := newProblem(http.StatusTooManyRequests, "", "an evaluation of this tenant is under way here; wait for it to end")
			p.Retryable = true
			return nil, p
		}
		defer s.evaluating.leave(ds.TenantID)
		within, cancel := context.WithTimeout(ctx, eval.MaxTime)
		defer cancel()
		made, err := s.generate(within, ds, in.Body)
		return &output[*GeneratedQueries]{made}, err
	})
	save := post("/v1/datasets/{ds}/queries", "Save a query with the hits that it should have")
	save.OperationID = "create-query"
	save.Description = "Evaluations run the saved queries of a dataset and measure how well search answers them. An existing question gets the expected hits of the request."
	handle(s, save, func(ctx context.Context, in *struct {
		DatasetPath
		Body NewQuery
	}) (*output[taskstore.SavedQuery], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		qs, err := s.checked(ctx, ds, []NewQuery{in.Body})
		if err != nil {
			return nil, err
		}
		saved, err := s.cfg.Catalog.SaveQueries(ctx, ds.TenantID, ds.ID, qs)
		if err != nil {
			return nil, err
		}
		return &output[taskstore.SavedQuery]{saved[0]}, nil
	})
	many := post("/v1/datasets/{ds}/queries:import", "Save many queries")
	many.Description = "All are saved or none: the error lists what is wrong. Sending the same again changes nothing."
	handle(s, many, func(ctx context.Context, in *struct {
		DatasetPath
		Body QueriesImport
	}) (*output[QueriesImported], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		qs, err := s.checked(ctx, ds, in.Body.Queries)
		if err != nil {
			return nil, err
		}
		saved, err := s.cfg.Catalog.SaveQueries(ctx, ds.TenantID, ds.ID, qs)
		return &output[QueriesImported]{QueriesImported{len(saved)}}, err
	})
	handle(s, get("/v1/datasets/{ds}/queries", "List saved queries"), func(ctx context.Context, in *struct {
		DatasetPath
		ListInput
	}) (*output[List[taskstore.SavedQuery]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		qs, next, err := s.cfg.Catalog.SavedQueries(ctx, ds.TenantID, ds.ID, in.page())
		return listOf(qs, next), err
	})
	put := change(http.MethodPut, "/v1/datasets/{ds}/queries/{query}", "Change a saved query")
	put.OperationID = "put-query"
	handle(s, put, func(ctx context.Context, in *struct {
		QueryPath
		Body NewQuery
	}) (*output[*taskstore.SavedQuery], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		qs, err := s.checked(ctx, ds, []NewQuery{in.Body})
		if err != nil {
			return nil, err
		}
		q := qs[0]
		q.ID, q.TenantID, q.DatasetID = in.Query, ds.TenantID, ds.ID
		changed, err := s.cfg.Catalog.ChangeQuery(ctx, q)
		if errors.Is(err, sheaf.ErrConflict) {
			err = newProblem(409, "", "another query of the dataset asks the same; change that one")
		}
		return &output[*taskstore.SavedQuery]{changed}, err
	})
	remove := change(http.MethodDelete, "/v1/datasets/{ds}/queries/{query}", "Delete a saved query")
	remove.OperationID = "delete-query"
	remove.DefaultStatus = http.StatusNoContent
	handle(s, remove, func(ctx context.Context, in *QueryPath) (*struct{}, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		return nil, s.cfg.Catalog.DeleteQuery(ctx, ds.TenantID, ds.ID, in.Query)
	})
	run := post("/v1/datasets/{ds}/evaluations", "Evaluate search by the saved queries")
	run.Description = "Runs each saved query of the dataset and answers when all have run, after two minutes at most. The last hundred evaluations of a dataset are kept."
	run.DefaultStatus = http.StatusCreated
	handle(s, run, func(ctx context.Context, in *DatasetPath) (*output[EvaluationAnswer], error) {
		ds, err := s.dataset(ctx, *in)
		if err != nil {
			return nil, err
		}
		if !s.evaluating.enter(ds.TenantID) {
			p := newProblem(http.StatusTooManyRequests, "", "an evaluation of this tenant is under way here; wait for it to end")
			p.Retryable = true
			return nil, p
		}
		defer s.evaluating.leave(ds.TenantID)
		state, qs, err := eval.See(ctx, s.cfg.Catalog, ds)
		if err != nil {
			return nil, err
		}
		within, cancel := context.WithTimeout(ctx, eval.MaxTime)
		defer cancel()
		e, err := eval.Run(within, s.cfg.Search, ds, qs)
		switch {
		case within.Err() != nil && ctx.Err() == nil:
			return nil, newProblem(http.StatusServiceUnavailable, "", "the saved queries took more than two minutes; look why search is slow, or save fewer")
		case err != nil:
			return nil, err
		case len(e.Results) == 0:
			return nil, newProblem(http.StatusConflict, "", "the dataset has no saved query that expects a hit; save some at /v1/datasets/{ds}/queries")
		}
		e.Cause, e.State = taskstore.CauseRequest, state
		made, err := s.cfg.Catalog.RecordEvaluation(ctx, *e)
		if err != nil {
			return nil, err
		}
		return s.evaluation(ctx, ds, made, nil)
	})
	handle(s, get("/v1/datasets/{ds}/evaluations", "List evaluations"), func(ctx context.Context, in *struct {
		DatasetPath
		ListInput
	}) (*output[List[taskstore.Evaluation]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		es, next, err := s.cfg.Catalog.Evaluations(ctx, ds.TenantID, ds.ID, in.page())
		return listOf(es, next), err
	})
	handle(s, get("/v1/datasets/{ds}/evaluations/{evaluation}", "Read an evaluation, or compare it with another"), func(ctx context.Context, in *struct {
		EvaluationPath
		Against string `query:"against" maxLength:"64" doc:"id of an evaluation of the dataset to compare with"`
	}) (*output[EvaluationAnswer], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		e, err := s.cfg.Catalog.Evaluation(ctx, ds.TenantID, ds.ID, in.Evaluation)
		if err != nil {
			return nil, err
		}
		var against *taskstore.Evaluation
		if in.Against != "" {
			if against, err = s.cfg.Catalog.Evaluation(ctx, ds.TenantID, ds.ID, in.Against); err != nil {
				return nil, err
			}
		}
		return s.evaluation(ctx, ds, e, against)
	})
}
