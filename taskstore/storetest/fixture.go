package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// Fixture is an empty database with a store on it and the test's own connection, to
// see rows that the store's methods do not show.
type Fixture struct {
	Store  *sqlstore.Store
	DB     *sql.DB
	Engine string
	T      testing.TB
	Config sqlstore.Config
}

// New creates a Fixture.
func New(t testing.TB, engine string) *Fixture {
	t.Helper()
	c := Migrated(t, engine)
	s, err := sqlstore.Open(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	driver, dsn := map[string]string{"sqlite": "sqlite", "mysql": "mysql", "postgres": "pgx"}[engine], c.DSN
	if engine == "sqlite" {
		dsn = "file:" + dsn + "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(OFF)&_pragma=cache_size(-64000)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(4)
	t.Cleanup(func() { _ = db.Close() })
	return &Fixture{Store: s, DB: db, Engine: engine, T: t, Config: c}
}

// Second opens the database once more, as another process does.
func (f *Fixture) Second() *sqlstore.Store {
	f.T.Helper()
	s, err := sqlstore.Open(ctx, f.Config)
	f.OK(err)
	f.T.Cleanup(func() { _ = s.Close() })
	return s
}

// sql converts the parameters to the engine's syntax.
func (f *Fixture) sql(q string) string {
	if f.Engine != "postgres" {
		return q
	}
	var b strings.Builder
	n := 0
	for _, r := range q {
		if r == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Exec runs a statement of the test and returns the number of rows it matched.
func (f *Fixture) Exec(q string, args ...any) int {
	f.T.Helper()
	res, err := f.DB.Exec(f.sql(q), args...)
	if err != nil {
		f.T.Fatalf("%s: %v", q, err)
	}
	n, _ := res.RowsAffected()
	return int(n)
}

// Int reads one number.
func (f *Fixture) Int(q string, args ...any) int {
	f.T.Helper()
	var n sql.NullInt64
	if err := f.DB.QueryRow(f.sql(q), args...).Scan(&n); err != nil {
		f.T.Fatalf("%s: %v", q, err)
	}
	return int(n.Int64)
}

// Strings reads a column.
func (f *Fixture) Strings(q string, args ...any) []string {
	f.T.Helper()
	rows, err := f.DB.Query(f.sql(q), args...)
	if err != nil {
		f.T.Fatalf("%s: %v", q, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			f.T.Fatalf("%s: %v", q, err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		f.T.Fatalf("%s: %v", q, err)
	}
	return out
}

// Doc is a document created by a test.
type Doc struct {
	ID, Tenant, Dataset, Job, Plan string
}

// Document creates a document with a pending plan task, in its own job.
func (f *Fixture) Document(tenant string) Doc {
	f.T.Helper()
	return f.DocumentAt(tenant, time.Time{})
}

// DocumentAt creates a document scheduled for notBefore, zero for now.
func (f *Fixture) DocumentAt(tenant string, notBefore time.Time) Doc {
	f.T.Helper()
	d := Doc{ID: sheaf.NewID(), Tenant: tenant, Dataset: "ds-" + tenant, Job: sheaf.NewID(), Plan: sheaf.NewID()}
	if _, err := f.Store.Tenant(ctx, tenant); errors.Is(err, sheaf.ErrNotFound) {
		_, err := f.Store.CreateTenant(ctx, sheaf.Tenant{ID: tenant, Name: tenant, Weight: 1, Cap: 8})
		f.OK(err)
		_, err = f.Store.CreateDataset(ctx, sheaf.Dataset{ID: d.Dataset, TenantID: tenant, Name: "ds"})
		f.OK(err)
	}
	_, err := f.Store.CreateDocuments(ctx, sheaf.Job{ID: d.Job, TenantID: tenant, DatasetID: d.Dataset, Kind: sheaf.JobIngest, NotBefore: notBefore}, []taskstore.NewDocument{{
		Document: sheaf.Document{ID: d.ID, Name: "a.pdf", MediaType: "application/pdf", Size: 10, SHA256: d.ID + d.ID, BlobKey: sheaf.OriginalPrefix(tenant, d.ID) + "v1"},
		Plan:     sheaf.NewTask{ID: d.Plan, Kind: sheaf.KindPlan, Cost: 1},
	}}, "")
	f.OK(err)
	return d
}

// Claim claims a task that must be claimable.
func (f *Fixture) Claim(id, worker string) *sheaf.Task {
	f.T.Helper()
	t, err := f.Store.Claim(context.Background(), id, worker, time.Minute)
	if err != nil {
		f.T.Fatalf("claim %s: %v", id, err)
	}
	return t
}

// Refused checks that a task cannot be claimed because of its state.
func (f *Fixture) Refused(id string, state sheaf.TaskState) {
	f.T.Helper()
	_, err := f.Store.Claim(context.Background(), id, "refused", time.Minute)
	refusal, ok := errors.AsType[*taskstore.NotClaimable](err)
	if !ok || refusal.State != state || !errors.Is(err, sheaf.ErrConflict) {
		f.T.Fatalf("claim of a task that is %q: %v", state, err)
	}
}

// Plan claims the document's plan, completes it with the given tasks, and returns
// them as stored.
func (f *Fixture) Plan(d Doc, spawn ...sheaf.NewTask) []sheaf.Task {
	f.T.Helper()
	t := f.Claim(d.Plan, "planner")
	f.OK(f.Store.Complete(context.Background(), t.Held(), taskstore.Completion{Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 12 * len(spawn)}, Spawn: spawn}))
	return f.Tasks(d.ID, t.Generation)
}

// Parse returns n parse tasks of 12 pages each.
func Parse(n int) []sheaf.NewTask {
	out := make([]sheaf.NewTask, n)
	for i := range out {
		out[i] = sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: sheaf.Range{From: 12*i + 1, To: 12*i + 12}, Cost: 12,
			ReuseKey: fmt.Sprintf("key-%d", i), Digest: "d"}
	}
	return out
}

// Tasks lists the tasks of a generation except its plan.
func (f *Fixture) Tasks(doc string, gen int) []sheaf.Task {
	f.T.Helper()
	tasks, err := f.Store.GenerationTasks(context.Background(), doc, gen)
	f.OK(err)
	return slices.DeleteFunc(tasks, func(t sheaf.Task) bool { return t.Kind == sheaf.KindPlan })
}

// Task reads one task by its document.
func (f *Fixture) Task(id string) sheaf.Task {
	f.T.Helper()
	doc := f.Strings("SELECT doc_id FROM tasks WHERE id=?", id)
	if len(doc) != 1 {
		f.T.Fatalf("no task %s", id)
	}
	for gen := range f.Int("SELECT gen FROM tasks WHERE id=?", id) {
		tasks, err := f.Store.GenerationTasks(context.Background(), doc[0], gen+1)
		f.OK(err)
		for _, t := range tasks {
			if t.ID == id {
				return t
			}
		}
	}
	f.T.Fatalf("task %s is in no generation", id)
	panic("unreachable")
}

// Result is the result of a parse attempt.
func Result(t *sheaf.Task) sheaf.TaskResult {
	id := sheaf.RangeID(t.ID, t.Epoch)
	return sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(t.TenantID, t.DocumentID, id), Chunks: 3, Tokens: 30,
		Ledger: sheaf.Ledger{{From: t.Range.From, To: t.Range.To, Status: sheaf.UnitOK}}}
}

// Done claims and completes a task with a range result.
func (f *Fixture) Done(id string) sheaf.TaskResult {
	f.T.Helper()
	t := f.Claim(id, "w")
	r := Result(t)
	f.OK(f.Store.Complete(context.Background(), t.Held(), taskstore.Completion{Result: r}))
	return r
}

// Fold folds until nothing is dirty.
func (f *Fixture) Fold() {
	f.T.Helper()
	for range 100 {
		_, _, err := f.Store.Fold(context.Background(), 1000, 0)
		f.OK(err)
		if f.Int("SELECT COUNT(*) FROM doc_dirty") == 0 {
			return
		}
	}
	f.T.Fatal("documents stay dirty")
}

// Feedable returns what the store would feed to a queue, of all tenants.
func (f *Fixture) Feedable(window int, requeueAfter time.Duration) (all []sheaf.Hint) {
	f.T.Helper()
	for after := ""; ; {
		slice, err := f.Store.Feedable(ctx, after, window, requeueAfter)
		f.OK(err)
		if all = append(all, slice.Hints...); slice.Next == "" {
			return all
		}
		after = slice.Next
	}
}

// Enqueued marks hints as published, and fails if the store refuses it.
func (f *Fixture) Enqueued(hints ...sheaf.Hint) {
	f.T.Helper()
	runs, err := f.Store.Meta(ctx, taskstore.QueueRunsKey)
	f.OK(err)
	marked, err := f.Store.MarkEnqueued(ctx, hints, runs)
	f.OK(err)
	want(f, "marked as enqueued", marked, true)
}

// Finalizer finds the finalize task of a document, which Fold must have created.
func (f *Fixture) Finalizer(doc string) string {
	f.T.Helper()
	ids := f.Strings("SELECT id FROM tasks WHERE doc_id=? AND kind='finalize' AND state='pending'", doc)
	if len(ids) != 1 {
		f.T.Fatalf("%d pending finalize tasks, want 1", len(ids))
	}
	return ids[0]
}

// Publish folds and publishes the document's newest generation.
func (f *Fixture) Publish(doc string, state sheaf.DocumentState) {
	f.T.Helper()
	f.Fold()
	t := f.Claim(f.Finalizer(doc), "finalizer")
	f.OK(f.Store.Complete(context.Background(), t.Held(), taskstore.Completion{Publish: &taskstore.Publication{State: state, Chunks: 6, Tokens: 60, Ledger: sheaf.LedgerCounts{OK: 24}}}))
}

// Doc reads a document.
func (f *Fixture) Doc(id string) *sheaf.Document {
	f.T.Helper()
	d, err := f.Store.DocumentByID(context.Background(), id)
	f.OK(err)
	return d
}

// InState checks the state of a task.
func (f *Fixture) InState(id string, want sheaf.TaskState) {
	f.T.Helper()
	if got := f.Strings("SELECT state FROM tasks WHERE id=?", id); len(got) != 1 || got[0] != string(want) {
		f.T.Fatalf("task %s is %v, want %s", id, got, want)
	}
}

// Events lists the kinds of a task's events in order.
func (f *Fixture) Events(task string) []string {
	f.T.Helper()
	return f.Strings("SELECT kind FROM events WHERE task_id=? ORDER BY seq", task)
}

// OK fails the test on an error.
func (f *Fixture) OK(err error) {
	f.T.Helper()
	if err != nil {
		f.T.Fatal(err)
	}
}

// Stale checks that a write was rejected because its claim has ended.
func (f *Fixture) Stale(err error) {
	f.T.Helper()
	if !errors.Is(err, sheaf.ErrStale) {
		f.T.Fatalf("got %v, want ErrStale", err)
	}
}

// Cancel asks a document's newest generation to stop.
func (f *Fixture) Cancel(d Doc) {
	f.T.Helper()
	_, err := f.Store.CancelDocuments(ctx, d.Tenant, []string{d.ID})
	f.OK(err)
}

// Reparse starts a new generation, and returns the document with its plan.
func (f *Fixture) Reparse(d Doc) Doc {
	f.T.Helper()
	d.Plan, d.Job = sheaf.NewID(), sheaf.NewID()
	f.OK(f.Store.Reparse(ctx, sheaf.Job{ID: d.Job, TenantID: d.Tenant, DatasetID: d.Dataset, Kind: sheaf.JobReparse},
		[]taskstore.ReparseDocument{{DocumentID: d.ID, Plan: sheaf.NewTask{ID: d.Plan, Kind: sheaf.KindPlan, Cost: 1}}}, ""))
	return d
}

// Retry gives a dead task another attempt.
func (f *Fixture) Retry(d Doc, id string) {
	f.T.Helper()
	n, err := f.Store.RetryDead(ctx, d.Tenant, taskstore.DeadLetterFilter{IDs: []string{id}})
	f.OK(err)
	if n != 1 {
		f.T.Fatalf("%d tasks retried, want 1", n)
	}
}

// Query reads rows with a statement of the test.
func (f *Fixture) Query(q string, args ...any) (*sql.Rows, error) {
	return f.DB.Query(f.sql(q), args...)
}
