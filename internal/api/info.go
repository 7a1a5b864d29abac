package api

import (
	"context"

	"sheaf/internal/buildinfo"
)

// InfoAnswer is the running build and the caller's permissions.
type InfoAnswer struct {
	buildinfo.Info
	Tenant string   `json:"tenant" doc:"id of the tenant that asks"`
	Scopes []string `json:"scopes" nullable:"false" doc:"of the key that asks; admin where the server asks for none"`
	Model  string   `json:"embedding_model,omitempty" doc:"that vectors are made with; absent where this process has none"`
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
