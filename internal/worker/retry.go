package worker

import (
	"cmp"
	"math/rand/v2"
	"time"

	"sheaf"
)

// RetryPolicy is how often and how soon a failed task is retried. A zero field means
// the worker's default.
type RetryPolicy struct {
	MaxFails int           // failed attempts until the task is dead
	Base     time.Duration // first wait, doubles with each failure
	Max      time.Duration // longest wait
	Jitter   float64       // random share of each wait, up to 1; negative for none
}

// over fills p's zero fields from d.
func (p RetryPolicy) over(d RetryPolicy) RetryPolicy {
	return RetryPolicy{cmp.Or(p.MaxFails, d.MaxFails), cmp.Or(p.Base, d.Base), cmp.Or(p.Max, d.Max), cmp.Or(p.Jitter, d.Jitter)}
}

// wait is the delay after the n-th failure, from 0.
func (p RetryPolicy) wait(n int) time.Duration {
	d := p.Max
	if n < 40 && p.Base <= p.Max>>n {
		d = p.Base << n
	}
	return time.Duration((1 - rand.Float64()*max(p.Jitter, 0)) * float64(d))
}

// ofTask looks up a setting by the task's node ("dataflow/summary") or, failing
// that, by its kind.
func ofTask[V comparable](settings map[sheaf.TaskKind]V, t *sheaf.Task) V {
	var none V
	if t.Node != "" {
		if v := settings[t.Kind+"/"+sheaf.TaskKind(t.Node)]; v != none {
			return v
		}
	}
	return settings[t.Kind]
}

// retries is the policy of one task: its node's, then its kind's, then the worker's.
func (w *Worker) retries(t *sheaf.Task) RetryPolicy {
	own := RetryPolicy{w.cfg.MaxFails, w.cfg.BackoffBase, w.cfg.BackoffMax, w.cfg.BackoffJitter}
	return w.cfg.PolicyFunc(t).over(ofTask(w.cfg.Retry, t)).over(w.cfg.Retry[t.Kind]).over(own)
}
