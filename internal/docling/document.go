package docling

import (
	"encoding/json"
	"fmt"
	"html"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/facade"
)

// item is one element of a document, reconstructed from the text of a chunk.
type item struct {
	label string // as in docling-core: section_header, text, code, table, picture
	text  string
	level int        // of a heading, from 1
	lang  string     // of code
	rows  [][]string // of a table, header first
	boxes []sheaf.Box
	chunk int // index of its chunk
}

// itemsOf returns the items of chunks in reading order. Each item has the boxes of
// its chunk.
func itemsOf(chunks []sheaf.Chunk) []item {
	var out []item
	for i := range chunks {
		c := &chunks[i]
		headings, body := facade.Headings(c)
		for _, h := range headings {
			it := item{label: "section_header", text: h.Text, level: h.Level, chunk: i}
			if len(c.Boxes) > 0 {
				it.boxes = c.Boxes[:1] // the chunk begins with it
			}
			out = append(out, it)
		}
		if c.Kind == sheaf.ChunkImage {
			out = append(out, item{label: "picture", text: body, boxes: c.Boxes, chunk: i})
			continue
		}
		for _, it := range split(body) {
			it.boxes, it.chunk = c.Boxes, i
			out = append(out, it)
		}
	}
	return out
}

var rule = regexp.MustCompile(`^\|(\s*:?-+:?\s*\|)+$`)

// split splits the text of a chunk into paragraphs, tables and code, which chunks
// contain as Markdown.
func split(text string) []item {
	var out []item
	lines := strings.Split(text, "\n")
	var paragraph []string
	flush := func() {
		if said := strings.TrimSpace(strings.Join(paragraph, "\n")); said != "" {
			out = append(out, item{label: "text", text: said})
		}
		paragraph = nil
	}
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "```"):
			end := slices.Index(lines[i+1:], "```")
			if end < 0 {
				end = len(lines) - i - 1
			}
			flush()
			out = append(out, item{label: "code", text: strings.Join(lines[i+1:i+1+end], "\n"), lang: strings.TrimSpace(line[3:])})
			i += end + 1
		case strings.HasPrefix(line, "|") && i+1 < len(lines) && rule.MatchString(lines[i+1]):
			flush()
			table := item{label: "table", rows: [][]string{cells(line)}}
			for i += 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
				table.rows = append(table.rows, cells(lines[i]))
			}
			i--
			out = append(out, table)
		case strings.TrimSpace(line) == "":
			flush()
		default:
			paragraph = append(paragraph, line)
		}
	}
	flush()
	return out
}

// cells returns the cells of a Markdown table row.
func cells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, bar)
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range parts {
		parts[i] = strings.ReplaceAll(strings.TrimSpace(parts[i]), bar, "|")
	}
	return parts
}

// The types below are those of DoclingDocument, as defined by docling-core.

// version of the schema, which docling-core reads since then.
const version = "1.5.0"

type ref struct {
	Ref string `json:"$ref"`
}

type node struct {
	Self     string `json:"self_ref"`
	Parent   *ref   `json:"parent,omitempty"`
	Children []ref  `json:"children"`
	Layer    string `json:"content_layer"`
	Label    string `json:"label"`
	Name     string `json:"name,omitempty"` // of a group
}

type box struct {
	L      float64 `json:"l"`
	T      float64 `json:"t"`
	R      float64 `json:"r"`
	B      float64 `json:"b"`
	Origin string  `json:"coord_origin"`
}

type provenance struct {
	Page int    `json:"page_no"`
	Box  box    `json:"bbox"`
	Span [2]int `json:"charspan"` // in code points
}

type textItem struct {
	node
	Prov     []provenance `json:"prov"`
	Orig     string       `json:"orig"`
	Text     string       `json:"text"`
	Level    int          `json:"level,omitempty"`
	Language string       `json:"code_language,omitempty"`
}

type cell struct {
	Text     string `json:"text"`
	RowSpan  int    `json:"row_span"`
	ColSpan  int    `json:"col_span"`
	StartRow int    `json:"start_row_offset_idx"`
	EndRow   int    `json:"end_row_offset_idx"`
	StartCol int    `json:"start_col_offset_idx"`
	EndCol   int    `json:"end_col_offset_idx"`
	Header   bool   `json:"column_header"`
}

type tableData struct {
	Cells []cell `json:"table_cells"`
	Rows  int    `json:"num_rows"`
	Cols  int    `json:"num_cols"`
}

type floating struct {
	node
	Prov     []provenance `json:"prov"`
	Captions []ref        `json:"captions"`
	Data     *tableData   `json:"data,omitempty"` // of a table
}

type size struct {
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
}

type pageItem struct {
	Number int  `json:"page_no"`
	Size   size `json:"size"`
}

type document struct {
	Schema   string              `json:"schema_name"`
	Version  string              `json:"version"`
	Name     string              `json:"name"`
	Origin   *origin             `json:"origin,omitempty"`
	Body     node                `json:"body"`
	Groups   []node              `json:"groups"`
	Texts    []*textItem         `json:"texts"`
	Pictures []*floating         `json:"pictures"`
	Tables   []*floating         `json:"tables"`
	Pages    map[string]pageItem `json:"pages"`

	refs []string // references to the items, in order
}

type origin struct {
	MediaType string      `json:"mimetype"`
	Hash      json.Number `json:"binary_hash"` // 64 bits
	Name      string      `json:"filename"`
}

// documentOf converts items to a DoclingDocument.
func documentOf(d *sheaf.Document, items []item) *document {
	doc := &document{
		Schema: "DoclingDocument", Version: version, Name: strings.TrimSuffix(path.Base(d.Name), path.Ext(d.Name)),
		Body:   node{Self: "#/body", Children: []ref{}, Layer: "body", Label: "unspecified", Name: "_root_"},
		Groups: []node{}, Texts: []*textItem{}, Pictures: []*floating{}, Tables: []*floating{}, Pages: map[string]pageItem{},
	}
	if len(d.SHA256) >= 16 {
		if hash, err := strconv.ParseUint(d.SHA256[:16], 16, 64); err == nil {
			doc.Origin = &origin{d.MediaType, json.Number(strconv.FormatUint(hash, 10)), path.Base(d.Name)}
		}
	}
	under := func(self, parent, label string) node {
		return node{Self: self, Parent: &ref{parent}, Children: []ref{}, Layer: "body", Label: label}
	}
	text := func(label, parent string, it *item) *textItem {
		t := &textItem{node: under(fmt.Sprintf("#/texts/%d", len(doc.Texts)), parent, label), Prov: provenanceOf(it), Orig: it.text, Text: it.text, Level: it.level}
		doc.Texts = append(doc.Texts, t)
		return t
	}
	for i := range items {
		it := &items[i]
		doc.reach(it.boxes)
		var self string
		switch it.label {
		case "table":
			self = fmt.Sprintf("#/tables/%d", len(doc.Tables))
			doc.Tables = append(doc.Tables, &floating{node: under(self, "#/body", it.label), Prov: provenanceOf(it), Captions: []ref{}, Data: tableOf(it.rows)})
		case "picture":
			self = fmt.Sprintf("#/pictures/%d", len(doc.Pictures))
			p := &floating{node: under(self, "#/body", it.label), Prov: provenanceOf(it), Captions: []ref{}}
			if it.text != "" {
				caption := ref{text("caption", self, it).Self}
				p.Children, p.Captions = []ref{caption}, []ref{caption}
			}
			doc.Pictures = append(doc.Pictures, p)
		default:
			t := text(it.label, "#/body", it)
			if it.label == "code" {
				t.Language = "unknown" // docling-core accepts only a fixed list of names
			}
			self = t.Self
		}
		doc.Body.Children = append(doc.Body.Children, ref{self})
		doc.refs = append(doc.refs, self)
	}
	return doc
}

// reach extends the pages to cover boxes: the sheet size is unknown.
func (d *document) reach(boxes []sheaf.Box) {
	for _, b := range boxes {
		key := strconv.Itoa(b.Page)
		p := d.Pages[key]
		p.Number, p.Size.Width, p.Size.Height = b.Page, max(p.Size.Width, b.X1), max(p.Size.Height, b.Y1)
		d.Pages[key] = p
	}
}

func provenanceOf(it *item) []provenance {
	out := []provenance{}
	for _, b := range it.boxes {
		out = append(out, provenance{b.Page, box{b.X0, b.Y0, b.X1, b.Y1, "TOPLEFT"}, [2]int{0, utf8.RuneCountInString(it.text)}})
	}
	return out
}

func tableOf(rows [][]string) *tableData {
	data := &tableData{Cells: []cell{}, Rows: len(rows)}
	for r, row := range rows {
		data.Cols = max(data.Cols, len(row))
		for c, text := range row {
			data.Cells = append(data.Cells, cell{text, 1, 1, r, r + 1, c, c + 1, r == 0})
		}
	}
	return data
}

// htmlOf returns a complete page.
func htmlOf(name string, items []item) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>%s</title></head>\n<body>\n", html.EscapeString(name))
	for _, it := range items {
		text := html.EscapeString(it.text)
		switch it.label {
		case "section_header":
			level := min(it.level, 6)
			fmt.Fprintf(&b, "<h%d>%s</h%d>\n", level, text, level)
		case "code":
			fmt.Fprintf(&b, "<pre><code>%s</code></pre>\n", text)
		case "table":
			b.WriteString("<table>\n")
			for r, row := range it.rows {
				tag := "td"
				if r == 0 {
					tag = "th"
				}
				b.WriteString("<tr>")
				for _, c := range row {
					fmt.Fprintf(&b, "<%s>%s</%s>", tag, html.EscapeString(c), tag)
				}
				b.WriteString("</tr>\n")
			}
			b.WriteString("</table>\n")
		case "picture":
			fmt.Fprintf(&b, "<figure><figcaption>%s</figcaption></figure>\n", text)
		default:
			fmt.Fprintf(&b, "<p>%s</p>\n", strings.ReplaceAll(text, "\n", "<br>\n"))
		}
	}
	b.WriteString("</body>\n</html>\n")
	return b.String()
}
