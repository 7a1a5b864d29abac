// Package pdfium is PDFium, run by whatever is fastest here: the program
// sheaf-pdfium (package pdfiumhelper) if present, otherwise WebAssembly (package
// pdfiumwasm), which runs everywhere. Both are one build of PDFium and return the
// same pages.
//
// If the program fails on a document, WebAssembly reads it from that page on, so
// the program can make a document faster but never fail it.
package pdfium

import (
	"context"
	"errors"
	"image"
	"io"
	"strings"
	"sync"
	"time"

	"sheaf/parser/pdf/engine"
	"sheaf/parser/pdf/pdfiumhelper"
	"sheaf/parser/pdf/pdfiumwasm"
)

// Config configures the engine. The zero value is WebAssembly alone.
type Config struct {
	Helper      string        `json:",omitempty"` // path of sheaf-pdfium, as checked by Find
	MemoryBytes int64         `json:",omitempty"` // memory limit of all its processes together; 0: 512 MB
	Patience    time.Duration `json:",omitempty"` // how long a process may be silent; 0: 15 s
}

// New returns the engine. Nothing is started before the first Open.
func New(cfg Config) engine.Engine {
	wasm := pdfiumwasm.New(pdfiumwasm.Config{})
	if cfg.Helper == "" {
		return wasm
	}
	return &both{wasm: wasm, helper: pdfiumhelper.New(pdfiumhelper.Config{
		Path: cfg.Helper, Module: pdfiumwasm.ModuleSHA256(), MemoryBytes: cfg.MemoryBytes, Patience: cfg.Patience,
	})}
}

// maxFailures is how many consecutive failures to open disable the program for the
// life of this process: each costs a process start.
const maxFailures = 3

type both struct {
	helper *pdfiumhelper.Engine
	wasm   *pdfiumwasm.Engine

	mu       sync.Mutex
	failures int
}

// Name implements engine.Engine.
func (e *both) Name() string { return e.wasm.Name() }

// Close implements engine.Engine.
func (e *both) Close() error { return errors.Join(e.helper.Close(), e.wasm.Close()) }

func (e *both) tries() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failures < maxFailures
}

func (e *both) tried(broken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !broken:
		e.failures = 0
	default:
		e.failures++
	}
}

// Open implements engine.Engine.
func (e *both) Open(ctx context.Context, f io.ReaderAt, size int64, password string) (engine.Document, error) {
	d := &document{e: e, source: f, size: size, password: password}
	if e.tries() {
		doc, err := e.helper.Open(ctx, f, size, password)
		broken := errors.Is(err, engine.ErrBroken)
		e.tried(broken)
		if !broken {
			d.doc = doc
			return d.orNothing(err)
		}
		d.why = reason(err)
	}
	return d.orNothing(d.change(ctx))
}

func (d *document) orNothing(err error) (engine.Document, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

func reason(err error) string {
	return strings.TrimPrefix(err.Error(), engine.ErrBroken.Error()+": ")
}

type document struct {
	e        *both
	source   io.ReaderAt
	size     int64
	password string

	doc    engine.Document
	wasm   bool
	fonts  []engine.Font // described by the program, followed by those of WebAssembly
	placed []int         // object numbers of the pages, once they are known
	base   int           // how many the program described
	why    string        // why WebAssembly took over, until reported
}

// change reopens the document with WebAssembly.
func (d *document) change(ctx context.Context) error {
	if d.doc != nil {
		_ = d.doc.Close()
	}
	d.wasm, d.base = true, len(d.fonts)
	doc, err := d.e.wasm.Open(ctx, d.source, d.size, d.password)
	if err != nil {
		doc = closed{err}
	}
	d.doc = doc
	d.place()
	return err
}

// Place implements engine.Placing.
func (d *document) Place(numbers []int) {
	d.placed = numbers
	d.place()
}

func (d *document) place() {
	if p, ok := d.doc.(engine.Placing); ok && d.placed != nil {
		p.Place(d.placed)
	}
}

// failed reports whether an error was the program's and the document is now open in
// WebAssembly, so that the request can be repeated.
func (d *document) failed(err error) bool {
	if d.wasm || !errors.Is(err, engine.ErrBroken) {
		return false
	}
	d.why = reason(err)
	return d.change(context.Background()) == nil
}

// Moved implements engine.Moved.
func (d *document) Moved() string {
	why := d.why
	d.why = ""
	return why
}

func (d *document) Pages() int { return d.doc.Pages() }

// Page implements engine.Document. Fonts keep their numbers when WebAssembly takes over.
func (d *document) Page(n int, p *engine.Page) error {
	err := d.doc.Page(n, p)
	if d.failed(err) {
		err = d.doc.Page(n, p)
	}
	if err != nil {
		return err
	}
	switch {
	case !d.wasm:
		d.fonts = p.Fonts
	case d.base > 0:
		d.fonts = append(d.fonts[:d.base:d.base], p.Fonts...)
		p.Fonts = d.fonts
		for i := range p.Runs {
			if p.Runs[i].Font >= 0 {
				p.Runs[i].Font += int32(d.base)
			}
		}
	}
	return nil
}

func (d *document) Size(n int) (w, h float32, err error) {
	if w, h, err = d.doc.Size(n); d.failed(err) {
		w, h, err = d.doc.Size(n)
	}
	return w, h, err
}

// text requests a text. After a failure it is empty and the document broken.
func (d *document) text(ask func() string) string {
	s := ask()
	if s == "" && !d.wasm {
		if b, ok := d.doc.(interface{ Broken() error }); ok && d.failed(b.Broken()) {
			s = ask()
		}
	}
	return s
}

func (d *document) Label(n int) string { return d.text(func() string { return d.doc.Label(n) }) }

func (d *document) Meta(key string) string { return d.text(func() string { return d.doc.Meta(key) }) }

func (d *document) Outline(limit int, pages bool) ([]engine.Bookmark, error) {
	marks, err := d.doc.Outline(limit, pages)
	if d.failed(err) {
		marks, err = d.doc.Outline(limit, pages)
	}
	return marks, err
}

func (d *document) Render(n, w, h int) (*image.RGBA, error) {
	img, err := d.doc.Render(n, w, h)
	if d.failed(err) {
		img, err = d.doc.Render(n, w, h)
	}
	return img, err
}

func (d *document) Close() error { return d.doc.Close() }

// closed replaces a document that opened once and cannot be reopened.
type closed struct{ err error }

func (c closed) Pages() int                                   { return 0 }
func (c closed) Page(int, *engine.Page) error                 { return c.err }
func (c closed) Size(int) (w, h float32, err error)           { return 0, 0, c.err }
func (c closed) Label(int) string                             { return "" }
func (c closed) Meta(string) string                           { return "" }
func (c closed) Outline(int, bool) ([]engine.Bookmark, error) { return nil, c.err }
func (c closed) Render(int, int, int) (*image.RGBA, error)    { return nil, c.err }
func (c closed) Close() error                                 { return nil }
