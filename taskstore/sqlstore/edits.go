package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

type editRow struct {
	DocID     string
	ID        string
	TenantID  string
	Version   int
	Added     int
	Anchor    string // JSON
	Content   string // JSON
	Author    string
	Gen       int
	ChunkID   string
	BaseRange string
	RangeID   string
	Hides     int
	CreatedAt int64 `gorm:"autoCreateTime:false"`
	UpdatedAt int64 `gorm:"autoUpdateTime:false"`
}

func (r editRow) toDomain() taskstore.ChunkEdit {
	e := taskstore.ChunkEdit{
		ID: r.ID, TenantID: r.TenantID, DocumentID: r.DocID, Version: r.Version, Added: r.Added != 0, Author: r.Author,
		CreatedAt: toTime(r.CreatedAt), UpdatedAt: toTime(r.UpdatedAt),
		Placement: taskstore.Placement{Generation: r.Gen, ChunkID: r.ChunkID, BaseRange: r.BaseRange, RangeID: r.RangeID},
	}
	decode(r.Anchor, &e.Anchor)
	decode(r.Content, &e.Content)
	return e
}

// thereStill selects rows of documents that are not deleted.
const thereStill = " AND EXISTS (SELECT 1 FROM documents d WHERE d.id=doc_id AND d.deleted_at=0)"

// Edits lists the edits of a document, oldest first.
func (s *edits) Edits(ctx context.Context, tenantID, documentID string) ([]taskstore.ChunkEdit, error) {
	rows, err := all[editRow](s.read(ctx), "SELECT * FROM chunk_edits WHERE doc_id=? AND tenant_id=?"+thereStill+" ORDER BY created_at, id LIMIT ?", documentID, tenantID, taskstore.MaxEdits)
	return mapped(rows, editRow.toDomain), err
}

// EditVersions returns the history of an edit, newest first.
func (s *edits) EditVersions(ctx context.Context, tenantID, documentID, id string) ([]taskstore.EditVersion, error) {
	type row struct {
		Version   int
		Content   string
		Author    string
		CreatedAt int64 `gorm:"autoCreateTime:false"`
	}
	rows, err := all[row](s.read(ctx), `SELECT version, content, author, created_at FROM chunk_edit_versions WHERE doc_id=? AND edit_id=?
		AND EXISTS (SELECT 1 FROM documents d WHERE d.id=doc_id AND d.deleted_at=0 AND d.tenant_id=?) ORDER BY version DESC LIMIT ?`, documentID, id, tenantID, taskstore.MaxEditVersions)
	if err == nil && len(rows) == 0 {
		err = notFound("edit", id)
	}
	return mapped(rows, func(r row) taskstore.EditVersion {
		v := taskstore.EditVersion{Version: r.Version, Author: r.Author, At: toTime(r.CreatedAt)}
		decode(r.Content, &v.Content)
		return v
	}), err
}

// PublishBlank gives a never-published document an empty version, for chunks added
// by users. It does nothing if one is live. ErrConflict while a generation is in
// progress.
func (s *edits) PublishBlank(ctx context.Context, tenantID, documentID string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		doc, err := s.lockDocument(tx, documentID)
		if err != nil || doc == nil || doc.DeletedAt != 0 || doc.TenantID != tenantID {
			return cmp.Or(err, notFound("document", documentID))
		}
		if doc.LiveGen > 0 {
			return nil
		}
		if state := sheaf.DocumentState(doc.State); state != sheaf.DocUnstarted && !state.Terminal() {
			return fmt.Errorf("%w: the document is being parsed; wait until that has ended", sheaf.ErrConflict)
		}
		if doc.Gen > 0 {
			if err := (&changes{s.handle}).supersede(tx, []documentRow{*doc}); err != nil {
				return err
			}
		}
		if err := s.dropRanges(tx, s.grace, doc, doc.Gen); err != nil {
			return err
		}
		n, err := exec(tx, s.sql(`UPDATE documents SET gen=?, live_gen=?, job_id='', state='succeeded', progress=1, units=0, unit='', chunk_count=0, token_count=0, ledger='{}', failure='', warnings='[]',
			parser='', updated_at=@now, started_at=@now, finished_at=@now WHERE id=? AND gen=?`), doc.Gen+1, doc.Gen+1, doc.ID, doc.Gen)
		if err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%w: document %s changed while it was being read", sheaf.ErrStale, doc.ID)
		}
		doc.Gen, doc.JobID, doc.State = doc.Gen+1, "", string(sheaf.DocSucceeded)
		now := raw(s.now())
		if err := insertRows(tx, "generations", []string{"doc_id", "gen", "tenant_id", "job_id", "state", "parse_config", "created_at", "finished_at", "published_at"},
			[][]any{{doc.ID, doc.Gen, doc.TenantID, doc.JobID, doc.State, doc.ParseConfig, now, now, now}}, ""); err != nil {
			return err
		}
		return s.insertDocumentEvent(tx, doc, sheaf.DocumentChange{State: sheaf.DocSucceeded, Progress: 1})
	})
}

// ReserveRanges hands ranges that are about to be written to the collector, which
// removes them once no writer can still be active. PutEdit and a publication take
// them back. ErrNotFound when the document is gone.
func (s *edits) ReserveRanges(ctx context.Context, tenantID, documentID string, rangeIDs []string) error {
	if len(rangeIDs) == 0 {
		return nil
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		if doc, err := s.lockDocument(tx, documentID); err != nil || doc == nil || doc.DeletedAt != 0 || doc.TenantID != tenantID {
			return cmp.Or(err, notFound("document", documentID))
		}
		return s.dropEdited(tx, tenantID, documentID, rangeIDs, s.after(s.zombieDelay()))
	})
}

// dropEdited hands the ranges of edited chunks to the collector.
func (s *handle) dropEdited(tx *gorm.DB, tenantID, documentID string, rangeIDs []string, due raw) error {
	rows := make([][]any, len(rangeIDs))
	for i, id := range rangeIDs {
		rows[i] = []any{tenantID, documentID, id, sheaf.ArtifactKey(tenantID, documentID, id), due}
	}
	return insertRows(tx, "garbage", rangeGarbage, rows, "")
}

// takeBack takes reserved ranges back from the collector; ErrStale if it has removed
// one.
func takeBack(tx *gorm.DB, documentID string, rangeIDs []string) error {
	n, err := execByIDs(tx, rangeIDs, "DELETE FROM garbage WHERE doc_id=? AND range_id IN ?", documentID)
	if err == nil && n != len(rangeIDs) {
		err = fmt.Errorf("%w: %d of %d written ranges of document %s are left", sheaf.ErrStale, n, len(rangeIDs), documentID)
	}
	return err
}

// PutEdit writes the next version of an edit based on version from; 0 creates it.
// e.RangeID, if set, must be reserved. It fails with ErrStale, changing nothing,
// when the edit has another version by now, its chunk already has an edit, or the
// live generation is not e.Generation; with ErrLimit when the document has the
// maximum number of edits.
func (s *edits) PutEdit(ctx context.Context, e taskstore.ChunkEdit, from int) (put *taskstore.ChunkEdit, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		doc, err := s.lockDocument(tx, e.DocumentID)
		if err != nil || doc == nil || doc.DeletedAt != 0 || doc.TenantID != e.TenantID {
			return cmp.Or(err, notFound("document", e.DocumentID))
		}
		if e.Generation != 0 && doc.LiveGen != e.Generation {
			return fmt.Errorf("%w: the edit is of generation %d and %d is published", sheaf.ErrStale, e.Generation, doc.LiveGen)
		}
		was, err := first[editRow](tx, "SELECT * FROM chunk_edits WHERE doc_id=? AND id=?"+s.d.lock, e.DocumentID, e.ID)
		if err != nil {
			return err
		}
		if was == nil && from > 0 {
			return notFound("edit", e.ID)
		}
		if was != nil && (was.Version != from || was.Gen != e.Generation || was.ChunkID != e.ChunkID) {
			return fmt.Errorf("%w: edit %s has version %d by now", sheaf.ErrStale, e.ID, was.Version)
		}
		if was == nil {
			if err := s.mayCreateEdit(tx, &e); err != nil {
				return err
			}
		}
		if e.RangeID != "" {
			if err := takeBack(tx, e.DocumentID, []string{e.RangeID}); err != nil {
				return err
			}
		}
		if err := s.dropResults(tx, "", []string{e.DocumentID}); err != nil {
			return err
		}
		e.Version = from + 1
		hides := flag(e.Hides())
		if was == nil {
			err = insertRows(tx, "chunk_edits", []string{"doc_id", "id", "tenant_id", "version", "added", "anchor", "content", "author", "gen", "chunk_id", "base_range", "range_id", "hides", "created_at", "updated_at"},
				[][]any{{e.DocumentID, e.ID, e.TenantID, e.Version, flag(e.Added), encode(e.Anchor), encode(e.Content), e.Author, e.Generation, e.ChunkID, e.BaseRange, e.RangeID, hides, raw(s.now()), raw(s.now())}}, "")
		} else {
			if was.RangeID != "" {
				if err := s.dropEdited(tx, e.TenantID, e.DocumentID, []string{was.RangeID}, s.after(s.grace)); err != nil {
					return err
				}
			}
			err = run(tx, stmt(s.sql("UPDATE chunk_edits SET version=?, content=?, author=?, range_id=?, hides=?, updated_at=@now WHERE doc_id=? AND id=?"),
				e.Version, encode(e.Content), e.Author, e.RangeID, hides, e.DocumentID, e.ID))
		}
		if err != nil {
			return err
		}
		if err := insertRows(tx, "chunk_edit_versions", []string{"doc_id", "edit_id", "version", "content", "author", "created_at"},
			[][]any{{e.DocumentID, e.ID, e.Version, encode(e.Content), e.Author, raw(s.now())}}, ""); err != nil {
			return err
		}
		if err := run(tx, stmt("DELETE FROM chunk_edit_versions WHERE doc_id=? AND edit_id=? AND version<=?", e.DocumentID, e.ID, e.Version-taskstore.MaxEditVersions)); err != nil {
			return err
		}
		row, err := one[editRow](tx, "edit", e.ID, "SELECT * FROM chunk_edits WHERE doc_id=? AND id=?", e.DocumentID, e.ID)
		if err != nil {
			return err
		}
		made := row.toDomain()
		put = &made
		return nil
	})
	return put, err
}

// mayCreateEdit rejects a second edit of a chunk, and edits beyond the limit.
func (s *edits) mayCreateEdit(tx *gorm.DB, e *taskstore.ChunkEdit) error {
	if err := checkTexts("the author's name", e.Author, 255); err != nil {
		return err
	}
	n, err := one[struct{ N, Same int }](tx, "count", "", "SELECT COUNT(*) AS n, COALESCE(SUM(CASE WHEN added=0 AND gen=? AND chunk_id=? THEN 1 ELSE 0 END), 0) AS same FROM chunk_edits WHERE doc_id=?",
		e.Generation, e.ChunkID, e.DocumentID)
	switch {
	case err != nil:
		return err
	case !e.Added && n.Same > 0:
		return fmt.Errorf("%w: chunk %s has an edit by now", sheaf.ErrStale, e.ChunkID)
	case n.N >= taskstore.MaxEdits:
		f := sheaf.Fail(sheaf.CategoryCapacity, sheaf.CodeLimit, "the document has %d edits, which is the most; correct the file and upload it again instead", n.N)
		return fmt.Errorf("%w: %w", sheaf.ErrLimit, &sheaf.LimitFailure{Failure: f, Current: int64(n.N), Limit: taskstore.MaxEdits})
	}
	return nil
}

// placeEdits moves the edits of a document to the generation being published. It
// returns false, changing nothing, if users have edited since the publication was
// prepared.
func (s *tasks) placeEdits(tx *gorm.DB, t *taskRow, p taskstore.Publication) (bool, error) {
	rows, err := all[editRow](tx, "SELECT id, version, range_id FROM chunk_edits WHERE doc_id=?"+s.d.lock, t.DocID)
	if err != nil {
		return false, err
	}
	if taskstore.EditsVersion(mapped(rows, editRow.toDomain)) != p.EditsVersion {
		return false, nil
	}
	if p.State == sheaf.DocFailed || len(rows) == 0 { // the live generation stays
		return true, nil
	}
	var former []string
	for _, r := range rows {
		if r.RangeID != "" {
			former = append(former, r.RangeID)
		}
	}
	if err := s.dropEdited(tx, t.TenantID, t.DocID, former, s.after(s.grace)); err != nil {
		return false, err
	}
	if err := takeBack(tx, t.DocID, taskstore.EditedRanges(p.Edits)); err != nil {
		return false, err
	}
	if err := run(tx, stmt("UPDATE chunk_edits SET gen=0, chunk_id='', base_range='', range_id='', hides=0 WHERE doc_id=?", t.DocID)); err != nil {
		return false, err
	}
	var c script
	for _, e := range p.Edits {
		c.add("UPDATE chunk_edits SET gen=?, chunk_id=?, base_range=?, range_id=?, hides=? WHERE doc_id=? AND id=?", t.Gen, e.ChunkID, e.BaseRange, e.RangeID, flag(e.Hides), t.DocID, e.ID)
	}
	return true, c.exec(tx)
}

// editedRange reports whether a range holds an edited chunk.
func editedRange(id string) bool { return strings.HasPrefix(id, sheaf.EditedRangePrefix) }

// purgeEdits removes the edits of a deleted document and their history.
func (s *deletions) purgeEdits(ctx context.Context, r *receiptRow, id string) error {
	for {
		n := 0
		err := s.tx(ctx, func(tx *gorm.DB) error {
			ids, err := all[string](tx, "SELECT id FROM chunk_edits WHERE doc_id=? ORDER BY id LIMIT ?", id, purgeRows/taskstore.MaxEditVersions+1)
			if n = len(ids); err != nil || n == 0 {
				return err
			}
			removed, err := exec(tx, "DELETE FROM chunk_edit_versions WHERE doc_id=? AND edit_id IN ?", id, ids)
			if err != nil {
				return err
			}
			return run(tx, stmt("DELETE FROM chunk_edits WHERE doc_id=? AND id IN ?", id, ids),
				stmt("UPDATE receipt_documents SET edits=edits+? WHERE receipt_id=? AND doc_id=?", removed, r.ID, id))
		})
		if err != nil || n == 0 {
			return err
		}
	}
}
