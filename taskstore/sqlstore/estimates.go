package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// costSample is of how many tasks that wait the mean cost is taken.
const costSample = 1000

// speedSample is how many finished tasks the speed is measured over.
const speedSample = 500

// sampled is a finished task that parsed.
type sampled struct {
	TenantID, JobID, DocID string
	MediaType              string // of its document
	Cost                   int
	StartedAt, FinishedAt  int64  // ms
	Result                 string // only where its stages are asked for
}

// finished reads the latest tasks that parsed: by run_at, which has an index
// (that no lease is left is part of it), and tells old from new well enough.
func finished(db *gorm.DB, extra string) ([]sampled, error) {
	return all[sampled](db, "SELECT t.*, COALESCE(d.media_type, '') AS media_type FROM ("+
		finishedQuery("tenant_id, job_id, doc_id, cost, started_at, finished_at"+extra, "'parse'")+") t LEFT JOIN documents d ON d.id=t.doc_id")
}

func finishedQuery(columns, kinds string) string {
	return fmt.Sprintf(`SELECT %s FROM tasks WHERE state='done' AND lease_until=0 AND kind IN (%s) AND reused=0 AND started_at>0
		ORDER BY run_at DESC LIMIT %d`, columns, kinds, speedSample)
}

// recent is what many estimates are made of, read anew when it is too old, and
// not so often that it takes too much of the time. What is small changes much, and
// is old at once; few rows may be found among many.
type recent[T any] struct {
	age time.Duration // negative: it is read each time

	mu      sync.Mutex
	value   T
	until   time.Time
	took    time.Duration // duration of the last read
	reading bool          // in the background
}

// samples are what the estimates of all jobs are made of.
type samples struct {
	finished recent[[]sampled]
	backlog  recent[backlog]
	meanCost [sheaf.LaneBackfill + 1]recent[float64] // of what waits up to a lane
	stages   recent[stageTimes]
}

// stageTimes are means over tasks, by tenant and stage.
type stageTimes map[string]map[string]time.Duration

func newSamples(age time.Duration) *samples {
	s := new(samples)
	s.finished.age, s.backlog.age, s.stages.age = age, age, age
	for i := range s.meanCost {
		s.meanCost[i].age = age
	}
	return s
}

// What share of the time may go into reading one of them: a thousandth where that
// makes none older than what is large, a twentieth where a million rows take longer.
const (
	seldomShare = 1000
	recentShare = 20
)

// get takes read's value, and whether that is large.
func (r *recent[T]) get(read func() (value T, large bool, err error)) (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun := time.Now()
	if begun.Before(r.until) {
		return r.value, nil
	}
	value, large, err := read()
	if err == nil {
		r.put(value, large, begun)
	}
	return value, err
}

// put stores the result of a read that started at begun. The caller holds the lock.
func (r *recent[T]) put(value T, large bool, begun time.Time) {
	r.value = value
	if now := time.Now(); r.age >= 0 {
		pause := r.age
		r.took = now.Sub(begun)
		if !large {
			pause = min(pause, seldomShare*r.took)
		}
		r.until = now.Add(max(pause, recentShare*r.took))
	}
}

// A read that takes longer than slowRead is refreshed in the background while its value
// is not older than staleAge, so that no caller waits seconds for it.
const (
	slowRead = 50 * time.Millisecond
	staleAge = 5 * time.Minute
)

// getStale is get for a read that may take seconds. read must not depend on the
// caller's context, because it may outlive the call.
func (r *recent[T]) getStale(read func() (value T, large bool, err error)) (T, error) {
	r.mu.Lock()
	now := time.Now()
	if r.took < slowRead || now.Before(r.until) || now.Sub(r.until) > staleAge {
		r.mu.Unlock()
		return r.get(read)
	}
	defer r.mu.Unlock()
	if !r.reading {
		r.reading = true
		go func() {
			value, large, err := read()
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.reading = false; err == nil {
				r.put(value, large, now)
			}
		}()
	}
	return r.value, nil
}

// backlog is what waits in each lane, of each tenant, all from one moment.
type backlog map[string]map[sheaf.Lane]int

func readBacklog(db *gorm.DB) (backlog, error) {
	rows, err := all[struct {
		TenantID string
		Lane     sheaf.Lane
		N        int
	}](db, "SELECT tenant_id, lane, COUNT(*) AS n FROM tasks WHERE state='pending' AND paused=0 GROUP BY tenant_id, lane")
	out := backlog{}
	for _, r := range rows {
		if out[r.TenantID] == nil {
			out[r.TenantID] = map[sheaf.Lane]int{}
		}
		out[r.TenantID][r.Lane] = r.N
	}
	return out, err
}

// others counts what waits of all but a tenant, up to a lane.
func (b backlog) others(tenantID string, lane sheaf.Lane) (n int) {
	for tenant, lanes := range b {
		for l, waiting := range lanes {
			if tenant != tenantID && l <= lane {
				n += waiting
			}
		}
	}
	return n
}

// upTo counts what waits of one tenant, up to a lane.
func (b backlog) upTo(tenantID string, lane sheaf.Lane) (n int) {
	for l, waiting := range b[tenantID] {
		if l <= lane {
			n += waiting
		}
	}
	return n
}

// Remaining measures what stands between a job and its end.
func (s *estimates) Remaining(ctx context.Context, tenantID, jobID string) (taskstore.Remaining, error) {
	var left taskstore.Remaining
	if _, err := s.job(ctx, tenantID, jobID); err != nil {
		return left, err
	}
	db := s.read(ctx)
	const open = " FROM tasks WHERE job_id=? AND tenant_id=? AND " + isOpen
	own, err := one[struct{ Own, Tasks, Unplanned, Running, Pending int }](db, "job", jobID,
		"SELECT COALESCE(SUM(CASE WHEN "+brief+" THEN 0 ELSE cost END), 0) AS own, COALESCE(SUM(CASE WHEN kind='finalize' THEN 0 ELSE 1 END), 0) AS tasks, COALESCE(SUM(CASE WHEN kind='plan' THEN 1 ELSE 0 END), 0) AS unplanned, COALESCE(SUM(CASE WHEN state='running' THEN 1 ELSE 0 END), 0) AS running, COALESCE(SUM(CASE WHEN state='pending' THEN 1 ELSE 0 END), 0) AS pending"+open, jobID, tenantID)
	if err != nil {
		return left, err
	}
	left.Own, left.Tasks, left.Unplanned = own.Own, own.Tasks, own.Unplanned
	types := sync.OnceValues(func() ([]openType, error) { return openTypes(db, tenantID, jobID) })
	if left.Unplanned > 0 {
		if left.UnplannedCost, err = s.unplannedCost(db, tenantID, jobID, left.Unplanned, types); err != nil {
			return left, err
		}
	}
	last, err := first[taskRow](db, "SELECT lane, phase, place"+open+" ORDER BY lane DESC, phase DESC, place DESC LIMIT 1", jobID, tenantID)
	if err != nil {
		return left, err
	}
	if last != nil {
		if err = s.ahead(ctx, &left, tenantID, jobID, own.Pending, last); err != nil {
			return left, err
		}
	}
	snoozed := false
	if left.Delayed, snoozed, err = s.delayed(db, tenantID, jobID); err != nil {
		return left, err
	}
	left.Stalled = snoozed && own.Running == 0
	rows, err := s.latest(db)
	if err != nil {
		return left, err
	}
	left.All = paceOf(rows)
	left.Like, err = paceOfJob(rows, jobID, float64(left.UnplannedCost)/float64(max(left.Unplanned, 1)), types)
	return left, err
}

// brief are tasks whose time is part of that of the others of their document.
const brief = "kind IN ('plan','finalize')"

// ownSample is how many finished tasks of a job show how fast its others are, and
// typeSample how many of a media type, compared with those of others.
const (
	ownSample  = 4
	typeSample = 2
)

// openSample is of how many open tasks of a job the media types are looked at.
const openSample = 1000

// paceOfJob is how fast a job's remaining tasks end, judged by its own in the sample, or
// else by those of the same media types: a page of a message takes a thousandth of the
// time of a scanned one. It is unknown where most of the work is of types that were not
// measured. unplanned is the expected cost of a document that is not planned.
func paceOfJob(rows []sampled, jobID string, unplanned float64, openTypes func() ([]openType, error)) (taskstore.Pace, error) {
	types, err := openTypes()
	if err != nil {
		return taskstore.Pace{}, err
	}
	like := slices.DeleteFunc(slices.Clone(rows), func(m sampled) bool { return m.JobID != jobID })
	own := len(like) >= ownSample
	if !own {
		like = slices.DeleteFunc(slices.Clone(rows), func(m sampled) bool {
			return !slices.ContainsFunc(types, func(t openType) bool { return t.MediaType == m.MediaType })
		})
	}
	pace := paceOf(like)
	if pace.PerSecond == 0 {
		return pace, nil
	}
	// What remains may be of types that take longer than those the pace is of.
	mean := secondsPerCost(like)
	var cost, scaled, known float64
	for _, t := range types {
		c := float64(t.Cost) + float64(t.Plans)*max(unplanned, 1)
		of := ofType(like, t.MediaType)
		if len(of) < typeSample {
			of = ofType(rows, t.MediaType)
		}
		cost += c
		if len(of) > 0 {
			known += c
		}
		if len(of) >= typeSample {
			scaled += c * secondsPerCost(of) / mean
		} else {
			scaled += c
		}
	}
	if !own && known < cost/2 {
		return taskstore.Pace{}, nil
	}
	if scaled > 0 {
		pace.PerSecond *= cost / scaled
	}
	return pace, nil
}

// ofType is those of documents of a media type, in a new slice.
func ofType(rows []sampled, mediaType string) []sampled {
	return slices.DeleteFunc(slices.Clone(rows), func(m sampled) bool { return m.MediaType != mediaType })
}

// openType is what is open in a job of one media type.
type openType struct {
	MediaType   string
	Cost, Plans int // of tasks other than plans and ends of documents; documents that are not planned
}

// openTypes sums up a job's open tasks, or a sample of them, by media type.
func openTypes(db *gorm.DB, tenantID, jobID string) ([]openType, error) {
	return all[openType](db, fmt.Sprintf(`SELECT d.media_type, SUM(CASE WHEN `+brief+` THEN 0 ELSE t.cost END) AS cost, SUM(CASE WHEN t.kind='plan' THEN 1 ELSE 0 END) AS plans
		FROM (SELECT doc_id, kind, cost FROM tasks WHERE job_id=? AND tenant_id=? AND `+isOpen+` LIMIT %d) t
		JOIN documents d ON d.id=t.doc_id GROUP BY d.media_type`, openSample), jobID, tenantID)
}

// latest is finished, shared by all.
func (s *estimates) latest(db *gorm.DB) ([]sampled, error) {
	return s.finished.get(func() ([]sampled, bool, error) {
		rows, err := finished(db, "")
		return rows, len(rows) == speedSample, err
	})
}

// unplannedCost is what so many documents of a job will cost, by the mean of
// those of the job that are planned, or else of the tenant's of the same media types
// among the latest that were parsed.
func (s *estimates) unplannedCost(db *gorm.DB, tenantID, jobID string, documents int, openTypes func() ([]openType, error)) (int, error) {
	const mean = "SELECT COALESCE(SUM(cost), 0) AS cost, COUNT(DISTINCT doc_id) AS docs FROM "
	var known struct{ Cost, Docs int }
	err := scan(db.Raw(mean+"tasks WHERE job_id=? AND tenant_id=? AND kind IN ('parse','index')", jobID, tenantID), &known)
	if err == nil && known.Docs == 0 {
		known.Cost, known.Docs, err = s.typicalCost(db, tenantID, openTypes)
	}
	if err != nil || known.Docs == 0 {
		return 0, translate(err)
	}
	return (known.Cost*documents + known.Docs - 1) / known.Docs, nil
}

// typicalCost sums up the tenant's latest documents of the media types that are open in
// a job.
func (s *estimates) typicalCost(db *gorm.DB, tenantID string, openTypes func() ([]openType, error)) (cost, documents int, err error) {
	rows, err := s.latest(db)
	if err != nil || len(rows) == 0 {
		return 0, 0, err
	}
	types, err := openTypes()
	docs := map[string]bool{}
	for _, m := range rows {
		if m.TenantID == tenantID && slices.ContainsFunc(types, func(t openType) bool { return t.MediaType == m.MediaType }) {
			cost += m.Cost
			docs[m.DocID] = true
		}
	}
	return cost, len(docs), err
}

// delayed finds the job's task that is tried again next, and why its last
// attempt ended; snoozed: it waits for a server that others run.
func (s *estimates) delayed(db *gorm.DB, tenantID, jobID string) (_ *sheaf.Delay, snoozed bool, _ error) {
	task, err := first[taskRow](db, "SELECT id, run_at FROM tasks WHERE job_id=? AND tenant_id=? AND state='retry_wait' ORDER BY run_at LIMIT 1", jobID, tenantID)
	if err != nil || task == nil {
		return nil, false, err
	}
	last, err := first[struct{ Kind, Text string }](db, "SELECT kind, text FROM events WHERE subject_id=? AND kind IN ? ORDER BY seq DESC LIMIT 1", task.ID,
		[]string{sheaf.EventSnoozed, sheaf.EventFailed, sheaf.EventLost})
	if err != nil || last == nil {
		return nil, false, err
	}
	return &sheaf.Delay{Reason: last.Text, NextAt: toTime(task.RunAt)}, last.Kind == sheaf.EventSnoozed, nil
}

// backlogTimeout bounds the count of all waiting tasks: ten million take seconds.
const backlogTimeout = time.Minute

// aheadExact is the maximum number of tasks of the job's own tenant that are counted
// for each call. Beyond it the shared count is used.
const aheadExact = 10_000

// ahead counts the tasks served before the job's last one; jobPending tasks of the job
// are pending. Of the job's own tenant these are tasks in a higher lane, an earlier phase
// or an earlier place; of other tenants, tasks in the same or a higher lane. One
// statement counts the tenant's own and one the others', so that each task is in a count
// or not, even if it starts or ends meanwhile. The counts read one index only, and the
// cost is taken from a sample: there may be ten million rows, which are counted
// occasionally for all callers.
func (s *estimates) ahead(ctx context.Context, left *taskstore.Remaining, tenantID, jobID string, jobPending int, last *taskRow) error {
	db := s.read(ctx)
	const pending = " FROM tasks WHERE state='pending' AND paused=0"
	counted := func(where string) string {
		return fmt.Sprintf("(SELECT COUNT(*) FROM (SELECT 1 AS x"+pending+" AND "+where+" LIMIT %d) c)", aheadExact)
	}
	n, err := one[struct{ Higher, Earlier, Mine int }](db, "job", jobID, `SELECT `+counted("tenant_id=? AND lane<?")+` AS higher, `+
		counted("tenant_id=? AND lane=? AND (phase<? OR phase=? AND place<?)")+` AS earlier, `+
		counted("job_id=? AND tenant_id=? AND (lane<? OR lane=? AND (phase<? OR phase=? AND place<?))")+` AS mine`,
		tenantID, last.Lane, tenantID, last.Lane, last.Phase, last.Phase, last.Place,
		jobID, tenantID, last.Lane, last.Lane, last.Phase, last.Phase, last.Place)
	if err != nil {
		return err
	}
	waiting, err := s.backlog.getStale(func() (backlog, bool, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backlogTimeout)
		defer cancel()
		b, err := readBacklog(s.read(ctx))
		return b, b.others("", sheaf.LaneBackfill) > costSample, err
	})
	if err != nil {
		return err
	}
	lane := sheaf.Lane(last.Lane)
	left.AheadOwn, left.AheadOthers = n.Higher+n.Earlier-n.Mine, waiting.others(tenantID, lane)
	if max(n.Higher, n.Earlier, n.Mine) >= aheadExact {
		left.AheadOwn = max(waiting.upTo(tenantID, lane)-jobPending, 0)
	}
	if left.AheadOwn+left.AheadOthers == 0 {
		return nil
	}
	mean, err := s.meanCost[min(max(last.Lane, 0), len(s.meanCost)-1)].get(func() (float64, bool, error) {
		mean, err := one[float64](db, "job", jobID, fmt.Sprintf("SELECT COALESCE(AVG(cost), 0) FROM (SELECT cost%s AND lane<=? LIMIT %d) x", pending, costSample), last.Lane)
		return value(mean), left.AheadOwn+left.AheadOthers > costSample, err
	})
	left.AheadCost = int(mean*float64(left.AheadOwn+left.AheadOthers) + 0.5)
	return err
}

// took is in milliseconds, ≥ 1.
func (m sampled) took() int64 { return max(m.FinishedAt-m.StartedAt, 1) }

// secondsPerCost is the mean of tasks, of which there must be one.
func secondsPerCost(rows []sampled) float64 {
	var ms, cost float64
	for _, m := range rows {
		ms, cost = ms+float64(m.took()), cost+float64(m.Cost)
	}
	return ms / 1000 / max(cost, 1)
}

// paceOf measures tasks. With stages, it is that of tasks that run only those, as many at
// once: they are faster by the share of the time that the others take.
func paceOf(rows []sampled, stages ...string) taskstore.Pace {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b sampled) int { return cmp.Compare(a.StartedAt, b.StartedAt) })
	var cost, squares float64 // squares: of milliseconds per cost, weighted by cost
	var busy, until int64     // milliseconds in which at least one task ran
	var all, part int64       // milliseconds of all tasks, and of the stages in them
	for _, m := range rows {
		took := m.took()
		counted := took
		if len(stages) > 0 {
			counted = m.stageTime(stages)
		}
		all, part = all+took, part+counted
		end := m.StartedAt + took
		weight := float64(max(m.Cost, 1))
		cost += weight
		squares += float64(counted) * float64(counted) / weight
		if end > until {
			busy += end - max(until, m.StartedAt)
			until = end
		}
	}
	if busy == 0 {
		return taskstore.Pace{}
	}
	mean := float64(part) / cost
	return taskstore.Pace{
		PerSecond: cost / (float64(busy) / 1000) * float64(all) / float64(part),
		Variation: math.Sqrt(max(squares/cost-mean*mean, 0)) / mean,
		Tasks:     len(rows),
	}
}

// stageTime is how long the named stages took, in milliseconds, ≥ 1.
func (m sampled) stageTime(stages []string) (took int64) {
	var result sheaf.TaskResult
	decode(m.Result, &result)
	for _, st := range result.Stages {
		if slices.Contains(stages, st.Name) {
			took += st.MS
		}
	}
	return max(took, 1)
}

// Speed measures how fast tasks end, by the media type of their documents, and of all
// under "". With stages, it is that of tasks that run only those. What was not measured is
// absent.
func (s *estimates) Speed(ctx context.Context, stages ...string) (map[string]taskstore.Pace, error) {
	db := s.read(ctx)
	rows, err := []sampled(nil), error(nil)
	if len(stages) > 0 {
		rows, err = finished(db, ", result")
	} else {
		rows, err = s.latest(db)
	}
	of := map[string][]sampled{}
	for _, m := range rows {
		of[""] = append(of[""], m)
		if m.MediaType != "" {
			of[m.MediaType] = append(of[m.MediaType], m)
		}
	}
	out := map[string]taskstore.Pace{}
	for mediaType, rows := range of {
		out[mediaType] = paceOf(rows, stages...)
	}
	return out, err
}

// StageTimes is how long stages of tasks of a tenant took of late that read ranges or
// ran nodes of flows: the mean of those that had the stage. What was not measured is
// absent.
func (s *estimates) StageTimes(ctx context.Context, tenantID string) (map[string]time.Duration, error) {
	times, err := s.stages.get(func() (stageTimes, bool, error) {
		rows, err := all[taskRow](s.read(ctx), finishedQuery("tenant_id, result", "'parse','dataflow'"))
		out, tasks := stageTimes{}, map[[2]string]time.Duration{}
		for _, r := range rows {
			var result sheaf.TaskResult
			decode(r.Result, &result)
			if out[r.TenantID] == nil {
				out[r.TenantID] = map[string]time.Duration{}
			}
			seen := map[string]bool{}
			for _, st := range result.Stages {
				out[r.TenantID][st.Name] += time.Duration(st.MS) * time.Millisecond
				if !seen[st.Name] {
					seen[st.Name] = true
					tasks[[2]string{r.TenantID, st.Name}]++
				}
			}
		}
		for key, n := range tasks {
			out[key[0]][key[1]] /= n
		}
		return out, len(rows) == speedSample, err
	})
	return times[tenantID], err
}

// OpenTasks counts what CancelDocuments would stop.
func (s *estimates) OpenTasks(ctx context.Context, tenantID string, ids []string) (queued, running int, err error) {
	counts, err := byIDs[struct{ Queued, Running int }](s.read(ctx), ids, `SELECT COALESCE(SUM(CASE WHEN state='running' THEN 0 ELSE 1 END), 0) AS queued,
		COALESCE(SUM(CASE WHEN state='running' THEN 1 ELSE 0 END), 0) AS running
		FROM tasks WHERE doc_id IN ? AND tenant_id=? AND `+isOpen, tenantID)
	for _, n := range counts {
		queued, running = queued+n.Queued, running+n.Running
	}
	return queued, running, err
}
