package redisstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/internal/queue/queuetest"
)

// contract runs the suite on one Redis, under a prefix of its own per test.
func contract(t *testing.T, o RedisOptions, lanes map[sheaf.Lane]RedisOptions) {
	queuetest.Run(t, func(t *testing.T) queuetest.Harness {
		cfg := Config{Redis: o, Lanes: lanes, Prefix: newPrefix(t, o), Window: 64}
		for _, lane := range lanes {
			t.Cleanup(func() {
				c := lane.client()
				defer c.Close()
				dropKeys(t, c, cfg.Prefix)
			})
		}
		q := newQueue(t, cfg)
		count := new(commands)
		for _, s := range q.all() {
			s.client.AddHook(count)
		}
		return queuetest.Harness{
			Queue:  q,
			Store:  new(queuetest.Store),
			Second: func(t *testing.T) queue.Queue { return newQueue(t, cfg) },
			Window: cfg.Window,
			Lose: func(t *testing.T) {
				for _, s := range q.all() {
					dropKeys(t, s.client, cfg.Prefix)
				}
			},
			Ops:     count.n.Load,
			IdleOps: int64(len(q.shards)),
		}
	})
}

func TestContract(t *testing.T)          { contract(t, sharedRedis(t), nil) }
func TestContractOnCluster(t *testing.T) { contract(t, startCluster(t), nil) }

func TestContractOnSentinel(t *testing.T) {
	o, _ := startSentinel(t)
	contract(t, o, nil)
}

func TestContractWithARedisPerLane(t *testing.T) {
	contract(t, sharedRedis(t), map[sheaf.Lane]RedisOptions{
		sheaf.LaneInteractive: startServer(t).options(),
		sheaf.LaneBackfill:    startServer(t).options(),
	})
}

// pending makes a store with n tasks of one tenant.
func pending(n int) *queuetest.Store {
	store := new(queuetest.Store)
	store.Add("a", sheaf.LaneNormal, n)
	return store
}

// drain runs everything that is left to its end, as keeper and executor would
// while Redis comes and goes.
func drain(t *testing.T, q *Queue, store *queuetest.Store) {
	t.Helper()
	eventually(t, "all tasks end", func() bool {
		if store.FeedQueue(t.Context(), q) != nil {
			return false
		}
		for {
			hints, err := q.Take(t.Context(), "w", 16, nil)
			if err != nil || len(hints) == 0 {
				return err == nil && store.Left() == 0
			}
			for _, h := range hints {
				won := store.Claim(h.TaskID)
				if err := q.Ack(t.Context(), h, won); err != nil {
					t.Error(err)
				}
				if won {
					store.Finish(h.TaskID, false)
					if err := q.Done(t.Context(), h.TenantID, h.TaskID); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

func TestFlushAllHealsByPublishingAgain(t *testing.T) {
	s := startServer(t)
	q, store := newQueue(t, Config{Redis: s.options()}), pending(300)
	before, err := q.RunIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if hints, err := q.Take(t.Context(), "w", 10, nil); err != nil || len(hints) == 0 {
		t.Fatalf("took %d, %v", len(hints), err)
	}
	s.do("FLUSHALL")
	s.do("SCRIPT", "FLUSH")
	if after, err := q.RunIDs(t.Context()); err != nil || after[sheaf.LaneNormal] == before[sheaf.LaneNormal] {
		t.Fatalf("run id %v after FLUSHALL, %v; it was %v before", after, err, before)
	}
	store.Forget()
	drain(t, q, store)
}

func TestRedisThatWasKilledComesBack(t *testing.T) {
	s := startServer(t)
	q, store := newQueue(t, Config{Redis: s.options()}), pending(300)
	before, err := q.RunIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	s.kill()
	const says = "no Redis listens there"
	_, err = q.Take(t.Context(), "w", 1, nil)
	wantKind(t, err, sheaf.ErrUnavailable, "redis pick")
	_, err = q.Publish(t.Context(), "a", sheaf.LaneNormal, []sheaf.Hint{{TaskID: "x", TenantID: "a"}})
	wantKind(t, err, sheaf.ErrUnavailable, says)
	wantKind(t, q.Ping(t.Context()), sheaf.ErrUnavailable, says)
	start := time.Now()
	wantKind(t, q.Wait(t.Context(), 300*time.Millisecond), sheaf.ErrUnavailable, says)
	if waited := time.Since(start); waited < 250*time.Millisecond {
		t.Errorf("a wait of 300 ms failed after %v: a loop over it would spin", waited)
	}
	s.start()
	if after, err := q.RunIDs(t.Context()); err != nil || after[sheaf.LaneNormal] == before[sheaf.LaneNormal] {
		t.Fatalf("run id %v after the loss, %v; it was %v before", after, err, before)
	}
	store.Forget()
	drain(t, q, store)
}

func TestCancelSignalsSurviveAnOutage(t *testing.T) {
	s := startServer(t)
	q := newQueue(t, Config{Redis: s.options()})
	heard := q.Cancels(t.Context())
	s.kill()
	s.start()
	eventually(t, "a cancel signal is heard again", func() bool {
		if err := q.SignalCancel(t.Context(), []string{"x"}); err != nil {
			return false
		}
		select {
		case id := <-heard:
			return id == "x"
		case <-time.After(100 * time.Millisecond):
			return false
		}
	})
}

// What was sent while Redis was away is made up for, one notification for all, and
// the stream that carries them holds one entry.
func TestChangesSurviveAnOutage(t *testing.T) {
	s := startServer(t)
	q := newQueue(t, Config{Redis: s.options()})
	heard := q.Changes(t.Context())
	receive := func(what string) {
		t.Helper()
		select {
		case <-heard:
		case <-time.After(20 * time.Second):
			t.Fatalf("not within 20 s: %s", what)
		}
	}
	receive("the notification of the beginning")
	s.kill()
	wantKind(t, q.NotifyChange(t.Context()), sheaf.ErrUnavailable, "no Redis listens there")
	s.start()
	receive("the notification that makes up for the outage")
	for range 50 {
		if err := q.NotifyChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		receive("a notification after the outage")
	}
	if n, err := s.client().XLen(t.Context(), q.main.keys.changes()).Result(); err != nil || n != 1 {
		t.Errorf("the stream holds %d entries, %v", n, err)
	}
}

func TestMasterFailsOver(t *testing.T) {
	o, master := startSentinel(t)
	q, store := newQueue(t, Config{Redis: o}), pending(100)
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	master.kill()
	eventually(t, "the queue writes to the new master", func() bool { return q.Notify(t.Context()) == nil })
	store.Forget()
	drain(t, q, store)
}

func TestRedisWithoutMemoryStillServes(t *testing.T) {
	s := startServer(t, "--maxmemory-policy", "noeviction")
	q, store := newQueue(t, Config{Redis: s.options()}), pending(40)
	store.SetTenant("a", 1, 3)
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	s.do("CONFIG", "SET", "maxmemory", "1")
	_, err := q.Publish(t.Context(), "b", sheaf.LaneNormal, []sheaf.Hint{{TaskID: "x", TenantID: "b"}})
	wantKind(t, err, sheaf.ErrReadOnly, "out of memory")
	for i := 0; i < 40; {
		hints, err := q.Take(t.Context(), "w", 4, nil)
		if err != nil || len(hints) == 0 {
			t.Fatalf("after %d tasks took %d, %v", i, len(hints), err)
		}
		for _, h := range hints {
			store.Claim(h.TaskID)
			if err := q.Ack(t.Context(), h, true); err != nil {
				t.Fatal(err)
			}
		}
		for _, h := range hints {
			if err := q.Done(t.Context(), h.TenantID, h.TaskID); err != nil {
				t.Fatal(err)
			}
		}
		i += len(hints)
	}
	s.do("CONFIG", "SET", "maxmemory", "0")
	if _, err := q.Publish(t.Context(), "b", sheaf.LaneNormal, []sheaf.Hint{{TaskID: "x", TenantID: "b"}}); err != nil {
		t.Errorf("with memory again: %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	hint := []sheaf.Hint{{TaskID: "x", TenantID: "a"}}
	publish := func(t *testing.T, o RedisOptions) error {
		_, err := newQueue(t, Config{Redis: o}).Publish(t.Context(), "a", sheaf.LaneNormal, hint)
		return err
	}
	t.Run("Replica", func(t *testing.T) {
		master := startServer(t)
		replica := startServer(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.port))
		eventually(t, "the replica is in step", func() bool {
			c := replica.client()
			defer c.Close()
			info, err := c.Info(t.Context(), "replication").Result()
			return err == nil && strings.Contains(info, "master_link_status:up")
		})
		wantKind(t, publish(t, replica.options()), sheaf.ErrReadOnly, "point to the master")
	})
	t.Run("DiskFull", func(t *testing.T) {
		s := startServer(t, "--stop-writes-on-bgsave-error", "yes")
		s.do("CONFIG", "SET", "save", "3600 1")
		s.do("CONFIG", "SET", "rdbcompression", "no")
		s.do("SET", "x", "1")
		// The data folder goes away under the server, and with it the place to save.
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatal(err)
		}
		c := s.client()
		defer c.Close()
		_ = c.BgSave(t.Context()).Err()
		eventually(t, "the save has failed", func() bool {
			info, err := c.Info(t.Context(), "persistence").Result()
			return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
		})
		wantKind(t, publish(t, s.options()), sheaf.ErrReadOnly, "cannot save to its disk")
	})
	t.Run("Password", func(t *testing.T) {
		s := startServer(t, "--protected-mode", "no")
		s.do("CONFIG", "SET", "requirepass", "secret")
		wantKind(t, publish(t, s.options()), sheaf.ErrUnavailable, "asks for a password")
		wrong := s.options()
		wrong.Password = "wrong-one"
		err := publish(t, wrong)
		wantKind(t, err, sheaf.ErrUnavailable, "refuses user name or password")
		if strings.Contains(err.Error(), "wrong-one") {
			t.Errorf("the error shows the password: %v", err)
		}
		right := s.options()
		right.Password = "secret"
		if err := publish(t, right); err != nil {
			t.Error(err)
		}
	})
	t.Run("NotACluster", func(t *testing.T) {
		o := startServer(t).options()
		o.Cluster = true
		wantKind(t, publish(t, o), sheaf.ErrUnavailable, "cluster")
	})
	t.Run("NobodyThere", func(t *testing.T) {
		wantKind(t, publish(t, RedisOptions{Addrs: []string{"127.0.0.1:1"}}), sheaf.ErrUnavailable, "no Redis listens there")
	})
	t.Run("OwnContext", func(t *testing.T) {
		q := newQueue(t, Config{Redis: RedisOptions{Addrs: []string{"127.0.0.1:1"}}})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Notify(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("Options", func(t *testing.T) {
		one := RedisOptions{Addrs: []string{"a:1"}}
		for says, cfg := range map[string]Config{
			"no address":            {},
			"several Redis":         {Redis: RedisOptions{Addrs: []string{"a:1", "b:1"}}},
			"both a Sentinel":       {Redis: RedisOptions{Addrs: []string{"a:1"}, Cluster: true, MasterName: "m"}},
			"has only database 0":   {Redis: RedisOptions{Addrs: []string{"a:1"}, Cluster: true, DB: 3}},
			"holds a brace":         {Redis: one, Prefix: "{x}"},
			"lanes are 1, 2 and 3":  {Redis: one, Lanes: map[sheaf.Lane]RedisOptions{4: one}},
			"lane 1: invalid: no a": {Redis: one, Lanes: map[sheaf.Lane]RedisOptions{1: {}}},
		} {
			_, err := New(cfg)
			wantKind(t, err, sheaf.ErrInvalid, says)
		}
	})
}

func TestOptionsPrintNoSecrets(t *testing.T) {
	o := RedisOptions{Addrs: []string{"h:1"}, MasterName: "m", Password: "hidden", SentinelPassword: "hidden"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, o); strings.Contains(text, "hidden") || !strings.Contains(text, "h:1") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestHintThatWaitedLongCountsOneLaneHigher(t *testing.T) {
	o := sharedRedis(t)
	cfg := Config{Redis: o, Prefix: newPrefix(t, o), AgeAfter: 200 * time.Millisecond}
	q := newQueue(t, cfg)
	publish := func(lane sheaf.Lane, id string, kind sheaf.TaskKind) {
		t.Helper()
		if _, err := q.Publish(t.Context(), "a", lane, []sheaf.Hint{{TaskID: id, TenantID: "a", Cost: 1, Kind: kind}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(sheaf.LaneBackfill, "old-skipped", sheaf.KindPlan)
	publish(sheaf.LaneBackfill, "old", sheaf.KindParse)
	time.Sleep(300 * time.Millisecond) // Redis' own clock tells the age
	publish(sheaf.LaneBackfill, "young", sheaf.KindParse)
	publish(sheaf.LaneNormal, "normal", sheaf.KindParse)
	publish(sheaf.LaneInteractive, "interactive", sheaf.KindParse)
	for i, want := range []string{"interactive", "old", "normal"} {
		hints, err := q.Take(t.Context(), "w", 1, []sheaf.TaskKind{sheaf.KindPlan})
		if err != nil || len(hints) != 1 || hints[0].TaskID != want {
			t.Fatalf("take %d: %v, %v; want %s", i, hints, err, want)
		}
	}
	// What was skipped has kept its place.
	for i, want := range []string{"old-skipped", "young"} {
		hints, err := q.Take(t.Context(), "w", 1, nil)
		if err != nil || len(hints) != 1 || hints[0].TaskID != want {
			t.Fatalf("take %d without skipping: %v, %v; want %s", i, hints, err, want)
		}
	}
}

func TestWorkStreamsAreNeverTrimmedAndEndEmpty(t *testing.T) {
	o := sharedRedis(t)
	cfg := Config{Redis: o, Prefix: newPrefix(t, o)}
	q, store := newQueue(t, cfg), pending(500)
	drain(t, q, store)
	if err := q.Leave(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	stream := q.main.keys.stream("a", sheaf.LaneNormal)
	info, err := q.main.client.XInfoStream(t.Context(), stream).Result()
	if err != nil || info.Length != 0 || info.EntriesAdded != 2*500 {
		t.Errorf("stream %+v, %v; want 500 entries published, as many handed out, and none left", info, err)
	}
	consumers, err := q.main.client.XInfoConsumers(t.Context(), stream, group).Result()
	if err != nil || len(consumers) != 0 {
		t.Errorf("consumers %+v, %v are left after the worker did", consumers, err)
	}
	for _, key := range []string{q.main.keys.run("a"), q.main.keys.active()} {
		if n, err := q.main.client.Exists(t.Context(), key).Result(); err != nil || n != 0 {
			t.Errorf("%s is left, %v", key, err)
		}
	}
}

func TestDeadWorkersAreForgottenOnlyWithNothingPending(t *testing.T) {
	o := sharedRedis(t)
	cfg := Config{Redis: o, Prefix: newPrefix(t, o), ConsumerTTL: time.Millisecond}
	q, store := newQueue(t, cfg), pending(2)
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	names := func() []string {
		t.Helper()
		consumers, err := q.main.client.XInfoConsumers(t.Context(), q.main.keys.stream("a", sheaf.LaneNormal), group).Result()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range consumers {
			names = append(names, c.Name)
		}
		return names
	}
	first, err := q.Take(t.Context(), "dead-1", 1, nil)
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	if err := q.Ack(t.Context(), first[0], true); err != nil {
		t.Fatal(err)
	}
	if second, err := q.Take(t.Context(), "dead-2", 1, nil); err != nil || len(second) != 1 {
		t.Fatal(second, err)
	}
	time.Sleep(5 * time.Millisecond) // Redis' own clock tells how long they were idle
	// A search that finds nothing idle enough must not take dead-2's entry with the consumer.
	if _, err := q.main.client.ZAdd(t.Context(), q.main.keys.searched(), redis.Z{Member: "a", Score: 0}).Result(); err != nil {
		t.Fatal(err)
	}
	if hints, err := q.Recover(t.Context(), "rescuer", time.Hour); err != nil || len(hints) != 0 {
		t.Fatal(hints, err)
	}
	if got := fmt.Sprint(names()); got != "[dead-2]" {
		t.Errorf("consumers %s, want [dead-2]", got)
	}
	if hints, err := q.Recover(t.Context(), "rescuer", 0); err != nil || len(hints) != 1 {
		t.Fatalf("recovered %v, %v; want the entry of dead-2", hints, err)
	}
}

func TestEveryEntryIsRecoveredThoughTheTenantIsBusy(t *testing.T) {
	o := sharedRedis(t)
	q, store := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)}), pending(3000)
	if err := store.FeedQueue(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	lost, err := q.Take(t.Context(), "dead", 1, nil)
	if err != nil || len(lost) != 1 {
		t.Fatal(lost, err)
	}
	const minIdle = 200 * time.Millisecond
	deadline := time.Now().Add(10 * time.Second)
	for found := false; !found; {
		if time.Now().After(deadline) {
			t.Fatal("an entry of a busy tenant was not recovered")
		}
		if err := store.FeedQueue(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		hints, err := q.Take(t.Context(), "w", 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range hints {
			if err := q.Ack(t.Context(), h, false); err != nil {
				t.Fatal(err)
			}
		}
		if hints, err = q.Recover(t.Context(), "w", minIdle); err != nil {
			t.Fatal(err)
		}
		for _, h := range hints {
			found = found || h.TaskID == lost[0].TaskID
		}
	}
}

func TestTenantActivatedDuringATakeStaysActive(t *testing.T) {
	o := sharedRedis(t)
	q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
	k := q.main.keys
	if err := q.activate(t.Context(), q.main, "a", 0); err != nil {
		t.Fatal(err)
	}
	picks, err := q.main.pick(t.Context(), 1)
	if err != nil || len(picks) != 1 {
		t.Fatal(picks, err)
	}
	// The take finds nothing; before it can say so, something is published.
	if _, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, []sheaf.Hint{{TaskID: "x", TenantID: "a"}}); err != nil {
		t.Fatal(err)
	}
	active, err := settleScript.Run(t.Context(), q.main.client, []string{k.active(), k.idle(), k.vt(), k.act(), k.cost(), k.round(), k.wakeups(), k.capped()},
		stride, "a", -1, "1", 0, picks[0].act, 0).Int()
	if err != nil || active != 1 {
		t.Fatalf("%d tenants are active, %v", active, err)
	}
	if hints, err := q.Take(t.Context(), "w", 1, nil); err != nil || len(hints) != 1 {
		t.Errorf("took %v, %v", hints, err)
	}
}

func TestChargeFollowsTheTrueCost(t *testing.T) {
	o := sharedRedis(t)
	q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
	if err := q.SetShare(t.Context(), "a", 2, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Publish(t.Context(), "a", sheaf.LaneNormal, []sheaf.Hint{{TaskID: "x", TenantID: "a", Cost: 12}}); err != nil {
		t.Fatal(err)
	}
	if hints, err := q.Take(t.Context(), "w", 4, nil); err != nil || len(hints) != 1 {
		t.Fatal(hints, err)
	}
	// It was picked four times, charged as for tasks of cost 1, and has left.
	debt, err := q.main.client.ZScore(t.Context(), q.main.keys.idle(), "a").Result()
	if want := 12.0 * stride / 2; err != nil || debt != want {
		t.Errorf("after a task of cost 12 at weight 2 the pass is %v, %v; want %v", debt, err, want)
	}
}

func TestSearchersDivideTheWork(t *testing.T) {
	o := sharedRedis(t)
	q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
	k := q.main.keys
	if err := q.main.client.ZAdd(t.Context(), k.searched(), redis.Z{Member: "a", Score: 1}).Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		due, err := dueScript.Run(t.Context(), q.main.client, []string{k.searched()}, 60_000, 10).StringSlice()
		if err != nil || len(due) != want {
			t.Errorf("due are %v, %v; want %d", due, err, want)
		}
	}
	// A tenant from which somebody may be about to take stays to be searched.
	for _, active := range []bool{true, false} {
		if active {
			if err := q.activate(t.Context(), q.main, "a", 0); err != nil {
				t.Fatal(err)
			}
		} else if err := q.main.client.Del(t.Context(), k.active()).Err(); err != nil {
			t.Fatal(err)
		}
		dropped, err := searchedScript.Run(t.Context(), q.main.client, []string{k.searched(), k.active()}, "a").Bool()
		if err != nil || dropped == active {
			t.Errorf("active %v: dropped %v, %v", active, dropped, err)
		}
	}
}

func TestLeaseIsItsHoldersAlone(t *testing.T) {
	o := sharedRedis(t)
	q := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)})
	l := lock{q.main, "keeper"}
	step := func(what string, want, got bool, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	got, err := l.Acquire(t.Context(), "a", time.Minute)
	step("a acquires", true, got, err)
	got, err = l.Acquire(t.Context(), "b", time.Minute)
	step("b acquires", false, got, err)
	got, err = l.Acquire(t.Context(), "a", time.Minute)
	step("a acquires again, its first answer lost", true, got, err)
	got, err = l.Renew(t.Context(), "b", time.Minute)
	step("b renews", false, got, err)
	if err := l.Release(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	got, err = l.Renew(t.Context(), "a", time.Minute)
	step("a renews after b released", true, got, err)
	if err := l.Release(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	got, err = l.Acquire(t.Context(), "b", time.Minute)
	step("b acquires after a released", true, got, err)
}

func TestTenantNamesNeedNoCare(t *testing.T) {
	o := sharedRedis(t)
	q, store := newQueue(t, Config{Redis: o, Prefix: newPrefix(t, o)}), new(queuetest.Store)
	for _, name := range []string{"}", "{", "{}", "a}b", "sched", "ü %7D", "a b\n*"} {
		store.Add(name, sheaf.LaneNormal, 2)
	}
	drain(t, q, store)
}

func TestLeadersFailOver(t *testing.T) {
	o := sharedRedis(t)
	cfg := Config{Redis: o, Prefix: newPrefix(t, o)}
	const ttl = 1500 * time.Millisecond
	campaign := func(q *Queue) (began, ended chan time.Time, stop context.CancelFunc) {
		began, ended = make(chan time.Time, 10), make(chan time.Time, 10)
		ctx, stop := context.WithCancel(t.Context())
		c := q.Leader("keeper")
		c.TTL = ttl
		go func() {
			_ = c.Run(ctx, func(ctx context.Context) {
				began <- time.Now()
				<-ctx.Done()
				ended <- time.Now()
			})
		}()
		return began, ended, stop
	}
	wait := func(c chan time.Time, what string) time.Time {
		t.Helper()
		select {
		case at := <-c:
			return at
		case <-time.After(10 * time.Second):
			t.Fatal("not within 10 s: ", what)
			return time.Time{}
		}
	}
	first, second := newQueue(t, cfg), newQueue(t, cfg)
	aBegan, aEnded, aStop := campaign(first)
	defer aStop()
	wait(aBegan, "the first leads")
	bBegan, _, bStop := campaign(second)
	defer bStop()
	select {
	case <-bBegan:
		t.Fatal("two lead at once")
	case <-time.After(2 * ttl):
	}
	cut := time.Now()
	_ = first.main.client.Close() // the first cannot reach Redis any more
	ended, began := wait(aEnded, "the first stops"), wait(bBegan, "the second leads")
	if !ended.Before(began) {
		t.Errorf("the first led on for %v after the second began", ended.Sub(began))
	}
	if d := began.Sub(cut); d > 2*ttl {
		t.Errorf("the second led %v after the first was cut off, TTL %v", d, ttl)
	}
	if term, err := second.main.client.Get(t.Context(), second.main.keys.term("keeper")).Int(); err != nil || term != 2 {
		t.Errorf("term %d, %v; want 2", term, err)
	}
}

// BenchmarkPublishTake measures from the publish of a hint until an idle worker,
// which waits for the wake-up, has taken it.
func BenchmarkPublishTake(b *testing.B) {
	o := sharedRedis(b)
	cfg := Config{Redis: o, Prefix: newPrefix(b, o)}
	keeper, executor := newQueue(b, cfg), newQueue(b, cfg)
	ctx, cancel := context.WithCancel(b.Context())
	taken, ready := make(chan error), make(chan struct{}, 1)
	go func() {
		defer close(taken)
		for {
			hints, err := executor.Take(ctx, "w", 4, nil)
			if ctx.Err() != nil {
				return
			}
			if err == nil && len(hints) == 0 {
				select {
				case ready <- struct{}{}: // looked, found nothing, and waits from here on
				default:
				}
				err = executor.Wait(ctx, time.Second)
			}
			for _, h := range hints {
				taken <- errors.Join(err, executor.Ack(ctx, h, false))
			}
		}
	}()
	var delays []time.Duration
	hints := []sheaf.Hint{{TaskID: "x", TenantID: "a", Cost: 1, Kind: sheaf.KindParse}}
	for b.Loop() {
		<-ready
		start := time.Now()
		if _, err := keeper.Publish(ctx, "a", sheaf.LaneNormal, hints); err != nil {
			b.Fatal(err)
		}
		if err := <-taken; err != nil {
			b.Fatal(err)
		}
		delays = append(delays, time.Since(start))
	}
	cancel()
	for range taken {
	}
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkCycle measures one hint from publish to done, where a take finds 16.
func BenchmarkCycle(b *testing.B) {
	o := sharedRedis(b)
	q := newQueue(b, Config{Redis: o, Prefix: newPrefix(b, o)})
	hints := make([]sheaf.Hint, 16)
	for i := range hints {
		hints[i] = sheaf.Hint{TaskID: fmt.Sprint(i), TenantID: "a", Cost: 1, Kind: sheaf.KindParse}
	}
	if err := q.SetShare(b.Context(), "a", 1, 1000); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		if n%len(hints) == 0 {
			if _, err := q.Publish(b.Context(), "a", sheaf.LaneNormal, hints); err != nil {
				b.Fatal(err)
			}
		}
		if n%len(hints) == 0 {
			got, err := q.Take(b.Context(), "w", len(hints), nil)
			if err != nil || len(got) != len(hints) {
				b.Fatal(len(got), err)
			}
			copy(hints, got)
		}
		h := hints[n%len(hints)]
		if err := q.Ack(b.Context(), h, true); err != nil {
			b.Fatal(err)
		}
		if err := q.Done(b.Context(), h.TenantID, h.TaskID); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
