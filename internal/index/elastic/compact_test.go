package elastic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/index"
	"sheaf/internal/index/indextest"
)

// The words of a deleted chunk go out of the segments, though they are far less
// than what Elasticsearch rewrites a segment for.
func TestCompactLeavesNoDeletedEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("Elasticsearch takes half a minute")
	}
	t.Parallel()
	c := config(t)
	x := open(t, c)
	entries := make([]index.Entry, 200)
	for i := range entries {
		doc := fmt.Sprint("d", i)
		entries[i] = index.Entry{
			Chunk:    sheaf.Chunk{ID: "c" + doc, RangeID: "r" + doc, DocumentID: doc, Text: "quince " + doc},
			TenantID: "t", DatasetID: "s", Vector: indextest.Vector(uint64(i + 1)),
		}
	}
	if err := x.Write(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	if err := x.DeleteDocument(t.Context(), "t", "d7"); err != nil {
		t.Fatal(err)
	}
	of := c.URLs[0] + "/" + c.Prefix + "-test-1"
	deleted := func() int {
		var stats struct {
			All struct {
				Total struct {
					Docs struct{ Count, Deleted int }
				}
			} `json:"_all"`
		}
		call(t, http.MethodPost, of+"/_refresh", "") // nobody searches, and counts are those of the last refresh
		if err := json.Unmarshal([]byte(call(t, http.MethodGet, of+"/_stats/docs", "")), &stats); err != nil {
			t.Fatal(err)
		}
		return stats.All.Total.Docs.Deleted
	}
	if deleted() == 0 {
		t.Fatal("Elasticsearch has merged by itself; the test shows nothing")
	}
	// Elasticsearch holds back what was deleted until its leases are renewed, for
	// replicas that are behind: every half minute, and later on a machine that is busy.
	for deadline := time.Now().Add(4 * time.Minute); deleted() > 0; time.Sleep(2 * time.Second) {
		if err := x.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d deleted entries are in the segments\n%s\n%s", deleted(), call(t, http.MethodGet, of+"/_stats/docs,merge?level=shards", ""),
				call(t, http.MethodGet, c.URLs[0]+"/_tasks?actions=*forcemerge*&detailed", ""))
		}
	}
	if got, err := x.Count(t.Context(), "t", []string{"rd6", "rd7"}); err != nil || got["rd6"] != 1 || got["rd7"] != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if err := x.Compact(t.Context()); err != nil {
		t.Errorf("with nothing deleted: %v", err)
	}
}
