package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// operators are a server with keys and two tenants, and a way to ask it.
func operators(t *testing.T) (s *testServer, ask func(key, method, path, body string) (int, string)) {
	t.Helper()
	s = newTestServer(t, func(c *Config) { c.Auth = true })
	for _, tenant := range []string{"alpha", "beta"} {
		if _, err := s.store.CreateTenant(t.Context(), sheaf.Tenant{ID: tenant, Name: tenant}); err != nil {
			t.Fatal(err)
		}
		for _, scope := range []string{"write", "admin"} {
			if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: tenant + "-" + scope, TenantID: tenant, Scopes: []string{scope}}, HashKey(tenant+scope)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.store.CreateDataset(t.Context(), sheaf.Dataset{TenantID: tenant, Name: "files"}); err != nil {
			t.Fatal(err)
		}
	}
	return s, func(key, method, path, body string) (int, string) {
		t.Helper()
		headers := []string{"X-Api-Key", key}
		if body != "" {
			headers = append(headers, "Content-Type", asJSON)
		}
		status, b := s.ask(method, path, body, headers...)
		return status, string(b)
	}
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestTenantsAreChangedAfterTheyAreMade(t *testing.T) {
	s, ask := operators(t)
	status, b := ask("alphaadmin", "POST", "/v1/admin/tenants", `{"id": "gamma", "weight": 2, "quota": {"documents": 3, "bytes": 0, "queued_tasks": 0}}`)
	made := decode[sheaf.Tenant](t, b)
	if status != http.StatusCreated || made.Name != "gamma" || made.Weight != 2 || made.Cap != 0 || made.Quota.Documents != 3 {
		t.Fatalf("%d %s", status, b)
	}
	if _, err := s.store.Dataset(t.Context(), "gamma", "default"); err != nil {
		t.Errorf("a new tenant has no dataset: %v", err)
	}
	// Made twice, it says so, and stays as it is.
	status, b = ask("alphaadmin", "POST", "/v1/admin/tenants", `{"id": "gamma", "weight": 9}`)
	if p := s.problem("a tenant made twice", []byte(b)); status != 409 || p.Detail != "There is a tenant gamma already; change it, or choose another id" {
		t.Errorf("%d %s", status, b)
	}
	for _, id := range []string{"a/b", "..", ".a", "", "a b", strings.Repeat("x", 65)} {
		if status, b := ask("alphaadmin", "POST", "/v1/admin/tenants", fmt.Sprintf(`{"id": %q}`, id)); status != 400 {
			t.Errorf("the id %q: %d %s", id, status, b)
		}
	}

	patch := "/v1/admin/tenants/gamma"
	for _, c := range []struct {
		body string
		want sheaf.Tenant
	}{
		{`{}`, sheaf.Tenant{Name: "gamma", Weight: 2, Quota: sheaf.Quota{Documents: 3}}},
		{`{"weight": 5}`, sheaf.Tenant{Name: "gamma", Weight: 5, Quota: sheaf.Quota{Documents: 3}}},
		{`{"cap": 1, "name": "Gamma Ltd"}`, sheaf.Tenant{Name: "Gamma Ltd", Weight: 5, Cap: 1, Quota: sheaf.Quota{Documents: 3}}},
		{`{"quota": {"bytes": 100}}`, sheaf.Tenant{Name: "Gamma Ltd", Weight: 5, Cap: 1, Quota: sheaf.Quota{Documents: 3, Bytes: 100}}},
		{`{"quota": {"documents": 0, "queued_tasks": 7}, "paused": true}`, sheaf.Tenant{Name: "Gamma Ltd", Weight: 5, Cap: 1, Paused: true, Quota: sheaf.Quota{Bytes: 100, QueuedTasks: 7}}},
		{`{"paused": false}`, sheaf.Tenant{Name: "Gamma Ltd", Weight: 5, Cap: 1, Quota: sheaf.Quota{Bytes: 100, QueuedTasks: 7}}},
		{`{"cap": 0}`, sheaf.Tenant{Name: "Gamma Ltd", Weight: 5, Quota: sheaf.Quota{Bytes: 100, QueuedTasks: 7}}},
	} {
		before, err := s.store.Tenant(t.Context(), "gamma")
		if err != nil {
			t.Fatal(err)
		}
		c.want.ID, c.want.CreatedAt = "gamma", before.CreatedAt
		status, b := ask("alphaadmin", "PATCH", patch+"?dry_run=true", c.body)
		if would := decode[ChangedTenant](t, b); status != 200 || !would.DryRun || would.Tenant != c.want {
			t.Errorf("dry run of %s: %d %s", c.body, status, b)
		}
		if after, err := s.store.Tenant(t.Context(), "gamma"); err != nil || *after != *before {
			t.Errorf("a dry run of %s changed the tenant to %+v, %v", c.body, after, err)
		}
		status, b = ask("alphaadmin", "PATCH", patch, c.body)
		if is := decode[ChangedTenant](t, b); status != 200 || is.DryRun || is.Tenant != c.want {
			t.Errorf("%s: %d %s", c.body, status, b)
		}
		if after, err := s.store.Tenant(t.Context(), "gamma"); err != nil || *after != c.want {
			t.Errorf("%s left %+v, %v", c.body, after, err)
		}
	}
	for body, says := range map[string]string{
		`{"weight": 0}`: "weight", `{"cap": -1}`: "cap", `{"weight": null}`: "weight is null", `{"quota": null}`: "quota is null", `{"quota": {"bytes": null}}`: "bytes is null", `{"quota": {"documents": -1}}`: "quota.documents", `{"quota": {"docs": 1}}`: "documents", `{"id": "delta"}`: `"id"`,
		`{"paused": "yes"}`: "paused", `{"waight": 2}`: "weight",
	} {
		if status, b := ask("alphaadmin", "PATCH", patch, body); status != 400 || !strings.Contains(s.problem(body, []byte(b)).Detail, says) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
	for _, at := range []string{"GET /v1/admin/tenants/nobody", "GET /v1/admin/tenants/nobody/keys", "DELETE /v1/admin/tenants/alpha/keys/beta-write"} {
		method, path, _ := strings.Cut(at, " ")
		if status, b := ask("alphaadmin", method, path, ""); status != 404 {
			t.Errorf("%s: %d %s", at, status, b)
		}
	}
	if status, b := ask("alphaadmin", "PATCH", "/v1/admin/tenants/nobody", `{"paused": true}`); status != 404 {
		t.Errorf("a tenant that does not exist: %d %s", status, b)
	}
	if status, b := ask("alphawrite", "PATCH", patch, `{"weight": 5}`); status != 403 {
		t.Errorf("a key without the scope: %d %s", status, b)
	}
}

// A changed quota applies to the next upload, and a pause what the
// next task is.
func TestChangesOfATenantHoldForTheNextRequest(t *testing.T) {
	s, ask := operators(t)
	change := func(body string) {
		t.Helper()
		if status, b := ask("betaadmin", "PATCH", "/v1/admin/tenants/alpha", body); status != 200 {
			t.Fatalf("%s: %d %s", body, status, b)
		}
	}
	upload := func(want int) {
		t.Helper()
		if status, b := s.ask("POST", "/v1/datasets/files/documents?name=a.txt", "Words "+sheaf.NewID(), "Content-Type", "text/plain", "X-Api-Key", "alphawrite"); status != want {
			t.Fatalf("%d, want %d: %s", status, want, b)
		}
	}
	upload(202)
	change(`{"quota": {"documents": 1}}`)
	upload(429)
	change(`{"quota": {"documents": 2}}`)
	upload(202)
	upload(429)
	change(`{"quota": {"documents": 0, "queued_tasks": 2}}`)
	upload(429)
	change(`{"quota": {"queued_tasks": 0, "bytes": 1}}`)
	upload(429)
	change(`{"quota": {"bytes": 0}}`)
	upload(202)
	if status, b := ask("betaadmin", "GET", "/v1/admin/tenants/alpha", ""); status != 200 || decode[TenantAnswer](t, b).Holds.Documents != 3 {
		t.Errorf("what the tenant holds: %d %s", status, b)
	}

	// The queue of each tenant, for one who may see all; others see their own.
	queues := func(key, path string) (of []string) {
		t.Helper()
		for cursor := ""; ; {
			status, b := ask(key, "GET", path+cursor, "")
			l := decode[List[taskstore.TenantQueue]](t, b)
			if status != 200 {
				t.Fatalf("%s: %d %s", path, status, b)
			}
			for _, q := range l.Items {
				of = append(of, fmt.Sprint(q.TenantID, " ", q.Lanes[1].Pending))
			}
			if l.NextCursor == nil {
				return of
			}
			cursor = "&cursor=" + *l.NextCursor
		}
	}
	for _, limit := range []string{"1", "2", "50"} {
		if of := queues("betaadmin", "/v1/admin/queues?limit="+limit); !slices.Equal(of, []string{"alpha 3", "beta 0", "local 0"}) {
			t.Errorf("%s queues a page: %q", limit, of)
		}
	}
	if of := queues("betaadmin", "/v1/queues"); !slices.Equal(of, []string{"beta 0"}) {
		t.Errorf("the queue of the key's tenant: %q", of)
	}
	if status, b := ask("alphawrite", "GET", "/v1/admin/queues", ""); status != 403 {
		t.Errorf("a key without the scope sees all: %d %s", status, b)
	}

	// Held and freed.
	runnable := func() int {
		t.Helper()
		hints, err := s.store.Runnable(t.Context(), "alpha", 10, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return len(hints)
	}
	change(`{"paused": true}`)
	if n := runnable(); n != 0 {
		t.Errorf("%d tasks of a tenant on hold may run", n)
	}
	change(`{"paused": false}`)
	if n := runnable(); n != 3 {
		t.Errorf("%d tasks may run, want 3", n)
	}
	change(`{"weight": 7, "cap": 2}`)
	loads, err := s.store.RunnableTenants(t.Context())
	if err != nil || !slices.Equal(loads, []taskstore.TenantLoad{{TenantID: "alpha", Weight: 7, Cap: 2}}) {
		t.Errorf("what the queue goes by: %+v, %v", loads, err)
	}
}

func TestKeysAreChangedAndRevoked(t *testing.T) {
	s, ask := operators(t)
	const key = "/v1/admin/tenants/alpha/keys/alpha-write"
	may := func(want int) {
		t.Helper()
		if status, b := ask("alphawrite", "POST", "/v1/datasets", `{"name": "`+sheaf.NewID()+`"}`); status != want {
			t.Fatalf("a request with the key: %d, want %d: %s", status, want, b)
		}
	}
	may(201)
	if status, b := ask("betaadmin", "PATCH", key+"?dry_run=true", `{"scopes": ["read"], "name": "reader"}`); status != 200 || !decode[ChangedKey](t, b).DryRun || decode[ChangedKey](t, b).Name != "reader" {
		t.Errorf("%d %s", status, b)
	}
	may(201)
	if status, b := ask("betaadmin", "PATCH", key, `{"scopes": ["read"], "name": "reader"}`); status != 200 || strings.Contains(b, "dry_run") || strings.Contains(b, HashKey("alphawrite")) {
		t.Errorf("%d %s", status, b)
	}
	may(403)
	for body, says := range map[string]string{`{"scopes": []}`: "scopes", `{"scopes": ["writes"]}`: "write", `{"scopes": null}`: "null", `{"tenant_id": "beta"}`: "tenant_id"} {
		if status, b := ask("betaadmin", "PATCH", key, body); status != 400 || !strings.Contains(s.problem(body, []byte(b)).Detail, says) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
	if status, _ := ask("betaadmin", "PATCH", key, `{"scopes": ["write"]}`); status != 200 {
		t.Errorf("%d", status)
	}
	may(201)
	if status, b := ask("betaadmin", "DELETE", key+"?dry_run=true", ""); status != 200 || !decode[ChangedKey](t, b).DryRun {
		t.Errorf("%d %s", status, b)
	}
	may(201)
	for range 2 {
		if status, b := ask("betaadmin", "DELETE", key, ""); status != 200 || decode[ChangedKey](t, b).RevokedAt.IsZero() {
			t.Errorf("%d %s", status, b)
		}
	}
	may(401)
	if status, b := ask("betaadmin", "PATCH", key, `{"name": "again"}`); status != 409 || !strings.Contains(b, "is revoked") {
		t.Errorf("a revoked key: %d %s", status, b)
	}
	// Nobody locks themselves out.
	own := "/v1/admin/tenants/beta/keys/beta-admin"
	for _, try := range [][3]string{{"DELETE", own, ""}, {"DELETE", own + "?dry_run=true", ""}, {"PATCH", own, `{"scopes": ["write"]}`}} {
		if status, b := ask("betaadmin", try[0], try[1], try[2]); status != 409 || !strings.Contains(b, "use another key") {
			t.Errorf("%q: %d %s", try, status, b)
		}
	}
	if status, b := ask("betaadmin", "PATCH", own, `{"scopes": ["admin", "write"], "name": "boss"}`); status != 200 {
		t.Errorf("%d %s", status, b)
	}
	status, b := ask("betaadmin", "GET", "/v1/admin/tenants/beta/keys?order=oldest", "")
	l := decode[List[sheaf.Key]](t, b)
	if status != 200 || len(l.Items) != 2 || l.Items[0].Name != "boss" || !slices.Equal(l.Items[0].Scopes, []string{"write", "admin"}) {
		t.Errorf("%d %s", status, b)
	}
}

func TestKeysAreCreated(t *testing.T) {
	log := &lockedBuffer{}
	s := newTestServer(t, func(c *Config) { c.Auth, c.Log = true, log.logger() })
	if _, err := s.store.CreateTenant(t.Context(), sheaf.Tenant{ID: "alpha", Name: "alpha"}); err != nil {
		t.Fatal(err)
	}
	for _, scope := range []string{"write", "admin"} {
		if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: "alpha-" + scope, TenantID: "alpha", Scopes: []string{scope}}, HashKey("alpha"+scope)); err != nil {
			t.Fatal(err)
		}
	}
	const keys = "/v1/admin/tenants/alpha/keys"
	ask := func(key, method, path, body string, headers ...string) (int, string) {
		t.Helper()
		status, b := s.ask(method, path, body, append(headers, "X-Api-Key", key, "Content-Type", asJSON)...)
		return status, string(b)
	}
	count := func() int {
		all, _, err := s.store.Keys(t.Context(), "alpha", taskstore.Page{})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	soon, past := time.Now().Add(time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for body, says := range map[string]string{
		`{"scopes": ["root"]}`: "admin", `{"scopes": []}`: "scopes", `{"expires_at": "` + past + `"}`: "past", `{"expires_at": "tomorrow"}`: "expires_at", `{"nme": "x"}`: "name",
	} {
		if status, b := ask("alphaadmin", "POST", keys, body); status != 400 || !strings.Contains(s.problem(body, []byte(b)).Detail, says) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
	if status, b := ask("alphaadmin", "POST", "/v1/admin/tenants/nobody/keys", `{}`); status != 404 {
		t.Errorf("%d %s", status, b)
	}
	if status, b := ask("alphawrite", "POST", keys, `{"scopes": ["admin"]}`); status != 403 {
		t.Errorf("a key without admin makes one with it: %d %s", status, b)
	}
	if status, b := ask("alphaadmin", "POST", keys+"?dry_run=true", `{"name": "ci", "expires_at": "`+soon+`"}`); status != 201 || !decode[CreatedKey](t, b).DryRun || decode[CreatedKey](t, b).Secret != "" || count() != 2 {
		t.Errorf("%d %s", status, b)
	}
	status, b := ask("alphaadmin", "POST", keys, `{"name": "ci", "scopes": ["read"], "expires_at": "`+soon+`"}`, "Idempotency-Key", "once")
	made := decode[CreatedKey](t, b)
	if status != 201 || made.Name != "ci" || !slices.Equal(made.Scopes, []string{"read"}) || made.ExpiresAt.Format(time.RFC3339) != soon || !strings.HasPrefix(made.Secret, "sheaf_") || len(made.Secret) < 60 {
		t.Fatalf("%d %s", status, b)
	}
	if status, b := ask(made.Secret, "GET", "/v1/datasets", ""); status != 200 {
		t.Errorf("the new key: %d %s", status, b)
	}
	if status, b := ask(made.Secret, "POST", "/v1/datasets", `{"name": "x"}`); status != 403 {
		t.Errorf("it may read alone: %d %s", status, b)
	}
	// The secret is nowhere else: not in a repeated answer, the list or the log.
	for _, again := range [][2]string{{"POST", `{"name": "ci", "scopes": ["read"], "expires_at": "` + soon + `"}`}, {"GET", ""}} {
		if status, b := ask("alphaadmin", again[0], keys, again[1], "Idempotency-Key", "once"); status/100 != 2 || !strings.Contains(b, made.ID) || strings.Contains(b, made.Secret) {
			t.Errorf("%s: %d %s", again[0], status, b)
		}
	}
	if count() != 3 || strings.Contains(s.dump(), made.Secret) {
		t.Error("the store holds the secret, or another key")
	}
	if text := log.String(); !strings.Contains(text, `"audit":"key.created"`) || !strings.Contains(text, made.ID) || !strings.Contains(text, `"by":"alpha-admin"`) || strings.Contains(text, made.Secret) {
		t.Errorf("the log: %s", text)
	}
	if status, b := ask("alphaadmin", "POST", keys, `{}`); status != 201 || !slices.Equal(decode[CreatedKey](t, b).Scopes, []string{"write"}) || strings.Contains(b, "expires_at") {
		t.Errorf("%d %s", status, b)
	}
}

// A dataset has a name: null does not take it away.
func TestDatasetKeepsItsName(t *testing.T) {
	s, ask := operators(t)
	for _, body := range []string{`{"name": null}`, `{"name": ""}`} {
		if status, b := ask("alphawrite", "PATCH", "/v1/datasets/files", body); status != 400 || !strings.Contains(s.problem(body, []byte(b)).Detail, "name") {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
	if d, err := s.store.Dataset(t.Context(), "alpha", "files"); err != nil || d.Name != "files" {
		t.Errorf("%+v, %v", d, err)
	}
}
