package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sheaf"
	"sheaf/parser"
)

func keptFiles(t *testing.T, p *Pool) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(p.root, "kept-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// read parses a range and says of each unit whether the heading that only
// ReadAhead gives it is there.
func read(t *testing.T, b *bundle, src Source, r sheaf.Range) (units []sheaf.UnitResult) {
	t.Helper()
	if err := b.pool.Parse(t.Context(), src, r, func(u sheaf.UnitResult) error { units = append(units, u); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(units) != r.Len() || units[0].Unit != r.From || units[len(units)-1].Unit != r.To {
		t.Fatalf("range %v: %+v", r, units)
	}
	return units
}

func TestWhatIsReadForHeadingsIsNotReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Size: 1})
	src := b.doc("ONE two THREE later FIVE six SEVEN")
	src.Key = "the content"
	runs := []Ahead{{Range: sheaf.Range{From: 1, To: 2}, Keep: true}, {Range: sheaf.Range{From: 3, To: 4}, Keep: true}, {Range: sheaf.Range{From: 5, To: 5}}, {Range: sheaf.Range{From: 6, To: 7}, Keep: true}}
	headings, err := b.pool.Outline(t.Context(), src, runs)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(headings), "[{1 ONE 1} {1 THREE 3} {1 FIVE 5} {1 SEVEN 7}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	ahead := func(want int64, what string) {
		t.Helper()
		if got := b.pool.Stats().Ahead; got != want {
			t.Errorf("%s: %d ranges were taken from what was read ahead, want %d", what, got, want)
		}
	}
	src.Path = filepath.Join(filepath.Dir(src.Path), ".", "copy") // another copy of the same content
	if err := os.WriteFile(src.Path, []byte("ONE two THREE later FIVE six SEVEN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if u := read(t, b, src, sheaf.Range{From: 6, To: 7}); len(u[1].Blocks) != 2 {
		t.Errorf("%+v", u[1])
	}
	ahead(1, "a range that was kept")
	read(t, b, src, sheaf.Range{From: 6, To: 7})
	ahead(1, "the same range once more")
	read(t, b, src, sheaf.Range{From: 1, To: 1})
	ahead(1, "a part of a range")
	read(t, b, src, sheaf.Range{From: 3, To: 4})
	ahead(1, "a range with a unit that is parsed to something else")
	read(t, b, src, sheaf.Range{From: 5, To: 5})
	ahead(1, "a run that was not to be kept")
	other := src
	other.Options.Name = "other.bad"
	read(t, b, other, sheaf.Range{From: 1, To: 2})
	ahead(1, "other settings")
	read(t, b, src, sheaf.Range{From: 1, To: 2})
	ahead(2, "the last range")
	if left := keptFiles(t, b.pool); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWhatWasReadBeforeACrashIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Size: 1})
	src := b.doc("a b c crash")
	if _, err := b.pool.Outline(t.Context(), src, []Ahead{{Range: sheaf.Range{From: 1, To: 2}, Keep: true}, {Range: sheaf.Range{From: 3, To: 4}, Keep: true}}); err == nil {
		t.Fatal("the crash is no error")
	}
	read(t, b, src, sheaf.Range{From: 1, To: 2})
	if got := b.pool.Stats().Ahead; got != 1 {
		t.Errorf("%d ranges were kept, want 1", got)
	}
	read(t, b, src, sheaf.Range{From: 3, To: 3})
}

func TestDamagedLeftoversAreParsed(t *testing.T) {
	t.Parallel()
	whole := []Ahead{{Range: sheaf.Range{From: 1, To: 2}, Keep: true}}
	for name, harm := range map[string]func(path string) error{
		"gone":      os.Remove,
		"cut short": func(path string) error { return os.Truncate(path, 9) },
		"other bytes": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.Repeat([]byte{0xff}, len(b)), 0o600)
		},
	} {
		b := setup(t, Config{Size: 1})
		src := b.doc("a b")
		if _, err := b.pool.Outline(t.Context(), src, whole); err != nil {
			t.Fatal(err)
		}
		files := keptFiles(t, b.pool)
		if len(files) != 1 {
			t.Fatalf("%s: %v", name, files)
		}
		if err := harm(files[0]); err != nil {
			t.Fatal(err)
		}
		read(t, b, src, sheaf.Range{From: 1, To: 2})
		if got := b.pool.Stats().Ahead; got != 0 {
			t.Errorf("%s: it was used", name)
		}
	}
}

func TestLeftoversThatNobodyAsksForAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, Config{Size: 1})
	for _, text := range []string{"a b", "c d"} {
		if _, err := b.pool.Outline(t.Context(), b.doc(text), []Ahead{{Range: sheaf.Range{From: 1, To: 2}, Keep: true}}); err != nil {
			t.Fatal(err)
		}
	}
	k := b.pool.kept
	k.expire(time.Now().Add(-time.Hour))
	if n := len(keptFiles(t, b.pool)); n != 2 {
		t.Fatalf("%d files before their time", n)
	}
	k.expire(time.Now().Add(time.Hour))
	if left := keptFiles(t, b.pool); len(left) > 0 || k.bytes != 0 {
		t.Errorf("left behind: %v, %d bytes", left, k.bytes)
	}
	k.bytes = maxKeptBytes
	if k.begin() != nil {
		t.Error("more is kept than there is room for")
	}
	k.bytes = 0
}

func TestFormatsWithoutHeadingsAheadHaveNone(t *testing.T) {
	t.Parallel()
	s := &server{}
	var doc struct{ parser.Document }
	if headings, err := s.readAhead(t.Context(), doc, []Ahead{{Range: sheaf.Range{From: 1, To: 2}}}); err != nil || headings != nil {
		t.Errorf("%v, %v", headings, err)
	}
}
