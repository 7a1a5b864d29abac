package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stirred is a queue that notes when it is stirred, and may take a while for it
// or fail.
type stirred struct {
	Queue
	mu    sync.Mutex
	at    []time.Time
	takes time.Duration
	err   error
}

func (s *stirred) Stir(ctx context.Context) error {
	s.mu.Lock()
	s.at = append(s.at, time.Now())
	takes, err := s.takes, s.err
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *stirred) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// stirs runs f beside a stirrer of q, and ends the stirrer.
func stirs(t *testing.T, q *stirred, f func(s *Stirrer)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStirrer(q, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		synctest.Wait()
		f(s)
		stop()
		<-ended
	})
}

func TestChangesOfASmallDocumentAreToldAtOnce(t *testing.T) {
	q := &stirred{}
	stirs(t, q, func(s *Stirrer) {
		for range 3 { // documents, with a quiet time between them
			for i, change := range []func(){s.Soon, s.Soon, s.Late, s.Soon} { // upload, plan, range, end
				before := q.count()
				change()
				synctest.Wait()
				if q.count() != before+1 {
					t.Errorf("change %d was not told at once", i)
				}
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// Under load stirs do not grow with the changes, and the last change is told.
func TestChangesUnderLoadAreToldTogether(t *testing.T) {
	for what, test := range map[string]struct {
		change func(s *Stirrer)
		pace   pace
	}{
		"awaited":  {(*Stirrer).Soon, soonPace},
		"ordinary": {(*Stirrer).Late, latePace},
		"both":     {func(s *Stirrer) { s.Late(); s.Soon() }, soonPace}, // no more than of one kind
	} {
		t.Run(what, func(t *testing.T) {
			q := &stirred{}
			stirs(t, q, func(s *Stirrer) {
				const load = 30 * time.Second
				for begun := time.Now(); time.Since(begun) < load; time.Sleep(time.Millisecond) {
					test.change(s)
				}
				if n, most := q.count(), int(load/test.pace.every)+soonPace.burst+latePace.burst; n > most || n < most*9/10 {
					t.Errorf("%d stirs in %v of changes, want about %d at most", n, load, most)
				}
				test.change(s)
				last, n := time.Now(), q.count()
				time.Sleep(test.pace.every)
				synctest.Wait()
				if q.count() == n || q.at[len(q.at)-1].Before(last) {
					t.Errorf("the last change was not told within %v", test.pace.every)
				}
				n = q.count()
				time.Sleep(time.Minute)
				if q.count() != n {
					t.Errorf("%d stirs though nothing changed", q.count()-n)
				}
				// What load has used up has come back.
				for i := range test.pace.burst {
					before := q.count()
					test.change(s)
					synctest.Wait()
					if q.count() == before {
						t.Errorf("change %d after a quiet minute was not told at once", i)
					}
				}
			})
		})
	}
}

// A queue that is away or slow holds nobody up, is asked now and then only, and
// is told in the end.
func TestStirThatFailsIsTriedAgain(t *testing.T) {
	q := &stirred{err: errors.New("away"), takes: time.Second}
	stirs(t, q, func(s *Stirrer) {
		begun := time.Now()
		for range 1000 {
			s.Soon()
			s.Late()
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("changes took %v", took)
		}
		time.Sleep(time.Minute)
		if n := q.count(); n < 25 || n > 31 {
			t.Errorf("%d stirs in a minute, each taking a second and failing", n)
		}
		q.mu.Lock()
		q.err = nil
		q.mu.Unlock()
		time.Sleep(5 * time.Second)
		n := q.count()
		time.Sleep(time.Minute)
		if q.count() != n {
			t.Error("it stirs on after it could")
		}
	})
}

func TestStirThatHangsIsGivenUp(t *testing.T) {
	q := &stirred{takes: time.Hour}
	stirs(t, q, func(s *Stirrer) {
		s.Soon()
		time.Sleep(time.Minute)
		if n := q.count(); n < 10 || n > 20 {
			t.Errorf("%d stirs in a minute, each hanging", n)
		}
	}) // and its end waits for stirLast at most: synctest would call it a deadlock
}

func TestLastChangeIsToldAtTheEnd(t *testing.T) {
	q := &stirred{}
	stirs(t, q, func(s *Stirrer) {
		for range latePace.burst {
			s.Late()
			synctest.Wait()
		}
		s.Late() // not yet
		synctest.Wait()
		if n := q.count(); n != latePace.burst {
			t.Errorf("%d stirs", n)
		}
	})
	if n := q.count(); n != latePace.burst+1 {
		t.Errorf("%d stirs at the end", n)
	}
}
