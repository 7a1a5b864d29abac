package sqlstore

import (
	"fmt"

	"gorm.io/gorm"

	"sheaf"
)

// lockQuery reads tasks by a list of ids and locks their rows in id order, so that
// transactions that want the same ones take turns. What it reads holds until the
// transaction ends: this guards the changes that follow.
func (s *handle) lockQuery() string {
	return s.sql("SELECT " + taskFields + `, @now AS now, CASE WHEN state='pending' AND EXISTS
		(SELECT 1 FROM documents d WHERE d.id=tasks.doc_id AND d.deleted_at<>0) THEN 1 ELSE 0 END AS deleted
		FROM tasks` + s.d.byID + ` WHERE id IN ? ORDER BY id` + s.d.lock)
}

// lockTasks runs lockQuery.
func (s *handle) lockTasks(tx *gorm.DB, ids []string) (map[string]*taskRow, error) {
	rows, err := all[taskRow](tx, s.lockQuery(), sortedUnique(ids))
	return tasksByID(rows), err
}

func tasksByID(rows []taskRow) map[string]*taskRow {
	tasks := make(map[string]*taskRow, len(rows))
	for i := range rows {
		tasks[rows[i].ID] = &rows[i]
	}
	return tasks
}

// lockDocuments reads the tenant's undeleted documents, ordered by id, and locks
// their rows.
func (s *handle) lockDocuments(tx *gorm.DB, tenantID string, ids []string) ([]documentRow, error) {
	return byIDs[documentRow](tx, sortedUnique(ids), "SELECT * FROM documents WHERE id IN ? AND tenant_id=? AND deleted_at=0 ORDER BY id"+s.d.lock, tenantID)
}

// inheritPaused returns 1 when the job, dataset or tenant is paused. The rows are
// locked against change, so that a pause is either seen here or sees the tasks being
// written.
func (s *handle) inheritPaused(tx *gorm.DB, base taskBase) (int, error) {
	for _, q := range []struct{ table, id string }{{"tenants", base.TenantID}, {"datasets", base.DatasetID}, {"jobs", base.JobID}} {
		if q.id == "" {
			continue
		}
		if paused, err := first[int](tx, "SELECT paused FROM "+q.table+" WHERE id=?"+s.d.share, q.id); err != nil || value(paused) != 0 {
			return 1, err
		}
	}
	return 0, nil
}

// lockDocumentOf locks the row of a task's document. It returns nil for a task
// without one.
func (s *handle) lockDocumentOf(tx *gorm.DB, taskID string) (*documentRow, error) {
	id, err := first[string](tx, "SELECT doc_id FROM tasks WHERE id=?", taskID)
	if err != nil {
		return nil, err
	}
	if id == nil {
		return nil, fmt.Errorf("%w: task %s does not exist", sheaf.ErrStale, taskID)
	}
	return s.lockDocument(tx, *id)
}

// lockDocument reads a document and locks its row; nil if it does not exist.
func (s *handle) lockDocument(tx *gorm.DB, id string) (*documentRow, error) {
	return first[documentRow](tx, "SELECT "+workColumns()+" FROM documents WHERE id=?"+s.d.lock, id)
}
