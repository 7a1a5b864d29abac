// Package cache keeps originals on an executor's disk, so that the tasks of a
// document download it once per host, however many they are and however often the
// process restarts. Of a large file, readers that need only parts of it get the
// blocks around them.
package cache

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"sheaf"
	"sheaf/internal/blob"
)

// Cache is a folder of files named by their SHA-256. It is safe for concurrent use;
// only one process may use a folder at a time.
type Cache struct {
	store      blob.Store
	dir        string
	maxBytes   int64
	wholeBytes int64 // WholeBytes, except in tests

	mu      sync.Mutex
	entries map[string]*entry
	unused  *list.List // of *entry, most recently used first: removable
	bytes   int64      // of all entries, including downloads in progress
}

// entry is one file or its download.
type entry struct {
	name   string  // SHA-256 of a complete file, with blocksPrefix for a sparse one
	file   string  // its path
	key    string  // of the object it was last requested as; "" if left by an earlier process
	blocks *blocks // of a sparse file, whose size is what is present of it
	size   int64
	users  int
	used   time.Time          // when the last user left
	place  *list.Element      // in unused, nil while there are users
	ready  chan struct{}      // closed when the download ends
	err    error              // of the download, set before ready is closed
	cancel context.CancelFunc // of the download
}

// Open adopts what an earlier process left in dir. maxBytes bounds the unused
// files; files in use are not counted, since their tasks could not run without
// them. If store is blob.Local the cache stays empty and dir is not touched.
func Open(store blob.Store, dir string, maxBytes int64) (*Cache, error) {
	c := &Cache{store: store, dir: dir, maxBytes: maxBytes, wholeBytes: WholeBytes, entries: map[string]*entry{}, unused: list.New()}
	if c.local() {
		return c, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, writeError(dir, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, writeError(dir, err)
	}
	type found struct {
		*entry
		used time.Time
	}
	var known []found
	closed := make(chan struct{})
	close(closed)
	for _, f := range files {
		info, err := f.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if !isDigest(f.Name()) { // a download interrupted by a crash, or a sparse file
			_ = os.Remove(filepath.Join(dir, f.Name()))
			continue
		}
		known = append(known, found{&entry{name: f.Name(), file: filepath.Join(dir, f.Name()), size: info.Size(), ready: closed}, info.ModTime()})
	}
	slices.SortFunc(known, func(a, b found) int { return b.used.Compare(a.used) })
	for _, f := range known {
		c.entries[f.name], f.entry.used = f.entry, f.used
		f.place = c.unused.PushBack(f.entry)
		c.bytes += f.size
	}
	c.evict()
	return c, nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == s
}

// Fetch returns a file with the bytes of the object, which must have this digest
// and size. The file is kept until release is called, which must happen once; it
// must not be written to. Calls for one digest share one download, which is
// canceled when all of them have ended. Errors: those of the store,
// sheaf.ErrInvalid if the object does not match, sheaf.ErrReadOnly if the disk is
// full.
func (c *Cache) Fetch(ctx context.Context, key, digest string, size int64) (path string, release func(), err error) {
	if local, ok := c.store.(blob.Local); ok {
		path, err := local.Path(key)
		return path, func() {}, err
	}
	if !isDigest(digest) || size < 0 {
		return "", nil, fmt.Errorf("%w: %q with %d bytes cannot name a cached file", sheaf.ErrInvalid, digest, size)
	}
	for {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		e := c.join(ctx, key, digest, size)
		select {
		case <-e.ready:
		case <-ctx.Done():
			c.leave(e)
			return "", nil, ctx.Err()
		}
		if e.err != nil {
			c.leave(e)
			if errors.Is(e.err, context.Canceled) {
				continue // all earlier callers gave up; this one has not
			}
			return "", nil, e.err
		}
		path := e.file
		if info, err := os.Stat(path); err != nil || info.Size() != size {
			c.forget(e) // removed or damaged by someone else
			c.leave(e)
			continue
		}
		now := time.Now()
		_ = os.Chtimes(path, now, now) // persists the order of use across restarts
		return path, sync.OnceFunc(func() { c.leave(e) }), nil
	}
}

// join makes the caller a user of the entry; the first one starts the download.
func (c *Cache) join(ctx context.Context, key, digest string, size int64) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[digest]; e != nil {
		c.use(e, key)
		return e
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e := &entry{name: digest, file: filepath.Join(c.dir, digest), key: key, size: size, users: 1, ready: make(chan struct{}), cancel: cancel}
	c.entries[digest] = e
	c.bytes += size
	c.evict()
	go func() {
		defer cancel()
		e.err = c.download(ctx, key, e)
		if e.err != nil {
			c.forget(e)
		}
		close(e.ready)
	}()
	return e
}

// use adds a user, who requested key. c.mu is held.
func (c *Cache) use(e *entry, key string) {
	e.users++
	e.key = key
	if e.place != nil {
		c.unused.Remove(e.place)
		e.place = nil
	}
}

// leave removes a user. A download without users is canceled.
func (c *Cache) leave(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.users--; e.users > 0 {
		return
	}
	if c.entries[e.name] != e { // forgotten
		if e.blocks != nil {
			_ = e.blocks.f.Close()
		}
		return
	}
	select {
	case <-e.ready:
		e.place, e.used = c.unused.PushFront(e), time.Now()
		c.evict()
	default:
		e.cancel()
		delete(c.entries, e.name) // the next caller starts over
		c.bytes -= e.size
	}
}

// forget drops an entry without a valid file.
func (c *Cache) forget(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.name] == e {
		delete(c.entries, e.name)
		c.bytes -= e.size
	}
}

// evict removes least recently used files until the rest fits. c.mu is held.
func (c *Cache) evict() {
	for c.bytes > c.maxBytes && c.unused.Len() > 0 {
		c.remove(c.unused.Back())
	}
}

// remove removes an unused file. c.mu is held.
func (c *Cache) remove(place *list.Element) {
	e := c.unused.Remove(place).(*entry)
	e.place = nil
	delete(c.entries, e.name)
	c.bytes -= e.size
	if e.blocks != nil {
		_ = e.blocks.f.Close()
	}
	_ = os.Remove(e.file)
}

// Unused lists the object keys of the unused files, as far as this process has
// requested them.
func (c *Cache) Unused() (keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for place := c.unused.Front(); place != nil; place = place.Next() {
		if key := place.Value.(*entry).key; key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// Remove removes the unused files that were last requested by one of these keys.
func (c *Cache) Remove(keys []string) {
	gone := map[string]bool{}
	for _, key := range keys {
		gone[key] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for place := c.unused.Front(); place != nil; {
		next := place.Next()
		if gone[place.Value.(*entry).key] {
			c.remove(place)
		}
		place = next
	}
}

// Expire periodically removes files not used for age until stop is called, since a
// cache may not be notified of deletions. An age of 0 keeps them.
func (c *Cache) Expire(age time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	if age <= 0 || c.local() {
		return cancel
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(age/8, time.Millisecond))
		defer tick.Stop()
		for {
			c.expire(time.Now().Add(-age))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (c *Cache) expire(before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unused.Len() > 0 && c.unused.Back().Value.(*entry).used.Before(before) {
		c.remove(c.unused.Back())
	}
}

// local reports whether the store's objects are local files.
func (c *Cache) local() bool {
	_, local := c.store.(blob.Local)
	return local
}

// download writes the object to a temporary file, verifies it, and renames it.
func (c *Cache) download(ctx context.Context, key string, e *entry) error {
	r, err := c.store.Open(ctx, key, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.CreateTemp(c.dir, "download-*")
	if err != nil {
		return writeError(c.dir, err)
	}
	defer func() {
		f.Close()
		os.Remove(f.Name()) // absent after the rename
	}()
	hash := sha256.New()
	w := &diskWriter{f: f}
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(r, e.size+1))
	if w.err != nil {
		return writeError(c.dir, w.err)
	}
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); n != e.size || got != e.name {
		return fmt.Errorf("%w: %s has changed in the store: %d bytes with SHA-256 %s instead of %d with %s; upload the document again", sheaf.ErrInvalid, key, n, got, e.size, e.name)
	}
	if err := f.Close(); err != nil {
		return writeError(c.dir, err)
	}
	if err := ctx.Err(); err != nil { // given up: a newer download may be in progress
		return err
	}
	if err := os.Rename(f.Name(), e.file); err != nil {
		return writeError(c.dir, err)
	}
	return nil
}

// diskWriter tells disk errors from store errors.
type diskWriter struct {
	f   *os.File
	err error
}

func (w *diskWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

func writeError(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the cache folder %s: %w; free some space there, give permission, or configure another folder", sheaf.ErrReadOnly, dir, err)
	}
	return fmt.Errorf("%w: the cache folder %s: %w", sheaf.ErrUnavailable, dir, err)
}
