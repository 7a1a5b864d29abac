package flow

// The kinds at both ends of every flow: the executor reads a range and writes it
// to the index as it does without a flow, by these settings.
var (
	_ = register(Kind{Name: "parse", Out: Units, Config: map[string]Field{
		"ocr_pictures": {Type: "bool"}, "pii": {Type: "string", Values: []string{"none", "find", "redact"}},
	}})
	_ = register(Kind{Name: "chunk", In: []Port{Units}, Out: Chunks, Config: map[string]Field{
		"chunk_method": {Type: "string"}, "chunk_token_num": {Type: "int", Min: 16, Max: 8191}, "delimiter": {Type: "string"}, "overlapped_percent": {Type: "int", Max: 50},
	}})
	_ = register(Kind{Name: "embed", In: []Port{Chunks}, Out: Vectors})
	_ = register(Kind{Name: "index", In: []Port{Chunks, Vectors}})
)
