package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// known fails with ErrNotFound when the tenant has never had any of the documents,
// so that canceling or deleting unknown ids is an error, while repeating a delete is
// not.
func (s *handle) known(ctx context.Context, tenantID string, ids []string) error {
	for batch := range chunks(ids) {
		found, err := all[string](s.write(ctx), "SELECT id FROM documents WHERE id IN ? AND tenant_id=? LIMIT 1", batch, tenantID)
		if err != nil || len(found) > 0 {
			return err
		}
	}
	return fmt.Errorf("%w: none of the %d documents exists", sheaf.ErrNotFound, len(ids))
}

// DeleteDocuments hides the documents immediately, stops their work, blanks the rows
// that describe them, and leaves the removal of chunks and blobs to the collector,
// which the receipt tracks to the end. The files of an archive are deleted before
// it, so that an interrupted delete can be repeated.
func (s *deletions) DeleteDocuments(ctx context.Context, tenantID string, ids []string) (taskstore.DeleteReceipt, error) {
	rec := &receiptRow{ID: sheaf.NewID(), Kind: string(taskstore.ReceiptDocuments)}
	sum, err := s.deleteDocuments(ctx, tenantID, ids, rec)
	if err == nil {
		s.purgeNow(ctx, sum.ReceiptID)
	}
	return sum, err
}

// deleteDocuments is DeleteDocuments under a receipt; numerous rows are left to the
// purge.
func (s *deletions) deleteDocuments(ctx context.Context, tenantID string, ids []string, rec *receiptRow) (taskstore.DeleteReceipt, error) {
	var sum taskstore.DeleteReceipt
	if err := s.known(ctx, tenantID, ids); err != nil {
		return sum, err
	}
	order, err := s.membersFirst(ctx, tenantID, ids)
	if err != nil {
		return sum, err
	}
	for batch := range slices.Chunk(order, changeBatch) {
		var r taskstore.DeleteReceipt
		err := s.tx(ctx, func(tx *gorm.DB) error {
			r = taskstore.DeleteReceipt{}
			docs, err := s.lockDocuments(tx, tenantID, batch)
			if err != nil || len(docs) == 0 {
				return err
			}
			if docs, err = s.withMembers(tx, tenantID, docs); err != nil {
				return err
			}
			r, err = s.deleteLocked(tx, tenantID, docs, rec)
			return err
		})
		if err != nil {
			return sum, fmt.Errorf("delete %d documents, %d of them done: %w", len(ids), sum.Documents, err)
		}
		addReceipt(&sum, r)
	}
	return sum, nil
}

// deleteLocked deletes documents whose rows are locked, under a receipt, and blanks
// the less numerous rows: documents and generations.
func (s *deletions) deleteLocked(tx *gorm.DB, tenantID string, docs []documentRow, rec *receiptRow) (taskstore.DeleteReceipt, error) {
	var r taskstore.DeleteReceipt
	for i := range docs {
		d := docs[i]
		r.DocumentIDs = append(r.DocumentIDs, d.ID)
		r.Bytes += d.Size
		if d.LiveGen > 0 {
			r.Chunks += d.ChunkCount
		}
		d.Name = "" // the deletion event must not retain it
		if err := s.tellDocument(tx, &d, "deleted", "deleted", nil); err != nil {
			return r, err
		}
	}
	r.Documents = len(docs)
	running, err := s.stopTasks(tx, r.DocumentIDs, sheaf.TaskCanceled, sheaf.EventCanceled, "The document was deleted.")
	if err != nil {
		return r, err
	}
	r.RunningTasks = running
	if err := s.forgetNames(tx, docs); err != nil {
		return r, err
	}
	if err := run(tx, stmt("UPDATE jobs SET summary=NULL WHERE summary IS NOT NULL AND id IN (SELECT job_id FROM generations WHERE doc_id IN ?)", r.DocumentIDs)); err != nil {
		return r, err
	}
	if err := run(tx, stmt("UPDATE generations SET parse_config='{}', failure='', flow=NULL WHERE doc_id IN ?", r.DocumentIDs)); err != nil {
		return r, err
	}
	failure := sheaf.Fail(sheaf.CategoryCanceled, "deleted", "The document was deleted before the generation was done; upload it again if it is still needed.")
	if err := s.endGenerations(tx, r.DocumentIDs, encodeFailure(failure)); err != nil {
		return r, err
	}
	if err := s.addToReceipt(tx, rec, tenantID, docs); err != nil {
		return r, err
	}
	r.ReceiptID = rec.ID
	if err := tx.Exec(s.sql(`UPDATE documents SET deleted_at=@now, updated_at=@now, `+emptied+`,
		finished_at=CASE WHEN finished_at=0 THEN @now ELSE finished_at END,
		state=CASE WHEN state IN ('succeeded','partially_succeeded','failed','canceled') THEN state ELSE 'canceled' END
		WHERE id IN ? AND deleted_at=0`), r.DocumentIDs).Error; err != nil {
		return r, err
	}
	if err := s.insertDocumentGarbage(tx, tenantID, docs, rec.ID); err != nil {
		return r, err
	}
	if err := s.dropResults(tx, rec.ID, r.DocumentIDs); err != nil {
		return r, err
	}
	n, err := one[struct{ Generations, Tasks int }](tx, "count", "", "SELECT (SELECT COUNT(*) FROM generations WHERE doc_id IN ?) AS generations, (SELECT COUNT(*) FROM tasks WHERE doc_id IN ?) AS tasks",
		r.DocumentIDs, r.DocumentIDs)
	if err != nil {
		return r, err
	}
	r.Generations, r.Tasks = n.Generations, n.Tasks
	return r, run(tx, stmt("DELETE FROM doc_dirty WHERE doc_id IN ?", r.DocumentIDs))
}

// forgetNames removes deleted documents from the names of jobs, which are those of
// their first files. A replaced document may have had other names; its jobs then
// drop all names.
func (s *deletions) forgetNames(tx *gorm.DB, docs []documentRow) error {
	type job struct{ ID, Files string }
	jobs, err := all[job](tx, "SELECT id, files FROM jobs WHERE files<>'[]' AND id IN (SELECT job_id FROM generations WHERE doc_id IN ?) ORDER BY id", mapped(docs, documentRow.id))
	if err != nil {
		return err
	}
	deleted := setOf(mapped(docs, func(d documentRow) string { return fileOfJob(d.Name) }))
	replaced := slices.ContainsFunc(docs, func(d documentRow) bool { return d.Gen > 1 })
	for _, j := range jobs {
		var files []string
		decode(j.Files, &files)
		left := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return replaced || deleted[name] })
		if len(left) == len(files) {
			continue
		}
		if err := run(tx, stmt("UPDATE jobs SET files=? WHERE id=?", encodeList(left), j.ID)); err != nil {
			return err
		}
	}
	return nil
}

// insertDocumentGarbage hands everything that documents left in the index and the
// blob store to the collector: now, and again when no writer can still be active.
func (s *deletions) insertDocumentGarbage(tx *gorm.DB, tenantID string, docs []documentRow, receiptID string) error {
	var rows [][]any
	for _, delay := range []time.Duration{0, s.zombieDelay()} {
		due := s.after(delay)
		for _, d := range docs {
			prefixes := []string{"", sheaf.ArtifactPrefix(tenantID, d.ID), sheaf.OriginalPrefix(tenantID, d.ID)}
			if d.ParentID != "" {
				prefixes = append(prefixes, d.BlobKey) // it is stored with the archive
			}
			for _, prefix := range prefixes {
				rows = append(rows, []any{tenantID, d.ID, prefix, receiptID, due})
			}
		}
	}
	return insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "blob_prefix", "receipt_id", "not_before"}, rows, "")
}

// membersOf lists the ids of documents' direct members.
func membersOf(tx *gorm.DB, ids []string, where string, args ...any) ([]string, error) {
	return byIDs[string](tx, ids, "SELECT id FROM documents WHERE parent_id IN ? AND deleted_at=0"+where+" ORDER BY id", args...)
}

// membersFirst lists all nested members of documents before them.
func (s *deletions) membersFirst(ctx context.Context, tenantID string, ids []string) ([]string, error) {
	ids = sortedUnique(ids)
	own, err := byIDs[string](s.write(ctx), ids, "SELECT id FROM documents WHERE id IN ? AND tenant_id=?", tenantID)
	if err != nil {
		return nil, err
	}
	var inner [][]string
	for level := own; len(level) > 0; {
		members, err := membersOf(s.write(ctx), level, "")
		if err != nil {
			return nil, err
		}
		inner, level = append(inner, members), members
	}
	slices.Reverse(inner) // the deepest first
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Concat(append(inner, ids)...), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	}), nil
}

// withMembers adds the nested members of locked documents, and locks them. No
// members can be added until the transaction ends.
func (s *deletions) withMembers(tx *gorm.DB, tenantID string, docs []documentRow) ([]documentRow, error) {
	for level := docs; len(level) > 0; {
		members, err := membersOf(tx, mapped(level, documentRow.id), "")
		if err != nil {
			return nil, err
		}
		have := setOf(mapped(docs, documentRow.id))
		members = slices.DeleteFunc(members, func(id string) bool { return have[id] })
		if level, err = s.lockDocuments(tx, tenantID, members); err != nil {
			return nil, err
		}
		docs = append(docs, level...)
	}
	return docs, nil
}

// dropFormerMembers deletes the documents that an archive's new version, now being
// published, no longer contains.
func (s *deletions) dropFormerMembers(tx *gorm.DB, archive *documentRow) error {
	if archive.Gen == 1 {
		return nil
	}
	ids, err := membersOf(tx, []string{archive.ID}, " AND parent_gen<?", archive.Gen)
	if err != nil || len(ids) == 0 {
		return err
	}
	docs, err := s.lockDocuments(tx, archive.TenantID, ids)
	if err != nil {
		return err
	}
	if docs, err = s.withMembers(tx, archive.TenantID, docs); err != nil {
		return err
	}
	slices.SortFunc(docs, func(a, b documentRow) int { return strings.Compare(a.ID, b.ID) })
	rec := &receiptRow{ID: sheaf.NewID(), Kind: string(taskstore.ReceiptMembers)}
	for batch := range slices.Chunk(docs, changeBatch) {
		if _, err := s.deleteLocked(tx, archive.TenantID, batch, rec); err != nil {
			return err
		}
	}
	return nil
}

// openReceipt creates the receipt, or reopens it for more documents. One completed
// meanwhile is succeeded by another, whose id rec then has.
func (s *deletions) openReceipt(tx *gorm.DB, rec *receiptRow, tenantID, datasetID string) error {
	state, err := all[string](tx, "SELECT state FROM receipts WHERE id=?"+s.d.lock, rec.ID)
	switch {
	case err != nil:
		return err
	case len(state) == 0:
	case state[0] == string(taskstore.ReceiptPending):
		return tx.Exec("UPDATE receipts SET pass=0, next_at=0, sweep_after='' WHERE id=?", rec.ID).Error
	default:
		rec.ID = sheaf.NewID()
	}
	return insertRows(tx, "receipts", []string{"id", "tenant_id", "dataset_id", "kind", "state", "body", "created_at"},
		[][]any{{rec.ID, tenantID, datasetID, rec.Kind, string(taskstore.ReceiptPending), "", raw(s.now())}}, "")
}

// addToReceipt records the documents that the transaction deletes, before their rows
// are blanked.
func (s *deletions) addToReceipt(tx *gorm.DB, rec *receiptRow, tenantID string, docs []documentRow) error {
	if err := s.openReceipt(tx, rec, tenantID, docs[0].DatasetID); err != nil {
		return err
	}
	kept, err := s.wholeCopies(tx, rec, tenantID, docs)
	if err != nil {
		return err
	}
	rows := make([][]any, len(docs))
	for i, d := range docs {
		rows[i] = []any{rec.ID, d.ID, encodeList(kept[d.ID])}
	}
	return insertRows(tx, "receipt_documents", []string{"receipt_id", "doc_id", "kept"}, rows, s.d.noop("doc_id"))
}

// wholeCopies finds what holds the documents' bytes and is not deleted with them:
// other uploads of the same file, and the archive containing it.
func (s *deletions) wholeCopies(tx *gorm.DB, rec *receiptRow, tenantID string, docs []documentRow) (map[string][]taskstore.KeptCopy, error) {
	going := setOf(mapped(docs, documentRow.id))
	sums := slices.DeleteFunc(sortedUnique(mapped(docs, documentRow.sum)), func(sum string) bool { return sum == "" })
	// By dataset, because the digest index starts with it; and in its order: in the
	// order of ids, SQLite would read all documents of the tenant.
	rows, err := byIDs[documentRow](tx, sums, `SELECT id, sha256 FROM documents WHERE sha256 IN ? AND tenant_id=? AND dataset_id IN (SELECT id FROM datasets WHERE tenant_id=?)
		AND deleted_at=0 ORDER BY dataset_id, sha256, id LIMIT 5000`, tenantID, tenantID)
	if err != nil {
		return nil, err
	}
	twins := map[string][]string{}
	for _, r := range rows {
		if !going[r.ID] && len(twins[r.SHA256]) < maxCopies {
			twins[r.SHA256] = append(twins[r.SHA256], r.ID)
		}
	}
	kept := map[string][]taskstore.KeptCopy{}
	for _, d := range docs {
		for _, id := range twins[d.SHA256] {
			kept[d.ID] = append(kept[d.ID], taskstore.KeptCopy{DocumentID: d.ID, HeldBy: id, Reason: taskstore.KeptBytes})
		}
		if d.ParentID != "" && !going[d.ParentID] && rec.Kind != string(taskstore.ReceiptMembers) {
			kept[d.ID] = append(kept[d.ID], taskstore.KeptCopy{DocumentID: d.ID, HeldBy: d.ParentID, Reason: taskstore.KeptArchive})
		}
	}
	return kept, nil
}
