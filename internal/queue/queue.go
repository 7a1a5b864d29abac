// Package queue stands between the store, which holds the truth about tasks, and
// the executors, which must learn soon and fairly that there is work. A queue
// carries hints only: it may lose them, repeat them and reorder them, and the
// pipeline still ends right, because the guarded claim in the store decides and
// the keeper publishes again what nobody took.
package queue

import (
	"cmp"
	"context"
	"time"

	"sheaf"
)

// Queue is every role of a queue together. It hands hints from the feeder to
// executors: fairly between tenants by weight and cost, within a tenant by lane,
// phase and place with the turns that Turns keeps, never above a tenant's cap.
// Implementations are safe for concurrent use. Errors are sheaf.ErrUnavailable
// or sheaf.ErrReadOnly when the queue's engine does not answer or takes no writes.
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

// Hints is what executors take work by.
type Hints interface {
	// Take returns at most slots hints for the worker, possibly none, without
	// waiting. skip names kinds that the worker cannot run now (their breaker
	// is open); a queue that cannot filter may ignore it.
	Take(ctx context.Context, workerID string, slots int, skip []sheaf.TaskKind) ([]sheaf.Hint, error)
	// Ack removes a hint that led to a claim or was spent. running says that
	// the task runs, so that it counts against the cap until Done: the claim
	// was won, or it was refused because somebody else runs the task. A hint
	// whose claim ended in an unclear error is not acked: Recover finds it.
	Ack(ctx context.Context, h sheaf.Hint, running bool) error
	// Done says that a task taken from this queue does not run any more.
	Done(ctx context.Context, tenantID, taskID string) error
	// Recover returns hints that a worker took and neither acked nor gave
	// back within minIdle. They are workerID's from then on.
	Recover(ctx context.Context, workerID string, minIdle time.Duration) ([]sheaf.Hint, error)
	// Leave unregisters a worker that is shutting down, losing nothing that is
	// pending for it.
	Leave(ctx context.Context, workerID string) error
}

// Publisher is what the feeder fills a queue by.
type Publisher interface {
	// Publish offers hints of one tenant and lane, in order, and returns how
	// many of them, from the front, were taken in: the window may be full, of
	// plans or of bulk sooner than of what finishes documents that have begun. A
	// queue that reads the store itself accepts all and only notifies executors.
	Publish(ctx context.Context, tenantID string, lane sheaf.Lane, hints []sheaf.Hint) (accepted int, err error)
	// RunIDs has a value for each lane that changes when the queue has lost its
	// memory of that lane; lanes may lose theirs one without the other. A lane
	// whose engine does not answer is left out, and a queue without memory has
	// none. There is an error only when no engine answers.
	RunIDs(ctx context.Context) (map[sheaf.Lane]string, error)
}

// Shares is how a queue learns what tenants are due.
type Shares interface {
	// SetShare tells the queue a tenant's weight and cap; unknown tenants have
	// weight 1 and the queue's default cap. A queue that reads the store finds
	// both there.
	SetShare(ctx context.Context, tenantID string, weight, cap int) error
}

// Notifier wakes those who would otherwise learn of something at their next
// poll. All of it is hints.
type Notifier interface {
	// Notify says that there may be work: a waiter, or the next one, looks.
	Notify(ctx context.Context) error
	// Wait blocks until a notification, until d has passed (nil error for both),
	// or until ctx ends (its error). A notification since the last Wait counts.
	// An engine that does not answer makes Wait fail, but not before d has
	// passed, so that a loop over Wait does not spin.
	Wait(ctx context.Context, d time.Duration) error
	// SignalCancel tells all executors to look at these tasks now; the heartbeat
	// carries the same news.
	SignalCancel(ctx context.Context, taskIDs []string) error
	// Cancels is closed when ctx ends.
	Cancels(ctx context.Context) <-chan string
	// NotifyChange says that documents or tasks have changed, to the keeper that
	// leads, in whatever process, and to who watches. Their loops come around by
	// themselves; notify.Debouncer limits how often it is called.
	NotifyChange(ctx context.Context) error
	// Changes receives after NotifyChange, and may without one; what nobody has
	// received yet is one. Each receiver of each process receives. It is closed
	// some time after ctx has ended.
	Changes(ctx context.Context) <-chan struct{}
}

// Reconciler compares what a queue holds with the store.
type Reconciler interface {
	// Reconcile drops from the cap count tasks that the store says are not
	// running. running maps tenant to its running task ids; a tenant without
	// an entry has none. Since running is read a moment before, a task goes
	// only when two calls in a row miss it.
	Reconcile(ctx context.Context, running map[string][]string) error
	// Depths reports what the queue itself holds per tenant and lane; lanes
	// that hold nothing are left out.
	Depths(ctx context.Context) ([]Depth, error)
}

// Lister is implemented by queues that hold hints of their own.
type Lister interface {
	// Hints calls each for every hint that the queue holds, taken or not, and
	// when it was published, until it returns an error.
	Hints(ctx context.Context, each func(h sheaf.Hint, published time.Time) error) error
}

// Depth is the number of hints a queue holds.
type Depth struct {
	TenantID string
	Lane     sheaf.Lane
	Waiting  int // not yet taken
	Taken    int // taken and not yet acked
}

// Leader runs work on at most one process at a time, as an economy: what it
// runs must be harmless when two do it at once, since no lock with a time to
// live survives every pause and fail-over.
type Leader interface {
	// Run campaigns until ctx ends. Each time it is elected it calls lead with
	// a context that ends when the term does.
	Run(ctx context.Context, lead func(ctx context.Context)) error
}

// CompareDepths orders by tenant, then lane.
func CompareDepths(a, b Depth) int {
	return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.Lane, b.Lane))
}
