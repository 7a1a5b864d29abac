// Package backup copies what a single process keeps in its data folder, while it works,
// to a folder that Sheaf can run on. It sits beside the way of a document: it reads the
// database, the originals and the results, and changes none of them.
package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"sheaf"
)

// Names of what a backup adds to the files of a data folder.
const (
	Marker   = "backup.json"       // describes the backup
	Previous = ".previous"         // ends the name of the database of the backup before
	partial  = ".sheaf-incomplete" // ends the name of a file that is being copied
)

// Config names what is copied, relative to Source and under the same names in Target.
type Config struct {
	Source, Target string   // folders
	Database       string   // a file that SnapshotFunc copies; "" for none
	Files          []string // small files, copied each time; one that is missing is left out
	Trees          []string // folders of files that never change; one that is missing is left out
	Prune          bool     // remove files of Trees that Source no longer has
	Program        string   // version of this program, for the marker

	// SnapshotFunc writes a consistent copy of the database to a file that does not exist.
	SnapshotFunc func(ctx context.Context, to string) error
	// LockFunc takes Target for this process.
	LockFunc func(folder string) (unlock func() error, err error)
	// ProgressFunc is told of each file of Trees, from several goroutines; nil for nobody.
	ProgressFunc func()
}

// Report is what a backup did.
type Report struct {
	Source        string  `json:"source"`
	Target        string  `json:"target"`
	DatabaseBytes int64   `json:"database_bytes"`
	Files         int64   `json:"files" doc:"files of the backup beside the database"`
	Bytes         int64   `json:"bytes" doc:"their size"`
	NewFiles      int64   `json:"new_files" doc:"those that this backup copied"`
	NewBytes      int64   `json:"new_bytes"`
	Removed       int64   `json:"removed" doc:"files that the data folder no longer had"`
	Seconds       float64 `json:"seconds"`
}

// marker tells a backup from a data folder in use.
type marker struct {
	Source  string    `json:"source"`
	At      time.Time `json:"at,omitzero"` // end of the latest complete backup
	Program string    `json:"program"`
	// Databases are hashes of the database file: that of the latest backup and, while one
	// is being made, that of the next. Another one has been changed since.
	Databases []string `json:"databases" nullable:"false"`
}

// Run makes a backup, or brings an earlier one in Target up to date. The database comes
// first: bytes that it does not know are garbage, those that it knows and that are
// missing would be lost. Until the new database takes its place, the earlier backup
// stays whole. Nothing of it is deleted without Prune, since the reason to need a backup
// may be that the files are gone; the database before is kept beside the new one. With an
// error there is a report only if the backup was made, and not all was removed from it.
func Run(ctx context.Context, c Config) (*Report, error) {
	begun := time.Now()
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Target, 0o700); err != nil {
		return nil, c.failed("make the folder", err)
	}
	if _, err := c.look(); err != nil { // before the lock leaves its file
		return nil, err
	}
	unlock, err := c.LockFunc(c.Target)
	if err != nil {
		return nil, fmt.Errorf("the backup folder is in use: %w", err)
	}
	defer func() { _ = unlock() }()
	m, err := c.look()
	if err == nil {
		err = c.unchanged(m)
	}
	if err != nil {
		return nil, err
	}
	m.Source, m.Program = c.Source, c.Program
	if err := c.write(m); err != nil {
		return nil, err
	}

	r := &Report{Source: c.Source, Target: c.Target}
	var next string
	if c.Database != "" {
		next = c.to(c.Database + partial)
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, c.failed("replace", err)
		}
		if err := c.SnapshotFunc(ctx, next); err != nil {
			_ = os.Remove(next) // the first error counts
			return nil, fmt.Errorf("copying the database to %s: %w", c.Target, err)
		}
	}
	if err := c.copyTrees(ctx, r); err != nil {
		return nil, err
	}
	for _, name := range c.Files {
		if err := c.copySmall(name, r); err != nil {
			return nil, err
		}
	}
	if next != "" {
		if r.DatabaseBytes, err = c.replace(m, next); err != nil {
			return nil, err
		}
	}
	m.At = time.Now().UTC()
	if err := c.write(m); err != nil {
		return nil, err
	}
	if c.Prune {
		if err := c.prune(ctx, r); err != nil {
			return r, err
		}
	}
	r.Seconds = time.Since(begun).Seconds()
	return r, nil
}

func (c Config) from(name string) string { return filepath.Join(c.Source, name) }
func (c Config) to(name string) string   { return filepath.Join(c.Target, name) }

// failed describes an error of the target.
func (c Config) failed(what string, err error) error {
	return fmt.Errorf("cannot %s in the backup folder %s: %w; an earlier backup in it is still whole", what, c.Target, err)
}

// check refuses folders of which one lies in the other.
func (c Config) check() error {
	source, err := filepath.EvalSymlinks(c.Source)
	if err != nil {
		return fmt.Errorf("%w: the data folder %s cannot be read: %w", sheaf.ErrInvalid, c.Source, err)
	}
	if c.Database != "" {
		if _, err := os.Stat(c.from(c.Database)); err != nil {
			return fmt.Errorf("%w: there is no database to copy: %w", sheaf.ErrInvalid, err)
		}
	}
	target := c.Target
	for rest := ""; ; { // the target need not exist
		real, err := filepath.EvalSymlinks(target)
		if err == nil {
			target = filepath.Join(real, rest)
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(target) == target {
			return fmt.Errorf("%w: the backup folder %s: %w", sheaf.ErrInvalid, c.Target, err)
		}
		target, rest = filepath.Dir(target), filepath.Join(filepath.Base(target), rest)
	}
	for _, pair := range [][2]string{{source, target}, {target, source}} {
		if within, err := filepath.Rel(pair[0], pair[1]); err == nil && within != ".." && !strings.HasPrefix(within, ".."+string(filepath.Separator)) {
			return fmt.Errorf("%w: %s and the data folder %s lie in one another; choose a folder outside, on another disk if possible", sheaf.ErrInvalid, c.Target, c.Source)
		}
	}
	return nil
}

// look reads the marker, and refuses a folder that holds anything but a backup of this
// data folder.
func (c Config) look() (*marker, error) {
	m := &marker{Databases: []string{}}
	b, err := os.ReadFile(c.to(Marker))
	if errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(c.Target)
		if err != nil {
			return nil, c.failed("list files", err)
		}
		for _, e := range entries {
			if e.Name() != "lock" && e.Name() != "lost+found" {
				return nil, fmt.Errorf("%w: %s is no backup and not empty: it holds %s; choose another folder", sheaf.ErrInvalid, c.Target, e.Name())
			}
		}
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(b, m)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be read: %w; choose another folder", sheaf.ErrInvalid, c.to(Marker), err)
	}
	if m.Source != c.Source {
		return nil, fmt.Errorf("%w: %s is a backup of %s, and this would be one of %s; choose another folder", sheaf.ErrInvalid, c.Target, m.Source, c.Source)
	}
	return m, nil
}

// unchanged refuses a backup that Sheaf has worked in since. It reads all of its database.
func (c Config) unchanged(m *marker) error {
	if c.Database == "" {
		return nil
	}
	sum, err := hash(c.to(c.Database))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return c.failed("read the database", err)
	}
	if _, err := os.Stat(c.to(c.Database + "-wal")); err == nil || !slices.Contains(m.Databases, sum) {
		return fmt.Errorf("%w: Sheaf has worked in %s since that backup was made, and another would overwrite what it did; choose another folder", sheaf.ErrInvalid, c.Target)
	}
	m.Databases = []string{sum}
	return nil
}

func (c Config) write(m *marker) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	temp := c.to(Marker + partial)
	if err = os.WriteFile(temp, append(b, '\n'), 0o600); err == nil {
		err = flush(temp)
	}
	if err == nil {
		err = os.Rename(temp, c.to(Marker))
	}
	if err == nil {
		err = flush(c.Target)
	}
	if err != nil {
		return c.failed("write "+Marker, err)
	}
	return nil
}

// replace puts the new database in the place of the one before, and keeps that.
func (c Config) replace(m *marker, next string) (bytes int64, err error) {
	sum, err := hash(next)
	if err != nil {
		return 0, c.failed("read the copy of the database", err)
	}
	m.Databases = append(m.Databases, sum)
	if err := flush(next); err != nil {
		return 0, c.failed("write the database", err)
	}
	if err := c.write(m); err != nil {
		return 0, err
	}
	database := c.to(c.Database)
	err = os.Remove(database + Previous)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Link(database, database+Previous) // so that there is a database at all times
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file system without links
		if err = os.Rename(database, database+Previous); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(next, database)
	}
	if err == nil {
		err = flush(c.Target)
	}
	if err != nil {
		return 0, c.failed("replace the database", err)
	}
	m.Databases = []string{sum}
	info, err := os.Stat(database)
	if err != nil {
		return 0, c.failed("read the database", err)
	}
	return info.Size(), nil
}

// copiers is how many files are copied at once: most are small, and each waits for the
// disk.
const copiers = 8

// copyTrees copies the files that the target has not.
func (c Config) copyTrees(ctx context.Context, r *Report) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(copiers)
	for _, tree := range c.Trees {
		err := filepath.WalkDir(c.from(tree), func(path string, e fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // collected meanwhile, or not there at all
			}
			if err != nil {
				return err
			}
			name, err := filepath.Rel(c.Source, path)
			if err != nil {
				return err
			}
			switch {
			case e.IsDir():
				if err := os.MkdirAll(c.to(name), 0o700); err != nil {
					return c.failed("make a folder", err)
				}
			case e.Type().IsRegular() && e.Name() != "lock":
				g.Go(func() error { return c.copyOnce(name, r) })
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, g.Wait())
		}
	}
	return g.Wait()
}

// copyOnce copies a file that never changes.
func (c Config) copyOnce(name string, r *Report) error {
	info, err := os.Stat(c.from(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there, err := os.Stat(c.to(name)); err != nil || there.Size() != info.Size() {
		if err := c.copy(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		atomic.AddInt64(&r.NewFiles, 1)
		atomic.AddInt64(&r.NewBytes, info.Size())
	}
	atomic.AddInt64(&r.Files, 1)
	atomic.AddInt64(&r.Bytes, info.Size())
	if c.ProgressFunc != nil {
		c.ProgressFunc()
	}
	return nil
}

// copySmall copies a file that may have changed.
func (c Config) copySmall(name string, r *Report) error {
	content, err := os.ReadFile(c.from(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(c.to(name)); err != nil || !bytes.Equal(there, content) {
		if err := c.copy(name); err != nil {
			return err
		}
		r.NewFiles++
		r.NewBytes += int64(len(content))
	}
	r.Files++
	r.Bytes += int64(len(content))
	return nil
}

// copy copies one file so that under its name it is whole or not there. Its error wraps
// fs.ErrNotExist only if the source is missing.
func (c Config) copy(name string) (err error) {
	in, err := os.Open(c.from(name))
	if err != nil {
		return err
	}
	defer in.Close()
	temp := c.to(name) + partial
	out, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return c.failed("write "+name, errors.New(err.Error()))
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(temp, c.to(name))
	}
	if err != nil {
		_ = os.Remove(temp) // the first error counts
		return c.failed("write "+name, errors.New(err.Error()))
	}
	return nil
}

// prune removes files that the source no longer has, and those of copies that were cut
// off. It refuses where the source's folder is missing.
func (c Config) prune(ctx context.Context, r *Report) error {
	for _, tree := range c.Trees {
		if _, err := os.Stat(c.to(tree)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if _, err := os.Stat(c.from(tree)); err != nil {
			return fmt.Errorf("nothing was removed from the backup: %w; is its disk mounted?", err)
		}
		err := filepath.WalkDir(c.to(tree), func(path string, e fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(c.Target, path)
			if err != nil {
				return err
			}
			if _, err := os.Stat(c.from(name)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			r.Removed++
			return os.Remove(path)
		})
		if err != nil {
			return c.failed("remove files", err)
		}
	}
	return nil
}

func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// hash is the xxhash of a file, in hexadecimal.
func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := xxhash.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return strconv.FormatUint(h.Sum64(), 16), nil
}
