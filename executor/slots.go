package executor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/semaphore"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/internal/worker"
)

// Calls is how many files an executor has other services read at once: see
// parser.Caller.
const Calls = 4

type slotsKey struct{}

// inSlots is a task and what limits it.
type inSlots struct {
	slots *queue.Slots
	calls *semaphore.Weighted
	task  *sheaf.Task
}

// withSlots has planning under the context use the executor's slots, for a task.
func (e *Executor) withSlots(ctx context.Context, t *sheaf.Task) context.Context {
	return context.WithValue(ctx, slotsKey{}, inSlots{e.parse, e.calls, t})
}

// withoutSlots undoes withSlots.
func withoutSlots(ctx context.Context) context.Context {
	return context.WithValue(ctx, slotsKey{}, nil)
}

// enterSlots waits for one of the context's slots. Without any, as in a dry run, it
// returns at once.
func enterSlots(ctx context.Context) (leave func(), err error) {
	if in, ok := ctx.Value(slotsKey{}).(inSlots); ok {
		return in.slots.Enter(ctx, in.task.TenantID, in.task.Lane)
	}
	return func() {}, nil
}

// enterCalls is admitted to the context's calls, if it has any.
func enterCalls(ctx context.Context) (leave func(), err error) {
	if in, ok := ctx.Value(slotsKey{}).(inSlots); ok {
		return admit(ctx, in.calls, sheaf.FailRetryable(sheaf.CategoryCapacity, "transcription_busy", "This executor has other recordings transcribed. This one follows when one of them is done."))
	}
	return func() {}, nil
}

// A task that is not admitted within admitWait is tried again admitRest later.
const (
	admitWait = time.Second
	admitRest = 10 * time.Second
)

// admit takes one of the places for tasks that wait for others for minutes, and gives
// back the task's worker. If there is none soon, the task must leave with the error:
// here it would count against its tenant's cap and its own time limit.
func admit(ctx context.Context, places *semaphore.Weighted, busy *sheaf.Failure) (leave func(), err error) {
	worker.Yield(ctx)
	wait, cancel := context.WithTimeout(ctx, admitWait)
	defer cancel()
	if places.Acquire(wait, 1) != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w (%w)", busy, &sheaf.RateLimited{After: admitRest})
	}
	return func() { places.Release(1) }, nil
}
