package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pdfcpu "github.com/pdfcpu/pdfcpu/pkg/api"

	"sheaf"
	"sheaf/parser"
)

// peerRounds is how often each peer reads the set, all of them in turn: if the
// machine slows down meanwhile, it affects the median of all.
const peerRounds = 3

// peer is a program that reads a set of files.
type peer struct {
	name string // suffix of its row's name
	note string
	read func(ctx context.Context, paths []string) (cpu time.Duration, note string, err error)
}

// peersPython is the Python with the packages installed by scripts/peers.sh; "" for
// none.
func peersPython() string { return os.Getenv("SHEAF_PEERS_PYTHON") }

const installPeers = `its package is not installed: set -a; eval "$(scripts/peers.sh)"; set +a`

// readers are the loops a user would write, by package. Each reads paths from its
// input, one per line, and finally reports how many characters it has read and how
// many files it could not read.
var readers = map[string]string{
	"pymupdf": `
import sys, pymupdf
def read(path):
    with pymupdf.open(path) as d:
        return sum(len(p.get_text()) for p in d)
`,
	"pypdfium2": `
import sys, pypdfium2
def read(path):
    d, n = pypdfium2.PdfDocument(path), 0
    for i in range(len(d)):
        page = d[i]
        text = page.get_textpage()
        n += len(text.get_text_range())
        text.close()
        page.close()
    d.close()
    return n
`,
	// Sheaf does not read pictures here, and nothing twice.
	"kreuzberg": `
import sys
from kreuzberg import extract_file_sync, ExtractionConfig
config = ExtractionConfig(use_cache=False, disable_ocr=True)
def read(path):
    return len(extract_file_sync(path, config=config).content)
`,
}

const readAll = `
characters = failed = 0
for line in sys.stdin:
    try:
        characters += read(line.rstrip("\n"))
    except Exception:
        failed += 1
print(characters, failed)
`

// library is a Python package in one process for the whole set.
func library(name string) peer {
	return peer{name, "text, one process", func(ctx context.Context, paths []string) (time.Duration, string, error) {
		cmd := exec.CommandContext(ctx, peersPython(), "-c", readers[name]+readAll)
		cmd.Stdin = strings.NewReader(strings.Join(paths, "\n") + "\n")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w: %s", name, err, said.Bytes()[max(0, said.Len()-2000):])
		}
		var characters, failed int
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		if _, err := fmt.Sscan(string(lines[len(lines)-1]), &characters, &failed); err != nil || characters == 0 {
			return 0, "", fmt.Errorf("%s read %d characters: %w", name, characters, err)
		}
		note := ""
		if failed > 0 {
			note = fmt.Sprintf("%d files refused, which count as read", failed)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), note, nil
	}}
}

// poppler is pdftotext, a process per file.
func poppler(name string, args ...string) peer {
	return peer{name, "a process per file", func(ctx context.Context, paths []string) (cpu time.Duration, _ string, err error) {
		for _, path := range paths {
			cmd := exec.CommandContext(ctx, pdftotext(), append(slices.Clone(args), path, os.DevNull)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				return 0, "", fmt.Errorf("pdftotext on %s: %w: %s", path, err, out)
			}
			cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
		return cpu, "", nil
	}}
}

// wholeService is Sheaf from upload until everything is searchable, with vectors.
// The service is already running: people start it once, not per set.
func (b *bench) wholeService(name string) peer {
	return peer{name, "from the upload until all can be searched, with vectors", func(ctx context.Context, paths []string) (cpu time.Duration, note string, err error) {
		err = b.served(ctx, "peer", func(s *server) error {
			files := make([]file, len(paths))
			for i, path := range paths {
				files[i] = onDisk(path)
			}
			begun := cpuTime(s.pid())
			job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
			if err != nil {
				return err
			}
			if job, err = s.ended(ctx, job.ID); err != nil {
				return err
			}
			cpu = cpuTime(s.pid()) - begun
			good := job.Documents.ByState[sheaf.DocSucceeded] + job.Documents.ByState[sheaf.DocPartiallySucceeded]
			if good < len(paths) {
				note = fmt.Sprintf("%d of %d files searchable", good, len(paths))
			}
			if job.Reused.Pages > 0 {
				note = strings.TrimPrefix(fmt.Sprintf("%s, %d pages reused", note, job.Reused.Pages), ", ")
			}
			return nil
		})
		return cpu, note, err
	}}
}

// peers measures the alternatives a user would pick, and Sheaf, on the same files.
func (b *bench) peers(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("peers", "no corpus")
		return nil
	}
	return errors.Join(b.peersPDF(ctx), b.peersLarge(ctx), b.peersOffice(ctx))
}

func (b *bench) peersPDF(ctx context.Context) error {
	all, err := b.pdfs(ctx, "pdf", 0, realistic...)
	if err != nil {
		return err
	}
	// Not every peer supports page ranges: for long files all get the first pages
	// as a separate file.
	sizes, pages := map[string]int{}, 0
	var paths []string
	for _, f := range all {
		path, n := f.path, f.pages
		if n > realisticPages {
			path, n = filepath.Join(b.tmp, "first-"+filepath.Base(f.path)), realisticPages
			if err := pdfcpu.TrimFile(f.path, path, []string{fmt.Sprintf("1-%d", n)}, nil); err != nil {
				leftOut("peers.pdf: "+filepath.Base(f.path), err.Error())
				continue
			}
		}
		sizes[path] = n
		paths = append(paths, path)
	}
	if paths, err = distinct(paths); err != nil {
		return err
	}
	for _, path := range paths {
		pages += sizes[path]
	}
	list := b.installed("peers.pdf", "pymupdf", "pypdfium2")
	if havePdftotext() {
		list = append(list, poppler("pdftotext"), poppler("bbox", "-bbox-layout"))
	} else {
		leftOut("peers.pdf.pdftotext, peers.pdf.bbox", installPoppler)
	}
	list = append(list, b.installed("peers.pdf", "kreuzberg")...)
	list = append(list, peer{"parse", "read by " + b.pdf.String(), func(ctx context.Context, paths []string) (time.Duration, string, error) {
		begun := cpuTime(os.Getpid())
		pool, err := b.parsers(1, b.pdf)
		if err != nil {
			return 0, "", err
		}
		defer pool.Close()
		for _, path := range paths {
			if err := parse(ctx, pool, pdf{path, sizes[path]}); err != nil {
				return 0, "", err
			}
		}
		return cpuTime(os.Getpid()) - begun, "", nil // before the parsers end: see against
	}}, b.wholeService("sheaf"))
	note := fmt.Sprintf("%d files of at most %d pages, %d pages", len(paths), realisticPages, pages)
	took, err := b.inTurn(ctx, "peers.pdf", list, paths, pages, "pages/CPU-s", note)
	if err != nil {
		return err
	}
	b.ratio("peers.e2e.kreuzberg", took, "sheaf", "kreuzberg", "× kreuzberg", 1.2, "end to end, against extraction alone")
	b.ratio("peers.e2e.bbox", took, "sheaf", "bbox", "× pdftotext -bbox-layout", 0.75, "end to end, against words and boxes alone")
	b.ratio("peers.parse.bbox", took, "parse", "bbox", "× pdftotext -bbox-layout", 1, "parsing")
	return nil
}

// peersLarge compares parsing the manuals of thousands of pages.
func (b *bench) peersLarge(ctx context.Context) error {
	if !havePdftotext() {
		leftOut("peers.large", installPoppler)
		return nil
	}
	files, err := b.pdfs(ctx, "pdf-large", 0)
	if err != nil {
		return err
	}
	return b.against(ctx, "peers.large", files, peerRounds, 1.5)
}

// officeGoal is the target of files per CPU-second, end to end.
const officeGoal = 200

func (b *bench) peersOffice(ctx context.Context) error {
	var paths []string
	for _, kind := range []string{"docx", "pptx", "xlsx"} {
		found, err := filepath.Glob(filepath.Join(b.corpus, kind, "*."+kind))
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	// Encrypted files are of another type than their names suggest, and no peer
	// opens them.
	known := parser.NewRegistry(builtIn()...)
	paths, err := accepted(known, paths)
	if err != nil {
		return err
	}
	if paths, err = distinct(paths); err != nil {
		return err
	}
	list := append(b.installed("peers.office", "kreuzberg"), b.wholeService("sheaf"))
	took, err := b.inTurn(ctx, "peers.office", list, paths, len(paths), "files/CPU-s", fmt.Sprintf("%d files, .docx, .pptx and .xlsx; the goal of Sheaf's end to end is %d", len(paths), officeGoal))
	if err != nil {
		return err
	}
	if took["kreuzberg"] != nil {
		b.tell("peers.office.ratio", median(ratios(took["kreuzberg"], took["sheaf"])), "× kreuzberg", "end to end, against extraction alone")
	}
	return nil
}

// installed returns the packages of the peers' Python, if there is one.
func (b *bench) installed(rows string, names ...string) (list []peer) {
	for _, name := range names {
		if python := peersPython(); python == "" || exec.Command(python, "-c", "import "+name).Run() != nil {
			leftOut(rows+"."+name, installPeers)
			continue
		}
		list = append(list, library(name))
	}
	return list
}

// inTurn has all peers read the files, one after the other, repeatedly, and returns
// the CPU times of each.
func (b *bench) inTurn(ctx context.Context, name string, list []peer, paths []string, units int, unit, note string) (map[string][]time.Duration, error) {
	took, notes := map[string][]time.Duration{}, map[string]string{}
	var fixed []float64
	for range peerRounds {
		fixed = append(fixed, calibration().Seconds())
		for _, p := range list {
			cpu, said, err := p.read(ctx, paths)
			if err != nil {
				return nil, err
			}
			took[p.name] = append(took[p.name], cpu)
			notes[p.name] = said
		}
	}
	b.tell(name+".calibration", median(slices.Clone(fixed)), "CPU-s", fmt.Sprintf("the same work before each round, rounds %.2f; %s", fixed, note))
	for _, p := range list {
		var rates []float64
		for _, cpu := range took[p.name] {
			rates = append(rates, float64(units)/cpu.Seconds())
		}
		text := fmt.Sprintf("%s; rounds %.0f", p.note, rates)
		if notes[p.name] != "" {
			text += "; " + notes[p.name]
		}
		b.tell(name+"."+p.name, median(rates), unit, text)
	}
	return took, nil
}

// ratios returns how much more CPU one took than the other, by round.
func ratios(theirs, ours []time.Duration) (out []float64) {
	for i := range theirs {
		out = append(out, theirs[i].Seconds()/ours[i].Seconds())
	}
	return out
}

// ratio adds the ratio of two peers, if both ran.
func (b *bench) ratio(name string, took map[string][]time.Duration, ours, theirs, unit string, bound float64, note string) {
	if took[theirs] == nil {
		return
	}
	r := ratios(took[theirs], took[ours])
	b.atLeast(name, median(slices.Clone(r)), unit, bound, fmt.Sprintf("%s; rounds %.2f", note, r))
}

// accepted drops files of a type that needs another program or that no format reads.
func accepted(known *parser.Registry, paths []string) (out []string, err error) {
	for _, path := range paths {
		media, err := sniff(known, path)
		if err != nil {
			return nil, err
		}
		if f, ok := known.ByMediaType(media); ok && parser.Available(f) == nil {
			out = append(out, path)
		}
	}
	return out, nil
}

// distinct drops duplicate files: Sheaf would read them only once.
func distinct(paths []string) (out []string, err error) {
	seen := map[[sha256.Size]byte]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(text); !seen[sum] {
			seen[sum] = true
			out = append(out, path)
		}
	}
	return out, nil
}

// calibration is constant work: if its CPU time changes from round to round, the
// machine did.
func calibration() time.Duration {
	begun := ownTime()
	w := gzip.NewWriter(io.Discard)
	_, _ = io.Copy(w, io.LimitReader(&words{r: rand.New(rand.NewPCG(1, 1))}, 16<<20)) // neither end fails
	_ = w.Close()
	return ownTime() - begun
}

// pdftotext is the program of poppler.
func pdftotext() string { return cmp.Or(os.Getenv("SHEAF_PEERS_PDFTOTEXT"), "pdftotext") }

// versions returns those of Sheaf and of the installed peers.
func (b *bench) versions(ctx context.Context) map[string]string {
	out := map[string]string{}
	if text, err := exec.CommandContext(ctx, b.bin, "version").Output(); err == nil {
		if _, after, found := strings.Cut(string(text), "commit"); found {
			out["Sheaf"] = strings.Fields(after)[0]
		}
	}
	if text, err := exec.CommandContext(ctx, pdftotext(), "-v").CombinedOutput(); err == nil {
		if f := strings.Fields(string(text)); len(f) > 2 {
			out["poppler"] = f[2]
		}
	}
	if python := peersPython(); python != "" {
		const ask = `import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ("kreuzberg", "pymupdf", "pypdfium2")}))`
		if text, err := exec.CommandContext(ctx, python, "-c", ask).Output(); err == nil {
			_ = json.Unmarshal(text, &out) // missing ones are not reported
		}
	}
	return out
}
