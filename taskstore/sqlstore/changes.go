package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

const (
	// changeBatch is how many documents one transaction re-parses, cancels or deletes:
	// each may have thousands of tasks, whose rows it locks.
	changeBatch = 100
	// replacedDelay is how long replaced bytes are kept for current readers.
	replacedDelay = 10 * time.Minute
)

// supersede ends the unfinished older generations of documents.
func (s *changes) supersede(tx *gorm.DB, docs []documentRow) error {
	if len(docs) == 0 {
		return nil
	}
	ids := mapped(docs, documentRow.id)
	if _, err := s.stopTasks(tx, ids, sheaf.TaskSuperseded, sheaf.EventSuperseded, "A newer version of the document was requested."); err != nil {
		return err
	}
	failure := sheaf.Fail(sheaf.CategoryCanceled, "superseded", "A newer version of the document was requested before this one finished; see that one.")
	for i := range docs {
		if d := &docs[i]; !sheaf.DocumentState(d.State).Terminal() {
			if err := s.tellDocument(tx, d, string(sheaf.DocCanceled), "superseded", failure); err != nil {
				return err
			}
		}
	}
	return s.endGenerations(tx, ids, encodeFailure(failure))
}

// insertJob writes the job, or does nothing if the same call was made before. With
// openFor the job accepts files until none arrive for that long.
func (s *changes) insertJob(tx *gorm.DB, job sheaf.Job, openFor time.Duration) error {
	if err := checkTexts("the job's name", job.Name, 500, "the job's requester", job.Requester, 250); err != nil {
		return err
	}
	owner, err := first[jobRow](tx, "SELECT tenant_id, dataset_id FROM jobs WHERE id=?", job.ID)
	if err != nil {
		return err
	}
	if owner != nil && (owner.TenantID != job.TenantID || owner.DatasetID != job.DatasetID) {
		return fmt.Errorf("%w: job id %s is taken", sheaf.ErrConflict, job.ID)
	}
	datasetPaused, err := one[int](tx, "dataset", job.DatasetID, "SELECT paused FROM datasets WHERE tenant_id=? AND id=?"+s.d.share, job.TenantID, job.DatasetID)
	if err != nil {
		return err
	}
	// A job of a paused dataset is held by the dataset and not paused itself, so that
	// it resumes with the dataset.
	openUntil := any(0)
	if openFor > 0 {
		openUntil = s.after(openFor)
	}
	return insertRows(tx, "jobs", []string{"id", "tenant_id", "dataset_id", "kind", "paused", "statistics", "name", "files", "requester", "open_until", "open_for", "created_at"},
		[][]any{{job.ID, job.TenantID, job.DatasetID, string(job.Kind), flag(job.Paused && *datasetPaused == 0), encode(job.Statistics), job.Name, firstFiles(job.Files),
			job.Requester, openUntil, openFor.Milliseconds(), raw(s.now())}}, s.d.noop("id"))
}

// namedFiles is how many of its files a job is named after.
const namedFiles = 2

// firstFiles is the list of files stored in a job's row.
func firstFiles(names []string) string {
	return encodeList(mapped(names[:min(len(names), namedFiles)], fileOfJob))
}

// fileOfJob is a file name as stored in a job's row.
func fileOfJob(name string) string { return clip(name, 80) }

// begunBy returns which documents the job has started, with the SHA-256 of their
// bytes, and which of them had an older generation: among ids, or all if nil.
func (s *changes) begunBy(tx *gorm.DB, job sheaf.Job, ids []string) (begun map[string]string, replaced []string, err error) {
	type row struct {
		DocID, SHA256 string
		Gen           int
	}
	const q = "SELECT g.doc_id, g.gen, d.sha256 AS sha256 FROM generations g JOIN documents d ON d.id=g.doc_id WHERE "
	const of, order = "g.job_id=? AND g.tenant_id=?", " ORDER BY g.doc_id"
	var rows []row
	if ids == nil {
		rows, err = all[row](tx, q+of+order, job.ID, job.TenantID)
	} else {
		rows, err = byIDs[row](tx, ids, q+"g.doc_id IN ? AND "+of+order, job.ID, job.TenantID)
	}
	begun = make(map[string]string, len(rows))
	for _, r := range rows {
		begun[r.DocID] = r.SHA256
		if r.Gen > 1 {
			replaced = append(replaced, r.DocID)
		}
	}
	return begun, replaced, err
}

// notBegun removes the documents that an earlier try of the call has started.
func notBegun(docs []taskstore.NewDocument, begun map[string]string) (left []taskstore.NewDocument, err error) {
	for _, n := range docs {
		switch sum, had := begun[n.Document.ID]; {
		case !had:
			left = append(left, n)
		case sum != n.Document.SHA256:
			return nil, fmt.Errorf("%w: the job has document %s already, with other bytes; replace it in another job", sheaf.ErrConflict, n.Document.ID)
		}
	}
	return left, nil
}

// begin writes what starts the newest generation of each document: its row, plan and
// event. docs have the new gen, job and lane; plans[i] belongs to docs[i]. It is
// insertTasks for many documents at once. No fold is needed until the plan is
// claimed. Scheduled plans get the place they would have if requested at their
// scheduled time.
func (s *changes) begin(tx *gorm.DB, docs []documentRow, plans []sheaf.NewTask, trace string, notBefore time.Time) error {
	if len(docs) == 0 {
		return nil
	}
	d := docs[0]
	paused, err := s.inheritPaused(tx, taskBase{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID})
	if err != nil {
		return err
	}
	// Documents that join the job later also get the job's place.
	queued, err := first[int64](tx, "SELECT created_at FROM jobs WHERE id=?", d.JobID)
	if err != nil {
		return err
	}
	now := raw(s.now())
	place := any(now)
	if queued != nil {
		place = *queued
	}
	state, runAt := sheaf.TaskPending, any(now)
	if !notBefore.IsZero() {
		state, runAt, place = sheaf.TaskScheduled, toMillis(notBefore), toMillis(notBefore)
	}
	gens, tasks := make([][]any, len(docs)), make([][]any, len(docs))
	events := make([]eventRow, len(docs))
	for i, d := range docs {
		p := plans[i]
		if p.ID == "" {
			p.ID = sheaf.NewID()
		}
		gens[i] = []any{d.ID, d.Gen, d.TenantID, d.JobID, string(sheaf.DocQueued), d.ParseConfig, now}
		tasks[i] = []any{p.ID, d.TenantID, d.DatasetID, d.ID, d.JobID, d.Gen, string(cmp.Or(p.Kind, sheaf.KindPlan)), p.Node, string(p.Unit), p.Range.From, p.Range.To,
			max(p.Cost, 1), d.Lane, string(state), paused, "", "", runAt, int(sheaf.PhaseBegin), place, 0, p.ReuseKey, p.Digest, "", "", 0, 0, 0, s.vault.hide(d.TenantID, string(p.Payload)), "", clip(trace, 128), now, 0}
		// The first event of a generation's document, hence n = 0.
		events[i] = eventRow{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID, DocID: d.ID, Gen: d.Gen, SubjectID: d.ID,
			Epoch: int64(d.Gen), Kind: sheaf.EventDocument, Detail: encode(sheaf.DocumentChange{State: sheaf.DocQueued})}
	}
	var c script
	c.insert("generations", []string{"doc_id", "gen", "tenant_id", "job_id", "state", "parse_config", "created_at"}, gens, "")
	c.insert("tasks", taskColumns, tasks, "")
	s.logEvents(&c, events)
	return c.exec(tx)
}

// uploadedColumns are the columns set for an uploaded document.
var uploadedColumns = []string{"id", "tenant_id", "dataset_id", "name", "media_type", "size", "sha256", "blob_key", "state", "gen",
	"parse_config", "metadata", "attributes", "duplicate_of", "job_id", "lane", "created_at", "updated_at"}

// CreateDocuments writes the job, the documents, their first generations and plan
// tasks in one transaction. ErrLimit when a quota is full. replaced lists existing
// ids that got new bytes. Repeating the call with the same job and document ids has
// no further effect and gives the same answer.
func (s *changes) CreateDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) (replaced []string, err error) {
	return s.createDocuments(ctx, job, docs, trace, false)
}

func (s *changes) createDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string, joins bool) (replaced []string, err error) {
	if len(docs) == 0 {
		return nil, fmt.Errorf("%w: a job needs at least one document", sheaf.ErrInvalid)
	}
	every := slices.Clone(docs)
	// By id, so that calls replacing the same documents lock them in the same order.
	slices.SortFunc(every, func(a, b taskstore.NewDocument) int { return strings.Compare(a.Document.ID, b.Document.ID) })
	ids := make([]string, len(every))
	for i, n := range every {
		d := &n.Document
		ids[i] = d.ID
		if d.ID == "" || i > 0 && d.ID == ids[i-1] {
			return nil, fmt.Errorf("%w: document id %q is empty or given twice; give each document an id of its own", sheaf.ErrInvalid, d.ID)
		}
		if err := checkDocument(d); err != nil {
			return nil, err
		}
	}
	var of []string // nil for a new job: all it has started
	if joins {
		of = ids
	}
	err = s.tx(ctx, func(tx *gorm.DB) error {
		begun, again, err := s.begunBy(tx, job, of)
		if replaced = again; err != nil || len(begun) > 0 && !joins {
			return err
		}
		given, err := notBegun(every, begun)
		if err != nil || len(given) == 0 {
			return err
		}
		there, err := byIDs[documentRow](tx, ids, "SELECT * FROM documents WHERE id IN ? ORDER BY id"+s.d.lock)
		if err != nil {
			return err
		}
		old := make(map[string]*documentRow, len(there))
		for i := range there {
			d := &there[i]
			if d.TenantID != job.TenantID || d.DatasetID != job.DatasetID || d.DeletedAt != 0 {
				return fmt.Errorf("%w: document id %s is taken, or was and is being removed; choose another id", sheaf.ErrConflict, d.ID)
			}
			old[d.ID] = d
		}
		if err := s.checkQuota(tx, job.TenantID, given, old); err != nil {
			return err
		}
		if joins {
			err = s.join(tx, job, given)
		} else {
			err = s.insertJob(tx, job, 0)
		}
		if err != nil {
			return err
		}
		// Both wait for a concurrent transaction that writes the same job.
		meanwhile, again, err := s.begunBy(tx, job, of)
		if replaced = again; err != nil || len(meanwhile) > 0 && !joins {
			return err
		}
		if len(meanwhile) != len(begun) {
			return fmt.Errorf("%w: the same request is being answered elsewhere; ask again", sheaf.ErrUnavailable)
		}

		var fresh [][]any
		now := raw(s.now())
		rows := make([]documentRow, 0, len(given))
		plans := make([]sheaf.NewTask, 0, len(given))
		for _, n := range given {
			d := n.Document
			lane := d.Lane
			if lane < sheaf.LaneInteractive || lane > sheaf.LaneBackfill {
				lane = sheaf.LaneNormal
			}
			metadata := encodeMap(d.Metadata)
			r := documentRow{ID: d.ID, TenantID: job.TenantID, DatasetID: job.DatasetID, JobID: job.ID, Gen: 1, Lane: int(lane), ParseConfig: s.vault.hide(job.TenantID, encode(d.ParseConfig))}
			if o := old[d.ID]; o != nil {
				r.Gen = o.Gen + 1
				replaced = append(replaced, d.ID)
				if err := s.replaceBytes(tx, o, r, d, metadata); err != nil {
					return err
				}
			} else {
				attributes, err := d.Attributes.Encode("a document", sheaf.MaxDocumentAttributes)
				if err != nil {
					return err
				}
				fresh = append(fresh, []any{r.ID, r.TenantID, r.DatasetID, d.Name, d.MediaType, d.Size, d.SHA256, d.BlobKey, string(sheaf.DocQueued), r.Gen,
					r.ParseConfig, metadata, attributes, d.DuplicateOf, r.JobID, r.Lane, now, now})
			}
			rows, plans = append(rows, r), append(plans, n.Plan)
		}
		var superseded []documentRow
		for _, id := range replaced {
			superseded = append(superseded, *old[id])
		}
		for batch := range chunks(superseded) {
			if err := s.supersede(tx, batch); err != nil {
				return err
			}
		}
		if err := insertRows(tx, "documents", uploadedColumns, fresh, ""); err != nil {
			return err
		}
		return s.begin(tx, rows, plans, trace, job.NotBefore)
	})
	if err != nil {
		return nil, fmt.Errorf("create %d documents: %w", len(docs), err)
	}
	return replaced, nil
}

// HoldDocuments writes documents that are not processed until Reparse is called:
// they are unstarted, without generation, job or tasks. ErrLimit when a quota is
// full, ErrConflict when an id is taken. Repeating the call has no further effect.
func (s *changes) HoldDocuments(ctx context.Context, tenantID, datasetID string, docs []sheaf.Document) error {
	every := slices.Clone(docs)
	slices.SortFunc(every, func(a, b sheaf.Document) int { return strings.Compare(a.ID, b.ID) }) // a single lock order
	texts := make([]string, len(every))
	for i := range every {
		if err := checkDocument(&every[i]); err != nil {
			return err
		}
		var err error
		if texts[i], err = every[i].Attributes.Encode("a document", sheaf.MaxDocumentAttributes); err != nil {
			return err
		}
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		if _, err := one[int](tx, "dataset", datasetID, "SELECT paused FROM datasets WHERE tenant_id=? AND id=?"+s.d.share, tenantID, datasetID); err != nil {
			return err
		}
		left, err := s.allowance(tx, tenantID)
		if err != nil {
			return err
		}
		there, err := byIDs[documentRow](tx, mapped(every, func(d sheaf.Document) string { return d.ID }), "SELECT * FROM documents WHERE id IN ? ORDER BY id"+s.d.lock)
		if err != nil {
			return err
		}
		var fresh [][]any
		var events []eventRow
		var more sheaf.Quota
		now := raw(s.now())
		for i, d := range every {
			if n := slices.IndexFunc(there, func(r documentRow) bool { return r.ID == d.ID }); n >= 0 {
				if r := there[n]; r.TenantID == tenantID && r.DatasetID == datasetID && r.DeletedAt == 0 && r.Gen == 0 && r.SHA256 == d.SHA256 {
					continue // written by an earlier try
				}
				return fmt.Errorf("%w: document id %s is taken; choose another id, or leave hold out to replace its bytes", sheaf.ErrConflict, d.ID)
			}
			more.Documents++
			more.Bytes += d.Size
			fresh = append(fresh, []any{d.ID, tenantID, datasetID, d.Name, d.MediaType, d.Size, d.SHA256, d.BlobKey, string(sheaf.DocUnstarted), 0,
				s.vault.hide(tenantID, encode(d.ParseConfig)), encodeMap(d.Metadata), texts[i], "", "", int(d.Lane), now, now})
			events = append(events, eventRow{TenantID: tenantID, DatasetID: datasetID, DocID: d.ID, SubjectID: d.ID, Kind: sheaf.EventDocument, Detail: encode(sheaf.DocumentChange{State: sheaf.DocUnstarted})})
		}
		if len(fresh) == 0 {
			return nil
		}
		if err := left.take(more); err != nil {
			return err
		}
		if err := insertRows(tx, "documents", uploadedColumns, fresh, ""); err != nil {
			return err
		}
		var c script
		s.logEvents(&c, events)
		return c.exec(tx)
	})
	if err != nil {
		return fmt.Errorf("hold %d documents: %w", len(docs), err)
	}
	return nil
}

// replaceBytes gives a document new bytes under a new generation. The live
// generation stays live, with its counts, until the new one is published.
func (s *changes) replaceBytes(tx *gorm.DB, old *documentRow, r documentRow, d sheaf.Document, metadata string) error {
	res := tx.Exec(s.sql(`UPDATE documents SET name=?, media_type=?, size=?, sha256=?, blob_key=?, state='queued', progress=0, units=0, unit='', gen=?,
		ledger='{}', failure='', warnings='[]', parser='', parse_config=?, metadata=?, duplicate_of=?, job_id=?, lane=?,
		updated_at=@now, started_at=0, finished_at=0 WHERE id=? AND gen=?`),
		d.Name, d.MediaType, d.Size, d.SHA256, d.BlobKey, r.Gen, r.ParseConfig, metadata, d.DuplicateOf, r.JobID, r.Lane, old.ID, old.Gen)
	if res.Error != nil {
		return res.Error
	}
	if old.BlobKey == d.BlobKey || old.BlobKey == "" || strings.HasPrefix(d.BlobKey, old.BlobKey) {
		return nil
	}
	due := s.after(replacedDelay)
	return insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "blob_prefix", "not_before"}, [][]any{
		{old.TenantID, old.ID, old.BlobKey, due},
		{old.TenantID, old.ID, sheaf.PlanPrefix(old.TenantID, old.ID, old.BlobKey), due},
	}, "")
}

// checkQuota rejects documents that exceed the tenant's quota.
func (s *changes) checkQuota(tx *gorm.DB, tenantID string, docs []taskstore.NewDocument, old map[string]*documentRow) error {
	left, err := s.allowance(tx, tenantID)
	if err != nil {
		return err
	}
	var more sheaf.Quota
	for _, n := range docs {
		more.QueuedTasks++
		more.Bytes += n.Document.Size
		if o := old[n.Document.ID]; o != nil {
			more.Bytes -= o.Size
		} else {
			more.Documents++
		}
	}
	return left.take(more)
}

// allowance returns what is left of a tenant's quota. If there is a limit, the
// tenant's row is locked, so that two uploads cannot both take the last place.
func (s *changes) allowance(tx *gorm.DB, tenantID string) (*allowance, error) {
	s.room.forget(tenantID)
	t, err := get(tx, "tenant", tenantID, tenantRow.toDomain, "id=?", tenantID)
	if err != nil || t.Quota == (sheaf.Quota{}) {
		return &allowance{}, err
	}
	if t, err = get(locked(tx), "tenant", tenantID, tenantRow.toDomain, "id=?", tenantID); err != nil {
		return nil, err
	}
	held, err := quotaUsage(tx, tenantID, t.Quota)
	return &allowance{held, t.Quota}, err
}

// Reparse starts a new generation of each document: running work of older
// generations is superseded, and live generations stay live. Documents deleted in
// the meantime are skipped; ErrNotFound when none is left. Many documents take
// several transactions; after an error, repeating the call resumes where it stopped.
func (s *changes) Reparse(ctx context.Context, job sheaf.Job, docs []taskstore.ReparseDocument, trace string) error {
	byID := make(map[string]taskstore.ReparseDocument, len(docs))
	ids := make([]string, len(docs))
	for i, d := range docs {
		ids[i], byID[d.DocumentID] = d.DocumentID, d
	}
	done := 0
	for batch := range slices.Chunk(sortedUnique(ids), changeBatch) {
		n := 0
		err := s.tx(ctx, func(tx *gorm.DB) error {
			n = 0
			rows, err := s.lockDocuments(tx, job.TenantID, batch)
			if err != nil {
				return err
			}
			n = len(rows)
			// Documents already started by an earlier, identical call.
			had, err := all[string](tx, "SELECT doc_id FROM generations WHERE job_id=? AND doc_id IN ?", job.ID, batch)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(d documentRow) bool { return slices.Contains(had, d.ID) })
			if len(rows) == 0 {
				return nil
			}
			if err := s.insertJob(tx, job, 0); err != nil {
				return err
			}
			if err := s.supersede(tx, rows); err != nil {
				return err
			}
			plans := make([]sheaf.NewTask, len(rows))
			for i := range rows {
				d := &rows[i]
				want := byID[d.ID]
				settings := s.vault.hide(d.TenantID, encode(want.ParseConfig))
				n, err := exec(tx, s.sql(`UPDATE documents SET gen=gen+1, state='queued', progress=0, ledger='{}', failure='', warnings='[]', parse_config=?, media_type=?, job_id=?,
					updated_at=@now, started_at=0, finished_at=0 WHERE id=? AND gen=? AND deleted_at=0`), settings, cmp.Or(want.MediaType, d.MediaType), job.ID, d.ID, d.Gen)
				if err != nil {
					return err
				}
				if n != 1 {
					return fmt.Errorf("%w: document %s changed while it was being read; try again", sheaf.ErrConflict, d.ID)
				}
				d.Gen, d.JobID, d.ParseConfig, plans[i] = d.Gen+1, job.ID, settings, want.Plan
			}
			return s.begin(tx, rows, plans, trace, job.NotBefore)
		})
		if err != nil {
			return fmt.Errorf("reparse %d documents, %d of them begun: %w", len(docs), done, err)
		}
		done += n
	}
	if done == 0 {
		return fmt.Errorf("%w: none of the %d documents exists", sheaf.ErrNotFound, len(docs))
	}
	return nil
}

// CancelDocuments stops the newest generation of each document. Waiting tasks are
// canceled immediately; running ones are asked to stop, and the document is canceled
// when the last of its tasks has ended. A document published before that stays
// published. The files of an archive are canceled after it, when it cannot yield any
// more.
func (s *changes) CancelDocuments(ctx context.Context, tenantID string, ids []string) (taskstore.CancelReceipt, error) {
	var sum taskstore.CancelReceipt
	if err := s.known(ctx, tenantID, ids); err != nil {
		return sum, err
	}
	for level := ids; len(level) > 0; {
		if err := s.cancelDocuments(ctx, tenantID, level, &sum); err != nil {
			return sum, err
		}
		members, err := membersOf(s.write(ctx), level, "")
		if err != nil {
			return sum, err
		}
		level = members
	}
	return sum, nil
}

// cancelDocuments cancels documents without their members, and adds to sum.
func (s *changes) cancelDocuments(ctx context.Context, tenantID string, ids []string, sum *taskstore.CancelReceipt) error {
	for batch := range slices.Chunk(sortedUnique(ids), changeBatch) {
		var r taskstore.CancelReceipt
		err := s.tx(ctx, func(tx *gorm.DB) error {
			r = taskstore.CancelReceipt{}
			docs, err := s.lockDocuments(tx, tenantID, batch)
			if err != nil {
				return err
			}
			docs = slices.DeleteFunc(docs, func(d documentRow) bool { return sheaf.DocumentState(d.State).Terminal() })
			if len(docs) == 0 {
				return nil
			}
			open := mapped(docs, documentRow.id)
			if r, err = s.cancelTasks(tx, open); err != nil {
				return err
			}
			if err := run(tx, stmt(s.sql("UPDATE documents SET state='canceling', updated_at=@now WHERE id IN ?"), open)); err != nil {
				return err
			}
			var asked []*documentRow
			progress := map[string]float64{}
			for i := range docs {
				if d := &docs[i]; d.State != string(sheaf.DocCanceling) {
					asked, progress[d.ID] = append(asked, d), d.Progress
				}
			}
			if r.Documents = len(asked); r.Documents > 0 {
				err := run(tx, stmt("UPDATE generations SET state='canceling' WHERE doc_id IN ? AND gen="+newestGen, idsOf(asked)))
				if err == nil {
					err = s.logDocuments(tx, asked, sheaf.DocCanceling, progress)
				}
				if err != nil {
					return err
				}
			}
			return s.markDirty(tx, open...)
		})
		if err != nil {
			return fmt.Errorf("cancel %d documents, %d of them done: %w", len(ids), sum.Documents, err)
		}
		sum.Documents += r.Documents
		sum.Queued += r.Queued
		sum.Running += r.Running
		sum.RunningTasks = append(sum.RunningTasks, r.RunningTasks...)
	}
	return nil
}

// CancelTask stops one task: immediately if it is waiting, otherwise as soon as its
// executor is notified. A canceled range leaves its units unread, and the document
// ends without them; a canceled plan or finalize task ends the document as canceled.
// ErrConflict for a task that has ended. A dry run changes nothing.
func (s *changes) CancelTask(ctx context.Context, tenantID, id string, dryRun bool) (r taskstore.CancelReceipt, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		r = taskstore.CancelReceipt{}
		found, err := one[taskRow](tx, "task", id, "SELECT doc_id FROM tasks WHERE id=? AND tenant_id=?", id, tenantID)
		if err != nil {
			return err
		}
		if found.DocID != "" { // locked before its task, as everywhere
			doc, err := s.lockDocument(tx, found.DocID)
			if err != nil {
				return err
			}
			if doc == nil || doc.DeletedAt != 0 {
				return notFound("task", id)
			}
		}
		rows, err := all[taskRow](tx, "SELECT "+openColumns+" FROM tasks WHERE id=?"+s.d.lock, id)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return notFound("task", id)
		}
		if state := sheaf.TaskState(rows[0].State); state.Terminal() {
			return fmt.Errorf("%w: task %s is %s already; only a task that waits or runs can be canceled", sheaf.ErrConflict, id, state)
		}
		if r, err = s.cancelRows(tx, rows); err != nil {
			return err
		}
		if found.DocID != "" {
			err = s.markDirty(tx, found.DocID)
		}
		if err == nil && dryRun {
			err = errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		r.RunningTasks, err = nil, nil
	}
	return r, err
}

func (s *changes) cancelTasks(tx *gorm.DB, documentIDs []string) (r taskstore.CancelReceipt, err error) {
	rows, err := s.lockOpen(tx, documentIDs)
	if err != nil {
		return r, err
	}
	return s.cancelRows(tx, rows)
}

// cancelRows cancels locked open tasks.
func (s *changes) cancelRows(tx *gorm.DB, rows []taskRow) (r taskstore.CancelReceipt, err error) {
	var waiting, running []string
	var events []eventRow
	for i := range rows {
		t := &rows[i]
		if t.State != string(sheaf.TaskRunning) {
			r.Queued++
			waiting = append(waiting, t.ID)
			events = append(events, t.event(sheaf.EventCanceled, t.Epoch+1))
			continue
		}
		r.RunningTasks = append(r.RunningTasks, t.ID)
		if t.CancelRequestedAt == 0 {
			r.Running++
			running = append(running, t.ID)
		}
	}
	if _, err := execByIDs(tx, waiting, s.sql(`UPDATE tasks SET state='canceled', epoch=epoch+1, enqueued_at=0, cancel_requested_at=@now, finished_at=@now
		WHERE id IN ? AND state<>'running' AND `+isOpen)); err != nil {
		return r, err
	}
	if _, err := execByIDs(tx, running, s.sql("UPDATE tasks SET cancel_requested_at=@now WHERE id IN ? AND state='running'")); err != nil {
		return r, err
	}
	return r, s.insertEvents(tx, events...)
}

// addReceipt adds the result of one transaction of a deletion.
func addReceipt(sum *taskstore.DeleteReceipt, r taskstore.DeleteReceipt) {
	if r.ReceiptID != "" {
		sum.ReceiptID = r.ReceiptID
	}
	sum.Documents += r.Documents
	sum.Generations += r.Generations
	sum.Tasks += r.Tasks
	sum.Chunks += r.Chunks
	sum.Bytes += r.Bytes
	sum.DocumentIDs = append(sum.DocumentIDs, r.DocumentIDs...)
	sum.RunningTasks = append(sum.RunningTasks, r.RunningTasks...)
}
