package executor

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/index"
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
