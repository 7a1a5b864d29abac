// Package notebook is the format of Jupyter notebooks (nbformat 3 and 4): the prose
// of their cells, their code in its language, and its output. A notebook is
// converted to Markdown, which the Markdown format reads. It runs in the parser's
// child process.
package notebook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/tempfile"
)

// MediaType is the media type of a notebook.
const MediaType = "application/x-ipynb+json"

const (
	version = 2 // changes whenever the same file would yield other blocks
	// maxFileBytes limits a notebook; large ones are pictures in base64.
	maxFileBytes = 64 << 20
	maxCells     = 20_000
	// maxOutputBytes limits the output of one cell: training logs are long.
	maxOutputBytes = 16 << 10
	// maxTextBytes is the limit of the Markdown format.
	maxTextBytes = 16 << 20
)

// New returns the format. formats finds the reader of Markdown; it is called
// while a notebook is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string { return "notebook" }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: MediaType, Name: "Notebook", Extensions: []string{".ipynb"}, Text: true, Families: []sheaf.FileFamily{sheaf.FamilyCode}, Unit: sheaf.UnitFile,
	}}
}
func (*format) Options() []string { return nil }

// Version grows with that of Markdown.
func (f *format) Version() int {
	if md, ok := f.formats().ByMediaType(parser.MediaMarkdown); ok {
		return version + md.Version()
	}
	return version
}

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	b, _, err := charset.ReadFile(file, maxFileBytes, "notebook", "", "")
	if err != nil {
		return nil, err
	}
	text, left, err := toMarkdown(b)
	if err != nil {
		return nil, err
	}
	md, ok := f.formats().ByMediaType(parser.MediaMarkdown)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build reads no Markdown, and so no notebooks.")
	}
	o.MediaType, o.Config.Encoding = parser.MediaMarkdown, sheaf.Set("utf-8")
	d, err := tempfile.Open(o.TempDir, "notebook-*", []byte(text), func(in *os.File) (parser.Document, error) { return md.Open(ctx, in, o) })
	if err != nil {
		return nil, err
	}
	return &document{d, left}, nil
}

// document is the Markdown that a notebook was converted to.
type document struct {
	parser.Document
	left leftOut
}

// leftOut counts what the Markdown does not have of a notebook.
type leftOut struct{ pictures, cut int }

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	p, err := d.Document.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if n := d.left.pictures; n > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "images_ignored", Message: fmt.Sprintf("Pictures in the output of cells (%d) were not read.", n)})
	}
	if n := d.left.cut; n > 0 {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "output_clipped", Message: fmt.Sprintf("Outputs of cells (%d) were read up to %d KB each.", n, maxOutputBytes>>10)})
	}
	return p, nil
}

// book is a notebook of nbformat 4; version 3 has its cells in worksheets.
type book struct {
	Cells      []cell `json:"cells"`
	Worksheets []struct {
		Cells []cell `json:"cells"`
	} `json:"worksheets"`
	Metadata struct {
		Title    string `json:"title"`
		Language struct {
			Name string `json:"name"`
		} `json:"language_info"`
		Kernel struct {
			Language string `json:"language"`
		} `json:"kernelspec"`
	} `json:"metadata"`
}

type cell struct {
	Type     string   `json:"cell_type"`
	Source   lines    `json:"source"`
	Input    lines    `json:"input"` // of a code cell in version 3
	Language string   `json:"language"`
	Level    int      `json:"level"` // of a heading cell in version 3
	Outputs  []output `json:"outputs"`
}

type output struct {
	Type      string                     `json:"output_type"`
	Text      lines                      `json:"text"`
	Data      map[string]json.RawMessage `json:"data"`
	Name      string                     `json:"ename"`
	Value     string                     `json:"evalue"`
	Traceback json.RawMessage            `json:"traceback"` // repeats the code
}

// lines is a text, stored as a string or as a list of lines.
type lines string

// UnmarshalJSON accepts both forms; anything else is an empty text.
func (l *lines) UnmarshalJSON(b []byte) error {
	var one string
	var many []string
	if json.Unmarshal(b, &one) == nil {
		*l = lines(one)
	} else if json.Unmarshal(b, &many) == nil {
		*l = lines(strings.Join(many, ""))
	}
	return nil
}

func toMarkdown(b []byte) (_ string, left leftOut, _ error) {
	var nb book
	if err := json.Unmarshal(b, &nb); err != nil {
		return "", left, sheaf.Fail(sheaf.CategoryBadInput, "invalid_notebook", "The file cannot be read as a Jupyter notebook: %s. Save it again in Jupyter, or set parser_config.media_type to text/plain to read it as text.", clean.Clip(clean.Line(err.Error()), 200))
	}
	cells := nb.Cells
	for _, w := range nb.Worksheets {
		cells = append(cells, w.Cells...)
	}
	if len(cells) == 0 {
		return "", left, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The notebook has no cells; check that you uploaded the right file.")
	}
	if len(cells) > maxCells {
		return "", left, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The notebook has more than %d cells; split it into smaller ones.", maxCells)
	}
	language := nb.Metadata.Language.Name
	if language == "" {
		language = nb.Metadata.Kernel.Language
	}
	var out strings.Builder
	for _, c := range cells {
		switch c.Type {
		case "code":
			lang := language
			if c.Language != "" {
				lang = c.Language
			}
			fence(&out, lang, string(c.Source+c.Input))
			for _, o := range c.Outputs {
				text, markup := o.text()
				if len(text) > maxOutputBytes {
					text, left.cut = clean.Clip(text, maxOutputBytes), left.cut+1
				}
				if markup {
					out.WriteString(text + "\n\n")
				} else {
					fence(&out, "text", text)
				}
				for kind := range o.Data {
					if strings.HasPrefix(kind, "image/") {
						left.pictures++
						break // the same in another form
					}
				}
			}
		case "heading":
			out.WriteString(strings.Repeat("#", min(max(c.Level, 1), 6)) + " " + clean.Line(string(c.Source)) + "\n\n")
		case "markdown":
			out.WriteString(string(c.Source) + "\n\n")
		default: // raw cells are meant for other converters
			fence(&out, "text", string(c.Source))
		}
		if out.Len() > maxTextBytes {
			return "", left, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The notebook holds more than %d MB of text; split it into smaller ones.", maxTextBytes>>20)
		}
	}
	if strings.TrimSpace(out.String()) == "" {
		return "", left, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The notebook's cells are empty; check that you uploaded the right file.")
	}
	return out.String(), left, nil
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// text returns an output as text. Of one in several forms that is the plain one,
// unless it only says that there is another: that is Markdown, or markup in it.
func (o *output) text() (text string, markup bool) {
	in := func(kind string) string {
		var l lines
		_ = l.UnmarshalJSON(o.Data[kind]) // it accepts everything
		return string(l)
	}
	text = string(o.Text) + in("text/plain")
	if o.Name != "" {
		text += o.Name + ": " + o.Value
	}
	if text == "" || strings.HasPrefix(text, "<IPython.core.display.") {
		for _, kind := range []string{"text/markdown", "text/html", "text/latex"} {
			if rich := strings.TrimSpace(in(kind)); rich != "" {
				if kind == "text/html" { // an empty line ends HTML in Markdown
					rich = emptyLines.ReplaceAllString(rich, "\n")
				}
				return rich, true
			}
		}
	}
	return colours.ReplaceAllString(text, ""), false
}

var emptyLines = regexp.MustCompile(`\n[ \t\r]*(?:\n[ \t\r]*)+`)

// fence writes code between fences longer than any run of backticks in it.
func fence(out *strings.Builder, language, text string) {
	text = strings.Trim(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	longest, run := 2, 0
	for i := range len(text) {
		if text[i] == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	mark := strings.Repeat("`", longest+1)
	language = string(bytes.Map(func(r rune) rune {
		if r == '`' || r <= ' ' {
			return -1
		}
		return r
	}, []byte(clean.Clip(language, 40))))
	out.WriteString(mark + language + "\n" + text + "\n" + mark + "\n\n")
}
