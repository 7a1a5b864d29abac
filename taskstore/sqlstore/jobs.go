package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// Job returns a job with the sums of its documents, stages, statistics, usage and
// receipt; Queue is nil. The database does the summing: a job may have ten thousand
// documents, and watchers read it every second.
func (s *jobs) Job(ctx context.Context, tenantID, id string) (*sheaf.Job, error) {
	row, err := s.job(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	jobs, known, err := s.summed(ctx, tenantID, []jobRow{*row})
	if err != nil {
		return nil, err
	}
	j, k := &jobs[0], known[id]
	if k != nil && k.Usage != nil {
		j.Usage = *k.Usage
		return j, nil
	}
	if err := s.sumUsage(ctx, j); err != nil {
		return nil, err
	}
	if k != nil {
		k.Usage = &j.Usage
		_ = s.keepSummary(ctx, id, k) // the next reader tries again
	}
	if !j.State.Terminal() {
		waits := feed{handle: s.handle}
		if j.UnservedPools, err = waits.JobWaitsFor(ctx, j.ID, "", taskstore.UnservedAfter); err != nil {
			return nil, err
		}
	}
	return j, s.sumRunning(ctx, j)
}

// JobGiven returns what a job was given: Job without all that is summed over its
// documents and tasks, at a cost that does not depend on how many it has.
func (s *jobs) JobGiven(ctx context.Context, tenantID, id string) (*sheaf.Job, error) {
	row, err := s.job(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	j := row.toDomain()
	return &j, nil
}

func (s *jobs) job(ctx context.Context, tenantID, id string) (*jobRow, error) {
	return one[jobRow](s.read(ctx), "job", id, "SELECT * FROM jobs WHERE id=? AND tenant_id=?", id, tenantID)
}

// JobEnded reports whether Job would show a terminal state, at a fraction of its
// cost: a waiter polls this, and calls Job once. While the job runs, its open tasks
// answer; only then are all of its documents looked at.
func (s *jobs) JobEnded(ctx context.Context, tenantID, id string) (bool, error) {
	const unfinished = "g.job_id=j.id AND g.tenant_id=j.tenant_id AND " + stateOfJobDocument + " NOT IN " + terminalDocuments
	for _, found := range []string{
		"FROM tasks t JOIN generations g ON g.doc_id=t.doc_id AND g.gen=t.gen JOIN documents d ON d.id=g.doc_id WHERE t.job_id=j.id AND t.state IN ('parked','scheduled','pending','running','retry_wait') AND " + unfinished,
		"FROM generations g JOIN documents d ON d.id=g.doc_id WHERE " + unfinished,
	} {
		open, err := one[bool](s.read(ctx), "job", id, "SELECT j.open_until<>0 OR EXISTS (SELECT 1 "+found+") FROM jobs j WHERE j.id=? AND j.tenant_id=?", id, tenantID)
		if err != nil || *open {
			return false, err
		}
	}
	return true, nil
}

// Jobs lists the jobs selected by a filter. They have no usage, and their stages do
// not count running tasks.
func (s *jobs) Jobs(ctx context.Context, tenantID string, f taskstore.JobFilter, p taskstore.Page) ([]sheaf.Job, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	w.when(f.DatasetID != "", "dataset_id=?", f.DatasetID)
	w.when(len(f.Kinds) > 0, "kind IN ?", texts(f.Kinds))
	w.when(f.Requester != "", "requester=?", f.Requester)
	if f.Query != "" {
		// What no name can contain matches nothing; PostgreSQL would reject it.
		if checkText("the query", f.Query, 4096) != nil {
			return []sheaf.Job{}, "", nil
		}
		named, name := s.d.contains("name", f.Query)
		// The files are a JSON list, whose punctuation is not part of a name.
		if strings.Trim(f.Query, "[],") == "" {
			w.add(named, name)
		} else {
			file, part := s.d.contains("files", strings.TrimSuffix(strings.TrimPrefix(encode(f.Query), `"`), `"`))
			w.add("("+named+" OR "+file+")", name, part)
		}
	}
	rows, next, err := s.jobRows(ctx, tenantID, w, f.States, p)
	if err != nil {
		return nil, "", err
	}
	out := make([]sheaf.Job, 0, len(rows))
	for batch := range chunks(rows) {
		jobs, _, err := s.summed(ctx, tenantID, batch)
		if err != nil {
			return nil, "", err
		}
		out = append(out, jobs...)
	}
	return out, next, nil
}

// How many jobs are examined for a page filtered by state, and how many at once:
// reading 500 with one document each takes 5 ms, and larger ones are bounded by the
// time a page may take.
const (
	mostJobsLooked = 10_000
	jobsAtOnce     = 500
	jobsTime       = time.Second
)

// jobRows reads a page of jobs, filtered by state if any are given.
func (s *jobs) jobRows(ctx context.Context, tenantID string, w where, states []sheaf.DocumentState, p taskstore.Page) (out []jobRow, next string, err error) {
	read := func(p taskstore.Page) ([]jobRow, string, error) {
		return page(s.read(ctx), "SELECT * FROM jobs", w, "id", p, func(r jobRow) string { return r.ID }, func(r jobRow) jobRow { return r })
	}
	if len(states) == 0 {
		return read(p)
	}
	limit, begun, last := pageLimit(p), time.Now(), p.Cursor
	p.Limit = jobsAtOnce
	for looked := 0; ; {
		rows, more, err := read(p)
		if err != nil {
			return nil, "", err
		}
		are, err := s.jobStates(ctx, tenantID, rows)
		if err != nil {
			return nil, "", err
		}
		for i, r := range rows {
			if slices.Contains(states, are[r.ID]) {
				if len(out) == limit {
					return out, last, nil
				}
				out = append(out, r)
			}
			last = r.ID
			if len(out) == limit && i == len(rows)-1 {
				return out, more, nil
			}
		}
		looked += len(rows)
		if more == "" || looked >= mostJobsLooked || time.Since(begun) > jobsTime {
			return out, more, nil
		}
		p.Cursor = more
	}
}

// jobStates returns the states of jobs by id.
func (s *jobs) jobStates(ctx context.Context, tenantID string, rows []jobRow) (map[string]sheaf.DocumentState, error) {
	known, err := s.summaries(ctx, rows)
	if err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(mapped(rows, func(r jobRow) string { return r.ID }), func(id string) bool { return known[id] != nil })
	var some []struct {
		JobID, State string
		N            int
	}
	err = scan(s.read(ctx).Raw("SELECT g.job_id, "+stateOfJobDocument+` AS state, COUNT(*) AS n FROM generations g JOIN documents d ON d.id=g.doc_id
		WHERE g.job_id IN ? AND g.tenant_id=? GROUP BY g.job_id, `+stateOfJobDocument, rest, tenantID), &some)
	if err != nil {
		return nil, translate(err)
	}
	of, n := map[string]map[sheaf.DocumentState]int{}, map[string]int{}
	for _, x := range some {
		if of[x.JobID] == nil {
			of[x.JobID] = map[sheaf.DocumentState]int{}
		}
		of[x.JobID][sheaf.DocumentState(x.State)] += x.N
		n[x.JobID] += x.N
	}
	out := make(map[string]sheaf.DocumentState, len(rows))
	for _, r := range rows {
		if k := known[r.ID]; k != nil {
			out[r.ID] = k.State
			continue
		}
		out[r.ID] = stateOfJob(of[r.ID], n[r.ID], r.OpenUntil != 0)
	}
	return out, nil
}

// stateOfJobDocument is a document's state from the job's point of view: the
// document's own while the job's generation is the newest, otherwise the outcome of
// the generation.
const stateOfJobDocument = "CASE WHEN d.gen=g.gen THEN d.state ELSE g.state END"

const terminalDocuments = "('succeeded','partially_succeeded','failed','canceled')"

// jobStages are a job's stages, in the order a task passes them. A task's other work
// counts towards the stage it precedes: fetch towards parse; enrich, tag and verify
// towards embed; artifact towards index.
var jobStages = []string{"parse", "chunk", "embed", "index"}

// stageSums are, per stage, the failed and the reused cost. An executor reports with
// a failure the stage it occurred in, and with a result which stages ran; a result
// inserted as done ran none, and a task that copies a stored one runs index, and
// embed if that is repeated.
const stageSums = `SUM(CASE WHEN state='dead' THEN CASE WHEN ` + failedLater + ` THEN 0 ELSE cost END ELSE 0 END) AS failed_parse,
					SUM(CASE WHEN state='dead' AND failure LIKE '%"phase":"chunk"%' THEN cost ELSE 0 END) AS failed_chunk,
					SUM(CASE WHEN state='dead' AND (` + failedEmbed + `) THEN cost ELSE 0 END) AS failed_embed,
					SUM(CASE WHEN state='dead' AND (` + failedIndex + `) THEN cost ELSE 0 END) AS failed_index,
					SUM(CASE WHEN state='done' AND (reused=1 OR kind='index' AND NOT (` + ranParse + `)) THEN cost ELSE 0 END) AS reused_parse,
					SUM(CASE WHEN state='done' AND (reused=1 OR kind='index' AND NOT (` + ranEmbed + `)) THEN cost ELSE 0 END) AS reused_embed,
					SUM(CASE WHEN state='done' AND reused=1 AND started_at=0 THEN cost ELSE 0 END) AS reused_index`

const (
	failedEmbed = `failure LIKE '%"phase":"embed"%' OR failure LIKE '%"phase":"enrich"%' OR failure LIKE '%"phase":"tag"%' OR failure LIKE '%"phase":"verify"%'`
	failedIndex = `failure LIKE '%"phase":"index"%' OR failure LIKE '%"phase":"artifact"%'`
	failedLater = `failure LIKE '%"phase":"chunk"%' OR ` + failedEmbed + ` OR ` + failedIndex
	// A database that shortens an old result writes JSON with spaces.
	ranParse = `result LIKE '%"name":"parse"%' OR result LIKE '%"name": "parse"%'`
	ranEmbed = `result LIKE '%"name":"embed"%' OR result LIKE '%"name": "embed"%'`
)

// heldJobs returns which of the jobs are paused themselves, or with their dataset or
// tenant.
func (s *jobs) heldJobs(ctx context.Context, ids []string) (map[string]bool, error) {
	held, err := byIDs[string](s.read(ctx), ids, `SELECT j.id FROM jobs j LEFT JOIN datasets x ON x.id=j.dataset_id LEFT JOIN tenants t ON t.id=j.tenant_id
		WHERE j.id IN ? AND (j.paused=1 OR x.paused=1 OR t.paused=1)`)
	return setOf(held), err
}

// sumJobs computes the sums that columns provide.
func (s *jobs) sumJobs(ctx context.Context, tenantID string, rows []jobRow) ([]sheaf.Job, error) {
	jobs := make([]sheaf.Job, len(rows))
	at := make(map[string]*sheaf.Job, len(rows))
	ids := make([]string, len(rows))
	for i, r := range rows {
		jobs[i] = r.toDomain()
		jobs[i].Documents.ByState = map[sheaf.DocumentState]int{}
		ids[i], at[r.ID] = r.ID, &jobs[i]
	}
	if len(rows) == 0 {
		return jobs, nil
	}
	db := s.read(ctx)

	later, err := notBefore(db, ids)
	if err != nil {
		return nil, err
	}
	for id, t := range later {
		at[id].NotBefore = t
	}
	held, err := s.heldJobs(ctx, ids)
	if err != nil {
		return nil, err
	}
	for id := range held {
		at[id].Paused = true
	}

	// One pass over the tasks, per document and then per state. Progress is the mean
	// over documents, weighted by cost.
	var docs []struct {
		JobID, State              string
		Deleted, N, First         int
		Weight, Weighted          float64
		Started, Finished         int64
		Total, Done, Reused       int
		Ranges, Chunks, Tokens    int
		FailedParse, FailedChunk  int
		FailedEmbed, FailedIndex  int
		FailedUnits               int
		ReusedParse, ReusedEmbed  int
		ReusedIndex               int
		TaskStarted, TaskFinished int64
	}
	err = scan(db.Raw(`SELECT job_id, state, deleted, COUNT(*) AS n, SUM(first) AS first, SUM(weight) AS weight, SUM(weight*progress) AS weighted,
			COALESCE(MIN(CASE WHEN started>0 THEN started END), 0) AS started, MAX(finished) AS finished,
			SUM(total) AS total, SUM(done) AS done, SUM(reused) AS reused,
			SUM(failed_parse) AS failed_parse, SUM(failed_chunk) AS failed_chunk, SUM(failed_embed) AS failed_embed, SUM(failed_index) AS failed_index,
			SUM(CASE WHEN failed_units>failed_parse+failed_chunk+failed_embed+failed_index THEN failed_units-failed_parse-failed_chunk-failed_embed-failed_index ELSE 0 END) AS failed_units,
			SUM(reused_parse) AS reused_parse, SUM(reused_embed) AS reused_embed, SUM(reused_index) AS reused_index, SUM(ranges) AS ranges, SUM(chunks) AS chunks, SUM(tokens) AS tokens,
			COALESCE(MIN(CASE WHEN task_started>0 THEN task_started END), 0) AS task_started, MAX(task_finished) AS task_finished
		FROM (SELECT g.job_id, `+stateOfJobDocument+` AS state, CASE WHEN d.deleted_at<>0 THEN 1 ELSE 0 END AS deleted,
				CASE WHEN g.gen=1 THEN 1 ELSE 0 END AS first, COALESCE(c.cost, 1) AS weight,
				CASE WHEN d.gen<>g.gen OR d.state IN `+terminalDocuments+` THEN 1 ELSE d.progress END AS progress,
				CASE WHEN d.gen=g.gen THEN d.started_at ELSE 0 END AS started,
				CASE WHEN d.gen=g.gen THEN d.finished_at ELSE g.finished_at END AS finished,
				COALESCE(c.cost, 0) AS total, COALESCE(c.done, 0) AS done, COALESCE(c.reused_cost, 0) AS reused,
				COALESCE(c.failed_parse, 0) AS failed_parse, COALESCE(c.failed_chunk, 0) AS failed_chunk,
				COALESCE(c.failed_embed, 0) AS failed_embed, COALESCE(c.failed_index, 0) AS failed_index,
				CASE WHEN g.state IN ('partially_succeeded','failed') AND d.unit<>'row' THEN `+s.d.failedUnits("g.ledger")+` ELSE 0 END AS failed_units,
				COALESCE(c.reused_parse, 0) AS reused_parse, COALESCE(c.reused_embed, 0) AS reused_embed, COALESCE(c.reused_index, 0) AS reused_index,
				COALESCE(c.ranges, 0) AS ranges, COALESCE(c.chunks, 0) AS chunks, COALESCE(c.tokens, 0) AS tokens,
				COALESCE(c.task_started, 0) AS task_started, COALESCE(c.task_finished, 0) AS task_finished
			FROM generations g JOIN documents d ON d.id=g.doc_id
			LEFT JOIN (SELECT job_id, doc_id, gen, SUM(cost) AS cost,
					SUM(CASE WHEN state='done' THEN cost ELSE 0 END) AS done,
					`+stageSums+`,
					SUM(CASE WHEN state='done' AND reused=1 THEN cost ELSE 0 END) AS reused_cost,
					SUM(CASE WHEN state='done' AND reused=1 THEN 1 ELSE 0 END) AS ranges,
					SUM(CASE WHEN state='done' AND reused=1 THEN chunk_count ELSE 0 END) AS chunks,
					SUM(CASE WHEN state='done' AND reused=1 THEN token_count ELSE 0 END) AS tokens,
					MIN(CASE WHEN started_at>0 THEN started_at END) AS task_started, MAX(finished_at) AS task_finished
				FROM tasks WHERE job_id IN ? AND kind IN ('parse','index') GROUP BY job_id, doc_id, gen) c
				ON c.job_id=g.job_id AND c.doc_id=g.doc_id AND c.gen=g.gen
			WHERE g.job_id IN ? AND g.tenant_id=?) x
		GROUP BY job_id, state, deleted`, ids, ids, tenantID), &docs)
	if err != nil {
		return nil, translate(err)
	}
	type sums struct {
		weight, weighted            float64
		first, n                    int
		started, finished, taskDone int64
		states                      map[sheaf.DocumentState]int
		stages                      [4]sheaf.JobStage // as jobStages
	}
	summed := make(map[string]*sums, len(rows))
	for _, id := range ids {
		summed[id] = &sums{states: map[sheaf.DocumentState]int{}}
		for i, name := range jobStages {
			summed[id].stages[i] = sheaf.JobStage{Name: name, Unit: string(sheaf.UnitPage)}
		}
	}
	for _, d := range docs {
		j, x, state := at[d.JobID], summed[d.JobID], sheaf.DocumentState(d.State)
		if d.Deleted == 0 {
			j.Documents.Total += d.N
			j.Documents.ByState[state] += d.N
		}
		x.states[state] += d.N
		x.n += d.N
		x.first += d.First
		x.weight += d.Weight
		x.weighted += d.Weighted
		x.finished = max(x.finished, d.Finished)
		x.started = earliest(x.started, earliest(d.Started, d.TaskStarted))
		x.taskDone = max(x.taskDone, d.TaskFinished)
		// Pages that a task could not read although it is done. A ledger also counts
		// those of dead tasks.
		d.FailedParse += min(d.FailedUnits, d.Done)
		d.Done -= min(d.FailedUnits, d.Done)
		passed := d.Done + d.FailedParse + d.FailedChunk + d.FailedEmbed + d.FailedIndex
		for i, of := range [4]struct{ failed, reused int }{{d.FailedParse, d.ReusedParse}, {d.FailedChunk, d.ReusedParse}, {d.FailedEmbed, d.ReusedEmbed}, {d.FailedIndex, d.ReusedIndex}} {
			passed -= of.failed // what fails in a stage has passed the previous ones
			st := &x.stages[i]
			st.Total += d.Total
			st.Done += passed
			st.Failed += of.failed
			st.Reused += of.reused
		}
		x.stages[0].StartedAt = toTime(earliest(toMillis(x.stages[0].StartedAt), d.TaskStarted))
		j.Reused.Ranges += d.Ranges
		j.Reused.Pages += d.Reused
		j.Reused.Chunks += d.Chunks
		j.Reused.Tokens += d.Tokens
	}

	for i := range jobs {
		j, x := &jobs[i], summed[jobs[i].ID]
		j.State = stateOfJob(x.states, x.n, !j.OpenUntil.IsZero())
		if x.weight > 0 {
			j.Progress = x.weighted / x.weight
		} else if j.State.Terminal() {
			j.Progress = 1
		}
		j.StartedAt = toTime(x.started)
		if j.State.Terminal() {
			j.FinishedAt = toTime(x.finished)
			x.stages[len(x.stages)-1].FinishedAt = toTime(x.taskDone)
		}
		j.Stages = x.stages[:]
		if j.Kind == sheaf.JobIngest {
			j.Statistics.New = max(j.Statistics.New, x.first)
			j.Statistics.Modified = max(j.Statistics.Modified, x.n-x.first)
		}
		j.Statistics.Failed += x.states[sheaf.DocFailed]
	}
	return jobs, nil
}

func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// stateOfJob is the state of a job of n documents, which may get more while it is
// open.
func stateOfJob(states map[sheaf.DocumentState]int, n int, open bool) sheaf.DocumentState {
	state := foldStates(states, n)
	switch {
	case !open || !state.Terminal():
		return state
	case n == 0:
		return sheaf.DocQueued
	}
	return sheaf.DocRunning
}

// foldStates is the state of a job of n documents.
func foldStates(states map[sheaf.DocumentState]int, n int) sheaf.DocumentState {
	terminal := 0
	for state, k := range states {
		if state.Terminal() {
			terminal += k
		}
	}
	switch {
	case states[sheaf.DocRunning]+states[sheaf.DocFinalizing] > 0:
		return sheaf.DocRunning
	case terminal == n && states[sheaf.DocSucceeded] == n: // including a job that had nothing to do
		return sheaf.DocSucceeded
	case terminal == n && states[sheaf.DocFailed] == n:
		return sheaf.DocFailed
	case terminal == n && states[sheaf.DocCanceled] == n:
		return sheaf.DocCanceled
	case terminal == n:
		// Only canceled and failed: nothing was produced.
		if states[sheaf.DocSucceeded]+states[sheaf.DocPartiallySucceeded] == 0 {
			return sheaf.DocFailed
		}
		return sheaf.DocPartiallySucceeded
	case states[sheaf.DocQueued]+states[sheaf.DocUnstarted] == 0:
		return sheaf.DocCanceling
	case terminal+states[sheaf.DocCanceling] > 0:
		return sheaf.DocRunning
	case states[sheaf.DocUnstarted] == n:
		return sheaf.DocUnstarted
	}
	return sheaf.DocQueued
}

// jsonNumber returns an expression that sums a number in the results of done tasks.
func (s *jobs) jsonNumber(path ...string) string {
	read := "JSON_EXTRACT(result, '$." + strings.Join(path, ".") + "')"
	if s.d.name == "postgres" {
		read = "CAST(CAST(result AS json) #>> '{" + strings.Join(path, ",") + "}' AS bigint)"
	}
	// CASE, because a condition of the query may be evaluated after the value.
	return "COALESCE(SUM(CASE WHEN state='done' AND reused=0 AND result<>'' THEN " + read + " END), 0)"
}

// sumUsage sums what a job's tasks consumed. A reused result lists what making it
// consumed, which does not count for this job.
func (s *jobs) sumUsage(ctx context.Context, j *sheaf.Job) error {
	u, err := one[struct{ Pages, OcrPages, Tokens, EmbeddedTokens, Bytes float64 }](s.read(ctx), "job", j.ID, "SELECT "+s.jsonNumber("usage", "pages")+" AS pages, "+s.jsonNumber("usage", "ocr_pages")+" AS ocr_pages, "+
		s.jsonNumber("usage", "tokens")+" AS tokens, "+s.jsonNumber("usage", "embedded_tokens")+" AS embedded_tokens, "+
		s.jsonNumber("usage", "bytes")+" AS bytes FROM tasks WHERE job_id=? AND tenant_id=? AND state='done'", j.ID, j.TenantID)
	if err != nil {
		return err
	}
	j.Usage = sheaf.Usage{Pages: int(u.Pages), OCRPages: int(u.OcrPages), Tokens: int(u.Tokens), EmbeddedTokens: int(u.EmbeddedTokens), Bytes: int64(u.Bytes)}
	return nil
}

// sumRunning adds the stages that running tasks have passed.
func (s *jobs) sumRunning(ctx context.Context, j *sheaf.Job) error {
	if j.State.Terminal() {
		return nil
	}
	rows, err := all[struct {
		TaskID, Detail string
		Cost           int
	}](s.read(ctx), `SELECT t.id AS task_id, t.cost, e.detail FROM tasks t JOIN events e ON e.subject_id=t.id AND e.epoch=t.epoch AND e.kind='progress'
		WHERE t.job_id=? AND t.tenant_id=? AND t.state='running' AND t.kind IN ('parse','index') ORDER BY e.seq DESC LIMIT 5000`, j.ID, j.TenantID)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, r := range rows {
		var p sheaf.Progress
		decode(r.Detail, &p)
		at := slices.Index(jobStages, p.Stage)
		if seen[r.TaskID] || p.Total <= 0 || at < 0 {
			continue
		}
		seen[r.TaskID] = true // its newest event: the previous stages have been passed
		for i := range at {
			j.Stages[i].Done += r.Cost
		}
		j.Stages[at].Done += r.Cost * min(max(p.Done, 0), p.Total) / p.Total
	}
	return nil
}

// ofJob selects the documents of a job among generations g joined with documents d.
func ofJob(tenantID, jobID string) (w where) {
	w.add("g.job_id=?", jobID)
	w.add("d.tenant_id=?", tenantID)
	w.add("d.deleted_at=0")
	return w
}

// JobDocuments lists the documents of a job.
func (s *jobs) JobDocuments(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]sheaf.Document, string, error) {
	if _, err := s.job(ctx, tenantID, jobID); err != nil {
		return nil, "", err
	}
	w := ofJob(tenantID, jobID)
	docs, next, err := page(s.read(ctx), "SELECT "+documentColumns("d.")+" FROM generations g JOIN documents d ON d.id=g.doc_id", w, "g.doc_id", p, documentRow.id, s.toDocument)
	if err != nil {
		return nil, "", err
	}
	return docs, next, addNotBefore(s.read(ctx), docs)
}

// JobWarnings lists the warnings of a job's documents, ordered by document id. Those of
// a document that another job has parsed since are of that job.
func (s *jobs) JobWarnings(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]taskstore.JobWarnings, string, error) {
	if _, err := s.job(ctx, tenantID, jobID); err != nil {
		return nil, "", err
	}
	w := ofJob(tenantID, jobID)
	w.add("d.gen=g.gen AND d.warnings<>'[]'")
	return page(s.read(ctx), "SELECT d.id, d.name, d.warnings FROM generations g JOIN documents d ON d.id=g.doc_id", w, "g.doc_id", p, documentRow.id, func(r documentRow) taskstore.JobWarnings {
		out := taskstore.JobWarnings{DocumentID: r.ID, Document: r.Name}
		decode(r.Warnings, &out.Warnings)
		return out
	})
}

// JobErrors lists the failures of a job, ordered by document id: first the
// document's own failure, then those of its tasks, then its unreadable units. The
// cursor is a document and how many of its failures were listed.
func (s *jobs) JobErrors(ctx context.Context, tenantID, jobID string, p taskstore.Page) ([]taskstore.JobError, string, error) {
	if _, err := s.job(ctx, tenantID, jobID); err != nil {
		return nil, "", err
	}
	limit := pageLimit(p)
	from, skipText, _ := strings.Cut(p.Cursor, ":")
	skip, _ := strconv.Atoi(skipText)
	op, order := "<=", "DESC"
	if p.Ascending {
		op, order = ">=", "ASC"
	}
	var out []taskstore.JobError
	for {
		w := ofJob(tenantID, jobID)
		w.when(from != "", "g.doc_id"+op+"?", from)
		w.add(`(` + stateOfJobDocument + ` IN ('failed','partially_succeeded')
			OR EXISTS (SELECT 1 FROM tasks t WHERE t.doc_id=g.doc_id AND t.gen=g.gen AND t.state='dead'))`)
		var rows []struct {
			DocID, Name, Failure string
			Gen                  int
		}
		err := scan(s.read(ctx).Raw("SELECT g.doc_id, g.gen, d.name, CASE WHEN d.gen=g.gen THEN d.failure ELSE g.failure END AS failure"+
			" FROM generations g JOIN documents d ON d.id=g.doc_id"+w.String()+" ORDER BY g.doc_id "+order+" LIMIT 50", w.args...), &rows)
		if err != nil {
			return nil, "", translate(err)
		}
		for _, r := range rows {
			failures, err := s.failures(ctx, r.DocID, r.Gen)
			if err != nil {
				return nil, "", err
			}
			if f := decodeFailure(r.Failure); f != nil {
				failures = slices.Insert(failures, 0, taskstore.JobError{Failure: *f})
			}
			listed := 0
			if r.DocID == from {
				listed = min(skip, len(failures))
			}
			for _, f := range failures[listed:] {
				if len(out) == limit {
					return out, r.DocID + ":" + strconv.Itoa(listed), nil
				}
				f.DocumentID, f.Document = r.DocID, r.Name
				out = append(out, f)
				listed++
			}
			from, skip = r.DocID, listed
		}
		// The cursor's document is read again, so one more row is needed for anything
		// new.
		if len(rows) < 50 {
			return out, "", nil
		}
	}
}

// failures lists the failures of a generation's tasks and units.
func (s *jobs) failures(ctx context.Context, documentID string, gen int) ([]taskstore.JobError, error) {
	var rows []taskRow
	if err := scan(s.read(ctx).Raw("SELECT id, kind, state, from_unit, to_unit, attempts, failure, result FROM tasks WHERE doc_id=? AND gen=? AND state IN ('dead','done') ORDER BY from_unit, to_unit, id",
		documentID, gen), &rows); err != nil {
		return nil, translate(err)
	}
	var tasks []taskstore.JobError
	var ledgers []sheaf.Ledger
	owner := func(run sheaf.LedgerRun) string { return "" }
	for i := range rows {
		r := &rows[i]
		if r.State == string(sheaf.TaskDead) {
			f := decodeFailure(r.Failure)
			if f == nil {
				f = sheaf.Fail(sheaf.CategoryInternal, "dead", "The task failed too often; retry it.")
			}
			if f.Range == nil && r.FromUnit > 0 {
				f.Range = &sheaf.Range{From: r.FromUnit, To: r.ToUnit}
			}
			f.Attempt = cmp.Or(f.Attempt, r.Attempts)
			tasks = append(tasks, taskstore.JobError{TaskID: r.ID, Failure: *f})
			continue
		}
		ledgers = append(ledgers, verdicts(*r))
		before := owner
		owner = func(run sheaf.LedgerRun) string {
			if r.FromUnit <= run.From && run.To <= r.ToUnit {
				return r.ID
			}
			return before(run)
		}
	}
	for _, run := range sheaf.MergeLedgers(ledgers...) {
		if run.Status != sheaf.UnitFailed {
			continue
		}
		f := sheaf.Failure{Code: run.Code, Category: sheaf.CategoryOf(run.Code), Message: run.Message, Phase: "parse", Range: &sheaf.Range{From: run.From, To: run.To}}
		if run.From == run.To {
			f.Page = run.From
		}
		tasks = append(tasks, taskstore.JobError{TaskID: owner(run), Failure: f})
	}
	return tasks, nil
}

// SetPaused holds or releases the pending tasks of a job, dataset or tenant (exactly
// one id set), and those that will be spawned. The flag is committed first: tasks
// written from then on check it under a lock, and those written before are held or
// released here, some at a time. A task stays held while any of its job, dataset and
// tenant is paused. tasks counts waiting ones; running ones continue.
func (s *jobs) SetPaused(ctx context.Context, tenantID string, scope taskstore.PauseScope, paused bool) (tasks int, err error) {
	table, column, id, set := "tenants", "tenant_id", tenantID, 0
	if scope.JobID != "" {
		table, column, id, set = "jobs", "job_id", scope.JobID, set+1
	}
	if scope.DatasetID != "" {
		table, column, id, set = "datasets", "dataset_id", scope.DatasetID, set+1
	}
	if scope.Tenant {
		set++
	}
	if set != 1 {
		return 0, fmt.Errorf("%w: exactly one of job, dataset and tenant is paused at a time", sheaf.ErrInvalid)
	}
	owned := "id=? AND tenant_id=?"
	if table == "tenants" {
		owned = "id=? AND id=?"
	}
	if err := changed(s.write(ctx).Exec("UPDATE "+table+" SET paused=? WHERE "+owned, flag(paused), id, tenantID), strings.TrimSuffix(table, "s"), id); err != nil {
		return 0, err
	}
	wanted, to := "paused IN (0,2)", "paused=paused+1"
	if !paused {
		// The hints of held tasks were spent by refused claims.
		to = "paused=paused-1, enqueued_at=0"
		wanted = `paused IN (1,3) AND NOT EXISTS (SELECT 1 FROM tenants x WHERE x.id=tasks.tenant_id AND x.paused=1)
			AND NOT EXISTS (SELECT 1 FROM datasets x WHERE x.id=tasks.dataset_id AND x.paused=1)
			AND NOT EXISTS (SELECT 1 FROM jobs x WHERE x.id=tasks.job_id AND x.paused=1)`
	}
	after := ""
	for {
		n, last := 0, ""
		err := s.tx(ctx, func(tx *gorm.DB) error {
			n, last = 0, ""
			// Pauses of one tenant are serialized, so that one that releases tasks sees
			// the flags set by another that holds them.
			if err := run(tx, stmt("UPDATE tenants SET weight=weight WHERE id=?", tenantID)); err != nil {
				return err
			}
			rows, err := all[taskRow](tx, "SELECT id, state FROM tasks WHERE "+column+"=? AND tenant_id=? AND "+isOpen+" AND id>? AND "+wanted+" ORDER BY id LIMIT 500", id, tenantID, after)
			if err != nil {
				return err
			}
			for _, r := range rows {
				if last = r.ID; r.State != string(sheaf.TaskRunning) {
					n++
				}
			}
			if len(rows) < 500 {
				last = ""
			}
			_, err = execByIDs(tx, mapped(rows, taskRow.id), "UPDATE tasks SET "+to+" WHERE id IN ?")
			return err
		})
		tasks += n
		if err != nil || last == "" {
			return tasks, err
		}
		after = last
	}
}
