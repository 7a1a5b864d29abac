package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

const servicesScript = "scripts/services.sh"

// engine starts the servers a fleet depends on, unless already running, and returns
// the variables printed by the script. They belong to this run alone: other users
// and settings of a shared server would be measured too. MariaDB flushes each
// commit and Elasticsearch compiles with its defaults, as they must where the data
// matters.
func (b *bench) engine(ctx context.Context, names ...string) (map[string]string, error) {
	if b.engines == "" {
		dir, err := os.MkdirTemp("", "sheaf-bench-engines-")
		if err != nil {
			return nil, err
		}
		b.engines = dir
		if err := os.Chmod(dir, 0o755); err != nil { // as root the servers run as their own user
			return nil, err
		}
	}
	if _, err := os.Stat(servicesScript); err != nil {
		return nil, fmt.Errorf("%s starts the engines; run the benchmarks from the root of the repository", servicesScript)
	}
	cmd := exec.CommandContext(ctx, servicesScript, append([]string{"up", b.engines}, names...)...)
	cmd.Env = append(os.Environ(), "SHEAF_DURABLE=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", strings.Join(names, ", "), err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			vars[k] = strings.Trim(v, "'")
		}
	}
	return vars, nil
}

// stopEngines stops what engine has started and removes its data.
func (b *bench) stopEngines() {
	if b.engines == "" {
		return
	}
	if out, err := exec.Command(servicesScript, "down", b.engines).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "the engines in %s may still run: %v: %s\n", b.engines, err, out)
		return
	}
	_ = os.RemoveAll(b.engines)
}

// newDatabase creates an empty database and returns its DSN and its name, unique in
// this run.
func newDatabase(ctx context.Context, vars map[string]string) (dsn, name string, err error) {
	cfg, err := mysqldriver.ParseDSN(vars["SHEAF_TEST_MYSQL_DSN"])
	if err != nil {
		return "", "", err
	}
	admin, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return "", "", err
	}
	defer admin.Close()
	name = "bench" + sheaf.NewID()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", "", err
	}
	cfg.DBName = name
	return cfg.FormatDSN(), name, nil
}

// bareFleet returns the parts of a fleet: its own database and Redis prefix.
func (b *bench) bareFleet(ctx context.Context) (*bare, error) {
	vars, err := b.engine(ctx, "mysql", "redis")
	if err != nil {
		return nil, err
	}
	dsn, name, err := newDatabase(ctx, vars)
	if err != nil {
		return nil, err
	}
	store, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "mysql", DSN: dsn, MaxOpenConns: 24})
	if err != nil {
		return nil, err
	}
	redis := redisstream.Config{Redis: redisstream.RedisOptions{Addrs: []string{vars["SHEAF_TEST_REDIS_ADDR"]}}, Prefix: name}
	q, err := redisstream.New(redis)
	if err == nil {
		err = store.Migrate(ctx)
	}
	if err != nil {
		_ = store.Close()
		return nil, err
	}
	return &bare{store: store, queue: q, feeds: true, workers: 16, dsn: dsn, redis: redis}, nil
}

// fleetCycles measures claims and completions of no-op tasks on MySQL and Redis,
// and their machine cost; then their whole path.
func (b *bench) fleetCycles(ctx context.Context) error {
	of := func(work func(p *bare) (spent, error)) (s spent, cpu float64, shares string, err error) {
		p, err := b.bareFleet(ctx)
		if err != nil {
			return s, 0, "", err
		}
		defer p.close()
		p.pids = []int{b.enginePID("mysql"), b.enginePID("redis")}
		if s, err = work(p); err != nil {
			return s, 0, "", err
		}
		own, mysql, redis := s.each(s.cpu), s.each(s.engines[0]), s.each(s.engines[1])
		return s, own + mysql + redis, fmt.Sprintf("executor and keeper %.2f, MySQL %.2f, Redis %.2f", own, mysql, redis), nil
	}
	s, cpu, shares, err := of(func(p *bare) (spent, error) { return p.claims(ctx, 4, 20, 1000) })
	if err != nil {
		return err
	}
	rate := s.rate()
	b.atLeast("fleet.cycles", rate, "tasks/s", 2000, fmt.Sprintf("%d no-op tasks of 4 tenants from hinted to done on MySQL and Redis, 16 workers with the default batch, load %s", s.tasks, load()))
	b.tell("fleet.cycles.cpu", cpu, "CPU-ms/task", shares)
	if s, cpu, shares, err = of(func(p *bare) (spent, error) { p.batch = 1; return p.claims(ctx, 4, 10, 1000) }); err != nil {
		return err
	}
	b.tell("fleet.cycles.batch1", s.rate(), "tasks/s", fmt.Sprintf("the same with executor.batch = 1, where no task is claimed before a worker is free; %.2f CPU-ms: %s", cpu, shares))
	if s, cpu, shares, err = of(func(p *bare) (spent, error) { return p.textbook(ctx, 10_000) }); err != nil {
		return err
	}
	b.tell("fleet.cycles.ratio", rate/s.rate(), "× plain SQL", fmt.Sprintf("a guarded UPDATE for each claim, and a guarded UPDATE with an event for each end, task by task on 16 connections to the same MySQL: %.0f tasks/s, %.2f CPU-ms: %s",
		s.rate(), cpu, shares))
	if s, cpu, shares, err = of(func(p *bare) (spent, error) { return p.cycles(ctx, 4, 20, 500) }); err != nil {
		return err
	}
	b.tell("fleet.cycles.whole", s.rate(), "tasks/s", fmt.Sprintf("%d tasks from queued to published: planned, claimed, completed, folded, published", s.tasks))
	b.tell("fleet.cycles.whole.cpu", cpu, "CPU-ms/task", shares)
	return nil
}

// textbook claims and completes tasks with the plain statements of a queue in a
// table: no Redis, no batches, no fault detection. It is what the machine and its
// MySQL can do for a queue written in a day.
func (p *bare) textbook(ctx context.Context, n int) (spent, error) {
	if err := p.tenant(ctx, "t", 1, 1000); err != nil {
		return spent{}, err
	}
	for range n / 1000 {
		if err := p.planned(ctx, "t", 1000); err != nil {
			return spent{}, err
		}
	}
	slice, err := p.store.Feedable(ctx, "", n, time.Hour)
	hints := slice.Hints
	if err != nil || len(hints) != n {
		return spent{}, fmt.Errorf("%d of %d tasks can be claimed: %w", len(hints), n, err)
	}
	db, err := sql.Open("mysql", p.dsn)
	if err != nil {
		return spent{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(p.workers)
	db.SetMaxIdleConns(p.workers)
	one := func(r sql.Result, err error) error {
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows instead of one: %w", n, err)
		}
		return nil
	}
	cycle := func(h sheaf.Hint) error {
		now := time.Now().UnixMilli()
		if err := one(db.ExecContext(ctx, `UPDATE tasks SET state='running', epoch=epoch+1, attempts=attempts+1, worker_id='bench', started_at=?, lease_until=?
			WHERE id=? AND state='pending' AND run_at<=? AND paused=0`, now, now+60_000, h.TaskID, now)); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		err = one(tx.ExecContext(ctx, `UPDATE tasks SET state='done', done_epoch=epoch, lease_until=0, finished_at=?, range_id=? WHERE id=? AND state='running' AND epoch=1`, now, h.TaskID, h.TaskID))
		if err == nil {
			err = one(tx.ExecContext(ctx, `INSERT INTO events (tenant_id, task_id, subject_id, epoch, kind, at) VALUES ('t', ?, ?, 1, 'done', ?)`, h.TaskID, h.TaskID, now))
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(p.workers)
	count := p.counter(n)
	for _, h := range hints {
		all.Go(func() error { return cycle(h) })
	}
	err = all.Wait()
	return count(), err
}

// enginePID returns the process id of a running engine.
func (b *bench) enginePID(name string) (pid int) {
	text, err := os.ReadFile(filepath.Join(b.engines, name, "pid"))
	if err == nil {
		_, _ = fmt.Sscan(string(text), &pid) // 0, which has no CPU time, if there is none
	}
	return pid
}

// queueLatency measures the time from a hint's publication to the won claim on an
// otherwise idle fleet.
func (b *bench) queueLatency(ctx context.Context) error {
	waits, err := b.claimWaits(ctx)
	if err != nil {
		return err
	}
	note := fmt.Sprintf("publication to won claim, %d tasks one by one, load %s", len(waits), load())
	b.atMost("queue.latency.p50", quantile(waits, 0.5).Seconds()*1e3, "ms", 20, note)
	b.atMost("queue.latency.p99", quantile(waits, 0.99).Seconds()*1e3, "ms", 200, "")
	return nil
}

// claimWaits returns the times from publication to won claim of tasks that come one
// by one.
func (b *bench) claimWaits(ctx context.Context) (waits []time.Duration, err error) {
	p, err := b.bareFleet(ctx)
	if err != nil {
		return nil, err
	}
	defer p.close()
	const rounds = 200
	if err := p.tenant(ctx, "t", 1, 8); err != nil {
		return nil, err
	}
	if err := p.planned(ctx, "t", rounds); err != nil {
		return nil, err
	}
	slice, err := p.store.Feedable(ctx, "", rounds, time.Hour)
	if err != nil {
		return nil, err
	}
	claimed := make(chan time.Time, 1)
	p.parse = func(context.Context, *sheaf.Task) { claimed <- time.Now() }
	defer p.run(ctx, false)()
	for _, h := range slice.Hints {
		time.Sleep(15 * time.Millisecond) // the executor is idle and listening again
		begun := time.Now()
		if n, err := p.queue.Publish(ctx, h.TenantID, h.Lane, []sheaf.Hint{h}); err != nil || n != 1 {
			return nil, fmt.Errorf("publishing: %d taken in, %w", n, err)
		}
		select {
		case at := <-claimed:
			waits = append(waits, at.Sub(begun))
		case <-time.After(20 * time.Second):
			return nil, errors.New("a published task was not claimed within 20 s")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return waits, nil
}

// fleetPages sends the documents of endToEnd through a fleet and through the
// embedded default, alternating, and compares the pages per second that each makes
// searchable. The fleet is three processes and four engines on the same machine
// that the default has to itself.
func (b *bench) fleetPages(ctx context.Context) error {
	set, err := b.wholeSet(ctx)
	if err != nil {
		return err
	}
	var ratios, rates, owns []float64
	var note string
	costs := map[string][]float64{} // CPU-ms per page, by part of the fleet
	if err := b.settle(ctx, set); err != nil {
		return err
	}
	for round := range e2eRounds {
		var own, fleet way
		err := b.served(ctx, fmt.Sprintf("own%d", round), func(s *server) error {
			own, err = b.wholeWay(ctx, s, set)
			return err
		})
		if err != nil {
			return err
		}
		if err := b.servedByFleet(ctx, fmt.Sprintf("fleet%d", round), func(s *server, parts map[string]int) error {
			before := map[string]time.Duration{}
			for name, pid := range parts {
				before[name] = cpuTime(pid)
			}
			if fleet, err = b.wholeWay(ctx, s, set); err != nil {
				return err
			}
			for name, pid := range parts {
				costs[name] = append(costs[name], (cpuTime(pid)-before[name]).Seconds()*1e3/float64(fleet.pages))
			}
			return nil
		}); err != nil {
			return err
		}
		if fleet.pages != own.pages {
			return fmt.Errorf("the fleet made %d pages searchable and the embedded default %d of the same files", fleet.pages, own.pages)
		}
		rates = append(rates, fleet.rate())
		ratios = append(ratios, fleet.rate()/own.rate())
		owns = append(owns, own.cpu.Seconds()*1e3/float64(own.pages))
		note = fleet.note
	}
	var sum float64
	var shares []string
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		sum += median(costs[name])
		shares = append(shares, fmt.Sprintf("%s %.2f", name, costs[name]))
	}
	b.atLeast("fleet.pages", median(ratios), "× pages/s of the embedded default", 0.8, fmt.Sprintf("rounds %.2f, load %s", ratios, load()))
	b.tell("fleet.pages.rate", median(rates), "pages/s", "MySQL, Redis, MinIO and Elasticsearch; "+note)
	b.tell("fleet.pages.cpu", sum, "CPU-ms/page", fmt.Sprintf("by round: %s; the embedded default %.2f", strings.Join(shares, ", "), owns))
	return nil
}

// engineBounds are the maximum CPU-ms per page of each part of a fleet.
var engineBounds = []struct {
	row   string
	parts []string
	most  float64
}{
	{"es", []string{"es"}, 0.6},
	{"mysql", []string{"mysql"}, 0.4},
	{"minio", []string{"minio"}, 0.3},
	{"redis", []string{"redis"}, 0.05},
	{"serve.keeper", []string{"serve", "keeper"}, 0.15},
}

// fleetEngines measures the cost of a page of the realistic documents in each part
// of a fleet that has been up for a while.
func (b *bench) fleetEngines(ctx context.Context) error {
	set, err := b.wholeSet(ctx)
	if err != nil {
		return err
	}
	costs := map[string]float64{}
	var total way
	if err := b.settle(ctx, set); err != nil {
		return err
	}
	const rounds = 2
	for round := range rounds {
		err := b.servedByFleet(ctx, fmt.Sprintf("engines%d", round), func(s *server, parts map[string]int) error {
			before, compiled := map[string]time.Duration{}, compileTime(parts["es"])
			for name, pid := range parts {
				before[name] = cpuTime(pid)
			}
			r, err := b.wholeWay(ctx, s, set)
			if err != nil {
				return err
			}
			total.pages, total.wall, total.note = total.pages+r.pages, total.wall+r.wall, r.note
			for name, pid := range parts {
				costs[name] += (cpuTime(pid) - before[name]).Seconds() * 1e3
			}
			compiling := (compileTime(parts["es"]) - compiled).Seconds() * 1e3
			costs["es"] -= compiling
			costs["compiling"] += compiling
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, e := range engineBounds {
		sum := 0.0
		for _, part := range e.parts {
			sum += costs[part]
		}
		b.atMost("fleet.engines."+e.row, sum/float64(total.pages), "CPU-ms/page", e.most, "")
	}
	b.tell("fleet.engines.es.compiling", costs["compiling"]/float64(total.pages), "CPU-ms/page", "of its Java, beside the row above")
	b.tell("fleet.engines.executor", costs["executor"]/float64(total.pages), "CPU-ms/page", fmt.Sprintf("%d rounds, %.0f pages/s; %s; load %s", rounds, total.rate(), total.note, load()))
	return nil
}

// servedByFleet runs f against a fresh fleet with one process per role and discards
// it. f receives the processes of all roles and engines; settings extend their
// environment.
func (b *bench) servedByFleet(ctx context.Context, name string, f func(s *server, parts map[string]int) error, settings ...string) error {
	return b.servedByExecutors(ctx, name, 1, f, settings...)
}

// servedByExecutors is servedByFleet with several executors, of which parts names
// the last.
func (b *bench) servedByExecutors(ctx context.Context, name string, executors int, f func(s *server, parts map[string]int) error, settings ...string) (err error) {
	vars, err := b.engine(ctx, "mysql", "redis", "minio", "es")
	if err != nil {
		return err
	}
	dsn, own, err := newDatabase(ctx, vars)
	if err != nil {
		return err
	}
	env := []string{
		"SHEAF_STORE_DRIVER=mysql", "SHEAF_STORE_DSN=" + dsn, "SHEAF_STORE_SECRETS_KEY=" + secrets.Generate(),
		"SHEAF_QUEUE_DRIVER=redis", "SHEAF_QUEUE_ADDRS=" + vars["SHEAF_TEST_REDIS_ADDR"], "SHEAF_QUEUE_PREFIX=" + own + ":",
		"SHEAF_BLOB_DRIVER=s3", "SHEAF_BLOB_ENDPOINT=" + vars["SHEAF_TEST_S3_ENDPOINT"], "SHEAF_BLOB_BUCKET=" + own,
		"SHEAF_BLOB_ACCESS_KEY=" + vars["SHEAF_TEST_S3_ACCESS_KEY"], "SHEAF_BLOB_SECRET_KEY=" + vars["SHEAF_TEST_S3_SECRET_KEY"],
		"SHEAF_INDEX_DRIVER=elasticsearch", "SHEAF_INDEX_ADDRS=" + vars["SHEAF_TEST_ES_URL"], "SHEAF_INDEX_PREFIX=" + own,
	}
	env = append(env, settings...)
	parts := map[string]int{}
	for _, engine := range []string{"mysql", "redis", "minio", "es"} {
		parts[engine] = b.enginePID(engine)
	}
	var all []*server
	defer func() {
		for _, s := range all {
			s.discard()
		}
		err = errors.Join(err, dropIndexes(context.WithoutCancel(ctx), vars["SHEAF_TEST_ES_URL"], own))
	}()
	for i, role := range append([]string{"serve", "keeper"}, slices.Repeat([]string{"executor"}, executors)...) {
		s, err := b.spawn(filepath.Join(b.tmp, fmt.Sprintf("%s-%s%d", name, role, i)), env, role)
		if err != nil {
			return err
		}
		all, parts[role] = append(all, s), s.pid()
		if role == "serve" {
			if err := s.listening(ctx); err != nil { // the schema exists for the others
				return err
			}
		}
	}
	if err := all[0].atWork(ctx, executors); err != nil {
		return err
	}
	all[0].dsn = dsn
	return f(all[0], parts)
}

// atWork waits until that many executors of the fleet have registered.
func (s *server) atWork(ctx context.Context, executors int) error {
	deadline := time.After(time.Minute)
	for {
		var list struct {
			Items []taskstore.WorkerStatus `json:"items"`
		}
		if err := s.call(ctx, http.MethodGet, "/v1/executors", nil, &list); err != nil {
			return err
		}
		if len(list.Items) >= executors {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("%d executors showed themselves within a minute, not %d", len(list.Items), executors)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
