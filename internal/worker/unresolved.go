package executor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"sheaf"
)

// doubts are tasks that the store may hold this executor to run though it does
// not: their claim, or the write of their end, came back with an error that
// leaves open whether it happened, as when the reply is lost on its way. Nobody
// renews such a claim, and left alone it would wait for its whole lease and
// cost the task a part of its budget. So each heartbeat asks which of them are
// held, and gives those back. By task id, with the time after which its lease
// has ended in any case.
type doubts map[string]time.Time

// mostDoubts bounds the question; what is beyond waits for its lease.
const mostDoubts = 1000

// doubt notes a task that may be held.
func (e *Executor) doubt(taskID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.doubts) < mostDoubts {
		e.doubts[taskID] = time.Now().Add(e.cfg.Lease)
	}
}

// trust forgets the doubt about a task and reports whether there was one.
func (e *Executor) trust(taskID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, doubted := e.doubts[taskID]
	delete(e.doubts, taskID)
	return doubted
}

// giveBackDoubtful gives back what is held and not run. A doubt that the store
// does not confirm stays: the write may still be on its way.
func (e *Executor) giveBackDoubtful(ctx context.Context) {
	now := time.Now()
	e.mu.Lock()
	maps.DeleteFunc(e.doubts, func(_ string, over time.Time) bool { return now.After(over) })
	ids := slices.Sorted(maps.Keys(e.doubts))
	e.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	held, err := e.cfg.Store.Held(ctx, e.id, ids)
	if err != nil {
		e.cfg.Log.Warn("asking for claims whose answer was lost failed; they are asked for again", "tasks", len(ids), "error", err)
		return
	}
	given := 0
	for _, c := range held {
		if !e.trust(c.TaskID) {
			continue // it is being claimed anew
		}
		switch err := e.cfg.Store.Release(ctx, c); {
		case err == nil:
			given++
		case !errors.Is(err, sheaf.ErrStale):
			e.doubt(c.TaskID)
		}
	}
	if given > 0 {
		e.cfg.Log.Info("gave back tasks whose claim or end was written behind an error", "tasks", given, "worker", e.id)
		e.cfg.Changed(true)
	}
}
