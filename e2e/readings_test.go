package e2e

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"golang.org/x/image/draw"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/parser/pdf/enginetest"
)

// scanned is a PDF of a page that is a picture of lines, and of one with text.
func scanned(t *testing.T, lines ...string) string {
	t.Helper()
	page, err := png.Decode(strings.NewReader(writtenPNG(t, 1300, 1000, lines...)))
	if err != nil {
		t.Fatal(err)
	}
	rgb := image.NewRGBA(page.Bounds()) // the fixture draws no gray JPEG
	draw.Draw(rgb, rgb.Bounds(), page, image.Point{}, draw.Src)
	var scan bytes.Buffer
	if err := jpeg.Encode(&scan, rgb, nil); err != nil {
		t.Fatal(err)
	}
	file := enginetest.File{Scan: scan.Bytes(), ScanW: 1300, ScanH: 1000, Pages: []enginetest.Page{
		{Content: enginetest.Image(0, 0, 612, 470)},
		{Content: enginetest.Text("F1", 11, 72, 700, "Before the barn stands a wall.")},
	}}
	return string(file.Bytes())
}

// Recognizing a page takes seconds. Other settings, a preview of them and flows do
// not do it again; a re-parse with fresh does.
func TestScansAreReadOnceForAllSettings(t *testing.T) {
	t.Parallel()
	need(t, "tesseract")
	real, err := exec.LookPath("tesseract")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, program := filepath.Join(dir, "runs"), filepath.Join(dir, "tesseract")
	// The sandbox lets parsers write to their own folder only.
	if err := os.WriteFile(program, []byte(fmt.Sprintf("#!/bin/sh\necho run >> %s\nexec %s \"$@\"\n", log, real)), 0o755); err != nil {
		t.Fatal(err)
	}
	runs := func() int {
		b, _ := os.ReadFile(log)
		return strings.Count(string(b), "run")
	}
	s := start(t, func(c *config.Config) { c.Parser.Tesseract, c.Parser.Sandbox = program, "off" })
	d := s.upload("scan.pdf", "application/pdf", `{}`, scanned(t, "The keeper counts every sheaf", "before the cart leaves the barn"))
	mustState(t, d, sheaf.DocSucceeded)
	first := s.chunks(d.ID)
	if n := runs(); n != 1 || len(first) == 0 || !strings.Contains(first[0].Text, "keeper") {
		t.Fatalf("read %d times: %+v", n, first)
	}
	check := func(what string, want int, ask map[string]any) {
		t.Helper()
		ask["all"] = true
		job := s.again("reparse", ask)
		chunks := s.chunks(d.ID)
		if job.State != sheaf.DocSucceeded {
			t.Errorf("%s: %s", what, job.State)
		}
		if n := runs(); n != want || len(chunks) == 0 || !strings.Contains(chunks[0].Text, "keeper") || len(chunks[0].Boxes) == 0 || chunks[0].Boxes[0] != first[0].Boxes[0] {
			t.Errorf("%s: read %d times, want %d: %+v", what, n, want, chunks)
		}
	}
	with := func(config map[string]any) map[string]any { return map[string]any{"parser_config": config} }
	// The second time, it is of a version that did not read it itself.
	for _, tokens := range []int{64, 65} {
		check(fmt.Sprintf("%d tokens", tokens), 1, with(map[string]any{"chunk_token_num": tokens}))
	}
	out, err := s.preview(d.ID, map[string]any{"chunk_token_num": 32})
	if err != nil || len(out.Chunks) == 0 || !strings.Contains(out.Chunks[0].Text, "keeper") || runs() != 1 {
		t.Errorf("preview: %v, read %d times: %+v", err, runs(), out.Chunks)
	}
	check("fresh", 2, map[string]any{"fresh": true})
	// In a flow, the task that reads is another than the one that stores the result.
	s.post("/v1/flows", map[string]any{"toml": `name = "words"
mode = "nodes"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"] },
  { id = "long", kind = "filter", from = ["cut"], config = { keep = "chunk.tokens > 2" } },
  { id = "out", kind = "index", from = ["long"] },
]
`}, nil)
	check("flow", 2, with(map[string]any{"flow": "words"}))
	check("after the flow", 2, with(map[string]any{"flow": nil}))
	// Redacted text is not kept as it was read.
	check("redact", 2, with(map[string]any{"pii": "redact"}))
	check("after redact", 3, with(map[string]any{"pii": "none"}))
}

// Pages of a scan are recognized side by side, with the settings that a document has
// by default: these limit a task to 12 pages.
func TestScansAreReadBySeveralTasks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "tesseract") // which finds nothing
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho level\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *config.Config) { c.Parser.Tesseract, c.Parser.Sandbox = program, "off" })
	readers := make([]io.Reader, 9)
	for i := range readers {
		readers[i] = strings.NewReader(writtenPNG(t, 200, 100, fmt.Sprint("page ", i)))
	}
	var scan bytes.Buffer
	if err := api.ImportImages(nil, &scan, readers, nil, nil); err != nil {
		t.Fatal(err)
	}
	for settings, want := range map[string][]sheaf.Range{
		`{}`:                     {{From: 1, To: 4}, {From: 5, To: 8}, {From: 9, To: 9}},
		`{"task_page_size": 22}`: {{From: 1, To: 9}},
	} {
		d := s.upload("scan.pdf", "application/pdf", settings, scan.String())
		var list struct {
			Items []struct {
				Kind  sheaf.TaskKind
				Range sheaf.Range
			}
		}
		s.get("/v1/datasets/default/documents/"+d.ID+"/tasks", &list)
		var got []sheaf.Range
		for _, task := range list.Items {
			if task.Kind == sheaf.KindParse {
				got = append(got, task.Range)
			}
		}
		slices.SortFunc(got, func(a, b sheaf.Range) int { return a.From - b.From })
		if !slices.Equal(got, want) {
			t.Errorf("%s: tasks of %v, want %v", settings, got, want)
		}
	}
}

// Transcribing costs money. Other settings, which change how a recording is cut, do
// not do it again.
func TestRecordingsAreTranscribedOnceForAllSettings(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, `{"language":"en","duration":130,"text":"x","segments":[{"start":0,"end":50,"text":"The quince harvest of call %d was good."},{"start":61,"end":120,"text":"It was sold at once."}]}`, calls.Add(1))
	}))
	t.Cleanup(server.Close)
	s := start(t, func(c *config.Config) { c.Parser.TranscribeURL = server.URL + "/v1" })
	d := s.upload("talk.mp3", "audio/mpeg", `{}`, "ID3\x03\x00\x00\x00\x00\x00\x00 sound")
	mustState(t, d, sheaf.DocSucceeded)
	check := func(what string, call int32, ask map[string]any) {
		t.Helper()
		if ask != nil {
			ask["all"] = true
			if job := s.again("reparse", ask); job.State != sheaf.DocSucceeded {
				t.Errorf("%s: %s", what, job.State)
			}
		}
		chunks := s.chunks(d.ID)
		if n := calls.Load(); n != call || len(chunks) == 0 || !strings.Contains(chunks[0].Text, fmt.Sprintf("call %d", call)) {
			t.Errorf("%s: %d calls, want %d: %+v", what, n, call, chunks)
		}
	}
	check("upload", 1, nil)
	check("tokens", 1, map[string]any{"parser_config": map[string]any{"chunk_token_num": 64}})
	check("fresh", 2, map[string]any{"fresh": true})
	check("more tokens", 2, map[string]any{"parser_config": map[string]any{"chunk_token_num": 96}})
}
