package api

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/ingest"
	"sheaf/taskstore"
)

// looked counts how often a job is looked at for its end.
type looked struct {
	Catalog
	times atomic.Int32
}

func (l *looked) JobEnded(ctx context.Context, tenantID, id string) (bool, error) {
	l.times.Add(1)
	return l.Catalog.JobEnded(ctx, tenantID, id)
}

// waitServer is a server with one job that nobody works on, and another process
// that may change it.
func waitServer(t *testing.T) (s *testServer, job string, store *looked, other *ingest.Service) {
	s = newTestServer(t, func(c *Config) {
		store = &looked{Catalog: c.Catalog}
		c.Catalog = store
		if _, err := c.Catalog.CreateDataset(t.Context(), sheaf.Dataset{TenantID: sheaf.LocalTenant, Name: "waits"}); err != nil {
			t.Fatal(err)
		}
		in := c.Ingest
		other = &ingest.Service{Catalog: in.Catalog, Blobs: in.Blobs, Queue: in.Queue, Formats: in.Formats, Log: in.Log}
	})
	follow, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.api.Run(follow); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	var sent SubmitAnswer
	s.must(&sent, "POST", "/v1/datasets/waits/documents?name=a.txt", "text")
	return s, sent.Job.ID, store, other
}

func TestWaitingForAJobWithoutNewsCostsLittle(t *testing.T) {
	t.Parallel()
	s, job, store, _ := waitServer(t)
	short, long := waitsLong, 4*waitsLong
	var j sheaf.Job
	s.must(&j, "GET", "/v1/jobs/"+job+"?wait="+short.String(), "")
	first := store.times.Swap(0)
	if s.must(&j, "GET", "/v1/jobs/"+job+"?wait="+long.String(), ""); j.State != sheaf.DocQueued {
		t.Fatalf("a job that nobody works on is %s", j.State)
	}
	// One look when it begins to follow the job, one after, one at the end, and one for news of its upload.
	if more := store.times.Load() - first; more > 6 {
		t.Errorf("the store was asked %d times in the first %v and %d times in the %v after, without news", first, short, more, long-short)
	}
}

func TestWaitingForAJobEndsWithTheJob(t *testing.T) {
	t.Parallel()
	s, job, _, other := waitServer(t)
	waitForEnd(t, s, job, other, 2*waitsLong, lookAnyway*2/3)
}

// However many pages are open, who waits for a short job is answered when it ends.
func TestWaitingForAShortJobIsNotPacedByWatchers(t *testing.T) {
	t.Parallel()
	s, job, _, other := waitServer(t)
	for range 400 {
		sub, _, err := s.api.hub.Subscribe(t.Context(), sheaf.LocalTenant, taskstore.EventFilter{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
	}
	waitForEnd(t, s, job, other, waitsLong/10, s.api.hub.Pace()/2)
}

// waitForEnd cancels the job after some time, and fails the test if a request that
// waits for its end is answered later than that by more than most.
func waitForEnd(t *testing.T, s *testServer, job string, other *ingest.Service, after, most time.Duration) {
	t.Helper()
	var ended time.Time
	failed := make(chan error, 1)
	time.AfterFunc(after, func() {
		_, err := other.CancelJob(context.Background(), sheaf.LocalTenant, job)
		if err == nil {
			_, _, err = s.store.Fold(context.Background(), 10, 0) // as the keeper does
		}
		ended = time.Now()
		failed <- err
	})
	var j sheaf.Job
	s.must(&j, "GET", "/v1/jobs/"+job+"?wait=60s", "")
	answered := time.Now()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if late := answered.Sub(ended); !j.State.Terminal() || late > most {
		t.Errorf("%v after the job ended, a request that waited for that was answered with a job that is %s", late, j.State)
	}
}
