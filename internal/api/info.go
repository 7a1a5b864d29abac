package api

import (
	"context"

	"sheaf/internal/buildinfo"
)

// infoRoutes say what answers here.
func (s *Server) infoRoutes() {
	handle(s, get("/v1/info", "Read which build of Sheaf answers"), func(context.Context, *struct{}) (*output[buildinfo.Info], error) {
		return &output[buildinfo.Info]{s.cfg.Build}, nil
	})
}
