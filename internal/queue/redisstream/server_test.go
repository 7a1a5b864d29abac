package redisstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
)

// unavailable skips a test whose engine is not set up, or fails it where every
// engine is required.
func unavailable(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
		t.Fatal(what, "and SHEAF_TEST_REQUIRE is set")
	}
	t.Skip(what)
}

// sharedRedis is the Redis that all tests of the machine use, each under a
// prefix of its own.
func sharedRedis(t testing.TB) RedisOptions {
	t.Helper()
	addr := os.Getenv("SHEAF_TEST_REDIS_ADDR")
	if addr == "" {
		unavailable(t, "SHEAF_TEST_REDIS_ADDR is not set")
	}
	return RedisOptions{Addrs: []string{addr}}
}

// newQueue opens a queue that is closed with the test.
func newQueue(t testing.TB, cfg Config) *Queue {
	t.Helper()
	q, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// newPrefix is a key prefix of the test's own, whose keys go with the test.
func newPrefix(t testing.TB, o RedisOptions) string {
	t.Helper()
	prefix := "sheaf-test-" + sheaf.NewID() + ":"
	t.Cleanup(func() {
		c := o.client()
		defer c.Close()
		dropKeys(t, c, prefix)
	})
	return prefix
}

// dropKeys deletes all keys with the prefix, on every node.
func dropKeys(t testing.TB, c redis.UniversalClient, prefix string) {
	ctx := context.WithoutCancel(t.Context())
	drop := func(ctx context.Context, node *redis.Client) error {
		scan := node.Scan(ctx, 0, prefix+"*", 1000).Iterator()
		var found []string
		for scan.Next(ctx) {
			found = append(found, scan.Val())
		}
		if scan.Err() != nil {
			return scan.Err()
		}
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, key := range found {
				p.Unlink(ctx, key)
			}
			return nil
		})
		return err
	}
	var err error
	switch c := c.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, drop)
	case *redis.Client:
		err = drop(ctx, c)
	}
	if err != nil {
		t.Errorf("cannot clean up %s*: %v", prefix, err)
	}
}

// commands counts what a client asks of Redis.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}
func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// server is a redis-server of the test's own.
type server struct {
	t    testing.TB
	args []string
	dir  string
	addr string
	port int
	cmd  *exec.Cmd
}

// freePort finds a port that nobody listens on, with room 10,000 above it for
// the bus of a Cluster node.
func freePort(t testing.TB) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port < 55_000 {
			return port
		}
	}
}

// startServer starts a redis-server without persistence on a free port.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		unavailable(t, "redis-server is not installed")
	}
	port := freePort(t)
	s := &server{t: t, dir: t.TempDir(), port: port, addr: "127.0.0.1:" + strconv.Itoa(port)}
	s.args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "log"}, args...)
	t.Cleanup(s.kill)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := s.client()
	defer c.Close()
	eventually(s.t, "redis-server answers", func() bool { return c.Ping(context.Background()).Err() == nil })
}

// kill ends the server as kill -9 does. It may be called twice.
func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) options() RedisOptions { return RedisOptions{Addrs: []string{s.addr}} }

func (s *server) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.addr, DialTimeout: time.Second})
}

// do runs a command on the server.
func (s *server) do(args ...any) {
	s.t.Helper()
	c := s.client()
	defer c.Close()
	if err := c.Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// startCluster starts three masters that share all slots.
func startCluster(t testing.TB) RedisOptions {
	t.Helper()
	var addrs []string
	for range 3 {
		s := startServer(t, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		addrs = append(addrs, s.addr)
	}
	args := append([]string{"--cluster", "create"}, addrs...)
	args = append(args, "--cluster-replicas", "0", "--cluster-yes")
	if out, err := exec.Command("redis-cli", args...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, out)
	}
	for _, addr := range addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		eventually(t, "the cluster is whole", func() bool {
			info, err := c.ClusterInfo(context.Background()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3")
		})
		_ = c.Close()
	}
	return RedisOptions{Addrs: addrs, Cluster: true}
}

// startSentinel starts a master, a replica and one Sentinel that watches them.
func startSentinel(t testing.TB) (o RedisOptions, master *server) {
	t.Helper()
	master = startServer(t)
	replica := startServer(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	dir := t.TempDir()
	port := freePort(t)
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile log\nsentinel monitor main 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n", port, dir, master.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	addr := "127.0.0.1:" + strconv.Itoa(port)
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer c.Close()
	eventually(t, "the sentinel knows the replica", func() bool {
		replicas, err := c.Replicas(context.Background(), "main").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["port"] == strconv.Itoa(replica.port) && replicas[0]["master-link-status"] == "ok"
	})
	return RedisOptions{Addrs: []string{addr}, MasterName: "main"}, master
}

// eventually waits for another process to come round.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func wantKind(t *testing.T, err, kind error, says string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), says) {
		t.Errorf("got error %v, want %q that says %q", err, kind, says)
	}
}
