package sqlstore

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

type splitRow struct {
	DatasetID string
	ID        string
	TenantID  string
	Names     string // JSON list, sorted
	CreatedAt int64  `gorm:"autoCreateTime:false"`
}

func (r splitRow) toDomain() taskstore.Split {
	s := taskstore.Split{ID: r.ID, TenantID: r.TenantID, DatasetID: r.DatasetID, CreatedAt: toTime(r.CreatedAt)}
	decode(r.Names, &s.Names)
	return s
}

// AddSplit keeps names of a dataset apart. For the same names it returns the
// existing split. ErrLimit if the dataset would have more than taskstore.MaxSplits.
func (s *splits) AddSplit(ctx context.Context, tenantID, datasetID string, names []string) (*taskstore.Split, error) {
	names = sortedUnique(names)
	if len(names) < 2 || len(names) > taskstore.MaxSplitNames {
		return nil, fmt.Errorf("%w: a split is of 2 to %d different names; name as many", sheaf.ErrInvalid, taskstore.MaxSplitNames)
	}
	for _, n := range names {
		if err := checkText("the name", n, taskstore.MaxSplitName); err != nil {
			return nil, err
		}
	}
	var added taskstore.Split
	list := encodeList(names)
	err := s.tx(ctx, func(tx *gorm.DB) error {
		// Of two concurrent calls with the same names, the second sees the first's
		// split.
		if _, err := one[string](tx, "dataset", datasetID, "SELECT id FROM datasets WHERE tenant_id=? AND id=?"+s.d.lock, tenantID, datasetID); err != nil {
			return err
		}
		same, err := first[splitRow](tx, "SELECT * FROM graph_splits WHERE dataset_id=? AND names=?", datasetID, list)
		if err != nil {
			return err
		}
		if same != nil {
			added = same.toDomain()
			return nil
		}
		have, err := one[int](tx, "dataset", datasetID, "SELECT COUNT(*) FROM graph_splits WHERE dataset_id=?", datasetID)
		if err != nil {
			return err
		}
		if *have >= taskstore.MaxSplits {
			return limitFailure("splits in the graph of the dataset", taskstore.MaxSplits, 1, taskstore.MaxSplits)
		}
		id := sheaf.NewID()
		if err := insertRows(tx, "graph_splits", []string{"dataset_id", "id", "tenant_id", "names", "created_at"}, [][]any{{datasetID, id, tenantID, list, raw(s.now())}}, ""); err != nil {
			return err
		}
		row, err := one[splitRow](tx, "split", id, "SELECT * FROM graph_splits WHERE dataset_id=? AND id=?", datasetID, id)
		if err == nil {
			added = row.toDomain()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add split: %w", err)
	}
	return &added, nil
}

// Splits lists the splits of a dataset.
func (s *splits) Splits(ctx context.Context, tenantID, datasetID string, p taskstore.Page) ([]taskstore.Split, string, error) {
	var w where
	w.add("dataset_id=? AND tenant_id=?", datasetID, tenantID)
	return page(s.read(ctx), "SELECT * FROM graph_splits", w, "id", p, func(r splitRow) string { return r.ID }, splitRow.toDomain)
}

// SplitNames returns the names of each split of a dataset.
func (s *splits) SplitNames(ctx context.Context, tenantID, datasetID string) ([][]string, error) {
	some, _, err := s.Splits(ctx, tenantID, datasetID, taskstore.Page{Limit: taskstore.MaxSplits, Ascending: true})
	return mapped(some, func(x taskstore.Split) []string { return x.Names }), err
}

// RemoveSplit deletes a split.
func (s *splits) RemoveSplit(ctx context.Context, tenantID, datasetID, id string) error {
	return changed(s.write(ctx).Exec("DELETE FROM graph_splits WHERE dataset_id=? AND id=? AND tenant_id=?", datasetID, id, tenantID), "split", id)
}

// dropSplits deletes the splits of a deleted dataset.
func dropSplits(tx *gorm.DB, datasetID string) error {
	return run(tx, stmt("DELETE FROM graph_splits WHERE dataset_id=?", datasetID))
}
