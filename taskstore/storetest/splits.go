package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sheaf"
	"sheaf/taskstore"
)

func testSplits(t *testing.T, b *bench) {
	stamp := func() string {
		t.Helper()
		v, err := b.DatasetStamp(b.ctx, b.tenant, b.dataset.ID)
		b.ok(err)
		return v
	}
	before := ""
	fresh := func(after string) {
		t.Helper()
		if stamp() == before {
			t.Fatalf("the stamp of the dataset does not see %s", after)
		}
		before = stamp()
	}
	list := func() (out []string) {
		t.Helper()
		page := taskstore.Page{Limit: 2, Ascending: true} // short, so that there are more pages
		for {
			some, next, err := b.Splits(b.ctx, b.tenant, b.dataset.ID, page)
			b.ok(err)
			for _, s := range some {
				out = append(out, strings.Join(s.Names, "|"))
			}
			if page.Cursor = next; next == "" {
				return out
			}
		}
	}
	add := func(names ...string) *taskstore.Split {
		t.Helper()
		s, err := b.AddSplit(b.ctx, b.tenant, b.dataset.ID, names)
		b.ok(err)
		return s
	}
	fresh("nothing")
	first := add("US", "Us")
	b.same("first", []any{first.Names, first.DatasetID, first.TenantID, first.CreatedAt.IsZero()}, []any{[]string{"US", "Us"}, b.dataset.ID, b.tenant, false})
	fresh("the first")
	other, third := add("b \"\\ \u202e", "a", "ü"), add("c", "d")
	fresh("three")
	b.same("in the order in which they were added", list(), []string{"US|Us", "a|b \"\\ \u202e|ü", "c|d"})
	b.same("the same again", *add("Us", "US"), *first)
	b.same("others by their capitals", len(list()), 3)
	b.ok(b.RemoveSplit(b.ctx, b.tenant, b.dataset.ID, other.ID))
	fresh("that the second was taken back")
	if err := b.RemoveSplit(b.ctx, b.tenant, b.dataset.ID, other.ID); !errors.Is(err, sheaf.ErrNotFound) {
		t.Fatalf("taken back twice: %v", err)
	}
	b.ok(b.RemoveSplit(b.ctx, b.tenant, b.dataset.ID, third.ID))
	fresh("that the third was taken back")
	add("c", "d")
	fresh("that the third was added again")

	// Concurrent calls with the same names create one split.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := b.AddSplit(b.ctx, b.tenant, b.dataset.ID, []string{"race", "Race"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.same("after a race", list(), []string{"US|Us", "c|d", "Race|race"})

	long := strings.Repeat("x", taskstore.MaxSplitName+1)
	for _, names := range [][]string{nil, {"a"}, {"a", "a"}, {"a", long}, {"a", "\x00"}, {"a", "\xff"}, strings.Split("a b c d e f g h i j k", " ")} {
		if _, err := b.AddSplit(b.ctx, b.tenant, b.dataset.ID, names); !errors.Is(err, sheaf.ErrInvalid) {
			t.Fatalf("%.40q: %v", names, err)
		}
	}
	for i := range taskstore.MaxSplits - 3 {
		add("x", fmt.Sprint(i))
	}
	if _, err := b.AddSplit(b.ctx, b.tenant, b.dataset.ID, []string{"one", "more"}); !errors.Is(err, sheaf.ErrLimit) {
		t.Fatalf("one too many: %v", err)
	}
	b.same("one that is there, of as many as may be", *add("Us", "US"), *first)

	// Other datasets and tenants have none of them, and the deletion removes all.
	names, err := b.SplitNames(b.ctx, b.tenant, b.dataset.ID)
	b.ok(err)
	b.same("names of all", []any{len(names), names[0], names[taskstore.MaxSplits-1][1] != ""}, []any{taskstore.MaxSplits, []string{"US", "Us"}, true})
	for _, of := range [][2]string{{b.tenant, "other"}, {"other", b.dataset.ID}} {
		some, _, err := b.Splits(b.ctx, of[0], of[1], taskstore.Page{})
		if b.ok(err); len(some) > 0 {
			t.Fatalf("%v has %v", of, some)
		}
		if _, err := b.AddSplit(b.ctx, of[0], of[1], []string{"a", "b"}); !errors.Is(err, sheaf.ErrNotFound) {
			t.Fatalf("added to %v: %v", of, err)
		}
		if err := b.RemoveSplit(b.ctx, of[0], of[1], first.ID); !errors.Is(err, sheaf.ErrNotFound) {
			t.Fatalf("taken back of %v: %v", of, err)
		}
	}
	b.ok(second(b.DeleteDataset(b.ctx, b.tenant, b.dataset.ID)))
	b.same("after the deletion of the dataset", list(), []string(nil))
}
