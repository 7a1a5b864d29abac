package graphs

import (
	"context"
	"testing"
	"time"

	"sheaf/internal/blob/file"
	"sheaf/taskstore"
)

// lost is a dataset with one range, whose artifact is gone.
type lost struct{}

func (lost) DatasetResults(_ context.Context, _, _, after string, _ int) ([]taskstore.LiveResult, error) {
	if after != "" {
		return nil, nil
	}
	return []taskstore.LiveResult{{RangeID: "r1", ArtifactKey: "artifacts/gone", Chunks: 3, Cursor: "r1"}}, nil
}

func (lost) Visible(context.Context, string, []string) (map[string]taskstore.VisibleRange, error) {
	return map[string]taskstore.VisibleRange{"r1": {DocumentID: "d1"}}, nil
}

func TestLostArtifactDoesNotMakeTheGraphAnew(t *testing.T) {
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Store: lost{}, Blobs: blobs, Bounds: Bounds{Fresh: time.Nanosecond}}
	first, err := s.View(t.Context(), "t", "d")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.View(t.Context(), "t", "d")
	if err != nil {
		t.Fatal(err)
	}
	if first.Failed != 1 || again.Failed != 1 {
		t.Errorf("%d and %d ranges could not be read, want 1", first.Failed, again.Failed)
	}
	if first.Graph != again.Graph {
		t.Error("the graph was made anew though nothing of it changed")
	}
}
