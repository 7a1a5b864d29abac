package child

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sheaf"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

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

// process is a running child. Its fields belong to whoever marked it busy; kill and
// gone may be called by anyone.
type process struct {
	proc    *os.Process
	pid     int
	req     *bufio.Writer
	reqFile *os.File
	ansFile *os.File
	ans     *bufio.Reader
	buf     []byte
	dir     string   // its TMPDIR
	env     []string // Pool.env at its start
	stderr  tail
	statm   *os.File // its memory statistics, nil if unavailable

	docs     map[uint64]*childDoc
	docCount atomic.Int32  // len(docs), for Stats
	served   int           // documents opened
	spent    time.Duration // processor time it has reported
	used     time.Time
	baseRSS  int64

	mu     sync.Mutex
	reaped bool
	state  *os.ProcessState // nil if unknown; set before exited is closed
	why    int32
	exited chan struct{}
}

type childDoc struct {
	key  uint64 // Source.id
	id   uint64 // in the child
	dir  string
	used time.Time
	// opening is how long it took to open.
	opening time.Duration
}

// command is what a child is started with.
type command struct {
	args  []string
	dir   string
	env   []string
	files []*os.File // its descriptors from 0
}

// start runs a child and waits for its hello.
func (p *Pool) start(ctx context.Context, env []string) (*process, error) {
	c, err := p.startBy(ctx, env, true)
	if errors.Is(err, errLauncher) {
		c, err = p.startBy(ctx, env, false)
	}
	return c, err
}

// startBy is start by way of the launcher, or directly.
func (p *Pool) startBy(ctx context.Context, env []string, launched bool) (*process, error) {
	fail := func(err error) error {
		return sheaf.FailRetryable(sheaf.CategoryInternal, "parser_start_failed", "The parser's process did not start: %v. Check memory and process limits.", err)
	}
	dir, err := os.MkdirTemp(p.root, "child-")
	if err != nil {
		return nil, fail(err)
	}
	var pipes [6]*os.File // the read and write ends for requests, answers and standard error
	for i := 0; i < len(pipes); i += 2 {
		if pipes[i], pipes[i+1], err = os.Pipe(); err != nil {
			closeAll(pipes[:i]...)
			_ = os.RemoveAll(dir)
			return nil, fail(err)
		}
	}
	reqR, reqW, ansR, ansW, errR, errW := pipes[0], pipes[1], pipes[2], pipes[3], pipes[4], pipes[5]
	c := &process{
		dir: dir, env: env,
		req: bufio.NewWriter(reqW), reqFile: reqW,
		ans: bufio.NewReaderSize(ansR, 64<<10), ansFile: ansR,
		docs: map[uint64]*childDoc{}, used: time.Now(), exited: make(chan struct{}),
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		closeAll(pipes[:]...)
		_ = os.RemoveAll(dir)
		return nil, fail(err)
	}
	as := func(namespaces bool) command {
		files := []*os.File{null, null, errW, reqR, ansW}
		if p.cfg.Program != nil {
			files = append(files, p.cfg.Program)
		}
		return command{p.cfg.Command, dir, p.childEnv(dir, env, namespaces), files}
	}
	started := make(chan error, 1)
	select {
	case p.spawn <- func() {
		var err error
		c.proc, err = p.startConfined(as, launched)
		started <- err
	}:
		err = <-started
	case <-p.stop:
		err = errClosed
	}
	closeAll(reqR, ansW, errW, null)
	if err != nil {
		closeAll(reqW, ansR, errR)
		_ = os.RemoveAll(dir)
		if errors.Is(err, errLauncher) {
			return nil, err
		}
		return nil, fail(err)
	}
	c.pid = c.proc.Pid
	c.statm = openStatm(c.pid)
	errDone := make(chan struct{})
	go func() {
		defer close(errDone)
		_, _ = io.Copy(&c.stderr, errR)
		_ = errR.Close()
	}()
	go func() {
		waits := awaitExit(c.pid)
		if !waits {
			c.state, _ = c.proc.Wait()
		}
		c.mu.Lock()
		if waits {
			killGroup(c.pid) // and everything it started
			c.state, _ = c.proc.Wait()
		}
		c.reaped = true
		c.mu.Unlock()
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
			return p.start(ctx, env) // with the file permissions of Sheaf's own user
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

// startConfined starts a child in its own namespaces, or without if the system
// refuses them. It runs on the spawner's thread.
func (p *Pool) startConfined(as func(namespaces bool) command, launched bool) (*os.Process, error) {
	p.mu.Lock()
	namespaces := p.cfg.Sandbox != SandboxOff && !p.noNamespaces
	p.mu.Unlock()
	if namespaces {
		if launched {
			started, err := p.startLaunched(as(true))
			if err == nil || errors.Is(err, errLauncher) {
				return started, err
			}
		}
		if started, err := p.startDirectly(as(true), true); err == nil {
			return started, nil
		}
	}
	started, err := p.startDirectly(as(false), false)
	if err == nil && namespaces {
		p.forgoNamespaces()
	}
	return started, err
}

func (p *Pool) startDirectly(c command, namespaces bool) (*os.Process, error) {
	return os.StartProcess(c.args[0], c.args, &os.ProcAttr{Dir: c.dir, Env: c.env, Files: c.files, Sys: isolate(namespaces, len(p.cfg.Ports) > 0)})
}

// forgoNamespaces starts later children without namespaces. It reports whether that
// was already so.
func (p *Pool) forgoNamespaces() (before bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.noNamespaces = p.noNamespaces || p.cfg.Sandbox == SandboxOff, true
	return before
}

// privateBytes is what a child may map on top of twice its resident limit: the
// runtime's own tables, thread stacks and compiled code.
const privateBytes = 512 << 20

// childEnv returns the complete environment of a child.
func (p *Pool) childEnv(dir string, added []string, namespaces bool) []string {
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
		envChild + "=" + roleParser,
		envFileBytes + "=" + strconv.FormatInt(p.cfg.MaxFileBytes, 10),
		envNice + "=" + strconv.Itoa(p.cfg.Nice),
		"TMPDIR=" + dir,
		"GOMAXPROCS=1", // it does one thing at a time, and there is a child per CPU
		"GOMEMLIMIT=" + strconv.FormatInt(p.cfg.MaxRSSBytes/2, 10),
	}
	return slices.Concat(env, passedOn(), added)
}

// passedOn returns what the pool's processes get of the service's environment.
func passedOn() (env []string) {
	for _, k := range []string{"PATH", "HOME", "XDG_CACHE_HOME", "LANG", "LC_ALL", "TZ", "GOCOVERDIR", "SYSTEMROOT"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
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

// resident returns the child's memory in bytes, 0 when it is gone.
func (c *process) resident() int64 { return residentBytes(c.statm) }

// kill ends the child and all it started. The first reason is kept.
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

// oldest returns the document that has been unused for longest.
func (c *process) oldest() *childDoc {
	var oldest *childDoc
	for _, d := range c.docs {
		if oldest == nil || d.used.Before(oldest.used) {
			oldest = d
		}
	}
	return oldest
}

// tail keeps the beginning and end of what a child writes while answering one
// request: the reason for a Go crash is at the start, the place where a C program
// gave up at the end. A child reads documents of many tenants in turn, so it marks
// where a request begins (outputMark) in the same pipe: output about an earlier
// document is never shown with a later one.
type tail struct {
	mu   sync.Mutex
	head []byte
	last []byte
	cut  bool // something in between was dropped
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if i := bytes.LastIndexByte(b, outputMark); i >= 0 {
		t.head, t.last, t.cut, b = t.head[:0], t.last[:0], false, b[i+1:]
	}
	if free := 1<<10 - len(t.head); free > 0 {
		k := min(free, len(b))
		t.head, b = append(t.head, b[:k]...), b[k:]
	}
	const keep = 3<<10 - 8
	t.last = append(t.last, b...)
	if len(t.last) > keep {
		t.last, t.cut = append(t.last[:0], t.last[len(t.last)-keep:]...), true
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
	return strings.ToValidUTF8(string(t.head)+gap+string(t.last), "?") // a character may have been cut
}
