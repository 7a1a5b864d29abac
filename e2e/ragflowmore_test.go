package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// ragflowDataset makes a dataset and returns its id.
func (s *service) ragflowDataset(body string) string {
	s.t.Helper()
	a := s.askRAGFlow("POST", "datasets", body)
	if a.code != 0 {
		s.t.Fatal(a.body)
	}
	return a.data.(map[string]any)["id"].(string)
}

// sentRAGFlow uploads files, which must be taken, and returns their ids.
func (s *service) sentRAGFlow(dataset string, files ...[2]string) (ids []string) {
	s.t.Helper()
	a := s.sendRAGFlow(dataset, files...)
	if a.code != 0 {
		s.t.Fatal(a.body)
	}
	for _, d := range a.data.([]any) {
		ids = append(ids, d.(map[string]any)["id"].(string))
	}
	return ids
}

// parseRAGFlow parses documents and waits until they are done.
func (s *service) parseRAGFlow(dataset string, ids ...string) {
	s.t.Helper()
	if a := s.askRAGFlow("POST", "datasets/"+dataset+"/documents/parse", `{"document_ids":["`+strings.Join(ids, `","`)+`"]}`); a.code != 0 {
		s.t.Fatal(a.body)
	}
	for _, id := range ids {
		s.until(id+" to be parsed", "GET", "datasets/"+dataset+"/documents?id="+id, func(m map[string]any) bool {
			run := m["docs"].([]any)[0].(map[string]any)["run"]
			if run == "FAIL" {
				s.t.Fatalf("parsing: %v", m)
			}
			return run == "DONE"
		})
	}
}

// okRAGFlow asks, and wants success with an answer that has the words.
func (s *service) okRAGFlow(method, path, body string, want ...string) asked {
	s.t.Helper()
	a := s.askRAGFlow(method, path, body)
	if a.code != 0 {
		s.t.Errorf("%s %s %.300s: %.1000s", method, path, body, a.body)
	}
	for _, w := range want {
		if !strings.Contains(a.body, w) {
			s.t.Errorf("%s %s %.300s lacks %s: %.1000s", method, path, body, w, a.body)
		}
	}
	return a
}

// refusedRAGFlow asks, and wants a refusal in the envelope.
func (s *service) refusedRAGFlow(method, path, body string, code int, message string) {
	s.t.Helper()
	if a := s.askRAGFlow(method, path, body); a.status != 200 || a.code != code || !strings.Contains(a.message, message) {
		s.t.Errorf("%s %s %.200s\nanswers %d %.400s\nwant    %d %s", method, path, body, a.code, a.body, code, message)
	}
}

// at walks into an answer: keys of objects, positions in lists.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

// hold makes documents that nobody asked to parse, past their upload.
func (s *service) hold(tenant, dataset string, n int) (ids []string) {
	s.t.Helper()
	var docs []sheaf.Document
	for i := range n {
		id := sheaf.NewID()
		ids = append(ids, id)
		docs = append(docs, sheaf.Document{ID: id, TenantID: tenant, DatasetID: dataset, Name: fmt.Sprintf("held-%d.txt", i), MediaType: "text/plain", Size: 5, SHA256: strings.Repeat("0", 64), BlobKey: sheaf.OriginalPrefix(tenant, id) + "held"})
	}
	for some := range slices.Chunk(docs, 1000) {
		if err := s.store.HoldDocuments(s.t.Context(), tenant, dataset, some); err != nil {
			s.t.Fatal(err)
		}
	}
	return ids
}

// What is uploaded and not parsed waits outside the queue: it takes no place of
// the quota of waiting work, and none of the jobs.
func TestRAGFlowUploadsWaitOutsideTheQueue(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth, c.Server.Interfaces = true, []string{"ragflow"} }).tenant("alpha", "write", sheaf.Quota{QueuedTasks: 2})
	id := s.ragflowDataset(`{"name":"birds"}`)
	var files [][2]string
	for i := range 12 {
		files = append(files, [2]string{fmt.Sprintf("heron %d.txt", i), fmt.Sprintf("The heron of pond %d waits.", i)})
	}
	ids := s.sentRAGFlow(id, files...)
	s.hold("alpha", id, 10_000)
	s.okRAGFlow("GET", "datasets/"+id+"/documents?run=UNSTART&page_size=1", "", `"total":10012`)
	s.okRAGFlow("GET", "datasets/"+id+"/documents?page=101&page_size=100", "", `"total":10012`)
	s.okRAGFlow("GET", "datasets/"+id, "", `"document_count":10012`)
	var jobs struct{ Items []sheaf.Job }
	if s.get("/v1/jobs", &jobs); len(jobs.Items) != 0 {
		t.Errorf("uploads made %d jobs", len(jobs.Items))
	}
	usage, err := s.store.QuotaUsage(t.Context(), "alpha")
	if err != nil || usage.QueuedTasks != 0 {
		t.Errorf("uploads hold %+v, %v", usage, err)
	}
	// So that work of others goes on, and some of them are parsed.
	job := s.sentJob("/v1/datasets/"+id+"/documents?name=stork.txt", "The stork nests.")
	s.wait(job)
	s.parseRAGFlow(id, ids[0], ids[11])
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron"}`, `"total":2`)
	s.okRAGFlow("DELETE", "datasets/"+id+"/documents", `{"delete_all":true}`, `"deleted":10013`)
}

// sentJob uploads a file to /v1 and returns its job.
func (s *service) sentJob(path, body string) string {
	s.t.Helper()
	resp, text := s.ask("POST", path, "text/plain", []byte(body))
	var sent struct{ Job sheaf.Job }
	if err := json.Unmarshal([]byte(text), &sent); err != nil || resp.StatusCode != http.StatusAccepted {
		s.t.Fatalf("an upload to /v1: %d %s", resp.StatusCode, text)
	}
	return sent.Job.ID
}

// wait waits for the end of a job.
func (s *service) wait(job string) {
	s.t.Helper()
	waitFor(s.t, "job "+job, func() bool {
		var j sheaf.Job
		s.get("/v1/jobs/"+job, &j)
		return j.State.Terminal()
	})
}

// Documents come from the web and out of nothing.
func TestRAGFlowUploadsWithoutAFile(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/heron.html" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html><body><h1>Herons</h1><p>The heron waits in the shallow water.</p></body></html>")
	}))
	defer web.Close()
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces, c.Server.AllowURLs = true, []string{"ragflow"}, []string{"127.0.0.1"}
	}).tenant("alpha", "write", sheaf.Quota{})
	id := s.ragflowDataset(`{"name":"birds"}`)
	form := func(kind string, fields url.Values) asked {
		t.Helper()
		_, text := s.ask("POST", "/api/v1/datasets/"+id+"/documents?type="+kind, "application/x-www-form-urlencoded", []byte(fields.Encode()))
		var out struct {
			Code    int
			Message string
			Data    any
		}
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(text)
		}
		return asked{code: out.Code, message: out.Message, data: out.Data, body: text}
	}
	for _, c := range []struct {
		name, url, message string
		code               int
	}{
		{"", web.URL, `Lack of "name"`, 101},
		{"a.html", "", `Lack of "url"`, 101},
		{"a.html", "ftp://127.0.0.1/x", "The URL format is invalid", 101},
		{"a.html", "https://elsewhere.example/x", "server.allow_urls", 102},
		{"a.html", web.URL + "/nothing", "404 Not Found", 102},
		{"a.nothing", web.URL + "/heron.html", "a.nothing: This type of file has not been supported yet!", 500},
		{strings.Repeat("x", 300), web.URL, "File name must be 255 bytes or less.", 101},
	} {
		if a := form("web", url.Values{"name": {c.name}, "url": {c.url}}); a.code != c.code || !strings.Contains(a.message, c.message) {
			t.Errorf("%.20s of %s: %s", c.name, c.url, a.body)
		}
	}
	if a := form("else", nil); a.code != 101 || !strings.Contains(a.message, "type cannot be else") {
		t.Errorf("an unknown type: %s", a.body)
	}
	a := form("web", url.Values{"name": {"heron.html"}, "url": {web.URL + "/heron.html"}})
	if a.code != 0 || at(a.data, "run") != "UNSTART" || at(a.data, "name") != "heron.html" {
		t.Fatal(a.body)
	}
	s.parseRAGFlow(id, at(a.data, "id").(string))
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"shallow"}`, `"total":1`, "heron.html")

	// An empty document is one for chunks that people add.
	empty := "datasets/" + id + "/documents?type=empty"
	s.refusedRAGFlow("POST", empty, `{}`, 101, "File name can't be empty.")
	s.refusedRAGFlow("POST", empty, `{"name":"`+strings.Repeat("x", 256)+`"}`, 101, "File name must be 255 bytes or less.")
	s.okRAGFlow("POST", empty, `{"name":"notes"}`, `"name":"notes.txt"`)
	made := s.okRAGFlow("POST", empty, `{"name":"notes.txt"}`, `"name":"notes(1).txt"`, `"size":0`, `"type":"virtual"`, `"run":"UNSTART"`)
	notes := at(made.data, "id").(string)
	s.okRAGFlow("GET", "datasets/"+id+"/documents?types=virtual", "", `"total":2`)
	s.refusedRAGFlow("GET", "datasets/"+id+"/documents/"+notes, "", 102, "This file is empty.")
	chunks := "datasets/" + id + "/documents/" + notes + "/chunks"
	s.okRAGFlow("POST", chunks, `{"content":"The bittern booms."}`)
	s.okRAGFlow("GET", chunks, "", `"total":1`, `"run":"UNSTART"`, `"chunk_count":1`)
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"bittern"}`, `"total":1`)
	// There is nothing to parse, and what was added stays.
	s.okRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+notes+`"]}`)
	s.until("parsing to fail", "GET", "datasets/"+id+"/documents?id="+notes, func(m map[string]any) bool { return at(m, "docs", 0, "run") == "FAIL" })
	s.okRAGFlow("GET", chunks, "", `"total":1`, "contains no text")
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"bittern"}`, `"total":1`)
}

// Chunks are added to documents that were not parsed, repeatedly and at once.
func TestRAGFlowAddsChunks(t *testing.T) {
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	doc := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits in the shallow water."})[0]
	chunks := "datasets/" + id + "/documents/" + doc + "/chunks"
	count := func(total, counted int, run string) {
		t.Helper()
		a := s.okRAGFlow("GET", chunks+"?page_size=100", "")
		if at(a.data, "total") != float64(total) || at(a.data, "doc", "chunk_count") != float64(counted) || at(a.data, "doc", "run") != run {
			t.Errorf("%v chunks, chunk_count %v, %v; want %d, %d, %s", at(a.data, "total"), at(a.data, "doc", "chunk_count"), at(a.data, "doc", "run"), total, counted, run)
		}
		s.okRAGFlow("GET", "datasets/"+id+"/documents?id="+doc, "", fmt.Sprintf(`"chunk_count":%d`, counted), run)
	}
	count(0, 0, "UNSTART")
	first := s.okRAGFlow("POST", chunks, `{"content":"Herons fly slowly."}`)
	count(1, 1, "UNSTART")
	again := s.okRAGFlow("POST", chunks, `{"content":"Herons fly slowly."}`)
	if at(first.data, "chunk", "id") != at(again.data, "chunk", "id") {
		t.Error("the same content has another id")
	}
	count(1, 2, "UNSTART")
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"slowly"}`, `"total":1`)

	// At once: each is there, and the same content is one chunk.
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if a := s.askRAGFlow("POST", chunks, fmt.Sprintf(`{"content":"Note %d of a reader."}`, i/2)); a.code != 0 {
				t.Errorf("adding at once: %s", a.body)
			}
		})
	}
	wg.Wait()
	count(9, 18, "UNSTART")

	// Parsed later, the document has both; content that was added again counts no more.
	s.parseRAGFlow(id, doc)
	count(10, 10, "DONE")
	s.okRAGFlow("DELETE", chunks, `{"chunk_ids":["`+at(first.data, "chunk", "id").(string)+`"]}`)
	count(9, 9, "DONE")
	s.okRAGFlow("GET", "datasets/"+id, "", `"chunk_count":9`)
	s.okRAGFlow("DELETE", chunks, `{"delete_all":true}`)
	count(0, 0, "DONE")
	s.okRAGFlow("POST", chunks, `{"content":"Herons fly slowly."}`)
	count(1, 1, "DONE")

	// While its first version is made, there is nothing to add to, and nothing is lost.
	other := s.sentRAGFlow(id, [2]string{"stork.txt", "The stork nests on chimneys."})[0]
	s.request("POST", "/v1/queues:pause", "", "Authorization", "Bearer "+s.key)
	s.okRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+other+`"]}`)
	s.refusedRAGFlow("POST", "datasets/"+id+"/documents/"+other+"/chunks", `{"content":"too early"}`, 102, "being parsed")
	s.okRAGFlow("POST", "datasets/"+id+"/documents/stop", `{"document_ids":["`+other+`"]}`, `"success_count":1`)
	s.request("POST", "/v1/queues:resume", "", "Authorization", "Bearer "+s.key)
	waitFor(t, "it to be stopped", func() bool {
		return s.askRAGFlow("POST", "datasets/"+id+"/documents/"+other+"/chunks", `{"content":"Storks clatter."}`).code == 0
	})
	s.okRAGFlow("GET", "datasets/"+id+"/documents/"+other+"/chunks", "", `"total":1`, "clatter")
}

// Tags of chunks are kept with them, counted, renamed and taken away.
// A question finds the chunks that have its words, and none because of the name
// of its document or the headings above it.
func TestRAGFlowRetrievalKeepsToTheChunk(t *testing.T) {
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	doc := s.sentRAGFlow(id, [2]string{"heron.md", "# Heron\n\nIt waits at the weir, model FY2018, and fishes.\n\n## Notice\n\nThe period is three months.\n"})[0]
	s.parseRAGFlow(id, doc)
	for _, chunk := range []string{`{"content":"stork 42 nest"}`, `{"content":"a grey bird","important_keywords":["herons"]}`} {
		s.okRAGFlow("POST", "datasets/"+id+"/documents/"+doc+"/chunks", chunk)
	}
	for question, total := range map[string]int{"heron": 2, "42": 1, "notice": 1, "fish": 1, "2018": 1, "heron 42": 3, "md": 0} {
		s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"`+question+`","similarity_threshold":0}`, fmt.Sprintf(`"total":%d`, total))
	}
}

func TestRAGFlowTags(t *testing.T) {
	s := forRAGFlow(t)
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	id, other := s.ragflowDataset(`{"name":"birds"}`), s.ragflowDataset(`{"name":"fish"}`)
	docs := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."}, [2]string{"stork.txt", "The stork nests."})
	pike := s.sentRAGFlow(other, [2]string{"pike.txt", "The pike lurks."})[0]
	chunks := "datasets/" + id + "/documents/" + docs[0] + "/chunks"
	a := s.okRAGFlow("POST", chunks, `{"content":"Herons fly.","tag_kwd":["wader","wader","grey"],"tag_feas":{"grey":3,"tall":12}}`, `"tag_kwd":["wader","wader","grey"]`)
	heron := at(a.data, "chunk", "id").(string)
	one := s.okRAGFlow("GET", chunks+"/"+heron, "")
	if got := at(one.data, "tag_feas"); fmt.Sprint(got) != "map[grey:0.25 tall:1 wader:1]" {
		t.Errorf("weights are %v", got)
	}
	s.okRAGFlow("POST", "datasets/"+id+"/documents/"+docs[1]+"/chunks", `{"content":"Storks clatter.","tag_kwd":["wader"]}`)
	s.okRAGFlow("POST", "datasets/"+other+"/documents/"+pike+"/chunks", `{"content":"Pikes bite.","tag_kwd":["grey"]}`)
	s.okRAGFlow("GET", "datasets/"+id+"/tags", "", `"data":[{"value":"wader","count":2},{"value":"grey","count":1},{"value":"tall","count":1}]`)
	s.okRAGFlow("GET", "datasets/tags/aggregation?dataset_ids="+id+","+other, "", `{"value":"grey","count":2}`, `{"value":"wader","count":2}`)
	// They are those of the rest of the service: a search is narrowed by them.
	_, found := s.request("POST", "/v1/search", `{"query":"herons storks","mode":"text","filter":{"tags":["Wader"]}}`, "Authorization", "Bearer "+s.key, "Content-Type", "application/json")
	if n := strings.Count(string(found), `"score":`); n != 2 {
		t.Errorf("a filter by a tag finds %d: %s", n, found)
	}
	s.okRAGFlow("PUT", "datasets/"+id+"/tags", `{"from_tag":"wader","to_tag":" grey "}`, `"data":true`)
	s.okRAGFlow("GET", "datasets/"+id+"/tags", "", `"data":[{"value":"grey","count":2},{"value":"tall","count":1}]`)
	s.okRAGFlow("DELETE", "datasets/"+id+"/tags", `{"tags":["grey","nobody's"]}`, `"data":true`)
	s.okRAGFlow("GET", "datasets/"+id+"/tags", "", `"data":[{"value":"tall","count":1}]`)
	s.okRAGFlow("GET", "datasets/"+other+"/tags", "", `"data":[{"value":"grey","count":1}]`)
	s.okRAGFlow("PATCH", chunks+"/"+heron, `{"tag_kwd":["slow"]}`)
	s.okRAGFlow("GET", chunks+"?id="+heron, "", `"tag_kwd":["slow"]`)
	s.okRAGFlow("PATCH", chunks+"/"+heron, `{"content":"Herons fly slowly."}`)
	s.parseRAGFlow(id, docs[0]) // and stay when the document is parsed
	s.okRAGFlow("GET", chunks+"?id="+heron, "", `"tag_kwd":["slow"]`, "slowly")

	nobody := strings.Repeat("0", 32)
	stranger.refusedRAGFlow("GET", "datasets/"+id+"/tags", "", 102, "lacks permission for dataset '"+id+"'")
	stranger.refusedRAGFlow("DELETE", "datasets/"+id+"/tags", `{"tags":["slow"]}`, 102, "lacks permission")
	stranger.refusedRAGFlow("PUT", "datasets/"+id+"/tags", `{"from_tag":"slow","to_tag":"x"}`, 102, "lacks permission")
	stranger.refusedRAGFlow("GET", "datasets/tags/aggregation?dataset_ids="+id, "", 102, "lacks permission")
	s.refusedRAGFlow("GET", "datasets/tags/aggregation?dataset_ids="+id+","+nobody, "", 102, "lacks permission for dataset '"+nobody+"'")
	s.refusedRAGFlow("GET", "datasets/tags/aggregation?dataset_ids=", "", 101, "dataset_ids is required")
	s.refusedRAGFlow("DELETE", "datasets/"+id+"/tags", `{"tags":[]}`, 101, "Field: <tags>")
	s.refusedRAGFlow("DELETE", "datasets/"+id+"/tags", `{"tags":[" "]}`, 101, "at least 1 character")
	s.refusedRAGFlow("PUT", "datasets/"+id+"/tags", `{"from_tag":"","to_tag":"x"}`, 101, "Field: <from_tag>")
	s.refusedRAGFlow("PUT", "datasets/"+id+"/tags", `{"from_tag":"slow"}`, 101, "Field: <to_tag> - Message: <Field required>")
	s.refusedRAGFlow("POST", "datasets/"+id+"/tags", `{}`, 100, "405")
	for _, bad := range []string{`[]`, `{"a":"b"}`, `{"a":0}`, `{"a":true}`} {
		s.refusedRAGFlow("POST", chunks, `{"content":"x","tag_feas":`+bad+`}`, 102, "`tag_feas` must be an object")
	}
	s.okRAGFlow("GET", "datasets/"+id+"/tags", "", `"data":[{"value":"slow","count":1}]`)
}

// The picture of a chunk is what it stands on.
func TestRAGFlowImages(t *testing.T) {
	t.Parallel()
	s := forRAGFlow(t)
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	id := s.ragflowDataset(`{"name":"books","parser_config":{"chunk_token_num":64}}`)
	docs := s.sentRAGFlow(id, [2]string{"handbook.pdf", string(pdf)}, [2]string{"heron.txt", "The heron waits."})
	s.parseRAGFlow(id, docs...)
	s.okRAGFlow("GET", "datasets/"+id+"/documents/"+docs[1]+"/chunks", "", `"image_id":""`)
	chunk := at(s.okRAGFlow("GET", "datasets/"+id+"/documents/"+docs[0]+"/chunks", "").data, "chunks", 1)
	picture, box := at(chunk, "image_id").(string), at(chunk, "positions", 0)
	if picture == "" {
		t.Fatalf("a chunk of a PDF has no picture: %v", chunk)
	}
	resp, body := s.ask("GET", "/api/v1/documents/images/"+picture, "application/json", nil)
	drawn, err := jpeg.Decode(strings.NewReader(body))
	if err != nil || resp.Header.Get("Content-Type") != "image/jpeg" {
		t.Fatalf("the picture is %s, %v: %.200s", resp.Header.Get("Content-Type"), err, body)
	}
	// It is the box, at 144 dots an inch, and not the page.
	wide := (at(box, 2).(float64) - at(box, 1).(float64)) * 2
	if got := float64(drawn.Bounds().Dx()); got < wide-4 || got > 612*2-50 {
		t.Errorf("the picture is %v wide, its box %v", drawn.Bounds(), box)
	}
	s.okRAGFlow("GET", "datasets/"+id+"/documents/"+docs[0]+"/chunks/"+at(chunk, "id").(string), "", `"img_id":"`+picture+`"`)
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"sheaf"}`, `"image_id":"`+docs[0]+"-")
	stranger.refusedRAGFlow("GET", "documents/images/"+picture, "", 102, "Image not found.")
	for _, none := range []string{"x", docs[0], docs[0] + "-", docs[0] + "-x", docs[1] + "-" + at(chunk, "id").(string), strings.Repeat("0", 32) + "-" + at(chunk, "id").(string)} {
		s.refusedRAGFlow("GET", "documents/images/"+none, "", 102, "Image not found.")
	}
}

// A chunk is given a picture, which stays with it and goes with its document.
func TestRAGFlowPicturesOfChunks(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"ragflow"}
		c.Parser.Tesseract = "" // these pictures are looked at, not read
	}).tenant("alpha", "write", sheaf.Quota{})
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	drawn := func(side int) string {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	encoded := func(picture string) string { return base64.StdEncoding.EncodeToString([]byte(picture)) }
	id := s.ragflowDataset(`{"name":"birds"}`)
	docs := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."}, [2]string{"stork.txt", "The stork nests."})
	s.parseRAGFlow(id, docs...)
	chunks := "datasets/" + id + "/documents/" + docs[0] + "/chunks"
	same := func(imageID any, want string) {
		t.Helper()
		resp, body := s.ask("GET", fmt.Sprint("/api/v1/documents/images/", imageID), "application/json", nil)
		if body != want || resp.Header.Get("Content-Type") != "image/png" {
			t.Errorf("%v is %s of %d bytes, want %d", imageID, resp.Header.Get("Content-Type"), len(body), len(want))
		}
	}
	before := s.okRAGFlow("GET", "datasets", "").data.([]any)
	added := at(s.okRAGFlow("POST", chunks, `{"content":"Herons fly.","image_base64":"`+encoded(drawn(8))+`"}`).data, "chunk")
	same(at(added, "image_id"), drawn(8))
	s.okRAGFlow("PATCH", chunks+"/"+at(added, "id").(string), `{"image_base64":"data:image/png;base64,`+encoded(drawn(16))+`"}`)
	same(at(added, "image_id"), drawn(16))
	// A chunk that was parsed has one too.
	first := at(s.okRAGFlow("GET", chunks, "").data, "chunks", 0, "id").(string)
	s.okRAGFlow("PATCH", chunks+"/"+first, `{"image_base64":"`+encoded(drawn(24))+`"}`)
	same(at(s.okRAGFlow("GET", chunks+"?id="+first, "").data, "chunks", 0, "image_id"), drawn(24))
	hit := at(s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"waits"}`).data, "chunks", 0)
	same(at(hit, "image_id"), drawn(24))
	s.okRAGFlow("GET", chunks+"/"+first, "", `"img_id":"`+docs[0]+"-")

	// They stay when the document is parsed again with other settings.
	s.okRAGFlow("PATCH", "datasets/"+id+"/documents/"+docs[0], `{"parser_config":{"chunk_token_num":99}}`)
	s.parseRAGFlow(id, docs[0])
	all := at(s.okRAGFlow("GET", chunks, "").data, "chunks").([]any)
	if len(all) != 2 {
		t.Fatalf("after parsing again there are %v", all)
	}
	same(at(all[0], "image_id"), drawn(24))
	same(at(all[1], "image_id"), drawn(16))

	// Nobody else sees them, they are no dataset of the interface, and go with the document.
	stranger.refusedRAGFlow("GET", "documents/images/"+at(all[0], "image_id").(string), "", 102, "Image not found.")
	if after := s.okRAGFlow("GET", "datasets", "").data.([]any); len(after) != len(before) {
		t.Errorf("there are %d datasets, and were %d", len(after), len(before))
	}
	var kept sheaf.Dataset
	s.get("/v1/datasets/ragflow-pictures", &kept)
	if kept.Documents != 2 {
		t.Errorf("%d pictures are kept, want 2", kept.Documents)
	}
	s.refusedRAGFlow("GET", "datasets/"+kept.ID, "", 102, "lacks permission")
	s.refusedRAGFlow("DELETE", "datasets", `{"ids":["`+kept.ID+`"]}`, 102, "lacks permission")
	s.okRAGFlow("DELETE", "datasets/"+id+"/documents", `{"ids":["`+docs[0]+`"]}`)
	s.refusedRAGFlow("GET", "documents/images/"+at(all[0], "image_id").(string), "", 102, "Image not found.")
	other := "datasets/" + id + "/documents/" + docs[1] + "/chunks"
	s.okRAGFlow("POST", other, `{"content":"Storks fly.","image_base64":"`+encoded(drawn(8))+`"}`)
	if s.get("/v1/datasets/ragflow-pictures", &kept); kept.Documents != 1 {
		t.Errorf("%d pictures are kept, want 1", kept.Documents)
	}
	for body, message := range map[string]string{
		`1`: "must be a string", `"!"`: "is no base64", `"` + encoded("no picture") + `"`: "is no PNG, JPEG, GIF or WebP", `"` + strings.Repeat("A", 6<<20) + `"`: "make the picture smaller",
	} {
		s.refusedRAGFlow("POST", other, `{"content":"x","image_base64":`+body+`}`, 102, message)
	}
	s.okRAGFlow("POST", other, `{"content":"Storks nest.","image_base64":""}`, `"image_id":""`)
	s.okRAGFlow("GET", other, "", `"total":3`)
	// Of a document that was deleted through /v1 they go with the next deletion here.
	s.request("DELETE", "/v1/datasets/-/documents/"+docs[1], "", "Authorization", "Bearer "+s.key)
	s.okRAGFlow("DELETE", "datasets/"+id+"/documents", `{"ids":["`+s.sentRAGFlow(id, [2]string{"crane.txt", "The crane dances."})[0]+`"]}`)
	if s.get("/v1/datasets/ragflow-pictures", &kept); kept.Documents != 0 {
		t.Errorf("%d pictures are kept of a document that was deleted through /v1", kept.Documents)
	}
	third := s.sentRAGFlow(id, [2]string{"ibis.txt", "The ibis wades."})[0]
	s.okRAGFlow("POST", "datasets/"+id+"/documents/"+third+"/chunks", `{"content":"Ibises fly.","image_base64":"`+encoded(drawn(8))+`"}`)
	s.okRAGFlow("DELETE", "datasets", `{"delete_all":true}`)
	if s.get("/v1/datasets/ragflow-pictures", &kept); kept.Documents != 0 {
		t.Errorf("%d pictures are kept after all was deleted", kept.Documents)
	}
}

// What was parsed, when and with what end is logged.
func TestRAGFlowIngestions(t *testing.T) {
	s := forRAGFlow(t)
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	id := s.ragflowDataset(`{"name":"birds"}`)
	docs := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."}, [2]string{"blank.txt", " "}, [2]string{"later.txt", "The crane dances."})
	s.parseRAGFlow(id, docs[0])
	s.parseRAGFlow(id, docs[0])
	s.okRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+docs[1]+`"]}`)
	s.until("the other to fail", "GET", "datasets/"+id+"/documents?id="+docs[1], func(m map[string]any) bool { return at(m, "docs", 0, "run") == "FAIL" })
	logs := "datasets/" + id + "/ingestions"
	a := s.okRAGFlow("GET", logs, "", `"total":2`, `"document_name":"heron.txt"`, `"operation_status":"DONE"`, `"operation_status":"FAIL"`, "contains no text")
	if strings.Contains(a.body, "later.txt") {
		t.Errorf("what nobody asked to parse is logged: %s", a.body)
	}
	if at(a.data, "logs", 0, "document_name") != "blank.txt" {
		t.Errorf("the newest is not the first: %s", a.body)
	}
	s.okRAGFlow("GET", logs+"?desc=false&page=1&page_size=1&orderby=update_time", "", `"total":2`, "heron.txt")
	s.okRAGFlow("GET", logs+"?page=9", "", `"logs":[]`, `"total":2`)
	s.okRAGFlow("GET", logs+"?log_type=dataset", "", `"logs":[]`, `"total":0`)
	s.okRAGFlow("GET", logs+"?create_date_from=2020-01-01&create_date_to=2100-01-01%2000:00:00", "", `"total":2`)
	s.okRAGFlow("GET", logs+"?create_date_from=2100-01-01&create_date_to=2020-01-01", "", `"total":0`)
	s.okRAGFlow("GET", logs+"/"+docs[0]+"-2", "", `"operation_status":"DONE"`, "Task done", `"chunk_count":1`)
	s.okRAGFlow("GET", logs+"/"+docs[0]+"-1", "", `"operation_status":"DONE"`, `"document_name":"heron.txt"`)
	for _, none := range []string{"x", docs[0], docs[0] + "-0", docs[0] + "-3", docs[2] + "-1", strings.Repeat("0", 32) + "-1"} {
		s.refusedRAGFlow("GET", logs+"/"+none, "", 102, "Log not found: "+none)
	}
	s.refusedRAGFlow("GET", logs+"?log_type=all", "", 101, "Input should be 'dataset' or 'file'")
	s.refusedRAGFlow("GET", logs+"?orderby=name", "", 101, "Input should be 'create_time' or 'update_time'")
	s.refusedRAGFlow("GET", logs+"?page_size=1000", "", 101, "less than or equal to 100")
	s.refusedRAGFlow("GET", logs+"?create_date_from=soon", "", 101, "Field: <create_date_from>")
	stranger.refusedRAGFlow("GET", logs, "", 102, "lacks permission for dataset '"+id+"'")
	stranger.refusedRAGFlow("GET", logs+"/"+docs[0]+"-1", "", 102, "lacks permission for dataset '"+id+"'")
}

// A question finds all that has its words, page by page.
func TestRAGFlowFindsMoreThanAHundred(t *testing.T) {
	t.Parallel()
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"ponds","chunk_method":"qa"}`)
	var csv strings.Builder
	for i := range 350 {
		fmt.Fprintf(&csv, "Who lives at pond %d?,The heron of reed bed %d\n", i, i)
	}
	doc := s.sentRAGFlow(id, [2]string{"ponds.csv", csv.String()})[0]
	s.parseRAGFlow(id, doc)
	seen := map[string]bool{}
	for page := 1; page <= 5; page++ {
		a := s.okRAGFlow("POST", "retrieval", fmt.Sprintf(`{"dataset_ids":["%s"],"question":"heron","page":%d,"page_size":100,"similarity_threshold":0}`, id, page), `"total":350`)
		got := at(a.data, "chunks").([]any)
		if want := []int{100, 100, 100, 50, 0}[page-1]; len(got) != want {
			t.Errorf("page %d has %d hits, want %d", page, len(got), want)
		}
		for _, h := range got {
			seen[at(h, "id").(string)] = true
		}
		if page == 1 && at(a.data, "doc_aggs", 0, "count") != 350.0 {
			t.Errorf("by document: %v", at(a.data, "doc_aggs"))
		}
	}
	if len(seen) != 350 {
		t.Errorf("all pages have %d chunks", len(seen))
	}
	// top_k bounds what is near by its vector, and not the list.
	near := func(top int) (n int) {
		a := s.okRAGFlow("POST", "retrieval", fmt.Sprintf(`{"dataset_ids":["%s"],"question":"heron","top_k":%d,"page_size":100,"similarity_threshold":0}`, id, top), `"total":350`)
		for _, h := range at(a.data, "chunks").([]any) {
			if at(h, "vector_similarity").(float64) > 0 {
				n++
			}
		}
		return n
	}
	if few, many := near(3), near(1024); few > 3 || many != 100 {
		t.Errorf("of 100 hits %d and %d are near with top_k 3 and 1024", few, many)
	}
	// Over several datasets by the strict rules.
	other := s.ragflowDataset(`{"name":"chimneys"}`)
	s.parseRAGFlow(other, s.sentRAGFlow(other, [2]string{"stork.txt", "The stork is no heron."})[0])
	both := `"dataset_ids":["` + id + `","` + other + `"]`
	s.okRAGFlow("POST", "datasets/search", `{`+both+`,"question":" heron ","size":100,"page":4,"nobody":"knows"}`, `"total":351`, `"labels":[]`)
	s.okRAGFlow("POST", "datasets/search", `{`+both+`,"question":"stork"}`, `"total":1`, `"content_with_weight":"The stork is no heron."`)
	s.okRAGFlow("POST", "datasets/search", `{`+both+`,"question":"heron","doc_ids":["`+doc+`"],"search_id":null,"rerank_id":null,"cross_languages":null,"meta_data_filter":null}`, `"total":350`)
	s.okRAGFlow("PATCH", "datasets/"+id+"/documents/"+doc, `{"meta_fields":{"place":"pond"}}`)
	s.okRAGFlow("POST", "datasets/search", `{`+both+`,"question":"heron","meta_data_filter":{"method":"manual","logic":"and","manual":[{"key":"place","op":"≠","value":"pond"}]}}`, `"total":1`)
	nobody := strings.Repeat("0", 32)
	for _, c := range []struct {
		body, message string
		code          int
	}{
		{`{"question":"x"}`, "Field: <dataset_ids> - Message: <Field required>", 101},
		{`{"dataset_ids":[],"question":"x"}`, "List should have at least 1 item", 101},
		{`{"dataset_ids":"x","question":"x"}`, "Input should be a valid list", 101},
		{`{` + both + `}`, "Field: <question> - Message: <Field required>", 101},
		{`{` + both + `,"question":" "}`, "String should have at least 1 character", 101},
		{`{` + both + `,"question":"x","size":1000}`, "less than or equal to 100", 101},
		{`{` + both + `,"question":"x","top_k":"many"}`, "valid integer", 101},
		{`{` + both + `,"question":"x","similarity_threshold":2}`, "less than or equal to 1", 101},
		{`{` + both + `,"question":"x","meta_data_filter":{"method":"auto"}}`, "Input should be 'manual' or 'disabled'", 101},
		{`{` + both + `,"question":"x","search_id":"s"}`, "Search application s not found", 102},
		{`{` + both + `,"question":"x","rerank_id":"r"}`, "Model(r) not found", 102},
		{`{"dataset_ids":["` + nobody + `"],"question":"x"}`, "Only owner of dataset " + nobody + " authorized for this operation.", 102},
		{`[1]`, "expected object, got list", 101},
	} {
		s.refusedRAGFlow("POST", "datasets/search", c.body, c.code, c.message)
	}
}

// Nobody else's documents and chunks are read, changed or found, whatever the route.
func TestRAGFlowForeignIDs(t *testing.T) {
	s := forRAGFlow(t)
	stranger := s.tenant("beta", "write", sheaf.Quota{})
	reader := s.withKey("alpha", "read")
	id := s.ragflowDataset(`{"name":"birds"}`)
	own := stranger.ragflowDataset(`{"name":"mine"}`)
	doc := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits in the shallow water."})[0]
	s.parseRAGFlow(id, doc)
	chunks := "/documents/" + doc + "/chunks"
	chunk := at(s.okRAGFlow("GET", "datasets/"+id+chunks, "").data, "chunks", 0, "id").(string)
	before := s.okRAGFlow("GET", "datasets/"+id+chunks, "").body
	for _, ds := range []string{id, own} { // through the owner's dataset, and through one's own
		for _, c := range [][3]string{
			{"GET", "datasets/" + ds + "/documents/" + doc, ""}, {"PATCH", "datasets/" + ds + "/documents/" + doc, `{"name":"mine.txt"}`},
			{"DELETE", "datasets/" + ds + "/documents", `{"ids":["` + doc + `"]}`}, {"POST", "datasets/" + ds + "/documents/parse", `{"document_ids":["` + doc + `"]}`},
			{"POST", "datasets/" + ds + "/chunks", `{"document_ids":["` + doc + `"]}`}, {"DELETE", "datasets/" + ds + "/chunks", `{"document_ids":["` + doc + `"]}`},
			{"POST", "datasets/" + ds + "/documents/stop", `{"document_ids":["` + doc + `"]}`}, {"POST", "datasets/" + ds + "/documents/batch-update-status", `{"doc_ids":["` + doc + `"],"status":0}`},
			{"PATCH", "datasets/" + ds + "/documents/metadatas", `{"selector":{"document_ids":["` + doc + `"]},"updates":[{"key":"a","value":"b"}]}`},
			{"PUT", "datasets/" + ds + "/documents/" + doc + "/metadata/config", `{"metadata":[]}`},
			{"GET", "datasets/" + ds + chunks, ""}, {"POST", "datasets/" + ds + chunks, `{"content":"mine"}`}, {"PATCH", "datasets/" + ds + chunks, `{"chunk_ids":["` + chunk + `"],"available":0}`},
			{"DELETE", "datasets/" + ds + chunks, `{"delete_all":true}`}, {"GET", "datasets/" + ds + chunks + "/" + chunk, ""}, {"PATCH", "datasets/" + ds + chunks + "/" + chunk, `{"content":"mine"}`},
			{"POST", "retrieval", `{"dataset_ids":["` + ds + `"],"document_ids":["` + doc + `"],"question":"heron"}`},
			{"POST", "documents/ingest", `{"doc_ids":["` + doc + `"],"run":"1"}`}, {"GET", "documents/" + doc, ""},
		} {
			if a := stranger.askRAGFlow(c[0], c[1], c[2]); a.status != 200 || a.code != 102 && a.code != 500 || strings.Contains(a.body, "shallow") {
				t.Errorf("%s %s %s answers %d %s", c[0], c[1], c[2], a.status, a.body)
			}
		}
	}
	stranger.okRAGFlow("POST", "datasets/search", `{"dataset_ids":["`+own+`"],"question":"heron","doc_ids":["`+doc+`"]}`, `"total":0`)
	stranger.refusedRAGFlow("POST", "retrieval", `{"dataset_ids":["`+own+`","`+id+`"],"question":"heron"}`, 102, "You don't own the dataset "+id+".")
	stranger.refusedRAGFlow("DELETE", "datasets", `{"ids":["`+own+`","`+id+`"]}`, 102, "lacks permission for datasets: '"+id+"'")
	if after := s.okRAGFlow("GET", "datasets/"+id+chunks, "").body; after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	stranger.okRAGFlow("GET", "datasets/"+own, "")

	// A key that may read lists and searches, and changes nothing.
	reader.okRAGFlow("GET", "datasets/"+id+chunks, "")
	reader.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron"}`, `"total":1`)
	reader.okRAGFlow("GET", "datasets/"+id+"/tags", "")
	for _, c := range [][3]string{
		{"POST", "datasets/" + id + chunks, `{"content":"mine"}`}, {"DELETE", "datasets/" + id + chunks, `{"delete_all":true}`}, {"POST", "datasets/" + id + "/documents/parse", `{"document_ids":["` + doc + `"]}`},
		{"DELETE", "datasets/" + id + "/documents", `{"delete_all":true}`}, {"PATCH", "datasets/" + id + chunks + "/" + chunk, `{"available":false}`},
	} {
		if a := reader.askRAGFlow(c[0], c[1], c[2]); a.status != 200 || a.code != 108 {
			t.Errorf("with a key that may read %s %s answers %s", c[0], c[1], a.body)
		}
	}
	// Wrong keys, wherever they stand.
	for name, value := range map[string]string{"Authorization": "Bearer wrong", "X-Api-Key": "wrong", "Api-Key": "wrong", "": ""} {
		for _, c := range [][2]string{{"GET", "datasets/x"}, {"POST", "datasets"}, {"GET", "nowhere"}, {"POST", "retrieval"}, {"GET", "documents/images/x"}, {"PUT", "datasets/" + id + "/tags"}} {
			req, err := http.NewRequestWithContext(t.Context(), c[0], s.base+"/api/v1/"+c[1], strings.NewReader(`{"broken`))
			if err != nil {
				t.Fatal(err)
			}
			if name != "" {
				req.Header.Set(name, value)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var out map[string]any
			if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != 401 || out["code"] != 401.0 || out["data"] != nil {
				t.Errorf("%s %s with %s answers %s %v", c[0], c[1], name, resp.Status, out)
			}
			_ = resp.Body.Close()
		}
	}
}

// Ten thousand ids in one request are looked up together, unknown ones too.
func TestRAGFlowTenThousand(t *testing.T) {
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	ids := s.hold("alpha", id, 10_000)
	heron := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."})[0]
	s.parseRAGFlow(id, heron)
	list := func(ids []string) string { b, _ := json.Marshal(ids); return string(b) }
	unknown := make([]string, 10_000)
	for i := range unknown {
		unknown[i] = fmt.Sprintf("%032x", i)
	}
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron","document_ids":`+list(append(slices.Clone(ids[:9_999]), heron))+`}`, `"total":1`)
	s.refusedRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron","document_ids":`+list(append(slices.Clone(ids), heron))+`}`, 102, "give at most 10000")
	s.refusedRAGFlow("POST", "retrieval", `{"dataset_ids":`+list(unknown)+`,"question":"heron"}`, 102, "You don't own the dataset "+unknown[0]+".")
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":`+list(slices.Repeat([]string{id}, 10_000))+`,"question":"heron"}`, `"total":1`)
	s.refusedRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":`+list(unknown)+`}`, 102, "Documents not found: ['"+unknown[0]+"', ")
	s.refusedRAGFlow("DELETE", "datasets/"+id+"/documents", `{"ids":`+list(append(slices.Clone(ids), unknown[0]))+`}`, 102, "Document not found: "+unknown[0])
	s.refusedRAGFlow("DELETE", "datasets", `{"ids":`+list(unknown)+`}`, 102, "lacks permission for datasets: '"+unknown[0]+", ")
	s.refusedRAGFlow("POST", "documents/ingest", `{"doc_ids":`+list(append(slices.Clone(ids), unknown[0]))+`,"run":"1"}`, 102, "Document not found!")
	chunks := "datasets/" + id + "/documents/" + heron + "/chunks"
	s.refusedRAGFlow("DELETE", chunks, `{"chunk_ids":`+list(unknown)+`}`, 102, "rm_chunk deleted chunks 0, expect 10000")
	s.refusedRAGFlow("PATCH", chunks, `{"chunk_ids":`+list(unknown)+`,"available":false}`, 102, "Index updating failure")
	s.refusedRAGFlow("POST", "datasets", `{"name":"x","avatar":"`+strings.Repeat("x", 9<<20)+`"}`, 101, "larger than")
	s.refusedRAGFlow("GET", "datasets/"+id+"/documents?ids="+strings.Join(unknown[:1001], ","), "", 101, "give at most 1000")
	s.refusedRAGFlow("GET", chunks+"?chunk_ids="+strings.Join(unknown[:101], ","), "", 102, "give at most 100")
	s.okRAGFlow("GET", "datasets/"+id+"/documents?run=UNSTART&page_size=1", "", `"total":10000`) // none was begun
	s.okRAGFlow("DELETE", "datasets/"+id+"/documents", `{"ids":`+list(ids)+`}`, `"deleted":10000`)
	s.okRAGFlow("GET", "datasets/"+id+"/documents", "", `"total":1`)
}

// Of a request that breaks off nothing is done, and who hangs up leaves nothing
// half done.
func TestRAGFlowBodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	heron := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."})[0]
	const form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"whole.txt\"\r\n\r\nThe stork nests.\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"half.txt\"\r\n\r\nThe crane"
	for _, c := range []struct{ method, path, media, body string }{
		{"POST", "datasets", "application/json", `{"name":"half`},
		{"DELETE", "datasets", "application/json", `{"delete_all":true}`},
		{"DELETE", "datasets/" + id + "/documents", "application/json", `{"delete_all":true}`},
		{"POST", "datasets/" + id + "/documents/parse", "application/json", `{"document_ids":["` + heron + `"]}`},
		{"POST", "datasets/" + id + "/documents/" + heron + "/chunks", "application/json", `{"content":"half"}`},
		{"POST", "datasets/" + id + "/documents", "multipart/form-data; boundary=b", form},
		{"POST", "datasets/" + id + "/documents?type=web", "application/x-www-form-urlencoded", "name=a.html&url=http"},
	} {
		if _, answer := s.half(c.method, "/api/v1/"+c.path, c.media, c.body); answer != "" && (!strings.Contains(answer, `"code":101`) || !strings.Contains(answer, "broke off") && !strings.Contains(answer, "cannot be read")) {
			t.Errorf("%s %s that breaks off answers %s", c.method, c.path, answer)
		}
	}
	a := s.okRAGFlow("GET", "datasets/"+id+"/documents", "")
	if strings.Contains(a.body, "half.txt") || at(a.data, "total").(float64) > 2 {
		t.Errorf("documents: %s", a.body)
	}
	s.okRAGFlow("GET", "datasets/"+id+"/documents?id="+heron, "", `"run":"UNSTART"`, `"chunk_count":0`)
	s.okRAGFlow("GET", "datasets", "", `"total_datasets":1`)

	// Who hangs up while chunks are deleted finds each there or gone, and may go on.
	doc := s.sentRAGFlow(id, [2]string{"birds.md", strings.Repeat("# Bird\n\nThe heron waits in the shallow water for a fish to come by.\n\n", 40)})[0]
	s.okRAGFlow("PATCH", "datasets/"+id+"/documents/"+doc, `{"parser_config":{"chunk_token_num":16}}`)
	s.parseRAGFlow(id, doc)
	chunks := "datasets/" + id + "/documents/" + doc + "/chunks"
	total := int(at(s.okRAGFlow("GET", chunks, "").data, "total").(float64))
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "DELETE", s.base+"/api/v1/"+chunks, strings.NewReader(`{"delete_all":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	waitFor(t, "the first to be deleted", func() bool { return int(at(s.okRAGFlow("GET", chunks, "").data, "total").(float64)) < total })
	cancel()
	<-gone
	s.okRAGFlow("DELETE", chunks, `{"delete_all":true}`)
	s.okRAGFlow("GET", chunks, "", `"total":0`, `"chunk_count":0`)
}

// A chunk that is edited while a re-parse replaces it is edited in what comes.
func TestRAGFlowEditsWhileParsing(t *testing.T) {
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	doc := s.sentRAGFlow(id, [2]string{"birds.md", "# Heron\n\nThe heron waits in the shallow water.\n\n# Stork\n\nThe stork nests on chimneys.\n"})[0]
	s.parseRAGFlow(id, doc)
	path := "datasets/" + id + "/documents/" + doc
	for round := range 4 {
		first := at(s.okRAGFlow("GET", path+"/chunks", "").data, "chunks", 0)
		if round%2 == 0 { // other settings, so that nothing of the old version is taken over
			s.okRAGFlow("PATCH", path, fmt.Sprintf(`{"parser_config":{"chunk_token_num":%d}}`, 256+round))
		}
		s.okRAGFlow("POST", "datasets/"+id+"/documents/parse", `{"document_ids":["`+doc+`"]}`)
		taken, n := "", 0
		waitFor(t, "the new version", func() bool {
			n++
			text := fmt.Sprintf("Edit %d of round %d.", n, round)
			switch a := s.askRAGFlow("PATCH", path+"/chunks/"+at(first, "id").(string), `{"content":"`+text+`"}`); {
			case a.code == 0:
				taken = text
			case a.code != 102: // replaced by now
				t.Fatalf("an edit meanwhile: %s", a.body)
			}
			return at(s.okRAGFlow("GET", "datasets/"+id+"/documents?id="+doc, "").data, "docs", 0, "run") == "DONE"
		})
		if taken == "" {
			t.Fatal("no edit was taken")
		}
		s.okRAGFlow("GET", path+"/chunks", "", taken)
		s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"`+taken+`","similarity_threshold":0.6,"vector_similarity_weight":0}`, taken)
	}
}

// What nobody knows is refused by the strict rules and passed over by the lenient
// ones; what Sheaf cannot do is never a silent success.
func TestRAGFlowUnknownOptions(t *testing.T) {
	s := forRAGFlow(t)
	id := s.ragflowDataset(`{"name":"birds"}`)
	doc := s.sentRAGFlow(id, [2]string{"heron.txt", "The heron waits."})[0]
	s.parseRAGFlow(id, doc)
	path := "datasets/" + id + "/documents/" + doc
	s.okRAGFlow("PATCH", path, `{"nobody":"knows"}`)
	chunk := at(s.okRAGFlow("GET", path+"/chunks", "").data, "chunks", 0)
	s.okRAGFlow("PATCH", path+"/chunks/"+at(chunk, "id").(string), `{"positions":[],"nobody":"knows"}`)
	s.refusedRAGFlow("PATCH", path+"/chunks/"+at(chunk, "id").(string), `{"positions":[[1,2,3,4,5]]}`, 102, "`positions` cannot be changed")
	s.refusedRAGFlow("PATCH", path+"/chunks/"+at(chunk, "id").(string), `{"positions":1}`, 102, "`positions` should be a list")
	s.okRAGFlow("GET", path+"/chunks?nobody=knows&page=x&page_size=-1", "", `"total":1`)
	s.okRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron","nobody":"knows","page":"x","page_size":0,"keyword":true,"use_kg":true}`, `"total":1`)
	s.refusedRAGFlow("GET", "datasets?nobody=knows", "", 101, "Field: <nobody> - Message: <Extra inputs are not permitted>")
	s.refusedRAGFlow("PUT", "datasets/"+id, `{"nobody":"knows"}`, 101, "Field: <nobody> - Message: <Extra inputs are not permitted>")
	s.refusedRAGFlow("DELETE", "datasets/"+id+"/documents", `{"ids":[],"nobody":"knows"}`, 101, "Field: <nobody> - Message: <Extra inputs are not permitted>")
	s.refusedRAGFlow("POST", "retrieval", `{"dataset_ids":["`+id+`"],"question":"heron","rerank_id":"x"}`, 102, "Model(x) not found")
	s.refusedRAGFlow("POST", "documents/ingest", `{"doc_ids":["`+doc+`"],"run":"3"}`, 101, "run must be 1")
	s.refusedRAGFlow("POST", "documents/ingest", `{"doc_ids":["`+doc+`"],"run":"1","delete":"yes"}`, 101, "delete must be")
	for _, none := range []string{"chats", "agents", "sessions", "memories", "datasets/" + id + "/graph", "datasets/" + id + "/run_graphrag", "connectors"} {
		if a := s.askRAGFlow("GET", none, ""); a.status != 404 || a.code != 404 {
			t.Errorf("%s answers %d %s", none, a.status, a.body)
		}
	}
	// Deleting before parsing takes the chunks away at once.
	s.request("POST", "/v1/queues:pause", "", "Authorization", "Bearer "+s.key)
	s.okRAGFlow("POST", "documents/ingest", `{"doc_ids":["`+doc+`","`+doc+`"],"run":"1","delete":true}`, `"data":true`)
	s.okRAGFlow("GET", path+"/chunks", "", `"total":0`)
	s.request("POST", "/v1/queues:resume", "", "Authorization", "Bearer "+s.key)
	s.until("it to be parsed again", "GET", "datasets/"+id+"/documents?id="+doc, func(m map[string]any) bool { return at(m, "docs", 0, "run") == "DONE" })
	s.okRAGFlow("GET", path+"/chunks", "", `"total":1`)

	// The path of an upload is shown, and its settings count.
	var b bytes.Buffer
	for _, f := range [][2]string{{"parent_path", "/rivers/"}, {"parser_config", `{"chunk_token_num":99}`}} {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", f[0], f[1])
	}
	b.WriteString("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"crane.txt\"\r\n\r\nThe crane dances.\r\n--b--\r\n")
	if _, text := s.ask("POST", "/api/v1/datasets/"+id+"/documents", "multipart/form-data; boundary=b", b.Bytes()); !strings.Contains(text, `"location":"rivers/crane.txt"`) || !strings.Contains(text, `"chunk_token_num":99`) {
		t.Errorf("an upload with a path: %s", text)
	}
}
