package e2e

import (
	"fmt"
	"testing"

	"sheaf"
	"sheaf/internal/api"
)

// What is dropped together is one job, whatever number of batches it is sent in,
// called by its first files.
func TestOneDropIsOneJob(t *testing.T) {
	s := start(t, nil)
	b := openBrowser(t, s)
	dir := t.TempDir()
	var paths []string
	for i := range 60 {
		paths = append(paths, put(t, dir, fmt.Sprintf("note-%02d.txt", i), []byte(fmt.Sprintf("Note %d.", i))))
	}
	b.open("/datasets/default")
	b.drop(paths...)
	b.sees("#uploads-title", "60 files uploaded")
	var jobs api.List[sheaf.Job]
	waitFor(t, "the job to end", func() bool {
		s.get("/v1/jobs", &jobs)
		return len(jobs.Items) > 0 && jobs.Items[0].State == sheaf.DocSucceeded
	})
	if len(jobs.Items) != 1 || jobs.Items[0].Documents.Total != 60 {
		t.Errorf("%d jobs, the newest of %d documents", len(jobs.Items), jobs.Items[0].Documents.Total)
	}
	b.open("/jobs")
	b.sees("[aria-label='Jobs'] tbody th", "Ingest of 60 documents")
	b.sees("[aria-label='Jobs'] tbody th", "and 58 more")
	b.noErrors()
}
