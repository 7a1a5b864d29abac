package models

import (
	"fmt"
	"slices"
	"strings"

	"sheaf"
)

// Server describes a model on a common embedding server.
type Server struct {
	Name string // of the preset
	What string
	URL  string // where it usually listens; "" if that varies

	Model string // as the server names it
	Dim   int
	Batch int // default maximum of texts per request

	QueryPrefix, PassagePrefix string

	// Weight and Floor, as in Model. Every measured transformer did best with 0.7.
	// The floors are those of the model's family: published cosines of unrelated
	// texts, rounded down. They were not measured with these servers.
	Weight, Floor float64
}

// Servers are the presets of embed.preset.
var Servers = []Server{
	{Name: "openai-3-small", What: "OpenAI", URL: "https://api.openai.com/v1", Model: "text-embedding-3-small", Dim: 1536, Batch: 256, Weight: 0.7, Floor: 0.1},
	{Name: "openai-3-large", What: "OpenAI", URL: "https://api.openai.com/v1", Model: "text-embedding-3-large", Dim: 3072, Batch: 256, Weight: 0.7, Floor: 0.1},
	// text-embeddings-inference accepts 32 inputs per request
	// (--max-client-batch-size).
	{Name: "tei-bge-base-en", What: "TEI", Model: "BAAI/bge-base-en-v1.5", Dim: 768, Batch: 32, Weight: 0.7, Floor: 0.4},
	{Name: "tei-bge-m3", What: "TEI", Model: "BAAI/bge-m3", Dim: 1024, Batch: 32, Weight: 0.7, Floor: 0.3},
	{Name: "tei-e5-multilingual", What: "TEI", Model: "intfloat/multilingual-e5-large", Dim: 1024, Batch: 32, QueryPrefix: "query: ", PassagePrefix: "passage: ", Weight: 0.7, Floor: 0.7},
	{Name: "ollama-nomic", What: "Ollama", URL: "http://127.0.0.1:11434/v1", Model: "nomic-embed-text", Dim: 768, Batch: 16, QueryPrefix: "search_query: ", PassagePrefix: "search_document: ", Weight: 0.7, Floor: 0.4},
	{Name: "ollama-bge-m3", What: "Ollama", URL: "http://127.0.0.1:11434/v1", Model: "bge-m3", Dim: 1024, Batch: 16, Weight: 0.7, Floor: 0.3},
	{Name: "vllm-bge-m3", What: "vLLM", URL: "http://127.0.0.1:8000/v1", Model: "BAAI/bge-m3", Dim: 1024, Batch: 64, Weight: 0.7, Floor: 0.3},
	{Name: "vllm-e5-multilingual", What: "vLLM", URL: "http://127.0.0.1:8000/v1", Model: "intfloat/multilingual-e5-large", Dim: 1024, Batch: 64, QueryPrefix: "query: ", PassagePrefix: "passage: ", Weight: 0.7, Floor: 0.7},
}

// FindServer returns the preset with a name. The error is sheaf.ErrInvalid.
func FindServer(name string) (Server, error) {
	i := slices.IndexFunc(Servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range Servers {
			names = append(names, s.Name)
		}
		return Server{}, fmt.Errorf("%w: embed.preset is %q; it must be one of %s", sheaf.ErrInvalid, name, strings.Join(names, ", "))
	}
	return Servers[i], nil
}
