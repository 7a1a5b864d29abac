package api

import (
	"bytes"
	"context"
	"net/http"

	"sheaf/internal/graphs"
	"sheaf/internal/search"
	"sheaf/taskstore"
)

// SplitPath names a split of the graph of a dataset.
type SplitPath struct {
	DatasetPath
	Split string `path:"split" maxLength:"64" doc:"id of the split"`
}

// NewSplit lists names to keep apart.
type NewSplit struct {
	Names []string `json:"names" minItems:"2" maxItems:"10" nullable:"false" doc:"as in chunks, up to 200 bytes each; from then on each is a separate entity"`
}

// graphExport is a graph served as a file.
type graphExport struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        []byte
}

func (s *Server) graphRoutes() {
	type around struct {
		DatasetPath
		Entity string `query:"entity" maxLength:"500" doc:"name of the entity to start from; absent: the highest-ranked entities"`
		Depth  int    `query:"depth" minimum:"1" maximum:"3" default:"1" doc:"maximum relations from the entity"`
		Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"maximum entities"`
	}
	read := get("/v1/datasets/{ds}/graph", "Read the graph of a dataset")
	read.Description = "Entities that the chunks of a dataset name, the relations between them, and their communities, each with chunks that support it. The graph is built on the first request; before that the answer is 503 with the code graph_building."
	handle(s, read, func(ctx context.Context, in *around) (*output[*graphs.Part], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		out, err := s.cfg.Graphs.Around(ctx, ds.TenantID, ds.ID, in.Entity, in.Depth, in.Limit)
		return &output[*graphs.Part]{out}, err
	})
	match := get("/v1/datasets/{ds}/graph/entities", "Find entities of the graph by part of their name")
	match.Description = "Those that begin with the text come first, then the highest-ranked."
	handle(s, match, func(ctx context.Context, in *struct {
		DatasetPath
		Q     string `query:"q" required:"true" minLength:"1" maxLength:"200" doc:"part of the name"`
		Limit int    `query:"limit" minimum:"1" maximum:"100" default:"10" doc:"maximum entities"`
	}) (*output[List[search.GraphEntity]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		found, err := s.cfg.Graphs.Matching(ctx, ds.TenantID, ds.ID, in.Q, in.Limit)
		return listOf(found, ""), err
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
		var out bytes.Buffer // bounded, because the graph is
		if err := s.cfg.Graphs.WriteGraphML(ctx, ds.TenantID, ds.ID, &out); err != nil {
			return nil, err
		}
		return &graphExport{ContentType: "application/graphml+xml", Disposition: `attachment; filename="graph.graphml"`, Body: out.Bytes()}, nil
	})
	split := post("/v1/datasets/{ds}/graph/splits", "Keep names apart in the graph of a dataset")
	split.OperationID = "create-split"
	split.Description = "Undoes a wrong merge: the names, which GET …/graph?entity= lists for the entity, are separate entities from the next answer on, also in later documents. It asks no model. The same names again change nothing. A dataset has up to 1,000 splits."
	handle(s, split, func(ctx context.Context, in *struct {
		DatasetPath
		Body NewSplit
	}) (*output[*taskstore.Split], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		names, err := s.cfg.Graphs.CheckSplit(ctx, ds.TenantID, ds.ID, in.Body.Names)
		if err != nil {
			return nil, err
		}
		added, err := s.cfg.Catalog.AddSplit(ctx, ds.TenantID, ds.ID, names)
		s.cfg.Graphs.Changed(ds.TenantID, ds.ID)
		return &output[*taskstore.Split]{added}, err
	})
	handle(s, get("/v1/datasets/{ds}/graph/splits", "List names that the graph of a dataset keeps apart"), func(ctx context.Context, in *struct {
		DatasetPath
		ListInput
	}) (*output[List[taskstore.Split]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		splits, next, err := s.cfg.Catalog.Splits(ctx, ds.TenantID, ds.ID, in.page())
		return listOf(splits, next), err
	})
	remove := change(http.MethodDelete, "/v1/datasets/{ds}/graph/splits/{split}", "Delete a split")
	remove.OperationID = "delete-split"
	remove.Description = "The names are merged again if the graph takes them for one. It asks no model."
	remove.DefaultStatus = http.StatusNoContent
	handle(s, remove, func(ctx context.Context, in *SplitPath) (*struct{}, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		err = s.cfg.Catalog.RemoveSplit(ctx, ds.TenantID, ds.ID, in.Split)
		s.cfg.Graphs.Changed(ds.TenantID, ds.ID)
		return nil, err
	})
}
