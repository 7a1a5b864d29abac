package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/enrich"
	"sheaf/internal/index"
)

// Bounds of a breaker.
const (
	tripAfter = 3               // calls in a row that found the dependency away; each has been tried several times by its client
	minOpen   = 2 * time.Second // first rest; doubles while a trial fails
	maxOpen   = 8 * time.Second // one call each so often costs nobody anything, and who comes back is not kept waiting
	fullSpeed = 16              // calls at once from which a recovering dependency counts as well
)

// breaker stands in front of one dependency. While the dependency is away it
// turns calls back without making them; after a rest it lets one through, and
// then twice as many at once with each success, so that a dependency that
// comes back is not met by everybody who waited for it.
type breaker struct {
	name string
	log  *slog.Logger

	mu       sync.Mutex
	failures int // in a row
	until    time.Time
	rest     time.Duration // 0: closed
	limit    int           // calls at once while it recovers
	inflight int
	refusal  error // what the dependency refuses this process with; nil when it is merely away

	// probe asks the dependency for something harmless; nil where nothing is.
	probe func(ctx context.Context) error
}

// broken says that a call was not made, or that the call failed which opened
// the breaker. The task did nothing wrong: it waits without losing an attempt.
type broken struct {
	dependency string
	after      time.Duration
	cause      error
}

func (b *broken) Error() string {
	if b.cause != nil {
		return b.cause.Error()
	}
	return fmt.Sprintf("the %s does not answer; the task waits until it does", b.dependency)
}

func (b *broken) Unwrap() []error { return []error{sheaf.ErrUnavailable, b.cause} }

// do makes a call through the breaker.
func (b *breaker) do(ctx context.Context, call func() error) error {
	if err := b.enter(); err != nil {
		return err
	}
	err := call()
	if errors.Is(err, sheaf.ErrMisconfigured) && ctx.Err() == nil && b.probe != nil && b.probe(ctx) == nil {
		// All else is answered: it is about what was asked, such as a text that a
		// firewall before the server dislikes. That costs the task attempts, and
		// nobody else anything.
		err = sheaf.AsFailure(err, "")
	}
	return b.leave(ctx, err)
}

func (b *breaker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rest > 0 {
		if wait := time.Until(b.until); wait > 0 {
			return &broken{dependency: b.name, after: spread(wait), cause: b.refusal}
		}
		if b.inflight >= b.limit {
			return &broken{dependency: b.name, after: spread(time.Second), cause: b.refusal}
		}
	}
	b.inflight++
	return nil
}

// leave notes how a call went. An answer of any kind shows that the dependency
// is there; a call whose caller went away shows nothing.
func (b *breaker) leave(ctx context.Context, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inflight--
	limited, isLimited := errors.AsType[*sheaf.RateLimited](err)
	switch {
	case ctx.Err() != nil:
		return err
	case isLimited:
		b.open(max(limited.After, time.Second), err)
		return err
	case errors.Is(err, sheaf.ErrMisconfigured), errors.Is(err, sheaf.ErrUnavailable), errors.Is(err, sheaf.ErrReadOnly):
		b.failures++
		switch {
		case b.rest > 0 && time.Now().Before(b.until):
			// One that was under way when it opened.
		case b.rest > 0:
			b.open(min(2*b.rest, maxOpen), err)
		case b.failures >= tripAfter, errors.Is(err, sheaf.ErrMisconfigured): // the next call would be refused too
			b.open(minOpen, err)
		default:
			return err
		}
		return &broken{dependency: b.name, after: spread(time.Until(b.until)), cause: err}
	}
	b.failures, b.refusal = 0, nil
	if b.rest > 0 && !time.Now().Before(b.until) {
		if b.limit *= 2; b.limit >= fullSpeed {
			b.rest = 0
			b.log.Info("a dependency is well again", "dependency", b.name)
		}
	}
	return err
}

// open begins a rest; the caller holds mu.
func (b *breaker) open(rest time.Duration, cause error) {
	if b.rest == 0 {
		b.log.Warn("a dependency does not answer; tasks that need it wait", "dependency", b.name, "rest", rest, "error", cause)
	}
	b.refusal = nil
	if errors.Is(cause, sheaf.ErrMisconfigured) {
		b.refusal = cause
	}
	b.rest, b.until, b.limit = rest, time.Now().Add(rest), 1
}

// BreakerState is what a breaker does with calls.
type BreakerState int

const (
	BreakerClosed   BreakerState = iota // makes them
	BreakerHalfOpen                     // makes a few, to see whether the dependency is back
	BreakerOpen                         // turns them back
)

func (b *breaker) state() BreakerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.rest == 0:
		return BreakerClosed
	case time.Now().Before(b.until):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// Breakers reports the state of the breaker before each dependency: blobs,
// embedder, index and, where there is one, chat.
func (e *Executor) Breakers() map[string]BreakerState {
	states := map[string]BreakerState{"blobs": e.breakers.blobs.state(), "embedder": e.breakers.embedder.state(), "index": e.breakers.index.state()}
	if e.model != nil {
		states["chat"] = e.breakers.chat.state()
	}
	return states
}

// turnBack is what a call would be met with that is certain to be turned back
// now, nil for one that would be made: work that ends in such a call need not begin.
func (b *breaker) turnBack() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := time.Until(b.until); b.rest > 0 && wait > 0 {
		return &broken{dependency: b.name, after: spread(wait), cause: b.refusal}
	}
	return nil
}

// isOpen reports whether calls are turned back now.
func (b *breaker) isOpen() bool { return b.state() == BreakerOpen }

// spread keeps those who wait from coming back in one moment.
func spread(d time.Duration) time.Duration {
	return max(d, 100*time.Millisecond) + time.Duration(rand.Int64N(int64(time.Second)))
}

// breakers are one per dependency of this executor.
type breakers struct{ blobs, embedder, index, chat *breaker }

func newBreakers(log *slog.Logger) breakers {
	return breakers{
		&breaker{name: "blob store", log: log}, &breaker{name: "embedder", log: log}, &breaker{name: "index", log: log}, &breaker{name: "chat server", log: log},
	}
}

// guard puts the breakers in front of the configured parts.
func (b breakers) guard(c *Config) {
	if c.Blobs != nil {
		b.blobs.probe = c.Blobs.Ping
		c.Blobs = guardedBlobs{c.Blobs, b.blobs}
	}
	if c.Files != nil {
		c.Files = guardedFiles{c.Files, b.blobs}
	}
	if c.Index != nil {
		b.index.probe = c.Index.Ping
		c.Index = guardedIndex{c.Index, b.index}
	}
	if c.Embedder != nil {
		b.embedder.probe = c.Embedder.Ping
		c.Embedder = guardedEmbedder{c.Embedder, b.embedder}
	}
	if c.Chat != nil {
		chat := c.Chat
		b.chat.probe = func(ctx context.Context) error { _, err := chat.Ask(ctx, "", "ping", 1); return err }
		c.Chat = guardedChat{c.Chat, b.chat}
	}
}

// skipped lists the kinds that cannot be run now, since what they need is away.
func (b breakers) skipped() []sheaf.TaskKind {
	var kinds []sheaf.TaskKind
	blobs, embedder, ix := b.blobs.isOpen(), b.embedder.isOpen(), b.index.isOpen()
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
	b *breaker
}

func (g guardedBlobs) Put(ctx context.Context, key string, r io.Reader, size int64) (info blob.Info, err error) {
	err = g.b.do(ctx, func() error { info, err = g.Store.Put(ctx, key, r, size); return err })
	return info, err
}

func (g guardedBlobs) Open(ctx context.Context, key string, offset, length int64) (r io.ReadCloser, err error) {
	err = g.b.do(ctx, func() error { r, err = g.Store.Open(ctx, key, offset, length); return err })
	return r, err
}

type guardedFiles struct {
	Files
	b *breaker
}

func (g guardedFiles) Fetch(ctx context.Context, key, sha256 string, size int64) (path string, release func(), err error) {
	err = g.b.do(ctx, func() error { path, release, err = g.Files.Fetch(ctx, key, sha256, size); return err })
	return path, release, err
}

func (g guardedFiles) FetchBlocks(ctx context.Context, key, sha256 string, size int64) (path string, fill blob.Fill, release func(), err error) {
	err = g.b.do(ctx, func() error { path, fill, release, err = g.Files.FetchBlocks(ctx, key, sha256, size); return err })
	if fill == nil {
		return path, nil, release, err
	}
	return path, func(ctx context.Context, offset, length int64) error {
		return g.b.do(ctx, func() error { return fill(ctx, offset, length) })
	}, release, err
}

type guardedIndex struct {
	index.Index
	b *breaker
}

func (g guardedIndex) Write(ctx context.Context, entries []index.Entry) error {
	return g.b.do(ctx, func() error { return g.Index.Write(ctx, entries) })
}

func (g guardedIndex) Refresh(ctx context.Context) error {
	return g.b.do(ctx, func() error { return g.Index.Refresh(ctx) })
}

func (g guardedIndex) Count(ctx context.Context, tenantID string, rangeIDs []string) (n map[string]int, err error) {
	err = g.b.do(ctx, func() error { n, err = g.Index.Count(ctx, tenantID, rangeIDs); return err })
	return n, err
}

type guardedEmbedder struct {
	embed.Embedder
	b *breaker
}

func (g guardedEmbedder) Embed(ctx context.Context, texts []string, purpose embed.Purpose) (vectors [][]float32, err error) {
	err = g.b.do(ctx, func() error { vectors, err = g.Embedder.Embed(ctx, texts, purpose); return err })
	return vectors, err
}

type guardedChat struct {
	enrich.Asker
	b *breaker
}

func (g guardedChat) Ask(ctx context.Context, instruction, text string, maxTokens int) (answer string, err error) {
	err = g.b.do(ctx, func() error { answer, err = g.Asker.Ask(ctx, instruction, text, maxTokens); return err })
	return answer, err
}
