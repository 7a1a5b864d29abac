package sqlstore

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// CreateKey makes a key, of which the store knows only the hash. ErrInvalid for
// a time of expiry that has passed.
func (s *keys) CreateKey(ctx context.Context, k sheaf.Key, hash string) error {
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
		var now []int64
		if err := tx.Raw(s.sql("SELECT @now")).Scan(&now).Error; err != nil {
			return err
		}
		if err := taskstore.CheckExpiry(k.ExpiresAt, toTime(now[0])); err != nil {
			return err
		}
		return insertRows(tx, "api_keys", []string{"id", "tenant_id", "name", "hash", "scopes", "created_at", "expires_at"},
			[][]any{{k.ID, k.TenantID, k.Name, hash, scopes, now[0], toMillis(k.ExpiresAt)}}, "")
	})
}

// KeyByHash finds the key that a request carries. ErrNotFound when unknown,
// revoked or expired.
func (s *keys) KeyByHash(ctx context.Context, hash string) (*sheaf.Key, error) {
	var rows []keyRow
	if err := s.read(ctx).Raw(s.sql("SELECT * FROM api_keys WHERE hash=? AND revoked_at=0 AND (expires_at=0 OR expires_at>@now)"), hash).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%w: no such key", sheaf.ErrNotFound)
	}
	k := rows[0].toDomain()
	return &k, nil
}

// Keys lists a tenant's keys, revoked ones too.
func (s *keys) Keys(ctx context.Context, tenantID string, p taskstore.Page) ([]sheaf.Key, string, error) {
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
func (s *keys) Key(ctx context.Context, tenantID, id string) (*sheaf.Key, error) {
	return s.key(s.read(ctx), tenantID, id, "")
}

func (s *keys) key(db *gorm.DB, tenantID, id, lock string) (*sheaf.Key, error) {
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
func (s *keys) ChangeKey(ctx context.Context, tenantID, id string, change taskstore.KeyChange) (*sheaf.Key, error) {
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
func (s *keys) RevokeKey(ctx context.Context, tenantID, id string) error {
	return changed(s.w.WithContext(ctx).Exec(s.sql("UPDATE api_keys SET revoked_at=CASE WHEN revoked_at=0 THEN @now ELSE revoked_at END WHERE tenant_id=? AND id=?"),
		tenantID, id), "key", id)
}
