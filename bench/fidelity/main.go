// Command fidelity measures how well the text that Sheaf reads agrees with that of
// well-known converters for the same files: pdftotext and mutool page by page for
// PDF, pandoc and LibreOffice for DOCX, PPTX, HTML and EPUB. It prints a table and
// writes docs/fidelity.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
)

const (
	// leastWords is the minimum size of a usable reference: with few words, a
	// single one decides.
	leastWords = 20
	// mostPages limits the pages per PDF, so that no manual outweighs the others.
	mostPages = 60
	// referenceTime is a converter's time limit per file.
	referenceTime = 60 * time.Second
)

// realistic are the projects whose PDFs resemble what people upload, not crafted
// edge cases.
var realistic = []string{"docling", "unstructured", "kreuzberg", "markitdown", "cocoindex", "kernel-memory", "pdfplumber"}

// set is a row of the table.
type set struct {
	name       string
	folder     string
	prefixes   []string // of file names; nil accepts all
	per        string   // unit of scoring: file or page
	references []reference
	target     float64 // for word F1 against the first reference, 0 for none
}

var sets = []set{
	{"PDF, realistic", "pdf", realistic, "page", []reference{pdftotext, mutool}, .985},
	{"PDF, large manuals", "pdf-large", nil, "page", []reference{pdftotext, mutool}, .985},
	{"DOCX", "docx", nil, "file", []reference{pandoc("docx"), office("txt:Text (encoded):UTF8", "txt")}, .956},
	{"PPTX", "pptx", nil, "file", []reference{office("pdf", "pdf")}, 0},
	{"HTML", "html", nil, "file", []reference{pandoc("html"), office("txt:Text (encoded):UTF8", "txt")}, .967},
	{"EPUB", "epub", nil, "file", []reference{pandoc("epub")}, 0},
}

// agreement is the word F1 from which two references of a page are considered
// equal: below it, neither is reliable.
const agreement = .9

// score compares one file, or one page, with its references.
type score struct {
	name   string
	words  float64 // F1 of the bags of words, against the first reference
	runs   float64 // likewise for runs of three words
	second float64 // F1 of the bags of words against the second, negative without one
	differ string  // words that only one side has, on request
}

type result struct {
	set
	files    int
	refused  int // with a stated reason
	failed   int // crashes and time-outs
	none     int // the reference could not read it, or had too few words
	disputed int // pages whose references differ
	scores   []score
}

func main() {
	child.MaybeRun(formats.All(formats.FromEnviron())) // the parser pool starts this program again
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fidelity:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	corpus := flag.String("corpus", os.Getenv("SHEAF_CORPUS"), "folder of test documents, with a folder per format")
	out := flag.String("out", "docs/fidelity.md", "where the table is written; empty for nowhere")
	only := flag.String("only", "", "rows to measure, by the start of their folder's name, tables, chunks, facts, or rows; default all")
	reports := flag.String("reports", os.Getenv("SHEAF_REPORTS"), "folder of annual and quarterly reports in PDF, for the integrity of rows; without it that part is left out")
	kreuzberg := flag.String("kreuzberg", "", "a Python with the kreuzberg package, which is measured beside Sheaf on reports")
	prints := flag.String("prints", "", "folder that keeps the PDFs with known tables, and has them made only once; default a temporary one")
	worst := flag.Int("worst", 0, "names that many of the lowest scores per row, with the words that differ")
	flag.Parse()
	if _, err := os.Stat(*corpus); err != nil {
		return fmt.Errorf("there is no corpus at %q; name its folder with -corpus or SHEAF_CORPUS", *corpus)
	}
	for _, tool := range []string{"pdftotext", "mutool", "pandoc", "soffice"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed (Debian: apt-get install poppler-utils mupdf-tools pandoc libreoffice-writer-nogui libreoffice-calc-nogui libreoffice-impress-nogui)", tool)
		}
	}
	// With other fonts LibreOffice breaks lines elsewhere, and cells with them:
	// cell F1 of its tables was 0.825 without these and 0.851 with them.
	if fonts, err := exec.Command("fc-list").Output(); err != nil || !strings.Contains(string(fonts), "Liberation") {
		return errors.New("the Liberation fonts are not installed, in which the documents are printed (Debian: apt-get install fontconfig fonts-liberation2)")
	}
	tmp, err := os.MkdirTemp("", "sheaf-fidelity-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	pool, err := child.New(child.Config{TempDir: tmp})
	if err != nil {
		return err
	}
	defer pool.Close()

	known := parser.NewRegistry(formats.All(formats.FromEnviron())...)
	var results []*result
	for _, s := range sets {
		if !strings.HasPrefix(s.folder, *only) {
			continue
		}
		r, err := measure(ctx, pool, known, s, *corpus, tmp, *worst > 0)
		if err != nil {
			return err
		}
		fmt.Println(line(r))
		slices.SortFunc(r.scores, func(a, b score) int { return cmp.Compare(a.words, b.words) })
		for _, sc := range r.scores[:min(*worst, len(r.scores))] {
			fmt.Printf("  %.3f %.3f %s%s\n", sc.words, sc.runs, sc.name, sc.differ)
		}
		results = append(results, r)
	}
	chunks := ""
	if strings.HasPrefix("chunks", *only) {
		if chunks, err = chunksSection(ctx, pool, known, *corpus); err != nil {
			return err
		}
		fmt.Println(chunks)
	}
	tables := ""
	if strings.HasPrefix("tables", *only) {
		if tables, err = tablesSection(ctx, pool, *corpus, cmp.Or(*prints, tmp), *worst); err != nil {
			return err
		}
		fmt.Println(tables)
	}
	facts := ""
	if strings.HasPrefix("facts", *only) {
		if facts, err = factsSection(ctx, pool, *corpus, *worst); err != nil {
			return err
		}
		fmt.Println(facts)
	}
	rows := ""
	if *reports != "" && strings.HasPrefix("rows", *only) {
		if rows, err = rowsSection(ctx, pool, *reports, *kreuzberg, *worst); err != nil {
			return err
		}
		fmt.Println(rows)
	}
	if *out == "" || *only != "" {
		return nil
	}
	return os.WriteFile(*out, []byte(page(results)+"\n"+tables+"\n"+chunks+"\n"+facts+"\n"+rows), 0o644)
}

// paths lists the set's files.
func (s *set) paths(corpus string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(corpus, s.folder, "*"))
	return slices.DeleteFunc(all, func(path string) bool {
		return s.prefixes != nil && !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(filepath.Base(path), p) })
	}), err
}

func measure(ctx context.Context, pool *child.Pool, known *parser.Registry, s set, corpus, tmp string, explain bool) (*result, error) {
	paths, err := s.paths(corpus)
	if err != nil {
		return nil, err
	}
	r := &result{set: s}
	ours := map[string][][]string{}
	var readable []string
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.files++
		got, err := read(ctx, pool, known, path)
		if err != nil {
			if f := sheaf.AsFailure(err, ""); f.Category == sheaf.CategoryCrash || f.Category == sheaf.CategoryTimeout || f.Category == sheaf.CategoryInternal {
				r.failed++
				fmt.Fprintln(os.Stderr, filepath.Base(path), err)
			} else {
				r.refused++
			}
			continue
		}
		ours[path] = got
		readable = append(readable, path)
	}
	theirs := make([]map[string][][]string, len(s.references))
	for i, ref := range s.references {
		if theirs[i], err = ref.read(ctx, readable, tmp); err != nil {
			return nil, err
		}
	}
	for _, path := range readable {
		compared := false
		for i, want := range theirs[0][path] {
			got := ours[path]
			if i >= len(got) || len(want) < leastWords {
				continue
			}
			sc := score{name: filepath.Base(path), words: f1(got[i], want, 1), runs: f1(got[i], want, 3), second: -1}
			if s.per == "page" {
				sc.name += " page " + strconv.Itoa(i+1)
			}
			if len(theirs) > 1 {
				if other := theirs[1][path]; i < len(other) && len(other[i]) >= leastWords {
					sc.second = f1(got[i], other[i], 1)
					if s.per == "page" && f1(want, other[i], 1) < agreement {
						r.disputed++
						compared = true
						continue
					}
				}
			}
			if explain {
				sc.differ = differences(got[i], want)
			}
			compared = true
			r.scores = append(r.scores, sc)
		}
		if !compared {
			r.none++
		}
	}
	return r, nil
}

// differences lists the words that are in only one bag.
func differences(got, want []string) string {
	count := map[string]int{}
	for _, w := range got {
		count[w]++
	}
	for _, w := range want {
		count[w]--
	}
	var made, lost strings.Builder
	for _, w := range slices.Sorted(maps.Keys(count)) {
		if n := count[w]; n > 0 {
			fmt.Fprintf(&made, " %s×%d", w, n)
		} else if n < 0 {
			fmt.Fprintf(&lost, " %s×%d", w, -n)
		}
	}
	return fmt.Sprintf("\n    made:%s\n    lost:%s", made.String(), lost.String())
}

// read returns the words that the product finds: per page of a PDF, otherwise of
// the whole file.
func read(ctx context.Context, pool *child.Pool, known *parser.Registry, path string) ([][]string, error) {
	all, format, err := units(ctx, pool, known, path)
	if err != nil {
		return nil, err
	}
	out := make([][]string, 1)
	if format == "pdf" {
		out = make([][]string, len(all))
	}
	for i, u := range all {
		at := 0
		if format == "pdf" {
			at = i
		}
		for _, b := range u.Blocks {
			out[at] = append(out[at], blockWords(b)...)
		}
		for _, l := range u.Running {
			out[at] = append(out[at], words(l)...)
		}
	}
	return out, nil
}

// units reads a file; of a PDF, the first pages.
func units(ctx context.Context, pool *child.Pool, known *parser.Registry, path string) (all []sheaf.UnitResult, format string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	media := known.Sniff(f, info.Size(), path)
	if err := f.Close(); err != nil {
		return nil, "", err
	}
	reader, ok := known.ByMediaType(media)
	if !ok {
		return nil, "", sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "Files of type %s cannot be read.", media)
	}
	format = reader.ID()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	src := child.Source{Path: path, Format: format, Options: parser.Options{Name: filepath.Base(path), MediaType: media, Config: settings.Default}}
	plan, _, cleanup, err := pool.Plan(ctx, src)
	defer cleanup()
	if err != nil {
		return nil, format, err
	}
	last := plan.Units
	if format == "pdf" {
		last = min(last, mostPages)
	}
	for _, q := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: last}}, plan.RangeSize) {
		err := pool.Parse(ctx, src, q, func(u sheaf.UnitResult) error {
			all = append(all, u)
			return nil
		})
		if err != nil {
			return nil, format, err
		}
	}
	return all, format, nil
}

func blockWords(b sheaf.Block) []string {
	if b.Table == nil {
		return words(b.Text)
	}
	var out []string // without the name, which repeats a caption
	for _, c := range b.Table.Columns {
		out = append(out, words(c)...)
	}
	for _, r := range b.Table.Rows {
		for _, c := range r {
			out = append(out, words(c)...)
		}
	}
	return out
}

// words returns the runs of letters, digits and marks, in lower case.
func words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r)
	})
}

// f1 is the harmonic mean of precision and recall over the bags of all runs of
// n words.
func f1(got, want []string, n int) float64 {
	bag := func(w []string) (map[string]int, int) {
		m, total := map[string]int{}, 0
		for i := 0; i+n <= len(w); i++ {
			m[strings.Join(w[i:i+n], " ")]++
			total++
		}
		return m, total
	}
	g, gotAll := bag(got)
	w, wantAll := bag(want)
	both := 0
	for k, c := range w {
		both += min(c, g[k])
	}
	if both == 0 {
		return 0
	}
	return 2 * float64(both) / float64(gotAll+wantAll)
}

func (r *result) mean(of func(score) float64) float64 {
	sum, n := 0.0, 0
	for _, s := range r.scores {
		if v := of(s); v >= 0 {
			sum += v
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

func line(r *result) string {
	mean := r.mean(func(s score) float64 { return s.words })
	low := 0
	for _, s := range r.scores {
		if s.words < .5 {
			low++
		}
	}
	second := "–"
	if len(r.references) > 1 {
		second = fmt.Sprintf("%.3f", r.mean(func(s score) float64 { return s.second }))
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d %ss | %.3f | %s | %s | %.3f | %d |", r.name, r.files, r.refused, r.failed, r.none, len(r.scores), r.per,
		mean, verdict(mean, r.target), second, r.mean(func(s score) float64 { return s.runs }), low)
}

// verdict formats a target and whether a figure meets it.
func verdict(got, target float64) string {
	if target == 0 {
		return "–"
	}
	holds := "holds"
	if !(got >= target) {
		holds = "**missed**"
	}
	return "≥ " + strings.TrimRight(strings.TrimPrefix(fmt.Sprintf("%.3f", target), "0"), "0") + " " + holds
}

func page(results []*result) string {
	var b strings.Builder
	b.WriteString(`# Fidelity

How well the text that Sheaf reads agrees with what well-known converters read from the same files. The tables are made by

    go run ./bench/fidelity -corpus FOLDER

over a folder of public test documents (those of Apache Tika and POI, docling, unstructured, kreuzberg, pdfplumber and others), with pdftotext, mutool, pandoc, LibreOffice and the Liberation fonts installed.

## Text

| files | number | refused | crashed or hung | no reference | scored | word F1 | target | second reference | order F1 | below .5 |
|---|---|---|---|---|---|---|---|---|---|---|
`)
	for _, r := range results {
		b.WriteString(line(r) + "\n")
	}
	disputed := 0
	for _, r := range results {
		disputed += r.disputed
	}
	b.WriteString(`
- **Word F1** compares the bags of words (letters, digits and marks, in lower case), **order F1** those of runs of three words: it falls when the reading order differs. Both are means over files, for PDF over pages.
- **Refused** files end with a reason: a password, damage, or another type than their name says. **No reference**: the converter failed, or what it read has fewer than ` + strconv.Itoa(leastWords) + ` words.
- Of a PDF the first ` + strconv.Itoa(mostPages) + ` pages count. ` + strconv.Itoa(disputed) + ` pages on which pdftotext and mutool read different words themselves (word F1 under ` + fmt.Sprint(agreement) + `) are left out: they show nothing. Running headers and footers, which Sheaf takes out of the text and reports beside it, are compared with the rest. Words hyphenated over two lines, which Sheaf joins, count against it where the reference does not join them.
- LibreOffice prints slides with their numbers, dates and footers, and without the speaker's notes and the descriptions of pictures. Sheaf reads it the other way round, and both count against it in the row of PPTX.
- The references are other programs, not human truth.

References, in the order of the columns:

`)
	for _, r := range results {
		var names []string
		for _, ref := range r.references {
			names = append(names, "`"+ref.command+"`")
		}
		fmt.Fprintf(&b, "- %s: %s\n", r.name, strings.Join(names, ", "))
	}
	return b.String()
}
