package keeper_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/internal/queue/redisstream"
	"sheaf/taskstore/storetest"
)

// redisAddr answers where Redis is; without it the test is skipped, unless the
// run demands every engine.
func redisAddr(t *testing.T) string {
	t.Helper()
	addr := os.Getenv("SHEAF_TEST_REDIS_ADDR")
	if addr == "" {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatal("SHEAF_TEST_REDIS_ADDR is not set, and this run must test every engine")
		}
		t.Skip("SHEAF_TEST_REDIS_ADDR is not set; `make services` starts the engines")
	}
	return addr
}

// TestQueueThatLostItsMemoryIsFedAgain takes every key of the fleet out of
// Redis, as FLUSHALL and a restart without persistence do: what waits must be
// hinted again at once, not when its hints have grown old.
func TestQueueThatLostItsMemoryIsFedAgain(t *testing.T) {
	addr := redisAddr(t)
	f := storetest.New(t, "sqlite")
	var plans []string
	for range 5 {
		plans = append(plans, f.Document("alpha").Plan)
	}
	prefix := "keeper" + sheaf.NewID() + ":"
	q, err := redisstream.New(redisstream.Config{Redis: redisstream.RedisOptions{Addrs: []string{addr}}, Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	forget := func() {
		keys, err := rdb.Keys(context.Background(), prefix+"*").Result()
		if err == nil && len(keys) > 0 {
			err = rdb.Del(context.Background(), keys...).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	defer forget()

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	k := keeper.New(keeper.Config{Store: f.Store, Queue: q, Feeds: true, FeedEvery: 20 * time.Millisecond, CollectEvery: time.Hour, CleanupEvery: time.Hour})
	go func() { ended <- k.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	for run := range 3 {
		var got []string
		deadline := time.Now().Add(10 * time.Second)
		for len(got) < len(plans) {
			hints, err := q.Take(ctx, "w", 8, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hints {
				got = append(got, h.TaskID)
			}
			if time.Now().After(deadline) {
				t.Fatalf("run %d of the queue: %d of %d waiting tasks were hinted", run, len(got), len(plans))
			}
			if len(hints) == 0 {
				_ = q.Wait(ctx, 50*time.Millisecond)
			}
		}
		slices.Sort(got)
		if want := slices.Sorted(slices.Values(plans)); !slices.Equal(got, want) {
			t.Fatalf("run %d: hints of %v, want %v", run, got, want)
		}
		forget()
	}
}

// TestLostTasksFreeTheirPlaces kills the executor that runs all that a tenant
// may run at once: its tasks run again when they are taken back, not when the
// queue's counts are reconciled.
func TestLostTasksFreeTheirPlaces(t *testing.T) {
	f := storetest.New(t, "sqlite")
	const all = 8 // the cap of a tenant that nobody set one for
	for range all {
		f.Document("alpha")
	}
	q, err := redisstream.New(redisstream.Config{Redis: redisstream.RedisOptions{Addrs: []string{redisAddr(t)}}, Prefix: "keeper" + sheaf.NewID() + ":"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	k := keeper.New(keeper.Config{Store: f.Store, Queue: q, Feeds: true, SlowEvery: time.Hour, CollectEvery: time.Hour, CleanupEvery: time.Hour})
	go func() { ended <- k.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	take := func(worker string, lease time.Duration) {
		t.Helper()
		deadline := time.Now().Add(60 * time.Second)
		for claimed := 0; claimed < all; {
			hints, err := q.Take(ctx, worker, all, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hints {
				if _, err := f.Store.Claim(ctx, h.TaskID, worker, lease); err != nil {
					t.Fatal(err)
				}
				if err := q.Ack(ctx, h, true); err != nil {
					t.Fatal(err)
				}
				claimed++
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s got %d of %d tasks", worker, claimed, all)
			}
			if len(hints) == 0 {
				_ = q.Wait(ctx, 50*time.Millisecond)
			}
		}
	}
	take("dies", 3*time.Second)
	take("lives", time.Hour)
}
