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
)

// outage is a store that is away at times and notes what it is asked to reap.
type outage struct {
	sheaf.KeeperStore
	away  bool
	last  sheaf.ReapPolicy
	reaps int
	ahead time.Duration // of its clock
}

func (o *outage) WatchClock(context.Context) (time.Time, time.Duration, error) {
	if o.away {
		return time.Time{}, 0, sheaf.ErrUnavailable
	}
	return time.Now().Add(o.ahead), 0, nil
}

func (o *outage) Reap(_ context.Context, p sheaf.ReapPolicy, _ int) (int, error) {
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
