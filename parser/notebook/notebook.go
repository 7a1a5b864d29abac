// Package notebook is the format of Jupyter notebooks (nbformat 3 and 4): the prose
// of their cells, their code in its language, and its output. A notebook is
// converted to Markdown, which the Markdown format reads. It runs in the parser's
// child process.
package notebook

import (
	"bytes"
	"context"
	"encoding/json"
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
	version = 1 // changes whenever the same file would yield other blocks
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
	text, err := toMarkdown(b)
	if err != nil {
		return nil, err
	}
	md, ok := f.formats().ByMediaType(parser.MediaMarkdown)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build reads no Markdown, and so no notebooks.")
	}
	o.MediaType, o.Config.Encoding = parser.MediaMarkdown, sheaf.Set("utf-8")
	return tempfile.Open(o.TempDir, "notebook-*", []byte(text), func(in *os.File) (parser.Document, error) { return md.Open(ctx, in, o) })
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

func toMarkdown(b []byte) (string, error) {
	var nb book
	if err := json.Unmarshal(b, &nb); err != nil {
		return "", sheaf.Fail(sheaf.CategoryBadInput, "invalid_notebook", "The file cannot be read as a Jupyter notebook: %s. Save it again in Jupyter, or set parser_config.media_type to text/plain to read it as text.", clean.Clip(clean.Line(err.Error()), 200))
	}
	cells := nb.Cells
	for _, w := range nb.Worksheets {
		cells = append(cells, w.Cells...)
	}
	if len(cells) == 0 {
		return "", sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The notebook has no cells; check that you uploaded the right file.")
	}
	if len(cells) > maxCells {
		return "", sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The notebook has more than %d cells; split it into smaller ones.", maxCells)
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
				fence(&out, "text", clean.Clip(o.plain(), maxOutputBytes))
			}
		case "heading":
			out.WriteString(strings.Repeat("#", min(max(c.Level, 1), 6)) + " " + clean.Line(string(c.Source)) + "\n\n")
		case "markdown":
			out.WriteString(string(c.Source) + "\n\n")
		default: // raw cells are meant for other converters
			fence(&out, "text", string(c.Source))
		}
		if out.Len() > maxTextBytes {
			return "", sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The notebook holds more than %d MB of text; split it into smaller ones.", maxTextBytes>>20)
		}
	}
	if strings.TrimSpace(out.String()) == "" {
		return "", sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The notebook's cells are empty; check that you uploaded the right file.")
	}
	return out.String(), nil
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// plain returns an output as text, ignoring pictures and HTML.
func (o *output) plain() string {
	text := string(o.Text)
	if raw, ok := o.Data["text/plain"]; ok {
		var l lines
		_ = l.UnmarshalJSON(raw) // it accepts everything
		text += string(l)
	}
	if o.Name != "" {
		text += o.Name + ": " + o.Value
	}
	return colours.ReplaceAllString(text, "")
}

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
