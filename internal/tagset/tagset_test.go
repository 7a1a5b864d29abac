package tagset

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob/file"
	"sheaf/internal/embed"
)

var model = embed.Model{ID: "test@4", Dim: 4, Floor: 0.5}

func newLoader(t *testing.T) *Loader {
	t.Helper()
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Loader{Blobs: blobs, Model: model}
}

// put stores rows, each with its tags, as an artifact.
func put(t *testing.T, l *Loader, key, modelID string, rows []sheaf.Chunk, vectors ...[]float32) {
	t.Helper()
	var b bytes.Buffer
	h := artifact.Header{DocumentID: "d", Generation: 1, RangeID: "r", Range: sheaf.Range{From: 1, To: 9}, ModelID: modelID, Dim: 4, Created: time.Now()}
	if err := artifact.Encode(&b, h, rows, vectors); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blobs.Put(t.Context(), key, &b, int64(b.Len())); err != nil {
		t.Fatal(err)
	}
}

func tagged(id string, tags ...string) sheaf.Chunk {
	c := sheaf.Chunk{ID: id, Text: id}
	for _, name := range tags {
		c.Tags = append(c.Tags, sheaf.Tag{Name: name, Weight: 1})
	}
	return c
}

func TestTagsWeighAsMuchAsTheirNearestRow(t *testing.T) {
	l := newLoader(t)
	put(t, l, "one", model.ID, []sheaf.Chunk{tagged("a", "x", "y"), tagged("b", "y"), tagged("none")}, []float32{1, 0, 0, 0}, []float32{0, 1, 0, 0}, []float32{1, 0, 0, 0})
	put(t, l, "two", model.ID, []sheaf.Chunk{tagged("c", "z"), tagged("d", "w")}, []float32{0.6, 0.8, 0, 0}, nil)
	s, err := l.Load(t.Context(), []string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	tag := func(name string, w float64) sheaf.Tag { return sheaf.Tag{Name: name, Weight: w} }
	for _, test := range []struct {
		vector []float32
		n      int
		want   []sheaf.Tag
	}{
		{[]float32{1, 0, 0, 0}, 5, []sheaf.Tag{tag("x", 1), tag("y", 1), tag("z", 0.2)}},
		{[]float32{1, 0, 0, 0}, 1, []sheaf.Tag{tag("x", 1)}},
		{[]float32{0, 1, 0, 0}, 5, []sheaf.Tag{tag("y", 1), tag("z", 0.6)}},
		{[]float32{0, 0, 1, 0}, 5, nil},
		{[]float32{0, 0, 0, 0}, 5, nil},
		{nil, 5, nil},
	} {
		if got := s.Near(test.vector, test.n); len(got)+len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%v, %d: %v, want %v", test.vector, test.n, got, test.want)
		}
	}
	if again, err := l.Load(t.Context(), []string{"one", "two"}); err != nil || again != s {
		t.Errorf("a set in use is read twice: %v", err)
	}
}

func TestSetThatCannotBeUsedSaysWhatToDo(t *testing.T) {
	l := newLoader(t)
	put(t, l, "old", "other@4", []sheaf.Chunk{tagged("a", "x")}, []float32{1, 0, 0, 0})
	many, vectors := []sheaf.Chunk{}, [][]float32{}
	for i := range DefaultLimits.Rows + 1 {
		many, vectors = append(many, tagged(fmt.Sprint(i), "x")), append(vectors, []float32{1, 0, 0, 0})
	}
	put(t, l, "many", model.ID, many, vectors...)
	for key, code := range map[string]string{"old": "tag_set_model", "gone": "tag_set_changed", "many": "tag_set_too_large"} {
		_, err := l.Load(t.Context(), []string{key})
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != code || f.Retryable || !strings.HasSuffix(f.Message, ".") {
			t.Errorf("%s: %v, want %s", key, err, code)
		}
	}
}

func TestAlikeIsTheCosineOfTags(t *testing.T) {
	a := []sheaf.Tag{{Name: "x", Weight: 0.6}, {Name: "y", Weight: 0.8}}
	for _, test := range []struct {
		b    []sheaf.Tag
		want float64
	}{{a, 1}, {[]sheaf.Tag{{Name: "y", Weight: 0.5}}, 0.8}, {[]sheaf.Tag{{Name: "z", Weight: 1}}, 0}, {nil, 0}} {
		if got := Alike(a, test.b); got < test.want-1e-9 || got > test.want+1e-9 {
			t.Errorf("%v: %g, want %g", test.b, got, test.want)
		}
	}
}

func TestLimitsDecideWhatCounts(t *testing.T) {
	for _, test := range []struct {
		limits Limits
		want   string // tags of {1, 0, 0, 0}, or the failure
	}{
		{Limits{}, "[near far]"},
		{Limits{MinWeight: 0.5}, "[near]"},
		{Limits{MinWeight: -1}, "[near far faint]"},
		{Limits{Rows: 4}, "[near far]"},
		{Limits{Rows: 3}, "tag_set_too_large"},
	} {
		l := newLoader(t)
		l.Limits = test.limits
		put(t, l, "one", model.ID, []sheaf.Chunk{tagged("a", "near"), tagged("b", "far"), tagged("c", "faint"), tagged("d", "none")},
			[]float32{1, 0, 0, 0}, []float32{0.7, 0.71, 0, 0}, []float32{0.55, 0.83, 0, 0}, []float32{0, 0, 1, 0})
		s, err := l.Load(t.Context(), []string{"one"})
		got := ""
		if f, ok := errors.AsType[*sheaf.Failure](err); ok {
			got = f.Code
		} else if err == nil {
			names := []string{}
			for _, tag := range s.Near([]float32{1, 0, 0, 0}, 9) {
				names = append(names, tag.Name)
			}
			got = fmt.Sprint(names)
		}
		if got != test.want {
			t.Errorf("%+v: %s, %v, want %s", test.limits, got, err, test.want)
		}
	}
}
