package api

import (
	"cmp"
	"context"
	"fmt"

	"sheaf"
	"sheaf/internal/indexset"
)

// Indexes reports on the search index and changes it; *indexset.Set implements it.
type Indexes interface {
	Status(ctx context.Context) (*indexset.Status, error)
	Act(ctx context.Context, a indexset.Action, force, dryRun bool) (*indexset.Status, *indexset.Estimate, error)
	Move(ctx context.Context, a indexset.Action, tenantID string, shards int, dryRun bool) (*indexset.Status, error)
}

// IndexAnswer is the state of the index after an action, or before a dry run.
type IndexAnswer struct {
	indexset.Status
	Estimate *indexset.Estimate `json:"estimate,omitempty" doc:"what a migration would take: of a dry run of start"`
}

// indexStatus returns the index state as the caller may see it: unreadable
// documents may belong to any tenant.
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

// defaultShards is for the index of one tenant, which has outgrown one shard.
const defaultShards = 2

// indexRoutes registers the operator's index routes.
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
			Action indexset.Action `json:"action" enum:"start,pause,resume,switch,rollback,confirm,cancel,dedicate,share"`
			Force  bool            `json:"force,omitempty" doc:"switch even if the gate has not passed"`
			Tenant string          `json:"tenant,omitempty" doc:"of dedicate and share"`
			Shards int             `json:"shards,omitempty" minimum:"1" maximum:"256" doc:"of dedicate: about one for each 10 million chunks that the tenant will have; default: 2"`
		}
	}
	migrate := needs(post("/v1/index/migration", "Fill an index of the configured model and switch to it"), scopeAdmin)
	migrate.Description = "start fills a new index of the configured embedding model beside the live one, from the stored results: nothing is parsed. switch moves searches to it once nothing is missing and the gate has passed; rollback moves them back to the old one; confirm deletes that. cancel, before the switch, deletes the new one. dedicate moves a tenant that outgrows a shard of Elasticsearch to its own index while search continues, and share moves it back; the status shows the progress, and cancel stops it."
	handle(s, migrate, func(ctx context.Context, in *migrateIn) (*output[IndexAnswer], error) {
		b := &in.Body
		if b.Shards != 0 && b.Action == indexset.Share {
			return nil, fmt.Errorf("%w: shards belong to the action dedicate; the shared index has those of index.shards", sheaf.ErrInvalid)
		}
		switch b.Action {
		case indexset.Dedicate, indexset.Share:
			st, err := s.cfg.Indexes.Move(ctx, b.Action, b.Tenant, cmp.Or(b.Shards, defaultShards), in.DryRun)
			if err != nil {
				return nil, err
			}
			return &output[IndexAnswer]{IndexAnswer{Status: *st}}, nil
		}
		if b.Tenant != "" || b.Shards != 0 {
			return nil, fmt.Errorf("%w: tenant and shards belong to the actions dedicate and share", sheaf.ErrInvalid)
		}
		return act(ctx, b.Action, b.Force, in.DryRun)
	})
	type rebuildIn struct{ DryRunParam }
	rebuild := needs(post("/v1/index/rebuild", "Rebuild the search index"), scopeAdmin)
	rebuild.Description = "Fills a new index of the same model from the stored results while the current one is searched, then replaces it. Nothing is parsed or embedded."
	handle(s, rebuild, func(ctx context.Context, in *rebuildIn) (*output[IndexAnswer], error) {
		return act(ctx, indexset.Rebuild, false, in.DryRun)
	})
}
