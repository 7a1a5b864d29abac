package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// Files that take long, as scans do, keep nobody waiting who looks at a page or
// tries settings.
func TestImagesAndPreviewsDoNotWaitForTasks(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Parser.Processes = 1 })
	handbook, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	pdf := s.upload("handbook.pdf", "application/pdf", `{}`, string(handbook))
	mustState(t, pdf, sheaf.DocSucceeded)
	gate := filepath.Join(t.TempDir(), "gate")
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("a.scan", "COUNT "+gate), text("b.scan", "COUNT "+gate), text("c.scan", "COUNT "+gate)},
		map[string]string{"parser_config": `{"media_type":"` + trialMedia + `"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a plan that waits", func() bool {
		job, err := s.job(t.Context(), answer.Job.ID, "")
		return err == nil && job.State == sheaf.DocRunning
	})
	began := time.Now()
	if resp, body := s.request(http.MethodGet, "/v1/datasets/default/documents/"+pdf.ID+"/pages/1/image?dpi=72", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("image: %d %s after %v", resp.StatusCode, body, time.Since(began))
	}
	if out, err := s.preview(pdf.ID, map[string]any{"chunk_token_num": 64}); err != nil || len(out.Chunks) == 0 {
		t.Errorf("preview: %v, %+v", err, out)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job is %s", job.State)
	}
}
