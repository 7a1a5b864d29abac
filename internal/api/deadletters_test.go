package api

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/blob/file"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/parser"
	"sheaf/parser/text"
	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
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
		if _, err := k.store.FailTask(ctx, task.Held(), taskstore.FailReport{Failure: *f, MaxFails: 2}); err != nil {
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

	for _, verb := range []string{"retry", "purge"} {
		for body, want := range map[string]string{`{"category":"parser_crash"}`: `"count":1,"dry_run":true`, `{"all":true}`: `"count":2,"dry_run":true`, `{"ids":[]}`: `"count":0,"dry_run":true`} {
			if verb == "purge" && want != `"count":0,"dry_run":true` {
				want = `"count":0,"dry_run":true` // their documents are still at work
			}
			if status, _, answer := k.post("/v1/dead-letters:"+verb+"?dry_run=true", "", "application/json", body); status != 200 || !strings.Contains(string(answer), want) {
				t.Errorf("dry run of a %s of %s: %d %s, want %s", verb, body, status, answer, want)
			}
		}
		if status, _, answer := k.post("/v1/dead-letters:"+verb, "", "application/json", `{}`); status != 400 || !strings.Contains(string(answer), "empty_filter") {
			t.Errorf("%s of nothing in particular: %d %s", verb, status, answer)
		}
	}
	if got := strings.Join(listed("order=oldest"), ""); got != first+second {
		t.Errorf("after dry runs %s are dead, want both", got)
	}
	// A document's or a job's dead tasks are selected by these alone.
	for body, want := range map[string]string{
		`{"document_id":"` + docs[0].ID + `"}`: `"count":1,"dry_run":true`, `{"job_id":"` + docs[1].JobID + `"}`: `"count":1,"dry_run":true`,
		`{"job_id":"` + docs[1].JobID + `","document_id":"` + docs[0].ID + `"}`: `"count":0,"dry_run":true`,
	} {
		if status, _, answer := k.post("/v1/dead-letters:retry?dry_run=true", "", "application/json", body); status != 200 || !strings.Contains(string(answer), want) {
			t.Errorf("dry run of a retry of %s: %d %s, want %s", body, status, answer, want)
		}
	}
	if got := strings.Join(listed("job="+docs[1].JobID), ""); got != second {
		t.Errorf("dead letters of the second job: %s, want %s", got, second)
	}
	if status, _, answer := k.post("/v1/dead-letters:retry", "", "application/json", `{"job_id":"`+docs[0].JobID+`"}`); status != 200 || !strings.Contains(string(answer), `"count":1`) {
		t.Fatalf("retry of a job's: %d %s", status, answer)
	}
	if _, _, err := k.store.Fold(ctx, 10, 0); err != nil { // its document ends: a task of one at work is part of its ledger
		t.Fatal(err)
	}
	if status, _, answer := k.post("/v1/dead-letters:purge", "", "application/json", `{"code":"invalid_text"}`); status != 200 || !strings.Contains(string(answer), `"count":1`) {
		t.Fatalf("purge: %d %s", status, answer)
	}
	if task, err := k.store.Task(ctx, sheaf.LocalTenant, first); err != nil || task.State != sheaf.TaskPending || task.FailCount != 0 {
		t.Errorf("after a retry: %+v, %v", task, err)
	}
}

// Operators see and act on the dead letters of all tenants; a tenant's own key
// never does.
func TestDeadLettersOfAllTenants(t *testing.T) {
	ctx := t.Context()
	store := storetest.Open(t, "sqlite")
	blobs, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	q := sqlqueue.New(store, sqlqueue.Config{})
	service := &ingest.Service{Catalog: store, Blobs: blobs, Queue: q, Formats: parser.NewRegistry(text.New()), Log: slog.New(slog.DiscardHandler)}
	srv := httptest.NewServer(New(Config{Catalog: store, Ingest: service, Blobs: blobs, Queue: q, Auth: true}).Handler())
	defer srv.Close()
	ask := func(key, method, path, contentType, body string, want int) []byte {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, srv.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s %s: %s %s %v, want %d", method, path, resp.Status, b, err, want)
		}
		return b
	}
	dead := map[string]string{} // by tenant
	for _, tenant := range []string{"alpha", "beta"} {
		if _, err := store.CreateTenant(ctx, sheaf.Tenant{ID: tenant, Name: tenant}); err != nil {
			t.Fatal(err)
		}
		for _, scope := range []string{"write", "admin"} {
			if err := store.CreateKey(ctx, sheaf.Key{ID: sheaf.NewID(), TenantID: tenant, Scopes: []string{scope}}, HashKey(tenant+scope)); err != nil {
				t.Fatal(err)
			}
		}
		ask(tenant+"write", http.MethodPost, "/v1/datasets", "application/json", `{"name":"files"}`, 201)
		var a SubmitAnswer
		if err := json.Unmarshal(ask(tenant+"write", http.MethodPost, "/v1/datasets/files/documents?name=a.txt", "text/plain", "of "+tenant, 202), &a); err != nil {
			t.Fatal(err)
		}
		ts, err := store.Tasks(ctx, tenant, a.Documents[0].ID, 0)
		if err != nil || len(ts) != 1 {
			t.Fatalf("%d tasks, %v", len(ts), err)
		}
		task, err := store.Claim(ctx, ts[0].ID, "w", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.FailTask(ctx, task.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryBadInput, "bad", "No.")}); err != nil {
			t.Fatal(err)
		}
		dead[tenant] = task.ID
	}
	listed := func(query string) (of string) {
		t.Helper()
		var l List[AnyTenantsTask]
		if err := json.Unmarshal(ask("alphaadmin", http.MethodGet, "/v1/admin/dead-letters?order=oldest&"+query, "", "", 200), &l); err != nil {
			t.Fatal(err)
		}
		for _, task := range l.Items {
			if task.ID != dead[task.TenantID] {
				t.Errorf("task %s is listed as %s's", task.ID, task.TenantID)
			}
			of += task.TenantID + " "
		}
		return of
	}
	for query, want := range map[string]string{"": "alpha beta ", "tenant=beta": "beta ", "code=other": "", "tenant=nobody": ""} {
		if got := listed(query); got != want {
			t.Errorf("dead letters of %q: %q, want %q", query, got, want)
		}
	}
	var h TaskHistory
	if err := json.Unmarshal(ask("alphaadmin", http.MethodGet, "/v1/admin/tenants/beta/tasks/"+dead["beta"], "", "", 200), &h); err != nil || len(h.Tries) != 1 {
		t.Errorf("the history of another tenant's task: %+v, %v", h, err)
	}
	for _, path := range []string{"/v1/admin/dead-letters", "/v1/admin/tenants/beta/tasks/" + dead["beta"]} {
		ask("alphawrite", http.MethodGet, path, "", "", 403)
	}
	for _, verb := range []string{"retry", "purge"} {
		ask("alphawrite", http.MethodPost, "/v1/admin/dead-letters:"+verb, "application/json", `{}`, 403)
		// The key's own tenant is all that the other route reaches, even for an admin.
		if b := ask("alphaadmin", http.MethodPost, "/v1/dead-letters:"+verb, "application/json", `{"ids":["`+dead["beta"]+`"]}`, 200); !strings.Contains(string(b), `"count":0`) {
			t.Errorf("%s of another tenant's task by the tenant's route: %s", verb, b)
		}
	}
	if b := ask("alphaadmin", http.MethodPost, "/v1/admin/dead-letters:retry", "application/json", `{"tenant_id":"beta"}`, 200); !strings.Contains(string(b), `"count":1`) {
		t.Errorf("retry of one tenant's: %s", b)
	}
	if got := listed(""); got != "alpha " {
		t.Errorf("after the retry %q are dead, want alpha's", got)
	}
	if _, _, err := store.Fold(ctx, 10, 0); err != nil {
		t.Fatal(err)
	}
	if b := ask("betaadmin", http.MethodPost, "/v1/admin/dead-letters:purge", "application/json", `{"code":"bad"}`, 200); !strings.Contains(string(b), `"count":1`) {
		t.Errorf("purge of all tenants': %s", b)
	}
	if got := listed(""); got != "" {
		t.Errorf("after the purge %q are dead", got)
	}
}

// A cleanup removes what is older than it is told, counts the same before it
// does, and is refused an age that would take what is at work.
func TestCleanupRemovesWhatIsOld(t *testing.T) {
	k := newKeyedServer(t)
	if status, _, answer := k.post("/v1/datasets/files/documents?name=a.txt", "", "text/plain", "text"); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	seqs := func() string { return strings.Join(k.column("SELECT seq FROM events ORDER BY seq"), " ") }
	young := seqs()
	k.exec("INSERT INTO events (seq, tenant_id, subject_id, kind, at) VALUES (0, 'local', 'old', 'message', 1)")
	clean := func(body string, want int) (c Cleaned) {
		t.Helper()
		status, _, answer := k.post("/v1/admin/cleanup", "", "application/json", body)
		if status != want {
			t.Fatalf("%s: %d %s, want %d", body, status, answer, want)
		}
		if err := json.Unmarshal(answer, &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	clean(`{"retention_seconds": 60}`, 400)
	before := seqs()
	would := clean(`{"dry_run": true}`, 200)
	if got := seqs(); got != before || !would.DryRun || would.Events != 1 {
		t.Errorf("a dry run says %+v and leaves the events %q of %q", would, got, before)
	}
	did := clean(`{}`, 200)
	if got := seqs(); got != young || did.DryRun || did.More || did.CleanupReport != would.CleanupReport {
		t.Errorf("it says %+v and leaves the events %q, want %q and the dry run's %+v", did, got, young, would)
	}
}

// One task is canceled by its id, counted before, and refused when it has ended.
func TestOneTaskIsCanceled(t *testing.T) {
	k := newKeyedServer(t)
	if status, _, answer := k.post("/v1/datasets/files/documents?name=a.txt", "", "text/plain", "text"); status != 202 {
		t.Fatalf("%d %s", status, answer)
	}
	ts, err := k.store.Tasks(t.Context(), sheaf.LocalTenant, k.documents()[0].ID, 0)
	if err != nil || len(ts) != 1 {
		t.Fatalf("%d tasks, %v", len(ts), err)
	}
	at := "/v1/tasks/" + ts[0].ID + ":cancel"
	for _, c := range []struct {
		path, says string
		status     int
	}{{at + "?dry_run=true", `"queued":1,"running":0,"dry_run":true`, 200}, {at, `"queued":1,"running":0}`, 200}, {at, "is canceled already", 409}, {"/v1/tasks/none:cancel", "none", 404}} {
		if status, _, answer := k.post(c.path, "", "", ""); status != c.status || !strings.Contains(string(answer), c.says) {
			t.Errorf("%s: %d %s, want %d %s", c.path, status, answer, c.status, c.says)
		}
	}
}
