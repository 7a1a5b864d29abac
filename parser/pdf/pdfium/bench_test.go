package pdfium

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/enginetest"
)

// cpu is what this process and the programs that it has waited for have used, in seconds.
func cpu() (all float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		_ = syscall.Getrusage(who, &u) // fails for no such who
		all += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	return all
}

// BenchmarkEngines reads files from the first page to the last, as often as asked, with each engine in turn.
func BenchmarkEngines(b *testing.B) {
	files, _ := filepath.Glob("../../../samples/*.pdf")
	if dir := os.Getenv("SHEAF_CORPUS"); dir != "" {
		files, _ = filepath.Glob(filepath.Join(dir, "pdf/*.pdf"))
	}
	for name, cfg := range map[string]Config{"helper": {Helper: enginetest.Helper(b)}, "wasm": {}} {
		b.Run(name, func(b *testing.B) {
			e := New(cfg)
			defer e.Close()
			if d, err := open(b, e, files[0]); err == nil { // what is compiled once is compiled now
				_ = d.Close()
			}
			before, pages := cpu(), 0
			for b.Loop() {
				for _, path := range files {
					d, err := open(b, e, path)
					if err != nil {
						continue
					}
					var p engine.Page
					for n := range min(d.Pages(), 100) {
						if d.Page(n, &p) == nil {
							pages++
						}
						_ = d.Label(n)
					}
					_ = d.Close()
				}
			}
			b.ReportMetric(float64(pages)/(cpu()-before), "pages/CPU-s")
		})
	}
}

func open(b *testing.B, e engine.Engine, path string) (engine.Document, error) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return e.Open(b.Context(), f, info.Size(), "")
}
