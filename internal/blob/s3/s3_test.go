package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"sheaf"
	"sheaf/internal/blob/blobtest"
)

// config names the server under test and a bucket of the test's own, which is
// removed at the end.
func config(t *testing.T) Config {
	t.Helper()
	c := Config{
		Endpoint: os.Getenv("SHEAF_TEST_S3_ENDPOINT"), AccessKey: os.Getenv("SHEAF_TEST_S3_ACCESS_KEY"), SecretKey: os.Getenv("SHEAF_TEST_S3_SECRET_KEY"),
		Bucket: "test-" + sheaf.NewID(), CreateBucket: true,
	}
	if c.Endpoint == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("SHEAF_TEST_S3_ENDPOINT is not set")
		}
		t.Skip("SHEAF_TEST_S3_ENDPOINT is not set; `make services` starts a MinIO")
	}
	return c
}

func open(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.client.RemoveBucketWithOptions(ctx, c.Bucket, minio.RemoveBucketOptions{ForceDelete: true}); err != nil && minio.ToErrorResponse(err).Code != minio.NoSuchBucket {
			t.Error(err)
		}
	})
	return s
}

// noUploads fails when an unfinished upload of key is left.
func noUploads(t *testing.T, s *Store, key string) {
	t.Helper()
	page, err := s.client.ListMultipartUploads(t.Context(), s.config.Bucket, s.config.Prefix+key, "", "", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Uploads) != 0 {
		t.Errorf("%d unfinished uploads of %s are left", len(page.Uploads), key)
	}
}

func TestContract(t *testing.T) {
	s := open(t, config(t))
	blobtest.Run(t, s)
	for _, key := range []string{"broken/off", "ctx-put", "announced", "multi/large", ".ping"} {
		noUploads(t, s, key)
	}
}

func TestContractUnderAPrefix(t *testing.T) {
	c := config(t)
	outer := open(t, c)
	c.Prefix = "team/sheaf/"
	inner, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := outer.Put(t.Context(), "team/other", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	blobtest.Run(t, inner)
	if _, err := outer.Stat(t.Context(), "team/other"); err != nil {
		t.Error("a neighbour of the prefix is gone:", err)
	}
}

func TestPresignedAddressesWorkWithoutCredentials(t *testing.T) {
	s := open(t, config(t))
	data := blobtest.Bytes(1, 100<<10)
	put, err := s.PresignPut(t.Context(), "signed/x", int64(len(data)), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	send := func(b []byte) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, put, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := send(append(data, 'x')); resp.StatusCode != 403 {
		t.Errorf("more bytes than the address is for: %s", resp.Status)
	}
	if resp := send(data); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	get, err := s.PresignGet(t.Context(), "signed/x", time.Minute, `attachment; filename="x.pdf"`)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(get)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(b, data) || resp.Header.Get("Content-Disposition") != `attachment; filename="x.pdf"` {
		t.Errorf("%d bytes, %v, %v", len(b), resp.Header, err)
	}
	for _, d := range []time.Duration{0, 8 * 24 * time.Hour} {
		if _, err := s.PresignPut(t.Context(), "x", 1, d); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("valid for %s: %v", d, err)
		}
	}
}

func TestStaleUploadsAreAborted(t *testing.T) {
	s := open(t, config(t))
	if _, err := s.client.NewMultipartUpload(t.Context(), s.config.Bucket, "crashed", minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	// MinIO lists uploads of one object only, so the prefix is its key here.
	s.config.Prefix = "crashed"
	if n, err := s.AbortStale(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("a fresh upload was aborted: %d, %v", n, err)
	}
	if n, err := s.AbortStale(t.Context(), -time.Hour); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.config.Prefix = ""
	noUploads(t, s, "crashed")
}

func TestLargeUploadHoldsOnePart(t *testing.T) {
	s := open(t, config(t))
	var peak uint64
	r := io.LimitReader(readerFunc(func(p []byte) (int, error) {
		var m runtime.MemStats
		if len(p) >= 12<<20 { // at the start of a part
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}
		return min(len(p), 4<<20), nil
	}), 100<<20)
	if info, err := s.Put(t.Context(), "zeros", r, -1); err != nil || info.Size != 100<<20 {
		t.Fatal(info, err)
	}
	if peak == 0 || peak > 40<<20 {
		t.Errorf("%d MB in use", peak>>20)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestBytesDamagedOnTheWayAreRefused sends an upload through a proxy that
// changes a byte of it.
func TestBytesDamagedOnTheWayAreRefused(t *testing.T) {
	c := config(t)
	direct := open(t, c)
	server, err := url.Parse(c.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var damage atomic.Bool
	var digests atomic.Value // what the last upload was signed with
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(server)
		r.Out.Host = r.In.Host // which is signed
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			body, err := io.ReadAll(r.Body)
			if err != nil || len(body) == 0 {
				t.Errorf("%d bytes, %v", len(body), err)
				return
			}
			digests.Store(r.Header.Get("X-Amz-Content-Sha256"))
			if damage.Load() {
				body[len(body)/2] ^= 1
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	c.Endpoint, c.MaxRetries = proxy.URL, 1
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data := blobtest.Bytes(7, 100<<10)
	info, err := s.Put(t.Context(), "whole", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if signed := digests.Load(); signed != info.SHA256 {
		t.Errorf("signed with %v, the digest is %s", signed, info.SHA256)
	}
	damage.Store(true)
	if _, err := s.Put(t.Context(), "damaged", bytes.NewReader(data), int64(len(data))); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("damaged bytes: %v", err)
	}
	if _, err := direct.Stat(t.Context(), "damaged"); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("damaged bytes are stored: %v", err)
	}
}

func TestPartSizeSuffices(t *testing.T) {
	for _, size := range []int64{-1, 0, 1, 1 << 30, partBytes * maxParts, partBytes*maxParts + 1, 1 << 40, maxBytes} {
		if p := partSize(size); p < partBytes || p*maxParts < size || p > 5<<30 {
			t.Errorf("%d bytes in parts of %d", size, p)
		}
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	c := config(t)
	for name, x := range map[string]struct {
		change func(*Config)
		kind   error
		says   string
	}{
		"no bucket":       {func(c *Config) { c.Bucket = "" }, sheaf.ErrInvalid, "bucket"},
		"missing bucket":  {func(c *Config) { c.CreateBucket = false }, sheaf.ErrNotFound, "create it"},
		"no scheme":       {func(c *Config) { c.Endpoint = "minio:9000" }, sheaf.ErrInvalid, "https://host:port"},
		"wrong secret":    {func(c *Config) { c.SecretKey = "wrong-secret" }, sheaf.ErrUnavailable, ""},
		"unknown scheme":  {func(c *Config) { c.Credentials = "magic" }, sheaf.ErrInvalid, "static, env or iam"},
		"half a key":      {func(c *Config) { c.SecretKey = "" }, sheaf.ErrInvalid, "secret key"},
		"nobody answers":  {func(c *Config) { c.Endpoint, c.MaxRetries = "http://127.0.0.1:1", 1 }, sheaf.ErrUnavailable, "127.0.0.1:1"},
		"no such CA file": {func(c *Config) { c.CAFile = "/no/such/file" }, sheaf.ErrInvalid, "authorities"},
		"bad prefix":      {func(c *Config) { c.Prefix = "x" }, sheaf.ErrInvalid, "prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			x.change(&c)
			_, err := Open(t.Context(), c)
			if name == "wrong secret" { // MinIO answers HEAD with a bare 403
				if err == nil || errors.Is(err, sheaf.ErrInvalid) {
					t.Errorf("got %v", err)
				}
			} else if !errors.Is(err, x.kind) || !strings.Contains(err.Error(), x.says) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), c.SecretKey) && c.SecretKey != "" {
				t.Error("the secret is in the message")
			}
		})
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, c.SecretKey) || strings.Contains(text, c.AccessKey) {
		t.Errorf("secrets are printed: %s", text)
	}
}

// TestFullStoreIsReadOnly stands in for the server, whose disk cannot be
// filled here: it answers as MinIO does when the disk is full.
func TestFullStoreIsReadOnly(t *testing.T) {
	full := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusInsufficientStorage)
			fmt.Fprint(w, `<?xml version="1.0"?><Error><Code>XMinioStorageFull</Code><Message>Storage backend has reached its minimum free drive threshold.</Message></Error>`)
		}
	}))
	defer full.Close()
	s, err := Open(t.Context(), Config{Endpoint: full.URL, Bucket: "b-full", AccessKey: "a", SecretKey: "b", MaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x", strings.NewReader("x"), 1); !errors.Is(err, sheaf.ErrReadOnly) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
}

// Probes come every few seconds: one that wrote would fill the bucket's log,
// and leave unfinished uploads behind when it is cut off.
func TestPingWritesNothing(t *testing.T) {
	c := config(t)
	target, err := url.Parse(c.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var wrote atomic.Int32
	through := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			wrote.Add(1)
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	direct, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.client.Client.RemoveBucket(context.Background(), c.Bucket) })
	c.Endpoint = front.URL
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wrote.Store(0)
	if err := s.Ping(t.Context()); err != nil || wrote.Load() != 0 {
		t.Errorf("%d requests that write: %v", wrote.Load(), err)
	}
	c.SecretKey = "wrong-secret"
	refused := &Store{config: c, client: s.client, public: s.client}
	if refused.client, err = connect(c, c.Endpoint); err != nil {
		t.Fatal(err)
	}
	if err := refused.Ping(t.Context()); !errors.Is(err, sheaf.ErrMisconfigured) {
		t.Errorf("with a wrong key: %v", err)
	}
	// A key that was rotated is taken up.
	keys := [2]string{c.AccessKey, "wrong-secret"}
	c.Keys = func() (string, string) { return keys[0], keys[1] }
	if refused.client, err = connect(c, c.Endpoint); err != nil {
		t.Fatal(err)
	}
	_ = refused.Ping(t.Context())
	keys[1] = os.Getenv("SHEAF_TEST_S3_SECRET_KEY")
	if err := refused.Ping(t.Context()); err != nil {
		t.Errorf("with the rotated key: %v", err)
	}
}
