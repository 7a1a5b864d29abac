package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"sheaf"
)

// A key's scope is held against the operation that an address leads to, and
// never against the address: every route, with every key, under names that are
// meant to be mistaken for something else.
func TestScopesBelongToRoutesWhateverNamesSay(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Auth = true })
	ctx := t.Context()
	keys := map[string]string{}
	for _, scope := range []string{"none", scopeRead, scopeWrite, scopeAdmin} {
		k := sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant}
		if scope != "none" {
			k.Scopes = []string{scope}
		}
		if err := s.store.CreateKey(ctx, k, HashKey("key-"+scope)); err != nil {
			t.Fatal(err)
		}
		keys[scope] = "key-" + scope
	}
	names := []string{
		"search", "doctor", "admin", "x:delete", "documents:delete", "documents", "datasets", "healthz", "v1", "metrics", "docs", "..", ".", "a b", "x:pause:resume",
		"%2e%2e", "/v1/search", "../../v1/search", "../search", "x/../../../healthz", "search?", "search#", "é:cancel", "x;y", "text/event-stream",
	}
	rank := map[string]int{"none": 0, scopeRead: 1, scopeWrite: 2, scopeAdmin: 3}
	tried := 0
	for pattern, rt := range s.api.table {
		method, path, _ := strings.Cut(rt.pattern, " ")
		for _, name := range names {
			if !strings.Contains(path, "{") && name != names[0] {
				continue
			}
			at := path
			for _, param := range []string{"ds", "doc", "job", "task", "tenant", "upload", "webhook", "range", "picture", "n", "key", "chunk", "edit", "flow", "receipt"} {
				at = strings.ReplaceAll(at, "{"+param+"}", url.PathEscape(name))
			}
			for scope, key := range keys {
				for _, accept := range []string{"*/*", "text/event-stream"} {
					if accept != "*/*" && !rt.stream {
						continue
					}
					status, b := s.ask(method, at, "", "X-Api-Key", key, "Accept", accept, "Tus-Resumable", tusVersion)
					tried++
					refused := status == http.StatusForbidden
					nowhere := status == http.StatusNotFound && strings.Contains(string(b), "There is nothing at ")
					// With names such as .. the address is another: the server leads
					// there (3xx), or nowhere, before anything is done.
					if clean := !strings.Contains(at, "/../") && !strings.Contains(at, "/./") && !strings.HasSuffix(at, "/..") && !strings.HasSuffix(at, "/."); !clean {
						if !refused && (status < 300 || status >= 500) {
							t.Errorf("%s %s with the scope %s answers %d: %s", method, at, scope, status, b)
						}
						continue
					}
					if weak := rank[scope] < rank[rt.scope]; weak && !refused && !nowhere || !weak && refused {
						t.Errorf("%s %s (%s, needs %s) with the scope %s answers %d: %s", method, at, pattern, rt.scope, scope, status, b)
					}
				}
			}
		}
	}
	if tried < 3000 {
		t.Errorf("only %d requests were tried", tried)
	}
}

// What a scope is needed for is written down once more here: a route that is
// made with the wrong one fails.
func TestEveryRouteDeclaresItsScope(t *testing.T) {
	s := newTestServer(t, nil)
	admin := []string{
		"POST /v1/doctor", "GET /v1/admin/dead-letters", "POST /v1/admin/dead-letters:purge", "POST /v1/admin/dead-letters:retry", "POST /v1/admin/cleanup",
		"POST /v1/index/migration", "POST /v1/index/rebuild",
		"GET /v1/admin/tenants/{tenant}/tasks/{task}", "GET /v1/admin/queues", "GET /v1/admin/tenants", "POST /v1/admin/tenants", "GET /v1/admin/tenants/{tenant}", "PATCH /v1/admin/tenants/{tenant}",
		"GET /v1/admin/tenants/{tenant}/keys", "POST /v1/admin/tenants/{tenant}/keys", "PATCH /v1/admin/tenants/{tenant}/keys/{key}", "DELETE /v1/admin/tenants/{tenant}/keys/{key}",
	}
	posts := []string{"POST /v1/search", "POST /v1/embeddings", "POST /v1/datasets/{ds}/search", "POST /v1/receipts:verify", "POST /v1/flows:validate"} // that read
	for _, rt := range s.api.table {
		method, path, _ := strings.Cut(rt.pattern, " ")
		want := scopeWrite
		switch {
		case slices.Contains(admin, rt.pattern):
			want = scopeAdmin
		case slices.Contains(posts, rt.pattern), method == "GET", method == "HEAD", method == "OPTIONS":
			want = scopeRead
		}
		if rt.scope != want {
			t.Errorf("%s needs %s, want %s", rt.pattern, rt.scope, want)
		}
		if strings.HasPrefix(path, "/v1/admin/") && rt.scope != scopeAdmin {
			t.Errorf("%s is for operators and needs %s", rt.pattern, rt.scope)
		}
	}
	for _, pattern := range s.api.mux.patterns {
		_, path, _ := strings.Cut(pattern, " ")
		if s.api.table[pattern] != nil {
			continue
		}
		public := []string{"/healthz", "/readyz", "/docs", "/metrics", "/openapi.json", "/openapi.yaml", "/openapi-3.0.json", "/openapi-3.0.yaml"}
		if !slices.Contains(public, path) {
			t.Errorf("%s is served to anybody", pattern)
		}
	}
}

// A read key could change and delete a dataset named search, since its address
// ends as that of a search does.
func TestAReadKeyOnlyReads(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Auth = true })
	for _, scope := range []string{scopeRead, scopeWrite} {
		if err := s.store.CreateKey(t.Context(), sheaf.Key{ID: sheaf.NewID(), TenantID: sheaf.LocalTenant, Scopes: []string{scope}}, HashKey(scope)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"search", "x:search", "search:pause"} {
		s.must(nil, "POST", "/v1/datasets", fmt.Sprintf(`{"name": %q}`, name), "Content-Type", asJSON, "X-Api-Key", scopeWrite)
		at := "/v1/datasets/" + url.PathEscape(name)
		for _, try := range [][3]string{
			{"DELETE", at, ""}, {"PATCH", at, `{"name": "taken"}`}, {"POST", at + ":pause", ""}, {"POST", at + "/documents:delete", `{"all": true}`}, {"POST", at + "/documents?name=a.txt", "text"},
			{"PUT", at + "/documents/" + sheaf.NewID() + "?name=search", "text"}, {"POST", at + "/documents%3Adelete", `{"all": true}`},
		} {
			if status, b := s.ask(try[0], try[1], try[2], "Content-Type", asJSON, "X-Api-Key", scopeRead); status != http.StatusForbidden {
				t.Errorf("%s %s answers %d to a read key: %s", try[0], try[1], status, b)
			}
		}
		s.must(nil, "POST", at+"/search", `{"query": "words", "mode": "text"}`, "Content-Type", asJSON, "X-Api-Key", scopeRead)
	}
	// What is none of the API's is open to everybody, and a name cannot make it so.
	for path, want := range map[string]int{
		"/": 200, "/datasets/search": 200, "/healthz": 200, "/v1": 404, "/v1/": 401, "/v1/datasets": 401, "/v1/nothing": 401, "//v1/datasets": 401, "/%76%31/datasets": 401, "/v1%2Fdatasets": 401,
	} {
		if status, b := s.ask("GET", path, ""); status != want {
			t.Errorf("GET %s without a key answers %d, want %d: %s", path, status, want, b)
		}
	}
}
