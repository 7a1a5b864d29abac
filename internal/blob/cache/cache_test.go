package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/blobtest"
	"sheaf/internal/blob/file"
)

// remote hides that its objects are local files, counts downloads, and holds
// them back while gate is set.
type remote struct {
	blob.Store
	opens atomic.Int64
	gate  chan struct{}
}

func (r *remote) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r.opens.Add(1)
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return r.Store.Open(ctx, key, offset, length)
}

type object struct {
	key, digest string
	data        []byte
}

func setup(t *testing.T, n, size int) (*remote, []object) {
	t.Helper()
	s, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var objects []object
	for i := range n {
		data := blobtest.Bytes(uint64(i), size)
		o := object{fmt.Sprintf("o/%d", i), blobtest.Digest(data), data}
		if _, err := s.Put(t.Context(), o.key, bytes.NewReader(data), -1); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return &remote{Store: s}, objects
}

func (o object) fetch(t *testing.T, c *Cache) (release func()) {
	t.Helper()
	path, release, err := c.Fetch(t.Context(), o.key, o.digest, int64(len(o.data)))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, o.data) {
		t.Fatalf("%s holds other bytes, %v", path, err)
	}
	return release
}

func open(t *testing.T, s blob.Store, dir string, max int64) *Cache {
	t.Helper()
	c, err := Open(s, dir, max)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLocalStoreNeedsNoCopy(t *testing.T) {
	r, objects := setup(t, 1, 100)
	dir := filepath.Join(t.TempDir(), "cache")
	c := open(t, r.Store, dir, 1000)
	objects[0].fetch(t, c)()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder was made")
	}
}

func TestOneDownloadForAllAndOverARestart(t *testing.T) {
	r, objects := setup(t, 1, 1<<20)
	dir := t.TempDir()
	c := open(t, r, dir, 10<<20)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { objects[0].fetch(t, c)() })
	}
	wg.Wait()
	if err := os.WriteFile(filepath.Join(dir, "download-crashed"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	c = open(t, r, dir, 10<<20)
	objects[0].fetch(t, c)()
	if n := r.opens.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files", len(files))
	}
}

func TestLeastRecentlyUsedGoesAndFilesInUseStay(t *testing.T) {
	r, o := setup(t, 4, 1000)
	dir := t.TempDir()
	c := open(t, r, dir, 2000)
	hold := o[0].fetch(t, c)
	o[1].fetch(t, c)()
	o[2].fetch(t, c)() // 1 must go, 0 is in use
	o[3].fetch(t, c)() // 2 must go
	has := func(i int) bool { _, err := os.Stat(filepath.Join(dir, o[i].digest)); return err == nil }
	if !has(0) || has(1) || has(2) || !has(3) {
		t.Errorf("kept: %v %v %v %v", has(0), has(1), has(2), has(3))
	}
	hold()
	hold() // a second call does nothing
	if c.bytes != 2000 {
		t.Errorf("%d bytes counted", c.bytes)
	}
	// A restart with a smaller bound keeps the most recent.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, o[3].digest), old, old); err != nil {
		t.Fatal(err)
	}
	open(t, r, dir, 1000)
	if !has(0) || has(3) {
		t.Errorf("after a restart: %v %v", has(0), has(3))
	}
}

func TestWrongBytesAreRefusedAndLeaveNothing(t *testing.T) {
	r, o := setup(t, 2, 1000)
	dir := t.TempDir()
	c := open(t, r, dir, 1<<20)
	for name, f := range map[string]func() error{
		"other digest": func() error { _, _, err := c.Fetch(t.Context(), o[0].key, o[1].digest, 1000); return err },
		"shorter":      func() error { _, _, err := c.Fetch(t.Context(), o[0].key, o[0].digest, 999); return err },
		"longer":       func() error { _, _, err := c.Fetch(t.Context(), o[0].key, o[0].digest, 1001); return err },
		"no digest":    func() error { _, _, err := c.Fetch(t.Context(), o[0].key, "../x", 1000); return err },
	} {
		if err := f(); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := c.Fetch(t.Context(), "absent", o[0].digest, 1000); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 || c.bytes != 0 {
		t.Errorf("%d files, %d bytes counted", len(files), c.bytes)
	}
	o[0].fetch(t, c)() // a failure is not remembered
}

func TestDeletedFileIsFetchedAgain(t *testing.T) {
	r, o := setup(t, 1, 1000)
	dir := t.TempDir()
	c := open(t, r, dir, 1<<20)
	o[0].fetch(t, c)()
	if err := os.Remove(filepath.Join(dir, o[0].digest)); err != nil {
		t.Fatal(err)
	}
	o[0].fetch(t, c)()
	if r.opens.Load() != 2 || c.bytes != 1000 {
		t.Errorf("%d downloads, %d bytes", r.opens.Load(), c.bytes)
	}
}

func TestCallerThatGivesUpDoesNotEndTheOthers(t *testing.T) {
	r, o := setup(t, 1, 1000)
	r.gate = make(chan struct{})
	c := open(t, r, t.TempDir(), 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { _, _, err := c.Fetch(ctx, o[0].key, o[0].digest, 1000); first <- err }()
	for r.opens.Load() == 0 {
		time.Sleep(time.Millisecond) // the download runs in a goroutine of its own
	}
	second := make(chan struct{})
	go func() { defer close(second); o[0].fetch(t, c)() }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(r.gate)
	<-second
}

func TestManyUsersKeepTheBound(t *testing.T) {
	r, o := setup(t, 12, 1000)
	dir := t.TempDir()
	c := open(t, r, dir, 3000)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 9))
			for range 100 {
				if rnd.IntN(5) == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(200))*time.Microsecond)
					x := o[rnd.IntN(len(o))]
					if _, release, err := c.Fetch(ctx, x.key, x.digest, 1000); err == nil {
						release()
					}
					cancel()
					continue
				}
				o[rnd.IntN(len(o))].fetch(t, c)()
			}
		})
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes > 3000 || c.bytes != int64(1000*len(c.entries)) || c.unused.Len() != len(c.entries) {
		t.Errorf("%d bytes, %d entries, %d unused", c.bytes, len(c.entries), c.unused.Len())
	}
}

// A file goes once nobody has used it for its time, regardless of who stored it, and
// not while somebody uses it.
// Files of deleted documents are removed, whole or in blocks, but for those in use.
func TestFilesAreRemovedByKey(t *testing.T) {
	r, objects := setup(t, 3, 5<<20)
	dir := t.TempDir()
	c := open(t, r, dir, 1<<30)
	c.wholeBytes = 1 << 20
	objects[0].fetch(t, c)()
	held := objects[1].fetch(t, c)
	path, fill, release, err := c.FetchBlocks(t.Context(), objects[2].key, objects[2].digest, 5<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), 0, 10); err != nil {
		t.Fatal(err)
	}
	release()
	if got := c.Unused(); !slices.Equal(got, []string{objects[2].key, objects[0].key}) {
		t.Errorf("unused are %v", got)
	}
	c.Remove([]string{objects[0].key, objects[1].key, "o/other"})
	if _, err := os.Stat(filepath.Join(dir, objects[0].digest)); err == nil {
		t.Error("an unused file of that key is there")
	}
	for _, there := range []string{filepath.Join(dir, objects[1].digest), path} {
		if _, err := os.Stat(there); err != nil {
			t.Errorf("a file in use, or of another key: %v", err)
		}
	}
	held()
	c.Remove([]string{objects[1].key, objects[2].key})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || c.bytes != 0 {
		t.Errorf("left are %v and %d bytes, %v", left, c.bytes, err)
	}
	objects[0].fetch(t, c)()
}

func TestFilesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, objects := setup(t, 3, 100)
		dir := t.TempDir()
		earlier := open(t, r, dir, 1000)
		objects[0].fetch(t, earlier)() // its time is that of the file
		if err := os.Chtimes(filepath.Join(dir, objects[0].digest), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		c := open(t, r, dir, 1000)
		held := objects[1].fetch(t, c)
		stop := c.Expire(time.Hour)
		defer stop()
		there := func() (out []int) {
			for i, o := range objects {
				if _, err := os.Stat(filepath.Join(dir, o.digest)); err == nil {
					out = append(out, i)
				}
			}
			return out
		}
		time.Sleep(50 * time.Minute)
		objects[2].fetch(t, c)()
		if got := there(); !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("after 50 minutes %v are there", got)
		}
		time.Sleep(20 * time.Minute)
		if got := there(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("after 70 minutes %v are there", got)
		}
		held()
		time.Sleep(70 * time.Minute)
		if got := there(); len(got) > 0 {
			t.Errorf("after 140 minutes %v are there", got)
		}
		opens := r.opens.Load()
		objects[1].fetch(t, c)()
		if r.opens.Load() != opens+1 {
			t.Error("a file that has expired is not brought again")
		}
	})
}
