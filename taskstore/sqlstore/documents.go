package sqlstore

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
	"modernc.org/sqlite"

	"sheaf"
	"sheaf/taskstore"
)

// SQLite's own lower() handles only ASCII.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("sheaf_lower", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		if text, ok := args[0].(string); ok {
			return strings.ToLower(text), nil
		}
		return args[0], nil
	})
}

// lower returns a column in lower case for all scripts. PostgreSQL takes case rules
// from the collation, which for the column itself is bytewise.
func (d *dialect) lower(column string) string {
	switch d.name {
	case "sqlite":
		return "sheaf_lower(" + column + ")"
	case "postgres":
		return "LOWER(" + column + ` COLLATE "und-x-icu")`
	}
	return "LOWER(" + column + ")"
}

// contains is the condition that a column contains the text, case-insensitively.
func (d *dialect) contains(column, text string) (cond, arg string) {
	return d.lower(column) + " LIKE ? ESCAPE '!'", "%" + escapeLike.Replace(strings.ToLower(text)) + "%"
}

// named selects rows whose name contains the text, and reports whether none can.
func (d *dialect) named(w *where, text string) (nothing bool) {
	if text == "" {
		return false
	}
	// PostgreSQL would reject what no name can contain.
	if checkText("the query", text, 4096) != nil {
		return true
	}
	cond, arg := d.contains("name", text)
	w.add(cond, arg)
	return false
}

// escapeLike makes text match literally in LIKE … ESCAPE '!'.
var escapeLike = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Document returns a document of the tenant.
func (s *documents) Document(ctx context.Context, tenantID, id string) (*sheaf.Document, error) {
	d, err := get(s.read(ctx), "document", id, s.toDocument, "id=? AND tenant_id=? AND deleted_at=0", id, tenantID)
	if err != nil {
		return nil, err
	}
	docs := []sheaf.Document{*d}
	err = addNotBefore(s.read(ctx), docs)
	return &docs[0], err
}

func (s *documents) document(ctx context.Context, tenantID, id string) (*documentRow, error) {
	return one[documentRow](s.read(ctx), "document", id, "SELECT * FROM documents WHERE id=? AND tenant_id=? AND deleted_at=0", id, tenantID)
}

// ChangeDocument renames a document, unless name is "", and merges attributes into
// its own. Concurrent changes are all applied.
func (s *documents) ChangeDocument(ctx context.Context, tenantID, id, name string, attributes sheaf.Attributes) (*sheaf.Document, error) {
	if err := checkText("the document's name", name, 4*sheaf.MaxNameRunes); err != nil {
		return nil, err
	}
	err := s.tx(ctx, func(tx *gorm.DB) error {
		now, err := one[documentRow](tx, "document", id, "SELECT "+workColumns()+" FROM documents WHERE id=? AND tenant_id=? AND deleted_at=0"+s.d.lock, id, tenantID)
		if err != nil {
			return err
		}
		text, err := s.toDocument(*now).Attributes.Change(attributes).Encode("a document", sheaf.MaxDocumentAttributes)
		if err != nil {
			return err
		}
		return run(tx, stmt(s.sql("UPDATE documents SET name=?, attributes=?, updated_at=@now WHERE id=?"), cmp.Or(name, now.Name), text, id))
	})
	if err != nil {
		return nil, err
	}
	return s.Document(ctx, tenantID, id)
}

// maxFilterIDs bounds the ids in one filter, because engines bound the parameters of
// a statement.
const maxFilterIDs = 10_000

// Documents lists documents.
func (s *documents) Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error) {
	if len(f.IDs) > maxFilterIDs {
		return nil, "", tooManyIDs(len(f.IDs))
	}
	w, nothing := s.selects(tenantID, f)
	if nothing {
		return nil, "", nil
	}
	docs, next, err := page(s.read(ctx), "SELECT "+documentColumns("")+" FROM documents", w, "id", p, documentRow.id, s.toDocument)
	if err != nil {
		return nil, "", err
	}
	return docs, next, addNotBefore(s.read(ctx), docs)
}

func tooManyIDs(n int) error {
	return fmt.Errorf("%w: a filter lists at most %d ids, this one %d; split it", sheaf.ErrInvalid, maxFilterIDs, n)
}

// selects returns the condition of a filter on the tenant's documents; nothing
// reports that no document can match.
func (s *documents) selects(tenantID string, f taskstore.DocumentFilter) (w where, nothing bool) {
	w.add("tenant_id=?", tenantID)
	w.when(f.DatasetID != "", "dataset_id=?", f.DatasetID)
	w.add("deleted_at=0")
	w.when(len(f.IDs) > 0, "id IN ?", f.IDs)
	w.when(len(f.States) > 0, "state IN ?", texts(f.States))
	w.when(len(f.MediaTypes) > 0, "media_type IN ?", f.MediaTypes)
	if s.d.named(&w, f.Query) {
		return w, true
	}
	w.when(f.SHA256 != "", "sha256=?", f.SHA256)
	w.when(f.ParentID != "", "parent_id=?", f.ParentID)
	w.when(!f.CreatedAfter.IsZero(), "created_at>?", toMillis(f.CreatedAfter))
	w.when(!f.CreatedBefore.IsZero(), "created_at<?", toMillis(f.CreatedBefore))
	for _, c := range []struct {
		value string
		any   []string
	}{{s.d.issueOf(), f.Issues}, {"job_id", f.JobIDs}, {s.d.languageOf(), f.Languages}, {s.d.tagOf(), f.Tags}} {
		for _, v := range c.any {
			if checkText("a value", v, 4096) != nil {
				return w, true
			}
		}
		w.when(len(c.any) > 0, c.value+" IN ?", c.any)
	}
	if len(f.Warnings) > 0 {
		var of []string
		var args []any
		for _, code := range f.Warnings {
			if checkText("a code", code, 4096) != nil {
				return w, true
			}
			of, args = append(of, "warnings LIKE ? ESCAPE '!'"), append(args, "%"+escapeLike.Replace(`"code":`+encode(code))+"%")
		}
		w.add("("+strings.Join(of, " OR ")+")", args...)
	}
	return w, f.None
}

// documentColumns lists the columns for lists. The column outline, in which earlier
// versions kept the headings of a document, is not read anymore.
func documentColumns(prefix string) string {
	columns := []string{"id", "tenant_id", "dataset_id", "name", "media_type", "size", "sha256", "blob_key", "state", "progress", "units", "unit", "gen",
		"live_gen", "fin_epoch", "chunk_count", "token_count", "ledger", "failure", "warnings", "parser", "parse_config", "metadata", "attributes", "duplicate_of", "parent_id", "member_path", "depth",
		"job_id", "lane", "created_at", "updated_at", "started_at", "finished_at"}
	return prefix + strings.Join(columns, ", "+prefix)
}

// workColumns lists all columns of a document.
func workColumns() string { return documentColumns("") + ", root_id, parent_gen, deleted_at" }

func texts[T ~string](list []T) []string {
	return mapped(list, func(v T) string { return string(v) })
}

// Generations lists the generations of a document, newest first.
func (s *documents) Generations(ctx context.Context, tenantID, documentID string) ([]sheaf.Generation, error) {
	d, err := s.document(ctx, tenantID, documentID)
	if err != nil {
		return nil, err
	}
	rows, err := all[generationRow](s.read(ctx), "SELECT * FROM generations WHERE doc_id=? AND tenant_id=? ORDER BY gen DESC LIMIT 1000", documentID, tenantID)
	return mapped(rows, func(r generationRow) sheaf.Generation {
		if r.Gen == d.Gen { // the document's row is updated first
			r.State = d.State
		}
		return r.toDomain(s.vault)
	}), err
}

// NewestGenerations returns the newest generation of each document, by its id;
// documents that do not exist or have none are omitted. ErrInvalid above 10,000 ids.
func (s *documents) NewestGenerations(ctx context.Context, tenantID string, documentIDs []string) (map[string]sheaf.Generation, error) {
	if len(documentIDs) > maxFilterIDs {
		return nil, tooManyIDs(len(documentIDs))
	}
	if len(documentIDs) == 0 {
		return nil, nil
	}
	rows, err := all[generationRow](s.read(ctx), "SELECT g.* FROM generations g JOIN documents d ON d.id=g.doc_id AND d.gen=g.gen WHERE g.doc_id IN ? AND g.tenant_id=? AND d.tenant_id=? AND d.deleted_at=0", documentIDs, tenantID, tenantID)
	out := make(map[string]sheaf.Generation, len(rows))
	for _, r := range rows {
		out[r.DocID] = r.toDomain(s.vault)
	}
	return out, err
}

// Tasks lists the tasks of a document's generation (0: the newest), ordered by
// range.
func (s *documents) Tasks(ctx context.Context, tenantID, documentID string, generation int) ([]sheaf.Task, error) {
	rows, err := s.generationTasks(ctx, tenantID, documentID, generation)
	return s.toTasks(rows), err
}

func (s *documents) generationTasks(ctx context.Context, tenantID, documentID string, generation int) ([]taskRow, error) {
	d, err := s.document(ctx, tenantID, documentID)
	if err != nil {
		return nil, err
	}
	if generation <= 0 {
		generation = d.Gen
	}
	if generation > d.Gen {
		return nil, notFound("generation", fmt.Sprintf("%d of document %s", generation, documentID))
	}
	return all[taskRow](s.read(ctx), "SELECT * FROM tasks WHERE doc_id=? AND gen=? AND tenant_id=? ORDER BY from_unit, to_unit, id", documentID, generation, tenantID)
}

// UnitLedger returns the verdict on every unit of a generation; where ranges
// overlap, the best verdict counts. Units whose task has not finished are omitted.
func (s *documents) UnitLedger(ctx context.Context, tenantID, documentID string, generation int) (sheaf.Ledger, error) {
	rows, err := s.generationTasks(ctx, tenantID, documentID, generation)
	if err != nil {
		return nil, err
	}
	return sheaf.MergeLedgers(mapped(rows, verdicts)...), nil
}

// verdicts returns a task's verdicts on the units of its range.
func verdicts(r taskRow) sheaf.Ledger {
	switch {
	case r.State == string(sheaf.TaskDone):
		var result sheaf.TaskResult
		decode(r.Result, &result)
		return result.Ledger
	case r.hasRange() && r.FromUnit > 0 && (r.State == string(sheaf.TaskDead) || r.State == string(sheaf.TaskCanceled)):
		run := sheaf.LedgerRun{From: r.FromUnit, To: r.ToUnit, Status: sheaf.UnitFailed, Code: r.State}
		if f := decodeFailure(r.Failure); f != nil && r.State == string(sheaf.TaskDead) {
			run.Code, run.Message = f.Code, f.Message
		} else if r.State == string(sheaf.TaskCanceled) {
			run.Message = "Reading was canceled; re-parse the document to read these units."
		}
		return sheaf.Ledger{run}
	}
	return nil
}

// Visible returns the given range ids that a live generation lists. It is the
// authoritative filter of every search. Up to 500 ids are one statement, so that an
// edited chunk and the one it replaces are never both visible.
func (s *documents) Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]taskstore.VisibleRange, error) {
	ids := slices.DeleteFunc(sortedUnique(rangeIDs), func(id string) bool { return id == "" })
	visible := make(map[string]taskstore.VisibleRange, len(ids))
	const listed = `SELECT t.range_id, d.id AS doc_id, d.dataset_id, d.name, d.media_type, t.gen, COALESCE(e.chunk_id, '') AS chunk_id, '' AS base_range, '' AS edit_id
		FROM tasks t JOIN documents d ON d.id=t.doc_id LEFT JOIN chunk_edits e ON e.base_range=t.range_id AND e.hides=1 AND e.doc_id=t.doc_id AND e.gen=t.gen
		WHERE t.range_id IN ? AND t.state='done' AND t.tenant_id=? AND d.tenant_id=? AND t.gen=d.live_gen AND d.deleted_at=0`
	const edited = ` UNION ALL SELECT e.range_id, d.id, d.dataset_id, d.name, d.media_type, e.gen, CASE WHEN e.added=1 THEN '' ELSE e.chunk_id END, e.base_range, e.id
		FROM chunk_edits e JOIN documents d ON d.id=e.doc_id
		WHERE e.range_id IN ? AND e.tenant_id=? AND d.tenant_id=? AND e.gen=d.live_gen AND d.deleted_at=0`
	const ofRuns = ` UNION ALL SELECT r.range_id, d.id, d.dataset_id, d.name, d.media_type, d.live_gen, '', '', ''
		FROM run_results r JOIN documents d ON d.id=r.doc_id WHERE r.range_id IN ? AND r.tenant_id=? AND d.tenant_id=?` + visibleRun
	for batch := range chunks(ids) {
		q, args := listed, []any{batch, tenantID, tenantID}
		if some := slices.DeleteFunc(slices.Clone(batch), func(id string) bool { return !strings.HasPrefix(id, sheaf.RunRangePrefix) }); len(some) > 0 {
			q, args = q+ofRuns, append(args, some, tenantID, tenantID)
		}
		if some := slices.DeleteFunc(slices.Clone(batch), func(id string) bool { return !editedRange(id) }); len(some) > 0 {
			q, args = q+edited, append(args, some, tenantID, tenantID)
		}
		rows, err := all[struct {
			RangeID, DocID, DatasetID, Name, MediaType, ChunkID, BaseRange, EditID string
			Gen                                                                    int
		}](s.read(ctx), q, args...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			v, seen := visible[r.RangeID]
			if !seen {
				v = taskstore.VisibleRange{DocumentID: r.DocID, DatasetID: r.DatasetID, Name: r.Name, MediaType: r.MediaType, Generation: r.Gen}
			}
			switch {
			case r.EditID != "":
				v.Edited = &taskstore.EditedChunk{ChunkID: cmp.Or(r.ChunkID, r.EditID), RangeID: r.BaseRange}
			case r.ChunkID != "":
				if v.Hidden == nil {
					v.Hidden = map[string]bool{}
				}
				v.Hidden[r.ChunkID] = true
			}
			visible[r.RangeID] = v
		}
	}
	return visible, nil
}

// Task returns a task of the tenant.
func (s *documents) Task(ctx context.Context, tenantID, id string) (*sheaf.Task, error) {
	return get(s.read(ctx), "task", id, s.toTask, "id=? AND tenant_id=? AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.id=tasks.doc_id AND d.deleted_at<>0)", id, tenantID)
}

// Members lists the documents that are files of an archive.
func (s *documents) Members(ctx context.Context, archiveID string) ([]sheaf.Document, error) {
	rows, err := all[documentRow](s.write(ctx), "SELECT "+documentColumns("")+" FROM documents WHERE parent_id=? AND deleted_at=0 ORDER BY id", archiveID)
	return s.toDocuments(rows), err
}

// GenerationTasks lists the tasks of a generation ordered by range.
func (s *documents) GenerationTasks(ctx context.Context, documentID string, generation int) ([]sheaf.Task, error) {
	rows, err := all[taskRow](s.read(ctx), "SELECT * FROM tasks WHERE doc_id=? AND gen=? ORDER BY from_unit, to_unit, id", documentID, generation)
	return s.toTasks(rows), err
}

// FinishedRanges lists what the done tasks of a generation cover, ordered by range:
// GenerationTasks without payloads and results, which take ten times as long to
// read.
func (s *documents) FinishedRanges(ctx context.Context, documentID string, generation int) ([]taskstore.FinishedRange, error) {
	rows, err := all[taskRow](s.read(ctx), `SELECT unit, from_unit, to_unit, artifact_key FROM tasks
		WHERE doc_id=? AND gen=? AND state='done' AND kind IN ('parse','index') ORDER BY from_unit, to_unit, id`, documentID, generation)
	return mapped(rows, func(r taskRow) taskstore.FinishedRange {
		return taskstore.FinishedRange{Unit: sheaf.Unit(r.Unit), Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit}, ArtifactKey: r.ArtifactKey}
	}), err
}

// RangeOutlines lists the headings reported by the done tasks of a generation,
// ordered by range; tasks that report none are omitted.
func (s *documents) RangeOutlines(ctx context.Context, documentID string, generation int) ([]taskstore.RangeOutline, error) {
	rows, err := all[taskRow](s.read(ctx), `SELECT from_unit, to_unit, result FROM tasks
		WHERE doc_id=? AND gen=? AND state='done' AND kind IN ('parse','index') ORDER BY from_unit, to_unit, id`, documentID, generation)
	var out []taskstore.RangeOutline
	for _, r := range rows {
		var result struct {
			Outline *sheaf.RangeOutline `json:"outline"`
		}
		if decode(r.Result, &result); result.Outline != nil {
			out = append(out, taskstore.RangeOutline{Range: sheaf.Range{From: r.FromUnit, To: r.ToUnit}, Headings: result.Outline.Headings})
		}
	}
	return out, err
}

// DocumentByID returns a document of any tenant; ErrNotFound when it is deleted. For
// executors, which act for all tenants.
func (s *documents) DocumentByID(ctx context.Context, documentID string) (*sheaf.Document, error) {
	return get(s.read(ctx).Select(workColumns()), "document", documentID, s.toDocument, "id=? AND deleted_at=0", documentID)
}

// DeletedDocuments returns the ids that are deleted or do not exist, for any tenant.
func (s *documents) DeletedDocuments(ctx context.Context, ids []string) ([]string, error) {
	there, err := byIDs[string](s.read(ctx), ids, "SELECT id FROM documents WHERE id IN ? AND deleted_at=0")
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, id := range there {
		live[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return live[id] }), nil
}

// reusableColumns are what a ReusableRange is made of.
const reusableColumns = "SELECT id, doc_id, kind, unit, from_unit, to_unit, reuse_key, range_id, artifact_key, result FROM tasks "

func (s *documents) toReusable(r taskRow) taskstore.ReusableRange {
	t := r.toDomain(s.vault)
	return taskstore.ReusableRange{DocumentID: t.DocumentID, TaskID: t.ID, Kind: t.Kind, Unit: t.Unit, Range: t.Range, ReuseKey: r.ReuseKey, Result: t.Result}
}

// LiveRanges lists the stored range results of the document's live generation, oldest
// task first; none if it has no live generation or is deleted.
func (s *documents) LiveRanges(ctx context.Context, tenantID, documentID string) ([]taskstore.ReusableRange, error) {
	rows, err := all[taskRow](s.read(ctx), reusableColumns+`WHERE doc_id=? AND gen=(SELECT live_gen FROM documents WHERE id=? AND deleted_at=0)
		AND state='done' AND tenant_id=? AND range_id<>'' ORDER BY id`, documentID, documentID, tenantID)
	return mapped(rows, s.toReusable), err
}

// ReusableRanges finds done range results of the tenant by reuse key, at most one
// per key: preferably one of document prefer, and none that a node produced from
// incomplete inputs. Ranges handed to the garbage have lost their reuse key. All kept
// versions with a key are read to find the newest; those of the live one are in
// LiveRanges.
func (s *documents) ReusableRanges(ctx context.Context, tenantID, prefer string, keys []string) (map[string]taskstore.ReusableRange, error) {
	found := make(map[string]taskstore.ReusableRange)
	keys = slices.DeleteFunc(sortedUnique(keys), func(k string) bool { return k == "" })
	for batch := range chunks(keys) {
		best, err := all[struct{ Own, Newest string }](s.read(ctx), `SELECT COALESCE(MAX(CASE WHEN t.doc_id=? THEN t.id END), '') AS own, MAX(t.id) AS newest
			FROM tasks t JOIN documents d ON d.id=t.doc_id
			WHERE t.tenant_id=? AND t.reuse_key IN ? AND t.state='done' AND t.range_id<>'' AND d.deleted_at=0 AND t.result NOT LIKE '%"incomplete":true%'
			GROUP BY t.reuse_key`, prefer, tenantID, padded(batch))
		if err != nil {
			return nil, err
		}
		ids := mapped(best, func(b struct{ Own, Newest string }) string { return cmp.Or(b.Own, b.Newest) })
		rows, err := byIDs[taskRow](s.read(ctx), ids, reusableColumns+"WHERE id IN ? AND range_id<>''")
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.ReuseKey] = s.toReusable(r)
		}
	}
	return found, nil
}

// Twins finds, by SHA-256, documents of the dataset with those bytes: the oldest and
// the newest.
func (s *documents) Twins(ctx context.Context, tenantID, datasetID string, sums []string) (map[string][2]string, error) {
	rows, err := byIDs[struct{ SHA256, Oldest, Newest string }](s.read(ctx), sortedUnique(sums), `SELECT sha256 AS sha256, MIN(id) AS oldest, MAX(id) AS newest FROM documents
		WHERE sha256 IN ? AND tenant_id=? AND dataset_id=? AND deleted_at=0 GROUP BY sha256`, tenantID, datasetID)
	out := make(map[string][2]string, len(rows))
	for _, r := range rows {
		out[r.SHA256] = [2]string{r.Oldest, r.Newest}
	}
	return out, err
}
