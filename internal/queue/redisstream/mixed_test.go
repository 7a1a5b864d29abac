package redisstream

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
)

// byTime is an executor of the version that served tasks by time: its scripts
// see what lies in the streams and nothing else.
type byTime struct {
	t                            *testing.T
	q                            *Queue
	pick, take, settle, activate *redis.Script
}

func newByTime(t *testing.T, q *Queue) *byTime {
	t.Helper()
	load := func(name string) *redis.Script {
		text, err := os.ReadFile("testdata/by_time/" + name + ".lua")
		if err != nil {
			t.Fatal(err)
		}
		return redis.NewScript(string(text))
	}
	return &byTime{t, q, load("pick"), load("take"), load("settle"), load("activate")}
}

// takes is one round of its Take: it lets a tenant go that has nothing for it.
func (o *byTime) takes() (tasks []string) {
	o.t.Helper()
	ctx, s, k := o.t.Context(), o.q.main, o.q.main.keys
	picked, err := o.pick.Run(ctx, s.client, []string{k.active(), k.idle(), k.vt(), k.act(), k.share(), k.cost(), k.prefix + "{sched}:taken", k.wakeups()}, 1, stride, 8).StringSlice()
	if err != nil {
		o.t.Fatal(err)
	}
	for f := range slices.Chunk(picked, 5) {
		keys := []string{k.run(f[0]), k.wait(f[0])}
		for _, lane := range sheaf.Lanes {
			keys = append(keys, k.stream(f[0], lane))
		}
		hints, status, err := s.parseTake(f[0], o.take.Run(ctx, s.client, keys, group, "old", 8, 1, 600_000, 512))
		if err != nil {
			o.t.Fatal(err)
		}
		for _, h := range hints {
			tasks = append(tasks, h.TaskID)
		}
		leave := ""
		if status == "empty" || status == "last" {
			leave = f[4]
		}
		if err := o.settle.Run(ctx, s.client, []string{k.active(), k.idle(), k.vt(), k.act(), k.cost()}, stride, f[0], len(hints)-1, "1", len(hints), leave).Err(); err != nil {
			o.t.Fatal(err)
		}
	}
	return tasks
}

// done ends a task: it activates the tenant if the cap kept somebody waiting.
func (o *byTime) done(task string) {
	o.t.Helper()
	ctx, c, k := o.t.Context(), o.q.main.client, o.q.main.keys
	freed, err := doneScript.Run(ctx, c, []string{k.run("a"), k.wait("a")}, task).Bool()
	if err == nil && freed {
		err = o.activate.Run(ctx, c, []string{k.active(), k.idle(), k.vt(), k.act(), k.seq(), k.known(), k.wakeups()}, "a", 1).Err()
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// TestExecutorsOfTheVersionBefore run beside those of this one while a fleet is
// brought up to date: alone they take all that is published, and where they see
// nothing they keep nothing from the others.
func TestExecutorsOfTheVersionBefore(t *testing.T) {
	o := sharedRedis(t)
	q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
	old := newByTime(t, q)
	publish := func(ids ...string) {
		t.Helper()
		var hints []sheaf.Hint
		for _, id := range ids {
			hints = append(hints, sheaf.Hint{TaskID: id, TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindPlan, Phase: sheaf.PhaseBegin, Place: time.Now()})
		}
		if n, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, hints); err != nil || n != len(ids) {
			t.Fatal(n, err)
		}
	}
	publish("1", "2")
	if got := append(old.takes(), old.takes()...); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("alone they take %v, want all", got)
	}

	publish("3", "4", "5")
	one := func(want string) {
		t.Helper()
		hints, err := q.Take(t.Context(), "new", 1, nil)
		if err != nil || len(hints) != 1 || hints[0].TaskID != want {
			t.Fatalf("took %v, %v; want %s", hints, err, want)
		}
	}
	one("3") // and the rest is sorted, where they do not see it
	for range 3 {
		if got := old.takes(); len(got) != 0 {
			t.Fatalf("they take %v", got)
		}
	}
	one("4")
	one("5")

	// What a version before has published has no phase and no place.
	for _, e := range [][2]string{{"6", "plan"}, {"7", "parse"}, {"8", "finalize"}} {
		if err := q.main.client.XAdd(t.Context(), &redis.XAddArgs{Stream: q.main.keys.stream("a", sheaf.LaneNormal),
			Values: []string{"t", e[0], "c", "1", "k", e[1], "a", "1700000000000"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.activate(t.Context(), q.main, "a", 0); err != nil {
		t.Fatal(err)
	}
	one("8")
	one("7")
	one("6")
	// By then it is idle, and a tenant that has nothing is let go.
	if _, err := q.Take(t.Context(), "new", 1, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := q.main.client.ZCard(t.Context(), q.main.keys.active()).Result(); err != nil || n != 0 {
		t.Errorf("%d tenants are picked from with nothing to take, %v", n, err)
	}
}

// A tenant whose hints wait is picked from again, though it was let go and no
// task runs whose end would do that: by an executor of the version before, which
// does not see sorted hints, or by one that ended between a task's end and the
// activation that it owed.
func TestHintsOfATenantThatWasLetGoAreServed(t *testing.T) {
	for name, end := range map[string]func(old *byTime, task string){
		"by the version before": func(old *byTime, task string) {
			old.done(task) // takes the place of the one that waits
			if got := old.takes(); len(got) != 0 {
				old.t.Fatalf("the version before takes %v", got)
			}
		},
		"by an executor that died": func(old *byTime, task string) {
			k := old.q.main.keys
			if err := doneScript.Run(old.t.Context(), old.q.main.client, []string{k.run("a"), k.wait("a")}, task).Err(); err != nil {
				old.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := sharedRedis(t)
			q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
			var hints []sheaf.Hint
			for _, id := range []string{"1", "2", "3"} {
				hints = append(hints, sheaf.Hint{TaskID: id, TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindFinalize})
			}
			take := func() []sheaf.Hint {
				t.Helper()
				got, err := q.Take(t.Context(), "new", 2, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range got {
					if err := q.Ack(t.Context(), h, true); err != nil {
						t.Fatal(err)
					}
				}
				return got
			}
			recover := func() {
				t.Helper()
				if found, err := q.Recover(t.Context(), "new", 0); err != nil || len(found) != 0 {
					t.Fatalf("recovered %v, %v", found, err)
				}
			}
			if err := q.SetShare(t.Context(), "a", 1, 1); err != nil {
				t.Fatal(err)
			}
			if n, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, hints); err != nil || n != 3 {
				t.Fatal(n, err)
			}
			first := take()
			if len(first) != 1 || len(take()) != 0 {
				t.Fatalf("took %v, want one under a cap of one", first)
			}
			recover()
			if n, err := q.main.client.ZCard(t.Context(), q.main.keys.active()).Result(); err != nil || n != 0 {
				t.Fatalf("a tenant at its cap is picked from: %d, %v", n, err)
			}
			end(newByTime(t, q), first[0].TaskID)
			if got := take(); len(got) != 0 {
				t.Fatalf("took %v of a tenant that was let go", got)
			}
			recover()
			if got := take(); len(got) != 1 {
				t.Errorf("took %v, want the next", got)
			}
		})
	}
}
