package executor

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/blob/file"
	"sheaf/internal/embed/static"
	"sheaf/internal/index"
	"sheaf/internal/index/embedded"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/taskstore/storetest"
)

// leaflet is a format whose files need nothing but this process.
type leaflet struct{}

func (leaflet) ID() string   { return "leaflet" }
func (leaflet) Version() int { return 1 }
func (leaflet) Types() []parser.FileType { // that of the fixture's documents
	return []parser.FileType{{MediaType: "application/pdf", Extensions: []string{".pdf"}}}
}
func (leaflet) Options() []string { return nil }
func (leaflet) Open(context.Context, *os.File, parser.Options) (parser.Document, error) {
	return nil, errors.New("leaflets are read by a fake")
}

// partly is leaflet for files of which only parts are read.
type partly struct{ leaflet }

func (partly) Sparse() {}

// press is a parser of leaflets.
type press struct {
	library
	pages  int
	slow   bool
	fail   error
	poison int // this unit fails; 0 for none
	parsed int
}

func (p *press) Plan(context.Context, child.Source) (*parser.Plan, string, func(), error) {
	return &parser.Plan{Unit: sheaf.UnitPage, Units: p.pages, RangeSize: 12, Slow: p.slow}, "", func() {}, nil
}

func (p *press) ParseIsolating(_ context.Context, _ child.Source, r sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	p.parsed++
	for n := r.From; n <= r.To && p.fail == nil; n++ {
		if n == p.poison {
			if err := emit(sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: "parse_timeout", Message: "It took too long."}); err != nil {
				return err
			}
			continue
		}
		if err := emit(sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Blocks: []sheaf.Block{{Kind: sheaf.BlockParagraph, Page: n, Text: "Herons stand beside the water."}}}); err != nil {
			return err
		}
	}
	return p.fail
}

// lostWrites is an index whose answers are lost.
type lostWrites struct {
	*embedded.Index
	fail error
}

func (x lostWrites) Write(ctx context.Context, entries []index.Entry) error {
	return cmp.Or(x.Index.Write(ctx, entries), x.fail)
}

func TestSmallDocumentIsReadByItsPlan(t *testing.T) {
	model := static.Default()
	for name, c := range map[string]struct {
		pages int
		bytes int64  // of the file; 0 for those of the fixture
		parts bool   // only parts of the file are read
		slow  bool   // as its plan says
		fails int    // of the plan, before
		fail  error  // of the parser
		bad   int    // page that it cannot read
		lost  error  // of writes to the index, which happen
		want  string // "published", "planned", or "failed" for a plan that left the document to a task
	}{
		"a page":                {pages: 1, want: "published"},
		"a few":                 {pages: smallCost, want: "published"},
		"many pages":            {pages: smallCost + 1, want: "planned"},
		"several ranges":        {pages: 30, want: "planned"},
		"many bytes":            {pages: 1, bytes: smallBytes + 1, want: "planned"},
		"many, read in parts":   {pages: 1, bytes: smallBytes + 1, parts: true, want: "published"},
		"too many for that":     {pages: 1, bytes: smallSparseBytes + 1, parts: true, want: "planned"},
		"a scan":                {pages: 1, parts: true, slow: true, want: "planned"},
		"a second attempt":      {pages: 1, fails: 1, want: "planned"},
		"a page that is broken": {pages: 1, fail: sheaf.Fail(sheaf.CategoryBadInput, "bad", "it is broken"), want: "failed"},
		"a page among others":   {pages: 3, bad: 2, want: "failed"},
		"an index that is away": {pages: 1, lost: errors.New("no answer"), want: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storetest.New(t, "sqlite")
			blobs, err := file.Open(t.TempDir())
			f.OK(err)
			ix, err := embedded.Open(t.Context(), embedded.Config{Path: t.TempDir() + "/index.db", ModelID: model.Model().ID, Dim: model.Model().Dim})
			f.OK(err)
			t.Cleanup(func() { _ = ix.Close() })
			p := &press{pages: c.pages, slow: c.slow, fail: c.fail, poison: c.bad}
			formats := parser.NewRegistry(leaflet{})
			if c.parts {
				formats = parser.NewRegistry(partly{})
			}
			e := New(Config{Store: f.Store, Blobs: blobs, Files: here{}, Parser: p, Index: lostWrites{ix, c.lost}, Embedder: model, Formats: formats,
				Planner: &Planner{Store: f.Store, Files: here{}, Blobs: blobs, Parser: p, Formats: formats}})
			d := f.Document("t")
			f.Exec("UPDATE tasks SET fail_count=? WHERE id=?", c.fails, d.Plan)
			if c.bytes > 0 {
				f.Exec("UPDATE documents SET size=? WHERE id=?", c.bytes, d.ID)
			}
			plan := f.Claim(d.Plan, "w")
			done, err := e.Processors()[sheaf.KindPlan].Process(t.Context(), plan)
			f.OK(err)
			if got := done.Publish != nil; got != (c.want == "published") {
				t.Fatalf("published: %t", got)
			}
			f.OK(f.Store.Complete(t.Context(), plan.Held(), done))
			rangeID := sheaf.RangeID(plan.ID, plan.Epoch)
			entries, err := ix.Count(t.Context(), "t", []string{rangeID})
			f.OK(err)
			parse := slices.DeleteFunc(f.Tasks(d.ID, 1), func(t sheaf.Task) bool { return t.Kind != sheaf.KindParse })
			switch c.want {
			case "published":
				doc := f.Doc(d.ID)
				if doc.State != sheaf.DocSucceeded || doc.Chunks == 0 || entries[rangeID] != doc.Chunks || parse[0].Result.RangeID != rangeID || parse[0].Result.Stages == nil {
					t.Errorf("%d entries, range %q of document %+v", entries[rangeID], parse[0].Result.RangeID, doc)
				}
				if _, err := blobs.Stat(t.Context(), parse[0].Result.ArtifactKey); err != nil {
					t.Errorf("its artifact: %v", err)
				}
			default:
				if got := f.Int("SELECT COUNT(*) FROM garbage WHERE range_id=?", rangeID); got != p.parsed {
					t.Errorf("%d entries of garbage after %d attempts at reading", got, p.parsed)
				}
				for _, p := range parse {
					f.InState(p.ID, sheaf.TaskPending)
				}
				if p.parsed > 0 != (c.want == "failed") {
					t.Errorf("parsed %d times", p.parsed)
				}
			}
		})
	}
}
