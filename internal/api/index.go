package api

import (
	"context"
	"net/http"

	"sheaf/internal/indexset"
)

// Indexes tells of the search index and changes it; *indexset.Set is one.
type Indexes interface {
	Status(ctx context.Context) (*indexset.Status, error)
	Act(ctx context.Context, a indexset.Action, force, dryRun bool) (*indexset.Status, *indexset.Estimate, error)
	Move(ctx context.Context, a indexset.Action, tenantID string, shards int) (*indexset.Status, error)
}

// IndexAnswer is the index after an action, or as it is where that was a dry run.
type IndexAnswer struct {
	indexset.Status
	Estimate *indexset.Estimate `json:"estimate,omitempty" doc:"what a migration would take: of a dry run of start"`
}

// indexStatus is the state of the index as the caller may see it: the documents
// that could not be read belong to any tenant.
func (s *Server) indexStatus(ctx context.Context) (*indexset.Status, error) {
	st, err := s.cfg.Indexes.Status(ctx)
	if err != nil {
		return nil, err
	}
	if p, _ := ctx.Value(principalKey).(principal); !allows(p.scopes, scopeAdmin) {
		st.Dedicated = nil
		if st.Migration != nil {
			st.Migration.Examples, st.Migration.Tenant = nil, ""
		}
	}
	return st, nil
}

// indexRoutes are for the operator.
func (s *Server) indexRoutes() {
	if s.cfg.Indexes == nil {
		return
	}
	handle(s, get("/v1/index", "Read the state of the search index"), func(ctx context.Context, _ *struct{}) (*output[*indexset.Status], error) {
		st, err := s.indexStatus(ctx)
		return &output[*indexset.Status]{st}, err
	})
	act := func(ctx context.Context, a indexset.Action, force, dryRun bool) (*output[IndexAnswer], error) {
		st, estimate, err := s.cfg.Indexes.Act(ctx, a, force, dryRun)
		if err != nil {
			return nil, err
		}
		return &output[IndexAnswer]{IndexAnswer{*st, estimate}}, nil
	}
	type migrateIn struct {
		DryRunParam
		Body struct {
			Action indexset.Action `json:"action" enum:"start,pause,resume,switch,rollback,confirm,cancel"`
			Force  bool            `json:"force,omitempty" doc:"switch although the gate has not passed"`
		}
	}
	migrate := needs(post("/v1/index/migration", "Fill an index of the configured model, and switch to it"), scopeAdmin)
	migrate.Description = "start fills an index of the configured embedding model beside the one that is searched, from the stored results: nothing is parsed. switch searches it, once nothing is missing and the gate has passed; rollback searches the former one again; confirm deletes that. cancel deletes the new one before the switch."
	handle(s, migrate, func(ctx context.Context, in *migrateIn) (*output[IndexAnswer], error) {
		return act(ctx, in.Body.Action, in.Body.Force, in.DryRun)
	})
	type dedicateIn struct {
		Tenant string `path:"tenant" doc:"id of the tenant"`
		Body   struct {
			Shards int `json:"shards,omitempty" minimum:"1" maximum:"256" default:"2" doc:"about one for each 10 million chunks that it will have"`
		}
	}
	dedicate := needs(change(http.MethodPut, "/v1/index/dedicated/{tenant}", "Move a tenant to an index of its own"), scopeAdmin)
	dedicate.Description = "For a tenant that outgrows a shard of the index that all share. Its chunks are filled into the new index from the stored results while search goes on, then deleted from the shared one. GET /v1/index says how far that is; the action cancel of a migration stops it. The embedded index has none of these."
	handle(s, dedicate, func(ctx context.Context, in *dedicateIn) (*output[*indexset.Status], error) {
		st, err := s.cfg.Indexes.Move(ctx, indexset.Dedicate, in.Tenant, in.Body.Shards)
		return &output[*indexset.Status]{st}, err
	})
	type shareIn struct {
		Tenant string `path:"tenant" doc:"id of the tenant"`
	}
	share := needs(change(http.MethodDelete, "/v1/index/dedicated/{tenant}", "Move a tenant back to the shared index"), scopeAdmin)
	share.Description = "Its chunks are filled into the shared index from the stored results while search goes on; then its own index is deleted."
	handle(s, share, func(ctx context.Context, in *shareIn) (*output[*indexset.Status], error) {
		st, err := s.cfg.Indexes.Move(ctx, indexset.Share, in.Tenant, 0)
		return &output[*indexset.Status]{st}, err
	})
	type rebuildIn struct{ DryRunParam }
	rebuild := needs(post("/v1/index/rebuild", "Make the search index anew"), scopeAdmin)
	rebuild.Description = "Fills a new index of the same model from the stored results while the present one is searched, then takes its place. Nothing is parsed and nothing is embedded."
	handle(s, rebuild, func(ctx context.Context, in *rebuildIn) (*output[IndexAnswer], error) {
		return act(ctx, indexset.Rebuild, false, in.DryRun)
	})
}
