// Package queue sits between the store, which is the source of truth about tasks,
// and the executors, which must learn of work soon and fairly. A queue carries only
// hints: it may lose, repeat and reorder them without affecting correctness, because
// the guarded claim in the store decides and the keeper republishes hints that no
// one took.
package queue

import (
	"cmp"
	"context"
	"time"

	"sheaf"
)

// Queue combines all roles of a queue. It hands hints from the feeder to executors:
// fairly between tenants by weight and cost, within a tenant by lane, phase and
// place with the turns of Turns, and never above a tenant's cap. Implementations are
// safe for concurrent use. Errors are sheaf.ErrUnavailable or sheaf.ErrReadOnly when
// the queue's engine does not respond or rejects writes.
type Queue interface {
	Hints
	Publisher
	Shares
	Notifier
	Reconciler
	// Ping checks the connection.
	Ping(ctx context.Context) error
	Close() error
}

// Hints is how executors take work.
type Hints interface {
	// Take returns at most slots hints for the worker, possibly none, without waiting.
	// skip names kinds the worker cannot run now (their breaker is open); a queue that
	// cannot filter may ignore it.
	Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error)
	// Ack removes a hint that led to a claim or was spent. running says that the task
	// is running and counts against the cap until Done: the claim succeeded, or was
	// refused because another worker runs the task. A hint whose claim had an unclear
	// error is not acked: Recover finds it.
	Ack(ctx context.Context, h sheaf.Hint, running bool) error
	// Done says that a task taken from this queue is no longer running, or only waits
	// for its end: then it is called again at the end, which changes nothing unless the
	// task was counted again meanwhile.
	Done(ctx context.Context, tenantID, taskID string) error
	// Charge counts cost towards the share of the hint's tenant, in addition to the
	// hint's own cost: its task took longer than that.
	Charge(ctx context.Context, h sheaf.Hint, cost int) error
	// Recover returns hints that a worker took and neither acked nor returned within
	// minIdle. They then belong to workerID.
	Recover(ctx context.Context, workerID string, minIdle time.Duration) ([]sheaf.Hint, error)
	// Leave unregisters a worker that is shutting down, without losing its pending
	// hints.
	Leave(ctx context.Context, workerID string) error
}

// Publisher is how the feeder fills a queue.
type Publisher interface {
	// Publish offers hints of one tenant and lane, in order, and returns how many, from
	// the front, were accepted: the window may be full, and fills sooner for plans and
	// bulk than for hints that finish documents in progress. A queue that reads the
	// store itself accepts all and only notifies executors.
	Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (accepted int, err error)
	// RunIDs returns a value per lane that changes when the queue loses its memory of
	// that lane; lanes may lose theirs independently. A lane whose engine does not
	// respond is omitted, and a queue without memory has none. It fails only when no
	// engine responds.
	RunIDs(ctx context.Context) (map[sheaf.Lane]string, error)
}

// Shares is how a queue learns tenants' shares.
type Shares interface {
	// SetShare sets a tenant's weight and cap; unknown tenants have weight 1 and the
	// queue's default cap. A queue that reads the store finds both there.
	SetShare(ctx context.Context, tenantID string, weight, cap int) error
}

// Notifier wakes waiters that would otherwise learn of changes at their next poll.
// All notifications are hints.
type Notifier interface {
	// Notify says that there may be work: the current or next waiter looks.
	Notify(ctx context.Context) error
	// Wait blocks until a notification, until d has passed (nil error for both), or
	// until ctx is done (its error). A notification since the last Wait counts. If the
	// engine does not respond Wait fails, but not before d has passed, so that a loop
	// over Wait does not spin.
	Wait(ctx context.Context, d time.Duration) error
	// SignalCancel asks all executors to check these tasks now; the heartbeat carries
	// the same information.
	SignalCancel(ctx context.Context, taskIDs []string) error
	// Cancels receives signaled task ids; it is closed when ctx is done.
	Cancels(ctx context.Context) <-chan string
	// NotifyChange tells the leading keeper, in any process, and watchers that
	// documents or tasks have changed. Their loops also run periodically;
	// notify.Debouncer limits how often it is called.
	NotifyChange(ctx context.Context) error
	// Changes receives after NotifyChange, and possibly without one; unreceived
	// notifications are merged. Every receiver in every process is notified. It is
	// closed some time after ctx is done.
	Changes(ctx context.Context) <-chan struct{}
}

// Reconciler compares a queue's contents with the store.
type Reconciler interface {
	// Reconcile removes from the cap count tasks that the store says are not running.
	// running maps tenants to their running task ids; a tenant without an entry has
	// none. Since running is slightly stale, a task is removed only when two
	// consecutive calls miss it.
	Reconcile(ctx context.Context, running map[string][]string) error
	// Depths reports what the queue itself holds per tenant and lane; empty lanes are
	// omitted.
	Depths(ctx context.Context) ([]Depth, error)
}

// Lister is implemented by queues that hold hints of their own.
type Lister interface {
	// Hints calls each for every hint the queue holds, taken or not, with its
	// publication time, until each returns an error.
	Hints(ctx context.Context, each func(h sheaf.Hint, published time.Time) error) error
}

// MaxCredit is how far a tenant that its cap kept from its turn may stay behind the
// others, in cost at weight 1. Without it, a tenant at its cap for a moment would be
// charged all that others, who owe it, are served meanwhile; without a limit, it
// would keep them waiting once its cap is raised.
const MaxCredit = 6000

// Depth is the number of hints a queue holds.
type Depth struct {
	TenantID string
	Lane     sheaf.Lane
	Waiting  int // not yet taken
	Taken    int // taken but not yet acked
}

// Leader runs work on at most one process at a time, only to save work: it must be
// harmless when two run it at once, since no expiring lock survives every pause and
// failover.
type Leader interface {
	// Run campaigns until ctx is done. Each time it is elected it calls lead with a
	// context that is canceled when the term ends.
	Run(ctx context.Context, lead func(ctx context.Context)) error
}

// CompareDepths orders by tenant, then lane.
func CompareDepths(a, b Depth) int {
	return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Lane, b.Lane))
}
