package ocr

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
)

const head = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n1\t1\t0\t0\t0\t0\t0\t0\t1700\t2200\t-1\t\n"

func TestWordsBecomeParagraphsOfPlacedLines(t *testing.T) {
	got := parse(head+
		"5\t1\t1\t1\t1\t1\t100\t50\t40\t20\t90\tA\n5\t1\t1\t1\t1\t2\t150\t48\t60\t24\t80\trun-\n5\t1\t1\t1\t2\t1\t100\t80\t70\t20\t70\tning\n"+
		"5\t1\t1\t1\t2\t2\t200\t80\t70\t20\t5\tdirt\n5\t1\t2\t1\t1\t1\t100\t200\t70\t20\t60\tEnd.\n5\t1\t3\t1\t1\t1\t0\t0\t1\t1\t90\t|\nbroken\tline\n5\t1\t1\t1\t1\t1\tx\t1\t1\t1\t90\tno\n", 3, 0.5)
	if len(got.Blocks) != 2 || got.Blocks[0].Text != "A running" || got.Blocks[1].Text != "End." || got.Confidence != 78 {
		t.Fatalf("%+v", got)
	}
	spans := got.Blocks[0].Spans
	if len(spans) != 2 || spans[0] != (sheaf.Span{Start: 0, End: 5, Box: sheaf.Box{Page: 3, X0: 50, Y0: 24, X1: 105, Y1: 36}}) || spans[1].Start != 5 || spans[1].End != 9 {
		t.Errorf("%+v", spans)
	}
}

func TestVerdicts(t *testing.T) {
	u := sheaf.UnitResult{Unit: 4, Status: sheaf.UnitSkipped, Code: "needs_ocr"}
	Text{Blocks: []sheaf.Block{{Text: "x"}}, Confidence: 41}.Verdict(&u)
	if u.Status != sheaf.UnitOCR || u.Code != "" || len(u.Warnings) != 1 || u.Warnings[0].Code != "ocr_uncertain" || !strings.Contains(u.Message, "41 %") {
		t.Errorf("%+v", u)
	}
	u = sheaf.UnitResult{Unit: 4, Status: sheaf.UnitSkipped}
	Text{}.Verdict(&u)
	if u.Status != sheaf.UnitBlank || u.Code != "no_text" {
		t.Errorf("%+v", u)
	}
}

// remembered are readings by key.
type remembered map[string]string

func (r remembered) Recall(key string) []byte        { return []byte(r[key]) }
func (r remembered) Keep(key string, reading []byte) { r[key] = string(reading) }

// A picture is read once, whatever page it is on later; another one, or another
// language, is another reading.
func TestPicturesAreReadOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	runs := filepath.Join(dir, "runs")
	c := Config{Tesseract: write("tesseract", "#!/bin/sh\necho run >> "+runs+"\nprintf '"+head+"5\\t1\\t1\\t1\\t1\\t1\\t100\\t50\\t40\\t20\\t90\\tword\\n'\n", 0o755)}
	known := remembered{}
	read := func(c Config, path string, page, want int) {
		t.Helper()
		text, err := c.Read(parser.WithReadings(t.Context(), known), dir, path, 1, page, DPI)
		if err != nil || len(text.Blocks) != 1 || text.Blocks[0].Text != "word" || text.Blocks[0].Page != page || text.Blocks[0].Spans[0].Box.Page != page {
			t.Fatalf("%v, %+v", err, text)
		}
		b, _ := os.ReadFile(runs)
		if n := strings.Count(string(b), "run"); n != want {
			t.Errorf("%d runs, want %d", n, want)
		}
	}
	one, same, other := write("one", "picture", 0o600), write("same", "picture", 0o600), write("other", "another", 0o600)
	read(c, one, 1, 1)
	read(c, same, 7, 1)
	read(c, other, 1, 2)
	read(Config{Tesseract: c.Tesseract, Languages: "deu"}, one, 1, 3)
	for _, tsv := range known {
		if strings.Contains(tsv, "level") || !strings.HasPrefix(tsv, "1\t") {
			t.Errorf("kept %q", tsv)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(head + "5\t1\t1\t1\t1\t1\t100\t50\t40\t20\t90\tword\n")
	f.Add(head + "5\t1\t1\t1\t\t1\t100\t50\t40\t20\t90\tof no line\n")
	f.Fuzz(func(t *testing.T, tsv string) {
		for _, b := range parse(tsv, 1, 0.36).Blocks {
			for _, s := range b.Spans {
				if s.Start < 0 || s.End < s.Start || s.End > len(b.Text) {
					t.Fatalf("span %+v of %d bytes", s, len(b.Text))
				}
			}
		}
	})
}
