package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf/taskstore"
)

const (
	// purgeRows is how many rows of deleted documents one transaction removes, and
	// purgeTogether how many documents it purges.
	purgeRows     = 500
	purgeTogether = 100
	// purgeAtOnce and purgePatience limit what a delete purges before it returns; the
	// keeper purges the rest.
	purgeAtOnce   = 200
	purgePatience = 2 * time.Second
	// sweepRows is how many stored answers of idempotency keys one query reads, and
	// sweepLooks how many queries one purge makes.
	sweepRows  = 100
	sweepLooks = 10
	// maxCopies limits the copies reported per document.
	maxCopies = 20
	// purgePasses: the second pass removes what a late writer leaves after the first;
	// it runs when that writer must have lost its lease.
	purgePasses = 2
)

// emptied sets the columns of a deleted document's row to what remains of them.
const emptied = "name='', sha256='', metadata='{}', attributes='', outline='', failure='', warnings='[]', parse_config='{}', member_path=''"

// purgeNow purges right after a deletion. The keeper does what it does not get to
// and what fails.
func (s *deletions) purgeNow(ctx context.Context, receiptID string) {
	if receiptID == "" || s.purgeLater.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, purgePatience)
	defer cancel()
	if r, err := one[receiptRow](s.write(ctx), "receipt", receiptID, "SELECT * FROM receipts WHERE id=? AND pass=0", receiptID); err == nil {
		_, _ = s.purgeReceipt(ctx, r, purgeAtOnce)
	}
}

// PurgeDeleted removes or empties the remaining rows about up to limit deleted
// documents, and returns how many documents it handled.
func (s *deletions) PurgeDeleted(ctx context.Context, limit int) (int, error) {
	rows, err := all[receiptRow](s.write(ctx), s.sql("SELECT * FROM receipts WHERE state='pending' AND pass<? AND next_at<=@now ORDER BY next_at, id LIMIT ?"), purgePasses, limit)
	if err != nil {
		return 0, err
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
func (s *deletions) purgeReceipt(ctx context.Context, r *receiptRow, limit int) (n int, err error) {
	pass := r.Pass + 1
	ids, err := all[string](s.write(ctx), "SELECT doc_id FROM receipt_documents WHERE receipt_id=? AND pass<? ORDER BY pass, doc_id LIMIT ?", r.ID, pass, limit)
	if err != nil {
		return 0, err
	}
	for some := range slices.Chunk(ids, purgeTogether) {
		if err := s.purgeDocuments(ctx, r, some, pass); err != nil {
			return n, fmt.Errorf("purge %d documents of receipt %s: %w", len(some), r.ID, err)
		}
		n += len(some)
	}
	if n == limit {
		return n, nil
	}
	swept, err := s.sweepAnswers(ctx, r)
	if err != nil || !swept {
		return max(n, limit), err // the caller tries again soon
	}
	return n, translate(s.write(ctx).Exec(s.sql(`UPDATE receipts SET pass=?, sweep_after='', next_at=@now+? WHERE id=? AND pass=? AND state='pending'
		AND NOT EXISTS (SELECT 1 FROM receipt_documents d WHERE d.receipt_id=? AND d.pass<?)`),
		pass, s.zombieDelay().Milliseconds(), r.ID, r.Pass, r.ID, pass).Error)
}

// purgeDocuments empties or removes every remaining row about deleted documents, in
// transactions of a limited number of rows. Each counts what it did, so the purge
// can be interrupted anywhere and repeated.
func (s *deletions) purgeDocuments(ctx context.Context, r *receiptRow, ids []string, pass int) error {
	// Few documents have any of these.
	for _, step := range []struct {
		of    string // documents that do
		purge func(context.Context, *receiptRow, string) error
	}{{"SELECT DISTINCT doc_id FROM chunk_edits WHERE doc_id IN ?", s.purgeEdits}, {"SELECT DISTINCT doc_id FROM run_items WHERE doc_id IN ?", s.purgeRuns}} {
		of, err := byIDs[string](s.write(ctx), ids, step.of)
		if err != nil {
			return err
		}
		for _, id := range of {
			if err := step.purge(ctx, r, id); err != nil {
				return err
			}
		}
	}
	if err := s.purgeMessages(ctx, r, ids); err != nil {
		return err
	}
	if err := s.purgeQueries(ctx, r, ids); err != nil {
		return err
	}
	tasks, err := byIDs[struct {
		DocID string
		N     int
	}](s.write(ctx), ids, "SELECT doc_id, COUNT(*) AS n FROM tasks WHERE doc_id IN ? GROUP BY doc_id")
	if err != nil {
		return err
	}
	of := make(map[string]int, len(tasks))
	for _, t := range tasks {
		of[t.DocID] = t.N
	}
	for from, to, sum := 0, 0, 0; from < len(ids); from, sum = to, 0 {
		for to = from; to < len(ids) && (to == from || sum+of[ids[to]] <= purgeRows); to++ {
			sum += of[ids[to]]
		}
		if err := s.purgeRowsOf(ctx, r, ids[from:to], pass); err != nil {
			return err
		}
	}
	return nil
}

// purgeRowsOf purges the tasks, events, uploads and rows of documents. Their tasks
// are purged in one transaction, unless a single document has more.
func (s *deletions) purgeRowsOf(ctx context.Context, r *receiptRow, ids []string, pass int) error {
	after, tasks := "", map[string]int{}
	for more := true; more; {
		last, purged := "", map[string]int{}
		err := s.tx(ctx, func(tx *gorm.DB) error {
			more, last, purged = false, after, maps.Clone(tasks)
			// Locked first, so that concurrent purges see each other's work.
			items, err := all[receiptDocumentRow](tx, "SELECT * FROM receipt_documents WHERE receipt_id=? AND doc_id IN ? ORDER BY doc_id"+s.d.lock, r.ID, padded(ids))
			if err != nil || len(items) == 0 {
				return err
			}
			found := mapped(items, func(i receiptDocumentRow) string { return i.DocID })
			for _, step := range []func(*gorm.DB, *receiptRow, []string) (bool, error){s.purgeEvents, s.purgeUploads} {
				full, err := step(tx, r, found)
				if err != nil {
					return err
				}
				more = more || full
			}
			n := 0
			if n, last, err = s.purgeTasks(tx, r, items, after, purged); err != nil {
				return err
			}
			if more = more || n == purgeRows; more {
				return nil
			}
			// Last, and again: a document's row cannot be found by its former content.
			return run(tx, stmt("UPDATE documents SET "+emptied+" WHERE id IN ? AND deleted_at<>0", padded(found)),
				stmt(`UPDATE receipt_documents SET pass=?, generations=CASE WHEN generations=0 THEN (SELECT COUNT(*) FROM generations g WHERE g.doc_id=receipt_documents.doc_id) ELSE generations END
					WHERE receipt_id=? AND doc_id IN ? AND pass<?`, pass, r.ID, padded(found), pass))
		})
		if err != nil {
			return err
		}
		after, tasks = last, purged
	}
	return nil
}

// addCounts adds to a counter of documents' receipts. set is an assignment with one
// parameter, the number.
func addCounts(tx *gorm.DB, r *receiptRow, set string, of map[string]int) error {
	docs := map[int][]string{}
	for id, n := range of {
		docs[n] = append(docs[n], id)
	}
	for _, n := range slices.Sorted(maps.Keys(docs)) { // most have the same number
		if err := run(tx, stmt("UPDATE receipt_documents SET "+set+" WHERE receipt_id=? AND doc_id IN ?", n, r.ID, padded(docs[n]))); err != nil {
			return err
		}
	}
	return nil
}

// purgeTasks empties some tasks after one, in the order of ids, and returns their
// number and the last of them. It adds to the number of each document's tasks that
// are purged. What remains is the work and the duration, since job totals need them.
func (s *deletions) purgeTasks(tx *gorm.DB, r *receiptRow, items []receiptDocumentRow, after string, purged map[string]int) (n int, last string, err error) {
	docs := mapped(items, func(i receiptDocumentRow) string { return i.DocID })
	tasks, err := all[taskRow](tx, "SELECT id, doc_id, reuse_key FROM tasks WHERE doc_id IN ? AND id>? ORDER BY id LIMIT ?", padded(docs), after, purgeRows)
	if err != nil || len(tasks) == 0 {
		return 0, after, err
	}
	keys, now := map[string][]string{}, map[string]int{}
	for _, t := range tasks {
		purged[t.DocID]++
		now[t.DocID] = purged[t.DocID]
		if t.ReuseKey != "" {
			keys[t.DocID] = append(keys[t.DocID], t.ReuseKey)
		}
	}
	shared, err := s.sharedKeys(tx, r, keys)
	if err != nil {
		return 0, "", err
	}
	for i := range items {
		of := slices.DeleteFunc(keys[items[i].DocID], func(key string) bool { return !shared[key] })
		if err := s.keepRanges(tx, r, &items[i], of); err != nil {
			return 0, "", err
		}
	}
	err = run(tx, stmt("UPDATE tasks SET payload='', result="+s.spentResult()+", failure='', reuse_key='', digest='' WHERE id IN ?", padded(mapped(tasks, taskRow.id))))
	if err == nil {
		err = addCounts(tx, r, "tasks="+s.d.greatest+"(tasks, ?)", now)
	}
	return len(tasks), tasks[len(tasks)-1].ID, err
}

// sharedKeys returns those of the documents' reuse keys that live documents have, too.
func (s *deletions) sharedKeys(tx *gorm.DB, r *receiptRow, of map[string][]string) (map[string]bool, error) {
	var keys []string
	for _, some := range of {
		keys = append(keys, some...)
	}
	shared, err := byIDs[string](tx, sortedUnique(keys), `SELECT DISTINCT t.reuse_key FROM tasks t JOIN documents d ON d.id=t.doc_id
		WHERE t.reuse_key IN ? AND t.tenant_id=? AND t.state='done' AND t.range_id<>'' AND d.deleted_at=0`, r.TenantID)
	return setOf(shared), err
}

// spentResult is an SQL expression for what remains of a task's result.
func (s *deletions) spentResult() string {
	object := "json_object('usage', json_extract(result, '$.usage'), 'stages', json_extract(result, '$.stages'))"
	if s.d.name == "postgres" {
		object = "CAST(json_build_object('usage', CAST(result AS json)->'usage', 'stages', CAST(result AS json)->'stages') AS text)"
	}
	return "CASE WHEN result='' THEN '' ELSE " + object + " END"
}

// keepRanges records live documents that have ranges with the same content.
func (s *deletions) keepRanges(tx *gorm.DB, r *receiptRow, item *receiptDocumentRow, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	found, err := all[struct {
		DocID string
		N     int
	}](tx, `SELECT t.doc_id, COUNT(DISTINCT t.reuse_key) AS n FROM tasks t JOIN documents d ON d.id=t.doc_id
		WHERE t.tenant_id=? AND t.reuse_key IN ? AND t.state='done' AND t.range_id<>'' AND t.doc_id<>? AND d.deleted_at=0
		GROUP BY t.doc_id ORDER BY t.doc_id LIMIT ?`, r.TenantID, sortedUnique(keys), item.DocID, maxCopies)
	if err != nil || len(found) == 0 {
		return err
	}
	kept := []taskstore.KeptCopy{}
	decode(item.Kept, &kept)
	for _, f := range found {
		i := slices.IndexFunc(kept, func(k taskstore.KeptCopy) bool { return k.HeldBy == f.DocID })
		switch {
		case i < 0 && len(kept) < 2*maxCopies:
			kept = append(kept, taskstore.KeptCopy{DocumentID: item.DocID, HeldBy: f.DocID, Reason: taskstore.KeptRanges, Ranges: f.N})
		case i >= 0 && kept[i].Reason == taskstore.KeptRanges:
			kept[i].Ranges += f.N
		}
	}
	return tx.Exec("UPDATE receipt_documents SET kept=? WHERE receipt_id=? AND doc_id=?", encode(kept), item.ReceiptID, item.DocID).Error
}

// purgeEvents removes some events of documents, which are no longer shown to anyone,
// and reports whether there may be more.
func (s *deletions) purgeEvents(tx *gorm.DB, r *receiptRow, ids []string) (bool, error) {
	rows, err := all[struct {
		Seq   int64
		DocID string
	}](tx, "SELECT seq, doc_id FROM events WHERE doc_id IN ? ORDER BY doc_id, seq LIMIT ?", padded(ids), purgeRows)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	of, seqs := map[string]int{}, make([]int64, len(rows))
	for i, row := range rows {
		of[row.DocID]++
		seqs[i] = row.Seq
	}
	if err := run(tx, stmt("DELETE FROM events WHERE seq IN ?", seqs)); err != nil {
		return false, err
	}
	return len(rows) == purgeRows, addCounts(tx, r, "events=events+?", of)
}

// purgeMessages removes names and texts from webhook messages. Receivers still get
// their messages, by id.
func (s *deletions) purgeMessages(ctx context.Context, r *receiptRow, ids []string) error {
	hooks, err := all[string](s.write(ctx), "SELECT id FROM webhooks WHERE dataset_id=? AND tenant_id=?", r.DatasetID, r.TenantID)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		for _, id := range ids {
			if err := s.purgeMessagesTo(ctx, r, hook, id); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *deletions) purgeMessagesTo(ctx context.Context, r *receiptRow, hook, id string) error {
	for after := "doc_" + id + "_"; ; {
		// The document's, and those of documents whose id continues with "_".
		rows, err := all[deliveryRow](s.write(ctx), "SELECT seq, event_id, data, error FROM webhook_deliveries WHERE webhook_id=? AND event_id>? AND event_id<? ORDER BY event_id LIMIT ?",
			hook, after, "doc_"+id+"`", purgeRows)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := s.purgeMessage(ctx, r, id, row); err != nil {
				return err
			}
			after = row.EventID
		}
		if len(rows) < purgeRows {
			return nil
		}
	}
}

func (s *deletions) purgeMessage(ctx context.Context, r *receiptRow, id string, row deliveryRow) error {
	var news taskstore.DocumentNews
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

// purgeUploads removes some records of the uploads that became the documents, with
// their parts, and reports whether there may be more. An upload that was not
// submitted belongs to another document.
func (s *deletions) purgeUploads(tx *gorm.DB, r *receiptRow, ids []string) (bool, error) {
	rows, err := all[uploadRow](tx, "SELECT * FROM uploads WHERE tenant_id=? AND dataset_id=? AND doc_id IN ? AND job_id<>'' ORDER BY id LIMIT ?"+s.d.lock, r.TenantID, r.DatasetID, padded(ids), purgeRows)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	of := map[string]int{}
	for _, row := range rows {
		of[row.DocID]++
	}
	if err := s.dropUploads(tx, rows, r.ID); err != nil {
		return false, err
	}
	return len(rows) == purgeRows, addCounts(tx, r, "uploads=uploads+?", of)
}

// sweepAnswers removes the stored answers of idempotency keys that mention a
// document of the receipt, or its dataset. It reads a limited number of them and
// reports whether it reached the end.
func (s *deletions) sweepAnswers(ctx context.Context, r *receiptRow) (ended bool, err error) {
	for range sweepLooks {
		var rows []idempotencyRow
		if err := scan(s.write(ctx).Raw("SELECT tenant_id, k, answer FROM idempotency WHERE tenant_id=? AND k>? ORDER BY k LIMIT ?", r.TenantID, r.SweepAfter, sweepRows), &rows); err != nil {
			return false, translate(err)
		}
		if err := s.sweepSome(ctx, r, rows); err != nil {
			return false, err
		}
		if len(rows) < sweepRows {
			return true, nil
		}
		r.SweepAfter = rows[len(rows)-1].K
		if err := s.write(ctx).Exec("UPDATE receipts SET sweep_after=? WHERE id=? AND pass=?", r.SweepAfter, r.ID, r.Pass).Error; err != nil {
			return false, translate(err)
		}
	}
	return false, nil
}

func (s *deletions) sweepSome(ctx context.Context, r *receiptRow, rows []idempotencyRow) error {
	named := mapped(rows, func(row idempotencyRow) []string {
		return answerIDs(s.vault.open(row.Answer, secretContext("answer", row.TenantID, row.K)))
	})
	deleted, err := byIDs[string](s.write(ctx), sortedUnique(slices.Concat(named...)), "SELECT doc_id FROM receipt_documents WHERE doc_id IN ? AND receipt_id=?", r.ID)
	if err != nil {
		return err
	}
	gone := setOf(deleted)
	if r.Kind == string(taskstore.ReceiptDataset) {
		gone[r.DatasetID] = true
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

// maxIDRunes is the maximum length of an id.
const maxIDRunes = 64

// answerIDs lists the strings of a stored answer's JSON body that may be ids. It
// lists none for a deletion, which names a receipt: that answer holds only ids.
func answerIDs(answer string) []string {
	var stored struct {
		Body []byte `json:"body"`
	}
	if json.Unmarshal([]byte(answer), &stored) != nil {
		return nil
	}
	var ids []string
	for dec := json.NewDecoder(strings.NewReader(string(stored.Body))); ; {
		token, err := dec.Token()
		if err != nil { // the end, or invalid JSON
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
