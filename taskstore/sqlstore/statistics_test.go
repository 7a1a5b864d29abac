package sqlstore_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// TestSQLiteKnowsItsIndexes holds that each index has statistics, that a file
// of an earlier version gets them, and that statements which name a document,
// a job, a range or ids besides the tenant and the state find their rows by
// what chooses few of them.
func TestSQLiteKnowsItsIndexes(t *testing.T) {
	f := storetest.New(t, "sqlite")
	made := f.Strings("SELECT name FROM sqlite_schema WHERE type='index' AND tbl_name NOT LIKE 'goose%' ORDER BY name")
	known := f.Strings("SELECT idx FROM sqlite_stat1 ORDER BY idx")
	for _, name := range made {
		if !slices.Contains(known, name) {
			t.Errorf("index %s has no statistics", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(made, name) {
			t.Errorf("statistics are of an index %s that there is not", name)
		}
	}

	f.Exec("DELETE FROM sqlite_stat1 WHERE tbl='events'")
	if err := f.Store.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if again := f.Strings("SELECT idx FROM sqlite_stat1 ORDER BY idx"); !slices.Equal(again, known) {
		t.Errorf("after a second migration: %v", again)
	}

	ids := "('" + strings.Repeat("x','", 200) + "')"
	for _, c := range []struct{ index, query string }{
		{"k_range", "SELECT t.gen FROM tasks t JOIN documents d ON d.id=t.doc_id WHERE t.range_id IN " + ids + " AND t.state='done' AND t.tenant_id='t' AND d.tenant_id='t' AND t.gen=d.live_gen AND d.deleted_at=0"},
		{"k_ev_doc", "SELECT e.* FROM events e WHERE e.tenant_id='t' AND e.doc_id='d' AND e.seq>5 ORDER BY e.seq LIMIT 100"},
		{"k_ev_job", "SELECT e.* FROM events e WHERE e.tenant_id='t' AND e.job_id='j' AND e.seq>5 ORDER BY e.seq LIMIT 100"},
		{"k_fold", "SELECT COUNT(*) FROM tasks WHERE tenant_id='t' AND doc_id IN ('a','b') AND state IN ('pending','running')"},
		{"k_job_list", "SELECT * FROM jobs WHERE tenant_id='t' ORDER BY id DESC LIMIT 51"},
		{"k_job_list", "SELECT * FROM jobs WHERE tenant_id='t' AND id<'x' ORDER BY id DESC LIMIT 51"},
		{"k_job", "SELECT * FROM jobs WHERE tenant_id='t' AND dataset_id='d' ORDER BY id DESC LIMIT 51"},
		{"k_job_tasks", "SELECT id FROM tasks WHERE tenant_id='t' AND job_id='j' AND state='running'"},
		{"sqlite_autoindex_tasks_1", "UPDATE tasks SET lease_until=1 WHERE id IN " + ids + " AND worker_id='w' AND state='running'"},
		{"sqlite_autoindex_tasks_1", "UPDATE tasks SET state='pending' WHERE id IN " + ids + " AND state='retry_wait' AND run_at<=5"},
		{"k_doc_tenant", "SELECT id FROM documents WHERE id IN " + ids + " AND tenant_id='t' LIMIT 1"},
		{"k_doc_parent", "SELECT id FROM documents WHERE parent_id IN " + ids + " AND deleted_at=0 ORDER BY id"},
		{"k_doc_sha", "SELECT id, sha256 FROM documents WHERE sha256 IN " + ids + " AND tenant_id='t' AND dataset_id IN (SELECT id FROM datasets WHERE tenant_id='t') AND deleted_at=0 ORDER BY dataset_id, sha256, id LIMIT 5000"},
		{"sqlite_autoindex_doc_dirty_1", "DELETE FROM doc_dirty WHERE doc_id IN " + ids + " AND CASE doc_id WHEN 'a' THEN at-1 WHEN 'b' THEN at-2 END=0"},
		{"k_garbage_doc", "SELECT * FROM garbage WHERE doc_id IN " + ids},
	} {
		rows, err := f.Query("EXPLAIN QUERY PLAN " + c.query)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(plan, "; "); !strings.Contains(all, " "+c.index+" ") {
			t.Errorf("not by %s but %s:\n%.200s", c.index, all, c.query)
		}
	}
}

// TestBulkChangesSearchForTheirRows holds that a change of many documents, and what
// follows it, reads no whole table, nor all rows of a tenant: each of its batches
// would, so that ten times the documents took a hundred times as long.
func TestBulkChangesSearchForTheirRows(t *testing.T) {
	f := storetest.New(t, "sqlite")
	statements := map[string]bool{}
	f.OK(f.Store.Statements(func(query string) { statements[query] = true }))
	const many = 450 // more than fit into one list
	job := sheaf.Job{ID: sheaf.NewID(), TenantID: "t", Kind: sheaf.JobIngest}
	first := f.Document("t")
	job.DatasetID = first.Dataset
	var ids []string
	var docs []taskstore.NewDocument
	var again []taskstore.ReparseDocument
	for range many {
		id := sheaf.NewID()
		ids = append(ids, id)
		docs = append(docs, taskstore.NewDocument{Document: sheaf.Document{ID: id, Name: "a.md", MediaType: "text/markdown", Size: 1, SHA256: id + id, BlobKey: sheaf.OriginalPrefix("t", id) + "v1"},
			Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1}})
		again = append(again, taskstore.ReparseDocument{DocumentID: id, Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1}})
	}
	_, err := f.Store.CreateDocuments(ctx, job, docs, "")
	f.OK(err)
	f.Fold()
	job.ID, job.Kind = sheaf.NewID(), sheaf.JobReparse
	f.OK(f.Store.Reparse(ctx, job, again, ""))
	f.Fold()
	_, err = f.Store.SetPaused(ctx, "t", taskstore.PauseScope{JobID: job.ID}, true)
	f.OK(err)
	_, err = f.Store.CancelDocuments(ctx, "t", ids)
	f.OK(err)
	f.Fold()
	_, err = f.Store.TagDocuments(ctx, "t", taskstore.DocumentFilter{DatasetID: job.DatasetID}, "tag")
	f.OK(err)
	_, err = f.Store.DeleteDocuments(ctx, "t", ids)
	f.OK(err)
	f.Fold()
	for range 5 {
		_, err = f.Store.PurgeDeleted(ctx, many)
		f.OK(err)
	}
	_, err = f.Store.Garbage(ctx, many)
	f.OK(err)

	whole := regexp.MustCompile(`^SCAN (documents|d|tasks|t|generations|g|events|e|doc_dirty|garbage)\b|k_doc_tenant \(tenant_id=\?\)`)
	for _, query := range slices.Sorted(maps.Keys(statements)) {
		// The oldest marks are sorted out of all, by a fold that takes hundreds.
		if strings.HasPrefix(query, "PRAGMA") || strings.Contains(query, "FROM doc_dirty ORDER BY at, doc_id LIMIT ?") {
			continue
		}
		rows, err := f.Query("EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
		f.OK(err)
		for rows.Next() {
			var id, parent, unused int
			var step string
			f.OK(rows.Scan(&id, &parent, &unused, &step))
			if whole.MatchString(step) {
				t.Errorf("%s\n%.600s", step, query)
			}
		}
		f.OK(rows.Err())
	}
	if len(statements) < 50 {
		t.Errorf("only %d statements were seen", len(statements))
	}
}
