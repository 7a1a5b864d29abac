package executor

import (
	"context"
	"io"
	"log/slog"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/index"
	"sheaf/internal/queue"
	"sheaf/internal/worker"
)

// breakers holds one breaker per dependency of this executor.
type breakers struct{ blobs, embedder, index, chat *worker.Breaker }

// guard puts breakers in front of the configured dependencies. weight is a tenant's,
// as in queue.NewSlots.
func guard(c *Config, log *slog.Logger, weight func(ctx context.Context, tenantID string) int) breakers {
	// A breaker exists even when its dependency does not, as in tests of one stage.
	var ping struct{ blobs, embedder, index, chat func(context.Context) error }
	if c.Blobs != nil {
		ping.blobs = c.Blobs.Ping
	}
	if c.Index != nil {
		ping.index = c.Index.Ping
	}
	if c.Embedder != nil {
		ping.embedder = c.Embedder.Ping
	}
	if chat := c.Chat; chat != nil {
		ping.chat = func(ctx context.Context) error { _, err := chat.Ask(ctx, "", "ping", 1); return err }
	}
	b := breakers{
		worker.NewBreaker("blob store", log, ping.blobs), worker.NewBreaker("embedder", log, ping.embedder),
		worker.NewBreaker("index", log, ping.index), worker.NewBreaker("chat server", log, ping.chat),
	}
	if c.Blobs != nil {
		c.Blobs = guardedBlobs{c.Blobs, b.blobs}
	}
	if c.Files != nil {
		c.Files = guardedFiles{c.Files, b.blobs}
	}
	if c.Index != nil {
		c.Index = guardedIndex{c.Index, b.index}
	}
	if c.Embedder != nil {
		c.Embedder = guardedEmbedder{c.Embedder, b.embedder}
	}
	if c.Chat != nil {
		c.Chat = fairChat{guardedChat{c.Chat, b.chat}, queue.NewSlots(c.ChatSlots, weight)}
		if c.Spending != nil {
			c.Chat = spendingChat{c.Chat, c.Spending, c.Budget}
		}
	}
	return b
}

// Breakers reports the state of each dependency's breaker: blobs, embedder, index
// and, if configured, chat.
func (e *Executor) Breakers() map[string]worker.BreakerState {
	states := map[string]worker.BreakerState{"blobs": e.breakers.blobs.State(), "embedder": e.breakers.embedder.State(), "index": e.breakers.index.State()}
	if e.model != nil {
		states["chat"] = e.breakers.chat.State()
	}
	return states
}

// Skipped lists the kinds that cannot run now because a dependency is down.
func (e *Executor) Skipped() []sheaf.TaskKind { return e.breakers.skipped() }

func (b breakers) skipped() []sheaf.TaskKind {
	var kinds []sheaf.TaskKind
	blobs, embedder, ix := b.blobs.IsOpen(), b.embedder.IsOpen(), b.index.IsOpen()
	for _, need := range []struct {
		kind sheaf.TaskKind
		away bool
	}{
		{sheaf.KindPlan, blobs},
		{sheaf.KindParse, blobs || embedder || ix},
		{sheaf.KindIndex, blobs || ix},
		{sheaf.KindFinalize, ix},
	} {
		if need.away {
			kinds = append(kinds, need.kind)
		}
	}
	return kinds
}

type guardedBlobs struct {
	blob.Store
	b *worker.Breaker
}

func (g guardedBlobs) Put(ctx context.Context, key string, r io.Reader, size int64) (info blob.Info, err error) {
	err = g.b.Do(ctx, func() error { info, err = g.Store.Put(ctx, key, r, size); return err })
	return info, err
}

func (g guardedBlobs) Open(ctx context.Context, key string, offset, length int64) (r io.ReadCloser, err error) {
	err = g.b.Do(ctx, func() error { r, err = g.Store.Open(ctx, key, offset, length); return err })
	return r, err
}

type guardedFiles struct {
	Files
	b *worker.Breaker
}

func (g guardedFiles) Fetch(ctx context.Context, key, sha256 string, size int64) (path string, release func(), err error) {
	err = g.b.Do(ctx, func() error { path, release, err = g.Files.Fetch(ctx, key, sha256, size); return err })
	return path, release, err
}

func (g guardedFiles) FetchBlocks(ctx context.Context, key, sha256 string, size int64) (path string, fill blob.Fill, release func(), err error) {
	err = g.b.Do(ctx, func() error { path, fill, release, err = g.Files.FetchBlocks(ctx, key, sha256, size); return err })
	if fill == nil {
		return path, nil, release, err
	}
	unguarded := fill // not the named result, which becomes the returned function
	return path, func(ctx context.Context, offset, length int64) error {
		return g.b.Do(ctx, func() error { return unguarded(ctx, offset, length) })
	}, release, err
}

type guardedIndex struct {
	index.Index
	b *worker.Breaker
}

func (g guardedIndex) Write(ctx context.Context, entries []index.Entry) error {
	return g.b.Do(ctx, func() error { return g.Index.Write(ctx, entries) })
}

func (g guardedIndex) Refresh(ctx context.Context) error {
	return g.b.Do(ctx, func() error { return g.Index.Refresh(ctx) })
}

func (g guardedIndex) Count(ctx context.Context, tenantID string, rangeIDs []string) (n map[string]int, err error) {
	err = g.b.Do(ctx, func() error { n, err = g.Index.Count(ctx, tenantID, rangeIDs); return err })
	return n, err
}

type guardedEmbedder struct {
	embed.Embedder
	b *worker.Breaker
}

func (g guardedEmbedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) (vectors [][]float32, err error) {
	err = g.b.Do(ctx, func() error { vectors, err = g.Embedder.Embed(ctx, texts, purpose); return err })
	return vectors, err
}

type guardedChat struct {
	enrich.Asker
	b *worker.Breaker
}

func (g guardedChat) Ask(ctx context.Context, instruction, text string, maxTokens int) (answer string, err error) {
	err = g.b.Do(ctx, func() error { answer, err = g.Asker.Ask(ctx, instruction, text, maxTokens); return err })
	return answer, err
}

// fairChat shares the model among tenants by time and weight: otherwise the question
// of a tenant with one document would wait for those of all tasks of another.
type fairChat struct {
	enrich.Asker
	slots *queue.Slots
}

// Ask implements enrich.Asker. Outside of tasks nothing is shared.
func (c fairChat) Ask(ctx context.Context, instruction, text string, maxTokens int) (string, error) {
	if t := taskOf(ctx); t != nil {
		leave, err := c.slots.Enter(ctx, t.TenantID, t.Lane)
		if err != nil {
			return "", err
		}
		defer leave()
	}
	return c.Asker.Ask(ctx, instruction, text, maxTokens)
}
