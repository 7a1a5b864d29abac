package e2e

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf/internal/config"
	"sheaf/parser/pdf/enginetest"
	"sheaf/samples"
)

// What reads PDFs is said, and what does not work is said with the reason.
func TestDoctorSaysWhatReadsPDFs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts parsers")
	}
	helper := enginetest.Helper(t)
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		title string
		set   []string
		code  int
		says  string
	}{
		{"helper", []string{"pdf.helper=" + helper}, 0, "PDFs are read by PDFium ahead of time: " + helper + ", run from memory"},
		{"wasm", []string{"pdf.engine=wasm"}, 0, "PDFs are read by PDFium in WebAssembly\n"},
		{"away", []string{"pdf.helper=" + none}, 0, "PDFs are read by PDFium in WebAssembly: there is no sheaf-pdfium at " + none},
		{"offered", nil, 0, "make helper"},
		{"required", []string{"pdf.engine=helper", "pdf.helper=" + none}, 1, "there is no sheaf-pdfium at " + none},
	} {
		t.Run(c.title, func(t *testing.T) {
			args := []string{"doctor", "--parsers", "--data-dir", t.TempDir()}
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			if got := (typed{ctx: t.Context()}).run(args...); got.code != c.code || !strings.Contains(got.out+got.err, c.says) {
				t.Errorf("ended with %d, not %d, and said\n%s%s\nwithout %q", got.code, c.code, got.out, got.err, c.says)
			}
		})
	}
}

// A service reads PDFs with the program, from upload to search.
func TestServiceReadsPDFsWithTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a service")
	}
	helper := enginetest.Helper(t)
	var lines []string
	for _, engine := range []string{"helper", "wasm"} {
		cfg := config.Default()
		cfg.DataDir, cfg.PDF.Engine = t.TempDir(), engine
		if engine == "helper" {
			cfg.PDF.Helper = helper
		}
		var log safeBuffer
		s := startLogging(t, cfg, "info", &log)
		reads := map[string]string{"helper": "PDFs are read by PDFium ahead of time: ", "wasm": "PDFs are read by PDFium in WebAssembly"}[engine]
		if !slices.ContainsFunc(log.lines(t), func(l map[string]any) bool { return strings.HasPrefix(fmt.Sprint(l["msg"]), reads) }) {
			t.Fatalf("%s: %v", engine, log.lines(t))
		}
		_, docs := s.send(nil, source{name: "handbook.pdf", open: func() (io.ReadCloser, error) { return samples.FS.Open("handbook.pdf") }})
		var all strings.Builder
		for _, c := range s.chunks(docs[0].ID) {
			fmt.Fprintf(&all, "%q %v %v %v\n", c.Text, c.HeadingPath, c.Pages, c.Boxes)
		}
		lines = append(lines, all.String())
		s.stop()
	}
	if lines[0] != lines[1] || len(lines[0]) < 10_000 {
		t.Errorf("%d bytes of chunks with sheaf-pdfium, and other %d by WebAssembly", len(lines[0]), len(lines[1]))
	}
}
