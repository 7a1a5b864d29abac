package ingest

import (
	"context"
	"maps"
	"sync"
	"time"

	"sheaf"
)

// A job's sums take time in proportion to its documents. A client that adds 10,000
// one by one must not wait for them 10,000 times: those of its job are read for at
// most one part in sumRest of the time, unless they would be older than maxSumAge.
const (
	sumRest    = 20
	maxSumAge  = 5 * time.Second
	maxGrowing = 256 // jobs whose sums are remembered
)

// growing remembers the sums of jobs that requests add documents to. The zero value
// is ready to use.
type growing struct {
	mu   sync.Mutex
	jobs map[string]*grown
}

// grown is a job as it was read at a time.
type grown struct {
	job     sheaf.Job
	at      time.Time
	took    time.Duration
	reading bool // by one request; others take what there is
}

// grownJob reads a job that documents were just added to. What is summed over its
// documents and tasks may be older, up to maxSumAge. Documents that are too new for the
// sums count as queued; one that is added while these are read may count twice until
// they are read again.
func (s *Service) grownJob(ctx context.Context, tenantID, id string) (*sheaf.Job, error) {
	old, ok := s.growing.get(tenantID + "/" + id)
	if !ok {
		begun := time.Now()
		job, err := s.Job(ctx, tenantID, id)
		s.growing.put(tenantID+"/"+id, job, time.Since(begun))
		return job, err
	}
	job, err := s.Catalog.JobGiven(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	out := old
	out.Name, out.Files, out.OpenUntil = job.Name, job.Files, job.OpenUntil
	out.Documents.ByState = maps.Clone(out.Documents.ByState)
	if n := job.Statistics.Scanned - out.Statistics.Scanned; n > 0 {
		out.Progress *= float64(out.Documents.Total) / float64(out.Documents.Total+n)
		out.Documents.Total += n
		out.Documents.ByState[sheaf.DocQueued] += n
	}
	out.Statistics.Scanned = job.Statistics.Scanned
	return &out, nil
}

// get returns a job as it was read lately enough. Without one, the caller must read it
// and put it.
func (g *growing) get(key string) (sheaf.Job, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.jobs[key]
	if x == nil {
		return sheaf.Job{}, false
	}
	if !x.reading && time.Since(x.at) >= min(sumRest*x.took, maxSumAge) {
		x.reading = true
		return sheaf.Job{}, false
	}
	return x.job, true
}

// put remembers a job, or that it could not be read: nil.
func (g *growing) put(key string, job *sheaf.Job, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if job == nil {
		delete(g.jobs, key)
		return
	}
	if g.jobs == nil || len(g.jobs) >= maxGrowing {
		g.jobs = map[string]*grown{}
	}
	g.jobs[key] = &grown{job: *job, at: time.Now(), took: took}
}
