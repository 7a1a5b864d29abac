package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/artifact"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
	"sheaf/internal/webhook"
)

// flowed uploads a file under a flow that has nodes between cut and out, and waits
// for its end.
func (s *service) flowed(name, nodes, body string) (d sheaf.Document, run api.FlowRun) {
	s.t.Helper()
	var v api.FlowAnswer
	s.post("/v1/flows", map[string]any{"toml": fmt.Sprintf(`name = %q
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 32 } },
%s]
`, name, nodes)}, &v)
	answer, err := s.submitAnswer(s.t.Context(), "default", []source{text(name+".md", body)}, map[string]string{"parser_config": fmt.Sprintf(`{"flow":%q}`, name)}, "")
	if err != nil {
		s.t.Fatal(err)
	}
	s.ended(answer.Job.ID)
	return s.ran(answer.Documents[0].ID)
}

// ran reads a document and its run.
func (s *service) ran(id string) (d sheaf.Document, run api.FlowRun) {
	s.t.Helper()
	s.get("/v1/datasets/default/documents/"+id, &d)
	s.get("/v1/datasets/default/documents/"+id+"/run", &run)
	return d, run
}

func nodeOf(t *testing.T, run api.FlowRun, id string) api.RunNode {
	t.Helper()
	i := slices.IndexFunc(run.Nodes, func(n api.RunNode) bool { return n.ID == id })
	if i < 0 {
		t.Fatalf("no node %s in %+v", id, run)
	}
	return run.Nodes[i]
}

// filtered searches for what has a value of metadata.
func (s *service) filtered(query, name, value string) (texts []string) {
	s.t.Helper()
	r, err := s.search(s.t.Context(), defaultDataset, map[string]any{"query": query, "mode": "text", "limit": 50, "filter": map[string]any{"metadata": map[string]string{name: value}}})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range r.Hits {
		texts = append(texts, h.Chunk.Text)
	}
	return texts
}

const threeSections = "# Minutes\n\nThe quartzite was measured twice by Acme.\n\n# Notes\n\nThis is secret: obsidian of Acme.\n\n# End\n\nFeldspar closes the list of Acme.\n"

// A node asks a service, whose requests are signed: what it says is found by at
// once. While the service fails again and again it is left alone, which costs
// those who wait nothing and is said on the run; when it is back, all ends well.
func TestNodeCallsAService(t *testing.T) {
	t.Parallel()
	secret := webhook.NewSecret()
	var away atomic.Bool
	var mu sync.Mutex
	calls := map[string]int{}
	svc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls[r.URL.Path]++
		mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		var at int64
		_, _ = fmt.Sscan(r.Header.Get(webhook.HeaderTimestamp), &at)
		if want, _ := webhook.Sign(secret, r.Header.Get(webhook.HeaderID), time.Unix(at, 0), body); r.Header.Get(webhook.HeaderSignature) != want {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		switch {
		case r.URL.Path == "/redirect":
			http.Redirect(w, r, "/", http.StatusFound)
			return
		case r.URL.Path == "/hang":
			<-r.Context().Done()
			return
		case away.Load():
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		var ask struct {
			Chunks []struct{ ID, Text string }
		}
		if err := json.Unmarshal(body, &ask); err != nil {
			t.Error(err)
		}
		var say []map[string]any
		for _, c := range ask.Chunks {
			if strings.Contains(c.Text, "secret") {
				say = append(say, map[string]any{"id": c.ID, "drop": true})
			} else {
				rock := "feldspar"
				if strings.Contains(c.Text, "quartzite") {
					rock = "quartzite"
				}
				say = append(say, map[string]any{"id": c.ID, "metadata": map[string]string{"rock": rock}})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"chunks": say})
	}))
	defer svc.Close()
	s := start(t, func(c *config.Config) {
		c.Flow = config.Flow{AllowHosts: []string{"127.0.0.1"}, Secret: config.Secret(secret)}
		c.Executor.BackoffBase, c.Executor.BackoffJitter = config.Duration(50*time.Millisecond), 0
	})
	ask := func(path, more string) string {
		return fmt.Sprintf("  { id = \"ask\", kind = \"http\", from = [\"cut\"], config = { url = %q }%s },\n  { id = \"out\", kind = \"index\", from = [\"ask\"] },\n", svc.URL+path, more)
	}
	d, _ := s.flowed("signed", ask("/", ""), threeSections)
	if d.State != sheaf.DocSucceeded || !slices.ContainsFunc(d.Warnings, func(w sheaf.Warning) bool { return w.Code == "flow_dropped" }) {
		t.Fatalf("%s: %+v, %v", d.State, d.Failure, d.Warnings)
	}
	if found := s.filtered("Acme", "rock", "quartzite"); len(found) != 1 || !strings.Contains(found[0], "quartzite") {
		t.Errorf("what the service said is not filtered by: %q", found)
	}
	if s.finds("obsidian") {
		t.Error("what the service dropped is found")
	}
	// Again by the same flow: the service is not asked.
	mu.Lock()
	before := calls["/"]
	mu.Unlock()
	s.must("doc", "reparse", d.ID, "--wait")
	if mu.Lock(); calls["/"] != before {
		t.Errorf("the service was asked %d times more for what it had answered", calls["/"]-before)
	}
	mu.Unlock()

	for path, code := range map[string]string{"/redirect": "service_redirects", "/hang": "service_unavailable"} {
		d, run := s.flowed("bad"+strings.TrimPrefix(path, "/"), ask(path, `, timeout = "300ms", retry = { attempts = 1 }`), threeSections)
		if f := nodeOf(t, run, "ask").Failure; d.State != sheaf.DocFailed || f == nil || f.Code != code && f.Code != "node_timeout" {
			t.Errorf("%s: %s, %+v", path, d.State, f)
		}
	}
	d, run := s.flowed("elsewhere", strings.Replace(ask("/", ""), svc.URL, "http://10.1.2.3", 1), threeSections)
	if f := nodeOf(t, run, "ask").Failure; d.State != sheaf.DocFailed || f == nil || f.Code != "service_not_allowed" || !strings.Contains(f.Message, "flow.allow_hosts") {
		t.Errorf("an address that is not allowed: %s, %+v", d.State, f)
	}

	// Away: after three calls that failed the node's service is left alone.
	away.Store(true)
	var v api.FlowAnswer
	s.post("/v1/flows", map[string]any{"toml": "name = \"patient\"\nnode = [\n  { id = \"read\", kind = \"parse\" },\n  { id = \"cut\", kind = \"chunk\", from = [\"read\"] },\n" + ask("/away", `, retry = { attempts = 20, base = "100ms", max = "200ms" }`) + "]\n"}, &v)
	var jobs, docs []string
	for i := range 4 {
		answer, err := s.submitAnswer(t.Context(), "default", []source{text(fmt.Sprintf("away%d.md", i), fmt.Sprintf("# A\n\nBasalt %d.\n", i))}, map[string]string{"parser_config": `{"flow":"patient"}`}, "")
		if err != nil {
			t.Fatal(err)
		}
		jobs, docs = append(jobs, answer.Job.ID), append(docs, answer.Documents[0].ID)
	}
	waitFor(t, "the run to say why it waits", func() bool {
		return slices.ContainsFunc(docs, func(id string) bool {
			var run api.FlowRun
			if s.call(t.Context(), http.MethodGet, "/v1/datasets/default/documents/"+id+"/run", nil, &run) != nil {
				return false
			}
			n := nodeOf(t, run, "ask")
			return n.State == "retry_wait" && strings.Contains(n.Reason, "502")
		})
	})
	turned := func() (n int) {
		for _, id := range docs {
			var tasks api.List[api.Task]
			s.get("/v1/datasets/default/documents/"+id+"/tasks", &tasks)
			for _, task := range tasks.Items {
				if task.Node == "ask" {
					n += task.Attempts
				}
			}
		}
		return n
	}
	waitFor(t, "attempts that were turned back", func() bool {
		mu.Lock()
		made := calls["/away"]
		mu.Unlock()
		return made >= 3 && turned() > made
	})
	away.Store(false)
	for _, id := range jobs {
		if j := s.ended(id); j.State != sheaf.DocSucceeded {
			t.Errorf("after the service came back a job ends %s", j.State)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if made := calls["/away"]; made > turned() {
		t.Errorf("%d calls in %d attempts", made, turned())
	}
}

// A node leaves files, which the run lists and the API serves: what it read, with
// vectors behind embed. What did not change is listed again and not written anew.
func TestNodeLeavesFiles(t *testing.T) {
	s := start(t, nil)
	nodes := `  { id = "public", kind = "filter", from = ["cut"], config = { keep = "!chunk.text.contains('secret')" } },
  { id = "vectors", kind = "embed", from = ["public"] },
  { id = "out", kind = "index", from = ["vectors"] },
  { id = "table", kind = "export", from = ["vectors"] },
  { id = "lines", kind = "export", from = ["cut"], config = { format = "jsonl" } },
`
	d, run := s.flowed("files", nodes, threeSections)
	if d.State != sheaf.DocSucceeded || run.Mode != "nodes" || !strings.Contains(run.Reason, "leaves a file") {
		t.Fatalf("%s, %+v: %+v", d.State, d.Failure, run)
	}
	fetch := func(f api.RunFile, media string) []byte {
		t.Helper()
		resp, err := http.Get(s.base + f.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != media || f.Media != media || int64(len(b)) != f.Bytes {
			t.Fatalf("%s: %d %v, %d bytes of %+v", f.Path, resp.StatusCode, resp.Header, len(b), f)
		}
		stored, err := s.blobStore.Open(t.Context(), f.Key, 0, -1)
		if err != nil {
			t.Fatalf("under its key in the blob store: %v", err)
		}
		defer stored.Close()
		if same, err := io.ReadAll(stored); err != nil || !bytes.Equal(same, b) {
			t.Errorf("under its key in the blob store: %d bytes, %v", len(same), err)
		}
		return b
	}
	files := func(run api.FlowRun, id string) []api.RunFile {
		t.Helper()
		n := nodeOf(t, run, id)
		if n.State != "done" || len(n.Files) != 1 {
			t.Fatalf("the node %s is %+v", id, n)
		}
		return n.Files
	}
	table, lines := files(run, "table"), files(run, "lines")
	fetch(table[0], "application/vnd.apache.parquet")
	stored, err := artifact.Load(t.Context(), s.blobStore, table[0].Key)
	if err != nil || len(stored.Chunks) != 2 || table[0].Chunks != 2 || stored.Header.DocumentID != d.ID {
		t.Fatalf("the Parquet file has %+v: %v", stored, err)
	}
	for i, v := range stored.Vectors {
		if len(v) != stored.Header.Dim || len(v) == 0 || stored.Header.ModelID == "" || strings.Contains(stored.Chunks[i].Text, "secret") {
			t.Errorf("chunk %d, %q, has a vector of %d", i, stored.Chunks[i].Text, len(v))
		}
	}
	n := 0
	for sc := bufio.NewScanner(bytes.NewReader(fetch(lines[0], "application/x-ndjson"))); sc.Scan(); n++ {
		var line map[string]any
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil || line["document_id"] != d.ID || line["text"] == "" || line["pages"] == nil || line["id"] != nil || line["range_id"] != nil || line["vector"] != nil {
			t.Errorf("a line is %s: %v", sc.Bytes(), err)
		}
	}
	if n != 3 {
		t.Errorf("%d lines", n)
	}
	s.must("doc", "reparse", d.ID, "--wait")
	if _, run = s.ran(d.ID); files(run, "table")[0].Key != table[0].Key || files(run, "lines")[0].Key != lines[0].Key {
		t.Errorf("files were written anew: %+v", run)
	}
	// Another format of one: that one alone.
	var v api.FlowAnswer
	s.post("/v1/flows", map[string]any{"toml": "name = \"files\"\nnode = [\n  { id = \"read\", kind = \"parse\" },\n  { id = \"cut\", kind = \"chunk\", from = [\"read\"], config = { chunk_token_num = 32 } },\n" + strings.Replace(nodes, `"jsonl"`, `"parquet"`, 1) + "]\n"}, &v)
	s.must("doc", "reparse", d.ID, "--wait")
	if _, run = s.ran(d.ID); files(run, "lines")[0].Media != "application/vnd.apache.parquet" || nodeOf(t, run, "public").Reused != 1 {
		t.Errorf("%+v", run)
	}
}

// A language model fills a schema, and search filters by what it said at once. It
// is slow, refuses, breaks off and answers nonsense, and nothing that it answered
// is asked again; what its answers lack is asked once more, and then listed.
func TestNodeExtractsByASchema(t *testing.T) {
	t.Parallel()
	model := chattest.Start(t)
	model.Reply(func(instruction, text string) string {
		switch {
		case strings.Contains(text, "secret"):
			return "I must not say."
		case strings.Contains(text, "Feldspar") && !strings.Contains(instruction, "refused"):
			return `{"rock": ["feldspar"], "order": "third"}`
		case strings.Contains(text, "Feldspar"):
			return `{"rock": ["feldspar"], "order": 3}`
		}
		return "```json\n{\"rock\": [\"quartzite\"], \"order\": 1, \"more\": true}\n```"
	})
	s := start(t, func(c *config.Config) {
		c.Chat.URL, c.Chat.Model = model.URL, chattest.Model
		c.Executor.BackoffBase, c.Executor.BackoffJitter = config.Duration(50*time.Millisecond), 0
	})
	model.Next(chattest.None, chattest.CutOff, chattest.Broken)
	nodes := `  { id = "facts", kind = "extract", from = ["cut"], config = { schema = { rock = "list<string>", order = "int" } } },
  { id = "words", kind = "filter", from = ["facts"], config = { keep = "true" } },
  { id = "out", kind = "index", from = ["words"] },
`
	d, _ := s.flowed("facts", nodes, threeSections)
	if d.State != sheaf.DocSucceeded || !slices.ContainsFunc(d.Warnings, func(w sheaf.Warning) bool {
		return w.Code == "extract_refused" && strings.Contains(w.Message, "in two tries")
	}) {
		t.Fatalf("%s: %+v, %v", d.State, d.Failure, d.Warnings)
	}
	if found := s.filtered("Acme", "rock", "quartzite"); len(found) != 1 || !strings.Contains(found[0], "quartzite") {
		t.Errorf("by rock: %q", found)
	}
	if found := s.filtered("Acme", "order", "3"); len(found) != 1 || !strings.Contains(found[0], "Feldspar") {
		t.Errorf("by order: %q", found)
	}
	asked := len(model.Asked())
	if want := 5 + 2; asked != want { // three texts, two of them twice; and the two calls that failed
		t.Errorf("%d questions, want %d: %q", asked, want, model.Asked())
	}

	// A copy of the document, a change of another node, and everything anew ask nothing.
	copied, run := s.flowed("facts", strings.Replace(nodes, `keep = "true"`, `keep = "chunk.tokens > 0"`, 1), threeSections+"\n")
	if copied.State != sheaf.DocSucceeded {
		t.Fatalf("%s: %+v", copied.State, copied.Failure)
	}
	if n := nodeOf(t, run, "facts"); n.State != "reused" && (n.Asked == nil || n.Asked.Calls != 0 || n.Asked.Cached == 0) && n.Reused == 0 {
		t.Errorf("the copy asked: %+v", n)
	}
	s.must("doc", "reparse", d.ID, "--fresh", "--wait")
	if more := len(model.Asked()) - asked; more != 0 {
		t.Errorf("%d questions more for what was answered: %q", more, model.Asked()[asked:])
	}
	if found := s.filtered("Acme", "rock", "quartzite"); len(found) != 2 {
		t.Errorf("after that by rock: %q", found)
	}

	// About the document: one question, whose answer all its chunks carry, and it.
	model.Slow(200 * time.Millisecond)
	model.Next(chattest.Limited)
	about, run := s.flowed("about", strings.Replace(nodes, `order = "int" }`, `order = "int" }, into = "document"`, 1), "# Minutes\n\nThe quartzite was measured.\n\n# More\n\nIt is Acme's, and nobody else's.\n")
	if n := nodeOf(t, run, "facts"); about.State != sheaf.DocSucceeded || about.Metadata["rock"] != "quartzite" || about.Metadata["order"] != "1" {
		t.Errorf("%s with %v: %+v", about.State, about.Metadata, n)
	}
	if found := s.filtered("nobody", "rock", "quartzite"); len(found) != 1 {
		t.Errorf("a chunk that does not say it: %q", found)
	}
}
