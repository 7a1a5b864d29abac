package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"sheaf"
)

// Summing a job reads all its documents and tasks, which takes a second for 30,000
// documents: too long for each job on a list that is polled. The sums of a job that
// has ended are therefore kept in its row by whoever reads them first.
//
// They hold until something happens to the job, which its events tell: deletions,
// retries and all else that changes a document write one. Deletions also drop them,
// since a document may have been in several jobs.
const (
	// summarizedFrom is the number of documents from which the sums are kept; those of
	// fewer are read faster than they are checked.
	summarizedFrom = 20
	// settledFor is the age of the newest event from which they are kept: events are
	// numbered before they are committed, so that one which comes later may have a
	// smaller number than one that is seen.
	settledFor = time.Minute
	keepTime   = time.Second // to store them: a list is no slower while nobody can write
)

// jobSummary is what is kept.
type jobSummary struct {
	Seq        int64               `json:"seq"` // the job's newest event, 0 for none
	State      sheaf.DocumentState `json:"state"`
	Progress   float64             `json:"progress"`
	Documents  sheaf.JobDocuments  `json:"documents"`
	Stages     []sheaf.JobStage    `json:"stages"`
	Statistics sheaf.JobStatistics `json:"statistics"`
	Reused     sheaf.Reused        `json:"reused"`
	Usage      *sheaf.Usage        `json:"usage,omitempty"` // nil until someone read it
	StartedAt  time.Time           `json:"started_at,omitzero"`
	FinishedAt time.Time           `json:"finished_at,omitzero"`
}

// summed returns jobs with their sums, and the summaries by id of those that have one.
func (s *jobs) summed(ctx context.Context, tenantID string, rows []jobRow) ([]sheaf.Job, map[string]*jobSummary, error) {
	known, err := s.summaries(ctx, rows)
	if err != nil {
		return nil, nil, err
	}
	held, err := s.heldJobs(ctx, slices.Collect(maps.Keys(known)))
	if err != nil {
		return nil, nil, err
	}
	out := make([]sheaf.Job, len(rows))
	var rest []jobRow
	var at []int // of rest in out
	for i, r := range rows {
		k := known[r.ID]
		if k == nil {
			rest, at = append(rest, r), append(at, i)
			continue
		}
		j := r.toDomain()
		j.State, j.Progress, j.Documents, j.Stages, j.Statistics, j.Reused = k.State, k.Progress, k.Documents, k.Stages, k.Statistics, k.Reused
		j.StartedAt, j.FinishedAt, j.Paused = k.StartedAt, k.FinishedAt, held[r.ID]
		out[i] = j
	}
	for len(rest) > 0 {
		n := summedTogether(rest)
		sums, err := s.sumJobs(ctx, tenantID, rest[:n])
		if err != nil {
			return nil, nil, err
		}
		s.summarize(ctx, sums, known)
		for i, j := range sums {
			out[at[i]] = j
		}
		rest, at = rest[n:], at[n:]
	}
	return out, known, nil
}

// summedTogether returns how many of the jobs, at least one, to read with one statement:
// those of a few thousand files. If the caller gives up on the rest, these are kept.
func summedTogether(rows []jobRow) (n int) {
	for files := 0; n < len(rows) && (n == 0 || files <= 5000); n++ {
		var sum sheaf.JobStatistics
		decode(rows[n].Statistics, &sum)
		files += sum.Scanned
	}
	return n
}

// summaries returns those of the jobs that still hold.
func (s *jobs) summaries(ctx context.Context, rows []jobRow) (map[string]*jobSummary, error) {
	known := map[string]*jobSummary{}
	var ids []string
	for _, r := range rows {
		k := new(jobSummary)
		if r.Summary != "" && r.OpenUntil == 0 && json.Unmarshal([]byte(r.Summary), k) == nil {
			known[r.ID], ids = k, append(ids, r.ID)
		}
	}
	last, err := s.lastEvents(ctx, ids)
	for id, k := range known {
		// guard: jobs: kept sums hold until something happens
		if last[id].Seq > k.Seq {
			delete(known, id)
		}
	}
	return known, err
}

// summarize keeps the sums of jobs that have ended a while ago, and adds them to known,
// up to the first that cannot be stored.
func (s *jobs) summarize(ctx context.Context, sums []sheaf.Job, known map[string]*jobSummary) {
	var ids []string
	for _, j := range sums {
		if j.State.Terminal() && j.OpenUntil.IsZero() && j.Documents.Total >= summarizedFrom {
			ids = append(ids, j.ID)
		}
	}
	last, err := s.lastEvents(ctx, ids)
	if err != nil {
		return // they are read again the next time
	}
	for _, j := range sums {
		if l, ended := last[j.ID]; ended && l.Settled != 0 {
			known[j.ID] = &jobSummary{Seq: l.Seq, State: j.State, Progress: j.Progress, Documents: j.Documents, Stages: j.Stages, Statistics: j.Statistics,
				Reused: j.Reused, StartedAt: j.StartedAt, FinishedAt: j.FinishedAt}
			if s.keepSummary(ctx, j.ID, known[j.ID]) != nil {
				return
			}
		}
	}
}

// keepSummary stores a summary, also for a caller that has gone meanwhile. Callers do
// without where the database cannot be written to.
func (s *jobs) keepSummary(ctx context.Context, id string, k *jobSummary) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	return s.write(ctx).Exec("UPDATE jobs SET summary=? WHERE id=? AND open_until=0", encode(k), id).Error
}

// lastEvent is the newest event of a job, 0 for none, and 1 if nothing that was
// numbered before it can still come.
type lastEvent struct {
	ID      string
	Seq     int64
	Settled int
}

func (s *jobs) lastEvents(ctx context.Context, ids []string) (map[string]lastEvent, error) {
	const newest = " FROM events e WHERE e.job_id=j.id ORDER BY e.seq DESC LIMIT 1"
	rows, err := byIDs[lastEvent](s.read(ctx), ids, s.sql(fmt.Sprintf(`SELECT j.id, COALESCE((SELECT e.seq%[1]s), 0) AS seq,
		COALESCE((SELECT CASE WHEN e.at<@now-%[2]d THEN 1 ELSE 0 END%[1]s), 1) AS settled FROM jobs j WHERE j.id IN ?`, newest, settledFor.Milliseconds())))
	out := make(map[string]lastEvent, len(rows))
	for _, r := range rows {
		out[r.ID] = r
	}
	return out, err
}
