package sqlstore_test

import (
	"compress/gzip"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"sheaf"
	"sheaf/internal/secrets"
	"sheaf/migrations"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// released lists the schemas with a released store, as their numbers.
func released(t *testing.T) (schemas []int64) {
	t.Helper()
	names, err := filepath.Glob("testdata/released/*-sqlite.json.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("no released store: %v", err)
	}
	for _, name := range names {
		number, _, _ := strings.Cut(filepath.Base(name), "-")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, n)
	}
	slices.Sort(schemas)
	return schemas
}

func newestMigration(t *testing.T, engine string) (n int64) {
	t.Helper()
	entries, err := fs.ReadDir(migrations.FS, engine)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		n = max(n, v)
	}
	return n
}

// restore makes a database with the schema and the rows that a release left,
// and returns how to open it, a connection, and when it was written.
func restore(t *testing.T, engine string, schema int64) (c sqlstore.Config, db *sql.DB, at time.Time) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(fmt.Sprintf("testdata/released/%04d-%s.json.gz", schema, engine))
	ok(err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	ok(err)
	var snapshot releasedStore
	d := json.NewDecoder(z)
	d.UseNumber()
	ok(d.Decode(&snapshot))
	if snapshot.Schema != schema {
		t.Fatalf("the store is of schema %d", snapshot.Schema)
	}

	c = storetest.Config(t, engine)
	s, err := sqlstore.Open(t.Context(), c) // which makes the SQLite file as the service does
	ok(err)
	ok(s.Close())
	driver, dialect, dsn := "sqlite", goose.DialectSQLite3, "file:"+c.DSN+"?_txlock=immediate&_pragma=busy_timeout(5000)"
	switch engine {
	case "mysql":
		driver, dialect, dsn = "mysql", goose.DialectMySQL, c.DSN
	case "postgres":
		driver, dialect, dsn = "pgx", goose.DialectPostgres, c.DSN
	}
	db, err = sql.Open(driver, dsn)
	ok(err)
	t.Cleanup(func() { _ = db.Close() })
	files, err := fs.Sub(migrations.FS, engine)
	ok(err)
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	ok(err)
	_, err = p.UpTo(t.Context(), schema)
	ok(err)
	tx, err := db.Begin()
	ok(err)
	for _, table := range snapshot.Tables {
		for _, row := range table.Rows {
			marks := make([]string, len(row))
			for i, v := range row {
				marks[i] = "?"
				if engine == "postgres" {
					marks[i] = fmt.Sprintf("$%d", i+1)
				}
				if n, is := v.(json.Number); is {
					if row[i], err = n.Int64(); err != nil {
						row[i], err = n.Float64()
						ok(err)
					}
				}
			}
			_, err := tx.Exec("INSERT INTO "+table.Name+" ("+strings.Join(table.Columns, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", row...)
			ok(err)
		}
		if engine == "postgres" && slices.Contains([]string{"events", "webhook_deliveries", "garbage"}, table.Name) {
			id := table.Columns[0]
			_, err := tx.Exec(fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%s', '%s'), (SELECT MAX(%s) FROM %s))", table.Name, id, id, table.Name))
			ok(err)
		}
	}
	ok(tx.Commit())
	return c, db, time.UnixMilli(snapshot.At)
}

// A store of each released schema opens in this version, regardless of who
// migrates it and how often; what is in it reads right, and its work goes on.
func TestReleasedStoresOpen(t *testing.T) {
	for _, schema := range released(t) {
		storetest.ForEachEngine(t, func(t *testing.T, engine string) {
			t.Run(fmt.Sprintf("%04d", schema), func(t *testing.T) {
				c, db, at := restore(t, engine, schema)
				migrateAtOnce(t, c, 3)
				s, err := sqlstore.Open(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				// Its clock resumes: nothing has expired meanwhile.
				s.AdvanceClock(time.Until(at))
				f := &storetest.Fixture{Store: s, DB: db, Engine: engine, T: t, Config: c}
				f.OK(s.Migrate(t.Context()))
				if n := f.Int("SELECT MAX(version_id) FROM goose_db_version"); int64(n) != newestMigration(t, engine) {
					t.Fatalf("the schema is %d", n)
				}
				releasedReads(f)
				releasedResumes(f)
			})
		})
	}
}

// releasedReads checks what fillReleased wrote.
func releasedReads(f *storetest.Fixture) {
	t, s, ctx := f.T, f.Store, f.T.Context()
	t.Helper()
	check := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	plain := func(column, table string) int {
		return f.Int("SELECT COUNT(*) FROM " + table + " WHERE " + column + " LIKE '%" + releasedSecret + "%'")
	}
	if plain("parse_config", "datasets") != 1 {
		t.Error("the released store shows no password, so that sealing it shows nothing")
	}
	ring, err := secrets.Parse(secrets.Generate())
	f.OK(err)
	f.OK(s.Unlock(ctx, ring))
	read := func() {
		t.Helper()
		ds, err := s.Dataset(ctx, "kept", "contracts")
		f.OK(err)
		check("the password", ds.ParseConfig.Password.V, releasedSecret)
		config, err := json.Marshal(ds.ParseConfig)
		f.OK(err)
		var said map[string]any
		f.OK(json.Unmarshal(config, &said))
		check("the settings", said, map[string]any{"chunk_method": "general", "chunk_token_num": 256, "password": releasedSecret})
		w, err := s.Webhook(ctx, "kept", "kept-set", "kept-hook")
		f.OK(err)
		check("the webhook's secret", w.Secret, releasedSecret)
		task, err := s.Task(ctx, "kept", "plan-queued")
		f.OK(err)
		if !strings.Contains(string(task.Payload), releasedSecret) {
			t.Errorf("the payload of a task is %s", task.Payload)
		}
		up, err := s.Upload(ctx, "kept", "kept-up")
		f.OK(err)
		check("the upload", []any{up.Offset, up.Size, up.Spec.Name, up.Spec.Config.Password.V}, []any{60, 100, "late.pdf", releasedSecret})
		state, err := s.Idempotent(ctx, taskstore.KeyedRequest{TenantID: "kept", Key: "answered", Hash: "another", Former: "hash", Holder: "new"}, time.Minute)
		f.OK(err)
		check("the stored answer", string(state.Answer), `{"status":202,"body":"e30="}`)
	}
	read()
	_, err = s.SealSecrets(ctx, false)
	f.OK(err)
	read()
	for table, column := range map[string]string{"webhooks": "secret", "datasets": "parse_config", "documents": "parse_config", "generations": "parse_config", "tasks": "payload", "uploads": "spec"} {
		check("plain secrets in "+table, plain(column, table), 0)
	}

	tenant, err := s.Tenant(ctx, "kept")
	f.OK(err)
	check("the tenant", []any{tenant.Name, tenant.Weight, tenant.Cap, tenant.Quota.Documents}, []any{"Kept", 3, 5, 100})
	key, err := s.KeyByHash(ctx, "hash-of-the-key")
	f.OK(err)
	check("the key", []any{key.Name, key.Scopes}, []any{"reader", []string{"read"}})
	states := map[string]string{}
	for _, id := range []string{"done", "failed", "large", "graph", "ending", "small", "queued"} {
		d := f.Doc(id)
		states[id] = string(d.State)
		check("metadata of "+id, d.Metadata, map[string]string{"shelf": id})
	}
	check("the documents' states", states, map[string]string{"done": "succeeded", "failed": "failed", "large": "running", "graph": "running", "ending": "finalizing", "small": states["small"], "queued": "queued"})
	if fail := f.Doc("failed").Failure; fail == nil || fail.Code != "encrypted" {
		t.Errorf("the failure is %v", fail)
	}
	events, err := s.Events(ctx, "kept", taskstore.EventFilter{DocumentID: "done"}, 0, 100)
	f.OK(err)
	if len(events) < 5 {
		t.Errorf("%d events of a document that went through", len(events))
	}
	receipts, _, err := s.Receipts(ctx, "kept", "", taskstore.Page{})
	f.OK(err)
	check("receipts", len(receipts), 0)
	due, err := s.DueWebhooks(ctx, "", 10)
	f.OK(err)
	check("webhooks that have messages to send", len(due), 1)
	value, err := s.Meta(ctx, "kept")
	f.OK(err)
	check("the bookkeeping", value, "yes")
	// By what open tasks are served: phases, and the age of their jobs.
	for id, phase := range map[string]int{"plan-queued": 2, "small-02": 1, "large-00": 3, "graph-00": 1, "graph-after": 1} {
		check("the phase of "+id, f.Int("SELECT phase FROM tasks WHERE id=?", id), phase)
	}
	check("the phase of the end", f.Int("SELECT phase FROM tasks WHERE id=?", f.Finalizer("ending")), 0)
	check("tasks out of place", f.Int("SELECT COUNT(*) FROM tasks WHERE state<>'done' AND state<>'superseded' AND place<>(SELECT j.created_at FROM jobs j WHERE j.id=tasks.job_id)"), 0)
}

// releasedResumes does all the work that the released store has left.
func releasedResumes(f *storetest.Fixture) {
	t, s, ctx := f.T, f.Store, f.T.Context()
	t.Helper()
	s.AdvanceClock(2 * time.Minute) // its lease has run out
	if n, err := s.Reap(ctx, taskstore.ReapPolicy{}, 100); err != nil || n != 1 {
		t.Fatalf("%d tasks taken back from the executor that is gone: %v", n, err)
	}
	first, err := s.Runnable(ctx, "kept", 100, 0)
	f.OK(err)
	at := func(id string) int {
		return slices.IndexFunc(first, func(h sheaf.Hint) bool { return h.TaskID == id })
	}
	if order := []int{at(f.Finalizer("ending")), at("graph-00"), at("small-02"), at("plan-queued"), at("large-00")}; order[0] != 0 || !slices.IsSorted(order) {
		t.Errorf("tasks are served at %v: %v", order, first)
	}
	for range 200 {
		hints, err := s.Runnable(ctx, "kept", 100, 0)
		f.OK(err)
		if len(hints) == 0 {
			if n, err := s.WakeParked(ctx, 100); err != nil || n > 0 {
				f.OK(err)
				continue
			}
			if f.Int("SELECT COUNT(*) FROM doc_dirty") > 0 {
				f.Fold()
				continue
			}
			break
		}
		task := f.Claim(hints[0].TaskID, "new")
		var c taskstore.Completion
		switch task.Kind {
		case sheaf.KindPlan:
			if !strings.Contains(string(task.Payload), releasedSecret) {
				t.Errorf("%s is told %s", task.ID, task.Payload)
			}
			c.Plan, c.Spawn = &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 12}, storetest.Parse(1)
		case sheaf.KindFinalize:
			c.Publish = &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 3, Tokens: 30}
		default:
			c.Result = storetest.Result(task)
		}
		f.OK(s.Complete(ctx, task.Held(), c))
	}
	for _, id := range []string{"done", "large", "graph", "ending", "small", "queued"} {
		if d := f.Doc(id); d.State != sheaf.DocSucceeded {
			t.Errorf("%s ends as %s", id, d.State)
		}
	}

	up, err := s.ClaimUpload(ctx, "kept", "kept-up", 60, time.Hour)
	f.OK(err)
	up.Pieces, up.NextPiece, up.Offset = append(up.Pieces, taskstore.UploadPiece{N: up.NextPiece, Size: 40}), up.NextPiece+1, 100
	f.OK(s.AdvanceUpload(ctx, up, true))
	again := f.Reparse(storetest.Doc{ID: "done", Tenant: "kept", Dataset: "kept-set"})
	for _, task := range f.Plan(again, storetest.Parse(1)...) {
		f.Done(task.ID)
	}
	f.Publish("done", sheaf.DocSucceeded)
	deleted, err := s.DeleteDocuments(ctx, "kept", []string{"done"})
	f.OK(err)
	if r, err := s.Receipt(ctx, "kept", deleted.ReceiptID); err != nil || r.State != taskstore.ReceiptPending {
		t.Errorf("the receipt is %+v: %v", r, err)
	}
	s.AdvanceClock(48 * time.Hour)
	rest, err := s.Garbage(ctx, 1000)
	f.OK(err)
	if !slices.ContainsFunc(rest, func(g taskstore.Garbage) bool { return g.DocumentID == "gone" }) {
		t.Errorf("what the deletion before left is not to be collected: %+v", rest)
	}
	ids := make([]int64, len(rest))
	for i, g := range rest {
		ids[i] = g.ID
	}
	f.OK(s.GarbageDone(ctx, ids))
}

// Code of one release back runs on a schema; code of an older one says what to
// do and changes nothing.
func TestStoreOfLaterReleaseIsRefused(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		ctx := t.Context()
		f := storetest.New(t, engine)
		known := newestMigration(t, engine)
		if former, err := f.Store.Meta(ctx, "former_schema"); err != nil || former != strconv.Itoa(migrations.Former) {
			t.Fatalf("the store notes %q: %v", former, err)
		}
		applied := map[string]string{"postgres": "true"}[engine]
		if applied == "" {
			applied = "1"
		}
		f.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, "+applied+")", known+1)
		f.OK(f.Store.SetMeta(ctx, "former_schema", strconv.FormatInt(known, 10)))
		if err := f.Second().Migrate(ctx); err != nil {
			t.Errorf("the schema of the next release: %v", err)
		}
		if former, err := f.Store.Meta(ctx, "former_schema"); err != nil || former != strconv.FormatInt(known, 10) {
			t.Errorf("an older process makes the note %q: %v", former, err)
		}
		f.OK(f.Store.SetMeta(ctx, "former_schema", strconv.FormatInt(known+1, 10)))
		err := f.Second().Migrate(ctx)
		if !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "Run the version that the store was last used with, or a newer one") {
			t.Errorf("the schema of a release after the next: %v", err)
		}
	})
}

// A store of the release before exists, and Former names it.
func TestFormerIsTheReleaseBefore(t *testing.T) {
	before := int64(0)
	for _, schema := range released(t) {
		if schema < newestMigration(t, "sqlite") {
			before = max(before, schema)
		}
	}
	if before != migrations.Former {
		t.Errorf("migrations.Former is %d, and the newest store of an earlier release in testdata/released is of schema %d", migrations.Former, before)
	}
}

// Migrations that were released are never changed: there are stores that they
// have run on.
func TestReleasedMigrationsStayAsTheyAre(t *testing.T) {
	sums, err := os.ReadFile("testdata/released/migrations.sha256")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		b, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Error(err)
			continue
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has been changed since it was released; write a new migration", name)
		}
		n++
	}
	if kept := released(t); n != 3*int(kept[len(kept)-1]) {
		t.Errorf("%d migrations are listed, and the newest store is of schema %d", n, kept[len(kept)-1])
	}
}
