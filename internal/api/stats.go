package api

import (
	"context"

	"sheaf/taskstore"
)

// statsRoutes describe the last hour, when the store can.
func (s *Server) statsRoutes() {
	type in struct {
		Minutes int `query:"minutes" minimum:"1" maximum:"180" default:"60"`
	}
	handle(s, get("/v1/stats", "Read throughput and stage times of the last minutes"), func(ctx context.Context, in *in) (*output[*taskstore.Stats], error) {
		tenant := tenantOf(ctx)
		if !s.cfg.Auth {
			tenant = "" // as with the queues
		}
		st, err := s.cfg.Catalog.Stats(ctx, tenant, in.Minutes)
		return &output[*taskstore.Stats]{st}, err
	})
}
