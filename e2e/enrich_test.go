package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// chatServer answers /v1/chat/completions as a model would, out of the passages
// themselves, and counts the calls. first, when set, may answer a call itself
// and then returns true.
type chatServer struct {
	address string
	first   func(w http.ResponseWriter, call int) bool

	mu      sync.Mutex
	calls   int
	prompts []string
}

var (
	passageStart = regexp.MustCompile(`(?m)^Passage (\d+)`)
	neighbour    = regexp.MustCompile(`(?m)^\[(before|after) it: .*\]$`)
	bed          = regexp.MustCompile(`bed\d+`)
)

func newChatServer(t *testing.T) *chatServer {
	t.Helper()
	c := &chatServer{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Model    string
			Messages []struct{ Role, Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || len(ask.Messages) != 2 || r.URL.Path != "/v1/chat/completions" || ask.Model != "tiny" {
			http.Error(w, "not a chat completion", http.StatusTeapot)
			return
		}
		c.mu.Lock()
		c.calls++
		call, first := c.calls, c.first
		c.prompts = append(c.prompts, ask.Messages[1].Content)
		c.mu.Unlock()
		if first != nil && first(w, call) {
			return
		}
		answer := "A summary that says quokka of: " + strings.Join(strings.Fields(ask.Messages[1].Content)[:3], " ")
		prompt := neighbour.ReplaceAllString(ask.Messages[1].Content, "")
		if found := passageStart.FindAllStringSubmatchIndex(prompt, -1); found != nil {
			var list []map[string]any
			for _, m := range found {
				last := bed.FindString(prompt[m[0]:])
				p := map[string]any{"n": json.Number(prompt[m[2]:m[3]])}
				if strings.Contains(ask.Messages[0].Content, "- keywords") {
					p["keywords"] = []string{"Keyword " + last}
				}
				if strings.Contains(ask.Messages[0].Content, "- questions") {
					p["questions"] = []string{"Which wombat asks of " + last + "?"}
				}
				if strings.Contains(ask.Messages[0].Content, "- context") {
					p["context"] = "It stands beside the platypus of " + last + "."
				}
				list = append(list, p)
			}
			b, _ := json.Marshal(map[string]any{"passages": list})
			answer = "Here it is:\n```json\n" + string(b) + "\n```"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": answer}}}})
	}))
	t.Cleanup(srv.Close)
	c.address = srv.URL + "/v1"
	return c
}

// asked is how often the model was asked since the last time.
func (c *chatServer) asked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.calls
	c.calls, c.prompts = 0, nil
	return n
}

func (c *chatServer) use(cfg *config.Config) {
	cfg.Chat.URL, cfg.Chat.Model, cfg.Chat.APIKey = c.address, "tiny", "secret"
	cfg.Executor.Workers = 2
}

// sections is a document of n sections, each a chunk; the n-th of them changed.
func sections(n int, change map[int]string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "# Section %d\n\nThe landlord keeps the garden of the house in order and pays for what grows in bed%d.%s\n\n", i, i, change[i])
	}
	return b.String()
}

const allEnrichment = `{"auto_keywords": 2, "auto_questions": 1, "auto_context": true}`

func (s *service) put(id, name, settings, body string) sheaf.Document {
	s.t.Helper()
	resp, b := s.request("PUT", "/v1/datasets/default/documents/"+id+"?wait=60s&name="+name+"&parser_config="+url.QueryEscape(settings), body, "Content-Type", "text/markdown")
	if resp.StatusCode != 202 {
		s.t.Fatalf("%s: %s", resp.Status, b)
	}
	d := decodeAs[api.SubmitAnswer](s.t, b).Documents[0]
	mustState(s.t, d, sheaf.DocSucceeded)
	return d
}

func TestModelAnswersAreFoundAndNeverPartOfTheText(t *testing.T) {
	chat := newChatServer(t)
	s := start(t, chat.use)
	id := sheaf.NewID()
	d := s.put(id, "garden.md", allEnrichment, sections(20, nil))
	chunks := s.chunks(d.ID)
	if n := chat.asked(); len(chunks) != 20 || n != 20 {
		t.Fatalf("%d chunks, the model was asked %d times", len(chunks), n)
	}
	for i, c := range chunks {
		bed := fmt.Sprintf("bed%d", i)
		if !slices.Equal(c.Keywords, []string{"Keyword " + bed}) || !slices.Equal(c.Questions, []string{"Which wombat asks of " + bed + "?"}) || c.Context != "It stands beside the platypus of "+bed+"." {
			t.Errorf("chunk %d: keywords %q, questions %q, context %q", i, c.Keywords, c.Questions, c.Context)
		}
		for _, word := range []string{"wombat", "platypus", "Keyword"} {
			if strings.Contains(c.Text, word) {
				t.Errorf("chunk %d says %q: %s", i, word, c.Text)
			}
		}
	}
	found := func(when string) {
		t.Helper()
		for _, query := range []string{"wombat asks bed7", "platypus bed7", "keyword bed7"} {
			if texts := s.find(query); len(texts) == 0 || !strings.Contains(texts[0], "bed7.") {
				t.Errorf("%s %q finds %q", when, query, texts)
			}
		}
	}
	found("after parsing")

	var again api.BatchAnswer
	for _, body := range []map[string]any{{"all": true}, {"all": true, "fresh": true}} {
		s.post("/v1/datasets/default/documents:reparse", body, &again)
		if job := s.ended(again.Job.ID); job.State != sheaf.DocSucceeded {
			t.Fatalf("parsing again with %v ended %s", body, job.State)
		}
		if n := chat.asked(); n != 0 {
			t.Errorf("parsing again with %v asked the model %d times", body, n)
		}
		found(fmt.Sprint("after parsing again with ", body))
	}
	if err := s.index.DeleteDocument(t.Context(), sheaf.LocalTenant, d.ID); err != nil {
		t.Fatal(err)
	}
	if texts := s.find("wombat"); len(texts) != 0 {
		t.Fatalf("the index is not empty: %q", texts)
	}
	if _, err := s.doctor(true); err != nil {
		t.Fatal(err)
	}
	if n := chat.asked(); n != 0 {
		t.Errorf("rebuilding the index asked the model %d times", n)
	}
	found("after the index was rebuilt")

	s.put(id, "garden.md", allEnrichment, sections(20, map[int]string{11: " And a new rose."}))
	if n := chat.asked(); n != 1 {
		t.Errorf("a change in one of 20 chunks asked the model %d times", n)
	}
	s.put(id, "garden.md", `{"auto_keywords": 2, "auto_questions": 2}`, sections(20, nil))
	if n := chat.asked(); n != 20 {
		t.Errorf("other settings asked the model %d times of 20", n)
	}
}

func TestBatchesAskAboutManyChunksAtOnce(t *testing.T) {
	chat := newChatServer(t)
	s := start(t, func(c *config.Config) { chat.use(c); c.Chat.Batch = 8 })
	d := s.upload("garden.md", "text/markdown", allEnrichment, sections(20, nil))
	mustState(t, d, sheaf.DocSucceeded)
	if n := chat.asked(); n != 3 {
		t.Errorf("20 chunks by 8 took %d calls", n)
	}
	for i, c := range s.chunks(d.ID) {
		if want := fmt.Sprintf("Which wombat asks of bed%d?", i); !slices.Equal(c.Questions, []string{want}) {
			t.Errorf("chunk %d: %q", i, c.Questions)
		}
	}
}

// A model that is busy, broken or away for a while costs time and nothing else.
func TestOutageOfTheModelCostsOnlyTime(t *testing.T) {
	t.Parallel()
	chat := newChatServer(t)
	chat.first = func(w http.ResponseWriter, call int) bool {
		switch {
		case call < 4:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case call < 8:
			w.WriteHeader(http.StatusBadGateway)
		default:
			return false
		}
		return true
	}
	s := start(t, chat.use)
	d := s.upload("garden.md", "text/markdown", allEnrichment, sections(6, nil))
	mustState(t, d, sheaf.DocSucceeded)
	for i, c := range s.chunks(d.ID) {
		if len(c.Questions) != 1 {
			t.Errorf("chunk %d has the questions %q", i, c.Questions)
		}
	}
	if _, ok := s.metric(`sheaf_breaker_state{dependency="chat"}`); !ok {
		t.Error("the model has no breaker of its own")
	}
}

func TestModelThatRefusesHoldsTheDocumentUpWithAReason(t *testing.T) {
	t.Parallel()
	chat := newChatServer(t)
	var wrong atomic.Bool
	wrong.Store(true)
	chat.first = func(w http.ResponseWriter, _ int) bool {
		if wrong.Load() {
			http.Error(w, `{"error": {"message": "wrong key"}}`, http.StatusUnauthorized)
		}
		return wrong.Load()
	}
	s := start(t, chat.use)
	answer, err := s.submitAnswer(t.Context(), defaultDataset, []source{text("garden.md", sections(2, nil))}, map[string]string{"parser_config": allEnrichment}, "")
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the reason", func() bool {
		job, err := s.job(t.Context(), answer.Job.ID, "")
		return err == nil && job.Queue != nil && job.Queue.Delayed != nil && strings.Contains(job.Queue.Delayed.Reason, "set chat.api_key") && !strings.Contains(job.Queue.Delayed.Reason, "secret")
	})
	wrong.Store(false)
	if job := s.ended(answer.Job.ID); job.State != sheaf.DocSucceeded {
		t.Errorf("the job ended as %s", job.State)
	}
}

func TestUselessAnswersAreAWarning(t *testing.T) {
	chat := newChatServer(t)
	chat.first = func(w http.ResponseWriter, call int) bool {
		_, _ = w.Write([]byte(`{"choices": [{"message": {"content": "I would rather talk about the weather."}}]}`))
		return true
	}
	s := start(t, chat.use)
	d := s.upload("garden.md", "text/markdown", allEnrichment, sections(3, nil))
	mustState(t, d, sheaf.DocSucceeded)
	if all := fmt.Sprint(s.doc(d.ID).Warnings); !strings.Contains(all, "enrichment_incomplete") {
		t.Errorf("warnings: %s", all)
	}
	for i, c := range s.chunks(d.ID) {
		if len(c.Keywords) == 0 || len(c.Questions) != 0 {
			t.Errorf("chunk %d: keywords %q should be counted, questions %q none", i, c.Keywords, c.Questions)
		}
	}
}

func TestWithoutAModelKeywordsAreCountedAndQuestionsRefused(t *testing.T) {
	s := start(t, nil)
	d := s.upload("garden.md", "text/markdown", `{"auto_keywords": 2}`, sections(3, nil))
	mustState(t, d, sheaf.DocSucceeded)
	for i, c := range s.chunks(d.ID) {
		if len(c.Keywords) != 2 {
			t.Errorf("chunk %d has the keywords %q", i, c.Keywords)
		}
	}
	for _, settings := range []string{`{"auto_questions": 2}`, `{"auto_context": true}`} {
		resp, b := s.request("POST", "/v1/datasets/default/documents?name=a.md&parser_config="+url.QueryEscape(settings), "# A", "Content-Type", "text/markdown")
		if resp.StatusCode/100 != 4 || !strings.Contains(string(b), "chat.url") {
			t.Errorf("%s: %s %s", settings, resp.Status, b)
		}
	}
}

func TestModelSumsUpSections(t *testing.T) {
	t.Parallel()
	long := "# Garden\n\n" + strings.Repeat("The landlord keeps the garden of the house in order and pays for what grows. ", 60)
	summaries := func(s *service) (out []sheaf.Chunk) {
		d := s.upload("garden.md", "text/markdown", `{"chunk_method": "hierarchical", "chunk_token_num": 128}`, long)
		mustState(t, d, sheaf.DocSucceeded)
		return slices.DeleteFunc(s.chunks(d.ID), func(c sheaf.Chunk) bool { return c.Role != sheaf.RoleSummary })
	}
	chat := newChatServer(t)
	s := start(t, chat.use)
	if got := summaries(s); len(got) != 1 || !strings.Contains(got[0].Text, "quokka") || got[0].Tokens < 5 || chat.asked() != 1 {
		t.Errorf("with a model: %+v", got)
	}
	if !s.finds("quokka") {
		t.Error("the summary is not found")
	}
	plain := start(t, nil)
	if got := summaries(plain); len(got) != 1 || !strings.Contains(got[0].Text, "The landlord keeps") {
		t.Errorf("without a model: %+v", got)
	}
}
