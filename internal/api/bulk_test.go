package api

import (
	"fmt"
	"testing"

	"sheaf"
	"sheaf/taskstore"
)

// A filter means all that it selects: nothing of a cancel or a delete is left out,
// however many documents there are, and a dry run counts the same.
func TestBatchActionsTakeAllThatAFilterSelects(t *testing.T) {
	s := newTestServer(t, nil)
	ds, err := s.store.CreateDataset(t.Context(), sheaf.Dataset{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Name: "many"})
	if err != nil {
		t.Fatal(err)
	}
	const documents = 10_050
	for from := 0; from < documents; from += 150 {
		docs := make([]taskstore.NewDocument, 150)
		for i := range docs {
			docs[i] = taskstore.NewDocument{
				Document: sheaf.Document{ID: sheaf.NewID(), Name: fmt.Sprint(from + i), MediaType: "text/plain", Size: 1, SHA256: "x", BlobKey: "b"},
				Plan:     sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindPlan, Cost: 1, Payload: []byte("{}")},
			}
		}
		job := sheaf.Job{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, DatasetID: ds.ID, Kind: sheaf.JobIngest}
		if _, err := s.store.CreateDocuments(t.Context(), job, docs, ""); err != nil {
			t.Fatal(err)
		}
	}
	var would struct{ Forecast struct{ Documents int } }
	var did, again struct {
		Documents   int
		DocumentIDs []string `json:"document_ids"`
	}
	for _, verb := range []string{"cancel", "delete"} {
		s.must(&would, "POST", "/v1/datasets/many/documents:"+verb, `{"all": true, "dry_run": true}`)
		s.must(&did, "POST", "/v1/datasets/many/documents:"+verb, `{"all": true}`, "Idempotency-Key", verb)
		if would.Forecast.Documents != documents || did.Documents != documents {
			t.Errorf("%s would take %d and took %d of %d documents", verb, would.Forecast.Documents, did.Documents, documents)
		}
	}
	// The answer is short enough to be kept, so that the same request does nothing.
	s.must(&again, "POST", "/v1/datasets/many/documents:delete", `{"all": true}`, "Idempotency-Key", "delete")
	if len(did.DocumentIDs) != mostListed || again.Documents != documents {
		t.Errorf("%d ids are listed, and again %d documents are deleted", len(did.DocumentIDs), again.Documents)
	}
}
