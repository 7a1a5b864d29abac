package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// QuotaUsage returns what counts against the tenant's quotas.
func (s *tenants) QuotaUsage(ctx context.Context, tenantID string) (sheaf.Quota, error) {
	return quotaUsage(s.read(ctx), tenantID, sheaf.Quota{Documents: 1, Bytes: 1, QueuedTasks: 1})
}

// CreateTenant creates a tenant. ErrConflict when the id exists. A weight below 1
// becomes 1.
func (s *tenants) CreateTenant(ctx context.Context, t sheaf.Tenant) (*sheaf.Tenant, error) {
	if t.ID == "" {
		t.ID = sheaf.NewID()
	}
	if err := checkTexts("the tenant's id", t.ID, 64, "the tenant's name", t.Name, 255); err != nil {
		return nil, err
	}
	t.Weight = max(t.Weight, 1)
	if err := taskstore.CheckTenant(&t); err != nil {
		return nil, err
	}
	err := s.write(ctx).Model(&tenantRow{}).Create(columns{"id": t.ID, "name": t.Name, "weight": t.Weight, "cap": t.Cap, "paused": flag(t.Paused), "quota": encode(t.Quota), "created_at": gorm.Expr(s.now())}).Error
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
	return get(s.read(ctx), "tenant", id, tenantRow.toDomain, "id=?", id)
}

// Tenants lists tenants by id, always ascending.
func (s *tenants) Tenants(ctx context.Context, p taskstore.Page) ([]sheaf.Tenant, string, error) {
	rows, next, err := s.tenantRows(ctx, p)
	return mapped(rows, tenantRow.toDomain), next, err
}

// tenantRows reads a page of tenants by id, and returns the cursor of the next page.
func (s *handle) tenantRows(ctx context.Context, p taskstore.Page) ([]tenantRow, string, error) {
	if err := checkText("the cursor", p.Cursor, 64); err != nil {
		return nil, "", err
	}
	w := where{conds: []string{"id<>''"}}
	p.Ascending = true
	return page(s.read(ctx), "SELECT * FROM tenants", w, "id", p, func(r tenantRow) string { return r.ID }, func(r tenantRow) tenantRow { return r })
}

// ChangeTenant changes the fields that change sets and returns the updated tenant.
// Concurrent changes of different fields do not undo each other. Only SetPaused,
// which also pauses the tasks, changes Paused.
func (s *tenants) ChangeTenant(ctx context.Context, id string, change taskstore.TenantChange) (*sheaf.Tenant, error) {
	if err := checkText("the tenant's name", value(change.Name), 255); err != nil {
		return nil, err
	}
	var t *sheaf.Tenant
	err := s.tx(ctx, func(tx *gorm.DB) (err error) {
		if t, err = get(locked(tx), "tenant", id, tenantRow.toDomain, "id=?", id); err != nil {
			return err
		}
		if err := change.Apply(t); err != nil {
			return err
		}
		return run(tx, stmt("UPDATE tenants SET name=?, weight=?, cap=?, quota=? WHERE id=?", t.Name, t.Weight, t.Cap, encode(t.Quota), id))
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}
