package flow

import (
	"strings"

	"sheaf"
	"sheaf/internal/raptor"
)

// raptor sums the document up, layer over layer, as a run of raptor over its
// dataset does. The settings are those of such a run, but for its scope.
var _ = register(Kind{Name: "raptor", Doc: "adds layers of summaries of the document to the search index", In: []Port{Indexed}, Over: sheaf.KindRaptor, Config: map[string]Field{
	"prompt": {Type: "string", Doc: "prompt for a summary; " + raptor.Content + " is replaced by the passages", Check: func(v any) string {
		if text, _ := v.(string); !strings.Contains(text, raptor.Content) {
			return "it must hold " + raptor.Content + ", where the passages are put"
		}
		return ""
	}},
	"max_token":                        {Type: "int", Min: 64, Max: 2048, Doc: "maximum tokens per summary; default: 512"},
	"clustering_threshold":             {Type: "float", Max: 1, Doc: "percentile of neighbour similarity below which passages are not grouped; default: 0.3"},
	"clustering_ratio":                 {Type: "float", Min: 0.01, Max: 0.5, Doc: "maximum summaries of a layer per passage of the layer below; default: 0.5"},
	"max_cluster":                      {Type: "int", Min: 2, Max: 1024, Doc: "maximum passages per summary; default: 64"},
	"auto_disable_for_structured_data": {Type: "bool", Doc: "skip documents that consist of tables only; default: true"},
}, Check: asOptions(raptor.ReadOptions)})
