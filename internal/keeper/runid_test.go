package keeper

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// restarts is a queue whose lanes work and lose their memory as a test says.
type restarts struct {
	queue.Queue
	now map[sheaf.Lane]string
}

func (l *restarts) RunIDs(context.Context) (map[sheaf.Lane]string, error) {
	return maps.Clone(l.now), nil
}

// notes is a store that keeps what the keeper notes and is told to forget.
type notes struct {
	Store
	meta      map[string]string
	forgotten []sheaf.Lane
}

func (n *notes) Meta(_ context.Context, key string) (string, error) { return n.meta[key], nil }

func (n *notes) ForgetEnqueued(_ context.Context, lanes []sheaf.Lane, runs string) (int, error) {
	n.meta[taskstore.QueueRunsKey] = runs
	n.forgotten = append(n.forgotten, lanes...)
	return 0, nil
}

// A Redis that lost its memory, or is new, is fed again, and no other. One that
// is away is known as it was, also to a keeper that begins meanwhile.
func TestOnlyLanesThatLostTheirMemoryAreFedAgain(t *testing.T) {
	store := &notes{meta: map[string]string{taskstore.QueueRunsKey: "from a version that knew one run of all"}}
	q := &restarts{}
	k := New(Config{Store: store, Queue: q})
	for _, step := range []struct {
		what string
		now  map[sheaf.Lane]string
		want []sheaf.Lane
		new  bool // another keeper leads
	}{
		{"all are new", map[sheaf.Lane]string{1: "own", 2: "main", 3: "main"}, []sheaf.Lane{1, 2, 3}, false},
		{"nothing happened", map[sheaf.Lane]string{1: "own", 2: "main", 3: "main"}, nil, false},
		{"the main Redis is away", map[sheaf.Lane]string{1: "own"}, nil, false},
		{"another keeper leads meanwhile", map[sheaf.Lane]string{1: "own"}, nil, true},
		{"the main Redis is back", map[sheaf.Lane]string{1: "own", 2: "main", 3: "main"}, nil, false},
		{"the main Redis lost its memory", map[sheaf.Lane]string{1: "own", 2: "again", 3: "again"}, []sheaf.Lane{2, 3}, false},
		{"the other one did", map[sheaf.Lane]string{1: "new", 2: "again", 3: "again"}, []sheaf.Lane{1}, false},
		{"a queue without memory", nil, nil, true},
	} {
		if step.new {
			k = New(Config{Store: store, Queue: q})
		}
		q.now, store.forgotten = step.now, nil
		k.shared["tenant"] = taskstore.TenantLoad{TenantID: "tenant"}
		if err := k.notice(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(store.forgotten, step.want) {
			t.Errorf("%s: the lanes %v are fed again, want %v", step.what, store.forgotten, step.want)
		}
		// A Redis that is new to this keeper must be told the tenants' shares.
		if told := len(k.shared) > 0; told && len(step.want) > 0 {
			t.Errorf("%s: the queue is not told the tenants' shares again", step.what)
		}
	}
}

// twoLead is a store and a queue in which another keeper, which leads as well,
// notices a loss of the queue's memory before publish returns.
type twoLead struct {
	notes
	restarts
	noticed func()
	marked  []string // run ids with which tasks were marked
}

func (s *twoLead) RunIDs(ctx context.Context) (map[sheaf.Lane]string, error) {
	return s.restarts.RunIDs(ctx)
}

func (s *twoLead) Feedable(context.Context, string, int, time.Duration) (slice taskstore.FeedSlice, err error) {
	slice.Hints = []sheaf.Hint{{TaskID: "task", TenantID: "t", Lane: sheaf.LaneNormal}}
	return slice, nil
}

func (s *twoLead) Publish(context.Context, string, sheaf.Lane, []sheaf.Hint) (int, error) {
	if s.noticed != nil {
		s.noticed()
	}
	return 1, nil
}

func (s *twoLead) MarkEnqueued(_ context.Context, _ []sheaf.Hint, runs string) (bool, error) {
	if runs != s.meta[taskstore.QueueRunsKey] {
		return false, nil
	}
	s.marked = append(s.marked, runs)
	return true, nil
}

// A keeper that publishes, and marks only after another has noticed that the queue
// lost the hint, must not mark the task: nobody would feed it for minutes.
func TestHintLostBeforeItsMarkIsPublishedAgain(t *testing.T) {
	s := &twoLead{notes: notes{meta: map[string]string{}}, restarts: restarts{now: map[sheaf.Lane]string{2: "first"}}}
	slow, other := New(Config{Store: s, Queue: s}), New(Config{Store: s, Queue: s})
	feed := func(k *Keeper) {
		t.Helper()
		if _, err := k.feed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	feed(slow)
	s.noticed = func() {
		s.now = map[sheaf.Lane]string{2: "second"}
		if err := other.notice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	feed(slow)
	if len(s.marked) != 1 {
		t.Fatalf("marked with %q; the second hint is lost", s.marked)
	}
	// It may lead on: its next run has the new run ids.
	s.noticed = nil
	feed(slow)
	if len(s.marked) != 2 || len(s.forgotten) != 2 {
		t.Errorf("marked with %q after forgetting the lanes %v; want two of each", s.marked, s.forgotten)
	}
}
