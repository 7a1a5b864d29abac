package executor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/embed"
	"sheaf/internal/index"
	"sheaf/internal/worker"
)

// awayIndex and limitedEmbedder do not do what they are asked for.
type awayIndex struct{ index.Index }

func (awayIndex) Refresh(context.Context) error {
	return fmt.Errorf("connection refused: %w", sheaf.ErrUnavailable)
}

type limitedEmbedder struct{ embed.Embedder }

func (limitedEmbedder) Model() embed.Model { return embed.Model{} }

func (limitedEmbedder) Embed(context.Context, []string, embed.Purpose) ([][]float32, error) {
	return nil, &sheaf.RateLimited{After: 20 * time.Second}
}

func TestKindsWaitWhileWhatTheyNeedIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Index: awayIndex{}, Embedder: limitedEmbedder{}})
		skipped := func(want ...sheaf.TaskKind) {
			t.Helper()
			if got := e.Skipped(); !slices.Equal(got, want) {
				t.Errorf("kinds left alone: %v, want %v", got, want)
			}
		}
		skipped()
		_, _ = e.cfg.Embedder.Embed(t.Context(), nil, embed.Passage)
		skipped(sheaf.KindParse)
		time.Sleep(20 * time.Second)
		skipped()
		for range 3 {
			_ = e.cfg.Index.Refresh(t.Context())
		}
		skipped(sheaf.KindParse, sheaf.KindIndex, sheaf.KindFinalize)
	})
}

type blockFiles struct {
	Files
	filled []int64
}

func (f *blockFiles) FetchBlocks(context.Context, string, string, int64) (string, blob.Fill, func(), error) {
	return "path", func(_ context.Context, offset, length int64) error {
		f.filled = append(f.filled, offset, length)
		return nil
	}, func() {}, nil
}

// Blocks that are read later go through the breaker to the store, once each.
func TestBlocksAreReadBehindTheBreaker(t *testing.T) {
	files := &blockFiles{}
	guarded := guardedFiles{files, worker.NewBreaker("blobs", slog.New(slog.DiscardHandler), func(context.Context) error { return nil })}
	path, fill, _, err := guarded.FetchBlocks(t.Context(), "key", "", 0)
	if err != nil || path != "path" || fill == nil {
		t.Fatalf("%q, %v", path, err)
	}
	for i := range int64(3) {
		if err := fill(t.Context(), i, 7); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{0, 7, 1, 7, 2, 7}; !slices.Equal(files.filled, want) {
		t.Errorf("read %v, want %v", files.filled, want)
	}
}
