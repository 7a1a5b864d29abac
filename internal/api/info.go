package api

import (
	"context"

	"sheaf/internal/buildinfo"
)

// InfoAnswer is the running build and the caller's permissions.
type InfoAnswer struct {
	buildinfo.Info
	Tenant string   `json:"tenant" doc:"id of the caller's tenant"`
	Scopes []string `json:"scopes" nullable:"false" doc:"of the caller's key; admin if the server needs no key"`
	Model  string   `json:"embedding_model,omitempty" doc:"that vectors are made with; absent if this process has none"`
}

// infoRoutes registers the route that identifies this server.
func (s *Server) infoRoutes() {
	handle(s, get("/v1/info", "Read which build of Sheaf answers"), func(ctx context.Context, _ *struct{}) (*output[InfoAnswer], error) {
		p, _ := ctx.Value(principalKey).(principal)
		out := InfoAnswer{Info: s.cfg.Build, Tenant: p.tenant, Scopes: p.scopes}
		if s.cfg.Embedder != nil {
			out.Model = s.cfg.Embedder.Model().ID
		}
		return &output[InfoAnswer]{out}, nil
	})
}
