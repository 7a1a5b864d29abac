package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"
)

// Tables with known cells, as PDF: real office files with tables, printed by
// LibreOffice as their authors set them, and the contents of real tables typeset in
// every common table style.

// grid is a table as given by its source. A cell that spans others is at its top
// left position; the positions it covers are absent from Cells.
type grid struct {
	header int // rows that name the columns
	cols   int
	cells  [][]cell
}

type cell struct {
	text       string
	rows, cols int // that it covers
}

func (g *grid) texts() []string {
	var out []string
	for _, row := range g.cells {
		for _, c := range row {
			if c.text != "" {
				out = append(out, c.text)
			}
		}
	}
	return out
}

// isTable reports whether a grid is a table and not a frame around text.
func (g *grid) isTable() bool {
	rows := 0
	for _, row := range g.cells {
		filled := 0
		for _, c := range row {
			if c.text != "" {
				filled++
			}
		}
		if filled >= 2 {
			rows++
		}
	}
	return rows >= 2
}

// source is what pandoc finds in a file.
type source struct {
	path   string
	grids  []grid
	prose  []string // paragraphs
	nested bool     // a table inside a table, whose cells belong to neither
}

// harvest reads files with pandoc; files it cannot read are omitted.
func harvest(ctx context.Context, corpus string, formats ...string) []source {
	var out []source
	for _, format := range formats {
		paths, _ := filepath.Glob(filepath.Join(corpus, format, "*")) // the pattern is valid
		for _, path := range paths {
			from := format
			if format == "md" {
				from = "gfm"
			}
			text, err := output(ctx, []string{"pandoc", "-f", from, "-t", "json", path})
			if err != nil || ctx.Err() != nil {
				continue
			}
			var doc struct {
				Blocks []node `json:"blocks"`
			}
			if json.Unmarshal([]byte(text), &doc) != nil {
				continue
			}
			s := source{path: path}
			for _, b := range doc.Blocks {
				s.walk(b, false)
			}
			out = append(out, s)
		}
	}
	return out
}

// node is an element of pandoc's document tree.
type node struct {
	T string          `json:"t"`
	C json.RawMessage `json:"c"`
}

func (s *source) walk(n node, inTable bool) {
	switch n.T {
	case "Para":
		if t := flat(n.C); len(t) > 150 && len(t) < 900 {
			s.prose = append(s.prose, t)
		}
	case "Table":
		if inTable {
			s.nested = true
			return
		}
		if g, ok := s.grid(n.C); ok {
			s.grids = append(s.grids, g)
		}
	case "Div":
		var c []json.RawMessage
		var inner []node
		if json.Unmarshal(n.C, &c) == nil && len(c) == 2 && json.Unmarshal(c[1], &inner) == nil {
			for _, k := range inner {
				s.walk(k, inTable)
			}
		}
	}
}

// grid reads [attr, caption, columns, head, bodies, foot].
func (s *source) grid(raw json.RawMessage) (grid, bool) {
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) != 6 {
		return grid{}, false
	}
	var g grid
	add := func(raw json.RawMessage) int {
		var rows [][]json.RawMessage
		if json.Unmarshal(raw, &rows) != nil {
			return 0
		}
		for _, r := range rows {
			var cells [][]json.RawMessage
			if len(r) != 2 || json.Unmarshal(r[1], &cells) != nil {
				return 0
			}
			row, width := []cell{}, 0
			for _, c := range cells {
				if len(c) != 5 {
					return 0
				}
				k := cell{text: flat(c[4])}
				if json.Unmarshal(c[2], &k.rows) != nil || json.Unmarshal(c[3], &k.cols) != nil {
					return 0
				}
				var inner []node
				if json.Unmarshal(c[4], &inner) == nil {
					for _, b := range inner {
						s.walk(node{T: b.T, C: b.C}, true)
					}
				}
				row = append(row, k)
				width += k.cols
			}
			g.cols = max(g.cols, width)
			g.cells = append(g.cells, row)
		}
		return len(rows)
	}
	var head []json.RawMessage
	if json.Unmarshal(parts[3], &head) == nil && len(head) == 2 {
		g.header = add(head[1])
	}
	var bodies [][]json.RawMessage
	if json.Unmarshal(parts[4], &bodies) == nil {
		for _, b := range bodies {
			if len(b) == 4 {
				add(b[2])
				add(b[3])
			}
		}
	}
	// An empty head is pandoc's way of expressing that there is none.
	for g.header > 0 && len(g.cells) > 0 && !slices.ContainsFunc(g.cells[0], func(c cell) bool { return c.text != "" }) {
		g.header--
		g.cells = g.cells[1:]
	}
	return g, len(g.cells) > 0
}

// flat returns the text of a tree of pandoc's elements.
func flat(raw json.RawMessage) string {
	var b strings.Builder
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, k := range v {
				walk(k)
			}
		case map[string]any:
			switch v["t"] {
			case "Str":
				s, _ := v["c"].(string)
				b.WriteString(s)
			case "Space", "SoftBreak", "LineBreak":
				b.WriteByte(' ')
			case "Note", "Image", "RawInline", "RawBlock", "Table":
			case "Quoted":
				b.WriteByte('"')
				walk(v["c"])
				b.WriteByte('"')
			case "Code", "Math", "CodeBlock":
				if c, ok := v["c"].([]any); ok && len(c) == 2 {
					s, _ := c[1].(string)
					b.WriteString(s)
				}
			default:
				walk(v["c"])
				if t := v["t"]; t == "Para" || t == "Plain" {
					b.WriteByte(' ')
				}
			}
		}
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	walk(v)
	return strings.Join(strings.Fields(b.String()), " ")
}

// look is a table style.
type look struct {
	name      string
	size      float64 // of the font, points
	rules     string  // which are drawn: all, rows, head, frame or none
	shade     bool    // every other row is tinted
	bold      bool    // the header is
	right     bool    // numbers are right-aligned
	spans     bool    // a group of columns has a name, and a cell covers two rows
	landscape bool
	width     float64 // share of the line width
}

var looks = []look{
	{name: "ruled", size: 10, rules: "all", bold: true, width: 1},
	{name: "ruled, spans", size: 10, rules: "all", spans: true, width: 1},
	{name: "rules under rows", size: 10, rules: "rows", bold: true, right: true, width: 1},
	{name: "rules at head and foot", size: 9, rules: "head", right: true, width: .9},
	{name: "rules at head and foot, spans", size: 10, rules: "head", bold: true, spans: true, width: 1},
	{name: "frame", size: 10, rules: "frame", bold: true, width: .8},
	{name: "shaded rows", size: 10, rules: "none", shade: true, bold: true, right: true, width: 1},
	{name: "white space", size: 10, rules: "none", bold: true, right: true, width: 1},
	{name: "white space, plain header", size: 9, rules: "none", width: .9},
	{name: "ruled, landscape", size: 11, rules: "all", bold: true, right: true, landscape: true, width: 1},
}

// Limits on the generated tables: a page per style is enough.
const (
	mostSet      = 70
	mostRows     = 60
	mostColumns  = 8
	longestCell  = 160
	leastSetRows = 4
)

// settable picks tables to typeset: with distinct content, filled, and of a size
// that fits a page's width.
func settable(sources []source) []grid {
	var out []grid
	seen := map[string]bool{}
	for _, s := range sources {
		if s.nested {
			continue
		}
		for _, g := range s.grids {
			if len(g.cells) < leastSetRows || g.cols < 2 || g.cols > mostColumns {
				continue
			}
			if len(g.cells) > mostRows {
				g.cells = g.cells[:mostRows]
			}
			cells, filled, plain := 0, 0, true
			for _, row := range g.cells {
				if len(row) != g.cols {
					plain = false
				}
				for _, c := range row {
					cells++
					if c.text != "" {
						filled++
					}
					if len(c.text) > longestCell || c.rows > 1 || c.cols > 1 || strings.ContainsFunc(c.text, unprintable) {
						plain = false
					}
				}
			}
			key := strings.Join(g.texts(), "\x00")
			if !plain || filled*10 < cells*6 || seen[key] || !g.isTable() {
				continue
			}
			seen[key] = true
			out = append(out, g)
		}
	}
	return out
}

// unprintable letters are those missing from the fonts of a small machine.
func unprintable(r rune) bool { return r > 0x2122 || unicode.IsControl(r) }

// set writes a table between two paragraphs as a flat OpenDocument text, and
// returns the table as written.
func (l *look) set(g grid, before, after string) (doc string, truth grid) {
	truth = grid{header: max(g.header, 1), cols: g.cols}
	for _, row := range g.cells {
		truth.cells = append(truth.cells, slices.Clone(row))
	}
	if l.spans && g.cols >= 3 {
		group := []cell{{"", 1, 1}, {"Group of " + strconv.Itoa(g.cols-1), 1, g.cols - 1}}
		truth.cells = slices.Insert(truth.cells, 0, group)
		truth.header++
		if at := truth.header; len(truth.cells) > at+1 {
			truth.cells[at][0].rows = 2
			truth.cells[at+1] = truth.cells[at+1][1:]
		}
	}
	var b strings.Builder
	width, height := 21.0, 29.7
	if l.landscape {
		width, height = height, width
	}
	line := (width - 4) * l.width
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0" office:version="1.3" office:mimetype="application/vnd.oasis.opendocument.text">
<office:styles><style:default-style style:family="paragraph"><style:text-properties fo:font-size="11pt" style:font-name="Liberation Serif"/></style:default-style></office:styles>
<office:automatic-styles>
`)
	fmt.Fprintf(&b, `<style:page-layout style:name="pm"><style:page-layout-properties fo:page-width="%gcm" fo:page-height="%gcm" fo:margin="2cm"/></style:page-layout>
<style:style style:name="T" style:family="table"><style:table-properties style:width="%.2fcm" table:align="center"/></style:style>
<style:style style:name="P" style:family="paragraph"><style:paragraph-properties fo:margin-bottom="0.3cm" fo:text-align="justify"/></style:style>
`, width, height, line)
	for c, w := range columnWidths(&truth, line) {
		fmt.Fprintf(&b, `<style:style style:name="C%d" style:family="table-column"><style:table-column-properties style:column-width="%.2fcm"/></style:style>`+"\n", c, w)
	}
	for _, p := range []struct{ name, weight, align string }{{"L", "normal", "start"}, {"R", "normal", "end"}, {"H", "bold", "start"}, {"N", "normal", "start"}} {
		if p.name == "H" && !l.bold {
			p.weight = "normal"
		}
		fmt.Fprintf(&b, `<style:style style:name="P%s" style:family="paragraph"><style:paragraph-properties fo:text-align="%s"/><style:text-properties fo:font-size="%gpt" fo:font-weight="%s"/></style:style>`+"\n", p.name, p.align, l.size, p.weight)
	}
	last := len(truth.cells) - 1
	for r := range truth.cells {
		const rule = "0.5pt solid #000000"
		sides := map[string]bool{}
		switch l.rules {
		case "all":
			sides = map[string]bool{"top": r == 0, "bottom": true, "left": true, "right": true}
		case "rows":
			sides = map[string]bool{"top": r == 0, "bottom": true}
		case "head":
			sides = map[string]bool{"top": r == 0, "bottom": r == truth.header-1 || r == last}
		case "frame":
			sides = map[string]bool{"top": r == 0, "bottom": r == truth.header-1 || r == last}
		}
		for _, at := range []string{"first", "middle", "last"} {
			fmt.Fprintf(&b, `<style:style style:name="R%d%s" style:family="table-cell"><style:table-cell-properties fo:padding="0.1cm"`, r, at)
			for _, side := range []string{"top", "bottom", "left", "right"} {
				on := sides[side] || l.rules == "frame" && (side == "left" && at == "first" || side == "right" && at == "last")
				fmt.Fprintf(&b, ` fo:border-%s="%s"`, side, map[bool]string{true: rule, false: "none"}[on])
			}
			if l.shade && r%2 == 1 {
				b.WriteString(` fo:background-color="#dddddd"`)
			}
			b.WriteString("/></style:style>\n")
		}
	}
	b.WriteString(`</office:automatic-styles>
<office:master-styles><style:master-page style:name="Standard" style:page-layout-name="pm"/></office:master-styles>
<office:body><office:text>
<text:p text:style-name="P">` + escape(before) + `</text:p>
<table:table table:style-name="T">
`)
	for c := range truth.cols {
		fmt.Fprintf(&b, `<table:table-column table:style-name="C%d"/>`+"\n", c)
	}
	covered := make([]int, truth.cols) // rows still covered by a cell above
	for r, row := range truth.cells {
		if r == 0 {
			b.WriteString("<table:table-header-rows>")
		}
		b.WriteString("<table:table-row>")
		at := 0
		skip := func() {
			for at < truth.cols && covered[at] > 0 {
				covered[at]--
				b.WriteString("<table:covered-table-cell/>")
				at++
			}
		}
		for _, c := range row {
			skip()
			place := "middle"
			if at == 0 {
				place = "first"
			} else if at+c.cols >= truth.cols {
				place = "last"
			}
			style := "L"
			if r < truth.header {
				style = "H"
			} else if l.right && numeric(c.text) {
				style = "R"
			}
			fmt.Fprintf(&b, `<table:table-cell table:style-name="R%d%s" table:number-columns-spanned="%d" table:number-rows-spanned="%d"><text:p text:style-name="P%s">%s</text:p></table:table-cell>`, r, place, c.cols, c.rows, style, escape(c.text))
			for k := range c.cols {
				covered[at+k] = c.rows - 1
				if k > 0 {
					b.WriteString("<table:covered-table-cell/>")
				}
			}
			at += c.cols
		}
		skip()
		b.WriteString("</table:table-row>")
		if r == truth.header-1 {
			b.WriteString("</table:table-header-rows>")
		}
		b.WriteByte('\n')
	}
	b.WriteString(`</table:table>
<text:p text:style-name="P"></text:p><text:p text:style-name="P">` + escape(after) + `</text:p>
</office:text></office:body></office:document>
`)
	return b.String(), truth
}

// columnWidths divides a line among columns by their content, as a person would.
func columnWidths(g *grid, line float64) []float64 {
	need := make([]float64, g.cols)
	for _, row := range g.cells {
		if len(row) != g.cols {
			continue
		}
		for c, k := range row {
			need[c] = max(need[c], min(float64(len(k.text)), 40)+4)
		}
	}
	sum := 0.0
	for _, n := range need {
		sum += n
	}
	for c := range need {
		need[c] *= line / sum
	}
	return need
}

func numeric(s string) bool {
	digits := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			return false
		}
		if unicode.IsDigit(r) {
			digits++
		}
	}
	return digits > 0
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder never fails
	return b.String()
}

// tableSet is printed documents and the tables in them.
type tableSet struct {
	name  string
	files []printed
}

type printed struct {
	pdf   string
	truth []grid
}

// prints creates the PDFs of both sets and of the pages without tables.
func prints(ctx context.Context, corpus, dir string) (real, styled, none tableSet, err error) {
	real.name, styled.name, none.name = "real office files", "real tables set anew", "office files without a table"
	sources := harvest(ctx, corpus, "docx", "odt", "csv", "md")
	var prose []string
	for _, s := range sources {
		for _, p := range s.prose {
			if !strings.ContainsFunc(p, unprintable) {
				prose = append(prose, p)
			}
		}
	}
	if len(prose) == 0 {
		return real, styled, none, fmt.Errorf("pandoc read no paragraph from %s; is that the folder of test documents?", corpus)
	}
	var todo []string
	for _, s := range sources {
		ext := filepath.Ext(s.path)
		if s.nested || ext != ".docx" && ext != ".odt" {
			continue
		}
		made := filepath.Join(dir, strings.TrimSuffix(filepath.Base(s.path), ext)+".pdf")
		switch whole := !slices.ContainsFunc(s.grids, func(g grid) bool { return !g.isTable() }); {
		case len(s.grids) == 0 && len(s.prose) > 0:
			none.files = append(none.files, printed{made, nil})
		case len(s.grids) > 0 && whole:
			real.files = append(real.files, printed{made, s.grids})
		default:
			continue
		}
		if _, err := os.Stat(made); err != nil {
			todo = append(todo, s.path)
		}
	}
	for i, g := range settable(sources) {
		if i == mostSet {
			break
		}
		for _, k := range []int{i % len(looks), (i*3 + 5) % len(looks)} {
			text, truth := looks[k].set(g, prose[i%len(prose)], prose[(i*7+3)%len(prose)])
			name := filepath.Join(dir, fmt.Sprintf("set-%d-%016x", k, xxhash.Sum64String(text)))
			if err := os.WriteFile(name+".fodt", []byte(text), 0o644); err != nil {
				return real, styled, none, err
			}
			styled.files = append(styled.files, printed{name + ".pdf", []grid{truth}})
			if _, err := os.Stat(name + ".pdf"); err != nil {
				todo = append(todo, name+".fodt")
			}
		}
	}
	for batch := range slices.Chunk(todo, officeBatch) {
		if err := convert(ctx, "pdf", dir, batch, dir); err != nil {
			return real, styled, none, err
		}
	}
	return real, styled, none, ctx.Err()
}
