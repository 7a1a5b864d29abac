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

// logEvents appends to the log, with the database's time. Events that already exist,
// by subject, epoch, kind and n, are unchanged.
func (s *handle) logEvents(c *script, events []eventRow) {
	now := raw(s.now())
	rows := make([][]any, len(events))
	for i, e := range events {
		rows[i] = []any{e.TenantID, e.DatasetID, e.JobID, e.DocID, e.Gen, e.TaskID, e.SubjectID, e.Epoch, e.Kind, e.N,
			e.WorkerID, clip(e.Level, 8), clip(e.Text, 1000), e.Detail, now}
	}
	c.insert("events", eventColumns, rows, s.d.noop("seq"))
}

// insertDocumentEvent logs a state change of a locked document, and notifies
// webhooks if the state is terminal.
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

// lastOf returns the number of the latest event of a kind, -1 if there is none.
func (s *handle) lastOf(tx *gorm.DB, subject string, epoch int64, kind string) (int64, error) {
	n, err := one[int64](tx, "event", subject, "SELECT COALESCE(MAX(n), -1) FROM events WHERE subject_id=? AND epoch=? AND kind=?", subject, epoch, kind)
	return value(n), err
}

// logAndMark appends to the log and marks the document for Fold.
func (s *handle) logAndMark(tx *gorm.DB, documentID string, events ...eventRow) error {
	var c script
	s.logEvents(&c, events)
	s.dirty(&c, []string{documentID})
	return c.exec(tx)
}

// markDirty marks documents for Fold, as dirty does.
func (s *handle) markDirty(tx *gorm.DB, documentIDs ...string) error {
	var c script
	s.dirty(&c, documentIDs)
	return c.exec(tx)
}

// dirty marks documents for Fold. A mark's time only increases, so that Fold can
// tell whether something happened meanwhile. Marks are written in id order, so that
// concurrent writers lock in the same order.
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

// message is sent to the enabled webhooks of a dataset, once per id.
type message struct {
	tenant, dataset, job string
	id, event            string
	data                 any
}

// tell writes a message to each enabled webhook of the dataset, in the transaction
// of the event.
func (s *handle) tell(tx *gorm.DB, m message) error {
	return tx.Exec(s.sql(`INSERT INTO webhook_deliveries (webhook_id, tenant_id, event_id, event, job_id, data, error, next_at, created_at)
		SELECT id, tenant_id, ?, ?, ?, ?, '', @now, @now FROM webhooks WHERE dataset_id=? AND tenant_id=? AND enabled=1`)+s.d.noop("event_id"),
		m.id, m.event, m.job, encode(m.data), m.dataset, m.tenant).Error
}

// tellDocument reports the end of a document's generation, or its deletion.
func (s *handle) tellDocument(tx *gorm.DB, d *documentRow, event string, turn any, failure *sheaf.Failure) error {
	return s.tell(tx, message{
		tenant: d.TenantID, dataset: d.DatasetID, job: d.JobID, id: fmt.Sprintf("doc_%s_%d_%v", d.ID, d.Gen, turn), event: "document." + event,
		data: taskstore.DocumentNews{DatasetID: d.DatasetID, DocumentID: d.ID, Name: d.Name, Generation: d.Gen, JobID: d.JobID, State: sheaf.DocumentState(event), Failure: failure},
	})
}
