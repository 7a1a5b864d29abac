package keeper

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

// outage is a store that is away at times and notes what it is asked to reap.
type outage struct {
	sheaf.KeeperStore
	away bool
	last sheaf.ReapPolicy
}

func (o *outage) Reap(_ context.Context, p sheaf.ReapPolicy, _ int) (int, error) {
	if o.away {
		return 0, sheaf.ErrUnavailable
	}
	o.last = p
	return 0, nil
}

func (o *outage) HardCancel(context.Context, time.Duration, int) (int, error) { return 0, nil }

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
