package command

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
