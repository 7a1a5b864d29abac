package sqlstore_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"sheaf/taskstore/storetest"
)

// manyTenants fills the tasks table: pending tasks of tenants, each as many.
func manyTenants(t *testing.T, f *storetest.Fixture, tenants, each int) {
	t.Helper()
	e := dialects[f.Engine]
	fillTable(t, f, "tasks", "id, tenant_id, dataset_id, doc_id, job_id, gen, kind, from_unit, to_unit, lane, phase, place, state, run_at, created_at",
		e.padded("{i}", 32)+", "+e.named("t", e.padded(fmt.Sprintf("{i}%%%d", tenants), 5))+", 'ds', "+e.named("d", fmt.Sprintf(e.divided, 100))+
			", 'job', 1, 'parse', {i}, {i}, 2, 1, {i}, 'pending', {i}, 1", tenants*each)
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
		manyTenants(t, f, tenants, each)
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
