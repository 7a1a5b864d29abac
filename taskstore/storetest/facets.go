package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sheaf"
	"sheaf/taskstore"
)

// testFacets compares every count with the list that its filter returns.
func testFacets(t *testing.T, b *bench) {
	of := func(name, media, language, tag string) taskstore.NewDocument {
		d := b.newDocument(name)
		d.Document.MediaType = media
		if language != "" {
			d.Document.Metadata = map[string]string{"language": language, "title": "nul \\u0000 in a \x00 title"}
		}
		if tag != "" {
			text, err := json.Marshal(tag)
			b.ok(err)
			d.Document.Attributes = sheaf.Attributes{taskstore.TagAttribute: text, "other": json.RawMessage(`{"sheaf.tag":"inner"}`)}
		}
		return d
	}
	first, second := b.newJob(sheaf.JobIngest), b.newJob(sheaf.JobIngest)
	first.Name = "the first drop"
	docs := []taskstore.NewDocument{of("a.pdf", "application/pdf", "en", "Mill"), of("b.pdf", "application/pdf", "EN", "mill"), of("c.txt", "text/plain", "", "Mill"), of("d.pdf", "application/pdf", "en", "it's \"a\" tag %")}
	_, err := b.CreateDocuments(b.ctx, first, docs, "")
	b.ok(err)
	later := []taskstore.NewDocument{of("e.txt", "text/plain", "", ""), of("f.txt", "text/plain", strings.Repeat("ü", 300), "")}
	_, err = b.CreateDocuments(b.ctx, second, later, "")
	b.ok(err)
	ids := make([]string, 0, 6)
	for _, d := range append(docs, later...) {
		ids = append(ids, d.Document.ID)
	}
	locked := sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "the file is locked")
	locked.Detail = "lines of a parser"
	for i, p := range map[int]taskstore.Publication{
		0: {State: sheaf.DocSucceeded, Ledger: sheaf.LedgerCounts{OK: 12}, Chunks: 24, Warnings: []sheaf.Warning{{Code: "rows_clipped", Message: "one", Page: 1}, {Code: "rows_clipped", Message: "two", Page: 2}, {Code: "repaired", Message: "“quoted” \"code\":\"odd\""}}},
		1: {State: sheaf.DocFailed, Failure: locked, Warnings: []sheaf.Warning{{Code: "rows_clipped", Message: "three"}}},
		2: {State: sheaf.DocPartiallySucceeded, Ledger: sheaf.LedgerCounts{OK: 11, Failed: 1}, Chunks: 22, Failure: locked},
		4: {State: sheaf.DocFailed, Failure: sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "nothing in it, or \x00")},
	} {
		b.plan(ids[i], sheaf.Range{From: 1, To: 12})
		b.parse(ids[i])
		b.publish(ids[i], p)
	}
	read := func(f taskstore.DocumentFilter) *taskstore.Facets {
		t.Helper()
		f.DatasetID = b.dataset.ID
		x, err := b.Facets(b.ctx, b.tenant, f)
		b.ok(err)
		return x
	}
	names := func(list []taskstore.Facet) string {
		out := ""
		for _, f := range list {
			out += fmt.Sprintf("%.12s %d, ", f.Value, f.Documents)
		}
		return out
	}
	all := read(taskstore.DocumentFilter{})
	b.same("states", names(all.States), "failed 2, queued 2, partially_su 1, succeeded 1, ")
	b.same("formats", names(all.Formats), "application/ 3, text/plain 3, ")
	b.same("languages", names(all.Languages), "en 2, EN 1, üüüüüüüüüüüü 1, ")
	b.same("tags", names(all.Tags), `Mill 2, it's "a" tag 1, mill 1, `)
	b.same("jobs", all.Jobs, []taskstore.Facet{{Value: second.ID, Documents: 2, Name: all.Jobs[0].Name}, {Value: first.ID, Name: "the first drop", Documents: 4}})
	b.same("how many, and how many ended", []int{all.Documents, all.Ended}, []int{6, 4})
	shown := *locked
	shown.Detail = ""
	b.same("issues", all.Issues[:1], []taskstore.Issue{{Code: "encrypted", Documents: 2, Failed: 1, Sample: shown, Document: ids[1], Name: "b.pdf"}})
	b.same("the other issue", []any{len(all.Issues), all.Issues[1].Code, all.Issues[1].Documents, all.Issues[1].Failed}, []any{2, "empty_file", 1, 1})

	b.same("warnings", all.Warnings, []taskstore.Notice{{Code: "rows_clipped", Documents: 2, Sample: sheaf.Warning{Code: "rows_clipped", Message: "one", Page: 1}, Document: ids[0], Name: "a.pdf"},
		{Code: "repaired", Documents: 1, Sample: sheaf.Warning{Code: "repaired", Message: "“quoted” \"code\":\"odd\""}, Document: ids[0], Name: "a.pdf"}})
	warned, next, err := b.JobWarnings(b.ctx, b.tenant, first.ID, taskstore.Page{Limit: 1, Ascending: true})
	b.ok(err)
	b.same("warnings of the first document", []any{len(warned), warned[0].Document, len(warned[0].Warnings)}, []any{1, "a.pdf", 3})
	warned, next, err = b.JobWarnings(b.ctx, b.tenant, first.ID, taskstore.Page{Limit: 1, Ascending: true, Cursor: next})
	b.ok(err)
	b.same("warnings of the last document", []any{warned, next}, []any{[]taskstore.JobWarnings{{DocumentID: ids[1], Document: "b.pdf", Warnings: []sheaf.Warning{{Code: "rows_clipped", Message: "three"}}}}, ""})

	// Each list ignores its own condition and obeys the others; each value finds as
	// many documents as its count.
	few := taskstore.DocumentFilter{States: []sheaf.DocumentState{sheaf.DocFailed}, MediaTypes: []string{"application/pdf"}}
	x := read(few)
	b.same("states of PDF files", names(x.States), "failed 1, queued 1, succeeded 1, ")
	b.same("formats of what failed", names(x.Formats), "application/ 1, text/plain 1, ")
	b.same("issues of PDF files that failed", []any{len(x.Issues), x.Issues[0].Documents, x.Documents}, []any{1, 1, 1})
	found := func(what string, f taskstore.DocumentFilter, want int) {
		t.Helper()
		f.DatasetID = b.dataset.ID
		docs, _, err := b.Documents(b.ctx, b.tenant, f, taskstore.Page{})
		b.ok(err)
		b.same(what, len(docs), want)
	}
	for _, f := range all.States {
		found(f.Value, taskstore.DocumentFilter{States: []sheaf.DocumentState{sheaf.DocumentState(f.Value)}}, f.Documents)
	}
	for _, f := range all.Languages {
		found(f.Value, taskstore.DocumentFilter{Languages: []string{f.Value}}, f.Documents)
	}
	for _, f := range all.Tags {
		found(f.Value, taskstore.DocumentFilter{Tags: []string{f.Value, "none has this"}}, f.Documents)
	}
	for _, f := range all.Jobs {
		found(f.Value, taskstore.DocumentFilter{JobIDs: []string{f.Value}}, f.Documents)
	}
	for _, f := range all.Issues {
		found(f.Code, taskstore.DocumentFilter{Issues: []string{f.Code}}, f.Documents)
	}
	for _, f := range all.Warnings {
		found(f.Code, taskstore.DocumentFilter{Warnings: []string{f.Code, "none has this"}}, f.Documents)
	}
	for _, code := range []string{"odd", "rows", "rowsxclipped", `repaired","message`, "\x00"} {
		found("no code: "+code, taskstore.DocumentFilter{Warnings: []string{code}}, 0)
	}
	b.same("warnings of what has another", len(read(taskstore.DocumentFilter{Warnings: []string{"repaired"}}).Warnings), 2)
	b.same("documents with a warning", read(taskstore.DocumentFilter{Warnings: []string{"repaired"}}).Documents, 1)
	found("what no value can be", taskstore.DocumentFilter{Tags: []string{"\x00"}}, 0)

	// Deleted documents, and those of others, are not counted.
	_, err = b.DeleteDocuments(b.ctx, b.tenant, ids[:1])
	b.ok(err)
	other := newBench(t, b.Store)
	other.create("of another tenant")
	b.same("after a deletion", read(taskstore.DocumentFilter{}).Documents, 5)
	none, err := b.Facets(b.ctx, b.tenant, taskstore.DocumentFilter{DatasetID: other.dataset.ID})
	b.ok(err)
	b.same("of a dataset of another tenant", none, &taskstore.Facets{States: []taskstore.Facet{}, Formats: []taskstore.Facet{}, Issues: []taskstore.Issue{}, Warnings: []taskstore.Notice{}, Jobs: []taskstore.Facet{}, Languages: []taskstore.Facet{}, Tags: []taskstore.Facet{}})
	b.same("of nothing", read(taskstore.DocumentFilter{None: true}).Documents, 0)
	_, err = b.Facets(b.ctx, b.tenant, taskstore.DocumentFilter{IDs: make([]string, 10_001)})
	b.is(err, sheaf.ErrInvalid)
}

// testTags tags more documents than one transaction takes.
func testTags(t *testing.T, b *bench) {
	var names []string
	for i := range 1003 {
		names = append(names, fmt.Sprintf("letter %d", i))
	}
	_, ids := b.create(names...)
	_, err := b.ChangeDocument(b.ctx, b.tenant, ids[7], "", sheaf.Attributes{"other": json.RawMessage(`"kept"`)})
	b.ok(err)
	f := taskstore.DocumentFilter{DatasetID: b.dataset.ID}
	tagged := func(tag string, want int) {
		t.Helper()
		n, err := b.TagDocuments(b.ctx, b.tenant, f, tag)
		b.ok(err)
		b.same("tagged with "+tag, n, want)
	}
	tagged("Mill", 1003)
	b.same("the other attribute", string(b.doc(ids[7]).Attributes["other"]), `"kept"`)
	f.Tags = []string{"Mill"}
	f.IDs = ids[:3]
	tagged("Barn", 3)
	tagged("Barn", 0) // none of them has the old tag anymore
	f.IDs = nil
	tagged("", 1000)
	x, err := b.Facets(b.ctx, b.tenant, taskstore.DocumentFilter{DatasetID: b.dataset.ID})
	b.ok(err)
	b.same("tags", x.Tags, []taskstore.Facet{{Value: "Barn", Documents: 3}})
	b.same("an attribute of nothing", len(b.doc(ids[8]).Attributes), 0)
	_, err = b.TagDocuments(b.ctx, b.tenant, f, "nul\x00")
	b.is(err, sheaf.ErrInvalid)
}
