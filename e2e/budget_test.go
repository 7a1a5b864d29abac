package e2e

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
	t.Parallel() // it mostly waits
	model := chattest.Start(t)
	model.Reply(func(string, string) string { return `{"rock": "quartzite"}` })
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	cfg.Chat.URL, cfg.Chat.Model = model.URL, chattest.Model
	cfg.Chat.Concurrency = 1
	cfg.Flow.MaxPrice, cfg.Price.PerMillionChatTokens, cfg.Price.Currency = 0.5, 1000, "EUR" // 500 tokens
	s := startWith(t, cfg)
	answer, path := s.submitDear(t)
	s.waitsAtBudget(t, path)
	asked := model.Asked()
	if len(asked) == 0 || len(asked) >= dearQuestions {
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
	if len(seen) != dearQuestions {
		t.Errorf("%d questions, want %d", len(seen), dearQuestions)
	}
	var would struct{ Plans []ingest.PlanPreview }
	s.post("/v1/datasets/default/documents:reparse?dry_run=true", map[string]any{"filter": map[string]any{"document_ids": []string{answer.Documents[0].ID}}, "fresh": true}, &would)
	for _, n := range would.Plans[0].Nodes {
		if n.Node == "facts" && (n.Run != 1 || n.Tokens == nil || n.Tokens.Count == nil || *n.Tokens.Count < 500 || n.Price == nil || n.Price.Amount <= 0.5 || n.Price.Currency != "EUR") || n.Node == "cut" && n.Tokens != nil {
			t.Errorf("a dry run says %+v", n)
		}
	}
}

// dearQuestions are more than fit a cap of 500 tokens that is raised once by 250,
// however many are asked before a task sees that it is spent.
const dearQuestions = 16

// submitDear submits a document of dearQuestions about its chunks.
func (s *service) submitDear(t *testing.T) (answer api.SubmitAnswer, path string) {
	t.Helper()
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
	for i := range dearQuestions {
		body += fmt.Sprintf("# Part %d\n\nThe quartzite number %d was measured twice by somebody of Acme.\n\n", i, i)
	}
	got, err := s.submitAnswer(t.Context(), "default", []source{text("dear.md", body)}, map[string]string{"parser_config": `{"flow":"dear"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	return *got, "/v1/datasets/default/documents/" + got.Documents[0].ID
}

// waitsAtBudget waits for a run to say that it does, and answers it.
func (s *service) waitsAtBudget(t *testing.T, path string) (run api.FlowRun) {
	t.Helper()
	waitFor(t, "the run to say that it waits at its budget", func() bool {
		run = api.FlowRun{}
		if s.call(t.Context(), http.MethodGet, path+"/run", nil, &run) != nil {
			return false
		}
		n := nodeOf(t, run, "facts")
		return n.State == "retry_wait" && strings.Contains(n.Reason, "allow 500") && n.Failure == nil && run.Budget != nil && run.Budget.Waits
	})
	return run
}

// The cap of a document that waits is raised by command, by request and on the
// page; the document goes on, and nothing is asked twice.
func TestBudgetOfADocumentIsRaised(t *testing.T) {
	t.Parallel() // it mostly waits
	model := chattest.Start(t)
	model.Reply(func(string, string) string { return `{"rock": "quartzite"}` })
	s := start(t, func(c *config.Config) {
		c.Chat.URL, c.Chat.Model, c.Chat.Concurrency = model.URL, chattest.Model, 1
		c.Flow.MaxTokens = 500
	})
	answer, path := s.submitDear(t)
	spent := s.waitsAtBudget(t, path).Budget.Spent
	within := len(model.Asked())
	if spent == 0 || spent > 500 || within == 0 || within >= dearQuestions {
		t.Fatalf("%d tokens of 500 for %d questions", spent, within)
	}
	resp, b := s.request("POST", path+":resume", fmt.Sprintf(`{"max_tokens": %d}`, spent), "Content-Type", "application/json")
	if resp.StatusCode != http.StatusConflict || !strings.Contains(string(b), `"budget_spent"`) {
		t.Errorf("a budget that is spent: %d %s", resp.StatusCode, b)
	}
	if resp, b := s.request("POST", path+":resume", `{"max_price": 1}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a price that nobody knows: %d %s", resp.StatusCode, b)
	}
	// Enough for one more question; then it waits again.
	id := answer.Documents[0].ID
	o := s.must("doc", "resume", id, "--max-tokens", fmt.Sprint(spent+250))
	if !strings.Contains(o.out, "goes on up to") {
		t.Errorf("sheaf doc resume says %q", o.out)
	}
	waitFor(t, "another question", func() bool { return len(model.Asked()) > within })
	run := s.waitsAtBudget(t, path)
	if n := len(model.Asked()); n >= dearQuestions || run.Budget.MaxTokens != spent+250 || run.Budget.Spent <= spent || run.Budget.Spent > spent+250 {
		t.Errorf("after a raise %d questions, %+v", n, run.Budget)
	}
	p := openBrowser(t, s)
	p.open("/datasets/default/documents/" + id + "?tab=run")
	p.sees(".run-head", "waits at its budget")
	for _, typed := range []string{"some", "1.5", "500,00"} {
		p.run(evaluate(fmt.Sprintf(`document.querySelector(".run-head [role=alert]")?.remove(); document.querySelector("#raise-tokens").value = %q`, typed)))
		p.press("Raise the budget")
		p.sees(".run-head [role=alert]", "whole number")
	}
	p.run(evaluate(`document.querySelector("#raise-tokens").value = ""`))
	p.press("Raise the budget")
	if j := s.ended(answer.Job.ID); j.State != sheaf.DocSucceeded {
		t.Fatalf("the job ends %s", j.State)
	}
	seen := map[string]bool{}
	for _, text := range model.Asked() {
		if seen[text] {
			t.Errorf("asked twice: %q", text)
		}
		seen[text] = true
	}
	if len(seen) != dearQuestions {
		t.Errorf("%d questions, want %d", len(seen), dearQuestions)
	}
	if resp, b := s.request("POST", path+":resume", `{}`, "Content-Type", "application/json"); resp.StatusCode != http.StatusConflict {
		t.Errorf("a document that has ended: %d %s", resp.StatusCode, b)
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
