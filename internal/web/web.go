// Package web is the web UI: static files embedded in the binary, served under a
// policy that forbids loading anything from elsewhere. It uses the same API as any
// client.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed static
var files embed.FS

// policy allows only the page's own scripts, styles and images.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// types are the media types of the files, fixed here so that no machine's own table
// can change how the browser treats a script.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// asset is a file. It is compressed when it is first requested so: compressing all of
// them took a quarter of a process's start.
type asset struct {
	mediaType, etag string
	plain           []byte
	zipped          func() []byte
}

// Page serves the page at / and its files below it. Every other path but a missing
// script also serves the page, which routes on the client side.
type Page struct{ assets map[string]asset }

// Has reports whether path is a file of the page, or the page itself.
func (p *Page) Has(path string) bool {
	_, ok := p.assets[path]
	return ok || path == "/"
}

// New returns the page.
func New() *Page { return &Page{assets()} }

var assets = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	err := fs.WalkDir(files, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		all[strings.TrimPrefix(name, "static")] = asset{
			types[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`, b,
			sync.OnceValue(func() []byte { return gzipped(b) }),
		}
		return nil
	})
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	return all
})

func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	return z.Bytes()
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache") // revalidated each time, resent only if changed
	h.Set("Vary", "Accept, Accept-Encoding")
	a, ok := p.assets[r.URL.Path]
	if !ok && strings.HasPrefix(r.URL.Path, "/js/") {
		http.NotFound(w, r) // a missing script must not be answered with the page
		return
	}
	if !ok {
		a = p.assets["/index.html"]
	}
	body := a.plain
	h.Set("Content-Type", a.mediaType)
	h.Set("ETag", a.etag)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body = a.zipped()
		h.Set("Content-Encoding", "gzip")
		h.Set("ETag", strings.TrimSuffix(a.etag, `"`)+`z"`)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}
