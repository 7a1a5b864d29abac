package sqlstore_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"sheaf/taskstore/storetest"
)

// manyTenants fills the tasks table by one statement: pending tasks of tenants,
// each as many.
func manyTenants(f *storetest.Fixture, tenants, each int) {
	const columns = "(id, tenant_id, dataset_id, doc_id, job_id, gen, kind, from_unit, to_unit, lane, phase, place, state, run_at, created_at)"
	n := tenants * each
	fill := func(with, id, tenant, doc, from string) {
		f.Exec(fmt.Sprintf("INSERT INTO tasks %s %s SELECT %s, %s, 'ds', %s, 'job', 1, 'parse', i, i, 2, 1, i, 'pending', i, 1 FROM %s", columns, with, id, tenant, doc, from))
	}
	switch f.Engine {
	case "sqlite":
		fill(fmt.Sprintf("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<%d)", n),
			"printf('%032d', i)", fmt.Sprintf("printf('t%%05d', i%%%d)", tenants), "'d' || (i/100)", "s")
	case "mysql":
		fill("", "LPAD(i, 32, '0')", fmt.Sprintf("CONCAT('t', LPAD(MOD(i, %d), 5, '0'))", tenants), "CONCAT('d', FLOOR(i/100))",
			fmt.Sprintf("(SELECT a.i + 1000*b.i + 1 AS i FROM (%s) a, (%s) b) s WHERE i<=%d", thousand, thousand, n))
		f.Exec("ANALYZE TABLE tasks")
	case "postgres":
		fill("", "LPAD(i::text, 32, '0')", fmt.Sprintf("'t' || LPAD(MOD(i, %d)::text, 5, '0')", tenants), "'d' || (i/100)", fmt.Sprintf("generate_series(1, %d) s(i)", n))
		f.Exec("ANALYZE tasks")
	}
}

// TestFeedIsReadInSlices feeds thousands of tenants: each is fed once, and a
// slice is of as many tenants however many there are. SHEAF_TEST_TENANTS and
// SHEAF_TEST_EACH make the backlog larger; the log says what it takes.
func TestFeedIsReadInSlices(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		number := func(name string, n int) int {
			if set, err := strconv.Atoi(os.Getenv(name)); err == nil {
				return set
			}
			return n
		}
		tenants, each := number("SHEAF_TEST_TENANTS", 2000), number("SHEAF_TEST_EACH", 5)
		f := storetest.New(t, engine)
		manyTenants(f, tenants, each)
		begun := time.Now()
		slice, err := f.Store.Feedable(ctx, "", 256, time.Minute)
		f.OK(err)
		t.Logf("the first %d hints in %v", len(slice.Hints), time.Since(begun).Round(time.Millisecond))
		fed := map[string]int{}
		for _, h := range f.Feedable(256, time.Minute) {
			fed[h.TenantID]++
		}
		t.Logf("%d tenants in %v", len(fed), time.Since(begun).Round(time.Millisecond))
		if len(fed) != tenants || len(slice.Tenants) > 50 || len(slice.Tenants)*each != len(slice.Hints) {
			t.Errorf("%d of %d tenants are fed; the first slice has %d tenants and %d hints", len(fed), tenants, len(slice.Tenants), len(slice.Hints))
		}
		for tenant, n := range fed {
			if n != each {
				t.Fatalf("%s has %d hints, want %d", tenant, n, each)
			}
		}
	})
}
