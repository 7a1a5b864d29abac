package executor

import (
	"context"
	"errors"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/parser/child"
	"sheaf/taskstore"
)

// here has every file at a path.
type here struct{}

func (here) Fetch(context.Context, string, string, int64) (string, func(), error) {
	return "/dev/null", func() {}, nil
}

func (here) FetchBlocks(context.Context, string, string, int64) (string, blob.Fill, func(), error) {
	return "/dev/null", nil, func() {}, nil
}

// parserFunc is a Parser.
type parserFunc func(emit func(sheaf.UnitResult) error) error

func (f parserFunc) ParseIsolating(_ context.Context, _ child.Source, _ sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	return f(emit)
}

// deaf takes the events of a task and keeps none.
type deaf struct{ Store }

func (*deaf) AppendEvents(context.Context, sheaf.Claim, []sheaf.Event) error { return nil }

// However parsing ends, the slot is there for the next task: at once, or when
// the units of a large range are of no more use.
func TestParseSlotsComeBack(t *testing.T) {
	broken := errors.New("the parser broke")
	silent := sheaf.Range{From: 1, To: 1}
	for name, c := range map[string]struct {
		parse func(emit func(sheaf.UnitResult) error) error
		fails bool
		held  int // slots taken until free is called
	}{
		"failure":    {func(func(sheaf.UnitResult) error) error { return broken }, true, 0},
		"no verdict": {func(func(sheaf.UnitResult) error) error { return nil }, true, 0},
		"small range": {func(emit func(sheaf.UnitResult) error) error {
			return emit(sheaf.UnitResult{Unit: 1, Status: sheaf.UnitOK})
		}, false, 0},
		"large range": {func(emit func(sheaf.UnitResult) error) error {
			return emit(sheaf.UnitResult{Unit: 1, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Text: string(make([]byte, largeRange))}}})
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := New(Config{Store: &deaf{}, Files: here{}, Parser: parserFunc(c.parse), ParseSlots: 1})
			run := e.newRun(&sheaf.Task{ID: "t", Kind: sheaf.KindParse, Range: silent, Cost: 1})
			_, free, err := e.parseUnits(t.Context(), run, &sheaf.Document{ID: "d"}, &taskstore.ParsePayload{})
			if (err != nil) != c.fails {
				t.Fatal(err)
			}
			if e.parse.Free() != 1-c.held {
				t.Errorf("%d slots are free", e.parse.Free())
			}
			if free != nil {
				free()
				free() // may be called twice
			}
			if e.parse.Free() != 1 {
				t.Error("the slot is held at the end")
			}
		})
	}
}

// Tasks that share a request share its error: each says its own stage, and none
// writes into what the others read.
func TestSharedFailureIsNotWrittenTo(t *testing.T) {
	e := New(Config{Store: &deaf{}})
	shared := sheaf.FailRetryable(sheaf.CategoryTarget, "embed_failed", "the server is away")
	run := e.newRun(&sheaf.Task{ID: "t", Kind: sheaf.KindParse})
	for _, stage := range []string{"embed", "index"} {
		err := run.stage(t.Context(), stage, func(context.Context) error { return shared })
		if f := sheaf.AsFailure(err, ""); f.Phase != stage || !errors.Is(err, shared) {
			t.Errorf("%s: %+v", stage, f)
		}
	}
	if f := sheaf.AsFailure(shared, ""); f.Phase != "" {
		t.Errorf("the shared error says %q", f.Phase)
	}
}
