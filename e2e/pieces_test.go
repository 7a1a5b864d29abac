package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/chaos/proxy"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/internal/blob"
	"sheaf/internal/config"
	"sheaf/parser"
	"sheaf/parser/formats"
	"sheaf/taskstore"
)

// forEachBlob runs a test on every blob store that is there.
func forEachBlob(t *testing.T, change func(*config.Config), test func(t *testing.T, s *service)) {
	t.Run("file", func(t *testing.T) { test(t, start(t, change)) })
	t.Run("s3", func(t *testing.T) {
		endpoint := engine(t, "SHEAF_TEST_S3_ENDPOINT")
		test(t, start(t, func(c *config.Config) {
			if change != nil {
				change(c)
			}
			c.Blob = config.Blob{Driver: "s3", Endpoint: endpoint, Bucket: "pieces" + sheaf.NewID()[16:], CreateBucket: true, CacheBytes: 1 << 30,
				AccessKey: config.Secret(os.Getenv("SHEAF_TEST_S3_ACCESS_KEY")), SecretKey: config.Secret(os.Getenv("SHEAF_TEST_S3_SECRET_KEY"))}
		}))
	})
}

// largeTrial is a file of two pages for the trial format and n bytes of white
// space, no two stretches of which are alike.
func largeTrial(seed uint64, n int) []byte {
	b := []byte("The first page speaks of lapwings.\nThe second page speaks of plovers.\n")
	r := rand.New(rand.NewPCG(seed, 1))
	for len(b) < n {
		for bits, i := r.Uint64(), 0; i < 32 && len(b) < n; i++ {
			b = append(b, " \t\n\r"[bits>>(2*i)&3])
		}
	}
	return b
}

// uploadMetadata is pairs as the header wants them.
func uploadMetadata(pairs ...string) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, pairs[i]+" "+base64.StdEncoding.EncodeToString([]byte(pairs[i+1])))
	}
	return strings.Join(out, ",")
}

const trialSettings = `{"media_type":"` + trialMedia + `"}`

// begin creates an upload and returns its path.
func (s *service) begin(size int, pairs ...string) string {
	s.t.Helper()
	resp, b := s.request("POST", "/v1/datasets/default/uploads", "", append([]string{"Tus-Resumable", "1.0.0", "Upload-Length", strconv.Itoa(size), "Upload-Metadata", uploadMetadata(pairs...)}, s.authorization()...)...)
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Location") == "" || resp.Header.Get("Upload-Expires") == "" {
		s.t.Fatalf("creating an upload: %s %s", resp.Status, b)
	}
	return resp.Header.Get("Location")
}

func (s *service) authorization() []string {
	if s.key == "" {
		return nil
	}
	return []string{"Authorization", "Bearer " + s.key}
}

// patch sends bytes from an offset on.
func (s *service) patch(path string, offset int, body []byte, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	return s.request("PATCH", path, string(body), append(append([]string{"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream", "Upload-Offset", strconv.Itoa(offset)}, header...), s.authorization()...)...)
}

// offset asks how many bytes are stored.
func (s *service) offset(path string) int {
	s.t.Helper()
	resp, b := s.request("HEAD", path, "", append([]string{"Tus-Resumable", "1.0.0"}, s.authorization()...)...)
	n, err := strconv.Atoi(resp.Header.Get("Upload-Offset"))
	if resp.StatusCode != http.StatusOK || err != nil || resp.Header.Get("Cache-Control") != "no-store" {
		s.t.Fatalf("HEAD %s: %s %s", path, resp.Status, b)
	}
	return n
}

// broken sends the head of a PATCH of size bytes and only some of them, and
// leaves the line to the test.
func (s *service) broken(path string, offset, size int, some []byte) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(conn, "PATCH %s HTTP/1.1\r\nHost: 127.0.0.1\r\nTus-Resumable: 1.0.0\r\nContent-Type: application/offset+octet-stream\r\nUpload-Offset: %d\r\nContent-Length: %d\r\n\r\n", path, offset, size)
	if _, err := conn.Write(some); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

func (s *service) submitUploads(query string, paths ...string) api.SubmitAnswer {
	s.t.Helper()
	var ids []string
	for _, p := range paths {
		ids = append(ids, filepath.Base(p))
	}
	var out api.SubmitAnswer
	s.post("/v1/datasets/default/uploads:submit"+query, map[string]any{"ids": ids}, &out)
	return out
}

func (s *service) original(id string) []byte {
	s.t.Helper()
	resp, b := s.request("GET", "/v1/datasets/default/documents/"+id+"/content", "", s.authorization()...)
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("reading the original: %s %s", resp.Status, b)
	}
	return b
}

func TestUploadGoesOnWhereTheLineBroke(t *testing.T) {
	t.Parallel()
	forEachBlob(t, nil, func(t *testing.T, s *service) {
		file := largeTrial(1, 21<<20)
		path := s.begin(len(file), "filename", "lapwings.trial", "parser_config", trialSettings)
		// Cuts below the smallest part of a store, above it, and across pieces.
		for _, part := range []int{1000, 70_000, 6 << 20, 3 << 20, 9 << 20} {
			from := s.offset(path)
			conn := s.broken(path, from, len(file)-from, file[from:from+part])
			_ = conn.Close()
			waitFor(t, "what came to be stored", func() bool { return s.offset(path) == from+part })
		}
		from := s.offset(path)
		if resp, b := s.patch(path, from-1, file[from-1:]); resp.StatusCode != http.StatusConflict {
			t.Errorf("a wrong offset: %s %s", resp.Status, b)
		}
		resp, b := s.patch(path, from, file[from:])
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Upload-Offset") != strconv.Itoa(len(file)) || resp.Header.Get("Sheaf-Job") == "" {
			t.Fatalf("the last piece: %s %v %s", resp.Status, resp.Header, b)
		}
		if job := s.ended(resp.Header.Get("Sheaf-Job")); job.State != sheaf.DocSucceeded || job.Documents.Total != 1 {
			t.Fatalf("the job ended %s", job.State)
		}
		d := s.doc(resp.Header.Get("Sheaf-Document"))
		sum := sha256.Sum256(file)
		if d.Size != int64(len(file)) || d.SHA256 != hex.EncodeToString(sum[:]) || d.Name != "lapwings.trial" || !bytes.Equal(s.original(d.ID), file) {
			t.Errorf("the document is not the file: %+v", d)
		}
		if !s.finds("plovers") {
			t.Error("the file is not searchable")
		}
		if n := s.blobs("uploads/"); n != 0 {
			t.Errorf("%d pieces are left", n)
		}
	})
}

func TestSilentWriterIsReplaced(t *testing.T) {
	s := start(t, nil)
	file := largeTrial(2, 300_000)
	path := s.begin(len(file), "filename", "a.trial", "parser_config", trialSettings)
	// The old line neither sends nor breaks; the new one begins where nothing is stored yet.
	old := s.broken(path, 0, len(file), bytes.Repeat([]byte("x"), 100_000))
	defer old.Close()
	waitFor(t, "the first writer", func() bool {
		var n int
		b, err := s.store.Upload(t.Context(), "local", filepath.Base(path))
		if err == nil {
			n = int(b.Epoch)
		}
		return n == 1
	})
	if resp, b := s.patch(path, 0, file[:200_000]); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the second writer: %s %s", resp.Status, b)
	}
	_ = old.Close() // what it had is stored too late to count
	resp, b := s.patch(path, 200_000, file[200_000:])
	if resp.StatusCode != http.StatusNoContent {
		t.Fatalf("the rest: %s %s", resp.Status, b)
	}
	s.ended(resp.Header.Get("Sheaf-Job"))
	if !bytes.Equal(s.original(resp.Header.Get("Sheaf-Document")), file) {
		t.Error("the first writer's bytes are in the file")
	}
}

func TestHeldUploadsBecomeOneJob(t *testing.T) {
	t.Parallel()
	forEachBlob(t, nil, func(t *testing.T, s *service) {
		var paths []string
		for i, content := range []string{"A text about godwits.", "MZ\x90\x00\x03\x00\x00\x00", "A text about curlews.", ""} {
			path := s.begin(len(content), "filename", fmt.Sprintf("%d.txt", i), "hold", "true")
			if content != "" {
				if resp, b := s.patch(path, 0, []byte(content)); resp.StatusCode != http.StatusNoContent || resp.Header.Get("Sheaf-Job") != "" {
					t.Fatalf("%s %v %s", resp.Status, resp.Header, b)
				}
			}
			paths = append(paths, path)
		}
		plan := s.submitUploads("?dry_run=true", paths...)
		if plan.Job != nil || len(plan.Plans) != 2 || len(plan.Rejected) != 2 || plan.Plans[0].Units != 1 {
			t.Errorf("the plan: %+v", plan)
		}
		if n := s.blobs("originals/"); n != 0 {
			t.Errorf("a dry run left %d originals", n)
		}
		a := s.submitUploads("?wait=30s", paths...)
		if a.Job == nil || a.Job.State != sheaf.DocSucceeded || len(a.Documents) != 2 || len(a.Rejected) != 2 || a.Rejected[0].UploadID != filepath.Base(paths[1]) || a.Rejected[1].Failure.Code != "empty_file" {
			t.Fatalf("submitted: %+v", a)
		}
		again := s.submitUploads("", paths...)
		if again.Job.ID != a.Job.ID || len(again.Documents) != 2 || again.Documents[0].Generation != 1 || len(again.Rejected) != 2 {
			t.Errorf("submitted again: %+v", again)
		}
		if !s.finds("godwits") || !s.finds("curlews") {
			t.Error("the files are not searchable")
		}
		if resp, b := s.patch(paths[0], 21, nil); resp.StatusCode != http.StatusConflict {
			t.Errorf("a submitted upload takes more: %s %s", resp.Status, b)
		}
	})
}

// watched tells of two moments of a submit.
type watched struct {
	ingest.Catalog
	blob.Store
	compose, composed, created func()
}

func (w *watched) Compose(ctx context.Context, key string, parts []string) error {
	w.compose()
	defer w.composed()
	return w.Store.Compose(ctx, key, parts)
}

func (w *watched) CreateDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) ([]string, error) {
	defer w.created()
	return w.Catalog.CreateDocuments(ctx, job, docs, trace)
}

// Ping is in both.
func (w *watched) Ping(ctx context.Context) error { return w.Store.Ping(ctx) }

// ingest takes documents into the service's store beside its own API, as another
// API process does.
func (s *service) ingest() *ingest.Service {
	return &ingest.Service{Catalog: s.store, Blobs: s.blobStore, Queue: s.keeper.Queue, Formats: parser.NewRegistry(product.FormatsFunc(formats.Config{})...), Log: slog.New(slog.DiscardHandler)}
}

// Of submits of one upload at once one makes the document. The others answer
// the same, and leave no bytes of their own, also when who asked has hung up.
func TestSubmitsAtOnceKeepOneOriginal(t *testing.T) {
	forEachBlob(t, nil, func(t *testing.T, s *service) {
		ds, err := s.store.Dataset(t.Context(), sheaf.LocalTenant, defaultDataset)
		if err != nil {
			t.Fatal(err)
		}
		uploads := 0
		upload := func() (path, text string) {
			uploads++
			text = fmt.Sprintf("Text %d is about dunlins.", uploads)
			path = s.begin(len(text), "filename", "dunlins.txt", "hold", "true")
			if resp, b := s.patch(path, 0, []byte(text)); resp.StatusCode != http.StatusNoContent {
				t.Fatalf("%s %s", resp.Status, b)
			}
			return path, text
		}
		check := func(id, text string) {
			t.Helper()
			if got := s.original(id); string(got) != text {
				t.Errorf("the original is %q, want %q", got, text)
			}
			if n := s.blobs("originals/"); n != uploads {
				t.Errorf("%d uploads left %d originals", uploads, n)
			}
		}
		none := func() {}
		for _, c := range []struct {
			name string
			at   func(w *watched, other func(), hangUp func())
			lost bool // nobody waits for the answer
		}{
			{"before the pieces are joined", func(w *watched, other, _ func()) { w.compose = other }, false},
			{"after the pieces are joined", func(w *watched, other, _ func()) { w.composed = other }, false},
			{"who asked hangs up", func(w *watched, other, hangUp func()) { w.composed, w.created = other, hangUp }, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				path, text := upload()
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				var other api.SubmitAnswer
				slow := s.ingest()
				w := &watched{Catalog: slow.Catalog, Store: slow.Blobs, compose: none, composed: none, created: none}
				c.at(w, func() { other = s.submitUploads("", path) }, hangUp)
				slow.Catalog, slow.Blobs = w, w
				got, _, err := slow.SubmitUploads(ctx, ds, []string{filepath.Base(path)}, ingest.Origin{})
				if len(other.Documents) != 1 {
					t.Fatalf("the other submit: %+v", other)
				}
				if !c.lost && (err != nil || got.Job.ID != other.Job.ID || len(got.Documents) != 1 || got.Documents[0].ID != other.Documents[0].ID) {
					t.Errorf("the two submits do not answer the same: %+v, %v", got, err)
				}
				check(other.Documents[0].ID, text)
			})
		}
		// All at once, as they come.
		path, text := upload()
		var calls errgroup.Group
		var made sync.Map
		for range 8 {
			calls.Go(func() error {
				got, _, err := s.ingest().SubmitUploads(t.Context(), ds, []string{filepath.Base(path)}, ingest.Origin{})
				if err == nil {
					made.Store(got.Job.ID+" "+got.Documents[0].ID, got.Documents[0].ID)
				}
				return err
			})
		}
		if err := calls.Wait(); err != nil {
			t.Error(err)
		}
		var ids []string
		made.Range(func(_, id any) bool {
			ids = append(ids, id.(string))
			return true
		})
		if len(ids) != 1 {
			t.Fatalf("the submits made %q", ids)
		}
		check(ids[0], text)
	})
}

func TestUploadProtocol(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.MaxUploadBytes = 1000 })
	version := []string{"Tus-Resumable", "1.0.0"}
	resp, _ := s.request("OPTIONS", "/v1/datasets/default/uploads", "")
	if resp.StatusCode != http.StatusNoContent || resp.Header.Get("Tus-Version") != "1.0.0" || resp.Header.Get("Tus-Max-Size") != "1000" || !strings.Contains(resp.Header.Get("Tus-Extension"), "checksum") {
		t.Errorf("OPTIONS: %s %v", resp.Status, resp.Header)
	}
	for name, c := range map[string]struct {
		header []string
		status int
	}{
		"no version":          {[]string{"Upload-Length", "1"}, 412},
		"other version":       {[]string{"Tus-Resumable", "0.2.2", "Upload-Length", "1"}, 412},
		"no length":           {version, 400},
		"negative":            {append(version, "Upload-Length", "-1"), 400},
		"too large":           {append(version, "Upload-Length", "1001"), 413},
		"bad metadata":        {append(version, "Upload-Length", "1", "Upload-Metadata", "filename !"), 400},
		"unknown key":         {append(version, "Upload-Length", "1", "Upload-Metadata", "colour cmVk"), 400},
		"bad settings":        {append(version, "Upload-Length", "1", "Upload-Metadata", uploadMetadata("parser_config", `{"chunk_token_num":1}`)), 400},
		"bad attributes":      {append(version, "Upload-Length", "1", "Upload-Metadata", uploadMetadata("attributes", `[1]`)), 400},
		"no attributes":       {append(version, "Upload-Length", "1", "Upload-Metadata", uploadMetadata("attributes", `null`)), 400},
		"too many attributes": {append(version, "Upload-Length", "1", "Upload-Metadata", uploadMetadata("attributes", `{"crm.note":"`+strings.Repeat("x", sheaf.MaxDocumentAttributes)+`"}`)), 400},
		"bad id":              {append(version, "Upload-Length", "1", "Upload-Metadata", uploadMetadata("id", "../../x")), 400},
		"metadata large":      {append(version, "Upload-Length", "1", "Upload-Metadata", "filename "+strings.Repeat("QUFB", 13_000)), 413},
	} {
		if resp, b := s.request("POST", "/v1/datasets/default/uploads", "", c.header...); resp.StatusCode != c.status || resp.Header.Get("Tus-Resumable") != "1.0.0" {
			t.Errorf("%s: %s %s", name, resp.Status, b)
		}
	}
	if resp, _ := s.request("HEAD", "/v1/datasets/default/uploads/"+sheaf.NewID(), "", version...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown upload: %s", resp.Status)
	}

	const text = "A text about dunlins."
	path := s.begin(len(text), "filename", "a.txt", "hold", "true")
	sum := sha256.Sum256([]byte(text[:10]))
	right := "sha256 " + base64.StdEncoding.EncodeToString(sum[:])
	if resp, b := s.patch(path, 0, []byte(text[:9]+"!"), "Upload-Checksum", right); resp.StatusCode != 460 || s.offset(path) != 0 {
		t.Errorf("changed bytes: %s %s", resp.Status, b)
	}
	if resp, b := s.patch(path, 0, []byte(text), "Upload-Checksum", "sha3 eA=="); resp.StatusCode != 400 {
		t.Errorf("an unknown checksum: %s %s", resp.Status, b)
	}
	if resp, b := s.patch(path, 0, []byte(text[:10]), "Upload-Checksum", right); resp.StatusCode != http.StatusNoContent {
		t.Errorf("the right checksum: %s %s", resp.Status, b)
	}
	if resp, b := s.patch(path, 10, []byte(text[10:]+"more than was announced")); resp.StatusCode != 400 {
		t.Errorf("more bytes than announced: %s %s", resp.Status, b)
	}
	if resp, b := s.request("PATCH", path, text[10:], append(version, "Upload-Offset", "10", "Content-Type", "text/plain")...); resp.StatusCode != 415 {
		t.Errorf("another media type: %s %s", resp.Status, b)
	}
	if resp, b := s.request("POST", path, text[10:], append(version, "Upload-Offset", "10", "Content-Type", "application/offset+octet-stream", "X-HTTP-Method-Override", "PATCH")...); resp.StatusCode != http.StatusNoContent || s.offset(path) != len(text) {
		t.Errorf("an overridden method: %s %s", resp.Status, b)
	}
	resp, _ = s.request("HEAD", path, "", version...)
	if resp.Header.Get("Upload-Metadata") != uploadMetadata("filename", "a.txt", "hold", "true") || resp.Header.Get("Upload-Length") != strconv.Itoa(len(text)) {
		t.Errorf("HEAD says %v", resp.Header)
	}
	if resp, b := s.request("DELETE", path, "", version...); resp.StatusCode != http.StatusNoContent {
		t.Errorf("DELETE: %s %s", resp.Status, b)
	}
	if resp, _ := s.request("HEAD", path, "", version...); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after DELETE: %s", resp.Status)
	}

	secret := s.begin(5, "filename", "locked.pdf", "parser_config", `{"password":"hunter2"}`, "hold", "true")
	resp, b := s.request("GET", secret, "")
	head, _ := s.request("HEAD", secret, "", version...)
	if resp.StatusCode != 200 || strings.Contains(string(b)+fmt.Sprint(head.Header), "hunter2") || strings.Contains(fmt.Sprint(head.Header), base64.StdEncoding.EncodeToString([]byte(`{"password"`))[:12]) {
		t.Errorf("the password is shown: %s %v", b, head.Header)
	}
	// The whole file in the request that creates it.
	resp, b = s.request("POST", "/v1/datasets/default/uploads", text, append(version, "Upload-Length", strconv.Itoa(len(text)), "Content-Type", "application/offset+octet-stream", "Upload-Metadata", uploadMetadata("filename", "b.txt", "attributes", `{"crm.id":9007199254740993}`, "metadata", `{"author":"Clara"}`))...)
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Upload-Offset") != strconv.Itoa(len(text)) || resp.Header.Get("Sheaf-Job") == "" {
		t.Fatalf("creation with bytes: %s %s", resp.Status, b)
	}
	s.ended(resp.Header.Get("Sheaf-Job"))
	if !s.finds("dunlins") {
		t.Error("the file is not searchable")
	}
	var up api.UploadStatus
	s.get(resp.Header.Get("Location"), &up)
	if d := s.doc(up.DocumentID); string(d.Attributes["crm.id"]) != "9007199254740993" || d.Metadata["author"] != "Clara" {
		t.Errorf("stored with %s, %v", d.Attributes, d.Metadata)
	}
	// A file that is refused is a verdict on the file, not of the service.
	resp, b = s.request("POST", "/v1/datasets/default/uploads", "MZ\x90\x00\x03\x00", append(version, "Upload-Length", "6", "Content-Type", "application/offset+octet-stream", "Upload-Metadata", uploadMetadata("filename", "b.exe"))...)
	if resp.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a program: %s %s", resp.Status, b)
	}
}

func TestUploadExpires(t *testing.T) {
	t.Parallel() // it mostly waits
	forEachBlob(t, func(c *config.Config) { c.Server.UploadLife = config.Duration(time.Hour) }, func(t *testing.T, s *service) {
		// Time passes for what waits. Moving the clock would not do: of one that
		// jumps the keeper undoes what it does to these times.
		db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(s.path("sheaf.db"))+"?_pragma=busy_timeout(10000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		age := func(d time.Duration) {
			t.Helper()
			for _, column := range []string{"uploads SET expires_at=expires_at", "garbage SET not_before=not_before"} {
				if _, err := db.ExecContext(t.Context(), "UPDATE "+column+"-?", d.Milliseconds()); err != nil {
					t.Fatal(err)
				}
			}
		}
		file := largeTrial(3, 100_000)
		path := s.begin(len(file), "filename", "a.trial", "hold", "true")
		s.patch(path, 0, file[:60_000])
		age(50 * time.Minute)
		s.patch(path, 60_000, file[60_000:80_000]) // new bytes are new life
		age(50 * time.Minute)
		if n := s.offset(path); n != 80_000 || s.blobs("uploads/") == 0 {
			t.Fatalf("%d bytes after less than the life of an upload", n)
		}
		age(15 * time.Minute)
		if resp, b := s.patch(path, 80_000, file[80_000:]); resp.StatusCode != http.StatusNotFound {
			t.Errorf("an upload whose life is over: %s %s", resp.Status, b)
		}
		// The keeper drops it; some time later, when no writer can be at work, its pieces go.
		waitFor(t, "the upload to be dropped", func() bool {
			g, err := s.store.Garbage(t.Context(), 10)
			age(time.Minute)
			return err == nil && (len(g) > 0 || s.blobs("uploads/") == 0)
		})
		waitFor(t, "the pieces to be collected", func() bool { return s.blobs("uploads/") == 0 })
	})
}

func TestUploadQuotaCountsWhatIsOnItsWay(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	small := s.tenant("small", "write", sheaf.Quota{Bytes: 1000})
	small.post("/v1/datasets", map[string]any{"name": "default"}, nil)
	first := small.begin(700, "filename", "a.txt")
	header := append([]string{"Tus-Resumable", "1.0.0", "Upload-Length", "400"}, small.authorization()...)
	resp, b := small.request("POST", "/v1/datasets/default/uploads", "", header...)
	if resp.StatusCode != 429 || !strings.Contains(string(b), "usage_limit_exceeded") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("over the quota: %s %s", resp.Status, b)
	}
	if resp, b := small.request("DELETE", first, "", append([]string{"Tus-Resumable", "1.0.0"}, small.authorization()...)...); resp.StatusCode != 204 {
		t.Fatalf("%s %s", resp.Status, b)
	}
	if resp, b := small.request("POST", "/v1/datasets/default/uploads", "", header...); resp.StatusCode != 201 {
		t.Errorf("after the first was given up: %s %s", resp.Status, b)
	}
	other := s.tenant("other", "write", sheaf.Quota{})
	other.post("/v1/datasets", map[string]any{"name": "default"}, nil)
	path := other.begin(5, "filename", "a.txt", "hold", "true")
	for _, method := range []string{"HEAD", "PATCH", "DELETE"} {
		h := append([]string{"Tus-Resumable", "1.0.0", "Content-Type", "application/offset+octet-stream", "Upload-Offset", "0"}, small.authorization()...)
		if resp, b := small.request(method, path, "", h...); resp.StatusCode != 404 {
			t.Errorf("%s of another tenant's upload: %s %s", method, resp.Status, b)
		}
	}
}

// cutAfter is a proxy that passes bytes slowly enough to be cut on their way.
func cutAfter(t *testing.T, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// stored sums the bytes of a dataset's uploads that are on their way.
func (s *service) stored(dataset string) (n int64) {
	s.t.Helper()
	var list api.List[api.UploadStatus]
	s.get("/v1/datasets/"+url.PathEscape(dataset)+"/uploads?limit=1000", &list)
	for _, u := range list.Items {
		if u.JobID == "" {
			n += u.Offset
		}
	}
	return n
}

func TestCommandSendsOnAfterACut(t *testing.T) {
	t.Parallel() // it mostly waits
	s := start(t, nil)
	p := cutAfter(t, strings.TrimPrefix(s.base, "http://"))
	file := largeTrial(4, 20<<20)
	path := put(t, t.TempDir(), "large.trial", file)
	run := func(ctx context.Context) ending {
		return typed{ctx: ctx}.run("--server", p.Addr(), "ingest", "--parser-config", trialSettings, path)
	}
	// The command is stopped in the middle, and run again.
	p.Set(proxy.Delay, 10*time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan ending, 2)
	go func() { ended <- run(ctx) }()
	waitFor(t, "some bytes", func() bool { return s.stored("default") > 0 })
	stop()
	if o := <-ended; o.code == 0 {
		t.Fatal("the command ended well although it was stopped")
	}
	var had int64
	waitFor(t, "what came to be stored", func() bool { last := had; had = s.stored("default"); return had > 0 && had == last })
	go func() { ended <- run(t.Context()) }()
	waitFor(t, "more bytes", func() bool { return s.stored("default") > had })
	p.Set(proxy.Cut, 0) // and once more, while it runs
	p.Set(proxy.Pass, 0)
	if o := <-ended; o.code != 0 {
		t.Fatalf("it ends with %d: %s", o.code, o.err)
	}
	var docs api.List[sheaf.Document]
	s.get("/v1/datasets/default/documents", &docs)
	if len(docs.Items) != 1 || docs.Items[0].State != sheaf.DocSucceeded {
		t.Fatalf("the documents are %+v", docs.Items)
	}
	if !bytes.Equal(s.original(docs.Items[0].ID), file) {
		t.Error("the document is not the file")
	}
	var list api.List[api.UploadStatus]
	s.get("/v1/datasets/default/uploads", &list)
	if len(list.Items) != 1 {
		t.Errorf("%d uploads were made for one file", len(list.Items))
	}
}

// TestPageUploadSurvivesCutsAndReload: a real browser behind a line that breaks.
func TestPageUploadSurvivesCutsAndReload(t *testing.T) {
	s := start(t, nil)
	s.newDataset("line", true)
	b := openBrowser(t, s)
	chromedp.ListenTarget(b.ctx, func(ev any) {
		if _, ok := ev.(*page.EventJavascriptDialogOpening); ok { // "leave, although a file is on its way?"
			go func() { _ = chromedp.Run(b.ctx, page.HandleJavaScriptDialog(true)) }()
		}
	})
	p := cutAfter(t, strings.TrimPrefix(s.base, "http://"))
	b.base = "http://" + p.Addr()
	file := largeTrial(5, 24<<20)
	path := put(t, t.TempDir(), "long way.trial", file)
	b.open("/datasets/line")
	b.sees(".empty", "No documents yet")
	p.Set(proxy.Delay, 15*time.Millisecond)
	b.drop(path)
	waitFor(t, "the first piece", func() bool { return s.stored("line") > 0 })
	b.sees("#uploads-list li.sending", "MB of")
	p.Set(proxy.Cut, 0)
	b.sees("#uploads-list .note", "Next try in")
	p.Set(proxy.Delay, 15*time.Millisecond)
	b.sees("#uploads-list .note", "Resuming at")
	had := s.stored("line")
	waitFor(t, "more bytes", func() bool { return s.stored("line") > had })
	// The page goes away in the middle. The same file dropped again goes on.
	p.Set(proxy.Cut, 0)
	p.Set(proxy.Pass, 0)
	b.run(chromedp.Navigate("about:blank"))
	waitFor(t, "what came to be stored", func() bool { last := had; had = s.stored("line"); return had == last })
	b.open("/datasets/line")
	b.drop(path)
	b.sees("#uploads-title", "1 file uploaded")
	b.sees(".docs", "Succeeded")
	var docs api.List[sheaf.Document]
	s.get("/v1/datasets/line/documents", &docs)
	sum := sha256.Sum256(file)
	if len(docs.Items) != 1 || docs.Items[0].SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the documents are not the file: %+v", docs.Items)
	}
	var list api.List[api.UploadStatus]
	s.get("/v1/datasets/line/uploads", &list)
	if len(list.Items) != 1 {
		t.Errorf("%d uploads were made for one file", len(list.Items))
	}
	if n := eval[int](b, `Object.keys(localStorage).filter(k => k.startsWith("sheaf-upload:")).length`); n != 0 {
		t.Errorf("the page remembers %d uploads that are done", n)
	}
	for _, fault := range b.taken() {
		// The cuts themselves, and an offset that was read while the server still
		// wrote what had come before the cut: the page asks again.
		if !strings.Contains(fault, "net::ERR_") && !strings.Contains(fault, "status of 409") {
			t.Error(fault)
		}
	}
}
