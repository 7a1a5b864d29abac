package e2e

import (
	"archive/tar"
	"compress/gzip"
	"flag"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf/internal/config"
)

// keep makes TestKeepDataFolder write a data folder of this version, which is
// done once for each release.
var keep = flag.String("keep", "", "write a small data folder of this version to testdata/released under this name")

const (
	releasedHerons = "# Herons\n\nHerons wait in shallow water until something moves.\n"
	releasedLate   = "Dunlins came late, in two pieces."
	releasedFirst  = 12 // bytes of releasedLate that are there
	releasedSecret = "whsec_a2VwdC1hdC10aGUtcmVsZWFzZS1vZi1hLXNoZWFm"
)

// TestKeepDataFolder leaves what clients left in a data folder: documents that
// went through, failed and wait, and an upload that broke off.
func TestKeepDataFolder(t *testing.T) {
	if *keep == "" {
		t.Skip("-keep is not set")
	}
	cfg := config.Default()
	cfg.DataDir, cfg.Webhooks.Hosts = filepath.Join(t.TempDir(), "data"), []string{"127.0.0.1:1"}
	s := startWith(t, cfg)
	s.post("/v1/datasets", map[string]any{"name": "contracts", "parser_config": map[string]any{"chunk_token_num": 256, "password": "kept-password"}}, nil)
	s.post("/v1/datasets/default/webhooks", map[string]any{"url": "https://127.0.0.1:1/hook", "secret": releasedSecret}, nil)
	resp, b := s.request(http.MethodPost, "/v1/datasets/default/documents?name=herons.md&wait=30s", releasedHerons, "Content-Type", "text/markdown", "Idempotency-Key", "kept-upload")
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	s.send(nil, text("report.pdf", string(report(3, "Kept report"))), text("broken.pdf", "%PDF-1.4\nnothing more\n"))
	s.stop()

	// Where no executor serves their pool documents wait.
	cfg.Executor.Pools = []string{"elsewhere"}
	s = startWith(t, cfg)
	if _, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("waits.md", "# Kingfishers\n\nKingfishers wait for the next release.\n")}, nil, ""); err != nil {
		t.Fatal(err)
	}
	if resp, b := s.patch(s.begin(len(releasedLate), "filename", "late.txt"), 0, []byte(releasedLate[:releasedFirst])); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("%s: %s", resp.Status, b)
	}
	s.stop()
	pack(t, cfg.DataDir, filepath.Join("testdata", "released", *keep+".tar.gz"))
}

func pack(t *testing.T, dir, name string) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(os.MkdirAll(filepath.Dir(name), 0o755))
	out, err := os.Create(name)
	ok(err)
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	ok(err)
	w := tar.NewWriter(z)
	ok(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		if top, _, _ := strings.Cut(rel, "/"); top == "tmp" || top == "cache" || top == "lock" || top == "server.json" {
			return nil
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: rel + "/", Mode: 0o700, ModTime: time.Unix(0, 0)})
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: rel, Size: int64(len(b)), Mode: 0o600, ModTime: time.Unix(0, 0)}); err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}))
	ok(w.Close())
	ok(z.Close())
	ok(out.Close())
}

// unpack makes a data folder of a released one, as open as versions before keys left theirs.
func unpack(t *testing.T, name, dir string) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(name)
	ok(err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	ok(err)
	ok(os.MkdirAll(dir, 0o755))
	ok(os.Chmod(dir, 0o755)) // whatever the umask
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		ok(err)
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			ok(os.MkdirAll(path, 0o755))
			ok(os.Chmod(path, 0o755))
			continue
		}
		b, err := io.ReadAll(r)
		ok(err)
		ok(os.WriteFile(path, b, 0o644))
		ok(os.Chmod(path, 0o644))
	}
}
