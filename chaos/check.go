package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/s3"
	"sheaf/internal/doctor"
	"sheaf/internal/index/elastic"
	"sheaf/taskstore/sqlstore"
)

// checker inspects every engine, bypassing the proxies, after the faults.
type checker struct {
	e        *engines
	f        *fleet
	l        *load
	settings map[string]string
	found    []string

	outputs  int            // node outputs that exist
	flowRuns int            // checked
	ended    map[string]int // runs over datasets, by kind and outcome
}

func (c *checker) violation(format string, args ...any) {
	if len(c.found) < 200 {
		c.found = append(c.found, fmt.Sprintf(format, args...))
	}
}

// rows runs a query for violations and records each row.
func (c *checker) rows(ctx context.Context, what, query string) error {
	rs, err := c.e.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer rs.Close()
	var first []string // of the tasks that the first rows name
	for rs.Next() {
		cols, _ := rs.Columns()
		vals, ptrs := make([]sql.NullString, len(cols)), make([]any, len(cols))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		if err := rs.Scan(ptrs...); err != nil {
			return err
		}
		var parts []string
		for i, col := range cols {
			parts = append(parts, col+"="+vals[i].String)
			if len(first) < historyTasks {
				first = append(first, vals[i].String)
			}
		}
		c.violation("%s: %s", what, strings.Join(parts, " "))
	}
	if err := rs.Err(); err != nil {
		return err
	}
	for _, id := range first {
		if err := c.ofTask(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// historyTasks is how many values of the rows that break an invariant are looked up.
const historyTasks = 6

// ofTask records what happened to a task, since the stores of a run are removed with
// it. A value that is no task's id has no history.
func (c *checker) ofTask(ctx context.Context, id string) error {
	for _, q := range []string{
		"SELECT CONCAT_WS(' ', 'task', id, kind, node, from_unit, to_unit, state, 'epoch', epoch, 'unmet', unmet, 'created', created_at, 'started', started_at, 'finished', finished_at, on_failure) FROM tasks WHERE id=?",
		"SELECT CONCAT_WS(' ', 'event', seq, kind, 'epoch', epoch, 'at', at, worker_id, text) FROM events WHERE subject_id=? ORDER BY seq LIMIT 30",
	} {
		rs, err := c.e.db.QueryContext(ctx, q, id)
		if err != nil {
			return err
		}
		for rs.Next() {
			var line string
			if err := rs.Scan(&line); err != nil {
				_ = rs.Close()
				return err
			}
			c.violation("    %s", line)
		}
		if err := errors.Join(rs.Err(), rs.Close()); err != nil {
			return err
		}
	}
	return nil
}

const terminal = "('done','dead','canceled','superseded')"

// ofLive selects tasks whose log is kept: a deleted document's log is removed.
const ofLive = "t.doc_id IN (SELECT id FROM documents WHERE deleted_at=0)"

// statements are the invariants checked by a single database query. At rest each
// returns no rows.
var statements = []struct{ what, query string }{
	{"I1: a task has not ended", "SELECT id, kind, state, epoch, enqueued_at, worker_id, doc_id FROM tasks WHERE state NOT IN " + terminal},
	{"I1: a document has not ended", "SELECT id, state, gen FROM documents WHERE deleted_at=0 AND state NOT IN ('succeeded','partially_succeeded','failed','canceled')"},
	{"I1: a generation has not ended", "SELECT doc_id, gen, state FROM generations WHERE state NOT IN ('succeeded','partially_succeeded','failed','canceled')"},
	{"I2: claims were counted and not logged, or logged and not counted", `SELECT t.id, t.attempts, COUNT(e.seq) claims FROM tasks t LEFT JOIN events e ON e.subject_id=t.id AND e.kind='claimed'
		WHERE ` + ofLive + ` GROUP BY t.id, t.attempts HAVING t.attempts<>COUNT(e.seq)`},
	{"I3: a task was done twice", "SELECT task_id, COUNT(*) n FROM events WHERE kind='done' GROUP BY task_id HAVING n > 1"},
	{"I3: done under an epoch that is not that of its last claim", `SELECT t.id, t.done_epoch, MAX(e.epoch) last FROM tasks t JOIN events e ON e.subject_id=t.id AND e.kind='claimed'
		WHERE t.state='done' GROUP BY t.id, t.done_epoch HAVING last<>t.done_epoch`},
	{"I4: the live generation's chunk count is not the sum of its ranges", `SELECT d.id, d.chunk_count, COALESCE(SUM(t.chunk_count),0) has FROM documents d LEFT JOIN tasks t
		ON t.doc_id=d.id AND t.gen=d.live_gen AND t.state='done' AND t.range_id<>'' WHERE d.deleted_at=0 AND d.live_gen>0 GROUP BY d.id, d.chunk_count HAVING d.chunk_count<>has`},
	{"I5: failures were counted and not logged", `SELECT t.id, t.fail_count, COUNT(e.seq) n FROM tasks t LEFT JOIN events e ON e.subject_id=t.id AND (e.kind='failed' OR e.kind='dead' AND NOT EXISTS
		(SELECT 1 FROM events l WHERE l.subject_id=t.id AND l.epoch=e.epoch AND l.kind='lost')) AND e.level='error'
		WHERE ` + ofLive + ` GROUP BY t.id, t.fail_count HAVING t.fail_count<>COUNT(e.seq)`},
	{"I5: lost leases were counted and not logged", `SELECT t.id, t.lost_count, COUNT(e.seq) n FROM tasks t LEFT JOIN events e ON e.subject_id=t.id AND e.kind='lost'
		WHERE ` + ofLive + ` GROUP BY t.id, t.lost_count HAVING t.lost_count<>COUNT(e.seq)`},
	{"I6: a task was lost more than three times", "SELECT id, lost_count FROM tasks WHERE lost_count>3"},
	{"I8: live without having succeeded", `SELECT d.id, d.live_gen, g.state FROM documents d JOIN generations g ON g.doc_id=d.id AND g.gen=d.live_gen
		WHERE d.deleted_at=0 AND (g.published_at=0 OR g.state NOT IN ('succeeded','partially_succeeded'))`},
	{"I8: the live generation is newer than the newest", "SELECT id, gen, live_gen FROM documents WHERE live_gen>gen"},
	{"I9: a document that succeeded has a task that did not", `SELECT d.id, t.id AS task, t.state FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.gen
		WHERE d.deleted_at=0 AND d.state='succeeded' AND t.state<>'done' AND t.kind NOT IN ('finalize')
			AND NOT (t.state='superseded' AND EXISTS (SELECT 1 FROM tasks s WHERE s.doc_id=t.doc_id AND s.gen=t.gen AND s.kind='index' AND s.node LIKE 'stitch-%' AND s.from_unit=t.from_unit AND s.to_unit=t.to_unit AND s.state='done'))`},
	{"I11: a generation was published twice", `SELECT f.doc_id, f.gen, COUNT(*) n FROM tasks f WHERE f.kind='finalize' AND f.state='done'
		AND NOT EXISTS (SELECT 1 FROM tasks s WHERE s.doc_id=f.doc_id AND s.gen=f.gen AND s.kind='index' AND s.node=CONCAT('stitch-', f.node)) GROUP BY f.doc_id, f.gen
		HAVING n > 1 + (SELECT CASE WHEN COUNT(*)>0 THEN 1 ELSE 0 END FROM tasks s WHERE s.doc_id=f.doc_id AND s.gen=f.gen AND s.kind='dataflow' AND s.from_unit=0)`}, // after nodes over the document it is finalized again
	{"I11: a generation was published and did not end so", `SELECT t.doc_id, t.gen, g.state FROM tasks t JOIN generations g ON g.doc_id=t.doc_id AND g.gen=t.gen
		WHERE t.kind='finalize' AND t.state='done' AND g.published_at<>0 AND g.state NOT IN ('succeeded','partially_succeeded')`},
	{"I12: a child was claimed before its parent was done", `SELECT d.child_id, d.parent_id FROM task_deps d JOIN events c ON c.subject_id=d.child_id AND c.kind='claimed'
		JOIN tasks t ON t.id=d.parent_id LEFT JOIN events p ON p.subject_id=d.parent_id AND p.kind='done'
		WHERE (p.seq IS NULL OR p.seq>c.seq) AND NOT (t.state='done' AND t.epoch=0)`}, // a kept output is done from the start
	{"I18: one upload became several documents", "SELECT tenant_id, name, COUNT(*) n FROM documents WHERE deleted_at=0 GROUP BY tenant_id, name HAVING n > 1"},
	{"I18: a document has two plans in one generation", "SELECT doc_id, gen, COUNT(*) n FROM tasks WHERE kind='plan' GROUP BY doc_id, gen HAVING n > 1"},
	{"flows: a node worked on a range twice", `SELECT doc_id, gen, node, from_unit, to_unit, COUNT(*) n FROM tasks WHERE kind='dataflow' AND state='done' GROUP BY doc_id, gen, node, from_unit, to_unit HAVING n > 1`},
	{"flows: a dataset has two runs of a kind at once", `SELECT r.dataset_id, r.kind, COUNT(*) n FROM dataset_runs r JOIN tasks t ON t.id=r.task_id WHERE t.state NOT IN ` + terminal + ` GROUP BY r.dataset_id, r.kind HAVING n > 1`},
	{"a cancel left range results behind", `SELECT t.doc_id, t.gen, t.range_id FROM tasks t JOIN generations g ON g.doc_id=t.doc_id AND g.gen=t.gen JOIN documents d ON d.id=t.doc_id
		WHERE d.deleted_at=0 AND g.state='canceled' AND t.range_id<>'' AND NOT EXISTS
		(SELECT 1 FROM tasks o JOIN documents p ON p.id=o.doc_id WHERE o.range_id=t.range_id AND o.gen<>t.gen AND (o.gen=p.live_gen OR o.gen=p.gen))`},
}

// unrest reports what is still in motion, "" at rest.
func (e *engines) unrest(ctx context.Context) (string, error) {
	var tasks, docs, due int
	err := e.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM tasks WHERE state NOT IN `+terminal+`),
		(SELECT COUNT(*) FROM documents WHERE deleted_at=0 AND state NOT IN ('succeeded','partially_succeeded','failed','canceled')),
		(SELECT COUNT(*) FROM garbage WHERE not_before<=UNIX_TIMESTAMP(NOW(3))*1000+?)`, (grace+5*time.Second).Milliseconds()).Scan(&tasks, &docs, &due)
	if err != nil {
		return "", err
	}
	if tasks+docs+due == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d tasks and %d documents have not ended, %d things are to be collected", tasks, docs, due), nil
}

// run checks everything and returns the violations.
func (c *checker) run(ctx context.Context) ([]string, error) {
	for _, s := range statements {
		if err := c.rows(ctx, s.what, s.query); err != nil {
			return nil, err
		}
	}
	for _, check := range []func(context.Context) error{c.history, c.generations, c.queue, c.clients, c.streams, c.ran, c.stores} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	return c.found, nil
}

// history replays the event log of every task: an attempt begins with a claim under
// a new epoch and ends once, nothing is written outside an attempt, and nothing is
// claimed after its cancel was answered.
func (c *checker) history(ctx context.Context) error {
	rs, err := c.e.db.QueryContext(ctx, `SELECT seq, subject_id, doc_id, gen, epoch, kind FROM events WHERE kind<>'document'
		AND doc_id IN (SELECT id FROM documents WHERE deleted_at=0) ORDER BY subject_id, seq`)
	if err != nil {
		return err
	}
	defer rs.Close()
	type line struct {
		seq, epoch int64
		gen        int
		kind, doc  string
	}
	var task string
	var epoch int64
	held, over := false, false
	for rs.Next() {
		var id string
		var l line
		if err := rs.Scan(&l.seq, &id, &l.doc, &l.gen, &l.epoch, &l.kind); err != nil {
			return err
		}
		if id != task {
			task, epoch, held, over = id, 0, false, false
		}
		bad := func(why string) {
			c.violation("history: task %s, event %d (%s, epoch %d): %s", id, l.seq, l.kind, l.epoch, why)
		}
		if over && l.kind != "retried" && !(l.kind == "dead" && l.epoch == epoch) {
			bad("the task was over")
		}
		switch l.kind {
		case "claimed":
			if held {
				bad("claimed while another attempt held it")
			}
			if l.epoch <= epoch {
				bad(fmt.Sprintf("I2: the epoch did not grow from %d", epoch))
			}
			held = true
		case "progress", "message":
			if !held || l.epoch != epoch {
				bad(fmt.Sprintf("I4: written outside of an attempt: held %v, epoch %d", held, epoch))
			}
		case "done", "failed", "snoozed":
			if !held || l.epoch != epoch {
				bad(fmt.Sprintf("I3: the end of an attempt that was over: held %v, epoch %d", held, epoch))
			}
			held, over = false, l.kind == "done"
		case "released", "lost":
			if !held || l.epoch != epoch+1 {
				bad("taken from nobody, or without a new epoch")
			}
			held = false
		case "dead", "canceled", "superseded":
			if l.epoch < epoch {
				bad("an epoch went back")
			}
			held, over = false, true
		case "retried":
			held, over = false, false
		}
		epoch = max(epoch, l.epoch)
	}
	if err := rs.Err(); err != nil {
		return err
	}
	return c.rows(ctx, "I7: claimed after the cancel was answered", `SELECT e.doc_id, e.gen, c.seq claimed, e.seq canceling FROM events e JOIN events c
		ON c.doc_id=e.doc_id AND c.gen=e.gen AND c.kind='claimed' AND c.seq>e.seq WHERE e.kind='document' AND e.detail LIKE '%"state":"canceling"%'
		AND NOT EXISTS (SELECT 1 FROM events r WHERE r.doc_id=e.doc_id AND r.gen=e.gen AND r.seq>e.seq AND r.kind='retried')`)
}

// generations checks in the documents' events that progress never falls within a
// generation and that generations only grow.
func (c *checker) generations(ctx context.Context) error {
	return c.rows(ctx, "I9: progress fell within a generation", `SELECT a.doc_id, a.gen, a.seq FROM (
		SELECT doc_id, gen, seq, CAST(JSON_VALUE(detail, '$.progress') AS DOUBLE) p,
			LAG(CAST(JSON_VALUE(detail, '$.progress') AS DOUBLE)) OVER (PARTITION BY doc_id, gen ORDER BY n) before_it
		FROM events WHERE kind='document') a WHERE a.p<a.before_it`)
}

// queue checks that Redis is empty at rest.
func (c *checker) queue(ctx context.Context) error {
	var cursor uint64
	for {
		keys, next, err := c.e.rdb.Scan(ctx, cursor, "*", 500).Result()
		if err != nil {
			return err
		}
		for _, k := range keys {
			switch {
			case strings.Contains(k, "q:{"):
				if n, err := c.e.rdb.XLen(ctx, k).Result(); err != nil || n != 0 {
					c.violation("I16: %d hints are left in %s (%v)", n, k, err)
				}
			case strings.Contains(k, "run:{"):
				if ids, err := c.e.rdb.SMembers(ctx, k).Result(); err != nil || len(ids) != 0 {
					c.violation("I16: %s counts %d tasks as running (%v)", k, len(ids), err)
				}
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// clients compares what clients were told with what they find now.
func (c *checker) clients(ctx context.Context) error {
	type row struct {
		state              string
		live, units, chunk int
		deleted            bool
		spent              int // tasks of the newest generation with an exhausted budget
	}
	rows := map[string]row{}
	rs, err := c.e.db.QueryContext(ctx, `SELECT d.id, d.state, d.live_gen, d.units, d.chunk_count, d.deleted_at<>0,
		(SELECT COUNT(*) FROM tasks t WHERE t.doc_id=d.id AND t.gen=d.gen AND t.state='dead' AND t.failure_code='worker_lost') FROM documents d`)
	if err != nil {
		return err
	}
	defer rs.Close()
	for rs.Next() {
		var id string
		var r row
		if err := rs.Scan(&id, &r.state, &r.live, &r.units, &r.chunk, &r.deleted, &r.spent); err != nil {
			return err
		}
		rows[id] = r
	}
	if err := rs.Err(); err != nil {
		return err
	}
	for _, d := range c.l.docs {
		if d.id == "" {
			continue // its upload was never answered: it may or may not exist
		}
		r, ok := rows[d.id]
		switch {
		case !ok:
			c.violation("I1: document %s was accepted and does not exist", d.id)
			continue
		case r.deleted && !d.deleted:
			c.violation("document %s was deleted and nobody asked for it", d.id)
		case d.gone && !r.deleted:
			c.violation("document %s is there after its delete was answered", d.id)
		case r.state == "canceled" && !d.canceled && !r.deleted:
			c.violation("document %s was canceled and nobody asked for it", d.id)
		case !r.deleted && !d.canceled && r.state != "succeeded" && r.spent == 0:
			c.violation("I1: document %s ended %s, and no task of it was lost three times", d.id, r.state)
		}
		if d.token == "" {
			continue
		}
		var texts []string
		if err := until(ctx, 20*time.Second, "a search at rest", func() (err error) { texts, err = c.l.hits(ctx, d); return err }); err != nil {
			return err
		}
		visible := !r.deleted && r.live > 0
		switch {
		case visible && len(texts) != min(r.chunk, 100):
			c.violation("I4: document %s has %d live chunks and %d are found", d.id, r.chunk, len(texts))
		case !visible && len(texts) > 0:
			c.violation("I8: document %s is found though no generation of it is live", d.id)
		}
		all := strings.Join(texts, "\n") + "\n"
		for i := 1; visible && r.state == "succeeded" && i <= d.pages; i++ {
			if n := strings.Count(all, fmt.Sprintf("%sp%d.", d.token, i)); n != 1 {
				c.violation("I8: page %d of document %s is found %d times", i, d.id, n)
				break
			}
		}
	}
	return nil
}

// streams checks that no event stream outlives its client.
func (c *checker) streams(ctx context.Context) error {
	for _, p := range c.f.of("serve") {
		if err := until(ctx, 20*time.Second, "the end of the streams of "+p.name, func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/metrics", nil)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer "+metricsToken)
			resp, err := c.l.http.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
			if err != nil || resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s, %w", resp.Status, err)
			}
			for line := range strings.Lines(string(body)) {
				if strings.HasPrefix(line, "sheaf_http_streams{") && !strings.HasSuffix(strings.TrimSpace(line), " 0") {
					return fmt.Errorf("%s", strings.TrimSpace(line))
				}
			}
			return nil
		}); ctx.Err() != nil {
			return err
		} else if err != nil {
			c.violation("a stream is open that nobody watches: %v", err)
		}
	}
	return nil
}

// stores has the doctor compare the database with the index and the blob store,
// without a grace period: nothing is in progress.
func (c *checker) stores(ctx context.Context) error {
	store, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "mysql", DSN: c.e.dsn(c.e.mysql.addr())})
	if err != nil {
		return err
	}
	defer store.Close()
	blobs, err := s3.Open(ctx, s3.Config{Endpoint: c.e.s3.String(), Bucket: c.settings["SHEAF_BLOB_BUCKET"], Credentials: "static", AccessKey: c.e.s3Key, SecretKey: c.e.s3Secret})
	if err != nil {
		return err
	}
	if err := c.nodes(ctx, blobs); err != nil {
		return err
	}
	ix, err := elastic.Open(ctx, elastic.Config{URLs: []string{c.e.es.String()}, Prefix: c.settings["SHEAF_INDEX_PREFIX"], ModelID: embedSpace, Dim: embedDim, Shards: 1})
	if err != nil {
		return err
	}
	defer ix.Close()
	conf := doctor.Config{Store: store, Index: ix, Blobs: blobs, MinAge: time.Millisecond, Hints: true}
	report, err := doctor.Run(ctx, conf, false)
	if err != nil {
		return err
	}
	orphans := 0
	for _, f := range report.Findings {
		if f.Code == doctor.LeakedBlobs {
			// Bytes of an upload whose API process died before writing the row: no
			// client was told that they were stored, and the doctor finds them.
			f.Examples = slices.DeleteFunc(f.Examples, func(k string) bool { return strings.HasPrefix(k, "originals/") })
			if len(f.Examples) == 0 {
				orphans = f.Count
				continue
			}
		}
		c.violation("doctor: %d × %s: %s", f.Count, f.Code, strings.Join(f.Examples, "; "))
	}
	if orphans > 0 {
		if _, err := doctor.Run(ctx, conf, true); err != nil {
			return err
		}
		if report, err = doctor.Run(ctx, conf, false); err != nil {
			return err
		}
		if n := report.Drift(); n > 0 {
			c.violation("doctor: %d disagreements are left after a repair", n)
		}
	}
	// Nothing remains of deleted documents, once both passes over them are due; the
	// second comes minutes later, and only the first is awaited.
	for _, d := range c.l.docs {
		if !d.gone {
			continue
		}
		var pending int
		if err := c.e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM garbage WHERE doc_id=? AND blob_prefix<>''", d.id).Scan(&pending); err != nil {
			return err
		}
		left := 0
		for _, prefix := range []string{sheaf.OriginalPrefix(d.tenant, d.id), sheaf.ArtifactPrefix(d.tenant, d.id)} {
			err := blobs.List(ctx, prefix, func(blob.Info) bool { left++; return true })
			if err != nil && !errors.Is(err, sheaf.ErrNotFound) {
				return err
			}
		}
		if left > 0 && pending == 0 {
			c.violation("document %s was deleted, and %d objects of it are left", d.id, left)
		}
	}
	return nil
}
