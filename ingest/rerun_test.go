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
	leave  func()         // what the caller does during each change; nil for nothing
	gone   []string       // that were canceled, resumed or deleted
}

// changing is what every change does first.
func (l *large) changing(ctx context.Context) error {
	if l.leave != nil {
		l.leave()
	}
	return ctx.Err()
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

func (l *large) CloseJob(ctx context.Context, _, _ string) error { return l.changing(ctx) }

func (l *large) CancelDocuments(ctx context.Context, _ string, ids []string) (taskstore.CancelReceipt, error) {
	l.gone = append(l.gone, ids...)
	return taskstore.CancelReceipt{Documents: len(ids)}, l.changing(ctx)
}

func (l *large) SetPaused(ctx context.Context, _ string, _ taskstore.PauseScope, _ bool) (int, error) {
	for _, d := range l.docs {
		l.gone = append(l.gone, d.ID)
	}
	return len(l.docs), l.changing(ctx)
}

func (l *large) DeleteDocuments(ctx context.Context, _ string, ids []string) (taskstore.DeleteReceipt, error) {
	l.gone = append(l.gone, ids...)
	return taskstore.DeleteReceipt{}, l.changing(ctx)
}

func (l *large) Reparse(ctx context.Context, job sheaf.Job, docs []taskstore.ReparseDocument, _ string) error {
	if err := l.changing(ctx); err != nil {
		return err
	}
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

// A change of many documents is whole even if its caller does not wait for its end.
func TestBulkChangesGoOnWhenTheCallerLeaves(t *testing.T) {
	defer func(n int) { rerunSlice = n }(rerunSlice)
	rerunSlice = 10
	for name, change := range map[string]func(ctx context.Context, s *Service) error{
		"retry": func(ctx context.Context, s *Service) error {
			_, err := s.Retry(ctx, "t", "old", RetryAll, Origin{Key: "k"})
			return err
		},
		"cancel of a job": func(ctx context.Context, s *Service) error {
			_, err := s.CancelJob(ctx, "t", "old")
			return err
		},
		"cancel": func(ctx context.Context, s *Service) error {
			_, err := s.Cancel(ctx, "t", make([]string, 2500))
			return err
		},
		"resume": func(ctx context.Context, s *Service) error {
			_, err := s.Pause(ctx, "t", taskstore.PauseScope{JobID: "old"}, false)
			return err
		},
		"delete": func(ctx context.Context, s *Service) error {
			_, err := s.Delete(ctx, "t", make([]string, 2500))
			return err
		},
	} {
		ctx, leave := context.WithCancel(t.Context())
		l := &large{begun: map[string]int{}, leave: leave}
		for i := range 2500 {
			l.docs = append(l.docs, sheaf.Document{ID: fmt.Sprint(i), Name: "a.pdf", JobID: "old", State: sheaf.DocRunning})
			if name == "retry" {
				l.docs[i].State = sheaf.DocFailed
			}
		}
		s := &Service{Catalog: l, Queue: l, Log: slog.New(slog.DiscardHandler)}
		if err := change(ctx, s); err != nil || len(l.begun)+len(l.gone) != 2500 {
			t.Errorf("%s: of 2500 documents %d are changed: %v", name, len(l.begun)+len(l.gone), err)
		}
	}
}

// A server that stops does not wait for it.
func TestBulkChangesEndWithTheServer(t *testing.T) {
	stopping := errors.New("the server is stopping")
	ctx, cut := context.WithCancelCause(t.Context())
	lasting, cancel := Lasting(ctx)
	defer cancel()
	cut(stopping)
	<-lasting.Done()
	if err := context.Cause(lasting); !errors.Is(err, stopping) {
		t.Errorf("ended for %v", err)
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
