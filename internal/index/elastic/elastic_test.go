package elastic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/index"
	"sheaf/internal/index/elastic"
	"sheaf/internal/index/embedded"
	"sheaf/internal/index/indextest"
)

// server is the address of the Elasticsearch for tests.
func server(t testing.TB) string {
	t.Helper()
	u := os.Getenv("SHEAF_TEST_ES_URL")
	if u == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("SHEAF_TEST_ES_URL is not set")
		}
		t.Skip("SHEAF_TEST_ES_URL is not set")
	}
	return u
}

// call sends a request past the index and returns the answer.
func call(t testing.TB, method, url, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode >= 300 && res.StatusCode != http.StatusNotFound {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, data)
	}
	return string(data)
}

// config is that of an index of its own, which is removed at the end.
func config(t testing.TB) elastic.Config {
	c := elastic.Config{
		URLs: []string{server(t)}, Prefix: fmt.Sprintf("sheaf-test-%s", sheaf.NewID()), ModelID: "test@1", Dim: indextest.Dim,
		RefreshEvery: 40 * time.Millisecond,
	}
	t.Cleanup(func() { call(t, http.MethodDelete, c.URLs[0]+"/"+c.Prefix+"-test-1-v1", "") })
	return c
}

func open(t testing.TB, c elastic.Config) *elastic.Index {
	t.Helper()
	x, err := elastic.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func TestContract(t *testing.T) {
	configs := make(map[index.Index]elastic.Config)
	indextest.Run(t, indextest.Engine{
		New: func(t *testing.T) index.Index {
			c := config(t)
			x := open(t, c)
			configs[x] = c
			return x
		},
		Reopen: func(t *testing.T, x index.Index) index.Index {
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, configs[x])
		},
	})
}

// An index that was made before chunks had labels takes those of new chunks.
func TestIndexWithoutLabelFieldsGetsThem(t *testing.T) {
	c := config(t)
	alias := c.Prefix + "-test-1"
	x := open(t, c)
	full := call(t, http.MethodGet, c.URLs[0]+"/"+alias+"/_mapping", "")
	var made map[string]struct {
		Mappings map[string]any `json:"mappings"`
	}
	if err := json.Unmarshal([]byte(full), &made); err != nil {
		t.Fatal(err)
	}
	mappings := made[alias+"-v1"].Mappings
	for _, field := range []string{"language", "keywords", "tags"} {
		delete(mappings["properties"].(map[string]any), field)
	}
	old, err := json.Marshal(map[string]any{"mappings": mappings, "aliases": map[string]any{alias: map[string]any{"is_write_index": true}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	call(t, http.MethodDelete, c.URLs[0]+"/"+alias+"-v1", "")
	call(t, http.MethodPut, c.URLs[0]+"/"+alias+"-v1", string(old))
	x = open(t, c)
	e := index.Entry{
		Chunk:    sheaf.Chunk{ID: "c", RangeID: "r", DocumentID: "d", Text: "pump", Language: "en", Keywords: []string{"Valve"}, Tags: []sheaf.Tag{{Name: "Repair", Weight: 1}}},
		TenantID: "t", DatasetID: "s", Vector: indextest.Vector(1),
	}
	if err := x.Write(t.Context(), []index.Entry{e}); err != nil {
		t.Fatal(err)
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "pump", K: 5, Languages: []string{"en"}, Keywords: []string{"valve"}, Tags: []string{"repair"}})
	if err != nil || len(got.Text) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// An index of format 1 answers at once, and as one of today when its documents
// have got their terms.
func TestIndexOfFormat1IsMigrated(t *testing.T) {
	c := config(t)
	alias := c.Prefix + "-test-1"
	toBody := `{"type": "keyword", "index": false, "doc_values": false, "copy_to": "body"}`
	call(t, http.MethodPut, c.URLs[0]+"/"+alias+"-v1", `{"aliases": {"`+alias+`": {"is_write_index": true}}, "mappings": {"dynamic": "strict", "_routing": {"required": true},
		"_meta": {"model": "test@1", "dim": 48, "format": 1}, "properties": {"tenant": {"type": "keyword"}, "dataset": {"type": "keyword"}, "document": {"type": "keyword"},
		"range": {"type": "keyword"}, "media_type": {"type": "keyword"}, "pages": {"type": "integer"}, "metadata": {"type": "flattened"}, "columns": {"type": "flattened"},
		"name": `+toBody+`, "headings": `+toBody+`, "text": `+toBody+`, "chunk": {"type": "object", "enabled": false},
		"body": {"type": "text", "fields": {"cjk": {"type": "text", "analyzer": "cjk"}}}, "vector": {"type": "dense_vector", "dims": 48, "index": true, "similarity": "cosine"}}}}`)
	var bulk strings.Builder
	const documents = 450 // more than one batch
	for i := range documents {
		fmt.Fprintf(&bulk, `{"create": {"_id": "c%d", "routing": "t"}}
{"tenant": "t", "dataset": "s", "document": "d", "range": "r", "name": "Coca-Cola.pdf", "headings": ["Balance Sheets"], "text": "assets number n%d", "chunk": {"id": "c%d", "document_id": "d", "range_id": "r", "heading_path": ["Balance Sheets"]}}
`, i, i, i)
	}
	call(t, http.MethodPost, c.URLs[0]+"/"+alias+"/_bulk?refresh=true", bulk.String())
	x := open(t, c)
	found := func(q string, n int) bool {
		t.Helper()
		got, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: q, K: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Text) == n && n > 0 && got.Text[0].Chunk.Text == "" {
			t.Errorf("%s: a chunk without text", q)
		}
		return len(got.Text) == n
	}
	for _, q := range []string{"balance", `"assets number"`} {
		if !found(q, documents) {
			t.Errorf("%s is not found in all documents while they are migrated", q)
		}
	}
	for deadline := time.Now().Add(time.Minute); !found("cocacola", documents); {
		if time.Now().After(deadline) {
			t.Fatal("the documents did not get their terms in a minute")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for q, n := range map[string]int{"balance": documents, `"assets number"`: documents, "n77": 1} {
		if !found(q, n) {
			t.Errorf("%s is not found in %d documents afterwards", q, n)
		}
	}
}

// Both indexes give the same hits with the same scores.
func TestRanksAsTheEmbeddedIndex(t *testing.T) {
	far := open(t, config(t))
	near, err := embedded.Open(t.Context(), embedded.Config{Path: filepath.Join(t.TempDir(), "index.db"), ModelID: "test@1", Dim: indextest.Dim})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	words := strings.Fields("revenue cash flow FY2018 2018 net income statement Coca-Cola COCACOLA X-200 the of 設定方法 密码 straße Überdruck deviceId camera " + strings.Repeat("filler ", 10))
	r := rand.New(rand.NewPCG(3, 4))
	text := func(n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteString(words[r.IntN(len(words))] + " ")
		}
		return b.String()
	}
	all := entries(400, "")
	for i := range all {
		all[i].Name, all[i].Chunk.Text, all[i].Chunk.HeadingPath = text(4)+".pdf", text(150), []string{text(6), "Net Cash Flow"}
		all[i].Chunk.Keywords = []string{text(3)}
	}
	for _, x := range []index.Index{near, far} {
		if err := errors.Join(x.Write(t.Context(), all), x.Refresh(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []string{"cash flow", "FY2018 revenue", `"cash flow" income`, "Coca Cola", "COCACOLA", "NCF", "CAM 2018", "設定方法", "密", "strasse", "ueberdruck", "überdruck", "device",
		"X-200", "What is the net income of 2018?", "nothing of it", "filler"} {
		got := map[index.Index]map[string]float64{}
		for _, x := range []index.Index{near, far} {
			c, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: q, K: 1000})
			if err != nil {
				t.Fatal(err)
			}
			got[x] = map[string]float64{}
			for _, h := range c.Text {
				got[x][h.Chunk.ID] = h.Score
			}
		}
		if len(got[near]) != len(got[far]) || len(got[near]) == 0 && q != "nothing of it" && q != "ueberdruck" {
			t.Errorf("%s: %d hits here and %d there", q, len(got[near]), len(got[far]))
		}
		for id, score := range got[near] {
			if there := got[far][id]; math.Abs(score-there) > 1e-4*score {
				t.Fatalf("%s: %s scores %g here and %g there", q, id, score, there)
			}
		}
	}
}

// Eight bits a value do not tell such vectors apart.
func TestNearestOfMuchAlikeAreExact(t *testing.T) {
	x := open(t, config(t))
	all := entries(200, "text")
	first := indextest.Vector(0)
	cosines := map[string]float64{}
	for i := range all {
		for j, f := range indextest.Vector(uint64(i)) {
			all[i].Vector[j] = first[j] + f/50
		}
		var dot, square float64
		for j, f := range all[i].Vector {
			dot += float64(f) * float64(first[j])
			square += float64(f) * float64(f)
		}
		cosines[all[i].Chunk.ID] = dot / math.Sqrt(square)
	}
	if err := x.Write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := x.Search(t.Context(), index.Query{TenantID: "t", Vector: first, K: 60})
	if err != nil || len(got.Vector) != 60 {
		t.Fatalf("%d hits, %v; want 60", len(got.Vector), err)
	}
	last := math.Inf(1)
	for i, h := range got.Vector {
		if c := cosines[h.Chunk.ID]; math.Abs(h.Score-c) > 1e-6 || c > last+1e-6 {
			t.Errorf("hit %d, %s: score %.7f, cosine %.7f, that of the hit before %.7f", i, h.Chunk.ID, h.Score, c, last)
		} else {
			last = c
		}
	}
}

// A server that does not know how to compare twice is not asked to.
func TestOldServersAreNotAskedToRescore(t *testing.T) {
	c := config(t)
	asked := false
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		asked = asked || bytes.Contains(body, []byte("rescore_vector"))
		return r.URL.Path == "/" && reply(w, http.StatusOK, `{"version": {"number": "8.17.4"}}`)
	})}
	x := open(t, c)
	if err := x.Write(t.Context(), entries(3, "text")); err != nil {
		t.Fatal(err)
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := x.Search(t.Context(), index.Query{TenantID: "t", Vector: indextest.Vector(1), K: 1})
	if err != nil || len(got.Vector) != 1 || got.Vector[0].Chunk.ID != "doc-r-1" || asked {
		t.Errorf("%+v, %v; asked to rescore: %v", got, err, asked)
	}
}

func failure(t *testing.T, err error, code string, says ...string) *sheaf.Failure {
	t.Helper()
	f, ok := errors.AsType[*sheaf.Failure](err)
	if !ok || f.Code != code {
		t.Fatalf("error %v, want failure %s", err, code)
	}
	for _, s := range append(says, ":") {
		if !strings.Contains(f.Message, s) {
			t.Errorf("%q does not say %q", f.Message, s)
		}
	}
	return f
}

func entries(n int, text string) []index.Entry {
	var all []index.Entry
	for i := range n {
		all = append(all, index.Entry{
			Chunk:    sheaf.Chunk{ID: fmt.Sprintf("doc-r-%d", i), RangeID: "doc-r", DocumentID: "doc", Text: text, Pages: []int{1}},
			TenantID: "t", DatasetID: "d", Vector: indextest.Vector(uint64(i)),
		})
	}
	return all
}

// proxy stands before the real server and lets between change what passes:
// it answers itself when it returns true.
func proxy(t *testing.T, between func(w http.ResponseWriter, r *http.Request, body []byte) bool) string {
	t.Helper()
	target, err := url.Parse(server(t))
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if between(w, r, body) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func reply(w http.ResponseWriter, status int, body string) bool {
	w.Header().Set("X-Elastic-Product", "Elasticsearch")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return true
}

func TestIndexOfAnotherModelIsRefused(t *testing.T) {
	c := config(t)
	open(t, c)
	other := c
	other.Dim++
	_, err := elastic.Open(t.Context(), other)
	failure(t, err, "index_model_mismatch", "48", "49", "rebuild")
	other = c
	other.ModelID = "test.1" // another model whose index would have another name
	if x, err := elastic.Open(t.Context(), other); err != nil {
		t.Errorf("another model has an index of its own: %v", err)
	} else {
		_ = x.Close()
		call(t, http.MethodDelete, c.URLs[0]+"/"+c.Prefix+"-test.1-v1", "")
	}
	other.ModelID = "test/1" // another model under the same name
	_, err = elastic.Open(t.Context(), other)
	failure(t, err, "index_model_mismatch", "test@1", "test/1")
}

func TestManyProcessesMakeTheIndexAtOnce(t *testing.T) {
	c := config(t)
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			x, err := elastic.Open(context.Background(), c)
			if err != nil {
				t.Error(err)
				return
			}
			if err := x.Ping(context.Background()); err != nil {
				t.Error(err)
			}
			_ = x.Close()
		})
	}
	wait.Wait()
}

func TestWhatIsNotElasticsearchIsRefused(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"web server": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") },
		"not found":  func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"other JSON": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"version": {"number": "2.11.0", "distribution": "opensearch"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(handler)
			defer s.Close()
			_, err := elastic.Open(t.Context(), elastic.Config{URLs: []string{s.URL}, ModelID: "m", Dim: 8})
			failure(t, err, "index_not_elasticsearch", s.URL, "check the URL")
		})
	}
	for _, u := range []string{"localhost:9200", "ftp://x", "http://", "::"} {
		_, err := elastic.Open(t.Context(), elastic.Config{URLs: []string{u}, ModelID: "m", Dim: 8})
		failure(t, err, "index_url_invalid")
	}
	_, err := elastic.Open(t.Context(), elastic.Config{ModelID: "m", Dim: 8})
	failure(t, err, "index_url_missing")
	_, err = elastic.Open(t.Context(), elastic.Config{URLs: []string{"https://user:hunter2@127.0.0.1:1"}, CAFile: "/nowhere/ca.pem", ModelID: "m", Dim: 8})
	failure(t, err, "index_ca_unreadable", "/nowhere/ca.pem")
}

// A server behind a path, with a certificate of its own authority.
func TestOwnAuthority(t *testing.T) {
	var seen atomic.Value
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.CompareAndSwap(nil, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that is refused
	file := func(data []byte) string {
		path := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := elastic.Config{URLs: []string{s.URL + "/es/"}, ModelID: "m", Dim: 8, Attempts: 1}
	x := open(t, c)
	failure(t, x.Ping(t.Context()), "index_unreachable", "certificate")
	c.CAFile = file([]byte("not a certificate"))
	_, err := elastic.Open(t.Context(), c)
	failure(t, err, "index_ca_invalid", c.CAFile, "PEM")
	c.CAFile = file(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	_, err = elastic.Open(t.Context(), c)
	failure(t, err, "index_not_elasticsearch")
	if seen.Load() != "/es/" {
		t.Errorf("asked for %v", seen.Load())
	}
}

func TestAServerThatIsDownIsWaitedFor(t *testing.T) {
	c := config(t)
	var down atomic.Bool
	down.Store(true)
	real := c.URLs
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		if down.Load() {
			panic(http.ErrAbortHandler) // the connection breaks off
		}
		return false
	})}
	c.Attempts = 2
	x := open(t, c) // does not fail
	err := x.Write(t.Context(), entries(1, "x"))
	if !errors.Is(err, sheaf.ErrUnavailable) {
		t.Fatalf("a write without server: %v", err)
	}
	if f := failure(t, err, "index_unreachable", "check the URL"); !f.Retryable {
		t.Error("it is not retryable")
	}
	down.Store(false)
	if err := x.Write(t.Context(), entries(1, "x")); err != nil {
		t.Fatalf("it does not recover: %v", err)
	}
	c.URLs = []string{"http://user:hunter2@127.0.0.1:1"}
	if err := open(t, c).Ping(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("nobody listens: %v", err)
	}
	c.URLs = real
}

func TestCredentials(t *testing.T) {
	c := config(t)
	var seen atomic.Value
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		seen.Store(r.Header.Get("Authorization"))
		if !strings.EqualFold(r.Header.Get("Authorization"), "ApiKey good") {
			return reply(w, 401, `{"error":{"type":"security_exception","reason":"unable to authenticate"},"status":401}`)
		}
		r.Header.Del("Authorization")
		return false
	})}
	c.APIKey = "bad"
	_, err := elastic.Open(t.Context(), c)
	if f := failure(t, err, "index_unauthorized", "API key"); !f.Retryable || !errors.Is(err, sheaf.ErrMisconfigured) || strings.Contains(err.Error(), "ApiKey") {
		t.Errorf("failure %+v", f)
	}
	c.APIKey, c.Username, c.Password = "", "u", "p"
	_, err = elastic.Open(t.Context(), c)
	failure(t, err, "index_unauthorized")
	if seen.Load() != "Basic dTpw" {
		t.Errorf("sent %v", seen.Load())
	}
	c.APIKey = "good"
	open(t, c)
}

func TestBusyItemsAreSentAgain(t *testing.T) {
	c := config(t)
	var bulks, sent atomic.Int64
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if !strings.HasSuffix(r.URL.Path, "/_bulk") {
			return false
		}
		n := int64(bytes.Count(body, []byte("\n")) / 2)
		sent.Add(n)
		switch bulks.Add(1) {
		case 1: // the whole request is refused
			return reply(w, 429, `{"error":{"type":"es_rejected_execution_exception","reason":"queue full"},"status":429}`)
		case 2: // item by item: one is in, one was in before, the others are not
			var items []string
			for i := range n {
				status := []int{201, 409, 429, 503}[min(i, 2+i%2)]
				items = append(items, fmt.Sprintf(`{"create":{"status":%d}}`, status))
			}
			return reply(w, 200, `{"errors":true,"items":[`+strings.Join(items, ",")+`]}`)
		case 3: // half of the answer
			return reply(w, 200, `{"errors":false,"items":[]}`)
		}
		return false
	})}
	x := open(t, c)
	if err := x.Write(t.Context(), entries(10, "busy")); err != nil {
		t.Fatal(err)
	}
	if bulks.Load() != 4 || sent.Load() != 10+10+8+8 {
		t.Errorf("%d requests with %d items", bulks.Load(), sent.Load())
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Count(t.Context(), "t", []string{"doc-r"}); err != nil || n["doc-r"] != 8 {
		t.Errorf("count %v, %v, want what really went in", n, err)
	}
}

func TestWhatStaysBusyOrIsRefusedIsAnError(t *testing.T) {
	c := config(t)
	var answer atomic.Value
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if !strings.HasSuffix(r.URL.Path, "/_bulk") {
			return false
		}
		a, _ := answer.Load().(string) // the last item fails, the others are in
		good := strings.Repeat(`{"create":{"status":201}},`, bytes.Count(body, []byte("\n"))/2-1)
		return reply(w, 200, `{"errors":true,"items":[`+good+a+`]}`)
	})}
	c.Attempts = 3
	x := open(t, c)
	item := `{"create":{"status":%d,"error":{"type":"%s","reason":"because"}}}`
	for _, test := range []struct {
		status int
		kind   string
		code   string
		is     error
	}{
		{429, "es_rejected_execution_exception", "index_busy", sheaf.ErrUnavailable},
		{503, "unavailable_shards_exception", "index_busy", sheaf.ErrUnavailable},
		{400, "document_parsing_exception", "index_rejected", sheaf.ErrInvalid},
		{403, "cluster_block_exception", "index_read_only", sheaf.ErrReadOnly},
		{429, "cluster_block_exception", "index_read_only", sheaf.ErrReadOnly},
		{404, "index_not_found_exception", "index_missing", sheaf.ErrUnavailable},
	} {
		answer.Store(fmt.Sprintf(item, test.status, test.kind))
		err := x.Write(t.Context(), entries(2, "x"))
		if !errors.Is(err, test.is) {
			t.Errorf("%d %s: %v", test.status, test.kind, err)
		}
		failure(t, err, test.code)
	}
}

func TestATimeoutIsNoSuccess(t *testing.T) {
	c := config(t)
	var slow atomic.Bool
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if slow.Load() {
			select { // the answer does not come while anybody waits
			case <-r.Context().Done():
			case <-stop:
			}
			return true
		}
		return false
	})}
	c.RequestTimeout, c.Attempts = 300*time.Millisecond, 2
	x, err := elastic.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Close() }()
	for x.Refresh(t.Context()) != nil { // making the index may take longer than the timeout
		if t.Context().Err() != nil {
			t.Fatal("the index is not made")
		}
	}
	slow.Store(true)
	start := time.Now()
	if err := x.Write(t.Context(), entries(1, "x")); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("Write: %v", err)
	}
	if _, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "x", K: 1}); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("Search: %v", err)
	}
	if _, err := x.Count(t.Context(), "t", []string{"r"}); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("Count: %v", err)
	}
	if err := x.DeleteDocument(t.Context(), "t", "d"); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("DeleteDocument: %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestPartialAnswersAreErrors(t *testing.T) {
	c := config(t)
	c.Attempts = 2
	var path, answer atomic.Value
	path.Store("-")
	c.URLs = []string{proxy(t, func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		p, _ := path.Load().(string)
		a, _ := answer.Load().(string)
		return strings.HasSuffix(r.URL.Path, p) && reply(w, 200, a)
	})}
	x := open(t, c)
	path.Store("/_msearch")
	for _, a := range []string{
		`{"responses":[{"timed_out":true,"hits":{"hits":[]},"status":200}]}`,
		`{"responses":[{"timed_out":false,"_shards":{"failed":1},"hits":{"hits":[]},"status":200}]}`,
		`{"responses":[]}`,
		`{"responses":[{"status":503,"error":{"type":"search_phase_execution_exception","reason":"x"}}]}`,
		`not JSON`,
	} {
		answer.Store(a)
		if _, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "x", K: 1}); !errors.Is(err, sheaf.ErrUnavailable) {
			t.Errorf("%s: %v", a, err)
		}
	}
	path.Store("/_refresh")
	answer.Store(`{"_shards":{"failed":1}}`)
	if err := x.Refresh(t.Context()); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("Refresh: %v", err)
	}
}

func TestAReadOnlyClusterSaysSo(t *testing.T) {
	c := config(t)
	x := open(t, c)
	settings := c.URLs[0] + "/" + c.Prefix + "-test-1-v1/_settings"
	for _, block := range []string{"index.blocks.write", "index.blocks.read_only_allow_delete"} { // the second is the flood stage of the disk
		call(t, http.MethodPut, settings, `{"`+block+`": true}`)
		err := x.Write(t.Context(), entries(1, "x"))
		if !errors.Is(err, sheaf.ErrReadOnly) {
			t.Errorf("%s: %v", block, err)
		}
		failure(t, err, "index_read_only", "disk space")
		call(t, http.MethodPut, settings, `{"`+block+`": null}`)
	}
	if err := x.Write(t.Context(), entries(1, "x")); err != nil {
		t.Errorf("after the block: %v", err)
	}
}

func TestAMissingIndexIsNotGuessed(t *testing.T) {
	c := config(t)
	c.Attempts = 2
	x := open(t, c)
	name := c.URLs[0] + "/" + c.Prefix + "-test-1-v1"
	call(t, http.MethodDelete, name, "")
	err := x.Write(t.Context(), entries(1, "x"))
	failure(t, err, "index_missing", "rebuild")
	// The next call makes it again, with the right mapping.
	if err := x.Write(t.Context(), entries(1, "found again")); err != nil {
		t.Fatal(err)
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := x.Search(t.Context(), index.Query{TenantID: "t", Text: "found", Vector: indextest.Vector(0), K: 1}); err != nil || len(c.Text) != 1 || len(c.Vector) != 1 {
		t.Errorf("found %+v, %v", c, err)
	}
	call(t, http.MethodDelete, name+"/_alias/"+c.Prefix+"-test-1", "")
	_, err = x.Search(t.Context(), index.Query{TenantID: "t", Text: "found", K: 1})
	failure(t, err, "index_missing", "alias")
	if err := open(t, c).Ping(t.Context()); err != nil { // Open finds the index and gives it its alias back
		t.Errorf("after the alias was lost: %v", err)
	}
}

func TestBulksAreBounded(t *testing.T) {
	c := config(t)
	var mu sync.Mutex
	var items, sizes []int
	c.URLs = []string{proxy(t, func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if strings.HasSuffix(r.URL.Path, "/_bulk") {
			mu.Lock()
			defer mu.Unlock()
			items, sizes = append(items, bytes.Count(body, []byte("\n"))/2), append(sizes, len(body))
		}
		return false
	})}
	x := open(t, c)
	if err := x.Write(t.Context(), entries(2100, "short")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(items, []int{1000, 1000, 100}) {
		t.Errorf("bulks of %v entries", items)
	}
	items, sizes = nil, nil
	long := entries(5, strings.Repeat("a long text ", 125000)) // 3 MB each with its terms
	for i := range long {
		long[i].Chunk.ID = fmt.Sprint("long-", i)
		long[i].Chunk.RangeID = "long"
	}
	if err := x.Write(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if len(sizes) != 3 || slices.Max(sizes) > 8<<20 {
		t.Errorf("bulks of %v bytes", sizes)
	}
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Count(t.Context(), "t", []string{"doc-r", "long"}); err != nil || n["doc-r"] != 2100 || n["long"] != 5 {
		t.Errorf("counts %v, %v", n, err)
	}
}

// Documents that end together need one segment, not one each. Who asks while a
// refresh is under way may have written after it began, and gets the next.
func TestRefreshesAreShared(t *testing.T) {
	c := config(t)
	c.RefreshEvery = -1 // none but those that are asked for
	var asked atomic.Int64
	begun, release := make(chan struct{}, 10), make(chan struct{})
	c.URLs = []string{proxy(t, func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if strings.HasSuffix(r.URL.Path, "/_refresh") {
			if asked.Add(1) == 1 {
				begun <- struct{}{}
				<-release
			}
		}
		return false
	})}
	x := open(t, c)
	if err := x.Write(t.Context(), entries(1, "first")); err != nil {
		t.Fatal(err)
	}
	const callers = 50
	errs := make(chan error, callers+1)
	refresh := func() { errs <- x.Refresh(t.Context()) }
	go refresh()
	<-begun
	var waiting sync.WaitGroup
	for range callers {
		waiting.Add(1)
		go func() { waiting.Done(); refresh() }()
	}
	waiting.Wait()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.Refresh(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who is gone gets %v", err)
	}
	close(release)
	for range callers + 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// All but those who had not asked yet when the second began came with it.
	if n := asked.Load(); n < 2 || n > callers/2 {
		t.Errorf("%d callers made %d refreshes", callers+1, n)
	}
}

// refreshes is how often a shard of the index was refreshed.
func refreshes(t *testing.T, c elastic.Config) int {
	t.Helper()
	var stats struct {
		All struct {
			Primaries struct {
				Refresh struct {
					Total int `json:"external_total"`
				} `json:"refresh"`
			} `json:"primaries"`
		} `json:"_all"`
	}
	if err := json.Unmarshal([]byte(call(t, http.MethodGet, server(t)+"/"+c.Prefix+"-test-1/_stats/refresh", "")), &stats); err != nil {
		t.Fatal(err)
	}
	return stats.All.Primaries.Refresh.Total
}

// rangeOf is one range result.
func rangeOf(id string, n int) []index.Entry {
	all := entries(n, "range "+id)
	for i := range all {
		all[i].Chunk.ID, all[i].Chunk.RangeID = fmt.Sprintf("%s-%d", id, i), id
	}
	return all
}

// One refresh in a period serves all publications of all processes, and each
// sees what it wrote before. With several shards it is one for each.
func TestOneRefreshServesAllPublications(t *testing.T) {
	if testing.Short() {
		t.Skip("measures some seconds")
	}
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint("shards", shards), func(t *testing.T) {
			c := config(t)
			c.RefreshEvery, c.Shards = time.Second, shards
			const processes, publishers, rounds = 3, 8, 4
			var all []*elastic.Index
			for range processes {
				all = append(all, open(t, c))
			}
			begun, before := time.Now(), refreshes(t, c)
			var waited, published atomic.Int64
			var wait sync.WaitGroup
			for p, x := range all {
				for i := range publishers {
					wait.Go(func() {
						ctx := index.WithWaiting(t.Context(), func() { waited.Add(1) })
						for r := range rounds {
							id := fmt.Sprintf("r%d-%d-%d", p, i, r)
							mine := rangeOf(id, 5)
							for j := range mine {
								mine[j].TenantID = fmt.Sprint("t", i)
							}
							if err := x.Write(ctx, mine); err != nil {
								t.Error(err)
								return
							}
							if err := x.Refresh(ctx); err != nil {
								t.Error(err)
								return
							}
							if n, err := x.Count(ctx, fmt.Sprint("t", i), []string{id}); err != nil || n[id] != 5 {
								t.Errorf("%d of 5 entries can be seen after the refresh, %v", n[id], err)
								return
							}
							published.Add(1)
						}
					})
				}
			}
			wait.Wait()
			took, made := time.Since(begun), refreshes(t, c)-before
			// Each process found a quiet index once, and each shard has its own.
			most := shards * (int(took/c.RefreshEvery) + 2 + processes)
			t.Logf("%d publications of %d processes in %v: %d refreshes of %d shards, %d waits", published.Load(), processes, took.Round(time.Millisecond), made, shards, waited.Load())
			if made > most {
				t.Errorf("%d refreshes within %v, want %d at most", made, took, most)
			}
			if waited.Load() == 0 {
				t.Error("nobody was told that it waits")
			}
		})
	}
}

// A document that comes alone is searchable at once.
func TestLoneDocumentDoesNotWaitForARefresh(t *testing.T) {
	c := config(t)
	c.RefreshEvery = time.Hour
	x := open(t, c)
	ctx := index.WithConcurrency(t.Context(), 16)
	if err := x.Write(ctx, rangeOf("alone", 3)); err != nil {
		t.Fatal(err)
	}
	if err := x.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := x.Count(ctx, "t", []string{"alone"}); err != nil || n["alone"] != 3 {
		t.Errorf("%d of 3 entries can be seen, %v", n["alone"], err)
	}
}

// A server that makes no refresh, since somebody set its interval, is asked for one.
func TestRefreshThatDoesNotComeIsAskedFor(t *testing.T) {
	c := config(t)
	c.RefreshEvery = 300 * time.Millisecond
	x := open(t, c)
	call(t, http.MethodPut, server(t)+"/"+c.Prefix+"-test-1/_settings", `{"index":{"refresh_interval":"-1"}}`)
	for _, id := range []string{"first", "second"} {
		if err := x.Write(t.Context(), rangeOf(id, 2)); err != nil {
			t.Fatal(err)
		}
		if err := x.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := x.Count(t.Context(), "t", []string{id}); err != nil || n[id] != 2 {
			t.Errorf("%s: %d of 2 entries can be seen, %v", id, n[id], err)
		}
	}
}

// Ranges that are written at once go in few requests. One that Elasticsearch
// refuses fails alone.
func TestRangesShareBulksAndFailAlone(t *testing.T) {
	c := config(t)
	var bulks, items atomic.Int64
	c.URLs = []string{proxy(t, func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if strings.HasSuffix(r.URL.Path, "/_bulk") {
			bulks.Add(1)
			items.Add(int64(bytes.Count(body, []byte("\n")) / 2))
			if i := bytes.Index(body, []byte(`"_id":"r7-3"`)); i >= 0 { // what the field does not take
				copy(body[i+bytes.Index(body[i:], []byte(`"pages":[1]`)):], `"pages":"q"`)
			}
		}
		return false
	})}
	x := open(t, c)
	const ranges, chunks = 40, 15
	ctx := index.WithConcurrency(t.Context(), ranges)
	errs := make([]error, ranges)
	var wait sync.WaitGroup
	for i := range ranges {
		wait.Go(func() {
			errs[i] = x.Write(ctx, rangeOf(fmt.Sprint("r", i), chunks))
		})
	}
	wait.Wait()
	for i, err := range errs {
		if i == 7 {
			failure(t, err, "index_rejected", "r7-3")
		} else if err != nil {
			t.Errorf("range %d: %v", i, err)
		}
	}
	if n := bulks.Load(); n > 12 || items.Load() != ranges*chunks {
		t.Errorf("%d requests with %d entries", n, items.Load())
	}
	t.Logf("%d ranges in %d requests", ranges, bulks.Load())
	if err := x.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range ranges {
		ids = append(ids, fmt.Sprint("r", i))
	}
	counts, err := x.Count(t.Context(), "t", ids)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if want := chunks; i != 7 && counts[id] != want {
			t.Errorf("range %d has %d entries, want %d", i, counts[id], want)
		}
	}
}

// Vectors are compared one by one until there are many, and are found before
// and after.
func TestVectorsGetAGraphOnceThereAreMany(t *testing.T) {
	c := config(t)
	c.GraphFrom = 100
	x := open(t, c)
	kind := func() string {
		var mappings map[string]struct {
			Mappings struct {
				Properties struct {
					Vector struct {
						Options struct{ Type string } `json:"index_options"`
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(call(t, http.MethodGet, server(t)+"/"+c.Prefix+"-test-1/_mapping", "")), &mappings); err != nil {
			t.Fatal(err)
		}
		for _, m := range mappings {
			return m.Mappings.Properties.Vector.Options.Type
		}
		return ""
	}
	find := func(n int) {
		t.Helper()
		if err := x.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			got, err := x.Search(t.Context(), index.Query{TenantID: "t", Vector: indextest.Vector(uint64(i)), K: 1})
			if err != nil || len(got.Vector) != 1 {
				t.Fatalf("vector %d: %+v, %v", i, got, err)
			}
		}
	}
	write := func(id string, n int) {
		t.Helper()
		if err := x.Write(t.Context(), rangeOf(id, n)); err != nil {
			t.Fatal(err)
		}
	}
	write("few", 60)
	find(5)
	if got := kind(); got != "int8_flat" {
		t.Errorf("a small index has %s", got)
	}
	write("more", 60)
	find(1)
	write("last", 20)
	find(5)
	if got := kind(); got != "int8_hnsw" {
		t.Errorf("a large index has %s", got)
	}
	if n, err := x.Count(t.Context(), "t", []string{"few", "more", "last"}); err != nil || n["few"]+n["more"]+n["last"] != 140 {
		t.Errorf("%v, %v", n, err)
	}
}
