// Package yaml is the format of YAML files: the source is kept as is, split where
// its keys begin, under headings made of the keys. Anchors are not resolved, so
// they cannot expand. It runs in the parser's child process.
package yaml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	syntax "go.yaml.in/yaml/v3"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/astext"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
)

const (
	version = 1 // changes whenever the same file would yield other blocks
	// maxFileBytes limits the tree of a file, which takes some 100 bytes per byte
	// of the file. Larger ones are read as text, in parts.
	maxFileBytes = 4 << 20
	maxDocuments = 10_000
	// maxBrackets limits the nesting of lists and mappings on one line: the syntax
	// reader is recursive.
	maxBrackets = 500
	// smallBytes is the size up to which a mapping stays one block; maxBlockBytes
	// is where text without keys is split.
	smallBytes    = 1 << 10
	maxBlockBytes = 4 << 10
	maxLevel      = 6 // of headings
	maxTitleBytes = 200
)

// New returns the format. formats finds the reader of text; it is called while
// a file is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string     { return "yaml" }
func (f *format) Version() int { return version + astext.Version(f.formats()) }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: mediaType, Aliases: []string{"application/x-yaml", "text/yaml", "text/x-yaml"}, Name: "YAML", Extensions: []string{".yaml", ".yml"},
		Text: true, Families: []sheaf.FileFamily{sheaf.FamilyText, sheaf.FamilyCode}, Unit: sheaf.UnitFile, Ranges: "large files only, which are read as text",
	}}
}
func (*format) Options() []string { return []string{"encoding"} }

// mediaType is from RFC 9512.
const mediaType = "application/yaml"

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	asText := func(code, message string) (parser.Document, error) {
		o.MediaType = mediaType
		return astext.Open(ctx, f.formats(), file, o, sheaf.Warning{Code: code, Message: message})
	}
	if size > maxFileBytes {
		return asText("read_as_text", fmt.Sprintf("The file has %d MB; above %d MB YAML is read as text, without its keys.", size>>20, maxFileBytes>>20))
	}
	b, guess, err := charset.ReadFile(file, maxFileBytes, "YAML file", o.Config.Encoding.V, "")
	if err != nil {
		return nil, err
	}
	r := newReader(clean.Text(string(b)))
	if err := r.read(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return asText("invalid_yaml", fmt.Sprintf("The file is not valid YAML and was read as text: %s.", clean.Clip(clean.Line(err.Error()), 200)))
	}
	return whole.New(func(context.Context) (*whole.Content, error) {
		return &whole.Content{Blocks: r.out, Metadata: guess.Metadata(nil), Warnings: guess.Warnings()}, nil
	}), nil
}

type reader struct {
	source string
	lines  []string // of source
	out    []sheaf.Block
	from   int // lines before this one, counted from 0, are already in blocks
}

func newReader(source string) *reader {
	return &reader{source: source, lines: strings.Split(source, "\n")}
}

// nested returns the maximum nesting of brackets in b; those in strings count too.
func nested(b string) int {
	deep, most := 0, 0
	for i := range len(b) {
		switch b[i] {
		case '[', '{':
			deep++
			most = max(most, deep)
		case ']', '}':
			deep = max(0, deep-1)
		}
	}
	return most
}

func (r *reader) read(ctx context.Context) error {
	if nested(r.source) > maxBrackets {
		return errors.New("its brackets nest too deep")
	}
	dec := syntax.NewDecoder(bytes.NewReader([]byte(r.source)))
	var documents []*syntax.Node
	for len(documents) <= maxDocuments {
		var n syntax.Node
		err := dec.Decode(&n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(n.Content) == 1 {
			documents = append(documents, n.Content[0])
		}
	}
	if len(documents) > maxDocuments {
		return fmt.Errorf("it holds more than %d documents", maxDocuments)
	}
	for i, n := range documents {
		end := len(r.lines)
		if i+1 < len(documents) {
			end = r.begin(documents[i+1])
		}
		level := 1
		if len(documents) > 1 {
			r.heading(title(n, i+1), level)
			level++
		}
		r.node(n, end, level)
		r.code(end)
	}
	return nil
}

// begin is the line where a node begins, including preceding comments and document
// markers.
func (r *reader) begin(n *syntax.Node) int {
	at := min(max(n.Line-1, r.from), len(r.lines))
	for at > r.from {
		if line := strings.TrimSpace(r.lines[at-1]); !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "%") {
			break
		}
		at--
	}
	return at
}

// title names a document among several, as Kubernetes does, or by its number.
func title(n *syntax.Node, number int) string {
	kind, name := scalar(value(n, "kind")), scalar(value(value(n, "metadata"), "name"))
	for _, key := range []string{"name", "title", "id"} {
		if name == "" {
			name = scalar(value(n, key))
		}
	}
	if t := strings.TrimSpace(kind + " " + name); t != "" {
		return t
	}
	return fmt.Sprintf("document %d", number)
}

// value returns the value of a mapping's key, nil if there is none.
func value(n *syntax.Node, key string) *syntax.Node {
	if n == nil || n.Kind != syntax.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func scalar(n *syntax.Node) string {
	if n == nil || n.Kind != syntax.ScalarNode {
		return ""
	}
	return clean.Line(clean.Clip(n.Value, maxTitleBytes))
}

// node reads the lines of n, up to end. A key with more than a plain value gets a
// heading; plain values stay together above, and below another key's heading they
// get one of their own.
func (r *reader) node(n *syntax.Node, end, level int) {
	if n.Kind != syntax.MappingNode || n.Style&syntax.FlowStyle != 0 || level > maxLevel {
		r.code(end)
		return
	}
	inner, plain := false, false // the last heading is of a key here; and plain values after it have theirs
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, held := n.Content[i], n.Content[i+1]
		next := end
		if i+2 < len(n.Content) {
			next = min(r.begin(n.Content[i+2]), end)
		}
		if held.Kind != syntax.MappingNode && held.Kind != syntax.SequenceNode || len(held.Content) == 0 || scalar(key) == "" {
			if inner && !plain {
				r.heading(scalar(key), level)
			}
			plain = true
			continue
		}
		r.code(min(r.begin(key), end))
		r.heading(scalar(key), level)
		inner, plain = true, false
		if r.size(next) > smallBytes {
			r.node(held, next, level+1)
		}
		r.code(next)
	}
}

// size is the number of bytes in the lines up to end that are not yet in a block.
func (r *reader) size(end int) int {
	n := 0
	for _, l := range r.lines[min(r.from, end):end] {
		n += len(l) + 1
	}
	return n
}

func (r *reader) heading(text string, level int) {
	if text != "" {
		r.out = append(r.out, sheaf.Block{Kind: sheaf.BlockHeading, Level: min(level, maxLevel), Text: text})
	}
}

// code makes blocks of the lines up to end, without their common indentation. Long
// runs are split before a line indented no deeper than the first.
func (r *reader) code(end int) {
	lines := r.lines[min(r.from, end):end]
	r.from = max(r.from, end)
	for len(lines) > 0 {
		n, size := 0, 0
		for n < len(lines) && (n == 0 || size+len(lines[n]) < maxBlockBytes) {
			size += len(lines[n]) + 1
			n++
		}
		if n < len(lines) {
			for cut := n; cut > n/2 && cut > 0; cut-- {
				if indent(lines[cut]) <= indent(lines[0]) && strings.TrimSpace(lines[cut]) != "" {
					n = cut
					break
				}
			}
		}
		r.block(lines[:n])
		lines = lines[n:]
	}
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func (r *reader) block(lines []string) {
	shared := -1
	for _, l := range lines {
		if strings.TrimSpace(l) != "" && (shared < 0 || indent(l) < shared) {
			shared = indent(l)
		}
	}
	var b strings.Builder
	said := false
	for _, l := range lines {
		l = strings.TrimRight(l[min(max(shared, 0), len(l)):], " \t")
		said = said || l != "" && l != "---" && l != "..."
		b.WriteString(l + "\n")
	}
	if text := strings.Trim(b.String(), "\n"); said && text != "" {
		r.out = append(r.out, sheaf.Block{Kind: sheaf.BlockCode, Text: text, Lang: "yaml"})
	}
}
