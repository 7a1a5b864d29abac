package api

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/embed"
)

// Bounds of one embeddings request, from OpenAI's API reference.
const (
	maxEmbedTexts      = 2048
	maxEmbedTextTokens = 8192
	maxEmbedTokens     = 300_000
	maxEmbedBytes      = 8 << 20 // of the body
	maxEmbedCalls      = 16      // concurrent calls of a tenant in this process
)

// EmbedRequest is an embeddings request in OpenAI's format.
type EmbedRequest struct {
	Input          EmbedInput `json:"input" doc:"a text, a list of texts, or texts as cl100k_base tokens: at most 2,048 texts of 8,192 tokens each and 300,000 in total"`
	Model          string     `json:"model,omitempty" doc:"any name; the answer names the configured model that was used"`
	EncodingFormat string     `json:"encoding_format,omitempty" enum:"float,base64" default:"float" doc:"base64 gives the little-endian float32 values"`
	Dimensions     int        `json:"dimensions,omitempty" doc:"must be that of the model"`
	InputType      string     `json:"input_type,omitempty" enum:"passage,query" default:"passage" doc:"query for models that embed questions differently"`
	User           string     `json:"user,omitempty" doc:"ignored"`
}

// EmbedInput holds the texts of a request as they were sent.
type EmbedInput struct{ json.RawMessage }

// Schema implements huma.SchemaProvider.
func (EmbedInput) Schema(huma.Registry) *huma.Schema {
	text, number := &huma.Schema{Type: huma.TypeString}, &huma.Schema{Type: huma.TypeInteger}
	return &huma.Schema{AnyOf: []*huma.Schema{text, {Type: huma.TypeArray, Items: text}, {Type: huma.TypeArray, Items: number}, {Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeArray, Items: number}}}}
}

// texts decodes the input.
func (in EmbedInput) texts() ([]string, error) {
	var text string
	var texts, fromTokens []string
	var tokens []uint
	var lists [][]uint
	switch b := in.RawMessage; {
	case json.Unmarshal(b, &text) == nil:
		return []string{text}, nil
	case json.Unmarshal(b, &texts) == nil:
		return texts, nil
	case json.Unmarshal(b, &tokens) == nil:
		lists = [][]uint{tokens}
	case json.Unmarshal(b, &lists) != nil:
		return nil, newProblem(400, "", "input must be a text, a list of texts, or lists of token numbers")
	}
	for i, tokens := range lists {
		text, err := chunker.DecodeTokens(tokens)
		if err != nil {
			return nil, newProblem(400, "", fmt.Sprintf("input %d holds a number that is no token of cl100k_base; send the text itself", i))
		}
		fromTokens = append(fromTokens, text)
	}
	return fromTokens, nil
}

// checkTexts counts tokens and rejects input over a bound.
func checkTexts(texts []string) (tokens int, err error) {
	if len(texts) == 0 || len(texts) > maxEmbedTexts {
		return 0, newProblem(400, "", fmt.Sprintf("input has %d texts; give 1 to %d", len(texts), maxEmbedTexts))
	}
	for i, text := range texts {
		if text == "" {
			return 0, newProblem(400, "", fmt.Sprintf("input %d is empty; leave it out", i))
		}
		n := chunker.CountTokens(text)
		if n > maxEmbedTextTokens {
			return 0, newProblem(400, "", fmt.Sprintf("input %d has %d tokens; give at most %d, or cut it", i, n, maxEmbedTextTokens))
		}
		if tokens += n; tokens > maxEmbedTokens {
			return 0, newProblem(400, "", fmt.Sprintf("the texts have more than %d tokens together; send them in several requests", maxEmbedTokens))
		}
	}
	return tokens, nil
}

// EmbedAnswer holds one vector per text, in order.
type EmbedAnswer struct {
	Object string      `json:"object" enum:"list"`
	Data   []Embedding `json:"data" nullable:"false"`
	Model  string      `json:"model" doc:"that made the vectors"`
	Usage  EmbedUsage  `json:"usage"`
}

// Embedding is a unit vector, or all zeros for a text that means nothing to the
// model.
type Embedding struct {
	Object    string `json:"object" enum:"embedding"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding" doc:"numbers, or base64"`
}

// EmbedUsage counts cl100k_base tokens.
type EmbedUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

func (s *Server) embeddingRoutes() {
	op := needs(post("/v1/embeddings", "Embed texts with the model of the search index"), scopeRead)
	op.Description = "Request and response are those of OpenAI's API."
	op.MaxBodyBytes = maxEmbedBytes
	calls := newGate(maxEmbedCalls)
	handle(s, op, func(ctx context.Context, in *struct{ Body EmbedRequest }) (*output[EmbedAnswer], error) {
		texts, err := in.Body.Input.texts()
		if err != nil {
			return nil, err
		}
		tokens, err := checkTexts(texts)
		if err != nil {
			return nil, err
		}
		if s.cfg.Embedder == nil {
			return nil, newProblem(http.StatusServiceUnavailable, "", "this process has no embedding model; ask one that has the role api")
		}
		m := s.cfg.Embedder.Model()
		if d := in.Body.Dimensions; d != 0 && d != m.Dim {
			return nil, newProblem(400, "", fmt.Sprintf("dimensions cannot be %d; the vectors of %s have %d: leave it out", d, m.ID, m.Dim))
		}
		if !calls.enter(tenantOf(ctx)) {
			p := newProblem(http.StatusTooManyRequests, "too_many_embeddings", fmt.Sprintf("%d requests of this tenant for vectors are under way here, which is the limit; wait for one to end, or send many texts in one request", maxEmbedCalls))
			p.Retryable = true
			return nil, p
		}
		defer calls.leave(tenantOf(ctx))
		purpose := embed.Passage
		if in.Body.InputType == "query" {
			purpose = embed.Query
		}
		vectors, err := embed.Each(ctx, s.cfg.Embedder, texts, purpose)
		if f, ok := errors.AsType[*sheaf.Failure](err); ok { // the message names the model server's address
			s.log.WarnContext(ctx, "texts of a request were not embedded", "error", err)
			p := newProblem(http.StatusServiceUnavailable, f.Code, "the embedding model did not answer; try again, and see /readyz")
			p.Category, p.Retryable = f.Category, f.Retryable
			return nil, p
		}
		if err != nil {
			return nil, err
		}
		out := EmbedAnswer{Object: "list", Model: m.ID, Usage: EmbedUsage{tokens, tokens}}
		for i, v := range vectors {
			e := Embedding{Object: "embedding", Index: i, Embedding: v}
			if in.Body.EncodingFormat == "base64" {
				e.Embedding = base64Of(v)
			}
			out.Data = append(out.Data, e)
		}
		return &output[EmbedAnswer]{out}, nil
	})
}

// base64Of encodes a vector as little-endian float32 values.
func base64Of(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}
