package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

func testFlowVersions(t *testing.T, b *bench) {
	ask := func(name, digest string) taskstore.FlowVersion {
		return taskstore.FlowVersion{TenantID: b.tenant, Name: name, Digest: digest, Body: json.RawMessage(`{"name":"` + name + `","digest":"` + digest + `"}`)}
	}
	create := func(name, digest string) *taskstore.FlowVersion {
		t.Helper()
		v, err := b.CreateFlow(b.ctx, ask(name, digest), false)
		b.ok(err)
		return v
	}
	listed := func(vs []taskstore.FlowVersion) (out []string) {
		for _, v := range vs {
			out = append(out, fmt.Sprintf("%s@%d %s", v.Name, v.Version, v.Digest))
		}
		return out
	}
	one := create("contracts", "a")
	b.same("first", []any{one.Version, one.Digest, string(one.Body), one.CreatedAt.IsZero()}, []any{1, "a", `{"name":"contracts","digest":"a"}`, false})
	b.same("the same again", create("contracts", "a").Version, 1)
	would, err := b.CreateFlow(b.ctx, ask("contracts", "b"), true)
	b.ok(err)
	b.same("dry run", would.Version, 2)
	b.same("another", create("contracts", "b").Version, 2)
	b.same("back to the first", create("contracts", "a").Version, 3)

	// Concurrent calls with different digests get different numbers.
	var wg sync.WaitGroup
	var mu sync.Mutex
	numbers := map[int]bool{}
	for i := range 4 {
		wg.Go(func() {
			v, err := b.CreateFlow(b.ctx, ask("race", fmt.Sprint(i)), false)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			numbers[v.Version] = true
		})
	}
	wg.Wait()
	b.same("numbers", numbers, map[int]bool{1: true, 2: true, 3: true, 4: true})

	create("apart", "x")
	all, next, err := b.Flows(b.ctx, b.tenant, taskstore.Page{Limit: 2})
	b.ok(err)
	b.same("first page", []any{listed(all), next}, []any{[]string{"apart@1 x", "contracts@3 a"}, "contracts"})
	all, next, err = b.Flows(b.ctx, b.tenant, taskstore.Page{Limit: 2, Cursor: next})
	b.ok(err)
	b.same("second page", []any{len(all), all[0].Name, all[0].Version, next}, []any{1, "race", 4, ""})

	latest, err := b.Flow(b.ctx, b.tenant, "contracts", 0)
	b.ok(err)
	second, err := b.Flow(b.ctx, b.tenant, "contracts", 2)
	b.ok(err)
	b.same("latest and second", []any{latest.Version, second.Digest}, []any{3, "b"})

	// A flow that a dataset names cannot be deleted, the others can.
	d := b.dataset
	names := func(flow sheaf.Opt[string]) {
		t.Helper()
		d.ParseConfig.Flow, d.UpdatedAt = flow, time.Time{}
		b.ok(b.UpdateDataset(b.ctx, *d))
	}
	for _, c := range []struct {
		named   string
		version int
	}{{"contracts@2", 2}, {"contracts@2", 0}, {"contracts", 0}, {"apart", 1}, {"apart@latest", 0}} {
		names(sheaf.Set(c.named))
		name, _, _ := strings.Cut(c.named, "@")
		if _, err := b.DeleteFlow(b.ctx, b.tenant, name, c.version); !errors.Is(err, sheaf.ErrConflict) {
			t.Errorf("deleting version %d of what a dataset names as %s: %v", c.version, c.named, err)
		}
	}
	names(sheaf.Set("contracts@2")) // and not contracts@3, which is deleted below

	// A missing flow cannot be named, and concurrent calls end in one order or the
	// other: a dataset never names a deleted flow.
	gone := *d
	gone.ParseConfig.Flow, gone.UpdatedAt = sheaf.Set("nothing@1"), time.Time{}
	if err := b.UpdateDataset(b.ctx, gone); !errors.Is(err, sheaf.ErrConflict) {
		t.Errorf("a dataset names a flow that is not there: %v", err)
	}
	if _, err := b.CreateDataset(b.ctx, sheaf.Dataset{TenantID: b.tenant, Name: "names nothing", ParseConfig: gone.ParseConfig}); !errors.Is(err, sheaf.ErrConflict) {
		t.Errorf("a new dataset names a flow that is not there: %v", err)
	}
	for i := range 8 {
		create("pinned", fmt.Sprint(i))
		var pin, remove error
		wg.Go(func() {
			d := *d
			d.ParseConfig.Flow, d.UpdatedAt = sheaf.Set("pinned@"+fmt.Sprint(i+1)), time.Time{}
			pin = b.UpdateDataset(b.ctx, d)
		})
		wg.Go(func() { _, remove = b.DeleteFlow(b.ctx, b.tenant, "pinned", i+1) })
		wg.Wait()
		if (pin == nil) == (remove == nil) || pin != nil && !errors.Is(pin, sheaf.ErrConflict) || remove != nil && !errors.Is(remove, sheaf.ErrConflict) {
			t.Errorf("at once: naming it says %v, deleting it %v", pin, remove)
		}
	}
	names(sheaf.Set("contracts@2"))

	// Another tenant has none of them.
	if _, err := b.Flow(b.ctx, "nobody", "contracts", 0); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("another tenant reads it: %v", err)
	}
	if _, err := b.DeleteFlow(b.ctx, "nobody", "contracts", 0); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("another tenant deletes it: %v", err)
	}

	// A number is not reused, even if it was the last.
	deleted, err := b.DeleteFlow(b.ctx, b.tenant, "contracts", 3)
	b.ok(err)
	b.same("deleted", deleted, []int{3})
	names(sheaf.Opt[string]{})
	vs, err := b.FlowVersions(b.ctx, b.tenant, "contracts")
	b.ok(err)
	b.same("versions", listed(vs), []string{"contracts@2 b", "contracts@1 a"})
	b.same("after a deletion", create("contracts", "a").Version, 4)
	deleted, err = b.DeleteFlow(b.ctx, b.tenant, "contracts", 0)
	b.ok(err)
	b.same("all deleted", deleted, []int{1, 2, 4})
	for _, version := range []int{0, 1, 4} {
		if _, err := b.Flow(b.ctx, b.tenant, "contracts", version); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("version %d is there: %v", version, err)
		}
	}
	if _, err := b.FlowVersions(b.ctx, b.tenant, "contracts"); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("versions are there: %v", err)
	}
	if _, err := b.DeleteFlow(b.ctx, b.tenant, "contracts", 0); !errors.Is(err, sheaf.ErrNotFound) {
		t.Errorf("it is deleted twice: %v", err)
	}
	b.same("created anew", create("contracts", "a").Version, 5)
}
