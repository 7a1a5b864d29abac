package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// log is a log in memory whose young events are held back for lag.
type log struct {
	mu           sync.Mutex
	lag          time.Duration
	events       []sheaf.Event
	reads, looks atomic.Int64
	err          error
}

func (l *log) add(tenant, job string) int64 {
	return l.append(sheaf.Event{TenantID: tenant, JobID: job})
}

func (l *log) append(e sheaf.Event) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.Seq, e.At = int64(len(l.events)+1), time.Now()
	l.events = append(l.events, e)
	return e.Seq
}

func (l *log) FollowEvents(_ context.Context, after int64, limit int) ([]sheaf.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads.Add(1)
	var out []sheaf.Event
	for _, e := range l.events[after:] {
		if len(out) == limit || l.lag > 0 && time.Since(e.At) < l.lag {
			break
		}
		out = append(out, e)
	}
	return out, l.err
}

func (l *log) FollowFrom(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(len(l.events))
	for n > 0 && time.Since(l.events[n-1].At) < 2*l.lag {
		n--
	}
	return n, l.err
}

func (l *log) Touched(_ context.Context, after int64, limit int) ([]taskstore.EventScope, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks.Add(1)
	if after < 0 {
		after = int64(len(l.events))
	}
	var of []taskstore.EventScope
	for _, e := range l.events[after:] {
		if s := (taskstore.EventScope{TenantID: e.TenantID, JobID: e.JobID}); !slices.Contains(of, s) && len(of) < limit {
			of = append(of, s)
		}
	}
	return of, int64(len(l.events)), l.err
}

// follow runs f beside a hub over l.
func follow(t *testing.T, l *log, cfg Config, f func(t *testing.T, h *Hub)) {
	synctest.Test(t, func(t *testing.T) {
		cfg.Log = l
		cfg.Encode = func(e sheaf.Event) []byte { return fmt.Append(nil, e.Seq) }
		h := New(cfg)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(ctx)
		}()
		f(t, h)
		stop()
		<-ended
	})
}

func subscribe(t *testing.T, h *Hub, tenant, job string) (*Subscription, int64) {
	t.Helper()
	s, from, err := h.Subscribe(t.Context(), tenant, taskstore.EventFilter{JobID: job})
	if err != nil {
		t.Fatal(err)
	}
	return s, from
}

func seqs(s *Subscription) (out []int64) {
	items, _ := s.Take()
	for _, it := range items {
		out = append(out, it.Seq)
	}
	return out
}

func TestEachEventReachesEachWatcherOnceForOneReading(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		l.add("t", "a") // long past
		var subs []*Subscription
		const watchers = 300
		for i := range watchers {
			s, from := subscribe(t, h, "t", []string{"a", "b", ""}[i%3])
			if from != 1 {
				t.Fatalf("watcher %d begins behind %d", i, from)
			}
			subs = append(subs, s)
		}
		other, _ := subscribe(t, h, "u", "")
		time.Sleep(time.Second)
		synctest.Wait()
		reads := l.reads.Load()
		var a, b []int64
		for range 50 {
			a, b = append(a, l.add("t", "a")), append(b, l.add("t", "b"))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for i, s := range subs {
			want := [][]int64{a, b, slices.Sorted(slices.Values(append(slices.Clone(a), b...)))}[i%3]
			if got := seqs(s); !slices.Equal(got, want) {
				t.Fatalf("watcher %d received %v, want %v", i, got, want)
			}
			s.Close()
			s.Close()
		}
		if got := seqs(other); got != nil {
			t.Errorf("another tenant received %v", got)
		}
		if n := l.reads.Load() - reads; n > 12 { // two seconds, of which one has events
			t.Errorf("the log was read %d times for %d watchers", n, watchers)
		}
		other.Close()
		synctest.Wait()
		reads = l.reads.Load()
		time.Sleep(time.Hour)
		if l.reads.Load()-reads > 1 {
			t.Errorf("the log was read %d times for nobody", l.reads.Load()-reads)
		}
		// Who comes then begins where the log is, not where it was left.
		l.add("t", "a")
		if s, from := subscribe(t, h, "t", "a"); from != int64(len(l.events)) {
			t.Errorf("begins behind %d of %d", from, len(l.events))
		} else {
			s.Close()
		}
	})
}

// document is an event of a document that has changed its state.
func document(id string, state sheaf.DocumentState) sheaf.Event {
	b, err := json.Marshal(sheaf.DocumentChange{State: state})
	if err != nil {
		panic(err)
	}
	return sheaf.Event{TenantID: "t", JobID: "a", DocumentID: id, Kind: sheaf.EventDocument, Detail: b}
}

// A crowd is told the newest state of each task and document, and all ends; a
// few watchers are told everything.
func TestCrowdIsSentTheNewestOfEachSubject(t *testing.T) {
	for _, watchers := range []int{2, 300} {
		l := &log{}
		follow(t, l, Config{}, func(t *testing.T, h *Hub) {
			var subs []*Subscription
			for range watchers {
				s, _ := subscribe(t, h, "t", "a")
				subs = append(subs, s)
			}
			task := func(id, kind string) sheaf.Event {
				return sheaf.Event{TenantID: "t", JobID: "a", TaskID: id, Kind: kind}
			}
			var few, many []int64
			passes := func(e sheaf.Event) { few = append(few, l.append(e)) }
			stays := func(e sheaf.Event) {
				passes(e)
				many = append(many, few[len(few)-1])
			}
			passes(document("d", sheaf.DocQueued))
			passes(document("d", sheaf.DocRunning))
			passes(task("x", sheaf.EventClaimed))
			passes(task("x", sheaf.EventProgress))
			stays(task("x", sheaf.EventMessage))
			stays(task("x", sheaf.EventFailed))
			passes(task("x", sheaf.EventClaimed))
			passes(task("y", sheaf.EventClaimed))
			stays(task("x", sheaf.EventDone))
			stays(document("d", sheaf.DocSucceeded))
			stays(document("e", sheaf.DocRunning))
			stays(document("d", sheaf.DocQueued)) // parsed again: its end before is no less an end
			stays(task("y", sheaf.EventProgress))
			time.Sleep(2 * time.Second)
			want := few
			if watchers > 2 {
				want = many
			}
			encoded := map[int64]*byte{}
			for i, s := range subs {
				items, lost := s.Take()
				var got []int64
				for _, it := range items {
					got = append(got, it.Seq)
					if first := encoded[it.Seq]; first == nil {
						encoded[it.Seq] = &it.Data[0]
					} else if first != &it.Data[0] {
						t.Fatalf("event %d was encoded again for watcher %d", it.Seq, i)
					}
				}
				if lost || !slices.Equal(got, want) {
					t.Fatalf("of %d watchers the %dth received %v, want %v; lost %v", watchers, i, got, want, lost)
				}
			}
			for _, s := range subs {
				s.Close()
			}
		})
	}
}

func TestPaceFollowsTheNumberOfWatchers(t *testing.T) {
	follow(t, &log{}, Config{}, func(t *testing.T, h *Hub) {
		var subs []*Subscription
		pace := func(watchers int) time.Duration {
			for len(subs) < watchers {
				s, _ := subscribe(t, h, "t", "")
				subs = append(subs, s)
			}
			for len(subs) > watchers {
				subs[len(subs)-1].Close()
				subs = subs[:len(subs)-1]
			}
			return h.Pace()
		}
		for _, c := range []struct {
			watchers int
			want     time.Duration
		}{{0, 0}, {unpaced, 0}, {unpaced + 1, pacePer}, {120, 100 * pacePer}, {500, 480 * pacePer}, {1000, maxPace}, {1, 0}} {
			if got := pace(c.watchers); got != c.want {
				t.Errorf("%d watchers: %v, want %v", c.watchers, got, c.want)
			}
		}
		pace(0)
	})
}

// Those who watch the same are one group, which holds its events once. What one of
// them takes, and leaves out as superseded, is there for the others as it was.
func TestCrowdSharesWhatItIsHanded(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		var subs []*Subscription
		for i := range 300 {
			s, _ := subscribe(t, h, "t", string("ab"[i%2]))
			subs = append(subs, s)
		}
		if n := len(h.groups["t"]); n != 2 {
			t.Fatalf("who follows two jobs are %d groups", n)
		}
		claimed := l.append(sheaf.Event{TenantID: "t", JobID: "a", TaskID: "x", Kind: sheaf.EventClaimed})
		other := l.append(sheaf.Event{TenantID: "t", JobID: "a", TaskID: "y", Kind: sheaf.EventClaimed})
		time.Sleep(2 * time.Second)
		if got := seqs(subs[0]); !slices.Equal(got, []int64{claimed, other}) {
			t.Errorf("who takes at once received %v", got)
		}
		done := l.append(sheaf.Event{TenantID: "t", JobID: "a", TaskID: "x", Kind: sheaf.EventDone})
		time.Sleep(2 * time.Second)
		for i, s := range subs {
			want := [][]int64{{other, done}, nil}[i%2]
			if i == 0 {
				want = []int64{done}
			}
			if got := seqs(s); !slices.Equal(got, want) {
				t.Errorf("the %dth received %v, want %v", i, got, want)
			}
		}
		for _, s := range subs {
			s.Close()
			s.Close()
		}
		if len(h.groups) != 0 || h.watching != 0 {
			t.Errorf("%d tenants and %d watchers are left when all have gone", len(h.groups), h.watching)
		}
	})
}

// A queue that fills wakes its watcher before it is full.
func TestFillingQueueIsSaid(t *testing.T) {
	l := &log{}
	follow(t, l, Config{Queue: 10}, func(t *testing.T, h *Hub) {
		s, _ := subscribe(t, h, "t", "a")
		for n := 1; n <= 5; n++ {
			l.add("t", "a")
			time.Sleep(time.Second)
			select {
			case <-s.Filling:
				if n < 5 {
					t.Errorf("said with %d of 10", n)
				}
			default:
				if n == 5 {
					t.Error("not said with half of it in use")
				}
			}
		}
		s.Close()
	})
}

func TestWatcherThatFallsBehindIsCutOff(t *testing.T) {
	l := &log{}
	follow(t, l, Config{Queue: 10}, func(t *testing.T, h *Hub) {
		slow, _ := subscribe(t, h, "t", "")
		well, _ := subscribe(t, h, "t", "")
		got := 0
		for range 30 {
			l.add("t", "a")
			time.Sleep(200 * time.Millisecond)
			got += len(seqs(well))
		}
		time.Sleep(time.Second)
		got += len(seqs(well))
		if items, lost := slow.Take(); !lost || len(items) != 0 {
			t.Errorf("the slow one has %d events, lost %v", len(items), lost)
		}
		if _, lost := well.Take(); lost || got != 30 {
			t.Errorf("the other received %d events, lost %v", got, lost)
		}
		slow.Close()
		well.Close()
	})
}

// An event that is held back says at once that there is something to see.
func TestHeldBackEventsTouch(t *testing.T) {
	l := &log{lag: 2 * time.Second}
	var changed chan struct{}
	follow(t, l, Config{Idle: time.Minute, Changes: func(context.Context) <-chan struct{} {
		changed = make(chan struct{}, 1)
		return changed
	}}, func(t *testing.T, h *Hub) {
		s, _ := subscribe(t, h, "t", "a")
		time.Sleep(time.Second)
		seqs(s)
		seq := l.add("t", "a")
		changed <- struct{}{} // by another process
		time.Sleep(200 * time.Millisecond)
		touched := false
		select {
		case <-s.Ready:
			touched = true
		default:
		}
		if items, _ := s.Take(); len(items) != 0 || !touched {
			t.Errorf("%d events, touched %v", len(items), touched)
		}
		time.Sleep(2 * time.Second)
		h.Notify()
		time.Sleep(200 * time.Millisecond)
		if got := seqs(s); !slices.Equal(got, []int64{seq}) {
			t.Errorf("received %v, want %d", got, seq)
		}
		s.Close()
	})
}

func TestStoreThatIsAwayIsWaitedFor(t *testing.T) {
	l := &log{}
	follow(t, l, Config{}, func(t *testing.T, h *Hub) {
		s, _ := subscribe(t, h, "t", "")
		l.mu.Lock()
		l.err = errors.New("away")
		l.mu.Unlock()
		l.add("t", "a")
		time.Sleep(time.Minute)
		if got := seqs(s); got != nil {
			t.Errorf("received %v of a store that is away", got)
		}
		if _, _, err := h.Subscribe(t.Context(), "t", taskstore.EventFilter{}); err != nil {
			t.Errorf("a watcher that comes while the log is followed: %v", err)
		}
		if _, _, err := h.Read(t.Context(), Scope{TenantID: "t"}, nil); err == nil {
			t.Error("a snapshot that may be out of date was returned")
		}
		l.mu.Lock()
		l.err = nil
		l.mu.Unlock()
		time.Sleep(time.Second)
		if got := seqs(s); !slices.Equal(got, []int64{1}) {
			t.Errorf("received %v when it was back", got)
		}
	})
}
