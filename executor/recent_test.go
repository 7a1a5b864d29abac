package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
)

// rows is a store that counts how often documents are read.
type rows struct {
	Store
	names map[string]string
	reads int
}

func (r *rows) DocumentByID(_ context.Context, id string) (*sheaf.Document, error) {
	r.reads++
	name, ok := r.names[id]
	if !ok {
		return nil, sheaf.ErrNotFound
	}
	return &sheaf.Document{ID: id, Name: name}, nil
}

// Ranges of a document that are read soon after each other read its row once, see a
// change of it in bounded time, and leave nothing of what is deleted.
func TestRangesReadTheirDocumentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &rows{names: map[string]string{"a": "old"}}
		r := &recent{store: store, docs: map[string]recentDoc{}}
		name := func(id string, generation int) string {
			t.Helper()
			doc, err := r.document(t.Context(), &sheaf.Task{DocumentID: id, Generation: generation})
			if errors.Is(err, sheaf.ErrNotFound) {
				return ""
			}
			if err != nil {
				t.Fatal(err)
			}
			return doc.Name
		}
		for range 50 {
			if got := name("a", 1); got != "old" || store.reads != 1 {
				t.Fatalf("%q after %d reads", got, store.reads)
			}
		}
		store.names["a"] = "new"
		if got := name("a", 2); got != "new" {
			t.Errorf("another version is read under the name %q", got)
		}
		time.Sleep(recentFor)
		if got := name("a", 1); got != "new" {
			t.Errorf("after %v the name is still %q", recentFor, got)
		}

		if got := r.documents(); !slices.Contains(got, "a") {
			t.Errorf("holds %v", got)
		}
		r.forget([]string{"a"})
		if got := r.documents(); len(got) != 0 {
			t.Errorf("holds %v of a deleted document", got)
		}
		delete(store.names, "a")
		if got := name("a", 1); got != "" {
			t.Errorf("a deleted document is read as %q", got)
		}

		for n := range 10 * maxRecents {
			id := fmt.Sprint(n)
			store.names[id] = id
			name(id, 1)
			if got := len(r.documents()); got > maxRecents {
				t.Fatalf("holds %d documents", got)
			}
		}
	})
}
