package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/blobtest"
	"sheaf/internal/blob/file"
)

// metered is a store whose objects are not files of this host. It counts what
// is read of them, and breaks every n-th request.
type metered struct {
	blob.Store
	opens, bytes atomic.Int64
	breaks       int64
}

func (r *metered) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if n := r.opens.Add(1); r.breaks > 0 && n%r.breaks == 0 {
		return nil, fmt.Errorf("%w: broken", sheaf.ErrUnavailable)
	}
	r.bytes.Add(length)
	return r.Store.Open(ctx, key, offset, length)
}

// holding makes a cache over a store with the object x.
func holding(t *testing.T, data []byte) (*Cache, *metered, string) {
	t.Helper()
	s, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x", bytes.NewReader(data), -1); err != nil {
		t.Fatal(err)
	}
	r := &metered{Store: s}
	c, err := Open(r, t.TempDir(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	c.wholeBytes = 0
	sum := sha256.Sum256(data)
	return c, r, hex.EncodeToString(sum[:])
}

func TestWhatIsFilledIsTheFile(t *testing.T) {
	for _, size := range []int{1, BlockBytes - 1, BlockBytes, BlockBytes + 1, 40*BlockBytes + 777} {
		data := blobtest.Bytes(uint64(size), size)
		_, store, digest := holding(t, data)
		rapid.Check(t, func(rt *rapid.T) {
			c, err := Open(store, t.TempDir(), 1<<40)
			if err != nil {
				rt.Fatal(err)
			}
			c.wholeBytes = 0
			path, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, int64(size))
			if err != nil {
				rt.Fatal(err)
			}
			defer release()
			f, err := os.Open(path)
			if err != nil {
				rt.Fatal(err)
			}
			defer f.Close()
			if info, err := f.Stat(); err != nil || info.Size() != int64(size) {
				rt.Fatalf("%v, %v", info.Size(), err)
			}
			for range rapid.IntRange(1, 10).Draw(rt, "reads") {
				off := rapid.IntRange(0, size).Draw(rt, "offset")
				n := rapid.IntRange(0, size-off).Draw(rt, "length")
				if err := fill(t.Context(), int64(off), int64(n)); err != nil {
					rt.Fatal(err)
				}
				got := make([]byte, n)
				if _, err := f.ReadAt(got, int64(off)); err != nil && err != io.EOF || !bytes.Equal(got, data[off:off+n]) {
					rt.Fatalf("%d bytes at %d are not the object's: %v", n, off, err)
				}
			}
		})
	}
}

func TestFewBytesFetchTheirBlocks(t *testing.T) {
	data := blobtest.Bytes(2, 200*BlockBytes)
	c, r, digest := holding(t, data)
	_, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{100 * BlockBytes, 100*BlockBytes + 1000, 199 * BlockBytes} {
		if err := fill(t.Context(), off, 10); err != nil {
			t.Fatal(err)
		}
	}
	if r.bytes.Load() != 2*BlockBytes || r.opens.Load() != 2 || c.bytes != 2*BlockBytes {
		t.Errorf("%d bytes in %d requests, %d counted", r.bytes.Load(), r.opens.Load(), c.bytes)
	}
	if err := fill(t.Context(), 65*BlockBytes, 128*BlockBytes); err != nil || r.opens.Load() != 5 {
		t.Errorf("%d requests more for 128 blocks, %v", r.opens.Load()-2, err)
	}
	if err := fill(t.Context(), 1, int64(len(data))); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("behind the end: %v", err)
	}
	release()

	// The next task finds what is there.
	_, fill, release, err = c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), 70*BlockBytes, 10); err != nil || r.opens.Load() != 5 {
		t.Errorf("%d requests, %v", r.opens.Load(), err)
	}
	release()
}

func TestAFileThatIsHereIsTakenWhole(t *testing.T) {
	data := blobtest.Bytes(3, 3*BlockBytes)
	c, r, digest := holding(t, data)
	_, release, err := c.Fetch(t.Context(), "x", digest, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	path, fill, release2, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil || fill != nil || r.opens.Load() != 1 {
		t.Fatalf("%v, %v, %d requests", err, fill != nil, r.opens.Load())
	}
	defer release2()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestSmallFilesComeWhole(t *testing.T) {
	data := blobtest.Bytes(4, 100)
	c, _, digest := holding(t, data)
	c.wholeBytes = WholeBytes
	_, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, 100)
	if err != nil || fill != nil {
		t.Fatalf("%v, %v", err, fill != nil)
	}
	release()
}

func TestSparseFilesMakeRoom(t *testing.T) {
	data := blobtest.Bytes(5, 4*BlockBytes)
	c, _, digest := holding(t, data)
	c.maxBytes = BlockBytes
	path, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), 0, int64(len(data))); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a file in use is gone: %v", err)
	}
	release()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) || c.bytes != 0 {
		t.Errorf("an unused file over the bound stays: %v, %d bytes counted", err, c.bytes)
	}
	again, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil || again == path {
		t.Fatalf("%s after %s, %v: who has the first open reads holes", again, path, err)
	}
	if err := os.Remove(again); err != nil { // somebody cleans up
		t.Fatal(err)
	}
	third, fill3, release3, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil || third == again {
		t.Fatalf("%s, %v", third, err)
	}
	if err := errors.Join(fill(t.Context(), 0, 1), fill3(t.Context(), 0, 1)); err != nil {
		t.Error(err)
	}
	release()
	release3()
}

func TestConcurrentFillsShareBlocksAndSurviveOutages(t *testing.T) {
	data := blobtest.Bytes(6, 20*BlockBytes)
	c, r, digest := holding(t, data)
	r.breaks = 7
	path, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				n := rnd.IntN(2 * BlockBytes)
				off := rnd.Int64N(int64(len(data) - n))
				if err := fill(t.Context(), off, int64(n)); err != nil {
					if !errors.Is(err, sheaf.ErrUnavailable) {
						t.Error(err)
					}
					continue
				}
				p := make([]byte, n)
				if _, err := f.ReadAt(p, off); err != nil || !bytes.Equal(p, data[off:off+int64(n)]) {
					t.Errorf("wrong bytes at %d: %v", off, err)
				}
			}
		})
	}
	wg.Wait()
	if r.bytes.Load() != int64(len(data)) {
		t.Errorf("%d bytes fetched for %d", r.bytes.Load(), len(data))
	}
}

func TestAnotherSizeAndAnEndedContext(t *testing.T) {
	c, _, digest := holding(t, make([]byte, 10))
	_, fill, release, err := c.FetchBlocks(t.Context(), "x", digest, 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), 0, 20); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a shorter object: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := fill(ctx, 0, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	release()
	if _, _, _, err := c.FetchBlocks(ctx, "x", digest, 20); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
	_, fill, release, err = c.FetchBlocks(t.Context(), "absent", digest[:63]+"0", 20)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := fill(t.Context(), 0, 20); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("no object: %v", err)
	}
}
