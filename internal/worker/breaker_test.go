package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

var errAway = fmt.Errorf("connection refused: %w", sheaf.ErrUnavailable)

func testBreaker() *Breaker { return NewBreaker("index", slog.New(slog.DiscardHandler), nil) }

func TestBreakerOpensRestsAndStartsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBreaker()
		calls := 0
		try := func(answer error) error {
			return b.Do(t.Context(), func() error { calls++; return answer })
		}
		for range tripAfter - 1 {
			if err := try(errAway); errors.As(err, new(*broken)) {
				t.Fatal("one bad call opened the breaker")
			}
		}
		if err := try(errAway); !errors.As(err, new(*broken)) || !errors.Is(err, sheaf.ErrUnavailable) {
			t.Fatalf("the call that opens the breaker answers %v", err)
		}
		before := calls
		if err := try(nil); !errors.As(err, new(*broken)) || calls != before {
			t.Fatalf("an open breaker lets calls through: %v", err)
		}

		// A trial that fails doubles the rest.
		time.Sleep(minOpen)
		if err := try(errAway); !errors.As(err, new(*broken)) {
			t.Fatal(err)
		}
		time.Sleep(minOpen)
		if !b.IsOpen() {
			t.Fatal("the rest did not grow after a failed trial")
		}
		time.Sleep(minOpen)
		if b.IsOpen() {
			t.Fatal("the breaker stays open")
		}

		// One at a time, then two, four, and so on.
		for want := 1; want < fullSpeed; {
			var wg sync.WaitGroup
			hold := make(chan struct{})
			var mu sync.Mutex
			through, turned := 0, 0
			for range 2 * fullSpeed {
				wg.Go(func() {
					err := b.Do(t.Context(), func() error {
						mu.Lock()
						through++
						mu.Unlock()
						<-hold
						return nil
					})
					if err != nil {
						mu.Lock()
						turned++
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
			if through != want || turned != 2*fullSpeed-want {
				t.Fatalf("%d calls at once, want %d", through, want)
			}
			close(hold)
			wg.Wait()
			for range through {
				want *= 2 // each success doubles
			}
		}
		if err := try(errAway); errors.As(err, new(*broken)) {
			t.Error("a recovered dependency opens at its first failure")
		}
	})
}

func TestBreakerIgnoresRefusalsAndCanceledCalls(t *testing.T) {
	b := testBreaker()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		_ = b.Do(t.Context(), func() error { return sheaf.ErrInvalid })
		_ = b.Do(canceled, func() error { return errAway })
	}
	if b.IsOpen() {
		t.Error("refusals or canceled calls opened the breaker")
	}
}

func TestOpenBreakerCostsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBreaker()
		ask := func(ctx context.Context) error { return b.Do(ctx, func() error { return errAway }) }
		e := start(t, map[sheaf.TaskKind]func(context.Context) error{"a": ask})
		for range 6 {
			e.queue.offer("a")
			synctest.Wait()
		}
		e.finish()
		fails, snoozes := 0, 0
		for _, line := range e.store.entries() {
			if strings.HasPrefix(line, "fail") {
				fails++
			}
			if strings.HasPrefix(line, "snooze") {
				snoozes++
			}
		}
		if fails != tripAfter-1 || snoozes != 6-fails {
			t.Errorf("%d attempts were counted and %d were not: %v", fails, snoozes, e.store.entries())
		}
	})
}

func TestRateLimitHoldsTasksBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBreaker()
		limited := fmt.Errorf("429: %w", &sheaf.RateLimited{After: 20 * time.Second})
		if err := b.Do(t.Context(), func() error { return limited }); !errors.Is(err, limited) {
			t.Fatal(err)
		}
		if !b.IsOpen() {
			t.Fatal("a rate limit does not open the breaker")
		}
		time.Sleep(20 * time.Second)
		if b.IsOpen() {
			t.Error("the wait that was asked for is over, and nothing is taken")
		}
	})
}

// A dependency that refuses this process opens the breaker at once, says so to
// all who are turned back, and is not asked for more than the trials. One that
// refuses a single request, and answers the probe, is not held to be away.
func TestBreakerOpensForRefusalsOfEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBreaker()
		probed := fmt.Errorf("%w: wrong key", sheaf.ErrMisconfigured)
		b.probe = func(context.Context) error { return probed }
		refused := func() error {
			return fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, "embed_unauthorized", "set embed.api_key"), sheaf.ErrMisconfigured)
		}
		for range 2 {
			err := b.Do(t.Context(), refused)
			if _, ok := retryAfter(err); !ok || sheaf.AsFailure(err, "").Message != "set embed.api_key" {
				t.Errorf("a refused call, or one that is turned back, ends as %v", err)
			}
		}
		if !b.IsOpen() {
			t.Fatal("the breaker is closed")
		}
		time.Sleep(maxOpen)
		for range 8 {
			_ = b.Do(t.Context(), func() error { return nil })
		}
		if b.State() != BreakerClosed {
			t.Fatal("the breaker stays open for a cured dependency")
		}
		probed = nil
		err := b.Do(t.Context(), refused)
		if _, free := retryAfter(err); free || b.IsOpen() || sheaf.AsFailure(err, "").Code != "embed_unauthorized" {
			t.Errorf("a refusal of one request alone ends as %v, open %v", err, b.IsOpen())
		}
	})
}
