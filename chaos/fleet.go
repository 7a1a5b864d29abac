package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sheaf/internal/secrets"
)

// mainVar makes the tests of e2e behave as the product, including the trial format,
// whose pages can be slow.
const mainVar = "SHEAF_TEST_MAIN"

// binaryVar names that binary if it is already built, as scripts/test.sh does.
const binaryVar = "SHEAF_TEST_BINARY"

// buildBinary returns the path of the binary, which it compiles into dir unless
// binaryVar names one. It is built like a release, so that both share the build
// cache. With an empty cache that takes minutes: call it before any clock runs.
func buildBinary(ctx context.Context, root, dir string) (string, error) {
	if exe := os.Getenv(binaryVar); exe != "" {
		return filepath.EvalSymlinks(exe)
	}
	exe := filepath.Join(dir, "sheaf.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-o", exe, "./e2e")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the product: %w\n%s", err, out)
	}
	return exe, nil
}

// fleet is the processes under test, each restarted by a supervisor like an init
// system.
type fleet struct {
	exe  string
	dir  string
	env  []string
	all  []*process
	full string // mount point of a small file system for executor 0's data; "" if none can be mounted
}

// process is one slot in the fleet: its process is restarted when it ends.
type process struct {
	role string
	name string
	url  string // of an API process
	args []string
	env  []string
	exe  string
	log  string

	mu      sync.Mutex
	cmd     *exec.Cmd
	done    chan struct{}
	since   time.Time
	stopped bool
	starts  int
	loop    sync.WaitGroup
}

// steadyTimes are the fleet's settings while nothing is broken: the product's own,
// except for a shorter lease, so that the remains of an attempt are collected
// within a run. It is still far longer than the time within which an executor's end
// must be noticed without it.
var steadyTimes = []string{"SHEAF_EXECUTOR_LEASE=15s", "SHEAF_EXECUTOR_HEARTBEAT=2s", "SHEAF_KEEPER_WORKER_TIMEOUT=6s", "SHEAF_KEEPER_LEADER_TTL=8s"}

// shortTimes are the fleet's settings under faults, so that many leases expire in a
// run.
var shortTimes = []string{
	"SHEAF_EXECUTOR_LEASE=" + lease.String(), "SHEAF_EXECUTOR_HEARTBEAT=" + heartbeat.String(),
	"SHEAF_KEEPER_WORKER_TIMEOUT=" + workerTimeout.String(), "SHEAF_KEEPER_LEADER_TTL=" + leaderTTL.String(),
}

const (
	lease         = 6 * time.Second
	heartbeat     = time.Second
	workerTimeout = 3 * time.Second
	leaderTTL     = 4 * time.Second
	grace         = 20 * time.Second
	reconcile     = 3 * time.Second
)

// secretsKey is the same in every process of the fleet.
var secretsKey = secrets.Generate()

// metricsToken authorizes /metrics of the API processes.
const metricsToken = "chaos-metrics"

// settings are the environment of every process.
func (e *engines) settings() []string {
	return []string{
		mainVar + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME"),
		"SHEAF_LOG_FORMAT=json", "SHEAF_LOG_LEVEL=info",
		"SHEAF_STORE_DRIVER=mysql", "SHEAF_STORE_DSN=" + e.dsn(e.proxies["mysql"].Addr()), "SHEAF_STORE_SECRETS_KEY=" + secretsKey,
		"SHEAF_QUEUE_DRIVER=redis", "SHEAF_QUEUE_ADDRS=" + e.proxies["redis"].Addr(), "SHEAF_QUEUE_WINDOW=16",
		"SHEAF_BLOB_DRIVER=s3", "SHEAF_BLOB_ENDPOINT=http://" + e.proxies["s3"].Addr(),
		"SHEAF_BLOB_ACCESS_KEY=" + e.s3Key, "SHEAF_BLOB_SECRET_KEY=" + e.s3Secret,
		"SHEAF_INDEX_DRIVER=elasticsearch", "SHEAF_INDEX_ADDRS=http://" + e.proxies["es"].Addr(),
		"SHEAF_EMBED_DRIVER=openai", "SHEAF_EMBED_URL=http://" + e.proxies["embedder"].Addr() + "/v1", "SHEAF_EMBED_MODEL=" + embedModel,
		fmt.Sprintf("SHEAF_EMBED_DIM=%d", embedDim), "SHEAF_EMBED_TIMEOUT=3s",
		"SHEAF_SERVER_AUTH=true", "SHEAF_SERVER_BODY_TIMEOUT=5s", "SHEAF_SERVER_METRICS_TOKEN=" + metricsToken, "SHEAF_PARSER_UNIT_TIMEOUT=1s", "SHEAF_PARSER_PROCESSES=2", "SHEAF_EXECUTOR_WORKERS=4",
		"SHEAF_EXECUTOR_MAX_FAILS=100", "SHEAF_EXECUTOR_BACKOFF_BASE=200ms", "SHEAF_EXECUTOR_BACKOFF_MAX=2s",
		"SHEAF_KEEPER_GRACE=" + grace.String(), "SHEAF_KEEPER_KEEP_VERSIONS=0s", "SHEAF_KEEPER_RECONCILE=" + reconcile.String(),
	}
}

// add adds a process to the fleet and starts it.
func (f *fleet) add(role string) (*process, error) {
	n := 0
	for _, p := range f.all {
		if p.role == role {
			n++
		}
	}
	p := &process{role: role, name: fmt.Sprintf("%s-%d", role, n), args: []string{role}, exe: f.exe}
	p.log = filepath.Join(f.dir, p.name+".log")
	data := filepath.Join(f.dir, p.name)
	if role == "executor" && n == 0 && f.full != "" {
		data = f.full
	}
	p.env = append(append([]string{}, f.env...), "SHEAF_DATA_DIR="+data)
	if role == "serve" {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		p.url, p.args = "http://"+addr, append(p.args, "--listen", addr)
	}
	f.all = append(f.all, p)
	return p, p.start()
}

func (p *process) start() error {
	if err := p.spawn(); err != nil {
		return err
	}
	p.loop.Go(p.supervise)
	return nil
}

func (p *process) spawn() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.exe, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	p.mu.Lock()
	cmd.Env = p.env
	p.mu.Unlock()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done := make(chan struct{})
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait(); close(done) }()
	p.mu.Lock()
	p.cmd, p.done, p.since = cmd, done, time.Now()
	p.starts++
	p.mu.Unlock()
	return nil
}

// supervise restarts the process whenever it ends, until stop.
func (p *process) supervise() {
	for {
		p.mu.Lock()
		done, since := p.done, p.since
		p.mu.Unlock()
		<-done
		if time.Since(since) < time.Second {
			time.Sleep(500 * time.Millisecond) // an engine that it needs at startup is down
		} else {
			time.Sleep(100 * time.Millisecond)
		}
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped || p.spawn() != nil {
			return
		}
	}
}

// restart adds settings to every process and restarts all at once.
func (f *fleet) restart(ctx context.Context, settings ...string) error {
	var ended []<-chan struct{}
	for _, p := range f.all {
		p.mu.Lock()
		p.env = append(slices.Clone(p.env), settings...) // the last of two values counts
		p.mu.Unlock()
		_, done := p.signal(syscall.SIGTERM)
		ended = append(ended, done)
	}
	limit := time.After(40 * time.Second)
	for i, done := range ended {
		select {
		case <-done:
		case <-limit:
			return fmt.Errorf("%s did not end within 40 s of SIGTERM", f.all[i].name)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// signal sends a signal to the running process, and returns its process id and a
// channel closed when it has ended.
func (p *process) signal(sig syscall.Signal) (pid int, done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Process.Signal(sig)
	return p.cmd.Process.Pid, p.done
}

// stop ends the process permanently and returns how long that took.
func (p *process) stop(limit time.Duration) (time.Duration, error) {
	begun := time.Now()
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	_, done := p.signal(syscall.SIGTERM)
	defer p.loop.Wait()
	select {
	case <-done:
		return time.Since(begun), nil
	case <-time.After(limit):
		_, _ = p.signal(syscall.SIGKILL)
		<-done
		return time.Since(begun), fmt.Errorf("%s did not stop within %s of SIGTERM", p.name, limit)
	}
}

// of lists the processes of a role.
func (f *fleet) of(role string) []*process {
	var out []*process
	for _, p := range f.all {
		if p.role == role {
			out = append(out, p)
		}
	}
	return out
}

// command runs one command of the product to completion.
func (f *fleet) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, f.exe, args...)
	cmd.Env = append(append([]string{}, f.env...), "SHEAF_DATA_DIR="+filepath.Join(f.dir, "command"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("sheaf %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// stopAll ends every process; the error names those that did not exit on their own.
func (f *fleet) stopAll() error {
	errs := make(chan error, len(f.all))
	for _, p := range f.all {
		go func() {
			_, err := p.stop(40 * time.Second)
			errs <- err
		}()
	}
	var first error
	for range f.all {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// leftovers lists processes of the product that outlived the fleet.
func (f *fleet) leftovers() []string {
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range dirs {
		if target, err := os.Readlink(link); err == nil && strings.TrimSuffix(target, " (deleted)") == f.exe {
			cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			out = append(out, filepath.Base(filepath.Dir(link))+": "+strings.ReplaceAll(string(bytes.Trim(cmdline, "\x00")), "\x00", " "))
		}
	}
	return out
}
