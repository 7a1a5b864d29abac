package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

type flowRow struct {
	TenantID  string
	Name      string
	Version   int
	Digest    string
	Body      string // "" of a deleted version
	CreatedAt int64  `gorm:"autoCreateTime:false"`
	DeletedAt int64
}

func (r flowRow) toDomain() taskstore.FlowVersion {
	return taskstore.FlowVersion{TenantID: r.TenantID, Name: r.Name, Version: r.Version, Digest: r.Digest, Body: []byte(r.Body), CreatedAt: toTime(r.CreatedAt)}
}

// flowName returns a version's name for errors.
func flowName(name string, version int) string {
	if version == 0 {
		return name
	}
	return fmt.Sprintf("%s@%d", name, version)
}

// CreateFlow creates the next version of a flow, unless the latest has the same
// digest: then it returns that one. A dry run returns the same without writing.
// ErrLimit when the tenant has the maximum number.
func (s *flows) CreateFlow(ctx context.Context, f taskstore.FlowVersion, dryRun bool) (made *taskstore.FlowVersion, err error) {
	if err := checkTexts("the flow's name", f.Name, 64, "the flow's digest", f.Digest, 64); err != nil {
		return nil, err
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		// Locked, so that the second of two concurrent calls sees the first's version.
		if _, err := one[string](tx, "tenant", f.TenantID, "SELECT id FROM tenants WHERE id=?"+s.d.lock, f.TenantID); err != nil {
			return err
		}
		newest, err := first[flowRow](tx, "SELECT * FROM flows WHERE tenant_id=? AND name=? ORDER BY version DESC LIMIT 1", f.TenantID, f.Name)
		if err != nil {
			return err
		}
		if newest != nil && newest.DeletedAt == 0 && newest.Digest == f.Digest {
			v := newest.toDomain()
			made = &v
			return nil
		}
		f.Version = 1
		if newest != nil {
			f.Version += newest.Version
		}
		n, err := one[int64](tx, "count", "", "SELECT COUNT(*) FROM flows WHERE tenant_id=? AND deleted_at=0", f.TenantID)
		if err != nil {
			return err
		}
		if *n >= taskstore.MaxFlowVersions {
			return limitFailure("versions of flows", *n, 1, taskstore.MaxFlowVersions)
		}
		if dryRun {
			made = &f
			return nil
		}
		if err := insertRows(tx, "flows", []string{"tenant_id", "name", "version", "digest", "body", "created_at"},
			[][]any{{f.TenantID, f.Name, f.Version, f.Digest, string(f.Body), raw(s.now())}}, ""); err != nil {
			return err
		}
		row, err := one[flowRow](tx, "flow", f.Name, "SELECT * FROM flows WHERE tenant_id=? AND name=? AND version=?", f.TenantID, f.Name, f.Version)
		if err != nil {
			return err
		}
		v := row.toDomain()
		made = &v
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("create flow: %w", err)
	}
	return made, nil
}

// Flow returns a version of a flow; 0 is the latest.
func (s *flows) Flow(ctx context.Context, tenantID, name string, version int) (*taskstore.FlowVersion, error) {
	row, err := one[flowRow](s.read(ctx), "flow", flowName(name, version), `SELECT * FROM flows WHERE tenant_id=? AND name=? AND deleted_at=0 AND (version=? OR ?=0)
		ORDER BY version DESC LIMIT 1`, tenantID, name, version, version)
	if err != nil {
		return nil, err
	}
	v := row.toDomain()
	return &v, nil
}

// Flows lists the latest version of each flow by name.
func (s *flows) Flows(ctx context.Context, tenantID string, p taskstore.Page) ([]taskstore.FlowVersion, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	w.add(`version=(SELECT MAX(version) FROM flows l WHERE l.tenant_id=flows.tenant_id AND l.name=flows.name AND l.deleted_at=0)`)
	p.Ascending = true
	return page(s.read(ctx), "SELECT * FROM flows", w, "name", p, func(r flowRow) string { return r.Name }, flowRow.toDomain)
}

// FlowVersions lists the versions of a flow, newest first.
func (s *flows) FlowVersions(ctx context.Context, tenantID, name string) ([]taskstore.FlowVersion, error) {
	rows, err := all[flowRow](s.read(ctx), "SELECT * FROM flows WHERE tenant_id=? AND name=? AND deleted_at=0 ORDER BY version DESC LIMIT ?", tenantID, name, taskstore.MaxFlowVersions)
	if err == nil && len(rows) == 0 {
		err = notFound("flow", name)
	}
	return mapped(rows, flowRow.toDomain), err
}

// flowExists fails with ErrConflict if a flow named in settings does not exist. The
// transaction holds the tenant's row, so that the flow stays.
func (s *handle) flowExists(tx *gorm.DB, tenantID, ref string) error {
	name, version, _ := strings.Cut(ref, "@")
	if name == "" || name == "standard" {
		return nil
	}
	n, _ := strconv.Atoi(version) // 0 for the latest
	found, err := first[int](tx, "SELECT version FROM flows WHERE tenant_id=? AND name=? AND deleted_at=0 AND (version=? OR ?=0) LIMIT 1", tenantID, name, n, n)
	if err == nil && found == nil {
		err = fmt.Errorf("%w: there is no flow %s, or it was deleted meanwhile; name another", sheaf.ErrConflict, ref)
	}
	return err
}

// flowUnused fails with ErrConflict if a dataset names what is to be deleted: that
// version, or the flow if no version would remain.
func (s *flows) flowUnused(tx *gorm.DB, tenantID, name string, version int) error {
	left, err := one[int64](tx, "count", "", "SELECT COUNT(*) FROM flows WHERE tenant_id=? AND name=? AND deleted_at=0 AND version<>? AND ?<>0", tenantID, name, version, version)
	if err != nil {
		return err
	}
	named, err := all[datasetRow](tx, "SELECT * FROM datasets WHERE tenant_id=? AND parse_config LIKE ? ORDER BY id", tenantID, `%"flow":"`+name+`%`)
	if err != nil {
		return err
	}
	for _, row := range named {
		d := s.toDataset(row)
		base, at, pinned := strings.Cut(d.ParseConfig.Flow.V, "@")
		if base != name || pinned && at != "latest" && version != 0 && at != strconv.Itoa(version) || (!pinned || at == "latest") && *left > 0 {
			continue
		}
		return fmt.Errorf("%w: the dataset %s names the flow %s in its settings; change or unset its flow first", sheaf.ErrConflict, d.Name, d.ParseConfig.Flow.V)
	}
	return nil
}

// DeleteFlow deletes a version of a flow, 0 for all, and returns the deleted
// versions. Their numbers are not reused. ErrConflict while a dataset names what
// would be deleted.
func (s *flows) DeleteFlow(ctx context.Context, tenantID, name string, version int) (deleted []int, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		// Locked: settings that name the flow are either written before this, and seen,
		// or after it, and find the flow deleted.
		if _, err := one[string](tx, "tenant", tenantID, "SELECT id FROM tenants WHERE id=?"+s.d.lock, tenantID); errors.Is(err, sheaf.ErrNotFound) {
			return notFound("flow", flowName(name, version))
		} else if err != nil {
			return err
		}
		if deleted, err = all[int](tx, "SELECT version FROM flows WHERE tenant_id=? AND name=? AND deleted_at=0 AND (version=? OR ?=0) ORDER BY version"+s.d.lock, tenantID, name, version, version); err != nil {
			return err
		}
		if len(deleted) == 0 {
			return notFound("flow", flowName(name, version))
		}
		if err := s.flowUnused(tx, tenantID, name, version); err != nil {
			return err
		}
		return run(tx, stmt(s.sql("UPDATE flows SET deleted_at=@now, body='' WHERE tenant_id=? AND name=? AND deleted_at=0 AND (version=? OR ?=0)"), tenantID, name, version, version))
	})
	return deleted, err
}
