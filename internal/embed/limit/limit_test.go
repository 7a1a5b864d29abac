package limit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/embed"
)

// provider takes capacity calls at a time of 100 ms each and refuses more.
type provider struct {
	mu         sync.Mutex
	capacity   int
	inflight   int
	peak       int
	served     int
	refused    int
	after      time.Duration // Retry-After of a refusal
	down       bool
	calls      []time.Time
	downAnswer error
}

func (p *provider) Model() embed.Model         { return embed.Model{ID: "p", Dim: 1} }
func (p *provider) Ping(context.Context) error { return nil }

func (p *provider) Embed(ctx context.Context, texts []string, _ embed.Purpose) ([][]float32, error) {
	p.mu.Lock()
	p.calls = append(p.calls, time.Now())
	if p.down {
		p.mu.Unlock()
		return nil, p.downAnswer
	}
	if p.inflight >= p.capacity {
		p.refused++
		p.mu.Unlock()
		return nil, fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryCapacity, "embed_rate_limited", "slow"), &sheaf.RateLimited{After: p.after})
	}
	p.inflight++
	p.peak = max(p.peak, p.inflight)
	p.mu.Unlock()
	defer func() { p.mu.Lock(); p.inflight--; p.mu.Unlock() }()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p.mu.Lock()
	p.served++
	p.mu.Unlock()
	return make([][]float32, len(texts)), nil
}

func TestConcurrencyFindsTheProvidersCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{capacity: 4, after: time.Second}
		l := Wrap(p, Config{Max: 16})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_, _ = l.Embed(ctx, []string{"x"}, embed.Passage)
				}
			})
		}
		wg.Wait()
		// At best 2,400 are served in this minute; without a governor nearly all
		// calls would be refused.
		if p.served < 800 || p.refused > p.served/10 || p.peak != 4 {
			t.Errorf("%d served, %d refused, at most %d at a time", p.served, p.refused, p.peak)
		}
	})
}

func TestRetryAfterHoldsForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{capacity: 0, after: 3 * time.Second}
		l := Wrap(p, Config{})
		if _, err := l.Embed(t.Context(), []string{"x"}, embed.Passage); err == nil {
			t.Fatal("the provider took it")
		}
		p.capacity = 100
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := l.Embed(t.Context(), []string{"x"}, embed.Passage); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, at := range p.calls[1:] {
			if at.Sub(began) < 3*time.Second {
				t.Errorf("a call after %s", at.Sub(began))
			}
		}
	})
}

func TestLongPauseFailsAtOnceWithTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{capacity: 0, after: time.Minute}
		l := Wrap(p, Config{})
		_, _ = l.Embed(t.Context(), []string{"x"}, embed.Passage)
		time.Sleep(20 * time.Second)
		began := time.Now()
		_, err := l.Embed(t.Context(), []string{"x"}, embed.Passage)
		limited, ok := errors.AsType[*sheaf.RateLimited](err)
		if !ok || limited.After != 40*time.Second || time.Since(began) != 0 || len(p.calls) != 1 {
			t.Errorf("%v after %s and %d calls", err, time.Since(began), len(p.calls))
		}
		if f := sheaf.AsFailure(err, "embed"); f.Code != "embed_rate_limited" || !f.Retryable {
			t.Errorf("%+v", f)
		}
	})
}

func TestOutagesTurnCallersAwayAndEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{capacity: 10, down: true, downAnswer: fmt.Errorf("%w: down", sheaf.ErrUnavailable)}
		l := Wrap(p, Config{Trip: 3, MaxWait: time.Millisecond})
		began := time.Now()
		for time.Since(began) < 5*time.Minute {
			if _, err := l.Embed(t.Context(), []string{"x"}, embed.Passage); !errors.Is(err, sheaf.ErrUnavailable) {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(p.calls); n < 5 || n > 20 {
			t.Errorf("%d calls in five minutes of outage", n)
		}
		p.mu.Lock()
		p.down = false
		p.mu.Unlock()
		time.Sleep(maxPause)
		if _, err := l.Embed(t.Context(), []string{"x"}, embed.Passage); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{capacity: 100}
		l := Wrap(p, Config{Max: 1})
		go func() { _, _ = l.Embed(t.Context(), []string{"x"}, embed.Passage) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := l.Embed(ctx, []string{"x"}, embed.Passage); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.inflight != 0 {
			t.Errorf("%d calls are counted as under way", l.inflight)
		}
	})
}

// Somebody who searches while tasks use all places waits for at most one call, and
// once there are searches, for none. Nor do searches keep passages away.
func TestQueriesDoNotWaitForPassages(t *testing.T) {
	for _, most := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			p := &provider{capacity: 4}
			l := Wrap(p, Config{Max: most})
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			passages := 0
			for range 20 {
				all.Go(func() {
					for ctx.Err() == nil {
						if _, err := l.Embed(ctx, []string{"passage"}, embed.Passage); err == nil {
							p.mu.Lock()
							passages++
							p.mu.Unlock()
						}
					}
				})
			}
			time.Sleep(10 * time.Second)
			for i := range 20 {
				begun := time.Now()
				if _, err := l.Embed(ctx, []string{"query"}, embed.Query); err != nil {
					t.Fatal(err)
				}
				wait := time.Since(begun) - 100*time.Millisecond
				if wait > 100*time.Millisecond || i > 0 && most > 1 && wait > 0 {
					t.Errorf("query %d of %d places waited %s", i, most, wait)
				}
				time.Sleep(time.Second)
			}
			p.mu.Lock()
			passages = 0
			p.mu.Unlock()
			for range 3 { // so many that there is always one that waits
				all.Go(func() {
					for ctx.Err() == nil {
						_, _ = l.Embed(ctx, []string{"query"}, embed.Query)
					}
				})
			}
			time.Sleep(time.Minute)
			stop()
			all.Wait()
			if passages < 20 {
				t.Errorf("with %d places, %d passages were embedded beside the queries", most, passages)
			}
			if p.refused > 0 {
				t.Errorf("%d calls exceeded the provider's capacity", p.refused)
			}
		})
	}
}
