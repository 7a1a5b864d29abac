package pdfiumhelper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
	"sheaf/parser/pdf/pdfiumwasm"
)

func start(t *testing.T, cfg Config) *Engine {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = enginetest.Helper(t)
	}
	cfg.Module = pdfiumwasm.ModuleSHA256()
	e := New(cfg)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func wasm(t testing.TB) engine.Engine {
	e := pdfiumwasm.New(pdfiumwasm.Config{})
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestContract(t *testing.T) { enginetest.Run(t, start(t, Config{})) }

// hidden is a file whose descriptor nobody can have.
type hidden struct{ f *os.File }

func (h hidden) ReadAt(b []byte, at int64) (int, error) { return h.f.ReadAt(b, at) }

func TestFixturesReadAsByWebAssembly(t *testing.T) {
	e, w := start(t, Config{}), wasm(t)
	for name, b := range enginetest.Fixtures() {
		t.Run(name, func(t *testing.T) {
			f := enginetest.Write(t, b)
			enginetest.Same(t, e, w, f, int64(len(b)), 1000)
			enginetest.Same(t, e, w, hidden{f}, int64(len(b)), 1000)
		})
	}
}

// TestRealFilesReadAsByWebAssembly takes those of the repository, and those of the
// folder that SHEAF_CORPUS names.
func TestRealFilesReadAsByWebAssembly(t *testing.T) {
	e, w := start(t, Config{}), wasm(t)
	files, err := filepath.Glob("../../../samples/*.pdf")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	if dir := os.Getenv("SHEAF_CORPUS"); dir != "" && !testing.Short() {
		more, _ := filepath.Glob(filepath.Join(dir, "pdf/*.pdf"))
		files = append(files, more...)
	}
	pages := 0
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			pages += enginetest.Same(t, e, w, f, info.Size(), 40)
		})
	}
	t.Logf("%d pages of %d files are the same", pages, len(files))
}

func TestSelfTestIsWhatWebAssemblyReads(t *testing.T) {
	sample := samplePDF()
	d, err := wasm(t).Open(context.Background(), bytes.NewReader(sample), int64(len(sample)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var p engine.Page
	if err := d.Page(0, &p); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, c := range p.Chars {
		text.WriteRune(rune(c.Unit))
	}
	if got := fmt.Sprintf("%q %v %v %v", text.String(), p.Chars[0].Box, p.Fonts, p.Rules); got != sampleReads {
		t.Errorf("WebAssembly reads %s\nthe self-test wants %s", got, sampleReads)
	}
}

func textOf(t *testing.T, d engine.Document, n int) string {
	t.Helper()
	var p engine.Page
	if err := d.Page(n, &p); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, c := range p.Chars {
		b.WriteRune(rune(c.Unit))
	}
	return b.String()
}

// TestDocumentsShareTheirMemory opens more documents than fit: those that nobody
// reads end for it and go on where they were.
func TestDocumentsShareTheirMemory(t *testing.T) {
	e := start(t, Config{MemoryBytes: 100 << 20}) // each takes 19 MB at least
	var all []engine.Document
	const n = 12
	for i := range n {
		var pages []enginetest.Page
		for k := range 3 {
			pages = append(pages, enginetest.Page{Content: enginetest.Text(fmt.Sprintf("F%d", 1+(i+k)%4), 12, 72, 700, fmt.Sprintf("document%d page%d", i, k))})
		}
		b := enginetest.File{Pages: pages}.Bytes()
		d, err := e.Open(context.Background(), enginetest.Write(t, b), int64(len(b)), "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	for k := range 3 {
		for i, d := range all {
			if got := textOf(t, d, k); !strings.Contains(got, fmt.Sprintf("document%d page%d", i, k)) {
				t.Errorf("document %d, page %d: %q", i, k, got)
			}
			e.mu.Lock()
			memory, running := int64(0), 0
			for o := range e.open {
				memory += o.memory
				if o.running != nil {
					running++
				}
			}
			e.mu.Unlock()
			if memory*wasmPage > 100<<20 || running >= n {
				t.Fatalf("%d programs have %d MB of the 100 that they may", running, memory*wasmPage>>20)
			}
		}
	}
	// Fonts described by the program before keep their numbers.
	var p engine.Page
	if err := all[0].Page(0, &p); err != nil {
		t.Fatal(err)
	}
	if font := p.Fonts[p.Runs[p.Chars[0].Run].Font]; font.Name != "Helvetica" || len(p.Fonts) < 3 {
		t.Errorf("page 0 of document 0 is in %v of %v", font, p.Fonts)
	}
}

// counted counts the blocks of 64 KB that are read of a document.
type counted struct {
	io.ReaderAt
	blocks map[int64]bool
}

func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	c.blocks[at>>16] = true
	return c.ReaderAt.ReadAt(b, at)
}

// TestProgramIsStartedAgainAsItWas: one that was ended for other documents knows
// where the pages are, and has the memory for a request that any other has.
func TestProgramIsStartedAgainAsItWas(t *testing.T) {
	const pages = 60
	heavy, says := enginetest.Heavy(pages)
	e := start(t, Config{})
	f := &counted{bytes.NewReader(heavy), map[int64]bool{}}
	open, err := e.Open(t.Context(), f, int64(len(heavy)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	numbers := make([]int, pages)
	for i := range numbers {
		numbers[i] = 4 + 2*i // see enginetest.Heavy
	}
	open.(engine.Placing).Place(numbers)
	d := open.(*document)
	_ = d.running.end(nil) // as for another document
	d.running, d.memory = nil, 0
	clear(f.blocks)
	if img, err := d.Render(0, 4000, 4000); err != nil || img.Bounds().Dx() != 4000 {
		t.Errorf("a picture of 64 MB: %v", err)
	}
	if got := textOf(t, d, pages-1); !strings.Contains(got, says(pages)) {
		t.Errorf("the last page: %q", got)
	}
	if len(f.blocks) > 12 {
		t.Errorf("%d blocks of %d pages were read for two of them", len(f.blocks), pages)
	}
}

func TestMemoryOfADocumentIsBounded(t *testing.T) {
	e := start(t, Config{MemoryBytes: 25 << 20})
	b := enginetest.Fixtures()["everything"]
	d, err := e.Open(context.Background(), enginetest.Write(t, b), int64(len(b)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Render(0, 6000, 6000); !errors.Is(err, engine.ErrPage) && !errors.Is(err, engine.ErrBroken) {
		t.Errorf("36 million pixels in 25 MB: %v", err)
	}
}

func TestProgramIsConfined(t *testing.T) {
	if filtered, err := Check(context.Background(), Config{Path: enginetest.Helper(t), Module: pdfiumwasm.ModuleSHA256()}); err != nil || !filtered {
		t.Errorf("filtered: %v, %v", filtered, err)
	}
	e := start(t, Config{})
	b := enginetest.Fixtures()["everything"]
	d, err := e.Open(context.Background(), enginetest.Write(t, b), int64(len(b)), "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	proc := fmt.Sprintf("/proc/%d", d.(*document).running.process.Pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Seccomp:\t2\n", "NoNewPrivs:\t1\n"} {
		if !bytes.Contains(status, []byte(want)) {
			t.Errorf("%q is not in its status", want)
		}
	}
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fds {
		names = append(names, f.Name())
	}
	if got := strings.Join(names, " "); got != "0 1 3" {
		t.Errorf("its descriptors are %s", got)
	}
	if environ, err := os.ReadFile(proc + "/environ"); err != nil || len(environ) > 0 {
		t.Errorf("its environment is %q, %v", environ, err)
	}
}

func TestProgramEndsWithItsPipe(t *testing.T) {
	e := start(t, Config{})
	p, _, err := e.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = p.in.Close()
	state, err := p.process.Wait()
	if err != nil || state.ExitCode() != 0 {
		t.Errorf("ended with %v, %v", state, err)
	}
	_ = p.out.Close()
}

// ---- Programs that fail, hang and lie. ----

func TestMain(m *testing.M) {
	enginetest.MaybeImpostor()
	os.Exit(m.Run())
}

func TestProgramsThatAreNotTheHelper(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ title, path, says string }{
		{"no file", filepath.Join(dir, "none"), "no such file"},
		{"no program", write("text", "hello"), "exec format error"},
		{"ends", write("ends", "#!/bin/sh\nexit 7\n"), "exit status 7"},
		{"killed", write("killed", "#!/bin/sh\nkill -9 $$\n"), "signal: killed"},
		{"silent", write("silent", "#!/bin/sh\nexec sleep 60\n"), "silent"},
		{"prints", write("prints", "#!/bin/sh\nwhile :; do echo hello, I am a program; done\n"), "no answer"},
		{"another protocol", enginetest.Impostor(t, "protocol", pdfiumwasm.ModuleSHA256()), "protocol"},
		{"another module", enginetest.Impostor(t, "module", pdfiumwasm.ModuleSHA256()), "another build"},
		{"opens nothing", enginetest.Impostor(t, "opens-nothing", pdfiumwasm.ModuleSHA256()), "no answer"},
		{"endless", enginetest.Impostor(t, "endless", pdfiumwasm.ModuleSHA256()), "no answer"},
	} {
		t.Run(c.title, func(t *testing.T) {
			t.Parallel()
			patience := 10 * time.Second
			if c.title == "silent" {
				patience = 200 * time.Millisecond
			}
			if _, err := Check(context.Background(), Config{Path: c.path, Module: pdfiumwasm.ModuleSHA256(), Patience: patience}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, and not %q", err, c.says)
			}
		})
	}
}
