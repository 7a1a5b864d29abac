package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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
	s := startOn(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
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
	if w, err := again.app.store.Webhook(t.Context(), sheaf.LocalTenant, made.DatasetID, made.ID); err != nil || w.Secret != clearSecret {
		t.Errorf("after the rotation the webhook's secret is %q: %v", w.Secret, err)
	}
	again.stop()

	// Without its key the folder is not opened with a new one.
	key := filepath.Join(cfg.DataDir, keyFile)
	if err := os.Rename(key, key+".away"); err != nil {
		t.Fatal(err)
	}
	if a, err := product.build(t.Context(), cfg, roles{}, slog.New(slog.DiscardHandler)); err == nil || !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "backup") {
		if a != nil {
			_ = a.close()
		}
		t.Fatalf("without its key: %v", err)
	}
	if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
		t.Error("another key was made in silence")
	}
	other := cfg
	other.Store.SecretsKey = testSecretsKey
	if a, err := product.build(t.Context(), other, roles{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), ring.Current()) {
		if a != nil {
			_ = a.close()
		}
		t.Fatalf("with another key: %v", err)
	}
	if code := product.Run([]string{"secrets", "forget", "--yes"}); code != 0 {
		t.Fatalf("secrets forget ends with %d", code)
	}
	startWith(t, cfg).stop()
}

func TestFolderOfOthersIsLeftAsItIs(t *testing.T) {
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "notes.txt"), filepath.Join(dir, "sheaf.db")
	for _, path := range []string{theirs, ours} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, theirs, ours} {
		mode := fs.FileMode(0o644)
		if path == dir {
			mode = 0o755
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	tighten(dir, slog.New(slog.NewJSONHandler(&log, nil)))
	for path, want := range map[string]fs.FileMode{dir: 0o755, theirs: 0o644, ours: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s is %v, want %v: %v", path, info.Mode(), want, err)
		}
	}
	var line struct{ Msg string }
	if err := json.NewDecoder(&log).Decode(&line); err != nil || !strings.Contains(line.Msg, "not Sheaf's") {
		t.Errorf("the log says %q: %v", line.Msg, err)
	}
}
