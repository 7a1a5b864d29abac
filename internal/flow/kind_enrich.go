package flow

import (
	"context"
	"encoding/json"

	"sheaf"
	"sheaf/internal/settings"
)

// enrich adds to chunks what its config asks for; omitted settings are the
// document's.
var _ = register(Kind{Name: "enrich", Doc: "adds keywords, questions and context to chunks", In: []Port{Chunks}, Out: Chunks, Config: map[string]Field{
	"auto_keywords":  {Type: "int", Max: 32, Doc: "keywords per chunk, from the chat model or, without one, by frequency"},
	"auto_questions": {Type: "int", Max: 10, Doc: "questions that each chunk answers, from the chat model"},
	"auto_context":   {Type: "bool", Doc: "one or two sentences from the chat model that place each chunk in its document"},
}, Run: func(ctx context.Context, in Input) ([]sheaf.Chunk, []sheaf.Warning, error) {
	own, err := Settings(in.Node, in.Settings)
	if err != nil {
		return nil, nil, err
	}
	warnings, err := in.Enrich(ctx, in.Chunks, own)
	return in.Chunks, warnings, err
}})

// Settings merges the parse settings in a node's config over base.
func Settings(n *Node, base sheaf.ParseConfig) (sheaf.ParseConfig, error) {
	var own sheaf.ParseConfig
	b, err := json.Marshal(n.Config)
	if err == nil && n.Config != nil {
		err = settings.Decode(b, &own)
	}
	return settings.Merge(own, base), err
}
