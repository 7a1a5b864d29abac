package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/backup"
	"sheaf/internal/config"
)

// A backup that is made while files come in is a data folder: a process that starts on
// it finds what was there, secrets included, and ends what was waiting.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.DataDir = filepath.Join(t.TempDir(), "data")
	s := startWith(t, cfg)
	s.send(nil, text("terns.md", "# Terns\n\nA sentence about terns.\n"))
	files := make([]source, 40)
	for i := range files {
		files[i] = text(fmt.Sprintf("wader%d.md", i), fmt.Sprintf("# Wader %d\n\nThe sentence of wader%dx.\n", i, i))
	}
	answer, err := s.submitAnswer(t.Context(), "default", files, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "disk", "backup")
	if e := (typed{}).run("backup", folder, "--data-dir", cfg.DataDir); e.code != 0 || !strings.Contains(e.out, "Backed up") {
		t.Fatalf("%+v", e)
	}
	s.ended(answer.Job.ID)
	var second backup.Report
	e := (typed{}).run("backup", folder, "--data-dir", cfg.DataDir, "--json")
	if err := json.Unmarshal([]byte(e.out), &second); err != nil || e.code != 0 || second.Files < 80 || second.NewFiles >= second.Files {
		t.Fatalf("%+v, %v, %+v", second, err, e)
	}
	s.stop()

	for _, name := range []string{"sheaf.db", "sheaf.db" + backup.Previous} {
		restored := cfg
		restored.DataDir = filepath.Join(t.TempDir(), "restored")
		if err := os.CopyFS(restored.DataDir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(restored.DataDir, name), filepath.Join(restored.DataDir, "sheaf.db")); err != nil {
			t.Fatal(err)
		}
		r := startWith(t, restored)
		if job := r.ended(answer.Job.ID); job.State != sheaf.DocSucceeded || job.Documents.Total != len(files) {
			t.Errorf("%s: the job is %s with %+v", name, job.State, job.Documents)
		}
		waitFor(t, "the index of "+name, func() bool { return r.finds("wader39x") && r.finds("terns") })
		r.stop()
		if e := (typed{}).run("backup", restored.DataDir, "--data-dir", cfg.DataDir); e.code != exitUsage || !strings.Contains(e.err, "has worked in") {
			t.Errorf("a backup over a folder in use: %+v", e)
		}
	}

	for _, args := range [][]string{
		{"backup"},
		{"backup", cfg.DataDir, "--data-dir", cfg.DataDir},
		{"backup", t.TempDir(), "--data-dir", t.TempDir()},
		{"backup", folder, "--data-dir", cfg.DataDir, "--server", "127.0.0.1:1"},
		{"backup", folder, "--data-dir", cfg.DataDir, "--set", "store.driver=mysql", "--set", "store.dsn=u@tcp(127.0.0.1:1)/d"},
	} {
		if e := (typed{}).run(args...); e.code != exitUsage || e.out != "" {
			t.Errorf("%v: %+v", args, e)
		}
	}
}
