package executor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sheaf"
)

// recent caches the documents whose ranges this process reads: without it each range
// reads and decodes the same row. What ranges need of a document is set when its plan
// completes. A new name or a deletion is seen recentFor later, as by a range that
// started that much earlier.
type recent struct {
	store Store

	mu   sync.Mutex
	docs map[string]recentDoc // by document and generation
}

type recentDoc struct {
	doc  *sheaf.Document
	read time.Time
}

const (
	recentFor  = 5 * time.Second
	maxRecents = 64
)

// document returns the document of a range's task. Callers share it and must not
// change it.
func (r *recent) document(ctx context.Context, t *sheaf.Task) (*sheaf.Document, error) {
	key := outlineKey(t)
	r.mu.Lock()
	d := r.docs[key]
	r.mu.Unlock()
	if d.doc != nil && time.Since(d.read) < recentFor {
		return d.doc, nil
	}
	now := time.Now()
	doc, err := r.store.DocumentByID(ctx, t.DocumentID)
	if err != nil {
		return nil, fmt.Errorf("reading document %s: %w", t.DocumentID, err)
	}
	r.know(t, doc, now)
	return doc, nil
}

// know remembers the document of a task, as read at a time.
func (r *recent) know(t *sheaf.Task, doc *sheaf.Document, read time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.docs) >= maxRecents {
		clear(r.docs)
	}
	r.docs[outlineKey(t)] = recentDoc{doc, read}
}

// documents lists the documents that are held.
func (r *recent) documents() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.docs {
		ids = append(ids, d.doc.ID)
	}
	return ids
}

// forget drops documents.
func (r *recent) forget(ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, d := range r.docs {
		if slices.Contains(ids, d.doc.ID) {
			delete(r.docs, key)
		}
	}
}
