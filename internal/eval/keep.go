package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/taskstore"
)

// Store is the storage an Evaluator uses.
type Store interface {
	DatasetsWithQueries(ctx context.Context, after string, limit int) ([]taskstore.DatasetRef, error)
	Dataset(ctx context.Context, tenantID, ref string) (*sheaf.Dataset, error)
	SavedQueries(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.SavedQuery, string, error)
	LastReparse(ctx context.Context, tenantID, datasetID string) (string, error)
	Job(ctx context.Context, tenantID, id string) (*sheaf.Job, error)
	Evaluations(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Evaluation, string, error)
	RecordEvaluation(ctx context.Context, e taskstore.Evaluation) (*taskstore.Evaluation, error)
}

// Limits of automatic evaluations.
const (
	// MaxTime limits the total time of the queries of one evaluation.
	MaxTime = 2 * time.Minute
	slice   = 50 // datasets per step
	settled = time.Minute
)

// Evaluator evaluates datasets whose model, settings, saved queries or parsed
// documents have changed since their last evaluation. It is used by one goroutine.
type Evaluator struct {
	Store    Store
	Searcher Searcher
	Model    func() string // of the searched index
	Log      *slog.Logger
	Settled  time.Duration // since the last change of a saved query, default a minute: users save several

	after string // where the last step stopped
}

// See reads the state of a dataset that determines its search results, and its
// queries.
func See(ctx context.Context, s Store, ds *sheaf.Dataset) (st taskstore.EvaluatedState, qs []taskstore.SavedQuery, err error) {
	if qs, _, err = s.SavedQueries(ctx, ds.TenantID, ds.ID, taskstore.Page{Limit: taskstore.MaxQueries, Ascending: true}); err != nil {
		return st, nil, err
	}
	digest := xxhash.New()
	for _, q := range qs {
		fmt.Fprintln(digest, q.ID, q.Version)
	}
	st.Queries = strconv.FormatUint(digest.Sum64(), 36)
	settings, err := json.Marshal(ds.ParseConfig)
	if err != nil {
		return st, nil, err
	}
	st.Settings = strconv.FormatUint(xxhash.Sum64(settings), 36)
	st.Reparse, err = s.LastReparse(ctx, ds.TenantID, ds.ID)
	return st, qs, err
}

// Step examines the next datasets and evaluates those that changed. more reports
// that there are others.
func (e *Evaluator) Step(ctx context.Context) (more bool, err error) {
	refs, err := e.Store.DatasetsWithQueries(ctx, e.after, slice)
	if err != nil {
		return false, err
	}
	e.after = ""
	var failed []error
	for _, r := range refs {
		if err := e.evaluate(ctx, r); ctx.Err() != nil {
			return false, ctx.Err()
		} else if err != nil && !errors.Is(err, sheaf.ErrNotFound) { // deleted in the meantime
			failed = append(failed, fmt.Errorf("evaluating dataset %s: %w", r.DatasetID, err))
		}
	}
	if len(refs) == slice {
		e.after = refs[slice-1].DatasetID
	}
	return e.after != "" && failed == nil, errors.Join(failed...)
}

// evaluate evaluates a dataset unless its last evaluation saw the same state.
func (e *Evaluator) evaluate(ctx context.Context, r taskstore.DatasetRef) error {
	ds, err := e.Store.Dataset(ctx, r.TenantID, r.DatasetID)
	if err != nil {
		return err
	}
	st, qs, err := See(ctx, e.Store, ds)
	if err != nil {
		return err
	}
	last, _, err := e.Store.Evaluations(ctx, r.TenantID, r.DatasetID, taskstore.Page{Limit: 1})
	if err != nil {
		return err
	}
	cause := causeOf(last, st, e.Model())
	switch cause {
	case "":
		return nil
	case taskstore.CauseQueries:
		wait := e.Settled
		if wait == 0 {
			wait = settled
		}
		for _, q := range qs {
			if time.Since(q.UpdatedAt) < wait {
				return nil // until the next step
			}
		}
	}
	if st.Reparse != "" {
		if job, err := e.Store.Job(ctx, r.TenantID, st.Reparse); err == nil && !job.State.Terminal() {
			return nil // until it has ended
		} else if err != nil && !errors.Is(err, sheaf.ErrNotFound) {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, MaxTime)
	defer cancel()
	made, err := Run(within, e.Searcher, ds, qs)
	switch {
	case err != nil:
		return err
	case len(made.Results) == 0 || made.Stale:
		return nil // nothing is expected any more, or the index is incomplete: later
	}
	made.Cause, made.State = cause, st
	if _, err = e.Store.RecordEvaluation(ctx, *made); err == nil && e.Log != nil {
		e.Log.Info("evaluated search by saved queries", "tenant", r.TenantID, "dataset", r.DatasetID, "cause", cause, "queries", made.Measures.Queries, "mrr", made.Measures.MRR)
	}
	return err
}

// causeOf returns why a dataset must be evaluated, "" for no reason.
func causeOf(last []taskstore.Evaluation, st taskstore.EvaluatedState, model string) taskstore.EvaluationCause {
	switch {
	case len(last) == 0 || last[0].State == (taskstore.EvaluatedState{}):
		return taskstore.CauseQueries
	case last[0].Model != model:
		return taskstore.CauseModel
	case st.Reparse != "" && last[0].State.Reparse != st.Reparse:
		return taskstore.CauseReparse
	case last[0].State.Settings != st.Settings:
		return taskstore.CauseSettings
	case last[0].State.Queries != st.Queries:
		return taskstore.CauseQueries
	}
	return ""
}
