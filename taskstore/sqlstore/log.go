package sqlstore

import (
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

var eventColumns = []string{"tenant_id", "dataset_id", "job_id", "doc_id", "gen", "task_id", "subject_id", "epoch", "kind", "n",

	"worker_id", "level", "text", "detail", "at"}

// insertEvents appends to the log, as logEvents does.
func (s *handle) insertEvents(tx *gorm.DB, events ...eventRow) error {
	var c script
	s.logEvents(&c, events)
	return c.exec(tx)
}

// logEvents appends to the log, under the database's time. Events that are
// there already, by subject, epoch, kind and n, are left as they are.
func (s *handle) logEvents(c *script, events []eventRow) {
	now := raw(s.now())
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{e.TenantID, e.DatasetID, e.JobID, e.DocID, e.Gen, e.TaskID, e.SubjectID, e.Epoch, e.Kind, e.N,
			e.WorkerID, clip(e.Level, 8), clip(e.Text, 1000), e.Detail, now}
	}
	c.insert("events", eventColumns, rows, s.d.noop("seq"))
}

// insertDocumentEvent logs that a document, whose row the transaction has
// locked, changed state, and tells webhooks when that is an end.
func (s *handle) insertDocumentEvent(tx *gorm.DB, d *documentRow, change sheaf.DocumentChange) error {
	last, err := s.lastOf(tx, d.ID, int64(d.Gen), sheaf.EventDocument)
	if err != nil {
		return err
	}
	if change.State.Terminal() {
		if err := s.tellDocument(tx, d, string(change.State), last+1, change.Failure); err != nil {
			return err
		}
	}
	return s.insertEvents(tx, eventRow{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID, DocID: d.ID, Gen: d.Gen,
		SubjectID: d.ID, Epoch: int64(d.Gen), Kind: sheaf.EventDocument, N: last + 1, Detail: encode(change)})
}

// lastOf is the number of the latest event of a kind, -1 where there is none.
func (s *handle) lastOf(tx *gorm.DB, subject string, epoch int64, kind string) (int64, error) {
	n, err := one[int64](tx, "event", subject, "SELECT COALESCE(MAX(n), -1) FROM events WHERE subject_id=? AND epoch=? AND kind=?", subject, epoch, kind)
	return value(n), err
}

// logAndMark appends to the log and asks Fold to look at the document.
func (s *handle) logAndMark(tx *gorm.DB, documentID string, events ...eventRow) error {
	var c script
	s.logEvents(&c, events)
	s.dirty(&c, []string{documentID})
	return c.exec(tx)
}

// markDirty asks Fold to look at documents, as dirty does.
func (s *handle) markDirty(tx *gorm.DB, documentIDs ...string) error {
	var c script
	s.dirty(&c, documentIDs)
	return c.exec(tx)
}

// dirty asks Fold to look at documents. The marks' time only grows, so that
// Fold can tell whether something happened while it looked. They are made by
// id, so that two that mark the same documents meet in one order.
func (s *handle) dirty(c *script, documentIDs []string) {
	now := raw(s.now())
	var rows [][]any
	for _, id := range sortedUnique(documentIDs) {
		if id != "" {
			rows = append(rows, []any{id, now})
		}
	}
	suffix := " ON CONFLICT (doc_id) DO UPDATE SET at=" + s.d.greatest + "(doc_dirty.at+1, excluded.at)"
	if s.d.name == "mysql" {
		suffix = " ON DUPLICATE KEY UPDATE at=GREATEST(at+1, VALUES(at))"
	}
	c.insert("doc_dirty", []string{"doc_id", "at"}, rows, suffix)
}

// message is what the enabled webhooks of a dataset are told, once under an id.
type message struct {
	tenant, dataset, job string
	id, event            string
	data                 any
}

// tell writes a message to each enabled webhook of the dataset, in the
// transaction of what it tells.
func (s *handle) tell(tx *gorm.DB, m message) error {
	return tx.Exec(s.sql(`INSERT INTO webhook_deliveries (webhook_id, tenant_id, event_id, event, job_id, data, error, next_at, created_at)
		SELECT id, tenant_id, ?, ?, ?, ?, '', @now, @now FROM webhooks WHERE dataset_id=? AND tenant_id=? AND enabled=1`)+s.d.noop("event_id"),
		m.id, m.event, m.job, encode(m.data), m.dataset, m.tenant).Error
}

// tellDocument tells that a generation of a document ended, or the document.
func (s *handle) tellDocument(tx *gorm.DB, d *documentRow, event string, turn any, failure *sheaf.Failure) error {
	return s.tell(tx, message{
		tenant: d.TenantID, dataset: d.DatasetID, job: d.JobID, id: fmt.Sprintf("doc_%s_%d_%v", d.ID, d.Gen, turn), event: "document." + event,
		data: taskstore.DocumentNews{DatasetID: d.DatasetID, DocumentID: d.ID, Name: d.Name, Generation: d.Gen, JobID: d.JobID, State: sheaf.DocumentState(event), Failure: failure},
	})
}
