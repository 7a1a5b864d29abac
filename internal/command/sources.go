package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

const (
	mostFiles    = 100_000          // per command
	fetchTimeout = 30 * time.Minute // per address
)

// selection decides which files of a folder are wanted.
type selection struct{ include, exclude []string }

func (s selection) check() error {
	for _, p := range append(append([]string{}, s.include...), s.exclude...) {
		if _, err := path.Match(p, ""); err != nil {
			return usageError{fmt.Errorf("%q is not a pattern such as '*.pdf' or 'drafts/*'", p)}
		}
	}
	return nil
}

// takes reports whether a file is wanted, by its path below the folder.
func (s selection) takes(rel string) bool {
	return (len(s.include) == 0 || matches(s.include, rel)) && !matches(s.exclude, rel)
}

// matches compares patterns with a file's name, its path, and each folder above it.
func matches(patterns []string, rel string) bool {
	rel = filepath.ToSlash(rel)
	for _, p := range patterns {
		p = strings.TrimSuffix(p, "/")
		for at := rel; at != "." && at != "/"; at = path.Dir(at) {
			whole, _ := path.Match(p, at) // patterns were validated
			name, _ := path.Match(p, path.Base(at))
			if whole || name && !strings.Contains(p, "/") {
				return true
			}
		}
	}
	return false
}

// collected is the set of files that a command line names.
type collected struct {
	files  []source
	left   int      // skipped by --include and --exclude, hidden, or no file
	links  []string // to folders: not followed, they may lead in a circle
	temp   []string // temporary files to remove
	unread []unread
	seen   map[string]bool
}

func (c *collected) remove() {
	for _, t := range c.temp {
		_ = os.Remove(t) // the system cleans its temp folder, too
	}
}

// unread is a file that could not be read locally.
type unread struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// collect lists the files that arguments name: files, folders (walked without
// hidden files), "-" for standard input, and URLs.
func (g *global) collect(ctx context.Context, args []string, want selection, name string) (*collected, error) {
	out := &collected{seen: map[string]bool{}}
	err := func() error {
		for _, arg := range args {
			var err error
			switch {
			case arg == "-":
				err = out.spool(cmp.Or(name, "stdin"), g.in)
			case strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://"):
				err = out.fetch(ctx, arg, name)
			default:
				err = out.walk(arg, want)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		out.remove()
		return nil, err
	}
	return out, nil
}

// walk adds a file, or the files of a folder. Links to files are followed, and a root
// that is a link.
func (c *collected) walk(root string, want selection) error {
	if info, err := os.Stat(root); err == nil && info.IsDir() && !strings.HasSuffix(root, string(filepath.Separator)) {
		root += string(filepath.Separator) // of a link, this is its folder
	}
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && file == root && errors.Is(err, fs.ErrNotExist):
			return usageError{fmt.Errorf("there is no file or folder %s", root)}
		case err != nil:
			c.unread = append(c.unread, unreadFile(file, err))
			if d != nil && d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		rel, _ := filepath.Rel(root, file) // both start with root
		if file == root {
			rel = d.Name()
		}
		if file != root && strings.HasPrefix(d.Name(), ".") {
			c.left++
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			if file != root && matches(want.exclude, rel) {
				c.left++
				return filepath.SkipDir
			}
			return nil
		}
		if !want.takes(rel) {
			c.left++
			return nil
		}
		info, err := os.Stat(file)
		if err != nil {
			c.unread = append(c.unread, unreadFile(file, err))
			return nil
		}
		switch {
		case info.IsDir():
			c.links = append(c.links, file)
			return nil
		case !info.Mode().IsRegular() && file != root:
			c.left++ // a socket, pipe or device
			return nil
		}
		if abs, err := filepath.Abs(file); err == nil && c.seen[abs] {
			return nil // named twice
		} else if err == nil {
			c.seen[abs] = true
		}
		if len(c.files) == mostFiles {
			return usageError{fmt.Errorf("there are more than %s under %s; ingest its folders one by one", count(mostFiles, "file"), root)}
		}
		c.files = append(c.files, source{name: cmp.Or(filepath.Base(file), file), path: file, size: info.Size(), open: func() (io.ReadCloser, error) { return os.Open(file) }})
		return nil
	})
}

// reason is a file system error without the path, which is printed next to it.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// spool saves a stream to a file, so that its size is known and it can be sent
// again.
func (c *collected) spool(name string, r io.Reader) error {
	f, err := os.CreateTemp("", "sheaf-*")
	if err != nil {
		return err
	}
	c.temp = append(c.temp, f.Name())
	n, err := io.Copy(f, r)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	c.files = append(c.files, source{name: name, path: f.Name(), size: n, open: func() (io.ReadCloser, error) { return os.Open(f.Name()) }})
	return nil
}

// fetch downloads a document to this machine, which may have access to hosts that
// the server must not reach.
func (c *collected) fetch(ctx context.Context, address, name string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return usageError{fmt.Errorf("%s is not an address such as https://example.org/report.pdf", address)}
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return usageError{err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s did not answer: %w", u.Host, cmp.Or(errors.Unwrap(err), err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, resp.Status)
	}
	if name == "" {
		if _, p, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil {
			name = path.Base(filepath.ToSlash(p["filename"]))
		}
	}
	if name == "" || name == "." {
		name = path.Base(u.Path)
	}
	if name == "" || name == "." || name == "/" {
		name = u.Hostname() + ".html"
	}
	return c.spool(name, resp.Body)
}
