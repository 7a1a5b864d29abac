package flow

import (
	"sheaf"
	"sheaf/internal/graph"
)

// graph has the chat model extract the document's entities and relations, as a run
// of graphrag over its dataset does. Decisions over all documents of a dataset, such
// as communities, are left to such a run.
var _ = register(Kind{Name: "graph", Doc: "has the chat model read the document's entities and relations for the graph of its dataset", In: []Port{Indexed}, Over: sheaf.KindGraphRAG, Config: map[string]Field{
	"method":                 {Type: "string", Values: []string{graph.MethodLight, graph.MethodGeneral, graph.MethodNER, graph.MethodCooccurrence}, Doc: "light and general ask for entities and relations, ner for entities alone, cooccurrence asks nothing; left out: light, or cooccurrence without a chat model"},
	"entity_types":           {Type: "strings", Doc: "types of entities; left out: organization, person, geo, event, category"},
	"batch_chunk_token_size": {Type: "int", Min: 512, Max: 8196, Doc: "most tokens that the model reads in one call; left out: 4096"},
	"retry_attempts":         {Type: "int", Max: 10, Doc: "how often a passage is asked about again after an answer that is of no use; left out: 2"},
}, Check: asOptions(graph.ReadRunOptions)})
