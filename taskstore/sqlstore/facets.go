package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/taskstore"
)

// maxFacetValue bounds a value shown, in characters: what documents state about
// themselves may be a page long.
const maxFacetValue = 200

// jsonText returns the text at a key of the JSON object in a column, "" without one.
// The column may be empty.
func (d dialect) jsonText(column, key string) string {
	read := fmt.Sprintf(`json_extract(%s, '$."%s"')`, column, key)
	switch d.name {
	case "mysql":
		read = "JSON_UNQUOTE(" + read + ") COLLATE utf8mb4_bin"
	case "postgres": // rejects NUL anywhere in the object
		read = fmt.Sprintf(`CAST(REPLACE(%s, '\u0000', '\ufffd') AS json)->>'%s'`, column, key)
	}
	return fmt.Sprintf("CASE WHEN %s='' THEN '' ELSE COALESCE(SUBSTR(%s, 1, %d), '') END", column, read, maxFacetValue)
}

// failedUnits returns the number of unreadable units according to a column with
// sheaf.LedgerCounts.
func (d dialect) failedUnits(column string) string {
	number := "INTEGER"
	if d.name == "mysql" {
		number = "SIGNED"
	}
	return fmt.Sprintf("COALESCE(CAST(NULLIF(%s, '') AS %s), 0)", d.jsonText(column, "failed"), number)
}

func (d dialect) issueOf() string    { return d.jsonText("failure", "code") }
func (d dialect) languageOf() string { return d.jsonText("metadata", "language") }
func (d dialect) tagOf() string      { return d.jsonText("attributes", taskstore.TagAttribute) }

// warningCodes is an expression for the codes of a document's warnings, as a JSON list.
func (d dialect) warningCodes() string {
	switch d.name {
	case "sqlite":
		return "(SELECT json_group_array(value->>'code') FROM json_each(warnings))"
	case "postgres":
		return "(SELECT CAST(json_agg(w->'code') AS text) FROM json_array_elements(CAST(warnings AS json)) w)"
	}
	return "JSON_EXTRACT(warnings, '$[*].code')"
}

// facetGroup is the documents that have the same values of everything that is
// counted.
type facetGroup struct {
	State, MediaType, Language, Tag, Issue string

	Documents int
	Ended     int    // within the last minute
	Oldest    string // id
}

// maxFacetGroups bounds the groups that are counted in one read. More means that
// documents have tags or languages of their own.
const maxFacetGroups = 10_000

// Facets counts the documents selected by f by each facet. The lists of jobs, of which
// there can be one a document, and of warnings, of which a document can have many, are
// reads of their own. The other lists come from one read of the dataset's rows, which
// are grouped by all values; if these are too many, each list is a read of its own.
// Each returns a bounded number of rows.
func (s *documents) Facets(ctx context.Context, tenantID string, f taskstore.DocumentFilter) (*taskstore.Facets, error) {
	if len(f.IDs) > maxFilterIDs {
		return nil, tooManyIDs(len(f.IDs))
	}
	whole := f
	whole.States, whole.MediaTypes, whole.Languages, whole.Tags, whole.Issues = nil, nil, nil, nil, nil
	groups, err := s.facetGroups(ctx, tenantID, whole)
	if err != nil {
		return nil, err
	}
	if len(groups) > maxFacetGroups {
		return s.facetsApart(ctx, tenantID, f)
	}
	conditions := [...]struct {
		of  func(*facetGroup) string
		any []string
	}{
		facetState:    {func(g *facetGroup) string { return g.State }, texts(f.States)},
		facetFormat:   {func(g *facetGroup) string { return g.MediaType }, f.MediaTypes},
		facetLanguage: {func(g *facetGroup) string { return g.Language }, f.Languages},
		facetTag:      {func(g *facetGroup) string { return g.Tag }, f.Tags},
		facetIssue:    {func(g *facetGroup) string { return g.Issue }, f.Issues},
	}
	out := &taskstore.Facets{}
	var lists [len(conditions)]map[string]*facetRow
	for i := range lists {
		lists[i] = map[string]*facetRow{}
	}
	for i := range groups {
		g := &groups[i]
		unmet, which := 0, 0
		for k, c := range conditions {
			if len(c.any) > 0 && !slices.Contains(c.any, c.of(g)) {
				unmet, which = unmet+1, k
			}
		}
		if unmet == 0 {
			out.Documents += g.Documents
		}
		if unmet == 0 || unmet == 1 && which == facetState {
			out.Ended += g.Ended
		}
		for k, c := range conditions {
			value := c.of(g)
			if value == "" || unmet > 1 || unmet == 1 && which != k {
				continue
			}
			r := lists[k][value]
			if r == nil {
				r = &facetRow{Value: value, Sample: g.Oldest}
				lists[k][value] = r
			}
			r.Documents += g.Documents
			r.Sample = min(r.Sample, g.Oldest)
			if g.State == string(sheaf.DocFailed) {
				r.Part += g.Documents
			}
		}
	}
	list := func(of int) []facetRow {
		rows := make([]facetRow, 0, len(lists[of]))
		for _, r := range lists[of] {
			rows = append(rows, *r)
		}
		slices.SortFunc(rows, func(a, b facetRow) int {
			return cmp.Or(cmp.Compare(b.Documents, a.Documents), strings.Compare(a.Value, b.Value))
		})
		return rows[:min(len(rows), taskstore.MaxFacets)]
	}
	out.States, out.Formats = facets(list(facetState)), facets(list(facetFormat))
	out.Languages, out.Tags = facets(list(facetLanguage)), facets(list(facetTag))
	if out.Issues, err = s.issues(ctx, tenantID, list(facetIssue)); err != nil {
		return nil, err
	}
	return out, s.otherFacets(ctx, tenantID, f, out)
}

const (
	facetState = iota
	facetFormat
	facetLanguage
	facetTag
	facetIssue
)

// facetGroups returns one more than maxFacetGroups if there are more.
func (s *documents) facetGroups(ctx context.Context, tenantID string, f taskstore.DocumentFilter) ([]facetGroup, error) {
	w, nothing := s.selects(tenantID, f)
	if nothing {
		return nil, nil
	}
	return all[facetGroup](s.read(ctx), s.sql(fmt.Sprintf(`SELECT state, media_type, %s AS language, %s AS tag, %s AS issue, COUNT(*) AS documents,
		SUM(CASE WHEN finished_at>@now-60000 AND state<>'canceled' THEN 1 ELSE 0 END) AS ended, MIN(id) AS oldest
		FROM documents%s GROUP BY 1, 2, 3, 4, 5 LIMIT %d`, s.d.languageOf(), s.d.tagOf(), s.d.issueOf(), w.String(), maxFacetGroups+1)), w.args...)
}

// facetsApart is Facets with a statement for each list.
func (s *documents) facetsApart(ctx context.Context, tenantID string, f taskstore.DocumentFilter) (*taskstore.Facets, error) {
	out := &taskstore.Facets{}
	const most = "2 DESC, 1"
	g := f
	g.States = nil
	rows, err := s.facet(ctx, tenantID, g, "state", most, ", SUM(CASE WHEN finished_at>@now-60000 AND state<>'canceled' THEN 1 ELSE 0 END) AS part")
	if err != nil {
		return nil, err
	}
	out.States = facets(rows)
	for _, r := range rows {
		out.Ended += r.Part
		if len(f.States) == 0 || slices.Contains(f.States, sheaf.DocumentState(r.Value)) {
			out.Documents += r.Documents
		}
	}
	for _, c := range []struct {
		list    *[]taskstore.Facet
		value   string
		without func(*taskstore.DocumentFilter)
	}{
		{&out.Formats, "media_type", func(g *taskstore.DocumentFilter) { g.MediaTypes = nil }},
		{&out.Languages, s.d.languageOf(), func(g *taskstore.DocumentFilter) { g.Languages = nil }},
		{&out.Tags, s.d.tagOf(), func(g *taskstore.DocumentFilter) { g.Tags = nil }},
	} {
		g := f
		c.without(&g)
		if rows, err = s.facet(ctx, tenantID, g, c.value, most, ""); err != nil {
			return nil, err
		}
		*c.list = facets(rows)
	}
	g = f
	g.Issues = nil
	if rows, err = s.facet(ctx, tenantID, g, s.d.issueOf(), most, ", SUM(CASE WHEN state='failed' THEN 1 ELSE 0 END) AS part, MIN(id) AS sample"); err != nil {
		return nil, err
	}
	if out.Issues, err = s.issues(ctx, tenantID, rows); err != nil {
		return nil, err
	}
	return out, s.otherFacets(ctx, tenantID, f, out)
}

// otherFacets adds the lists of warnings and of jobs, the newest first.
func (s *documents) otherFacets(ctx context.Context, tenantID string, f taskstore.DocumentFilter, out *taskstore.Facets) (err error) {
	if out.Warnings, err = s.notices(ctx, tenantID, f); err != nil {
		return err
	}
	f.JobIDs = nil
	rows, err := s.facet(ctx, tenantID, f, "job_id", "1 DESC", "")
	if err != nil {
		return err
	}
	out.Jobs = facets(rows)
	return s.nameJobs(ctx, tenantID, out.Jobs)
}

// facet returns the values of an expression and how many documents of f have each,
// in an order, with more columns.
func (s *documents) facet(ctx context.Context, tenantID string, f taskstore.DocumentFilter, value, order, more string) ([]facetRow, error) {
	w, nothing := s.selects(tenantID, f)
	if nothing {
		return nil, nil
	}
	w.add(value + "<>''")
	return all[facetRow](s.read(ctx), s.sql(fmt.Sprintf("SELECT %s AS value, COUNT(*) AS documents%s FROM documents%s GROUP BY 1 ORDER BY %s LIMIT %d", value, more, w.String(), order, taskstore.MaxFacets)), w.args...)
}

type facetRow struct {
	Value     string
	Documents int
	Part      int
	Sample    string
}

func facets(rows []facetRow) []taskstore.Facet {
	return mapped(rows, func(r facetRow) taskstore.Facet { return taskstore.Facet{Value: r.Value, Documents: r.Documents} })
}

// notices counts documents by the codes of their warnings. They are grouped by all of
// these, and there are few combinations of codes.
func (s *documents) notices(ctx context.Context, tenantID string, f taskstore.DocumentFilter) ([]taskstore.Notice, error) {
	f.Warnings = nil
	w, nothing := s.selects(tenantID, f)
	if nothing {
		return []taskstore.Notice{}, nil
	}
	w.add("warnings<>'[]'")
	groups, err := all[facetRow](s.read(ctx), fmt.Sprintf("SELECT %s AS value, COUNT(*) AS documents, MIN(id) AS sample FROM documents%s GROUP BY 1 LIMIT %d", s.d.warningCodes(), w.String(), maxFacetGroups), w.args...)
	if err != nil {
		return nil, err
	}
	by := map[string]*taskstore.Notice{}
	for _, g := range groups {
		var codes []string
		decode(g.Value, &codes)
		for _, code := range sortedUnique(codes) {
			n := by[code]
			if n == nil {
				n = &taskstore.Notice{Code: code, Document: g.Sample}
				by[code] = n
			}
			n.Documents += g.Documents
			n.Document = min(n.Document, g.Sample)
		}
	}
	out := make([]taskstore.Notice, 0, len(by))
	for _, n := range by {
		out = append(out, *n)
	}
	slices.SortFunc(out, func(a, b taskstore.Notice) int {
		return cmp.Or(cmp.Compare(b.Documents, a.Documents), strings.Compare(a.Code, b.Code))
	})
	out = out[:min(len(out), taskstore.MaxFacets)]
	samples, err := byIDs[struct{ ID, Name, Warnings string }](s.read(ctx), mapped(out, func(n taskstore.Notice) string { return n.Document }), "SELECT id, name, warnings FROM documents WHERE id IN ? AND tenant_id=?", tenantID)
	for _, d := range samples {
		var warnings []sheaf.Warning
		decode(d.Warnings, &warnings)
		for i := range out {
			n := &out[i]
			if k := slices.IndexFunc(warnings, func(w sheaf.Warning) bool { return w.Code == n.Code }); n.Document == d.ID && k >= 0 {
				n.Name, n.Sample = d.Name, warnings[k]
			}
		}
	}
	return out, err
}

// issues reads, for each group, the failure of its oldest document.
func (s *documents) issues(ctx context.Context, tenantID string, rows []facetRow) ([]taskstore.Issue, error) {
	ids := mapped(rows, func(r facetRow) string { return r.Sample })
	found, err := byIDs[struct{ ID, Name, Failure string }](s.read(ctx), ids, "SELECT id, name, failure FROM documents WHERE id IN ? AND tenant_id=?", tenantID)
	if err != nil {
		return nil, err
	}
	out := make([]taskstore.Issue, len(rows))
	for i, r := range rows {
		out[i] = taskstore.Issue{Code: r.Value, Documents: r.Documents, Failed: r.Part, Document: r.Sample}
		for _, d := range found {
			if f := decodeFailure(d.Failure); d.ID == r.Sample && f != nil {
				out[i].Name, out[i].Sample = d.Name, *f
				out[i].Sample.Detail = "" // parser output of a single document
			}
		}
	}
	return out, nil
}

// nameJobs fills in the names of jobs.
func (s *documents) nameJobs(ctx context.Context, tenantID string, jobs []taskstore.Facet) error {
	rows, err := byIDs[jobRow](s.read(ctx), mapped(jobs, func(f taskstore.Facet) string { return f.Value }), "SELECT * FROM jobs WHERE id IN ? AND tenant_id=?", tenantID)
	for _, r := range rows {
		for i := range jobs {
			if jobs[i].Value == r.ID {
				jobs[i].Name = r.toDomain().Name
			}
		}
	}
	return err
}

// tagSlice is how many documents are tagged per transaction.
const tagSlice = 500

// TagDocuments sets the tag of the dataset's documents selected by f, or removes it
// if tag is "", and returns how many it has processed: all of them unless there is
// an error.
func (s *documents) TagDocuments(ctx context.Context, tenantID string, f taskstore.DocumentFilter, tag string) (done int, err error) {
	if err := checkText("the tag", tag, maxFacetValue); err != nil {
		return 0, err
	}
	change := sheaf.Attributes{taskstore.TagAttribute: nil}
	if tag = strings.TrimSpace(tag); tag != "" {
		text, err := json.Marshal(tag)
		if err != nil {
			return 0, err
		}
		change[taskstore.TagAttribute] = text
	}
	for after := ""; ; {
		w, nothing := s.selects(tenantID, f)
		if nothing {
			return done, nil
		}
		w.add("id>?", after)
		var ids []string
		err := s.tx(ctx, func(tx *gorm.DB) error {
			rows, err := all[struct{ ID, Attributes string }](tx, fmt.Sprintf("SELECT id, attributes FROM documents%s ORDER BY id LIMIT %d", w.String(), tagSlice)+s.d.lock, w.args...)
			if err != nil {
				return err
			}
			ids = nil
			same := map[string][]string{} // usually they all had the same attributes
			for _, r := range rows {
				var had sheaf.Attributes
				decode(r.Attributes, &had)
				text, err := had.Change(change).Encode("a document", sheaf.MaxDocumentAttributes)
				if err != nil {
					return fmt.Errorf("document %s: %w", r.ID, err)
				}
				if ids = append(ids, r.ID); text != r.Attributes {
					same[text] = append(same[text], r.ID)
				}
			}
			for text, ids := range same {
				if err := run(tx, stmt(s.sql("UPDATE documents SET attributes=?, updated_at=@now WHERE id IN ?"), text, ids)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return done, fmt.Errorf("%d documents are tagged; ask again for the others: %w", done, err)
		}
		if done += len(ids); len(ids) < tagSlice {
			return done, nil
		}
		after = ids[len(ids)-1]
	}
}
