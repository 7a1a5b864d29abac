package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
)

// tableResult totals a set. Precision and recall are means over documents.
type tableResult struct {
	tableSet
	documents, tables int
	missing           int // not printed by LibreOffice, or not read
	wordP, wordR      float64
	cellP, cellR      float64
	headers, named    int // tables whose source names columns, and those found with exactly these names
	worst             []string
}

func harmonic(p, r float64) float64 {
	if p+r == 0 {
		return 0
	}
	return 2 * p * r / (p + r)
}

// measureTables compares the cells found in each file with the true ones.
func measureTables(ctx context.Context, pool *child.Pool, set tableSet) (*tableResult, error) {
	r := &tableResult{tableSet: set}
	for _, f := range set.files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		found, _, err := readTables(ctx, pool, f.pdf)
		if err != nil {
			r.missing++
			continue
		}
		r.documents++
		r.tables += len(f.truth)
		var gotWords, wantWords, gotCells, wantCells []string
		var before []string
		columns := map[string]bool{}
		for _, t := range found {
			rows := t.Rows
			if !slices.Equal(t.Columns, before) || t.Columns == nil { // a table's header is repeated on each page
				rows = append(headerRows(t.Columns), rows...)
			}
			before = t.Columns
			for _, head := range headerRows(t.Columns) {
				for _, c := range head {
					columns[bare(c)] = true
				}
			}
			for _, row := range rows {
				for _, c := range row {
					if k := bare(c); k != "" {
						gotCells = append(gotCells, k)
						gotWords = append(gotWords, words(c)...)
					}
				}
			}
		}
		for _, g := range f.truth {
			for _, c := range g.texts() {
				if k := bare(c); k != "" {
					wantCells = append(wantCells, k)
					wantWords = append(wantWords, words(c)...)
				}
			}
			if g.header > 0 {
				r.headers++
				if !slices.ContainsFunc(g.cells[g.header-1], func(c cell) bool { return c.text != "" && !columns[bare(c.text)] }) {
					r.named++
				}
			}
		}
		wp, wr := precision(gotWords, wantWords)
		cp, cr := precision(gotCells, wantCells)
		r.wordP, r.wordR, r.cellP, r.cellR = r.wordP+wp, r.wordR+wr, r.cellP+cp, r.cellR+cr
		if f1 := harmonic(cp, cr); f1 < .95 {
			r.worst = append(r.worst, fmt.Sprintf("%.3f cells %.2f %.2f words %.2f %.2f %s", f1, cp, cr, wp, wr, filepath.Base(f.pdf)))
		}
	}
	n := float64(max(r.documents, 1))
	r.wordP, r.wordR, r.cellP, r.cellR = r.wordP/n, r.wordR/n, r.cellP/n, r.cellR/n
	slices.Sort(r.worst)
	return r, nil
}

// headerRows returns the cells that column names were made of: the names of columns
// in a group begin with the group's name, which occurs once.
func headerRows(columns []string) [][]string {
	var groups, names []string
	last := ""
	for _, c := range columns {
		group, name, ok := strings.Cut(c, " / ")
		if !ok {
			group, name = "", c
		}
		if group != last {
			groups = append(groups, group)
		}
		last = group
		names = append(names, name)
	}
	return [][]string{groups, names}
}

// bare is a cell's text without spaces: line breaks do not matter.
func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// precision returns the share of got that is in want, and of want in got. Finding
// nothing is correct only if there is nothing.
func precision(got, want []string) (p, r float64) {
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	both := 0
	for _, g := range got {
		if count[g] > 0 {
			count[g]--
			both++
		}
	}
	share := func(n int) float64 {
		if n == 0 {
			return 1
		}
		return float64(both) / float64(n)
	}
	return share(len(got)), share(len(want))
}

// readTables returns the tables of a PDF and how many pages it has.
func readTables(ctx context.Context, pool *child.Pool, path string) ([]*sheaf.Table, int, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, 0, err
	}
	src := child.Source{Path: path, Format: "pdf", Options: parser.Options{Name: filepath.Base(path), MediaType: parser.MediaPDF, Config: settings.Default}}
	plan, _, cleanup, err := pool.Plan(ctx, src)
	defer cleanup()
	if err != nil {
		return nil, 0, err
	}
	var out []*sheaf.Table
	for _, q := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: min(plan.Units, mostPages)}}, plan.RangeSize) {
		err := pool.Parse(ctx, src, q, func(u sheaf.UnitResult) error {
			for _, b := range u.Blocks {
				if b.Table != nil {
					out = append(out, b.Table)
				}
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	return out, min(plan.Units, mostPages), nil
}

// falseTables counts the tables found where there are none.
func falseTables(ctx context.Context, pool *child.Pool, set tableSet) (documents, pages, tables int, names []string, err error) {
	for _, f := range set.files {
		found, n, err := readTables(ctx, pool, f.pdf)
		if ctx.Err() != nil {
			return 0, 0, 0, nil, ctx.Err()
		}
		if err != nil {
			continue
		}
		documents++
		pages += n
		tables += len(found)
		if len(found) > 0 {
			names = append(names, fmt.Sprintf("%d %s", len(found), filepath.Base(f.pdf)))
		}
	}
	return documents, pages, tables, names, nil
}

// Targets of tables, over both sets.
const (
	wordsInTables = .90
	cellsOfTables = .85
)

// tablesSection measures tables and writes its section of the page.
func tablesSection(ctx context.Context, pool *child.Pool, corpus, dir string, explain int) (string, error) {
	real, styled, none, err := prints(ctx, corpus, dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(`## Tables in PDF

| documents | number | tables | words in tables P | R | F1 | target | cells P | R | F1 | target | headers named |
|---|---|---|---|---|---|---|---|---|---|---|---|
`)
	for _, set := range []tableSet{real, styled} {
		r, err := measureTables(ctx, pool, set)
		if err != nil {
			return "", err
		}
		wf, cf := harmonic(r.wordP, r.wordR), harmonic(r.cellP, r.cellR)
		fmt.Fprintf(&b, "| %s | %d | %d | %.3f | %.3f | %.3f | %s | %.3f | %.3f | %.3f | %s | %d of %d |\n", r.name, r.documents, r.tables,
			r.wordP, r.wordR, wf, verdict(wf, wordsInTables), r.cellP, r.cellR, cf, verdict(cf, cellsOfTables), r.named, r.headers)
		for _, w := range r.worst[:min(explain, len(r.worst))] {
			fmt.Println("  " + w)
		}
	}
	documents, pages, tables, names, err := falseTables(ctx, pool, none)
	if err != nil {
		return "", err
	}
	for _, n := range names[:min(explain, len(names))] {
		fmt.Println("  false tables: " + n)
	}
	fmt.Fprintf(&b, `
On %d pages of %d office files without a table, %d tables were found.

- **Real office files** are the folder's DOCX and ODT with tables, printed to PDF by LibreOffice as their authors set them; what their tables hold is read from the files by pandoc. **Set anew** are tables out of DOCX, ODT, CSV and Markdown files, between paragraphs, each in two of these styles: `, pages, documents, tables)
	var names2 []string
	for _, l := range looks {
		names2 = append(names2, l.name)
	}
	b.WriteString(strings.Join(names2, "; ") + `. Long cells wrap, long tables run over pages.
- **Words in tables** compares the bags of words inside of tables, **cells** those of whole cells, which must be equal but for white space. Precision and recall are means over documents. A cell that spans others counts once; a header repeated on the next page does too.
- **Headers named** are the tables whose last header row was found as the names of the columns.
`)
	return b.String(), nil
}
