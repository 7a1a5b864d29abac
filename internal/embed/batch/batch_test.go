package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/embedtest"
	"sheaf/internal/embed/static"
)

func TestContract(t *testing.T) {
	b := New(static.Default(), Config{MaxTexts: 10})
	defer b.Close()
	embedtest.Run(t, b, embedtest.Options{LatinOnly: true})
}

// recorder is the built-in model behind a provider that takes 50 ms a call,
// refuses "poison", and remembers its batches.
type recorder struct {
	*static.Embedder
	mu      sync.Mutex
	batches [][]string
	ended   int
}

func (r *recorder) Embed(ctx context.Context, texts []string, p embed.Purpose) ([][]float32, error) {
	r.mu.Lock()
	r.batches = append(r.batches, slices.Clone(texts))
	r.mu.Unlock()
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		r.mu.Lock()
		r.ended++
		r.mu.Unlock()
		return nil, ctx.Err()
	}
	switch {
	case slices.Contains(texts, "poison"):
		return nil, fmt.Errorf("%w: poison", sheaf.ErrInvalid)
	case slices.Contains(texts, "garbled"):
		return nil, fmt.Errorf("%w (%w)", sheaf.FailRetryable(sheaf.CategoryTarget, "embed_bad_answer", "garbled"), embed.ErrAnswer)
	}
	vectors, err := r.Embedder.Embed(ctx, texts, p)
	if i := slices.Index(texts, "skipped"); i >= 0 {
		vectors = slices.Delete(vectors, i, i+1)
	}
	return vectors, err
}

func TestTasksShareBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{Embedder: static.Default()}
		b := New(r, Config{MaxTexts: 32, MaxBytes: 1000, Concurrency: 2})
		defer b.Close()
		var wg sync.WaitGroup
		for task := range 40 {
			wg.Go(func() {
				var texts []string
				for i := range 5 {
					texts = append(texts, fmt.Sprintf("task %d text %d about %s", task, i, strings.Repeat("data ", task%4)))
				}
				got, err := b.Embed(t.Context(), texts, embed.Passage)
				if err != nil {
					t.Error(err)
					return
				}
				want, _ := static.Default().Embed(t.Context(), texts, embed.Passage)
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Errorf("task %d got another's vector", task)
					}
				}
			})
		}
		wg.Wait()
		if n := len(r.batches); n > 15 {
			t.Errorf("%d batches for 200 texts", n)
		}
		for _, batch := range r.batches {
			if size := len(strings.Join(batch, "")); len(batch) > 32 || size > 1000 {
				t.Errorf("a batch of %d texts and %d bytes", len(batch), size)
			}
		}
	})
}

func TestLoneTextWaitsOnlyForWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(&recorder{Embedder: static.Default()}, Config{Wait: 3 * time.Millisecond})
		defer b.Close()
		began := time.Now()
		if _, err := b.Embed(t.Context(), []string{"alone"}, embed.Passage); err != nil || time.Since(began) != 53*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		began = time.Now()
		if _, err := b.Embed(t.Context(), []string{"a query"}, embed.Query); err != nil || time.Since(began) != 50*time.Millisecond {
			t.Errorf("query: %v after %s", err, time.Since(began))
		}
	})
}

func TestFaultyTextFailsItsOwnCallAlone(t *testing.T) {
	for text, want := range map[string]error{"poison": sheaf.ErrInvalid, "garbled": embed.ErrAnswer, "skipped": embed.ErrAnswer} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{Embedder: static.Default()}
			b := New(r, Config{Concurrency: 1})
			defer b.Close()
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					texts := []string{"good", "fine"}
					if i == 2 {
						texts[1] = text
					}
					vectors, err := b.Embed(t.Context(), texts, embed.Passage)
					if (i == 2) != errors.Is(err, want) || i != 2 && (err != nil || len(vectors) != 2) {
						t.Errorf("%s: call %d: %d vectors, %v", text, i, len(vectors), err)
					}
				})
			}
			wg.Wait()
			if len(r.batches) != 6 {
				t.Errorf("%s: %d requests, want the shared one and one for each call", text, len(r.batches))
			}
		})
	}
}

func TestBatchEndsWhenAllItsCallersHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{Embedder: static.Default()}
		b := New(r, Config{Concurrency: 1})
		defer b.Close()
		var wg sync.WaitGroup
		for _, d := range []time.Duration{10, 20} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), d*time.Millisecond)
				defer cancel()
				if _, err := b.Embed(ctx, []string{"x"}, embed.Passage); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if r.ended != 1 {
			t.Errorf("%d calls of the provider were ended, want 1", r.ended)
		}
	})
}

func TestCloseFreesCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(&recorder{Embedder: static.Default()}, Config{Concurrency: 1, MaxTexts: 1})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := b.Embed(t.Context(), []string{"x"}, embed.Passage); err != nil && !sheaf.AsFailure(err, "").Retryable {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		b.Close()
		b.Close()
		wg.Wait()
	})
}
