package api

import (
	"context"

	"sheaf/internal/buildinfo"
)

// InfoAnswer is which build answers, and what the caller may do.
type InfoAnswer struct {
	buildinfo.Info
	Tenant string   `json:"tenant" doc:"id of the tenant that asks"`
	Scopes []string `json:"scopes" nullable:"false" doc:"of the key that asks; admin where the server asks for none"`
}

// infoRoutes say what answers here.
func (s *Server) infoRoutes() {
	handle(s, get("/v1/info", "Read which build of Sheaf answers"), func(ctx context.Context, _ *struct{}) (*output[InfoAnswer], error) {
		p, _ := ctx.Value(principalKey).(principal)
		return &output[InfoAnswer]{InfoAnswer{s.cfg.Build, p.tenant, p.scopes}}, nil
	})
}
