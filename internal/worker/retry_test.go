package worker

import (
	"testing"
	"time"

	"sheaf"
)

func TestRetriesAreOfTheNodeThenTheKindThenTheExecutor(t *testing.T) {
	w := New(Config{
		MaxFails: 5, BackoffBase: time.Second, BackoffMax: time.Minute,
		Retry: map[sheaf.TaskKind]RetryPolicy{
			"parse":              {MaxFails: 2},
			"dataflow":           {Max: 10 * time.Second, Jitter: -1},
			"dataflow/expensive": {Base: 4 * time.Second},
		},
		TaskTimeout: map[sheaf.TaskKind]time.Duration{"dataflow": time.Minute, "dataflow/expensive": time.Hour},
	})
	for _, c := range []struct {
		task sheaf.Task
		want RetryPolicy
	}{
		{sheaf.Task{Kind: "index"}, RetryPolicy{5, time.Second, time.Minute, 0.5}},
		{sheaf.Task{Kind: "parse"}, RetryPolicy{2, time.Second, time.Minute, 0.5}},
		{sheaf.Task{Kind: "dataflow", Node: "cheap"}, RetryPolicy{5, time.Second, 10 * time.Second, -1}},
		{sheaf.Task{Kind: "dataflow", Node: "expensive"}, RetryPolicy{5, 4 * time.Second, 10 * time.Second, -1}},
	} {
		if got := w.retries(&c.task); got != c.want {
			t.Errorf("%s %q: %+v, want %+v", c.task.Kind, c.task.Node, got, c.want)
		}
	}
	if d := w.taskTimeout(&sheaf.Task{Kind: "dataflow", Node: "expensive"}); d != time.Hour {
		t.Errorf("the node may take %s, want its own hour", d)
	}
	if d := w.taskTimeout(&sheaf.Task{Kind: "dataflow", Node: "cheap"}); d != time.Minute {
		t.Errorf("the node may take %s, want the minute of its kind", d)
	}
}

func TestWaitsDoubleUpToTheLongest(t *testing.T) {
	p := RetryPolicy{Base: time.Second, Max: 10 * time.Second, Jitter: -1}
	for n, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		if got := p.wait(n); got != want {
			t.Errorf("after failure %d: %s, want %s", n, got, want)
		}
	}
	if got := p.wait(1000); got != p.Max {
		t.Errorf("after failure 1000: %s, want %s", got, p.Max)
	}
	p.Jitter = 0.25
	for range 1000 {
		if got := p.wait(0); got < 750*time.Millisecond || got > time.Second {
			t.Fatalf("%s, want three quarters of a second to a second", got)
		}
	}
}

// An attempt begins anew: what timed out twice would do so each time.
func TestATimeoutIsNotTriedAThirdTime(t *testing.T) {
	slow := sheaf.FailRetryable(sheaf.CategoryTimeout, "task_timeout", "too slow")
	for name, c := range map[string]struct {
		task sheaf.Task
		f    *sheaf.Failure
		over bool
	}{
		"the first":            {sheaf.Task{}, slow, false},
		"the second":           {sheaf.Task{FailCount: 1, Failure: slow}, slow, true},
		"the parser's":         {sheaf.Task{FailCount: 1, Failure: slow}, sheaf.FailRetryable(sheaf.CategoryTimeout, "parse_timeout", "too slow"), true},
		"behind another":       {sheaf.Task{FailCount: 1, Failure: sheaf.FailRetryable(sheaf.CategoryInternal, "x", "x")}, slow, false},
		"after an admin retry": {sheaf.Task{Failure: slow}, slow, false},
		"a server's":           {sheaf.Task{FailCount: 1, Failure: sheaf.FailRetryable(sheaf.CategoryTimeout, "embed_timeout", "x")}, sheaf.FailRetryable(sheaf.CategoryTimeout, "embed_timeout", "x"), false},
	} {
		if got := timedOutTwice(&c.task, c.f); got != c.over {
			t.Errorf("%s: over is %v", name, got)
		}
	}
}
