package sheaf

import (
	"encoding/json"
	"reflect"
)

// ParseConfig describes how a document is split into chunks. It is one layer: a
// dataset's settings, an upload's overrides, or a re-parse's overrides. Package
// settings describes each setting, merges layers and has the defaults.
type ParseConfig struct {
	ChunkMethod       Opt[string]   `json:"chunk_method,omitzero"`       // how blocks become chunks
	ChunkTokenNum     Opt[int]      `json:"chunk_token_num,omitzero"`    // maximum tokens (cl100k_base) per chunk
	Delimiter         Opt[string]   `json:"delimiter,omitzero"`          // characters that end a piece; `backticked` strings always cut
	OverlappedPercent Opt[int]      `json:"overlapped_percent,omitzero"` // 0–50: tokens of a chunk repeated at the start of the next
	ChildrenDelimiter Opt[string]   `json:"children_delimiter,omitzero"` // cuts chunks into children, written like Delimiter
	HTML4Excel        Opt[bool]     `json:"html4excel,omitzero"`         // tables as HTML instead of Markdown
	TOCExtraction     Opt[bool]     `json:"toc_extraction,omitzero"`     // one more chunk per range: its headings with their pages
	ImageContextSize  Opt[int]      `json:"image_context_size,omitzero"` // tokens of text around an image embedded with it
	TableContextSize  Opt[int]      `json:"table_context_size,omitzero"` // tokens of text around a table embedded with it
	OCRPictures       Opt[bool]     `json:"ocr_pictures,omitzero"`       // text in pictures of documents, decks, books and PDFs
	AutoKeywords      Opt[int]      `json:"auto_keywords,omitzero"`      // keywords per chunk: from the chat model, otherwise by term frequency
	AutoQuestions     Opt[int]      `json:"auto_questions,omitzero"`     // questions per chunk, from the chat model
	AutoContext       Opt[bool]     `json:"auto_context,omitzero"`       // a sentence or two from the chat model that situates the chunk
	PII               Opt[string]   `json:"pii,omitzero"`                // personal data: "none", "find" or "redact"
	TagKBIDs          Opt[[]string] `json:"tag_kb_ids,omitzero"`         // datasets (chunk method "tag") whose tags the chunks get
	TopNTags          Opt[int]      `json:"topn_tags,omitzero"`          // tags per chunk
	Flow              Opt[string]   `json:"flow,omitzero"`               // the flow that processes the document, or a version of one
	TaskPageSize      Opt[int]      `json:"task_page_size,omitzero"`     // pages per task
	Pages             Opt[[]Range]  `json:"pages,omitzero"`              // units to read
	TableRows         Opt[int]      `json:"table_rows,omitzero"`         // rows per task of a spreadsheet or CSV
	Encoding          Opt[string]   `json:"encoding,omitzero"`           // of text files, when the guess is wrong
	MediaType         Opt[string]   `json:"media_type,omitzero"`         // overrides what sniffing found
	Password          Opt[string]   `json:"password,omitzero"`           // write-only: never returned

	// Datasets only: options for runs over the dataset.
	Raptor   Opt[RunConfig] `json:"raptor,omitzero"`
	GraphRAG Opt[RunConfig] `json:"graphrag,omitzero"`
}

// RunConfig holds the options of one kind of run over a dataset, under RAGFlow's
// names, including whether it starts automatically: use_raptor, use_graphrag.
type RunConfig map[string]any

// UnmarshalJSON sets what the object names and leaves the rest as it is. A
// bare null sets every setting to null. Unknown keys are ignored, since a row
// may come from a newer version; see settings.Unknown.
func (c *ParseConfig) UnmarshalJSON(b []byte) error {
	if string(b) != "null" {
		type plain ParseConfig
		to := plain(*c)
		if err := json.Unmarshal(b, &to); err != nil {
			return err
		}
		*c = ParseConfig(to)
		return nil
	}
	for _, field := range reflect.ValueOf(c).Elem().Fields() {
		if err := field.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(b); err != nil {
			return err
		}
	}
	return nil
}

// Opt is a setting that a layer sets (possibly to zero), sets to null, or omits; the
// zero Opt is omitted. Null falls back to the layer below. In JSON, omitzero on the
// field keeps the three apart.
type Opt[T any] struct {
	V     T // zero unless it is set
	state optState
}

type optState uint8

const (
	optSet optState = iota + 1
	optNull
)

// Set returns an Opt set to v.
func Set[T any](v T) Opt[T] { return Opt[T]{V: v, state: optSet} }

// IsSet reports whether the value is set and not null.
func (o Opt[T]) IsSet() bool { return o.state == optSet }

// IsNull reports whether the value is set to null.
func (o Opt[T]) IsNull() bool { return o.state == optNull }

// IsZero reports whether the value is omitted.
func (o Opt[T]) IsZero() bool { return o.state == 0 }

// Any returns V, for callers that know a setting only by name.
func (o Opt[T]) Any() any { return o.V }

// MarshalJSON writes null for a value that is not set, and [] for an empty list.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.IsSet() {
		return []byte("null"), nil
	}
	b, err := json.Marshal(o.V)
	if string(b) == "null" {
		b = []byte("[]") // no other kind of setting can be nil
	}
	return b, err
}

// UnmarshalJSON reads a value or null.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*o = Opt[T]{state: optNull}
		return nil
	}
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*o = Set(v)
	return nil
}
