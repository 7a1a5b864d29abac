package ragflow

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/facade"
)

// An ingestion log is one parse of a document: one of our generations. Its id is
// the document's id, a hyphen, and the generation number.

func logID(document string, generation int) string {
	return document + "-" + strconv.Itoa(generation)
}

// shownLog renders the newest parse of a document.
func (c *call) shownLog(d *document) object {
	shown := c.shownDocument(d)
	begun := d.begun()
	return object{
		"id": logID(d.ID, d.Generation), "document_id": d.ID, "kb_id": d.DatasetID, "dataset_id": d.DatasetID, "tenant_id": c.tenant, "document_name": d.Name, "document_suffix": extension(d.Name),
		"document_type": d.kind(), "source_from": "local", "parser_id": d.method(), "pipeline_id": nil, "pipeline_title": d.method(), "task_type": "Parse", "operation_status": shown["run"], "status": "1",
		"progress": shown["progress"], "progress_msg": shown["progress_msg"], "process_begin_at": shown["process_begin_at"], "process_duration": shown["process_duration"], "chunk_count": shown["chunk_count"],
		"create_time": begun.UnixMilli(), "create_date": date(begun), "update_time": d.UpdatedAt.UnixMilli(), "update_date": date(d.UpdatedAt),
	}
}

// begun is when the newest parse of the document started or was requested.
func (d *document) begun() time.Time {
	for _, at := range []time.Time{d.StartedAt, d.UpdatedAt} {
		if !at.IsZero() {
			return at
		}
	}
	return d.CreatedAt
}

// ingested reports whether a parse of the document was requested.
func (d *document) ingested() bool {
	return d.Generation > 0 && !d.blank() && (d.State != sheaf.DocQueued || !d.NotBefore.After(time.Now()))
}

// day reads one end of a date range; if the range ends with a date only, it
// includes that entire day.
func (f *faults) day(field, s string, end bool) (at time.Time) {
	if s == "" {
		return at
	}
	for _, layout := range []string{time.DateTime, "2006-01-02T15:04:05", time.RFC3339, time.RFC1123, time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			if layout == time.DateOnly && end {
				at = at.Add(24*time.Hour - time.Millisecond)
			}
			return at
		}
	}
	f.add(field, "Input should be a valid date, such as 2026-01-31 or 2026-01-31 22:00:00", s)
	return at
}

func listIngestions(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	q, f := c.r.URL.Query(), &faults{}
	page := f.queryInt("page", q.Get("page"), q.Has("page"), 1, 1, unbounded)
	size := f.queryInt("page_size", q.Get("page_size"), q.Has("page_size"), defaultPage, 1, maxPage)
	desc := f.queryBool("desc", q.Get("desc"), q.Has("desc"), true)
	orderby := cmp.Or(q.Get("orderby"), "create_time")
	f.among("orderby", orderby, []string{"create_time", "update_time"})
	kind := cmp.Or(q.Get("log_type"), "file")
	f.among("log_type", kind, []string{"dataset", "file"})
	from, to := f.day("create_date_from", q.Get("create_date_from"), false), f.day("create_date_to", q.Get("create_date_to"), true)
	if err := f.err(codeArgument); err != nil {
		return nil, err
	}
	logs := []*document{}
	if kind == "file" { // jobs on the whole dataset are not served
		docs, err := c.documents(ds.ID, nil)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			if at := d.begun(); d.ingested() && (from.IsZero() || !at.Before(from)) && (to.IsZero() || !at.After(to)) {
				d.dataset = ds
				logs = append(logs, d)
			}
		}
	}
	slices.SortStableFunc(logs, func(a, b *document) int {
		if orderby == "update_time" {
			return b.UpdatedAt.Compare(a.UpdatedAt)
		}
		return b.begun().Compare(a.begun())
	})
	if !desc {
		slices.Reverse(logs)
	}
	first, last := span(page, size)
	shown := []object{}
	for _, d := range cut(logs, first, last) {
		if err := c.counted(d); err != nil {
			return nil, err
		}
		shown = append(shown, c.shownLog(d))
	}
	return &answer{data: object{"total": len(logs), "logs": shown}}, nil
}

// readIngestion reads the log of any parse, including superseded ones.
func readIngestion(c *call) (*answer, error) {
	ds, err := c.dataset(c.path[0])
	if missing(err) {
		err = c.noPermission(c.path[0])
	}
	if err != nil {
		return nil, err
	}
	none := bad("Log not found: %s", c.path[1])
	id, number, _ := strings.Cut(c.path[1], "-")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return nil, none
	}
	d, err := c.document(ds, id)
	if missing(err) {
		err = none
	}
	if err != nil {
		return nil, err
	}
	if n == d.Generation && d.ingested() {
		if err := c.counted(d); err != nil {
			return nil, err
		}
		return &answer{data: c.shownLog(d)}, nil
	}
	var list facade.List[sheaf.Generation]
	if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", ds.ID, "documents", d.ID, "generations"), nil, &list); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.Items, func(g sheaf.Generation) bool { return g.Generation == n && g.JobID != "" })
	if i < 0 {
		return nil, none
	}
	g := &list.Items[i]
	d.Generation, d.LiveGeneration, d.State, d.Failure, d.Units, d.Chunks, d.Tokens = n, n, g.State, g.Failure, g.Units, g.Chunks, g.Tokens
	d.StartedAt, d.FinishedAt, d.UpdatedAt = g.CreatedAt, g.FinishedAt, cmp.Or(g.FinishedAt, g.CreatedAt)
	d.record.Reset, d.extra = 0, 0
	return &answer{data: c.shownLog(d)}, nil
}
