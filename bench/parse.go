package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
	"sheaf/parser/pdf/pdfium"
	"sheaf/samples"
)

// pdf is a file of a set and how many of its first pages are read.
type pdf struct {
	path  string
	pages int
}

// realistic are the projects whose test documents resemble what people upload:
// reports, papers, forms and slides, not crafted edge cases.
var realistic = []string{"docling", "unstructured", "kreuzberg", "markitdown", "cocoindex", "kernel-memory", "pdfplumber"}

// realisticPages limits how much of one file counts, so that no file of the
// realistic set outweighs the others.
const realisticPages = 120

const pdfType = "application/pdf"

// rangePages is the pages of a task, the product's default.
var rangePages = settings.Default.TaskPageSize.V

// pdfs lists the files of a corpus folder that both sides can read.
func (b *bench) pdfs(ctx context.Context, folder string, most int, prefixes ...string) ([]pdf, error) {
	paths, err := filepath.Glob(filepath.Join(b.corpus, folder, "*.pdf"))
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(p string) bool {
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(filepath.Base(p), x) })
	})
	return b.readable(ctx, paths, most)
}

// readable counts pages and drops files that one side refuses (passwords, damage),
// so that both do the same work.
func (b *bench) readable(ctx context.Context, paths []string, most int) ([]pdf, error) {
	pool, err := b.parsers(0, b.pdf)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	var out []pdf
	for _, path := range paths {
		plan, _, cleanup, err := pool.Plan(ctx, pdfSource(path))
		cleanup()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil || plan.Units < 1 {
			continue
		}
		f := pdf{path, plan.Units}
		if most > 0 {
			f.pages = min(f.pages, most)
		}
		if havePdftotext() && exec.CommandContext(ctx, pdftotext(), "-l", "1", path, os.DevNull).Run() != nil {
			continue
		}
		out = append(out, f)
	}
	return out, ctx.Err()
}

func pdfSource(path string) child.Source {
	return child.Source{Path: path, Format: "pdf", Options: parser.Options{Name: filepath.Base(path), MediaType: pdfType, Config: settings.Default}}
}

// bbox has pdftotext find words, lines and blocks with their boxes.
func bbox(ctx context.Context, f pdf) error {
	out, err := exec.CommandContext(ctx, pdftotext(), "-bbox-layout", "-l", strconv.Itoa(f.pages), f.path, os.DevNull).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pdftotext on %s: %w: %s", f.path, err, out)
	}
	return nil
}

// parsers starts that many parsers, 0 for one per CPU, reading PDFs with by.
func (b *bench) parsers(size int, by pdfium.Found) (*child.Pool, error) {
	c := child.Config{Size: size, TempDir: b.tmp, Program: by.File, Env: formats.Config{PDF: pdfium.Config{Helper: by.Run}}.Environ()}
	return child.New(c)
}

// parseHelper compares sheaf-pdfium with WebAssembly, alternating file by file.
func (b *bench) parseHelper(ctx context.Context) error {
	if b.pdf.Run == "" {
		leftOut("parse.helper", "there is no "+pdfium.Program+" beside the service: make helper")
		return nil
	}
	set, err := b.wholeSet(ctx)
	if err != nil {
		return err
	}
	rounds := 1
	if b.corpus == "" {
		rounds = 5
	}
	var took [2]time.Duration // of WebAssembly, of sheaf-pdfium
	for range rounds {
		var pools [2]*child.Pool
		at := cpuTime(os.Getpid())
		for i, by := range []pdfium.Found{{}, b.pdf} {
			if pools[i], err = b.parsers(1, by); err != nil {
				return err
			}
			defer pools[i].Close()
		}
		for _, f := range set.files {
			for i, pool := range pools {
				if err := parse(ctx, pool, f); err != nil {
					return err
				}
				now := cpuTime(os.Getpid())
				took[i] += now - at
				at = now
			}
		}
		for _, pool := range pools {
			_ = pool.Close() // not counted: see against
		}
	}
	pages := float64(rounds * set.pages)
	b.atLeast("parse.helper", took[0].Seconds()/took[1].Seconds(), "× WebAssembly", 1.3, fmt.Sprintf("%d files, %d pages, %d rounds, with layout", len(set.files), set.pages, rounds))
	b.tell("parse.helper.pages", pages/took[1].Seconds(), "pages/CPU-s", "")
	b.tell("parse.helper.wasm", pages/took[0].Seconds(), "pages/CPU-s", "")
	return nil
}

// parse reads the pages of a file as the executor does: in ranges, through the
// pool, which keeps the document open between them.
func parse(ctx context.Context, pool *child.Pool, f pdf) error {
	for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: f.pages}}, rangePages) {
		if err := pool.Parse(ctx, pdfSource(f.path), r, func(sheaf.UnitResult) error { return nil }); err != nil {
			return fmt.Errorf("%s, pages %s: %w", filepath.Base(f.path), r, err)
		}
	}
	return nil
}

func havePdftotext() bool {
	_, err := exec.LookPath(pdftotext())
	return err == nil
}

const installPoppler = "pdftotext is not installed (Debian: apt-get install poppler-utils)"

func (b *bench) parseRealistic(ctx context.Context) error {
	if !havePdftotext() {
		leftOut("parse.realistic", installPoppler)
		return nil
	}
	if b.corpus == "" {
		return b.parseSamples(ctx)
	}
	files, err := b.pdfs(ctx, "pdf", realisticPages, realistic...)
	if err != nil {
		return err
	}
	return b.against(ctx, "parse.realistic", files, 3, 0.7)
}

func (b *bench) parseLarge(ctx context.Context) error {
	switch {
	case !havePdftotext():
		leftOut("parse.large", installPoppler)
		return nil
	case b.corpus == "":
		leftOut("parse.large", "no corpus")
		return nil
	}
	files, err := b.pdfs(ctx, "pdf-large", 0)
	if err != nil {
		return err
	}
	return b.against(ctx, "parse.large", files, 1, 1.0)
}

// parseSamples uses the product's own handbook if there is no corpus.
func (b *bench) parseSamples(ctx context.Context) error {
	path := filepath.Join(b.tmp, "handbook.pdf")
	text, err := samples.FS.ReadFile("handbook.pdf")
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return err
	}
	files, err := b.readable(ctx, []string{path}, 0)
	if err != nil {
		return err
	}
	return b.against(ctx, "parse.samples", files, 3, 0)
}

// against compares pages per CPU-second. The two sides alternate file by file, so
// that other load on the machine affects both. Each round has its own pool:
// starting the child counts.
func (b *bench) against(ctx context.Context, name string, files []pdf, rounds int, bound float64) error {
	pages := 0
	for _, f := range files {
		pages += f.pages
	}
	if pages == 0 {
		return fmt.Errorf("no file of the set can be read")
	}
	var ratios, ours, theirs []float64
	for range rounds {
		var own, other time.Duration
		at := cpuTime(os.Getpid())
		lap := func() time.Duration {
			from := at
			at = cpuTime(os.Getpid())
			return at - from
		}
		pool, err := b.parsers(1, b.pdf)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err = parse(ctx, pool, f); err != nil {
				break
			}
			own += lap()
			if err = bbox(ctx, f); err != nil {
				break
			}
			other += lap()
		}
		// Not counted: the CPU time of the programs of open documents is lost with
		// the parser that started them.
		_ = pool.Close()
		if err != nil {
			return err
		}
		ours = append(ours, float64(pages)/own.Seconds())
		theirs = append(theirs, float64(pages)/other.Seconds())
		ratios = append(ratios, other.Seconds()/own.Seconds())
	}
	note := fmt.Sprintf("%d files, %d pages, %d rounds", len(files), pages, rounds)
	if bound > 0 {
		b.atLeast(name, median(ratios), "× pdftotext -bbox-layout", bound, note)
	} else {
		b.tell(name, median(ratios), "× pdftotext -bbox-layout", note)
	}
	b.tell(name+".pages", median(ours), "pages/CPU-s", "")
	b.tell(name+".pdftotext", median(theirs), "pages/CPU-s", "")
	return nil
}

// pdfSet is the documents of the end-to-end measurement.
type pdfSet struct {
	files     []pdf // with at most realisticPages each, then whole
	realistic int   // how many of them belong to the realistic set
	pages     int
}

// wholeSet lists all PDFs of the corpus' two sets, or the handbook.
func (b *bench) wholeSet(ctx context.Context) (s pdfSet, err error) {
	if b.corpus == "" {
		path := filepath.Join(b.tmp, "handbook.pdf")
		text, err := samples.FS.ReadFile("handbook.pdf")
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			return s, err
		}
		if s.files, err = b.readable(ctx, []string{path}, 0); err != nil {
			return s, err
		}
	} else {
		small, err := b.pdfs(ctx, "pdf", realisticPages, realistic...)
		if err != nil {
			return s, err
		}
		large, err := b.pdfs(ctx, "pdf-large", 0)
		if err != nil {
			return s, err
		}
		s.realistic, s.files = len(small), append(small, large...)
	}
	for _, f := range s.files {
		s.pages += f.pages
	}
	return s, nil
}

// parsedAlone is the cost of reading a set of files by itself.
type parsedAlone struct {
	pdfSet
	cpu time.Duration
}

// parseAlone reads the whole set with as many children as the service has.
func (b *bench) parseAlone(ctx context.Context) (a parsedAlone, err error) {
	if a.pdfSet, err = b.wholeSet(ctx); err != nil {
		return a, err
	}
	begun := cpuTime(os.Getpid())
	pool, err := b.parsers(0, b.pdf)
	if err != nil {
		return a, err
	}
	var mu sync.Mutex
	var first error
	work := make(chan pdf)
	var hands sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		hands.Go(func() {
			for f := range work {
				if err := parse(ctx, pool, f); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := len(a.files) - 1; i >= 0; i-- { // largest first, so that all workers finish together
		work <- a.files[i]
	}
	close(work)
	hands.Wait()
	a.cpu = cpuTime(os.Getpid()) - begun // before the parsers end: see against
	_ = pool.Close()
	return a, first
}

// otherFormats are the corpus folders other than PDF and pictures.
var otherFormats = []string{"csv", "doc", "docx", "eml", "epub", "html", "md", "msg", "odt", "ppt", "pptx", "rtf", "txt", "xls", "xlsx"}

// formats reads every office, mail, book and web file of the corpus whole.
func (b *bench) formats(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("formats", "no corpus")
		return nil
	}
	known := parser.NewRegistry(builtIn()...)
	type job struct {
		path, format, media string
	}
	var jobs []job
	unknown := 0
	for _, folder := range otherFormats {
		paths, _ := filepath.Glob(filepath.Join(b.corpus, folder, "*"))
		for _, path := range paths {
			media, err := sniff(known, path)
			if err != nil {
				return err
			}
			f, ok := known.ByMediaType(media)
			if !ok || f.ID() == "pdf" || parser.Available(f) != nil {
				unknown++
				continue
			}
			jobs = append(jobs, job{path, f.ID(), media})
		}
	}
	if len(jobs) == 0 {
		return fmt.Errorf("no file of the corpus has a format that is built in")
	}
	peak := watchMemory(os.Getpid(), true)
	begun := cpuTime(os.Getpid())
	pool, err := b.parsers(1, b.pdf)
	if err != nil {
		return err
	}
	refused := 0
	costs := map[string]time.Duration{}
	counts := map[string]int{}
	at := begun
	for i, j := range jobs {
		src := child.Source{Path: j.path, Format: j.format, Options: parser.Options{Name: filepath.Base(j.path), MediaType: j.media, Config: settings.Default}}
		if err := readWhole(ctx, pool, src); err != nil {
			if ctx.Err() != nil {
				break
			}
			refused++ // a verdict on the file: counts as read, as for every other tool
		}
		counts[j.format]++
		if i+1 < len(jobs) && jobs[i+1].format == j.format {
			continue // reading the clock costs as much as a small file
		}
		now := cpuTime(os.Getpid())
		costs[j.format] += now - at
		at = now
	}
	_ = pool.Close()
	took := cpuTime(os.Getpid()) - begun
	most := peak()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.atLeast("formats.files", float64(len(jobs))/took.Seconds(), "files/CPU-s", 200, fmt.Sprintf("%d files, %d of them refused with a reason; %d more need a program that is not built in", len(jobs), refused, unknown))
	b.atMost("formats.memory", megabytes(most), "MB", 600, "peak over all processes")
	for _, id := range slices.Sorted(mapKeys(costs)) {
		b.tell("formats."+id, float64(counts[id])/max(costs[id], tick).Seconds(), "files/CPU-s", fmt.Sprintf("%d files", counts[id]))
	}
	return nil
}

func sniff(known *parser.Registry, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	return known.Sniff(f, info.Size(), filepath.Base(path)), nil
}

// readWhole plans a file and reads every range of it.
func readWhole(ctx context.Context, pool *child.Pool, src child.Source) error {
	plan, shards, cleanup, err := pool.Plan(ctx, src)
	defer cleanup()
	if err != nil {
		return err
	}
	src.Options.Beside = plan.Beside
	ignore := func(sheaf.UnitResult) error { return nil }
	if plan.Ranges == nil {
		if plan.Units < 1 {
			return nil
		}
		for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: plan.Units}}, plan.RangeSize) {
			if err := pool.Parse(ctx, src, r, ignore); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range plan.Ranges {
		part := src
		part.Options.Hint = p.Hint
		if p.Shard != "" {
			part.Path, part.Options.MediaType, part.Format = filepath.Join(shards, filepath.FromSlash(p.Shard)), p.MediaType, ""
		}
		if err := pool.Parse(ctx, part, p.Range, ignore); err != nil {
			return err
		}
	}
	return nil
}
