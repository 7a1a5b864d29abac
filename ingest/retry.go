package ingest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sheaf"
	"sheaf/taskstore"
)

// RetryUnits reruns failed units selected by only. Other failures stay, and units
// that were read are kept.
func (s *Service) RetryUnits(ctx context.Context, dataset *sheaf.Dataset, f taskstore.DocumentFilter, only taskstore.RetryOnly, from Origin) (Rerun, error) {
	docs, decide, err := s.unitsOf(ctx, dataset, f, only)
	if err != nil {
		return Rerun{}, err
	}
	job := sheaf.Job{ID: from.ID(dataset.TenantID, "job", 0), TenantID: dataset.TenantID, DatasetID: dataset.ID, Kind: sheaf.JobRetry, Requester: from.Requester}
	return s.again(ctx, job, func(_ context.Context, each func([]sheaf.Document) error) error { return each(docs) }, from, decide)
}

// unitsOf selects documents; its decision accepts those with matching failures.
func (s *Service) unitsOf(ctx context.Context, dataset *sheaf.Dataset, f taskstore.DocumentFilter, only taskstore.RetryOnly) ([]sheaf.Document, decision, error) {
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
	return docs, func(d *sheaf.Document) (sheaf.ParseConfig, taskstore.PlanPayload, bool) {
		return d.ParseConfig, taskstore.PlanPayload{Scope: "failed", Base: d.Generation, Only: &only}, chosen[d.ID]
	}, nil
}

// failedIn reports whether the document has a failed unit that only selects. For a
// document that never opened no units are known: its own failure counts.
func (s *Service) failedIn(ctx context.Context, d *sheaf.Document, only taskstore.RetryOnly) (bool, error) {
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
	return len(only.Select(ledger)) > 0, nil
}
