package queue

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

// memLock is a Lock in memory. down makes every call fail, stuck makes every
// call hang until its context ends.
type memLock struct {
	mu          sync.Mutex
	holder      string
	until       time.Time
	down, stuck bool
}

func (l *memLock) call(ctx context.Context) error {
	l.mu.Lock()
	down, stuck := l.down, l.stuck
	l.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	if down {
		return sheaf.ErrUnavailable
	}
	return ctx.Err()
}

func (l *memLock) Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	if err := l.call(ctx); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != "" && l.holder != token && time.Now().Before(l.until) {
		return false, nil
	}
	l.holder, l.until = token, time.Now().Add(ttl)
	return true, nil
}

func (l *memLock) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	if err := l.call(ctx); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != token || !time.Now().Before(l.until) {
		return false, nil
	}
	l.until = time.Now().Add(ttl)
	return true, nil
}

func (l *memLock) Release(ctx context.Context, token string) error {
	if err := l.call(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == token {
		l.holder = ""
	}
	return nil
}

func (l *memLock) set(down, stuck bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.stuck = down, stuck
}

// view is one candidate's way to a lock that others share; its own troubles.
type view struct {
	memLock
	shared *memLock
}

func (v *view) Acquire(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	if err := v.call(ctx); err != nil {
		return false, err
	}
	return v.shared.Acquire(ctx, token, ttl)
}

func (v *view) Renew(ctx context.Context, token string, ttl time.Duration) (bool, error) {
	if err := v.call(ctx); err != nil {
		return false, err
	}
	return v.shared.Renew(ctx, token, ttl)
}

func (v *view) Release(ctx context.Context, token string) error {
	if err := v.call(ctx); err != nil {
		return err
	}
	return v.shared.Release(ctx, token)
}

// candidate campaigns over a view and notes when its terms began and ended.
type candidate struct {
	view         *view
	began, ended chan time.Time
	stop         func() // and waits for the campaign to end
}

func newCandidate(t *testing.T, shared *memLock) *candidate {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	c := &candidate{
		view:  &view{shared: shared},
		began: make(chan time.Time, 100), ended: make(chan time.Time, 100),
		stop: func() { cancel(); <-over },
	}
	go func() {
		defer close(over)
		_ = (&Campaign{Lock: c.view}).Run(ctx, func(ctx context.Context) {
			c.began <- time.Now()
			<-ctx.Done()
			c.ended <- time.Now()
		})
	}()
	return c
}

func TestOneLeadsAndKeepsLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(memLock)
		a, b := newCandidate(t, shared), newCandidate(t, shared)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(a.began) + len(b.began); n != 1 {
			t.Errorf("%d terms began in an hour without trouble", n)
		}
		a.stop()
		b.stop()
		synctest.Wait()
		if shared.holder != "" {
			t.Error("the lease was not given up at the end")
		}
	})
}

func TestOtherLeadsSoonAfterAResignation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(memLock)
		a := newCandidate(t, shared)
		<-a.began
		b := newCandidate(t, shared)
		time.Sleep(time.Minute)
		stopped := time.Now()
		a.stop()
		if took := (<-b.began).Sub(stopped); took > 6*time.Second {
			t.Errorf("the other led %v after the leader resigned, want 6 s at most", took)
		}
		b.stop()
	})
}

func TestPausedLeaderStopsBeforeAnotherBegins(t *testing.T) {
	for _, trouble := range []string{"hangs", "fails"} {
		t.Run(trouble, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := new(memLock)
				a := newCandidate(t, shared)
				<-a.began
				b := newCandidate(t, shared)
				time.Sleep(time.Minute)
				cut := time.Now()
				a.view.set(trouble == "fails", trouble == "hangs")
				ended, began := <-a.ended, <-b.began
				if !ended.Before(began) {
					t.Errorf("the old term ended %v after the new one began", ended.Sub(began))
				}
				if d := ended.Sub(cut); d > 14*time.Second || d < 7*time.Second {
					t.Errorf("the cut-off leader led on for %v, want its validity of 14 s less the time since its last renewal", d)
				}
				if d := began.Sub(cut); d > 21*time.Second {
					t.Errorf("the other led %v after the cut, want TTL and one attempt at most", d)
				}
				b.stop()
				a.stop()
			})
		})
	}
}

func TestShortOutageKeepsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(memLock)
		a := newCandidate(t, shared)
		<-a.began
		for range 20 {
			a.view.set(true, false)
			time.Sleep(7 * time.Second)
			a.view.set(false, false)
			time.Sleep(20 * time.Second)
		}
		if len(a.ended) != 0 {
			t.Error("an outage shorter than the validity ended the term")
		}
		a.stop()
	})
}

func TestLostLeaseEndsTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(memLock)
		a := newCandidate(t, shared)
		<-a.began
		shared.mu.Lock()
		shared.holder, shared.until = "thief", time.Now().Add(time.Hour)
		shared.mu.Unlock()
		stolen := time.Now()
		if d := (<-a.ended).Sub(stolen); d > 6*time.Second {
			t.Errorf("the term ended %v after the lease was lost", d)
		}
		time.Sleep(10 * time.Second)
		if shared.holder != "thief" {
			t.Error("the old leader released a lease that was not its own")
		}
		a.stop()
	})
}

func TestLeadThatReturnsIsCalledAgain(t *testing.T) {
	for name, leader := range map[string]Leader{"Campaign": &Campaign{Lock: new(memLock)}, "Always": Always{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				calls := 0
				if err := leader.Run(ctx, func(context.Context) {
					if calls++; calls == 3 {
						cancel()
					}
				}); err != nil {
					t.Error(err)
				}
				if calls != 3 {
					t.Errorf("lead was called %d times", calls)
				}
			})
		})
	}
}

// While the first engine is away the second decides; when it is back the one
// who leads takes it, and the second is free.
func TestFallbackLeadsWhileTheFirstEngineIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &memLock{}, &memLock{}
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var leading, terms int
		var wg sync.WaitGroup
		for range 2 {
			c := &Campaign{Lock: Fallback{first, second}, TTL: 8 * time.Second, Log: slog.New(slog.DiscardHandler)}
			wg.Go(func() {
				_ = c.Run(ctx, func(ctx context.Context) {
					mu.Lock()
					leading, terms = leading+1, terms+1
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					leading--
					mu.Unlock()
				})
			})
		}
		after := func(d time.Duration, what string, maxTerms int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if leading != 1 || terms > maxTerms {
				t.Errorf("%s: %d lead in %d terms, want 1 in at most %d", what, leading, terms, maxTerms)
			}
		}
		after(10*time.Second, "at first", 1)
		first.set(false, true)
		after(time.Minute, "while the first engine hangs", 2) // either may be the first to ask the second one
		first.set(false, false)
		after(time.Minute, "when it is back", 3)
		if first.holder == "" || second.holder != "" {
			t.Errorf("the first engine's holder is %q and the second's %q; want the leader and nobody", first.holder, second.holder)
		}
		stop()
		wg.Wait()
	})
}
