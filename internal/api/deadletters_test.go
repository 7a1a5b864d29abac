package api

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// A dead letter tells who tried what and when, how each attempt ended, what
// the parser said last, and where the bytes are; filters select it, a retry
// gives it another budget and a purge removes it.
func TestDeadLettersTellWhatHappened(t *testing.T) {
	k := newKeyedServer(t)
	ctx := t.Context()
	for _, name := range []string{"a.txt", "b.txt"} {
		if status, _, answer := k.post("/v1/datasets/files/documents?name="+name, "", "text/plain", "text of "+name); status != 202 {
			t.Fatalf("%d %s", status, answer)
		}
	}
	docs := k.documents()
	plan := func(doc int) string {
		ts, err := k.store.Tasks(ctx, sheaf.LocalTenant, docs[doc].ID, 0)
		if err != nil || len(ts) != 1 {
			t.Fatalf("%d tasks, %v", len(ts), err)
		}
		return ts[0].ID
	}
	attempt := func(id, worker string, f *sheaf.Failure) {
		t.Helper()
		task, err := k.store.Claim(ctx, id, worker, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.store.FailTask(ctx, task.Held(), sheaf.FailReport{Failure: *f, MaxFails: 2}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.store.PromoteDue(ctx, 10); err != nil {
			t.Fatal(err)
		}
	}
	first, second := plan(0), plan(1)
	crash := sheaf.FailRetryable(sheaf.CategoryCrash, "parser_crash", "The parser ended while it read the file.")
	crash.Detail = "panic: page 37\nmain.parse()"
	attempt(first, "host-1", crash)
	attempt(first, "host-2", crash)
	attempt(second, "host-1", sheaf.Fail(sheaf.CategoryBadInput, "invalid_text", "Binary data, not text."))

	get := func(path string, out any) {
		t.Helper()
		resp, err := http.Get(k.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode == 200 && out != nil {
			err = json.Unmarshal(b, out)
		}
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %s %s %v", path, resp.Status, b, err)
		}
	}
	listed := func(query string) (ids []string) {
		t.Helper()
		var l List[Task]
		get("/v1/dead-letters?"+query, &l)
		for _, task := range l.Items {
			ids = append(ids, task.ID)
		}
		return ids
	}
	for query, want := range map[string]string{
		"order=oldest": first + second, "category=parser_crash": first, "code=invalid_text": second, "kind=plan&category=bad_input": second, "kind=parse": "",
	} {
		if got := strings.Join(listed(query), ""); got != want {
			t.Errorf("dead letters of %s: %s, want %s", query, got, want)
		}
	}

	var h TaskHistory
	get("/v1/tasks/"+first, &h)
	if len(h.Tries) != 2 || h.Tries[0].Worker != "host-1" || h.Tries[0].Outcome != sheaf.EventFailed || h.Tries[1].Worker != "host-2" || h.Tries[1].Outcome != sheaf.EventDead {
		t.Fatalf("tries %+v, want a failed one of host-1 and the last one of host-2", h.Tries)
	}
	for i, try := range h.Tries {
		if try.StartedAt.IsZero() || try.EndedAt.IsZero() || try.Failure == nil || try.Failure.Detail != crash.Detail {
			t.Errorf("try %d lacks its times or the parser's last words: %+v", i, try)
		}
	}
	get(h.Content, nil)

	if status, _, answer := k.post("/v1/dead-letters:retry", "", "application/json", `{"category":"parser_crash"}`); status != 200 || !strings.Contains(string(answer), `"count":1`) {
		t.Fatalf("retry by filter: %d %s", status, answer)
	}
	if _, err := k.store.Fold(ctx, 10); err != nil { // its document ends: a task of one at work is part of its ledger
		t.Fatal(err)
	}
	if status, _, answer := k.post("/v1/dead-letters:purge", "", "application/json", `{"code":"invalid_text"}`); status != 200 || !strings.Contains(string(answer), `"count":1`) {
		t.Fatalf("purge: %d %s", status, answer)
	}
	if task, err := k.store.Task(ctx, sheaf.LocalTenant, first); err != nil || task.State != sheaf.TaskPending || task.FailCount != 0 {
		t.Errorf("after a retry: %+v, %v", task, err)
	}
}
