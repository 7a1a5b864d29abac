package storetest

import (
	"time"

	"sheaf/taskstore"
)

// fairness: what was served within the window counts, by weight and only for tenants
// whose work has waited that long; /v1/stats shows it until it is old.
func fairness(f *Fixture) {
	f.Document("a")
	f.Document("b")
	stats := func() *taskstore.Fairness {
		f.T.Helper()
		s, err := f.Store.Stats(ctx, "a", 1, 1)
		f.OK(err)
		return s.Fairness
	}
	measure := func() *taskstore.Fairness {
		f.T.Helper()
		b, err := f.Store.Backlog(ctx, 10)
		f.OK(err)
		got, err := f.Store.MeasureFairness(ctx, b.Tenants)
		f.OK(err)
		return got
	}
	if got := measure(); got != nil || stats() != nil {
		f.T.Errorf("before anybody has waited: %+v", got)
	}
	// Work that waits long counts; served work is summed from the log.
	works := map[string][]string{}
	for _, tenant := range []string{"a", "b"} {
		for range 3 { // of 12 pages each
			works[tenant] = append(works[tenant], f.Plan(f.Document(tenant), Parse(1)...)[0].ID)
		}
	}
	f.Store.AdvanceClock(2 * taskstore.FairnessWindow)
	serve := func(tenant string) {
		f.T.Helper()
		f.Done(works[tenant][0])
		works[tenant] = works[tenant][1:]
		for n := 1; n > 0; {
			var err error
			n, err = f.Store.RollUp(ctx)
			f.OK(err)
		}
	}
	serve("a")
	if got := measure(); got == nil || got.Tenants != 2 || got.Index != 0.5 {
		f.T.Errorf("one of two tenants was served: %+v, want 0.5 of 2", got)
	}
	serve("b")
	if got := measure(); got == nil || got.Tenants != 2 || got.Index != 1 {
		f.T.Errorf("both tenants were served the same: %+v, want 1 of 2", got)
	}
	f.Store.AdvanceClock(2 * taskstore.FairnessWindow)
	minute := f.clock().Unix() / 60
	for _, served := range []struct {
		tenant string
		minute int64
		cost   int
	}{{"a", minute - 1, 30}, {"a", minute - 2, 10}, {"b", minute - 1, 10}, {"b", minute - 50, 1000}} {
		f.Exec("INSERT INTO stats_minutes (tenant_id, minute, tasks, failed, cost, stage_ms) VALUES (?, ?, 1, 0, ?, '{}')", served.tenant, served.minute, served.cost)
	}
	got := measure()
	if got == nil || got.Tenants != 2 || got.Index != 2500.0/(2*1700) {
		f.T.Fatalf("of 40 and 10: %+v, want %v of 2", got, 2500.0/(2*1700))
	}
	if s := stats(); s == nil || s.Index != got.Index {
		f.T.Errorf("the statistics say %+v, want %+v", s, got)
	}
	// Time beyond the pages counts like pages.
	f.Exec("UPDATE stats_minutes SET beyond=30 WHERE tenant_id='b' AND minute=?", minute-1)
	if got := measure(); got == nil || got.Index != 1 {
		f.T.Errorf("of 40, and of 10 that took as long as 40: %+v", got)
	}
	f.Exec("UPDATE stats_minutes SET beyond=0")
	f.Exec("UPDATE tenants SET weight=4 WHERE id='a'")
	if got := measure(); got == nil || got.Index != 1 {
		f.T.Errorf("with four times the weight: %+v", got)
	}
	f.Store.AdvanceClock(time.Hour)
	if s := stats(); s != nil {
		f.T.Errorf("an hour later it is still %+v", s)
	}
}

// A tenant without a cap of its own may use as many workers as the fleet has, on the
// queue and in what is shown of it.
func capsFollowTheFleet(f *Fixture) {
	f.Document("t")
	f.Document("u")
	_, err := f.Store.ChangeTenant(ctx, "t", taskstore.TenantChange{Cap: new(0)})
	f.OK(err)
	caps := func(of string, t, u int) {
		f.T.Helper()
		wanted := map[string]int{"t": t, "u": u}
		loads, err := f.Store.RunnableTenants(ctx)
		f.OK(err)
		want(f, "tenants", len(loads), 2)
		for _, l := range loads {
			want(f, of+": cap of "+l.TenantID, l.Cap, wanted[l.TenantID])
		}
		fed, err := f.Store.Feedable(ctx, "", 1, time.Minute)
		f.OK(err)
		want(f, "tenants that are fed", len(fed.Tenants), 2)
		for _, l := range fed.Tenants {
			want(f, of+": cap of "+l.TenantID+" as it is fed", l.Cap, wanted[l.TenantID])
		}
		backlog, err := f.Store.Backlog(ctx, 10)
		f.OK(err)
		for _, q := range backlog.Tenants {
			want(f, of+": cap of "+q.TenantID+" in metrics", q.Cap, wanted[q.TenantID])
		}
		q, err := f.Store.Queue(ctx, "t")
		f.OK(err)
		want(f, of+": cap that is shown", q.Cap, t)
	}
	caps("no executor", 8, 8)
	for _, id := range []string{"a", "b", "c", "d"} {
		_, err := f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: id, Slots: 10}, time.Minute, nil)
		f.OK(err)
	}
	f.Store.AdvanceClock(2 * time.Second)
	caps("forty workers", 64, 8)
	f.Store.AdvanceClock(2 * time.Minute)
	caps("they are gone", 8, 8)
	_, err = f.Store.ChangeTenant(ctx, "t", taskstore.TenantChange{Cap: new(3)})
	f.OK(err)
	caps("a cap of its own", 3, 8)
}
