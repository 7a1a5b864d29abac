package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

const (
	// purgeRows is how many rows of a deleted document one transaction takes.
	purgeRows = 500
	// purgeAtOnce and purgePatience bound what a delete purges before it is
	// answered; the keeper goes on with the rest.
	purgeAtOnce   = 200
	purgePatience = 2 * time.Second
	// sweepRows is how many answers of idempotency keys one look reads, and
	// sweepLooks how many looks a purge makes at once.
	sweepRows  = 100
	sweepLooks = 10
	// keptCopies bounds what is said of one document's copies.
	keptCopies = 20
	// purgePasses: what a late writer leaves after the first is gone after the
	// second, which comes when it must have lost its lease.
	purgePasses = 2
)

type receiptRow struct {
	ID          string `gorm:"primaryKey"`
	TenantID    string
	DatasetID   string
	Kind        string
	State       string
	Pass        int // purges that are done
	NextAt      int64
	Webhooks    int
	Answers     int
	SweepAfter  string // the idempotency key that the purge has come to
	Objects     int    // of uploads that became no document
	ObjectBytes int64
	Body        string // the receipt as it was signed; "" while it is pending
	CreatedAt   int64  `gorm:"autoCreateTime:false"`
	CompletedAt int64
}

type receiptDocumentRow struct {
	ReceiptID   string
	DocID       string
	Pass        int
	Generations int
	Tasks       int
	Events      int
	Messages    int
	Uploads     int
	Objects     int
	ObjectBytes int64
	Chunks      int
	Vectors     int
	Kept        string // JSON list
	Documents   int    // how many, of a sum
}

func (r *receiptDocumentRow) toDomain() sheaf.ReceiptDocument {
	d := sheaf.ReceiptDocument{DocumentID: r.DocID, Kept: []sheaf.KeptCopy{}, Removed: r.removed()}
	d.Removed.Rows.Documents = 1
	decode(r.Kept, &d.Kept)
	return d
}

func (r *receiptDocumentRow) removed() sheaf.Removed {
	return sheaf.Removed{
		Rows:    sheaf.RemovedRows{Documents: r.Documents, Generations: r.Generations, Tasks: r.Tasks, Events: r.Events, Messages: r.Messages, Uploads: r.Uploads},
		Objects: r.Objects, ObjectBytes: r.ObjectBytes, Chunks: r.Chunks, Vectors: r.Vectors,
	}
}

// openReceipt makes the receipt, or opens it again for more documents. One that
// was completed meanwhile is followed by another, whose id rec then has.
func (s *Store) openReceipt(tx *gorm.DB, rec *receiptRow, tenantID, datasetID string) error {
	var state []string
	if err := tx.Raw("SELECT state FROM receipts WHERE id=?"+s.d.lock, rec.ID).Scan(&state).Error; err != nil {
		return err
	}
	switch {
	case len(state) == 0:
	case state[0] == string(sheaf.ReceiptPending):
		return tx.Exec("UPDATE receipts SET pass=0, next_at=0, sweep_after='' WHERE id=?", rec.ID).Error
	default:
		rec.ID = sheaf.NewID()
	}
	return insertRows(tx, "receipts", []string{"id", "tenant_id", "dataset_id", "kind", "state", "body", "created_at"},
		[][]any{{rec.ID, tenantID, datasetID, rec.Kind, string(sheaf.ReceiptPending), "", raw(s.now())}}, "")
}

// addToReceipt notes documents that the transaction deletes, before their rows
// are emptied.
func (s *Store) addToReceipt(tx *gorm.DB, rec *receiptRow, tenantID string, docs []documentRow) error {
	if err := s.openReceipt(tx, rec, tenantID, docs[0].DatasetID); err != nil {
		return err
	}
	kept, err := s.keptWhole(tx, rec, tenantID, docs)
	if err != nil {
		return err
	}
	rows := make([][]any, len(docs))
	for i, d := range docs {
		rows[i] = []any{rec.ID, d.ID, encodeList(kept[d.ID])}
	}
	return insertRows(tx, "receipt_documents", []string{"receipt_id", "doc_id", "kept"}, rows, s.d.noop("doc_id"))
}

// keptWhole finds what holds the bytes of documents and is not deleted with
// them: other uploads of the same file, and the archive that a file lies in.
func (s *Store) keptWhole(tx *gorm.DB, rec *receiptRow, tenantID string, docs []documentRow) (map[string][]sheaf.KeptCopy, error) {
	going := make(map[string]bool, len(docs))
	var sums []string
	for _, d := range docs {
		going[d.ID] = true
		if d.SHA256 != "" {
			sums = append(sums, d.SHA256)
		}
	}
	twins := map[string][]string{}
	for batch := range chunks(sortedUnique(sums)) {
		var rows []documentRow
		// By dataset, since that is how the index of the digests begins.
		if err := tx.Raw(`SELECT id, sha256 FROM documents WHERE tenant_id=? AND dataset_id IN (SELECT id FROM datasets WHERE tenant_id=?)
			AND sha256 IN ? AND deleted_at=0 ORDER BY id LIMIT 5000`, tenantID, tenantID, batch).Scan(&rows).Error; err != nil {
			return nil, err
		}
		for _, r := range rows {
			if !going[r.ID] && len(twins[r.SHA256]) < keptCopies {
				twins[r.SHA256] = append(twins[r.SHA256], r.ID)
			}
		}
	}
	kept := map[string][]sheaf.KeptCopy{}
	for _, d := range docs {
		for _, id := range twins[d.SHA256] {
			kept[d.ID] = append(kept[d.ID], sheaf.KeptCopy{DocumentID: d.ID, HeldBy: id, Reason: sheaf.KeptBytes})
		}
		if d.ParentID != "" && !going[d.ParentID] && rec.Kind != string(sheaf.ReceiptMembers) {
			kept[d.ID] = append(kept[d.ID], sheaf.KeptCopy{DocumentID: d.ID, HeldBy: d.ParentID, Reason: sheaf.KeptArchive})
		}
	}
	return kept, nil
}

// dropDatasetUploads takes the uploads of a dataset along that is deleted, also
// those that are on their way.
func (s *Store) dropDatasetUploads(tx *gorm.DB, tenantID, datasetID, receiptID string) error {
	for {
		var rows []uploadRow
		if err := tx.Raw("SELECT * FROM uploads WHERE tenant_id=? AND dataset_id=? ORDER BY id LIMIT 500"+s.d.lock, tenantID, datasetID).Scan(&rows).Error; err != nil || len(rows) == 0 {
			return err
		}
		if err := s.dropUploads(tx, rows, receiptID); err != nil {
			return err
		}
	}
}

// purgeNow purges right behind a deletion. What it does not get to, and what
// fails, is left to the keeper.
func (s *Store) purgeNow(ctx context.Context, receiptID string) {
	if s.purgeLater.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, purgePatience)
	defer cancel()
	var rows []receiptRow
	if receiptID == "" || s.w.WithContext(ctx).Raw("SELECT * FROM receipts WHERE id=? AND pass=0", receiptID).Scan(&rows).Error != nil || len(rows) == 0 {
		return
	}
	_, _ = s.purgeReceipt(ctx, &rows[0], purgeAtOnce)
}

// PurgeDeleted removes or empties the rows that still tell of up to limit
// deleted documents, and says how many of them it did.
func (s *Store) PurgeDeleted(ctx context.Context, limit int) (int, error) {
	var rows []receiptRow
	if err := s.w.WithContext(ctx).Raw(s.sql("SELECT * FROM receipts WHERE state='pending' AND pass<? AND next_at<=@now ORDER BY next_at, id LIMIT ?"), purgePasses, limit).Scan(&rows).Error; err != nil {
		return 0, translate(err)
	}
	n := 0
	for i := range rows {
		done, err := s.purgeReceipt(ctx, &rows[i], limit-n)
		if n += done; err != nil || n >= limit {
			return n, err
		}
	}
	return n, nil
}

// purgeReceipt makes the next pass over up to limit documents of a receipt.
func (s *Store) purgeReceipt(ctx context.Context, r *receiptRow, limit int) (n int, err error) {
	pass := r.Pass + 1
	var ids []string
	if err := s.w.WithContext(ctx).Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? AND pass<? ORDER BY pass, doc_id LIMIT ?", r.ID, pass, limit).Scan(&ids).Error; err != nil {
		return 0, translate(err)
	}
	for _, id := range ids {
		if err := s.purgeDocument(ctx, r, id, pass); err != nil {
			return n, fmt.Errorf("purge document %s: %w", id, err)
		}
		n++
	}
	if n == limit {
		return n, nil
	}
	swept, err := s.sweepAnswers(ctx, r)
	if err != nil || !swept {
		return max(n, limit), err // the caller comes back soon
	}
	return n, translate(s.w.WithContext(ctx).Exec(s.sql(`UPDATE receipts SET pass=?, sweep_after='', next_at=@now+? WHERE id=? AND pass=? AND state='pending'
		AND NOT EXISTS (SELECT 1 FROM receipt_documents d WHERE d.receipt_id=? AND d.pass<?)`),
		pass, s.zombieDelay().Milliseconds(), r.ID, r.Pass, r.ID, pass).Error)
}

// purgeDocument empties or removes every row that still tells of a deleted
// document, in transactions of a bounded number of rows. Each counts what it
// did, so that it may be broken off anywhere and made again.
func (s *Store) purgeDocument(ctx context.Context, r *receiptRow, id string, pass int) error {
	for _, step := range []func(context.Context, *receiptRow, string) error{s.purgeTasks, s.purgeEvents, s.purgeMessages, s.purgeUploads} {
		if err := step(ctx, r, id); err != nil {
			return err
		}
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		// Written once more: a row of a document can not be found by what it held.
		if err := tx.Exec("UPDATE documents SET name='', sha256='', metadata='{}', outline='', failure='', warnings='[]', parse_config='{}', member_path='' WHERE id=? AND deleted_at<>0", id).Error; err != nil {
			return err
		}
		return tx.Exec(`UPDATE receipt_documents SET pass=?, generations=CASE WHEN generations=0 THEN (SELECT COUNT(*) FROM generations g WHERE g.doc_id=?) ELSE generations END
			WHERE receipt_id=? AND doc_id=? AND pass<?`, pass, id, r.ID, id, pass).Error
	})
}

// purgeTasks keeps of tasks what was done and how long it took, by which jobs
// are summed.
func (s *Store) purgeTasks(ctx context.Context, r *receiptRow, id string) error {
	after, total := "", 0
	for {
		n, last := 0, ""
		err := s.tx(ctx, func(tx *gorm.DB) error {
			// Locked first, so that of two that purge each sees what the other did.
			var item []receiptDocumentRow
			if err := tx.Raw("SELECT * FROM receipt_documents WHERE receipt_id=? AND doc_id=?"+s.d.lock, r.ID, id).Scan(&item).Error; err != nil || len(item) == 0 {
				n = 0
				return err
			}
			var tasks []taskRow
			if err := tx.Raw("SELECT id, reuse_key FROM tasks WHERE doc_id=? AND id>? ORDER BY id LIMIT ?", id, after, purgeRows).Scan(&tasks).Error; err != nil {
				return err
			}
			if n = len(tasks); n == 0 {
				return nil
			}
			ids, keys := make([]string, n), []string{}
			last = tasks[n-1].ID
			for i, t := range tasks {
				if ids[i] = t.ID; t.ReuseKey != "" {
					keys = append(keys, t.ReuseKey)
				}
			}
			if err := s.keepRanges(tx, r, &item[0], keys); err != nil {
				return err
			}
			if err := tx.Exec("UPDATE tasks SET payload='', result="+s.spentResult()+", failure='', reuse_key='', digest='' WHERE id IN ?", ids).Error; err != nil {
				return err
			}
			return tx.Exec("UPDATE receipt_documents SET tasks="+s.d.greatest+"(tasks, ?) WHERE receipt_id=? AND doc_id=?", total+n, r.ID, id).Error
		})
		if err != nil || n < purgeRows {
			return err
		}
		after, total = last, total+n
	}
}

// spentResult is an expression for what is left of a task's result.
func (s *Store) spentResult() string {
	object := "json_object('usage', json_extract(result, '$.usage'), 'stages', json_extract(result, '$.stages'))"
	if s.d.name == "postgres" {
		object = "CAST(json_build_object('usage', CAST(result AS json)->'usage', 'stages', CAST(result AS json)->'stages') AS text)"
	}
	return "CASE WHEN result='' THEN '' ELSE " + object + " END"
}

// keepRanges notes live documents that have ranges of the same content.
func (s *Store) keepRanges(tx *gorm.DB, r *receiptRow, item *receiptDocumentRow, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	var found []struct {
		DocID string
		N     int
	}
	if err := tx.Raw(`SELECT t.doc_id, COUNT(DISTINCT t.reuse_key) AS n FROM tasks t JOIN documents d ON d.id=t.doc_id
		WHERE t.tenant_id=? AND t.reuse_key IN ? AND t.state='done' AND t.range_id<>'' AND t.doc_id<>? AND d.deleted_at=0
		GROUP BY t.doc_id ORDER BY t.doc_id LIMIT ?`, r.TenantID, sortedUnique(keys), item.DocID, keptCopies).Scan(&found).Error; err != nil || len(found) == 0 {
		return err
	}
	kept := []sheaf.KeptCopy{}
	decode(item.Kept, &kept)
	for _, f := range found {
		i := slices.IndexFunc(kept, func(k sheaf.KeptCopy) bool { return k.HeldBy == f.DocID })
		switch {
		case i < 0 && len(kept) < 2*keptCopies:
			kept = append(kept, sheaf.KeptCopy{DocumentID: item.DocID, HeldBy: f.DocID, Reason: sheaf.KeptRanges, Ranges: f.N})
		case i >= 0 && kept[i].Reason == sheaf.KeptRanges:
			kept[i].Ranges += f.N
		}
	}
	return tx.Exec("UPDATE receipt_documents SET kept=? WHERE receipt_id=? AND doc_id=?", encode(kept), item.ReceiptID, item.DocID).Error
}

// purgeEvents removes the log of a document: nobody is shown it any more.
func (s *Store) purgeEvents(ctx context.Context, r *receiptRow, id string) error {
	for {
		n := 0
		err := s.tx(ctx, func(tx *gorm.DB) error {
			n = 0
			var seqs []int64
			if err := tx.Raw("SELECT seq FROM events WHERE doc_id=? ORDER BY seq LIMIT ?", id, purgeRows).Scan(&seqs).Error; err != nil || len(seqs) == 0 {
				return err
			}
			res := tx.Exec("DELETE FROM events WHERE seq IN ?", seqs)
			if n = len(seqs); res.Error != nil {
				return res.Error
			}
			return tx.Exec("UPDATE receipt_documents SET events=events+? WHERE receipt_id=? AND doc_id=?", res.RowsAffected, r.ID, id).Error
		})
		if err != nil || n < purgeRows {
			return err
		}
	}
}

// purgeMessages takes names and texts out of messages to webhooks. The
// receivers are still told what they were to be told, by id.
func (s *Store) purgeMessages(ctx context.Context, r *receiptRow, id string) error {
	var hooks []string
	if err := s.w.WithContext(ctx).Raw("SELECT id FROM webhooks WHERE dataset_id=? AND tenant_id=?", r.DatasetID, r.TenantID).Scan(&hooks).Error; err != nil {
		return translate(err)
	}
	for _, hook := range hooks {
		for after := "doc_" + id + "_"; ; {
			var rows []deliveryRow
			// The document's, and those of documents whose ids go on with "_".
			if err := s.w.WithContext(ctx).Raw("SELECT seq, event_id, data, error FROM webhook_deliveries WHERE webhook_id=? AND event_id>? AND event_id<? ORDER BY event_id LIMIT ?",
				hook, after, "doc_"+id+"`", purgeRows).Scan(&rows).Error; err != nil {
				return translate(err)
			}
			for _, row := range rows {
				if err := s.purgeMessage(ctx, r, id, row); err != nil {
					return err
				}
				after = row.EventID
			}
			if len(rows) < purgeRows {
				break
			}
		}
	}
	return nil
}

func (s *Store) purgeMessage(ctx context.Context, r *receiptRow, id string, row deliveryRow) error {
	var news sheaf.DocumentNews
	if json.Unmarshal([]byte(row.Data), &news) != nil || news.DocumentID != id || news.Name == "" && news.Failure == nil && row.Error == "" {
		return nil
	}
	news.Name, news.Failure = "", nil
	return s.tx(ctx, func(tx *gorm.DB) error {
		res := tx.Exec("UPDATE webhook_deliveries SET data=?, error='' WHERE seq=? AND data=?", encode(news), row.Seq, row.Data)
		if res.Error != nil {
			return res.Error
		}
		return tx.Exec("UPDATE receipt_documents SET messages=messages+? WHERE receipt_id=? AND doc_id=?", res.RowsAffected, r.ID, id).Error
	})
}

// purgeUploads drops what is still known of the uploads that became the
// document, with their pieces. One that has not been submitted is another's.
func (s *Store) purgeUploads(ctx context.Context, r *receiptRow, id string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		var rows []uploadRow
		if err := tx.Raw("SELECT * FROM uploads WHERE tenant_id=? AND dataset_id=? AND doc_id=? AND job_id<>'' ORDER BY id LIMIT 500"+s.d.lock, r.TenantID, r.DatasetID, id).Scan(&rows).Error; err != nil || len(rows) == 0 {
			return err
		}
		if err := s.dropUploads(tx, rows, r.ID); err != nil {
			return err
		}
		return tx.Exec("UPDATE receipt_documents SET uploads=uploads+? WHERE receipt_id=? AND doc_id=?", len(rows), r.ID, id).Error
	})
}

// sweepAnswers takes back the answers that are kept for repeated idempotency
// keys and tell of a document of the receipt, or of its dataset. It reads a
// bounded number of them and reports whether it came to the end.
func (s *Store) sweepAnswers(ctx context.Context, r *receiptRow) (ended bool, err error) {
	for range sweepLooks {
		var rows []idempotencyRow
		if err := s.w.WithContext(ctx).Raw("SELECT tenant_id, k, answer FROM idempotency WHERE tenant_id=? AND k>? ORDER BY k LIMIT ?", r.TenantID, r.SweepAfter, sweepRows).Scan(&rows).Error; err != nil {
			return false, translate(err)
		}
		if err := s.sweepSome(ctx, r, rows); err != nil {
			return false, err
		}
		if len(rows) < sweepRows {
			return true, nil
		}
		r.SweepAfter = rows[len(rows)-1].K
		if err := s.w.WithContext(ctx).Exec("UPDATE receipts SET sweep_after=? WHERE id=? AND pass=?", r.SweepAfter, r.ID, r.Pass).Error; err != nil {
			return false, translate(err)
		}
	}
	return false, nil
}

func (s *Store) sweepSome(ctx context.Context, r *receiptRow, rows []idempotencyRow) error {
	var all []string
	named := make([][]string, len(rows))
	for i, row := range rows {
		named[i] = answerIDs(s.vault.open(row.Answer, secretContext("answer", row.TenantID, row.K)))
		all = append(all, named[i]...)
	}
	gone := map[string]bool{}
	if r.Kind == string(sheaf.ReceiptDataset) {
		gone[r.DatasetID] = true
	}
	for batch := range chunks(sortedUnique(all)) {
		var ids []string
		if err := s.w.WithContext(ctx).Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? AND doc_id IN ?", r.ID, batch).Scan(&ids).Error; err != nil {
			return translate(err)
		}
		for _, id := range ids {
			gone[id] = true
		}
	}
	for i, row := range rows {
		if !slices.ContainsFunc(named[i], func(id string) bool { return gone[id] }) {
			continue
		}
		err := s.tx(ctx, func(tx *gorm.DB) error {
			res := tx.Exec("UPDATE idempotency SET answer=? WHERE tenant_id=? AND k=? AND answer=?", taskstore.ForgottenAnswer, row.TenantID, row.K, row.Answer)
			if res.Error != nil {
				return res.Error
			}
			return tx.Exec("UPDATE receipts SET answers=answers+? WHERE id=?", res.RowsAffected, r.ID).Error
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// maxIDRunes is the longest id.
const maxIDRunes = 64

// answerIDs lists the strings of a kept answer's JSON body that may be ids. The
// answer of a deletion, which names a receipt, holds nothing but ids and has none.
func answerIDs(answer string) []string {
	var kept struct {
		Body []byte `json:"body"`
	}
	if json.Unmarshal([]byte(answer), &kept) != nil {
		return nil
	}
	var ids []string
	for dec := json.NewDecoder(strings.NewReader(string(kept.Body))); ; {
		token, err := dec.Token()
		if err != nil { // the end, or no JSON
			return sortedUnique(ids)
		}
		if text, ok := token.(string); ok && text != "" && len(text) <= maxIDRunes {
			if text == "receipt_id" {
				return nil
			}
			ids = append(ids, text)
		}
	}
}

// CountGarbage adds what was found under entries of the garbage, before it is
// removed, to the receipts that wait for them. An entry counts once.
func (s *Store) CountGarbage(ctx context.Context, found []taskstore.GarbageCount) error {
	for batch := range chunks(found) {
		err := s.tx(ctx, func(tx *gorm.DB) error {
			for _, c := range batch {
				var rows []garbageRow
				if err := tx.Raw("SELECT * FROM garbage WHERE id=? AND counted=0 AND receipt_id<>''"+s.d.lock, c.ID).Scan(&rows).Error; err != nil {
					return err
				}
				if len(rows) == 0 {
					continue
				}
				if err := tx.Exec("UPDATE garbage SET counted=1 WHERE id=?", c.ID).Error; err != nil {
					return err
				}
				if c.Objects == 0 && c.Chunks == 0 && c.Vectors == 0 {
					continue
				}
				g := rows[0]
				res := tx.Exec("UPDATE receipt_documents SET objects=objects+?, object_bytes=object_bytes+?, chunks=chunks+?, vectors=vectors+? WHERE receipt_id=? AND doc_id=?",
					c.Objects, c.Bytes, c.Chunks, c.Vectors, g.ReceiptID, g.DocID)
				if res.Error != nil {
					return res.Error
				}
				if res.RowsAffected > 0 {
					continue
				}
				// Pieces of an upload that became no document.
				if err := tx.Exec("UPDATE receipts SET objects=objects+?, object_bytes=object_bytes+? WHERE id=?", c.Objects, c.Bytes, g.ReceiptID).Error; err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SettleReceipts completes up to limit receipts of which nothing is left. sign,
// which may be nil, sets the signature of what is stored.
func (s *Store) SettleReceipts(ctx context.Context, limit int, sign func(*sheaf.Receipt) error) (int, error) {
	const settled = "state='pending' AND pass>=? AND NOT EXISTS (SELECT 1 FROM garbage g WHERE g.receipt_id=receipts.id)"
	var rows []receiptRow
	if err := s.w.WithContext(ctx).Raw("SELECT * FROM receipts WHERE "+settled+" ORDER BY next_at, id LIMIT ?", purgePasses, limit).Scan(&rows).Error; err != nil {
		return 0, translate(err)
	}
	n := 0
	for i := range rows {
		r, err := s.sumReceipt(ctx, &rows[i])
		if err != nil {
			return n, err
		}
		var now []int64
		if err := s.w.WithContext(ctx).Raw(s.sql("SELECT @now")).Scan(&now).Error; err != nil || len(now) == 0 {
			return n, translate(err)
		}
		r.State, r.CompletedAt = sheaf.ReceiptCompleted, toTime(now[0])
		if r.DocumentsSHA256, err = s.digestDocuments(ctx, r.ID); err != nil {
			return n, err
		}
		if sign != nil {
			if err := sign(r); err != nil {
				return n, fmt.Errorf("sign receipt %s: %w", r.ID, err)
			}
		}
		res := s.w.WithContext(ctx).Exec("UPDATE receipts SET state=?, body=?, completed_at=? WHERE id=? AND "+settled, string(r.State), encode(r), now[0], r.ID, purgePasses)
		if res.Error != nil {
			return n, translate(res.Error)
		}
		n += int(res.RowsAffected)
	}
	return n, nil
}

// digestDocuments hashes the ids of a receipt's documents.
func (s *Store) digestDocuments(ctx context.Context, id string) (string, error) {
	h := sha256.New()
	for after := ""; ; {
		var ids []string
		if err := s.w.WithContext(ctx).Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? AND doc_id>? ORDER BY doc_id LIMIT ?", id, after, inventoryBatch).Scan(&ids).Error; err != nil {
			return "", translate(err)
		}
		for _, doc := range ids {
			_, _ = io.WriteString(h, doc+"\n") // a hash takes everything
			after = doc
		}
		if len(ids) < inventoryBatch {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
	}
}

// sumReceipt is a pending receipt as it stands.
func (s *Store) sumReceipt(ctx context.Context, row *receiptRow) (*sheaf.Receipt, error) {
	r := &sheaf.Receipt{Format: sheaf.ReceiptFormat, ID: row.ID, TenantID: row.TenantID, DatasetID: row.DatasetID, Kind: sheaf.ReceiptKind(row.Kind),
		State: sheaf.ReceiptPending, DocumentIDs: []string{}, Kept: []sheaf.KeptCopy{}, RequestedAt: toTime(row.CreatedAt)}
	db := s.w.WithContext(ctx)
	var sums []receiptDocumentRow
	if err := db.Raw(`SELECT COUNT(*) AS documents, COALESCE(SUM(generations), 0) AS generations, COALESCE(SUM(tasks), 0) AS tasks, COALESCE(SUM(events), 0) AS events,
		COALESCE(SUM(messages), 0) AS messages, COALESCE(SUM(uploads), 0) AS uploads, COALESCE(SUM(objects), 0) AS objects, COALESCE(SUM(object_bytes), 0) AS object_bytes,
		COALESCE(SUM(chunks), 0) AS chunks, COALESCE(SUM(vectors), 0) AS vectors FROM receipt_documents WHERE receipt_id=?`, row.ID).Scan(&sums).Error; err != nil || len(sums) == 0 {
		return nil, translate(err)
	}
	r.Documents, r.Removed = sums[0].Documents, sums[0].removed()
	r.Removed.Objects += row.Objects
	r.Removed.ObjectBytes += row.ObjectBytes
	r.Removed.Rows.Webhooks, r.Removed.Rows.Answers = row.Webhooks, row.Answers
	if err := db.Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? ORDER BY doc_id LIMIT ?", row.ID, sheaf.MaxReceiptIDs).Scan(&r.DocumentIDs).Error; err != nil {
		return nil, translate(err)
	}
	var kept []string
	if err := db.Raw("SELECT kept FROM receipt_documents WHERE receipt_id=? AND kept<>'[]' ORDER BY doc_id LIMIT ?", row.ID, sheaf.MaxReceiptIDs).Scan(&kept).Error; err != nil {
		return nil, translate(err)
	}
	var held []string
	for _, text := range kept {
		var copies []sheaf.KeptCopy
		decode(text, &copies)
		r.Kept = append(r.Kept, copies...)
	}
	r.Kept = r.Kept[:min(len(r.Kept), sheaf.MaxReceiptIDs)]
	for _, k := range r.Kept {
		held = append(held, k.HeldBy)
	}
	live := map[string]bool{}
	for batch := range chunks(sortedUnique(held)) {
		var ids []string
		if err := db.Raw("SELECT id FROM documents WHERE id IN ? AND deleted_at=0", batch).Scan(&ids).Error; err != nil {
			return nil, translate(err)
		}
		for _, id := range ids {
			live[id] = true
		}
	}
	// One that was deleted meanwhile, perhaps by the same request, keeps nothing.
	r.Kept = slices.DeleteFunc(r.Kept, func(k sheaf.KeptCopy) bool { return !live[k.HeldBy] })
	slices.SortFunc(r.Kept, func(a, b sheaf.KeptCopy) int {
		return cmp.Or(strings.Compare(a.DocumentID, b.DocumentID), strings.Compare(a.HeldBy, b.HeldBy))
	})
	return r, nil
}

func (s *Store) receipt(ctx context.Context, row *receiptRow) (*sheaf.Receipt, error) {
	if row.State != string(sheaf.ReceiptCompleted) {
		return s.sumReceipt(ctx, row)
	}
	var r sheaf.Receipt
	if err := json.Unmarshal([]byte(row.Body), &r); err != nil {
		return nil, fmt.Errorf("decode receipt %s: %w", row.ID, err)
	}
	return &r, nil
}

// Receipts lists those of a dataset, also of one that is gone, or of all for
// "".
func (s *Store) Receipts(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]sheaf.Receipt, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	if datasetID != "" {
		w.add("dataset_id=?", datasetID)
	}
	suffix, limit := w.page("id", p)
	var rows []receiptRow
	if err := s.read(ctx).Raw("SELECT * FROM receipts"+w.String()+suffix, w.args...).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r receiptRow) string { return r.ID })
	out := make([]sheaf.Receipt, len(rows))
	for i := range rows {
		r, err := s.receipt(ctx, &rows[i])
		if err != nil {
			return nil, "", err
		}
		out[i] = *r
	}
	return out, next, nil
}

// Receipt finds a receipt of the tenant.
func (s *Store) Receipt(ctx context.Context, tenantID, id string) (*sheaf.Receipt, error) {
	var rows []receiptRow
	if err := s.read(ctx).Raw("SELECT * FROM receipts WHERE id=? AND tenant_id=?", id, tenantID).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, notFound("receipt", id)
	}
	return s.receipt(ctx, &rows[0])
}

// ReceiptDocuments lists the documents of a receipt.
func (s *Store) ReceiptDocuments(ctx context.Context, tenantID, id string, p taskstore.Page) ([]sheaf.ReceiptDocument, string, error) {
	var own []string
	if err := s.read(ctx).Raw("SELECT id FROM receipts WHERE id=? AND tenant_id=?", id, tenantID).Scan(&own).Error; err != nil {
		return nil, "", translate(err)
	}
	if len(own) == 0 {
		return nil, "", notFound("receipt", id)
	}
	var w where
	w.add("receipt_id=?", id)
	suffix, limit := w.page("doc_id", p)
	var rows []receiptDocumentRow
	if err := s.read(ctx).Raw("SELECT * FROM receipt_documents"+w.String()+suffix, w.args...).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r receiptDocumentRow) string { return r.DocID })
	out := make([]sheaf.ReceiptDocument, len(rows))
	for i := range rows {
		out[i] = rows[i].toDomain()
	}
	return out, next, nil
}
