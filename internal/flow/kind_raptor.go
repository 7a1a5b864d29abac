package flow

import (
	"strings"

	"sheaf"
	"sheaf/internal/raptor"
)

// raptor sums the document up, layer over layer, as a run of raptor over its
// dataset does. The settings are those of such a run, but for its scope.
var _ = register(Kind{Name: "raptor", Doc: "makes summaries of the document, layer over layer, that search finds", In: []Port{Indexed}, Over: sheaf.KindRaptor, Config: map[string]Field{
	"prompt": {Type: "string", Doc: "asks the chat model for a summary; " + raptor.Content + " stands for the passages", Check: func(v any) string {
		if text, _ := v.(string); !strings.Contains(text, raptor.Content) {
			return "it must hold " + raptor.Content + ", where the passages are put"
		}
		return ""
	}},
	"max_token":                        {Type: "int", Min: 64, Max: 2048, Doc: "most tokens in a summary; left out: 512"},
	"clustering_threshold":             {Type: "float", Max: 1, Doc: "percentile of the similarities of neighbours below which passages are kept apart; left out: 0.3"},
	"clustering_ratio":                 {Type: "float", Min: 0.01, Max: 0.5, Doc: "summaries of a layer for each passage below it, at most; left out: 0.5"},
	"max_cluster":                      {Type: "int", Min: 2, Max: 1024, Doc: "most passages below a summary; left out: 64"},
	"auto_disable_for_structured_data": {Type: "bool", Doc: "leave out documents that hold nothing but tables; left out: true"},
}, Check: asOptions(raptor.ReadOptions)})
