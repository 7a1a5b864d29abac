package watch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf/taskstore"
)

// counted reads how often it was read.
type counted struct {
	n     atomic.Int64
	takes time.Duration
}

func (c *counted) read(context.Context) (any, error) {
	time.Sleep(c.takes)
	return c.n.Add(1), nil
}

func TestSnapshotIsReadAgainWhenAnEventTouchesIt(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{takes: time.Millisecond}
		job := Scope{TenantID: "t", JobID: "a"}
		read := func(want int64, why string) {
			t.Helper()
			s, _, err := h.Read(t.Context(), job, c.read)
			if err != nil || s.Value.(int64) != want {
				t.Errorf("%s: read %v times, %v, want %d", why, s.Value, err, want)
			}
			time.Sleep(250 * time.Millisecond)
		}
		read(1, "first")
		read(1, "nothing happened")
		l.add("t", "b")
		l.add("u", "a")
		read(1, "something else happened")
		l.add("t", "a")
		read(2, "an event")
		h.Changed("u", "")
		read(2, "a request of another tenant")
		h.Changed("t", "b")
		read(2, "a request that made another job")
		h.Changed("t", "")
		read(3, "a request")
		read(3, "nothing more")
		time.Sleep(maxAge)
		read(4, "after a while")
		time.Sleep(time.Hour) // what was touched meanwhile is not known
		read(5, "after long")
	})
}

// Callers who come together share one reading, and a crowd one that is a little
// older.
func TestCrowdSharesASnapshot(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{takes: 10 * time.Millisecond}
		job := Scope{TenantID: "t", JobID: "a"}
		var all sync.WaitGroup
		const pollers, seconds = 500, 20
		begun := time.Now()
		for i := range pollers {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 4 * time.Millisecond)
				for time.Since(begun) < seconds*time.Second {
					if _, _, err := h.Read(t.Context(), job, c.read); err != nil {
						t.Error(err)
					}
					time.Sleep(2 * time.Second)
				}
			})
		}
		all.Go(func() {
			for time.Since(begun) < seconds*time.Second { // the job is at work
				l.add("t", "a")
				time.Sleep(5 * time.Millisecond)
			}
		})
		all.Wait()
		if n := c.n.Load(); n < seconds/4 || n > seconds/2+3 {
			t.Errorf("read %d times in %d s for %d pollers, want about every %v", n, seconds, pollers, maxCrowdRest)
		}
		if n := l.looks.Load(); n > 2*seconds { // of the snapshot's readings, and of those who came before there was a crowd
			t.Errorf("looked at the log %d times in %d s", n, seconds)
		}
		s, _, err := h.Read(t.Context(), job, c.read)
		synctest.Wait()
		if err != nil || time.Since(s.At) > 2*maxAge {
			t.Errorf("what is left is %v old, %v", time.Since(s.At), err)
		}
	})
}

// Who has changed a job sees that, also in a crowd.
func TestCrowdSeesWhatItChanged(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{}
		job := Scope{TenantID: "t", JobID: "a"}
		read := func() int64 {
			s, _, err := h.Read(t.Context(), job, c.read)
			if err != nil {
				t.Fatal(err)
			}
			return s.Value.(int64)
		}
		for range 2 * crowd {
			read()
		}
		l.add("t", "a")
		looks, before := l.looks.Load(), read()
		if n := l.looks.Load() - looks; n != 0 {
			t.Errorf("a reader in a crowd had the log looked at %d times", n)
		}
		h.Changed("t", "a")
		if after := read(); after != before+1 {
			t.Errorf("read %d, then %d though it was changed", before, after)
		}
	})
}

// A count over hundreds of thousands of rows takes long: while events come in, even
// a single reader does not have it made again and again, and is told so. It does see
// what it changed itself, unless that was to add files, of which events tell.
func TestCostlySnapshotsMayLag(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{takes: 2 * costly}
		scope := Scope{TenantID: "t", What: "facets", MayLag: true}
		read := func(want int64, lags bool) {
			t.Helper()
			s, lag, err := h.Read(t.Context(), scope, c.read)
			if err != nil {
				t.Fatal(err)
			}
			if s.Value.(int64) != want || lag > 0 != lags || lag > maxRest {
				t.Errorf("read %d, which lags %v; want %d, lagging: %v", s.Value, lag, want, lags)
			}
		}
		read(1, false)
		l.add("t", "a")
		read(1, true)
		h.Changed("t", "a")
		read(1, true)
		time.Sleep(maxRest)
		read(2, false)
		h.Changed("t", "")
		read(3, false)

		// One of the job that was changed shows it.
		scope.JobID = "a"
		read(4, false)
		h.Changed("t", "b")
		read(4, false)
		h.Changed("t", "a")
		read(5, false)

		scope.MayLag = false
		read(6, false)
		l.add("t", "a")
		read(7, false)
	})
}

// Snapshots that lag wait for each other, but none for long: here one is read for the
// first time, which does not wait, whenever the other might be read again.
func TestLagIsBounded(t *testing.T) {
	follow(t, &log{}, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{takes: time.Second}
		for n := range 60 {
			h.mu.Lock()
			h.touch(taskstore.EventScope{TenantID: "t"})
			h.mu.Unlock()
			s, _, err := h.Read(t.Context(), Scope{TenantID: "t", MayLag: true}, c.read)
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(s.At); age > maxLag+c.takes {
				t.Fatalf("a snapshot is %v old", age)
			}
			if _, _, err := h.Read(t.Context(), Scope{TenantID: "t", MayLag: true, What: fmt.Sprint(n)}, c.read); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Who changed something sees it in the next snapshot. Those after it are shared again,
// also while others change something during each reading.
func TestOwnChangeIsSeenOnce(t *testing.T) {
	follow(t, &log{}, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{}
		reading := func() int64 {
			t.Helper()
			s, _, err := h.Read(t.Context(), Scope{TenantID: "t"}, func(ctx context.Context) (any, error) {
				h.mu.Lock()
				h.touch(taskstore.EventScope{TenantID: "t"})
				h.mu.Unlock()
				return c.read(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			return s.Value.(int64)
		}
		for range 2 * crowd {
			reading()
		}
		before := reading()
		h.Changed("t", "")
		if n := reading(); n != before+1 {
			t.Errorf("read %d, then %d though it was changed", before, n)
		}
		if n := reading(); n != before+1 {
			t.Errorf("a crowd does not share what others changed: %d after %d", n, before+1)
		}
	})
}

// A stream is told when it is worth asking again, so that it shows the last
// change too.
func TestLatestSaysWhenToAskAgain(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		sub, _ := subscribe(t, h, "t", "a")
		defer sub.Close()
		c := &counted{takes: 50 * time.Millisecond}
		job := Scope{TenantID: "t", JobID: "a"}
		latest := func() (int64, time.Duration) {
			s, again, err := h.Latest(t.Context(), job, c.read)
			if err != nil {
				t.Fatal(err)
			}
			return s.Value.(int64), again
		}
		if n, again := latest(); n != 1 || again != 0 {
			t.Errorf("first: %d, again in %v", n, again)
		}
		l.add("t", "a")
		h.Notify()
		time.Sleep(300 * time.Millisecond)
		n, again := latest()
		if n != 1 || again <= 0 || again > time.Second {
			t.Errorf("touched a moment after it was read: %d, again in %v", n, again)
		}
		time.Sleep(again)
		if n, again := latest(); n != 2 || again != 0 {
			t.Errorf("then: %d, again in %v", n, again)
		}
	})
}

func TestSnapshotsAreBounded(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		c := &counted{}
		for i := range 3 * maxSnapshots {
			if _, _, err := h.Latest(t.Context(), Scope{TenantID: "t", JobID: string(rune(i))}, c.read); err != nil {
				t.Fatal(err)
			}
		}
		if len(h.entries) > maxSnapshots {
			t.Errorf("%d snapshots are cached", len(h.entries))
		}
	})
}
