package sqlstore_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// documents adds n documents of the tenant t to a dataset, with a few values of each
// facet and the tag of an SQL expression.
func documents(t *testing.T, f *storetest.Fixture, dataset, tag string, n int) {
	t.Helper()
	e := dialects[f.Engine]
	of := func(word string, few int) string { return e.named(word, fmt.Sprintf("{i}%%%d", few)) }
	object := func(key, value string) string { // {"key":"value"}
		if f.Engine == "sqlite" {
			return e.named(`{"`+key+`":"`, "("+value+`) || '"}'`)
		}
		return e.named(`{"`+key+`":"`, "CONCAT("+value+`, '"}')`)
	}
	fillTable(t, f, "documents", "id, tenant_id, dataset_id, name, media_type, size, sha256, blob_key, state, gen, ledger, failure, warnings, parse_config, metadata, outline, attributes, job_id, created_at, updated_at, finished_at",
		e.named(dataset+"-", e.padded("{i}", 20))+", 't', '"+dataset+"', "+of("name", 7)+", "+of("text/", 5)+", 1, '', '', "+
			"CASE {i}%4 WHEN 0 THEN 'failed' WHEN 1 THEN 'queued' ELSE 'succeeded' END, 1, '{}', "+
			"CASE WHEN {i}%4=0 THEN "+object("code", of("code", 3))+" ELSE '' END, '[]', '{}', "+
			"CASE WHEN {i}%3=0 THEN '{}' ELSE "+object("language", of("l", 11))+" END, '', "+object(taskstore.TagAttribute, tag)+", "+of("j", 60)+", 1, 1, "+
			"CASE WHEN {i}%5=0 THEN 9000000000000 ELSE 0 END", n)
}

// TestFacetsOfOneReadAreThoseOfMany holds that grouping the rows once counts what a
// statement for each list counts, whatever the filter.
func TestFacetsOfOneReadAreThoseOfMany(t *testing.T) {
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		f := storetest.New(t, engine)
		documents(t, f, "few", dialects[engine].named("tag", "{i}%13"), 2000)
		some := func(word string, few int) (out []string) {
			for range rand.IntN(3) {
				out = append(out, fmt.Sprint(word, rand.IntN(few)))
			}
			return out
		}
		for range 60 {
			filter := taskstore.DocumentFilter{DatasetID: "few", MediaTypes: some("text/", 5), JobIDs: some("j", 60), Languages: some("l", 11), Tags: some("tag", 13), Issues: some("code", 3)}
			if rand.IntN(3) == 0 {
				filter.States = []sheaf.DocumentState{sheaf.DocFailed}
			}
			if rand.IntN(3) == 0 {
				filter.Query = "name3"
			}
			if rand.IntN(4) > 0 { // otherwise there is nothing to count
				filter.JobIDs = nil
			}
			once, err := f.Store.Facets(ctx, "t", filter)
			f.OK(err)
			apart, err := f.Store.FacetsApart(ctx, "t", filter)
			f.OK(err)
			if !reflect.DeepEqual(once, apart) {
				t.Fatalf("filter %+v\none read: %+v\nmany:     %+v", filter, once, apart)
			}
		}
		whole, err := f.Store.Facets(ctx, "t", taskstore.DocumentFilter{DatasetID: "few"})
		f.OK(err)
		if whole.Documents != 2000 || whole.Ended != 400 || len(whole.Jobs) != taskstore.MaxFacets || len(whole.Tags) != 13 || len(whole.Languages) != 11 || len(whole.Issues) != 3 {
			t.Errorf("facets of all: %+v", whole)
		}
	})
}

// TestFacetsOfTagsThatAreAllDifferent counts documents of which each has its own tag.
func TestFacetsOfTagsThatAreAllDifferent(t *testing.T) {
	f := storetest.New(t, "sqlite")
	documents(t, f, "many", "{i}", 10_001)
	got, err := f.Store.Facets(ctx, "t", taskstore.DocumentFilter{DatasetID: "many"})
	f.OK(err)
	if got.Documents != 10_001 || len(got.Tags) != taskstore.MaxFacets || got.Tags[0] != (taskstore.Facet{Value: "1", Documents: 1}) || len(got.Formats) != 5 || got.Formats[0].Documents != 2001 {
		t.Errorf("got %+v", got)
	}
}
