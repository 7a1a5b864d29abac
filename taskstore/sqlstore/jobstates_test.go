package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// TestOneJobOfTenThousandIsFoundByItsState asks for the state that only the oldest
// of 10,000 jobs is in: it is found within a few pages, each of which looks at a
// bounded number of jobs. measured on two busy cores: 10,000 jobs of two documents
// each take 0.35 s on SQLite, and 0.35 to 0.5 s on MySQL and PostgreSQL.
func TestOneJobOfTenThousandIsFoundByItsState(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		const jobs = 10_000
		f := storetest.New(t, engine)
		var series, pad string
		switch engine {
		case "sqlite":
			series, pad = fmt.Sprintf("(WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM s WHERE i<%d) SELECT i FROM s) n", 2*jobs-1), "printf('%%032d', %s)"
		case "mysql":
			series, pad = fmt.Sprintf("(SELECT a.i + 1000*b.i AS i FROM (%s) a, (%s) b WHERE a.i + 1000*b.i < %d) n", thousand, thousand, 2*jobs), "LPAD(%s, 32, '0')"
		case "postgres":
			series, pad = fmt.Sprintf("(SELECT i FROM generate_series(0, %d) s(i)) n", 2*jobs-1), "LPAD((%s)::text, 32, '0')"
		}
		half := "(i/2)"
		if engine == "mysql" {
			half = "FLOOR(i/2)"
		}
		id, job := fmt.Sprintf(pad, "i"), fmt.Sprintf(pad, half)
		state := "CASE WHEN i<2 THEN 'failed' ELSE 'succeeded' END"
		f.Exec("INSERT INTO jobs (id, tenant_id, dataset_id, kind, statistics, name, files, created_at) SELECT " + id + ", 't', 'ds', 'ingest', '{}', '', '[]', 1 FROM " + series + fmt.Sprintf(" WHERE i<%d", jobs))
		f.Exec("INSERT INTO documents (id, tenant_id, dataset_id, name, media_type, size, job_id, sha256, blob_key, ledger, outline, parse_config, metadata, failure, warnings, attributes, gen, state, created_at, updated_at) SELECT " + id + ", 't', 'ds', 'a.txt', 'text/plain', 1, " + job + ", '', '', '{}', '', '{}', '{}', '', '[]', '', 1, " + state + ", 1, 1 FROM " + series)
		f.Exec("INSERT INTO generations (doc_id, gen, tenant_id, job_id, state, parse_config, ledger, failure, created_at) SELECT " + id + ", 1, 't', " + job + ", " + state + ", '{}', '{}', '', 1 FROM " + series)
		begun := time.Now()
		p, found, pages := taskstore.Page{Limit: 50}, 0, 0
		for ; pages < 100; pages++ {
			list, next, err := f.Store.Jobs(ctx, "t", taskstore.JobFilter{States: []sheaf.DocumentState{sheaf.DocFailed}}, p)
			if err != nil {
				t.Fatal(err)
			}
			if found += len(list); next == "" {
				break
			}
			p.Cursor = next
		}
		took := time.Since(begun)
		t.Logf("%d pages in %s", pages+1, took.Round(time.Millisecond))
		if found != 1 || pages > 20 || took > 20*time.Second {
			t.Errorf("found %d in %d pages within %s", found, pages+1, took)
		}
		// All others: full pages at once, which hold each job once wherever what is
		// looked at ends.
		seen := map[string]bool{}
		p = taskstore.Page{Limit: 700}
		for range 2 * jobs / p.Limit {
			list, next, err := f.Store.Jobs(ctx, "t", taskstore.JobFilter{States: []sheaf.DocumentState{sheaf.DocSucceeded}}, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range list {
				if seen[j.ID] {
					t.Fatalf("job %s is listed twice", j.ID)
				}
				seen[j.ID] = true
			}
			if next == "" {
				break
			}
			p.Cursor = next
		}
		if len(seen) != jobs-1 {
			t.Errorf("%d of the %d others are listed", len(seen), jobs-1)
		}
	})
}
