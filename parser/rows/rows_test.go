package rows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/rowio"
)

// cut writes rows from..to of a table and returns the one shard and its range.
func cut(t testing.TB, from, to, size int, row func(n int) []string) ([][]byte, []parser.PlannedRange) {
	t.Helper()
	s := &rowio.Sharder{Dir: t.TempDir(), Rows: size}
	if err := s.Table("Sheet", []string{"id", "", "note"}); err != nil {
		t.Fatal(err)
	}
	for n := from; n <= to; n++ {
		if err := s.Row(n, row(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close([]string{"itt"}); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, r := range s.Ranges {
		b, err := os.ReadFile(filepath.Join(s.Dir, r.Shard))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out, s.Ranges
}

func plain(n int) []string { return []string{fmt.Sprint(n), "Ünï\n\"x\"", "row"} }

var options = parser.Options{Name: "document", MediaType: rowio.MediaType}

func TestAShardIsReadBack(t *testing.T) {
	shards, ranges := cut(t, 1, 1200, 5000, plain)
	o := options
	o.Hint = ranges[0].Hint
	plan, units, err := formattest.Read(t, hinted{New(), ranges[0].Hint}, shards[0], o, nil)
	if err != nil || plan.Units != 1200 || len(units) != 3 {
		t.Fatal(plan, len(units), err)
	}
	tb := units[2].Blocks[0].Table
	if !slices.Equal(tb.Columns, []string{"id", "column_2", "note"}) || !slices.Equal(tb.Types, []string{"integer", "text", "text"}) || tb.FirstRow != 1001 || tb.Name != "Sheet" {
		t.Errorf("%+v", tb)
	}
	if !slices.Equal(tb.Rows[0], plain(1001)) {
		t.Errorf("%q", tb.Rows[0])
	}
}

// hinted gives the hint, which the plan of a shard read alone lacks.
type hinted struct {
	parser.Format
	hint []byte
}

func (h hinted) Open(ctx context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	o.Hint = h.hint
	return h.Format.Open(ctx, f, o)
}

func open(t *testing.T, content []byte, hint []byte) parser.Document {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	o := options
	o.Hint = hint
	d, err := New().Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestALaterShardKeepsItsNumbers(t *testing.T) {
	shards, ranges := cut(t, 1, 1000, 400, plain)
	if len(shards) != 3 || ranges[2].Range != (sheaf.Range{From: 801, To: 1000}) {
		t.Fatalf("%d shards, %+v", len(shards), ranges)
	}
	d := open(t, shards[1], ranges[1].Hint)
	var got []sheaf.UnitResult
	// Part of it, as when a crash is searched for.
	if err := d.Parse(t.Context(), sheaf.Range{From: 500, To: 600}, func(u sheaf.UnitResult) error { got = append(got, u); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Unit != 500 || got[0].LastUnit != 600 || got[0].Blocks[0].Table.Rows[0][0] != "500" {
		t.Fatalf("%+v", got)
	}
	if _, err := d.Plan(t.Context()); err == nil {
		t.Error("a piece was planned as a document")
	}
}

func TestFingerprintsFollowTheRows(t *testing.T) {
	_, a := cut(t, 1, 1000, 400, plain)
	_, b := cut(t, 1, 1000, 400, func(n int) []string {
		if n == 450 {
			return []string{"other", "", ""}
		}
		return plain(n)
	})
	if a[0].Fingerprint != b[0].Fingerprint || a[1].Fingerprint == b[1].Fingerprint || a[2].Fingerprint != b[2].Fingerprint {
		t.Errorf("%v\n%v", a, b)
	}
}

func TestWideRowsDoNotWidenMany(t *testing.T) {
	shards, _ := cut(t, 1, 1000, 5000, func(n int) []string {
		if n == 250 {
			return make([]string, rowio.MaxColumns)
		}
		return plain(n)
	})
	_, units, err := formattest.Read(t, New(), shards[0], options, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		if len(u.Blocks) == 0 {
			continue
		}
		if tb := u.Blocks[0].Table; len(tb.Rows)*len(tb.Rows[0]) > 1<<19 {
			t.Errorf("%d rows of %d cells", len(tb.Rows), len(tb.Rows[0]))
		}
	}
}

func TestDamagedShardsAreFailures(t *testing.T) {
	shards, _ := cut(t, 1, 3000, 5000, plain)
	whole := shards[0]
	for _, b := range [][]byte{nil, []byte("text"), whole[:5], whole[:len(whole)/2], append([]byte{1}, whole...)} {
		_, _, err := formattest.Read(t, New(), b, options, nil)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != "invalid_rows" {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := options
	o.Hint = []byte(`{"types":`)
	if _, err := New().Open(t.Context(), f, o); err == nil || !strings.Contains(err.Error(), "bad_hint") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	shards, _ := cut(f, 1, 20, 100, plain)
	f.Add(shards[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
