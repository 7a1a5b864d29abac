package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"sheaf"
	"sheaf/internal/blob"
)

const (
	// BlockBytes is the unit in which parts of a large file are fetched.
	BlockBytes = 64 << 10
	// maxRun is how many adjacent missing blocks one request fetches.
	maxRun = 64
	// WholeBytes is the size up to which a file is fetched whole: cheaper than
	// requesting its parts.
	WholeBytes = 8 << 20
)

// FetchBlocks is Fetch for readers that need a few parts of a file. Above
// WholeBytes the file at path has the object's size, with holes where nothing was
// read yet: readers call fill first. fill is nil if the whole file is present. A
// path is never reused for another file, so a reader that keeps it open sees what
// fill wrote, or finds it gone.
//
// The object is verified by its size only, since its digest would need all of it.
func (c *Cache) FetchBlocks(ctx context.Context, key, digest string, size int64) (path string, fill blob.Fill, release func(), err error) {
	if c.local() || !isDigest(digest) || size <= c.wholeBytes || c.has(digest) {
		path, release, err = c.Fetch(ctx, key, digest, size)
		return path, nil, release, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return "", nil, nil, err
		}
		e, err := c.joinBlocks(key, digest, size)
		if err != nil {
			return "", nil, nil, err
		}
		if _, err := os.Stat(e.file); err != nil { // removed by someone else
			c.forget(e)
			c.leave(e)
			continue
		}
		return e.file, e.blocks.fill, sync.OnceFunc(func() { c.leave(e) }), nil
	}
}

// has reports whether the whole file is cached or being downloaded.
func (c *Cache) has(digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[digest] != nil
}

// joinBlocks makes the caller a user of the sparse file with this content.
func (c *Cache) joinBlocks(key, digest string, size int64) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := blocksPrefix + digest
	if e := c.entries[name]; e != nil {
		c.use(e, key)
		return e, nil
	}
	f, err := os.CreateTemp(c.dir, name+"-*")
	if err != nil {
		return nil, writeError(c.dir, err)
	}
	if err := f.Truncate(size); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return nil, writeError(c.dir, err)
	}
	ready := make(chan struct{})
	close(ready)
	n := (size + BlockBytes - 1) / BlockBytes
	e := &entry{name: name, file: f.Name(), key: key, users: 1, ready: ready}
	e.blocks = &blocks{cache: c, entry: e, key: key, size: size, f: f, have: make([]bool, n), loading: map[int64]chan struct{}{}}
	c.entries[name] = e
	return e, nil
}

const blocksPrefix = "blocks-"

// blocks is a file of which only the requested parts are present.
type blocks struct {
	cache *Cache
	entry *entry
	key   string
	size  int64
	f     *os.File

	mu      sync.Mutex
	have    []bool
	loading map[int64]chan struct{} // closed when the block has arrived or failed
}

// fill is the blob.Fill of the file. Callers wait for blocks already in flight.
func (b *blocks) fill(ctx context.Context, offset, length int64) error {
	if offset < 0 || length < 0 || offset > b.size-length {
		return fmt.Errorf("%w: %d bytes at %d of %s, which has %d", sheaf.ErrInvalid, length, offset, b.key, b.size)
	}
	if length == 0 {
		return nil
	}
	last := (offset + length - 1) / BlockBytes
	for i := offset / BlockBytes; i <= last; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.mu.Lock()
		if b.have[i] {
			b.mu.Unlock()
			i++
			continue
		}
		if coming := b.loading[i]; coming != nil {
			b.mu.Unlock()
			select {
			case <-coming:
			case <-ctx.Done():
			}
			continue // it is there, or this caller is the next to try
		}
		run := int64(1)
		for run < maxRun && i+run <= last && !b.have[i+run] && b.loading[i+run] == nil {
			run++
		}
		coming := make(chan struct{})
		for k := range run {
			b.loading[i+k] = coming
		}
		b.mu.Unlock()

		n, err := b.fetch(ctx, i, run)

		b.mu.Lock()
		for k := range run {
			delete(b.loading, i+k)
			b.have[i+k] = err == nil
		}
		close(coming)
		b.mu.Unlock()
		if err != nil {
			return err
		}
		b.cache.grown(b.entry, n)
	}
	return nil
}

func (b *blocks) fetch(ctx context.Context, index, run int64) (int64, error) {
	from := index * BlockBytes
	data := make([]byte, min(run*BlockBytes, b.size-from))
	body, err := b.cache.store.Open(ctx, b.key, from, int64(len(data)))
	if err != nil {
		return 0, err
	}
	defer body.Close()
	if _, err := io.ReadFull(body, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, fmt.Errorf("%w: %s ends before its %d bytes", sheaf.ErrUnavailable, b.key, b.size)
		}
		return 0, err
	}
	if _, err := b.f.WriteAt(data, from); err != nil {
		return 0, writeError(b.cache.dir, err)
	}
	return int64(len(data)), nil
}

// grown accounts for the growth of a sparse file.
func (c *Cache) grown(e *entry, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.size += n
	if c.entries[e.name] == e {
		c.bytes += n
		c.evict()
	}
}
