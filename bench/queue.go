package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

// promotion measures, on each engine, how long after its due time a waiting task is
// queued and claimed, while executors are idle.
func (b *bench) promotion(ctx context.Context) error {
	engines := []struct {
		name string
		open func() (*bare, error)
	}{
		{"sqlite", func() (*bare, error) { return b.embedded(ctx, "promotion") }},
		{"postgres", func() (*bare, error) { return b.onPostgres(ctx) }},
		{"mysql.redis", func() (*bare, error) { return b.bareFleet(ctx) }},
	}
	for _, e := range engines {
		p, err := e.open()
		if err != nil {
			return err
		}
		err = b.promoted(ctx, e.name, p)
		p.close()
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

// onPostgres is the parts of a fleet with its queue in PostgreSQL. It uses the
// engine's initial database, which nothing else in a run uses.
func (b *bench) onPostgres(ctx context.Context) (*bare, error) {
	vars, err := b.engine(ctx, "postgres")
	if err != nil {
		return nil, err
	}
	dsn := vars["SHEAF_TEST_POSTGRES_DSN"]
	store, err := openStore(ctx, sqlstore.Config{Driver: "postgres", DSN: dsn, MaxOpenConns: 24})
	if err != nil {
		return nil, err
	}
	return &bare{store: store, queue: sqlqueue.New(store, sqlqueue.Config{}), workers: 16, dsn: dsn}, nil
}

func (b *bench) promoted(ctx context.Context, name string, p *bare) error {
	const tasks, spread = 200, 10 * time.Second
	if err := p.tenant(ctx, "t", 1, 100); err != nil {
		return err
	}
	var mu sync.Mutex
	var queued, claimed []time.Duration
	over := make(chan struct{})
	p.promoted = func(_ sheaf.Lane, late time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		queued = append(queued, late)
	}
	p.ended = func(t *sheaf.Task) {
		mu.Lock()
		defer mu.Unlock()
		if t.Kind != sheaf.KindPlan {
			return
		}
		if claimed = append(claimed, t.StartedAt.Sub(t.RunAt)); len(claimed) == tasks {
			close(over)
		}
	}
	defer p.run(ctx, true)()
	first := time.Now().Add(5 * time.Second) // by then all have been created
	for i := range tasks {
		if _, err := p.later(ctx, "t", 1, first.Add(time.Duration(i)*spread/tasks)); err != nil {
			return err
		}
	}
	made := time.Until(first)
	select {
	case <-over:
	case <-time.After(time.Minute):
		return errors.New("the tasks were not claimed within a minute")
	case <-ctx.Done():
		return ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(queued) != tasks {
		return fmt.Errorf("%d of %d tasks were promoted", len(queued), tasks)
	}
	b.atMost("promotion."+name, ms(quantile(claimed, 0.99)), "ms, due to claimed, p99", 250,
		fmt.Sprintf("%d tasks whose times are %v apart, made %.1f s before the first; due to claimed p50 %.0f ms, due to queued p50 %.0f, p99 %.0f; load %s",
			tasks, spread/tasks, made.Seconds(), ms(quantile(claimed, 0.5)), ms(quantile(queued, 0.5)), ms(quantile(queued, 0.99)), load()))
	return nil
}

// firstHint measures how long the feeder's first query takes with a large backlog:
// 10,000 tenants with 1,000,000 pending tasks on MariaDB.
func (b *bench) firstHint(ctx context.Context) error {
	const tenants, each = 10_000, 100
	p, err := b.bareFleet(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	begun := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(12)
	for i := range tenants {
		g.Go(func() error {
			id := fmt.Sprintf("t%05d", i)
			if err := p.tenant(gctx, id, 1, 8); err != nil {
				return err
			}
			return p.planned(gctx, id, each)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	filled := time.Since(begun)
	var looks []time.Duration
	hints := 0
	for range 5 {
		begun := time.Now()
		slice, err := p.store.Feedable(ctx, "", 64, time.Hour)
		if err != nil {
			return err
		}
		if len(slice.Hints) == 0 {
			return errors.New("nothing was found to feed")
		}
		looks, hints = append(looks, time.Since(begun)), len(slice.Hints)
	}
	first := looks[0]
	b.atMost("queue.first", first.Seconds()*1e3, "ms", 250, fmt.Sprintf("the first look of a feeder on MariaDB, %d hints, %d tenants with %d pending tasks (made in %.0f s); the median of %d looks %.0f ms; load %s",
		hints, tenants, tenants*each, filled.Seconds(), len(looks), median(looks).Seconds()*1e3, load()))
	return nil
}

// fold measures how fast the rollup updates documents on MariaDB: first those whose
// plans are done, then those all of whose work is done.
func (b *bench) fold(ctx context.Context) error {
	const documents, ranges = 4000, 3
	p, err := b.bareFleet(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.tenant(ctx, "t", 1, 8); err != nil {
		return err
	}
	for range documents / 1000 {
		list := make([]taskstore.NewDocument, 1000)
		for i := range list {
			id := sheaf.NewID()
			list[i] = taskstore.NewDocument{Document: sheaf.Document{ID: id, Name: id + ".pdf", MediaType: pdfType, Size: 1, SHA256: id + id, BlobKey: "originals/" + id},
				Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1}}
		}
		if _, err := p.store.CreateDocuments(ctx, sheaf.Job{ID: sheaf.NewID(), TenantID: "t", DatasetID: "ds-t", Kind: sheaf.JobIngest}, list, ""); err != nil {
			return err
		}
	}
	db, err := sql.Open("mysql", p.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	const mark = "INSERT INTO doc_dirty (doc_id, at) SELECT id, 1 FROM documents ON DUPLICATE KEY UPDATE at=doc_dirty.at+1"
	do := func(statements ...string) error {
		for _, q := range statements {
			if _, err := db.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		return nil
	}
	if err := do("UPDATE tasks SET state='done', attempts=1 WHERE kind='plan'"); err != nil {
		return err
	}
	for r := range ranges {
		if err := do(fmt.Sprintf(`INSERT INTO tasks (id, tenant_id, dataset_id, doc_id, job_id, gen, kind, from_unit, to_unit, state, run_at, created_at)
			SELECT CONCAT(id, '-%[1]d'), tenant_id, dataset_id, id, job_id, gen, 'parse', %[1]d, %[1]d, 'pending', 1, 1 FROM documents`, r+1)); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		row     string
		prepare []string
		state   sheaf.DocumentState
	}{
		{"fold.begun", []string{mark}, sheaf.DocRunning},
		{"fold.complete", []string{"UPDATE tasks SET state='done', attempts=1 WHERE kind='parse'", mark}, sheaf.DocFinalizing},
	} {
		if err := do(append(step.prepare, "ANALYZE TABLE tasks, documents, events, doc_dirty")...); err != nil {
			return err
		}
		p.pids = []int{b.enginePID("mysql")}
		count, changed := p.counter(documents), 0
		for {
			n, _, err := p.store.Fold(ctx, 200, 0)
			if err != nil {
				return err
			}
			if changed += n; n == 0 {
				break
			}
		}
		s := count()
		var there int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM documents WHERE state=?", string(step.state)).Scan(&there); err != nil {
			return err
		}
		if there != documents || changed != documents {
			return fmt.Errorf("%d of %d documents are %s after %d changes", there, documents, step.state, changed)
		}
		b.atLeast(step.row, s.rate(), "documents/s", 1000, fmt.Sprintf("%d documents of %d ranges become %s on MariaDB, one keeper; CPU-ms a document: keeper %.2f, MariaDB %.2f; load %s",
			documents, ranges, step.state, s.each(s.cpu), s.each(s.engines[0]), load()))
	}
	return nil
}

// tinyUploads measures how fast the default accepts files of a few lines sent in
// one request, while working on the previous ones.
func (b *bench) tinyUploads(ctx context.Context) error {
	const files, rounds = 1000, 3
	return b.served(ctx, "tiny", func(s *server) error {
		var rates []float64
		for range rounds {
			var set []file
			for range files {
				set = append(set, b.text(200))
			}
			begun := time.Now()
			job, err := s.upload(ctx, sheaf.ParseConfig{}, set...)
			if err != nil {
				return err
			}
			rates = append(rates, files/time.Since(begun).Seconds())
			if _, err := s.ended(ctx, job.ID); err != nil {
				return err
			}
		}
		b.atLeast("upload.tiny", median(rates), "files/s", 300, fmt.Sprintf("%d text files of 200 bytes in one request on the default, until the answer; rounds %.0f; load %s", files, rates, load()))
		return nil
	})
}

// note is a Markdown file of about 1,000 bytes: a title and paragraphs of its own.
func (b *bench) note() file {
	b.texts++
	r := rand.New(rand.NewPCG(7, uint64(b.texts)))
	var text strings.Builder
	fmt.Fprintf(&text, "# Note %d\n", b.texts)
	for text.Len() < 1000 {
		text.WriteString("\n")
		for range 40 {
			fmt.Fprintf(&text, "%s%s ", syllables[r.IntN(len(syllables))], syllables[r.IntN(len(syllables))])
		}
		text.WriteString("\n")
	}
	return file{name: fmt.Sprintf("note%d.md", b.texts), open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text.String()[:1000])), nil
	}}
}

// notes measures how fast the default makes small files searchable: one job, from
// the first byte of the upload until every note is published, with vectors.
func (b *bench) notes(ctx context.Context) error {
	const files, rounds = 1000, 3
	return b.served(ctx, "notes", func(s *server) error {
		var rates, costs []float64
		for range rounds {
			var set []file
			for range files {
				set = append(set, b.note())
			}
			cpu, begun := cpuTime(s.pid()), time.Now()
			job, err := s.upload(ctx, sheaf.ParseConfig{}, set...)
			if err != nil {
				return err
			}
			if job, err = s.ended(ctx, job.ID); err != nil {
				return err
			}
			if job.Documents.ByState[sheaf.DocSucceeded] != files {
				return fmt.Errorf("%d of %d notes are searchable: %v", job.Documents.ByState[sheaf.DocSucceeded], files, job.Documents.ByState)
			}
			rates = append(rates, files/time.Since(begun).Seconds())
			costs = append(costs, 1e3*(cpuTime(s.pid())-cpu).Seconds()/files)
		}
		b.atLeast("notes.rate", median(rates), "files/s", 500, fmt.Sprintf("%d Markdown files of 1,000 bytes in one job on the default, until all are searchable; rounds %.0f; load %s", files, rates, load()))
		b.tell("notes.cpu", median(costs), "CPU-ms/file", fmt.Sprintf("of the service and what it starts; rounds %.1f", costs))
		return nil
	})
}
