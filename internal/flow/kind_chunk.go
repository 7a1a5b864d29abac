package flow

// chunk cuts what was read into chunks. The executor does this, with these settings.
var _ = register(Kind{Name: "chunk", Doc: "cuts what was read into chunks", In: []Port{Units}, Out: Chunks, Config: map[string]Field{
	"chunk_method":       {Type: "string", Doc: "how, such as general, laws or table"},
	"chunk_token_num":    {Type: "int", Min: 16, Max: 8191, Doc: "most tokens in a chunk"},
	"delimiter":          {Type: "string", Doc: "characters that end a piece"},
	"overlapped_percent": {Type: "int", Max: 50, Doc: "share of a chunk that the next one repeats"},
}})
