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
	// changeBatch is how many documents one transaction re-parses, cancels or
	// deletes: each may have thousands of tasks, whose rows it locks.
	changeBatch = 100
	// replacedDelay is how long bytes that were replaced are kept for those
	// who are reading them.
	replacedDelay = 10 * time.Minute
)

// supersede ends what is left of the documents' older generations.
func (s *changes) supersede(tx *gorm.DB, docs []documentRow) error {
	if len(docs) == 0 {
		return nil
	}
	ids := mapped(docs, documentRow.id)
	if _, err := s.stopTasks(tx, ids, sheaf.TaskSuperseded, sheaf.EventSuperseded, "a newer generation was asked for"); err != nil {
		return err
	}
	failure := sheaf.Fail(sheaf.CategoryCanceled, "superseded", "a newer version of the document was requested before this one finished; see that one")
	for i := range docs {
		if d := &docs[i]; !sheaf.DocumentState(d.State).Terminal() {
			if err := s.tellDocument(tx, d, string(sheaf.DocCanceled), "superseded", failure); err != nil {
				return err
			}
		}
	}
	return s.endGenerations(tx, ids, encodeFailure(failure))
}

// insertJob writes the job, or leaves it when the same call came before. With
// openFor it takes more files until none have come for so long.
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
	// A job of a paused dataset is held by the dataset and not by itself, so
	// that it goes on when the dataset does.
	openUntil := any(0)
	if openFor > 0 {
		openUntil = s.after(openFor)
	}
	return insertRows(tx, "jobs", []string{"id", "tenant_id", "dataset_id", "kind", "paused", "statistics", "name", "files", "requester", "open_until", "open_for", "created_at"},
		[][]any{{job.ID, job.TenantID, job.DatasetID, string(job.Kind), flag(job.Paused && *datasetPaused == 0), encode(job.Statistics), job.Name, firstFiles(job.Files),
			job.Requester, openUntil, openFor.Milliseconds(), raw(s.now())}}, s.d.noop("id"))
}

// namedFiles is by how many of its files a job is called.
const namedFiles = 2

// firstFiles is what a job's row says of its files.
func firstFiles(names []string) string {
	return encodeList(mapped(names[:min(len(names), namedFiles)], fileOfJob))
}

// fileOfJob is the name of a file as a job's row has it.
func fileOfJob(name string) string { return clip(name, 80) }

// begunBy returns which documents the job has begun, with the SHA-256 of their
// bytes, and which of them had an older generation: of ids, or of all for nil.
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

// notBegun leaves out the documents that an earlier try of the call has begun.
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

// begin writes what starts the newest generation of each document: its row,
// its plan and its event. docs hold the new gen, job and lane; plans[i] belongs
// to docs[i]. It is insertTasks for many documents at once. There is nothing to
// fold until the plan is claimed. Plans for later have the place that they would
// have if they were asked for then.
func (s *changes) begin(tx *gorm.DB, docs []documentRow, plans []sheaf.NewTask, trace string, notBefore time.Time) error {
	if len(docs) == 0 {
		return nil
	}
	d := docs[0]
	paused, err := s.inheritPaused(tx, taskBase{TenantID: d.TenantID, DatasetID: d.DatasetID, JobID: d.JobID})
	if err != nil {
		return err
	}
	// The place is that of the job, for documents too that join it later.
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

// uploadedColumns are those of a new document that was uploaded.
var uploadedColumns = []string{"id", "tenant_id", "dataset_id", "name", "media_type", "size", "sha256", "blob_key", "state", "gen",
	"parse_config", "metadata", "attributes", "duplicate_of", "job_id", "lane", "created_at", "updated_at"}

// CreateDocuments writes the job, the documents, their first generations and
// plan tasks in one transaction. ErrLimit when a quota is full. replaced lists
// the ids that existed and got new bytes. The same call again, with the ids of
// job and documents, does nothing more and answers the same.
func (s *changes) CreateDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string) (replaced []string, err error) {
	return s.createDocuments(ctx, job, docs, trace, false)
}

func (s *changes) createDocuments(ctx context.Context, job sheaf.Job, docs []taskstore.NewDocument, trace string, joins bool) (replaced []string, err error) {
	if len(docs) == 0 {
		return nil, fmt.Errorf("%w: a job needs at least one document", sheaf.ErrInvalid)
	}
	every := slices.Clone(docs)
	// By id, so that calls that replace the same documents lock them in one order.
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
	var of []string // of a job of its own, whatever it has begun
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
		// Both wait for another transaction that writes the same job.
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

// HoldDocuments writes documents that nothing is done with until somebody asks
// for it by Reparse: they are unstarted, without generation, job and tasks.
// ErrLimit when a quota is full, ErrConflict when an id is taken. The same call
// again does nothing more.
func (s *changes) HoldDocuments(ctx context.Context, tenantID, datasetID string, docs []sheaf.Document) error {
	every := slices.Clone(docs)
	slices.SortFunc(every, func(a, b sheaf.Document) int { return strings.Compare(a.ID, b.ID) }) // one order of locks
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
					continue // by an earlier try
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

// replaceBytes gives a document new bytes under a new generation. What is live
// stays live, with its counts, until that generation is published.
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
	return insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "blob_prefix", "not_before"},
		[][]any{{old.TenantID, old.ID, old.BlobKey, s.after(replacedDelay)}}, "")
}

// checkQuota refuses documents that exceed the tenant's quota.
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

// allowance reads what is left of a tenant's quota. With a bound to hold, the
// tenant's row is locked, so that two uploads cannot both take the last place.
func (s *changes) allowance(tx *gorm.DB, tenantID string) (*allowance, error) {
	t, err := get(tx, "tenant", tenantID, tenantRow.toDomain, "id=?", tenantID)
	if err != nil || t.Quota == (sheaf.Quota{}) {
		return &allowance{}, err
	}
	if t, err = get(locked(tx), "tenant", tenantID, tenantRow.toDomain, "id=?", tenantID); err != nil {
		return nil, err
	}
	held, err := quotaUsage(tx, tenantID)
	return &allowance{held, t.Quota}, err
}

// Reparse starts a new generation of each document: running work of older
// generations is superseded, what is live stays live. Documents that were
// deleted in the meantime are left out; ErrNotFound when none is left. Many
// documents take several transactions; after an error the same call goes on
// where it ended.
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
			// Documents that the same call, made before, has begun.
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

// CancelDocuments stops the newest generation of each document. What waits is
// canceled at once; what runs is asked to stop, and the document is canceled
// when the last of its tasks has ended. A document that was published first
// stays so. The files of an archive are canceled after it, when it can yield no
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
		members, err := membersOf(s.write(ctx), level, " AND tenant_id=?", tenantID)
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
			for i := range docs {
				d := &docs[i]
				if d.State == string(sheaf.DocCanceling) {
					continue
				}
				r.Documents++
				if err := run(tx, stmt("UPDATE generations SET state='canceling' WHERE doc_id=? AND gen=?", d.ID, d.Gen)); err != nil {
					return err
				}
				if err := s.insertDocumentEvent(tx, d, sheaf.DocumentChange{State: sheaf.DocCanceling, Progress: d.Progress}); err != nil {
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

// CancelTask stops one task: at once while it waits, else as soon as its
// executor hears of it. A canceled range leaves its units unread, and the
// document ends without them; a canceled plan or finalize task ends the document
// canceled. ErrConflict for a task that has ended. A dry run changes nothing.
func (s *changes) CancelTask(ctx context.Context, tenantID, id string, dryRun bool) (r taskstore.CancelReceipt, err error) {
	err = s.tx(ctx, func(tx *gorm.DB) error {
		r = taskstore.CancelReceipt{}
		found, err := one[taskRow](tx, "task", id, "SELECT doc_id FROM tasks WHERE id=? AND tenant_id=?", id, tenantID)
		if err != nil {
			return err
		}
		if found.DocID != "" { // before its task, as all lock them
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

// cancelRows cancels locked tasks that are open.
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

// addReceipt adds what one transaction of a deletion did.
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
