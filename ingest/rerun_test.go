package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// large is a catalog with a job of many documents.
type large struct {
	Catalog
	queue.Notifier
	docs   []sheaf.Document
	begun  map[string]int // by document
	job    sheaf.Job      // that begins them
	atOnce int            // documents of the largest call
	fails  int            // calls until one fails, 0 for never
}

func (l *large) Notify(context.Context) error { return nil }

func (l *large) Job(_ context.Context, tenantID, id string) (*sheaf.Job, error) {
	j := sheaf.Job{ID: id, TenantID: tenantID, State: sheaf.DocSucceeded}
	if id == l.job.ID {
		j.Statistics = l.job.Statistics
	}
	return &j, nil
}

func (l *large) JobDocuments(_ context.Context, _, _ string, p taskstore.Page) ([]sheaf.Document, string, error) {
	from := 0
	if p.Cursor != "" {
		_, _ = fmt.Sscan(p.Cursor, &from)
	}
	to := min(from+p.Limit, len(l.docs))
	l.atOnce = max(l.atOnce, to-from)
	if to == len(l.docs) {
		return l.docs[from:to], "", nil
	}
	return l.docs[from:to], fmt.Sprint(to), nil
}

func (l *large) Reparse(_ context.Context, job sheaf.Job, docs []taskstore.ReparseDocument, _ string) error {
	if l.fails--; l.fails == 0 {
		return sheaf.ErrUnavailable
	}
	if l.job.ID == "" {
		l.job = job
	}
	if l.job.ID != job.ID {
		return fmt.Errorf("begun by two jobs, %s and %s", l.job.ID, job.ID)
	}
	for _, d := range docs {
		l.begun[d.DocumentID]++
		for i := range l.docs {
			if l.docs[i].ID == d.DocumentID {
				l.docs[i].State = sheaf.DocQueued
			}
		}
	}
	return nil
}

// A retry is whole, however many documents the job has, and holds a slice of
// them at a time. One that broke off begins the others when it is asked again.
func TestRetryOfALargeJobIsWhole(t *testing.T) {
	defer func(n int) { rerunSlice = n }(rerunSlice)
	rerunSlice = 10
	for _, fails := range []int{0, 3} {
		l := &large{begun: map[string]int{}, fails: fails}
		for i := range 95 {
			state := sheaf.DocFailed
			if i%5 == 0 {
				state = sheaf.DocSucceeded
			}
			l.docs = append(l.docs, sheaf.Document{ID: fmt.Sprint(i), Name: fmt.Sprintf("%d.pdf", i), State: state})
		}
		s := &Service{Catalog: l, Queue: l, Log: slog.New(slog.DiscardHandler)}
		from := Origin{Key: "k", Requester: "night shift"}
		r, err := s.Retry(t.Context(), "t", "old", RetryFailed, from)
		if fails > 0 {
			if !errors.Is(err, sheaf.ErrUnavailable) || !strings.Contains(err.Error(), "of 76 documents 16 are begun") {
				t.Fatalf("a retry that broke off: %v", err)
			}
			r, err = s.Retry(t.Context(), "t", "old", RetryFailed, from)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(l.begun) != 76 || r.Documents != 76 || r.Skipped != 19 || l.atOnce > 10 {
			t.Errorf("%d documents are begun, the answer says %+v; %d were read at once", len(l.begun), r, l.atOnce)
		}
		for id, n := range l.begun {
			if n != 1 {
				t.Errorf("document %s is begun %d times", id, n)
			}
		}
		if l.job.Requester != "night shift" || len(l.job.Files) == 0 || l.job.Files[0] != "1.pdf" {
			t.Errorf("begun by %+v", l.job)
		}
	}
}

func (l *large) OpenTasks(_ context.Context, _ string, ids []string) (queued, running int, err error) {
	return 2 * len(ids), len(ids), nil
}

// What a cancel of a large job would stop is counted whole, and a slice of its
// documents is held at a time.
func TestDryRunOfACancelIsWhole(t *testing.T) {
	defer func(n int) { rerunSlice = n }(rerunSlice)
	rerunSlice = 10
	l := &large{}
	for i := range 95 {
		state := sheaf.DocRunning
		if i%5 == 0 {
			state = sheaf.DocSucceeded
		}
		l.docs = append(l.docs, sheaf.Document{ID: fmt.Sprint(i), JobID: "old", State: state})
	}
	f, err := (&Service{Catalog: l}).DryRunCancelJob(t.Context(), "t", "old")
	if err != nil {
		t.Fatal(err)
	}
	if f.Documents != 76 || f.Skipped != 19 || f.Stopped.Queued != 152 || f.Stopped.Running != 76 || l.atOnce > 10 {
		t.Errorf("a cancel would stop %+v %+v; %d documents were read at once", f, f.Stopped, l.atOnce)
	}
}
