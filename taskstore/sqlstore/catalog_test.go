package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

func TestCatalog(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		t.Parallel()
		storetest.RunCatalog(t, func(t testing.TB) *sqlstore.Store { return storetest.Open(t, engine) })
	})
}

// Sequence numbers may become visible out of order, so that a reader who goes
// by them must not see the newest yet.
func TestEventsYoungerThanTheLagAreHeldBack(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		ctx := context.Background()
		c := storetest.Config(t, engine)
		c.EventLag = time.Hour
		s, err := sqlstore.Open(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateTenant(ctx, sheaf.Tenant{ID: "t", Name: "t"}); err != nil {
			t.Fatal(err)
		}
		d, err := s.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: "t", Name: "d"})
		if err != nil {
			t.Fatal(err)
		}
		create := func() {
			t.Helper()
			_, err := s.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: d.ID, Kind: sheaf.JobIngest},
				[]taskstore.NewDocument{{Document: sheaf.Document{ID: sheaf.NewID(), Name: "a"}, Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan}}}, "")
			if err != nil {
				t.Fatal(err)
			}
		}
		seen := func(want int) {
			t.Helper()
			evs, err := s.Events(ctx, "t", taskstore.EventFilter{}, 0, 0)
			if err != nil || len(evs) != want {
				t.Fatalf("%d events, %v, want %d", len(evs), err, want)
			}
			followed, err := s.FollowEvents(ctx, 0, 100)
			if err != nil || len(followed) != want {
				t.Fatalf("%d events are followed, %v, want %d", len(followed), err, want)
			}
			if one, err := s.FollowEvents(ctx, 0, 1); err != nil || len(one) != min(want, 1) {
				t.Fatalf("%d events of one, %v", len(one), err)
			}
		}
		created := 0
		touched := func() { // whether they are held back or not
			t.Helper()
			created++
			of, newest, err := s.Touched(ctx, 0, 100)
			if err != nil || len(of) != created || of[0].TenantID != "t" || of[0].DatasetID != d.ID || of[0].JobID == "" || of[0].DocumentID == "" {
				t.Fatalf("touched %v, %v, want %d", of, err, created)
			}
			last, err := s.LastEventOf(ctx, "t", taskstore.EventFilter{DocumentID: of[len(of)-1].DocumentID})
			if err != nil || newest < last || last == 0 {
				t.Fatalf("the newest event is %d, that of a document %d, %v", newest, last, err)
			}
			if none, same, err := s.Touched(ctx, newest, 100); len(none) > 0 || same != newest || err != nil {
				t.Fatalf("nothing new touched %v up to %d, %v", none, same, err)
			}
		}
		create()
		touched()
		seen(0)
		if from, err := s.FollowFrom(ctx); err != nil || from != 0 {
			t.Fatalf("followed from %d, %v, with one young event", from, err)
		}
		s.AdvanceClock(2 * time.Hour)
		create()
		touched()
		seen(1)
		if from, err := s.FollowFrom(ctx); err != nil || from == 0 {
			t.Fatalf("followed from %d, %v, with one old event", from, err)
		}
		s.AdvanceClock(2 * time.Hour)
		seen(2)
		s.AdvanceClock(2 * time.Hour)
		create()
		seen(2)
		s.AdvanceClock(-2 * time.Hour) // the clock was wrong: what it dated would be hidden until it is there again
		seen(3)
	})
}
