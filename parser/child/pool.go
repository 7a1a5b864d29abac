// Package child runs the formats of package parser in processes that can be killed:
// the same binary started again, long-lived, several documents open in each. It
// sits between the executor, which requests ranges of documents, and the formats,
// which read untrusted bytes.
//
// A child is killed when a call outlives its context, when its resident memory
// exceeds the limit, and when the pool closes; it is replaced when it crashes,
// violates the protocol, has served many documents or has grown. Whatever happens,
// the caller gets a *sheaf.Failure and the parent survives.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"sheaf"
)

// Config configures a pool. Zero values mean the defaults.
type Config struct {
	Size         int           // maximum number of children; default GOMAXPROCS
	MaxDocs      int           // documents open at once in a child; default 4
	KeepOpen     time.Duration // minimum time an unused document stays open when another is opened; default 1 s
	DocsPerChild int           // a child is replaced after opening this many; default 500
	MaxRSSBytes  int64         // resident memory at which a child is killed; default 1 GiB
	GrowthBytes  int64         // growth since its first document after which an idle child is replaced; default 256 MiB
	MaxFileBytes int64         // largest file a child may write; default 4 GiB
	RangeBytes   int64         // memory the units of one range may take in the parent; default 256 MiB
	StartTimeout time.Duration // for a started child to answer; default 20 s
	IdleTimeout  time.Duration // after which an unused child is ended; default 5 min
	TempDir      string        // where temporary folders go; default os.TempDir()
	Nice         int           // scheduling priority of the children, 0 to 19; default 0
	Command      []string      // what to start; default os.Executable() "parse-child"
	Env          []string      // added to a child's environment, "KEY=value"
	// EnvNow is Env for values that change while the pool runs: it is called before
	// each use, and a child started with other values is replaced. May be nil.
	EnvNow func() []string

	// Program is a program that formats start as ProgramPath: it is in memory, or
	// out of a child's reach. The caller keeps ownership. May be nil.
	Program *os.File
	// Noted is called when a child deviated from the configured way, see
	// parser.Options.Note: with the same text at most once a minute. May be nil.
	Noted func(text string)

	// Sandbox is SandboxAuto (the default), SandboxRequire or SandboxOff.
	Sandbox string
	// ReadDirs hold the documents: apart from them and the files of programs a
	// child can read nothing. Empty means that it may read whatever its user may.
	ReadDirs []string
	// CacheDir holds what an engine has compiled; children write to it. Default
	// CacheDir().
	CacheDir string
	// Ports are the TCP ports that a format must reach; empty means no network.
	Ports []int
	// Confined is called with the protections when the first child has started, and
	// again if they change. May be nil.
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
	if c.KeepOpen <= 0 {
		c.KeepOpen = time.Second
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

// Stats holds counts since New, except where they say "now".
type Stats struct {
	Children    int   // alive now
	Busy        int   // of those, now
	OpenDocs    int   // now, over all children
	RSSBytes    int64 // now, over all children
	Started     int64
	Opens       int64 // documents opened
	Reuses      int64 // calls that reused an open document
	Crashes     int64
	Timeouts    int64
	OutOfMemory int64
	Canceled    int64
	Recycled    int64 // replaced for age, growth or idleness
}

// Pool is safe for concurrent use.
type Pool struct {
	cfg   Config
	root  string // temporary folders; removed by Close
	lock  *os.File
	slots chan struct{}
	spawn chan func()
	stop  chan struct{}
	done  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	children map[*process]bool // true while busy
	starting int               // being started
	stats    Stats
	nextDoc  uint64
	spare    []string // empty folders of closed documents

	noted map[string]time.Time

	confined     []Protection // as reported by the most recently started child; nil before the first
	noNamespaces bool         // the system has refused them

	// Owned by the spawner.
	launcher   *launcher // nil while there is none
	unlaunched bool      // none works here
}

// New creates a pool. No child is started before the first call.
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
		noted:    map[string]time.Time{},
	}
	p.lock, _ = lockFolder(root)
	p.done.Add(2)
	go p.spawner()
	go p.janitor()
	return p, nil
}

const rootPrefix = "sheaf-parse-"

// sweep removes what pools of killed processes left behind. A live pool holds a
// lock in its folder.
func sweep(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, rootPrefix+"*"))
	for _, d := range left {
		if _, err := os.Stat(filepath.Join(d, ".lock")); err != nil {
			continue // just being created, or no locks on this system
		}
		if f, free := lockFolder(d); free {
			_ = os.RemoveAll(d)
			_ = f.Close()
		}
	}
}

// spawner starts all children from one thread that lives as long as the pool: the
// kernel sends a child its death signal when the starting *thread* ends, and the
// runtime may end threads at any time.
func (p *Pool) spawner() {
	defer p.done.Done()
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	defer p.endLauncher()
	for {
		select {
		case f := <-p.spawn:
			f()
		case <-p.stop:
			return
		}
	}
}

// janitor ends children that have been unused for a while, along with their
// documents and temporary files.
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
		unused := len(p.children)+p.starting == 0
		p.mu.Unlock()
		for _, c := range idle {
			c.end()
		}
		if len(idle) > 0 && unused {
			select {
			case p.spawn <- p.endLauncher:
			case <-p.stop:
				return
			}
		}
	}
}

// Close kills all children, including busy ones, waits until they are gone and
// removes their temporary files. Calls in progress fail.
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
	// A call about to start a child sees closed, or its child is ended by release;
	// either happens before it frees its slot.
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

// Stats returns the counts.
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

// acquire waits for a child to be free. In order of preference: one that has the
// document open, an idle one with room for it, a new one, and the one whose
// documents have been unused for longest.
func (p *Pool) acquire(ctx context.Context, id uint64, fresh bool) (*process, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, waitError(ctx)
	case <-p.stop:
		return nil, errClosed
	}
	env := p.env()
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
	var left []*process // to be ended: not eligible, and must not take the place of a live one
	for c, busy := range p.children {
		if !busy && (c.gone() || !slices.Equal(c.env, env)) {
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
		// Counted before it exists: two concurrent callers must not both take the
		// last place.
		p.starting++
	}
	p.mu.Unlock()
	for _, c := range left {
		c.end()
	}
	if best != nil {
		return best, nil
	}

	c, err := p.start(ctx, env)
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

// maxRestingBuf limits the buffer a child keeps between calls.
const maxRestingBuf = 4 << 20

// release returns the child to the pool, or ends it when it is no longer fit for use.
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

// Protections reports what isolates the children from the rest of the system. It
// starts a child if none has reported yet.
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

// env returns the current environment for children.
func (p *Pool) env() []string {
	if p.cfg.EnvNow != nil {
		return p.cfg.EnvNow()
	}
	return p.cfg.Env
}

// Limits on remembered notes, and on how often one is repeated.
const (
	maxNotes  = 100
	noteEvery = time.Minute
)

// note passes on a child's note.
func (p *Pool) note(text string) {
	now := time.Now()
	p.mu.Lock()
	last, known := p.noted[text]
	tell := p.cfg.Noted != nil && (!known && len(p.noted) < maxNotes || known && now.Sub(last) >= noteEvery)
	if tell {
		p.noted[text] = now
	}
	for t, at := range p.noted {
		if now.Sub(at) >= 10*noteEvery {
			delete(p.noted, t)
		}
	}
	p.mu.Unlock()
	if tell {
		p.cfg.Noted(text)
	}
}

func (p *Pool) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// spareDirs is how many empty folders of closed documents are kept for reuse. Most
// documents write no file, and on a journaled file system creating and removing a
// folder costs more than reading a short text.
const spareDirs = 8

// docDir returns an empty folder for a document.
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

// dropDir removes a document's folder and its contents, or keeps it for reuse if it
// is empty and its child has closed the document.
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
