// Package rerank queries a /rerank server for the relevance of texts to a query. It
// is the last step of a search, before the threshold and the limit, if a server is
// configured. A search waits for it no longer than its budget and otherwise
// continues without it.
package rerank

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/openaiapi"
)

// Protocol is the protocol of a server.
type Protocol string

const (
	// Cohere: https://docs.cohere.com/reference/rerank (v2)
	Cohere Protocol = "cohere"
	// Jina: https://jina.ai/reranker; also supported by vLLM, llama.cpp, Infinity
	// and Cohere's v1.
	Jina Protocol = "jina"
	// TEI: https://huggingface.github.io/text-embeddings-inference/#/Text%20Embeddings%20Inference/rerank
	TEI Protocol = "tei"
)

// Detect derives the protocol from the end of the address: /v2/rerank is Cohere's,
// /v1/rerank Jina's, and /rerank without a model name TEI's, which serves a single
// model.
func Detect(address, model string) Protocol {
	switch {
	case strings.HasSuffix(address, "/v2/rerank"):
		return Cohere
	case model == "" && !strings.HasSuffix(address, "/v1/rerank"):
		return TEI
	}
	return Jina
}

// Breaker rejects calls while their server is down.
type Breaker interface {
	Do(ctx context.Context, call func() error) error
}

// Config configures the server and its limits.
type Config struct {
	URL        string        // full URL: "https://api.jina.ai/v1/rerank"
	Protocol   Protocol      // "" to use Detect
	Model      string        // as the server names it; none for TEI
	APIKey     string        // sent as "Authorization: Bearer …"; empty sends none
	Key        func() string // returns the current key; takes precedence over APIKey
	Budget     time.Duration // per call of Rerank
	Candidates int           // texts per call of Rerank
	Client     *http.Client  // nil means a private one
	Breaker    Breaker
	Log        *slog.Logger
	// Reranked is called after each call of Rerank. May be nil.
	Reranked func(outcome string, took time.Duration)
}

// String omits the key.
func (c Config) String() string {
	return fmt.Sprintf("rerank{%s %s model=%s}", c.URL, c.Protocol, c.Model)
}

// GoString omits the key.
func (c Config) GoString() string { return c.String() }

// Client is safe for concurrent use.
type Client struct {
	Config // as opened, with its defaults
	server openaiapi.Server
}

// Open checks the configuration; it does not call the server.
func Open(c Config) (*Client, error) {
	endpoint, err := openaiapi.Endpoint(c.URL, "")
	if err != nil {
		return nil, err
	}
	if c.Protocol == "" {
		c.Protocol = Detect(c.URL, c.Model)
	}
	if !slices.Contains([]Protocol{Cohere, Jina, TEI}, c.Protocol) {
		return nil, fmt.Errorf("%w: search.rerank.protocol is %q; it must be cohere, jina or tei", sheaf.ErrInvalid, c.Protocol)
	}
	if c.Model == "" && c.Protocol != TEI {
		return nil, fmt.Errorf("%w: search.rerank.model is empty; servers of the protocol %s need the name of one", sheaf.ErrInvalid, c.Protocol)
	}
	if c.Budget <= 0 || c.Candidates <= 0 {
		return nil, fmt.Errorf("%w: search.rerank.budget is %s and search.rerank.candidates %d; both must be above 0", sheaf.ErrInvalid, c.Budget, c.Candidates)
	}
	if c.Key == nil {
		c.Key = func() string { return c.APIKey }
	}
	if c.Client == nil {
		c.Client = openaiapi.NewClient()
	}
	return &Client{Config: c, server: openaiapi.Server{
		Endpoint: endpoint, What: "rerank server", Code: "rerank", Section: "search.rerank", Key: c.Key, Model: c.Model, Timeout: c.Budget, Client: c.Client,
	}}, nil
}

// Outcome is the outcome of a call.
type Outcome string

const (
	Used       Outcome = "used"
	PastBudget Outcome = "budget"  // the server took longer
	TurnedBack Outcome = "breaker" // no call was made, since previous ones failed
	Failed     Outcome = "error"
)

// Limits of one call.
const (
	maxQueryBytes  = 4 << 10 // rerankers read a total of 512 to 8,192 tokens of query and text
	maxTextBytes   = 8 << 10
	maxAnswerBytes = 1 << 20
	batchTEI       = 32 // texts that TEI accepts at once by default (--max-client-batch-size)
)

// Result describes one call. Reason is the code of the failure, "" for Used and
// TurnedBack.
type Result struct {
	Outcome Outcome
	Reason  string
	Took    time.Duration
}

// Rerank returns the relevance of each text to the query, 0–1 and by index, or nil
// if the result is not Used. It takes no longer than the budget. Texts are
// truncated at 8 KB and the query at 4 KB.
func (c *Client) Rerank(ctx context.Context, query string, texts []string) ([]float64, Result) {
	started := time.Now()
	var scores []float64
	called := false
	err := c.Breaker.Do(ctx, func() (err error) {
		called = true
		scores, err = c.ask(ctx, query, texts)
		return err
	})
	result := Result{Outcome: Used, Took: time.Since(started)}
	switch failure := sheaf.AsFailure(err, ""); {
	case err == nil:
	case !called:
		scores, result.Outcome = nil, TurnedBack
	default:
		scores, result.Outcome, result.Reason = nil, Failed, failure.Code
		if failure.Category == sheaf.CategoryTimeout {
			result.Outcome = PastBudget
		} else if ctx.Err() == nil {
			c.Log.WarnContext(ctx, "hits were not reranked", "error", err)
		}
	}
	if c.Reranked != nil && ctx.Err() == nil {
		c.Reranked(string(result.Outcome), result.Took)
	}
	return scores, result
}

// ask makes one call, or concurrently as many as the server needs for all texts.
func (c *Client) ask(ctx context.Context, query string, texts []string) ([]float64, error) {
	batch := len(texts)
	if c.Protocol == TEI {
		batch = batchTEI
	}
	scores := make([]float64, len(texts))
	calls, callCtx := errgroup.WithContext(ctx)
	for from := 0; from < len(texts); from += batch {
		to := min(from+batch, len(texts))
		calls.Go(func() error { return c.call(callCtx, query, texts[from:to], scores[from:to]) })
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	// Some servers answer with logits, then for all scores of an answer.
	if slices.Min(scores) < 0 || slices.Max(scores) > 1 {
		for i, x := range scores {
			scores[i] = 1 / (1 + math.Exp(-x))
		}
	}
	return scores, nil
}

// request has the fields of the protocol in use; the rest are omitted.
type request struct {
	Model           string   `json:"model,omitempty"`
	Query           string   `json:"query"`
	Documents       []string `json:"documents,omitempty"`
	TopN            int      `json:"top_n,omitempty"`
	ReturnDocuments *bool    `json:"return_documents,omitempty"`
	Texts           []string `json:"texts,omitempty"`
	Truncate        bool     `json:"truncate,omitempty"`
}

// relevance is the relevance of one text.
type relevance struct {
	Index          *int     `json:"index"`
	RelevanceScore *float64 `json:"relevance_score"`
	Score          *float64 `json:"score"` // TEI
}

// call fills in the scores of the texts, one each.
func (c *Client) call(ctx context.Context, query string, texts []string, scores []float64) error {
	sent := make([]string, len(texts))
	for i, t := range texts {
		sent[i] = cut(t, maxTextBytes)
	}
	r := request{Query: cut(query, maxQueryBytes)}
	switch c.Protocol {
	case TEI:
		r.Texts, r.Truncate = sent, true
	case Jina:
		r.ReturnDocuments = new(bool) // otherwise they are returned
		fallthrough
	case Cohere:
		r.Model, r.Documents, r.TopN = c.Model, sent, len(sent)
	}
	body, err := c.server.Post(ctx, r, maxAnswerBytes)
	if refusal, ok := errors.AsType[*openaiapi.Refusal](err); ok {
		if refusal.AboutInput() {
			return sheaf.Fail(sheaf.CategoryBadInput, "rerank_refused", "the rerank server %s refuses the texts (%d): %s", c.server.Endpoint, refusal.Status, refusal.Message)
		}
		return refusal.Failure()
	}
	if err == nil {
		err = c.read(body, scores)
	}
	if failure, ok := errors.AsType[*sheaf.Failure](err); ok && !errors.Is(err, sheaf.ErrUnavailable) {
		// A server that answers incorrectly is as bad as none: the breaker counts it.
		return fmt.Errorf("%w (%w)", failure, sheaf.ErrUnavailable)
	}
	return err
}

// read extracts the scores from an answer, which must contain each index once.
func (c *Client) read(body []byte, scores []float64) error {
	var all []relevance
	var err error
	if c.Protocol == TEI {
		err = json.Unmarshal(body, &all)
	} else {
		var answer struct{ Results []relevance }
		err = json.Unmarshal(body, &answer)
		all = answer.Results
	}
	if err != nil {
		return c.server.BadAnswer("it is not what the protocol %s says (%v)", c.Protocol, err)
	}
	if len(all) != len(scores) {
		return c.server.BadAnswer("it has %d scores for %d texts", len(all), len(scores))
	}
	seen := make([]bool, len(scores))
	for _, x := range all {
		score := x.RelevanceScore
		if c.Protocol == TEI {
			score = x.Score
		}
		if x.Index == nil || *x.Index < 0 || *x.Index >= len(scores) || seen[*x.Index] || score == nil {
			return c.server.BadAnswer("it does not have one score for each text")
		}
		seen[*x.Index], scores[*x.Index] = true, *score
	}
	return nil
}

// cut keeps whole characters of at most n bytes.
func cut(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }
