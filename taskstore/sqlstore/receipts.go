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

	"gorm.io/gorm"

	"sheaf/taskstore"
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

func (r *receiptDocumentRow) toDomain() taskstore.ReceiptDocument {
	d := taskstore.ReceiptDocument{DocumentID: r.DocID, Kept: []taskstore.KeptCopy{}, Removed: r.removed()}
	d.Removed.Rows.Documents = 1
	decode(r.Kept, &d.Kept)
	return d
}

func (r *receiptDocumentRow) removed() taskstore.Removed {
	return taskstore.Removed{
		Rows:    taskstore.RemovedRows{Documents: r.Documents, Generations: r.Generations, Tasks: r.Tasks, Events: r.Events, Messages: r.Messages, Uploads: r.Uploads},
		Objects: r.Objects, ObjectBytes: r.ObjectBytes, Chunks: r.Chunks, Vectors: r.Vectors,
	}
}

// CountGarbage adds what was found under entries of the garbage, before it is
// removed, to the receipts that wait for them. An entry counts once.
func (s *receipts) CountGarbage(ctx context.Context, found []taskstore.GarbageCount) error {
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
func (s *receipts) SettleReceipts(ctx context.Context, limit int, sign func(*taskstore.Receipt) error) (int, error) {
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
		r.State, r.CompletedAt = taskstore.ReceiptCompleted, toTime(now[0])
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
func (s *receipts) digestDocuments(ctx context.Context, id string) (string, error) {
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
func (s *receipts) sumReceipt(ctx context.Context, row *receiptRow) (*taskstore.Receipt, error) {
	r := &taskstore.Receipt{Format: taskstore.ReceiptFormat, ID: row.ID, TenantID: row.TenantID, DatasetID: row.DatasetID, Kind: taskstore.ReceiptKind(row.Kind),
		State: taskstore.ReceiptPending, DocumentIDs: []string{}, Kept: []taskstore.KeptCopy{}, RequestedAt: toTime(row.CreatedAt)}
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
	if err := db.Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? ORDER BY doc_id LIMIT ?", row.ID, taskstore.MaxReceiptIDs).Scan(&r.DocumentIDs).Error; err != nil {
		return nil, translate(err)
	}
	var kept []string
	if err := db.Raw("SELECT kept FROM receipt_documents WHERE receipt_id=? AND kept<>'[]' ORDER BY doc_id LIMIT ?", row.ID, taskstore.MaxReceiptIDs).Scan(&kept).Error; err != nil {
		return nil, translate(err)
	}
	var held []string
	for _, text := range kept {
		var copies []taskstore.KeptCopy
		decode(text, &copies)
		r.Kept = append(r.Kept, copies...)
	}
	r.Kept = r.Kept[:min(len(r.Kept), taskstore.MaxReceiptIDs)]
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
	r.Kept = slices.DeleteFunc(r.Kept, func(k taskstore.KeptCopy) bool { return !live[k.HeldBy] })
	slices.SortFunc(r.Kept, func(a, b taskstore.KeptCopy) int {
		return cmp.Or(strings.Compare(a.DocumentID, b.DocumentID), strings.Compare(a.HeldBy, b.HeldBy))
	})
	return r, nil
}

func (s *receipts) receipt(ctx context.Context, row *receiptRow) (*taskstore.Receipt, error) {
	if row.State != string(taskstore.ReceiptCompleted) {
		return s.sumReceipt(ctx, row)
	}
	var r taskstore.Receipt
	if err := json.Unmarshal([]byte(row.Body), &r); err != nil {
		return nil, fmt.Errorf("decode receipt %s: %w", row.ID, err)
	}
	return &r, nil
}

// Receipts lists those of a dataset, also of one that is gone, or of all for
// "".
func (s *receipts) Receipts(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Receipt, string, error) {
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
	out := make([]taskstore.Receipt, len(rows))
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
func (s *receipts) Receipt(ctx context.Context, tenantID, id string) (*taskstore.Receipt, error) {
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
func (s *receipts) ReceiptDocuments(ctx context.Context, tenantID, id string, p taskstore.Page) ([]taskstore.ReceiptDocument, string, error) {
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
	out := make([]taskstore.ReceiptDocument, len(rows))
	for i := range rows {
		out[i] = rows[i].toDomain()
	}
	return out, next, nil
}
