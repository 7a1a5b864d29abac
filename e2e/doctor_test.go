package e2e

import (
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/config"
)

// A range result that is lost from the blob store is found by the keeper's own
// audit, and made anew by a parse of its document.
func TestLostResultIsFoundAndParsedAgain(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Keeper.AuditInterval = config.Duration(50 * time.Millisecond) })
	_, docs := s.send(nil, text("terns.md", "# Terns\n\nA sentence about terns.\n"), text("gulls.md", "# Gulls\n\nA sentence about gulls.\n"))
	const lost = `sheaf_index_drift{code="missing_artifacts"}`
	is := func(n float64) func() bool {
		return func() bool {
			v, ok := s.metric(lost)
			return ok && v == n
		}
	}
	waitFor(t, "an audit that finds nothing", is(0))
	results, err := s.store.ResultsOf(t.Context(), []string{docs[0].ID})
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if err := s.blobStore.Delete(t.Context(), results[0].ArtifactKey); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss to show", is(1))
	s.again("reparse", map[string]any{"filter": map[string]any{"document_ids": []string{docs[0].ID}}})
	waitFor(t, "the parse to cure it", is(0))
	if d := s.doc(docs[0].ID); d.State != sheaf.DocSucceeded || d.LiveGeneration != 2 {
		t.Errorf("the document is %s, generation %d", d.State, d.LiveGeneration)
	}
}
