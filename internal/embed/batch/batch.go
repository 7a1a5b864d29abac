// Package batch combines the passages of many tasks into requests to an embedding
// provider: a range of a few chunks then does not cost a request of its own. It
// wraps an embed.Embedder.
package batch

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/internal/embed"
)

// Config bounds the batches. Zero values have the meaning given for each field.
type Config struct {
	MaxTexts    int           // per batch; 0 means 64
	MaxBytes    int           // of text per batch; 0 means 256 KB
	Wait        time.Duration // maximum delay from the first text; 0 means 3 ms
	Concurrency int           // concurrent batches; 0 means 4
}

// Embedder shares batches among its callers. It is safe for concurrent use.
type Embedder struct {
	inner embed.Embedder
	wait  time.Duration
	group *batching.Group[item, []float32]
	open  context.Context // canceled by Close
	close context.CancelFunc
}

var _ embed.Embedder = (*Embedder)(nil)

// item is one text of a call, which fail cancels.
type item struct {
	ctx  context.Context
	fail context.CancelCauseFunc
	text string
}

// New returns an embedder over e. Close stops it.
func New(e embed.Embedder, c Config) *Embedder {
	b := &Embedder{inner: e, wait: cmp.Or(c.Wait, 3*time.Millisecond)}
	b.open, b.close = context.WithCancel(context.Background())
	b.group = batching.New(batching.Config[item]{
		Max: cmp.Or(c.MaxTexts, 64), MaxWeight: cmp.Or(c.MaxBytes, 256<<10), Concurrency: cmp.Or(c.Concurrency, 4),
		WeightFunc: func(it item) int { return len(it.text) }, Fill: true,
	}, b.embed)
	return b
}

// Close stops the embedder; calls in progress fail as canceled.
func (b *Embedder) Close() { b.close() }

// Model describes the vectors.
func (b *Embedder) Model() embed.Model { return b.inner.Model() }

// Ping pings the provider.
func (b *Embedder) Ping(ctx context.Context) error { return b.inner.Ping(ctx) }

var errClosed = sheaf.FailRetryable(sheaf.CategoryCanceled, "embed_stopped", "the embedder is shutting down; the task will run again elsewhere")

// Embed puts passages into shared batches. Queries are passed straight through,
// since a user waits for them, and so are windows, which are complete requests. A
// text that the provider rejects or answers incorrectly fails only its own call.
func (b *Embedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) ([][]float32, error) {
	if err := ctx.Err(); err != nil || len(texts) == 0 {
		return nil, err
	}
	if purpose != embed.Passage { // a window is a request already
		return b.inner.Embed(ctx, texts, purpose)
	}
	// When it ends, the batches know that no one waits for these texts.
	call, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(b.open, func() { fail(errClosed) })()
	items := make([]item, len(texts))
	for i, text := range texts {
		items[i] = item{call, fail, text}
	}
	vectors, err := b.group.DoAll(call, items, b.wait)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil || call.Err() != nil: // it may have failed with its last batch
		return nil, context.Cause(call)
	}
	return vectors, nil
}

// embed embeds the items of a batch. A failure ends the calls it affects.
func (b *Embedder) embed(ctx context.Context, batch []item) [][]float32 {
	vectors, err := b.try(batch)
	if err == nil {
		return vectors
	}
	calls := split(batch)
	if (errors.Is(err, sheaf.ErrInvalid) || errors.Is(err, embed.ErrAnswer)) && len(calls) > 1 { // one text may spoil the batch
		vectors = nil
		for _, call := range calls {
			vectors = append(vectors, b.embed(ctx, call)...)
		}
		return vectors
	}
	for _, call := range calls {
		call[0].fail(err)
	}
	return make([][]float32, len(batch))
}

// split splits a batch by call. The items of a call are adjacent.
func split(batch []item) (calls [][]item) {
	from := 0
	for i := range batch {
		if i+1 == len(batch) || batch[i+1].ctx != batch[i].ctx {
			calls = append(calls, batch[from:i+1])
			from = i + 1
		}
	}
	return calls
}

// try embeds items under a context that ends when all their callers are gone.
func (b *Embedder) try(batch []item) ([][]float32, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(batch[0].ctx))
	defer cancel()
	calls := split(batch)
	var left atomic.Int64
	left.Store(int64(len(calls)))
	for _, call := range calls {
		defer context.AfterFunc(call[0].ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})()
	}
	texts := make([]string, len(batch))
	for i, it := range batch {
		texts[i] = it.text
	}
	return embed.Each(ctx, b.inner, texts, embed.Passage)
}
