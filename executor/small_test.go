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
	"sheaf/taskstore"
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
	prints []uint64 // of the pages; nil for a file that is read whole
	fail   error
	poison int // this unit fails; 0 for none
	parsed int
}

func (p *press) Plan(context.Context, child.Source) (*parser.Plan, string, func(), error) {
	return &parser.Plan{Unit: sheaf.UnitPage, Units: p.pages, RangeSize: 12, Slow: p.slow, Fingerprints: p.prints}, "", func() {}, nil
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

// pressed is an executor that reads leaflets into an index, whose answers to writes are
// lost if lost is an error.
func pressed(f *storetest.Fixture, p *press, formats *parser.Registry, lost error) (*Executor, *embedded.Index, *file.Store) {
	f.T.Helper()
	model := static.Default()
	blobs, err := file.Open(f.T.TempDir())
	f.OK(err)
	ix, err := embedded.Open(f.T.Context(), embedded.Config{Path: f.T.TempDir() + "/index.db", ModelID: model.Model().ID, Dim: model.Model().Dim})
	f.OK(err)
	f.T.Cleanup(func() { _ = ix.Close() })
	e := New(Config{Store: f.Store, Blobs: blobs, Files: here{}, Parser: p, Index: lostWrites{ix, lost}, Embedder: model, Formats: formats,
		Planner: &Planner{Store: f.Store, Files: here{}, Blobs: blobs, Parser: p, Formats: formats}})
	return e, ix, blobs
}

func TestSmallDocumentIsReadByItsPlan(t *testing.T) {
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
			p := &press{pages: c.pages, slow: c.slow, fail: c.fail, poison: c.bad}
			formats := parser.NewRegistry(leaflet{})
			if c.parts {
				formats = parser.NewRegistry(partly{})
			}
			e, ix, blobs := pressed(f, p, formats, c.lost)
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

// What a new version changes in one range is read by its plan.
func TestChangedRangeIsReadByItsPlan(t *testing.T) {
	for name, c := range map[string]struct {
		pages   int   // 0 for 30
		changed []int // pages
		fail    error // of the parser
		slow    bool  // as the plan says
		edited  bool  // a chunk of the version before
		fails   int   // of the plan, before
		want    string
	}{
		"a page":                {changed: []int{14}, want: "published"},
		"two of a range":        {changed: []int{14, 15}, want: "published"},
		"a small document":      {pages: 3, changed: []int{2}, want: "published"},
		"an unchanged one":      {pages: 3, want: "planned"},
		"two ranges":            {changed: []int{2, 14}, want: "planned"},
		"a scan":                {changed: []int{14}, slow: true, want: "planned"},
		"a second attempt":      {changed: []int{14}, fails: 1, want: "planned"},
		"nothing":               {want: "planned"},
		"a page that is broken": {changed: []int{14}, fail: sheaf.Fail(sheaf.CategoryBadInput, "bad", "it is broken"), want: "failed"},
		"a page beside an edit": {changed: []int{14}, edited: true, want: "read"},
	} {
		t.Run(name, func(t *testing.T) {
			f := storetest.New(t, "sqlite")
			pages := cmp.Or(c.pages, 30)
			p := &press{pages: pages, prints: make([]uint64, pages)}
			for i := range p.prints {
				p.prints[i] = uint64(i + 1)
			}
			formats := parser.NewRegistry(partly{})
			e, _, _ := pressed(f, p, formats, nil)
			process := func(id string) (*sheaf.Task, taskstore.Completion) {
				t.Helper()
				task := f.Claim(id, "w")
				done, err := e.Processors()[task.Kind].Process(t.Context(), task)
				f.OK(err)
				f.OK(f.Store.Complete(t.Context(), task.Held(), done))
				return task, done
			}
			finish := func(d storetest.Doc, gen int) {
				t.Helper()
				for _, task := range f.Tasks(d.ID, gen) {
					if task.State == sheaf.TaskPending && task.Kind != sheaf.KindFinalize {
						process(task.ID)
					}
				}
				f.Fold()
				process(f.Finalizer(d.ID))
			}
			d := f.Document("t")
			if _, done := process(d.Plan); done.Publish == nil {
				finish(d, 1)
			}
			before := f.Tasks(d.ID, 1)
			if c.edited {
				text, at := "Herons stand in the water.", before[slices.IndexFunc(before, func(t sheaf.Task) bool { return t.Kind == sheaf.KindParse })]
				edit := taskstore.ChunkEdit{
					ID: sheaf.NewID(), TenantID: d.Tenant, DocumentID: d.ID, Author: "ada",
					Anchor: taskstore.Anchor{Digest: "d", Of: 1}, Content: taskstore.EditContent{Text: &text},
					Placement: taskstore.Placement{Generation: 1, ChunkID: sheaf.ChunkID(at.Result.RangeID, 0), BaseRange: at.Result.RangeID, RangeID: sheaf.EditedRangePrefix + sheaf.NewID()},
				}
				f.OK(f.Store.ReserveRanges(t.Context(), d.Tenant, d.ID, []string{edit.RangeID}))
				_, err := f.Store.PutEdit(t.Context(), edit, 0)
				f.OK(err)
			}
			for _, n := range c.changed {
				p.prints[n-1] = uint64(1000 + n)
			}
			p.fail, p.slow, p.parsed = c.fail, c.slow, 0
			d = f.Reparse(d)
			f.Exec("UPDATE tasks SET fail_count=? WHERE id=?", c.fails, d.Plan)
			plan, done := process(d.Plan)
			if got := done.Publish != nil; got != (c.want == "published") {
				t.Fatalf("published: %t", got)
			}
			own, kept, open := 0, 0, 0
			for _, task := range f.Tasks(d.ID, 2) {
				switch {
				case task.Kind != sheaf.KindParse:
				case task.State == sheaf.TaskPending:
					open++
				case task.Result.RangeID == sheaf.RangeID(plan.ID, plan.Epoch):
					own++
				default:
					kept++
				}
			}
			all, affected := 0, 0
			for _, b := range before {
				if b.Kind == sheaf.KindParse {
					all++
					affected += map[bool]int{true: 1}[slices.ContainsFunc(c.changed, func(n int) bool { return b.Range.From <= n && n <= b.Range.To })]
				}
			}
			read := c.want == "published" || c.want == "read"
			if want := map[bool][2]int{true: {1, 0}, false: {0, affected}}[read]; own != want[0] || open != want[1] || kept != all-affected {
				t.Errorf("of %d ranges %d were read by the plan, %d are open and %d kept", all, own, open, kept)
			}
			if got := f.Int("SELECT COUNT(*) FROM garbage WHERE range_id=?", sheaf.RangeID(plan.ID, plan.Epoch)); (got > 0) != (c.want == "failed") {
				t.Errorf("%d entries of garbage", got)
			}
			if p.fail = nil; c.want != "published" {
				finish(d, 2)
			}
			doc := f.Doc(d.ID)
			if doc.State != sheaf.DocSucceeded || doc.LiveGeneration != 2 || doc.Units != pages {
				t.Errorf("ended as %+v", doc)
			}
			for _, b := range before { // what is kept stays, and what is replaced is collected
				used := f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND gen=2 AND range_id=?", d.ID, b.Result.RangeID) > 0
				if got := f.Int("SELECT COUNT(*) FROM garbage WHERE range_id=?", b.Result.RangeID) > 0; b.Kind == sheaf.KindParse && got == used {
					t.Errorf("range %s of the version before: used %t, collected %t", b.Range, used, got)
				}
			}
		})
	}
}
