package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// environment answers where MinIO and Elasticsearch are; without them the test
// is skipped, unless the run demands every engine.
func environment(t *testing.T) func(string) string {
	t.Helper()
	for _, name := range []string{"SHEAF_TEST_S3_ENDPOINT", "SHEAF_TEST_ES_URL"} {
		if os.Getenv(name) != "" {
			continue
		}
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not set, and this run must test every engine; `make services` starts them", name)
		}
		t.Skipf("%s is not set; `make services` starts the engines", name)
	}
	return os.Getenv
}

// logTails shows how the log of each process ends: the folder goes with the test.
func logTails(t *testing.T, f *fleet) {
	const most = 6 << 10
	for _, p := range f.all {
		b, err := os.ReadFile(p.log)
		if err != nil {
			t.Logf("%s: %v", p.name, err)
			continue
		}
		t.Logf("%s: ...%s", p.name, b[max(0, len(b)-most):])
	}
}

// logTransactions shows what the database is at work on: who waits for whom.
func (e *engines) logTransactions(t *testing.T) {
	rows, err := e.db.QueryContext(context.Background(), `SELECT p.ID, p.COMMAND, p.TIME, COALESCE(p.STATE,''), COALESCE(x.trx_state,''), COALESCE(p.INFO,'')
		FROM information_schema.PROCESSLIST p LEFT JOIN information_schema.INNODB_TRX x ON x.trx_mysql_thread_id=p.ID WHERE p.COMMAND<>'Sleep' OR x.trx_id IS NOT NULL`)
	if err != nil {
		t.Log(err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id, seconds int64
		var command, state, trx, info string
		if err := rows.Scan(&id, &command, &seconds, &state, &trx, &info); err != nil {
			t.Log(err)
			return
		}
		t.Logf("mysql %d: %s for %d s, %s, transaction %s: %.300s", id, command, seconds, state, trx, info)
	}
}

// scratch is a folder that other users may enter, and short: the path of a
// socket in it may have 107 bytes.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// product is the binary under test, built once for all tests.
var product = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "chaos-product")
	if err != nil {
		return "", err
	}
	productDir = dir
	root, err := filepath.Abs("..")
	if err != nil {
		return "", err
	}
	return buildBinary(context.Background(), root, dir)
})

var productDir string // to remove at the end; "" when nothing was built

func TestMain(m *testing.M) {
	code := m.Run()
	if productDir != "" {
		_ = os.RemoveAll(productDir)
	}
	os.Exit(code)
}

// begin builds the product and starts a fleet, and returns the context of the
// trial itself: no time that a build or a start takes is the trial's.
func begin(t *testing.T, c config, settings ...string) (context.Context, *trial) {
	t.Helper()
	c.env, c.dir = environment(t), scratch(t)
	var err error
	if c.exe, err = product(); err != nil {
		t.Fatal(err)
	}
	tr, err := setup(t.Context(), c, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.close)
	t.Cleanup(func() {
		if t.Failed() {
			logTails(t, tr.f)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	return ctx, tr
}

// TestChaos is a short run: every kind of fault at least once. MinIO and
// Elasticsearch are those of the test run, behind proxies; what is killed is
// the harness' own. The draw is the same each time (SHEAF_CHAOS_SEED names
// another), so that a change is measured by the faults that its predecessor
// stood; how they fall in time is new with each run.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two minutes")
	}
	seed, err := strconv.ParseUint(os.Getenv("SHEAF_CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = 11
	}
	c := config{seed: seed, faults: 64, mean: 500 * time.Millisecond, progress: os.Stderr}
	ctx, tr := begin(t, c, steadyTimes...)
	r, err := run(ctx, c, tr)
	if err != nil {
		t.Fatal(err)
	}
	r.print(os.Stdout)
	for _, v := range r.Violations {
		t.Error(v)
	}
	if r.Faults < 60 {
		t.Errorf("%d faults were injected, of which 60 are wanted; not injected: %v", r.Faults, r.NotInjected)
	}
}
