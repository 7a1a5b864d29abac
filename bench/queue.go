package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/taskstore/sqlstore"
)

// promotion measures, on each engine, how long after its time a task that waits
// for one is queued and claimed, while executors are idle.
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

// onPostgres is the parts of a fleet whose queue is in PostgreSQL. The database is
// the one that the engine begins with, which nothing else in a run uses.
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
	first := time.Now().Add(5 * time.Second) // all are made by then
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

// firstHint measures how long the feeder's first look takes with much waiting:
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

// tinyUploads measures how fast the default takes in files of a few lines that
// are sent in one request, beside the work on those before them.
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
