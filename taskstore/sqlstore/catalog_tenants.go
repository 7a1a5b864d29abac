package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// Lists are cut to this many rows, and are this long when nobody says.
const (
	maxPage     = 1000
	defaultPage = 50
)

func pageLimit(p taskstore.Page) int {
	if p.Limit <= 0 {
		return defaultPage
	}
	return min(p.Limit, maxPage)
}

// where collects the conditions of a query.
type where struct {
	conds []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.conds = append(w.conds, cond)
	w.args = append(w.args, args...)
}

// page makes the condition go on after the cursor, and returns the rest of the
// statement. It asks for one row more than the page holds: that there is one
// says that there is a next page. A cursor is the last id that was listed, so
// rows that come or go in between shift nothing.
func (w *where) page(column string, p taskstore.Page) (suffix string, limit int) {
	op, order := "<", "DESC"
	if p.Ascending {
		op, order = ">", "ASC"
	}
	if p.Cursor != "" {
		w.add(column+op+"?", p.Cursor)
	}
	limit = pageLimit(p)
	return fmt.Sprintf(" ORDER BY %s %s LIMIT %d", column, order, limit+1), limit
}

func (w *where) String() string { return " WHERE " + strings.Join(w.conds, " AND ") }

// cut drops the extra row of a page and answers the cursor of the next.
func cut[T any](rows []T, limit int, id func(T) string) ([]T, string) {
	if len(rows) <= limit {
		return rows, ""
	}
	return rows[:limit], id(rows[limit-1])
}

// checkText refuses text that not every engine can store: PostgreSQL takes no
// NUL, and both servers nothing but UTF-8 up to the column's width.
func checkText(field, s string, maxRunes int) error {
	var f *sheaf.Failure
	switch {
	case !utf8.ValidString(s):
		f = sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "%s is not UTF-8; send it as UTF-8", field)
	case strings.ContainsRune(s, 0):
		f = sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "%s holds a NUL character; leave it out", field)
	case utf8.RuneCountInString(s) > maxRunes:
		f = sheaf.Fail(sheaf.CategoryBadInput, "text_too_long", "%s has %d characters; shorten it to at most %d", field, utf8.RuneCountInString(s), maxRunes)
	default:
		return nil
	}
	return fmt.Errorf("%w: %w", sheaf.ErrInvalid, f)
}

func checkTexts(fields ...any) error {
	for i := 0; i+2 < len(fields); i += 3 {
		if err := checkText(fields[i].(string), fields[i+1].(string), fields[i+2].(int)); err != nil {
			return err
		}
	}
	return nil
}

func notFound(what, id string) error {
	return fmt.Errorf("%w: %s %s", sheaf.ErrNotFound, what, clip(id, 64))
}

// changed turns the outcome of an update of one row into an error.
func changed(res *gorm.DB, what, id string) error {
	if res.Error != nil {
		return translate(res.Error)
	}
	if res.RowsAffected == 0 {
		return notFound(what, id)
	}
	return nil
}

// CreateTenant makes a tenant. ErrConflict when the id exists. A weight or cap
// below 1 becomes 1 and 8.
func (s *Store) CreateTenant(ctx context.Context, t sheaf.Tenant) (*sheaf.Tenant, error) {
	if t.ID == "" {
		t.ID = sheaf.NewID()
	}
	if err := checkTexts("the tenant's id", t.ID, 64, "the tenant's name", t.Name, 255); err != nil {
		return nil, err
	}
	t.Weight = max(t.Weight, 1)
	if t.Cap < 1 {
		t.Cap = defaultCap
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	err := insertRows(s.w.WithContext(ctx), "tenants", []string{"id", "name", "weight", "cap", "paused", "quota", "created_at"},
		[][]any{{t.ID, t.Name, t.Weight, t.Cap, flag(t.Paused), encode(t.Quota), raw(s.now())}}, "")
	if err = translate(err); errors.Is(err, sheaf.ErrConflict) {
		return nil, fmt.Errorf("%w: there is a tenant %s already; change it, or choose another id", sheaf.ErrConflict, t.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("create tenant %s: %w", t.ID, err)
	}
	return s.Tenant(ctx, t.ID)
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Tenant finds a tenant.
func (s *Store) Tenant(ctx context.Context, id string) (*sheaf.Tenant, error) {
	var rows []tenantRow
	if err := s.read(ctx).Raw("SELECT * FROM tenants WHERE id=?", id).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, notFound("tenant", id)
	}
	t := rows[0].toDomain()
	return &t, nil
}

// Tenants lists by id, ascending whatever the page says.
func (s *Store) Tenants(ctx context.Context, p taskstore.Page) ([]sheaf.Tenant, string, error) {
	rows, next, err := s.tenantRows(ctx, p)
	out := make([]sheaf.Tenant, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, next, err
}

// tenantRows reads a page of tenants by id, and the cursor of the next.
func (s *Store) tenantRows(ctx context.Context, p taskstore.Page) ([]tenantRow, string, error) {
	if err := checkText("the cursor", p.Cursor, 64); err != nil {
		return nil, "", err
	}
	limit := pageLimit(p)
	var rows []tenantRow
	if err := s.read(ctx).Raw(fmt.Sprintf("SELECT * FROM tenants WHERE id>? ORDER BY id LIMIT %d", limit+1), p.Cursor).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r tenantRow) string { return r.ID })
	return rows, next, nil
}

// ChangeTenant changes what the change names and answers the tenant as it is
// then. Changes of different fields at once do not undo each other. Paused is
// left to SetPaused, which takes the tasks along.
func (s *Store) ChangeTenant(ctx context.Context, id string, change sheaf.TenantChange) (*sheaf.Tenant, error) {
	if change.Name != nil {
		if err := checkText("the tenant's name", *change.Name, 255); err != nil {
			return nil, err
		}
	}
	var t sheaf.Tenant
	err := s.tx(ctx, func(tx *gorm.DB) error {
		var rows []tenantRow
		if err := tx.Raw("SELECT * FROM tenants WHERE id=?"+s.d.lock, id).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) == 0 {
			return notFound("tenant", id)
		}
		t = rows[0].toDomain()
		if err := change.Apply(&t); err != nil {
			return err
		}
		return tx.Exec("UPDATE tenants SET name=?, weight=?, cap=?, quota=? WHERE id=?", t.Name, t.Weight, t.Cap, encode(t.Quota), id).Error
	})
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// CreateKey makes a key, of which the store knows only the hash.
func (s *Store) CreateKey(ctx context.Context, k sheaf.Key, hash string) error {
	scopes := encodeList(k.Scopes)
	if err := checkTexts("the key's id", k.ID, 64, "the key's name", k.Name, 255, "the key's hash", hash, 128, "the key's scopes", scopes, 255); err != nil {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		var tenant []string
		if err := tx.Raw("SELECT id FROM tenants WHERE id=?"+s.d.share, k.TenantID).Scan(&tenant).Error; err != nil {
			return err
		}
		if len(tenant) == 0 {
			return notFound("tenant", k.TenantID)
		}
		return insertRows(tx, "api_keys", []string{"id", "tenant_id", "name", "hash", "scopes", "created_at"},
			[][]any{{k.ID, k.TenantID, k.Name, hash, scopes, raw(s.now())}}, "")
	})
}

// KeyByHash finds the key that a request carries. ErrNotFound when unknown or
// revoked.
func (s *Store) KeyByHash(ctx context.Context, hash string) (*sheaf.Key, error) {
	var rows []keyRow
	if err := s.read(ctx).Raw("SELECT * FROM api_keys WHERE hash=? AND revoked_at=0", hash).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no such key", sheaf.ErrNotFound)
	}
	k := rows[0].toDomain()
	return &k, nil
}

// Keys lists a tenant's keys, revoked ones too.
func (s *Store) Keys(ctx context.Context, tenantID string, p taskstore.Page) ([]sheaf.Key, string, error) {
	if err := checkText("the cursor", p.Cursor, 64); err != nil {
		return nil, "", err
	}
	var w where
	w.add("tenant_id=?", tenantID)
	suffix, limit := w.page("id", p)
	var rows []keyRow
	if err := s.read(ctx).Raw("SELECT * FROM api_keys"+w.String()+suffix, w.args...).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r keyRow) string { return r.ID })
	out := make([]sheaf.Key, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, next, nil
}

// Key finds a key, also a revoked one.
func (s *Store) Key(ctx context.Context, tenantID, id string) (*sheaf.Key, error) {
	return s.key(s.read(ctx), tenantID, id, "")
}

func (s *Store) key(db *gorm.DB, tenantID, id, lock string) (*sheaf.Key, error) {
	var rows []keyRow
	if err := db.Raw("SELECT * FROM api_keys WHERE tenant_id=? AND id=?"+lock, tenantID, id).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, notFound("key", id)
	}
	k := rows[0].toDomain()
	return &k, nil
}

// ChangeKey changes a key's name and scopes. ErrConflict when it is revoked.
func (s *Store) ChangeKey(ctx context.Context, tenantID, id string, change sheaf.KeyChange) (*sheaf.Key, error) {
	if change.Name != nil {
		if err := checkText("the key's name", *change.Name, 255); err != nil {
			return nil, err
		}
	}
	var k *sheaf.Key
	err := s.tx(ctx, func(tx *gorm.DB) (err error) {
		if k, err = s.key(tx, tenantID, id, s.d.lock); err != nil {
			return err
		}
		if err := change.Apply(k); err != nil {
			return err
		}
		return tx.Exec("UPDATE api_keys SET name=?, scopes=? WHERE tenant_id=? AND id=?", k.Name, encodeList(k.Scopes), tenantID, id).Error
	})
	return k, err
}

// RevokeKey revokes a key. Revoking twice is revoking once.
func (s *Store) RevokeKey(ctx context.Context, tenantID, id string) error {
	return changed(s.w.WithContext(ctx).Exec(s.sql("UPDATE api_keys SET revoked_at=CASE WHEN revoked_at=0 THEN @now ELSE revoked_at END WHERE tenant_id=? AND id=?"),
		tenantID, id), "key", id)
}

// CreateDataset makes a dataset. ErrConflict when the name is taken.
func (s *Store) CreateDataset(ctx context.Context, d sheaf.Dataset) (*sheaf.Dataset, error) {
	if d.ID == "" {
		d.ID = sheaf.NewID()
	}
	if d.Name == "" {
		return nil, fmt.Errorf("%w: a dataset needs a name", sheaf.ErrInvalid)
	}
	if err := checkTexts("the dataset's id", d.ID, 64, "the dataset's name", d.Name, 255); err != nil {
		return nil, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		var tenant []string
		if err := tx.Raw("SELECT id FROM tenants WHERE id=?"+s.d.share, d.TenantID).Scan(&tenant).Error; err != nil {
			return err
		}
		if len(tenant) == 0 {
			return notFound("tenant", d.TenantID)
		}
		return insertRows(tx, "datasets", []string{"id", "tenant_id", "name", "parse_config", "paused", "created_at", "updated_at"},
			[][]any{{d.ID, d.TenantID, d.Name, s.vault.hide(d.TenantID, encode(d.ParseConfig)), flag(d.Paused), raw(s.now()), raw(s.now())}}, "")
	})
	if err != nil {
		return nil, fmt.Errorf("create dataset %q: %w", clip(d.Name, 80), err)
	}
	return s.Dataset(ctx, d.TenantID, d.ID)
}

// Dataset finds by id, or else by name.
func (s *Store) Dataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error) {
	var rows []datasetRow
	// A name may look like the id of another dataset; the id counts.
	err := s.read(ctx).Raw("SELECT * FROM datasets WHERE tenant_id=? AND (id=? OR name=?) ORDER BY CASE WHEN id=? THEN 0 ELSE 1 END LIMIT 1",
		tenantID, idOrName, idOrName, idOrName).Scan(&rows).Error
	if err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, notFound("dataset", idOrName)
	}
	out, err := s.countDatasets(ctx, tenantID, rows)
	if err != nil {
		return nil, err
	}
	return &out[0], nil
}

// Datasets lists the datasets of a tenant.
func (s *Store) Datasets(ctx context.Context, tenantID string, p taskstore.Page) ([]sheaf.Dataset, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	suffix, limit := w.page("id", p)
	var rows []datasetRow
	if err := s.read(ctx).Raw("SELECT * FROM datasets"+w.String()+suffix, w.args...).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r datasetRow) string { return r.ID })
	out, err := s.countDatasets(ctx, tenantID, rows)
	return out, next, err
}

// TaggedDatasets lists those whose settings name tag sets, oldest first and at
// most limit; what they hold is not counted. Every search in all datasets asks
// for them.
func (s *Store) TaggedDatasets(ctx context.Context, tenantID string, limit int) ([]sheaf.Dataset, error) {
	var rows []datasetRow
	err := s.read(ctx).Raw(`SELECT * FROM datasets WHERE tenant_id=? AND parse_config LIKE '%"tag_kb_ids":["%' ORDER BY id LIMIT ?`, tenantID, limit).Scan(&rows).Error
	if err != nil {
		return nil, translate(err)
	}
	out := make([]sheaf.Dataset, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain(s.vault)
	}
	return out, nil
}

func (s *Store) countDatasets(ctx context.Context, tenantID string, rows []datasetRow) ([]sheaf.Dataset, error) {
	out := make([]sheaf.Dataset, len(rows))
	at := make(map[string]*sheaf.Dataset, len(rows))
	ids := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain(s.vault)
		ids[i], at[r.ID] = r.ID, &out[i]
	}
	for batch := range chunks(ids) {
		var sums []struct {
			DatasetID         string
			Documents, Chunks int
		}
		err := s.read(ctx).Raw(`SELECT dataset_id, COUNT(*) AS documents, COALESCE(SUM(chunk_count), 0) AS chunks FROM documents
			WHERE tenant_id=? AND dataset_id IN ? AND deleted_at=0 GROUP BY dataset_id`, tenantID, batch).Scan(&sums).Error
		if err != nil {
			return nil, translate(err)
		}
		for _, n := range sums {
			at[n.DatasetID].Documents, at[n.DatasetID].Chunks = n.Documents, n.Chunks
		}
	}
	return out, nil
}

// UpdateDataset writes name and settings. ErrStale when the dataset was changed
// since d was read, as its UpdatedAt says; zero writes anyway. Paused is left
// to SetPaused, which takes the tasks along. updated_at grows with every
// change, so that it tells two of the same millisecond apart.
func (s *Store) UpdateDataset(ctx context.Context, d sheaf.Dataset) error {
	if d.Name == "" {
		return fmt.Errorf("%w: a dataset needs a name", sheaf.ErrInvalid)
	}
	if err := checkText("the dataset's name", d.Name, 255); err != nil {
		return err
	}
	unchanged, args := "", []any{d.Name, s.vault.hide(d.TenantID, encode(d.ParseConfig)), d.TenantID, d.ID}
	if !d.UpdatedAt.IsZero() {
		unchanged, args = " AND updated_at=?", append(args, d.UpdatedAt.UnixMilli())
	}
	err := changed(s.w.WithContext(ctx).Exec(s.sql("UPDATE datasets SET name=?, parse_config=?, updated_at=CASE WHEN updated_at<@now THEN @now ELSE updated_at+1 END WHERE tenant_id=? AND id=?"+unchanged),
		args...), "dataset", d.ID)
	if !errors.Is(err, sheaf.ErrNotFound) || unchanged == "" {
		return err
	}
	var there []string
	if lookErr := s.w.WithContext(ctx).Raw("SELECT id FROM datasets WHERE tenant_id=? AND id=?", d.TenantID, d.ID).Scan(&there).Error; lookErr != nil {
		return translate(lookErr)
	}
	if len(there) > 0 {
		return fmt.Errorf("%w: dataset %s was changed meanwhile; read it and change it again", sheaf.ErrStale, d.ID)
	}
	return err
}

// DeleteDataset deletes its documents too, and says which. Uploads hold the
// dataset's row while they write, so none can slip in between the last look for
// documents and the removal of the row.
func (s *Store) DeleteDataset(ctx context.Context, tenantID, id string) (taskstore.DeleteReceipt, error) {
	var sum taskstore.DeleteReceipt
	var found []string
	if err := s.read(ctx).Raw("SELECT id FROM datasets WHERE tenant_id=? AND id=?", tenantID, id).Scan(&found).Error; err != nil {
		return sum, translate(err)
	}
	if len(found) == 0 {
		return sum, notFound("dataset", id)
	}
	rec := &receiptRow{ID: sheaf.NewID(), Kind: string(sheaf.ReceiptDataset)}
	for {
		var ids []string
		if err := s.w.WithContext(ctx).Raw("SELECT id FROM documents WHERE tenant_id=? AND dataset_id=? AND deleted_at=0 ORDER BY id LIMIT 500", tenantID, id).Scan(&ids).Error; err != nil {
			return sum, translate(err)
		}
		if len(ids) > 0 {
			r, err := s.deleteDocuments(ctx, tenantID, ids, rec)
			addReceipt(&sum, r)
			if err != nil {
				return sum, err
			}
			continue
		}
		again := false
		err := s.tx(ctx, func(tx *gorm.DB) error {
			again = false
			if err := tx.Raw("SELECT id FROM datasets WHERE id=?"+s.d.lock, id).Scan(&found).Error; err != nil {
				return err
			}
			var left []string
			if err := tx.Raw("SELECT id FROM documents WHERE tenant_id=? AND dataset_id=? AND deleted_at=0 LIMIT 1", tenantID, id).Scan(&left).Error; err != nil {
				return err
			}
			if again = len(left) > 0; again {
				return nil
			}
			if err := s.openReceipt(tx, rec, tenantID, id); err != nil {
				return err
			}
			if err := s.dropDatasetUploads(tx, tenantID, id, rec.ID); err != nil {
				return err
			}
			n, err := s.dropWebhooks(tx, id)
			if err != nil {
				return err
			}
			if err := tx.Exec("UPDATE receipts SET webhooks=webhooks+? WHERE id=?", n, rec.ID).Error; err != nil {
				return err
			}
			return tx.Exec("DELETE FROM datasets WHERE tenant_id=? AND id=?", tenantID, id).Error
		})
		if err != nil {
			return sum, err
		}
		if !again {
			sum.ReceiptID = rec.ID
			s.purgeNow(ctx, rec.ID)
			return sum, nil
		}
	}
}

// keyLife is how long an idempotency key is remembered.
const keyLife = 24 * time.Hour

// Idempotent gives a try the key for the length of the lease, or says what
// became of an earlier one. A key whose holder neither ended nor renewed it in
// time is given to the next try. ErrConflict when the key was used with another
// request hash. Keys are remembered for a day.
func (s *Store) Idempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) (taskstore.KeyedState, error) {
	var state taskstore.KeyedState
	if err := checkTexts("the idempotency key", r.Key, 128, "the request's hash", r.Hash, 128, "its former hash", r.Former, 128, "the holder", r.Holder, 64); err != nil {
		return state, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		state = taskstore.KeyedState{}
		if err := tx.Exec(s.sql("DELETE FROM idempotency WHERE tenant_id=? AND k=? AND created_at<@now-?"), r.TenantID, r.Key, keyLife.Milliseconds()).Error; err != nil {
			return err
		}
		until := fmt.Sprintf("%s+%d", s.now(), lease.Milliseconds())
		// Nothing happens where the row is there; else it waits for whoever is writing it.
		if err := insertRows(tx, "idempotency", []string{"tenant_id", "k", "request_hash", "created_at", "holder", "lease_until"},
			[][]any{{r.TenantID, r.Key, r.Hash, raw(s.now()), r.Holder, raw(until)}}, s.d.noop("k")); err != nil {
			return err
		}
		if err := tx.Exec("UPDATE idempotency SET holder=?, lease_until="+until+" WHERE tenant_id=? AND k=? AND request_hash IN (?,?) AND answer='' AND lease_until<="+s.now(),
			r.Holder, r.TenantID, r.Key, r.Hash, r.Former).Error; err != nil {
			return err
		}
		var rows []idempotencyRow
		if err := tx.Raw("SELECT * FROM idempotency WHERE tenant_id=? AND k=?", r.TenantID, r.Key).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) != 1 {
			return fmt.Errorf("%w: idempotency key %q expired this moment; send the request again", sheaf.ErrUnavailable, r.Key)
		}
		k := rows[0]
		if k.RequestHash != r.Hash && k.RequestHash != r.Former {
			return fmt.Errorf("%w: idempotency key %q was used with another request; use a new key", sheaf.ErrConflict, r.Key)
		}
		state.Since, state.Held, state.Body = toTime(k.CreatedAt), k.Answer == "" && k.Holder == r.Holder, k.BodyDigest
		if k.Answer != "" {
			state.Answer = []byte(s.vault.open(k.Answer, secretContext("answer", k.TenantID, k.K)))
		}
		return nil
	})
	return state, err
}

// changeHeld changes a key that this try holds.
func (s *Store) changeHeld(ctx context.Context, r taskstore.KeyedRequest, set string, args ...any) error {
	res := s.w.WithContext(ctx).Exec(s.sql("UPDATE idempotency SET "+set+" WHERE tenant_id=? AND k=? AND holder=? AND answer=''"),
		append(args, r.TenantID, r.Key, r.Holder)...)
	if res.Error != nil {
		return translate(res.Error)
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
	}
	return nil
}

// ReadIdempotent notes the digest of the whole body that a try has read, before
// it makes anything of it. ErrConflict when an earlier try of the key read
// another body, ErrStale when another try has the key.
func (s *Store) ReadIdempotent(ctx context.Context, r taskstore.KeyedRequest, body string) error {
	if err := checkText("the body's digest", body, 128); err != nil {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		var read []string
		if err := tx.Raw("SELECT body_digest FROM idempotency WHERE tenant_id=? AND k=? AND holder=? AND answer=''"+s.d.lock, r.TenantID, r.Key, r.Holder).Scan(&read).Error; err != nil {
			return err
		}
		switch {
		case len(read) == 0:
			return fmt.Errorf("%w: idempotency key %q is not held by this request", sheaf.ErrStale, r.Key)
		case read[0] == body:
			return nil
		case read[0] != "":
			return fmt.Errorf("%w: idempotency key %q was used with another body; use a new key", sheaf.ErrConflict, r.Key)
		}
		return tx.Exec("UPDATE idempotency SET body_digest=? WHERE tenant_id=? AND k=?", body, r.TenantID, r.Key).Error
	})
}

// RenewIdempotent extends the lease; ErrStale when another try has the key.
func (s *Store) RenewIdempotent(ctx context.Context, r taskstore.KeyedRequest, lease time.Duration) error {
	return s.changeHeld(ctx, r, "lease_until=@now+?", lease.Milliseconds())
}

// FinishIdempotent keeps the answer for every later try; ErrStale when another
// try has the key. The answer is text.
func (s *Store) FinishIdempotent(ctx context.Context, r taskstore.KeyedRequest, answer []byte) error {
	if len(answer) == 0 || len(answer) > 8<<20 {
		return fmt.Errorf("%w: an answer to be repeated has 1 byte to 8 MB, this one %d bytes", sheaf.ErrInvalid, len(answer))
	}
	if err := checkText("the answer", string(answer), 8<<20); err != nil {
		return err
	}
	return s.changeHeld(ctx, r, "answer=?", s.vault.seal(string(answer), secretContext("answer", r.TenantID, r.Key)))
}

// LeaveIdempotent ends a try of which nobody knows for certain what it did. The
// next one has the key at once and finishes the work.
func (s *Store) LeaveIdempotent(ctx context.Context, r taskstore.KeyedRequest) error {
	return s.changeHeld(ctx, r, "lease_until=0")
}
