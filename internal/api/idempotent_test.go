package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/parser"
	"sheaf/parser/markdown"
	"sheaf/parser/text"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// ambiguous is a store whose next change is made and then reported as failed,
// as when the connection breaks before the answer to a commit.
type ambiguous struct {
	*taskstore.Store
	next atomic.Bool
}

func (a *ambiguous) lose(err error) error {
	if err == nil && a.next.CompareAndSwap(true, false) {
		return fmt.Errorf("%w: the connection broke", sheaf.ErrUnavailable)
	}
	return err
}

func (a *ambiguous) CreateDocuments(ctx context.Context, job sheaf.Job, docs []sheaf.NewDocument, trace string) ([]string, error) {
	replaced, err := a.Store.CreateDocuments(ctx, job, docs, trace)
	return replaced, a.lose(err)
}

func (a *ambiguous) Reparse(ctx context.Context, job sheaf.Job, docs []sheaf.ReparseDocument, trace string) error {
	return a.lose(a.Store.Reparse(ctx, job, docs, trace))
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
}

func newKeyedServer(t *testing.T) *keyedServer {
	t.Helper()
	store := &ambiguous{Store: storetest.Open(t, "sqlite")}
	ctx := t.Context()
	if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: sheaf.LocalTenant, Name: "Local"}); err != nil {
		t.Fatal(err)
	}
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q := sqlqueue.New(store, sqlqueue.Config{})
	service := &ingest.Service{Catalog: store, Blobs: blobs, Queue: q, Chat: true, Formats: parser.NewRegistry(text.New(), markdown.New()), Log: slog.New(slog.DiscardHandler)}
	srv := httptest.NewServer(New(Config{Catalog: store, Ingest: service, Blobs: blobs, Queue: q}).Handler())
	t.Cleanup(srv.Close)
	k := &keyedServer{t: t, url: srv.URL, store: store, blobs: blobs}
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
	docs, _, err := k.store.Documents(k.t.Context(), sheaf.LocalTenant, sheaf.DocumentFilter{}, sheaf.Page{Ascending: true})
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

// What a client broke off is no answer to be kept: it sends the same again.
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
