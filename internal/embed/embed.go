// Package embed turns text into vectors, between chunking and indexing and again
// for each query. static is the built-in model, openai any server of
// /v1/embeddings; embedtest holds both to the same contract.
package embed

import (
	"context"
	"errors"
	"fmt"

	"sheaf"
)

// ErrAnswer accompanies the Failure for a response without one valid vector per
// text, which a single text of the request may have caused.
var ErrAnswer = errors.New("the embedder's answer does not fit the texts")

// Embedder makes vectors. It is safe for concurrent use.
type Embedder interface {
	// Model describes the vectors; it never changes for one Embedder.
	Model() Model
	// Embed returns one vector per text, in order, each Model().Dim long and of
	// unit length, or all zeros for a text in which the model knows nothing: such a
	// vector must not be indexed. The caller owns the vectors. Errors have a
	// *sheaf.Failure in their chain (429 and 5xx retryable, with a
	// *sheaf.RateLimited if the provider asked for a wait), sheaf.ErrInvalid for
	// input that the model rejects, ErrAnswer for a response that does not fit the
	// texts, or are ctx.Err(). No texts give no vectors and no call.
	Embed(ctx context.Context, texts []string, purpose Purpose) (vectors [][]float32, err error)
	// Ping checks that the embedder works.
	Ping(ctx context.Context) error
}

// Each embeds texts and checks that each has a vector. An embedder that keeps its
// contract never fails this; one that calls a server may. The error wraps
// ErrAnswer.
func Each(ctx context.Context, e Embedder, texts []string, purpose Purpose) ([][]float32, error) {
	vectors, err := e.Embed(ctx, texts, purpose)
	if err == nil && len(vectors) != len(texts) {
		return nil, fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, "embedder_answer", "the embedder answered %d vectors for %d texts", len(vectors), len(texts)), ErrAnswer)
	}
	return vectors, err
}

// Purpose tells models with asymmetric prompts what kind of text it is.
type Purpose int

const (
	Passage Purpose = iota
	Query
	// Window means that the texts are the consecutive passages of one window, read
	// together: the vector of each reflects the others (late chunking: M. Günther
	// et al., "Late Chunking", 2024). All are sent in one call. ErrInvalid if
	// Model().Window is 0.
	Window
)

// Model names a vector space and how its scores are fused: the vector side counts
// Weight, after subtracting Floor from its cosines.
type Model struct {
	ID     string // stable name of the space, used in digests and index names: "minilm-static-256@673fbe01"
	Dim    int
	Weight float64 // of the vector side in hybrid fusion, 0–1; negative means unknown: fuse by RRF
	Floor  float64 // cosine of unrelated texts
	// Window is how many tokens (cl100k_base) the model reads together as the
	// passages of a Window; 0 if it reads each text separately.
	Window int
	// Cheap says that embedding a text costs less than finding out whether its vector
	// is stored.
	Cheap bool
}
