package indexset_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/embed/static"
	"sheaf/internal/indexset"
	"sheaf/internal/search"
	"sheaf/taskstore/storetest"
)

// held is how many entries of a tenant each Elasticsearch index holds, by its
// name; those without any are left out.
func (w *world) held(tenant string) map[string]int {
	w.t.Helper()
	held := map[string]int{}
	for _, name := range strings.Split(w.names(), ",") {
		w.call(http.MethodPost, "/"+name+"/_refresh")
		_, count, _ := strings.Cut(w.call(http.MethodGet, "/"+name+"/_count?q=tenant:"+tenant), `"count":`)
		n := 0
		if _, err := fmt.Sscan(strings.SplitN(count, ",", 2)[0], &n); err != nil {
			w.t.Fatalf("counting in %s: %v", name, err)
		}
		if n > 0 {
			held[name] = n
		}
	}
	return held
}

func (w *world) move(s *indexset.Set, a indexset.Action, tenant string, shards int) {
	w.t.Helper()
	if _, err := s.Move(w.t.Context(), a, tenant, shards, false); err != nil {
		w.t.Fatalf("%s: %v", a, err)
	}
}

func settled(s *indexset.Set) func(*indexset.Status) bool {
	return func(st *indexset.Status) bool {
		state := s.View().State
		return st.Migration == nil && len(state.Leaving) == 0 && len(state.Dropping) == 0
	}
}

// A tenant gets an index with shards of its own and goes back while documents come
// and go; nobody misses a hit meanwhile.
func TestTenantMovesToAnIndexOfItsOwnAndBack(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t, "elastic"), t.Context()
	w.server()
	e := static.Default()
	model := e.Model().ID
	s := w.open(e)
	for range 9 {
		w.addOf("t", s)
		w.addOf("u", s)
	}
	other := w.open2(e)
	everything := func(when string) {
		t.Helper()
		for n := range w.docs {
			if w.docs[n].ID != "" {
				w.found(s, n, model)
			}
		}
		w.OK(other.Follow(ctx))
		other.found(3, model)
		other.found(len(w.docs)-1, model)
		if t.Failed() {
			t.Fatal(when)
		}
	}
	everything("before")

	w.move(s, indexset.Dedicate, "t", 3)
	st, err := s.Status(ctx)
	w.OK(err)
	if m := st.Migration; m == nil || m.Tenant != "t" || m.TotalRanges != 0 || len(st.Dedicated) != 0 {
		t.Fatalf("a move begins as %+v", st)
	}
	if _, err := s.Move(ctx, indexset.Dedicate, "u", 1, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("a second move at once: %v", err)
	}
	if _, _, err := s.Act(ctx, indexset.Rebuild, false, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("a rebuild meanwhile: %v", err)
	}
	// While it is filled one document comes from a process that knows of the move,
	// one is parsed again, and one goes.
	_, err = s.Step(ctx)
	w.OK(err)
	w.addOf("t", s)
	w.addOf("u", s)
	w.docs[2] = w.publish(s, w.Reparse(w.docs[2]), 2)
	gone := w.docs[0]
	w.OK(s.DeleteDocument(ctx, "t", gone.ID))
	_, err = w.Store.DeleteDocuments(ctx, "t", []string{gone.ID})
	w.OK(err)
	w.docs[0] = storetest.Doc{}
	everything("while it is filled")
	st = w.step(s, settled(s))
	if len(st.Dedicated) != 1 || st.Dedicated[0] != (indexset.Dedicated{Tenant: "t", Shards: 3}) {
		t.Fatalf("moved, the status is %+v", st)
	}
	everything("moved")
	ofT, ofU := w.held("t"), w.held("u")
	if len(ofT) != 1 || len(ofU) != 1 || slices.ContainsFunc(keys(ofT), func(name string) bool { return ofU[name] > 0 }) {
		t.Fatalf("the tenants lie in %v and %v", ofT, ofU)
	}
	// Ten documents lie in more than one of three shards, each with what it is found by.
	own := keys(ofT)[0]
	if shards := strings.Fields(w.call(http.MethodGet, "/_cat/shards/"+own+"?h=docs")); len(shards) != 3 || slices.Contains(shards, fmt.Sprint(ofT[own])) {
		t.Fatalf("%d entries lie in shards of %v", ofT[own], shards)
	}
	w.absent(s, gone)
	w.addOf("t", s)
	w.addOf("u", s)
	late := w.docs[4]
	w.OK(s.DeleteDocument(ctx, "t", late.ID))
	_, err = w.Store.DeleteDocuments(ctx, "t", []string{late.ID})
	w.OK(err)
	w.docs[4] = storetest.Doc{}
	w.absent(s, late)
	everything("after more came")

	// A rebuild keeps it apart.
	w.act(s, indexset.Rebuild)
	st = w.step(s, settled(s))
	if len(st.Dedicated) != 1 || st.Dedicated[0].Shards != 3 || len(w.held("t")) != 1 || w.held("t")[own] != 0 {
		t.Fatalf("after a rebuild: %+v in %v", st, w.held("t"))
	}
	everything("after a rebuild")

	// Its index alone is lost: it alone is filled anew.
	shared := keys(w.held("u"))[0]
	w.call(http.MethodDelete, "/"+keys(w.held("t"))[0])
	for s.View().State.Lost == "" {
		if _, err := s.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := w.searcher(s).Search(ctx, "u", search.Request{Query: "numbered " + word(3) + "aa", Limit: 5}); err != nil || len(answer.Hits) == 0 || answer.Index.Stale {
		t.Fatalf("others find %+v, %v", answer, err)
	}
	if answer, err := w.searcher(s).Search(ctx, "t", search.Request{Query: "numbered", Limit: 5}); err != nil || !answer.Index.Stale {
		t.Fatalf("the tenant whose index is lost is answered %+v, %v; want stale", answer, err)
	}
	w.step(s, settled(s))
	if now := keys(w.held("u")); !slices.Equal(now, []string{shared}) {
		t.Fatalf("the shared index was %s and is %v", shared, now)
	}
	everything("after the loss")

	w.move(s, indexset.Share, "t", 0)
	_, err = s.Step(ctx)
	w.OK(err)
	w.addOf("t", s)
	st = w.step(s, settled(s))
	if len(st.Dedicated) != 0 || !slices.Equal(keys(w.held("t")), []string{shared}) || strings.Contains(w.names(), ",") {
		t.Fatalf("shared again: %+v, %v of %s", st, w.held("t"), w.names())
	}
	everything("shared again")
	w.absent(s, gone)
	w.absent(s, late)

	// A move that is called off leaves all where it was.
	w.move(s, indexset.Dedicate, "u", 2)
	_, err = s.Step(ctx)
	w.OK(err)
	w.act(s, indexset.Cancel)
	w.step(s, settled(s))
	if names := w.names(); names != shared {
		t.Fatalf("after a move was called off there is %s", names)
	}
	everything("called off")
}

func keys(m map[string]int) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// The shared index is lost while a tenant has its own: that one stays.
func TestSharedIndexIsLostBesideATenantsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "elastic")
	w.server()
	e := static.Default()
	s := w.open(e)
	for range 4 {
		w.addOf("t", s)
		w.addOf("u", s)
	}
	w.move(s, indexset.Dedicate, "t", 1)
	w.step(s, settled(s))
	own := keys(w.held("t"))
	w.call(http.MethodDelete, "/"+keys(w.held("u"))[0])
	for s.View().State.Lost == "" {
		if _, err := s.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for tenant, stale := range map[string]bool{"t": false, "u": true} {
		answer, err := w.searcher(s).Search(t.Context(), tenant, search.Request{Query: "numbered", Limit: 5})
		if err != nil || answer.Index.Stale != stale {
			t.Fatalf("%s is answered %+v, %v; want stale %v", tenant, answer, err, stale)
		}
	}
	if _, _, err := s.Act(t.Context(), indexset.Cancel, false, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("an index that is filled anew is called off: %v", err)
	}
	w.step(s, settled(s))
	if now := keys(w.held("t")); !slices.Equal(now, own) {
		t.Fatalf("the tenant's index was %v and is %v", own, now)
	}
	for n := range w.docs {
		w.found(s, n, e.Model().ID)
	}
}

// A tenant that has more chunks than the settings say is moved without being asked.
func TestTenantThatOutgrowsAShardIsMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "elastic")
	w.server()
	e := static.Default()
	s := w.open(e, func(c *indexset.Config) { c.DedicatedFrom = 12 })
	for range 3 {
		w.addOf("t", s)
	}
	w.addOf("u", s)
	st := w.step(s, func(st *indexset.Status) bool { return len(st.Dedicated) > 0 && settled(s)(st) })
	if len(st.Dedicated) != 1 || st.Dedicated[0] != (indexset.Dedicated{Tenant: "t", Shards: 2}) {
		t.Fatalf("18 chunks of t and 6 of u: %+v", st.Dedicated)
	}
	for n := range w.docs {
		w.found(s, n, e.Model().ID)
	}
}

func TestMovesThatCannotBe(t *testing.T) {
	w := newWorld(t, "elastic")
	w.server()
	s := w.open(static.Default())
	w.addOf("t", s)
	for _, c := range []struct {
		a      indexset.Action
		tenant string
		shards int
		want   error
		code   string
	}{
		{indexset.Share, "t", 0, sheaf.ErrConflict, "index_tenant_shared"},
		{indexset.Dedicate, "", 1, sheaf.ErrInvalid, ""},
		{indexset.Dedicate, "tt", 1, sheaf.ErrNotFound, ""},
		{indexset.Dedicate, "t", 0, sheaf.ErrInvalid, ""},
		{indexset.Dedicate, "t", 257, sheaf.ErrInvalid, ""},
	} {
		_, err := s.Move(t.Context(), c.a, c.tenant, c.shards, false)
		if f, _ := errors.AsType[*sheaf.Failure](err); !errors.Is(err, c.want) || c.code != "" && (f == nil || f.Code != c.code) {
			t.Errorf("%s %q with %d shards: %v", c.a, c.tenant, c.shards, err)
		}
	}
	w.move(s, indexset.Dedicate, "t", 1)
	w.step(s, settled(s))
	if _, err := s.Move(t.Context(), indexset.Dedicate, "t", 2, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Errorf("it has its own: %v", err)
	}

	one := newWorld(t, "embedded")
	_, err := one.open(static.Default()).Move(t.Context(), indexset.Dedicate, "t", 1, false)
	if f, _ := errors.AsType[*sheaf.Failure](err); f == nil || f.Code != "index_indivisible" {
		t.Errorf("the embedded index: %v", err)
	}
}

// Until the tenant's entries have left the shared index they are not written there
// again: what searches meanwhile goes on.
func TestEntriesLeaveOnceNobodySearchesThem(t *testing.T) {
	w := newWorld(t, "elastic")
	w.server()
	s := w.open(static.Default(), func(c *indexset.Config) { c.Grace = time.Hour })
	w.addOf("t", s)
	w.move(s, indexset.Dedicate, "t", 1)
	w.step(s, func(st *indexset.Status) bool { return len(st.Dedicated) == 1 })
	if _, err := s.Step(t.Context()); err != nil || len(w.held("t")) != 2 || len(s.View().State.Leaving) != 1 {
		t.Fatalf("within the grace the tenant lies in %v, %v", w.held("t"), err)
	}
	if _, err := s.Move(t.Context(), indexset.Share, "t", 0, false); !errors.Is(err, sheaf.ErrConflict) {
		t.Fatalf("back before it has left: %v", err)
	}
	// What both hold is deleted from both.
	w.OK(s.DeleteDocument(t.Context(), "t", w.docs[0].ID))
	if held := w.held("t"); len(held) != 0 {
		t.Fatalf("a deleted document is left in %v", held)
	}
}
