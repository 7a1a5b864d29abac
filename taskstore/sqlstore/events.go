package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// maxEvents bounds one read of the log.
const maxEvents = 3000

// Events reads the log after seq, oldest first; limit 0 means 500, and at most 3,000
// are read. Transactions may become visible out of sequence order, so on engines
// where that happens reading stops before the first event younger than the lag: by
// then, lower numbers are visible.
func (s *events) Events(ctx context.Context, tenantID string, f taskstore.EventFilter, after int64, limit int) ([]sheaf.Event, error) {
	if limit <= 0 {
		limit = 500
	}
	w := eventsOf(tenantID, f)
	w.add("e.seq>?", after)
	return s.events(ctx, w, min(limit, maxEvents))
}

// eventsOf selects the events of documents that are not deleted.
func eventsOf(tenantID string, f taskstore.EventFilter) (w where) {
	w.add("e.tenant_id=?", tenantID)
	w.when(f.DatasetID != "", "e.dataset_id=?", f.DatasetID)
	w.when(f.DocumentID != "", "e.doc_id=?", f.DocumentID)
	w.when(f.JobID != "", "e.job_id=?", f.JobID)
	w.when(len(f.Kinds) > 0, "e.kind IN ?", f.Kinds)
	w.add(notDeleted)
	return w
}

func (s *events) events(ctx context.Context, w where, limit int) ([]sheaf.Event, error) {
	var rows []struct {
		Event eventRow `gorm:"embedded"` // named: an embedded unexported struct cannot be set
		NowMs int64
	}
	err := scan(s.read(ctx).Raw(s.sql("SELECT e.*, @now AS now_ms FROM events e"+w.String()+fmt.Sprintf(" ORDER BY e.seq LIMIT %d", limit)), w.args...), &rows)
	if err != nil {
		return nil, translate(err)
	}
	out := make([]sheaf.Event, 0, len(rows))
	for _, r := range rows {
		// An event further ahead was written before the clock went back.
		if lag := s.eventLag.Milliseconds(); lag > 0 && r.Event.At > r.NowMs-lag && r.Event.At < r.NowMs+max(lag, clockStep.Milliseconds()) {
			break
		}
		out = append(out, r.Event.toDomain())
	}
	return out, nil
}

// TaskEvents returns the history of one task, oldest first; at most 3,000 events are
// read.
func (s *events) TaskEvents(ctx context.Context, tenantID, id string) ([]sheaf.Event, error) {
	if _, err := s.Task(ctx, tenantID, id); err != nil {
		return nil, err
	}
	var w where
	w.add("e.subject_id=?", id)
	w.add("e.tenant_id=?", tenantID)
	return s.events(ctx, w, maxEvents)
}

// Stats reads the per-minute sums and adds what they do not contain yet. For the
// speed and stage times it also reads at most statsEvents of the newest events, and
// at most statsEnds attempt ends among them: a page showing the last hour must cost
// the same on a busy server as on an idle one.
const (
	statsEvents = 60_000
	statsEnds   = 10_000
)

// busySlot is the granularity of busy time.
const busySlot = 5000 // milliseconds

// Stats looks minutes back, in buckets of bucket minutes. Counts cover everything;
// the speed and stage times are from the newest tasks. The tenant "" means all.
func (s *events) Stats(ctx context.Context, tenantID string, minutes, bucket int) (*taskstore.Stats, error) {
	db := s.read(ctx)
	newest, err := one[struct{ Seq, NowMs int64 }](db, "event", "", s.sql("SELECT COALESCE(MAX(seq), 0) AS seq, @now AS now_ms FROM events"))
	if err != nil {
		return nil, err
	}
	now := newest.NowMs
	count, step := max(minutes/bucket, 1), int64(bucket)
	first := now/60_000/step*step - int64(count-1)*step // minute at which the first bucket starts
	out := &taskstore.Stats{Buckets: make([]taskstore.StatsBucket, count), BucketMinutes: bucket, Stages: []taskstore.StageStats{}}
	for i := range out.Buckets {
		out.Buckets[i] = taskstore.StatsBucket{At: time.UnixMilli((first + int64(i)*step) * 60_000).UTC(), StageMS: map[string]int64{}}
	}

	if out.Fairness, err = s.fairness(ctx, now); err != nil {
		return nil, err
	}
	summed, until, err := s.minutes(ctx, tenantID, first, step)
	if err != nil {
		return nil, err
	}
	add := func(m *minuteRow) {
		i := (m.Minute - first) / step
		if m.Minute < first || i >= int64(count) {
			return // the minute has changed since the clock was read
		}
		b := &out.Buckets[i]
		b.Tasks, b.Failed, b.Cost = b.Tasks+m.Tasks, b.Failed+m.Failed, b.Cost+m.Cost
		if bucket > 1 {
			return // multi-minute sums have no stage times
		}
		for name, ms := range m.stages {
			b.StageMS[name] += ms
		}
	}
	for i := range summed {
		add(&summed[i])
	}

	var w where
	w.add("e.seq>?", newest.Seq-statsEvents)
	w.add("e.at>=?", first*60_000)
	w.add("e.kind IN ?", attemptEnds)
	w.when(tenantID != "", "e.tenant_id=?", tenantID)
	ends, err := all[attemptEnd](db, attemptColumns+w.String()+fmt.Sprintf(" ORDER BY e.seq DESC LIMIT %d", statsEnds), w.args...)
	if err != nil {
		return nil, err
	}
	out.Sampled = len(ends) == statsEnds || newest.Seq > statsEvents

	stages := map[string][]int64{}
	busy := map[int64]bool{}
	cost := 0
	for _, e := range ends {
		if e.Seq > until {
			m := minuteRow{Minute: e.At / 60_000, stages: map[string]int64{}}
			m.add(e)
			add(&m)
		}
		made, known := e.measured()
		if !known || made.Reused {
			continue // nothing ran for it
		}
		busy[e.At/busySlot] = true
		cost += e.Cost
		for _, st := range made.Stages {
			stages[st.Name] = append(stages[st.Name], st.MS)
		}
	}
	if len(busy) > 0 {
		out.CostPerSecond = float64(cost) / float64(int64(len(busy))*busySlot/1000)
	}
	for name, ms := range stages {
		slices.Sort(ms)
		out.Stages = append(out.Stages, taskstore.StageStats{Name: name, Tasks: len(ms), P50MS: ms[len(ms)/2], P95MS: ms[len(ms)*95/100]})
	}
	slices.SortFunc(out.Stages, func(a, b taskstore.StageStats) int { return int(b.P50MS - a.P50MS) })
	return out, nil
}
