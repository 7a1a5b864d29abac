package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/openaistore"
	"sheaf/samples"
)

// OpenAI's clients take files through the whole cycle; what is not valid is
// refused in their words; an expired store is not searched.
func TestOpenAIClients(t *testing.T) {
	t.Parallel()
	folder := clients(t)
	s := start(t, func(c *config.Config) {
		c.Server.Auth, c.Server.Interfaces = true, []string{"openai"}
		c.Parser.UnitTimeout = config.Duration(time.Minute)
	})
	writer := s.tenant("alpha", "write", sheaf.Quota{})
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "handbook.pdf")
	if err := os.WriteFile(path, pdf, 0o600); err != nil {
		t.Fatal(err)
	}
	python := exec.CommandContext(t.Context(), "python3", filepath.Join("testdata", "openai_client.py"), s.base, writer.key, "wrong", path)
	python.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(folder, "python"), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := python.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	other := s.tenant("beta", "write", sheaf.Quota{})
	node := exec.CommandContext(t.Context(), "node", filepath.Join("testdata", "openai_client.mjs"), folder, s.base, other.key)
	if out, err := node.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	refusesOpenAI(t, s.tenant("gamma", "write", sheaf.Quota{Documents: 3}), s.withKey("gamma", "read"), other)
}

// requestsToV1 sends what an interface asks /v1 to the server, and counts it.
type requestsToV1 struct {
	base string
	n    atomic.Int64
}

func (c *requestsToV1) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	to, err := url.Parse(c.base + r.URL.RequestURI())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL, r.Host = to, to.Host
	return http.DefaultTransport.RoundTrip(r)
}

// A file that several attach to a store at one moment is there once, also when it
// was taken out just before. A batch of 2,000 files, the first time and again,
// takes as many requests to /v1 as one of ten, but for each 500 ids that are
// looked up.
func TestOpenAIFilesAreAttachedOnceAndManyAtOnce(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Executor.Workers = 2 })
	v1 := &requestsToV1{base: s.base}
	mux := http.NewServeMux()
	for pattern, handler := range openaistore.Routes(v1) {
		mux.Handle(pattern, handler)
	}
	front := httptest.NewServer(mux)
	defer front.Close()
	client := newClient(front.URL, "")
	type object struct {
		ID         string
		Status     string
		FileCounts struct{ Total, Completed int } `json:"file_counts"`
	}
	ask := func(method, path string, in any) (o object) {
		t.Helper()
		if err := client.call(t.Context(), method, "/openai/v1"+path, in, &o); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return o
	}
	s.newDataset("openai-files", false)
	hold := func(names []string) (ids []string) {
		t.Helper()
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		for _, name := range names {
			part, err := w.CreateFormFile("file", name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(part, "# %s\n\nThe heron stands in the reed.\n", name)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		_, answer := s.ask("POST", "/v1/datasets/openai-files/documents?hold=true", w.FormDataContentType(), form.Bytes())
		var out struct{ Documents []sheaf.Document }
		if err := json.Unmarshal([]byte(answer), &out); err != nil || len(out.Documents) != len(names) {
			t.Fatalf("%v: %s", err, answer)
		}
		for _, d := range out.Documents {
			ids = append(ids, "file-"+d.ID)
		}
		return ids
	}
	one := hold([]string{"one.md"})[0]
	store := ask("POST", "/vector_stores", map[string]any{"name": "once"})
	at := "/vector_stores/" + store.ID
	for round := range 3 {
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				if i == 7 { // in a batch of its own
					return client.call(t.Context(), "POST", "/openai/v1"+at+"/file_batches", map[string]any{"file_ids": []string{one}}, nil)
				}
				return client.call(t.Context(), "POST", "/openai/v1"+at+"/files", map[string]any{"file_id": one, "attributes": map[string]any{"n": i}}, nil)
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		var list struct{ Data []object }
		if err := client.call(t.Context(), "GET", "/openai/v1"+at+"/files", nil, &list); err != nil || len(list.Data) != 1 || list.Data[0].ID != one {
			t.Fatalf("attached eight times at once: %v %+v", err, list)
		}
		if round < 2 {
			ask("DELETE", at+"/files/"+one, nil)
		}
	}
	ask("DELETE", "/files/"+one, nil)
	if n := ask("GET", at, nil).FileCounts.Total; n != 0 {
		t.Errorf("%d files are left of one that was deleted", n)
	}

	var files []string
	for from := 0; from < 2000; from += 1000 {
		names := make([]string, 1000)
		for i := range names {
			names[i] = fmt.Sprintf("bird%d.md", from+i)
		}
		files = append(files, hold(names)...)
	}
	requests := func(files []string, store string) int64 {
		t.Helper()
		before, begun := v1.n.Load(), time.Now()
		b := ask("POST", "/vector_stores/"+store+"/file_batches", map[string]any{"file_ids": files})
		if b.FileCounts.Total != len(files) {
			t.Errorf("a batch of %d files has %+v", len(files), b)
		}
		t.Logf("a batch of %d files is taken in %s", len(files), time.Since(begun))
		return v1.n.Load() - before
	}
	many, few := ask("POST", "/vector_stores", nil).ID, ask("POST", "/vector_stores", nil).ID
	for _, store := range []string{many, few} { // they are not read
		s.post("/v1/datasets/"+strings.TrimPrefix(store, "vs_")+":pause", nil, nil)
	}
	for range 2 {
		if n, of := requests(files, many), requests(files[:10], few); n > of+6 {
			t.Errorf("a batch of 2,000 files asks /v1 %d times, one of ten %d times", n, of)
		}
	}
	if n := ask("GET", "/vector_stores/"+many, nil).FileCounts.Total; n != 2000 {
		t.Errorf("the store has %d files", n)
	}
}

// openaiForm is an upload as clients send it.
func openaiForm(t *testing.T, fields map[string]string, files ...string) (media string, body []byte) {
	t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	for i, content := range files {
		part, err := form.CreateFormFile("file", fmt.Sprintf("%d.md", i))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, content)
	}
	for name, value := range fields { // after the file, as some clients do
		_ = form.WriteField(name, value)
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return form.FormDataContentType(), b.Bytes()
}

func refusesOpenAI(t *testing.T, writer, reader, stranger *service) {
	t.Helper()
	type object struct {
		ID     string
		Status string
		Error  struct {
			Message, Type, Code string
			Param               *string
		}
	}
	send := func(who *service, method, path, media string, body []byte) (int, object) {
		t.Helper()
		resp, answer := who.ask(method, "/openai/v1"+path, media, body)
		var o object
		if err := json.Unmarshal([]byte(answer), &o); err != nil {
			t.Fatalf("%s %s: %s: %s", method, path, resp.Status, answer)
		}
		return resp.StatusCode, o
	}
	media, form := openaiForm(t, map[string]string{"purpose": "assistants"}, "Herons wait.")
	_, file := send(writer, "POST", "/files", media, form)
	_, store := send(writer, "POST", "/vector_stores", "application/json", []byte(`{"expires_after":{"anchor":"last_active_at","days":1}}`))
	if file.ID == "" || store.ID == "" {
		t.Fatalf("%+v %+v", file, store)
	}
	at := "/vector_stores/" + store.ID
	ids := func(n int) string {
		return `{"file_ids":[` + strings.TrimSuffix(strings.Repeat(`"`+file.ID+`",`, n), ",") + `]}`
	}
	deep := strings.Repeat(`{"type":"and","filters":[`, 50) + `{"type":"eq","key":"a","value":1}` + strings.Repeat(`]}`, 50)
	wrong := &service{client: newClient(writer.base, "wrong"), t: t}
	const unknown = "01a20a15c96e70009778f913b1690c7a"
	for name, c := range map[string]struct {
		who                      *service
		method, path, body, says string
		status                   int
	}{
		"a wrong key":                  {wrong, "GET", "/vector_stores", "", "key", 401},
		"a wrong key, a wrong request": {wrong, "POST", "/vector_stores", `{`, "key", 401},
		"a key that may read":          {reader, "POST", "/vector_stores", `{}`, "write", 403},
		"no JSON":                      {writer, "POST", "/vector_stores", `{`, "JSON", 400},
		"a type":                       {writer, "POST", "/vector_stores", `{"name":7}`, "name", 400},
		"metadata of a long value":     {writer, "POST", "/vector_stores", `{"metadata":{"k":"` + strings.Repeat("v", 600) + `"}}`, "512", 400},
		"an expiry":                    {writer, "POST", "/vector_stores", `{"expires_after":{"anchor":"last_active_at","days":0}}`, "365", 400},
		"an unknown file in a store":   {writer, "POST", "/vector_stores", `{"file_ids":["file-` + unknown + `"]}`, unknown, 404},
		"an id that is none":           {writer, "GET", "/vector_stores/vs_x", "", "vs_x", 404},
		"a store of another tenant":    {stranger, "GET", at, "", store.ID, 404},
		"a file of another tenant":     {stranger, "GET", "/files/" + file.ID, "", file.ID, 404},
		"its content":                  {stranger, "GET", "/files/" + file.ID + "/content", "", file.ID, 404},
		"to delete it":                 {stranger, "DELETE", "/files/" + file.ID, "", file.ID, 404},
		"a file that is not there":     {writer, "GET", at + "/files/" + file.ID, "", file.ID, 404},
		"a batch that is not there":    {writer, "GET", at + "/file_batches/vsfb_" + unknown, "", unknown, 404},
		"no form":                      {writer, "POST", "/files", `{}`, "multipart/form-data", 400},
		"no files":                     {writer, "POST", at + "/file_batches", `{}`, "file_ids", 400},
		"ten thousand files":           {writer, "POST", at + "/file_batches", ids(10_000), "2000", 400},
		"a chunk size":                 {writer, "POST", at + "/files", `{"file_id":"` + file.ID + `","chunking_strategy":{"type":"static","static":{"max_chunk_size_tokens":1}}}`, "4096", 400},
		"an attribute":                 {writer, "POST", at + "/files", `{"file_id":"` + file.ID + `","attributes":{"a":[1]}}`, "attributes", 400},
		"no query":                     {writer, "POST", at + "/search", `{}`, "query", 400},
		"a threshold":                  {writer, "POST", at + "/search", `{"query":"x","ranking_options":{"score_threshold":2}}`, "score_threshold", 400},
		"filters one in the other":     {writer, "POST", at + "/search", `{"query":"x","filters":` + deep + `}`, "deep", 400},
		"a limit":                      {writer, "GET", "/vector_stores?limit=101", "", "limit", 400},
		"an order":                     {writer, "GET", at + "/files?order=up", "", "order", 400},
		"after and before":             {writer, "GET", "/vector_stores?after=a&before=b", "", "before", 400},
		"a cursor that is none":        {writer, "GET", "/vector_stores?after=a", "", "vector store", 404},
		"a filter of the list":         {writer, "GET", at + "/files?filter=some", "", "filter", 400},
		"nothing to embed":             {writer, "POST", "/embeddings", `{"input":[]}`, "0 texts", 400},
	} {
		status, o := send(c.who, c.method, c.path, "application/json", []byte(c.body))
		if status != c.status || !strings.Contains(o.Error.Message, c.says) || o.Error.Type == "" || o.Error.Code == "" {
			t.Errorf("%s: %d %+v", name, status, o)
		}
	}

	for name, c := range map[string]struct {
		fields map[string]string
		files  []string
		says   string
	}{
		"no purpose": {nil, []string{"x"}, "purpose"},
		"no file":    {map[string]string{"purpose": "assistants"}, nil, "file"},
		"two files":  {map[string]string{"purpose": "assistants"}, []string{"x", "y"}, "One file"},
	} {
		media, form := openaiForm(t, c.fields, c.files...)
		if status, o := send(writer, "POST", "/files", media, form); status != 400 || !strings.Contains(o.Error.Message, c.says) {
			t.Errorf("%s: %d %+v", name, status, o)
		}
	}
	if status, o := send(writer, "POST", "/files", media, form[:20]); status != 400 || !strings.Contains(o.Error.Message, "send it again") {
		t.Errorf("half a form: %d %+v", status, o)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(writer.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /openai/v1/files HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 5000\r\n\r\n%s", strings.TrimPrefix(writer.base, "http://"), writer.key, media, form[:len(form)/2])
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	conn.Close()
	if !strings.Contains(string(answer), "400") || !strings.Contains(string(answer), "send it again") {
		t.Errorf("half a body: %s", answer)
	}
	var kept struct{ Data []object }
	_, list := writer.ask("GET", "/openai/v1/files", "", nil)
	if err := json.Unmarshal([]byte(list), &kept); err != nil || len(kept.Data) != 1 {
		t.Errorf("files that were refused are kept: %s", list)
	}

	// A quota of three documents: the file, and two more.
	for i := range 3 {
		status, o := send(writer, "POST", "/files", media, form)
		if i < 2 && status != 200 || i == 2 && (status != 429 || o.Error.Type != "rate_limit_error") {
			t.Errorf("file %d of a quota of 3: %d %+v", i+2, status, o)
		}
	}

	// The store was last used two days ago.
	ds := strings.TrimPrefix(store.ID, "vs_")
	past := fmt.Sprintf(`{"attributes":{"openai.last_active":%d}}`, time.Now().Add(-48*time.Hour).Unix())
	if resp, answer := writer.ask("PATCH", "/v1/datasets/"+ds, "application/json", []byte(past)); resp.StatusCode != 200 {
		t.Fatal(answer)
	}
	if _, o := send(writer, "GET", at, "", nil); o.Status != "expired" {
		t.Errorf("%+v", o)
	}
	if status, o := send(writer, "POST", at+"/search", "application/json", []byte(`{"query":"heron"}`)); status != 400 || o.Error.Code != "vector_store_expired" {
		t.Errorf("an expired store is searched: %d %+v", status, o)
	}
	if _, o := send(writer, "POST", at, "application/json", []byte(`{"expires_after":{"anchor":"last_active_at","days":3}}`)); o.Status != "completed" {
		t.Errorf("an expired store with a new expiry: %+v", o)
	}
}
