package blockreader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/blobtest"
	"sheaf/internal/blob/file"
)

// counted counts the requests to a store, and breaks every n-th.
type counted struct {
	blob.Store
	opens  atomic.Int64
	breaks int64
}

func (c *counted) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if n := c.opens.Add(1); c.breaks > 0 && n%c.breaks == 0 {
		return nil, fmt.Errorf("%w: broken", sheaf.ErrUnavailable)
	}
	return c.Store.Open(ctx, key, offset, length)
}

func object(t *testing.T, data []byte) *counted {
	t.Helper()
	s, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x", bytes.NewReader(data), -1); err != nil {
		t.Fatal(err)
	}
	return &counted{Store: s}
}

func TestAnyReadGivesTheRealBytes(t *testing.T) {
	for _, size := range []int{0, 1, BlockBytes - 1, BlockBytes, BlockBytes + 1, 9*BlockBytes + 777} {
		data := blobtest.Bytes(uint64(size), size)
		s := object(t, data)
		rapid.Check(t, func(rt *rapid.T) {
			r, err := New(t.Context(), s, "x", int64(size), 0)
			if err != nil {
				rt.Fatal(err)
			}
			r.max = rapid.IntRange(1, 6).Draw(rt, "blocks kept")
			want := bytes.NewReader(data)
			for range rapid.IntRange(1, 20).Draw(rt, "reads") {
				off := rapid.Int64Range(0, int64(size)+10).Draw(rt, "offset")
				p, q := make([]byte, rapid.IntRange(0, 3*BlockBytes).Draw(rt, "length")), []byte(nil)
				q = make([]byte, len(p))
				n, err := r.ReadAt(p, off)
				m, werr := want.ReadAt(q, off)
				if len(p) == 0 {
					m, werr = 0, nil // bytes.Reader says EOF behind the end also for no bytes
				}
				if n != m || err != werr || !bytes.Equal(p, q) {
					rt.Fatalf("ReadAt(%d, %d) = %d, %v; want %d, %v", len(p), off, n, err, m, werr)
				}
				if r.recent.Len() > r.max || len(r.blocks) != r.recent.Len() {
					rt.Fatalf("%d blocks are kept", r.recent.Len())
				}
			}
		})
	}
}

func TestSequentialReadFetchesEachByteOnce(t *testing.T) {
	data := blobtest.Bytes(1, 40*BlockBytes+5)
	s := object(t, data)
	r, err := New(t.Context(), s, "x", int64(len(data)), 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data) || r.Fetched() != int64(len(data)) {
		t.Errorf("%d bytes for %d of %d, %v", r.Fetched(), len(got), len(data), err)
	}
	s.opens.Store(0)
	big := make([]byte, 32*BlockBytes)
	r, _ = New(t.Context(), s, "x", int64(len(data)), len(data)*2)
	if _, err := r.ReadAt(big, 0); err != nil || s.opens.Load() != 2 {
		t.Errorf("%d requests for 32 blocks, %v", s.opens.Load(), err)
	}
}

func TestFewBytesFetchOneBlock(t *testing.T) {
	data := blobtest.Bytes(2, 100*BlockBytes)
	s := object(t, data)
	r, _ := New(t.Context(), s, "x", int64(len(data)), 0)
	for _, off := range []int64{50 * BlockBytes, 50*BlockBytes + 1000, 99 * BlockBytes} {
		if _, err := r.ReadAt(make([]byte, 10), off); err != nil {
			t.Fatal(err)
		}
	}
	if r.Fetched() != 2*BlockBytes || s.opens.Load() != 2 {
		t.Errorf("%d bytes in %d requests", r.Fetched(), s.opens.Load())
	}
}

func TestConcurrentReadersShareBlocksAndSurviveOutages(t *testing.T) {
	data := blobtest.Bytes(3, 20*BlockBytes)
	s := object(t, data)
	s.breaks = 7
	r, _ := New(t.Context(), s, "x", int64(len(data)), 1<<30)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				off, p := rnd.Int64N(int64(len(data))), make([]byte, rnd.IntN(2*BlockBytes))
				n, err := r.ReadAt(p, off)
				if err != nil && err != io.EOF && !errors.Is(err, sheaf.ErrUnavailable) {
					t.Error(err)
				}
				if !bytes.Equal(p[:n], data[off:off+int64(n)]) {
					t.Errorf("wrong bytes at %d", off)
				}
			}
		})
	}
	wg.Wait()
	if r.Fetched() != int64(len(data)) {
		t.Errorf("%d bytes fetched for %d", r.Fetched(), len(data))
	}
}

func TestWrongSizeAndEndedContext(t *testing.T) {
	s := object(t, make([]byte, 10))
	r, _ := New(t.Context(), s, "x", 20, 0)
	if _, err := r.ReadAt(make([]byte, 20), 0); !errors.Is(err, sheaf.ErrUnavailable) {
		t.Errorf("a shorter object: %v", err)
	}
	r, _ = New(t.Context(), s, "absent", 20, 0)
	if _, err := r.ReadAt(make([]byte, 20), 0); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("no object: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ = New(ctx, s, "x", 10, 0)
	if _, err := r.ReadAt(make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}
