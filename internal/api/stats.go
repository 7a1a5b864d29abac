package api

import (
	"context"

	"sheaf/internal/indexset"
	"sheaf/taskstore"
)

// StatsAnswer is the work of the last minutes and the state of the search index.
type StatsAnswer struct {
	taskstore.Stats
	Index *indexset.Status `json:"index,omitempty" doc:"whether what is searched is all there is, and how far an index that is filled is"`
}

// statsRoutes describe the last hour, when the store can.
func (s *Server) statsRoutes() {
	type in struct {
		Minutes int `query:"minutes" minimum:"1" maximum:"180" default:"60"`
	}
	handle(s, get("/v1/stats", "Read throughput and stage times of the last minutes, and the state of the search index"), func(ctx context.Context, in *in) (*output[StatsAnswer], error) {
		tenant := tenantOf(ctx)
		if !s.cfg.Auth {
			tenant = "" // as with the queues
		}
		st, err := s.cfg.Catalog.Stats(ctx, tenant, in.Minutes)
		if err != nil {
			return nil, err
		}
		out := &output[StatsAnswer]{StatsAnswer{Stats: *st}}
		if s.cfg.Indexes != nil {
			out.Body.Index, err = s.indexStatus(ctx)
		}
		return out, err
	})
}
