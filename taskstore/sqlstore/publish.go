package sqlstore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// publish ends a generation with a single guarded update of the document: searches
// see all of the new generation from its commit on, and none of it before. The guard
// holds only for the finalize task of the latest decision that the generation is
// complete.
func (s *tasks) publish(tx *gorm.DB, t *taskRow, doc *documentRow, p taskstore.Publication) error {
	planned := t.Kind == string(sheaf.KindPlan)
	var payload taskstore.FinalizePayload
	if planned {
		payload.FinalizeEpoch = doc.FinEpoch
	} else if err := json.Unmarshal([]byte(t.Payload), &payload); err != nil {
		return fmt.Errorf("%w: payload of finalize task %s: %v", sheaf.ErrInvalid, t.ID, err)
	}
	live := p.State == sheaf.DocSucceeded || p.State == sheaf.DocPartiallySucceeded
	if !live && p.State != sheaf.DocFailed {
		return fmt.Errorf("%w: a generation can not be published as %q", sheaf.ErrInvalid, p.State)
	}
	if unchanged, err := s.placeEdits(tx, t, p); err != nil {
		return err
	} else if !unchanged && planned {
		return fmt.Errorf("%w: document %s was edited", sheaf.ErrStale, t.DocID)
	} else if !unchanged {
		return s.reopen(tx, t, doc, payload.FinalizeEpoch)
	}
	set := "state=?, progress=1, ledger=?, warnings=?, failure=?, finished_at=@now, updated_at=@now"
	args := []any{string(p.State), encode(p.Ledger), encodeList(p.Warnings), encodeFailure(p.Failure)}
	if live { // a failed generation leaves the live one, and its counts, as they are
		set += ", live_gen=gen, chunk_count=?, token_count=?"
		args = append(args, p.Chunks, p.Tokens)
	}
	if live {
		if metadata, changed := foundMetadata(doc, p.Metadata); changed {
			set += ", metadata=?"
			args = append(args, metadata)
		}
	}
	decided := "state='finalizing'"
	if planned { // this decides as well
		set += ", fin_epoch=fin_epoch+1"
		decided = isComplete
	}
	// guard: finalize guard: only the latest decision publishes
	n, err := exec(tx, s.sql("UPDATE documents SET "+set+" WHERE id=? AND gen=? AND "+decided+" AND fin_epoch=? AND deleted_at=0"),
		append(args, t.DocID, t.Gen, payload.FinalizeEpoch)...)
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%w: generation %d of document %s is not waiting for finalize %d", sheaf.ErrStale, t.Gen, t.DocID, payload.FinalizeEpoch)
	}
	if err := run(tx, stmt(s.sql("UPDATE generations SET state=?, ledger=?, failure=?, chunk_count=?, token_count=?, finished_at=@now, published_at=CASE WHEN ?=1 THEN @now ELSE 0 END WHERE doc_id=? AND gen=?"),
		string(p.State), encode(p.Ledger), encodeFailure(p.Failure), p.Chunks, p.Tokens, flag(live), t.DocID, t.Gen)); err != nil {
		return err
	}
	// Generations between the live one and this one were superseded: once this one is
	// decided, nothing can use their ranges anymore.
	keep := []int{t.Gen}
	if !live {
		keep = append(keep, doc.LiveGen)
	}
	if t.Gen > 1 {
		if err := s.dropRanges(tx, s.keepVersions, doc, t.Gen, keep...); err != nil {
			return err
		}
	}
	if live {
		if len(p.Edits) > 0 || p.EditsVersion > 0 { // results of nodes ignore edits
			if err := s.dropResults(tx, "", []string{t.DocID}); err != nil {
				return err
			}
		}
		if err := s.dropFormerMembers(tx, doc); err != nil {
			return err
		}
	}
	doc.State = string(p.State)
	return s.insertDocumentEvent(tx, doc, sheaf.DocumentChange{State: p.State, Progress: 1, Failure: p.Failure})
}

// foundMetadata returns the document's metadata in which the nodes' new findings
// replace their earlier ones.
func foundMetadata(doc *documentRow, found map[string]string) (metadata string, changed bool) {
	var m map[string]string
	decode(doc.Metadata, &m)
	before := maps.Clone(m)
	for _, name := range strings.Fields(m[sheaf.MetadataAdded]) {
		delete(m, name)
	}
	delete(m, sheaf.MetadataAdded)
	var added []string
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, said := m[name]; said || found[name] == "" {
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[name], added = found[name], append(added, name)
	}
	if len(added) > 0 {
		m[sheaf.MetadataAdded] = strings.Join(added, " ")
	}
	return encodeMap(m), !maps.Equal(before, m)
}

// stitch replaces range results of a complete generation and reopens it, so that it
// is finalized again when the replacing tasks, and those over the whole document,
// have ended. The guard is that of publish: the latest decision that the generation
// is complete.
func (s *tasks) stitch(tx *gorm.DB, t *taskRow, doc *documentRow, stitches []taskstore.Stitch, last []sheaf.NewTask) error {
	var payload taskstore.FinalizePayload
	if err := json.Unmarshal([]byte(t.Payload), &payload); err != nil {
		return fmt.Errorf("%w: payload of finalize task %s: %v", sheaf.ErrInvalid, t.ID, err)
	}
	if err := waits(t, doc, payload.FinalizeEpoch); err != nil {
		return err
	}
	ids, again, garbage := make([]string, len(stitches)), make([]sheaf.NewTask, len(stitches)), make([][]any, len(stitches))
	due := s.after(s.grace)
	for i, st := range stitches {
		ids[i], again[i] = st.TaskID, st.Task
		garbage[i] = []any{t.TenantID, t.DocID, st.RangeID, sheaf.ArtifactKey(t.TenantID, t.DocID, st.RangeID), due}
	}
	for ids := range chunks(ids) {
		res := tx.Exec(`UPDATE tasks SET state='superseded', range_id='', artifact_key='', reuse_key='', cost=0
			WHERE id IN ? AND doc_id=? AND gen=? AND state='done' AND range_id<>''`, ids, t.DocID, t.Gen)
		if res.Error != nil {
			return res.Error
		}
		if int(res.RowsAffected) != len(ids) {
			return fmt.Errorf("%w: %d of %d range results of document %s can be replaced", sheaf.ErrStale, res.RowsAffected, len(ids), t.DocID)
		}
	}
	// The collector waits while another generation lists one of them.
	if err := insertRows(tx, "garbage", []string{"tenant_id", "doc_id", "range_id", "artifact_key", "not_before"}, garbage, ""); err != nil {
		return err
	}
	if err := s.insertTasks(tx, t.base(), append(again, last...)); err != nil {
		return err
	}
	return s.moveDocument(tx, doc, sheaf.DocRunning, doc.Progress, nil)
}

// reopen has a complete generation finalized again.
func (s *tasks) reopen(tx *gorm.DB, t *taskRow, doc *documentRow, epoch int64) error {
	if err := waits(t, doc, epoch); err != nil {
		return err
	}
	return s.moveDocument(tx, doc, sheaf.DocRunning, doc.Progress, nil)
}

// waits fails with ErrStale unless the generation waits for that finalize task.
func waits(t *taskRow, doc *documentRow, epoch int64) error {
	if doc == nil || doc.DeletedAt != 0 || doc.Gen != t.Gen || doc.State != string(sheaf.DocFinalizing) || doc.FinEpoch != epoch {
		return fmt.Errorf("%w: generation %d of document %s is not waiting for finalize %d", sheaf.ErrStale, t.Gen, t.DocID, epoch)
	}
	return nil
}
