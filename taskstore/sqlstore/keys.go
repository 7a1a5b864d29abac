package sqlstore

import (
	"context"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// CreateKey creates a key, of which only the hash is stored. ErrInvalid for an
// expiry in the past.
func (s *keys) CreateKey(ctx context.Context, k sheaf.Key, hash string) error {
	scopes := encodeList(k.Scopes)
	if err := checkTexts("the key's id", k.ID, 64, "the key's name", k.Name, 255, "the key's hash", hash, 128, "the key's scopes", scopes, 255); err != nil {
		return err
	}
	return s.tx(ctx, func(tx *gorm.DB) error {
		if _, err := one[string](tx, "tenant", k.TenantID, "SELECT id FROM tenants WHERE id=?"+s.d.share, k.TenantID); err != nil {
			return err
		}
		now, err := s.clockTime(tx)
		if err != nil {
			return err
		}
		if err := taskstore.CheckExpiry(k.ExpiresAt, toTime(now)); err != nil {
			return err
		}
		return tx.Create(&keyRow{ID: k.ID, TenantID: k.TenantID, Name: k.Name, Hash: hash, Scopes: scopes, CreatedAt: now, ExpiresAt: toMillis(k.ExpiresAt)}).Error
	})
}

// KeyByHash finds a request's key. ErrNotFound when unknown, revoked or expired.
func (s *keys) KeyByHash(ctx context.Context, hash string) (*sheaf.Key, error) {
	return get(s.read(ctx), "key", "of this request", keyRow.toDomain, s.sql("hash=? AND revoked_at=0 AND (expires_at=0 OR expires_at>@now)"), hash)
}

// Keys lists a tenant's keys, including revoked ones.
func (s *keys) Keys(ctx context.Context, tenantID string, p taskstore.Page) ([]sheaf.Key, string, error) {
	if err := checkText("the cursor", p.Cursor, 64); err != nil {
		return nil, "", err
	}
	var w where
	w.add("tenant_id=?", tenantID)
	return page(s.read(ctx), "SELECT * FROM api_keys", w, "id", p, func(r keyRow) string { return r.ID }, keyRow.toDomain)
}

// Key returns a key, even if revoked.
func (s *keys) Key(ctx context.Context, tenantID, id string) (*sheaf.Key, error) {
	return get(s.read(ctx), "key", id, keyRow.toDomain, "tenant_id=? AND id=?", tenantID, id)
}

// ChangeKey changes a key's name and scopes. ErrConflict when it is revoked.
func (s *keys) ChangeKey(ctx context.Context, tenantID, id string, change taskstore.KeyChange) (*sheaf.Key, error) {
	if err := checkText("the key's name", value(change.Name), 255); err != nil {
		return nil, err
	}
	var k *sheaf.Key
	err := s.tx(ctx, func(tx *gorm.DB) (err error) {
		if k, err = get(locked(tx), "key", id, keyRow.toDomain, "tenant_id=? AND id=?", tenantID, id); err != nil {
			return err
		}
		if err := change.Apply(k); err != nil {
			return err
		}
		return tx.Exec("UPDATE api_keys SET name=?, scopes=? WHERE tenant_id=? AND id=?", k.Name, encodeList(k.Scopes), tenantID, id).Error
	})
	return k, err
}

// RevokeKey revokes a key. It is idempotent.
func (s *keys) RevokeKey(ctx context.Context, tenantID, id string) error {
	return changed(s.write(ctx).Exec(s.sql("UPDATE api_keys SET revoked_at=CASE WHEN revoked_at=0 THEN @now ELSE revoked_at END WHERE tenant_id=? AND id=?"),
		tenantID, id), "key", id)
}
