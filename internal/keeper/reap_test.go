package keeper

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// outage is a store that is away at times and notes what it is asked to reap.
type outage struct {
	Store
	away  bool
	last  taskstore.ReapPolicy
	reaps int
	ahead time.Duration // of its clock

	fails     bool            // to note a jump
	jumps     []time.Duration // that it was told of
	expired   []int           // how many jumps it had been told of when uploads were to expire
	retention time.Duration   // of the latest cleanup
}

func (o *outage) ClockJumped(_ context.Context, ahead time.Duration) error {
	if o.fails {
		return sheaf.ErrUnavailable
	}
	o.jumps = append(o.jumps, ahead)
	return nil
}

func (o *outage) CloseIdleJobs(context.Context, int) (int, error) { return 0, nil }

func (o *outage) ExpireUploads(context.Context, int) (int, error) {
	o.expired = append(o.expired, len(o.jumps))
	return 0, nil
}

func (o *outage) Garbage(context.Context, int) ([]taskstore.Garbage, error) { return nil, nil }

func (o *outage) PurgeDeleted(context.Context, int) (int, error) { return 0, nil }

func (o *outage) SettleReceipts(context.Context, int, func(*taskstore.Receipt) error) (int, error) {
	return 0, nil
}

func (o *outage) Cleanup(_ context.Context, retention time.Duration, _ int, _ bool) (taskstore.CleanupReport, error) {
	o.retention = retention
	return taskstore.CleanupReport{}, nil
}

func (o *outage) WatchClock(context.Context) (time.Time, time.Duration, error) {
	if o.away {
		return time.Time{}, 0, sheaf.ErrUnavailable
	}
	return time.Now().Add(o.ahead), 0, nil
}

func (o *outage) Reap(_ context.Context, p taskstore.ReapPolicy, _ int) (int, error) {
	if o.away {
		return 0, sheaf.ErrUnavailable
	}
	o.last = p
	o.reaps++
	return 0, nil
}

func (o *outage) HardCancel(context.Context, time.Duration, int) (int, error) { return 0, nil }

// A clock that jumps ahead ends every lease at once. Executors that are well
// renew theirs with the next heartbeat; a third loss would end their tasks.
func TestClockThatJumpsAheadTakesNoTaskFromAnExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		o := &outage{}
		k := New(Config{Store: o, WorkerTimeout: 8 * time.Second, ReapEvery: time.Second, Log: slog.New(slog.NewTextHandler(&said, nil))})
		turns := func(n int) (reaped int) {
			before := o.reaps
			for range n {
				time.Sleep(time.Second)
				_, _ = k.reap(t.Context())
			}
			return o.reaps - before
		}
		if n := turns(20); n != 20 {
			t.Fatalf("reaped %d times in 20 quiet turns", n)
		}
		o.ahead = time.Hour
		if n := turns(8); n != 0 {
			t.Errorf("reaped %d times before executors could renew their leases", n)
		}
		if n := turns(5); n != 5 {
			t.Errorf("reaped %d times in five turns after that", n)
		}
		if n := strings.Count(said.String(), "jumped ahead"); n != 1 || !strings.Contains(said.String(), "by=1h0m0s") || !strings.Contains(said.String(), "NTP") {
			t.Errorf("said %q", said.String())
		}
	})
}

// What is removed for its age is not, when only the clock says that it is old.
func TestClockThatJumpsAheadRemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		k := New(Config{Store: o, WorkerTimeout: 8 * time.Second, ReapEvery: time.Second, Retention: 24 * time.Hour})
		if _, err := k.collect(t.Context()); err != nil || len(o.expired) != 1 {
			t.Fatalf("in quiet times uploads expired %d times, %v", len(o.expired), err)
		}
		time.Sleep(time.Second)
		o.ahead, o.fails = 48*time.Hour, true
		if _, err := k.collect(t.Context()); err == nil || len(o.expired) != 1 {
			t.Fatalf("uploads expired before the store knew of the jump, %v", err)
		}
		if _, err := k.cleanup(t.Context()); err == nil || o.retention != 0 {
			t.Fatalf("history went before the store knew of the jump, %v", err)
		}
		o.fails = false
		time.Sleep(time.Second)
		for range 2 {
			if _, err := k.collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, _ = k.reap(t.Context())
		}
		if len(o.jumps) != 1 || o.jumps[0] != 48*time.Hour {
			t.Errorf("the store was told of the jumps %v, want one of 48h", o.jumps)
		}
		if len(o.expired) != 3 || o.expired[1] != 1 {
			t.Errorf("uploads were to expire when the store had been told of %v jumps", o.expired)
		}
		if _, err := k.cleanup(t.Context()); err != nil || o.retention != 72*time.Hour {
			t.Errorf("history is kept for %v by the clock that jumped, want 72h, %v", o.retention, err)
		}
	})
}

func TestSilenceDuringAnOutageIsNobodysDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		k := New(Config{Store: o, WorkerTimeout: 8 * time.Second, ReapEvery: time.Second})
		turns := func(n int) {
			for range n {
				time.Sleep(time.Second)
				_, _ = k.reap(t.Context())
			}
		}
		turns(2)
		if o.last.WorkerTimeout != 8*time.Second {
			t.Fatalf("in quiet times silence is allowed %s, want 8s", o.last.WorkerTimeout)
		}
		o.away = true
		turns(20)
		o.away = false
		turns(1)
		if o.last.WorkerTimeout != 0 {
			t.Fatal("after an outage executors that could not report are taken for dead")
		}
		turns(7)
		if o.last.WorkerTimeout != 0 {
			t.Fatal("executors are not given the time to report")
		}
		turns(1)
		if o.last.WorkerTimeout != 8*time.Second {
			t.Fatal("silence never counts again after an outage")
		}
		time.Sleep(30 * time.Second) // the keeper itself was stopped, or a statement hung
		turns(1)
		if o.last.WorkerTimeout != 0 {
			t.Fatal("a keeper that slept takes executors for dead that it has not listened to")
		}
	})
}
