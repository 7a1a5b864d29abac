// Package blockreader reads an object of a remote store at random places, so
// that a task of twelve pages fetches those blocks of a large PDF that it
// needs and no more.
package blockreader

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"sheaf"
	"sheaf/internal/blob"
)

const (
	// BlockBytes is the unit of fetching.
	BlockBytes = 256 << 10
	// maxRun is how many missing neighbours one request fetches.
	maxRun = 16
)

// Reader is an io.ReaderAt and io.ReadSeeker over an object. ReadAt is safe for
// concurrent use, Read and Seek are not.
type Reader struct {
	ctx   context.Context
	store blob.Store
	key   string
	size  int64
	max   int // blocks kept
	*io.SectionReader

	mu      sync.Mutex
	blocks  map[int64]*list.Element // of *block
	recent  *list.List              // most recently used first
	loading map[int64]chan struct{} // closed when the block has come, or failed
	fetched int64
}

type block struct {
	index int64
	data  []byte
}

// New reads the object of this size until ctx ends and keeps at most
// cacheBytes of its blocks (at least 16 blocks, 4 MB).
func New(ctx context.Context, store blob.Store, key string, size int64, cacheBytes int) (*Reader, error) {
	if size < 0 {
		return nil, fmt.Errorf("%w: %s cannot have %d bytes", sheaf.ErrInvalid, key, size)
	}
	r := &Reader{
		ctx: ctx, store: store, key: key, size: size, max: max(maxRun, cacheBytes/BlockBytes),
		blocks: map[int64]*list.Element{}, recent: list.New(), loading: map[int64]chan struct{}{},
	}
	r.SectionReader = io.NewSectionReader(readerAt{r}, 0, size)
	return r, nil
}

// readerAt keeps SectionReader from calling its own ReadAt.
type readerAt struct{ r *Reader }

func (a readerAt) ReadAt(p []byte, off int64) (int, error) { return a.r.ReadAt(p, off) }

// Fetched is how many bytes have come from the store.
func (r *Reader) Fetched() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fetched
}

// ReadAt is io.ReaderAt. Its errors are those of the store.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%w: offset %d of %s", sheaf.ErrInvalid, off, r.key)
	}
	n := 0
	for n < len(p) && off < r.size {
		data, err := r.block(off/BlockBytes, (min(off+int64(len(p)-n), r.size)-1)/BlockBytes)
		if err != nil {
			return n, err
		}
		m := copy(p[n:], data[off%BlockBytes:])
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// block returns a block, fetching it with its missing neighbours up to the
// last wanted. Callers that want a block on its way wait for it.
func (r *Reader) block(index, last int64) ([]byte, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		r.mu.Lock()
		if e := r.blocks[index]; e != nil {
			r.recent.MoveToFront(e)
			data := e.Value.(*block).data
			r.mu.Unlock()
			return data, nil
		}
		if coming := r.loading[index]; coming != nil {
			r.mu.Unlock()
			select {
			case <-coming:
			case <-r.ctx.Done():
			}
			continue // it is there, or the next one to try is this caller
		}
		run := int64(1)
		for run < maxRun && index+run <= last && r.blocks[index+run] == nil && r.loading[index+run] == nil {
			run++
		}
		coming := make(chan struct{})
		for i := range run {
			r.loading[index+i] = coming
		}
		r.mu.Unlock()

		data, err := r.fetch(index, run)

		r.mu.Lock()
		for i := range run {
			delete(r.loading, index+i)
		}
		close(coming)
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		r.fetched += int64(len(data))
		for i := run - 1; i >= 0; i-- { // the first wanted is the most recent
			from := i * BlockBytes
			// A copy, so that one block does not keep the whole run in memory.
			b := append([]byte(nil), data[from:min(from+BlockBytes, int64(len(data)))]...)
			r.blocks[index+i] = r.recent.PushFront(&block{index + i, b})
		}
		for r.recent.Len() > r.max {
			delete(r.blocks, r.recent.Remove(r.recent.Back()).(*block).index)
		}
		first := r.blocks[index].Value.(*block).data
		r.mu.Unlock()
		return first, nil
	}
}

func (r *Reader) fetch(index, run int64) ([]byte, error) {
	from := index * BlockBytes
	data := make([]byte, min(run*BlockBytes, r.size-from))
	body, err := r.store.Open(r.ctx, r.key, from, int64(len(data)))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if _, err := io.ReadFull(body, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: %s ends before its %d bytes", sheaf.ErrUnavailable, r.key, r.size)
		}
		return nil, err
	}
	return data, nil
}
