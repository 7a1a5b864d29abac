package ingest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// slowSums is a store in which each document makes the sums of its job take longer.
type slowSums struct {
	Catalog
	job  sheaf.Job
	read int
}

func (c *slowSums) JobGiven(context.Context, string, string) (*sheaf.Job, error) {
	job := c.job
	job.Documents, job.Progress = sheaf.JobDocuments{}, 0
	return &job, nil
}

func (c *slowSums) Job(context.Context, string, string) (*sheaf.Job, error) {
	c.read++
	n := c.job.Statistics.Scanned
	time.Sleep(time.Duration(n) * 50 * time.Microsecond)
	job := c.job
	done := n / 2
	job.State, job.Progress = sheaf.DocRunning, float64(done)/float64(n)
	job.Documents = sheaf.JobDocuments{Total: n, ByState: map[sheaf.DocumentState]int{sheaf.DocQueued: n - done, sheaf.DocSucceeded: done}}
	return &job, nil
}

func (c *slowSums) Remaining(context.Context, string, string) (taskstore.Remaining, error) {
	return taskstore.Remaining{}, nil
}

func TestAddingOneByOneDoesNotSumAJobEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowSums{job: sheaf.Job{ID: "j"}}
		s := &Service{Catalog: store}
		const most = 5000
		begun := time.Now()
		for i := range most {
			store.job.Statistics.Scanned, store.job.Name = i+1, fmt.Sprintf("a.pdf and %d more", i)
			time.Sleep(10 * time.Millisecond) // what else adding takes
			job, err := s.grownJob(t.Context(), "t", "j")
			if err != nil {
				t.Fatal(err)
			}
			by := job.Documents.ByState
			if job.Documents.Total != i+1 || by[sheaf.DocQueued]+by[sheaf.DocSucceeded] != i+1 || job.Statistics.Scanned != i+1 || job.Name != store.job.Name {
				t.Fatalf("after %d documents: %+v", i+1, job)
			}
			if off := job.Progress - float64(by[sheaf.DocSucceeded])/float64(i+1); off > 1e-9 || off < -1e-9 {
				t.Fatalf("after %d documents: progress %v with %d done", i+1, job.Progress, by[sheaf.DocSucceeded])
			}
		}
		if all := most * 10 * time.Millisecond; time.Since(begun) > all+all/10 {
			t.Errorf("adding %d documents took %v, of that %v for anything but their sums, which were read %d times", most, time.Since(begun), all, store.read)
		}
		time.Sleep(maxSumAge)
		store.read = 0
		if job, err := s.grownJob(t.Context(), "t", "j"); err != nil || store.read != 1 || job.Documents.ByState[sheaf.DocSucceeded] != most/2 {
			t.Errorf("after %v the job was read %d times: %+v, %v", maxSumAge, store.read, job, err)
		}
	})
}

// Requests at the same time read the sums once.
func TestSumsOfAGrowingJobAreReadByOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowSums{job: sheaf.Job{ID: "j"}}
		store.job.Statistics.Scanned = 1000
		s := &Service{Catalog: store}
		ask := func() {
			if job, err := s.grownJob(t.Context(), "t", "j"); err != nil || job.Documents.Total != store.job.Statistics.Scanned {
				t.Errorf("%+v, %v", job, err)
			}
		}
		ask()
		time.Sleep(maxSumAge)
		store.read, store.job.Statistics.Scanned = 0, 1001
		var all sync.WaitGroup
		for range 50 {
			all.Go(ask)
		}
		all.Wait()
		if store.read != 1 {
			t.Errorf("50 requests read the sums %d times", store.read)
		}
	})
}

func TestSumsOfManyGrowingJobsAreBounded(t *testing.T) {
	var g growing
	for i := range 2 * maxGrowing {
		key := fmt.Sprint(i)
		g.put(key, &sheaf.Job{ID: key}, time.Hour)
		if x, ok := g.get(key); !ok || x.ID != key || len(g.jobs) > maxGrowing {
			t.Fatalf("%d jobs are remembered, the last among them: %v", len(g.jobs), ok)
		}
		if i%2 == 0 {
			g.put(key, nil, 0)
			if _, ok := g.get(key); ok {
				t.Fatal("a job that cannot be read is remembered")
			}
		}
	}
}
