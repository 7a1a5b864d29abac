package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"sheaf"
	"sheaf/chunker"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
)

// Row integrity: the label and all figures of a row of a financial statement are in
// one line of one chunk. The expected rows are read from pdftotext -layout, which
// preserves the printed layout.

// rowsIntact is the target share of rows that stay intact.
const rowsIntact = .95

const (
	leastFigures = 2  // per row: one may be a year in a sentence
	leastRows    = 10 // on a statement's page
	titleLines   = 12 // that may name the statement
)

var (
	statementTitle = regexp.MustCompile(`(?i)(statements? of (consolidated )?(\w+ ){0,3}(income|operations|earnings|cash flows?|financial position|comprehensive|stockholders|shareholders|shareowners|changes in|equity)|balance sheets?)`)
	// figure is a number as printed in statements: with a sign, in brackets, as a
	// percentage.
	figure   = regexp.MustCompile(`^[$€£(–—-]*\d[\d,]*(\.\d+)?[)%]*$`)
	apart    = regexp.MustCompile(`\s{2,}|\$\s*`)
	digitRun = regexp.MustCompile(`\d[\d,]*(\.\d+)?`)
)

// row is a label and the figures beside it.
type row struct {
	label   []string // words
	figures []string // in order
}

func (r row) String() string {
	return strings.Join(r.label, " ") + " | " + strings.Join(r.figures, " ")
}

// statementRows returns the rows of a page from pdftotext -layout.
func statementRows(page string) []row {
	var out []row
	for line := range strings.SplitSeq(page, "\n") {
		var r row
		for i, cell := range apart.Split(strings.TrimSpace(line), -1) {
			cell = strings.TrimSpace(cell)
			switch {
			case i == 0:
				r.label = words(cell)
				if !strings.ContainsFunc(cell, unicode.IsLetter) {
					r.label = nil
				}
			case figure.MatchString(strings.ReplaceAll(cell, " ", "")):
				r.figures = append(r.figures, digitRun.FindAllString(cell, -1)...)
			}
		}
		if len(r.label) > 0 && len(r.figures) >= leastFigures {
			out = append(out, r)
		}
	}
	return out
}

// isStatement reports whether a page holds a financial statement.
func isStatement(page string) bool {
	lines := strings.Split(strings.TrimSpace(page), "\n")
	title := strings.Join(lines[:min(titleLines, len(lines))], "\n")
	return statementTitle.MatchString(title) && len(statementRows(page)) >= leastRows
}

// intact reports whether one line contains the row and not much more: a table run
// together into one line does not keep rows.
func (r row) intact(lines []textLine) bool {
	return slices.ContainsFunc(lines, func(l textLine) bool {
		if len(l.figures) > 2*len(r.figures)+2 {
			return false
		}
		at := 0
		for _, f := range l.figures {
			if at < len(r.figures) && f == r.figures[at] {
				at++
			}
		}
		if at < len(r.figures) {
			return false
		}
		for _, w := range r.label {
			if !slices.Contains(l.words, w) {
				return false
			}
		}
		return true
	})
}

type textLine struct{ words, figures []string }

func linesOf(text string) []textLine {
	var out []textLine
	for l := range strings.SplitSeq(text, "\n") {
		if f := digitRun.FindAllString(l, -1); len(f) >= leastFigures {
			out = append(out, textLine{words(l), f})
		}
	}
	return out
}

// pageLines reads lines by page, for the requested pages.
type pageLines func(ctx context.Context, path string, pages []int) (map[int][]textLine, error)

// chunkLines are the lines of the product's chunks, with default settings.
func chunkLines(pool *child.Pool) pageLines {
	return func(ctx context.Context, path string, pages []int) (map[int][]textLine, error) {
		src := child.Source{Path: path, Format: "pdf", Options: parser.Options{Name: filepath.Base(path), MediaType: parser.MediaPDF, Config: settings.Default}}
		out := map[int][]textLine{}
		size := settings.Default.TaskPageSize.V
		last := pages[len(pages)-1]
		for from := 1; from <= last; from += size {
			r := sheaf.Range{From: from, To: min(from+size-1, last)}
			if !slices.ContainsFunc(pages, func(p int) bool { return p >= r.From && p <= r.To }) {
				continue
			}
			var all []sheaf.UnitResult
			if err := pool.Parse(ctx, src, r, func(u sheaf.UnitResult) error { all = append(all, u); return nil }); err != nil {
				return nil, err
			}
			chunks, err := chunker.Chunk(ctx, chunker.Input{DocumentID: "d", Generation: 1, RangeID: "r", Range: r, Units: all, Config: settings.Default})
			if err != nil {
				return nil, err
			}
			for _, c := range chunks {
				for _, p := range c.Pages {
					out[p] = append(out[p], linesOf(c.Text)...)
				}
			}
		}
		return out, nil
	}
}

// kreuzbergScript prints each page's text as a line of JSON.
const kreuzbergScript = `
import json, sys
from kreuzberg import extract_file_sync, ExtractionConfig, PageConfig
r = extract_file_sync(sys.argv[1], config=ExtractionConfig(pages=PageConfig(extract_pages=True), output_format="markdown"))
for p in r.pages:
    get = (lambda k: p.get(k)) if isinstance(p, dict) else (lambda k: getattr(p, k, None))
    tables = [(t.get("markdown") if isinstance(t, dict) else t.markdown) or "" for t in get("tables") or []]
    print(json.dumps({"page": get("page_number"), "text": "\n".join([get("content") or ""] + tables)}))
`

// kreuzbergLines are those of the kreuzberg package in a Python installation.
func kreuzbergLines(python string) pageLines {
	return func(ctx context.Context, path string, _ []int) (map[int][]textLine, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*referenceTime)
		defer cancel()
		b, err := exec.CommandContext(ctx, python, "-c", kreuzbergScript, path).Output()
		if err != nil {
			return nil, fmt.Errorf("kreuzberg on %s: %w", filepath.Base(path), err)
		}
		out := map[int][]textLine{}
		for l := range bytes.Lines(b) {
			var p struct {
				Page int
				Text string
			}
			if err := json.Unmarshal(l, &p); err != nil {
				return nil, err
			}
			out[p.Page] = append(out[p.Page], linesOf(p.Text)...)
		}
		return out, nil
	}
}

// rowsSection measures row integrity over a folder of reports.
func rowsSection(ctx context.Context, pool *child.Pool, reports, python string, explain int) (string, error) {
	paths, err := filepath.Glob(filepath.Join(reports, "*.pdf"))
	if err != nil || len(paths) == 0 {
		return "", cmp.Or(err, fmt.Errorf("there are no reports in %q", reports))
	}
	type program struct {
		name  string
		lines pageLines
		whole int
	}
	programs := []*program{{name: "Sheaf", lines: chunkLines(pool)}}
	if python != "" {
		programs = append(programs, &program{name: "kreuzberg", lines: kreuzbergLines(python)})
	}
	files, pages, rows := 0, 0, 0
	var lost []string
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		text, err := output(ctx, []string{"pdftotext", "-layout", path, "-"})
		if err != nil {
			return "", err
		}
		want := map[int][]row{}
		var at []int
		for i, page := range strings.Split(text, "\f") {
			if isStatement(page) {
				want[i+1] = statementRows(page)
				at = append(at, i+1)
				rows += len(want[i+1])
			}
		}
		if len(at) == 0 {
			continue
		}
		files, pages = files+1, pages+len(at)
		for _, p := range programs {
			got, err := p.lines(ctx, path, at)
			if err != nil {
				return "", err
			}
			for _, n := range at {
				whole := 0
				var broken []string
				for _, r := range want[n] {
					if r.intact(got[n]) {
						whole++
					} else {
						broken = append(broken, "      "+r.String())
					}
				}
				p.whole += whole
				if p == programs[0] && len(broken) > 0 {
					lost = append(lost, fmt.Sprintf("%.2f %d of %d %s page %d\n%s", float64(whole)/float64(len(want[n])), whole, len(want[n]), filepath.Base(path), n, strings.Join(broken, "\n")))
				}
			}
		}
	}
	slices.Sort(lost)
	for _, l := range lost[:min(explain, len(lost))] {
		fmt.Fprintln(os.Stderr, "  "+l)
	}
	var b strings.Builder
	b.WriteString("## Rows of statements\n\n| program | reports | pages | rows | intact | target |\n|---|---|---|---|---|---|\n")
	for i, p := range programs {
		share := float64(p.whole) / float64(max(rows, 1))
		target := "–"
		if i == 0 {
			target = verdict(share, rowsIntact)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %.3f | %s |\n", p.name, files, pages, rows, share, target)
	}
	b.WriteString("\nA row is **intact** when its label and all its figures, in order, stand in one line of one chunk with few other figures. Rows are what `pdftotext -layout` shows on one line, with at least " +
		strconv.Itoa(leastFigures) + " figures, on the pages of annual and quarterly reports that are headed as a statement and hold at least " + strconv.Itoa(leastRows) + " rows. Of kreuzberg its lines of Markdown count.\n")
	return b.String(), nil
}
