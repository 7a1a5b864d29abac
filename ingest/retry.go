package ingest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sheaf"
)

// RetryUnits runs again some of the units that could not be read: those that
// only names. What else failed stays failed, and what was read is kept.
func (s *Service) RetryUnits(ctx context.Context, dataset *sheaf.Dataset, f sheaf.DocumentFilter, only sheaf.RetryOnly, from Origin) (Rerun, error) {
	docs, decide, err := s.unitsOf(ctx, dataset, f, only)
	if err != nil {
		return Rerun{}, err
	}
	job := sheaf.Job{ID: from.ID(dataset.TenantID, "job", 0), TenantID: dataset.TenantID, DatasetID: dataset.ID, Kind: sheaf.JobRetry}
	return s.again(ctx, job, docs, from, decide)
}

// unitsOf selects documents, and decides for those with such failures.
func (s *Service) unitsOf(ctx context.Context, dataset *sheaf.Dataset, f sheaf.DocumentFilter, only sheaf.RetryOnly) ([]sheaf.Document, decision, error) {
	docs, err := s.selectDocuments(ctx, dataset, f)
	if err != nil {
		return nil, nil, err
	}
	chosen := map[string]bool{}
	for i := range docs {
		if chosen[docs[i].ID], err = s.failedIn(ctx, &docs[i], only); err != nil {
			return nil, nil, err
		}
	}
	if len(docs) > 0 && !slices.Contains(slices.Collect(maps.Values(chosen)), true) {
		return nil, nil, fmt.Errorf("%w: none of the units and codes that were named is among what failed in the selected documents; read …/pages for what did", sheaf.ErrInvalid)
	}
	return docs, func(d *sheaf.Document) (sheaf.ParseConfig, sheaf.PlanPayload, bool) {
		return d.ParseConfig, sheaf.PlanPayload{Scope: "failed", Base: d.Generation, Only: &only}, chosen[d.ID]
	}, nil
}

// failedIn reports whether a unit of the document failed that only names. Of a
// document that never opened no unit is known: its own failure counts.
func (s *Service) failedIn(ctx context.Context, d *sheaf.Document, only sheaf.RetryOnly) (bool, error) {
	if d.State != sheaf.DocPartiallySucceeded && d.State != sheaf.DocFailed {
		return false, nil
	}
	if d.Units == 0 {
		return len(only.Units) == 0 && d.Failure != nil && slices.Contains(only.Codes, d.Failure.Code), nil
	}
	ledger, err := s.Catalog.UnitLedger(ctx, d.TenantID, d.ID, d.Generation)
	if err != nil {
		return false, err
	}
	return len(chosenUnits(ledger, only)) > 0, nil
}

// chosenUnits lists the runs of failed units that only names.
func chosenUnits(ledger sheaf.Ledger, only sheaf.RetryOnly) []sheaf.Range {
	var out []sheaf.Range
	for _, r := range ledger {
		if r.Status != sheaf.UnitFailed || len(only.Codes) > 0 && !slices.Contains(only.Codes, r.Code) {
			continue
		}
		run := sheaf.Range{From: r.From, To: r.To}
		if len(only.Units) == 0 {
			out = append(out, run)
			continue
		}
		out = append(out, overlaps([]sheaf.Range{run}, only.Units)...)
	}
	return out
}

// overlaps lists what runs and others have in common, run by run.
func overlaps(runs, others []sheaf.Range) []sheaf.Range {
	var out []sheaf.Range
	for _, r := range runs {
		for _, o := range others {
			if from, to := max(r.From, o.From), min(r.To, o.To); from <= to {
				out = append(out, sheaf.Range{From: from, To: to})
			}
		}
	}
	return out
}

// failedUnits is the verdict on every unit of a generation, with those of tasks
// that ended without a result.
func failedUnits(tasks []sheaf.Task) sheaf.Ledger {
	var ledgers []sheaf.Ledger
	for _, t := range tasks {
		if !covers(t) {
			continue
		}
		l := t.Result.Ledger
		if t.State != sheaf.TaskDone {
			l = sheaf.Ledger{unreadRun(t, t.Range)}
		}
		ledgers = append(ledgers, l)
	}
	return sheaf.MergeLedgers(ledgers...)
}

func unreadRun(t sheaf.Task, r sheaf.Range) sheaf.LedgerRun {
	run := sheaf.LedgerRun{From: r.From, To: r.To, Status: sheaf.UnitFailed, Code: string(t.State), Message: fmt.Sprintf("the task for units %s ended %s", t.Range, t.State)}
	if t.Failure != nil {
		run.Code, run.Message = t.Failure.Code, t.Failure.Message
	}
	return run
}

// keepFailed stands for units of a task without a result that are not tried
// again: the next generation has to account for them too.
func keepFailed(t sheaf.Task, rest []sheaf.Range) []sheaf.NewTask {
	var out []sheaf.NewTask
	for _, r := range rest {
		out = append(out, sheaf.NewTask{
			ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: t.Unit, Range: r, Cost: costShare(t, r), Digest: t.Digest, Payload: t.Payload,
			Done: &sheaf.TaskResult{Reused: true, Ledger: sheaf.Ledger{unreadRun(t, r)}},
		})
	}
	return out
}

// costShare is the part of a task's cost that a part of its range stands for.
func costShare(t sheaf.Task, r sheaf.Range) int {
	return max(1, t.Cost*r.Len()/max(1, t.Range.Len()))
}

// without lists the units of runs that none of taken has.
func without(runs, taken []sheaf.Range) []sheaf.Range {
	var l sheaf.Ledger
	for _, r := range taken {
		l = append(l, sheaf.LedgerRun{From: r.From, To: r.To, Status: sheaf.UnitOK})
	}
	return sheaf.MergeLedgers(l).Missing(runs)
}
