package command

import (
	"context"
	"maps"
	"slices"
	"time"

	"sheaf"
)

// forgetEvery is how often a process checks which of the documents in its cache
// were deleted.
const forgetEvery = time.Minute

// forgetDeleted removes what this process caches of deleted documents: copies of
// originals, and headings. blob.cache_age limits what cannot be attributed to a
// document, and everything while the database is down.
func (a *app) forgetDeleted(ctx context.Context) {
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := a.forget(ctx); err != nil && ctx.Err() == nil {
			a.log.DebugContext(ctx, "could not ask which cached documents are deleted", "error", err)
		}
	}
}

func (a *app) forget(ctx context.Context) error {
	cached := map[string][]string{} // cache keys by document
	for _, key := range a.files.Unused() {
		if id := sheaf.OriginalOf(key); id != "" {
			cached[id] = append(cached[id], key)
		}
	}
	ids := slices.Collect(maps.Keys(cached))
	if a.executor != nil {
		ids = append(ids, a.executor.Documents()...)
	}
	deleted, err := a.store.DeletedDocuments(ctx, ids)
	if err != nil || len(deleted) == 0 {
		return err
	}
	var keys []string
	for _, id := range deleted {
		keys = append(keys, cached[id]...)
	}
	a.files.Remove(keys)
	if a.executor != nil {
		a.executor.Forget(deleted)
	}
	return nil
}
