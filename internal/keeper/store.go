package keeper

import (
	"context"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// Store is what the keeper's loops call. Each method is idempotent and guarded, so
// that two concurrent keepers do no harm, handles at most limit rows, and returns
// how many it changed.
type Store interface {
	Hints
	Meta
	Lifecycle
	Clock
	Collection
	Deletions
	Sums
	Shares
}

// Shares divides the folding among keepers.
type Shares interface {
	// FoldRank registers holder as a folding keeper for ttl.
	FoldRank(ctx context.Context, holder string, ttl time.Duration) (rank, of int, err error)
	LeaveFold(ctx context.Context, holder string) error
	// FoldShare is Fold for the documents that fall to rank.
	FoldShare(ctx context.Context, rank, of, limit int, apart time.Duration) (changed int, later bool, err error)
}

// Hints supplies queues with runnable tasks.
type Hints interface {
	// Feedable reads a slice of the backlog: the tenants after after.
	Feedable(ctx context.Context, after string, window int, requeueAfter time.Duration) (taskstore.FeedSlice, error)
	// MarkEnqueued reports whether runs are those that ForgetEnqueued last noted; if
	// not, nothing is marked.
	MarkEnqueued(ctx context.Context, hints []sheaf.Hint, runs string) (bool, error)
	ForgetEnqueued(ctx context.Context, lanes []sheaf.Lane, runs string) (int, error)
	Running(ctx context.Context) (map[string][]string, error)
}

// Meta stores the queue's bookkeeping.
type Meta interface {
	Meta(ctx context.Context, key string) (string, error)
}

// Lifecycle makes the transitions of tasks and documents that executors do not.
type Lifecycle interface {
	PromoteDue(ctx context.Context, limit int) (taskstore.Promotion, error)
	WakeParked(ctx context.Context, limit int) (int, error)
	Fold(ctx context.Context, limit int, apart time.Duration) (changed int, later bool, err error)
	Reap(ctx context.Context, p taskstore.ReapPolicy, limit int) (int, error)
	HardCancel(ctx context.Context, grace time.Duration, limit int) (int, error)
	ReleaseRunning(ctx context.Context) (int, error)
}

// Clock tracks the database's clock.
type Clock interface {
	WatchClock(ctx context.Context) (now time.Time, back time.Duration, err error)
	ClockJumped(ctx context.Context, ahead time.Duration) error
}

// Collection removes what is no longer needed.
type Collection interface {
	Garbage(ctx context.Context, limit int) ([]taskstore.Garbage, error)
	GarbageDone(ctx context.Context, ids []int64) error
	ExpireUploads(ctx context.Context, limit int) (int, error)
	CloseIdleJobs(ctx context.Context, limit int) (int, error)
	Cleanup(ctx context.Context, retention time.Duration, limit int, dryRun bool) (taskstore.CleanupReport, error)
}

// Sums aggregates the event log.
type Sums interface {
	// RollUp adds the next events to their per-minute sums and returns how many it
	// processed.
	RollUp(ctx context.Context) (int, error)
}

// Deletions completes deletions and their receipts.
type Deletions interface {
	PurgeDeleted(ctx context.Context, limit int) (int, error)
	CountGarbage(ctx context.Context, found []taskstore.GarbageCount) error
	SettleReceipts(ctx context.Context, limit int, sign func(*taskstore.Receipt) error) (int, error)
}
