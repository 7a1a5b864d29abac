package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// edit is the first version of an edit that sets the text of a chunk of a live
// document.
func (b *bench) edit(doc, rangeID string, n int, text string) taskstore.ChunkEdit {
	b.t.Helper()
	d := b.doc(doc)
	e := taskstore.ChunkEdit{ID: sheaf.NewID(), TenantID: b.tenant, DocumentID: doc, Author: "key of alpha",
		Anchor:    taskstore.Anchor{Digest: "d" + text, Of: 1, Excerpt: "as it was", Pages: []int{2}},
		Content:   taskstore.EditContent{Text: &text},
		Placement: taskstore.Placement{Generation: d.LiveGeneration, ChunkID: sheaf.ChunkID(rangeID, n), BaseRange: rangeID, RangeID: sheaf.EditedRangePrefix + sheaf.NewID()},
	}
	b.ok(b.ReserveRanges(b.ctx, b.tenant, doc, []string{e.RangeID}))
	return e
}

// collectable reports which of the ranges the collector may take once active writers
// are gone.
func (b *bench) collectable(ranges ...string) (out []bool) {
	b.t.Helper()
	b.AdvanceClock(4 * time.Minute)
	g, err := b.Garbage(b.ctx, 10_000)
	b.ok(err)
	for _, id := range ranges {
		found := false
		for _, entry := range g {
			found = found || entry.RangeID == id && entry.ArtifactKey == sheaf.ArtifactKey(b.tenant, entry.DocumentID, id)
		}
		out = append(out, found)
	}
	return out
}

func testEdits(t *testing.T, b *bench) {
	_, doc, ranges := b.live("contract.pdf")
	_, other, _ := b.live("other.pdf")
	look := func(ids ...string) map[string]taskstore.VisibleRange {
		t.Helper()
		v, err := b.Visible(b.ctx, b.tenant, ids)
		b.ok(err)
		return v
	}
	first := b.edit(doc, ranges[0], 3, "better")
	put, err := b.PutEdit(b.ctx, first, 0)
	b.ok(err)
	b.same("created", []any{put.Version, *put.Content.Text, put.Author, put.Anchor, put.Placement, put.CreatedAt.IsZero(), put.Hides(), put.Shows()},
		[]any{1, "better", "key of alpha", first.Anchor, first.Placement, false, true, true})

	seen := look(append(ranges, put.RangeID)...)
	b.same("hidden", seen[ranges[0]].Hidden, map[string]bool{first.ChunkID: true})
	b.same("not hidden", seen[ranges[1]].Hidden == nil, true)
	b.same("stands for", *seen[put.RangeID].Edited, taskstore.EditedChunk{ChunkID: first.ChunkID, RangeID: ranges[0]})
	b.same("of", []any{seen[put.RangeID].DocumentID, seen[put.RangeID].Name, seen[put.RangeID].Generation}, []any{doc, "contract.pdf", 1})
	if v, err := b.Visible(b.ctx, "nobody", []string{put.RangeID}); err != nil || len(v) > 0 {
		t.Errorf("another tenant sees %v, %v", v, err)
	}

	// A rebuilt index includes the edited chunk.
	listed := func() (n int) {
		t.Helper()
		for after := ""; ; {
			some, err := b.LiveResults(b.ctx, "", after, 1)
			b.ok(err)
			if len(some) == 0 {
				return n
			}
			if r := some[0]; r.RangeID == first.RangeID && r.ArtifactKey == sheaf.ArtifactKey(b.tenant, doc, first.RangeID) && r.DocumentID == doc && r.Name == "contract.pdf" && r.Chunks == 1 {
				n++
			}
			after = some[0].Cursor
		}
	}
	b.same("listed", listed(), 1)

	// Of two edits of one version the second is rejected, and nothing changes.
	next := *put
	next.Content, next.RangeID = taskstore.EditContent{Disabled: true}, ""
	off, err := b.PutEdit(b.ctx, next, 1)
	b.ok(err)
	b.same("switched off", []any{off.Version, off.Hides(), off.Shows(), off.RangeID}, []any{2, true, false, ""})
	b.same("listed when it is off", listed(), 0)
	_, err = b.PutEdit(b.ctx, next, 1)
	b.is(err, sheaf.ErrStale)
	twin := b.edit(doc, ranges[0], 3, "another's")
	_, err = b.PutEdit(b.ctx, twin, 0)
	b.is(err, sheaf.ErrStale)
	b.same("the old range is dropped, and the one that was not put", b.collectable(put.RangeID, twin.RangeID), []bool{true, true})
	b.same("nothing of it is found", len(look(put.RangeID, twin.RangeID)), 0)
	b.same("the original neither", look(ranges[0])[ranges[0]].Hidden, map[string]bool{first.ChunkID: true})

	// A range that the collector took is not a result.
	late := b.edit(doc, ranges[1], 0, "late")
	g, err := b.Garbage(b.ctx, 10_000)
	b.ok(err)
	for _, entry := range g {
		if entry.RangeID == late.RangeID {
			t.Error("a range that is being written is collected")
		}
	}
	b.collectable()
	g, err = b.Garbage(b.ctx, 10_000)
	b.ok(err)
	for _, entry := range g {
		if entry.RangeID == late.RangeID {
			b.ok(b.GarbageDone(b.ctx, []int64{entry.ID}))
		}
	}
	_, err = b.PutEdit(b.ctx, late, 0)
	b.is(err, sheaf.ErrStale)

	// Exactly one of several concurrent edits of one version is accepted.
	var wg sync.WaitGroup
	taken := make(chan int, 4)
	for i := range 4 {
		wg.Go(func() {
			mine := *off
			mine.Content = taskstore.EditContent{Deleted: true}
			mine.Author = fmt.Sprint(i)
			if _, err := b.PutEdit(b.ctx, mine, 2); err == nil {
				taken <- i
			}
		})
	}
	wg.Wait()
	b.same("taken", len(taken), 1)
	history, err := b.EditVersions(b.ctx, b.tenant, doc, first.ID)
	b.ok(err)
	b.same("history", []any{len(history), history[0].Version, history[0].Content.Deleted, history[0].Author, history[1].Content.Disabled, *history[2].Content.Text},
		[]any{3, 3, true, fmt.Sprint(<-taken), true, "better"})
	_, err = b.EditVersions(b.ctx, "nobody", doc, first.ID)
	b.is(err, sheaf.ErrNotFound)
	if all, err := b.Edits(b.ctx, "nobody", doc); err != nil || len(all) > 0 {
		t.Errorf("another tenant reads %v, %v", all, err)
	}
	if all, err := b.Edits(b.ctx, b.tenant, other); err != nil || len(all) > 0 {
		t.Errorf("another document has %v, %v", all, err)
	}
	foreign := b.edit(doc, ranges[0], 5, "foreign")
	foreign.TenantID = "nobody"
	_, err = b.PutEdit(b.ctx, foreign, 0)
	b.is(err, sheaf.ErrNotFound)
	b.is(b.ReserveRanges(b.ctx, "nobody", doc, []string{"edit-x"}), sheaf.ErrNotFound)
	foreign.TenantID, foreign.Author = b.tenant, "a\x00b"
	_, err = b.PutEdit(b.ctx, foreign, 0)
	b.is(err, sheaf.ErrInvalid)

	// The store accepts no more history than its limit.
	at := history[0].Version
	mine := *off
	for ; at < taskstore.MaxEditVersions+2; at++ {
		mine.Content.Disabled = at%2 == 0
		_, err := b.PutEdit(b.ctx, mine, at)
		b.ok(err)
	}
	history, err = b.EditVersions(b.ctx, b.tenant, doc, first.ID)
	b.ok(err)
	b.same("bounded history", []any{len(history), history[0].Version, history[len(history)-1].Version}, []any{taskstore.MaxEditVersions, at, 3})
}

func testEditsFollowPublications(t *testing.T, b *bench) {
	_, doc, ranges := b.live("contract.pdf")
	put := func(e taskstore.ChunkEdit, from int) *taskstore.ChunkEdit {
		t.Helper()
		p, err := b.PutEdit(b.ctx, e, from)
		b.ok(err)
		return p
	}
	stays := put(b.edit(doc, ranges[0], 0, "stays"), 0)
	goes := put(b.edit(doc, ranges[1], 1, "goes"), 0)
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: doc, Plan: planTask()}}, ""))
	b.plan(doc, sheaf.Range{From: 1, To: 12})
	fresh := b.parse(doc)
	edits, err := b.Edits(b.ctx, b.tenant, doc)
	b.ok(err)
	publication := func() taskstore.Publication {
		p := taskstore.PlacedEdit{ID: stays.ID, Hides: true, Placement: taskstore.Placement{Generation: 2, ChunkID: sheaf.ChunkID(fresh[0], 7), BaseRange: fresh[0], RangeID: sheaf.EditedRangePrefix + sheaf.NewID()}}
		b.ok(b.ReserveRanges(b.ctx, b.tenant, doc, []string{p.RangeID}))
		return taskstore.Publication{State: sheaf.DocSucceeded, Ledger: sheaf.LedgerCounts{OK: 12}, Chunks: 12, Tokens: 60, EditsVersion: taskstore.EditsVersion(edits), Edits: []taskstore.PlacedEdit{p}}
	}

	// Edited after the publication was prepared: the generation is finalized again.
	old := publication()
	changed := *stays
	changed.Content.Keywords, changed.RangeID = &[]string{"late"}, sheaf.EditedRangePrefix+sheaf.NewID()
	b.ok(b.ReserveRanges(b.ctx, b.tenant, doc, []string{changed.RangeID}))
	changed = *put(changed, 1)
	b.publish(doc, old)
	d := b.doc(doc)
	b.same("not published", []any{d.LiveGeneration, d.State, d.FinalizeEpoch}, []any{1, sheaf.DocFinalizing, int64(3)})
	seen, err := b.Visible(b.ctx, b.tenant, []string{changed.RangeID, old.Edits[0].RangeID, fresh[0]})
	b.ok(err)
	b.same("the live generation has the edit", []any{len(seen), seen[changed.RangeID].Generation}, []any{1, 1})

	edits, err = b.Edits(b.ctx, b.tenant, doc)
	b.ok(err)
	now := publication()
	b.publish(doc, now)
	b.same("published", b.doc(doc).LiveGeneration, 2)
	moved := now.Edits[0]
	seen, err = b.Visible(b.ctx, b.tenant, []string{changed.RangeID, goes.RangeID, old.Edits[0].RangeID, moved.RangeID, fresh[0], ranges[0]})
	b.ok(err)
	b.same("only the placed one is seen", []any{len(seen), seen[moved.RangeID].Edited.ChunkID, seen[fresh[0]].Hidden}, []any{2, moved.ChunkID, map[string]bool{moved.ChunkID: true}})
	b.same("ranges without a use are dropped", b.collectable(changed.RangeID, goes.RangeID, old.Edits[0].RangeID, moved.RangeID), []bool{true, true, true, false})
	edits, err = b.Edits(b.ctx, b.tenant, doc)
	b.ok(err)
	b.same("edits", []any{len(edits), edits[0].Placement, *edits[0].Content.Keywords, edits[1].Placement, *edits[1].Content.Text, edits[1].Anchor.Excerpt},
		[]any{2, moved.Placement, []string{"late"}, taskstore.Placement{}, "goes", "as it was"})

	// An edit based on the previous generation is rejected; one without a chunk is not.
	stale := *goes
	stale.RangeID = ""
	_, err = b.PutEdit(b.ctx, stale, 1)
	b.is(err, sheaf.ErrStale)
	stale.Placement, stale.Content = taskstore.Placement{}, taskstore.EditContent{}
	put(stale, 1)

	// A failed generation leaves the live one with its edits.
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: doc, Plan: planTask()}}, ""))
	b.plan(doc, sheaf.Range{From: 1, To: 12})
	b.parse(doc)
	edits, err = b.Edits(b.ctx, b.tenant, doc)
	b.ok(err)
	b.publish(doc, taskstore.Publication{State: sheaf.DocFailed, Failure: sheaf.Fail(sheaf.CategoryBadInput, "x", "x"), EditsVersion: taskstore.EditsVersion(edits)})
	seen, err = b.Visible(b.ctx, b.tenant, []string{moved.RangeID})
	b.ok(err)
	b.same("failed", []any{b.doc(doc).LiveGeneration, len(seen)}, []any{2, 1})
	listed := map[string]bool{}
	all, err := b.ResultsOf(b.ctx, []string{doc})
	b.ok(err)
	for _, r := range all {
		if strings.HasPrefix(r.RangeID, sheaf.EditedRangePrefix) {
			listed[r.RangeID] = r.Live && r.Chunks == 1
		}
	}
	b.same("inventory", listed, map[string]bool{moved.RangeID: true})

	// A deleted document leaves no edit, and its receipt counts the versions.
	late := put(b.edit(doc, fresh[0], 9, "soon gone"), 0)
	r, err := b.DeleteDocuments(b.ctx, b.tenant, []string{doc})
	b.ok(err)
	seen, err = b.Visible(b.ctx, b.tenant, []string{moved.RangeID, late.RangeID})
	b.ok(err)
	b.same("seen after the deletion", len(seen), 0)
	_, err = b.PutEdit(b.ctx, *late, 1)
	b.is(err, sheaf.ErrNotFound)
	_, err = b.PurgeDeleted(b.ctx, 100)
	b.ok(err)
	rec, err := b.Receipt(b.ctx, b.tenant, r.ReceiptID)
	b.ok(err)
	b.same("removed", rec.Removed.Rows.Edits, 5)
}

// A document without a parsed version has one for the chunks that users add, which
// later generations take over like any other.
func testBlankVersion(t *testing.T, b *bench) {
	_, live, _ := b.live("live.pdf")
	b.ok(b.PublishBlank(b.ctx, b.tenant, live))
	b.same("a live document stays as it is", []any{b.doc(live).Generation, b.doc(live).LiveGeneration}, []any{1, 1})
	b.is(b.PublishBlank(b.ctx, "nobody", live), sheaf.ErrNotFound)
	b.is(b.PublishBlank(b.ctx, b.tenant, sheaf.NewID()), sheaf.ErrNotFound)

	held := b.newDocument("held.txt").Document
	b.ok(b.HoldDocuments(b.ctx, b.tenant, b.dataset.ID, []sheaf.Document{held}))
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() { errs <- b.PublishBlank(b.ctx, b.tenant, held.ID) }()
	}
	for range cap(errs) {
		b.ok(<-errs)
	}
	d := b.doc(held.ID)
	b.same("published once", []any{d.State, d.Generation, d.LiveGeneration, d.Progress, d.Units, d.Chunks, d.JobID, d.FinishedAt.IsZero()}, []any{sheaf.DocSucceeded, 1, 1, 1.0, 0, 0, "", false})
	gens, err := b.Generations(b.ctx, b.tenant, held.ID)
	b.ok(err)
	b.same("generations", []any{len(gens), gens[0].State, gens[0].PublishedAt.IsZero()}, []any{1, sheaf.DocSucceeded, false})
	if n, _, err := b.Fold(b.ctx, 100, 0); err != nil || n > 0 {
		t.Errorf("folding finds %d documents to change, %v", n, err)
	}

	text := "added"
	e := taskstore.ChunkEdit{ID: sheaf.NewID(), TenantID: b.tenant, DocumentID: held.ID, Added: true,
		Content:   taskstore.EditContent{Text: &text, Tags: &[]sheaf.Tag{{Name: "bird", Weight: 0.5}}},
		Placement: taskstore.Placement{Generation: 1, RangeID: sheaf.EditedRangePrefix + sheaf.NewID()}}
	b.ok(b.ReserveRanges(b.ctx, b.tenant, held.ID, []string{e.RangeID}))
	put, err := b.PutEdit(b.ctx, e, 0)
	b.ok(err)
	b.same("tags", *put.Content.Tags, []sheaf.Tag{{Name: "bird", Weight: 0.5}})
	seen, err := b.Visible(b.ctx, b.tenant, []string{e.RangeID})
	b.ok(err)
	b.same("the added chunk is seen", len(seen), 1)

	// It is parsed later.
	b.ok(b.Reparse(b.ctx, b.newJob(sheaf.JobReparse), []taskstore.ReparseDocument{{DocumentID: held.ID, Plan: planTask()}}, ""))
	d = b.doc(held.ID)
	b.same("while it is parsed", []any{d.State, d.Generation, d.LiveGeneration}, []any{sheaf.DocQueued, 2, 1})

	// While a first generation is in progress there is none.
	_, queued := b.create("queued.txt")
	b.is(b.PublishBlank(b.ctx, b.tenant, queued[0]), sheaf.ErrConflict)
	_, err = b.CancelDocuments(b.ctx, b.tenant, queued)
	b.ok(err)
	b.fold()
	b.same("canceled", b.doc(queued[0]).State, sheaf.DocCanceled)
	b.ok(b.PublishBlank(b.ctx, b.tenant, queued[0]))
	d = b.doc(queued[0])
	b.same("after a cancel", []any{d.State, d.Generation, d.LiveGeneration}, []any{sheaf.DocSucceeded, 2, 2})
}
