package command

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/internal/chat/chattest"
	"sheaf/internal/config"
)

// At its cap a run waits and says so, without an attempt; raised, it goes on and
// asks nothing twice. A dry run says beforehand what it would cost.
func TestRunWaitsAtItsBudget(t *testing.T) {
	model := chattest.Start(t)
	model.Reply(func(string, string) string { return `{"rock": "quartzite"}` })
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Chat.URL, cfg.Chat.Model = model.URL, chattest.Model
	cfg.Chat.Concurrency = 1
	cfg.Flow.MaxPrice, cfg.Price.PerMillionChatTokens, cfg.Price.Currency = 0.5, 1000, "EUR" // 500 tokens
	s := startWith(t, cfg)
	var v api.FlowAnswer
	s.post("/v1/flows", map[string]any{"toml": `name = "dear"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"], config = { chunk_token_num = 32 } },
  { id = "facts", kind = "extract", from = ["cut"], config = { schema = { rock = "string" }, max_tokens = 100 }, retry = { attempts = 1 } },
  { id = "out", kind = "index", from = ["facts"] },
]
`}, &v)
	body := ""
	for i := range 6 {
		body += fmt.Sprintf("# Part %d\n\nThe quartzite number %d was measured twice by somebody of Acme.\n\n", i, i)
	}
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("dear.md", body)}, map[string]string{"parser_config": `{"flow":"dear"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/datasets/default/documents/" + answer.Documents[0].ID
	waitFor(t, "the run to say that it waits at its budget", func() bool {
		var run api.FlowRun
		if s.call(t.Context(), http.MethodGet, path+"/run", nil, &run) != nil {
			return false
		}
		n := nodeOf(t, run, "facts")
		return n.State == "retry_wait" && strings.Contains(n.Reason, "500 tokens of a run") && n.Failure == nil
	})
	asked := model.Asked()
	if len(asked) == 0 || len(asked) >= 6 {
		t.Errorf("%d questions within the budget", len(asked))
	}
	s.stop()
	cfg.Flow.MaxPrice = 50
	s = startWith(t, cfg)
	begun := time.Now()
	if j := s.ended(answer.Job.ID); j.State != sheaf.DocSucceeded {
		t.Fatalf("the job ends %s", j.State)
	}
	t.Logf("went on after %v", time.Since(begun))
	seen := map[string]int{}
	for _, text := range model.Asked() {
		if seen[text]++; seen[text] > 1 {
			t.Errorf("asked twice: %q", text)
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d questions, want 6", len(seen))
	}
	var would struct{ Plans []ingest.PlanPreview }
	s.post("/v1/datasets/default/documents:reparse?dry_run=true", map[string]any{"filter": map[string]any{"document_ids": []string{answer.Documents[0].ID}}, "fresh": true}, &would)
	for _, n := range would.Plans[0].Nodes {
		if n.Node == "facts" && (n.Run != 1 || n.Tokens == nil || n.Tokens.Count == nil || *n.Tokens.Count < 500 || n.Price == nil || n.Price.Amount <= 0.5 || n.Price.Currency != "EUR") || n.Node == "cut" && n.Tokens != nil {
			t.Errorf("a dry run says %+v", n)
		}
	}
}

// The day's budget is the tenant's, whatever the document.
func TestDayBudgetIsTheTenants(t *testing.T) {
	model := chattest.Start(t)
	s := start(t, func(c *config.Config) {
		c.Chat.URL, c.Chat.Model = model.URL, chattest.Model
		c.Flow.MaxTokensDay = 700
	})
	waits := false
	for i := range 8 {
		answer, err := s.submitAnswer(t.Context(), "default", []source{text(fmt.Sprintf("d%d.md", i), fmt.Sprintf("# D\n\nBasalt %d of Acme.\n", i))}, map[string]string{"parser_config": `{"auto_questions":1}`}, "")
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the job to end, or to say that it waits", func() bool {
			j, err := s.job(t.Context(), answer.Job.ID, "")
			if err != nil {
				return false
			}
			waits = j.Queue != nil && j.Queue.Delayed != nil && strings.Contains(j.Queue.Delayed.Reason, "700 tokens of a day")
			return j.State.Terminal() || waits
		})
		if waits {
			break
		}
	}
	if !waits {
		t.Errorf("eight documents wait for nothing, after %d questions", len(model.Asked()))
	}
}
