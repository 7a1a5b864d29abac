package api

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/internal/webhook"
	"sheaf/parser"
	"sheaf/parser/markdown"
	"sheaf/parser/text"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// ambiguous is a store whose next change is made and then reported as failed,
// as when the connection breaks before the answer to a commit.
type ambiguous struct {
	*sqlstore.Store
	next atomic.Bool
}

func (a *ambiguous) lose(err error) error {
	if err == nil && a.next.CompareAndSwap(true, false) {
		return fmt.Errorf("%w: the connection broke", sheaf.ErrUnavailable)
	}
	return err
}

func (a *ambiguous) CreateDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) ([]string, error) {
	replaced, err := a.Store.CreateDocuments(ctx, job, docs, trace)
	return replaced, a.lose(err)
}

func (a *ambiguous) Reparse(ctx context.Context, job sheaf.Job, docs []taskstore.ReparseDocument, trace string) error {
	return a.lose(a.Store.Reparse(ctx, job, docs, trace))
}

func (a *ambiguous) CreateWebhook(ctx context.Context, w taskstore.Webhook) (*taskstore.Webhook, error) {
	out, err := a.Store.CreateWebhook(ctx, w)
	return out, a.lose(err)
}

func (a *ambiguous) CreateDataset(ctx context.Context, d sheaf.Dataset) (*sheaf.Dataset, error) {
	out, err := a.Store.CreateDataset(ctx, d)
	return out, a.lose(err)
}

type keyedServer struct {
	t     *testing.T
	url   string
	store *ambiguous
	blobs blob.Store
	db    *sql.DB
}

// exec changes the store behind the server's back.
func (k *keyedServer) exec(statement string, args ...any) {
	k.t.Helper()
	if _, err := k.db.ExecContext(k.t.Context(), statement, args...); err != nil {
		k.t.Fatal(err)
	}
}

// column reads texts of the store.
func (k *keyedServer) column(query string) (texts []string) {
	k.t.Helper()
	rows, err := k.db.QueryContext(k.t.Context(), query)
	if err != nil {
		k.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			k.t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if err := rows.Err(); err != nil {
		k.t.Fatal(err)
	}
	return texts
}

func newKeyedServer(t *testing.T) *keyedServer {
	t.Helper()
	ctx := t.Context()
	c := storetest.Migrated(t, "sqlite")
	opened, err := sqlstore.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	db, err := sql.Open("sqlite", c.DSN+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	store := &ambiguous{Store: opened}
	if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local"}); err != nil {
		t.Fatal(err)
	}
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q := sqlqueue.New(store, sqlqueue.Config{})
	service := &ingest.Service{Catalog: store, Blobs: blobs, Queue: q, Chat: true, Formats: parser.NewRegistry(text.New(), markdown.New()), Log: slog.New(slog.DiscardHandler)}
	srv := httptest.NewServer(New(Config{Catalog: store, Ingest: service, Blobs: blobs, Queue: q, WebhookHosts: webhook.Hosts{"example.org"}, MaxUploadBytes: 1 << 30}).Handler())
	t.Cleanup(srv.Close)
	k := &keyedServer{t: t, url: srv.URL, store: store, blobs: blobs, db: db}
	if status, _, body := k.post("/v1/datasets", "", "application/json", `{"name":"files"}`); status != 201 {
		t.Fatalf("creating a dataset: %d %s", status, body)
	}
	return k
}

func (k *keyedServer) post(path, key, media, body string) (status int, replayed bool, answer []byte) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost, k.url+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Content-Type", media)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Idempotent-Replayed") != "", answer
}

func (k *keyedServer) documents() []sheaf.Document {
	k.t.Helper()
	docs, _, err := k.store.Documents(k.t.Context(), sheaf.LocalTenant, taskstore.DocumentFilter{}, taskstore.Page{Ascending: true})
	if err != nil {
		k.t.Fatal(err)
	}
	return docs
}

// A commit whose answer was lost is a 503 to the client. Its repetition finds
// what was made, answers with it, and is itself repeated word for word.
func TestRepeatAfterAnAmbiguousCommitFindsWhatWasMade(t *testing.T) {
	k := newKeyedServer(t)
	var multi bytes.Buffer
	multi.WriteString("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nfirst\r\n")
	multi.WriteString("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.txt\"\r\n\r\nsecond\r\n--b--\r\n")
	// twice sends a request whose first try meets the lost answer.
	twice := func(path, key, media, body string) []byte {
		t.Helper()
		k.store.next.Store(true)
		if status, _, answer := k.post(path, key, media, body); status != 503 {
			t.Fatalf("%s: the first try answered %d %s, want 503", path, status, answer)
		}
		status, replayed, answer := k.post(path, key, media, body)
		if status >= 300 || replayed {
			t.Fatalf("%s: the second try answered %d (replayed: %v) %s", path, status, replayed, answer)
		}
		if status, replayed, third := k.post(path, key, media, body); status >= 300 || !replayed || !bytes.Equal(third, answer) {
			t.Fatalf("%s: the third try answered %d (replayed: %v) %s, want what the second did", path, status, replayed, third)
		}
		return answer
	}
	jobOf := func(answer []byte) sheaf.Job {
		t.Helper()
		var a struct {
			Job *sheaf.Job `json:"job"`
		}
		if err := json.Unmarshal(answer, &a); err != nil || a.Job == nil {
			t.Fatalf("%s: %v", answer, err)
		}
		return *a.Job
	}

	job := jobOf(twice("/v1/datasets/files/documents", "upload", "multipart/form-data; boundary=b", multi.String()))
	docs := k.documents()
	if len(docs) != 2 || docs[0].Name != "a.txt" || docs[1].Name != "b.txt" || docs[0].JobID != job.ID || docs[1].JobID != job.ID {
		t.Fatalf("documents %+v of job %s, want a.txt and b.txt once, in that order", docs, job.ID)
	}
	stored := 0
	if err := k.blobs.List(t.Context(), "originals/", func(blob.Info) bool { stored++; return true }); err != nil {
		t.Fatal(err)
	}
	if stored != 2 {
		t.Errorf("%d originals are stored, want 2: the bytes of the second try were kept too", stored)
	}

	again := jobOf(twice("/v1/datasets/files/documents:reparse", "again", "application/json", `{"filter":{"state":["queued"]}}`))
	for _, d := range k.documents() {
		if d.Generation != 2 || d.JobID != again.ID {
			t.Errorf("%s is at generation %d of job %s, want 2 of %s", d.Name, d.Generation, d.JobID, again.ID)
		}
	}
	twice("/v1/datasets", "dataset", "application/json", `{"name":"more"}`)
	if status, _, _ := k.post("/v1/datasets", "", "application/json", `{"name":"more"}`); status != 409 {
		t.Errorf("a dataset of that name was created again: %d, want 409", status)
	}
}

// The documents of a filter that selects by state are not selected any more
// once the first try has begun them.
func TestRepeatOfAReparseThatHadBegunEverything(t *testing.T) {
	k := newKeyedServer(t)
	if status, _, answer := k.post("/v1/datasets/files/documents?name=a.txt", "", "text/plain", "text"); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	id := k.documents()[0].ID
	if _, err := k.store.CancelDocuments(t.Context(), sheaf.LocalTenant, []string{id}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.store.Fold(t.Context(), 100, 0); err != nil {
		t.Fatal(err)
	}
	k.store.next.Store(true)
	const body = `{"filter":{"state":["canceled"]}}`
	if status, _, answer := k.post("/v1/datasets/files/documents:reparse", "k", "application/json", body); status != 503 {
		t.Fatalf("the first try answered %d %s, want 503", status, answer)
	}
	if status, _, answer := k.post("/v1/datasets/files/documents:reparse", "k", "application/json", body); status != 202 || !strings.Contains(string(answer), `"job"`) {
		t.Fatalf("the second try answered %d %s, want the job of the first", status, answer)
	}
	if d := k.documents()[0]; d.Generation != 2 {
		t.Errorf("generation %d, want 2", d.Generation)
	}
}

// What a client broke off is no answer to be stored: it sends the same again.
func TestBrokenUploadLeavesItsKey(t *testing.T) {
	k := newKeyedServer(t)
	const body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nwhole\r\n--b--\r\n"
	ctx, breakOff := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+"/v1/datasets/files/documents", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	req.Header.Set("Idempotency-Key", "upload")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}()
	if _, err := pw.Write([]byte(body[:70])); err != nil {
		t.Fatal(err)
	}
	breakOff()
	_ = pw.CloseWithError(context.Canceled) // the client waits for the read that is under way
	<-ended
	deadline := time.Now().Add(keyLease + 10*time.Second)
	for {
		status, replayed, answer := k.post("/v1/datasets/files/documents", "upload", "multipart/form-data; boundary=b", body)
		if status == 202 && !replayed {
			break
		}
		if status != 409 || time.Now().After(deadline) {
			t.Fatalf("the repetition answered %d (replayed: %v) %s", status, replayed, answer)
		}
		time.Sleep(20 * time.Millisecond) // until the server has seen that the client is gone
	}
	if docs := k.documents(); len(docs) != 1 {
		t.Errorf("%d documents, want 1", len(docs))
	}
}

// ask is any request; it answers the headers too.
func (k *keyedServer) ask(method, path, key string, body io.Reader, header ...string) (*http.Response, string) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, body)
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp, string(answer)
}

// originals is what is stored of uploads, sorted by content.
func (k *keyedServer) originals() []string {
	k.t.Helper()
	var all []string
	if err := k.blobs.List(k.t.Context(), "originals/", func(i blob.Info) bool {
		r, err := k.blobs.Open(k.t.Context(), i.Key, 0, 20)
		if err != nil {
			k.t.Error(err)
			return false
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			k.t.Error(err)
		}
		all = append(all, string(b))
		return true
	}); err != nil {
		k.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// Two requests of one length are not one request. The second is refused whether
// the first was answered or its answer was lost, nothing of it is kept, and the
// first can still be repeated.
func TestAnotherBodyUnderTheSameKeyIsRefused(t *testing.T) {
	files := func(boundary, first, second string) (media string, body string) {
		return "multipart/form-data; boundary=" + boundary, string(form(t, boundary, []formPart{{"metadata", "", `{"case":"7"}`}, {"file", "a.txt", first}, {"file", "b.txt", second}}))
	}
	media, body := files("first-try", "one", "two")
	again, sameFiles := files("the-second-try-is-longer", "one", "two")
	wrong, otherFile := files("second-one", "one", "six")
	cases := []struct {
		name, method, path                              string
		media, body, same, sameMedia, other, otherMedia string
	}{
		{"a raw upload", "POST", "/v1/datasets/files/documents?name=a.txt", "text/plain", "first text", "first text", "text/plain", "other text", "text/plain"},
		{"a shorter upload", "POST", "/v1/datasets/files/documents?name=a.txt", "text/plain", "first text", "first text", "text/plain", "other", "text/plain"},
		{"a longer upload", "POST", "/v1/datasets/files/documents?name=a.txt", "text/plain", "first text", "first text", "text/plain", "another text", "text/plain"},
		{"a replacement", "PUT", "/v1/datasets/files/documents/0123456789abcdef0123456789abcdef?name=a.txt", "text/plain", "first text", "first text", "text/plain", "other text", "text/plain"},
		{"a form", "POST", "/v1/datasets/files/documents", media, body, sameFiles, again, otherFile, wrong},
		{"a dataset", "POST", "/v1/datasets", "application/json", `{"name":"one"}`, `{"name":"one"}`, "application/json", `{"name":"two"}`, "application/json"},
		{"a webhook", "POST", "/v1/datasets/files/webhooks", "application/json", `{"url":"https://example.org/a"}`, `{"url":"https://example.org/a"}`, "application/json", `{"url":"https://example.org/b"}`, "application/json"},
	}
	for _, c := range cases {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, answer lost: %v", c.name, lost), func(t *testing.T) {
				k := newKeyedServer(t)
				ask := func(media, body string, chunked bool) (*http.Response, string) {
					t.Helper()
					r := io.Reader(strings.NewReader(body))
					if chunked {
						r = io.MultiReader(r) // of a length that the client does not know
					}
					return k.ask(c.method, c.path, "key", r, "Content-Type", media)
				}
				k.store.next.Store(lost)
				first, answer := ask(c.media, c.body, false)
				if (first.StatusCode == 503) != lost || !lost && first.StatusCode > 202 {
					t.Fatalf("the first try: %s %s", first.Status, answer)
				}
				state := func() string { return fmt.Sprint(k.originals(), len(k.documents())) }
				before := state()
				for _, chunked := range []bool{false, true} {
					if resp, body := ask(c.otherMedia, c.other, chunked); resp.StatusCode != 422 || !strings.Contains(body, `"idempotency_key_reused"`) || !strings.Contains(body, "new key") {
						t.Errorf("another body (chunked: %v): %s %s, want 422", chunked, resp.Status, body)
					}
				}
				if now := state(); now != before {
					t.Errorf("another body left %s, want %s", now, before)
				}
				second, repeated := ask(c.sameMedia, c.same, true)
				if second.StatusCode > 202 || (second.Header.Get("Idempotent-Replayed") == "") != lost {
					t.Errorf("the same again: %s (replayed: %q) %s", second.Status, second.Header.Get("Idempotent-Replayed"), repeated)
				}
				if now := state(); now != before {
					t.Errorf("the same again left %s, want %s", now, before)
				}
			})
		}
	}
}

// The address may name its parameters in any order; other parameters, methods
// and headers that matter are another request.
func TestKeysStandForTheWholeRequest(t *testing.T) {
	k := newKeyedServer(t)
	const path = "/v1/datasets/files/documents"
	if resp, answer := k.ask("POST", path+"?name=a.txt&lane=2", "key", strings.NewReader("text"), "Content-Type", "text/plain"); resp.StatusCode != 202 {
		t.Fatalf("%s %s", resp.Status, answer)
	}
	for _, c := range []struct {
		method, path, media string
		want                int
	}{
		{"POST", path + "?lane=2&name=a.txt", "text/plain", 202}, {"POST", path + "?name=b.txt&lane=2", "text/plain", 422}, {"POST", path + "?name=a.txt&lane=2", "text/markdown", 422},
		{"PUT", path + "/0123456789abcdef0123456789abcdef?name=a.txt&lane=2", "text/plain", 422},
	} {
		if resp, answer := k.ask(c.method, c.path, "key", strings.NewReader("text"), "Content-Type", c.media); resp.StatusCode != c.want {
			t.Errorf("%s %s as %s: %s %s, want %d", c.method, c.path, c.media, resp.Status, answer, c.want)
		}
	}
	if n := len(k.documents()); n != 1 {
		t.Errorf("%d documents, want 1", n)
	}
}

// lines is n bytes of text with last in place of the last.
type lines struct {
	n    int64
	last byte
	at   atomic.Int64 // how much was read
}

func (l *lines) Read(p []byte) (int, error) {
	at := l.at.Load()
	if at == l.n {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), l.n-at))
	for i := range p[:n] {
		p[i] = "a line of text\n"[(at+int64(i))%15]
	}
	if l.at.Add(int64(n)) == l.n {
		p[n-1] = l.last
	}
	return n, nil
}

// A body of any size is compared as it streams by: one that differs in its last
// byte is refused with nothing of it kept in memory or in the store.
func TestLargeBodiesAreComparedAsTheyStream(t *testing.T) {
	const size = 96 << 20
	k := newKeyedServer(t)
	upload := func(body io.Reader) (*http.Response, string) {
		return k.ask("POST", "/v1/datasets/files/documents?name=a.txt", "key", io.MultiReader(body), "Content-Type", "text/plain")
	}
	for _, lost := range []bool{true, false} { // then with a stored answer
		k.store.next.Store(lost)
		if resp, answer := upload(&lines{n: size, last: '\n'}); resp.StatusCode != map[bool]int{true: 503, false: 202}[lost] {
			t.Fatalf("%s %s", resp.Status, answer)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if resp, answer := upload(&lines{n: size, last: '!'}); resp.StatusCode != 422 {
			t.Errorf("another last byte: %s %s, want 422", resp.Status, answer)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > size/4 {
			t.Errorf("comparing %d bytes took %d bytes of memory", size, grown)
		}
		endless := &lines{n: 1 << 50}
		req, err := http.NewRequestWithContext(t.Context(), "POST", k.url+"/v1/datasets/files/documents?name=a.txt", io.MultiReader(endless))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "text/plain")
		req.Header.Set("Idempotency-Key", "key")
		if resp, err := http.DefaultClient.Do(req); err == nil { // the client may see the line break first
			_ = resp.Body.Close()
			if resp.StatusCode != 422 {
				t.Errorf("an endless body: %s, want 422", resp.Status)
			}
		}
		if n := endless.at.Load(); n > 2*size {
			t.Errorf("%d bytes of an endless body were read, of the first there are %d", n, size)
		}
	}
	if docs := k.documents(); len(docs) != 1 || docs[0].Size != size {
		t.Errorf("%d documents", len(docs))
	}
	if all := k.originals(); len(all) != 1 {
		t.Errorf("%d originals are stored, want 1", len(all))
	}
}

// While the first try is at work the key is its own, whatever another one sends.
func TestKeyOfARequestAtWork(t *testing.T) {
	k := newKeyedServer(t)
	pr, pw := io.Pipe()
	first := make(chan int)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", k.url+"/v1/datasets/files/documents?name=a.txt", pr)
		if err != nil {
			t.Error(err)
		}
		req.Header.Set("Idempotency-Key", "key")
		req.Header.Set("Content-Type", "text/plain")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			first <- 0
			return
		}
		defer resp.Body.Close()
		first <- resp.StatusCode
	}()
	if _, err := pw.Write([]byte("some ")); err != nil {
		t.Fatal(err)
	}
	for len(k.column("SELECT holder FROM idempotency WHERE k='key'")) == 0 {
		runtime.Gosched() // until the first one is at work
	}
	for _, body := range []string{"some text", "any other"} {
		resp, answer := k.ask("POST", "/v1/datasets/files/documents?name=a.txt", "key", strings.NewReader(body), "Content-Type", "text/plain")
		if resp.StatusCode != 409 || !strings.Contains(answer, `"in_progress"`) || resp.Header.Get("Retry-After") == "" {
			t.Errorf("meanwhile: %s %s, want 409", resp.Status, answer)
		}
	}
	if _, err := pw.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	_ = pw.Close()
	if status := <-first; status != 202 {
		t.Fatalf("the first: %d", status)
	}
	for body, want := range map[string]int{"some text": 202, "any other": 422} {
		if resp, answer := k.ask("POST", "/v1/datasets/files/documents?name=a.txt", "key", strings.NewReader(body), "Content-Type", "text/plain"); resp.StatusCode != want {
			t.Errorf("%q afterwards: %s %s, want %d", body, resp.Status, answer, want)
		}
	}
}

// A webhook's secret is shown once. A repeated request says so; it is neither
// stored with the answer nor shown again, and makes no second webhook.
func TestRepeatedAnswersShowNoSecret(t *testing.T) {
	k := newKeyedServer(t)
	const path, body = "/v1/datasets/files/webhooks", `{"url":"https://example.org/hook"}`
	k.store.next.Store(true)
	if resp, answer := k.ask("POST", path, "key", strings.NewReader(body), "Content-Type", "application/json"); resp.StatusCode != 503 {
		t.Fatalf("%s %s", resp.Status, answer)
	}
	var first, second struct {
		ID     string `json:"id"`
		Secret string `json:"secret"`
		Note   string `json:"secret_note"`
		URL    string `json:"url"`
	}
	for _, out := range []any{&first, &second} {
		resp, answer := k.ask("POST", path, "key", strings.NewReader(body), "Content-Type", "application/json")
		if err := json.Unmarshal([]byte(answer), out); resp.StatusCode != 201 || err != nil {
			t.Fatalf("%s %s %v", resp.Status, answer, err)
		}
	}
	if !strings.HasPrefix(first.Secret, "whsec_") || first.Note != "" {
		t.Errorf("the first answer: %+v", first)
	}
	if second.Secret != "" || !strings.Contains(second.Note, "shown once") || second.ID != first.ID || second.URL != first.URL {
		t.Errorf("the repeated answer: %+v, after %+v", second, first)
	}
	for _, row := range k.column("SELECT answer FROM idempotency") {
		var a storedAnswer
		if err := json.Unmarshal([]byte(row), &a); err != nil || strings.Contains(string(a.Body), "whsec_") {
			t.Errorf("the secret is stored with the answer: %s %v", a.Body, err)
		}
	}
	hooks, err := k.store.Webhooks(t.Context(), sheaf.LocalTenant, k.dataset())
	if err != nil || len(hooks) != 1 {
		t.Errorf("%d webhooks, want 1: %v", len(hooks), err)
	}
}

func (k *keyedServer) dataset() string {
	k.t.Helper()
	ds, err := k.store.Dataset(k.t.Context(), sheaf.LocalTenant, "files")
	if err != nil {
		k.t.Fatal(err)
	}
	return ds.ID
}

// A secret of an answer is its member "secret", which is left out of what is
// stored for repetitions. A route that shows one elsewhere would have it stored.
func TestAnswersShowSecretsInOnePlace(t *testing.T) {
	doc := New(Config{}).api.OpenAPI()
	var walk func(route, where string, schema *huma.Schema, depth int)
	walk = func(route, where string, schema *huma.Schema, depth int) {
		if schema == nil || depth > 8 {
			return
		}
		if schema.Ref != "" {
			schema = doc.Components.Schemas.SchemaFromRef(schema.Ref)
		}
		for name, p := range schema.Properties {
			at := where + "/" + name
			secret := p.Type == huma.TypeString && regexp.MustCompile(`(?i)secret|passw|token$|credential|private`).MatchString(name)
			if secret && at != "/secret" && name != "secret_note" && !strings.HasSuffix(at, "/parser_config/password") {
				t.Errorf("%s answers %s: a secret is the member secret of the answer, see withoutSecret", route, at)
			}
			walk(route, at, p, depth+1)
		}
		walk(route, where, schema.Items, depth+1)
	}
	n := 0
	for path, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Post, item.Put} {
			if op == nil {
				continue
			}
			for status, resp := range op.Responses {
				for _, media := range resp.Content {
					if status[0] == '2' {
						n++
						walk(op.Method+" "+path, "", media.Schema, 0)
					}
				}
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d answers were looked at", n)
	}
}

// Every header that a handler reads is part of what a key stands for, or stands
// here with the reason why it is not.
func TestHeadersThatMatterBelongToTheKey(t *testing.T) {
	beside := []string{
		"Idempotency-Key", "Authorization", "X-Api-Key", "Origin", "Sec-Fetch-Site", // who asks
		"X-Request-Id", "Traceparent", // name the try
		"Accept", "Last-Event-Id", "If-None-Match", "Etag", "Age", "Range", "Accept-Encoding", // of reading
		"Tus-Resumable", // one value alone is taken
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	read := regexp.MustCompile("\\br\\.Header\\.(?:Get|Values)\\(\"([^\"]+)\"\\)|`header:\"([^\"]+)\"")
	n := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range read.FindAllStringSubmatch(string(src), -1) {
			n++
			header := http.CanonicalHeaderKey(m[1] + m[2])
			if header != "Location" && !slices.Contains(beside, header) && !slices.Contains(keyedHeaders, header) {
				t.Errorf("%s reads the header %s, which does not belong to what an Idempotency-Key stands for", name, header)
			}
		}
	}
	if n < 10 {
		t.Errorf("only %d readings were found", n)
	}
}

// An upload in pieces that comes with its bytes: other bytes under its key are
// refused and not put behind or in place of the first.
func TestKeysOfUploadsInPieces(t *testing.T) {
	k := newKeyedServer(t)
	create := func(body string) (*http.Response, string) {
		return k.ask("POST", "/v1/datasets/files/uploads", "key", strings.NewReader(body), "Content-Type", tusMedia, "Tus-Resumable", "1.0.0", "Upload-Length", "10",
			"Upload-Metadata", "hold,filename "+base64.StdEncoding.EncodeToString([]byte("a.txt")))
	}
	first, answer := create("12345")
	if first.StatusCode != 201 || first.Header.Get("Upload-Offset") != "5" {
		t.Fatalf("%s %s %v", first.Status, answer, first.Header)
	}
	if resp, answer := create("abcde"); resp.StatusCode != 422 {
		t.Errorf("other bytes: %s %s, want 422", resp.Status, answer)
	}
	again, repeated := create("12345")
	if again.StatusCode != 201 || repeated != answer || again.Header.Get("Upload-Offset") != "5" || again.Header.Get("Location") != first.Header.Get("Location") || again.Header.Get("Tus-Resumable") == "" {
		t.Errorf("the same again: %s %s %v", again.Status, repeated, again.Header)
	}

	// A first try that stored bytes and could not answer: they can be found.
	k.exec("UPDATE idempotency SET answer='', lease_until=0")
	if resp, answer := create("12345"); resp.StatusCode != 409 || resp.Header.Get("Location") != first.Header.Get("Location") {
		t.Errorf("after a try that did not answer: %s %s %v, want 409 and the address of the upload", resp.Status, answer, resp.Header)
	}

	// A first try that read its bytes and could not store them.
	k.exec("UPDATE idempotency SET answer='', lease_until=0")
	k.exec("UPDATE uploads SET stored=0, pieces='[]', hash=''")
	if resp, answer := create("abcde"); resp.StatusCode != 422 {
		t.Errorf("other bytes, after a try that stored none: %s %s, want 422", resp.Status, answer)
	}
	ups, _, err := k.store.Uploads(t.Context(), sheaf.LocalTenant, k.dataset(), "", taskstore.Page{})
	if err != nil || len(ups) != 1 || ups[0].Offset != 0 {
		t.Errorf("of other bytes %+v is stored: %v", ups, err)
	}
	if resp, answer := create("12345"); resp.StatusCode != 201 || resp.Header.Get("Upload-Offset") != "5" {
		t.Errorf("the same again: %s %s, want 201", resp.Status, answer)
	}
}

// What the first try was told is gone when it told of something that was
// deleted, and keys of the version before still stand for their requests.
func TestKeysWhoseAnswerIsGoneOrOld(t *testing.T) {
	k := newKeyedServer(t)
	send := func(key string) (*http.Response, string) {
		return k.ask("POST", "/v1/datasets/files/documents?name=a.txt", key, strings.NewReader("text"), "Content-Type", "text/plain")
	}
	if resp, answer := send("gone"); resp.StatusCode != 202 {
		t.Fatalf("%s %s", resp.Status, answer)
	}
	k.exec("UPDATE idempotency SET answer=?", taskstore.ForgottenAnswer)
	if resp, answer := send("gone"); resp.StatusCode != 410 || !strings.Contains(answer, `"idempotency_key_forgotten"`) || !strings.Contains(answer, "new key") {
		t.Errorf("%s %s, want 410", resp.Status, answer)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", k.url+"/v1/datasets/files/documents?name=a.txt", strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	req.URL.Scheme, req.URL.Host = "", "" // as a server sees it
	old := taskstore.KeyedRequest{TenantID: sheaf.LocalTenant, Key: "old", Hash: formerDigest(req), Holder: "old"}
	if _, err := k.store.Idempotent(t.Context(), old, time.Minute); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(storedAnswer{Status: 202, Header: http.Header{}, Body: []byte(`{"as":"before"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.store.FinishIdempotent(t.Context(), old, b); err != nil {
		t.Fatal(err)
	}
	if resp, answer := send("old"); resp.StatusCode != 202 || answer != `{"as":"before"}` {
		t.Errorf("a key of the version before: %s %s", resp.Status, answer)
	}
}

// A request that the end of the process cut off is to be sent again; one whose
// client went away is nobody's to answer.
func TestStoppingIsNotTheClientsDoing(t *testing.T) {
	s := New(Config{})
	for cause, want := range map[error]int{ErrStopping: 503, nil: 499} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if p := s.mapError(ctx, fmt.Errorf("reading: %w", ctx.Err())); p.Status != want {
			t.Errorf("cut off by %v: %d, want %d", cause, p.Status, want)
		}
	}
}
