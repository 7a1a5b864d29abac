package notify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder records when it is notified, and may take a while for it
// or fail.
type recorder struct {
	mu    sync.Mutex
	at    []time.Time
	takes time.Duration
	err   error
}

func (s *recorder) notify(ctx context.Context) error {
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

func (s *recorder) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// debounce runs f beside a debouncer of q, and ends the debouncer.
func debounce(t *testing.T, q *recorder, f func(s *Debouncer)) {
	synctest.Test(t, func(t *testing.T) {
		s := NewDebouncer(q.notify, slog.New(slog.DiscardHandler))
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

func TestChangesOfASmallDocumentAreSentAtOnce(t *testing.T) {
	q := &recorder{}
	debounce(t, q, func(s *Debouncer) {
		for range 3 { // documents, with a quiet time between them
			for i, change := range []func(){s.Urgent, s.Urgent, s.Routine, s.Urgent} { // upload, plan, range, end
				before := q.count()
				change()
				synctest.Wait()
				if q.count() != before+1 {
					t.Errorf("change %d was not sent at once", i)
				}
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(2 * time.Second)
		}
	})
}

// Under load notifications do not grow with the changes, and the last change is sent.
func TestChangesUnderLoadAreRateLimited(t *testing.T) {
	for what, test := range map[string]struct {
		change func(s *Debouncer)
		rate   rate
	}{
		"awaited":  {(*Debouncer).Urgent, urgentRate},
		"ordinary": {(*Debouncer).Routine, routineRate},
		"both":     {func(s *Debouncer) { s.Routine(); s.Urgent() }, urgentRate}, // no more than of one kind
	} {
		t.Run(what, func(t *testing.T) {
			q := &recorder{}
			debounce(t, q, func(s *Debouncer) {
				const load = 30 * time.Second
				for begun := time.Now(); time.Since(begun) < load; time.Sleep(time.Millisecond) {
					test.change(s)
				}
				if n, most := q.count(), int(load/test.rate.every)+urgentRate.burst+routineRate.burst; n > most || n < most*9/10 {
					t.Errorf("%d notifications in %v of changes, want about %d at most", n, load, most)
				}
				test.change(s)
				last, n := time.Now(), q.count()
				time.Sleep(test.rate.every)
				synctest.Wait()
				if q.count() == n || q.at[len(q.at)-1].Before(last) {
					t.Errorf("the last change was not sent within %v", test.rate.every)
				}
				n = q.count()
				time.Sleep(time.Minute)
				if q.count() != n {
					t.Errorf("%d notifications though nothing changed", q.count()-n)
				}
				// What load has used up has come back.
				for i := range test.rate.burst {
					before := q.count()
					test.change(s)
					synctest.Wait()
					if q.count() == before {
						t.Errorf("change %d after a quiet minute was not sent at once", i)
					}
				}
			})
		})
	}
}

// A queue that is away or slow holds nobody up, is asked now and then only, and
// is notified in the end.
func TestNotificationThatFailsIsTriedAgain(t *testing.T) {
	q := &recorder{err: errors.New("away"), takes: time.Second}
	debounce(t, q, func(s *Debouncer) {
		begun := time.Now()
		for range 1000 {
			s.Urgent()
			s.Routine()
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("changes took %v", took)
		}
		time.Sleep(time.Minute)
		if n := q.count(); n < 25 || n > 31 {
			t.Errorf("%d notifications in a minute, each taking a second and failing", n)
		}
		q.mu.Lock()
		q.err = nil
		q.mu.Unlock()
		time.Sleep(5 * time.Second)
		n := q.count()
		time.Sleep(time.Minute)
		if q.count() != n {
			t.Error("it sends again after it could")
		}
	})
}

func TestNotificationThatHangsIsGivenUp(t *testing.T) {
	q := &recorder{takes: time.Hour}
	debounce(t, q, func(s *Debouncer) {
		s.Urgent()
		time.Sleep(time.Minute)
		if n := q.count(); n < 10 || n > 20 {
			t.Errorf("%d notifications in a minute, each hanging", n)
		}
	}) // and its end waits for finalTimeout at most: synctest would call it a deadlock
}

func TestLastChangeIsSentAtTheEnd(t *testing.T) {
	q := &recorder{}
	debounce(t, q, func(s *Debouncer) {
		for range routineRate.burst {
			s.Routine()
			synctest.Wait()
		}
		s.Routine() // not yet
		synctest.Wait()
		if n := q.count(); n != routineRate.burst {
			t.Errorf("%d notifications", n)
		}
	})
	if n := q.count(); n != routineRate.burst+1 {
		t.Errorf("%d notifications at the end", n)
	}
}
