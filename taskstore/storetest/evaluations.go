package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"sheaf"
	"sheaf/taskstore"
)

func testEvaluations(t *testing.T, b *bench) {
	ask := func(question string, pages ...int) taskstore.SavedQuery {
		q := taskstore.SavedQuery{Question: question}
		for _, p := range pages {
			q.Expected = append(q.Expected, taskstore.ExpectedAnswer{DocumentID: "doc", From: p, To: p})
		}
		return q
	}
	save := func(qs ...taskstore.SavedQuery) []taskstore.SavedQuery {
		t.Helper()
		saved, err := b.SaveQueries(b.ctx, b.tenant, b.dataset.ID, qs)
		b.ok(err)
		return saved
	}
	list := func() (out []string) {
		t.Helper()
		page := taskstore.Page{Limit: 2, Ascending: true} // short, so that there are more pages
		for {
			qs, next, err := b.SavedQueries(b.ctx, b.tenant, b.dataset.ID, page)
			b.ok(err)
			for _, q := range qs {
				out = append(out, fmt.Sprintf("%s v%d %d", q.Question, q.Version, len(q.Expected)))
			}
			if page.Cursor = next; next == "" {
				slices.Sort(out)
				return out
			}
		}
	}
	first := save(ask("a", 1))[0]
	b.same("first", []any{first.Version, first.Expected, first.CreatedAt.IsZero()}, []any{1, []taskstore.ExpectedAnswer{{DocumentID: "doc", From: 1, To: 1}}, false})
	save(ask("a", 1), ask("b", 1), ask("c", 1, 2), ask("b", 2, 3)) // the last of each question counts
	b.same("a question is kept once", list(), []string{"a v1 1", "b v2 2", "c v1 2"})

	// A generated question replaces no existing one, and belongs to whoever changes it.
	generated := func(q taskstore.SavedQuery) taskstore.SavedQuery { q.Source = taskstore.SourceHeadings; return q }
	save(generated(ask("b", 7)), generated(ask("a", 1)))
	made := save(generated(ask("made", 4)))[0]
	b.same("generated", []any{made.Source, made.Version, list()}, []any{taskstore.SourceHeadings, 1, []string{"a v1 1", "b v2 2", "c v1 2", "made v1 1"}})
	made = save(ask("made", 5))[0]
	b.same("written again", []any{made.Source, made.Version}, []any{taskstore.QuerySource(""), 2})
	b.ok(b.DeleteQuery(b.ctx, b.tenant, b.dataset.ID, made.ID))
	made = save(generated(ask("made", 4)))[0]
	other, err := b.ChangeQuery(b.ctx, taskstore.SavedQuery{ID: made.ID, TenantID: b.tenant, DatasetID: b.dataset.ID, Question: "mine", Expected: made.Expected})
	b.ok(err)
	b.same("changed by somebody", other.Source, taskstore.QuerySource(""))
	b.ok(b.DeleteQuery(b.ctx, b.tenant, b.dataset.ID, made.ID))

	changed, err := b.ChangeQuery(b.ctx, taskstore.SavedQuery{ID: first.ID, TenantID: b.tenant, DatasetID: b.dataset.ID, Question: "d", Expected: first.Expected})
	b.ok(err)
	b.same("changed", []any{changed.Question, changed.Version}, []any{"d", 2})
	changed.Question = "b"
	if _, err := b.ChangeQuery(b.ctx, *changed); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("a question of another query: %v", err)
	}

	// Concurrent saves of the same question create one query.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := b.SaveQueries(b.ctx, b.tenant, b.dataset.ID, []taskstore.SavedQuery{ask("race", 1)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.same("after a race", list(), []string{"b v2 2", "c v1 2", "d v2 1", "race v1 1"})

	many := make([]taskstore.SavedQuery, taskstore.MaxQueries-3)
	for i := range many {
		many[i] = ask(fmt.Sprint("many ", i), 1)
	}
	if _, err := b.SaveQueries(b.ctx, b.tenant, b.dataset.ID, many); !errors.Is(err, sheaf.ErrLimit) {
		t.Fatalf("one too many: %v", err)
	}
	b.same("nothing of them", len(list()), 4)
	save(many[1:]...)

	// Only the newest evaluations are kept.
	e := taskstore.Evaluation{TenantID: b.tenant, DatasetID: b.dataset.ID, Model: "m", Cause: taskstore.CauseModel, State: taskstore.EvaluatedState{Queries: "q", Settings: "s", Reparse: "r"}, Measures: taskstore.Measures{Queries: 1, MRR: .5}, Results: []taskstore.QueryResult{{QueryID: first.ID, Version: 1, Rank: 2, First: []taskstore.FoundPage{{DocumentID: "doc", Page: 3}}}}}
	var last *taskstore.Evaluation
	for range taskstore.MaxEvaluations + 2 {
		last, err = b.RecordEvaluation(b.ctx, e)
		b.ok(err)
	}
	b.same("recorded", []any{last.Model, last.Cause, last.State, last.Measures, last.Results, last.CreatedAt.IsZero()}, []any{"m", e.Cause, e.State, e.Measures, e.Results, false})
	kept, _, err := b.Evaluations(b.ctx, b.tenant, b.dataset.ID, taskstore.Page{Limit: 1000})
	b.ok(err)
	b.same("kept", []any{len(kept), kept[0].ID, kept[0].Cause, kept[0].State, kept[0].Measures, len(kept[0].Results)}, []any{taskstore.MaxEvaluations, last.ID, e.Cause, e.State, e.Measures, 0})

	// What the keeper reads: each dataset once, and the last re-parse job.
	refs := func(after string, limit int) (out []string) {
		t.Helper()
		list, err := b.DatasetsWithQueries(b.ctx, after, limit)
		b.ok(err)
		for _, r := range list {
			if r.TenantID == b.tenant {
				out = append(out, r.DatasetID)
			}
		}
		return out
	}
	b.same("datasets with queries", [][]string{refs("", 1000), refs(b.dataset.ID, 1000), refs("", 0)}, [][]string{{b.dataset.ID}, nil, nil})
	_, docs := b.create("evaluated.txt")
	last1, err := b.LastReparse(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	job := b.newJob(sheaf.JobReparse)
	b.ok(b.Reparse(b.ctx, job, []taskstore.ReparseDocument{{DocumentID: docs[0], Plan: planTask()}}, ""))
	b.create("later.txt")
	last2, err := b.LastReparse(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("the last job that parses again", []string{last1, last2}, []string{"", job.ID})

	// A sample holds different queries that expect something.
	b.ok(second(b.SaveQueries(b.ctx, b.tenant, b.dataset.ID, []taskstore.SavedQuery{{Question: "race"}})))
	sample, err := b.SampleQueries(b.ctx, 5000)
	b.ok(err)
	own := map[string]bool{}
	for _, q := range sample {
		if q.DatasetID == b.dataset.ID {
			own[q.ID] = true
			if len(q.Expected) == 0 || q.Question == "" || q.TenantID != b.tenant {
				t.Fatalf("sampled %+v", q)
			}
		}
	}
	b.same("sampled of the dataset", len(own), taskstore.MaxQueries-1)
	few, err := b.SampleQueries(b.ctx, 7)
	b.ok(err)
	b.same("a small sample", len(few), 7)

	// Another tenant sees and changes nothing.
	for what, err := range map[string]error{
		"save":   second(b.SaveQueries(b.ctx, "other", b.dataset.ID, []taskstore.SavedQuery{ask("x", 1)})),
		"change": second(b.ChangeQuery(b.ctx, taskstore.SavedQuery{ID: first.ID, TenantID: "other", DatasetID: b.dataset.ID, Question: "x"})),
		"delete": b.DeleteQuery(b.ctx, "other", b.dataset.ID, first.ID),
		"record": second(b.RecordEvaluation(b.ctx, taskstore.Evaluation{TenantID: "other", DatasetID: b.dataset.ID})),
		"read":   second(b.Evaluation(b.ctx, "other", b.dataset.ID, last.ID)),
	} {
		if !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("%s of another tenant: %v", what, err)
		}
	}
	qs, _, err := b.SavedQueries(b.ctx, "other", b.dataset.ID, taskstore.Page{})
	b.ok(err)
	es, _, err := b.Evaluations(b.ctx, "other", b.dataset.ID, taskstore.Page{})
	b.ok(err)
	b.same("what another tenant sees", len(qs)+len(es), 0)

	b.ok(b.DeleteQuery(b.ctx, b.tenant, b.dataset.ID, first.ID))
	if err := b.DeleteQuery(b.ctx, b.tenant, b.dataset.ID, first.ID); !errors.Is(err, sheaf.ErrNotFound) {
		t.Fatalf("deleted twice: %v", err)
	}
	_, err = b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("queries of a deleted dataset", len(list()), 0)
	es, _, err = b.Evaluations(b.ctx, b.tenant, b.dataset.ID, taskstore.Page{})
	b.ok(err)
	b.same("its evaluations", len(es), 0)
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }
