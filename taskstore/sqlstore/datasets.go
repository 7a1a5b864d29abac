package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// CreateDataset creates a dataset. ErrConflict when the name is taken.
func (s *datasets) CreateDataset(ctx context.Context, d sheaf.Dataset) (*sheaf.Dataset, error) {
	if d.ID == "" {
		d.ID = sheaf.NewID()
	}
	if d.Name == "" {
		return nil, fmt.Errorf("%w: a dataset needs a name", sheaf.ErrInvalid)
	}
	if err := checkTexts("the dataset's id", d.ID, 64, "the dataset's name", d.Name, 255); err != nil {
		return nil, err
	}
	attributes, err := d.Attributes.Encode("a dataset", sheaf.MaxDatasetAttributes)
	if err != nil {
		return nil, err
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		if _, err := one[string](tx, "tenant", d.TenantID, "SELECT id FROM tenants WHERE id=?"+s.d.share, d.TenantID); err != nil {
			return err
		}
		if err := s.flowExists(tx, d.TenantID, d.ParseConfig.Flow.V); err != nil {
			return err
		}
		return tx.Model(&datasetRow{}).Create(columns{"id": d.ID, "tenant_id": d.TenantID, "name": d.Name, "parse_config": s.vault.hide(d.TenantID, encode(d.ParseConfig)), "paused": flag(d.Paused), "attributes": attributes,
			"created_at": gorm.Expr(s.now()), "updated_at": gorm.Expr(s.now())}).Error
	})
	if err != nil {
		return nil, fmt.Errorf("create dataset %q: %w", clip(d.Name, 80), err)
	}
	return s.Dataset(ctx, d.TenantID, d.ID)
}

// Dataset finds a dataset by id or, failing that, by name. Its contents are not
// counted: every upload and search calls it.
func (s *datasets) Dataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error) {
	// A name may look like the id of another dataset; the id wins.
	row, err := one[datasetRow](s.read(ctx), "dataset", idOrName, "SELECT * FROM datasets WHERE tenant_id=? AND (id=? OR name=?) ORDER BY CASE WHEN id=? THEN 0 ELSE 1 END LIMIT 1",
		tenantID, idOrName, idOrName, idOrName)
	if err != nil {
		return nil, err
	}
	d := s.toDataset(*row)
	return &d, nil
}

// CountedDataset is Dataset with counts, which reads an index entry per document.
func (s *datasets) CountedDataset(ctx context.Context, tenantID, idOrName string) (*sheaf.Dataset, error) {
	d, err := s.Dataset(ctx, tenantID, idOrName)
	if err != nil {
		return nil, err
	}
	out := []sheaf.Dataset{*d}
	err = s.countDatasets(ctx, tenantID, out)
	return &out[0], err
}

// Datasets lists the datasets selected by a filter.
func (s *datasets) Datasets(ctx context.Context, tenantID string, f taskstore.DatasetFilter, p taskstore.Page) ([]sheaf.Dataset, string, error) {
	var w where
	w.add("tenant_id=?", tenantID)
	w.when(len(f.IDs) > 0, "id IN ?", f.IDs)
	if s.d.named(&w, f.Query) {
		return []sheaf.Dataset{}, "", nil
	}
	suffix, limit := w.page("id", p)
	rows, err := all[datasetRow](s.read(ctx), "SELECT * FROM datasets"+w.String()+suffix, w.args...)
	if err != nil {
		return nil, "", err
	}
	rows, next := cut(rows, limit, func(r datasetRow) string { return r.ID })
	out := mapped(rows, s.toDataset)
	return out, next, s.countDatasets(ctx, tenantID, out)
}

// TaggedDatasets lists datasets whose settings name tag sets, oldest first and at
// most limit, without counts. Every search over all datasets calls it.
func (s *datasets) TaggedDatasets(ctx context.Context, tenantID string, limit int) ([]sheaf.Dataset, error) {
	rows, err := all[datasetRow](s.read(ctx), `SELECT * FROM datasets WHERE tenant_id=? AND parse_config LIKE '%"tag_kb_ids":["%' ORDER BY id LIMIT ?`, tenantID, limit)
	return mapped(rows, s.toDataset), err
}

// DatasetsThatRun lists, by id from after, the datasets of all tenants whose
// settings start runs automatically, without counts.
func (s *datasets) DatasetsThatRun(ctx context.Context, after string, limit int) ([]sheaf.Dataset, error) {
	rows, err := all[datasetRow](s.read(ctx), `SELECT * FROM datasets WHERE id>? AND (parse_config LIKE '%"use_raptor":true%' OR parse_config LIKE '%"use_graphrag":true%') ORDER BY id LIMIT ?`, after, limit)
	return mapped(rows, s.toDataset), err
}

// DatasetRest returns how many documents of a dataset are live, and how long ago any
// document last changed.
func (s *datasets) DatasetRest(ctx context.Context, tenantID, datasetID string) (live int, quiet time.Duration, err error) {
	row, err := first[struct{ Live, Quiet int64 }](s.read(ctx), s.sql(`SELECT COALESCE(SUM(CASE WHEN deleted_at=0 AND live_gen>0 THEN 1 ELSE 0 END), 0) AS live, COALESCE(@now-MAX(updated_at), 0) AS quiet
		FROM documents WHERE tenant_id=? AND dataset_id=?`), tenantID, datasetID)
	if err != nil || row == nil {
		return 0, 0, err
	}
	return int(row.Live), time.Duration(row.Quiet) * time.Millisecond, nil
}

// countDatasets fills in the counts of a tenant's datasets.
func (s *datasets) countDatasets(ctx context.Context, tenantID string, of []sheaf.Dataset) error {
	at := make(map[string]*sheaf.Dataset, len(of))
	ids := make([]string, len(of))
	for i := range of {
		ids[i], at[of[i].ID] = of[i].ID, &of[i]
	}
	sums, err := byIDs[struct {
		DatasetID         string
		Documents, Chunks int
	}](s.read(ctx), ids, `SELECT dataset_id, COUNT(*) AS documents, COALESCE(SUM(chunk_count), 0) AS chunks FROM documents
		WHERE dataset_id IN ? AND tenant_id=? AND deleted_at=0 GROUP BY dataset_id`, tenantID)
	for _, n := range sums {
		at[n.DatasetID].Documents, at[n.DatasetID].Chunks = n.Documents, n.Chunks
	}
	return err
}

// UpdateDataset writes name, settings and attributes. ErrStale when the dataset was
// changed since d was read, according to UpdatedAt; zero writes anyway. Paused is
// left to SetPaused, which also updates the tasks. ErrConflict when the settings
// name a flow that was deleted meanwhile. updated_at increases with every change, to
// distinguish changes within a millisecond.
func (s *datasets) UpdateDataset(ctx context.Context, d sheaf.Dataset) error {
	if d.Name == "" {
		return fmt.Errorf("%w: a dataset needs a name", sheaf.ErrInvalid)
	}
	if err := checkText("the dataset's name", d.Name, 255); err != nil {
		return err
	}
	attributes, err := d.Attributes.Encode("a dataset", sheaf.MaxDatasetAttributes)
	if err != nil {
		return err
	}
	unchanged, args := "", []any{d.Name, s.vault.hide(d.TenantID, encode(d.ParseConfig)), attributes, d.TenantID, d.ID}
	if !d.UpdatedAt.IsZero() {
		unchanged, args = " AND updated_at=?", append(args, d.UpdatedAt.UnixMilli())
	}
	update := func(tx *gorm.DB) error {
		return changed(tx.Exec(s.sql("UPDATE datasets SET name=?, parse_config=?, attributes=?, updated_at=CASE WHEN updated_at<@now THEN @now ELSE updated_at+1 END WHERE tenant_id=? AND id=?"+unchanged),
			args...), "dataset", d.ID)
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		// Lock the tenant's row first: deleting a flow holds it while looking for
		// datasets that name the flow.
		if _, err := one[string](tx, "tenant", d.TenantID, "SELECT id FROM tenants WHERE id=?"+s.d.share, d.TenantID); err != nil {
			return err
		}
		if err := s.flowExists(tx, d.TenantID, d.ParseConfig.Flow.V); err != nil {
			return err
		}
		return update(tx)
	})
	if !errors.Is(err, sheaf.ErrNotFound) || unchanged == "" {
		return err
	}
	if _, err := one[string](s.write(ctx), "dataset", d.ID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?", d.TenantID, d.ID); err != nil {
		return err
	}
	return fmt.Errorf("%w: dataset %s was changed meanwhile; read it and change it again", sheaf.ErrStale, d.ID)
}

// DeleteDataset also deletes its documents, and reports which. Uploads hold the
// dataset's row while they write, so none can slip in between the last check for
// documents and the removal of the row.
func (s *datasets) DeleteDataset(ctx context.Context, tenantID, id string) (taskstore.DeleteReceipt, error) {
	var sum taskstore.DeleteReceipt
	if _, err := one[string](s.read(ctx), "dataset", id, "SELECT id FROM datasets WHERE tenant_id=? AND id=?", tenantID, id); err != nil {
		return sum, err
	}
	rec := &receiptRow{ID: sheaf.NewID(), Kind: string(taskstore.ReceiptDataset)}
	for {
		ids, err := all[string](s.write(ctx), "SELECT id FROM documents WHERE tenant_id=? AND dataset_id=? AND deleted_at=0 ORDER BY id LIMIT 500", tenantID, id)
		if err != nil {
			return sum, err
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
		err = s.tx(ctx, func(tx *gorm.DB) error {
			if _, err := all[string](tx, "SELECT id FROM datasets WHERE id=?"+s.d.lock, id); err != nil {
				return err
			}
			left, err := all[string](tx, "SELECT id FROM documents WHERE tenant_id=? AND dataset_id=? AND deleted_at=0 LIMIT 1", tenantID, id)
			if again = len(left) > 0; again || err != nil {
				return err
			}
			if err := s.openReceipt(tx, rec, tenantID, id); err != nil {
				return err
			}
			if err := s.dropDatasetUploads(tx, tenantID, id, rec.ID); err != nil {
				return err
			}
			if err := dropQueries(tx, id); err != nil {
				return err
			}
			if err := dropSplits(tx, id); err != nil {
				return err
			}
			if err := s.dropRuns(tx, id); err != nil {
				return err
			}
			n, err := s.dropWebhooks(tx, id)
			if err != nil {
				return err
			}
			return run(tx, stmt("UPDATE receipts SET webhooks=webhooks+? WHERE id=?", n, rec.ID), stmt("DELETE FROM datasets WHERE tenant_id=? AND id=?", tenantID, id))
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

// dropDatasetUploads removes the uploads of a deleted dataset, including unfinished
// ones.
func (s *datasets) dropDatasetUploads(tx *gorm.DB, tenantID, datasetID, receiptID string) error {
	for {
		rows, err := all[uploadRow](tx, "SELECT * FROM uploads WHERE tenant_id=? AND dataset_id=? ORDER BY id LIMIT 500"+s.d.lock, tenantID, datasetID)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := s.dropUploads(tx, rows, receiptID); err != nil {
			return err
		}
	}
}

// dropWebhooks removes the webhooks of a deleted dataset, and returns their number.
func (s *datasets) dropWebhooks(tx *gorm.DB, datasetID string) (int, error) {
	if err := tx.Exec("DELETE FROM webhook_deliveries WHERE webhook_id IN (SELECT id FROM webhooks WHERE dataset_id=?)", datasetID).Error; err != nil {
		return 0, err
	}
	res := tx.Exec("DELETE FROM webhooks WHERE dataset_id=?", datasetID)
	return int(res.RowsAffected), res.Error
}
