package sqlstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// maxUploads is the maximum number of pending uploads per tenant.
const maxUploads = 10_000

type uploadRow struct {
	ID          string `gorm:"primaryKey"`
	TenantID    string
	DatasetID   string
	DocID       string
	Size        int64
	Stored      int64
	Pieces      string
	Hash        string // base64
	Spec        string
	Fingerprint string
	JobID       string
	Epoch       int64
	Writing     int // a writer has begun and not yet finished
	NextPiece   int
	CreatedAt   int64 `gorm:"autoCreateTime:false"`
	ExpiresAt   int64
}

func (uploadRow) TableName() string { return "uploads" }

func (r uploadRow) toDomain(v vault) taskstore.PartialUpload {
	u := taskstore.PartialUpload{
		ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, DocumentID: r.DocID, Size: r.Size, Offset: r.Stored, Fingerprint: r.Fingerprint,
		JobID: r.JobID, Epoch: r.Epoch, NextPiece: r.NextPiece, CreatedAt: toTime(r.CreatedAt), ExpiresAt: toTime(r.ExpiresAt),
	}
	decode(r.Pieces, &u.Pieces)
	decode(v.reveal(r.TenantID, r.Spec), &u.Spec)
	if r.Hash != "" {
		u.Hash, _ = base64.StdEncoding.DecodeString(r.Hash) // what AdvanceUpload wrote
	}
	return u
}

// CreateUpload registers a file to be uploaded; with an Epoch, the caller is its first
// writer. ErrLimit when the tenant's quota has no room for it beside what it holds and
// its other pending uploads.
func (s *uploads) CreateUpload(ctx context.Context, u taskstore.PartialUpload, life time.Duration) (*taskstore.PartialUpload, error) {
	if err := checkTexts("the upload's id", u.ID, 64, "the document's id", u.DocumentID, 64, "the fingerprint", u.Fingerprint, 128, "what is said about the file", encode(u.Spec), 4<<20); err != nil {
		return nil, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		if err := s.checkUploadQuota(tx, u); err != nil {
			return err
		}
		return tx.Model(&uploadRow{}).Create(columns{"id": u.ID, "tenant_id": u.TenantID, "dataset_id": u.DatasetID, "doc_id": u.DocumentID, "size": u.Size, "pieces": "[]", "hash": "", "epoch": u.Epoch, "writing": flag(u.Epoch > 0),
			"spec": s.vault.hide(u.TenantID, encode(u.Spec)), "fingerprint": u.Fingerprint, "created_at": gorm.Expr(s.now()), "expires_at": gorm.Expr(string(s.after(life)))}).Error
	})
	if err != nil {
		return nil, fmt.Errorf("note the upload: %w", err)
	}
	return s.Upload(ctx, u.TenantID, u.ID)
}

// checkUploadQuota rejects a file that would exceed the quota. checkQuota decides in
// the end; this saves sending the bytes. It counts what the tenant holds once a
// second: a folder of ten thousand files would otherwise read fifty million rows.
func (s *uploads) checkUploadQuota(tx *gorm.DB, u taskstore.PartialUpload) error {
	tenant, err := get(tx, "tenant", u.TenantID, tenantRow.toDomain, "id=?", u.TenantID)
	if err != nil {
		return err
	}
	if s.room.take(u.TenantID, tenant.Quota, u.Size) {
		return nil
	}
	if tenant, err = get(locked(tx), "tenant", u.TenantID, tenantRow.toDomain, "id=?", u.TenantID); err != nil {
		return err
	}
	quota := tenant.Quota
	sum := "0" // k_upload_job has no sizes
	if quota.Bytes > 0 {
		sum = "COALESCE(SUM(size), 0)"
	}
	coming, err := one[struct{ N, Bytes int64 }](tx, "sum", "", "SELECT COUNT(*) AS n, "+sum+" AS bytes FROM uploads WHERE tenant_id=? AND job_id=''", u.TenantID)
	if err != nil {
		return err
	}
	held, err := quotaUsage(tx, u.TenantID, sheaf.Quota{Documents: quota.Documents, Bytes: quota.Bytes})
	if err != nil {
		return err
	}
	room := uploadRoom{quota, coming.N, int64(held.Documents), held.Bytes + coming.Bytes, time.Now()}
	err = room.take(u.Size)
	s.room.put(u.TenantID, room)
	return err
}

// uploadRoom is what a tenant holds, with its pending uploads.
type uploadRoom struct {
	quota                     sheaf.Quota // under which it was counted
	uploads, documents, bytes int64
	counted                   time.Time
}

// roomFor is how long a count is used. Until then, uploads to other processes may
// exceed a quota; their documents do not.
const roomFor = time.Second

// uploadRooms remembers what tenants hold. The zero value is ready to use.
type uploadRooms struct {
	mu      sync.Mutex
	tenants map[string]uploadRoom
}

// maxRooms bounds the tenants that are remembered.
const maxRooms = 1000

func (r *uploadRooms) put(tenantID string, room uploadRoom) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tenants == nil || len(r.tenants) >= maxRooms {
		r.tenants = map[string]uploadRoom{}
	}
	r.tenants[tenantID] = room
}

// forget drops a tenant whose documents are changing.
func (r *uploadRooms) forget(tenantID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tenants, tenantID)
}

// take adds an upload to what the tenant holds. It reports whether it was counted
// recently, under this quota, and has room.
func (r *uploadRooms) take(tenantID string, quota sheaf.Quota, size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	room, ok := r.tenants[tenantID]
	if !ok || room.quota != quota || time.Since(room.counted) > roomFor || room.take(size) != nil {
		return false
	}
	r.tenants[tenantID] = room
	return true
}

// take adds an upload of size bytes, or fails with ErrLimit and adds nothing.
func (r *uploadRoom) take(size int64) error {
	for _, q := range []struct {
		what                 string
		current, more, limit int64
	}{
		{"uploads that are not submitted", r.uploads, 1, maxUploads},
		{"documents (with those on their way)", r.documents + r.uploads, 1, int64(r.quota.Documents)},
		{"bytes (with those on their way)", r.bytes, size, r.quota.Bytes},
	} {
		if q.limit > 0 && q.current+q.more > q.limit {
			return limitFailure(q.what, q.current, q.more, q.limit)
		}
	}
	r.uploads++
	r.bytes += size
	return nil
}

// Upload finds an upload of the tenant that has not expired.
func (s *uploads) Upload(ctx context.Context, tenantID, id string) (*taskstore.PartialUpload, error) {
	row, err := s.upload(s.write(ctx), tenantID, id, "")
	if err != nil {
		return nil, err
	}
	u := s.toUpload(*row)
	return &u, nil
}

func (s *uploads) upload(tx *gorm.DB, tenantID, id, lock string) (*uploadRow, error) {
	return one[uploadRow](tx, "upload", id, s.sql("SELECT * FROM uploads WHERE id=? AND tenant_id=? AND expires_at>@now")+lock, id, tenantID)
}

// Uploads lists a dataset's uploads, with one fingerprint unless it is "".
func (s *uploads) Uploads(ctx context.Context, tenantID, datasetID, fingerprint string, p taskstore.Page) ([]taskstore.PartialUpload, string, error) {
	var w where
	w.add(s.sql("tenant_id=? AND dataset_id=? AND expires_at>@now"), tenantID, datasetID)
	w.when(fingerprint != "", "fingerprint=?", fingerprint)
	return page(s.read(ctx), "SELECT * FROM uploads", w, "id", p, func(r uploadRow) string { return r.ID }, s.toUpload)
}

// ClaimUpload makes the caller the only writer, from offset on, and renews the
// upload's life. ErrConflict when another number of bytes is stored, or when it was
// submitted. A replaced writer may still be storing a piece, so its piece number is
// not reused.
func (s *uploads) ClaimUpload(ctx context.Context, tenantID, id string, offset int64, life time.Duration) (u *taskstore.PartialUpload, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.upload(tx, tenantID, id, s.d.lock)
		if err != nil {
			return err
		}
		if row.JobID != "" {
			return fmt.Errorf("%w: the upload is complete and was submitted", sheaf.ErrConflict)
		}
		if row.Stored != offset {
			return fmt.Errorf("%w: %d bytes are stored, not %d; ask for the offset with HEAD and go on there", sheaf.ErrConflict, row.Stored, offset)
		}
		row.Epoch++
		row.NextPiece += row.Writing
		claimed := s.toUpload(*row)
		u = &claimed
		return run(tx, stmt(s.sql("UPDATE uploads SET epoch=?, writing=1, next_piece=?, expires_at=@now+? WHERE id=?"), row.Epoch, row.NextPiece, life.Milliseconds(), id))
	})
	return u, err
}

// AdvanceUpload records Offset, Pieces, Hash and NextPiece. ErrStale when there is
// another writer. last means that this writer is done.
func (s *uploads) AdvanceUpload(ctx context.Context, u *taskstore.PartialUpload, last bool) error {
	res := s.write(ctx).Exec("UPDATE uploads SET stored=?, pieces=?, hash=?, next_piece=?, writing=? WHERE id=? AND tenant_id=? AND epoch=?",
		u.Offset, encodeList(u.Pieces), base64.StdEncoding.EncodeToString(u.Hash), u.NextPiece, flag(!last), u.ID, u.TenantID, u.Epoch)
	if res.Error != nil {
		return translate(res.Error)
	}
	if res.RowsAffected == 0 {
		return fmt.Errorf("%w: the upload goes on in another request, or is gone", sheaf.ErrStale)
	}
	return nil
}

// BindUploads assigns complete uploads to a job, unless a job has them, and returns
// them in the order of ids. ErrConflict when one is not complete.
func (s *uploads) BindUploads(ctx context.Context, tenantID string, ids []string, jobID string) (out []taskstore.PartialUpload, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		rows, err := byIDs[uploadRow](tx, sortedUnique(ids), s.sql("SELECT * FROM uploads WHERE id IN ? AND tenant_id=? AND expires_at>@now ORDER BY id")+s.d.lock, tenantID)
		if err != nil {
			return err
		}
		if len(rows) > 0 && len(sortedUnique(ids)) < len(ids) {
			return fmt.Errorf("%w: an upload is named twice", sheaf.ErrInvalid)
		}
		found := map[string]uploadRow{}
		for _, r := range rows {
			found[r.ID] = r
		}
		out = make([]taskstore.PartialUpload, 0, len(ids))
		var fresh []string
		for _, id := range ids {
			r, ok := found[id]
			if !ok {
				return notFound("upload", id)
			}
			if r.Stored != r.Size {
				return fmt.Errorf("%w: of upload %s %d of %d bytes are stored; send the rest first", sheaf.ErrConflict, id, r.Stored, r.Size)
			}
			if r.JobID == "" {
				r.JobID = jobID
				fresh = append(fresh, id)
			}
			out = append(out, s.toUpload(r))
		}
		// The epoch fences a writer that stored everything and does not know it.
		_, err = execByIDs(tx, fresh, "UPDATE uploads SET job_id=?, epoch=epoch+1 WHERE id IN ?", jobID)
		return err
	})
	return out, err
}

// UnbindUploads releases those of a job's uploads that did not become documents of
// it.
func (s *uploads) UnbindUploads(ctx context.Context, tenantID, jobID string) error {
	if jobID == "" {
		return nil
	}
	return translate(s.write(ctx).Exec("UPDATE uploads SET job_id='' WHERE tenant_id=? AND job_id=? AND NOT EXISTS (SELECT 1 FROM generations g WHERE g.doc_id=uploads.doc_id AND g.job_id=uploads.job_id)", tenantID, jobID).Error)
}

// DropUpload deletes an upload; the collector removes its parts.
func (s *uploads) DropUpload(ctx context.Context, tenantID, id string) error {
	return s.tx(ctx, func(tx *gorm.DB) error {
		row, err := s.upload(tx, tenantID, id, s.d.lock)
		if err != nil {
			return err
		}
		return s.dropUploads(tx, []uploadRow{*row}, "")
	})
}

// ExpireUploads drops expired uploads.
func (s *uploads) ExpireUploads(ctx context.Context, limit int) (n int, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		rows, err := all[uploadRow](tx, s.sql("SELECT * FROM uploads WHERE expires_at<=@now ORDER BY expires_at LIMIT ?")+s.d.skip, limit)
		if n = len(rows); err != nil {
			return err
		}
		return s.dropUploads(tx, rows, "")
	})
	return n, err
}

// dropUploads leaves the parts to the collector after the grace, since a writer may
// be storing one. receiptID is that of the deletion that removes them, or "".
func (s *handle) dropUploads(tx *gorm.DB, rows []uploadRow, receiptID string) error {
	slices.SortFunc(rows, func(a, b uploadRow) int { return strings.Compare(a.ID, b.ID) })
	garbage := mapped(rows, func(r uploadRow) []any {
		return []any{r.TenantID, r.DocID, taskstore.UploadPrefix(r.TenantID, r.ID), receiptID, s.after(s.grace)}
	})
	if err := insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "blob_prefix", "receipt_id", "not_before"}, garbage, ""); err != nil {
		return err
	}
	_, err := execByIDs(tx, mapped(rows, func(r uploadRow) string { return r.ID }), "DELETE FROM uploads WHERE id IN ?")
	return err
}
