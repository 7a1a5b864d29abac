// Package text is the format of plain text: prose, logs, source code, configuration and
// markup for documentation. Large files are read in parts. It runs in the parser's child process.
package text

import (
	"bytes"
	"context"
	"os"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
)

const (
	version = 2 // changes whenever the same file would yield other blocks
	// maxBlockBytes splits long runs without an empty line, such as logs.
	maxBlockBytes = 8 << 10
)

// languages are the media types of source code.
var languages = []struct {
	mediaType, name string
	extensions      []string
	aliases         []string
}{
	{"text/x-go", "go", []string{".go"}, nil},
	{"text/x-python", "python", []string{".py"}, []string{"application/x-python"}},
	{"text/javascript", "javascript", []string{".js", ".mjs", ".jsx"}, []string{"application/javascript"}},
	{"text/x-typescript", "typescript", []string{".ts", ".tsx"}, nil},
	{"text/x-java", "java", []string{".java"}, nil},
	{"text/x-kotlin", "kotlin", []string{".kt"}, nil},
	{"text/x-scala", "scala", []string{".scala"}, nil},
	{"text/x-swift", "swift", []string{".swift"}, nil},
	{"text/x-c", "c", []string{".c", ".h"}, nil},
	{"text/x-c++", "cpp", []string{".cc", ".cpp", ".cxx", ".hpp"}, nil},
	{"text/x-csharp", "csharp", []string{".cs"}, nil},
	{"text/x-rust", "rust", []string{".rs"}, nil},
	{"text/x-ruby", "ruby", []string{".rb"}, nil},
	{"text/x-php", "php", []string{".php"}, []string{"application/x-httpd-php"}},
	{"text/x-perl", "perl", []string{".pl"}, nil},
	{"text/x-lua", "lua", []string{".lua"}, nil},
	{"text/x-r", "r", []string{".r"}, nil},
	{"text/x-julia", "julia", []string{".jl"}, nil},
	{"text/x-haskell", "haskell", []string{".hs"}, nil},
	{"text/x-ocaml", "ocaml", []string{".ml"}, nil},
	{"text/x-shellscript", "bash", []string{".sh", ".bash"}, []string{"application/x-sh"}},
	{"text/x-powershell", "powershell", []string{".ps1"}, nil},
	{"text/x-sql", "sql", []string{".sql"}, nil},
	{"text/css", "css", []string{".css"}, nil},
	{"text/x-protobuf", "protobuf", []string{".proto"}, nil},
	{"text/x-dart", "dart", []string{".dart"}, nil},
	{"text/x-zig", "zig", []string{".zig"}, nil},
	{"text/x-terraform", "hcl", []string{".tf"}, nil},
	{"application/toml", "toml", []string{".toml"}, nil},
	{"text/x-tcl", "tcl", nil, nil},
}

// language names the programming language of a media type, including those that
// other formats pass on because they cannot read them.
var language = func() map[string]string {
	m := map[string]string{"application/xml": "xml", "text/xml": "xml", "application/yaml": "yaml"}
	for _, l := range languages {
		for _, mt := range append([]string{l.mediaType}, l.aliases...) {
			m[mt] = l.name
		}
	}
	return m
}()

// New returns the format. It covers every text type that no other format accepts
// (see parser.Registry.ByMediaType).
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "text" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	like := parser.FileType{Text: true, Unit: sheaf.UnitFile, Ranges: "large files only", Families: []sheaf.FileFamily{sheaf.FamilyText}}
	types := parser.Types(like, parser.MediaText, mediaRST, mediaAsciiDoc, mediaOrg)
	types[0].Name, types[0].Extensions = "Text", []string{".txt", ".text", ".log", ".ini", ".cfg", ".conf", ".properties"}
	types[1].Extensions = []string{".rst"}
	types[2].Extensions = []string{".adoc", ".asciidoc"}
	types[3].Extensions = []string{".org"}
	like.Families = []sheaf.FileFamily{sheaf.FamilyCode}
	for _, l := range languages {
		like.MediaType, like.Aliases, like.Extensions = l.mediaType, l.aliases, l.extensions
		types = append(types, like)
	}
	return types
}
func (format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(f, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	guess, head, err := charset.DetectFile(f, size, o.Config.Encoding.V, "")
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(`{\rtf`)) {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "The file is RTF, not plain text; leave parser_config.media_type out or set it to application/rtf.")
	}
	if !guess.Wide() && binary(head) {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "The file is binary data, not text; check that you uploaded the right file, or set parser_config.media_type to what it is.")
	}
	cuts, err := parts.Cut(f, int64(guess.BOM), size, guess)
	if err != nil {
		return nil, err
	}
	return &parts.Document{File: f, Guess: guess, Cuts: cuts, Unit: (&document{mediaType: o.MediaType}).unit}, nil
}

// binary detects what no text encoding contains: zero bytes, or more than one
// control character in 20.
func binary(b []byte) bool {
	odd := 0
	for _, c := range b {
		if c == 0 || c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != '\v' && c != 0x1b && c != 0x08 {
			odd++
		}
	}
	return odd*20 > len(b)
}

type document struct{ mediaType string }

func (d *document) unit(b []byte, n int) sheaf.UnitResult {
	return whole.Unit(n, d.blocks(clean.Text(string(b)), n))
}

func (d *document) blocks(s string, part int) []sheaf.Block {
	if lang := language[d.mediaType]; lang != "" {
		return code(s, lang, part)
	}
	if read := markups[d.mediaType]; read != nil {
		return markup(read, s, part)
	}
	return prose(s, part)
}

// prose makes a block of each paragraph. A paragraph ends at an empty line; its
// line breaks are kept, since they matter in logs and lists.
func prose(s string, part int) []sheaf.Block {
	var out []sheaf.Block
	var cur strings.Builder
	flush := func() {
		if t := strings.Trim(cur.String(), "\n"); strings.TrimSpace(t) != "" {
			out = append(out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: t, Page: part})
		}
		cur.Reset()
	}
	for line := range pieces(s) {
		line = strings.TrimRight(line, " \t")
		if line == "" || cur.Len()+len(line) > maxBlockBytes {
			flush()
		}
		if line != "" {
			cur.WriteString(line)
			cur.WriteByte('\n')
		}
	}
	flush()
	return out
}

// pieces yields lines, splitting those longer than a block, at a space if there is
// one.
func pieces(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(s, "\n") {
			for len(line) > maxBlockBytes {
				cut := maxBlockBytes
				if i := strings.LastIndexByte(line[:cut], ' '); i > cut/2 {
					cut = i
				}
				for cut > 0 && !utf8.RuneStart(line[cut]) {
					cut--
				}
				if !yield(line[:cut]) {
					return
				}
				line = line[cut:]
			}
			if !yield(line) {
				return
			}
		}
	}
}

// code keeps indentation and empty lines, and splits long files where an empty line
// is followed by an unindented one: between declarations.
func code(s, lang string, part int) []sheaf.Block {
	var out []sheaf.Block
	var cur strings.Builder
	flush := func() {
		if t := strings.Trim(cur.String(), "\n"); strings.TrimSpace(t) != "" {
			out = append(out, sheaf.Block{Kind: sheaf.BlockCode, Text: t, Lang: lang, Page: part})
		}
		cur.Reset()
	}
	empty := false
	for line := range pieces(s) {
		line = strings.TrimRight(line, " \t")
		top := line != "" && line[0] != ' ' && line[0] != '\t' && line[0] != '}' && line[0] != ')'
		if empty && top && cur.Len() > maxBlockBytes/4 || cur.Len()+len(line) > maxBlockBytes {
			flush()
		}
		cur.WriteString(line)
		cur.WriteByte('\n')
		empty = line == ""
	}
	flush()
	return out
}
