package sqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"sheaf"
	"sheaf/taskstore"
)

// SQLite's own lower() knows ASCII alone.
func init() {
	sqlite.MustRegisterDeterministicScalarFunction("sheaf_lower", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		if text, ok := args[0].(string); ok {
			return strings.ToLower(text), nil
		}
		return args[0], nil
	})
}

// lowerName is the lower-case name of a document in all scripts. PostgreSQL
// takes the case from the collation, which for the column itself is that of
// bytes.
var lowerName = map[string]string{
	"sqlite":   "sheaf_lower(name)",
	"mysql":    "LOWER(name)",
	"postgres": `LOWER(name COLLATE "und-x-icu")`,
}

// escapeLike makes text match itself in LIKE … ESCAPE '!'.
var escapeLike = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Document finds a document of the tenant.
func (s *Store) Document(ctx context.Context, tenantID, id string) (*sheaf.Document, error) {
	row, err := s.document(ctx, tenantID, id)
	if err != nil {
		return nil, err
	}
	d := row.toDomain(s.vault)
	return &d, nil
}

func (s *Store) document(ctx context.Context, tenantID, id string) (*documentRow, error) {
	var rows []documentRow
	if err := s.read(ctx).Raw("SELECT * FROM documents WHERE id=? AND tenant_id=? AND deleted_at=0", id, tenantID).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	if len(rows) == 0 {
		return nil, notFound("document", id)
	}
	return &rows[0], nil
}

// maxFilterIDs bounds the ids that one filter lists: engines bound the
// parameters of a statement.
const maxFilterIDs = 10_000

// Documents lists documents; outlines are left out.
func (s *Store) Documents(ctx context.Context, tenantID string, f taskstore.DocumentFilter, p taskstore.Page) ([]sheaf.Document, string, error) {
	if len(f.IDs) > maxFilterIDs {
		return nil, "", fmt.Errorf("%w: a filter lists at most %d ids, this one %d; split it", sheaf.ErrInvalid, maxFilterIDs, len(f.IDs))
	}
	if f.None {
		return nil, "", nil
	}
	var w where
	w.add("tenant_id=?", tenantID)
	if f.DatasetID != "" {
		w.add("dataset_id=?", f.DatasetID)
	}
	w.add("deleted_at=0")
	if len(f.IDs) > 0 {
		w.add("id IN ?", f.IDs)
	}
	if len(f.States) > 0 {
		w.add("state IN ?", texts(f.States))
	}
	if len(f.MediaTypes) > 0 {
		w.add("media_type IN ?", f.MediaTypes)
	}
	if f.Query != "" {
		// What no name can hold matches nothing; PostgreSQL would refuse it.
		if checkText("the query", f.Query, 4096) != nil {
			return nil, "", nil
		}
		w.add(lowerName[s.d.name]+" LIKE ? ESCAPE '!'", "%"+escapeLike.Replace(strings.ToLower(f.Query))+"%")
	}
	if f.SHA256 != "" {
		w.add("sha256=?", f.SHA256)
	}
	if f.ParentID != "" {
		w.add("parent_id=?", f.ParentID)
	}
	if !f.CreatedAfter.IsZero() {
		w.add("created_at>?", toMillis(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		w.add("created_at<?", toMillis(f.CreatedBefore))
	}
	suffix, limit := w.page("id", p)
	var rows []documentRow
	if err := s.read(ctx).Raw("SELECT "+documentColumns("")+" FROM documents"+w.String()+suffix, w.args...).Scan(&rows).Error; err != nil {
		return nil, "", translate(err)
	}
	rows, next := cut(rows, limit, func(r documentRow) string { return r.ID })
	return s.toDocuments(rows), next, nil
}

// documentColumns lists what a list of documents shows, which is all but the
// outline: a thousand of those may be a hundred megabytes.
func documentColumns(prefix string) string {
	columns := []string{"id", "tenant_id", "dataset_id", "name", "media_type", "size", "sha256", "blob_key", "state", "progress", "units", "unit", "gen",
		"live_gen", "fin_epoch", "chunk_count", "token_count", "ledger", "failure", "warnings", "parser", "parse_config", "metadata", "duplicate_of", "parent_id", "member_path", "depth",
		"job_id", "lane", "created_at", "updated_at", "started_at", "finished_at"}
	return prefix + strings.Join(columns, ", "+prefix)
}

// workColumns lists all of a document but its outline, which nobody needs who
// works on it: to read that for each range and each change of a long document
// would be most of what is sent.
func workColumns() string { return documentColumns("") + ", root_id, parent_gen, deleted_at" }

func (s *Store) toDocuments(rows []documentRow) []sheaf.Document {
	out := make([]sheaf.Document, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain(s.vault)
	}
	return out
}

func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

// Generations lists the generations of a document, newest first.
func (s *Store) Generations(ctx context.Context, tenantID, documentID string) ([]sheaf.Generation, error) {
	d, err := s.document(ctx, tenantID, documentID)
	if err != nil {
		return nil, err
	}
	var rows []generationRow
	if err := s.read(ctx).Raw("SELECT * FROM generations WHERE doc_id=? AND tenant_id=? ORDER BY gen DESC LIMIT 1000", documentID, tenantID).Scan(&rows).Error; err != nil {
		return nil, translate(err)
	}
	out := make([]sheaf.Generation, len(rows))
	for i, r := range rows {
		if r.Gen == d.Gen { // the document's row is the one that moves first
			r.State = d.State
		}
		out[i] = r.toDomain(s.vault)
	}
	return out, nil
}

// Tasks lists tasks of a document's generation (0: the newest), ordered by
// range.
func (s *Store) Tasks(ctx context.Context, tenantID, documentID string, generation int) ([]sheaf.Task, error) {
	rows, err := s.generationTasks(ctx, tenantID, documentID, generation)
	return s.toTasks(rows), err
}

func (s *Store) generationTasks(ctx context.Context, tenantID, documentID string, generation int) ([]taskRow, error) {
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
	var rows []taskRow
	err = s.read(ctx).Raw("SELECT * FROM tasks WHERE doc_id=? AND gen=? AND tenant_id=? ORDER BY from_unit, to_unit, id", documentID, generation, tenantID).Scan(&rows).Error
	return rows, translate(err)
}

// UnitLedger is the verdict on every unit of a generation: of overlapping
// ranges the best verdict counts. Units whose task is still to run are left
// out.
func (s *Store) UnitLedger(ctx context.Context, tenantID, documentID string, generation int) (sheaf.Ledger, error) {
	rows, err := s.generationTasks(ctx, tenantID, documentID, generation)
	if err != nil {
		return nil, err
	}
	var ledgers []sheaf.Ledger
	for i := range rows {
		ledgers = append(ledgers, verdicts(&rows[i]))
	}
	return sheaf.MergeLedgers(ledgers...), nil
}

// verdicts is what a task says about the units of its range.
func verdicts(r *taskRow) sheaf.Ledger {
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
			run.Message = "reading was canceled; re-parse the document to read these units"
		}
		return sheaf.Ledger{run}
	}
	return nil
}

// Visible answers, of the given range ids, those that a live generation lists.
// It is the authoritative filter of every search.
func (s *Store) Visible(ctx context.Context, tenantID string, rangeIDs []string) (map[string]taskstore.VisibleRange, error) {
	visible := make(map[string]taskstore.VisibleRange, len(rangeIDs))
	ids := slices.DeleteFunc(sortedUnique(rangeIDs), func(id string) bool { return id == "" })
	for batch := range chunks(ids) {
		var rows []struct {
			RangeID, DocID, DatasetID, Name, MediaType string
			Gen                                        int
		}
		err := s.read(ctx).Raw(`SELECT t.range_id, d.id AS doc_id, d.dataset_id, d.name, d.media_type, t.gen
			FROM tasks t JOIN documents d ON d.id=t.doc_id
			WHERE t.range_id IN ? AND t.state='done' AND t.tenant_id=? AND d.tenant_id=? AND t.gen=d.live_gen AND d.deleted_at=0`,
			batch, tenantID, tenantID).Scan(&rows).Error
		if err != nil {
			return nil, translate(err)
		}
		for _, r := range rows {
			visible[r.RangeID] = taskstore.VisibleRange{DocumentID: r.DocID, DatasetID: r.DatasetID, Name: r.Name, MediaType: r.MediaType, Generation: r.Gen}
		}
	}
	return visible, nil
}

// maxEvents bounds one reading of the log.
const maxEvents = 3000

// Events reads the log after seq, oldest first; limit 0 means 500 and at most
// 3,000 are read. Two transactions may become visible in the other order than
// their sequence numbers, so where the engine lets that happen the reading ends
// before the first event that is younger than the lag: what has a lower number
// is there by then.
func (s *Store) Events(ctx context.Context, tenantID string, f taskstore.EventFilter, after int64, limit int) ([]sheaf.Event, error) {
	if limit <= 0 {
		limit = 500
	}
	var w where
	w.add("e.tenant_id=?", tenantID)
	w.add("e.seq>?", after)
	if f.DatasetID != "" {
		w.add("e.dataset_id=?", f.DatasetID)
	}
	if f.DocumentID != "" {
		w.add("e.doc_id=?", f.DocumentID)
	}
	if f.JobID != "" {
		w.add("e.job_id=?", f.JobID)
	}
	if len(f.Kinds) > 0 {
		w.add("e.kind IN ?", f.Kinds)
	}
	w.add("NOT EXISTS (SELECT 1 FROM documents d WHERE d.id=e.doc_id AND d.deleted_at<>0)")
	return s.events(ctx, w, min(limit, maxEvents))
}

func (s *Store) events(ctx context.Context, w where, limit int) ([]sheaf.Event, error) {
	var rows []struct {
		Event eventRow `gorm:"embedded"` // named: what is embedded unexported cannot be set
		NowMs int64
	}
	err := s.read(ctx).Raw(s.sql("SELECT e.*, @now AS now_ms FROM events e"+w.String()+fmt.Sprintf(" ORDER BY e.seq LIMIT %d", limit)), w.args...).Scan(&rows).Error
	if err != nil {
		return nil, translate(err)
	}
	out := make([]sheaf.Event, 0, len(rows))
	for _, r := range rows {
		// One that is as far ahead was written before the clock went back.
		if lag := s.eventLag.Milliseconds(); lag > 0 && r.Event.At > r.NowMs-lag && r.Event.At < r.NowMs+max(lag, clockStep.Milliseconds()) {
			break
		}
		out = append(out, r.Event.toDomain())
	}
	return out, nil
}
