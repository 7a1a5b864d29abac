package e2e

import (
	"archive/zip"
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/config"
	"sheaf/parser/pdf/enginetest"
	"sheaf/taskstore"
)

// zipOf packs files, given as path and content in turn.
func zipOf(t *testing.T, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i+1 < len(parts); i += 2 {
		f, err := w.Create(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(parts[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// members lists the documents of an archive's files by path.
func (s *service) members(id string) map[string]sheaf.Document {
	s.t.Helper()
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents?limit=1000&parent="+id, &list)
	out := map[string]sheaf.Document{}
	for _, d := range list.Items {
		out[d.Path] = d
	}
	return out
}

// originals lists the keys of all uploaded and unpacked bytes.
func (s *service) originals() []string {
	s.t.Helper()
	var keys []string
	if err := s.blobStore.List(s.t.Context(), "originals/", func(i blob.Info) bool {
		keys = append(keys, i.Key)
		return true
	}); err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// again re-parses or retries documents and waits for the end.
func (s *service) again(what string, body map[string]any) *sheaf.Job {
	s.t.Helper()
	var answer struct{ Job sheaf.Job }
	s.post("/v1/datasets/default/documents:"+what, body, &answer)
	return s.ended(answer.Job.ID)
}

func TestFilesOfAnArchiveBecomeDocuments(t *testing.T) {
	s := start(t, nil)
	page := func(text string) enginetest.Page {
		return enginetest.Page{Content: enginetest.Text("F1", 12, 72, 700, text)}
	}
	pdf := enginetest.File{Pages: []enginetest.Page{page("The first page is about basalt."), page("The second page tells of quartzite.")}}
	damaged := zipOf(t, "note.txt", "The note tells of a lighthouse.", "papers/stones.pdf", string(pdf.Bytes()), "table.csv", "name,value\nfeldspar,7\n",
		"inner.zip", zipOf(t, "deep.txt", "Deep inside there is obsidian.", "deeper.zip", zipOf(t, "d3.txt", "A vein of malachite.", "deepest.zip", zipOf(t, "no.txt", "Too deep."))),
		"blob.bin", "\x00\x01\x02\x03", "empty.txt", "", "broken.txt", strings.Repeat("This text is damaged. ", 100))
	at := strings.Index(damaged, "broken.txt") + len("broken.txt") + 20
	damaged = damaged[:at] + string(damaged[at]^0xff) + damaged[at+1:]

	job, docs := s.send(map[string]string{"metadata": `{"case":"7"}`}, text("pack.zip", damaged))
	archive := docs[0]
	mustState(t, archive, sheaf.DocPartiallySucceeded)
	if archive.Units != 7 || archive.Ledger != (sheaf.LedgerCounts{OK: 4, Blank: 1, Skipped: 1, Failed: 1}) || archive.Chunks != 0 || archive.LiveGeneration != 1 {
		t.Errorf("the archive: %d units, %+v, %d chunks", archive.Units, archive.Ledger, archive.Chunks)
	}
	files := s.members(archive.ID)
	if len(files) != 4 || job.Documents.Total != 8 { // with the archive itself, and two archives deep inside with a file each
		t.Errorf("%d members; the job has %+v", len(files), job.Documents)
	}
	for path, want := range map[string]string{"note.txt": "text/plain", "papers/stones.pdf": "application/pdf", "table.csv": "text/csv"} {
		d := files[path]
		mustState(t, d, sheaf.DocSucceeded)
		if d.MediaType != want || d.Name != "pack.zip/"+path || d.ParentID != archive.ID || d.Metadata["case"] != "7" || d.Chunks == 0 {
			t.Errorf("%s: %+v", path, d)
		}
	}
	deeper := s.members(files["inner.zip"].ID)["deeper.zip"]
	if d := s.members(deeper.ID); len(d) != 1 || d["d3.txt"].State != sheaf.DocSucceeded || deeper.Ledger != (sheaf.LedgerCounts{OK: 1, Skipped: 1}) {
		t.Errorf("three archives deep: %+v, %v", deeper.Ledger, d)
	}
	for _, word := range []string{"lighthouse", "feldspar", "obsidian", "malachite"} {
		if !s.finds(word) {
			t.Errorf("%s is not found", word)
		}
	}
	r, err := s.search(t.Context(), defaultDataset, map[string]any{"query": "quartzite", "mode": "text"})
	if err != nil || len(r.Hits) != 1 || r.Hits[0].Document.ID != files["papers/stones.pdf"].ID || !slices.Equal(r.Hits[0].Chunk.Pages, []int{2}) && len(r.Hits[0].Chunk.Boxes) == 0 {
		t.Fatalf("the citation of a member: %+v, %v", r, err)
	}
	resp, b := s.request(http.MethodGet, "/v1/datasets/default/documents/"+files["note.txt"].ID+"/content", "")
	if resp.StatusCode != 200 || string(b) != "The note tells of a lighthouse." || !strings.Contains(resp.Header.Get("Content-Disposition"), `filename=note.txt`) {
		t.Errorf("the bytes of a member: %s %q %s", resp.Status, b, resp.Header.Get("Content-Disposition"))
	}
	var pages api.Pages
	s.get("/v1/datasets/default/documents/"+archive.ID+"/pages", &pages)
	if i := slices.IndexFunc(pages.Runs, func(r sheaf.LedgerRun) bool { return r.Status == sheaf.UnitFailed }); i < 0 || pages.Runs[i].Code != "member_damaged" || !strings.HasPrefix(pages.Runs[i].Message, "broken.txt") {
		t.Errorf("the verdict on a damaged member: %+v", pages.Runs)
	}

	// The same bytes again: the same documents, nothing is parsed, no byte stored.
	before := s.originals()
	job = s.again("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{archive.ID}}})
	again := s.members(archive.ID)
	if d := again["papers/stones.pdf"]; d.ID != files["papers/stones.pdf"].ID || d.Generation != 2 || d.LiveGeneration != 2 || job.Reused.Chunks == 0 || job.Usage.EmbeddedTokens != 0 {
		t.Errorf("parsed again: %+v, reused %+v, usage %+v", d, job.Reused, job.Usage)
	}
	if after := s.originals(); !slices.Equal(before, after) {
		t.Errorf("bytes were stored again:\n%v\n%v", before, after)
	}
	// Another setting reaches the members.
	s.again("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{archive.ID}}, "parser_config": map[string]any{"chunk_token_num": 64}})
	if d := s.members(archive.ID)["note.txt"]; d.ParseConfig.ChunkTokenNum.V != 64 || d.LiveGeneration != 3 {
		t.Errorf("the new setting: %+v", d)
	}

	// New bytes: what changed is read, what is gone goes, what is new comes.
	resp, b = s.request(http.MethodPut, "/v1/datasets/default/documents/"+archive.ID+"?wait=60s&name=pack.zip", zipOf(t, "note.txt", "The note tells of a harbour.", "new.txt", "A new one about granite.", "table.csv", "name,value\nfeldspar,7\n"))
	if resp.StatusCode != 202 {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	now := s.members(archive.ID)
	if len(now) != 3 || now["note.txt"].ID != files["note.txt"].ID || now["table.csv"].SHA256 != files["table.csv"].SHA256 {
		t.Errorf("after new bytes: %v", now)
	}
	if !s.finds("harbour") || !s.finds("granite") || s.finds("lighthouse") || s.finds("quartzite") || s.finds("obsidian") {
		t.Error("search does not show the archive's new version")
	}

	// A deleted archive takes all with it.
	if dry := s.forecast("delete", map[string]any{"filter": map[string]any{"document_ids": []string{archive.ID}}}); dry.Documents != 4 {
		t.Errorf("a dry run of the delete names %d documents, not the archive and its three files", dry.Documents)
	}
	s.request(http.MethodDelete, "/v1/datasets/default/documents/"+archive.ID, "")
	var list api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &list)
	if len(list.Items) != 0 || s.finds("granite") {
		t.Errorf("%d documents outlive the archive", len(list.Items))
	}
}

func TestCitationsCarryPrintedPageNumbers(t *testing.T) {
	s := start(t, nil)
	file := enginetest.File{Labels: "0 << /S /r >> 2 << /S /D /St 7 >>"}
	for _, word := range []string{"amethyst", "beryllium", "chalcedony"} {
		file.Pages = append(file.Pages, enginetest.Page{Content: enginetest.Text("F1", 12, 72, 700, "This page is about "+word+".")})
	}
	// The second one is a copy, whose chunks are taken from the first.
	for _, name := range []string{"first.pdf", "copy.pdf"} {
		_, docs := s.send(map[string]string{"parser_config": `{"chunk_token_num":16}`}, text(name, string(file.Bytes())))
		mustState(t, docs[0], sheaf.DocSucceeded)
		var chunks api.List[sheaf.Chunk]
		s.get("/v1/datasets/default/documents/"+docs[0].ID+"/chunks", &chunks)
		for _, c := range chunks.Items {
			var want []string
			for _, p := range c.Pages {
				want = append(want, []string{"i", "ii", "7"}[p-1])
			}
			if c.Metadata[sheaf.MetadataLabels] != strings.Join(want, "\n") || len(want) == 0 {
				t.Errorf("%s: a chunk of pages %v is called %q", name, c.Pages, c.Metadata[sheaf.MetadataLabels])
			}
		}
		if len(chunks.Items) < 2 {
			t.Errorf("%d chunks", len(chunks.Items))
		}
	}
}

func TestArchiveOverTheQuotaIsReadLater(t *testing.T) {
	s := start(t, nil)
	quota := func(q sheaf.Quota) {
		t.Helper()
		if _, err := s.store.ChangeTenant(t.Context(), sheaf.LocalTenant, taskstore.TenantChange{Documents: &q.Documents}); err != nil {
			t.Fatal(err)
		}
	}
	quota(sheaf.Quota{Documents: 2})
	_, docs := s.send(nil, text("two.zip", zipOf(t, "a.txt", "About amber.", "b.txt", "About beryl.")))
	mustState(t, docs[0], sheaf.DocPartiallySucceeded)
	if docs[0].Failure == nil || docs[0].Failure.Code != "usage_limit_exceeded" || !s.finds("amber") || s.finds("beryl") || len(s.originals()) != 2 {
		t.Fatalf("over the quota: %+v, %v", docs[0].Failure, s.originals())
	}
	quota(sheaf.Quota{})
	s.again("retry", map[string]any{"filter": map[string]any{"document_ids": []string{docs[0].ID}}})
	mustState(t, s.doc(docs[0].ID), sheaf.DocSucceeded)
	if d := s.members(docs[0].ID); !s.finds("beryl") || d["a.txt"].Generation != 1 || d["b.txt"].Generation != 1 {
		t.Errorf("after the retry: %+v", d)
	}
}

func TestBombsInArchivesAreStopped(t *testing.T) {
	s := start(t, nil)
	_, docs := s.send(nil, text("bomb.zip", zipOf(t, "zeros.txt", string(make([]byte, 32<<20)), "a.txt", "About agate.")))
	mustState(t, docs[0], sheaf.DocPartiallySucceeded)
	if docs[0].Failure.Code != "zip_bomb" || !s.finds("agate") {
		t.Errorf("%+v", docs[0].Failure)
	}
	_, docs = s.send(nil, text("none.zip", zipOf(t, "x.bin", "\x00\x01\x02")))
	mustState(t, docs[0], sheaf.DocFailed)
	if docs[0].Failure.Code != "unsupported_format" {
		t.Errorf("%+v", docs[0].Failure)
	}
	if left, err := os.ReadDir(s.cfg.DataDir + "/tmp"); err == nil && len(left) > 50 {
		t.Errorf("%d files stay behind", len(left))
	}
}

func TestFiguresAreCutOutOfTheirPage(t *testing.T) {
	s := start(t, nil)
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F4", 11, 72, 720, "A paragraph stands over the figure.") +
		enginetest.Image(72, 480, 200, 200) + enginetest.Text("F4", 10, 72, 460, "Figure 3: What the paragraph speaks of.") +
		enginetest.Text("F4", 11, 72, 400, "Another one follows it.")}}}
	_, docs := s.send(nil, text("figure.pdf", string(file.Bytes())))
	var chunks api.List[sheaf.Chunk]
	base := "/v1/datasets/default/documents/" + docs[0].ID
	s.get(base+"/chunks", &chunks)
	if len(chunks.Items) != 1 || chunks.Items[0].Metadata[sheaf.MetadataFigures] != "1:72.0,112.0,272.0,334.5" {
		t.Fatalf("the figure's place: %+v", chunks.Items)
	}
	picture := func(query string) (int, image.Rectangle) {
		resp, b := s.request(http.MethodGet, base+"/pages/1/image?dpi=72"+query, "")
		if resp.StatusCode != 200 {
			return resp.StatusCode, image.Rectangle{}
		}
		img, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return 200, img.Bounds()
	}
	_, place, _ := strings.Cut(chunks.Items[0].Metadata[sheaf.MetadataFigures], ":")
	if _, size := picture("&box=" + place); size.Dx() != 200 || size.Dy() < 222 || size.Dy() > 223 {
		t.Errorf("the figure is drawn as %v", size)
	}
	if _, size := picture(""); size.Dx() != 612 || size.Dy() != 792 {
		t.Errorf("the page is drawn as %v", size)
	}
	// A figure without a caption belongs to the text before it.
	bare := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F2", 18, 72, 720, "Before") + enginetest.Text("F4", 11, 72, 690, "A paragraph stands over the picture.") +
		enginetest.Image(72, 450, 200, 200) + enginetest.Text("F2", 18, 72, 400, "Behind") + enginetest.Text("F4", 11, 72, 370, "Another one follows it.")}}}
	_, bareDocs := s.send(nil, text("bare.pdf", string(bare.Bytes())))
	var two api.List[sheaf.Chunk]
	s.get("/v1/datasets/default/documents/"+bareDocs[0].ID+"/chunks", &two)
	if len(two.Items) != 2 || two.Items[0].Metadata[sheaf.MetadataFigures] != "1:72.0,142.0,272.0,342.0" || two.Items[1].Metadata[sheaf.MetadataFigures] != "" {
		t.Errorf("a picture without a caption: %+v", two.Items)
	}
	for _, bad := range []string{"1,2,3", "a,b,c,d", "5,5,5,9", "NaN,0,1,1", "-1,0,9,9"} {
		if status, _ := picture("&box=" + bad); status != 422 && status != 400 {
			t.Errorf("box %s: %d", bad, status)
		}
	}
}

func TestPageShowsFilesOfAnArchiveAndFigures(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	figure := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Image(72, 480, 200, 200) + enginetest.Text("F4", 10, 72, 460, "Figure 3: A figure in an archive.")}}}
	_, docs := s.send(nil, text("pack.zip", zipOf(t, "papers/figure.pdf", string(figure.Bytes()), "note.txt", "About agate.", "blob.bin", "\x00\x01\x02\x03")))
	b.open("/datasets/default/documents/" + docs[0].ID)
	b.sees("main", "papers/figure.pdf")
	b.sees("main", "blob.bin")
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(dir + "/archive.png")
	}
	b.open("/datasets/default/documents/" + s.members(docs[0].ID)["papers/figure.pdf"].ID)
	b.sees("main", "in archive")
	b.wait("the figure", `document.querySelector('img.figure')?.naturalWidth > 300`)
	if dir := os.Getenv("SHEAF_SCREENS"); dir != "" {
		b.shoot(dir + "/figure.png")
	}
}

// The settings bound what an archive becomes, and the sentences name the bounds.
func TestSettingsBoundArchives(t *testing.T) {
	s := start(t, func(c *config.Config) {
		c.Archive.MaxFiles, c.Archive.MaxFileBytes, c.Archive.MaxRatio, c.Archive.MaxDepth = 3, 20<<20, 2000, 1
	})
	_, docs := s.send(nil, text("small.zip", zipOf(t, "a.txt", "About agate.", "zeros.txt", strings.Repeat("0", 18<<20), "big.txt", strings.Repeat("x", 21<<20), "late.txt", "About late files.")))
	files := s.members(docs[0].ID)
	if len(files) != 2 || files["a.txt"].ID == "" || files["zeros.txt"].ID == "" { // the zeros are 1,000 times their packed size
		t.Errorf("documents %v of %+v", slices.Sorted(maps.Keys(files)), docs[0])
	}
	if said := fmt.Sprint(s.doc(docs[0].ID).Warnings); !strings.Contains(said, "Files after the first 3 ") {
		t.Errorf("%s", said)
	}
	_, docs = s.send(nil, text("outer.zip", zipOf(t, "inner.zip", zipOf(t, "a.txt", "About agate."), "b.txt", "About basalt.")))
	if files := s.members(docs[0].ID); len(files) != 1 || files["b.txt"].ID == "" {
		t.Errorf("an archive in an archive: %v", slices.Sorted(maps.Keys(files)))
	}
}
