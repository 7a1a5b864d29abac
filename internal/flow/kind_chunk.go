package flow

// chunk splits the parsed units into chunks. The executor does it with these settings.
var _ = register(Kind{Name: "chunk", Doc: "splits the parsed text into chunks", In: []Port{Units}, Out: Chunks, Config: map[string]Field{
	"chunk_method":       {Type: "string", Doc: "chunk method, such as general, laws or table"},
	"chunk_token_num":    {Type: "int", Min: 16, Max: 8191, Doc: "maximum tokens per chunk"},
	"delimiter":          {Type: "string", Doc: "delimiters that the text is split at"},
	"overlapped_percent": {Type: "int", Max: 50, Doc: "percentage of a chunk that the next one repeats"},
}})
