// Package pdfiumhelper is the PDF engine for machines that have sheaf-pdfium: the
// module of package pdfiumwasm, compiled ahead of time, with one process per
// document. Pages are the same, and read in about half the time.
//
// The program (host/host.c) receives requests over a pipe and is not trusted: its
// output is checked, its memory and silence are limited, and any violation ends it
// and makes the document engine.ErrBroken.
package pdfiumhelper

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"sheaf/parser/internal/program"
	"sheaf/parser/pdf/engine"
)

// Config configures the engine.
type Config struct {
	Path   string // of sheaf-pdfium
	Module string // checksum of the WebAssembly module it must be built from, see pdfiumwasm.ModuleSHA256
	// MemoryBytes is the memory limit of the programs of all open documents
	// together. Programs of idle documents end before it is exceeded, and are
	// restarted on the next request. Default 512 MB.
	MemoryBytes int64
	// Patience is how long a program may be silent during a request without using
	// the processor. Default 15 s.
	Patience time.Duration
}

const (
	wasmPage     = 64 << 10
	documentMost = 8192 // memory pages one document may have, as with pdfiumwasm
	documentWant = 1024 // memory pages it should find free; other programs are ended for it
)

// Engine starts nothing before the first Open.
type Engine struct {
	cfg   Config
	once  sync.Once
	spawn chan func()
	stop  chan struct{}

	mu     sync.Mutex
	closed bool
	open   map[*document]struct{}
}

// New returns the engine.
func New(cfg Config) *Engine {
	if cfg.MemoryBytes <= 0 {
		cfg.MemoryBytes = 512 << 20
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 15 * time.Second
	}
	return &Engine{cfg: cfg, spawn: make(chan func()), stop: make(chan struct{}), open: map[*document]struct{}{}}
}

// Name implements engine.Engine.
func (e *Engine) Name() string { return "pdfium-helper" }

// Close implements engine.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	all := make([]*document, 0, len(e.open))
	for d := range e.open {
		all = append(all, d)
	}
	e.mu.Unlock()
	for _, d := range all {
		_ = d.Close()
	}
	close(e.stop)
	return nil
}

// ---- A running program. ----

// Operations, kinds of frames and limits of host/host.c.
const (
	protocol = 2

	opOpen    = 1
	opPage    = 2
	opSize    = 3
	opLabel   = 4
	opMeta    = 5
	opOutline = 6
	opRender  = 7
	opPlace   = 8

	frameHello  = 'H'
	frameOpened = 'O'
	frameNeed   = 'N'
	framePage   = 'P'
	frameFont   = 'F'
	frameRuns   = 'U'
	frameChars  = 'C'
	frameRules  = 'R'
	frameImages = 'I'
	frameLink   = 'L'
	frameText   = 'T'
	frameMark   = 'B'
	framePoints = 'S'
	framePixels = 'Q'
	frameFailed = 'X'
	frameEnd    = 'E'

	maxPayload  = 64 << 10
	maxPassword = 8<<10 - 5
	maxFonts    = 32 << 10
	// maxFrames limits the frames of an answer: no page, outline or picture has more.
	maxFrames = 200_000
)

// exits explains the exit codes of the program.
var exits = map[int]string{65: "it was asked something that it does not know", 66: "there is no room for its memory", 67: "the document has more parts than it keeps"}

var (
	errLie    = errors.New("it answers something that is no answer")
	errClosed = errors.New("the document is closed")
)

type process struct {
	e       *Engine
	process *os.Process
	in, out *os.File
	frames  *bufio.Reader
	body    []byte
	patient time.Duration
	used    time.Duration // processor time when last checked
	spent   time.Duration // processor time that program.Spent counts
}

// start runs the program and reads its self-description. The document is its
// descriptor 3, or nil if the program requests its bytes.
func (e *Engine) start(document *os.File) (p *process, filtered bool, err error) {
	reqR, reqW, err := os.Pipe()
	if err != nil {
		return nil, false, err
	}
	ansR, ansW, err := os.Pipe()
	if err != nil {
		_, _ = reqR.Close(), reqW.Close()
		return nil, false, err
	}
	widen(ansW)
	p = &process{e: e, in: reqW, out: ansR, frames: bufio.NewReaderSize(ansR, 64<<10), body: make([]byte, maxPayload), patient: e.cfg.Patience}
	// The program gets no environment, standard error or folder.
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{reqR, ansW, nil, document}, Sys: attributes()}
	e.once.Do(func() { go e.spawner() })
	started := make(chan error, 1)
	select {
	case e.spawn <- func() {
		var err error
		p.process, err = os.StartProcess(e.cfg.Path, []string{"sheaf-pdfium", "serve"}, attr)
		started <- err
	}:
		err = <-started
	case <-e.stop:
		err = errClosed
	}
	_, _ = reqR.Close(), ansW.Close()
	if err != nil {
		_, _ = reqW.Close(), ansR.Close()
		return nil, false, err
	}
	kind, body, err := p.read()
	switch {
	case err != nil:
	case kind != frameHello || len(body) != 72:
		err = errLie
	case binary.LittleEndian.Uint32(body) != protocol:
		err = fmt.Errorf("it speaks protocol %d, and %d is spoken here: use the one of this version", binary.LittleEndian.Uint32(body), protocol)
	// guard: PDF: a program made of another build of PDFium is refused
	case string(body[8:]) != e.cfg.Module:
		err = fmt.Errorf("it is made of another build of PDFium (%.12s…, not %.12s…): use the one of this version", body[8:], e.cfg.Module)
	}
	if err != nil {
		return nil, false, p.end(err)
	}
	return p, binary.LittleEndian.Uint32(body[4:]) == 1, nil
}

// spawner starts all programs from one thread: the kernel kills a program when the
// thread that started it ends (see attributes), and the runtime may end threads at
// any time.
func (e *Engine) spawner() {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	for {
		select {
		case f := <-e.spawn:
			f()
		case <-e.stop:
			return
		}
	}
}

// read returns a frame, whose body is valid until the next call.
func (p *process) read() (kind uint32, body []byte, err error) {
	if p.frames.Buffered() == 0 {
		if err := p.await(); err != nil {
			return 0, nil, err
		}
	}
	var head [8]byte
	if _, err := io.ReadFull(p.frames, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > maxPayload {
		return 0, nil, errLie
	}
	body = p.body[:n]
	_, err = io.ReadFull(p.frames, body)
	return binary.LittleEndian.Uint32(head[:]), body, err
}

// busiest is how many times its patience a program may be silent while working:
// some pages take long, in WebAssembly even longer.
const busiest = 4

// await waits for the next bytes.
func (p *process) await() (err error) {
	used := time.Duration(-1) // not yet known: the common path does not read it
	for range busiest {
		_ = p.out.SetReadDeadline(time.Now().Add(p.patient)) // pipes support deadlines
		if _, err = p.frames.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		now := cpuTime(p.process.Pid)
		if now-max(used, p.used) < p.patient/100 {
			break
		}
		used = now
	}
	if used >= 0 {
		p.used = used
	}
	_ = p.out.SetReadDeadline(time.Now().Add(p.patient)) // the rest of a frame follows at once
	return err
}

// spend counts the program's processor time since the last call.
func (p *process) spend() {
	if now := cpuTime(p.process.Pid); now > p.spent {
		program.Spend(now - p.spent)
		p.spent = now
	}
}

func (p *process) write(b []byte) error {
	_ = p.in.SetWriteDeadline(time.Now().Add(p.patient))
	_, err := p.in.Write(b)
	return err
}

// kill ends the program from the thread that started it: Landlock, which confines
// each thread of a parser separately, lets a thread signal what it has started.
func (p *process) kill() error {
	done := make(chan error, 1)
	select {
	case p.e.spawn <- func() { done <- p.process.Kill() }:
		return <-done
	case <-p.e.stop:
		return p.process.Kill()
	}
}

// end kills the program and returns the reason: the cause, or how it had already
// ended.
func (p *process) end(cause error) error {
	p.spend()
	_, _ = p.in.Close(), p.out.Close() // which ends a program that is reading
	if err := p.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		go p.process.Wait() // it ends with this process at the latest
		return fmt.Errorf("sheaf-pdfium cannot be ended (%w): %w", err, cmp.Or(cause, errClosed))
	}
	state, err := p.process.Wait()
	switch {
	case cause == nil:
		return nil
	case errors.Is(cause, os.ErrDeadlineExceeded):
		return fmt.Errorf("sheaf-pdfium was silent for %v", p.patient)
	case err != nil || errors.Is(cause, errLie) || !errors.Is(cause, io.EOF) && !errors.Is(cause, io.ErrUnexpectedEOF) && !isBrokenPipe(cause):
		return fmt.Errorf("sheaf-pdfium: %w", cause)
	}
	if why, ok := exits[state.ExitCode()]; ok {
		return fmt.Errorf("sheaf-pdfium ended: %s", why)
	}
	if trap := state.ExitCode() - 80; trap >= 0 { // EXIT_TRAP
		return fmt.Errorf("sheaf-pdfium ended: PDFium failed (trap %d)", trap)
	}
	return fmt.Errorf("sheaf-pdfium ended: %v", state)
}

// ---- A document. ----

type document struct {
	e        *Engine
	source   io.ReaderAt
	size     int64
	password string

	running *process // nil if it was ended to make room for others
	pages   int
	placed  []int // object numbers of the pages; nil if they are found the usual way
	fonts   []engine.Font
	base    int    // fonts described by earlier programs
	label   string // of page labelOf-1
	labelOf int
	broken  error

	// These are guarded by the engine's lock.
	memory int64 // memory pages its program has, or may take while busy
	busy   bool

	took int64 // memory pages its program had after the last answer
}

// Open implements engine.Engine.
func (e *Engine) Open(_ context.Context, f io.ReaderAt, size int64, password string) (engine.Document, error) {
	if len(password) > maxPassword {
		return nil, engine.ErrPassword
	}
	d := &document{e: e, source: f, size: size, password: password}
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.open[d] = struct{}{}
	}
	e.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("%w: the engine is closed", engine.ErrBroken)
	}
	if err := d.enter(); err != nil {
		_ = d.Close()
		return nil, err
	}
	d.leave()
	return d, nil
}

// enter makes the document the active one: other programs are ended if necessary,
// and its own is started if not running.
func (d *document) enter() error {
	if d.broken != nil {
		return d.broken
	}
	e, budget := d.e, d.e.cfg.MemoryBytes/wasmPage
	var ended []*process
	e.mu.Lock()
	d.busy = true
	for {
		others, idle := int64(0), (*document)(nil)
		for o := range e.open {
			if o == d {
				continue
			}
			others += o.memory
			if !o.busy && o.running != nil && (idle == nil || o.memory > idle.memory) {
				idle = o
			}
		}
		want := min(max(documentWant, 2*d.memory), documentMost, budget)
		if budget-others >= want || idle == nil {
			d.memory = max(min(budget-others, documentMost), 0)
			break
		}
		ended = append(ended, idle.running)
		idle.running, idle.memory = nil, 0
	}
	e.mu.Unlock()
	for _, p := range ended {
		_ = p.end(nil)
	}
	if d.running != nil {
		return nil
	}
	file, _ := d.source.(*os.File)
	p, _, err := e.start(file)
	if err != nil {
		return d.fail(err)
	}
	e.mu.Lock()
	d.running = p
	e.mu.Unlock()
	d.base = len(d.fonts)
	asks := uint32(1)
	if file != nil {
		asks = 0
	}
	before, opened := d.pages, false
	err = d.exchange(opOpen, uint32(d.size), uint32(d.size>>32), asks, []byte(d.password), func(kind uint32, body []byte) error {
		if kind == frameFailed && len(body) == 4 {
			switch code := binary.LittleEndian.Uint32(body); code { // fpdfview.h: FPDF_ERR_*
			case 4:
				return engine.ErrPassword
			case 5:
				return engine.ErrSecurity
			default:
				return fmt.Errorf("%w (PDFium error %d)", engine.ErrFormat, code)
			}
		}
		if kind != frameOpened || len(body) != 4 || opened {
			return errLie
		}
		opened, d.pages = true, int(int32(binary.LittleEndian.Uint32(body)))
		return nil
	})
	switch {
	case err == nil && (!opened || before != 0 && before != d.pages):
		return d.fail(errLie)
	case err != nil && before != 0 && !errors.Is(err, engine.ErrBroken):
		return d.fail(err) // it was another document the last time
	}
	if err == nil && d.placed != nil {
		err = d.place()
	}
	return err
}

// Place implements engine.Placing.
func (d *document) Place(numbers []int) {
	if len(numbers) != d.pages || d.enter() != nil {
		return
	}
	defer d.leave()
	d.placed = numbers
	_ = d.place() // a broken document says so at the next request
}

// placeBatch is how many pages one request places.
const placeBatch = 1024

// place tells the program which objects the pages are. One that refuses finds them
// the usual way.
func (d *document) place() error {
	numbers := make([]byte, 0, 4*placeBatch)
	for from := 0; from < len(d.placed); from += placeBatch {
		numbers = numbers[:0]
		for _, n := range d.placed[from:min(from+placeBatch, len(d.placed))] {
			numbers = binary.LittleEndian.AppendUint32(numbers, uint32(n))
		}
		refused := false
		if err := d.exchange(opPlace, uint32(from), 0, 0, numbers, func(kind uint32, body []byte) error {
			if refused || kind != frameFailed || refusal(body) != engine.ErrPage {
				return errLie
			}
			refused = true
			return nil
		}); err != nil {
			return err
		}
		if refused {
			d.placed = nil
			return nil
		}
	}
	return nil
}

// leave returns the memory that the program did not take.
func (d *document) leave() {
	d.e.mu.Lock()
	defer d.e.mu.Unlock()
	if d.running != nil {
		d.memory, d.busy = d.took, false
	}
}

// fail ends the program: its further output is useless.
func (d *document) fail(cause error) error {
	d.e.mu.Lock()
	p := d.running
	d.running, d.memory, d.busy = nil, 0, false
	d.e.mu.Unlock()
	if p != nil {
		cause = p.end(cause)
	}
	if d.broken == nil {
		d.broken = fmt.Errorf("%w: %w", engine.ErrBroken, cause)
	}
	return d.broken
}

// ask performs one request. on gets every frame but the last; its error is returned
// unchanged if it is one of package engine, otherwise the document is broken.
func (d *document) ask(op, a, b, c uint32, behind []byte, on func(kind uint32, body []byte) error) (ended end, err error) {
	if err := d.enter(); err != nil {
		return end{}, err
	}
	defer d.leave()
	return d.last(op, a, b, c, behind, on)
}

// end is the last frame of an answer.
type end struct {
	objects   int
	truncated bool
}

func (d *document) exchange(op, a, b, c uint32, behind []byte, on func(kind uint32, body []byte) error) error {
	_, err := d.last(op, a, b, c, behind, on)
	return err
}

func (d *document) last(op, a, b, c uint32, behind []byte, on func(kind uint32, body []byte) error) (end, error) {
	p, le := d.running, binary.LittleEndian
	request := make([]byte, 0, 24+len(behind))
	for _, v := range []uint32{op, a, b, c, uint32(d.memory), uint32(len(behind))} {
		request = le.AppendUint32(request, v)
	}
	if err := p.write(append(request, behind...)); err != nil {
		return end{}, d.fail(err)
	}
	var refused error // the program still completes its answer
	for n := 0; n < maxFrames; {
		kind, body, err := p.read()
		if err != nil {
			return end{}, d.fail(err)
		}
		switch {
		case kind == frameNeed && len(body) == 12:
			if err := d.give(p, le.Uint64(body), le.Uint32(body[8:])); err != nil {
				return end{}, d.fail(err)
			}
			continue
		case kind == frameEnd && len(body) == 12:
			p.spend()
			e := end{int(int32(le.Uint32(body[4:]))), le.Uint32(body[8:]) == 1}
			d.took = int64(le.Uint32(body))
			if d.took > documentMost || e.objects < 0 || e.objects > engine.MaxObjects+1 {
				return end{}, d.fail(errLie)
			}
			return e, refused
		case refused != nil:
			return end{}, d.fail(errLie)
		}
		n++
		if err := on(kind, body); errors.Is(err, errLie) {
			return end{}, d.fail(err)
		} else if err != nil {
			refused = err
		}
	}
	return end{}, d.fail(errLie)
}

// give sends bytes to a program that has no descriptor of the document.
func (d *document) give(p *process, at uint64, n uint32) error {
	if n == 0 || n > maxPayload || d.size < 0 || at > uint64(d.size) || uint64(n) > uint64(d.size)-at {
		return errLie
	}
	b := make([]byte, 4+n)
	if got, _ := d.source.ReadAt(b[4:], int64(at)); got < int(n) {
		b = b[:4] // unreadable
	} else {
		binary.LittleEndian.PutUint32(b, n)
	}
	return p.write(b)
}

// Pages implements engine.Document.
func (d *document) Pages() int { return d.pages }

// Close implements engine.Document.
func (d *document) Close() error {
	d.e.mu.Lock()
	p := d.running
	d.running, d.memory = nil, 0
	delete(d.e.open, d)
	d.e.mu.Unlock()
	if p != nil {
		_ = p.end(nil)
	}
	if d.broken == nil {
		d.broken = fmt.Errorf("%w: %w", engine.ErrBroken, errClosed)
	}
	return nil
}

func f32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

func rectOf(b []byte) engine.Rect { return engine.RectOf(f32(b), f32(b[4:]), f32(b[8:]), f32(b[12:])) }

// refusal decodes a failure frame.
func refusal(body []byte) error {
	if len(body) != 4 {
		return errLie
	}
	switch binary.LittleEndian.Uint32(body) {
	case 1:
		return engine.ErrPage
	case 2:
		return fmt.Errorf("%w: no memory for the picture", engine.ErrPage)
	}
	return errLie
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
	r := reader{d: d, p: p, run: -1}
	d.labelOf = 0
	ended, err := d.ask(opPage, uint32(n), 0, 0, nil, r.frame)
	if err != nil {
		return err
	}
	if !r.begun || !r.labelled || len(r.runs) > 0 {
		return d.fail(errLie)
	}
	p.Fonts, p.Objects, p.Truncated, d.labelOf = d.fonts, ended.objects, ended.truncated, n+1
	return nil
}

// reader collects the frames of a page.
type reader struct {
	d               *document
	p               *engine.Page
	runs            []byte // of the characters that follow
	run             int32
	begun, labelled bool
}

func (r *reader) frame(kind uint32, b []byte) error {
	d, p, le := r.d, r.p, binary.LittleEndian
	if kind == frameFailed && !r.begun {
		return refusal(b)
	}
	if r.begun == (kind == framePage) || r.labelled {
		return errLie
	}
	switch kind {
	case framePage:
		if len(b) != 28 {
			return errLie
		}
		r.begun = true
		p.Width, p.Height, p.Rotation, p.Box = f32(b), f32(b[4:]), int(le.Uint32(b[8:])&3), rectOf(b[12:])
	case frameFont:
		if len(b) < 8 || len(d.fonts)-d.base >= maxFonts {
			return errLie
		}
		d.fonts = append(d.fonts, engine.FontOf(b[8:], int32(le.Uint32(b)), int32(le.Uint32(b[4:]))))
	case frameRuns:
		if len(b) == 0 || len(b)%20 != 0 || len(r.runs) > 0 {
			return errLie
		}
		r.runs = append(r.runs, b...)
	case frameChars:
		return r.chars(b)
	case frameRules:
		return rects(b, &p.Rules, engine.MaxRules)
	case frameImages:
		return rects(b, &p.Images, engine.MaxImages)
	case frameLink:
		if len(b) < 20 {
			return errLie
		}
		l := engine.Link{Box: rectOf(b), Page: int(int32(le.Uint32(b[16:]))), URI: engine.Text8(b[20:])}
		if len(p.Links) < engine.MaxLinks && (l.URI != "" || l.Page >= 0) {
			p.Links = append(p.Links, l)
		}
	case frameText:
		r.labelled, d.label = true, engine.Text16(b)
	default:
		return errLie
	}
	return nil
}

// chars decodes characters, whose runs were sent before them.
func (r *reader) chars(b []byte) error {
	p, le := r.p, binary.LittleEndian
	runs := r.runs
	next := func() uint32 {
		if len(runs) == 0 {
			return math.MaxUint32
		}
		return le.Uint32(runs)
	}
	begins := next()
	for k := uint32(0); len(b) > 0; k++ {
		if len(b) < 4 || len(p.Chars) >= engine.MaxChars {
			return errLie
		}
		unit := le.Uint32(b)
		b = b[4:]
		if engine.Space(unit) {
			p.Chars = append(p.Chars, engine.Char{Unit: unit, Run: -1})
			continue
		}
		if len(b) < 16 {
			return errLie
		}
		if k == begins {
			font := int32(le.Uint32(runs[4:]))
			if font < -1 || int(font) >= len(r.d.fonts)-r.d.base {
				return errLie
			}
			if font >= 0 {
				font += int32(r.d.base)
			}
			p.Runs = append(p.Runs, engine.Run{Font: font, Size: float32(math.Float64frombits(le.Uint64(runs[8:]))), Angle: engine.AngleOf(f32(runs[16:]))})
			r.run = int32(len(p.Runs) - 1)
			runs = runs[20:]
			begins = next()
		}
		p.Chars = append(p.Chars, engine.Char{Unit: unit, Run: r.run, Box: rectOf(b)})
		b = b[16:]
	}
	if len(runs) > 0 { // of missing characters
		return errLie
	}
	r.runs = r.runs[:0]
	return nil
}

// rects decodes rectangles with ordered corners.
func rects(b []byte, to *[]engine.Rect, most int) error {
	if len(b) == 0 || len(b)%16 != 0 || len(*to)+len(b)/16 > most {
		return errLie
	}
	for ; len(b) > 0; b = b[16:] {
		*to = append(*to, engine.Rect{L: f32(b), B: f32(b[4:]), R: f32(b[8:]), T: f32(b[12:])})
	}
	return nil
}

// Size implements engine.Document.
func (d *document) Size(n int) (w, h float32, err error) {
	told := false
	_, err = d.ask(opSize, uint32(n), 0, 0, nil, func(kind uint32, body []byte) error {
		switch {
		case kind == frameFailed && !told:
			return refusal(body)
		case kind != framePoints || len(body) != 8 || told:
			return errLie
		}
		told, w, h = true, f32(body), f32(body[4:])
		return nil
	})
	if err == nil && (!told || w <= 0 || h <= 0) {
		err = engine.ErrPage
	}
	if err != nil {
		return 0, 0, err
	}
	return w, h, nil
}

// text requests one UTF-16 text.
func (d *document) text(op, a uint32, behind []byte) (text string) {
	_, _ = d.ask(op, a, 0, 0, behind, func(kind uint32, body []byte) error {
		if kind != frameText {
			return errLie
		}
		text = engine.Text16(body)
		return nil
	})
	if d.broken != nil {
		return ""
	}
	return text
}

// Label implements engine.Document. The label of the last page read is cached.
func (d *document) Label(n int) string {
	if d.labelOf == n+1 {
		return d.label
	}
	return d.text(opLabel, uint32(n), nil)
}

// Meta implements engine.Document.
func (d *document) Meta(key string) string {
	if len(key) > 63 {
		return ""
	}
	return d.text(opMeta, 0, []byte(key))
}

// Outline implements engine.Document.
func (d *document) Outline(limit int, pages bool) ([]engine.Bookmark, error) {
	var out []engine.Bookmark
	with := uint32(0)
	if pages {
		with = 1
	}
	limit = min(max(limit, 0), maxFrames-1)
	_, err := d.ask(opOutline, uint32(limit), with, 0, nil, func(kind uint32, b []byte) error {
		if kind != frameMark || len(b) < 8 || len(out) >= limit {
			return errLie
		}
		le := binary.LittleEndian
		mark := engine.Bookmark{Level: int(int32(le.Uint32(b))), Page: int(int32(le.Uint32(b[4:]))), Title: engine.TitleOf(b[8:])}
		if mark.Level < 1 || mark.Level > 16 {
			return errLie
		}
		if mark.Title != "" {
			out = append(out, mark)
		}
		return nil
	})
	return out, err
}

// maxPixels limits a picture: its rows of four bytes must fit the answer.
const maxPixels = 1 << 28

// Render implements engine.Document.
func (d *document) Render(n, w, h int) (*image.RGBA, error) {
	if d.broken != nil {
		return nil, d.broken
	}
	if n < 0 || n >= d.pages || w < 1 || h < 1 || w > 1<<16 || h > 1<<16 || w*h > maxPixels {
		return nil, engine.ErrPage
	}
	var img *image.RGBA
	at := 0
	_, err := d.ask(opRender, uint32(n), uint32(w), uint32(h), nil, func(kind uint32, body []byte) error {
		switch {
		case kind == frameFailed && img == nil:
			return refusal(body)
		case kind != framePixels || len(body) == 0:
			return errLie
		case img == nil: // only now is it certain that there is a picture
			img = image.NewRGBA(image.Rect(0, 0, w, h))
		}
		if len(body) > len(img.Pix)-at {
			return errLie
		}
		at += copy(img.Pix[at:], body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if img == nil || at != len(img.Pix) {
		return nil, d.fail(errLie)
	}
	for x := 3; x < len(img.Pix); x += 4 {
		img.Pix[x] = 0xFF // the bitmap has no alpha: the fourth byte is undefined
	}
	return img, nil
}

// Broken returns why the document is unusable; nil if it is usable.
func (d *document) Broken() error { return d.broken }
