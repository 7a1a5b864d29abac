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

// Port is what flows on an edge.
type Port string

const (
	Units   Port = "units"   // what a parser read
	Chunks  Port = "chunks"  // what search returns
	Vectors Port = "vectors" // chunks with their vectors
	Records Port = "records" // rows of a schema
	Text    Port = "text"    // of any other kind
	Indexed Port = "indexed" // the chunks of the whole document, as search has them
)

// Kind is what a node can be. The type of its output follows from those of its
// inputs, so that a flow whose ports do not fit is refused before it runs.
type Kind struct {
	Name   string
	Doc    string           // what it does, in a sentence
	In     []Port           // each input is one of these; nil for a node that reads the document itself
	Needs  []Port           // at least one input is one of these; nil where any will do
	Out    Port             // "" where nothing is passed on: a sink
	Same   bool             // the output is of the inputs' type, which is one
	Ends   bool             // nothing need read the output
	Config map[string]Field // what config may hold
	// Asks is above 0 for a kind that asks the language model: the version of what it
	// asks. Another version, or another model, makes its outputs anew.
	Asks int
	// Over is the kind of the run over a dataset whose part for one document a node of
	// this kind does, "" for a kind that works on ranges. A node of such a kind has one
	// task a document, after all its ranges; the executor's runs do the work.
	Over sheaf.TaskKind
	// Check says what is wrong with a config whose settings are right one by one, ""
	// for nothing. May be nil.
	Check func(config map[string]any) string
	// Write makes the file of a sink. A node of such a kind has a task of its own.
	Write func(ctx context.Context, in Input) (Object, error)
	// Run does the work of a node between chunk and index; what it returns are
	// chunks of its input, in their order. nil passes the input on.
	Run func(ctx context.Context, in Input) ([]sheaf.Chunk, []sheaf.Warning, error)
}

// Field is a setting of a node.
type Field struct {
	Doc      string // what it does, in a phrase
	Type     string // string, int, float, bool, strings, object, or keep: an expression over a chunk
	Required bool
	Min, Max float64            // of numbers; both 0 for no bounds
	Values   []string           // of strings; nil for any
	Check    func(v any) string // says what is wrong with a value of the type, "" for nothing; may be nil
}

// Common are the settings that nodes of all kinds have, but for those of the
// pipeline, which have fewer.
var Common = map[string]Field{
	"when":           {Type: "string", Doc: "CEL expression over the document, such as document.pages <= 400; if it is false, the node and what only it feeds are skipped"},
	"pool":           {Type: "string", Doc: "pool of executors that run the node; default: default"},
	"on_failure":     {Type: "string", Values: []string{string(FailRun), string(SkipNode), string(UseDefault)}, Doc: "after the last attempt has failed: fail ends the run, skip skips the node and what only it feeds, default passes on an empty output; default: fail"},
	"timeout":        {Type: "duration", Doc: "timeout of one attempt, such as 5m, up to 24h; default: the executor's"},
	"retry.attempts": {Type: "int", Min: 1, Max: 20, Doc: "maximum attempts; default: the executor's"},
	"retry.base":     {Type: "duration", Doc: "wait before the second attempt, such as 10s, up to 1h; it doubles each time"},
	"retry.max":      {Type: "duration", Doc: "maximum wait between two attempts, such as 30m, up to 24h"},
}

// Object is a file that a node leaves.
type Object struct {
	Media string
	Body  []byte
}

// Document is what nodes are told of the document.
type Document struct {
	ID        string `json:"id"`
	DatasetID string `json:"dataset_id"`
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
}

// registered are the kinds by name. Each registers itself in its file, before
// main runs.
var registered = map[string]Kind{}

func register(k Kind) bool {
	registered[k.Name] = k
	return true
}

// Kinds are the kinds that executors run, by name.
func Kinds() []Kind {
	return slices.SortedFunc(maps.Values(registered), func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
}

// Input is what a node of chunks runs on: those of one range of a document.
type Input struct {
	Node     *Node
	Chunks   []sheaf.Chunk     // in the order of the document; the node's own copies
	Settings sheaf.ParseConfig // of the document
	// Enrich adds language, keywords, questions and context, as settings ask.
	Enrich func(ctx context.Context, chunks []sheaf.Chunk, settings sheaf.ParseConfig) ([]sheaf.Warning, error)

	Document Document
	Range    sheaf.Range
	// Vectors are those of Chunks where the node stands behind embed, else nil; with
	// their model and width.
	Vectors [][]float32
	ModelID string
	Dim     int
	// Ask asks the language model; nil where there is none. What was asked before is
	// answered as then, and costs nothing.
	Ask func(ctx context.Context, instruction, text string, maxTokens int) (string, error)
	// Post sends JSON to a service and returns what it answers, nil for nothing. id
	// names the request; it is the same when the same is sent again.
	Post        func(ctx context.Context, url, id string, body []byte, maxAnswer int64) ([]byte, error)
	CountTokens func(text string) int
}

// Takes reports whether nodes of a kind may have a setting of Common, in the mode
// nodes. unsupported says why where they may not.
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

// Works reports whether nodes of the kind do work of their own beside that of chunk
// and index; the others pass their input on.
func Works(kind string) bool { return registered[kind].Run != nil || Writes(kind) || Over(kind) != "" }

// Over is the kind of the run over a dataset whose part for one document nodes of
// the kind do, "" for nodes that work on ranges.
func Over(kind string) sheaf.TaskKind { return registered[kind].Over }

// Writes reports whether nodes of the kind leave a file.
func Writes(kind string) bool { return registered[kind].Write != nil }

// Asks is the version of what nodes of the kind ask a language model, 0 for
// nothing.
func Asks(kind string) int { return registered[kind].Asks }

// Write runs a node that leaves a file.
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

// check says what is wrong with a value, "" for nothing.
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

// config checks what a node was given.
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

// asOptions checks a config as the options of the run that a node does a part of.
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
