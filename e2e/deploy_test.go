package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/minio/minio-go/v7"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/taskstore/storetest"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// composed is a service of compose.yaml, of what concerns its process.
type composed struct {
	Image       string
	Command     []string
	Environment map[string]string
}

// TestComposeFileRunsAsItStands starts each of Sheaf's services of the Compose
// file as a process, with the file's own command and environment, over real
// engines; only their names and the ports that others may have are replaced.
// Redis runs with the file's command too. Then the commands of
// docs/operations.md are given to that fleet, in their order.
func TestComposeFileRunsAsItStands(t *testing.T) {
	t.Parallel()
	dsn, s3, es := engine(t, "SHEAF_TEST_MYSQL_DSN"), engine(t, "SHEAF_TEST_S3_ENDPOINT"), engine(t, "SHEAF_TEST_ES_URL")
	engine(t, "SHEAF_TEST_REDIS_ADDR")
	f := newFleet(t)
	var file struct{ Services map[string]composed }
	if err := yaml.Unmarshal([]byte(readFile(t, "../deploy/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	name := "compose" + sheaf.NewID()[20:]

	addr := newRedisServer(t, file.Services["redis"].Command...).addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	if policy := rdb.ConfigGet(t.Context(), "maxmemory-policy").Val()["maxmemory-policy"]; policy != "noeviction" {
		t.Errorf("Redis evicts by %s", policy)
	}

	admin, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"SHEAF_SECRETS_KEY": testSecretsKey, "SHEAF_DB_PASSWORD": "made-up-password", "SHEAF_S3_SECRET": os.Getenv("SHEAF_TEST_S3_SECRET_KEY")}
	expand := func(v string) string {
		return os.Expand(v, func(k string) string {
			k, _, _ = strings.Cut(k, ":?")
			if _, ok := secrets[k]; !ok {
				t.Errorf("compose.yaml asks for %s", k)
			}
			return secrets[k]
		})
	}
	// What a user's network would resolve.
	here := strings.NewReplacer("redis:6379", addr, "http://minio:9000", s3, "http://elasticsearch:9200", es, "0.0.0.0:8080", "127.0.0.1:0", "0.0.0.0:6060", "127.0.0.1:0")
	environment := func(c composed) (env []string) {
		for k, v := range c.Environment {
			v = here.Replace(expand(v))
			switch k {
			case "SHEAF_STORE_DSN":
				own, err := mysql.ParseDSN(v)
				if err != nil || own.Addr != "mysql:3306" || own.User != file.Services["mysql"].Environment["MYSQL_USER"] || own.DBName != file.Services["mysql"].Environment["MYSQL_DATABASE"] {
					t.Errorf("the DSN does not name the file's database: %v %v", v, err)
				}
				own.User, own.Passwd, own.Addr, own.DBName = admin.User, admin.Passwd, admin.Addr, f.name
				v = own.FormatDSN()
			case "SHEAF_BLOB_ACCESS_KEY":
				if user := file.Services["minio"].Environment["MINIO_ROOT_USER"]; v != user {
					t.Errorf("the access key is %s and MinIO's user %s", v, user)
				}
				v = os.Getenv("SHEAF_TEST_S3_ACCESS_KEY")
			}
			env = append(env, k+"="+v)
		}
		return append(env, mainVar+"=1", "SHEAF_LOG_FORMAT=json", "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(),
			"SHEAF_BLOB_BUCKET="+name, "SHEAF_INDEX_PREFIX="+name) // others use these engines too
	}
	t.Cleanup(func() {
		esDrop(t, es, name)
		_ = s3Client(t).RemoveBucketWithOptions(context.Background(), name, minio.RemoveBucketOptions{ForceDelete: true})
	})

	ours := map[string]string{"serve": "serve", "executor-1": "executor", "executor-2": "executor", "keeper-1": "keeper", "keeper-2": "keeper"}
	var all []*process
	url := make(chan string, 1)
	for _, service := range slices.Sorted(maps.Keys(file.Services)) {
		c := file.Services[service]
		role, own := ours[service]
		if own != strings.HasPrefix(c.Image, "sheaf:") {
			t.Fatalf("the service %s has the image %s", service, c.Image)
		}
		if !own {
			continue
		}
		if !slices.Equal(c.Command, []string{role}) {
			t.Errorf("the service %s runs %v", service, c.Command)
		}
		f.env = environment(c)
		all = append(all, f.spawn(func(line string) {
			if _, found, ok := strings.Cut(line, "page  "); ok {
				url <- strings.TrimRight(strings.TrimSpace(found), "/")
			}
		}, c.Command...))
	}
	var base string
	select {
	case base = <-url:
	case <-time.After(90 * time.Second):
		t.Fatal("the API did not come up")
	}
	f.sheaf("tenant", "create", "me")
	key := f.sheaf("key", "create", "me", "--scope", "admin")
	f.env = append(f.env, "SHEAF_URL="+base, "SHEAF_KEY="+key)
	me := &service{client: newClient(base, key), t: t}
	if job, _ := me.send(nil, text("a.md", "# Herons\n\nHerons wait in shallow water until something moves.\n")); job.State != sheaf.DocSucceeded {
		t.Fatalf("the job ended %s", job.State)
	}

	// The image's health check asks each process, which has answered by now.
	check := regexp.MustCompile(`CMD \["/usr/local/bin/sheaf", "health", "http://[0-9.:]+(/[a-z]+)"\]`).FindStringSubmatch(readFile(t, "../deploy/Dockerfile"))
	if check == nil {
		t.Fatal("the image has no health check")
	}
	for _, p := range all {
		waitFor(t, "the private address in the log", func() bool { return p.private() != "" })
		f.sheaf("health", "http://"+p.private()+check[1])
	}

	commands := documented(t, "sheaf")
	for _, line := range commands {
		f.sheaf(strings.Fields(line)[1:]...)
	}
	if len(commands) < 4 {
		t.Errorf("only %d commands of docs/operations.md were run", len(commands))
	}
	if !me.finds("Herons wait in shallow water") {
		t.Error("after the drills nothing is found")
	}
}

// private is the address of a process' probes, from its log.
func (p *process) private() string {
	for line := range strings.Lines(p.logs.all()) {
		var l struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &l) == nil && strings.HasPrefix(l.Msg, "answering probes") {
			return l.Address
		}
	}
	return ""
}

// documented are the lines of the code blocks of docs/operations.md that begin with
// one of these words, without their remarks, in the order of the page.
func documented(t *testing.T, words ...string) (lines []string) {
	t.Helper()
	block := false
	for line := range strings.Lines(readFile(t, "../docs/operations.md")) {
		if strings.HasPrefix(line, "```") {
			block = !block
		}
		line, _, _ = strings.Cut(line, "#")
		if word, _, _ := strings.Cut(line, " "); block && slices.Contains(words, word) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// The commands of docs/operations.md, given while the service works, make a
// backup of database and bucket; given to an empty database and an empty
// bucket, those that restore it make the same service.
func TestBackupOfDatabaseAndBucketIsWhole(t *testing.T) {
	t.Parallel()
	s3, access, secret := engine(t, "SHEAF_TEST_S3_ENDPOINT"), os.Getenv("SHEAF_TEST_S3_ACCESS_KEY"), os.Getenv("SHEAF_TEST_S3_SECRET_KEY")
	for store, c := range map[string]struct{ dsn, save, restore string }{
		"mysql":    {"SHEAF_TEST_MYSQL_DSN", "mysqldump", "mysql"},
		"postgres": {"SHEAF_TEST_POSTGRES_DSN", "pg_dump", "pg_restore"},
	} {
		t.Run(store, func(t *testing.T) {
			engine(t, c.dsn)
			commands := documented(t, c.save, "rclone", c.restore)
			if len(commands) != 4 || !strings.HasPrefix(commands[0], c.save+" ") || !strings.HasPrefix(commands[2], "rclone ") {
				t.Fatalf("docs/operations.md shows %q: want the database saved, then the bucket, and restored in the other order", commands)
			}
			dir := t.TempDir()
			settings := func() config.Config {
				cfg := config.Default()
				cfg.DataDir = t.TempDir()
				cfg.Store.Driver, cfg.Store.DSN, cfg.Store.SecretsKey = store, config.Secret(storetest.Config(t, store).DSN), testSecretsKey
				cfg.Blob = config.Blob{Driver: "s3", Endpoint: s3, Bucket: "backup" + sheaf.NewID()[20:], CreateBucket: true, CacheBytes: 1 << 30, AccessKey: config.Secret(access), SecretKey: config.Secret(secret)}
				t.Cleanup(func() {
					_ = s3Client(t).RemoveBucketWithOptions(context.Background(), cfg.Blob.Bucket, minio.RemoveBucketOptions{ForceDelete: true})
				})
				return cfg
			}
			name := regexp.MustCompile(`([ =:])sheaf( |$)`)
			run := func(cfg config.Config, command string) {
				t.Helper()
				database, env := connection(t, store, cfg.Store.DSN.Reveal(), dir)
				if strings.HasPrefix(command, "rclone ") {
					database = cfg.Blob.Bucket
				}
				cmd := exec.Command("sh", "-c", name.ReplaceAllString(command, "${1}"+database+"${2}"))
				cmd.Dir = dir
				cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "HOME="+dir, "RCLONE_CONFIG_S3_TYPE=s3", "RCLONE_CONFIG_S3_PROVIDER=Minio", "RCLONE_CONFIG_S3_ENDPOINT="+s3,
					"RCLONE_CONFIG_S3_ACCESS_KEY_ID="+access, "RCLONE_CONFIG_S3_SECRET_ACCESS_KEY="+secret)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", cmd.Args[2], err, out)
				}
			}

			old := settings()
			s := startWith(t, old)
			_, docs := s.send(nil, text("a.md", "# Herons\n\nHerons wait in shallow water until something moves.\n"))
			run(old, commands[0])
			run(old, commands[1])
			s.send(nil, text("late.md", "Kingfishers came after the backup.\n"))
			s.stop()

			restored := settings()
			run(restored, commands[2])
			run(restored, commands[3])
			again := &fleet{t: t, env: []string{mainVar + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + dir, "SHEAF_STORE_DRIVER=" + store, "SHEAF_STORE_DSN=" + restored.Store.DSN.Reveal(), "SHEAF_STORE_SECRETS_KEY=" + testSecretsKey,
				"SHEAF_BLOB_DRIVER=s3", "SHEAF_BLOB_ENDPOINT=" + s3, "SHEAF_BLOB_BUCKET=" + restored.Blob.Bucket, "SHEAF_BLOB_ACCESS_KEY=" + access, "SHEAF_BLOB_SECRET_KEY=" + secret}}
			again.sheaf("index", "rebuild", "--data-dir", restored.DataDir)
			r := startWith(t, restored)
			if !r.finds("Herons wait in shallow water") || r.finds("Kingfishers came after") {
				t.Error("the restored service does not find what was saved, or finds what was not")
			}
			if got := r.original(docs[0].ID); !strings.HasPrefix(string(got), "# Herons") {
				t.Errorf("the original reads %q", got)
			}
			if out := again.sheaf("doctor", "--server", r.base); !strings.Contains(out, "everything agrees") {
				t.Error(out)
			}
			if job, _ := r.send(nil, text("b.md", "# Egrets\n\nEgrets follow the cattle.\n")); job.State != sheaf.DocSucceeded || !r.finds("Egrets follow the cattle") {
				t.Errorf("the restored service does not go on: %s", job.State)
			}
		})
	}
}

// connection is what a DSN says, for the clients of that store: the database's
// name, and how they find its server, which may be a file in their home.
func connection(t *testing.T, store, dsn, home string) (database string, env []string) {
	t.Helper()
	if store == "postgres" {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		return strings.TrimPrefix(u.Path, "/"), []string{"PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGUSER=" + u.User.Username(), "PGPASSWORD=" + password}
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		t.Fatal(err)
	}
	put(t, home, ".my.cnf", fmt.Appendf(nil, "[client]\nhost=%s\nport=%s\nuser=%s\npassword=%s\nprotocol=tcp\n", host, port, c.User, c.Passwd))
	return c.DBName, nil
}

// A copy of the data folder as docs/operations.md describes it is a backup:
// restored and with its index made anew it is the same service.
func TestBackupOfTheDataFolderIsWhole(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	s.send(nil, text("a.md", "# Herons\n\nHerons wait in shallow water until something moves.\n"))
	restored := t.TempDir()
	if err := os.CopyFS(filepath.Join(restored, "blobs"), os.DirFS(s.path("blobs"))); err != nil {
		t.Fatal(err)
	}
	s.stop()
	for _, name := range []string{"sheaf.db", keyFile} {
		if err := os.WriteFile(filepath.Join(restored, name), []byte(readFile(t, s.path(name))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again := &fleet{t: t, env: []string{mainVar + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}}
	again.sheaf("index", "rebuild", "--data-dir", restored)
	cfg := config.Default()
	cfg.DataDir = restored
	r := startWith(t, cfg)
	if !r.finds("Herons wait in shallow water") {
		t.Error("the restored service does not find the document")
	}
	if out := again.sheaf("doctor", "--server", r.base); !strings.Contains(out, "everything agrees") {
		t.Error(out)
	}
}
