package flow

import (
	"sheaf"
	"sheaf/internal/graph"
)

// graph has the chat model read the entities and relations of the document, as a
// run of graphrag over its dataset does. What is decided over all documents of a
// dataset, such as communities, is left to such a run.
var _ = register(Kind{Name: "graph", Doc: "has the chat model extract entities and relations for the graph of the dataset", In: []Port{Indexed}, Over: sheaf.KindGraphRAG, Config: map[string]Field{
	"method":                 {Type: "string", Values: []string{graph.MethodLight, graph.MethodGeneral, graph.MethodNER, graph.MethodCooccurrence}, Doc: "light and general extract entities and relations, ner only entities, cooccurrence needs no model; default: light, or cooccurrence without a chat model"},
	"entity_types":           {Type: "strings", Doc: "entity types; default: organization, person, geo, event, category"},
	"batch_chunk_token_size": {Type: "int", Min: 512, Max: 8196, Doc: "maximum input tokens per call; default: 4096"},
	"retry_attempts":         {Type: "int", Max: 10, Doc: "retries for a passage after an unusable answer; default: 2"},
}, Check: asOptions(graph.ReadRunOptions)})
