// Package local embeds with a model installed on this machine: it starts the
// program sheaf-embed, keeps it running, and calls it as openai calls any server.
// The service itself contains no native library; if one of its calls crashes or
// hangs, the program is restarted and the tasks retry.
package local

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/openai"
	"sheaf/internal/models"
)

// Config configures the program. Zero values have the meaning given for each field.
type Config struct {
	Store *models.Store
	Model models.Model

	Program     string        // path of sheaf-embed; "": next to this program, then in PATH
	Threads     int           // texts embedded concurrently; 0: number of CPUs
	MemoryBytes int64         // limit for the program; 0: 768 MB plus 64 MB per thread
	MaxTexts    int           // per request; 0: 16
	Timeout     time.Duration // per request; 0: 60 s

	StartTimeout time.Duration // until the model is loaded; 0: 60 s
	CheckEvery   time.Duration // interval of health checks; 0: 5 s. Without a response within twice that the program is killed.
	Backoff      time.Duration // before the first restart; 0: 200 ms. It doubles up to a minute.

	Log *slog.Logger
}

const maxBackoff = time.Minute

// Embedder calls a child process. It is safe for concurrent use.
type Embedder struct {
	*openai.Embedder

	config   Config
	program  string
	folder   string // of the socket
	socket   *os.File
	client   *http.Client
	stop     context.CancelFunc
	finished chan struct{}

	mu    sync.Mutex
	up    chan struct{} // closed while the child responds
	down  chan struct{} // closed while it does not
	cause error         // why it does not
	pid   int           // of the child
}

var _ embed.Embedder = (*Embedder)(nil)

// address stands for the socket in messages.
const address = "http://sheaf-embed/v1"

// Open starts the program and waits until its model is loaded. The error is
// sheaf.ErrNotFound if the model or the program is not installed.
func Open(ctx context.Context, c Config) (*Embedder, error) {
	if err := c.Store.Check(c.Model, false); err != nil {
		return nil, err
	}
	program, err := find(c.Program)
	if err != nil {
		return nil, err
	}
	if c.Threads <= 0 {
		c.Threads = runtime.GOMAXPROCS(0)
	}
	c.MemoryBytes = cmp.Or(c.MemoryBytes, int64(768+64*c.Threads)<<20)
	c.StartTimeout, c.CheckEvery, c.Backoff = cmp.Or(c.StartTimeout, time.Minute), cmp.Or(c.CheckEvery, 5*time.Second), cmp.Or(c.Backoff, 200*time.Millisecond)
	e := &Embedder{config: c, program: program, finished: make(chan struct{}), up: make(chan struct{}), down: make(chan struct{}), cause: errors.New("it is starting")}
	close(e.down)
	if err := e.listen(); err != nil {
		return nil, fmt.Errorf("making the socket of %s: %w", program, err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy, transport.MaxIdleConnsPerHost = nil, 64
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(e.folder, "socket"))
	}
	e.client = &http.Client{Transport: transport}
	m := c.Model
	e.Embedder, err = openai.Open(ctx, openai.Config{
		BaseURL: address, Model: m.Name, ID: m.ID(), Dimensions: m.Dim, Weight: m.Weight, Floor: m.Floor, Encoding: "base64",
		QueryPrefix: m.QueryPrefix, PassagePrefix: m.PassagePrefix, MaxTexts: cmp.Or(c.MaxTexts, 16), Timeout: c.Timeout, Client: e.client,
	})
	if err != nil {
		e.unlisten()
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	started := make(chan error, 1)
	go e.supervise(run, started)
	select {
	case err = <-started:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("starting the embedding model %s: %w", m.Name, err)
	}
	return e, nil
}

// find returns the path of the program sheaf-embed.
func find(program string) (string, error) {
	if program == "" {
		if self, err := os.Executable(); err == nil {
			beside := filepath.Join(filepath.Dir(self), "sheaf-embed")
			if _, err := os.Stat(beside); err == nil {
				return beside, nil
			}
		}
		program = "sheaf-embed"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: the program %s is not installed: put it beside sheaf (`make build` makes both), or name it in embed.program", sheaf.ErrNotFound, program)
	}
	return path, nil
}

// listen creates the socket, which outlives the children: a call that arrives while
// one starts waits in its queue.
func (e *Embedder) listen() (err error) {
	// A socket path is limited to 107 bytes, so it is not in the data folder.
	if e.folder, err = os.MkdirTemp("", "sheaf-embed-"); err != nil {
		return err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(e.folder, "socket"), Net: "unix"})
	if err == nil {
		ln.SetUnlinkOnClose(false)
		e.socket, err = ln.File()
		err = errors.Join(err, ln.Close())
	}
	if err != nil {
		e.unlisten()
	}
	return err
}

func (e *Embedder) unlisten() {
	if e.socket != nil {
		_ = e.socket.Close()
	}
	_ = os.RemoveAll(e.folder)
}

// Close stops the program. Calls in progress fail.
func (e *Embedder) Close() {
	e.stop()
	<-e.finished
	e.client.CloseIdleConnections()
	e.unlisten()
}

// maxWait is how long a call waits for the program to restart.
const maxWait = 5 * time.Second

// Embed calls the program, after waiting up to maxWait for it to be up.
func (e *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if len(texts) == 0 || purpose == embed.Window {
		return e.Embedder.Embed(ctx, texts, purpose)
	}
	var vectors [][]float32
	err := e.call(ctx, maxWait, func(ctx context.Context) (err error) {
		vectors, err = e.Embedder.Embed(ctx, texts, purpose)
		return err
	})
	return vectors, err
}

// Ping fails immediately while the program is not up.
func (e *Embedder) Ping(ctx context.Context) error {
	return e.call(ctx, 0, e.Embedder.Ping)
}

// call waits until the program is up, then calls f. A request in the socket's queue
// when the program ends is answered by the next one, or fails if that is not up
// after most.
func (e *Embedder) call(ctx context.Context, most time.Duration, f func(context.Context) error) error {
	if err := e.await(ctx, most); err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for inner.Err() == nil {
			e.mu.Lock()
			down := e.down
			e.mu.Unlock()
			select {
			case <-down:
				if err := e.await(inner, most); err != nil {
					cancel(err)
				}
			case <-inner.Done():
			}
		}
	}()
	err := f(inner)
	if err != nil && ctx.Err() == nil && inner.Err() != nil {
		return context.Cause(inner)
	}
	return err
}

func (e *Embedder) await(ctx context.Context, most time.Duration) error {
	e.mu.Lock()
	up := e.up
	e.mu.Unlock()
	select {
	case <-up:
		return ctx.Err()
	default:
	}
	after := time.NewTimer(most)
	defer after.Stop()
	select {
	case <-up:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	case <-after.C:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, "embed_unavailable",
		"the embedding model %s does not run: %v; it is started again", e.config.Model.Name, e.cause), sheaf.ErrUnavailable)
}

// set records whether the program responds: it does if cause is nil.
func (e *Embedder) set(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	wasUp := e.cause == nil
	e.cause = cause
	if cause == nil && !wasUp {
		close(e.up)
		e.down = make(chan struct{})
	} else if cause != nil && wasUp {
		close(e.down)
		e.up = make(chan struct{})
	}
}

// supervise runs one child after another until ctx ends. started receives the
// outcome of the first.
func (e *Embedder) supervise(ctx context.Context, started chan<- error) {
	defer close(e.finished)
	// A child is killed with the thread that started it (PR_SET_PDEATHSIG, prctl(2)).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	backoff := e.config.Backoff
	for first := true; ; first = false {
		began, answered := time.Now(), false
		err := e.runChild(ctx, func() {
			answered = true
			e.set(nil)
			if first {
				started <- nil
			}
		})
		e.set(err)
		if first && !answered { // Open gives up
			started <- err
			return
		}
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > maxBackoff {
			backoff = e.config.Backoff
		}
		e.config.Log.Error("the embedding program ended and is started again", "model", e.config.Model.Name, "error", err, "after", backoff.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// runChild starts a child and waits for its end, which is an error. ready is called
// when it responds. A child that stops responding is killed.
func (e *Embedder) runChild(ctx context.Context, ready func()) error {
	c := e.config
	// Its last output says why it ended.
	logs := &logLines{log: c.Log.With("program", "sheaf-embed")}
	cmd := exec.Command(e.program, "-child", "-dir", c.Store.Dir, "-model", c.Model.Name, "-threads", strconv.Itoa(c.Threads), "-memory", strconv.FormatInt(c.MemoryBytes, 10))
	cmd.ExtraFiles = []*os.File{e.socket}
	cmd.Stderr = logs
	// ONNX Runtime reports to Microsoft what it runs unless it is told not to.
	cmd.Env = []string{"OMP_NUM_THREADS=1", "ORT_DISABLE_TELEMETRY=1", "GOMAXPROCS=" + strconv.Itoa(c.Threads), "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
	cmd.SysProcAttr = withParent()
	cmd.WaitDelay = time.Second
	input, err := cmd.StdinPipe() // closes with this process, where the system has no death signal
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	if err := cmd.Start(); err != nil {
		return err
	}
	e.mu.Lock()
	e.pid = cmd.Process.Pid
	e.mu.Unlock()
	watch, done := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		err := e.watch(watch, ready)
		if watch.Err() == nil {
			done(err)
		}
		_ = cmd.Process.Kill() // a child has nothing to save
	}()
	err = cmd.Wait()
	done(nil)
	<-watched
	if cause := context.Cause(watch); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // why it was killed
	}
	if last := logs.lastLine(); last != "" {
		return fmt.Errorf("%w: %s", cmp.Or(err, errEnded), last)
	}
	return cmp.Or(err, errEnded)
}

var errEnded = errors.New("it ended by itself")

// watch checks the child's health until ctx ends or it does not respond.
func (e *Embedder) watch(ctx context.Context, ready func()) error {
	if err := e.health(ctx, e.config.StartTimeout); err != nil {
		return fmt.Errorf("the model was not loaded within %s: %w", e.config.StartTimeout, err)
	}
	ready()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(e.config.CheckEvery):
		}
		if err := e.health(ctx, 2*e.config.CheckEvery); err != nil {
			return fmt.Errorf("it stopped answering and was killed: %w", err)
		}
	}
}

func (e *Embedder) health(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sheaf-embed/health", nil)
	if err != nil {
		return err
	}
	for {
		resp, err := e.client.Do(req)
		if err != nil {
			select {
			case <-ctx.Done():
				return err
			case <-time.After(20 * time.Millisecond): // it was a connection of the previous child
				continue
			}
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
		}
		return nil
	}
}

// logLines forwards a child's log lines and remembers the last. Lines are slog
// JSON; others come from the native library.
type logLines struct {
	log *slog.Logger

	mu   sync.Mutex
	rest []byte
	last string
}

// maxLine is how much of a line is forwarded.
const maxLine = 4 << 10

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		advance, line, _ := bufio.ScanLines(l.rest, len(l.rest) >= maxLine)
		if advance == 0 {
			return len(b), nil
		}
		l.say(bytes.ToValidUTF8(line[:min(len(line), maxLine)], nil))
		l.rest = l.rest[advance:]
	}
}

func (l *logLines) say(line []byte) {
	var record map[string]any
	if json.Unmarshal(line, &record) != nil {
		l.last = string(line)
		l.log.Warn(l.last)
		return
	}
	level := slog.LevelWarn
	said, _ := record["level"].(string)
	_ = level.UnmarshalText([]byte(said)) // otherwise it stays a warning
	l.last, _ = record["msg"].(string)
	var attrs []slog.Attr
	for key, value := range record {
		if key != "msg" && key != "level" && key != "time" {
			attrs = append(attrs, slog.Any(key, value))
		}
	}
	l.log.LogAttrs(context.Background(), level, l.last, attrs...)
}

func (l *logLines) lastLine() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
