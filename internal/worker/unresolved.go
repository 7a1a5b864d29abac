package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sheaf"
)

// unresolved are tasks that the store may hold for this worker although it does not
// run them: their claim, or the write of their completion, returned an error that
// leaves the outcome unknown, as when the reply is lost. No one renews such a claim;
// left alone it would wait out its whole lease and cost the task part of its budget.
// So each heartbeat asks which of them are held, and releases those. By task id,
// with the time by which the lease has expired in any case.
type unresolved map[string]time.Time

// mostUnresolved bounds the request; tasks beyond it wait for their lease to expire.
const mostUnresolved = 1000

// unresolve records a task that may be held.
func (w *Worker) unresolve(taskID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unresolved) < mostUnresolved {
		w.unresolved[taskID] = time.Now().Add(w.cfg.Lease)
	}
}

// resolve removes a task from unresolved and reports whether it was there.
func (w *Worker) resolve(taskID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, was := w.unresolved[taskID]
	delete(w.unresolved, taskID)
	return was
}

// releaseUnresolved releases tasks that are held but not run. A task that the store
// does not confirm stays unresolved: the write may still be in flight.
func (w *Worker) releaseUnresolved(ctx context.Context) {
	now := time.Now()
	w.mu.Lock()
	maps.DeleteFunc(w.unresolved, func(_ string, over time.Time) bool { return now.After(over) })
	ids := slices.Sorted(maps.Keys(w.unresolved))
	w.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	held, err := w.cfg.Store.Held(ctx, w.id, ids)
	if err != nil {
		w.cfg.Log.Warn("could not resolve claims whose response was lost; retrying", "tasks", len(ids), "error", err)
		return
	}
	given := 0
	for _, c := range held {
		if !w.resolve(c.TaskID) {
			continue // it is being claimed again
		}
		switch err := w.cfg.Store.Release(ctx, c); {
		case err == nil:
			given++
		case !errors.Is(err, sheaf.ErrStale):
			w.unresolve(c.TaskID)
		}
	}
	if given > 0 {
		w.cfg.Log.Info("released tasks whose claim or end was written behind an error", "tasks", given, "worker", w.id)
		w.cfg.Changed(true)
	}
}
