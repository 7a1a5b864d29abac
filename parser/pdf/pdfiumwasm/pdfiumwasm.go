// Package pdfiumwasm is the PDF engine that needs nothing installed: PDFium
// compiled to WebAssembly and run by wazero inside the parser's child process.
//
// The exports of the module are called directly. The wrapper functions of go-pdfium
// look each export up by name and allocate per character; measured on a page of
// text, direct calls are eight times faster. Queries for each character and object
// of a page run as loops inside the module.
package pdfiumwasm

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/klippa-app/go-pdfium"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"sheaf/parser/pdf/engine"
)

// packed is go-pdfium's PDFium without the functions not called here, plus the
// loops of module/page.wat: see module/README.md for how it is built and what it
// gains. Compressed, it takes 2.5 MB off the binary.
//
//go:embed module/pdfium.wasm.zst
var packed []byte

// maxModule bounds the module, which has 4.3 MB.
const maxModule = 16 << 20

// unpack returns the module (measured: 6 ms, once per child).
func unpack() ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxModule))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.DecodeAll(packed, nil)
}

//go:embed module/pdfium.wasm.sha256
var moduleSum string

// ModuleSHA256 returns the checksum of the module, in hexadecimal: everything built
// from it returns the same pages, boxes and pictures.
func ModuleSHA256() string { return moduleSum[:64] }

// Config configures the engine. The zero value is the default.
type Config struct {
	// CacheDir caches the machine code that wazero generates from the module (14
	// MB), so that a child starts in 0.1 s instead of 3 s. Empty means
	// $SHEAF_WAZERO_CACHE, else sheaf/wazero in the user's cache folder. If it is
	// not writable the engine compiles at each start.
	CacheDir string
	// MemoryPages limits one document's memory in pages of 64 KB; 0 means 8192 (512
	// MB).
	MemoryPages uint32
}

// maxOpen limits the documents open at once in one process.
const maxOpen = 64

// Engine starts the module on first use.
type Engine struct {
	cfg   Config
	start sync.Once
	pool  pdfium.Pool
	cache wazero.CompilationCache
	err   error

	ballast []byte
}

// ballastBytes are never touched, so they take no memory, but the collector counts
// them and waits until as much again has been allocated. A child that reads PDFs
// has a small Go heap: otherwise it would be collected after every 4 MB. Children
// that read tables have a large enough heap.
const ballastBytes = 16 << 20

// New returns the engine. Nothing is compiled before the first Open or Warm.
func New(cfg Config) *Engine {
	if cfg.MemoryPages == 0 {
		cfg.MemoryPages = 8192
	}
	return &Engine{cfg: cfg}
}

// Name implements engine.Engine.
func (e *Engine) Name() string { return "pdfium-wasm" }

// Warm compiles the module or loads it from the cache.
func (e *Engine) Warm() error {
	e.start.Do(func() {
		e.ballast = make([]byte, ballastBytes)
		e.pool, e.cache, e.err = boot(e.cfg)
	})
	return e.err
}

func boot(cfg Config) (pdfium.Pool, wazero.CompilationCache, error) {
	module, err := unpack()
	if err != nil {
		return nil, nil, fmt.Errorf("unpack PDFium: %w", err)
	}
	rc := wazero.NewRuntimeConfig().WithMemoryLimitPages(cfg.MemoryPages)
	cache := openCache(cfg.CacheDir)
	if cache != nil {
		rc = rc.WithCompilationCache(cache)
	}
	pool, err := webassembly.InitWithWASM(webassembly.Config{
		WASM:    module,
		Context: withAllocator(context.Background()),
		MinIdle: 0, MaxIdle: 1, MaxTotal: maxOpen,
		FSConfig: wazero.NewFSConfig(), // the default would mount the host's root
		Stdout:   io.Discard, Stderr: io.Discard,
		RuntimeConfig: rc,
	})
	if err != nil {
		return nil, cache, fmt.Errorf("start PDFium: %w", err)
	}
	return pool, cache, nil
}

// openCache returns nil if no folder can be used.
func openCache(dir string) wazero.CompilationCache {
	if dir == "" {
		dir = os.Getenv("SHEAF_WAZERO_CACHE")
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil
		}
		dir = filepath.Join(base, "sheaf", "wazero")
	}
	c, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil
	}
	return c
}

// Close ends the engine and any documents still open.
func (e *Engine) Close() error {
	e.start.Do(func() { e.err = errors.New("the engine is closed") })
	var err error
	if e.pool != nil {
		err = e.pool.Close()
	}
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(context.Background()))
	}
	return err
}

// implementation is the part of go-pdfium's instance that direct calls need.
type implementation interface {
	Malloc(uint64) (uint64, error)
	Free(uint64) error
	CreateFileAccessReader(int64, io.ReadSeeker) (*uint64, *uint32, error)
}

// moduleOf reaches the WebAssembly module behind an instance. The field is
// exported, its type is not, hence reflection; TestModuleIsReachable checks it for
// the pinned version.
func moduleOf(instance any) (api.Module, implementation, error) {
	im, ok := instance.(implementation)
	if !ok {
		return nil, nil, fmt.Errorf("go-pdfium: %T lacks Malloc, Free or CreateFileAccessReader", instance)
	}
	v := reflect.ValueOf(instance)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("go-pdfium: %T is not a pointer to a struct", instance)
	}
	field := v.Elem().FieldByName("Module")
	if !field.IsValid() || !field.CanInterface() {
		return nil, nil, fmt.Errorf("go-pdfium: %T has no field Module", instance)
	}
	mod, ok := field.Interface().(api.Module)
	if !ok || mod == nil {
		return nil, nil, fmt.Errorf("go-pdfium: the field Module of %T is no module", instance)
	}
	return mod, im, nil
}

// detachableReader releases the file on Close: go-pdfium keeps its readers in a
// global table forever.
type detachableReader struct{ r *io.SectionReader }

func (d *detachableReader) Read(p []byte) (int, error) {
	if d.r == nil {
		return 0, os.ErrClosed
	}
	return d.r.Read(p)
}

func (d *detachableReader) Seek(offset int64, whence int) (int64, error) {
	if d.r == nil {
		return 0, os.ErrClosed
	}
	return d.r.Seek(offset, whence)
}

// scratchBytes is the size of the buffer inside the module for out parameters,
// batchBytes that of the one page.wat writes to.
const (
	scratchBytes = 8 << 10
	batchBytes   = 64 << 10
)

type document struct {
	inst    pdfium.Pdfium
	im      implementation
	mod     api.Module
	mem     api.Memory
	ctx     context.Context
	reader  *detachableReader
	handle  uint64
	scratch uint64
	batch   uint32
	pages   int
	fonts   []engine.Font
	fontOf  map[uint64]int32
	fns     map[string]api.Function
	broken  error
	stack   [12]uint64

	placed    []int          // object numbers of the pages
	pageOf    map[uint32]int // the reverse map, built from placed on the first link
	reference uint32         // first word of reference objects; 0 while unknown

	chars, objects, segments, countSegments, matrix api.Function
}

// Open implements engine.Engine.
func (e *Engine) Open(ctx context.Context, f io.ReaderAt, size int64, password string) (doc engine.Document, err error) {
	if err := e.Warm(); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBroken, err)
	}
	inst, err := e.pool.GetInstanceWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBroken, err)
	}
	d := &document{inst: inst, ctx: context.Background(), fontOf: map[uint64]int32{}, fns: map[string]api.Function{}}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", engine.ErrBroken, p)
		}
		if err != nil {
			_ = d.Close()
			doc = nil
		}
	}()
	if d.mod, d.im, err = moduleOf(inst.GetImplementation()); err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBroken, err)
	}
	d.mem = d.mod.Memory()
	d.reader = &detachableReader{io.NewSectionReader(f, 0, size)}
	access, _, err := d.im.CreateFileAccessReader(size, d.reader)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrBroken, err)
	}
	if d.scratch, err = d.im.Malloc(scratchBytes + batchBytes); err != nil || d.scratch == 0 {
		return nil, fmt.Errorf("%w: no memory for its buffers", engine.ErrBroken)
	}
	d.batch = uint32(d.scratch) + scratchBytes
	var secret uint64
	if password != "" {
		if len(password) >= scratchBytes {
			return nil, engine.ErrPassword
		}
		d.mem.Write(uint32(d.scratch), append([]byte(password), 0))
		secret = d.scratch
	}
	d.handle = d.call("FPDF_LoadCustomDocument", *access, secret)
	if d.broken != nil {
		return nil, d.broken
	}
	if d.handle == 0 {
		switch code := d.call("FPDF_GetLastError"); code { // fpdfview.h: FPDF_ERR_*
		case 4:
			return nil, engine.ErrPassword
		case 5:
			return nil, engine.ErrSecurity
		default:
			return nil, fmt.Errorf("%w (PDFium error %d)", engine.ErrFormat, code)
		}
	}
	d.pages = int(int32(d.call("FPDF_GetPageCount", d.handle)))
	d.chars, d.objects, d.segments = d.fn("sheaf_chars"), d.fn("sheaf_objects"), d.fn("sheaf_segments")
	d.countSegments, d.matrix = d.fn("FPDFPath_CountSegments"), d.fn("FPDFPageObj_GetMatrix")
	return d, d.broken
}

// fn panics if an export does not exist: the module is compiled into the binary, so
// this cannot depend on a file.
func (d *document) fn(name string) api.Function {
	f := d.fns[name]
	if f == nil {
		if f = d.mod.ExportedFunction(name); f == nil {
			panic("pdfiumwasm: no export " + name)
		}
		d.fns[name] = f
	}
	return f
}

// call runs an export. After a trap the module's state is unknown: the
// document is marked broken and every later call returns 0.
func (d *document) call(name string, args ...uint64) uint64 {
	copy(d.stack[:], args)
	return d.invoke(d.fn(name))
}

func (d *document) call1(f api.Function, a uint64) uint64 {
	d.stack[0] = a
	return d.invoke(f)
}

func (d *document) call2(f api.Function, a, b uint64) uint64 {
	d.stack[0], d.stack[1] = a, b
	return d.invoke(f)
}

func (d *document) invoke(f api.Function) uint64 {
	if d.broken != nil {
		return 0
	}
	if err := f.CallWithStack(d.ctx, d.stack[:]); err != nil {
		d.broken = fmt.Errorf("%w: %s", engine.ErrBroken, firstLine(err.Error()))
		return 0
	}
	return d.stack[0]
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func (d *document) Pages() int { return d.pages }

// Place implements engine.Placing.
func (d *document) Place(numbers []int) {
	if len(numbers) != d.pages {
		return
	}
	const size = 4
	var words [batchBytes]byte
	for from := 0; from < len(numbers); from += batchBytes / size {
		some := numbers[from:min(from+batchBytes/size, len(numbers))]
		for i, n := range some {
			binary.LittleEndian.PutUint32(words[i*size:], uint32(n))
		}
		if !d.mem.Write(d.batch, words[:len(some)*size]) || d.call("sheaf_place", d.handle, uint64(from), uint64(len(some)), uint64(d.batch)) == 0 {
			return // pages are found the usual way
		}
	}
	d.placed = numbers
}

// destination returns the page of a destination; -1 for none. To identify that page
// PDFium reads its object, and with it the object stream containing it: a third of
// the cost of a range's links. If the page numbers are known, the destination's
// reference is read from memory instead, as PDFium lays it out
// (core/fpdfapi/parser): a CPDF_Array has a vector of pointers to its elements at
// offset 16, a CPDF_Reference the number at offset 20. A CPDF_Reference is
// recognized by its first word, learned from one for which PDFium gave the same
// answer.
func (d *document) destination(dest uint64) int {
	if d.pageOf == nil && d.placed != nil {
		d.pageOf = make(map[uint32]int, len(d.placed))
		for page, number := range slices.Backward(d.placed) { // the first counts
			d.pageOf[uint32(number)] = page
		}
	}
	elements, ok1 := d.mem.ReadUint32Le(uint32(dest) + 16)
	element, ok2 := d.mem.ReadUint32Le(elements)
	kind, ok3 := d.mem.ReadUint32Le(element)
	number, ok4 := d.mem.ReadUint32Le(element + 20)
	page, known := d.pageOf[number]
	known = known && ok1 && ok2 && ok3 && ok4 && kind != 0
	if known && kind == d.reference {
		return page
	}
	said := int(int32(d.call("FPDFDest_GetDestPageIndex", d.handle, dest)))
	if known && said == page {
		d.reference = kind
	}
	return said
}

// Close implements engine.Document. Closing the instance frees everything
// inside the module with it.
func (d *document) Close() error {
	if d.inst == nil {
		return nil
	}
	if d.reader != nil {
		d.reader.r = nil
	}
	err := d.inst.Close()
	d.inst = nil
	if d.broken == nil {
		d.broken = fmt.Errorf("%w: the document is closed", engine.ErrBroken)
	}
	return err
}

// Page implements engine.Document.
func (d *document) Page(n int, p *engine.Page) error {
	p.Reset()
	if d.broken != nil {
		return d.broken
	}
	if n < 0 || n >= d.pages {
		return engine.ErrPage
	}
	page := d.call("FPDF_LoadPage", d.handle, uint64(n))
	if d.broken != nil {
		return d.broken
	}
	if page == 0 {
		return engine.ErrPage
	}
	p.Width = math.Float32frombits(uint32(d.call("FPDF_GetPageWidthF", page)))
	p.Height = math.Float32frombits(uint32(d.call("FPDF_GetPageHeightF", page)))
	p.Rotation = int(uint32(d.call("FPDFPage_GetRotation", page)) & 3)
	d.call("FPDF_GetPageBoundingBox", page, d.scratch)
	b := d.floats(4) // left, top, right, bottom
	p.Box = engine.RectOf(b[0], b[1], b[2], b[3])

	if text := d.call("FPDFText_LoadPage", page, 0); text != 0 {
		d.readChars(text, p)
		d.call("FPDFText_ClosePage", text)
	}
	d.readObjects(page, p)
	d.links(page, p)
	d.call("FPDF_ClosePage", page)
	p.Fonts = d.fonts
	return d.broken
}

// readChars reads the text page: for each character its code unit and box, and at
// the start of each word the text object, whose font is queried only when the
// object changes.
func (d *document) readChars(text uint64, p *engine.Page) {
	n := int(int32(d.call("FPDFText_CountChars", text)))
	if n > engine.MaxChars {
		n, p.Truncated = engine.MaxChars, true
	}
	if cap(p.Chars) < n {
		p.Chars = make([]engine.Char, 0, n+n/4)
	}
	const size = 40 // of a character in page.wat
	var inWord, last uint64
	run := int32(-1)
	for from := 0; from < n; {
		count := min(n-from, batchBytes/size)
		d.stack[0], d.stack[1], d.stack[2], d.stack[3], d.stack[4], d.stack[5] = text, uint64(from), uint64(count), inWord, last, uint64(d.batch)
		inWord = d.invoke(d.chars)
		b := d.written(count * size)
		if b == nil {
			return
		}
		for ; len(b) >= size; b = b[size:] {
			unit := binary.LittleEndian.Uint32(b)
			if engine.Space(unit) {
				p.Chars = append(p.Chars, engine.Char{Unit: unit, Run: -1})
				continue
			}
			if object := uint64(binary.LittleEndian.Uint32(b[4:])); object != 0 {
				last = object
				size := float32(math.Float64frombits(binary.LittleEndian.Uint64(b[24:])))
				// Describing a new font does not touch the batch.
				p.Runs = append(p.Runs, engine.Run{Font: d.font(uint64(binary.LittleEndian.Uint32(b[32:]))), Size: size, Angle: engine.AngleOf(f32(b[36:]))})
				run = int32(len(p.Runs) - 1)
			}
			p.Chars = append(p.Chars, engine.Char{Unit: unit, Run: run, Box: engine.RectOf(f32(b[8:]), f32(b[12:]), f32(b[16:]), f32(b[20:]))})
		}
		from += count
	}
}

// written returns the first n bytes of the batch buffer, valid until the next call
// into the module that may grow its memory; nil if the document broke.
func (d *document) written(n int) []byte {
	if d.broken != nil {
		return nil
	}
	b, ok := d.mem.Read(d.batch, uint32(n))
	if !ok {
		d.broken = fmt.Errorf("%w: its buffer lies outside its memory", engine.ErrBroken)
		return nil
	}
	return b
}

// links reads the link areas of the page and their targets.
func (d *document) links(page uint64, p *engine.Page) {
	const action, uri = 8, 3 // position of the link's handle in the scratch buffer; fpdf_doc.h: PDFACTION_URI
	position := uint32(0)
	for len(p.Links) < engine.MaxLinks && d.broken == nil {
		if !d.mem.WriteUint32Le(uint32(d.scratch), position) || d.call("FPDFLink_Enumerate", page, d.scratch, d.scratch+action)&0xFF == 0 {
			return
		}
		next, _ := d.mem.ReadUint32Le(uint32(d.scratch))
		link, ok := d.mem.ReadUint32Le(uint32(d.scratch) + action)
		if !ok || next <= position {
			return
		}
		position = next
		if d.call("FPDFLink_GetAnnotRect", uint64(link), d.scratch)&0xFF == 0 {
			continue
		}
		b := d.floats(4) // left, top, right, bottom
		l := engine.Link{Box: engine.RectOf(b[0], b[1], b[2], b[3]), Page: -1}
		if a := d.call("FPDFLink_GetAction", uint64(link)); a != 0 && d.call("FPDFAction_GetType", a) == uri {
			l.URI = engine.Text8(d.text8("FPDFAction_GetURIPath", d.handle, a))
		} else if d.pages <= engine.MaxLinkedPages {
			if dest := d.call("FPDFLink_GetDest", d.handle, uint64(link)); dest != 0 {
				l.Page = d.destination(dest)
			}
		}
		if l.URI != "" || l.Page >= 0 {
			p.Links = append(p.Links, l)
		}
	}
}

// font describes a font once per document.
func (d *document) font(handle uint64) int32 {
	if handle == 0 {
		return -1
	}
	if i, ok := d.fontOf[handle]; ok {
		return i
	}
	name := bytes.Clone(d.text8("FPDFFont_GetBaseFontName", handle))
	weight, flags := int32(d.call("FPDFFont_GetWeight", handle)), int32(d.call("FPDFFont_GetFlags", handle))
	i := int32(len(d.fonts))
	d.fonts = append(d.fonts, engine.FontOf(name, weight, flags))
	d.fontOf[handle] = i
	return i
}

// readObjects walks the page's objects for rules and images.
func (d *document) readObjects(page uint64, p *engine.Page) {
	n := int(int32(d.call("FPDFPage_CountObjects", page)))
	d.walk(page, false, n, identity, 0, p)
}

// fpdf_edit.h: FPDF_PAGEOBJ_*
const (
	objectPath  = 2
	objectImage = 3
	objectForm  = 5
)

// object is a page object found by page.wat. The box holds left, bottom, right and
// top as returned by PDFium.
type object struct {
	index   int
	handle  uint64
	kind    uint32
	bounded bool
	box     [4]float32
}

// objectBatch limits the objects found by one call: while those of a form are read,
// the rest of the batch waits.
const objectBatch = 256

// walk goes through the n objects of a page or, with form, of a form, whose space m
// maps to the page's.
func (d *document) walk(parent uint64, form bool, n int, m affine, depth int, p *engine.Page) {
	const size = 32 // of an object in page.wat
	var isForm uint64
	if form {
		isForm = 1
	}
	looked := 0 // objects examined so far
	look := func(to int) bool {
		if p.Objects += to - looked; p.Objects > engine.MaxObjects {
			p.Objects, p.Truncated = engine.MaxObjects+1, true
			return false
		}
		looked = to
		return true
	}
	var found []object
	for looked < n {
		end := min(n, looked+engine.MaxObjects) // the rest is not examined
		d.stack[0], d.stack[1], d.stack[2], d.stack[3], d.stack[4], d.stack[5] = parent, isForm, uint64(looked), uint64(end), uint64(d.batch), objectBatch
		count := int(int32(d.invoke(d.objects)))
		b := d.written(count * size)
		if b == nil {
			return
		}
		// Copy the batch first: what follows overwrites the buffer.
		found = found[:0]
		for ; len(b) >= size; b = b[size:] {
			found = append(found, object{
				int(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint32(b[8:]),
				binary.LittleEndian.Uint32(b[12:]) != 0, [4]float32{f32(b[16:]), f32(b[20:]), f32(b[24:]), f32(b[28:])},
			})
		}
		for i := range found {
			o := &found[i]
			if !look(o.index + 1) {
				return
			}
			switch o.kind {
			case objectPath:
				if len(p.Rules) < engine.MaxRules && o.bounded {
					d.path(o, m, p)
				}
			case objectImage:
				if len(p.Images) < engine.MaxImages && o.bounded {
					p.Images = append(p.Images, o.bounds(m))
				}
			case objectForm:
				if depth < engine.MaxDepth {
					inner := m
					if d.call2(d.matrix, o.handle, d.scratch) != 0 {
						f := d.floats(6)
						inner = m.times(affine{f[0], f[1], f[2], f[3], f[4], f[5]})
					}
					inside := int(int32(d.call("FPDFFormObj_CountObjects", o.handle)))
					d.walk(o.handle, true, inside, inner, depth+1, p)
				}
			}
			if d.broken != nil {
				return
			}
		}
		if len(found) < objectBatch && !look(end) {
			return
		}
	}
}

func (o *object) bounds(m affine) engine.Rect {
	x0, y0 := m.apply(o.box[0], o.box[1])
	x1, y1 := m.apply(o.box[2], o.box[3])
	return engine.RectOf(x0, y1, x1, y0)
}

// thinPoints is the maximum thickness of a filled box that counts as a drawn line.
const thinPoints = 3

// path records the straight horizontal and vertical parts of a path.
func (d *document) path(o *object, m affine, p *engine.Page) {
	r := o.bounds(m)
	w, h := r.R-r.L, r.T-r.B
	if w <= thinPoints || h <= thinPoints {
		if w > 4 || h > 4 {
			p.Rules = append(p.Rules, r)
		}
		return
	}
	n := int(int32(d.call1(d.countSegments, o.handle)))
	if n < 2 || n > engine.MaxSegments {
		return
	}
	own := m
	if d.call2(d.matrix, o.handle, d.scratch) != 0 {
		f := d.floats(6)
		own = m.times(affine{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	line := func(x0, y0, x1, y1 float32) {
		r := engine.RectOf(x0, max(y0, y1), x1, min(y0, y1))
		if w, h := r.R-r.L, r.T-r.B; (w <= 1 && h > 4 || h <= 1 && w > 4) && len(p.Rules) < engine.MaxRules {
			p.Rules = append(p.Rules, r)
		}
	}
	const size = 16 // of a segment in page.wat; MaxSegments of them fit the batch
	d.stack[0], d.stack[1], d.stack[2] = o.handle, uint64(n), uint64(d.batch)
	n = int(int32(d.invoke(d.segments)))
	var x, y, startX, startY float32
	for b := d.written(n * size); len(b) >= size; b = b[size:] {
		toX, toY := own.apply(f32(b[8:]), f32(b[12:]))
		switch binary.LittleEndian.Uint32(b) { // fpdf_edit.h: 0 line, 1 curve, 2 move
		case 2:
			startX, startY = toX, toY
		case 0:
			line(x, y, toX, toY)
		}
		x, y = toX, toY
		if binary.LittleEndian.Uint32(b[4:]) != 0 {
			line(x, y, startX, startY)
		}
	}
}

// Size implements engine.Document.
func (d *document) Size(n int) (w, h float32, err error) {
	if d.broken != nil {
		return 0, 0, d.broken
	}
	ok := d.call("FPDF_GetPageSizeByIndexF", d.handle, uint64(n), d.scratch)
	if d.broken != nil {
		return 0, 0, d.broken
	}
	f := d.floats(2)
	if ok == 0 || f[0] <= 0 || f[1] <= 0 {
		return 0, 0, engine.ErrPage
	}
	return f[0], f[1], nil
}

// Label implements engine.Document.
func (d *document) Label(n int) string {
	return engine.Text16(d.text16("FPDF_GetPageLabel", d.handle, uint64(n)))
}

// Meta implements engine.Document.
func (d *document) Meta(key string) string {
	if d.broken != nil || len(key) > 63 {
		return ""
	}
	key16 := d.scratch + scratchBytes - 64 // text16 writes below it
	d.mem.Write(uint32(key16), append([]byte(key), 0))
	return engine.Text16(d.text16("FPDF_GetMetaText", d.handle, key16))
}

// Outline implements engine.Document. Cycles, which occur in damaged files, end at
// the limit and at a depth of 16.
func (d *document) Outline(limit int, pages bool) ([]engine.Bookmark, error) {
	var out []engine.Bookmark
	seen := map[uint64]bool{}
	var walk func(parent uint64, level int)
	walk = func(parent uint64, level int) {
		b := d.call("FPDFBookmark_GetFirstChild", d.handle, parent)
		for b != 0 && !seen[b] && len(out) < limit && d.broken == nil {
			seen[b] = true
			mark := engine.Bookmark{Level: level, Title: engine.TitleOf(d.text16("FPDFBookmark_GetTitle", b)), Page: -1}
			if pages {
				mark.Page = d.target(b)
			}
			if mark.Title != "" {
				out = append(out, mark)
			}
			if level < 16 {
				walk(b, level+1)
			}
			b = d.call("FPDFBookmark_GetNextSibling", d.handle, b)
		}
	}
	walk(0, 1)
	return out, d.broken
}

// target is the page that a bookmark leads to, or -1.
func (d *document) target(bookmark uint64) int {
	dest := d.call("FPDFBookmark_GetDest", d.handle, bookmark)
	if dest == 0 {
		if action := d.call("FPDFBookmark_GetAction", bookmark); action != 0 {
			dest = d.call("FPDFAction_GetDest", d.handle, action)
		}
	}
	if dest == 0 {
		return -1
	}
	return int(int32(d.call("FPDFDest_GetDestPageIndex", d.handle, dest)))
}

// Render implements engine.Document.
func (d *document) Render(n, w, h int) (*image.RGBA, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	if n < 0 || n >= d.pages || w < 1 || h < 1 {
		return nil, engine.ErrPage
	}
	page := d.call("FPDF_LoadPage", d.handle, uint64(n))
	if page == 0 {
		return nil, errors.Join(engine.ErrPage, d.broken)
	}
	defer d.call("FPDF_ClosePage", page)
	bitmap := d.call("FPDFBitmap_Create", uint64(w), uint64(h), 0)
	if bitmap == 0 {
		return nil, errors.Join(fmt.Errorf("%w: no memory for a picture of %d × %d pixels", engine.ErrPage, w, h), d.broken)
	}
	defer d.call("FPDFBitmap_Destroy", bitmap)
	d.call("FPDFBitmap_FillRect", bitmap, 0, 0, uint64(w), uint64(h), 0xFFFFFFFF)
	const annotations, reverseByteOrder = 0x01, 0x10 // fpdfview.h: FPDF_ANNOT, FPDF_REVERSE_BYTE_ORDER (RGBA)
	d.call("FPDF_RenderPageBitmap", bitmap, page, 0, 0, uint64(w), uint64(h), 0, annotations|reverseByteOrder)
	buffer, stride := d.call("FPDFBitmap_GetBuffer", bitmap), int(int32(d.call("FPDFBitmap_GetStride", bitmap)))
	if d.broken != nil {
		return nil, d.broken
	}
	pixels, ok := d.mem.Read(uint32(buffer), uint32(stride*h))
	if !ok || stride < 4*w {
		return nil, fmt.Errorf("%w: the picture lies outside its memory", engine.ErrBroken)
	}
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		row := img.Pix[y*img.Stride : y*img.Stride+4*w]
		copy(row, pixels[y*stride:])
		for x := 3; x < len(row); x += 4 {
			row[x] = 0xFF // the bitmap has no alpha: the fourth byte is undefined
		}
	}
	return img, nil
}

// floats reads n numbers from the scratch buffer.
func (d *document) floats(n int) [6]float32 {
	var out [6]float32
	b, ok := d.mem.Read(uint32(d.scratch), uint32(4*n))
	if !ok {
		return out
	}
	for i := range n {
		out[i] = f32(b[4*i:])
	}
	return out
}

// text16 calls a function of the form f(args…, buffer, bytes) that writes UTF-16LE
// with a terminating zero and returns the length in bytes. The result is valid
// until the next call.
func (d *document) text16(name string, args ...uint64) []byte {
	const capacity = scratchBytes - 64
	n := int(int32(d.call(name, append(args, d.scratch, capacity)...)))
	if n < 4 || n > capacity || d.broken != nil {
		return nil
	}
	b, _ := d.mem.Read(uint32(d.scratch), uint32(n-2))
	return b
}

// text8 is text16 for functions that write bytes.
func (d *document) text8(name string, args ...uint64) []byte {
	n := int(int32(d.call(name, append(args, d.scratch, scratchBytes)...)))
	if n < 2 || n > scratchBytes || d.broken != nil {
		return nil
	}
	b, _ := d.mem.Read(uint32(d.scratch), uint32(n-1))
	return b
}

func f32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// affine is a PDF matrix [a b c d e f]. Explicit conversions round each product (Go
// specification, Floating-point operators): on processors that fuse products and
// sums the boxes would otherwise differ from those of other engines.
type affine struct{ a, b, c, d, e, f float32 }

var identity = affine{a: 1, d: 1}

func (m affine) apply(x, y float32) (float32, float32) {
	return float32(m.a*x) + float32(m.c*y) + m.e, float32(m.b*x) + float32(m.d*y) + m.f
}

// times returns the matrix that applies n first and then m.
func (m affine) times(n affine) affine {
	return affine{
		a: float32(m.a*n.a) + float32(m.c*n.b), b: float32(m.b*n.a) + float32(m.d*n.b),
		c: float32(m.a*n.c) + float32(m.c*n.d), d: float32(m.b*n.c) + float32(m.d*n.d),
		e: float32(m.a*n.e) + float32(m.c*n.f) + m.e, f: float32(m.b*n.e) + float32(m.d*n.f) + m.f,
	}
}
