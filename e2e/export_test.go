package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/parquet-go/parquet-go"

	"sheaf"
	"sheaf/internal/api"
)

// exported is a line of an export, in the words of those who read it.
type exported struct {
	DocumentID  string      `json:"document_id" parquet:"document_id"`
	Document    string      `json:"document" parquet:"document"`
	MediaType   string      `json:"media_type" parquet:"media_type"`
	Version     int32       `json:"version" parquet:"version"`
	ID          string      `json:"id" parquet:"id"`
	Ordinal     int64       `json:"ordinal" parquet:"ordinal"`
	Text        string      `json:"text" parquet:"text"`
	Pages       []int32     `json:"pages" parquet:"pages,list"`
	HeadingPath []string    `json:"heading_path" parquet:"heading_path,list"`
	Boxes       []sheaf.Box `json:"boxes" parquet:"-"`
}

// key is what all formats say of a chunk.
func (e exported) key() string {
	return fmt.Sprint(e.DocumentID, e.Document, e.MediaType, e.Version, e.ID, e.Ordinal, e.Text, e.Pages, e.HeadingPath)
}

func linesOf(t *testing.T, b []byte) (out []exported) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var e exported
		if err := d.Decode(&e); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatalf("%v in %.500s", err, b)
		}
		out = append(out, e)
	}
}

func filesOf(t *testing.T, b []byte) map[string]string {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range r.File {
		rc, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(rc)
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name] = string(text)
	}
	if len(out) != len(r.File) {
		t.Errorf("%d files of the zip have %d names", len(r.File), len(out))
	}
	return out
}

// A dataset is exported in each format as its chunks are listed: published
// versions, with what people made of them, as the filters select.
func TestExportOfADataset(t *testing.T) {
	s := start(t, nil)
	s.newDataset("empty", false)
	docs := s.add("default",
		text("notes.md", "# Fields\n\nThe harvest of the field was dry.\n\n## North\n\nThe north was wet.\n"),
		text("survey.pdf", string(report(3, "harvest"))),
		text("cart: 1?.txt", "The cart was weighed."), text("CON.txt", "A device."),
		text("Report.txt", "The first report."), text("report.txt", "The second report."),
		text("broken.pdf", "%PDF-1.7\nwater got into the box"))
	path := "/v1/datasets/default/export?"
	// What people made of the chunks is exported.
	var list api.List[api.ListedChunk]
	chunksOf := "/v1/datasets/default/documents/%s/chunks"
	s.get(fmt.Sprintf(chunksOf, docs[2].ID), &list)
	s.edit(docs[2].ID, list.Items[0].ID, `{"text": "The cart was weighed twice."}`)

	var want []string
	for _, d := range docs[:6] {
		s.get(fmt.Sprintf(chunksOf+"?limit=1000", d.ID), &list)
		for _, c := range list.Items {
			b, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			e := linesOf(t, b)[0]
			e.Document, e.MediaType, e.Version = d.Name, d.MediaType, 1
			want = append(want, e.key())
		}
	}
	resp, lines := s.request("GET", path, "")
	if media, said := resp.Header.Get("Content-Type"), resp.Header.Get("Content-Disposition"); media != "application/x-ndjson" || said != "attachment; filename=default.jsonl" {
		t.Errorf("it comes as %s, %s", media, said)
	}
	var got []string
	boxes := 0
	for _, e := range linesOf(t, lines) {
		got = append(got, e.key())
		boxes += len(e.Boxes)
	}
	if !slices.Equal(got, want) || len(want) < 8 {
		t.Errorf("lines:\n%s\nlisted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if boxes == 0 || !bytes.Contains(lines, []byte("weighed twice")) {
		t.Errorf("%d boxes in %s", boxes, lines)
	}

	resp, table := s.request("GET", path+"format=parquet", "")
	rows, err := parquet.Read[exported](bytes.NewReader(table), int64(len(table)))
	got = nil
	for _, r := range rows {
		got = append(got, r.key())
	}
	if err != nil || !slices.Equal(got, want) || resp.Header.Get("Content-Type") != "application/vnd.apache.parquet" {
		t.Errorf("%v, %s, rows:\n%s\nlisted:\n%s", err, resp.Header.Get("Content-Type"), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	_, packed := s.request("GET", path+"format=markdown", "")
	files := filesOf(t, packed)
	names := slices.Sorted(maps.Keys(files))
	second := "report.txt-" + docs[5].ID + ".md"
	if want := []string{"Report.txt.md", "_CON.txt.md", "cart_ 1_.txt.md", "notes.md", second, "survey.pdf.md"}; !slices.Equal(names, want) {
		t.Errorf("files are called %q, want %q", names, want)
	}
	if got, want := files["notes.md"], fmt.Sprintf("---\ndocument: \"notes.md\"\ndocument_id: %q\nversion: 1\n---\n\n# Fields\n\nThe harvest of the field was dry.\n\n## North\n\nThe north was wet.\n\n", docs[0].ID); got != want {
		t.Errorf("notes.md reads\n%s\nwant\n%s", got, want)
	}
	if got := files["cart_ 1_.txt.md"]; !strings.Contains(got, "The cart was weighed twice.") || !strings.Contains(files[second], "second") {
		t.Errorf("%q, %q", got, files[second])
	}

	// The filters are those of the list.
	for query, want := range map[string][]string{
		"q=report": {"Report.txt", "report.txt"}, "state=failed": nil, "media_type=application/pdf": {"survey.pdf"}, "id=" + docs[0].ID + "&id=" + docs[5].ID: {"notes.md", "report.txt"}, "tag=none": nil,
	} {
		_, b := s.request("GET", path+query, "")
		var got []string
		for _, e := range linesOf(t, b) {
			got = append(got, e.Document)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s exports %q, want %q", query, got, want)
		}
	}

	// Nothing is a whole file too.
	if _, b := s.request("GET", "/v1/datasets/empty/export", ""); len(b) != 0 {
		t.Errorf("an empty dataset has lines: %s", b)
	}
	_, b := s.request("GET", "/v1/datasets/empty/export?format=markdown", "")
	if files := filesOf(t, b); len(files) != 0 {
		t.Errorf("an empty dataset has files: %q", files)
	}
	_, b = s.request("GET", "/v1/datasets/empty/export?format=parquet", "")
	if rows, err := parquet.Read[exported](bytes.NewReader(b), int64(len(b))); err != nil || len(rows) != 0 {
		t.Errorf("an empty dataset has rows %v, %v", rows, err)
	}

	for path, says := range map[string]string{
		"/v1/datasets/default/export?format=jsnol":   "markdown, jsonl",
		"/v1/datasets/default/export?state=succeded": "succeeded",
		"/v1/datasets/default/export?formt=jsonl":    "format",
		"/v1/datasets/nothing/export":                "dataset",
	} {
		if resp, b := s.request("GET", path, ""); resp.StatusCode < 400 || !strings.Contains(string(b), says) {
			t.Errorf("%s answers %d %s", path, resp.StatusCode, b)
		}
	}
	if resp, b := s.request("HEAD", path, ""); resp.StatusCode != 200 || len(b) != 0 {
		t.Errorf("HEAD answers %d %s", resp.StatusCode, b)
	}
}

// edit changes a chunk of a document of the default dataset.
func (s *service) edit(doc, chunk, body string) {
	s.t.Helper()
	if resp, b := s.request("PATCH", "/v1/datasets/default/documents/"+doc+"/chunks/"+chunk, body, "Content-Type", "application/json"); resp.StatusCode >= 300 {
		s.t.Fatalf("the edit answers %d %s", resp.StatusCode, b)
	}
}

// The command writes whole files only, and none over another.
func TestExportAtTheCommandLine(t *testing.T) {
	s := start(t, nil)
	docs := s.add("default", text("one.txt", "The mill grinds barley."), text("two.txt", "The mill grinds wheat."))
	dir := t.TempDir()
	t.Chdir(dir)
	inside := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			t.Errorf("the folder holds %q, want %q", got, want)
		}
	}
	if o := s.must("dataset", "export"); !strings.Contains(o.out+o.err, "Wrote default.jsonl") {
		t.Errorf("it says %q %q", o.out, o.err)
	}
	b, err := os.ReadFile("default.jsonl")
	if err != nil || len(linesOf(t, b)) != 2 {
		t.Errorf("the file has %s, %v", b, err)
	}
	if o := s.sheaf("dataset", "export", "default"); o.code != 2 || !strings.Contains(o.err, "default.jsonl exists") {
		t.Errorf("a second time it ends with %d: %s", o.code, o.err)
	}
	s.must("dataset", "export", "default", "--force", "--name", "two")
	if b, err = os.ReadFile("default.jsonl"); err != nil || len(linesOf(t, b)) != 1 {
		t.Errorf("the file has %s, %v", b, err)
	}
	s.must("dataset", "export", "default", "--format", "markdown", "-o", "m.zip")
	if b, err = os.ReadFile("m.zip"); err != nil || len(filesOf(t, b)) != 2 {
		t.Error("m.zip", err)
	}
	if o := s.must("dataset", "export", "--output", "-", "--state", "succeeded"); len(linesOf(t, []byte(o.out))) != 2 {
		t.Errorf("it prints %s", o.out)
	}
	for want, args := range map[string][]string{"did you mean jsonl": {"default", "--format", "jsnol"}, "Did you mean": {"defualt"}, "there is no": {"--state", "gone"}} {
		if o := s.sheaf(append([]string{"dataset", "export"}, args...)...); o.code == 0 || !strings.Contains(o.err, want) {
			t.Errorf("%q ends with %d: %s", args, o.code, o.err)
		}
	}
	inside("default.jsonl", "m.zip")

	// A result that is lost breaks the export off, and leaves no file.
	tasks, err := s.store.Tasks(t.Context(), sheaf.LocalTenant, docs[1].ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.Result.ArtifactKey != "" {
			if err := s.blobStore.Delete(t.Context(), task.Result.ArtifactKey); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, format := range api.ExportFormats {
		resp, err := http.Get(s.base + "/v1/datasets/default/export?format=" + string(format))
		if err != nil {
			continue // nothing had been sent
		}
		if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("half a file of %s passes for a whole one: %v, %d bytes", format, err, len(b))
		}
		resp.Body.Close()
		if o := s.sheaf("dataset", "export", "--format", string(format), "-o", "half"); o.code == 0 || o.err == "" {
			t.Errorf("half of %s ends with %d: %s", format, o.code, o.err)
		}
	}
	inside("default.jsonl", "m.zip")
}

// writerFunc is told of what a handler writes.
type writerFunc struct {
	*httptest.ResponseRecorder
	wrote func()
}

func (w writerFunc) Write(b []byte) (int, error) {
	w.wrote()
	return w.ResponseRecorder.Write(b)
}

// exportMeanwhile exports a dataset, and does something when the first bytes of
// the answer are written.
func (s *service) exportMeanwhile(h http.Handler, dataset string, do func()) (answer *httptest.ResponseRecorder, aborted bool) {
	first := true
	w := writerFunc{httptest.NewRecorder(), func() {
		if first {
			first = false
			do()
		}
	}}
	defer func() {
		p := recover()
		if answer, aborted = w.ResponseRecorder, p == http.ErrAbortHandler; p != nil && !aborted {
			panic(p)
		}
	}()
	h.ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), "GET", s.base+"/v1/datasets/"+dataset+"/export", nil))
	return nil, false
}

// A tenant has two exports at once, and is told so.
func TestExportsAtOnce(t *testing.T) {
	s := start(t, nil)
	s.add("default", text("one.txt", "The mill grinds barley."))
	h := s.handler
	refused := 0
	for range 2 { // what has ended makes room
		first, aborted := s.exportMeanwhile(h, "default", func() {
			second, aborted := s.exportMeanwhile(h, "default", func() {
				third, _ := s.exportMeanwhile(h, "default", func() {})
				if third.Code != http.StatusTooManyRequests || third.Header().Get("Retry-After") == "" || !strings.Contains(third.Body.String(), "wait for one to end") {
					t.Errorf("the third answers %d %s", third.Code, third.Body)
				}
				refused++
			})
			if len(linesOf(t, second.Body.Bytes())) != 1 || aborted {
				t.Errorf("the second answers %d %s", second.Code, second.Body)
			}
		})
		if len(linesOf(t, first.Body.Bytes())) != 1 || aborted {
			t.Errorf("the first answers %d %s", first.Code, first.Body)
		}
	}
	if refused != 2 {
		t.Errorf("%d exports were refused", refused)
	}
}

// A document that is deleted while others are exported is left out whole. What
// was written of a large one cannot be taken back: the export breaks off, as it
// does when its dataset is deleted.
func TestDeletedWhileExported(t *testing.T) {
	s := start(t, nil)
	long := strings.Repeat("The mill grinds barley by night and wheat by day. ", 2000)
	docs := s.add("default", text("one.txt", long), text("two.txt", long), text("three.txt", "The last one."))
	remove := func(id string) {
		if resp, b := s.request("DELETE", "/v1/datasets/default/documents/"+id, ""); resp.StatusCode >= 300 {
			t.Errorf("deleting answers %d %s", resp.StatusCode, b)
		}
	}
	h := s.handler
	export := func(dataset string, meanwhile func()) ([]byte, bool) {
		answer, aborted := s.exportMeanwhile(h, dataset, meanwhile)
		return answer.Body.Bytes(), aborted
	}
	body, aborted := export("default", func() { remove(docs[1].ID) })
	var got []string
	for _, e := range linesOf(t, body) {
		got = append(got, e.Document)
	}
	if got = slices.Compact(got); aborted || !slices.Equal(got, []string{"one.txt", "three.txt"}) {
		t.Errorf("exported are %q, aborted %t", got, aborted)
	}
	large := s.add("default", text("large.txt", strings.Repeat(long, 100)))[0]
	if body, aborted = export("default", func() {}); aborted || len(body) < 10<<20 {
		t.Errorf("the whole has %d bytes, aborted %t", len(body), aborted)
	}
	if body, aborted = export("default", func() { remove(large.ID) }); aborted || bytes.Contains(body, []byte(large.ID)) {
		t.Errorf("deleted before it is written, it is there in %d bytes, aborted %t", len(body), aborted)
	}
	large = s.add("default", text("large.txt", strings.Repeat(long, 100)))[0]
	remove(docs[0].ID)
	if body, aborted = export("default", func() { remove(large.ID) }); !aborted || !bytes.Contains(body, []byte(large.ID)) {
		t.Errorf("half a document is exported as if it were whole, in %d bytes", len(body))
	}
	s.newDataset("gone", false)
	s.add("gone", text("one.txt", long), text("two.txt", long))
	if body, aborted := export("gone", func() { s.must("dataset", "delete", "gone", "--yes") }); !aborted || len(body) == 0 {
		t.Errorf("an export of a dataset that was deleted meanwhile ends as if it were whole, with %d bytes", len(body))
	}
}

// The page offers what its filters select as a file.
func TestExportOnThePage(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	script := axe(t)
	s.add("default", text("one.txt", "The mill grinds barley."), text("two.txt", "The mill grinds wheat."))
	open := func(path, says string, names ...string) {
		t.Helper()
		b.open(path)
		b.sees(".docs", names[0])
		b.run(evaluate(`(m => { m.focus(); m.click() })(document.querySelector("details.menu summary"))`))
		b.sees(".menu-list", says)
		links := eval[[]string](b, `[...document.querySelectorAll(".menu-list a[download]")].map(a => a.getAttribute("href"))`)
		if len(links) != 3 {
			t.Fatalf("the page offers %q", links)
		}
		for i, media := range []string{"application/x-ndjson", "application/vnd.apache.parquet", "application/zip"} {
			resp, body := s.request("GET", links[i], "")
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != media {
				t.Errorf("%s answers %d %s", links[i], resp.StatusCode, resp.Header.Get("Content-Type"))
			}
			var got []string
			switch i {
			case 0:
				for _, e := range linesOf(t, body) {
					got = append(got, e.Document)
				}
			case 2:
				for name := range maps.Keys(filesOf(t, body)) {
					got = append(got, strings.TrimSuffix(name, ".md"))
				}
			default:
				continue
			}
			if slices.Sort(got); !slices.Equal(got, names) {
				t.Errorf("%s has %q, want %q", links[i], got, names)
			}
		}
	}
	open("/datasets/default", "All documents", "one.txt", "two.txt")
	b.checkAccess(script, "the formats of an export")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "export.png"))
	}
	open("/datasets/default?q=two", "Filtered documents", "two.txt")
	b.keys(kb.Escape)
	b.wait("a closed list", `!document.querySelector("details.menu").open`)
	b.look(360, 740, true)
	open("/datasets/default", "All documents", "one.txt", "two.txt")
	b.checkAccess(script, "the formats of an export, narrow")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(filepath.Join(dir, "export-360.png"))
	}
	b.fits("the formats of an export")
	b.noErrors()
}
