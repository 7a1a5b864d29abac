package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/command"
	"sheaf/internal/config"
	"sheaf/taskstore/storetest"
)

// fleetConfig is a configuration over MySQL, MinIO and Elasticsearch with
// names of its own, all of which are removed at the end.
func fleetConfig(t *testing.T) config.Config {
	t.Helper()
	dsn, s3, es := engine(t, "SHEAF_TEST_MYSQL_DSN"), engine(t, "SHEAF_TEST_S3_ENDPOINT"), engine(t, "SHEAF_TEST_ES_URL")
	name := "sheaf" + sheaf.NewID()[20:]
	parsed, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = db.Exec("DROP DATABASE " + name)
		_ = db.Close()
		esDrop(t, es, name)
		if c := s3Client(t); c != nil {
			_ = c.RemoveBucketWithOptions(context.Background(), name, minio.RemoveBucketOptions{ForceDelete: true})
		}
	})
	parsed.DBName = name
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Store = config.Store{Driver: "mysql", DSN: config.Secret(parsed.FormatDSN()), SecretsKey: testSecretsKey, MaxConns: 8}
	cfg.Blob.Driver, cfg.Blob.Endpoint, cfg.Blob.Bucket = "s3", s3, name
	cfg.Blob.AccessKey, cfg.Blob.SecretKey = config.Secret(engine(t, "SHEAF_TEST_S3_ACCESS_KEY")), config.Secret(engine(t, "SHEAF_TEST_S3_SECRET_KEY"))
	cfg.Index.Driver, cfg.Index.Addrs, cfg.Index.Prefix = "elasticsearch", []string{es}, name
	cfg.Executor.BackoffBase = config.Duration(200 * time.Millisecond)
	return cfg
}

func s3Client(t *testing.T) *minio.Client {
	t.Helper()
	c, err := minio.New(strings.TrimPrefix(engine(t, "SHEAF_TEST_S3_ENDPOINT"), "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(engine(t, "SHEAF_TEST_S3_ACCESS_KEY"), engine(t, "SHEAF_TEST_S3_SECRET_KEY"), ""),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func esCall(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// impatient waits a short time for engines.
var impatient = command.Main{FirstWait: 50 * time.Millisecond}

const dsnSecret = "hunter2"

// esDrop removes the indexes of a prefix, each by its name: the server refuses wildcards.
func esDrop(t *testing.T, es, prefix string) {
	t.Helper()
	for name := range strings.FieldsSeq(esCall(t, http.MethodGet, es+"/_cat/indices/"+prefix+"*?h=index&expand_wildcards=all", "")) {
		if answer := esCall(t, http.MethodDelete, es+"/"+name, ""); !strings.Contains(answer, `"acknowledged":true`) {
			t.Errorf("deleting the index %s: %s", name, answer)
		}
	}
}

// What is wrong with a setting is said in a sentence that helps and that shows
// no secret; what can be cured elsewhere is waited for.
func TestFleetProcessSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	base := fleetConfig(t)
	parsed, err := mysql.ParseDSN(base.Store.DSN.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	mysqlWith := func(change func(*mysql.Config)) config.Secret {
		c := parsed.Clone()
		change(c)
		return config.Secret(c.FormatDSN())
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		waits  bool
		says   []string
	}{
		"mysql, nobody listens": {func(c *config.Config) {
			c.Store.DSN = mysqlWith(func(m *mysql.Config) { m.Addr, m.Passwd = "127.0.0.1:1", dsnSecret })
		}, true, []string{"mysql", "127.0.0.1:1", "store.dsn"}},
		"mysql, wrong password": {func(c *config.Config) {
			c.Store.DSN = mysqlWith(func(m *mysql.Config) { m.User, m.Passwd = "nobody", dsnSecret })
		}, true, []string{"mysql", "nobody", "store.dsn"}},
		"mysql, no such database": {func(c *config.Config) { c.Store.DSN = mysqlWith(func(m *mysql.Config) { m.DBName = "sheaf_absent" }) }, true, []string{"mysql", "sheaf_absent", "store.dsn"}},
		"mysql, no DSN":           {func(c *config.Config) { c.Store.DSN = "app:" + dsnSecret + "@nowhere" }, false, []string{"mysql", "store.dsn"}},
		"postgres, no DSN": {func(c *config.Config) {
			c.Store = config.Store{Driver: "postgres", DSN: "postgres://app:" + dsnSecret + " x@:port/db"}
		}, false, []string{"postgres", "store.dsn"}},
		"postgres, nobody listens": {func(c *config.Config) {
			c.Store = config.Store{Driver: "postgres", DSN: "postgres://app:" + dsnSecret + "@127.0.0.1:1/db"}
		}, true, []string{"postgres", "store.dsn"}},
		"redis, nobody listens": {func(c *config.Config) {
			c.Queue.Driver, c.Queue.Addrs, c.Queue.Password = "redis", []string{"127.0.0.1:1"}, dsnSecret
		}, true, []string{"no Redis listens", "address"}},
		"redis, password unwanted": {func(c *config.Config) {
			c.Queue.Driver, c.Queue.Addrs, c.Queue.Username, c.Queue.Password = "redis", []string{engine(t, "SHEAF_TEST_REDIS_ADDR")}, "nobody", dsnSecret
		}, true, []string{"password"}},
		"redis, two addresses": {func(c *config.Config) { c.Queue.Driver, c.Queue.Addrs = "redis", []string{"a:1", "b:2"} }, false, []string{"Sentinel", "set one of them"}},
		"redis, no such authority": {func(c *config.Config) {
			c.Queue.Driver, c.Queue.Addrs, c.Queue.CAFile = "redis", []string{"a:1"}, "/nonexistent.pem"
		}, false, []string{"/nonexistent.pem", "ca_file"}},
		"s3, nobody listens":    {func(c *config.Config) { c.Blob.Endpoint, c.Blob.SecretKey = "http://127.0.0.1:1", dsnSecret }, true, []string{"127.0.0.1:1"}},
		"s3, wrong key":         {func(c *config.Config) { c.Blob.SecretKey = dsnSecret }, true, []string{"s3", "key"}},
		"elasticsearch, no URL": {func(c *config.Config) { c.Index.Addrs = []string{"elastic:" + dsnSecret + "@host"} }, false, []string{"Elasticsearch URL", "http://"}},
		"elasticsearch, other host": {func(c *config.Config) {
			c.Index.Addrs = []string{engine(t, "SHEAF_TEST_S3_ENDPOINT")}
			c.Index.Password = dsnSecret
		}, true, []string{"lasticsearch"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := base
			cfg.DataDir = t.TempDir()
			c.change(&cfg)
			cfg.Log.Format = "json"
			var log safeBuffer
			p := begin(t, impatient, cfg, &log, "executor")
			said := ""
			if c.waits {
				waitFor(t, "a second try", func() bool {
					waits := log.waits(t)
					if len(waits) > 0 {
						said = waits[0]
					}
					return len(waits) >= 2 || p.over()
				})
				p.giveUp()
			} else if said = p.fails(); len(log.waits(t)) > 0 {
				t.Errorf("it waited: %q", log.waits(t))
			}
			for _, s := range c.says {
				if !strings.Contains(said, s) {
					t.Errorf("it does not say %q: %s", s, said)
				}
			}
			if text := p.said.text() + fmt.Sprint(log.lines(t)); strings.Contains(text, dsnSecret) {
				t.Errorf("a secret shows: %s", text)
			}
		})
	}
}

// waits are the reasons for which a process waits, as its log says them.
func (s *safeBuffer) waits(t *testing.T) (out []string) {
	for _, l := range s.lines(t) {
		if l["msg"] == "waiting for a dependency" {
			out = append(out, fmt.Sprint(l["error"]))
		}
	}
	return out
}

// readiness asks the private address that the log names for what a process says
// of itself, "" where it does not answer yet.
func (s *safeBuffer) readiness(t *testing.T) (status int, body string) {
	address := s.private(t)
	if address == "" {
		return 0, ""
	}
	resp, err := http.Get(address + "/readyz")
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// private is the address for probes and metrics that the log names.
func (s *safeBuffer) private(t *testing.T) string {
	for _, l := range s.lines(t) {
		if l["msg"] == "answering probes, metrics and pprof" {
			return fmt.Sprint("http://", l["address"])
		}
	}
	return ""
}

// watchedConfig has a process log what it waits for, and answer on a private address.
func watchedConfig(cfg config.Config) config.Config {
	cfg.Log.Format, cfg.Server.DebugListen = "json", "127.0.0.1:0"
	return cfg
}

// recovers waits for a fleet process that was waiting, after its cause was cured.
func recovers(t *testing.T, cfg config.Config, says string, cure func()) {
	t.Helper()
	var log safeBuffer
	p := begin(t, impatient, watchedConfig(cfg), &log, "executor")
	var seen []string
	waitFor(t, "a reason to wait", func() bool { seen = log.waits(t); return len(seen) > 0 || p.over() })
	cure()
	waitFor(t, "it to be ready", func() bool { status, _ := log.readiness(t); return status == http.StatusOK || p.over() })
	p.stop()
	if len(seen) == 0 || !strings.Contains(seen[0], says) {
		t.Errorf("it waited and said %q, want %q", seen, says)
	}
}

func TestFleetProcessWaitsForItsBucket(t *testing.T) {
	cfg := fleetConfig(t)
	cfg.Blob.CreateBucket = false
	recovers(t, cfg, `has no bucket "`+cfg.Blob.Bucket+`"; create it`, func() {
		if err := s3Client(t).MakeBucket(t.Context(), cfg.Blob.Bucket, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// A database that takes no writes, as a standby does after a switch or a server
// whose disk is full, is waited for: by a process that starts, by clients, who
// are told, and by work that is under way.
func TestReadOnlyDatabaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	engine(t, "SHEAF_TEST_POSTGRES_DSN")
	cfg := fleetConfig(t)
	cfg.Store = config.Store{Driver: "postgres", DSN: config.Secret(storetest.Config(t, "postgres").DSN), SecretsKey: testSecretsKey, MaxConns: 8}
	admin, err := sql.Open("pgx", engine(t, "SHEAF_TEST_POSTGRES_DSN"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	u, err := url.Parse(cfg.Store.DSN.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	readOnly := func(on string) {
		t.Helper()
		for _, q := range []string{
			"ALTER DATABASE " + name + " SET default_transaction_read_only=" + on, // for connections that begin after it
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname='" + name + "'",
		} {
			if _, err := admin.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
	}
	readOnly("on")
	const says = "the database takes no writes"
	recovers(t, cfg, says, func() { readOnly("off") })

	s := startWith(t, cfg)
	var paused api.Paused
	s.post("/v1/queues:pause", nil, &paused)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.md", "# Title\n\nSome words.\n")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s.post("/v1/queues:resume", nil, &paused)
	readOnly("on")
	waitFor(t, "a refusal that says why", func() bool {
		_, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("b.md", "# Other\n")}, nil, "")
		// What the database said is for the log: it may name hosts.
		return err != nil && strings.Contains(err.Error(), "full or read-only") && !strings.Contains(err.Error(), says)
	})
	readOnly("off")
	waitFor(t, "an upload to be taken", func() bool {
		_, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("c.md", "# Third\n")}, nil, "")
		return err == nil
	})
	var job sheaf.Job
	waitFor(t, "the work that was under way", func() bool { // over connections of which some were cut
		return s.call(t.Context(), http.MethodGet, "/v1/jobs/"+answer.Job.ID, nil, &job) == nil && job.State.Terminal()
	})
	if job.State != sheaf.DocSucceeded {
		t.Errorf("the job ended %s", job.State)
	}
}

// A read-only index fails no document: it waits, and is tried again.
func TestReadOnlyIndexIsWaitedFor(t *testing.T) {
	cfg := fleetConfig(t)
	s := startWith(t, cfg)
	es := cfg.Index.Addrs[0]
	block := func(on bool) {
		if answer := esCall(t, http.MethodPut, es+"/"+cfg.Index.Prefix+"*/_settings", fmt.Sprintf(`{"index.blocks.write":%v}`, on)); !strings.Contains(answer, `"acknowledged":true`) {
			t.Fatal(answer)
		}
	}
	block(true)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.md", "# Title\n\nSome words about herons.\n")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	var tasks struct {
		Items []struct{ Failure *sheaf.Failure }
	}
	waitFor(t, "an attempt that fails", func() bool {
		s.get("/v1/datasets/default/documents/"+answer.Documents[0].ID+"/tasks", &tasks)
		for _, x := range tasks.Items {
			if x.Failure != nil {
				if x.Failure.Code != "index_read_only" || !x.Failure.Retryable || !strings.Contains(x.Failure.Message, "Elasticsearch") {
					t.Fatalf("%+v", x.Failure)
				}
				return true
			}
		}
		return false
	})
	block(false)
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job ended %s", job.State)
	}
}

// An index of other dimensions is no place to write to: a process that may not
// replace it says so, and the keeper fills another one.
func TestIndexOfOtherDimensionsIsReplaced(t *testing.T) {
	t.Parallel()
	cfg := fleetConfig(t)
	// finds runs a process of the fleet until it says of the index what is awaited.
	finds := func(role, what string, ok func(index api.Dependency) bool) {
		t.Helper()
		var log safeBuffer
		p := begin(t, product, watchedConfig(cfg), &log, role)
		waitFor(t, what, func() bool {
			var all api.Readiness
			_, body := log.readiness(t)
			return json.Unmarshal([]byte(body), &all) == nil && ok(all.Dependencies["index"]) || p.over()
		})
		p.stop()
	}
	whole := func(index api.Dependency) bool { return index.OK }
	finds("executor", "an index", whole)
	es := cfg.Index.Addrs[0]
	aliases := esCall(t, http.MethodGet, es+"/_cat/aliases/"+cfg.Index.Prefix+"*?h=alias", "")
	alias := strings.TrimSpace(aliases)
	if alias == "" || strings.Contains(alias, "\n") {
		t.Fatalf("aliases: %q", aliases)
	}
	esDrop(t, es, cfg.Index.Prefix)
	if answer := esCall(t, http.MethodPut, es+"/"+alias+"-v1", `{"aliases":{"`+alias+`":{"is_write_index":true}},"mappings":{"properties":{"vector":{"type":"dense_vector","dims":8}}}}`); !strings.Contains(answer, `"acknowledged":true`) {
		t.Fatal(answer)
	}
	finds("executor", "an index of other dimensions", func(index api.Dependency) bool { return !index.OK && strings.Contains(index.Error, "with 8 values") })
	finds("keeper", "another index", whole)
	finds("executor", "the other index", whole)
}

// A Redis that takes no writes holds work up, and loses none.
func TestRedisWithoutMemoryHoldsWorkUp(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		engine(t, "SHEAF_TEST_REDIS_SERVER") // skips, or fails where every engine must be there
	}
	addr := newRedisServer(t, "redis-server", "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction").addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })

	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Queue.Driver, cfg.Queue.Addrs = "redis", []string{addr}
	var log safeBuffer
	s := startLogging(t, cfg, "info", &log)
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.md", "# Title\n\nSome words.\n")}, nil, "")
	if err != nil {
		t.Fatalf("an upload must not fail for Redis: %v", err)
	}
	waitFor(t, "the reason in the log", func() bool {
		for _, l := range log.lines(t) {
			if e, _ := l["error"].(string); strings.Contains(e, "Redis is out of memory (maxmemory); raise it") {
				return true
			}
		}
		return false
	})
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job ended %s", job.State)
	}
}
