package sqlstore

import (
	"errors"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
)

// allowance is a tenant's usage and its limits.
type allowance struct{ held, limit sheaf.Quota }

// take adds more to the usage, or fails with ErrLimit and adds nothing.
func (r *allowance) take(more sheaf.Quota) error {
	for _, q := range []struct {
		what                 string
		current, more, limit int64
	}{
		{"documents", int64(r.held.Documents), int64(more.Documents), int64(r.limit.Documents)},
		{"bytes", r.held.Bytes, more.Bytes, r.limit.Bytes},
		{queuedTasks, int64(r.held.QueuedTasks), int64(more.QueuedTasks), int64(r.limit.QueuedTasks)},
	} {
		if q.limit > 0 && q.more > 0 && q.current+q.more > q.limit {
			return limitFailure(q.what, q.current, q.more, q.limit)
		}
	}
	r.held.Documents += more.Documents
	r.held.Bytes += more.Bytes
	r.held.QueuedTasks += more.QueuedTasks
	return nil
}

// queuedTasks is the quota that frees up over time.
const queuedTasks = "queued tasks"

// limitFailure is the error of an exhausted quota.
func limitFailure(what string, current, more, limit int64) error {
	f := sheaf.Fail(sheaf.CategoryCapacity, sheaf.CodeLimit,
		"the tenant holds %d %s, this request adds %d and the limit is %d; delete some, wait, or ask for a higher limit",
		current, what, more, limit)
	return fmt.Errorf("%w: %w", sheaf.ErrLimit, &sheaf.LimitFailure{Failure: f, Current: current, Limit: limit})
}

// quotaUsage returns what a tenant holds of what of limits, and 0 for the rest: it
// takes time in proportion to that.
func quotaUsage(tx *gorm.DB, tenantID string, of sheaf.Quota) (sheaf.Quota, error) {
	var held sheaf.Quota
	if of.Documents > 0 || of.Bytes > 0 {
		documents, err := one[sheaf.Quota](tx, "tenant", tenantID, "SELECT COUNT(*) AS documents, COALESCE(SUM(size), 0) AS bytes FROM documents WHERE tenant_id=? AND deleted_at=0", tenantID)
		if err != nil {
			return held, err
		}
		held = *documents
	}
	if of.QueuedTasks > 0 {
		tasks, err := one[int](tx, "tenant", tenantID, "SELECT COUNT(*) FROM tasks WHERE tenant_id=? AND state IN ('pending','parked','retry_wait','scheduled') AND paused IN (0,1,2,3)", tenantID)
		if err != nil {
			return held, err
		}
		held.QueuedTasks = *tasks
	}
	return held, nil
}

// refused returns the failure of an exhausted quota.
func refused(err error) (*sheaf.Failure, error) {
	if full, ok := errors.AsType[*sheaf.LimitFailure](err); ok {
		return full.Failure, nil
	}
	return nil, err
}
