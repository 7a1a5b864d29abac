package edits_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/executor"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/internal/edits"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/index/embedded"
	"sheaf/internal/search"
	"sheaf/internal/settings"
	"sheaf/parser/child"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// pipeline is one document on real parts: store, blobs, index, model and
// executor. Only its pages are scripted: each string is one chunk.
type pipeline struct {
	*storetest.Fixture
	t        *testing.T
	doc      storetest.Doc
	blobs    *file.Store
	model    *counting
	service  *edits.Service
	searcher *search.Searcher
	executor *executor.Executor
	store    *between
	pages    []string
}

// counting counts the texts that are embedded.
type counting struct {
	embed.Embedder
	texts atomic.Int64
}

// Model is dear, as a server's is: its vectors are looked up before they are made.
func (c *counting) Model() embed.Model {
	m := c.Embedder.Model()
	m.Cheap = false
	return m
}

func (c *counting) Embed(ctx context.Context, texts []string, p embed.Purpose) ([][]float32, error) {
	c.texts.Add(int64(len(texts)))
	return c.Embedder.Embed(ctx, texts, p)
}

// between does something once between a read and the write that follows it.
type between struct {
	*storetest.Fixture
	once  func()
	edits func()
}

func (b *between) PutEdit(ctx context.Context, e taskstore.ChunkEdit, from int) (*taskstore.ChunkEdit, error) {
	if f := b.once; f != nil {
		b.once = nil
		f()
	}
	return b.Store.PutEdit(ctx, e, from)
}

// executed is the store of the executor.
type executed struct {
	executor.Store
	b *between
}

func (x executed) Edits(ctx context.Context, tenantID, documentID string) ([]taskstore.ChunkEdit, error) {
	all, err := x.Store.Edits(ctx, tenantID, documentID)
	if f := x.b.edits; f != nil {
		x.b.edits = nil
		f()
	}
	return all, err
}

type here struct{}

func (here) Fetch(context.Context, string, string, int64) (string, func(), error) {
	return "", func() {}, nil
}

func (here) FetchBlocks(context.Context, string, string, int64) (string, blob.Fill, func(), error) {
	return "", nil, func() {}, nil
}

func (p *pipeline) ParseIsolating(_ context.Context, _ child.Source, r sheaf.Range, _ func(int) time.Duration, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK}
		for i, text := range p.pages {
			if i*r.Len()/len(p.pages) != n-r.From {
				continue
			}
			title, body, titled := strings.Cut(text, ": ")
			if !titled {
				title, body = fmt.Sprintf("Clause %d", i), text
			}
			u.Blocks = append(u.Blocks, sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Page: n, Text: title}, sheaf.Block{Kind: sheaf.BlockParagraph, Page: n, Text: body})
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

func start(t *testing.T, pages ...string) *pipeline {
	t.Helper()
	f := storetest.New(t, "sqlite")
	p := &pipeline{Fixture: f, t: t, doc: f.Document("acme"), model: &counting{Embedder: static.Default()}, pages: pages}
	var err error
	p.blobs, err = file.Open(t.TempDir())
	f.OK(err)
	ix, err := embedded.Open(t.Context(), embedded.Config{Path: filepath.Join(t.TempDir(), "index.db"), ModelID: p.model.Model().ID, Dim: p.model.Model().Dim})
	f.OK(err)
	t.Cleanup(func() { _ = ix.Close() })
	p.store = &between{Fixture: f}
	p.executor = executor.New(executor.Config{Store: executed{f.Store, p.store}, Blobs: p.blobs, Files: here{}, Parser: p, Index: ix, Embedder: p.model})
	p.searcher = &search.Searcher{Index: ix, Embedder: p.model, Visibility: f.Store}
	p.service = &edits.Service{Store: serviceStore{f.Store, p.store}, Writer: &edits.Writer{Store: f.Store, Blobs: p.blobs, Index: ix, Embedder: p.model, TextFunc: executor.EmbeddingText}}
	p.run(p.plan())
	return p
}

type serviceStore struct {
	edits.Store
	b *between
}

func (s serviceStore) PutEdit(ctx context.Context, e taskstore.ChunkEdit, from int) (*taskstore.ChunkEdit, error) {
	return s.b.PutEdit(ctx, e, from)
}

// plan completes the plan of the newest generation.
func (p *pipeline) plan() int {
	p.t.Helper()
	payload, err := json.Marshal(taskstore.ParsePayload{Format: "pdf", Config: settings.WithDefaults(sheaf.ParseConfig{})})
	p.OK(err)
	d, err := p.Store.DocumentByID(p.t.Context(), p.doc.ID)
	p.OK(err)
	tasks, err := p.Store.GenerationTasks(p.t.Context(), p.doc.ID, d.Generation)
	p.OK(err)
	for _, t := range tasks {
		if t.Kind == sheaf.KindPlan {
			p.OK(p.Store.Complete(p.t.Context(), p.Claim(t.ID, "planner").Held(), taskstore.Completion{
				Plan:  &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 2},
				Spawn: []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: sheaf.UnitPage, Range: sheaf.Range{From: 1, To: 2}, Cost: 2, Payload: payload}},
			}))
		}
	}
	return d.Generation
}

// run runs what is pending of a generation until it is published.
func (p *pipeline) run(generation int) {
	p.t.Helper()
	for range 20 {
		_, _, err := p.Store.Fold(p.t.Context(), 100, 0)
		p.OK(err)
		d, err := p.Store.DocumentByID(p.t.Context(), p.doc.ID)
		p.OK(err)
		if d.State.Terminal() {
			if d.LiveGeneration != generation {
				p.t.Fatalf("the document is %s with generation %d live: %v", d.State, d.LiveGeneration, d.Failure)
			}
			return
		}
		for _, t := range p.Tasks(p.doc.ID, generation) {
			if t.State != sheaf.TaskPending {
				continue
			}
			held := p.Claim(t.ID, "worker")
			done, err := p.executor.Processors()[held.Kind].Process(p.t.Context(), held)
			p.OK(err)
			p.OK(p.Store.Complete(p.t.Context(), held.Held(), done))
		}
	}
	p.t.Fatal("the document does not come to an end")
}

// reparse publishes a generation of other pages.
func (p *pipeline) reparse(pages ...string) {
	p.t.Helper()
	p.pages = pages
	p.OK(p.Store.Reparse(p.t.Context(), sheaf.Job{ID: sheaf.NewID(), TenantID: p.doc.Tenant, DatasetID: p.doc.Dataset, Kind: sheaf.JobReparse},
		[]taskstore.ReparseDocument{{DocumentID: p.doc.ID, Plan: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1}}}, ""))
	p.run(p.plan())
}

func (p *pipeline) who() edits.Who {
	return edits.Who{TenantID: p.doc.Tenant, DocumentID: p.doc.ID, Author: "ann"}
}

// body is the text of a chunk without its heading.
func body(c sheaf.Chunk) string {
	if _, after, headed := strings.Cut(c.Text, "\n\n"); headed {
		return after
	}
	return c.Text
}

// hits are the texts that a search by words finds.
func (p *pipeline) hits(query string) (texts []string) {
	p.t.Helper()
	for _, h := range p.found(query, search.Text) {
		texts = append(texts, body(h.Chunk))
	}
	slices.Sort(texts)
	return texts
}

func (p *pipeline) found(query string, mode search.Mode) []search.Hit {
	p.t.Helper()
	r, err := p.searcher.Search(p.t.Context(), p.doc.Tenant, search.Request{Query: query, Mode: mode, Limit: 50})
	p.OK(err)
	return r.Hits
}

func (p *pipeline) expect(query string, want ...string) {
	p.t.Helper()
	if got := p.hits(query); !slices.Equal(got, want) {
		p.t.Errorf("a search for %q finds %q, want %q", query, got, want)
	}
}

// chunk is the id of the published chunk with a text.
func (p *pipeline) chunk(text string) string {
	p.t.Helper()
	var seen []string
	d, err := p.Store.DocumentByID(p.t.Context(), p.doc.ID)
	p.OK(err)
	for _, t := range p.Tasks(p.doc.ID, d.LiveGeneration) {
		if t.Result.ArtifactKey == "" {
			continue
		}
		stored, err := artifact.Load(p.t.Context(), p.blobs, t.Result.ArtifactKey)
		p.OK(err)
		for _, c := range stored.Chunks {
			if body(c) == text {
				return c.ID
			}
			seen = append(seen, c.Text)
		}
	}
	p.t.Fatalf("no chunk reads %q, but %q", text, seen)
	return ""
}

func (p *pipeline) change(id string, c edits.Change) *edits.Edited {
	p.t.Helper()
	e, err := p.service.Change(p.t.Context(), p.who(), id, c)
	p.OK(err)
	return e
}

func (p *pipeline) is(err, kind error) {
	p.t.Helper()
	if !errors.Is(err, kind) {
		p.t.Fatalf("the error is %v, want %v", err, kind)
	}
}

func TestEditsAreFoundAtOnce(t *testing.T) {
	p := start(t, "the heron nests in April", "the stork nests in May", "the crane dances in June")
	heron, stork, crane := p.chunk("the heron nests in April"), p.chunk("the stork nests in May"), p.chunk("the crane dances in June")

	e := p.change(heron, edits.Change{Text: new("the bittern booms in reeds")})
	if e.Chunk.ID != heron || e.Edit.Version != 1 || e.Chunk.Tokens == 0 || !slices.Equal(e.Chunk.HeadingPath, []string{"Clause 0"}) {
		t.Errorf("changed: %+v %+v", e.Chunk, e.Edit)
	}
	p.expect("heron")
	p.expect("bittern", "the bittern booms in reeds")
	if h := p.found("the bittern booms", search.Vector); len(h) == 0 || h[0].Chunk.ID != heron || h[0].Chunk.Text != "the bittern booms in reeds" || h[0].Chunk.RangeID == "" || strings.HasPrefix(h[0].Chunk.RangeID, sheaf.EditedRangePrefix) {
		t.Errorf("by meaning: %+v", h)
	}
	p.change(stork, edits.Change{Keywords: &[]string{"clapper"}, Questions: &[]string{"Who delivers babies?"}})
	p.expect("clapper", "the stork nests in May")
	p.expect("delivers", "the stork nests in May")

	p.change(stork, edits.Change{Disabled: new(true)})
	p.expect("stork")
	p.expect("clapper")
	got, err := p.service.Chunk(t.Context(), p.who(), stork)
	p.OK(err)
	if !got.Edit.Content.Disabled || !slices.Equal(got.Chunk.Keywords, []string{"clapper"}) {
		t.Errorf("switched off: %+v", got)
	}
	p.change(stork, edits.Change{Disabled: new(false)})
	p.expect("clapper", "the stork nests in May")

	gone := p.change(crane, edits.Change{Deleted: new(true)})
	p.expect("crane")
	_, err = p.service.Chunk(t.Context(), p.who(), crane)
	p.is(err, sheaf.ErrNotFound)

	added, err := p.service.Add(t.Context(), p.who(), heron, edits.Change{Text: new("ibises are waders too")})
	p.OK(err)
	p.expect("ibises", "ibises are waders too")
	if h := p.found("ibises", search.Text); h[0].Chunk.ID != added.Chunk.ID || !slices.Equal(h[0].Chunk.HeadingPath, []string{"Clause 0"}) || h[0].Chunk.Keywords != nil {
		t.Errorf("added: %+v", h[0].Chunk)
	}
	last, err := p.service.Add(t.Context(), p.who(), "", edits.Change{Text: new("appendix on spoonbills")})
	p.OK(err)
	p.expect("spoonbills", "appendix on spoonbills")
	p.change(last.Chunk.ID, edits.Change{Text: new("appendix on flamingos")})
	p.expect("spoonbills")
	p.expect("flamingos", "appendix on flamingos")
	p.change(last.Chunk.ID, edits.Change{Deleted: new(true)})
	p.expect("flamingos")

	// Undo takes back one change, and to=0 all; undoing the undo is redo.
	undo := func(id string, to *int) *edits.Edited {
		t.Helper()
		u, err := p.service.Undo(t.Context(), p.who(), id, to)
		p.OK(err)
		return u
	}
	undo(gone.Edit.ID, nil)
	p.expect("crane", "the crane dances in June")
	undo(gone.Edit.ID, nil)
	p.expect("crane")
	undo(e.Edit.ID, new(0))
	p.expect("heron", "the heron nests in April")
	p.expect("bittern")
	u := undo(e.Edit.ID, new(1))
	p.expect("bittern", "the bittern booms in reeds")
	undo(last.Edit.ID, new(2))
	p.expect("flamingos", "appendix on flamingos")
	undo(last.Edit.ID, new(0))
	p.expect("flamingos")
	_, history, err := p.service.Edit(t.Context(), p.who(), e.Edit.ID)
	p.OK(err)
	if len(history) != 3 || history[0].Author != "ann" || *history[0].Content.Text != *history[2].Content.Text || history[1].Content.Text != nil {
		t.Errorf("history: %+v", history)
	}
	_, err = p.service.Undo(t.Context(), p.who(), e.Edit.ID, new(9))
	p.is(err, sheaf.ErrNotFound)

	// Of two editors of one version the second is told.
	w := p.who()
	w.IfVersion = &u.Edit.Version
	_, err = p.service.Change(t.Context(), w, heron, edits.Change{Text: new("mine")})
	p.OK(err)
	_, err = p.service.Change(t.Context(), w, heron, edits.Change{Text: new("no, mine")})
	p.is(err, edits.ErrVersion)
	p.expect("mine", "mine")

	// What says what the chunk says already is no edit.
	before := p.model.texts.Load()
	same := p.change(heron, edits.Change{Text: new("mine")})
	if same.Edit.Version != u.Edit.Version+1 || p.model.texts.Load() != before {
		t.Errorf("the same again made version %d", same.Edit.Version)
	}
	for name, c := range map[string]edits.Change{
		"empty": {Text: new(" \n")}, "control": {Text: new("a\x00b")}, "long": {Text: new(strings.Repeat("a", edits.MaxTextBytes+1))}, "many tokens": {Text: new(strings.Repeat("b c ", 8000))},
		"keyword": {Keywords: &[]string{""}}, "keywords": {Keywords: new(slices.Repeat([]string{"k"}, 33))}, "not UTF-8": {Text: new("\xff")},
	} {
		if _, err := p.service.Change(t.Context(), p.who(), heron, c); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, id := range []string{"", "x", sheaf.NewID(), strings.Repeat("f", 32) + "-0"} {
		_, err := p.service.Change(t.Context(), p.who(), id, edits.Change{Text: new("x")})
		p.is(err, sheaf.ErrNotFound)
	}
	other := p.who()
	other.TenantID = "other"
	_, err = p.service.Change(t.Context(), other, heron, edits.Change{Text: new("x")})
	p.is(err, sheaf.ErrNotFound)
}

func TestEditsFollowTheirChunksIntoNewVersions(t *testing.T) {
	p := start(t, "One: the heron nests in April", "Two: see above", "Three: the stork nests in May", "Four: the crane dances in June", "Five: the rail hides")
	p.change(p.chunk("the heron nests in April"), edits.Change{Text: new("the bittern booms")})
	p.change(p.chunk("the stork nests in May"), edits.Change{Disabled: new(true)})
	p.change(p.chunk("the crane dances in June"), edits.Change{Keywords: &[]string{"ballet"}})
	lost := p.change(p.chunk("the rail hides"), edits.Change{Text: new("the rail is seen")})
	_, err := p.service.Add(t.Context(), p.who(), p.chunk("the stork nests in May"), edits.Change{Text: new("ibises are waders")})
	p.OK(err)
	_, err = p.service.Add(t.Context(), p.who(), "", edits.Change{Text: new("appendix on spoonbills")})
	p.OK(err)

	// The same again: everything stays, and no edit is embedded again.
	before := p.model.texts.Load()
	p.reparse(p.pages...)
	if n := p.model.texts.Load() - before; n != 0 {
		t.Errorf("a re-parse of the same embedded %d texts", n)
	}
	check := func() {
		t.Helper()
		p.expect("heron")
		p.expect("bittern", "the bittern booms")
		p.expect("stork")
		p.expect("ballet", "the crane dances in June")
		p.expect("ibises", "ibises are waders")
		p.expect("spoonbills", "appendix on spoonbills")
	}
	check()
	p.expect("rail", "the rail is seen")

	// Others before and between, one moved under another heading, one gone.
	p.reparse("Zero: a preface", "One: the heron nests in April", "Half: the egret too", "Seven: the crane dances in June", "Three: the stork nests in May", "Five: the rail was replaced")
	check()
	p.expect("rail", "the rail was replaced")
	all, err := p.service.Edits(t.Context(), p.who())
	p.OK(err)
	var unplaced []string
	for _, e := range all {
		if e.Generation == 0 {
			unplaced = append(unplaced, e.ID+" "+strings.ReplaceAll(e.Anchor.Excerpt, "\n", "")+" "+strings.Join(e.Anchor.Headings, "/"))
		}
	}
	if want := []string{lost.Edit.ID + " Fivethe rail hides Five"}; !slices.Equal(unplaced, want) {
		t.Errorf("unplaced: %q, want %q", unplaced, want)
	}
	if n := p.Int("SELECT COUNT(*) FROM garbage WHERE range_id LIKE 'edit-%'"); n == 0 {
		t.Error("the ranges of the version before are not collected")
	}

	// It comes back with its text.
	p.reparse("One: the heron nests in April", "Five: the rail hides")
	p.expect("rail", "the rail is seen")
	p.expect("stork")
	p.expect("spoonbills", "appendix on spoonbills")
	p.expect("ibises")

	// An edit without a chunk can be taken back.
	all, err = p.service.Edits(t.Context(), p.who())
	p.OK(err)
	for _, e := range all {
		if e.Generation == 0 {
			_, err := p.service.Undo(t.Context(), p.who(), e.ID, new(0))
			p.OK(err)
		}
	}
	p.reparse("One: the heron nests in April", "Three: the stork nests in May", "Four: the crane dances in June")
	p.expect("stork", "the stork nests in May")
	p.expect("ballet")
	p.expect("ibises")
}

// Texts that stand in a document more than once are told apart by what is beside
// them, and where they cannot be, no chunk is edited.
func TestEditsOfRepeatedTexts(t *testing.T) {
	p := start(t, "A: first", "R: see annex", "B: second", "R: see annex", "C: third")
	edited := p.change(p.nth("see annex", 1), edits.Change{Text: new("bittern")})
	p.reparse("A: first", "R: see annex", "B: second", "R: see annex", "C: third")
	p.expect("annex", "see annex")
	if c, err := p.service.Chunk(t.Context(), p.who(), p.nth("see annex", 1)); err != nil || c.Edit == nil || c.Edit.ID != edited.Edit.ID {
		t.Errorf("the second: %+v, %v", c, err)
	}
	p.reparse("B: second", "R: see annex", "C: third")
	p.expect("annex")
	p.expect("bittern", "bittern")
	p.reparse("A: first", "R: see annex", "B: second", "C: third")
	p.expect("annex", "see annex")
	p.expect("bittern")
	p.reparse("X: new", "R: see annex", "Y: newer", "R: see annex", "Z: newest")
	p.expect("annex", "see annex", "see annex")
	p.expect("bittern")
}

// nth is the id of the n-th published chunk with a text.
func (p *pipeline) nth(text string, n int) string {
	p.t.Helper()
	d, err := p.Store.DocumentByID(p.t.Context(), p.doc.ID)
	p.OK(err)
	for _, t := range p.Tasks(p.doc.ID, d.LiveGeneration) {
		if t.Result.ArtifactKey == "" {
			continue
		}
		stored, err := artifact.Load(p.t.Context(), p.blobs, t.Result.ArtifactKey)
		p.OK(err)
		for _, c := range stored.Chunks {
			if body(c) == text {
				if n == 0 {
					return c.ID
				}
				n--
			}
		}
	}
	p.t.Fatalf("too few chunks read %q", text)
	return ""
}

// An edit that comes while a generation is being published is in it.
func TestEditBesideAPublication(t *testing.T) {
	p := start(t, "the heron nests in April", "the stork nests in May")
	p.store.edits = func() { // the executor has read the edits, and there were none
		p.change(p.chunk("the heron nests in April"), edits.Change{Text: new("the bittern booms")})
		p.expect("bittern", "the bittern booms")
	}
	p.reparse("the egret", "the heron nests in April", "the stork nests in May")
	p.expect("heron")
	p.expect("bittern", "the bittern booms")
	if d, err := p.Store.DocumentByID(t.Context(), p.doc.ID); err != nil || d.LiveGeneration != 2 || d.FinalizeEpoch != 3 {
		t.Errorf("published by finalize %d as generation %d: %v; the edit did not come between", d.FinalizeEpoch, d.LiveGeneration, err)
	}
}

// An edit of a chunk that is being replaced is applied to its successor, or
// refused where there is none.
func TestEditOfAChunkThatIsReplaced(t *testing.T) {
	p := start(t, "One: the heron nests in April", "Two: the stork nests in May")
	heron, stork := p.chunk("the heron nests in April"), p.chunk("the stork nests in May")
	p.store.once = func() { p.reparse("Zero: the egret", "One: the heron nests in April") }
	e := p.change(heron, edits.Change{Text: new("the bittern booms")})
	if e.Chunk.ID == heron || e.Chunk.ID != p.chunk("the heron nests in April") {
		t.Errorf("edited: %+v", e.Chunk)
	}
	p.expect("heron")
	p.expect("bittern", "the bittern booms")
	p.expect("egret", "the egret")
	_, err := p.service.Change(t.Context(), p.who(), stork, edits.Change{Text: new("x")})
	p.is(err, sheaf.ErrNotFound)

	egret := p.chunk("the egret")
	p.store.once = func() { p.reparse("One: the heron nests in April") }
	_, err = p.service.Change(t.Context(), p.who(), egret, edits.Change{Text: new("x")})
	p.is(err, sheaf.ErrConflict)
	p.expect("bittern", "the bittern booms")

	// Many at once without a version: all are taken, one after the other.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if _, err := p.service.Change(t.Context(), p.who(), p.chunk("the heron nests in April"), edits.Change{Text: new(fmt.Sprintf("edit%d", i))}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, history, err := p.service.Edit(t.Context(), p.who(), e.Edit.ID)
	p.OK(err)
	if len(history) != 5 {
		t.Errorf("history: %+v", history)
	}
}

// What nobody parsed takes chunks: it gets a version that holds them alone.
func TestChunksAreAddedToADocumentThatWasNotParsed(t *testing.T) {
	p := start(t, "of something else")
	held := sheaf.Document{ID: sheaf.NewID(), TenantID: p.doc.Tenant, DatasetID: p.doc.Dataset, Name: "held.txt", MediaType: "text/plain", Size: 1, SHA256: strings.Repeat("0", 64), BlobKey: "originals/acme/held"}
	p.OK(p.Store.HoldDocuments(t.Context(), p.doc.Tenant, p.doc.Dataset, []sheaf.Document{held}))
	w := edits.Who{TenantID: p.doc.Tenant, DocumentID: held.ID}
	text, other := "The bittern booms.", "The crane dances."
	for name, tags := range map[string][]sheaf.Tag{
		"no weight": {{Name: "a"}}, "a heavy one": {{Name: "a", Weight: 1.5}}, "twice": {{Name: "a", Weight: 1}, {Name: "a", Weight: 0.5}}, "no name": {{Name: " ", Weight: 1}}, "many": make([]sheaf.Tag, 33),
	} {
		if _, err := p.service.Add(t.Context(), w, "", edits.Change{Text: &text, Tags: &tags}); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d, err := p.Store.DocumentByID(t.Context(), held.ID); err != nil || d.State != sheaf.DocUnstarted {
		t.Fatalf("after refusals the document is %+v, %v", d, err)
	}
	made, err := p.service.Add(t.Context(), w, "", edits.Change{Text: &text, Tags: &[]sheaf.Tag{{Name: "loud", Weight: 0.2}, {Name: "wader", Weight: 1}}})
	p.OK(err)
	if c := made.Chunk; c == nil || c.DocumentID != held.ID || c.Generation != 1 || c.Text != text || len(c.Tags) != 2 || c.Tags[0].Name != "wader" || c.Ordinal != 0 {
		t.Errorf("the chunk is %+v", c)
	}
	_, err = p.service.Add(t.Context(), w, made.Chunk.ID, edits.Change{Text: &other}) // behind that one
	p.OK(err)
	for query, filter := range map[string]search.Filter{"bittern": {Tags: []string{"Wader"}}, "crane": {DocumentIDs: []string{held.ID}}} {
		found, err := p.searcher.Search(t.Context(), p.doc.Tenant, search.Request{Query: query, Mode: search.Text, Filter: filter})
		p.OK(err)
		if len(found.Hits) != 1 || found.Hits[0].Document.ID != held.ID {
			t.Errorf("%s finds %+v", query, found.Hits)
		}
	}
	// Other tags take the place of those that it has, under its id.
	changed, err := p.service.Change(t.Context(), w, made.Chunk.ID, edits.Change{Tags: &[]sheaf.Tag{{Name: "shy", Weight: 1}}})
	p.OK(err)
	if c := changed.Chunk; c.ID != made.Chunk.ID || c.Text != text || len(c.Tags) != 1 || c.Tags[0].Name != "shy" {
		t.Errorf("with other tags it is %+v", c)
	}
}
