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
	Pass        int // completed purge passes
	NextAt      int64
	Webhooks    int
	Answers     int
	SweepAfter  string // the idempotency key that the purge has reached
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
	Edits       int
	Objects     int
	ObjectBytes int64
	Chunks      int
	Vectors     int
	Kept        string // JSON list
	Documents   int    // only in a sum
}

func (r receiptDocumentRow) toDomain() taskstore.ReceiptDocument {
	d := taskstore.ReceiptDocument{DocumentID: r.DocID, Kept: []taskstore.KeptCopy{}, Removed: r.removed()}
	d.Removed.Rows.Documents = 1
	decode(r.Kept, &d.Kept)
	return d
}

func (r receiptDocumentRow) removed() taskstore.Removed {
	return taskstore.Removed{
		Rows:    taskstore.RemovedRows{Documents: r.Documents, Generations: r.Generations, Tasks: r.Tasks, Events: r.Events, Messages: r.Messages, Uploads: r.Uploads, Edits: r.Edits},
		Objects: r.Objects, ObjectBytes: r.ObjectBytes, Chunks: r.Chunks, Vectors: r.Vectors,
	}
}

// CountGarbage adds what was found under garbage entries, before it is removed, to
// the receipts that wait for them. An entry counts once.
func (s *receipts) CountGarbage(ctx context.Context, found []taskstore.GarbageCount) error {
	for batch := range chunks(found) {
		err := s.tx(ctx, func(tx *gorm.DB) error {
			for _, c := range batch {
				if err := s.countGarbage(tx, c); err != nil {
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

func (s *receipts) countGarbage(tx *gorm.DB, c taskstore.GarbageCount) error {
	rows, err := all[garbageRow](tx, "SELECT * FROM garbage WHERE id=? AND counted=0 AND receipt_id<>''"+s.d.lock, c.ID)
	if err != nil || len(rows) == 0 {
		return err
	}
	g := rows[0]
	if err := run(tx, stmt("UPDATE garbage SET counted=1 WHERE id=?", c.ID)); err != nil || c.Objects == 0 && c.Chunks == 0 && c.Vectors == 0 {
		return err
	}
	n, err := exec(tx, "UPDATE receipt_documents SET objects=objects+?, object_bytes=object_bytes+?, chunks=chunks+?, vectors=vectors+? WHERE receipt_id=? AND doc_id=?",
		c.Objects, c.Bytes, c.Chunks, c.Vectors, g.ReceiptID, g.DocID)
	if err != nil || n > 0 {
		return err
	}
	// Parts of an upload that became no document.
	return run(tx, stmt("UPDATE receipts SET objects=objects+?, object_bytes=object_bytes+? WHERE id=?", c.Objects, c.Bytes, g.ReceiptID))
}

// SettleReceipts completes up to limit receipts that have nothing left to remove.
// sign, which may be nil, signs the stored receipt.
func (s *receipts) SettleReceipts(ctx context.Context, limit int, sign func(*taskstore.Receipt) error) (int, error) {
	const settled = "state='pending' AND pass>=? AND NOT EXISTS (SELECT 1 FROM garbage g WHERE g.receipt_id=receipts.id)"
	rows, err := all[receiptRow](s.write(ctx), "SELECT * FROM receipts WHERE "+settled+" ORDER BY next_at, id LIMIT ?", purgePasses, limit)
	if err != nil {
		return 0, err
	}
	n := 0
	for i := range rows {
		r, err := s.sumReceipt(ctx, &rows[i])
		if err != nil {
			return n, err
		}
		now, err := s.clockTime(s.write(ctx))
		if err != nil {
			return n, err
		}
		r.State, r.CompletedAt = taskstore.ReceiptCompleted, toTime(now)
		if r.DocumentsSHA256, err = s.digestDocuments(ctx, r.ID); err != nil {
			return n, err
		}
		if sign != nil {
			if err := sign(r); err != nil {
				return n, fmt.Errorf("sign receipt %s: %w", r.ID, err)
			}
		}
		done, err := exec(s.write(ctx), "UPDATE receipts SET state=?, body=?, completed_at=? WHERE id=? AND "+settled, string(r.State), encode(r), now, r.ID, purgePasses)
		if n += done; err != nil {
			return n, err
		}
	}
	return n, nil
}

// digestDocuments hashes the ids of a receipt's documents.
func (s *receipts) digestDocuments(ctx context.Context, id string) (string, error) {
	h := sha256.New()
	err := walk(s.write(ctx), "SELECT doc_id FROM receipt_documents WHERE doc_id > ? AND receipt_id=? ORDER BY doc_id LIMIT ?", func(id string) any { return id }, "", func(doc string) error {
		_, err := io.WriteString(h, doc+"\n")
		return err
	}, id)
	return hex.EncodeToString(h.Sum(nil)), err
}

// sumReceipt returns the current state of a pending receipt.
func (s *receipts) sumReceipt(ctx context.Context, row *receiptRow) (*taskstore.Receipt, error) {
	r := &taskstore.Receipt{Format: taskstore.ReceiptFormat, ID: row.ID, TenantID: row.TenantID, DatasetID: row.DatasetID, Kind: taskstore.ReceiptKind(row.Kind),
		State: taskstore.ReceiptPending, DocumentIDs: []string{}, Kept: []taskstore.KeptCopy{}, RequestedAt: toTime(row.CreatedAt)}
	db := s.write(ctx)
	sum, err := one[receiptDocumentRow](db, "receipt", row.ID, `SELECT COUNT(*) AS documents, COALESCE(SUM(generations), 0) AS generations, COALESCE(SUM(tasks), 0) AS tasks, COALESCE(SUM(events), 0) AS events,
		COALESCE(SUM(messages), 0) AS messages, COALESCE(SUM(uploads), 0) AS uploads, COALESCE(SUM(edits), 0) AS edits, COALESCE(SUM(objects), 0) AS objects, COALESCE(SUM(object_bytes), 0) AS object_bytes,
		COALESCE(SUM(chunks), 0) AS chunks, COALESCE(SUM(vectors), 0) AS vectors FROM receipt_documents WHERE receipt_id=?`, row.ID)
	if err != nil {
		return nil, err
	}
	r.Documents, r.Removed = sum.Documents, sum.removed()
	r.Removed.Objects += row.Objects
	r.Removed.ObjectBytes += row.ObjectBytes
	r.Removed.Rows.Webhooks, r.Removed.Rows.Answers = row.Webhooks, row.Answers
	if err := scan(db.Raw("SELECT doc_id FROM receipt_documents WHERE receipt_id=? ORDER BY doc_id LIMIT ?", row.ID, taskstore.MaxReceiptIDs), &r.DocumentIDs); err != nil {
		return nil, translate(err)
	}
	lists, err := all[string](db, "SELECT kept FROM receipt_documents WHERE receipt_id=? AND kept<>'[]' ORDER BY doc_id LIMIT ?", row.ID, taskstore.MaxReceiptIDs)
	if err != nil {
		return nil, err
	}
	for _, text := range lists {
		var copies []taskstore.KeptCopy
		decode(text, &copies)
		r.Kept = append(r.Kept, copies...)
	}
	r.Kept = r.Kept[:min(len(r.Kept), taskstore.MaxReceiptIDs)]
	holders := sortedUnique(mapped(r.Kept, func(k taskstore.KeptCopy) string { return k.HeldBy }))
	ids, err := byIDs[string](db, holders, "SELECT id FROM documents WHERE id IN ? AND deleted_at=0")
	if err != nil {
		return nil, err
	}
	live := setOf(ids)
	// A document deleted meanwhile, perhaps by the same request, keeps nothing.
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

// Receipts lists the receipts of a dataset, even of a deleted one, or all for "".
func (s *receipts) Receipts(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Receipt, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	w.when(datasetID != "", "dataset_id=?", datasetID)
	rows, next, err := page(s.read(ctx), "SELECT * FROM receipts", w, "id", p, func(r receiptRow) string { return r.ID }, func(r receiptRow) receiptRow { return r })
	if err != nil {
		return nil, "", err
	}
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
	row, err := one[receiptRow](s.read(ctx), "receipt", id, "SELECT * FROM receipts WHERE id=? AND tenant_id=?", id, tenantID)
	if err != nil {
		return nil, err
	}
	return s.receipt(ctx, row)
}

// ReceiptDocuments lists the documents of a receipt.
func (s *receipts) ReceiptDocuments(ctx context.Context, tenantID, id string, p taskstore.Page) ([]taskstore.ReceiptDocument, string, error) {
	if _, err := one[string](s.read(ctx), "receipt", id, "SELECT id FROM receipts WHERE id=? AND tenant_id=?", id, tenantID); err != nil {
		return nil, "", err
	}
	var w where
	w.add("receipt_id=?", id)
	return page(s.read(ctx), "SELECT * FROM receipt_documents", w, "doc_id", p, func(r receiptDocumentRow) string { return r.DocID }, receiptDocumentRow.toDomain)
}
