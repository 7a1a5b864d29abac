package command

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
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
	"sheaf/internal/config"
	"sheaf/internal/indexset"
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
var impatient = Main{FirstWait: 50 * time.Millisecond}

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
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var log safeBuffer
			waited := 0
			a, err := impatient.buildWaiting(ctx, cfg, roles{executor: true}, slog.New(slog.NewJSONHandler(&log, nil)), func(error) {
				if waited++; waited == 2 {
					cancel()
				}
			})
			if err == nil {
				_ = a.close()
				t.Fatal("it was built")
			}
			if c.waits != (waited >= 2) {
				t.Errorf("it waited %d times: %v", waited, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the error does not say %q: %v", s, err)
				}
			}
			if text := err.Error() + fmt.Sprintf("%+v", err) + fmt.Sprint(log.lines(t)); strings.Contains(text, dsnSecret) {
				t.Errorf("a secret shows: %s", text)
			}
		})
	}
}

// built waits for a fleet process that was waiting, after its cause was cured.
func recovers(t *testing.T, cfg config.Config, says string, cure func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	seen := ""
	a, err := impatient.buildWaiting(ctx, cfg, roles{executor: true}, slog.New(slog.DiscardHandler), func(err error) {
		if seen == "" {
			seen = err.Error()
			cure()
		}
	})
	if err != nil {
		t.Fatalf("it did not recover: %v", err)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(seen, says) {
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
	cfg := fleetConfig(t)
	ctx := t.Context()
	a, err := product.build(ctx, cfg, roles{executor: true}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
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
	for _, r := range []roles{{executor: true}, {keeper: true}} {
		a, err := product.build(ctx, cfg, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.index.Ready(ctx); r.executor && (err == nil || sheaf.AsFailure(err, "").Code != "index_model_mismatch") || r.keeper && (err == nil || sheaf.AsFailure(err, "").Code != "index_rebuilding") {
			t.Errorf("%+v says of the index: %v", r, err)
		}
		if r.keeper {
			if err := a.fillIndex(ctx, func(*indexset.Status) {}); err != nil {
				t.Error(err)
			}
			if err := a.index.Ready(ctx); err != nil {
				t.Errorf("after it was replaced: %v", err)
			}
		}
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}
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
	s := startOn(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
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

// The private address answers while the process waits, and says for what.
func TestWaitingProcessAnswersProbes(t *testing.T) {
	p := &private{log: slog.New(slog.DiscardHandler)}
	if err := p.listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + p.ln.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	p.waits(fmt.Errorf("the database is on holiday"))
	if status, body := get("/readyz"); status != 503 || !strings.Contains(body, "on holiday") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, _ := get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	s := start(t, nil)
	p.built(s.app)
	if status, body := get("/readyz"); status != 200 || !strings.Contains(body, `"store"`) || !strings.Contains(body, "latency_ms") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, body := get("/metrics"); status != 200 || !strings.Contains(body, "sheaf_keeper_leads") {
		t.Errorf("/metrics: %d %.100s", status, body)
	}
	if status, body := get("/debug/pprof/"); status != 200 || !strings.Contains(body, "goroutine") {
		t.Errorf("pprof: %d", status)
	}
	resp, err := http.Get(s.base + "/debug/pprof/goroutine?debug=1") // answered by the page, as every address that does not exist
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); strings.Contains(string(b), "goroutine profile") {
		t.Error("the API's own address answers pprof")
	}
}
