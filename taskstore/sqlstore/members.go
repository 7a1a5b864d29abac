package sqlstore

import (
	"time"

	"cmp"
	"context"
	"fmt"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// CreateMembers makes documents of an archive's files for the holder of its plan
// task, in the task's job, and returns the outcome of each. An existing document
// gets a new generation, with new bytes if its SHA256 differs. Repeating the call,
// in any attempt, has no further effect. It locks the archive's row first, as
// cancel, re-parse and delete do: either they see the documents made here, or this
// sees that the archive was canceled.
func (s *changes) CreateMembers(ctx context.Context, c sheaf.Claim, ask taskstore.NewMembers) ([]taskstore.MemberOutcome, error) {
	for _, n := range ask.Files {
		d := &n.Document
		if d.ID == "" || d.Path == "" {
			return nil, fmt.Errorf("%w: a file of an archive needs an id and a path", sheaf.ErrInvalid)
		}
		if err := checkDocument(d); err != nil {
			return nil, err
		}
	}
	var out []taskstore.MemberOutcome
	err := s.tx(ctx, func(tx *gorm.DB) (err error) {
		archive, err := s.lockDocumentOf(tx, c.TaskID)
		if err != nil {
			return err
		}
		tasks, err := s.lockTasks(tx, []string{c.TaskID})
		if err != nil {
			return err
		}
		task := tasks[c.TaskID]
		switch {
		case task == nil || task.State != string(sheaf.TaskRunning) || task.Epoch != c.Epoch:
			return notHeld(c)
		case archive == nil || archive.DeletedAt != 0 || archive.Gen != task.Gen || task.CancelRequestedAt != 0 || archive.State == string(sheaf.DocCanceling):
			return fmt.Errorf("%w: generation %d of archive %s was called off", sheaf.ErrStale, task.Gen, task.DocID)
		}
		out, err = s.createMembers(tx, archive, task, ask)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make documents of %d files of an archive: %w", len(ask.Files), err)
	}
	return out, nil
}

func (s *changes) createMembers(tx *gorm.DB, archive *documentRow, task *taskRow, ask taskstore.NewMembers) ([]taskstore.MemberOutcome, error) {
	ids := sortedUnique(mapped(ask.Files, func(n taskstore.NewDocument) string { return n.Document.ID }))
	if len(ids) != len(ask.Files) {
		return nil, fmt.Errorf("%w: a file of the archive is given twice", sheaf.ErrInvalid)
	}
	rows, err := byIDs[documentRow](tx, ids, "SELECT * FROM documents WHERE id IN ? ORDER BY id"+s.d.lock)
	if err != nil {
		return nil, err
	}
	there := make(map[string]*documentRow, len(rows))
	for i := range rows {
		there[rows[i].ID] = &rows[i]
	}
	had, err := byIDs[string](tx, ids, "SELECT doc_id FROM generations WHERE doc_id IN ? AND job_id=?", task.JobID)
	if err != nil {
		return nil, err
	}
	begun := setOf(had)
	quota, err := s.allowance(tx, archive.TenantID)
	if err != nil {
		return nil, err
	}
	root := cmp.Or(archive.RootID, archive.ID)
	tree, err := s.treeAllowance(tx, root, ask)
	if err != nil {
		return nil, err
	}
	twins, err := s.twins(tx, archive, ask.Files)
	if err != nil {
		return nil, err
	}

	out := make([]taskstore.MemberOutcome, len(ask.Files))
	var fresh [][]any
	var starts, again []documentRow
	var plans []sheaf.NewTask
	now := raw(s.now())
	for i, n := range ask.Files {
		d, o := n.Document, there[n.Document.ID]
		r := documentRow{ID: d.ID, TenantID: archive.TenantID, DatasetID: archive.DatasetID, JobID: task.JobID, Gen: 1, Lane: archive.Lane, ParseConfig: s.vault.hide(archive.TenantID, encode(d.ParseConfig))}
		switch {
		case o != nil && (o.DeletedAt != 0 || o.ParentID != archive.ID):
			out[i].Failure = sheaf.Fail(sheaf.CategoryCanceled, "deleted", "its document was deleted; parse the archive again to have it back")
			continue
		case o != nil:
			if err := tx.Exec("UPDATE documents SET parent_gen=? WHERE id=? AND parent_gen<?", archive.Gen, o.ID, archive.Gen).Error; err != nil {
				return nil, err
			}
			if out[i].Stored = o.BlobKey == d.BlobKey; begun[o.ID] || ask.Keep {
				continue
			}
			r.Gen = o.Gen + 1
		}
		more := sheaf.Quota{QueuedTasks: 1}
		if o == nil {
			more.Documents, more.Bytes = 1, d.Size
		} else if o.SHA256 != d.SHA256 {
			more.Bytes = d.Size - o.Size
		}
		if full, err := refused(quota.take(more)); full != nil || err != nil {
			if err != nil {
				return nil, err
			}
			out[i].Wait = quota.limit.QueuedTasks > 0 && quota.held.QueuedTasks >= quota.limit.QueuedTasks
			if out[i].Failure = full; out[i].Wait {
				out[i].Failure = nil
			}
			continue
		}
		if o == nil {
			if tree.take(sheaf.Quota{Documents: 1, Bytes: d.Size}) != nil {
				out[i].Failure = sheaf.Fail(sheaf.CategoryCapacity, "archive_limit",
					"an archive, with those inside it, may yield %d documents and %d MB, and that is reached; split it or upload the file by itself", ask.MaxDocuments, ask.MaxBytes>>20)
				continue
			}
			fresh = append(fresh, []any{r.ID, r.TenantID, r.DatasetID, d.Name, d.MediaType, d.Size, d.SHA256, d.BlobKey, string(sheaf.DocQueued), r.Gen,
				r.ParseConfig, encodeMap(d.Metadata), twins[d.SHA256], r.JobID, r.Lane, now, now, archive.ID, root, archive.Gen, archive.Depth + 1, d.Path})
			if twins[d.SHA256] == "" {
				twins[d.SHA256] = d.ID
			}
			out[i].Stored = true
		} else {
			again = append(again, *o)
			if out[i].Stored, err = s.renewMember(tx, o, r, d); err != nil {
				return nil, err
			}
		}
		starts, plans = append(starts, r), append(plans, n.Plan)
	}
	if err := s.supersede(tx, again); err != nil {
		return nil, err
	}
	if err := insertRows(tx, "documents", []string{"id", "tenant_id", "dataset_id", "name", "media_type", "size", "sha256", "blob_key", "state", "gen",
		"parse_config", "metadata", "duplicate_of", "job_id", "lane", "created_at", "updated_at", "parent_id", "root_id", "parent_gen", "depth", "member_path"}, fresh, ""); err != nil {
		return nil, err
	}
	return out, s.begin(tx, starts, plans, task.Trace, time.Time{})
}

// renewMember gives a document of the archive a new generation, with new bytes if
// they differ, and reports whether the bytes of d are now its bytes.
func (s *changes) renewMember(tx *gorm.DB, o *documentRow, r documentRow, d sheaf.Document) (stored bool, err error) {
	if o.SHA256 != d.SHA256 {
		if o.BlobKey == d.BlobKey {
			return false, fmt.Errorf("%w: document %s got other bytes while its archive was being read; try again", sheaf.ErrUnavailable, o.ID)
		}
		d.DuplicateOf = ""
		return true, s.replaceBytes(tx, o, r, d, encode(d.Metadata))
	}
	err = run(tx, stmt(s.sql(`UPDATE documents SET gen=?, state='queued', progress=0, ledger='{}', failure='', warnings='[]', parse_config=?, job_id=?,
		updated_at=@now, started_at=0, finished_at=0 WHERE id=? AND gen=?`), r.Gen, r.ParseConfig, r.JobID, o.ID, o.Gen))
	return o.BlobKey == d.BlobKey, err
}

// treeAllowance is what an outermost archive may still yield. Nested archives read
// concurrently may each see the same last slot: the limit is against bombs, and
// holds up to one call of each.
func (s *changes) treeAllowance(tx *gorm.DB, root string, ask taskstore.NewMembers) (*allowance, error) {
	held, err := one[sheaf.Quota](tx, "document", root, "SELECT COUNT(*) AS documents, COALESCE(SUM(size), 0) AS bytes FROM documents WHERE root_id=? AND deleted_at=0", root)
	return &allowance{held: value(held), limit: sheaf.Quota{Documents: ask.MaxDocuments, Bytes: ask.MaxBytes}}, err
}

// twins finds, by SHA-256, the oldest document of the dataset with the same bytes.
func (s *changes) twins(tx *gorm.DB, archive *documentRow, files []taskstore.NewDocument) (map[string]string, error) {
	sums := mapped(files, func(x taskstore.NewDocument) string { return x.Document.SHA256 })
	rows, err := byIDs[documentRow](tx, sortedUnique(sums), "SELECT sha256, MIN(id) AS id FROM documents WHERE sha256 IN ? AND tenant_id=? AND dataset_id=? AND deleted_at=0 GROUP BY sha256",
		archive.TenantID, archive.DatasetID)
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r.SHA256] = r.ID
	}
	return out, err
}
