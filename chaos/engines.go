package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"sheaf/chaos/proxy"
)

// server is an engine that this harness starts, kills and restarts.
type server struct {
	name string
	dir  string
	port int
	args []string // command line

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(s.dir, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func() { _ = cmd.Wait(); close(s.done) }()
	return nil
}

// kill ends the engine with SIGKILL and waits until it is gone.
func (s *server) kill() {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-done
	}
}

// engines are what a fleet depends on: the harness's own MariaDB and Redis, which
// it may kill, an embedding server that can refuse, MinIO and Elasticsearch of the
// run, and a proxy in front of each of the five.
type engines struct {
	mysql, redis *server
	embed        *embedder
	proxies      map[string]*proxy.Proxy // mysql, redis, s3, es, embedder
	db           *sql.DB                 // bypasses the proxy
	rdb          *redis.Client           // bypasses the proxy
	dsn          func(addr string) string
	s3, es       *url.URL
	s3Key        string
	s3Secret     string
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// startEngines starts the private servers and the proxies. dir is an empty folder;
// env returns the variables printed by scripts/services.sh.
func startEngines(ctx context.Context, dir string, env func(string) string) (e *engines, err error) {
	e = &engines{proxies: map[string]*proxy.Proxy{}, s3Key: env("SHEAF_TEST_S3_ACCESS_KEY"), s3Secret: env("SHEAF_TEST_S3_SECRET_KEY")}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.s3, err = url.Parse(env("SHEAF_TEST_S3_ENDPOINT")); err != nil {
		return e, err
	}
	if e.es, err = url.Parse(env("SHEAF_TEST_ES_URL")); err != nil {
		return e, err
	}
	if e.redis, err = newRedis(dir); err != nil {
		return e, err
	}
	if e.mysql, err = newMySQL(dir); err != nil {
		return e, err
	}
	if e.embed, err = startEmbedder(); err != nil {
		return e, err
	}
	e.dsn = func(addr string) string {
		c := mysql.NewConfig()
		c.User, c.Net, c.Addr, c.DBName = "root", "tcp", addr, "chaos"
		return c.FormatDSN()
	}
	for _, s := range []*server{e.redis, e.mysql} {
		if err = s.start(); err != nil {
			return e, err
		}
	}
	e.rdb = redis.NewClient(&redis.Options{Addr: e.redis.addr()})
	if err = until(ctx, 20*time.Second, "Redis", func() error { return e.rdb.Ping(ctx).Err() }); err != nil {
		return e, err
	}
	admin, err := sql.Open("mysql", "root@tcp("+e.mysql.addr()+")/")
	if err != nil {
		return e, err
	}
	defer admin.Close()
	if err = until(ctx, 60*time.Second, "MariaDB", func() error {
		_, err := admin.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS chaos")
		return err
	}); err != nil {
		return e, err
	}
	if e.db, err = sql.Open("mysql", e.dsn(e.mysql.addr())); err != nil {
		return e, err
	}
	for name, target := range map[string]string{"mysql": e.mysql.addr(), "redis": e.redis.addr(), "s3": e.s3.Host, "es": e.es.Host, "embedder": e.embed.addr} {
		if e.proxies[name], err = proxy.Start(target); err != nil {
			return e, err
		}
	}
	return e, nil
}

func newRedis(dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	// Nothing is written to disk: a killed Redis loses everything.
	return &server{name: "redis", dir: dir, port: port, args: []string{
		"redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir,
	}}, nil
}

func newMySQL(dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "mysql")
	options := []string{"--no-defaults", "--datadir=" + data, "--skip-name-resolve", "--innodb-log-file-size=16M"}
	if os.Geteuid() == 0 {
		options = append(options, "--user=root")
	}
	install := exec.Command("mariadb-install-db", append(options, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, bytes.TrimSpace(out))
	}
	exe := "mariadbd"
	if _, err := exec.LookPath(exe); err != nil {
		exe = "/usr/sbin/mariadbd" // not in every user's path
	}
	// Commits must survive SIGKILL, but not a power cut.
	return &server{name: "mysql", dir: dir, port: port, args: append(append([]string{exe}, options...),
		"--socket=m.sock", "--pid-file="+filepath.Join(dir, "mysql.pid"), fmt.Sprintf("--port=%d", port), "--bind-address=127.0.0.1", "--skip-log-bin",
		"--innodb-buffer-pool-size=128M", "--innodb-flush-log-at-trx-commit=2", "--max-connections=400", "--character-set-server=utf8mb4")}, nil
}

// restore makes every proxy pass everything.
func (e *engines) restore() {
	for _, p := range e.proxies {
		p.Set(proxy.Pass, 0)
	}
	e.embed.refuse.Store(0)
}

func (e *engines) close() {
	for _, p := range e.proxies {
		if p != nil {
			_ = p.Close()
		}
	}
	if e.db != nil {
		_ = e.db.Close()
	}
	if e.rdb != nil {
		_ = e.rdb.Close()
	}
	if e.embed != nil {
		e.embed.close()
	}
	for _, s := range []*server{e.redis, e.mysql} {
		if s != nil {
			s.kill()
		}
	}
}

// until retries f, a few times a second, until it succeeds or limit has passed.
func until(ctx context.Context, limit time.Duration, what string, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// services starts MinIO and Elasticsearch in dir with scripts/services.sh and
// returns the variables it prints.
func services(ctx context.Context, root, dir string) (env func(string) string, stop func(), err error) {
	script := filepath.Join(root, "scripts", "services.sh")
	cmd := exec.CommandContext(ctx, script, "up", dir, "minio", "es")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("starting MinIO and Elasticsearch: %w", err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			vars[k] = strings.Trim(v, "'")
		}
	}
	return func(k string) string { return vars[k] }, func() { _ = exec.Command(script, "down", dir, "minio", "es").Run() }, nil
}
