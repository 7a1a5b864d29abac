package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// Holdings sums what the tenant holds, for quotas.
func (s *tenants) Holdings(ctx context.Context, tenantID string) (sheaf.Quota, error) {
	q, err := holdings(s.read(ctx), tenantID)
	return q, translate(err)
}

// CreateTenant makes a tenant. ErrConflict when the id exists. A weight or cap
// below 1 becomes 1 and 8.
func (s *tenants) CreateTenant(ctx context.Context, t sheaf.Tenant) (*sheaf.Tenant, error) {
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
	if err := taskstore.CheckTenant(&t); err != nil {
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

// Tenant finds a tenant.
func (s *tenants) Tenant(ctx context.Context, id string) (*sheaf.Tenant, error) {
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
func (s *tenants) Tenants(ctx context.Context, p taskstore.Page) ([]sheaf.Tenant, string, error) {
	rows, next, err := s.tenantRows(ctx, p)
	out := make([]sheaf.Tenant, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, next, err
}

// tenantRows reads a page of tenants by id, and the cursor of the next.
func (s *handle) tenantRows(ctx context.Context, p taskstore.Page) ([]tenantRow, string, error) {
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
func (s *tenants) ChangeTenant(ctx context.Context, id string, change taskstore.TenantChange) (*sheaf.Tenant, error) {
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
