// Package text is the format of plain text: prose, logs, source code and
// configuration. Large files are read in parts. It runs in the parser's child
// process.
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
	version = 1 // changes whenever the same file would yield other blocks
	// maxBlockBytes cuts long runs without an empty line, such as logs.
	maxBlockBytes = 8 << 10
)

// languages names the programming language of a media type.
var languages = map[string]string{
	"text/x-go": "go", "text/x-python": "python", "text/javascript": "javascript", "application/javascript": "javascript", "text/x-typescript": "typescript",
	"text/x-java": "java", "text/x-kotlin": "kotlin", "text/x-scala": "scala", "text/x-swift": "swift", "text/x-c": "c", "text/x-c++": "cpp",
	"text/x-csharp": "csharp", "text/x-rust": "rust", "text/x-ruby": "ruby", "text/x-php": "php", "text/x-perl": "perl", "text/x-lua": "lua",
	"text/x-r": "r", "text/x-julia": "julia", "text/x-haskell": "haskell", "text/x-ocaml": "ocaml", "text/x-shellscript": "bash", "text/x-powershell": "powershell",
	"text/x-sql": "sql", "text/css": "css", "text/x-protobuf": "protobuf", "text/x-dart": "dart", "text/x-zig": "zig", "text/x-terraform": "hcl",
	"application/xml": "xml", "text/xml": "xml", "application/yaml": "yaml", "application/toml": "toml", "application/x-sh": "bash", "application/x-python": "python",
	"text/x-tcl": "tcl", "application/x-httpd-php": "php",
}

// New returns the format. It stands for every text type that no other format
// takes (see parser.Registry.ByMediaType).
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "text" }
func (format) Version() int { return version }
func (format) MediaTypes() []string {
	out := []string{parser.MediaText, "text/x-rst", "text/x-tex", "application/x-tex"}
	for mt := range languages {
		out = append(out, mt)
	}
	return out
}
func (format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(f, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	guess, head, err := charset.DetectFile(f, size, o.Config.Encoding, "")
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(`{\rtf`)) {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "The file is RTF, not plain text; leave parser_config.media_type out or set it to application/rtf.")
	}
	if !guess.Wide() && binary(head) {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "The file is binary data, not text; check that the right file was sent, or set parser_config.media_type to what it is.")
	}
	cuts, err := parts.Cut(f, int64(guess.BOM), size, guess)
	if err != nil {
		return nil, err
	}
	return &parts.Document{File: f, Guess: guess, Cuts: cuts, Unit: (&document{mediaType: o.MediaType}).unit}, nil
}

// binary finds what no encoding of text has: zero bytes, or more than one
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
	if lang := languages[d.mediaType]; lang != "" {
		return code(s, lang, part)
	}
	return prose(s, part)
}

// prose makes a block of each paragraph. A paragraph ends at an empty line;
// its lines stay lines, since in logs and lists they mean something.
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

// pieces yields lines, and a longer one than a block in pieces that end at a
// space where there is one.
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

// code keeps indentation and empty lines, and cuts long files where an empty
// line is followed by one that is not indented: between declarations.
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
