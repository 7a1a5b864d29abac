// Package file stores objects as files in a folder: the blob store of the embedded
// default, and of fleets that share a file system. Its objects can be parsed in
// place, without a copy (blob.Local).
//
// objects/ holds each object under its key, tmp/ the files being written. Both are
// on one file system, so that a rename publishes an object atomically.
package file

import (
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
	"strings"
	"sync"
	"syscall"
	"time"

	"sheaf"
	"sheaf/internal/blob"
)

// bufferBytes is what a Put buffers. Most objects are far smaller, so allocating
// and clearing a buffer for each cost more than filling it.
const bufferBytes = 256 << 10

var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

// Store is a folder of objects. It is safe for concurrent use by any number of
// goroutines and processes.
type Store struct {
	objects string // absolute
	tmp     string
}

var (
	_ blob.Store = (*Store)(nil)
	_ blob.Local = (*Store)(nil)
)

// Open creates the folder if missing and removes incomplete files of crashed
// processes. It fails with sheaf.ErrReadOnly if it may not write.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: the blob folder %q: %v", sheaf.ErrInvalid, dir, err)
	}
	s := &Store{objects: filepath.Join(dir, "objects"), tmp: filepath.Join(dir, "tmp")}
	for _, d := range []string{s.objects, s.tmp} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, s.writeError("make the folder "+d, err)
		}
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	return s, nil
}

// sweep removes temporary files that are no longer being written.
func (s *Store) sweep() error {
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		return s.readError("look into "+s.tmp, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if path := filepath.Join(s.tmp, e.Name()); abandoned(path, info.ModTime()) {
			_ = os.Remove(path) // another process may have been faster
		}
	}
	return nil
}

// Path returns the file of the object, which must not be written to.
func (s *Store) Path(key string) (string, error) {
	if err := blob.CheckKey(key); err != nil {
		return "", err
	}
	path := s.path(key)
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return "", s.readError("find "+key, err)
	}
	return path, nil
}

func (s *Store) path(key string) string { return filepath.Join(s.objects, filepath.FromSlash(key)) }

// Put streams r to a temporary file and renames it once it is complete and synced:
// a crash at any moment leaves the old object, the new one, or none.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	f, err := s.createTemp()
	if err != nil {
		return blob.Info{}, err
	}
	defer func() {
		f.Close()
		os.Remove(f.Name()) // absent after the rename
	}()

	hash := sha256.New()
	n, err := s.copy(ctx, io.MultiWriter(f, hash), r, key)
	if err != nil {
		return blob.Info{}, err
	}
	if size >= 0 && n != size {
		return blob.Info{}, fmt.Errorf("%w: %s has %d bytes where %d were announced", sheaf.ErrInvalid, key, n, size)
	}
	if err := f.Sync(); err != nil {
		return blob.Info{}, s.writeError("write "+key, err)
	}
	info, err := f.Stat()
	if err != nil {
		return blob.Info{}, s.writeError("write "+key, err)
	}
	if err := s.publish(f.Name(), key); err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Key: key, Size: n, SHA256: hex.EncodeToString(hash.Sum(nil)), Modified: info.ModTime()}, nil
}

// Compose hard-links a single part, and concatenates several by copying, which
// capable file systems do without moving bytes.
func (s *Store) Compose(ctx context.Context, key string, parts []string) error {
	if err := blob.CheckParts(key, parts); err != nil {
		return err
	}
	if len(parts) == 1 && ctx.Err() == nil && s.link(key, parts[0]) {
		return nil
	}
	f, err := s.createTemp()
	if err != nil {
		return err
	}
	defer func() {
		f.Close()
		os.Remove(f.Name()) // absent after the rename
	}()
	for i, part := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.appendPart(f, part, i, len(parts)); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return s.writeError("write "+key, err)
	}
	return s.publish(f.Name(), key)
}

// link makes key a hard link to a part: published files are never written to. It
// returns false if a copy is needed, which then reports what is wrong.
func (s *Store) link(key, part string) bool {
	from, to := s.path(part), s.path(key)
	info, err := os.Lstat(from)
	if err != nil || !info.Mode().IsRegular() || blob.CheckPart(key, 0, 1, info.Size()) != nil {
		return false
	}
	// An old file that is not listed anywhere counts as a leftover.
	now := time.Now()
	return os.Chtimes(from, now, now) == nil && s.makeDirs(filepath.Dir(to)) == nil && os.Link(from, to) == nil && syncDir(filepath.Dir(to)) == nil
}

func (s *Store) appendPart(to *os.File, key string, i, n int) error {
	from, err := os.Open(s.path(key))
	if err != nil {
		return s.readError("open "+key, err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return s.readError("open "+key, err)
	}
	if err := blob.CheckPart(key, i, n, info.Size()); err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil { // copy_file_range on Linux
		return s.writeError("copy "+key, err)
	}
	return nil
}

// createTemp creates a temporary file that sweeps of other processes respect.
func (s *Store) createTemp() (*os.File, error) {
	f, err := os.CreateTemp(s.tmp, "put-*")
	if errors.Is(err, fs.ErrNotExist) { // the folder was removed under us
		if err = os.MkdirAll(s.tmp, 0o700); err == nil {
			f, err = os.CreateTemp(s.tmp, "put-*")
		}
	}
	if err != nil {
		return nil, s.writeError("write to "+s.tmp, err)
	}
	lock(f)
	return f, nil
}

// copy is io.Copy that stops with ctx and tells errors of r from disk errors.
func (s *Store) copy(ctx context.Context, w io.Writer, r io.Reader, key string) (int64, error) {
	lent := buffers.Get().(*[bufferBytes]byte)
	defer buffers.Put(lent)
	buf := lent[:]
	var n int64
	for empty := 0; ; {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		got, rerr := r.Read(buf)
		if got == 0 && rerr == nil {
			if empty++; empty == 100 {
				rerr = io.ErrNoProgress
			}
		}
		if got > 0 {
			empty = 0
			if _, err := w.Write(buf[:got]); err != nil {
				return n, s.writeError("write "+key, err)
			}
			n += int64(got)
		}
		if rerr == io.EOF {
			return n, nil
		}
		if rerr != nil {
			return n, fmt.Errorf("reading what is to become %s: %w", key, rerr)
		}
	}
}

// publish renames the finished file into place and makes the name durable.
func (s *Store) publish(temp, key string) error {
	path := s.path(key)
	parent := filepath.Dir(path)
	for attempt := 0; ; attempt++ {
		if err := s.makeDirs(parent); err != nil {
			return s.placeError(key, err)
		}
		err := os.Rename(temp, path)
		if err == nil {
			break
		}
		// A delete may remove the empty folder between the two calls.
		if !errors.Is(err, fs.ErrNotExist) || attempt == 9 {
			return s.placeError(key, err)
		}
	}
	if err := syncDir(parent); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s.writeError("write "+key, err)
	}
	return nil
}

// makeDirs is os.MkdirAll that makes the name of each new folder durable.
func (s *Store) makeDirs(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		if err := s.makeDirs(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		return syncDir(filepath.Dir(dir))
	}
	if errors.Is(err, fs.ErrExist) {
		if info, serr := os.Stat(dir); serr == nil && !info.IsDir() {
			return syscall.ENOTDIR
		}
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) { // removed again by a delete; publish retries
		return nil
	}
	return err
}

// placeError explains an error of the rename or of the folders above it.
func (s *Store) placeError(key string, err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("%w: %s cannot be an object and a folder of objects at once; delete one of them first", sheaf.ErrInvalid, key)
	}
	return s.writeError("write "+key, err)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) { // unsupported on some network file systems
		return err
	}
	return nil
}

// Open reads a span of the object. Replacing or deleting it in the meantime does
// not affect the reader.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := errors.Join(blob.CheckKey(key), blob.CheckSpan(offset, length)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, s.readError("open "+key, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, s.readError("open "+key, err)
	}
	if offset > info.Size() {
		f.Close()
		return nil, fmt.Errorf("%w: %s has %d bytes, none at offset %d", sheaf.ErrInvalid, key, info.Size(), offset)
	}
	left := info.Size() - offset
	if length >= 0 {
		left = min(left, length)
	}
	return &reader{ctx: ctx, SectionReader: io.NewSectionReader(f, offset, left), f: f}, nil
}

// reader is a span of a file that ends with ctx. It can also seek within the span.
type reader struct {
	ctx context.Context
	*io.SectionReader
	f *os.File
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.SectionReader.Read(p)
}

func (r *reader) Close() error { return r.f.Close() }

// Stat describes the object without its digest.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return blob.Info{}, err
	}
	info, err := os.Stat(s.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.Info{}, s.readError("find "+key, err)
	}
	return blob.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Delete removes objects and the folders that become empty.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := blob.CheckKey(key); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := s.path(key)
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			continue // a folder of objects is not an object
		}
		if err := os.Remove(path); err != nil && !absent(err) {
			return s.writeError("delete "+key, err)
		}
		s.pruneAbove(path)
	}
	return nil
}

// pruneAbove removes the empty folders above path, up to the root.
func (s *Store) pruneAbove(path string) {
	for dir := filepath.Dir(path); dir != s.objects; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !absent(err) {
			return // not empty
		}
	}
}

// DeletePrefix removes the objects under prefix and their folders.
func (s *Store) DeletePrefix(ctx context.Context, prefix string) (int, error) {
	if err := blob.CheckPrefix(prefix, false); err != nil {
		return 0, err
	}
	dir := s.path(strings.TrimSuffix(prefix, "/"))
	n := 0
	var remove func(dir string) error
	remove = func(dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil && !absent(err) {
			return s.readError("look into "+dir, err)
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				if err := remove(path); err != nil {
					return err
				}
				continue
			}
			if err := os.Remove(path); err == nil {
				n++
			} else if !absent(err) {
				return s.writeError("delete "+path, err)
			}
		}
		_ = os.Remove(dir) // kept if something was just put there
		return nil
	}
	err := remove(dir)
	s.pruneAbove(dir)
	return n, err
}

// List walks the folders in byte order of the keys.
func (s *Store) List(ctx context.Context, prefix string, each func(blob.Info) bool) error {
	return s.ListAfter(ctx, prefix, "", each)
}

// ListAfter skips folders that are entirely before after.
func (s *Store) ListAfter(ctx context.Context, prefix, after string, each func(blob.Info) bool) error {
	if err := blob.CheckPrefix(prefix, true); err != nil {
		return err
	}
	var walk func(prefix string) (more bool, err error)
	walk = func(prefix string) (bool, error) {
		entries, err := os.ReadDir(s.path(prefix))
		if absent(err) {
			return true, nil
		}
		if err != nil {
			return false, s.readError("list "+prefix, err)
		}
		// In a key the name of a folder is followed by "/", which sorts after "-"
		// and ".": "a-b" and "a.b" come before "a/b".
		name := func(e fs.DirEntry) string {
			if e.IsDir() {
				return e.Name() + "/"
			}
			return e.Name()
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(name(a), name(b)) })
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if key := prefix + name(e); key <= after && !(e.IsDir() && strings.HasPrefix(after, key)) {
				continue
			}
			if e.IsDir() {
				if more, err := walk(prefix + e.Name() + "/"); !more || err != nil {
					return more, err
				}
				continue
			}
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() {
				continue // deleted in the meantime, or not ours
			}
			if !each(blob.Info{Key: prefix + e.Name(), Size: info.Size(), Modified: info.ModTime()}) {
				return false, nil
			}
		}
		return true, nil
	}
	_, err := walk(prefix)
	return err
}

// Children reads one folder. Empty folders count too: deleting an object removes
// them a moment later.
func (s *Store) Children(ctx context.Context, prefix string, each func(name string) bool) error {
	if err := blob.CheckPrefix(prefix, true); err != nil {
		return err
	}
	folder, err := os.Open(s.path(prefix))
	if err == nil {
		defer folder.Close()
	}
	for err == nil && ctx.Err() == nil {
		var entries []fs.DirEntry // some of them: a folder may have one for each of a million documents
		entries, err = folder.ReadDir(1000)
		for _, e := range entries {
			name := prefix + e.Name()
			if e.IsDir() {
				name += "/"
			}
			if !each(name) {
				return nil
			}
		}
	}
	if err != nil && err != io.EOF && !absent(err) {
		return s.readError("list "+prefix, err)
	}
	return ctx.Err()
}

// Ping checks that files can be read and written, without writing any.
func (s *Store) Ping(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Stat(s.objects); err != nil {
		return s.readError("find the folder "+s.objects, err)
	}
	for _, dir := range []string{s.objects, s.tmp} {
		if err := writable(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // tmp is recreated if missing
			return s.writeError("write to "+dir, err)
		}
	}
	return nil
}

// absent reports whether err means that there is no such file, also because part of
// its path is itself a file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func (s *Store) readError(what string, err error) error {
	if absent(err) {
		return fmt.Errorf("%w: cannot %s", sheaf.ErrNotFound, what)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: cannot %s: %w; give the user that runs sheaf permission to read it", sheaf.ErrUnavailable, what, err)
	}
	return fmt.Errorf("%w: cannot %s: %w", sheaf.ErrUnavailable, what, err)
}

func (s *Store) writeError(what string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: cannot %s: the disk or the quota is full (%w); free some space or move the data folder", sheaf.ErrReadOnly, what, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: cannot %s: the file system is read-only (%w); remount it or choose another data folder", sheaf.ErrReadOnly, what, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: cannot %s: %w; give the user that runs sheaf permission to write, or choose another data folder", sheaf.ErrReadOnly, what, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: cannot %s: a file is in the way (%w); choose another data folder", sheaf.ErrInvalid, what, err)
	}
	return fmt.Errorf("%w: cannot %s: %w", sheaf.ErrUnavailable, what, err)
}
