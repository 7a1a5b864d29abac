package flow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sheaf"
)

// Port is the type of data on an edge.
type Port string

const (
	Units   Port = "units"   // output of a parser
	Chunks  Port = "chunks"  // what search returns
	Vectors Port = "vectors" // chunks with their vectors
	Records Port = "records" // rows of a schema
	Text    Port = "text"    // any other text
	Indexed Port = "indexed" // the chunks of the whole document, as in the search index
)

// Kind is a type of node. The type of its output follows from those of its inputs,
// so that a flow with mismatched ports is rejected before it runs.
type Kind struct {
	Name   string
	Doc    string           // what it does, in one sentence
	In     []Port           // each input is one of these; nil for a node that reads the document itself
	Needs  []Port           // at least one input is one of these; nil for any
	Out    Port             // "" for a sink
	Same   bool             // the output has the inputs' type, of which there is one
	Ends   bool             // the output need not be read
	Config map[string]Field // allowed settings of config
	// Asks is positive for a kind that calls the language model: the version of its
	// requests. Another version, or another model, invalidates its outputs.
	Asks int
	// Over is the kind of dataset run that a node of this kind does for one document,
	// "" for a kind that works on ranges. Such a node has one task per document, after
	// all its ranges; the executor's runs do the work.
	Over sheaf.TaskKind
	// Check reports what is wrong with a config whose settings are individually valid,
	// "" for nothing. May be nil.
	Check func(config map[string]any) string
	// Write makes a sink's file. A node of such a kind has its own task.
	Write func(ctx context.Context, in Input) (Object, error)
	// Run does the work of a node between chunk and index. It returns chunks of its
	// input, in the same order. nil passes the input on.
	Run func(ctx context.Context, in Input) ([]sheaf.Chunk, []sheaf.Warning, error)
}

// Field is a setting of a node.
type Field struct {
	Doc      string // what it does, in one phrase
	Type     string // string, int, float, bool, strings, object, duration, or keep: an expression over a chunk
	Required bool
	Min, Max float64            // of numbers; both 0 for no limits
	Values   []string           // of strings; nil for any
	Check    func(v any) string // reports what is wrong with a value of the type, "" for nothing; may be nil
}

// Common are the settings of nodes of all kinds, except that the pipeline's own
// kinds have fewer.
var Common = map[string]Field{
	"when":           {Type: "string", Doc: "CEL expression over the document, such as document.pages <= 400; if it is false, the node and what only it feeds are skipped"},
	"pool":           {Type: "string", Doc: "pool of executors that run the node; default: default"},
	"on_failure":     {Type: "string", Values: []string{string(FailRun), string(SkipNode), string(UseDefault)}, Doc: "after the last attempt has failed: fail ends the run, skip skips the node and what only it feeds, default passes on an empty output; default: fail"},
	"timeout":        {Type: "duration", Doc: "timeout of one attempt, such as 5m, up to 24h; default: the executor's"},
	"retry.attempts": {Type: "int", Min: 1, Max: 20, Doc: "maximum attempts; default: the executor's"},
	"retry.base":     {Type: "duration", Doc: "wait before the second attempt, such as 10s, up to 1h; it doubles each time"},
	"retry.max":      {Type: "duration", Doc: "maximum wait between two attempts, such as 30m, up to 24h"},
}

// Object is a file that a node writes.
type Object struct {
	Media string
	Body  []byte
}

// Document is what nodes know about the document.
type Document struct {
	ID        string `json:"id"`
	DatasetID string `json:"dataset_id"`
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
}

// registered are the kinds by name. Each registers itself in its own file, before
// main runs.
var registered = map[string]Kind{}

func register(k Kind) bool {
	registered[k.Name] = k
	return true
}

// Kinds returns the kinds that executors run, by name.
func Kinds() []Kind {
	return slices.SortedFunc(maps.Values(registered), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

// Input is the input of a node of chunks: the chunks of one range of a document.
type Input struct {
	Node     *Node
	Chunks   []sheaf.Chunk     // in document order; the node owns the copies
	Settings sheaf.ParseConfig // of the document
	// Enrich adds language, keywords, questions and context, as settings ask.
	Enrich func(ctx context.Context, chunks []sheaf.Chunk, settings sheaf.ParseConfig) ([]sheaf.Warning, error)

	Document Document
	Range    sheaf.Range
	// Vectors are those of Chunks if the node is after embed, otherwise nil; ModelID
	// and Dim are their model and width.
	Vectors [][]float32
	ModelID string
	Dim     int
	// Ask asks the language model; nil if there is none. Repeated questions are
	// answered from the cache, at no cost.
	Ask func(ctx context.Context, instruction, text string, maxTokens int) (string, error)
	// Post sends JSON to a service and returns its answer, nil for none. id identifies
	// the request; resending it uses the same id.
	Post        func(ctx context.Context, url, id string, body []byte, maxAnswer int64) ([]byte, error)
	CountTokens func(text string) int
}

// Takes reports whether nodes of a kind may have a setting of Common, in the mode
// nodes. unsupported explains why not.
func Takes(kind, setting string) bool {
	field, _, _ := strings.Cut(setting, ".")
	switch field {
	case "when":
		return kind != "parse" && kind != "chunk" && kind != "index"
	case "timeout":
		return kind != "parse" && kind != "chunk" && kind != "embed" && kind != "index"
	case "on_failure":
		return Works(kind)
	}
	return Works(kind) || kind == "chunk" || kind == "index"
}

// Works reports whether nodes of the kind do work of their own besides that of chunk
// and index; the others pass their input on.
func Works(kind string) bool { return registered[kind].Run != nil || Writes(kind) || Over(kind) != "" }

// Over returns the kind of dataset run that nodes of the kind do for one document,
// "" for nodes that work on ranges.
func Over(kind string) sheaf.TaskKind { return registered[kind].Over }

// Writes reports whether nodes of the kind write a file.
func Writes(kind string) bool { return registered[kind].Write != nil }

// Asks is the version of the kind's requests to a language model, 0 for none.
func Asks(kind string) int { return registered[kind].Asks }

// Write runs a node that writes a file.
func Write(ctx context.Context, in Input) (Object, error) {
	return registered[in.Node.Kind].Write(ctx, in)
}

// Run runs a node of chunks. A node without work of its own passes its input on.
func Run(ctx context.Context, in Input) (out []sheaf.Chunk, warnings []sheaf.Warning, err error) {
	if run := registered[in.Node.Kind].Run; run != nil {
		return run(ctx, in)
	}
	return in.Chunks, nil, nil
}

// check reports what is wrong with a value, "" for nothing.
func (f Field) check(v any) string {
	kind, number := "", 0.0
	switch v := v.(type) {
	case nil:
		kind = "null"
	case string:
		kind = "string"
		if f.Type == "keep" {
			if _, err := compileKeep(v); err != nil {
				return err.Error()
			}
			return ""
		}
		if f.Type == kind && f.Values != nil && !slices.Contains(f.Values, v) {
			return fmt.Sprintf("%q is not one of %s", v, strings.Join(f.Values, ", "))
		}
	case bool:
		kind = "bool"
	case int64:
		if kind, number = "int", float64(v); f.Type == "float" {
			kind = "float"
		}
	case float64:
		kind, number = "float", v
	case map[string]any:
		kind = "object"
	case []any:
		kind = "strings"
		for _, e := range v {
			if _, ok := e.(string); !ok {
				kind = "list"
			}
		}
	}
	if kind != f.Type {
		return fmt.Sprintf("it is of type %s and must be of type %s", kind, f.Type)
	}
	if f.Check != nil {
		if wrong := f.Check(v); wrong != "" {
			return wrong
		}
	}
	if (kind == "int" || kind == "float") && (f.Min != 0 || f.Max != 0) && (number < f.Min || number > f.Max) {
		return fmt.Sprintf("%v is not from %v to %v", v, f.Min, f.Max)
	}
	return ""
}

// config checks the config given to a node.
func (k Kind) config(given map[string]any, say func(field, format string, args ...any)) {
	wrong := false
	problem := func(field, format string, args ...any) {
		wrong = true
		say(field, format, args...)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		field, ok := k.Config[name]
		if !ok {
			problem("config."+name, "the kind %s has no such setting; it has %s", k.Name, orNone(slices.Sorted(maps.Keys(k.Config))))
		} else if wrong := field.check(given[name]); wrong != "" {
			problem("config."+name, "%s", wrong)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(k.Config)) {
		if _, ok := given[name]; !ok && k.Config[name].Required {
			problem("config."+name, "the kind %s needs it", k.Name)
		}
	}
	if k.Check != nil && !wrong {
		if why := k.Check(given); why != "" {
			problem("config", "%s", why)
		}
	}
}

// asOptions checks a config as the options of the run that the node does part of.
func asOptions[T any](read func([]byte) (T, error)) func(config map[string]any) string {
	return func(config map[string]any) string {
		b, err := json.Marshal(config)
		if err == nil {
			_, err = read(b)
		}
		if err != nil {
			return strings.TrimPrefix(err.Error(), sheaf.ErrInvalid.Error()+": ")
		}
		return ""
	}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
