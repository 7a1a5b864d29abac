package e2e

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/parser/pdf/enginetest"
	"sheaf/taskstore"
)

// mainVar makes the test binary behave as the sheaf binary: the fleet's
// processes are then the code under test, trial format included.
const mainVar = "SHEAF_TEST_MAIN"

// ticksVar is how often such a process feeds and folds without a notification.
const ticksVar = "SHEAF_TEST_TICKS"

// fleet is real processes over real engines.
type fleet struct {
	t    *testing.T
	name string // of its database, bucket, index prefix and keys
	env  []string
	dir  string // parent of one data folder a process: caches are not shared
	db   *sql.DB
	rdb  *redis.Client
	made int
}

// engine reads the address of an engine; without one the test is skipped,
// unless the run demands every engine.
func engine(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not set, and this run must test every engine; `make services` starts them", name)
		}
		t.Skipf("%s is not set; `make services` starts the engines", name)
	}
	return v
}

// newFleet makes a database, a bucket, an index prefix and a key prefix of its own.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a fleet")
	}
	dsn, addr := engine(t, "SHEAF_TEST_MYSQL_DSN"), engine(t, "SHEAF_TEST_REDIS_ADDR")
	s3, es := engine(t, "SHEAF_TEST_S3_ENDPOINT"), engine(t, "SHEAF_TEST_ES_URL")
	name := "fleet" + sheaf.NewID()[20:]
	conf, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	conf.DBName = name
	db, err := sql.Open("mysql", conf.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, name: name, db: db, rdb: redis.NewClient(&redis.Options{Addr: addr})}
	f.dir = t.TempDir()
	f.env = []string{
		mainVar + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "XDG_CACHE_HOME=" + os.Getenv("XDG_CACHE_HOME"),
		"SHEAF_LOG_FORMAT=json",
		"SHEAF_STORE_DRIVER=mysql", "SHEAF_STORE_DSN=" + conf.FormatDSN(), "SHEAF_STORE_SECRETS_KEY=" + testSecretsKey,
		"SHEAF_QUEUE_DRIVER=redis", "SHEAF_QUEUE_ADDRS=" + addr, "SHEAF_QUEUE_PREFIX=" + name + ":",
		"SHEAF_BLOB_DRIVER=s3", "SHEAF_BLOB_ENDPOINT=" + s3, "SHEAF_BLOB_BUCKET=" + name,
		"SHEAF_BLOB_ACCESS_KEY=" + os.Getenv("SHEAF_TEST_S3_ACCESS_KEY"), "SHEAF_BLOB_SECRET_KEY=" + os.Getenv("SHEAF_TEST_S3_SECRET_KEY"),
		"SHEAF_INDEX_DRIVER=elasticsearch", "SHEAF_INDEX_ADDRS=" + es, "SHEAF_INDEX_PREFIX=" + name,
		"SHEAF_SERVER_AUTH=true", "SHEAF_PARSER_UNIT_TIMEOUT=1s", "SHEAF_PARSER_PROCESSES=1", "SHEAF_EXECUTOR_WORKERS=4",
	}
	t.Cleanup(func() {
		_, _ = admin.Exec("DROP DATABASE " + name)
		_ = admin.Close()
		_ = db.Close()
		if keys, err := f.rdb.Keys(context.Background(), name+":*").Result(); err == nil && len(keys) > 0 {
			f.rdb.Del(context.Background(), keys...)
		}
		_ = f.rdb.Close()
		esDrop(t, es, name)
	})
	return f
}

// environ is the environment of the next process.
func (f *fleet) environ() []string {
	f.made++
	return append(slices.Clone(f.env), fmt.Sprintf("SHEAF_DATA_DIR=%s/%d", f.dir, f.made))
}

// process is one process of the fleet.
type process struct {
	*exec.Cmd
	lines bytes.Buffer
	logs  *lockedWriter // over lines
	done  chan struct{}
}

// spawn starts `sheaf args…`. ready is called with each line it prints.
func (f *fleet) spawn(ready func(line string), args ...string) *process {
	f.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(exe, args...), done: make(chan struct{})}
	p.Env = f.environ()
	out, err := p.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	logs := &lockedWriter{w: &p.lines}
	p.logs, p.Stderr = logs, logs
	if err := p.Start(); err != nil {
		f.t.Fatal(err)
	}
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			ready(sc.Text())
		}
		_ = p.Wait()
		close(p.done)
	}()
	f.t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(45 * time.Second):
			_ = p.Process.Kill()
			f.t.Errorf("sheaf %s did not stop on SIGTERM", args[0])
		}
		if f.t.Failed() {
			f.t.Logf("log of sheaf %v:\n%s", args, logs.tail())
		}
	})
	return p
}

type lockedWriter struct {
	mu sync.Mutex
	w  *bytes.Buffer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (l *lockedWriter) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.String()
}

func (l *lockedWriter) tail() string {
	all := l.all()
	return all[max(0, len(all)-6000):]
}

func (f *fleet) start(role string) *process { return f.spawn(func(string) {}, role) }

// serve starts an API process and waits until it answers.
func (f *fleet) serve() string {
	f.t.Helper()
	found := make(chan string, 1)
	f.spawn(func(line string) {
		if _, url, ok := strings.Cut(line, "page  "); ok {
			found <- strings.TrimRight(strings.TrimSpace(url), "/")
		}
	}, "serve", "--listen", "127.0.0.1:0")
	select {
	case url := <-found:
		return url
	case <-time.After(90 * time.Second):
		f.t.Fatal("an API process did not come up")
		return ""
	}
}

// sheaf runs one command to its end and returns what it printed.
func (f *fleet) sheaf(args ...string) string {
	f.t.Helper()
	exe, _ := os.Executable()
	cmd := exec.Command(exe, args...)
	cmd.Env = f.environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("sheaf %v: %v\n%s", args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// rows runs a query that finds violations and reports each.
func (f *fleet) rows(what, query string) {
	f.t.Helper()
	rs, err := f.db.Query(query)
	if err != nil {
		f.t.Fatalf("%s: %v", what, err)
	}
	defer rs.Close()
	for rs.Next() {
		cols, _ := rs.Columns()
		vals := make([]sql.NullString, len(cols))
		ptrs := make([]any, len(cols))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		if err := rs.Scan(ptrs...); err != nil {
			f.t.Fatal(err)
		}
		f.t.Errorf("%s: %v = %v", what, cols, vals)
	}
}

// TestFleet runs two executors, two keepers and two API processes over MySQL,
// Redis, MinIO and Elasticsearch, kills an executor at work and empties Redis,
// and checks that nothing was lost, doubled or shown too early.
func TestFleet(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFleet(t)
	f.sheaf("migrate")
	secrets := map[string]string{}
	for _, tenant := range []string{"alpha", "beta"} {
		f.sheaf("tenant", "create", tenant)
		secrets[tenant] = f.sheaf("key", "create", tenant, "--scope", "write")
	}
	urls := []string{f.serve(), f.serve()}
	victim := f.start("executor")
	f.start("executor")
	f.start("keeper")
	f.start("keeper")

	alpha := &service{client: newClient(urls[0], secrets["alpha"]), t: t}
	other := &service{client: newClient(urls[1], secrets["alpha"]), t: t}
	beta := &service{client: newClient(urls[1], secrets["beta"]), t: t}

	special := map[int]string{}
	for i := 1; i <= 96; i++ {
		special[i] = fmt.Sprintf("SLOW page%d of alpha speaks of subject%d.", i, i)
		if i%7 == 1 { // so that most ranges of 4 pages begin under a heading of another
			special[i] = fmt.Sprintf("Chapter %d :: %s", i/7, special[i])
		}
	}
	config := map[string]string{"parser_config": `{"media_type":"` + trialMedia + `","task_page_size":4}`}
	slow, err := alpha.submitAnswer(t.Context(), defaultDataset, []source{text("slow.trial", trialPages(96, special))}, config, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the victim to run tasks", func() bool {
		var n int
		_ = f.db.QueryRow("SELECT COUNT(*) FROM tasks WHERE kind='parse' AND state='done'").Scan(&n)
		return n >= 2
	})
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	keys, err := f.rdb.Keys(t.Context(), strings.TrimPrefix(f.env[slices.IndexFunc(f.env, func(s string) bool { return strings.HasPrefix(s, "SHEAF_QUEUE_PREFIX=") })], "SHEAF_QUEUE_PREFIX=")+"*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("no keys of the fleet in Redis: %v", err)
	}
	if err := f.rdb.Del(t.Context(), keys...).Err(); err != nil { // all that a FLUSHALL would take from this fleet
		t.Fatal(err)
	}

	// The other tenant's small document does not wait behind the big one.
	betaJob, betaDocs := beta.send(nil, sampleFiles(t)...)
	if betaJob.State != sheaf.DocSucceeded {
		t.Fatalf("beta's job ended %s", betaJob.State)
	}
	job := other.ended(slow.Job.ID) // through the other API process
	d := other.doc(slow.Documents[0].ID)
	if job.State != sheaf.DocSucceeded || d.Ledger.OK != 96 {
		b, _ := json.Marshal(d)
		t.Fatalf("alpha's job ended %s: %s", job.State, b)
	}
	// Two executors that know nothing of each other have read the ranges, some of
	// them twice: the paths are those of one task over all of it.
	var chunks api.List[sheaf.Chunk]
	alpha.get("/v1/datasets/default/documents/"+d.ID+"/chunks?limit=1000", &chunks)
	pages := map[int]bool{}
	for _, c := range chunks.Items {
		for _, p := range c.Pages {
			pages[p] = true
		}
		if want := fmt.Sprintf("Chapter %d", (c.Pages[0]-1)/7); !slices.Equal(c.HeadingPath, []string{want}) {
			t.Errorf("pages %v stand under %q, want %q", c.Pages, c.HeadingPath, want)
		}
	}
	if len(pages) != 96 {
		t.Errorf("%d pages are in chunks", len(pages))
	}
	if !alpha.finds("subject96") || !other.finds("subject1") {
		t.Error("alpha's pages are not searchable")
	}
	if len(beta.find("subject96")) != 0 {
		t.Error("beta sees alpha's chunks")
	}
	r, err := beta.search(t.Context(), defaultDataset, map[string]any{"query": "what happens when an executor is killed"})
	if err != nil || len(r.Hits) == 0 || len(r.Hits[0].Chunk.Pages) == 0 {
		t.Errorf("beta finds nothing: %v", err)
	}

	// Another tenant's ids are not there at all.
	for _, path := range []string{
		"/v1/jobs/" + slow.Job.ID, "/v1/jobs/" + slow.Job.ID + "/events", "/v1/datasets/default/documents/" + d.ID,
		"/v1/datasets/default/documents/" + d.ID + "/chunks", "/v1/datasets/default/documents/" + d.ID + "/content", "/v1/datasets/" + d.DatasetID,
	} {
		if err := beta.call(t.Context(), http.MethodGet, path, nil, nil); err == nil || !strings.Contains(err.Error(), "not_found") {
			t.Errorf("beta reads alpha's %s: %v", path, err)
		}
	}
	if err := newClient(urls[0], "").call(t.Context(), http.MethodGet, "/v1/datasets", nil, nil); err == nil || !strings.Contains(err.Error(), "unauthorized") {
		t.Errorf("without a key: %v", err)
	}

	f.rows("a task is not terminal", "SELECT id, kind, state FROM tasks WHERE state NOT IN ('done','dead','canceled','superseded')")
	f.rows("an epoch was claimed twice", "SELECT task_id, epoch, COUNT(*) n FROM events WHERE kind='claimed' GROUP BY task_id, epoch HAVING n > 1")
	f.rows("a task was done twice", "SELECT task_id, COUNT(*) n FROM events WHERE kind='done' GROUP BY task_id HAVING n > 1")
	f.rows("done under an epoch that is not its last claim's", "SELECT t.id, t.done_epoch, MAX(e.epoch) m FROM tasks t JOIN events e ON e.task_id=t.id AND e.kind='claimed' WHERE t.state='done' AND t.attempts>0 GROUP BY t.id, t.done_epoch HAVING m <> t.done_epoch")
	f.rows("a generation was finalized twice", "SELECT doc_id, gen, COUNT(*) n FROM tasks f WHERE kind='finalize' AND state='done' AND NOT EXISTS (SELECT 1 FROM tasks s WHERE s.doc_id=f.doc_id AND s.gen=f.gen AND s.node=CONCAT('stitch-', f.node)) GROUP BY doc_id, gen HAVING n > 1")

	// An upload that one API process began goes on at the other.
	file := largeTrial(6, 12<<20)
	path := alpha.begin(len(file), "filename", "two ways.trial", "parser_config", trialSettings)
	for i, part := range [][2]int{{0, 3 << 20}, {3 << 20, 10 << 20}, {10 << 20, len(file)}} {
		by := []*service{alpha, other}[i%2]
		if n := by.offset(path); n != part[0] {
			t.Fatalf("the other API process has stored %d bytes, this one says %d", part[0], n)
		}
		resp, b := by.patch(path, part[0], file[part[0]:part[1]])
		if resp.StatusCode != http.StatusNoContent {
			t.Fatalf("bytes %v: %s %s", part, resp.Status, b)
		}
		if job := resp.Header.Get("Sheaf-Job"); i == 2 {
			if ended := other.ended(job); ended.State != sheaf.DocSucceeded || !bytes.Equal(other.original(resp.Header.Get("Sheaf-Document")), file) {
				t.Errorf("what came in three pieces through two processes ended %s or is not the file", ended.State)
			}
		}
	}

	// Of a large PDF a process brings here what it reads.
	f.start("executor")
	heavy, says := enginetest.Heavy(200)
	heavyJob, heavyDocs := alpha.send(nil, text("heavy.pdf", string(heavy)))
	if heavyJob.State != sheaf.DocSucceeded || heavyDocs[0].Ledger.OK != 200 || !alpha.finds(says(177)) {
		t.Errorf("the large PDF ended %s: %+v", heavyJob.State, heavyDocs[0].Ledger)
	}
	if resp, b := alpha.ask(http.MethodGet, "/v1/datasets/default/documents/"+heavyDocs[0].ID+"/pages/20/image", "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("a page's picture: %s %.200s", resp.Status, b)
	}
	sparse, err := filepath.Glob(f.dir + "/*/cache/blocks-*")
	if err != nil || len(sparse) == 0 {
		t.Errorf("no process has read a part of the file: %v", err)
	}
	var least int64 = math.MaxInt64
	for _, path := range sparse {
		var st syscall.Stat_t
		if err := syscall.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		least = min(least, st.Blocks*512)
	}
	if least > int64(len(heavy))/2 {
		t.Errorf("for a picture of one page %d of %d KB were fetched", least>>10, len(heavy)>>10)
	}

	// Deleting leaves nothing in any store.
	var receipt taskstore.DeleteReceipt
	if err := beta.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+betaDocs[0].ID, nil, &receipt); err != nil {
		t.Fatal(err)
	}
	var queues api.List[taskstore.TenantQueue]
	beta.get("/v1/queues", &queues)
	for _, q := range queues.Items {
		if q.TenantID != "beta" {
			t.Errorf("beta sees the queue of %s", q.TenantID)
		}
	}
}
