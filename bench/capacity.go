package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	pdfcpu "github.com/pdfcpu/pdfcpu/pkg/api"
	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/capacity"
	"sheaf/internal/keeper"
	"sheaf/internal/queue/redisstream"
	"sheaf/internal/worker"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// Durations of the tasks in a measured fleet, which only sleep: so four executors
// fit on two cores, and the comparison is with the model of feed, queue and slots.
const (
	capacitySlots = 6
	capacityTask  = 200 * time.Millisecond // a plan, an end, and a range excluding its wait
	capacityWait  = 50 * time.Millisecond  // of a range
	capacityWarm  = 5 * time.Second
	capacityRun   = 20 * time.Second // including the warm-up
)

// capacityModel returns the input of `sheaf plan` for such a fleet.
func capacityModel(executors, tenants int, latency float64, uploads []capacity.Upload) (capacity.Config, error) {
	c := capacity.Defaults()
	c.Executors, c.Slots, c.Cores, c.Tenants, c.Database = executors, capacitySlots, capacitySlots, tenants, 2
	c.Batch, c.Warm, c.Until = uploads, capacityWarm.Seconds(), capacityRun.Seconds()
	c.Times = capacity.DefaultTimes()
	text, err := json.Marshal(map[string]float64{
		"executor.task": ms(capacityTask), "executor.wait": ms(capacityWait), "executor.page": 0, "executor.document": 0, "queue.latency": latency,
		"serve.document": 0, "serve.page": 0, "keeper.document": 0, "keeper.page": 0, "database.document": 0, "database.page": 0, "database.task": .42, // fleet.cycles.whole.cpu
		"store.document": 0, "store.page": 0, "index.page": 0, "index.gather": 0, "index.refresh": 0,
	})
	if err != nil {
		return c, err
	}
	return c, c.Times.Read(text)
}

// capacity compares the model's predictions with real fleets on MariaDB and Redis:
// 1, 2 and 4 executors with a backlog of 1, 100 and 10,000 tenants, and one that
// keeps up.
func (b *bench) capacity(ctx context.Context) error {
	waits, err := b.claimWaits(ctx)
	if err != nil {
		return err
	}
	latency := 0.0
	for _, w := range waits {
		latency += ms(w) / float64(len(waits))
	}
	for _, tenants := range []int{1, 100, 10_000} {
		if err := b.capacityOf(ctx, tenants, latency); err != nil {
			return err
		}
	}
	return b.capacityWaits(ctx, latency)
}

// capacityOf is capacity for fleets with a backlog of that many tenants.
func (b *bench) capacityOf(ctx context.Context, tenants int, latency float64) error {
	uploads := capacityBacklog(tenants)
	p, err := b.capacityFleet(ctx, tenants, uploads)
	if err != nil {
		return err
	}
	defer p.close()
	for _, executors := range []int{4, 2, 1} { // sharing one backlog, which outlasts them
		seen, err := p.seen(ctx, executors, nil)
		if err != nil {
			return err
		}
		c, err := capacityModel(executors, tenants, latency, uploads)
		if err != nil {
			return err
		}
		r, err := capacity.Predict(c)
		if err != nil {
			return err
		}
		if executors == 4 { // the first, before anything is fed
			b.tell(fmt.Sprintf("capacity.fleet.feed.%d", tenants), ms(seen.feed), "ms", fmt.Sprintf("the longest look of the keeper at %d documents of %d tenants; predicted %.0f", len(uploads), tenants, 1e3*r.Feed))
		}
		name := fmt.Sprintf("capacity.fleet.%d.%d", executors, tenants)
		b.between(name+".tasks", r.Tasks/seen.tasks, fmt.Sprintf("tasks/s of %d executors and %d tenants: predicted %.1f, measured %.1f; load %s", executors, tenants, r.Tasks, seen.tasks, load()))
		if seen.documents == 0 {
			continue // all begin at first, and none ends in time
		}
		// These are few, and end in bursts if tenants run in step.
		b.tell(name+".documents", r.Docs/seen.documents, "predicted ÷ measured", fmt.Sprintf("documents/s: predicted %.2f, measured %.2f", r.Docs, seen.documents))
	}
	if tenants == 100 {
		return b.rowSizes(ctx, p)
	}
	return nil
}

// between adds the ratio of predicted to measured.
func (b *bench) between(name string, ratio float64, note string) {
	holds := ratio >= .8 && ratio <= 1.2
	b.rows = append(b.rows, row{Name: name, Value: ratio, Unit: "predicted ÷ measured", Bound: ".8 to 1.2", Holds: &holds, Note: note})
}

// capacityBacklog has more documents than four executors finish in the time.
func capacityBacklog(tenants int) (uploads []capacity.Upload) {
	random := rand.New(rand.NewPCG(1, uint64(tenants)))
	for i := range max(tenants, 2500) {
		uploads = append(uploads, capacity.Upload{Tenant: i % tenants, Pages: 12 * (1 + random.IntN(4))})
	}
	return uploads
}

// capacityFleet returns the parts of a fleet with waiting documents.
func (b *bench) capacityFleet(ctx context.Context, tenants int, uploads []capacity.Upload) (*bare, error) {
	p, err := b.bareFleet(ctx)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(12)
	for i := range tenants {
		g.Go(func() error { return p.tenant(gctx, capacityTenant(i), 1, 8) })
	}
	if err = g.Wait(); err == nil {
		g, gctx = errgroup.WithContext(ctx)
		g.SetLimit(12)
		for _, u := range uploads {
			g.Go(func() error {
				_, err := p.document(gctx, capacityTenant(u.Tenant), u.Pages/12)
				return err
			})
		}
		err = g.Wait()
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func capacityTenant(i int) string { return fmt.Sprintf("t%05d", i) }

// capacitySeen is what a fleet did between the warm-up and the end.
type capacitySeen struct {
	tasks, documents float64 // per second
	claimed, found   []time.Duration
	feed             time.Duration // the keeper's longest query for what to feed
}

// seen runs executors and a keeper for a while. Documents in arrive are uploaded at
// their times.
func (p *bare) seen(ctx context.Context, executors int, arrive []capacity.Upload) (out capacitySeen, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	var counts atomic.Bool
	var tasks, documents int
	created := map[string]time.Time{}
	processor := func(kind sheaf.TaskKind) worker.Processor {
		return processor(func(ctx context.Context, t *sheaf.Task) (done taskstore.Completion, err error) {
			if counts.Load() {
				mu.Lock()
				tasks++
				out.claimed = append(out.claimed, t.StartedAt.Sub(t.RunAt))
				mu.Unlock()
			}
			wait := capacityTask
			if kind == sheaf.KindParse {
				wait += capacityWait
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return done, ctx.Err()
			}
			switch kind {
			case sheaf.KindPlan:
				done, err = split(ctx, t)
				for i := range done.Spawn {
					done.Spawn[i].Cost = 12
				}
			case sheaf.KindParse:
				id := sheaf.RangeID(t.ID, t.Epoch)
				done.Result = sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(t.TenantID, t.DocumentID, id), Chunks: 1, Tokens: 100,
					Ledger: sheaf.Ledger{{From: t.Range.From, To: t.Range.To, Status: sheaf.UnitOK}}, Usage: sheaf.Usage{Pages: 1, Tokens: 100, EmbeddedTokens: 100}}
			case sheaf.KindFinalize:
				done.Publish = &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 1, Tokens: 100, Ledger: sheaf.LedgerCounts{OK: 1}}
				mu.Lock()
				if counts.Load() {
					documents++
					if at, ok := created[t.JobID]; ok {
						out.found = append(out.found, time.Since(at))
					}
				}
				mu.Unlock()
			}
			return done, err
		})
	}
	k := keeper.New(keeper.Config{Store: p.store, Queue: p.queue, Feeds: true, Ran: func(loop string, took time.Duration) {
		if loop == "feed" {
			mu.Lock()
			defer mu.Unlock()
			out.feed = max(out.feed, took)
		}
	}})
	all.Go(func() { _ = k.Run(ctx) }) // ends with ctx
	defer all.Wait()
	defer stop()
	for range executors {
		// As in a separate process, with its own connections and queue.
		store, err := sqlstore.Open(ctx, sqlstore.Config{Driver: "mysql", DSN: p.dsn, MaxOpenConns: 8})
		if err != nil {
			return out, err
		}
		q, err := redisstream.New(p.redis)
		if err != nil {
			return out, errors.Join(err, store.Close())
		}
		e := worker.New(worker.Config{Store: store, Queue: q, Workers: capacitySlots, Changed: func(bool) { k.Notify() }, Processors: map[sheaf.TaskKind]worker.Processor{
			sheaf.KindPlan: processor(sheaf.KindPlan), sheaf.KindParse: processor(sheaf.KindParse), sheaf.KindFinalize: processor(sheaf.KindFinalize)}})
		all.Go(func() { _ = errors.Join(e.Run(ctx, nil), q.Close(), store.Close()) }) // ends with ctx
	}
	begun := time.Now()
	sleep := func(until time.Duration) error {
		select {
		case <-time.After(time.Until(begun.Add(until))):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	uploads, uctx := errgroup.WithContext(ctx)
	uploads.Go(func() error {
		for _, u := range arrive {
			if err := sleep(time.Duration(u.At * float64(time.Second))); err != nil {
				return err
			}
			uploads.Go(func() error {
				at := time.Now()
				job, err := p.uploaded(uctx, capacityTenant(u.Tenant), u.Pages/12)
				mu.Lock()
				created[job] = at
				mu.Unlock()
				k.Notify()
				return err
			})
		}
		return nil
	})
	warm, run := capacityWarm, capacityRun
	if len(arrive) > 0 {
		run = time.Duration(arrive[len(arrive)-1].At * float64(time.Second))
	}
	if err := sleep(warm); err != nil {
		return out, err
	}
	counts.Store(true)
	if err := sleep(run); err != nil {
		return out, err
	}
	counts.Store(false)
	if err := uploads.Wait(); err != nil {
		return out, err
	}
	mu.Lock()
	defer mu.Unlock()
	seconds := (run - warm).Seconds()
	out.tasks, out.documents = float64(tasks)/seconds, float64(documents)/seconds
	return out, nil
}

// uploaded creates a document and returns its job.
func (p *bare) uploaded(ctx context.Context, tenant string, n int) (job string, err error) {
	id, job := sheaf.NewID(), sheaf.NewID()
	_, err = p.store.CreateDocuments(ctx, sheaf.Job{ID: job, TenantID: tenant, DatasetID: "ds-" + tenant, Kind: sheaf.JobIngest}, []taskstore.NewDocument{{
		Document: sheaf.Document{ID: id, Name: id + ".pdf", MediaType: pdfType, Size: 1, SHA256: id + id, BlobKey: "originals/" + id},
		Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: json.RawMessage(fmt.Sprint(n))},
	}}, "")
	return job, err
}

// capacityWaits compares how long randomly arriving documents take on two executors
// that are busy two thirds of the time.
func (b *bench) capacityWaits(ctx context.Context, latency float64) error {
	const executors, tenants, seconds = 2, 100, 40
	random := rand.New(rand.NewPCG(2, 2))
	// 2.5 ranges on average, a plan and an end.
	each := 4.5*capacityTask.Seconds() + 2.5*capacityWait.Seconds()
	rate := .65 * executors * capacitySlots / each
	var uploads []capacity.Upload
	for at := random.ExpFloat64() / rate; at < seconds; at += random.ExpFloat64() / rate {
		// Three in four belong to few tenants.
		tenant := int(float64(tenants) * math.Pow(random.Float64(), 4))
		uploads = append(uploads, capacity.Upload{Tenant: tenant, Pages: 12 * (1 + random.IntN(4)), At: at})
	}
	p, err := b.capacityFleet(ctx, tenants, nil)
	if err != nil {
		return err
	}
	defer p.close()
	seen, err := p.seen(ctx, executors, uploads)
	if err != nil {
		return err
	}
	c, err := capacityModel(executors, tenants, latency, uploads)
	if err != nil {
		return err
	}
	c.Until = uploads[len(uploads)-1].At
	r, err := capacity.Predict(c)
	if err != nil {
		return err
	}
	normal, measured := r.Lanes[sheaf.LaneNormal-1], quantile(seen.found, .5).Seconds()
	b.between("capacity.wait.searchable", normal.Searchable.P50/measured, fmt.Sprintf("s from upload to searchable, p50 of %d documents of %d tenants that arrive at %d executors: predicted %.2f, measured %.2f; p99 %.2f and %.2f; tasks from due to claimed p50 %.0f and %.0f ms; load %s",
		len(seen.found), tenants, executors, normal.Searchable.P50, measured, normal.Searchable.P99, quantile(seen.found, .99).Seconds(), 1e3*normal.Claimed.P50, ms(quantile(seen.claimed, .5)), load()))
	return nil
}

// rowSizes reports the size of a row on MariaDB, including its share of the indexes.
func (b *bench) rowSizes(ctx context.Context, p *bare) error {
	db, err := sql.Open("mysql", p.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, table := range []string{"documents", "tasks", "events"} {
		if _, err := db.ExecContext(ctx, "ANALYZE TABLE "+table); err != nil {
			return err
		}
		var rows, bytes float64
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(&rows); err != nil {
			return err
		}
		if err := db.QueryRowContext(ctx, "SELECT data_length+index_length FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name=?", table).Scan(&bytes); err != nil {
			return err
		}
		b.tell("capacity.row."+table, bytes/max(rows, 1), "bytes", fmt.Sprintf("a row with its indexes on MariaDB, of %.0f", rows))
	}
	var events, tasks float64
	for table, n := range map[string]*float64{"events": &events, "tasks": &tasks} {
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE doc_id IN (SELECT id FROM documents WHERE live_gen>0)").Scan(n); err != nil {
			return err
		}
	}
	b.tell("capacity.row.each", events/max(tasks, 1), "events/task", "of documents that are searchable")
	return nil
}

// capacityDocuments measures the cost of a document in each part of a fleet beyond
// its pages, from documents of one page and of many, minus the idle cost; and the
// cost of a page of realistic documents.
func (b *bench) capacityDocuments(ctx context.Context) error {
	if b.corpus == "" {
		leftOut("capacity.document, capacity.page", "no corpus")
		return nil
	}
	const single, idle = 200, 10 * time.Second
	long, err := b.manual("long.pdf", false, "1-900")
	if err != nil {
		return err
	}
	some, err := b.manual("ones.pdf", false, fmt.Sprintf("1001-%d", 1000+single))
	if err != nil {
		return err
	}
	var ones, real []file
	for i := range single {
		path := filepath.Join(b.tmp, fmt.Sprintf("one%d.pdf", i))
		if err := pdfcpu.CollectFile(some, path, []string{fmt.Sprint(1 + i)}, nil); err != nil {
			return err
		}
		ones = append(ones, onDisk(path))
	}
	set, err := b.pdfs(ctx, "pdf", realisticPages, realistic...)
	if err != nil {
		return err
	}
	for _, f := range set {
		if f.pages < realisticPages { // a longer file is not read whole
			real = append(real, onDisk(f.path))
		}
	}
	return b.servedByFleet(ctx, "documents", func(s *server, parts map[string]int) error {
		if err := s.warm(ctx, b.corpus); err != nil {
			return err
		}
		db, err := sql.Open("mysql", s.dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		type sums struct {
			at                             time.Time
			costs                          map[string]float64 // CPU-ms
			documents, pages, chunks, size float64
		}
		read := func() (r sums, err error) {
			r.at, r.costs = time.Now(), map[string]float64{}
			for name, pid := range parts {
				r.costs[name] = ms(cpuTime(pid))
			}
			return r, db.QueryRowContext(ctx, "SELECT COUNT(*), SUM(units), SUM(chunk_count), SUM(size) FROM documents WHERE live_gen>0").Scan(&r.documents, &r.pages, &r.chunks, &r.size)
		}
		round := func(work func() error) (of sums, seconds float64, err error) {
			before, err := read()
			if err == nil {
				err = work()
			}
			if err != nil {
				return of, 0, err
			}
			if of, err = read(); err != nil {
				return of, 0, err
			}
			for name := range parts {
				of.costs[name] -= before.costs[name]
			}
			of.documents, of.pages, of.chunks, of.size = of.documents-before.documents, of.pages-before.pages, of.chunks-before.chunks, of.size-before.size
			return of, of.at.Sub(before.at).Seconds(), nil
		}
		upload := func(files ...file) func() error {
			return func() error {
				job, err := s.upload(ctx, sheaf.ParseConfig{}, files...)
				if err == nil {
					_, err = s.ended(ctx, job.ID)
				}
				return err
			}
		}
		realistic, _, err := round(upload(real...))
		if err != nil {
			return err
		}
		var rounds [3]sums
		var took [3]float64
		for i, work := range []func() error{func() error {
			select {
			case <-time.After(idle):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, upload(onDisk(long)), upload(ones...)} {
			if rounds[i], took[i], err = round(work); err != nil {
				return err
			}
		}
		note := fmt.Sprintf("beside its pages, from %.0f of one page and one of %.0f; load %s; ", rounds[2].documents, rounds[1].pages, load())
		for _, name := range []string{"executor", "serve", "keeper", "mysql", "minio", "redis"} {
			idle := rounds[0].costs[name] / took[0] // per second
			many, one := rounds[1].costs[name]-idle*took[1], rounds[2].costs[name]-idle*took[2]
			page := (many - one/rounds[2].documents) / (rounds[1].pages - 1)
			b.tell("capacity.document."+name, one/rounds[2].documents-page, "CPU-ms/document", fmt.Sprintf("%sa second without work %.1f", note, idle))
			b.tell("capacity.page."+name, page, "CPU-ms/page", "")
			note = ""
		}
		b.tell("capacity.page.chunks", realistic.chunks/realistic.pages, "chunks/page", fmt.Sprintf("of %.0f realistic documents of %.0f pages together", realistic.documents, realistic.pages))
		b.tell("capacity.page.original", realistic.size/realistic.pages, "bytes/page", "")
		return nil
	})
}
