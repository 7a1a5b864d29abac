// Command fidelity measures how well the text that Sheaf reads agrees with
// what well-known converters read from the same files: pdftotext page by page
// for PDF, pandoc for DOCX, HTML and EPUB. It prints a table and writes
// docs/fidelity.md.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
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
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
)

const (
	// leastWords is what a reference must hold to be compared with: of a few
	// words, one decides.
	leastWords = 20
	// mostPages of one PDF count, so that no manual outweighs the others.
	mostPages = 60
	// referenceTime is what a converter gets for one file.
	referenceTime = 60 * time.Second
)

// realistic are the projects whose PDFs look like what people upload, not
// crafted edge cases.
var realistic = []string{"docling", "unstructured", "kreuzberg", "markitdown", "cocoindex", "kernel-memory", "pdfplumber"}

// set is a row of the table.
type set struct {
	name      string
	folder    string
	prefixes  []string // of file names; nil takes all
	per       string   // what is scored: file or page
	reference string   // the command line that makes the reference, FILE in place of the file
	target    float64  // of word F1, 0 for none
}

var sets = []set{
	{"PDF, realistic", "pdf", realistic, "page", "pdftotext FILE -", .985},
	{"PDF, large manuals", "pdf-large", nil, "page", "pdftotext FILE -", .985},
	{"DOCX", "docx", nil, "file", "pandoc -f docx -t plain --wrap=none FILE", .956},
	{"HTML", "html", nil, "file", "pandoc -f html -t plain --wrap=none FILE", .967},
	{"EPUB", "epub", nil, "file", "pandoc -f epub -t plain --wrap=none FILE", 0},
}

// score compares one file, or one page, with its reference.
type score struct {
	name        string
	words, runs float64 // F1 of the bags of words, and of the runs of three
}

type result struct {
	set
	files   int
	refused int // with a reason
	failed  int // crashes and time-outs
	none    int // the reference could not read it, or held too little
	scores  []score
}

func main() {
	child.MaybeRun(formats.All()) // the pool of parsers starts this program again
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fidelity:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	corpus := flag.String("corpus", cmp.Or(os.Getenv("SHEAF_CORPUS"), "../shared/corpus"), "folder of test documents, with a folder per format")
	out := flag.String("out", "docs/fidelity.md", "where the table is written; empty for nowhere")
	only := flag.String("only", "", "rows to measure, by the start of their folder's name; default all")
	worst := flag.Int("worst", 0, "names that many of the lowest scores per row")
	flag.Parse()
	if _, err := os.Stat(*corpus); err != nil {
		return fmt.Errorf("there is no corpus at %s; name it with -corpus or SHEAF_CORPUS", *corpus)
	}
	for _, tool := range []string{"pdftotext", "pandoc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed (Debian: apt-get install poppler-utils pandoc)", tool)
		}
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

	known := parser.NewRegistry(formats.All()...)
	var results []*result
	for _, s := range sets {
		if !strings.HasPrefix(s.folder, *only) {
			continue
		}
		r, err := measure(ctx, pool, known, s, *corpus)
		if err != nil {
			return err
		}
		fmt.Println(line(r))
		slices.SortFunc(r.scores, func(a, b score) int { return cmp.Compare(a.words, b.words) })
		for _, sc := range r.scores[:min(*worst, len(r.scores))] {
			fmt.Printf("  %.3f %.3f %s\n", sc.words, sc.runs, sc.name)
		}
		results = append(results, r)
	}
	if *out == "" || *only != "" {
		return nil
	}
	return os.WriteFile(*out, []byte(page(results)), 0o644)
}

func measure(ctx context.Context, pool *child.Pool, known *parser.Registry, s set, corpus string) (*result, error) {
	paths, err := filepath.Glob(filepath.Join(corpus, s.folder, "*"))
	if err != nil {
		return nil, err
	}
	r := &result{set: s}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		if s.prefixes != nil && !slices.ContainsFunc(s.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		r.files++
		ours, err := read(ctx, pool, known, path)
		if err != nil {
			if f := sheaf.AsFailure(err, ""); f.Category == sheaf.CategoryCrash || f.Category == sheaf.CategoryTimeout || f.Category == sheaf.CategoryInternal {
				r.failed++
				fmt.Fprintln(os.Stderr, name, err)
			} else {
				r.refused++
			}
			continue
		}
		theirs, err := reference(ctx, s, path, len(ours))
		if err != nil {
			r.none++
			continue
		}
		compared := false
		for i, want := range theirs {
			if i >= len(ours) || len(want) < leastWords {
				continue
			}
			compared = true
			at := name
			if s.per == "page" {
				at += " page " + strconv.Itoa(i+1)
			}
			r.scores = append(r.scores, score{at, f1(ours[i], want, 1), f1(ours[i], want, 3)})
		}
		if !compared {
			r.none++
		}
	}
	return r, nil
}

// read returns the words that the product finds: per page of a PDF, else of
// the whole file.
func read(ctx context.Context, pool *child.Pool, known *parser.Registry, path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	media := parser.Sniff(f, info.Size(), path)
	if err := f.Close(); err != nil {
		return nil, err
	}
	format, ok := known.ByMediaType(media)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_format", "Files of type %s cannot be read.", media)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	src := child.Source{Path: path, Format: format.ID(), Options: parser.Options{Name: filepath.Base(path), MediaType: media, Config: sheaf.DefaultParseConfig}}
	plan, _, cleanup, err := pool.Plan(ctx, src)
	defer cleanup()
	if err != nil {
		return nil, err
	}
	pages := format.ID() == "pdf"
	last := plan.Units
	if pages {
		last = min(last, mostPages)
	}
	out := make([][]string, 1)
	if pages {
		out = make([][]string, last)
	}
	for _, q := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: last}}, plan.RangeSize) {
		err := pool.Parse(ctx, src, q, func(u sheaf.UnitResult) error {
			at := 0
			if pages {
				at = u.Unit - 1
			}
			for _, b := range u.Blocks {
				out[at] = append(out[at], blockWords(b)...)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
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

// reference runs the converter. pdftotext ends each page with a form feed.
func reference(ctx context.Context, s set, path string, pages int) ([][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, referenceTime)
	defer cancel()
	args := strings.Fields(s.reference)
	for i, a := range args {
		if a == "FILE" {
			args[i] = path
		}
	}
	if s.per == "page" {
		args = slices.Insert(args, 1, "-l", strconv.Itoa(pages))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var text bytes.Buffer
	cmd.Stdout = &text
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	if s.per != "page" {
		return [][]string{words(text.String())}, nil
	}
	var out [][]string
	for p := range strings.SplitSeq(text.String(), "\f") {
		out = append(out, words(p))
	}
	return out, nil
}

// words are runs of letters, digits and marks, in lower case.
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
	sum := 0.0
	for _, s := range r.scores {
		sum += of(s)
	}
	return sum / float64(max(len(r.scores), 1))
}

func line(r *result) string {
	target := "–"
	if r.target > 0 {
		target = "≥ " + strings.TrimPrefix(fmt.Sprintf("%.3f", r.target), "0")
	}
	low := 0
	for _, s := range r.scores {
		if s.words < .5 {
			low++
		}
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d %ss | %.3f | %s | %.3f | %d |", r.name, r.files, r.refused, r.failed, r.none, len(r.scores), r.per,
		r.mean(func(s score) float64 { return s.words }), target, r.mean(func(s score) float64 { return s.runs }), low)
}

func page(results []*result) string {
	var b strings.Builder
	b.WriteString(`# Fidelity

How well the text that Sheaf reads agrees with what well-known converters read from the same files. The table is made by

    go run ./bench/fidelity -corpus FOLDER

over a folder of public test documents (those of Apache Tika and POI, docling, unstructured, kreuzberg, pdfplumber and others), with pdftotext and pandoc installed.

| files | number | refused | crashed | no reference | scored | word F1 | target | order F1 | below .5 |
|---|---|---|---|---|---|---|---|---|---|
`)
	for _, r := range results {
		b.WriteString(line(r) + "\n")
	}
	b.WriteString(`
- **Word F1** compares the bags of words (letters, digits and marks, in lower case), **order F1** those of runs of three words: it falls when the reading order differs. Both are means over files, for PDF over pages.
- **Refused** files end with a reason: a password, damage, or another type than their name says. **No reference**: the converter failed, or what it read has fewer than ` + strconv.Itoa(leastWords) + ` words.
- Of a PDF the first ` + strconv.Itoa(mostPages) + ` pages count. Running headers and footers, which Sheaf leaves out on purpose, count against it here, and so do words hyphenated over two lines, which it joins.
- The references are other programs, not human truth. Cells of tables are not scored, since the folder holds no ground truth for them.

References:

`)
	for _, r := range results {
		fmt.Fprintf(&b, "- %s: `%s`\n", r.name, r.reference)
	}
	return b.String()
}
