package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// RunCatalog runs the contract of the catalog on one empty database. Each case has
// its own tenant, which also shows that tenants share nothing.
func RunCatalog(t *testing.T, open func(testing.TB) *sqlstore.Store) {
	s := open(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"TenantsAndKeys", testTenants},
		{"Datasets", testDatasets},
		{"DocumentChanges", testDocumentChanges},
		{"CreateIsIdempotentAndReplaces", testCreate},
		{"HeldDocumentsWait", testHold},
		{"CreateBesideItself", testCreateBesideItself},
		{"Quota", testQuota},
		{"ReparseSupersedesAndKeepsTheLive", testReparse},
		{"FailedGenerationFreesTheSuperseded", testFailedFrees},
		{"Cancel", testCancel},
		{"DeleteHidesAndLeavesGarbage", testDelete},
		{"JobIsSummed", testJob},
		{"JobStagesAreCountedApart", testJobStages},
		{"JobErrors", testJobErrors},
		{"PauseReachesTasksThatAreSpawned", testPause},
		{"Remaining", testRemaining},
		{"SpeedByType", testSpeedByType},
		{"Idempotency", testIdempotency},
		{"UploadsInPieces", testUploads},
		{"OpenJobs", testOpenJobs},
		{"WebhooksAreToldOfEachEnd", testWebhooks},
		{"FlowVersionsAreNumberedOnce", testFlowVersions},
		{"SavedQueriesAndEvaluations", testEvaluations},
		{"SplitsOfGraphs", testSplits},
		{"RunsOverDatasets", testDatasetRuns},
		{"DatasetsThatRun", testDatasetsThatRun},
		{"ResultsOfRuns", testRunResults},
		{"EditsOfChunks", testEdits},
		{"BlankVersion", testBlankVersion},
		{"EditsFollowPublications", testEditsFollowPublications},
		{"ListsPageThroughConcurrentInserts", testPages},
		{"FiltersAndHostileNames", testFilters},
		{"JobFilters", testJobFilters},
		{"FacetsCountWhatFiltersSelect", testFacets},
		{"TagsOfMany", testTags},
		{"EventsAndTaskHistory", testEvents},
		{"DeadLetters", testDead},
		{"Queues", testQueues},
		{"Backlog", testBacklog},
		{"StatsOfTheLastMinutes", testStats},
		{"UnitLedgerKeepsTheBestVerdict", testUnitLedger},
		{"OtherTenantsSeeNothing", testTenantWalk},
		{"RacesLeaveAConsistentState", testRaces},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newBench(t, s)) })
	}
}

// bench is a tenant with a dataset.
type bench struct {
	*sqlstore.Store
	t       *testing.T
	ctx     context.Context
	tenant  string
	dataset *sheaf.Dataset
}

func newBench(t *testing.T, s *sqlstore.Store) *bench {
	t.Helper()
	b := &bench{Store: s, t: t, ctx: context.Background()}
	tenant, err := s.CreateTenant(b.ctx, sheaf.Tenant{ID: sheaf.NewID(), Name: t.Name(), Weight: 1, Cap: 8})
	b.ok(err)
	b.tenant = tenant.ID
	b.dataset, err = s.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: "files"})
	b.ok(err)
	return b
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) is(err, kind error) {
	b.t.Helper()
	if !errors.Is(err, kind) {
		b.t.Fatalf("got %v, want %v", err, kind)
	}
}

// same compares by value and reports the difference.
func (b *bench) same(what string, got, want any) {
	b.t.Helper()
	if !reflect.DeepEqual(got, want) {
		b.t.Fatalf("%s: got %+v, want %+v", what, got, want)
	}
}

func (b *bench) newDocument(name string) taskstore.NewDocument {
	id := sheaf.NewID()
	return taskstore.NewDocument{
		Document: sheaf.Document{ID: id, Name: name, MediaType: "application/pdf", Size: 100, SHA256: strings.Repeat("0", 32) + id,
			BlobKey: sheaf.OriginalPrefix(b.tenant, id) + "v1", Metadata: map[string]string{"by": "test"}},
		Plan: planTask(),
	}
}

func planTask() sheaf.NewTask {
	return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(`{}`)}
}

func (b *bench) newJob(kind sheaf.JobKind) sheaf.Job {
	return sheaf.Job{ID: sheaf.NewID(), TenantID: b.tenant, DatasetID: b.dataset.ID, Kind: kind}
}

// create uploads documents of the given names under one job.
func (b *bench) create(names ...string) (jobID string, ids []string) {
	b.t.Helper()
	job := b.newJob(sheaf.JobIngest)
	var docs []taskstore.NewDocument
	for _, n := range names {
		d := b.newDocument(n)
		ids, docs = append(ids, d.Document.ID), append(docs, d)
	}
	_, err := b.CreateDocuments(b.ctx, job, docs, "")
	b.ok(err)
	return job.ID, ids
}

func (b *bench) doc(id string) *sheaf.Document {
	b.t.Helper()
	d, err := b.Document(b.ctx, b.tenant, id)
	b.ok(err)
	return d
}

func (b *bench) tasks(id string, gen int) []sheaf.Task {
	b.t.Helper()
	ts, err := b.Tasks(b.ctx, b.tenant, id, gen)
	b.ok(err)
	return ts
}

// task finds the only task of a kind in the newest generation.
func (b *bench) task(id string, kind sheaf.TaskKind) *sheaf.Task {
	b.t.Helper()
	for _, t := range b.tasks(id, 0) {
		if t.Kind == kind {
			return &t
		}
	}
	b.t.Fatalf("document %s has no %s task", id, kind)
	return nil
}

func (b *bench) claim(taskID string) *sheaf.Task {
	b.t.Helper()
	t, err := b.Claim(b.ctx, taskID, "worker", time.Minute)
	b.ok(err)
	return t
}

func (b *bench) fold() {
	b.t.Helper()
	for range 100 {
		n, _, err := b.Fold(b.ctx, 200, 0)
		b.ok(err)
		if n == 0 {
			return
		}
	}
	b.t.Fatal("folding does not come to rest")
}

// plan runs the plan of the newest generation: one parse task per range.
func (b *bench) plan(id string, ranges ...sheaf.Range) {
	b.t.Helper()
	p := b.claim(b.task(id, sheaf.KindPlan).ID)
	c := taskstore.Completion{Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage}}
	for _, r := range ranges {
		c.Plan.Units = max(c.Plan.Units, r.To)
		c.Spawn = append(c.Spawn, sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: r, Cost: r.Len()})
	}
	b.ok(b.Complete(b.ctx, p.Held(), c))
}

func (b *bench) result(t *sheaf.Task) sheaf.TaskResult {
	id := sheaf.RangeID(t.ID, t.Epoch)
	n := t.Range.Len()
	return sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(b.tenant, t.DocumentID, id), Chunks: 2 * n, Tokens: 10 * n,
		Ledger: sheaf.Ledger{{From: t.Range.From, To: t.Range.To, Status: sheaf.UnitOK}},
		Usage:  sheaf.Usage{Pages: n, Tokens: 10 * n, EmbeddedTokens: 9 * n, Bytes: 5_000_000_000}}
}

// parse runs every parse task of the newest generation, and returns the ranges.
func (b *bench) parse(id string) (ranges []string) {
	b.t.Helper()
	for _, t := range b.tasks(id, 0) {
		if t.Kind == sheaf.KindParse && t.State == sheaf.TaskPending {
			c := b.claim(t.ID)
			r := b.result(c)
			ranges = append(ranges, r.RangeID)
			b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Result: r}))
		}
	}
	return ranges
}

// publish lets the keeper decide and runs the finalize task.
func (b *bench) publish(id string, p taskstore.Publication) {
	b.t.Helper()
	b.fold()
	for _, t := range b.tasks(id, 0) {
		if t.Kind == sheaf.KindFinalize && t.State == sheaf.TaskPending {
			c := b.claim(t.ID)
			b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Publish: &p}))
			b.fold()
			return
		}
	}
	b.t.Fatalf("document %s is %s and has no finalize task to run", id, b.doc(id).State)
}

// live makes a published document of 12 pages.
func (b *bench) live(name string) (jobID, id string, ranges []string) {
	b.t.Helper()
	jobID, ids := b.create(name)
	b.plan(ids[0], sheaf.Range{From: 1, To: 6}, sheaf.Range{From: 7, To: 12})
	ranges = b.parse(ids[0])
	b.publish(ids[0], taskstore.Publication{State: sheaf.DocSucceeded, Ledger: sheaf.LedgerCounts{OK: 12}, Chunks: 24, Tokens: 120})
	return jobID, ids[0], ranges
}

func (b *bench) visible(ranges []string) int {
	b.t.Helper()
	v, err := b.Visible(b.ctx, b.tenant, ranges)
	b.ok(err)
	return len(v)
}

func testTenants(t *testing.T, b *bench) {
	_, err := b.CreateTenant(b.ctx, sheaf.Tenant{ID: b.tenant, Name: "again"})
	b.is(err, sheaf.ErrConflict)
	if text := err.Error(); !strings.Contains(text, "there is a tenant "+b.tenant+" already") || strings.ContainsAny(text, "()") {
		t.Errorf("a tenant made twice: %s", text)
	}
	got, err := b.Tenant(b.ctx, b.tenant)
	b.ok(err)
	if got.Weight != 1 || got.Cap != 8 || got.CreatedAt.IsZero() || got.Name != t.Name() {
		t.Fatalf("got %+v", got)
	}
	got.Weight, got.Cap, got.Quota.Bytes, got.Name = 3, 5, 1<<40, "renamed"
	changed, err := b.ChangeTenant(b.ctx, b.tenant, taskstore.TenantChange{Weight: new(3), Cap: new(5), Bytes: new(int64(1 << 40)), Name: new("renamed")})
	b.ok(err)
	again, err := b.Tenant(b.ctx, b.tenant)
	b.ok(err)
	b.same("tenant", []any{again, changed}, []any{got, got})
	_, err = b.ChangeTenant(b.ctx, "nobody", taskstore.TenantChange{Weight: new(1)})
	b.is(err, sheaf.ErrNotFound)
	for _, c := range []taskstore.TenantChange{
		{Weight: new(0)}, {Weight: new(taskstore.MaxTenantWeight + 1)}, {Cap: new(-1)}, {Cap: new(taskstore.MaxTenantCap + 1)}, {Documents: new(-1)}, {Bytes: new(int64(-1))}, {QueuedTasks: new(-1)},
		{Name: new("a\x00b")}, {Name: new(strings.Repeat("n", 256))}, {Weight: new(9), Cap: new(-1)},
	} {
		_, err := b.ChangeTenant(b.ctx, b.tenant, c)
		b.is(err, sheaf.ErrInvalid)
	}
	// Concurrent changes of different fields do not undo each other.
	var wg sync.WaitGroup
	for _, c := range []taskstore.TenantChange{{Weight: new(7)}, {Cap: new(6)}, {Documents: new(5)}, {Bytes: new(int64(4))}, {QueuedTasks: new(3)}, {Name: new("once")}} {
		wg.Go(func() {
			if _, err := b.ChangeTenant(b.ctx, b.tenant, c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	again, err = b.Tenant(b.ctx, b.tenant)
	b.ok(err)
	got.Weight, got.Cap, got.Quota, got.Name = 7, 6, sheaf.Quota{Documents: 5, Bytes: 4, QueuedTasks: 3}, "once"
	b.same("tenant changed by many", again, got)

	// Tenants and their queues are listed in pages, by id.
	before := taskstore.Page{Limit: 1, Cursor: b.tenant[:len(b.tenant)-1]}
	ts, _, err := b.Tenants(b.ctx, before)
	b.ok(err)
	qs, _, err := b.Queues(b.ctx, before)
	b.ok(err)
	b.same("first page", []any{len(ts), ts[0].ID, len(qs), qs[0].TenantID, qs[0].Weight, qs[0].Cap}, []any{1, b.tenant, 1, b.tenant, 7, 6})
	_, err = b.CreateTenant(b.ctx, sheaf.Tenant{ID: b.tenant + "x", Name: "next"})
	b.ok(err)
	_, next, err := b.Tenants(b.ctx, before)
	b.ok(err)
	_, nextQueue, err := b.Queues(b.ctx, before)
	b.ok(err)
	b.same("cursors", []string{next, nextQueue}, []string{b.tenant, b.tenant})
	before.Cursor = next
	ts, _, err = b.Tenants(b.ctx, before)
	b.ok(err)
	b.same("second page", ts[0].ID, b.tenant+"x")
	_, _, err = b.Queues(b.ctx, taskstore.Page{Cursor: "a\x00"})
	b.is(err, sheaf.ErrInvalid)

	k := sheaf.Key{ID: sheaf.NewID(), TenantID: b.tenant, Name: "ci", Scopes: []string{"read", "write"}}
	hash := "hash-" + k.ID
	b.ok(b.CreateKey(b.ctx, k, hash))
	b.is(b.CreateKey(b.ctx, sheaf.Key{ID: sheaf.NewID(), TenantID: b.tenant, Name: "twin"}, hash), sheaf.ErrConflict)
	b.is(b.CreateKey(b.ctx, sheaf.Key{ID: sheaf.NewID(), TenantID: "nobody"}, "h"+k.ID), sheaf.ErrNotFound)
	found, err := b.KeyByHash(b.ctx, hash)
	b.ok(err)
	b.same("scopes", found.Scopes, k.Scopes)
	_, err = b.ChangeKey(b.ctx, "nobody", k.ID, taskstore.KeyChange{Name: new("x")})
	b.is(err, sheaf.ErrNotFound)
	for _, scopes := range [][]string{{}, {"root"}, {"read", "Write"}} {
		_, err = b.ChangeKey(b.ctx, b.tenant, k.ID, taskstore.KeyChange{Scopes: scopes})
		b.is(err, sheaf.ErrInvalid)
	}
	kept, err := b.ChangeKey(b.ctx, b.tenant, k.ID, taskstore.KeyChange{Name: new("nightly")})
	b.ok(err)
	b.same("renamed key", []any{kept.Name, kept.Scopes}, []any{"nightly", k.Scopes})
	_, err = b.ChangeKey(b.ctx, b.tenant, k.ID, taskstore.KeyChange{Scopes: []string{"admin", "read", "read"}})
	b.ok(err)
	found, err = b.KeyByHash(b.ctx, hash)
	b.ok(err)
	b.same("changed key", []any{found.Name, found.Scopes}, []any{"nightly", []string{"read", "admin"}})
	b.is(b.RevokeKey(b.ctx, "nobody", k.ID), sheaf.ErrNotFound)
	b.ok(b.RevokeKey(b.ctx, b.tenant, k.ID))
	b.ok(b.RevokeKey(b.ctx, b.tenant, k.ID))
	_, err = b.KeyByHash(b.ctx, hash)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.ChangeKey(b.ctx, b.tenant, k.ID, taskstore.KeyChange{Name: new("back")})
	b.is(err, sheaf.ErrConflict)
	revoked, err := b.Key(b.ctx, b.tenant, k.ID)
	b.ok(err)
	b.same("revoked key", []any{revoked.Name, revoked.RevokedAt.IsZero()}, []any{"nightly", false})
	_, err = b.Key(b.ctx, "nobody", k.ID)
	b.is(err, sheaf.ErrNotFound)
	keys, _, err := b.Keys(b.ctx, b.tenant, taskstore.Page{})
	b.ok(err)
	if len(keys) != 1 || keys[0].RevokedAt.IsZero() {
		t.Fatalf("keys %+v", keys)
	}
	// An expired key is rejected from then on, and stays on the list.
	expiring := func(id string, in time.Duration) error {
		return b.CreateKey(b.ctx, sheaf.Key{ID: id, TenantID: b.tenant, Scopes: []string{"read"}, ExpiresAt: time.Now().Add(in).Truncate(time.Millisecond)}, "hash of "+id)
	}
	soon, later := sheaf.NewID(), sheaf.NewID()
	b.is(expiring(sheaf.NewID(), -time.Minute), sheaf.ErrInvalid)
	b.ok(expiring(later, time.Hour))
	b.ok(expiring(soon, 500*time.Millisecond))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.KeyByHash(b.ctx, "hash of "+soon); err != nil {
			b.is(err, sheaf.ErrNotFound)
			break
		} else if time.Now().After(deadline) {
			t.Fatal("a key that has expired is let in")
		}
	}
	found, err = b.KeyByHash(b.ctx, "hash of "+later)
	b.ok(err)
	if left := time.Until(found.ExpiresAt); left < 50*time.Minute || left > time.Hour {
		t.Errorf("a key of an hour expires in %s", left)
	}
	keys, _, err = b.Keys(b.ctx, b.tenant, taskstore.Page{})
	b.ok(err)
	b.same("keys, with the one that has expired", len(keys), 3)
}

func testDatasets(t *testing.T, b *bench) {
	_, err := b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: "files"})
	b.is(err, sheaf.ErrConflict)
	_, err = b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: "nobody", Name: "x"})
	b.is(err, sheaf.ErrNotFound)
	_, err = b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: strings.Repeat("x", 4096)})
	b.is(err, sheaf.ErrInvalid)
	// A dataset whose name is the other's id does not hide it.
	_, err = b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: b.dataset.ID})
	b.ok(err)
	for _, key := range []string{b.dataset.ID, "files"} {
		d, err := b.Dataset(b.ctx, b.tenant, key)
		b.ok(err)
		b.same("dataset by "+key, d.ID, b.dataset.ID)
	}
	b.live("a")
	b.create("b")
	d, err := b.CountedDataset(b.ctx, b.tenant, "files")
	b.ok(err)
	b.same("counts", []int{d.Documents, d.Chunks}, []int{2, 24})
	d, err = b.Dataset(b.ctx, b.tenant, "files")
	b.ok(err)
	b.same("what nobody asked to count", []int{d.Documents, d.Chunks}, []int{0, 0})
	tagged, err := b.TaggedDatasets(b.ctx, b.tenant, 10)
	b.ok(err)
	b.same("datasets with tag sets, before there are any", len(tagged), 0)
	d.Name, d.ParseConfig.TaskPageSize, d.ParseConfig.TagKBIDs = "Ünïcode %_'\"", sheaf.Set(22), sheaf.Set([]string{"set"})
	b.ok(b.UpdateDataset(b.ctx, *d))
	b.is(b.UpdateDataset(b.ctx, *d), sheaf.ErrStale) // d was read before the change
	b.is(b.UpdateDataset(b.ctx, sheaf.Dataset{ID: "none", TenantID: b.tenant, Name: "x", UpdatedAt: d.UpdatedAt}), sheaf.ErrNotFound)
	tagged, err = b.TaggedDatasets(b.ctx, b.tenant, 10)
	b.ok(err)
	if len(tagged) != 1 || tagged[0].ID != d.ID || !slices.Equal(tagged[0].ParseConfig.TagKBIDs.V, []string{"set"}) {
		t.Errorf("datasets with tag sets: %+v", tagged)
	}
	tagged, err = b.TaggedDatasets(b.ctx, "nobody", 10)
	b.ok(err)
	b.same("datasets with tag sets of another tenant", len(tagged), 0)
	got, err := b.Dataset(b.ctx, b.tenant, d.Name)
	b.ok(err)
	b.same("page size", got.ParseConfig.TaskPageSize.V, 22)
	b.same("attributes, before there are any", len(got.Attributes), 0)
	attributes := sheaf.Attributes{"crm.note": json.RawMessage(`"Ünïcode \u0000 %_'\""`), "crm.numbers": json.RawMessage(`[1.0,12345678901234567890,null]`)}
	got.Attributes = attributes
	b.ok(json.Unmarshal([]byte(`{"tag_kb_ids":[],"delimiter":""}`), &got.ParseConfig))
	b.ok(b.UpdateDataset(b.ctx, *got))
	tagged, err = b.TaggedDatasets(b.ctx, b.tenant, 10)
	b.ok(err)
	b.same("datasets with tag sets, when the only one has none any more", len(tagged), 0)
	got, err = b.Dataset(b.ctx, b.tenant, d.Name)
	b.ok(err)
	stored, err := json.Marshal(got.ParseConfig)
	b.ok(err)
	b.same("settings", string(stored), `{"delimiter":"","tag_kb_ids":[],"task_page_size":22}`)
	b.same("attributes", got.Attributes, attributes)
	got.Attributes = sheaf.Attributes{"crm.note": json.RawMessage(`"` + strings.Repeat("x", sheaf.MaxDatasetAttributes) + `"`)}
	b.is(b.UpdateDataset(b.ctx, *got), sheaf.ErrInvalid)
	_, err = b.CreateDataset(b.ctx, sheaf.Dataset{TenantID: b.tenant, Name: "too many attributes", Attributes: got.Attributes})
	b.is(err, sheaf.ErrInvalid)
	got.Attributes = attributes
	got.Name = b.dataset.ID
	b.is(b.UpdateDataset(b.ctx, *got), sheaf.ErrConflict)

	r, err := b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("receipt", []int{r.Documents, r.Generations, r.Chunks, int(r.Bytes)}, []int{2, 2, 24, 200})
	_, err = b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), []taskstore.NewDocument{b.newDocument("late")}, "")
	b.is(err, sheaf.ErrNotFound)
}

func testDocumentChanges(t *testing.T, b *bench) {
	_, ids := b.create("a", "b")
	change := func(name string, to sheaf.Attributes) *sheaf.Document {
		t.Helper()
		d, err := b.ChangeDocument(b.ctx, b.tenant, ids[0], name, to)
		b.ok(err)
		return d
	}
	before, err := b.Document(b.ctx, b.tenant, ids[0])
	b.ok(err)
	b.same("attributes, before there are any", len(before.Attributes), 0)
	raw := func(v string) json.RawMessage { return json.RawMessage(v) }
	d := change("", sheaf.Attributes{"crm.a": raw(`"Ünïcode \u0000 %_'\""`), "crm.b": raw(`[1.0,null]`)})
	b.same("name, which was not changed", d.Name, before.Name)
	d = change("n\u00e9w.pdf", sheaf.Attributes{"crm.b": raw("null"), "crm.c": raw("12345678901234567890")})
	b.same("name", d.Name, "n\u00e9w.pdf")
	want := sheaf.Attributes{"crm.a": raw(`"Ünïcode \u0000 %_'\""`), "crm.c": raw("12345678901234567890")}
	b.same("attributes", d.Attributes, want)
	_, err = b.ChangeDocument(b.ctx, b.tenant, ids[0], "", sheaf.Attributes{"crm.d": raw(`"` + strings.Repeat("x", sheaf.MaxDocumentAttributes) + `"`)})
	b.is(err, sheaf.ErrInvalid)
	_, err = b.ChangeDocument(b.ctx, b.tenant, "none", "x", nil)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.ChangeDocument(b.ctx, "nobody", ids[0], "x", nil)
	b.is(err, sheaf.ErrNotFound)
	// Concurrent changes all take effect.
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if _, err := b.ChangeDocument(b.ctx, b.tenant, ids[0], "", sheaf.Attributes{fmt.Sprintf("crm.at-once-%d", i): raw(fmt.Sprint(i))}); err != nil {
				t.Error(err)
			}
		})
		want[fmt.Sprintf("crm.at-once-%d", i)] = raw(fmt.Sprint(i))
	}
	all.Wait()
	list, _, err := b.Documents(b.ctx, b.tenant, taskstore.DocumentFilter{}, taskstore.Page{})
	b.ok(err)
	for _, d := range list {
		if d.ID == ids[0] {
			b.same("attributes in a list", d.Attributes, want)
		} else {
			b.same("attributes of another", len(d.Attributes), 0)
		}
	}
	_, err = b.DeleteDocuments(b.ctx, b.tenant, ids[:1])
	b.ok(err)
	_, err = b.ChangeDocument(b.ctx, b.tenant, ids[0], "x", nil)
	b.is(err, sheaf.ErrNotFound)
}

func testCreate(t *testing.T, b *bench) {
	job := b.newJob(sheaf.JobIngest)
	docs := []taskstore.NewDocument{b.newDocument("a"), b.newDocument("b")}
	docs[1].Document.Lane = sheaf.LaneInteractive
	for range 2 { // the second is a repeat
		replaced, err := b.CreateDocuments(b.ctx, job, docs, "00-trace")
		b.ok(err)
		b.same("replaced", len(replaced), 0)
	}
	id := docs[0].Document.ID
	d := b.doc(id)
	b.same("document", []any{d.State, d.Generation, d.LiveGeneration, d.Lane, d.JobID, d.Metadata["by"]}, []any{sheaf.DocQueued, 1, 0, sheaf.LaneNormal, job.ID, "test"})
	ts := b.tasks(docs[1].Document.ID, 0)
	b.same("tasks", len(ts), 1)
	b.same("plan", []any{ts[0].ID, ts[0].Kind, ts[0].State, ts[0].Lane, ts[0].Trace}, []any{docs[1].Plan.ID, sheaf.KindPlan, sheaf.TaskPending, sheaf.LaneInteractive, "00-trace"})
	evs, err := b.Events(b.ctx, b.tenant, taskstore.EventFilter{JobID: job.ID}, 0, 0)
	b.ok(err)
	b.same("events", len(evs), 2)

	_, err = b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), []taskstore.NewDocument{docs[0], docs[0]}, "")
	b.is(err, sheaf.ErrInvalid)
	other := newBench(t, b.Store)
	_, err = b.CreateDocuments(b.ctx, other.newJob(sheaf.JobIngest), []taskstore.NewDocument{docs[0]}, "")
	b.is(err, sheaf.ErrConflict)
	elsewhere, err := b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: "elsewhere"})
	b.ok(err)
	j := b.newJob(sheaf.JobIngest)
	j.DatasetID = elsewhere.ID
	_, err = b.CreateDocuments(b.ctx, j, []taskstore.NewDocument{docs[0]}, "")
	b.is(err, sheaf.ErrConflict)
	if _, err = b.Job(b.ctx, b.tenant, j.ID); !errors.Is(err, sheaf.ErrNotFound) {
		t.Fatalf("a refused upload left its job behind: %v", err)
	}

	// New bytes while the first generation is being parsed.
	b.plan(id, sheaf.Range{From: 1, To: 3})
	running := b.claim(b.task(id, sheaf.KindParse).ID)
	again := docs[0]
	again.Document.SHA256, again.Document.Size, again.Document.BlobKey, again.Plan = strings.Repeat("f", 64), 7, docs[0].Document.BlobKey+"-2", planTask()
	next := b.newJob(sheaf.JobIngest)
	for range 2 {
		replaced, err := b.CreateDocuments(b.ctx, next, []taskstore.NewDocument{again}, "")
		b.ok(err)
		b.same("replaced", replaced, []string{id})
	}
	// The first call once more, after others: what it began has ended.
	_, err = b.CreateDocuments(b.ctx, job, docs, "")
	b.ok(err)
	d = b.doc(id)
	b.same("replaced document", []any{d.Generation, d.State, d.Size, d.SHA256, d.JobID, d.Units}, []any{2, sheaf.DocQueued, int64(7), strings.Repeat("f", 64), next.ID, 0})
	old := b.tasks(id, 1)
	for _, o := range old {
		if o.Kind == sheaf.KindParse && (o.State != sheaf.TaskSuperseded || o.Epoch != running.Epoch+1) {
			t.Fatalf("old task %+v", o)
		}
	}
	b.is(b.Complete(b.ctx, running.Held(), taskstore.Completion{}), sheaf.ErrStale)
	gens, err := b.Generations(b.ctx, b.tenant, id)
	b.ok(err)
	b.same("generations", []any{len(gens), gens[0].Generation, gens[0].State, gens[1].State}, []any{2, 2, sheaf.DocQueued, sheaf.DocCanceled})
	_, more := b.create("beside.pdf")
	newest, err := b.NewestGenerations(b.ctx, b.tenant, []string{id, more[0], sheaf.NewID()})
	b.ok(err)
	b.same("newest generations", []any{len(newest), newest[id].Generation, newest[id].JobID, newest[more[0]].Generation}, []any{2, 2, next.ID, 1})

	// What was made of replaced bytes goes with them.
	was := again.Document.BlobKey
	again.Document.SHA256, again.Document.BlobKey, again.Plan = strings.Repeat("e", 64), sheaf.OriginalPrefix(b.tenant, id)+"third", planTask()
	_, err = b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), []taskstore.NewDocument{again}, "")
	b.ok(err)
	refs, err := b.References(b.ctx, nil, []string{id})
	b.ok(err)
	b.same("to be removed", slices.Compact(slices.Sorted(slices.Values(refs.Prefixes))), slices.Sorted(slices.Values([]string{was, sheaf.PlanPrefix(b.tenant, id, was)})))
}

// Held documents exist, are not processed, and can be started, canceled and deleted.
func testHold(t *testing.T, b *bench) {
	docs := make([]sheaf.Document, 3)
	for i := range docs {
		docs[i] = b.newDocument("held.pdf").Document
		docs[i].Attributes = sheaf.Attributes{"n": json.RawMessage(`1`)}
	}
	for range 2 { // repeating the call does nothing more
		b.ok(b.HoldDocuments(b.ctx, b.tenant, b.dataset.ID, docs))
	}
	id := docs[0].ID
	b.fold()
	d := b.doc(id)
	b.same("held", []any{d.State, d.Generation, d.JobID, d.Size, d.Metadata, string(d.Attributes["n"]), len(b.tasks(id, 0))},
		[]any{sheaf.DocUnstarted, 0, "", int64(100), map[string]string{"by": "test"}, "1", 0})
	_, ids := b.create("there.pdf")
	taken := b.newDocument("held.pdf").Document
	taken.ID = ids[0]
	b.is(b.HoldDocuments(b.ctx, b.tenant, b.dataset.ID, []sheaf.Document{taken}), sheaf.ErrConflict)
	b.is(b.HoldDocuments(b.ctx, b.tenant, sheaf.NewID(), docs[:1]), sheaf.ErrNotFound)

	job := b.newJob(sheaf.JobReparse)
	b.ok(b.Reparse(b.ctx, job, []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, ""))
	d = b.doc(id)
	b.same("started", []any{d.State, d.Generation, d.JobID, len(b.tasks(id, 1))}, []any{sheaf.DocQueued, 1, job.ID, 1})
	b.is(b.HoldDocuments(b.ctx, b.tenant, b.dataset.ID, docs[:1]), sheaf.ErrConflict)

	_, err := b.CancelDocuments(b.ctx, b.tenant, []string{docs[1].ID})
	b.ok(err)
	b.fold()
	b.same("canceled", b.doc(docs[1].ID).State, sheaf.DocCanceled)
	r, err := b.DeleteDocuments(b.ctx, b.tenant, []string{docs[1].ID, docs[2].ID})
	b.ok(err)
	b.same("deleted", []any{r.Documents, r.Bytes}, []any{2, int64(200)})
}

func testCreateBesideItself(t *testing.T, b *bench) {
	job, docs := b.newJob(sheaf.JobIngest), []taskstore.NewDocument{b.newDocument("a"), b.newDocument("b")}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := b.CreateDocuments(b.ctx, job, docs, ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, d := range docs {
		b.same("generation", b.doc(d.Document.ID).Generation, 1)
		b.same("tasks", len(b.tasks(d.Document.ID, 0)), 1)
	}
	reparse := b.newJob(sheaf.JobReparse)
	for range 4 {
		wg.Go(func() {
			again := []taskstore.ReparseDocument{{DocumentID: docs[0].Document.ID, Plan: planTask()}, {DocumentID: docs[1].Document.ID, Plan: planTask()}}
			if err := b.Reparse(b.ctx, reparse, again, ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: docs[0].Document.ID, Plan: planTask()}}, ""))
	b.ok(b.Reparse(b.ctx, reparse, []taskstore.ReparseDocument{{DocumentID: docs[0].Document.ID, Plan: planTask()}}, ""))
	b.same("generations", []int{b.doc(docs[0].Document.ID).Generation, b.doc(docs[1].Document.ID).Generation}, []int{3, 2})
}

func testQuota(t *testing.T, b *bench) {
	set := func(q sheaf.Quota) {
		_, err := b.ChangeTenant(b.ctx, b.tenant, taskstore.TenantChange{Documents: &q.Documents, Bytes: &q.Bytes, QueuedTasks: &q.QueuedTasks})
		b.ok(err)
	}
	submit := func(n int) error {
		var docs []taskstore.NewDocument
		for range n {
			docs = append(docs, b.newDocument("q"))
		}
		_, err := b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), docs, "")
		return err
	}
	for _, q := range []sheaf.Quota{{Documents: 2}, {Bytes: 250}, {QueuedTasks: 2}} {
		set(q)
		err := submit(3)
		b.is(err, sheaf.ErrLimit)
		f, ok := errors.AsType[*sheaf.LimitFailure](err)
		if limit := int64(q.Documents+q.QueuedTasks) + q.Bytes; !ok || f.Code != "usage_limit_exceeded" || f.Current != 0 || f.Limit != limit {
			t.Fatalf("%+v: %v", q, err)
		}
	}
	h, err := b.QuotaUsage(b.ctx, b.tenant)
	b.ok(err)
	b.same("quota usage after refusals", h, sheaf.Quota{})

	// Concurrent calls never take more than the quota.
	set(sheaf.Quota{Documents: 5})
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 8 {
		wg.Go(func() {
			err := submit(1)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, sheaf.ErrLimit) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h, err = b.QuotaUsage(b.ctx, b.tenant)
	b.ok(err)
	b.same("uploads that won, and quota usage", []any{won, h}, []any{5, sheaf.Quota{Documents: 5, Bytes: 500, QueuedTasks: 5}})
}

func testReparse(t *testing.T, b *bench) {
	_, id, ranges := b.live("a")
	b.same("visible", b.visible(ranges), 2)
	before := b.doc(id)
	job := b.newJob(sheaf.JobReparse)
	first := taskstore.ReparseDocument{DocumentID: id, ParseConfig: sheaf.ParseConfig{TaskPageSize: sheaf.Set(3)}, MediaType: "text/x-other", Plan: planTask()}
	for range 2 {
		b.ok(b.Reparse(b.ctx, job, []taskstore.ReparseDocument{first}, ""))
	}
	d := b.doc(id)
	b.same("reparsed", []any{d.Generation, d.LiveGeneration, d.State, d.Progress, d.Chunks, d.Units, d.ParseConfig.TaskPageSize.V, d.MediaType, d.FinishedAt.IsZero()},
		[]any{2, 1, sheaf.DocQueued, 0.0, before.Chunks, 12, 3, "text/x-other", true})
	b.same("still visible", b.visible(ranges), 2)

	b.plan(id, sheaf.Range{From: 1, To: 12})
	running := b.claim(b.task(id, sheaf.KindParse).ID)
	garbage := b.garbageOf(id)
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, ""))
	b.is(b.AppendEvents(b.ctx, running.Held(), []sheaf.Event{{Kind: sheaf.EventMessage}}), sheaf.ErrStale)
	b.AdvanceClock(3 * time.Minute)
	if got := b.garbageOf(id); len(got) != len(garbage)+1 || !slices.ContainsFunc(got, func(g taskstore.Garbage) bool {
		return g.RangeID == sheaf.RangeID(running.ID, running.Epoch) && g.ArtifactKey != ""
	}) {
		t.Fatalf("what the superseded attempt wrote is not garbage: %+v", got)
	}
	old, err := b.Job(b.ctx, b.tenant, job.ID)
	b.ok(err)
	b.same("superseded job", old.State, sheaf.DocCanceled)
	ended, err := b.JobEnded(b.ctx, b.tenant, job.ID)
	b.ok(err)
	b.same("the superseded job ended", ended, true)

	b.plan(id, sheaf.Range{From: 1, To: 12})
	newRanges := b.parse(id)
	b.same("not yet published", b.visible(newRanges), 0)
	b.publish(id, taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 24})
	b.same("published", []int{b.visible(newRanges), b.visible(ranges)}, []int{1, 0})
	b.is(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: sheaf.NewID(), Plan: planTask()}}, ""), sheaf.ErrNotFound)
}

// A superseded generation had finished a range. When the next one fails, no
// generation lists that range; the live one and the failed one keep theirs.
func testFailedFrees(t *testing.T, b *bench) {
	for _, end := range []string{"plan", "publish"} {
		_, id, live := b.live(end)
		again := func() {
			b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, ""))
		}
		again()
		b.plan(id, sheaf.Range{From: 1, To: 12})
		superseded := b.parse(id)
		again()
		failure := sheaf.Fail(sheaf.CategoryBadInput, "invalid_pdf", "not a PDF")
		var failed []string
		if end == "plan" {
			_, err := b.FailTask(b.ctx, b.claim(b.task(id, sheaf.KindPlan).ID).Held(), taskstore.FailReport{Failure: *failure})
			b.ok(err)
			b.fold()
		} else {
			b.plan(id, sheaf.Range{From: 1, To: 12})
			failed = b.parse(id)
			b.publish(id, taskstore.Publication{State: sheaf.DocFailed, Failure: failure})
		}
		b.same(end+": state", b.doc(id).State, sheaf.DocFailed)
		b.same(end+": what is live", b.visible(live), len(live))
		b.AdvanceClock(3 * time.Minute)
		due := map[string]bool{}
		for _, g := range b.garbageOf(id) {
			due[g.RangeID] = true
		}
		b.same(end+": superseded ranges are garbage", due[superseded[0]], true)
		for _, r := range append(live, failed...) {
			b.same(end+": range "+r+" is garbage", due[r], false)
		}
	}
}

// garbageOf lists the document's garbage that is due for collection.
func (b *bench) garbageOf(id string) []taskstore.Garbage {
	b.t.Helper()
	all, err := b.Garbage(b.ctx, 10_000)
	b.ok(err)
	return slices.DeleteFunc(all, func(g taskstore.Garbage) bool { return g.DocumentID != id })
}

func testCancel(t *testing.T, b *bench) {
	_, done, ranges := b.live("done")
	_, ids := b.create("queued", "running")
	b.plan(ids[1], sheaf.Range{From: 1, To: 2}, sheaf.Range{From: 3, To: 4}, sheaf.Range{From: 5, To: 6})
	var held *sheaf.Task
	for _, x := range b.tasks(ids[1], 0) {
		if x.Kind == sheaf.KindParse && held == nil {
			held = b.claim(x.ID)
		}
	}
	b.fold()
	r, err := b.CancelDocuments(b.ctx, b.tenant, append(ids, done))
	b.ok(err)
	b.same("receipt", r, taskstore.CancelReceipt{Documents: 2, Queued: 3, Running: 1, RunningTasks: []string{held.ID}})
	b.same("states", []any{b.doc(ids[0]).State, b.doc(ids[1]).State, b.doc(done).State}, []any{sheaf.DocCanceling, sheaf.DocCanceling, sheaf.DocSucceeded})
	again, err := b.CancelDocuments(b.ctx, b.tenant, ids)
	b.ok(err)
	b.same("again", again, taskstore.CancelReceipt{RunningTasks: []string{held.ID}})
	for _, x := range b.tasks(ids[1], 0) {
		if x.State == sheaf.TaskCanceled {
			if _, err := b.Claim(b.ctx, x.ID, "w", time.Minute); !errors.Is(err, sheaf.ErrConflict) {
				t.Fatalf("a canceled task was claimed: %v", err)
			}
			if x.Epoch != 1 {
				t.Fatalf("epoch %d of a canceled task, want 1", x.Epoch)
			}
		}
	}
	b.fold()
	b.same("with a task running", []any{b.doc(ids[0]).State, b.doc(ids[1]).State}, []any{sheaf.DocCanceled, sheaf.DocCanceling})
	_, err = b.FailTask(b.ctx, held.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCanceled, "canceled", "stopped")})
	b.ok(err)
	b.fold()
	b.same("at the end", b.doc(ids[1]).State, sheaf.DocCanceled)
	b.same("what is live", b.visible(ranges), 2)

	// A document in finalization can be canceled until it is published.
	_, ids = b.create("late")
	b.plan(ids[0], sheaf.Range{From: 1, To: 1})
	b.parse(ids[0])
	b.fold()
	b.same("finalizing", b.doc(ids[0]).State, sheaf.DocFinalizing)
	fin := b.claim(b.task(ids[0], sheaf.KindFinalize).ID)
	_, err = b.CancelDocuments(b.ctx, b.tenant, ids)
	b.ok(err)
	b.is(b.Complete(b.ctx, fin.Held(), taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocSucceeded}}), sheaf.ErrStale)
	state, err := b.FailTask(b.ctx, fin.Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable(sheaf.CategoryCanceled, "canceled", "not published")})
	b.ok(err)
	b.same("what became of its task", state, sheaf.TaskCanceled)
	b.fold()
	b.same("what became of it", b.doc(ids[0]).State, sheaf.DocCanceled)
	_, err = b.CancelDocuments(b.ctx, b.tenant, []string{sheaf.NewID()})
	b.is(err, sheaf.ErrNotFound)
}

func testDelete(t *testing.T, b *bench) {
	jobID, id, ranges := b.live("a")
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, ""))
	held := b.claim(b.task(id, sheaf.KindPlan).ID)
	r, err := b.DeleteDocuments(b.ctx, b.tenant, []string{id, id})
	b.ok(err)
	if r.ReceiptID == "" {
		t.Fatal("the deletion has no receipt")
	}
	r.ReceiptID = ""
	b.same("receipt", r, taskstore.DeleteReceipt{Documents: 1, Generations: 2, Tasks: 5, Chunks: 24, Bytes: 100, DocumentIDs: []string{id}, RunningTasks: []string{held.ID}})
	r, err = b.DeleteDocuments(b.ctx, b.tenant, []string{id})
	b.ok(err)
	b.same("again", r, taskstore.DeleteReceipt{})
	b.is(b.Complete(b.ctx, held.Held(), taskstore.Completion{}), sheaf.ErrStale)
	_, err = b.Document(b.ctx, b.tenant, id)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.Task(b.ctx, b.tenant, held.ID)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.UnitLedger(b.ctx, b.tenant, id, 0)
	b.is(err, sheaf.ErrNotFound)
	b.same("visible", b.visible(ranges), 0)
	list, _, err := b.Documents(b.ctx, b.tenant, taskstore.DocumentFilter{}, taskstore.Page{})
	b.ok(err)
	docs, _, err := b.JobDocuments(b.ctx, b.tenant, jobID, taskstore.Page{})
	b.ok(err)
	evs, err := b.Events(b.ctx, b.tenant, taskstore.EventFilter{}, 0, 0)
	b.ok(err)
	h, err := b.QuotaUsage(b.ctx, b.tenant)
	b.ok(err)
	b.same("left to see", []any{len(list), len(docs), len(evs), h}, []any{0, 0, 0, sheaf.Quota{}})
	b.is(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, ""), sheaf.ErrNotFound)
	d := b.newDocument("a")
	d.Document.ID = id
	_, err = b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), []taskstore.NewDocument{d}, "")
	b.is(err, sheaf.ErrConflict)

	want := []string{"", sheaf.ArtifactPrefix(b.tenant, id), sheaf.OriginalPrefix(b.tenant, id)}
	prefixes := func() (out []string) {
		for _, g := range b.garbageOf(id) {
			if g.RangeID == "" {
				out = append(out, g.BlobPrefix)
			}
		}
		slices.Sort(out)
		return out
	}
	b.same("garbage now", prefixes(), want)
	b.AdvanceClock(4 * time.Minute)
	b.same("garbage later", prefixes(), []string{want[0], want[0], want[1], want[1], want[2], want[2]})
}

// stages compares total, done, failed and reused of a job's stages with want.
func (b *bench) stages(j *sheaf.Job, when string, want [4][4]int) {
	b.t.Helper()
	var names []string
	var got [4][4]int
	for i, s := range j.Stages {
		names = append(names, s.Name)
		got[i] = [4]int{s.Total, s.Done, s.Failed, s.Reused}
	}
	b.same("names of stages", names, []string{"parse", "chunk", "embed", "index"})
	b.same("total, done, failed and reused of stages, "+when, got, want)
}

// Each stage has its own counts: the progress of a running task, where one failed,
// what a copied result did not repeat. A canceled task is not a failure.
func testJobStages(t *testing.T, b *bench) {
	job, ids := b.create("a")
	b.plan(ids[0], sheaf.Range{From: 1, To: 1}, sheaf.Range{From: 2, To: 3}, sheaf.Range{From: 4, To: 7}, sheaf.Range{From: 8, To: 15}, sheaf.Range{From: 16, To: 31}, sheaf.Range{From: 32, To: 41})
	b.fold()
	check := func(when string, want [4][4]int) {
		t.Helper()
		j, err := b.Job(b.ctx, b.tenant, job)
		b.ok(err)
		b.stages(j, when, want)
	}
	check("planned", [4][4]int{{41, 0, 0, 0}, {41, 0, 0, 0}, {41, 0, 0, 0}, {41, 0, 0, 0}})
	var ranges []sheaf.Task
	for _, x := range b.tasks(ids[0], 0) {
		if x.Kind == sheaf.KindParse {
			ranges = append(ranges, x)
		}
	}
	slices.SortFunc(ranges, func(x, y sheaf.Task) int { return x.Range.From - y.Range.From })
	for i, phase := range []string{"fetch", "chunk", "tag", "artifact"} {
		held := b.claim(ranges[i].ID)
		failure := *sheaf.Fail(sheaf.CategoryBadInput, "page_broken", "send it again")
		failure.Phase = phase
		_, err := b.FailTask(b.ctx, held.Held(), taskstore.FailReport{Failure: failure})
		b.ok(err)
	}
	held := b.claim(ranges[4].ID)
	b.ok(b.AppendEvents(b.ctx, held.Held(), []sheaf.Event{
		{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":8,"total":16}`)},
		{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"embed","done":4,"total":16}`)},
	}))
	check("one embeds", [4][4]int{{41, 14 + 16, 1, 0}, {41, 12 + 16, 2, 0}, {41, 8 + 4, 4, 0}, {41, 0, 8, 0}})
	b.ok(b.Complete(b.ctx, held.Held(), taskstore.Completion{Result: b.result(held)}))
	_, err := b.CancelTask(b.ctx, b.tenant, ranges[5].ID, false)
	b.ok(err)
	check("the last is canceled", [4][4]int{{41, 14 + 16, 1, 0}, {41, 12 + 16, 2, 0}, {41, 8 + 16, 4, 0}, {41, 16, 8, 0}})
	page, _, err := b.JobErrors(b.ctx, b.tenant, job, taskstore.Page{})
	b.ok(err)
	b.same("failures", len(page), 4)

	// Copies of stored results: one unchanged, one embedded again, and one that had to
	// be parsed after all.
	job, ids = b.create("b")
	plan := b.claim(b.task(ids[0], sheaf.KindPlan).ID)
	c := taskstore.Completion{Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 7}}
	var copies []string
	for i, r := range []sheaf.Range{{From: 1, To: 1}, {From: 2, To: 3}, {From: 4, To: 7}} {
		copies = append(copies, sheaf.NewID())
		c.Spawn = append(c.Spawn, sheaf.NewTask{ID: copies[i], Kind: sheaf.KindIndex, Unit: sheaf.UnitPage, Range: r, Cost: r.Len()})
	}
	b.ok(b.Complete(b.ctx, plan.Held(), c))
	b.fold()
	for i, ran := range [][]string{{"fetch", "index"}, {"fetch", "embed", "index"}, {"fetch", "parse", "chunk", "embed", "index"}} {
		held := b.claim(copies[i])
		r := b.result(held)
		for _, name := range ran {
			r.Stages = append(r.Stages, sheaf.StageTime{Name: name, MS: 1})
		}
		b.ok(b.Complete(b.ctx, held.Held(), taskstore.Completion{Result: r}))
	}
	check("copied", [4][4]int{{7, 7, 0, 1 + 2}, {7, 7, 0, 1 + 2}, {7, 7, 0, 1}, {7, 7, 0, 0}})

	// Unreadable pages count as failed, though their task is done, and those of a dead
	// task count once.
	job, ids = b.create("c")
	b.plan(ids[0], sheaf.Range{From: 1, To: 10}, sheaf.Range{From: 11, To: 14})
	b.fold()
	for _, x := range b.tasks(ids[0], 0) {
		if x.Kind != sheaf.KindParse {
			continue
		}
		held := b.claim(x.ID)
		if x.Range.From == 1 {
			b.ok(b.Complete(b.ctx, held.Held(), taskstore.Completion{Result: b.result(held)}))
			continue
		}
		failure := *sheaf.Fail(sheaf.CategoryBadInput, "page_broken", "send it again")
		failure.Phase = "fetch"
		_, err := b.FailTask(b.ctx, held.Held(), taskstore.FailReport{Failure: failure})
		b.ok(err)
	}
	b.publish(ids[0], taskstore.Publication{State: sheaf.DocPartiallySucceeded, Ledger: sheaf.LedgerCounts{OK: 8, Failed: 2 + 4}})
	check("two pages could not be read", [4][4]int{{14, 8, 2 + 4, 0}, {14, 8, 0, 0}, {14, 8, 0, 0}, {14, 8, 0, 0}})
}

func testJob(t *testing.T, b *bench) {
	job, ids := b.create("a", "b", "c", "d")
	get := func() *sheaf.Job {
		t.Helper()
		j, err := b.Job(b.ctx, b.tenant, job)
		b.ok(err)
		ended, err := b.JobEnded(b.ctx, b.tenant, job)
		b.ok(err)
		b.same("ended", ended, j.State.Terminal())
		return j
	}
	j := get()
	b.same("queued", []any{j.State, j.Progress, j.Documents.Total, j.Documents.ByState[sheaf.DocQueued], j.Statistics.New}, []any{sheaf.DocQueued, 0.0, 4, 4, 4})
	b.plan(ids[0], sheaf.Range{From: 1, To: 10})
	b.plan(ids[1], sheaf.Range{From: 1, To: 20}, sheaf.Range{From: 21, To: 30})
	b.fold()
	held := b.claim(b.task(ids[0], sheaf.KindParse).ID)
	b.ok(b.AppendEvents(b.ctx, held.Held(), []sheaf.Event{
		{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":2,"total":10}`)},
		{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":5,"total":10}`)},
	}))
	j = get()
	b.same("running", []any{j.State, j.Stages[0].Name, j.Stages[0].Total, j.Stages[0].Done, j.Stages[1].Done}, []any{sheaf.DocRunning, "parse", 40, 5, 0})

	b.ok(b.Complete(b.ctx, held.Held(), taskstore.Completion{Result: b.result(held)}))
	b.publish(ids[0], taskstore.Publication{State: sheaf.DocSucceeded})
	reused := b.claim(b.tasks(ids[1], 0)[1].ID)
	r := b.result(reused)
	r.Reused = true
	b.ok(b.Complete(b.ctx, reused.Held(), taskstore.Completion{Result: r}))
	dead := b.claim(b.tasks(ids[1], 0)[2].ID)
	_, err := b.FailTask(b.ctx, dead.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryBadInput, "pdf_broken", "send it again")})
	b.ok(err)
	b.publish(ids[1], taskstore.Publication{State: sheaf.DocPartiallySucceeded})
	plan := b.claim(b.task(ids[2], sheaf.KindPlan).ID)
	_, err = b.FailTask(b.ctx, plan.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "send the password")})
	b.ok(err)
	b.fold()
	j = get()
	b.same("nearly", []any{j.State, j.Documents.ByState, j.Statistics.Failed, j.FinishedAt.IsZero()}, []any{sheaf.DocRunning, map[sheaf.DocumentState]int{
		sheaf.DocSucceeded: 1, sheaf.DocPartiallySucceeded: 1, sheaf.DocFailed: 1, sheaf.DocQueued: 1}, 1, true})
	// Weights: 10 and 30 pages, and 1 per document without a range.
	if want := 41.0 / 42; j.Progress < want-1e-9 || j.Progress > want+1e-9 {
		t.Fatalf("progress %v, want %v", j.Progress, want)
	}
	_, err = b.CancelDocuments(b.ctx, b.tenant, ids[3:])
	b.ok(err)
	b.fold()
	j = get()
	b.same("over", []any{j.State, j.Progress, j.FinishedAt.IsZero(), j.StartedAt.IsZero()}, []any{sheaf.DocPartiallySucceeded, 1.0, false, false})
	b.same("usage", j.Usage, sheaf.Usage{Pages: 10, Tokens: 100, EmbeddedTokens: 90, Bytes: 5_000_000_000})
	b.same("reused", j.Reused, sheaf.Reused{Ranges: 1, Pages: 20, Chunks: 40, Tokens: 200})
	b.stages(j, "over", [4][4]int{{40, 30, 10, 20}, {40, 30, 0, 20}, {40, 30, 0, 20}, {40, 30, 0, 0}})

	_, err = b.CreateDocuments(b.ctx, sheaf.Job{ID: job, TenantID: "nobody", DatasetID: b.dataset.ID}, []taskstore.NewDocument{b.newDocument("x")}, "")
	b.is(err, sheaf.ErrNotFound)
	// Re-parsing one document leaves the old job unchanged.
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: ids[0], Plan: planTask()}}, ""))
	b.same("state of the old job", get().State, sheaf.DocPartiallySucceeded)
}

func testJobErrors(t *testing.T, b *bench) {
	job, ids := b.create("a", "b", "fine")
	f := *sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "send the password")
	_, err := b.FailTask(b.ctx, b.claim(b.task(ids[0], sheaf.KindPlan).ID).Held(), taskstore.FailReport{Failure: f})
	b.ok(err)
	b.plan(ids[1], sheaf.Range{From: 1, To: 5}, sheaf.Range{From: 6, To: 9})
	ts := b.tasks(ids[1], 0)
	bad := b.claim(ts[1].ID)
	r := b.result(bad)
	r.Ledger = sheaf.Ledger{{From: 1, To: 2, Status: sheaf.UnitOK}, {From: 3, To: 3, Status: sheaf.UnitFailed, Code: "parser_timeout", Message: "too slow"}, {From: 4, To: 5, Status: sheaf.UnitOK}}
	b.ok(b.Complete(b.ctx, bad.Held(), taskstore.Completion{Result: r}))
	_, err = b.FailTask(b.ctx, b.claim(ts[2].ID).Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "it crashed")})
	b.ok(err)
	b.publish(ids[1], taskstore.Publication{State: sheaf.DocPartiallySucceeded})

	var got []string
	for _, limit := range []int{1, 2, 50} {
		got = nil
		for p := (taskstore.Page{Limit: limit, Ascending: true}); ; {
			errs, next, err := b.JobErrors(b.ctx, b.tenant, job, p)
			b.ok(err)
			for _, e := range errs {
				got = append(got, fmt.Sprint(e.Document, " ", e.TaskID != "", " ", e.Failure.Code, " ", e.Failure.Page, " ", e.Failure.Category))
			}
			if next == "" {
				break
			}
			p.Cursor = next
		}
		b.same(fmt.Sprintf("errors by %d", limit), got, []string{"a false encrypted 0 encrypted", "a true encrypted 0 encrypted",
			"b true parser_crash 0 parser_crash", "b true parser_timeout 3 timeout"})
	}
}

func testPause(t *testing.T, b *bench) {
	job, ids := b.create("a", "b")
	claimable := func(id string) bool {
		_, err := b.Claim(b.ctx, id, "w", time.Minute)
		if err != nil && !errors.Is(err, sheaf.ErrConflict) {
			t.Fatal(err)
		}
		return err == nil
	}
	_, err := b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{}, true)
	b.is(err, sheaf.ErrInvalid)
	_, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{JobID: job, Tenant: true}, true)
	b.is(err, sheaf.ErrInvalid)
	held := b.claim(b.task(ids[0], sheaf.KindPlan).ID)
	for _, want := range []int{1, 0} {
		n, err := b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{JobID: job}, true)
		b.ok(err)
		b.same("held", n, want)
	}
	_, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{Tenant: true}, true)
	b.ok(err)
	b.ok(b.Complete(b.ctx, held.Held(), taskstore.Completion{Plan: &sheaf.PlanResult{Units: 1}, Spawn: []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindParse, Range: sheaf.Range{From: 1, To: 1}}}}))
	parse := b.task(ids[0], sheaf.KindParse).ID
	if claimable(parse) {
		t.Fatal("a task spawned by a paused job was claimed")
	}
	n, err := b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{Tenant: true}, false)
	b.ok(err)
	b.same("freed while the job is paused", n, 0)
	j, err := b.Job(b.ctx, b.tenant, job)
	b.ok(err)
	b.same("paused", j.Paused, true)
	n, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{JobID: job}, false)
	b.ok(err)
	b.same("freed", n, 2)
	if !claimable(parse) {
		t.Fatal("a freed task could not be claimed")
	}

	// A job submitted to a paused dataset resumes with the dataset.
	_, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{DatasetID: b.dataset.ID}, true)
	b.ok(err)
	late := b.newJob(sheaf.JobIngest)
	late.Paused = true
	d := b.newDocument("late")
	_, err = b.CreateDocuments(b.ctx, late, []taskstore.NewDocument{d}, "")
	b.ok(err)
	if claimable(d.Plan.ID) {
		t.Fatal("a task of a paused dataset was claimed")
	}
	_, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{DatasetID: b.dataset.ID}, false)
	b.ok(err)
	if !claimable(d.Plan.ID) {
		t.Fatal("a job of a dataset that goes on is still held")
	}
}

// testSpeedByType: a job's time is judged by what is like it: by documents of its types
// until some of its own tasks have ended, and by these from then on.
func testSpeedByType(t *testing.T, b *bench) {
	create := func(mediaType string, tasks int) (jobID, docID string) {
		job := b.newJob(sheaf.JobIngest)
		d := b.newDocument(sheaf.NewID())
		d.Document.MediaType = mediaType
		_, err := b.CreateDocuments(b.ctx, job, []taskstore.NewDocument{d}, "")
		b.ok(err)
		if tasks > 0 {
			var ranges []sheaf.Range
			for i := range tasks {
				ranges = append(ranges, sheaf.Range{From: i*10 + 1, To: i*10 + 10})
			}
			b.plan(d.Document.ID, ranges...)
		}
		return job.ID, d.Document.ID
	}
	// run ends tasks of ten pages that take as long as given.
	run := func(docID string, n int, took time.Duration) {
		for _, task := range b.tasks(docID, 0) {
			if n > 0 && task.Kind == sheaf.KindParse && task.State == sheaf.TaskPending {
				c := b.claim(task.ID)
				b.AdvanceClock(took)
				b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Result: b.result(c)}))
				n--
			}
		}
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want*.9 || got > want*1.1 {
			t.Errorf("%s: %.3g cost a second, want %.3g", what, got, want)
		}
	}
	remaining := func(jobID string) taskstore.Remaining {
		t.Helper()
		r, err := b.Remaining(b.ctx, b.tenant, jobID)
		b.ok(err)
		return r
	}
	own := b.tenant + "/" // types of this test alone: engines are shared
	slow, fast, other := own+"scan", own+"message", own+"sheet"
	_, scan := create(slow, 3)
	run(scan, 3, 100*time.Second)
	_, message := create(fast, 3)
	run(message, 3, time.Second)

	scans, doc := create(slow, 6)
	near("scans, by scans before them", remaining(scans).Like.PerSecond, .1)
	messages, _ := create(fast, 2)
	near("messages, by messages before them", remaining(messages).Like.PerSecond, 10)
	unplanned, _ := create(fast, 0)
	if r := remaining(unplanned); r.UnplannedCost != 30 {
		t.Errorf("a message that is not planned costs %d, those before it had 30 pages", r.UnplannedCost)
	}
	unknown, _ := create(other, 2)
	if r := remaining(unknown); r.Like.PerSecond != 0 || r.All.PerSecond == 0 {
		t.Errorf("nothing like a sheet has been measured, and %+v", r)
	}
	run(doc, 4, time.Second)
	near("scans that are as fast as messages, once it shows", remaining(scans).Like.PerSecond, 10)

	speeds, err := b.Speed(b.ctx)
	b.ok(err)
	for mediaType, want := range map[string]float64{slow: 70. / 304, fast: 10, other: 0} {
		near(mediaType, speeds[mediaType].PerSecond, want)
	}
}

func testRemaining(t *testing.T, b *bench) {
	_, first := b.create("first")
	b.plan(first[0], sheaf.Range{From: 1, To: 7})
	b.AdvanceClock(time.Second)
	job, ids := b.create("a", "b")
	b.plan(ids[0], sheaf.Range{From: 1, To: 10})
	r, err := b.Remaining(b.ctx, b.tenant, job)
	b.ok(err)
	b.same("remaining", []int{r.Own, r.Tasks, r.Unplanned, r.UnplannedCost, r.AheadOwn}, []int{10, 2, 1, 10, 1}) // the other document is like the first
	other := newBench(t, b.Store)
	queued, running, err := b.OpenTasks(b.ctx, b.tenant, ids)
	b.ok(err)
	b.same("what a cancel would stop", []int{queued, running}, []int{2, 0})
	queued, running, err = b.OpenTasks(b.ctx, other.tenant, ids)
	b.ok(err)
	b.same("what another tenant's would", []int{queued, running}, []int{0, 0})
	other.create("x", "y")
	more, err := b.Remaining(b.ctx, b.tenant, job)
	b.ok(err)
	b.same("what others brought", []int{more.AheadOthers - r.AheadOthers, more.AheadOwn}, []int{2, 1})
	if more.AheadCost <= r.AheadCost {
		t.Fatalf("cost ahead %d, was %d before others came", more.AheadCost, r.AheadCost)
	}
	b.parse(first[0])
	more, err = b.Remaining(b.ctx, b.tenant, job)
	b.ok(err)
	if more.All.PerSecond <= 0 || more.Like.PerSecond <= 0 || more.Like.Tasks < 1 || more.AheadOwn != 0 {
		t.Fatalf("after a task was measured: %+v", more)
	}
	fresh, _ := b.create("u", "v", "w") // nothing of it is planned: the estimate uses the tenant's measurements
	unplanned, err := b.Remaining(b.ctx, b.tenant, fresh)
	b.ok(err)
	b.same("unplanned", []int{unplanned.Unplanned, unplanned.UnplannedCost}, []int{3, 21})
	unknown, _ := other.create("z")
	unplanned, err = other.Remaining(b.ctx, other.tenant, unknown)
	b.ok(err)
	b.same("unplanned, of a tenant of which nothing was measured", []int{unplanned.Unplanned, unplanned.UnplannedCost}, []int{1, 0})
	speeds, err := b.Speed(b.ctx)
	b.ok(err)
	if speed := speeds[""]; speed.PerSecond <= 0 || speed.Variation < 0 || speed.Tasks < 1 {
		t.Fatalf("speed %+v", speed)
	}
	// Postponed work says why, and until when.
	if more.Delayed != nil {
		t.Fatalf("nothing was put off, and yet %+v", more.Delayed)
	}
	for _, task := range b.tasks(ids[1], 0) {
		b.ok(b.Snooze(b.ctx, b.claim(task.ID).Held(), 8*time.Second, sheaf.Failure{Message: "the embedder asks to wait"}))
		next := b.tasks(ids[1], 0)[0].RunAt
		more, err = b.Remaining(b.ctx, b.tenant, job)
		b.ok(err)
		if more.Delayed == nil || more.Delayed.Reason != "the embedder asks to wait" || !more.Delayed.NextAt.Equal(next) {
			t.Fatalf("put off: %+v, next try at %v", more.Delayed, next)
		}
		if !more.Stalled {
			t.Fatal("nothing runs, and what was put off waits for a server: that is not told")
		}
	}
	for _, task := range b.tasks(ids[0], 0) {
		if task.State == sheaf.TaskPending {
			held := b.claim(task.ID).Held()
			more, err = b.Remaining(b.ctx, b.tenant, job)
			b.ok(err)
			b.same("stalled while a task runs", more.Stalled, false)
			b.ok(b.Release(b.ctx, held))
			break
		}
	}
	// A task of 10 s, a tenth of it spent on vectors.
	for _, task := range b.tasks(ids[0], 0) {
		if task.Kind == sheaf.KindParse {
			c := b.claim(task.ID)
			b.AdvanceClock(10 * time.Second)
			r := b.result(c)
			r.Stages = []sheaf.StageTime{{Name: "parse", MS: 8000}, {Name: "embed", StartMS: 8000, MS: 1000}}
			b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Result: r}))
		}
	}
	speed := func(stages ...string) taskstore.Pace {
		speeds, err := b.Speed(b.ctx, stages...)
		b.ok(err)
		return speeds[""]
	}
	whole, vectors, both := speed(), speed("embed", "index"), speed("parse", "embed")
	times, err := b.StageTimes(b.ctx, b.tenant)
	b.ok(err)
	if times["parse"] != 8*time.Second || times["embed"] != time.Second || times["finalize"] != 0 {
		t.Errorf("stages took %v", times)
	}
	if times, err = other.StageTimes(b.ctx, other.tenant); err != nil || len(times) > 0 {
		t.Errorf("stages of another tenant took %v, %v", times, err)
	}
	if whole.PerSecond >= both.PerSecond || both.PerSecond >= vectors.PerSecond || vectors.PerSecond > 12*whole.PerSecond {
		t.Fatalf("speed %+v, of parsing and vectors %+v, of vectors %+v", whole, both, vectors)
	}
}

func testIdempotency(t *testing.T, b *bench) {
	const lease = 10 * time.Second
	try := func(key string) taskstore.KeyedRequest {
		return taskstore.KeyedRequest{TenantID: b.tenant, Key: key, Hash: "h", Holder: sheaf.NewID()}
	}
	begin := func(r taskstore.KeyedRequest) taskstore.KeyedState {
		b.t.Helper()
		k, err := b.Idempotent(b.ctx, r, lease)
		b.ok(err)
		return k
	}
	// race lets six attempts claim one key and returns the only one that gets it.
	race := func(key string) (holder taskstore.KeyedRequest, since time.Time) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		held := 0
		for range 6 {
			wg.Go(func() {
				r := try(key)
				k, err := b.Idempotent(b.ctx, r, lease)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || k.Answer != nil {
					t.Errorf("answer %q, %v", k.Answer, err)
				}
				if k.Held {
					held++
					holder, since = r, k.Since
				}
			})
		}
		wg.Wait()
		b.same("holders", held, 1)
		return holder, since
	}
	first, since := race("k")
	b.same("the holder asks again", begin(first).Held, true)
	other := try("k")
	other.Hash = "other"
	_, err := b.Idempotent(b.ctx, other, lease)
	b.is(err, sheaf.ErrConflict)

	// A silent holder loses the key, once, and one that renews does not.
	b.AdvanceClock(lease - time.Second)
	b.ok(b.RenewIdempotent(b.ctx, first, lease))
	b.AdvanceClock(lease - time.Second)
	b.same("while it renews", begin(try("k")).Held, false)
	b.AdvanceClock(2 * time.Second)
	second, again := race("k")
	b.same("the first use", again, since)
	b.is(b.RenewIdempotent(b.ctx, first, lease), sheaf.ErrStale)
	b.is(b.FinishIdempotent(b.ctx, first, []byte("{}")), sheaf.ErrStale)
	b.is(b.LeaveIdempotent(b.ctx, first), sheaf.ErrStale)
	b.same("a late leave takes it from nobody", begin(try("k")).Held, false)

	// The body that an attempt read is bound to the key from then on.
	b.is(b.ReadIdempotent(b.ctx, first, "body"), sheaf.ErrStale)
	b.ok(b.ReadIdempotent(b.ctx, second, "body"))
	b.ok(b.ReadIdempotent(b.ctx, second, "body"))
	b.is(b.ReadIdempotent(b.ctx, second, "another"), sheaf.ErrConflict)
	b.ok(b.LeaveIdempotent(b.ctx, second))
	second = try("k")
	taken := begin(second)
	b.same("what the next try is told of the body", []any{taken.Held, taken.Body}, []any{true, "body"})
	b.is(b.ReadIdempotent(b.ctx, second, "another"), sheaf.ErrConflict)
	b.ok(b.ReadIdempotent(b.ctx, second, "body"))

	b.ok(b.FinishIdempotent(b.ctx, second, []byte(`{"a":"ü"}`)))
	b.is(b.ReadIdempotent(b.ctx, second, "body"), sheaf.ErrStale)
	b.is(b.LeaveIdempotent(b.ctx, second), sheaf.ErrStale) // an answer stays
	b.AdvanceClock(time.Hour)
	k := begin(try("k"))
	b.same("stored", []any{k.Held, string(k.Answer), k.Body}, []any{false, `{"a":"ü"}`, "body"})
	upgraded := try("k") // as the previous version hashed it
	upgraded.Hash, upgraded.Former = "new", "h"
	b.same("of the version before", string(begin(upgraded).Answer), `{"a":"ü"}`)
	foreign := try("k")
	foreign.TenantID = "another"
	b.same("of another tenant", begin(foreign).Held, true)

	left := try("left")
	b.same("new", begin(left).Held, true)
	b.ok(b.LeaveIdempotent(b.ctx, left))
	race("left")
	_, err = b.Idempotent(b.ctx, try(strings.Repeat("k", 129)), lease)
	b.is(err, sheaf.ErrInvalid)
	b.AdvanceClock(25 * time.Hour)
	k = begin(try("k"))
	b.same("a day later", []any{k.Held, k.Since.After(since)}, []any{true, true})
}

func testPages(t *testing.T, b *bench) {
	job, want := b.create(slices.Repeat([]string{"p"}, 23)...)
	for _, asc := range []bool{false, true} {
		var got []string
		p := taskstore.Page{Limit: 5, Ascending: asc}
		for pages := 0; ; pages++ {
			docs, next, err := b.Documents(b.ctx, b.tenant, taskstore.DocumentFilter{DatasetID: b.dataset.ID}, p)
			b.ok(err)
			for _, d := range docs {
				got = append(got, d.ID)
			}
			if !asc {
				b.create("meanwhile") // newer than everything listed
			}
			if next == "" || pages > 20 {
				break
			}
			p.Cursor = next
		}
		if !asc {
			slices.Reverse(got)
		}
		b.same("pages", got[:23], want)
	}
	docs, next, err := b.JobDocuments(b.ctx, b.tenant, job, taskstore.Page{Limit: 22, Ascending: true})
	b.ok(err)
	b.same("first page of the job", []any{len(docs), next}, []any{22, want[21]})
	docs, next, err = b.JobDocuments(b.ctx, b.tenant, job, taskstore.Page{Limit: 22, Ascending: true, Cursor: next})
	b.ok(err)
	b.same("last page of the job", []any{len(docs), docs[0].ID, next}, []any{1, want[22], ""})
	jobs, next, err := b.Jobs(b.ctx, b.tenant, taskstore.JobFilter{DatasetID: b.dataset.ID}, taskstore.Page{Limit: 2})
	b.ok(err)
	b.same("jobs", []any{len(jobs), next, jobs[0].Documents.Total}, []any{2, jobs[1].ID, 1})
	jobs, next, err = b.Jobs(b.ctx, b.tenant, taskstore.JobFilter{}, taskstore.Page{Limit: 5000})
	b.ok(err)
	b.same("all jobs", []any{len(jobs), next, jobs[len(jobs)-1].Documents.Total}, []any{6, "", 23})
	for i := range 3 {
		_, err := b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: fmt.Sprint(i)})
		b.ok(err)
	}
	ds, next, err := b.Datasets(b.ctx, b.tenant, taskstore.DatasetFilter{}, taskstore.Page{Limit: 3})
	b.ok(err)
	b.same("datasets", []any{len(ds), ds[0].Name, next}, []any{3, "2", ds[2].ID})
	_, err = b.CreateDataset(b.ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: b.tenant, Name: "Ärger 100%"})
	b.ok(err)
	for query, want := range map[string]int{"ärger": 1, "100%": 1, "0%0": 0, "\x00": 0} {
		some, _, err := b.Datasets(b.ctx, b.tenant, taskstore.DatasetFilter{Query: query}, taskstore.Page{})
		b.ok(err)
		b.same("datasets named "+query, len(some), want)
	}
	some, _, err := b.Datasets(b.ctx, b.tenant, taskstore.DatasetFilter{IDs: []string{ds[2].ID, sheaf.NewID()}}, taskstore.Page{})
	b.ok(err)
	b.same("datasets by id", []any{len(some), some[0].Name}, []any{1, ds[2].Name})
}

func testFilters(t *testing.T, b *bench) {
	names := []string{"100%.pdf", "100x.pdf", "a_b.txt", "axb.txt", `it's "quoted" \ back!slash`, "ÄRGER straße.PDF", "日本語の文書", "🙂 ok", strings.Repeat("ü", 512)}
	_, ids := b.create(names...)
	for i, id := range ids {
		b.same("stored name", b.doc(id).Name, names[i])
	}
	for query, want := range map[string][]string{
		"100%": {names[0]}, "a_b": {names[2]}, "A_B.TXT": {names[2]}, "%": {names[0]}, "_": {names[2]}, "'": {names[4]}, `"QUOTED" \`: {names[4]}, "k!S": {names[4]},
		"ärger": {names[5]}, "STRASSE": nil, "straße.pdf": {names[5]}, "日本": {names[6]}, "🙂": {names[7]}, strings.Repeat("Ü", 500): {names[8]},
		"'; DROP TABLE documents; --": nil, "\x00": nil, "\xff": nil, ".pdf": {names[0], names[1], names[5]},
	} {
		docs, _, err := b.Documents(b.ctx, b.tenant, taskstore.DocumentFilter{Query: query}, taskstore.Page{Ascending: true})
		b.ok(err)
		var got []string
		for _, d := range docs {
			got = append(got, d.Name)
		}
		b.same(fmt.Sprintf("query %q", query), got, want)
	}
	for _, name := range []string{strings.Repeat("x", 4096), "nul\x00", "not utf-8 \xff"} {
		_, err := b.CreateDocuments(b.ctx, b.newJob(sheaf.JobIngest), []taskstore.NewDocument{b.newDocument(name)}, "")
		b.is(err, sheaf.ErrInvalid)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Category != sheaf.CategoryBadInput {
			t.Fatalf("no failure to show: %v", err)
		}
	}
	first := b.doc(ids[0])
	last := first.CreatedAt // several statements write them
	for _, id := range ids {
		if at := b.doc(id).CreatedAt; at.After(last) {
			last = at
		}
	}
	_, err := b.CancelDocuments(b.ctx, b.tenant, ids[:2])
	b.ok(err)
	for what, c := range map[string]struct {
		f    taskstore.DocumentFilter
		want int
	}{
		"states":     {taskstore.DocumentFilter{States: []sheaf.DocumentState{sheaf.DocCanceling, sheaf.DocFailed}}, 2},
		"ids":        {taskstore.DocumentFilter{IDs: []string{ids[3], "unknown"}}, 1},
		"media type": {taskstore.DocumentFilter{MediaTypes: []string{"text/plain"}}, 0},
		"hash":       {taskstore.DocumentFilter{SHA256: first.SHA256, DatasetID: b.dataset.ID}, 1},
		"dataset":    {taskstore.DocumentFilter{DatasetID: "other"}, 0},
		"after":      {taskstore.DocumentFilter{CreatedAfter: last}, 0},
		"before":     {taskstore.DocumentFilter{CreatedBefore: first.CreatedAt.Add(time.Minute)}, len(ids)},
	} {
		docs, _, err := b.Documents(b.ctx, b.tenant, c.f, taskstore.Page{})
		b.ok(err)
		b.same(what, len(docs), c.want)
	}
	_, _, err = b.Documents(b.ctx, b.tenant, taskstore.DocumentFilter{IDs: make([]string, 10_001)}, taskstore.Page{})
	b.is(err, sheaf.ErrInvalid)
}

func testEvents(t *testing.T, b *bench) {
	job, id, _ := b.live("a")
	all, err := b.Events(b.ctx, b.tenant, taskstore.EventFilter{}, 0, 100_000)
	b.ok(err)
	var read []sheaf.Event
	for after := int64(0); ; {
		evs, err := b.Events(b.ctx, b.tenant, taskstore.EventFilter{DatasetID: b.dataset.ID, DocumentID: id, JobID: job}, after, 3)
		b.ok(err)
		if len(evs) == 0 {
			break
		}
		if len(evs) > 3 || evs[0].Seq <= after {
			t.Fatalf("after %d: %+v", after, evs)
		}
		read, after = append(read, evs...), evs[len(evs)-1].Seq
	}
	b.same("events by threes", read, all)
	docs, err := b.Events(b.ctx, b.tenant, taskstore.EventFilter{Kinds: []string{sheaf.EventDocument}}, 0, 0)
	b.ok(err)
	var last sheaf.DocumentChange
	b.ok(json.Unmarshal(docs[len(docs)-1].Detail, &last))
	b.same("last state", last.State, sheaf.DocSucceeded)
	hist, err := b.TaskEvents(b.ctx, b.tenant, b.task(id, sheaf.KindPlan).ID)
	b.ok(err)
	b.same("history", []any{len(hist), hist[0].Kind, hist[1].Kind}, []any{2, sheaf.EventClaimed, sheaf.EventDone})
}

func testDead(t *testing.T, b *bench) {
	job, ids := b.create("a", "b")
	for _, id := range ids {
		b.plan(id, sheaf.Range{From: 1, To: 2}, sheaf.Range{From: 3, To: 4})
		for i, x := range b.tasks(id, 0)[1:] {
			_, err := b.FailTask(b.ctx, b.claim(x.ID).Held(), taskstore.FailReport{Failure: *sheaf.Fail([]sheaf.Category{sheaf.CategoryCrash, sheaf.CategoryTimeout}[i], "code_"+fmt.Sprint(i), "say %q", `"category":"internal"`)})
			b.ok(err)
		}
		b.publish(id, taskstore.Publication{State: sheaf.DocFailed, Failure: sheaf.Fail(sheaf.CategoryBadInput, "unreadable", "no")})
	}
	list := func(f taskstore.DeadLetterFilter) int {
		t.Helper()
		ts, _, err := b.DeadLetters(b.ctx, b.tenant, f, taskstore.Page{})
		b.ok(err)
		return len(ts)
	}
	b.same("lists", []int{list(taskstore.DeadLetterFilter{}), list(taskstore.DeadLetterFilter{Code: "code_1"}), list(taskstore.DeadLetterFilter{Category: sheaf.CategoryCrash}),
		list(taskstore.DeadLetterFilter{Category: sheaf.CategoryInternal}), list(taskstore.DeadLetterFilter{Category: "%"}), list(taskstore.DeadLetterFilter{DocumentID: ids[0], Kind: sheaf.KindParse}),
		list(taskstore.DeadLetterFilter{JobID: job, DatasetID: b.dataset.ID}), list(taskstore.DeadLetterFilter{Kind: sheaf.KindPlan})}, []int{4, 2, 2, 0, 0, 2, 4, 0})
	ts, next, err := b.DeadLetters(b.ctx, b.tenant, taskstore.DeadLetterFilter{}, taskstore.Page{Limit: 3})
	b.ok(err)
	ts2, end, err := b.DeadLetters(b.ctx, b.tenant, taskstore.DeadLetterFilter{}, taskstore.Page{Limit: 3, Cursor: next})
	b.ok(err)
	b.same("pages", []any{len(ts), len(ts2), end}, []any{3, 1, ""})

	before := b.doc(ids[0])
	n, err := b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{DocumentID: ids[0]})
	b.ok(err)
	b.same("retried", n, 2)
	d := b.doc(ids[0])
	b.same("open again", []any{d.State, d.Failure, d.FinishedAt.IsZero(), d.FinalizeEpoch}, []any{sheaf.DocRunning, (*sheaf.Failure)(nil), true, before.FinalizeEpoch})
	for _, x := range b.tasks(ids[0], 0) {
		if x.Kind == sheaf.KindParse && (x.State != sheaf.TaskPending || x.Epoch != 2 || x.FailCount != 0 || x.LostCount != 0) {
			t.Fatalf("retried task %+v", x)
		}
	}
	n, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{DocumentID: ids[0]})
	b.ok(err)
	b.same("retried again", n, 0)
	b.parse(ids[0])
	b.publish(ids[0], taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 8})
	b.same("after the retry", []any{b.doc(ids[0]).State, b.doc(ids[0]).LiveGeneration}, []any{sheaf.DocSucceeded, 1})

	// Tasks of an older generation are not retried.
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: ids[1], Plan: planTask()}}, ""))
	n, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{DocumentID: ids[1]})
	b.ok(err)
	b.same("retried of an old generation", n, 0)
	plan := b.task(ids[1], sheaf.KindPlan).ID
	_, err = b.CancelDocuments(b.ctx, b.tenant, ids[1:])
	b.ok(err)
	b.fold()
	n, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{JobID: job})
	b.ok(err)
	b.same("canceled by filter", n, 0)
	n, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{IDs: []string{plan}})
	b.ok(err)
	b.same("canceled by id", n, 0) // what its generation had done is gone
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: ids[1], Plan: planTask()}}, ""))
	b.plan(ids[1], sheaf.Range{From: 1, To: 1})
	b.parse(ids[1])

	// A dead finalize task is decided again.
	b.fold()
	fin := b.claim(b.task(ids[1], sheaf.KindFinalize).ID)
	_, err = b.FailTask(b.ctx, fin.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryInternal, "bug", "report it")})
	b.ok(err)
	b.fold()
	b.same("state", b.doc(ids[1]).State, sheaf.DocFailed)
	n, err = b.RetryDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{Kind: sheaf.KindFinalize})
	b.ok(err)
	b.same("finalize retried", n, 1)
	b.publish(ids[1], taskstore.Publication{State: sheaf.DocSucceeded})
	b.same("state", b.doc(ids[1]).State, sheaf.DocSucceeded)

	n, err = b.PurgeDead(b.ctx, b.tenant, taskstore.DeadLetterFilter{})
	b.ok(err)
	b.same("purged", []int{n, list(taskstore.DeadLetterFilter{})}, []int{2, 0})
}

func testQueues(t *testing.T, b *bench) {
	_, ids := b.create("a", "b", "c")
	b.plan(ids[0], sheaf.Range{From: 1, To: 7}, sheaf.Range{From: 8, To: 20})
	b.claim(b.task(ids[1], sheaf.KindPlan).ID)
	b.AdvanceClock(30 * time.Second)
	q, err := b.Queue(b.ctx, b.tenant)
	b.ok(err)
	b.same("queue", []any{q.TenantID, q.Cap, q.Running, q.Dead, len(q.Lanes), q.Lanes[1].Lane, q.Lanes[1].Pending, q.Lanes[1].Cost, q.Lanes[0].Pending},
		[]any{b.tenant, 8, 1, 0, 3, sheaf.LaneNormal, 3, 21, 0})
	if q.OldestPendingAge < 30 || q.OldestPendingAge > 120 || q.Lanes[1].OldestPendingAge != q.OldestPendingAge {
		t.Fatalf("oldest pending age %v", q.OldestPendingAge)
	}
	all, _, err := b.Queues(b.ctx, taskstore.Page{Limit: 1000})
	b.ok(err)
	if !slices.ContainsFunc(all, func(x taskstore.TenantQueue) bool { return x.TenantID == b.tenant && x.Running == 1 }) {
		t.Fatal("the tenant is not among all")
	}
	_, err = b.Queue(b.ctx, "nobody")
	b.is(err, sheaf.ErrNotFound)

	name := "worker-" + b.tenant
	_, err = b.Heartbeat(b.ctx, taskstore.WorkerStatus{ID: name, Slots: 2, Running: []string{"x"}}, time.Minute, nil)
	b.ok(err)
	listed := func() bool {
		ws, err := b.Workers(b.ctx)
		b.ok(err)
		return slices.ContainsFunc(ws, func(w taskstore.WorkerStatus) bool { return w.ID == name && w.Slots == 2 })
	}
	b.same("worker listed", listed(), true)
	b.AdvanceClock(61 * time.Second)
	b.same("worker listed after a minute", listed(), false)
}

// testBacklog shares the store with other tests, so it compares the growth of sums,
// and looks for this tenant's part among all.
func testBacklog(t *testing.T, b *bench) {
	const all = 100_000
	before, err := b.Backlog(b.ctx, all)
	b.ok(err)
	_, ids := b.create("a", "b", "c")
	b.plan(ids[0], sheaf.Range{From: 1, To: 7}, sheaf.Range{From: 8, To: 20})
	b.claim(b.task(ids[1], sheaf.KindPlan).ID)
	b.AdvanceClock(30 * time.Second)
	mine := func(backlog *taskstore.Backlog) *taskstore.TenantQueue {
		i := slices.IndexFunc(backlog.Tenants, func(q taskstore.TenantQueue) bool { return q.TenantID == b.tenant })
		if i < 0 {
			t.Fatal("the tenant is not among those with a backlog")
		}
		return &backlog.Tenants[i]
	}
	now, err := b.Backlog(b.ctx, all)
	b.ok(err)
	q := mine(now)
	b.same("backlog", []any{len(now.Lanes), len(q.Lanes), q.Running, q.Lanes[1].Lane, q.Lanes[1].Pending, q.Paused}, []any{3, 3, 1, sheaf.LaneNormal, 3, false})
	if age := q.Lanes[1].OldestPendingAge; age < 30 || age > 120 || now.Lanes[1].OldestPendingAge < age || q.OldestPendingAge != age {
		t.Fatalf("oldest pending age %v, of all %v", age, now.Lanes[1].OldestPendingAge)
	}
	if now.Waiting < 1 || now.Running < 1 || now.Lanes[1].Pending < 3 || before.Lanes[1].Pending < 0 {
		t.Fatalf("sums %+v", now)
	}

	// Paused work waits, and wakes no one.
	_, err = b.SetPaused(b.ctx, b.tenant, taskstore.PauseScope{Tenant: true}, true)
	b.ok(err)
	held, err := b.Backlog(b.ctx, all)
	b.ok(err)
	q = mine(held)
	b.same("held", []any{q.Lanes[1].Pending, q.OldestPendingAge, held.Lanes[1].Held >= 3}, []any{3, 0.0, true})

	few, err := b.Backlog(b.ctx, 1)
	b.ok(err)
	b.same("top", len(few.Tenants), 1)

	there, err := b.Population(b.ctx)
	b.ok(err)
	if there.Documents[sheaf.DocQueued]+there.Documents[sheaf.DocRunning] < 3 || there.Jobs < 1 || there.Running+there.Queued < 1 || there.Running+there.Queued > there.Jobs {
		t.Fatalf("population %+v", there)
	}
}

func testUnitLedger(t *testing.T, b *bench) {
	better := map[sheaf.UnitStatus]int{sheaf.UnitOK: 5, sheaf.UnitOCR: 4, sheaf.UnitBlank: 3, sheaf.UnitSkipped: 2, sheaf.UnitFailed: 1}
	rapid.Check(t, func(rt *rapid.T) {
		_, ids := b.create("ledger")
		want := map[int]sheaf.UnitStatus{}
		best := func(u int, s sheaf.UnitStatus) {
			if better[s] > better[want[u]] {
				want[u] = s
			}
		}
		ranges := rapid.SliceOfNDistinct(rapid.Custom(func(rt *rapid.T) sheaf.Range {
			from := rapid.IntRange(1, 15).Draw(rt, "from")
			return sheaf.Range{From: from, To: from + rapid.IntRange(0, 6).Draw(rt, "more")}
		}), 1, 4, func(r sheaf.Range) sheaf.Range { return r }).Draw(rt, "ranges")
		b.plan(ids[0], ranges...)
		for _, x := range b.tasks(ids[0], 0) {
			if x.Kind != sheaf.KindParse {
				continue
			}
			switch rapid.SampledFrom([]string{"done", "dead", "pending"}).Draw(rt, "end") {
			case "done":
				c := b.claim(x.ID)
				r := b.result(c)
				r.Ledger = nil
				for u := x.Range.From; u <= x.Range.To; u++ {
					s := rapid.SampledFrom(slices.Sorted(maps.Keys(better))).Draw(rt, "status")
					r.Ledger = r.Ledger.Add(sheaf.LedgerRun{From: u, To: u, Status: s})
					best(u, s)
				}
				b.ok(b.Complete(b.ctx, c.Held(), taskstore.Completion{Result: r}))
			case "dead":
				_, err := b.FailTask(b.ctx, b.claim(x.ID).Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "it crashed")})
				b.ok(err)
				for u := x.Range.From; u <= x.Range.To; u++ {
					best(u, sheaf.UnitFailed)
				}
			}
		}
		ledger, err := b.UnitLedger(b.ctx, b.tenant, ids[0], rapid.IntRange(0, 1).Draw(rt, "generation"))
		b.ok(err)
		got, last := map[int]sheaf.UnitStatus{}, 0
		for i, r := range ledger {
			if r.From <= last || r.To < r.From {
				rt.Fatalf("runs overlap: %+v", ledger)
			}
			if i > 0 && r.From == last+1 && r.Status == ledger[i-1].Status && r.Code == ledger[i-1].Code && r.Message == ledger[i-1].Message {
				rt.Fatalf("runs are not joined: %+v", ledger)
			}
			for u := r.From; u <= r.To; u++ {
				got[u] = r.Status
			}
			last = r.To
		}
		if !maps.Equal(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
	_, ids := b.create("canceled")
	b.plan(ids[0], sheaf.Range{From: 1, To: 3})
	_, err := b.CancelDocuments(b.ctx, b.tenant, ids)
	b.ok(err)
	l, err := b.UnitLedger(b.ctx, b.tenant, ids[0], 0)
	b.ok(err)
	b.same("canceled", []any{len(l), l[0].Status, l[0].Code, l[0].To}, []any{1, sheaf.UnitFailed, "canceled", 3})
	_, err = b.UnitLedger(b.ctx, b.tenant, ids[0], 2)
	b.is(err, sheaf.ErrNotFound)
}

// testTenantWalk calls every method with ids of another tenant.
func testTenantWalk(t *testing.T, b *bench) {
	job, id, ranges := b.live("secret")
	_, more := b.create("dead")
	plan := b.task(more[0], sheaf.KindPlan).ID
	_, err := b.FailTask(b.ctx, b.claim(plan).Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryBadInput, "bad", "no")})
	b.ok(err)
	b.fold()
	_, gone := b.create("gone")
	deleted, err := b.DeleteDocuments(b.ctx, b.tenant, gone)
	b.ok(err)
	thief, hook := newBench(t, b.Store), b.newWebhook()
	ctx, me, one, dead := b.ctx, thief.tenant, taskstore.Page{}, taskstore.DeadLetterFilter{IDs: []string{plan}, DocumentID: more[0]}
	before := fmt.Sprintf("%+v %+v", b.doc(id), b.tasks(id, 0))

	for name, call := range map[string]func() error{
		"Dataset":       func() error { _, err := b.Dataset(ctx, me, b.dataset.ID); return err },
		"UpdateDataset": func() error { return b.UpdateDataset(ctx, sheaf.Dataset{ID: b.dataset.ID, TenantID: me, Name: "x"}) },
		"DeleteDataset": func() error { _, err := b.DeleteDataset(ctx, me, b.dataset.ID); return err },
		"Document":      func() error { _, err := b.Document(ctx, me, id); return err },
		"ChangeDocument": func() error {
			_, err := b.ChangeDocument(ctx, me, id, "x", sheaf.Attributes{"x.y": json.RawMessage("1")})
			return err
		},
		"Generations": func() error { _, err := b.Generations(ctx, me, id); return err },
		"NewestGenerations": func() error {
			found, err := b.NewestGenerations(ctx, me, []string{id})
			if len(found) == 0 && err == nil {
				return sheaf.ErrNotFound
			}
			return err
		},
		"Tasks":           func() error { _, err := b.Tasks(ctx, me, id, 1); return err },
		"UnitLedger":      func() error { _, err := b.UnitLedger(ctx, me, id, 1); return err },
		"CancelDocuments": func() error { _, err := b.CancelDocuments(ctx, me, []string{id}); return err },
		"DeleteDocuments": func() error { _, err := b.DeleteDocuments(ctx, me, []string{id}); return err },
		"Reparse": func() error {
			return b.Reparse(ctx, thief.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: id, Plan: planTask()}}, "")
		},
		"CreateDocuments into the dataset": func() error {
			j := thief.newJob(sheaf.JobIngest)
			j.DatasetID = b.dataset.ID
			_, err := b.CreateDocuments(ctx, j, []taskstore.NewDocument{thief.newDocument("x")}, "")
			return err
		},
		"Job":           func() error { _, err := b.Job(ctx, me, job); return err },
		"JobEnded":      func() error { _, err := b.JobEnded(ctx, me, job); return err },
		"JobGiven":      func() error { _, err := b.JobGiven(ctx, me, job); return err },
		"JobDocuments":  func() error { _, _, err := b.JobDocuments(ctx, me, job, one); return err },
		"JobErrors":     func() error { _, _, err := b.JobErrors(ctx, me, job, one); return err },
		"JobWarnings":   func() error { _, _, err := b.JobWarnings(ctx, me, job, one); return err },
		"Remaining":     func() error { _, err := b.Remaining(ctx, me, job); return err },
		"SetPaused job": func() error { _, err := b.SetPaused(ctx, me, taskstore.PauseScope{JobID: job}, true); return err },
		"SetPaused dataset": func() error {
			_, err := b.SetPaused(ctx, me, taskstore.PauseScope{DatasetID: b.dataset.ID}, true)
			return err
		},
		"Webhook": func() error { _, err := b.Webhook(ctx, me, b.dataset.ID, hook.ID); return err },
		"CreateWebhook": func() error {
			_, err := b.CreateWebhook(ctx, taskstore.Webhook{ID: sheaf.NewID(), TenantID: me, DatasetID: b.dataset.ID, URL: "https://x.invalid"})
			return err
		},
		"UpdateWebhook": func() error {
			return b.UpdateWebhook(ctx, taskstore.Webhook{ID: hook.ID, TenantID: me, DatasetID: b.dataset.ID})
		},
		"DeleteWebhook":    func() error { return b.DeleteWebhook(ctx, me, b.dataset.ID, hook.ID) },
		"AnnounceJob":      func() error { return b.AnnounceJob(ctx, me, job) },
		"Receipt":          func() error { _, err := b.Receipt(ctx, me, deleted.ReceiptID); return err },
		"ReceiptDocuments": func() error { _, _, err := b.ReceiptDocuments(ctx, me, deleted.ReceiptID, one); return err },
		"Task":             func() error { _, err := b.Task(ctx, me, plan); return err },
		"TaskEvents":       func() error { _, err := b.TaskEvents(ctx, me, plan); return err },
	} {
		if err := call(); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("%s with another tenant's id: %v, want ErrNotFound", name, err)
		}
	}
	for name, call := range map[string]func() (int, error){
		"Keys":     func() (int, error) { x, _, err := b.Keys(ctx, me, one); return len(x), err },
		"Receipts": func() (int, error) { x, _, err := b.Receipts(ctx, me, b.dataset.ID, one); return len(x), err },
		"Webhooks": func() (int, error) { x, err := b.Webhooks(ctx, me, b.dataset.ID); return len(x), err },
		"Documents": func() (int, error) {
			x, _, err := b.Documents(ctx, me, taskstore.DocumentFilter{IDs: []string{id}, DatasetID: b.dataset.ID}, one)
			return len(x), err
		},
		"Facets": func() (int, error) {
			x, err := b.Facets(ctx, me, taskstore.DocumentFilter{DatasetID: b.dataset.ID})
			return x.Documents + x.Ended + len(x.States) + len(x.Formats) + len(x.Issues) + len(x.Warnings) + len(x.Jobs) + len(x.Languages) + len(x.Tags), err
		},
		"Facets of the job": func() (int, error) {
			x, err := b.Facets(ctx, me, taskstore.DocumentFilter{JobIDs: []string{job}})
			return x.Documents, err
		},
		"TagDocuments": func() (int, error) {
			return b.TagDocuments(ctx, me, taskstore.DocumentFilter{DatasetID: b.dataset.ID}, "stolen")
		},
		"Visible": func() (int, error) { x, err := b.Visible(ctx, me, ranges); return len(x), err },
		"Events": func() (int, error) {
			x, err := b.Events(ctx, me, taskstore.EventFilter{DocumentID: id, JobID: job}, 0, 0)
			return len(x), err
		},
		"QuotaUsage": func() (int, error) { x, err := b.QuotaUsage(ctx, me); return x.Documents, err },
		"Jobs": func() (int, error) {
			x, _, err := b.Jobs(ctx, me, taskstore.JobFilter{DatasetID: b.dataset.ID}, one)
			return len(x), err
		},
		"DeadLetters": func() (int, error) { x, _, err := b.DeadLetters(ctx, me, dead, one); return len(x), err },
		"RetryDead":   func() (int, error) { return b.RetryDead(ctx, me, dead) },
		"PurgeDead":   func() (int, error) { return b.PurgeDead(ctx, me, dead) },
		"Queue":       func() (int, error) { x, err := b.Queue(ctx, me); return x.Dead, err },
		"Datasets": func() (int, error) {
			x, _, err := b.Datasets(ctx, me, taskstore.DatasetFilter{}, one)
			return len(x) - 1, err
		},
	} {
		if n, err := call(); n != 0 || err != nil {
			t.Errorf("%s with another tenant's ids: %d, %v, want none", name, n, err)
		}
	}
	b.same("the documents after the walk", fmt.Sprintf("%+v %+v", b.doc(id), b.tasks(id, 0)), before)
	b.same("visible to the owner", b.visible(ranges), 2)
}

// testRaces runs a cancel, a re-parse, a delete and an executor concurrently on the
// same documents.
func testRaces(t *testing.T, b *bench) {
	for round := range 8 {
		_, ids := b.create("r1", "r2", "r3")
		for _, id := range ids {
			b.plan(id, sheaf.Range{From: 1, To: 2}, sheaf.Range{From: 3, To: 4}, sheaf.Range{From: 5, To: 6})
		}
		var tasks []string
		for _, id := range ids {
			for _, x := range b.tasks(id, 0)[1:] {
				tasks = append(tasks, x.ID)
			}
		}
		back := slices.Clone(ids)
		slices.Reverse(back)
		var again []taskstore.ReparseDocument
		for _, id := range back {
			again = append(again, taskstore.ReparseDocument{DocumentID: id, Plan: planTask()})
		}
		job := b.newJob(sheaf.JobReparse)
		check := func(err error) {
			if err != nil && !errors.Is(err, sheaf.ErrNotFound) && !errors.Is(err, sheaf.ErrConflict) && !errors.Is(err, sheaf.ErrStale) {
				t.Errorf("round %d: %v", round, err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, err := b.CancelDocuments(b.ctx, b.tenant, ids); check(err) })
		wg.Go(func() { check(b.Reparse(b.ctx, job, again, "")) })
		wg.Go(func() { _, err := b.DeleteDocuments(b.ctx, b.tenant, back[:1]); check(err) })
		wg.Go(func() { _, _, err := b.Fold(b.ctx, 100, 0); check(err) })
		wg.Go(func() {
			for _, id := range tasks {
				x, err := b.Claim(b.ctx, id, "racer", time.Minute)
				check(err)
				if err == nil {
					check(b.Complete(b.ctx, x.Held(), taskstore.Completion{Result: b.result(x)}))
				}
			}
		})
		wg.Wait()
		b.fold()

		_, err := b.Document(b.ctx, b.tenant, back[0])
		b.is(err, sheaf.ErrNotFound)
		for _, id := range ids[:2] {
			d := b.doc(id)
			b.same("generation", d.Generation, 2)
			for _, x := range b.tasks(id, 1) {
				if !x.State.Terminal() {
					t.Fatalf("round %d: task of an old generation is %s", round, x.State)
				}
			}
			// The re-parse came first and was canceled, or it came last.
			state := b.task(id, sheaf.KindPlan).State
			if !(d.State == sheaf.DocCanceled && state == sheaf.TaskCanceled || d.State == sheaf.DocQueued && state == sheaf.TaskPending) {
				t.Fatalf("round %d: document %s with its plan %s", round, d.State, state)
			}
			gens, err := b.Generations(b.ctx, b.tenant, id)
			b.ok(err)
			if !gens[1].State.Terminal() {
				t.Fatalf("round %d: the old generation is %s", round, gens[1].State)
			}
		}
	}
}
