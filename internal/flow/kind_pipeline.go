package flow

// The kinds at both ends of every flow: the executor reads a range and writes it
// to the index as it does without a flow, by these settings.
var (
	_ = register(Kind{Name: "parse", Doc: "reads the document", Out: Units, Config: map[string]Field{
		"ocr_pictures": {Type: "bool", Doc: "read the text in pictures of documents"},
		"pii":          {Type: "string", Values: []string{"none", "find", "redact"}, Doc: "personal data in the text: count it, or replace it before anything is stored"},
	}})
	_ = register(Kind{Name: "chunk", Doc: "cuts what was read into chunks", In: []Port{Units}, Out: Chunks, Config: map[string]Field{
		"chunk_method":       {Type: "string", Doc: "how, such as general, laws or table"},
		"chunk_token_num":    {Type: "int", Min: 16, Max: 8191, Doc: "most tokens in a chunk"},
		"delimiter":          {Type: "string", Doc: "characters that end a piece"},
		"overlapped_percent": {Type: "int", Max: 50, Doc: "share of a chunk that the next one repeats"},
	}})
	_ = register(Kind{Name: "embed", Doc: "makes vectors of chunks", In: []Port{Chunks}, Out: Vectors})
	_ = register(Kind{Name: "index", Doc: "writes chunks to the search index", In: []Port{Chunks, Vectors}, Out: Indexed, Ends: true})
)
