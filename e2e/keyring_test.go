package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
)

// testSecretsKey is that of every fleet of these tests.
const testSecretsKey = "sheafkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

const clearSecret = "whsec_aGVyb25zLXdhaXQtaW4tdGhlLXNoYWxsb3ctd2F0ZXI="

// readable walks a data folder and lists what other users may read, and what
// shows a secret.
func readable(t *testing.T, dir string, texts ...string) (open, shown []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			open = append(open, path+" "+info.Mode().String())
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(b, []byte(text)) {
				shown = append(shown, path+" shows "+text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return open, shown
}

func TestDataFolderIsClosedToOthersAndShowsNoSecret(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	cfg := config.Default()
	cfg.DataDir = filepath.Join(t.TempDir(), "data")
	// As an earlier version, or a copy, left it.
	blobs := filepath.Join(cfg.DataDir, "blobs", "aa")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(blobs, "old"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.Webhooks.Hosts = []string{"example.invalid"}
	var log safeBuffer
	s := startLogging(t, cfg, "info", &log)
	if !slices.ContainsFunc(log.lines(t), func(line map[string]any) bool {
		return strings.Contains(fmt.Sprint(line["msg"]), "they are closed to them now")
	}) {
		t.Errorf("the log does not say that files were open: %v", log.lines(t))
	}
	const password = "pa55word-of-the-file"
	var made taskstore.Webhook
	s.post("/v1/datasets/default/webhooks", map[string]any{"url": "https://example.invalid/x", "secret": clearSecret}, &made)
	s.send(map[string]string{"parser_config": `{"password":"` + password + `"}`}, text("a.md", "# Herons\n\nwait.\n"))
	open, shown := readable(t, cfg.DataDir, clearSecret, password)
	if len(open) > 0 || len(shown) > 0 {
		t.Errorf("open to others: %v\nreadable: %v", open, shown)
	}
	s.stop()
	if info, err := os.Stat(filepath.Join(cfg.DataDir, keyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key file: %v %v", info, err)
	}

	// A rotation leaves everything readable to the service.
	t.Setenv("SHEAF_DATA_DIR", cfg.DataDir)
	if code := product.Run([]string{"secrets", "rotate"}); code != 0 {
		t.Fatalf("secrets rotate ends with %d", code)
	}
	ring, err := secrets.Load(filepath.Join(cfg.DataDir, keyFile))
	if err != nil || len(ring.IDs()) != 2 {
		t.Fatalf("after the rotation the keys are %v: %v", ring, err)
	}
	again := startWith(t, cfg)
	if w, err := again.store.Webhook(t.Context(), sheaf.LocalTenant, made.DatasetID, made.ID); err != nil || w.Secret != clearSecret {
		t.Errorf("after the rotation the webhook's secret is %q: %v", w.Secret, err)
	}
	again.stop()

	// Without its key the folder is not opened with a new one.
	key := filepath.Join(cfg.DataDir, keyFile)
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	if said := begin(t, product, cfg, io.Discard, "up", "--listen", "127.0.0.1:0").fails(); !strings.Contains(said, "backup") {
		t.Fatalf("without its key: %s", said)
	}
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		t.Error("another key was made in silence")
	}
	other := cfg
	other.Store.SecretsKey = testSecretsKey
	if said := begin(t, product, other, io.Discard, "up", "--listen", "127.0.0.1:0").fails(); !strings.Contains(said, ring.Current()) {
		t.Fatalf("with another key: %s", said)
	}
	if code := product.Run([]string{"secrets", "forget", "--yes"}); code != 0 {
		t.Fatalf("secrets forget ends with %d", code)
	}
	startWith(t, cfg).stop()
}
