package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// rates are the rows of a table of programs, and their names there.
type rates struct {
	title, text, prefix, unit, against string
	programs                           [][2]string
}

var rateTables = []rates{
	{"PDF", "Real reports, papers, forms and slides, at most 120 pages of each. Sheaf's end to end is all that people wait for: upload, storage, plan, parse, chunks, vectors, index and publication. What stands beside it extracts text.", "peers.pdf.", "pages per CPU-second", "bbox", [][2]string{
		{"pypdfium2", "pypdfium2, text"}, {"pymupdf", "PyMuPDF, text"}, {"parse", "**Sheaf, parsing**: words, boxes, tables, headings"}, {"kreuzberg", "kreuzberg, extraction"}, {"pdftotext", "pdftotext"}, {"bbox", "pdftotext -bbox-layout"}, {"sheaf", "**Sheaf, end to end**"}}},
	{"Office files", "DOCX, PPTX and XLSX of the corpus, small ones for the most part.", "peers.office.", "files per CPU-second", "kreuzberg", [][2]string{{"kreuzberg", "kreuzberg, extraction"}, {"sheaf", "**Sheaf, end to end**"}}},
}

// goals are the rows with bounds, in the order of the page, and their descriptions.
var goals = [][2]string{
	{"peers.parse.bbox", "parsing, against pdftotext -bbox-layout"},
	{"peers.large", "the same on manuals of thousands of pages"},
	{"peers.e2e.bbox", "end to end, against pdftotext -bbox-layout"},
	{"peers.e2e.kreuzberg", "end to end, against kreuzberg's extraction"},
	{"first.searchable", "100 mixed files at once: the first is searchable"},
	{"first.searchable.share", "… as a share of the whole"},
	{"first.searchable.half", "… half of them, as a share of the whole"},
	{"notes.rate", "1,000 Markdown notes of 1 KB in one job, until all are searchable"},
	{"changed.page.replaced", "one page of 500 replaced, as a share of the first parse"},
	{"changed.page.stamped", "… one page stamped"},
	{"changed.page.replaced.bookmarks", "… one page replaced, with bookmarks"},
	{"changed.page.stamped.bookmarks", "… one page stamped, with bookmarks"},
	{"plan.share.300", "planning, as a share of a document of 300 pages"},
	{"plan.share.2400", "… of 2,400 pages"},
	{"search.p50", "search over 100,000 chunks, p50"},
	{"search.p95", "… p95"},
}

// writePerformance writes the page from the reports of one or more runs: for rows
// with the same name the last counts.
func writePerformance(path string, reports []string) error {
	if len(reports) == 0 {
		return errors.New("name the reports to write the page from, such as bench/results/performance.json")
	}
	var all report
	for _, name := range reports {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var r report
		if err := json.Unmarshal(text, &r); err != nil {
			return fmt.Errorf("%s is no report of bench: %w", name, err)
		}
		rows := append(all.Rows, r.Rows...)
		all = r
		all.Rows = rows
	}
	return os.WriteFile(path, []byte(performancePage(all)), 0o644)
}

// performancePage is the page comparing Sheaf's speed with the alternatives.
func performancePage(r report) string {
	at := map[string]row{}
	for _, x := range r.Rows {
		at[x.Name] = x
	}
	var out strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&out, format, args...) }
	say("# Performance\n\nSheaf beside what people would pick instead: the same files, on the same machine, in one run. All of them read the files in turn, round after round, and the median counts. Rates are per second of CPU time, child processes included. Read the ratios: rates depend on the machine.\n\n")
	say("Measured on %s, %s, %d CPUs", r.At.Format("2 January 2006"), r.OS, r.CPUs)
	for _, name := range []string{"Sheaf", "kreuzberg", "pymupdf", "pypdfium2", "poppler"} {
		if v := r.Versions[name]; v != "" {
			say(", %s %s", name, v)
		}
	}
	say(".\n\nTo measure it on your machine, with your own files in a folder that has `pdf`, `pdf-large`, `docx`, `pptx` and `xlsx`:\n\n<!-- not run by the tests: it takes half an hour -->\n\n```\nmake build helper\nset -a; eval \"$(scripts/peers.sh)\"; set +a\ngo run ./bench -corpus FOLDER -only peers,first.searchable,notes,changed.page,plan.share,search -out bench/results/performance.json\ngo run ./bench -doc docs/performance.md bench/results/performance.json\n```\n")
	for _, t := range rateTables {
		base, ok := at[t.prefix+t.against]
		if !ok {
			continue
		}
		say("\n## %s\n\n%s\n\n| program | %s | ratio |\n|---|---|---|\n", t.title, t.text, t.unit)
		for _, p := range t.programs {
			if x, ok := at[t.prefix+p[0]]; ok && base.Value > 0 {
				say("| %s | %s | %.2f |\n", p[1], number(x.Value), x.Value/base.Value)
			}
		}
		if x, ok := at[t.prefix+"calibration"]; ok {
			say("\n%s.\n", strings.ToUpper(x.Note[:1])+x.Note[1:])
		}
	}
	say("\n## Goals\n\n| what | measured | goal | |\n|---|---|---|---|\n")
	for _, g := range goals {
		if x, ok := at[g[0]]; ok && x.Holds != nil {
			say("| %s | %s %s | %s | %s |\n", g[1], number(x.Value), x.Unit, x.Bound, map[bool]string{true: "holds", false: "**missed**"}[*x.Holds])
		}
	}
	return out.String()
}
