// Package batch fills the requests to an embedding provider with the passages
// of many tasks: a range of a few chunks then costs no request of its own. It
// wraps an embed.Embedder.
package batch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/embed"
)

// Config bounds the batches. Zero values mean what the field says.
type Config struct {
	MaxTexts    int           // of a batch; 0 means 64
	MaxBytes    int           // of the texts of a batch; 0 means 256 KB
	Wait        time.Duration // that a first text waits for others; 0 means 3 ms
	Concurrency int           // batches under way; 0 means 4
	Queue       int           // texts waiting, above which callers wait; 0 means 4 × MaxTexts
}

// Embedder shares batches among its callers. It is safe for concurrent use.
type Embedder struct {
	inner  embed.Embedder
	config Config
	queue  chan *item
	stop   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

var _ embed.Embedder = (*Embedder)(nil)

// call is one Embed of a caller.
type call struct {
	ctx context.Context
}

// item is one text of a call.
type item struct {
	call   *call
	text   string
	vector []float32
	err    error
	done   chan<- *item // buffered for all texts of the call
}

// New starts a batcher over e. Close stops it.
func New(e embed.Embedder, c Config) *Embedder {
	if c.MaxTexts <= 0 {
		c.MaxTexts = 64
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 256 << 10
	}
	if c.Wait <= 0 {
		c.Wait = 3 * time.Millisecond
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 4
	}
	if c.Queue <= 0 {
		c.Queue = 4 * c.MaxTexts
	}
	b := &Embedder{inner: e, config: c, queue: make(chan *item, c.Queue), stop: make(chan struct{})}
	for range c.Concurrency {
		b.wg.Go(b.collect)
	}
	return b
}

// Close ends the batcher; calls under way finish or fail as unavailable.
func (b *Embedder) Close() {
	b.once.Do(func() { close(b.stop) })
	b.wg.Wait()
}

// Model describes the vectors.
func (b *Embedder) Model() embed.Model { return b.inner.Model() }

// Ping asks the provider.
func (b *Embedder) Ping(ctx context.Context) error { return b.inner.Ping(ctx) }

var errClosed = sheaf.FailRetryable(sheaf.CategoryCanceled, "embed_stopped", "the embedder is shutting down; the task will run again elsewhere")

// Embed puts passages into shared batches. Queries go straight through, since
// somebody waits for them, and so do windows, which are batches by themselves. A text that the provider refuses fails its own
// call alone.
func (b *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if err := ctx.Err(); err != nil || len(texts) == 0 {
		return nil, err
	}
	if purpose != embed.Passage { // a window is a request already
		return b.inner.Embed(ctx, texts, purpose)
	}
	// Its end tells the collectors that nobody waits for these texts any more.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &call{ctx: ctx}
	items := make([]item, len(texts))
	done := make(chan *item, len(texts))
	sent, finished := 0, 0
	for finished < len(texts) {
		var queue chan<- *item
		var next *item
		if sent < len(texts) {
			next = &items[sent]
			*next = item{call: c, text: texts[sent], done: done}
			queue = b.queue
		}
		select {
		case queue <- next:
			sent++
		case it := <-done:
			if it.err != nil {
				return nil, it.err
			}
			finished++
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.stop:
			return nil, errClosed
		}
	}
	vectors := make([][]float32, len(texts))
	for i := range items {
		vectors[i] = items[i].vector
	}
	return vectors, nil
}

// collect gathers a batch, embeds it, and begins anew. A full provider shows
// as collectors that are busy, and then as a full queue and callers that wait.
func (b *Embedder) collect() {
	var held *item // did not fit into the last batch
	for {
		first := held
		held = nil
		if first == nil {
			select {
			case first = <-b.queue:
			case <-b.stop:
				return
			}
		}
		batch, size := []*item{first}, len(first.text)
		deadline := time.NewTimer(b.config.Wait)
	gather:
		for len(batch) < b.config.MaxTexts && size < b.config.MaxBytes {
			select {
			case it := <-b.queue:
				if it.call.ctx.Err() != nil {
					continue // nobody waits for it
				}
				if size+len(it.text) > b.config.MaxBytes {
					held = it
					break gather
				}
				batch, size = append(batch, it), size+len(it.text)
			case <-deadline.C:
				break gather
			case <-b.stop:
				deadline.Stop()
				return
			}
		}
		deadline.Stop()
		b.embed(batch)
	}
}

// embed answers the items of a batch.
func (b *Embedder) embed(batch []*item) {
	err := b.try(batch)
	if errors.Is(err, sheaf.ErrInvalid) && shared(batch) {
		// One text spoils the batch: let each call stand for its own.
		byCall := map[*call][]*item{}
		var order []*call
		for _, it := range batch {
			if byCall[it.call] == nil {
				order = append(order, it.call)
			}
			byCall[it.call] = append(byCall[it.call], it)
		}
		for _, c := range order {
			part := byCall[c]
			b.answer(part, b.try(part))
		}
		return
	}
	b.answer(batch, err)
}

func (b *Embedder) answer(batch []*item, err error) {
	for _, it := range batch {
		it.err = err
		it.done <- it
	}
}

func shared(batch []*item) bool {
	for _, it := range batch {
		if it.call != batch[0].call {
			return true
		}
	}
	return false
}

// try embeds a batch under a context that ends when all its callers have gone.
func (b *Embedder) try(batch []*item) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].call.ctx))
	defer cancel()
	var mu sync.Mutex
	waiting := map[*call]bool{}
	for _, it := range batch {
		waiting[it.call] = true
	}
	for _, c := range slices.Collect(maps.Keys(waiting)) {
		stop := context.AfterFunc(c.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if delete(waiting, c); len(waiting) == 0 {
				cancel()
			}
		})
		defer stop()
	}
	texts := make([]string, len(batch))
	for i, it := range batch {
		texts[i] = it.text
	}
	vectors, err := b.inner.Embed(ctx, texts, embed.Passage)
	if err != nil {
		return err
	}
	for i, it := range batch {
		it.vector = vectors[i]
	}
	return nil
}
