package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf/parser"
	"sheaf/samples"
)

func TestPerformancePage(t *testing.T) {
	holds, missed := true, false
	page := performancePage(report{OS: "linux/amd64", CPUs: 2, Versions: map[string]string{"kreuzberg": "4.10.4"}, Rows: []row{
		{Name: "peers.pdf.bbox", Value: 200, Unit: "pages/CPU-s"}, {Name: "peers.pdf.parse", Value: 300}, {Name: "peers.pdf.sheaf", Value: 100},
		{Name: "peers.parse.bbox", Value: 1.5, Unit: "× pdftotext -bbox-layout", Bound: "≥ 1", Holds: &holds}, {Name: "peers.e2e.bbox", Value: .5, Bound: "≥ 0.75", Holds: &missed},
	}})
	for _, want := range []string{"2 CPUs, kreuzberg 4.10.4", "| **Sheaf, end to end** | 100 | 0.50 |", "≥ 1 | holds |", "≥ 0.75 | **missed** |"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in\n%s", want, page)
		}
	}
	if strings.Contains(page, "Office") || strings.Contains(page, "kreuzberg, extraction |") {
		t.Errorf("what was not measured has a place:\n%s", page)
	}
}

// The page in docs is what the stored report says.
func TestPerformancePageIsOfItsReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "performance.md")
	if err := writePerformance(path, []string{"results/performance.json"}); err != nil {
		t.Fatal(err)
	}
	got, want := readFile(t, path), readFile(t, "../docs/performance.md")
	if got != want {
		t.Error("docs/performance.md is not what bench/results/performance.json says; run go run ./bench -doc docs/performance.md bench/results/performance.json")
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A locked file has the name of its format and another type.
func TestPeersReadWhatSheafAccepts(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	docx, err := samples.FS.ReadFile("handbook.docx")
	if err != nil {
		t.Fatal(err)
	}
	good := write("good.docx", docx)
	odd := write("odd.docx", append([]byte{0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1}, make([]byte, 2000)...))
	got, err := accepted(parser.NewRegistry(builtIn()...), []string{good, odd})
	if err != nil || !slices.Equal(got, []string{good}) {
		t.Errorf("%v, %v", got, err)
	}
}
