package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

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

// streamStart is the event behind which a stream begins: the one the client
// saw last, or, with ?after=now, the newest.
func (s *Server) streamStart(r *http.Request) (int64, error) {
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("after")
	}
	if from == "now" {
		return s.cfg.Catalog.LastEvent(r.Context(), tenantOf(r.Context()))
	}
	if from == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(from, 10, 64)
	if err != nil || n < 0 {
		return 0, newProblem(400, "", fmt.Sprintf("Last-Event-ID cannot be %s; send the id of an event of this stream, or leave it out to begin at the start", quoted(from)))
	}
	return n, nil
}
