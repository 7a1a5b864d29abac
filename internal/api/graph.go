package api

import (
	"bytes"
	"context"

	"sheaf/internal/graphs"
)

// graphExport is a file.
type graphExport struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        []byte
}

func (s *Server) graphRoutes() {
	type around struct {
		DatasetPath
		Entity string `query:"entity" maxLength:"500" doc:"name of the entity to begin with; absent: the entities of the highest rank"`
		Depth  int    `query:"depth" minimum:"1" maximum:"3" default:"1" doc:"relations away from the entity at most"`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"entities at most"`
	}
	read := get("/v1/datasets/{ds}/graph", "Read the graph of a dataset")
	read.Description = "Entities that the chunks of a dataset name, the relations between them, and their communities, each with chunks that support it. The graph is made when it is first asked for; until then the answer is 503 with the code graph_building."
	handle(s, read, func(ctx context.Context, in *around) (*output[*graphs.Part], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		out, err := s.cfg.Graphs.Around(ctx, ds.TenantID, ds.ID, in.Entity, in.Depth, in.Limit)
		return &output[*graphs.Part]{out}, err
	})
	type export struct {
		DatasetPath
	}
	file := get("/v1/datasets/{ds}/graph/export", "Export the graph of a dataset")
	file.Description = "The whole graph as GraphML, which Gephi, yEd, Cytoscape and NetworkX read."
	handle(s, file, func(ctx context.Context, in *export) (*graphExport, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer // bounded as the graph is
		if err := s.cfg.Graphs.WriteGraphML(ctx, ds.TenantID, ds.ID, &out); err != nil {
			return nil, err
		}
		return &graphExport{ContentType: "application/graphml+xml", Disposition: `attachment; filename="graph.graphml"`, Body: out.Bytes()}, nil
	})
}
