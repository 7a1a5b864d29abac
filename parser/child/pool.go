// Package child runs the formats of package parser in processes that can be
// killed: the same binary started again, long-lived, several documents open in
// each. It stands between the executor, which asks for ranges of documents,
// and the formats, which read strangers' bytes.
//
// A child dies when a call takes longer than its context allows, when its
// resident memory passes the limit, and when the pool closes; it is replaced
// when it crashes, answers nonsense, has served many documents or has grown.
// Whatever happens, the caller gets a *sheaf.Failure and the parent lives.
package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
)

// Config of a pool. Zero values mean the defaults.
type Config struct {
	Size         int           // children at most; default GOMAXPROCS
	MaxDocs      int           // documents open at once in a child; default 4
	DocsPerChild int           // a child is replaced after opening so many; default 500
	MaxRSSBytes  int64         // resident memory at which a child is killed; default 1 GiB
	GrowthBytes  int64         // growth since its first document after which an idle child is replaced; default 256 MiB
	MaxFileBytes int64         // largest file a child may write; default 4 GiB
	RangeBytes   int64         // memory that the units of one range may take here; default 256 MiB
	StartTimeout time.Duration // until a started child must answer; default 20 s
	IdleTimeout  time.Duration // after which an unused child is ended; default 5 min
	TempDir      string        // where temporary folders go; default os.TempDir()
	Nice         int           // scheduling priority of the children, 0 to 19; default 0
	Command      []string      // what to start; default os.Executable() "parse-child"
	Env          []string      // added to a child's environment, "KEY=value"

	// Sandbox is SandboxAuto (the default), SandboxRequire or SandboxOff.
	Sandbox string
	// ReadDirs hold the documents: beside them and programs' files a child can
	// read nothing. Empty means that it may read all that its user may.
	ReadDirs []string
	// CacheDir keeps what an engine has compiled; children write it. Default
	// CacheDir().
	CacheDir string
	// Ports are those that a format must reach by TCP; empty means no network.
	Ports []int
	// Confined is told of the protections when the first child has started, and
	// again should they change. May be nil.
	Confined func([]Protection)
}

func (c Config) withDefaults() (Config, error) {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.Size <= 0 {
		c.Size = runtime.GOMAXPROCS(0)
	}
	if c.MaxDocs <= 0 {
		c.MaxDocs = 4
	}
	if c.DocsPerChild <= 0 {
		c.DocsPerChild = 500
	}
	def(&c.MaxRSSBytes, 1<<30)
	def(&c.GrowthBytes, 256<<20)
	def(&c.MaxFileBytes, 4<<30)
	def(&c.RangeBytes, 256<<20)
	if c.StartTimeout <= 0 {
		c.StartTimeout = 20 * time.Second
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 5 * time.Minute
	}
	if c.TempDir == "" {
		c.TempDir = os.TempDir()
	}
	switch c.Sandbox {
	case "":
		c.Sandbox = SandboxAuto
	case SandboxAuto, SandboxRequire, SandboxOff:
	default:
		return c, fmt.Errorf("sandbox mode %q: use %s, %s or %s", c.Sandbox, SandboxAuto, SandboxRequire, SandboxOff)
	}
	if len(c.ReadDirs) == 0 {
		c.ReadDirs = []string{"/"}
	}
	if c.CacheDir == "" {
		c.CacheDir = CacheDir()
	}
	if len(c.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find this program, which parses in a second process: %w", err)
		}
		c.Command = []string{self, "parse-child"}
	}
	return c, nil
}

// Source is a document to read. Two calls with equal sources find the document
// open if a child still has it.
type Source struct {
	Path    string         // of the file, readable by the child
	Key     string         // of the content, e.g. its SHA-256; empty means Path
	Format  string         // id; empty means by Options.MediaType
	Options parser.Options // TempDir and Fill are chosen by the pool
	// Fill brings bytes of a file with holes before the child reads them; nil
	// when all of it is there. Only for formats that are parser.Sparse. Its
	// error ends the child and is returned as it is.
	Fill func(ctx context.Context, offset, length int64) error
	// PlanLimit is how long planning may take once there is a child for it; 0
	// leaves that to the context.
	PlanLimit time.Duration
}

// id tells sources apart: the content and everything that shapes its opening.
func (s Source) id() uint64 {
	s.Options.TempDir = ""
	b, err := json.Marshal(struct {
		P, K, F string
		O       parser.Options
	}{s.Path, s.Key, s.Format, s.Options})
	if err != nil {
		panic(err) // only for a Hint that is no JSON, which is the caller's mistake
	}
	return xxhash.Sum64(b)
}

// Stats are counts since New, except where they say "now".
type Stats struct {
	Children    int   // alive now
	Busy        int   // of them, now
	OpenDocs    int   // now, over all children
	RSSBytes    int64 // now, over all children
	Started     int64
	Opens       int64 // documents opened
	Reuses      int64 // calls that found their document open
	Ahead       int64 // ranges that had been read while headings were looked for
	Crashes     int64
	Timeouts    int64
	OutOfMemory int64
	Canceled    int64
	Recycled    int64 // replaced for age, growth or idleness
}

// Pool is safe for use by many goroutines.
type Pool struct {
	cfg   Config
	root  string // temporary folders; removed by Close
	lock  *os.File
	slots chan struct{}
	spawn chan func()
	stop  chan struct{}
	done  sync.WaitGroup
	kept  *kept

	mu       sync.Mutex
	closed   bool
	children map[*process]bool // true while busy
	starting int               // on their way into children
	stats    Stats
	nextDoc  uint64
	spare    []string // empty folders of documents that are closed

	confined     []Protection // as the child started last has told; nil before the first
	noNamespaces bool         // the system has refused them
}

// New makes a pool. No child is started before the first call.
func New(cfg Config) (*Pool, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.TempDir, 0o700); err != nil {
		return nil, fmt.Errorf("folder for temporary files: %w", err)
	}
	sweep(cfg.TempDir)
	root, err := os.MkdirTemp(cfg.TempDir, rootPrefix)
	if err != nil {
		return nil, fmt.Errorf("folder for temporary files: %w", err)
	}
	p := &Pool{
		cfg: cfg, root: root,
		slots: make(chan struct{}, cfg.Size),
		spawn: make(chan func()), stop: make(chan struct{}),
		children: map[*process]bool{},
		kept:     newKept(root),
	}
	p.lock, _ = lockFolder(root)
	p.done.Add(2)
	go p.spawner()
	go p.janitor()
	return p, nil
}

const rootPrefix = "sheaf-parse-"

// sweep removes what pools of killed processes left behind. A living pool
// holds a lock in its folder.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, rootPrefix+"*"))
	for _, d := range left {
		if _, err := os.Stat(filepath.Join(d, ".lock")); err != nil {
			continue // being made this moment, or no lock on this system
		}
		if f, free := lockFolder(d); free {
			_ = os.RemoveAll(d)
			_ = f.Close()
		}
	}
}

// spawner starts all children from one thread that lives as long as the pool:
// the kernel sends a child its death signal when the starting *thread* ends,
// and the runtime ends threads as it likes.
func (p *Pool) spawner() {
	defer p.done.Done()
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	for {
		select {
		case f := <-p.spawn:
			f()
		case <-p.stop:
			return
		}
	}
}

// janitor ends children that nobody has used for a while, with the documents
// and temporary files that they hold, and forgets what is kept for nobody.
func (p *Pool) janitor() {
	defer p.done.Done()
	tick := time.NewTicker(max(p.cfg.IdleTimeout/4, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		var idle []*process
		p.mu.Lock()
		for c, busy := range p.children {
			if !busy && time.Since(c.used) > p.cfg.IdleTimeout {
				delete(p.children, c)
				p.stats.Recycled++
				idle = append(idle, c)
			}
		}
		p.mu.Unlock()
		for _, c := range idle {
			c.end()
		}
		p.kept.expire(time.Now().Add(-keptFor))
	}
}

// Close kills all children, also those at work, waits until they are gone and
// removes their temporary files. Calls that are under way fail.
func (p *Pool) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	all := make([]*process, 0, len(p.children))
	for c := range p.children {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.kill(killClosed)
	}
	for _, c := range all {
		<-c.exited
	}
	// A call that was about to start a child sees closed, or its child is
	// ended by release; both before it gives its slot back.
	for range p.cfg.Size {
		p.slots <- struct{}{}
	}
	close(p.stop)
	p.done.Wait()
	if p.lock != nil {
		_ = p.lock.Close()
	}
	return os.RemoveAll(p.root)
}

// Stats returns counts.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Children = len(p.children)
	for c, busy := range p.children {
		if busy {
			s.Busy++
		}
		s.OpenDocs += int(c.docCount.Load())
		s.RSSBytes += c.resident()
	}
	return s
}

var errClosed = fmt.Errorf("%w: the parsers have been stopped", sheaf.ErrUnavailable)

// acquire waits for a child to be free and prefers, in this order: one that
// has the document open, an idle one with room for it, a new one, and the one
// whose documents have been unused for longest.
func (p *Pool) acquire(ctx context.Context, id uint64, fresh bool) (*process, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, waitError(ctx)
	case <-p.stop:
		return nil, errClosed
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-p.slots
		return nil, errClosed
	}
	var best *process
	rank := func(c *process) int {
		switch {
		case c.docs[id] != nil:
			return 3
		case len(c.docs) < p.cfg.MaxDocs:
			return 2
		case len(p.children)+p.starting >= p.cfg.Size:
			return 1
		}
		return 0
	}
	var left []*process // to be ended: it takes no part, and may not keep a living one out
	for c, busy := range p.children {
		if !busy && c.gone() {
			delete(p.children, c)
			left = append(left, c)
		}
	}
	for c, busy := range p.children {
		if busy {
			continue
		}
		if r := rank(c); r > 0 && (best == nil || r > rank(best) || r == rank(best) && c.used.Before(best.used)) {
			best = c
		}
	}
	if fresh && best != nil {
		delete(p.children, best)
		left, best = append(left, best), nil
	}
	if best != nil {
		p.children[best] = true
	} else {
		// Counted before it lives: two callers that start at once must not
		// both take the last place.
		p.starting++
	}
	p.mu.Unlock()
	for _, c := range left {
		c.end()
	}
	if best != nil {
		return best, nil
	}

	c, err := p.start(ctx)
	p.mu.Lock()
	p.starting--
	if err != nil {
		p.mu.Unlock()
		<-p.slots
		return nil, err
	}
	if p.closed {
		p.mu.Unlock()
		c.end()
		<-p.slots
		return nil, errClosed
	}
	p.children[c] = true
	p.stats.Started++
	p.mu.Unlock()
	return c, nil
}

// waitError describes a context that ended before a child was free.
func waitError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%w: %w", sheaf.ErrCanceled, ctx.Err())
	}
	return sheaf.FailRetryable(sheaf.CategoryCapacity, "parser_busy", "No parser was free in the time allowed; try again when the system is less busy.")
}

// maxRestingBuf is what a child's buffer may keep between two calls.
const maxRestingBuf = 4 << 20

// release gives the child back, or ends it when it is of no more use.
func (p *Pool) release(c *process, healthy bool) {
	if cap(c.buf) > maxRestingBuf {
		c.buf = nil
	}
	rss := c.resident()
	if c.served == 1 || c.baseRSS == 0 {
		c.baseRSS = rss
	}
	keep := healthy && !c.gone() && c.served < p.cfg.DocsPerChild && rss-c.baseRSS <= p.cfg.GrowthBytes
	c.used = time.Now()
	p.mu.Lock()
	keep = keep && !p.closed
	if keep {
		p.children[c] = false
	} else {
		delete(p.children, c)
		if healthy {
			p.stats.Recycled++
		}
	}
	p.mu.Unlock()
	if !keep {
		c.end()
	}
	<-p.slots
}

// Why the parent killed a child.
const (
	killNone int32 = iota
	killTimeout
	killCanceled
	killMemory
	killProtocol
	killClosed
	killEnd
)

// process is a running child. Its fields belong to whoever holds it busy; kill
// and gone may be called by anybody.
type process struct {
	cmd     *exec.Cmd
	pid     int
	req     *bufio.Writer
	reqFile *os.File
	ansFile *os.File
	ans     *bufio.Reader
	buf     []byte
	dir     string // its TMPDIR
	stderr  tail
	statm   *os.File // where its memory is told, nil where that is unknown

	docs     map[uint64]*childDoc
	docCount atomic.Int32 // len(docs), for Stats
	served   int          // documents opened
	used     time.Time
	baseRSS  int64

	mu     sync.Mutex
	reaped bool
	why    int32
	exited chan struct{}
}

type childDoc struct {
	key  uint64 // Source.id
	id   uint64 // in the child
	dir  string
	used time.Time
}

// start runs a child and waits for its first word.
func (p *Pool) start(ctx context.Context) (*process, error) {
	fail := func(err error) error {
		return sheaf.FailRetryable(sheaf.CategoryInternal, "parser_start_failed", "The parser's process did not start: %v. Check memory and process limits.", err)
	}
	dir, err := os.MkdirTemp(p.root, "child-")
	if err != nil {
		return nil, fail(err)
	}
	reqR, reqW, err := os.Pipe()
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fail(err)
	}
	ansR, ansW, err := os.Pipe()
	if err != nil {
		closeAll(reqR, reqW)
		_ = os.RemoveAll(dir)
		return nil, fail(err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		closeAll(reqR, reqW, ansR, ansW)
		_ = os.RemoveAll(dir)
		return nil, fail(err)
	}
	c := &process{
		dir: dir,
		req: bufio.NewWriter(reqW), reqFile: reqW,
		ans: bufio.NewReaderSize(ansR, 64<<10), ansFile: ansR,
		docs: map[uint64]*childDoc{}, used: time.Now(), exited: make(chan struct{}),
	}
	command := func(namespaces bool) *exec.Cmd {
		cmd := exec.Command(p.cfg.Command[0], p.cfg.Command[1:]...)
		cmd.Dir = dir
		cmd.Env = p.childEnv(dir, namespaces)
		cmd.Stderr = errW
		cmd.ExtraFiles = []*os.File{reqR, ansW}
		cmd.SysProcAttr = isolate(namespaces, len(p.cfg.Ports) > 0)
		return cmd
	}
	started := make(chan error, 1)
	select {
	case p.spawn <- func() {
		var err error
		c.cmd, err = p.startConfined(command)
		started <- err
	}:
		err = <-started
	case <-p.stop:
		err = errClosed
	}
	cmd := c.cmd
	closeAll(reqR, ansW, errW)
	if err != nil {
		closeAll(reqW, ansR, errR)
		_ = os.RemoveAll(dir)
		return nil, fail(err)
	}
	c.pid = cmd.Process.Pid
	c.statm = openStatm(c.pid)
	errDone := make(chan struct{})
	go func() {
		defer close(errDone)
		_, _ = io.Copy(&c.stderr, errR)
		_ = errR.Close()
	}()
	go func() {
		if awaitExit(c.pid) {
			c.mu.Lock()
			killGroup(c.pid) // whatever it started
			_ = cmd.Wait()
			c.reaped = true
			c.mu.Unlock()
		} else {
			_ = cmd.Wait()
			c.mu.Lock()
			c.reaped = true
			c.mu.Unlock()
		}
		_ = errR.SetReadDeadline(time.Now().Add(time.Second)) // a stray descendant may hold it open
		<-errDone
		close(c.exited)
		p.forget(c)
	}()

	stop := c.watch(ctx, p.cfg.StartTimeout, 0)
	kind, body, next, err := readFrame(c.ans, c.buf)
	stop()
	c.buf = next
	if err == nil && kind != kindHello {
		err = errFrame
	}
	var said hello
	if err == nil && (len(body) < 1 || json.Unmarshal(body[1:], &said) != nil) {
		err = errFrame
	}
	if err == nil && said.Unreachable != "" {
		c.end()
		if !p.forgoNamespaces() {
			return p.start(ctx) // with the file rights of Sheaf's own user
		}
		return nil, fail(errors.New(said.Unreachable))
	}
	if lacks := missing(said.Protections); err == nil && p.cfg.Sandbox == SandboxRequire && len(lacks) > 0 {
		c.end()
		return nil, fail(fmt.Errorf("parser.sandbox is %q, and the system does not offer %s", SandboxRequire, strings.Join(lacks, ", ")))
	}
	if err != nil {
		c.end()
		if ctx.Err() != nil {
			return nil, waitError(ctx)
		}
		f := fail(fmt.Errorf("it gave no sign of life within %v", p.cfg.StartTimeout))
		f.(*sheaf.Failure).Detail = c.stderr.String()
		return nil, f
	}
	p.mu.Lock()
	news := !slices.Equal(p.confined, said.Protections)
	p.confined = said.Protections
	p.mu.Unlock()
	if news && p.cfg.Confined != nil {
		p.cfg.Confined(said.Protections)
	}
	return c, nil
}

// startConfined starts a child in namespaces of its own, or without where the
// system refuses them. It runs on the spawner's thread.
func (p *Pool) startConfined(command func(namespaces bool) *exec.Cmd) (*exec.Cmd, error) {
	p.mu.Lock()
	namespaces := p.cfg.Sandbox != SandboxOff && !p.noNamespaces
	p.mu.Unlock()
	if namespaces {
		cmd := command(true)
		if cmd.Start() == nil {
			return cmd, nil
		}
	}
	cmd := command(false)
	err := cmd.Start()
	if err == nil && namespaces {
		p.forgoNamespaces()
	}
	return cmd, err
}

// forgoNamespaces has children start without namespaces from now on. It reports
// whether that was so before.
func (p *Pool) forgoNamespaces() (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.noNamespaces = p.noNamespaces || p.cfg.Sandbox == SandboxOff, true
	return before
}

// Protections says what keeps the children away from the rest of the system.
// It starts a child where none has told yet.
func (p *Pool) Protections(ctx context.Context) ([]Protection, error) {
	known := func() []Protection {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.confined
	}
	if all := known(); all != nil {
		return all, nil
	}
	c, err := p.acquire(ctx, 0, false)
	if err != nil {
		return nil, err
	}
	p.release(c, true)
	return known(), nil
}

// forget drops a child that died while it was idle.
func (p *Pool) forget(c *process) {
	p.mu.Lock()
	busy, known := p.children[c]
	if known && !busy {
		delete(p.children, c)
	}
	p.mu.Unlock()
	if known && !busy {
		c.end()
	}
}

// privateBytes is what a child may map beside twice what may be resident: the
// runtime's own tables, the stacks of threads, and code that is compiled.
const privateBytes = 512 << 20

// childEnv is the whole environment of a child.
func (p *Pool) childEnv(dir string, namespaces bool) []string {
	write := []string{p.root}
	if p.cfg.CacheDir != "" && os.MkdirAll(p.cfg.CacheDir, 0o700) == nil {
		write = append(write, p.cfg.CacheDir)
	}
	if v := os.Getenv("GOCOVERDIR"); v != "" {
		write = append(write, v)
	}
	confine := sandbox{Mode: p.cfg.Sandbox, Read: p.cfg.ReadDirs, Write: write, Ports: p.cfg.Ports, Namespaces: namespaces, DataBytes: 2*p.cfg.MaxRSSBytes + privateBytes}
	env := []string{
		envSandbox + "=" + confine.encode(),
		"SHEAF_WAZERO_CACHE=" + p.cfg.CacheDir,
		envChild + "=1",
		envFileBytes + "=" + strconv.FormatInt(p.cfg.MaxFileBytes, 10),
		envNice + "=" + strconv.Itoa(p.cfg.Nice),
		"TMPDIR=" + dir,
		"GOMEMLIMIT=" + strconv.FormatInt(p.cfg.MaxRSSBytes/2, 10),
	}
	for _, k := range []string{"PATH", "HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TZ", "GOCOVERDIR", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return append(env, p.cfg.Env...)
}

func closeAll(fs ...*os.File) {
	for _, f := range fs {
		_ = f.Close()
	}
}

func (c *process) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// resident is the child's memory in bytes, 0 when it is gone.
func (c *process) resident() int64 { return residentBytes(c.statm) }

// kill ends the child and all it started. The first reason stands.
func (c *process) kill(why int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == killNone {
		c.why = why
	}
	if !c.reaped {
		killGroup(c.pid)
	}
}

func (c *process) reason() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// end kills the child, waits for it and removes its temporary files.
func (c *process) end() {
	c.kill(killEnd)
	<-c.exited
	closeAll(c.reqFile, c.ansFile)
	if c.statm != nil {
		_ = c.statm.Close() // it was only read
	}
	for _, d := range c.docs {
		_ = os.RemoveAll(d.dir)
	}
	_ = os.RemoveAll(c.dir)
}

// sampleEvery is how often the memory of a working child is looked at.
const sampleEvery = 100 * time.Millisecond

// watch kills the child when ctx ends, when limit (0: none) has passed, or
// when its resident memory exceeds maxRSS (0: any). The returned function ends
// the watch: after it nothing is killed any more.
//
// It has no goroutine of its own: most calls end within milliseconds, and
// waking a thread for each cost as much as a small file.
func (c *process) watch(ctx context.Context, limit time.Duration, maxRSS int64) (stop func()) {
	w := &watcher{c: c}
	if limit > 0 {
		w.late = time.AfterFunc(limit, func() { w.kill(killTimeout) })
	}
	if maxRSS > 0 {
		w.mu.Lock()
		w.sample = time.AfterFunc(sampleEvery, func() { w.look(maxRSS) })
		w.mu.Unlock()
	}
	calm := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.kill(killTimeout)
		} else {
			w.kill(killCanceled)
		}
	})
	return func() {
		calm()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
		if w.late != nil {
			w.late.Stop()
		}
		if w.sample != nil {
			w.sample.Stop()
		}
	}
}

type watcher struct {
	c    *process
	late *time.Timer

	mu     sync.Mutex // held while killing: a child that has gone on to another call is not killed for this one
	over   bool
	sample *time.Timer
}

func (w *watcher) kill(why int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.c.kill(why)
	}
}

func (w *watcher) look(maxRSS int64) {
	if w.c.resident() > maxRSS {
		w.kill(killMemory)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.sample.Reset(sampleEvery)
	}
}

// progress tells how far a call came before it failed.
type progress struct {
	accepted bool // the child took the request
	opened   bool // the document is open
}

// errEmit wraps an error of the caller's own function.
type errEmit struct{ error }

func (e errEmit) Unwrap() error { return e.error }

// call sends one request and hands every frame of the answer to on.
func (p *Pool) call(ctx context.Context, c *process, req request, on func(kind byte, body []byte) error) (progress, error) {
	var at progress
	body, err := json.Marshal(req)
	if err != nil {
		return at, err
	}
	stop := c.watch(ctx, req.limit, p.cfg.MaxRSSBytes)
	defer stop()
	if err := errors.Join(writeFrame(c.req, kindRequest, body), c.req.Flush()); err != nil {
		c.kill(killProtocol)
		return at, p.diagnose(ctx, c, err)
	}
	for {
		kind, body, next, err := readFrame(c.ans, c.buf)
		c.buf = next
		if err != nil {
			c.kill(killProtocol)
			return at, p.diagnose(ctx, c, err)
		}
		switch kind {
		case kindHello:
			at.accepted = true
		case kindOpened:
			at.opened = true
		case kindDone:
			return at, nil
		case kindFailure, kindFatal:
			f := &sheaf.Failure{}
			if err := json.Unmarshal(body, f); err != nil {
				c.kill(killProtocol)
				return at, p.diagnose(ctx, c, errFrame)
			}
			if kind == kindFatal {
				c.kill(killEnd)
				p.count(func(s *Stats) { s.Crashes++ })
			}
			return at, f
		default:
			if err := on(kind, body); err != nil {
				c.kill(killEnd) // it would go on sending
				if errors.Is(err, errCodec) || errors.Is(err, errFrame) || errors.Is(err, errOrder) {
					return at, p.diagnose(ctx, c, err)
				}
				if errors.Is(err, errRoom) {
					return at, rangeTooLarge("", p.cfg.RangeBytes)
				}
				return at, errEmit{err}
			}
		}
	}
}

func (p *Pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// diagnose says why a child that was killed or fell silent did so.
func (p *Pool) diagnose(ctx context.Context, c *process, cause error) error {
	<-c.exited
	why := c.reason()
	if (why == killNone || why == killProtocol) && ranOut(c.stderr.String()) {
		why = killMemory
	}
	switch why {
	case killTimeout:
		p.count(func(s *Stats) { s.Timeouts++ })
		f := sheaf.FailRetryable(sheaf.CategoryTimeout, "parse_timeout", "Reading took longer than allowed. Raise the time limit, or split the file.")
		f.Detail = c.stderr.String()
		return f
	case killCanceled:
		p.count(func(s *Stats) { s.Canceled++ })
		return fmt.Errorf("%w: %w", sheaf.ErrCanceled, context.Cause(ctx))
	case killMemory:
		p.count(func(s *Stats) { s.OutOfMemory++ })
		f := sheaf.Fail(sheaf.CategoryCapacity, "parser_out_of_memory", "Reading needs more than the %d MB that a parser may use. Raise the memory limit, or split the file.", p.cfg.MaxRSSBytes>>20)
		f.Detail = c.stderr.String()
		return f
	case killClosed:
		return errClosed
	}
	p.count(func(s *Stats) { s.Crashes++ })
	state := c.cmd.ProcessState.String()
	if !errors.Is(cause, io.EOF) {
		state = cause.Error()
	}
	f := crashed(state)
	f.Detail = c.stderr.String()
	return f
}

// ranOut reports whether the Go runtime ended a process because the kernel gave
// it no more memory: it grew to its limit faster than the parent looks.
func ranOut(stderr string) bool {
	return strings.Contains(stderr, "fatal error: runtime: out of memory") || strings.Contains(stderr, "fatal error: runtime: cannot allocate") || strings.Contains(stderr, "fatal error: out of memory")
}

// with runs one request on a child that has the source open, or opens it.
func (p *Pool) with(ctx context.Context, src Source, op request, on func(kind byte, body []byte) error) (c *process, d *childDoc, at progress, err error) {
	if src.Path, err = filepath.Abs(src.Path); err != nil { // a child works in a folder of its own
		return nil, nil, at, err
	}
	id := src.id()
	for try := 0; ; try++ {
		if c, err = p.acquire(ctx, id, try > 0); err != nil {
			return nil, nil, at, err
		}
		at, d, err = p.on(ctx, c, id, src, op, on)
		if err == nil || at.accepted || try > 0 || ctx.Err() != nil {
			return c, d, at, err
		}
		// The child had died while it was idle; once more, on a new one.
		p.release(c, false)
	}
}

func (p *Pool) on(ctx context.Context, c *process, id uint64, src Source, req request, on func(kind byte, body []byte) error) (progress, *childDoc, error) {
	d := c.docs[id]
	var shut []*childDoc
	if d != nil {
		p.count(func(s *Stats) { s.Reuses++ })
		req.Doc = d.id // all else was told when it was opened
	} else {
		dir, err := p.docDir()
		if err != nil {
			return progress{accepted: true}, nil, sheaf.FailRetryable(sheaf.CategoryCapacity, "storage_full", "No folder for temporary files could be made: %v. Free space in it.", err)
		}
		for len(c.docs) >= p.cfg.MaxDocs {
			oldest := c.oldest()
			delete(c.docs, oldest.key)
			shut, req.Close = append(shut, oldest), append(req.Close, oldest.id)
		}
		p.mu.Lock()
		p.nextDoc++
		d = &childDoc{key: id, id: p.nextDoc, dir: dir}
		p.stats.Opens++
		p.mu.Unlock()
		c.docs[id] = d
		c.docCount.Store(int32(len(c.docs)))
		c.served++
		req.Doc, req.Path, req.Format, req.Options = d.id, src.Path, src.Format, src.Options
		req.Options.TempDir, req.Sparse = d.dir, src.Fill != nil
	}
	d.used = time.Now()
	at, err := p.call(ctx, c, req, func(kind byte, body []byte) error {
		if kind == kindNeed && src.Fill != nil && len(body) == 16 {
			return c.fill(ctx, src, int64(binary.BigEndian.Uint64(body)), int64(binary.BigEndian.Uint64(body[8:])))
		}
		return on(kind, body)
	})
	if err != nil && !at.opened {
		delete(c.docs, id)
		c.docCount.Store(int32(len(c.docs)))
		shut = append(shut, d)
	}
	if len(shut) > 0 && c.reason() != killNone {
		<-c.exited // it may still write there
	}
	for _, d := range shut {
		p.dropDir(d.dir, c.reason() == killNone)
	}
	return at, d, err
}

// oldest is the document that has been unused for longest.
func (c *process) oldest() *childDoc {
	var oldest *childDoc
	for _, d := range c.docs {
		if oldest == nil || d.used.Before(oldest.used) {
			oldest = d
		}
	}
	return oldest
}

// spareDirs is how many empty folders are kept for coming documents. Most
// documents write no file, and on a journaled file system making a folder and
// removing it costs more than reading a short text.
const spareDirs = 8

// docDir is an empty folder for a document.
func (p *Pool) docDir() (string, error) {
	p.mu.Lock()
	if n := len(p.spare); n > 0 {
		dir := p.spare[n-1]
		p.spare = p.spare[:n-1]
		p.mu.Unlock()
		return dir, nil
	}
	p.mu.Unlock()
	return os.MkdirTemp(p.root, "doc-")
}

// dropDir removes a document's folder with what is in it, or keeps it for
// another when it is empty and the child that had it has closed the document.
func (p *Pool) dropDir(dir string, closed bool) {
	if closed && isEmpty(dir) {
		p.mu.Lock()
		keep := len(p.spare) < spareDirs
		if keep {
			p.spare = append(p.spare, dir)
		}
		p.mu.Unlock()
		if keep {
			return
		}
	}
	_ = os.RemoveAll(dir)
}

func isEmpty(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

// fill brings bytes that the child waits for.
func (c *process) fill(ctx context.Context, src Source, offset, length int64) error {
	if err := src.Fill(ctx, offset, length); err != nil {
		return err
	}
	if errors.Join(writeFrame(c.req, kindFilled, nil), c.req.Flush()) != nil {
		return errFrame
	}
	return nil
}

// finish gives the child back and unwraps what call has wrapped.
func (p *Pool) finish(c *process, err error) error {
	if c == nil {
		return err
	}
	p.release(c, c.reason() == killNone)
	var own errEmit
	if errors.As(err, &own) {
		return own.error
	}
	return err
}

// askOne runs a request whose answer is one frame of that kind, with JSON. The
// child stays busy until finish; noun is what the answer holds, for a message.
// other takes frames of other kinds; nil where there are none.
func askOne[T any](ctx context.Context, p *Pool, src Source, req request, want byte, noun string, other func(kind byte, body []byte) error) (answer *T, c *process, d *childDoc, err error) {
	c, d, _, err = p.with(ctx, src, req, func(kind byte, body []byte) error {
		if kind != want && other != nil {
			return other(kind, body)
		}
		if kind != want || answer != nil {
			return errFrame
		}
		answer = new(T)
		if json.Unmarshal(body, answer) != nil {
			return errCodec
		}
		return nil
	})
	if err == nil && answer == nil {
		c.kill(killProtocol)
		err = crashed("it gave no " + noun)
	}
	return answer, c, d, err
}

// Plan counts the document's units and says how it may be cut. shardDir is the
// folder that PlannedRange.Shard is relative to, "" when the plan has no
// shards; it stays until cleanup, which is never nil, is called.
func (p *Pool) Plan(ctx context.Context, src Source) (plan *parser.Plan, shardDir string, cleanup func(), err error) {
	cleanup = func() {}
	plan, c, d, err := askOne[parser.Plan](ctx, p, src, request{Op: opPlan, limit: src.PlanLimit}, kindPlan, "plan", nil)
	if err != nil {
		return nil, "", cleanup, p.finish(c, err)
	}
	for _, r := range plan.Ranges {
		if r.Shard == "" {
			continue
		}
		if shardDir, cleanup, err = p.handOver(ctx, c, d); err != nil {
			return nil, "", cleanup, p.finish(c, err)
		}
		break
	}
	return plan, shardDir, cleanup, p.finish(c, nil)
}

// Ahead is a run of units that is read for its headings. What is read of it is
// kept for the range of the same units, when there will be one.
type Ahead struct {
	Range sheaf.Range // not embedded: it would decide how the whole is encoded
	Keep  bool
}

// Outline reads runs of a document, in order, for their headings: nil where
// its format does not look for any. What it has read then costs Parse nothing.
// It may take as long as parsing does: give ctx a deadline.
func (p *Pool) Outline(ctx context.Context, src Source, runs []Ahead) ([]sheaf.Heading, error) {
	keep, at := p.kept.begin(), 0
	plan, c, _, err := askOne[parser.Plan](ctx, p, src, request{Op: opOutline, Ahead: runs}, kindPlan, "outline", func(kind byte, body []byte) error {
		switch {
		case kind == kindUnit && at < len(runs) && runs[at].Keep:
			keep.unit(body)
		case kind == kindRead && at < len(runs):
			keep.end(runs[at].Range)
			at++
		default:
			return errFrame
		}
		return nil
	})
	keep.close(p.kept, src.keptID()) // also what was read before an error
	if err = p.finish(c, err); err != nil {
		return nil, err
	}
	return plan.Outline, nil
}

// handOver closes a document and leaves its folder, with the files that were
// written there, to the caller.
func (p *Pool) handOver(ctx context.Context, c *process, d *childDoc) (dir string, cleanup func(), err error) {
	_, err = p.call(ctx, c, request{Op: opClose, Doc: d.id}, func(byte, []byte) error { return errFrame })
	delete(c.docs, d.key)
	c.docCount.Store(int32(len(c.docs)))
	cleanup = func() { _ = os.RemoveAll(d.dir) }
	if err != nil {
		<-c.exited
		cleanup()
		return "", func() {}, err
	}
	return d.dir, cleanup, nil
}

// Unpack takes files out of a container, from the from-th on. dir is the
// folder that Member.File is relative to; it stays until cleanup, which is
// never nil, is called.
func (p *Pool) Unpack(ctx context.Context, src Source, from int) (u *parser.Unpacked, dir string, cleanup func(), err error) {
	u, c, d, err := askOne[parser.Unpacked](ctx, p, src, request{Op: opUnpack, N: from}, kindUnpacked, "files", nil)
	if err != nil {
		return nil, "", func() {}, p.finish(c, err)
	}
	dir, cleanup, err = p.handOver(ctx, c, d)
	return u, dir, cleanup, p.finish(c, err)
}

// errOrder means that a child emitted units that were not asked for, twice, or
// out of order.
var errOrder = errors.New("the parser emitted units out of order")

// Parse reads the units of r and calls emit for each, in order, exactly once.
// A unit that does not fit into Config.RangeBytes is emitted as failed,
// range_too_large. On an error the units emitted so far stand and the rest was
// not read. emit's
// own error is returned as it is. A context that ends kills the child: past
// its deadline the error is the failure parse_timeout, canceled it is
// sheaf.ErrCanceled.
func (p *Pool) Parse(ctx context.Context, src Source, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	left := p.cfg.RangeBytes
	_, err := p.parse(ctx, src, r, &left, emit)
	return err
}

// parse is Parse for a part of a range, which has left of the room for all.
func (p *Pool) parse(ctx context.Context, src Source, r sheaf.Range, left *int64, emit func(sheaf.UnitResult) error) (progress, error) {
	if r.From < 1 || r.To < r.From {
		return progress{}, fmt.Errorf("%w: range %v", sheaf.ErrInvalid, r)
	}
	if units := p.kept.take(src, r, *left); units != nil {
		p.count(func(s *Stats) { s.Ahead++ })
		for _, u := range units {
			if err := emit(u); err != nil {
				return progress{accepted: true, opened: true}, err
			}
		}
		return progress{accepted: true, opened: true}, nil
	}
	next := r.From
	c, _, at, err := p.with(ctx, src, request{Op: opParse, Range: r, Room: p.cfg.RangeBytes, Left: *left}, func(kind byte, body []byte) error {
		if kind != kindUnit {
			return errFrame
		}
		u, rest, err := decodeUnit(body, *left)
		if err != nil {
			return err
		}
		*left = rest
		last := max(u.Unit, u.LastUnit)
		if u.Unit != next || last > r.To {
			return fmt.Errorf("%w: %d to %d where %d was due", errOrder, u.Unit, last, next)
		}
		next = last + 1
		return emit(u)
	})
	if err == nil && next <= r.To {
		c.kill(killProtocol)
		err = crashed(fmt.Sprintf("it ended after unit %d of %d", next-1, r.To))
	}
	return at, p.finish(c, err)
}

// Render draws unit n, or what lies in clip of it, at dpi as a PNG or JPEG.
func (p *Pool) Render(ctx context.Context, src Source, n, dpi int, clip *sheaf.Box) (img []byte, mediaType string, err error) {
	return p.draw(ctx, src, request{Op: opRender, N: n, DPI: dpi, Clip: clip})
}

// Picture draws the picture of that name inside a file, at most side pixels to
// a side, as a JPEG: see parser.Illustrated.
func (p *Pool) Picture(ctx context.Context, src Source, name string, side int) (img []byte, mediaType string, err error) {
	return p.draw(ctx, src, request{Op: opPicture, Name: name, N: side})
}

func (p *Pool) draw(ctx context.Context, src Source, req request) (img []byte, mediaType string, err error) {
	c, _, _, err := p.with(ctx, src, req, func(kind byte, body []byte) error {
		for i, b := range body {
			if b == 0 && kind == kindImage && img == nil {
				mediaType, img = string(body[:i]), append([]byte(nil), body[i+1:]...)
				return nil
			}
		}
		return errFrame
	})
	if err == nil && img == nil {
		c.kill(killProtocol)
		err = crashed("it gave no picture")
	}
	if err = p.finish(c, err); err != nil {
		return nil, "", err
	}
	return img, mediaType, nil
}

// tail keeps the first and the last of what a child writes while it answers
// one request: the reason of a Go crash stands at the start, the place where a
// C program gave up at the end. A child reads documents of many tenants one
// after the other, so it says where a request begins (outputMark) in the same
// pipe: what it wrote about an earlier document is never shown with a later.
type tail struct {
	mu   sync.Mutex
	head []byte
	ring []byte
	cut  bool // something between them was let go
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if i := bytes.LastIndexByte(b, outputMark); i >= 0 {
		t.head, t.ring, t.cut, b = t.head[:0], t.ring[:0], false, b[i+1:]
	}
	if room := 1<<10 - len(t.head); room > 0 {
		k := min(room, len(b))
		t.head, b = append(t.head, b[:k]...), b[k:]
	}
	const keep = 3<<10 - 8
	t.ring = append(t.ring, b...)
	if len(t.ring) > keep {
		t.ring, t.cut = append(t.ring[:0], t.ring[len(t.ring)-keep:]...), true
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	gap := ""
	if t.cut {
		gap = "\n…\n"
	}
	return strings.ToValidUTF8(string(t.head)+gap+string(t.ring), "?") // a character may have been cut
}
