package api

import (
	"testing"
	"time"

	"sheaf"
	"sheaf/ingest"
)

// A crowd shares answers that are a little old, but who waits for a job's end is
// answered with it: a client that was shown a job at work would ask again at
// once, and again.
func TestLongPollInACrowdAnswersTheEnd(t *testing.T) {
	var other *ingest.Service // another process, whose changes nobody tells this one of
	s := newTestServer(t, func(c *Config) {
		if _, err := c.Catalog.CreateDataset(t.Context(), sheaf.Dataset{TenantID: sheaf.LocalTenant, Name: "crowd"}); err != nil {
			t.Fatal(err)
		}
		in := c.Ingest
		other = &ingest.Service{Catalog: in.Catalog, Blobs: in.Blobs, Queue: in.Queue, Formats: in.Formats, Log: in.Log}
	})
	var sent SubmitAnswer
	s.must(&sent, "POST", "/v1/datasets/crowd/documents?name=a.txt", "text")
	at := "/v1/jobs/" + sent.Job.ID
	var j sheaf.Job
	for range 40 {
		s.must(&j, "GET", at, "")
	}
	if _, err := other.CancelJob(t.Context(), sheaf.LocalTenant, sent.Job.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.store.Fold(t.Context(), 10, 0); err != nil { // as the keeper does
		t.Fatal(err)
	}
	begun := time.Now()
	if s.must(&j, "GET", at+"?wait=60s", ""); !j.State.Terminal() {
		t.Errorf("a wait for the end ended after %v with a job that is %s", time.Since(begun), j.State)
	}
}
