package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sheaf"
)

// folder is a data folder with a database, a key and two trees.
func folder(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	c := Config{
		Source: filepath.Join(dir, "data"), Target: filepath.Join(dir, "disk", "backup"), Program: "test",
		Database: "sheaf.db", Files: []string{"secrets.key", "absent.key"}, Trees: []string{"blobs/objects", "models", "absent"},
		LockFunc: func(string) (func() error, error) { return func() error { return nil }, nil },
	}
	c.SnapshotFunc = func(_ context.Context, to string) error {
		b, err := os.ReadFile(c.from("sheaf.db"))
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	}
	for name, content := range map[string]string{
		"sheaf.db": "rows 1", "secrets.key": "key", "server.json": "{}", "index.db": "vectors",
		"blobs/objects/a/one": "first", "blobs/objects/b/two": "second", "blobs/tmp/x": "being written", "models/m/weights": "numbers", "models/lock": "",
	} {
		put(t, c.from(name), content)
	}
	return c
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files lists all files below a folder.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func run(t *testing.T, c Config) *Report {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBackup(t *testing.T) {
	c := folder(t)
	r := run(t, c)
	want := []string{"backup.json", "blobs/objects/a/one", "blobs/objects/b/two", "models/m/weights", "secrets.key", "sheaf.db"}
	if got := files(t, c.Target); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if r.DatabaseBytes != 6 || r.Files != 4 || r.NewFiles != 4 || r.Bytes != 21 || r.NewBytes != 21 {
		t.Errorf("%+v", r)
	}
	if runtime.GOOS != "windows" {
		for _, name := range append(want, "", "blobs") {
			if info, err := os.Stat(c.to(name)); err != nil || info.Mode()&0o077 != 0 {
				t.Errorf("%q is open to others: %v, %v", name, info.Mode(), err)
			}
		}
	}

	// The next one copies what is new, and nothing that is gone is lost with it.
	put(t, c.from("sheaf.db"), "rows 2")
	put(t, c.from("secrets.key"), "key 2")
	put(t, c.from("blobs/objects/c/three"), "third")
	if err := os.Remove(c.from("blobs/objects/a/one")); err != nil {
		t.Fatal(err)
	}
	r = run(t, c)
	if r.Files != 4 || r.NewFiles != 2 || r.Removed != 0 {
		t.Errorf("%+v", r)
	}
	for name, content := range map[string]string{"sheaf.db": "rows 2", "sheaf.db" + Previous: "rows 1", "secrets.key": "key 2", "blobs/objects/a/one": "first", "blobs/objects/c/three": "third"} {
		if got := get(t, c.to(name)); got != content {
			t.Errorf("%s holds %q", name, got)
		}
	}
	c.Prune = true
	if r = run(t, c); r.Removed != 1 || r.NewFiles != 0 {
		t.Errorf("%+v", r)
	}
	if slices.Contains(files(t, c.Target), "blobs/objects/a/one") {
		t.Error("a file that the data folder no longer has was kept")
	}
}

// Whatever else the folder holds is not touched.
func TestForeignFoldersAreRefused(t *testing.T) {
	refused := func(c Config, why string) {
		t.Helper()
		before := files(t, filepath.Dir(c.Source))
		_, err := Run(t.Context(), c)
		if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
		if after := files(t, filepath.Dir(c.Source)); !slices.Equal(before, after) {
			t.Errorf("refused, and yet there is %v, before it %v", after, before)
		}
	}
	c := folder(t)
	for _, target := range []string{c.Source, c.from("blobs"), c.from("new/folder"), filepath.Dir(c.Source)} {
		d := c
		d.Target = target
		refused(d, "lie in one another")
	}
	link := filepath.Join(filepath.Dir(c.Source), "link")
	if err := os.Symlink(c.Source, link); err == nil {
		d := c
		d.Target = filepath.Join(link, "backup")
		refused(d, "lie in one another")
	}
	d := c
	d.Source += "x"
	refused(d, "cannot be read")
	d = c
	d.Database = "other.db"
	refused(d, "no database")

	put(t, c.to("letter.txt"), "dear")
	refused(c, "letter.txt")
	if err := os.Remove(c.to("letter.txt")); err != nil {
		t.Fatal(err)
	}
	run(t, c)

	other := folder(t)
	other.Target = c.Target
	refused(other, "is a backup of "+c.Source)

	put(t, c.to("sheaf.db-wal"), "")
	refused(c, "has worked in")
	if err := os.Remove(c.to("sheaf.db-wal")); err != nil {
		t.Fatal(err)
	}
	run(t, c)
	put(t, c.to("sheaf.db"), "rows of its own")
	refused(c, "has worked in")
	put(t, c.to(Marker), "{")
	refused(c, "cannot be read")
}

// Until the new database is in its place, the earlier backup is whole; what was begun
// can be finished.
func TestInterruptedBackup(t *testing.T) {
	c := folder(t)
	run(t, c)
	put(t, c.from("sheaf.db"), "rows 2")
	put(t, c.from("blobs/objects/c/three"), "third")
	snapshot := c.SnapshotFunc
	failing := errors.New("no space left")

	c.SnapshotFunc = func(ctx context.Context, to string) error { return errors.Join(snapshot(ctx, to), failing) }
	if _, err := Run(t.Context(), c); !errors.Is(err, failing) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.SnapshotFunc = func(ctx context.Context, to string) error { cancel(); return snapshot(ctx, to) }
	if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	put(t, c.to("blobs/objects/d"), "in the way of a folder")
	put(t, c.from("blobs/objects/d/four"), "fourth")
	c.SnapshotFunc = snapshot
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "still whole") {
		t.Fatal(err)
	}
	if got := get(t, c.to("sheaf.db")); got != "rows 1" {
		t.Fatalf("the earlier backup holds %q", got)
	}
	if err := os.Remove(c.to("blobs/objects/d")); err != nil {
		t.Fatal(err)
	}

	// One that ends between the new database and the marker.
	sum, err := hash(c.from("sheaf.db"))
	if err != nil {
		t.Fatal(err)
	}
	before, err := hash(c.to("sheaf.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(&marker{Source: c.Source, Databases: []string{before, sum}}); err != nil {
		t.Fatal(err)
	}
	put(t, c.to("sheaf.db"), "rows 2")
	put(t, c.to("blobs/objects/c/three")+partial, "th")
	c.Prune = true
	if r := run(t, c); r.NewFiles == 0 || get(t, c.to("blobs/objects/d/four")) != "fourth" || get(t, c.to("blobs/objects/c/three")) != "third" {
		t.Errorf("%+v", r)
	}
	for _, name := range files(t, c.Target) {
		if strings.HasSuffix(name, partial) {
			t.Errorf("%s is left", name)
		}
	}
}

// A data folder whose disk is missing takes nothing from the backup.
func TestMissingTreeRemovesNothing(t *testing.T) {
	c := folder(t)
	run(t, c)
	if err := os.RemoveAll(c.from("blobs")); err != nil {
		t.Fatal(err)
	}
	c.Prune = true
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "nothing was removed") {
		t.Fatal(err)
	}
	if got := get(t, c.to("blobs/objects/a/one")); got != "first" {
		t.Errorf("%q is left", got)
	}
}

// Two backups into one folder do not meet.
func TestLockedFolder(t *testing.T) {
	c := folder(t)
	held := errors.New("held by another process")
	c.LockFunc = func(string) (func() error, error) { return nil, held }
	if _, err := Run(t.Context(), c); !errors.Is(err, held) {
		t.Fatal(err)
	}
	if got := files(t, c.Target); len(got) != 0 {
		t.Errorf("%v was written", got)
	}
}
