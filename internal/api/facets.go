package api

import (
	"context"
	"fmt"
	"strings"

	"sheaf/ingest"
	"sheaf/internal/watch"
	"sheaf/taskstore"
)

// TagRequest is the body that tags documents.
type TagRequest struct {
	Selection
	Tag string `json:"tag" maxLength:"64" pattern:"^[^\\x00-\\x1f]*$" patternDescription:"a text without control characters" doc:"stored as the attribute sheaf.tag of each document, replacing the old one; empty removes it"`
}

// Tagged reports how many documents were selected.
type Tagged struct {
	Documents int `json:"documents" doc:"that have the tag now, or with dry_run would have it"`
}

func (s *Server) facetRoutes() {
	type facetsIn struct {
		DatasetPath
		ETagInput
		FilterInput
	}
	facets := get("/v1/datasets/{ds}/documents/facets", "Count documents by state, format, failure, warning, job, language and tag")
	facets.Description = "Takes the filters of the list of documents. Each list of counts ignores the filter on its own values, so it shows what choosing another one would find. At most 50 values of a kind: the most frequent, and the newest jobs."
	handle(s, facets, func(ctx context.Context, in *facetsIn) (*tagged[*taskstore.Facets], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		f := in.filter()
		f.DatasetID = ds.ID
		// Callers watching the same dataset share one count, which takes a second where
		// there are hundreds of thousands of documents.
		scope := watch.Scope{TenantID: ds.TenantID, DatasetID: ds.ID, MayLag: true, What: fmt.Sprintf("facets %q", []any{f.States, f.MediaTypes, f.Query, f.IDs, f.ParentID, f.Issues, f.Warnings, f.JobIDs, f.Languages, f.Tags, f.CreatedAfter.String(), f.CreatedBefore.String()})}
		return snapshotOf[*taskstore.Facets](ctx, s, in.ETagInput, scope, func(ctx context.Context) (any, error) {
			return s.cfg.Catalog.Facets(ctx, ds.TenantID, f)
		})
	})
	tag := post("/v1/datasets/{ds}/documents:tag", "Tag documents")
	tag.Description = "A document has one tag, such as the name of a folder. Nothing is parsed again."
	handle(s, tag, func(ctx context.Context, in *struct {
		DatasetPath
		DryRunParam
		Body TagRequest
	}) (*output[Tagged], error) {
		ds, f, err := s.selected(ctx, in.DatasetPath, &in.Body.Selection)
		if err != nil {
			return nil, err
		}
		f.DatasetID = ds.ID
		if in.DryRun || in.Body.DryRun {
			counts, err := s.cfg.Catalog.Facets(ctx, ds.TenantID, f)
			if err != nil {
				return nil, err
			}
			return &output[Tagged]{Tagged{counts.Documents}}, nil
		}
		ctx, cancel := ingest.Lasting(ctx)
		defer cancel()
		n, err := s.cfg.Catalog.TagDocuments(ctx, ds.TenantID, f, strings.TrimSpace(in.Body.Tag))
		return &output[Tagged]{Tagged{n}}, err
	})
}
