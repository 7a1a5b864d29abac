package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"

	"sheaf"
)

// indexStateIsFenced checks that exactly one of several concurrent changes of the
// same state succeeds, and that live results are listed once each, without deleted
// ones.
func indexStateIsFenced(f *Fixture) {
	if v, n, err := f.Store.IndexState(ctx); v != "" || n != 0 || err != nil {
		f.T.Fatalf("a new store has %q, %d, %v", v, n, err)
	}
	version := int64(0)
	for round := range 3 {
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				ok, err := f.Store.SwapIndexState(ctx, version, fmt.Sprintf("%d of round %d", i, round))
				if err != nil {
					f.T.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			f.T.Fatalf("%d of 8 changed version %d", won.Load(), version)
		}
		v, n, err := f.Store.IndexState(ctx)
		f.OK(err)
		if v == "" || n != version+1 {
			f.T.Fatalf("after a change there is %q, version %d", v, n)
		}
		version = n
	}

	var docs []Doc
	for range 3 {
		d := f.Document("t")
		for _, t := range f.Plan(d, Parse(2)...) {
			f.Done(t.ID)
		}
		f.Publish(d.ID, sheaf.DocSucceeded)
		docs = append(docs, d)
	}
	unpublished := f.Document("t")
	f.Done(f.Plan(unpublished, Parse(1)...)[0].ID)
	list := func() (out []string) {
		after := ""
		for {
			some, err := f.Store.LiveResults(ctx, "", after, 2)
			f.OK(err)
			for _, r := range some {
				if r.TenantID != "t" || r.DatasetID != "ds-t" || r.Name != "a.pdf" || r.MediaType != "application/pdf" || r.Chunks != 3 || r.RangeID == "" || r.ArtifactKey == "" {
					f.T.Fatalf("a live result is %+v", r)
				}
				out, after = append(out, r.DocumentID), r.Cursor
			}
			if len(some) == 0 {
				return out
			}
		}
	}
	if got := list(); len(got) != 6 {
		f.T.Fatalf("live results of %v, want two of each of %v", got, docs)
	}
	if n, err := f.Store.LiveTotals(ctx, ""); err != nil || n.Results != 6 || n.Chunks != 18 || n.Tokens != 180 {
		f.T.Fatalf("live results add up to %+v, %v", n, err)
	}
	stamp := func() string {
		v, err := f.Store.DatasetStamp(ctx, "t", "ds-t")
		f.OK(err)
		return v
	}
	before := stamp()
	want(f, "stamp without a change", stamp(), before)
	_, err := f.Store.DeleteDocuments(ctx, "t", []string{docs[0].ID})
	f.OK(err)
	if stamp() == before {
		f.T.Fatal("the stamp of a dataset does not see a deletion")
	}
	before = stamp()
	f.Document("t")
	if stamp() == before {
		f.T.Fatal("the stamp of a dataset does not see a new document")
	}
	if got := list(); len(got) != 4 {
		f.T.Fatalf("after a deletion: live results of %v", got)
	}
	for _, of := range []struct {
		tenant, dataset string
		want            int
	}{{"t", "ds-t", 4}, {"t", "ds-other", 0}, {"other", "ds-t", 0}} {
		got, after := 0, ""
		for {
			some, err := f.Store.DatasetResults(ctx, of.tenant, of.dataset, after, 3)
			f.OK(err)
			if len(some) == 0 {
				break
			}
			got, after = got+len(some), some[len(some)-1].Cursor
		}
		if got != of.want {
			f.T.Fatalf("%d live results of tenant %s and dataset %s, want %d", got, of.tenant, of.dataset, of.want)
		}
	}

	other := f.Document("u")
	f.Done(f.Plan(other, Parse(1)...)[0].ID)
	f.Publish(other.ID, sheaf.DocSucceeded)
	if some, err := f.Store.LiveResults(ctx, "u", "", 10); err != nil || len(some) != 1 || some[0].DocumentID != other.ID || some[0].TenantID != "u" {
		f.T.Fatalf("live results of one tenant are %+v, %v", some, err)
	}
	if n, err := f.Store.LiveTotals(ctx, "u"); err != nil || n.Results != 1 || n.Chunks != 3 {
		f.T.Fatalf("live results of one tenant add up to %+v, %v", n, err)
	}
	for least, want := range map[int64]int{1: 2, 7: 1, 19: 0} {
		large, err := f.Store.TenantsWith(ctx, least, 10)
		if err != nil || len(large) != want || want > 0 && (large[0].TenantID != "t" || large[0].Chunks != 12) {
			f.T.Fatalf("tenants with %d chunks: %+v, %v", least, large, err)
		}
	}
}
