package e2e

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/taskstore"
)

// With dry_run=true a route that changes something says what it would do, or
// refuses the parameter: in no case does anything change in the database, the
// blob store or the index.
func TestDryRunChangesNothingOnAnyRoute(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *config.Config) { c.Server.Auth, c.Webhooks.Hosts = true, []string{"hooks.invalid"} })
	v := newVictim(s)
	operator := s.withKey("alpha", "admin")
	version := []string{"Authorization", "Bearer " + v.key, "Tus-Resumable", "1.0.0"}
	resp, b := v.request("POST", "/v1/datasets/vault/uploads", "whole", append(version, "Upload-Length", "5", "Upload-Metadata", "filename YS50eHQ=,hold", "Content-Type", "application/offset+octet-stream")...)
	whole := decodeAs[api.UploadStatus](t, b)
	if resp.StatusCode != http.StatusCreated || !whole.Complete {
		t.Fatalf("%s %s", resp.Status, b)
	}
	before := ""
	waitFor(t, "the tenant to come to rest", func() bool {
		last := before
		before = s.everythingOf("alpha")
		return last == before
	})
	doc, routes := s.routes()
	var tried, refused []string
	for _, r := range routes {
		reads := r.method == http.MethodGet || r.method == http.MethodHead || r.method == http.MethodOptions || r.method == "STREAM" || strings.HasSuffix(r.path, "/search")
		if reads {
			continue
		}
		values := map[string]any{
			"document_ids": []string{v.document}, "ids": []string{v.task}, "tag": "tried", "tenant_id": "alpha", "toml": victimsFlow("tried"), "name": "other", "expires_at": "2100-01-01T00:00:00Z", "url": "https://hooks.invalid/b", "repair": true, "state": []string{"dead"},
		}
		if strings.Contains(r.path, "uploads:submit") {
			values["ids"] = []string{whole.ID}
		}
		if strings.Contains(r.path, "/documents:") {
			delete(values, "state")
		}
		path := fill(r.path, "ds", "vault", "doc", v.document, "job", v.job, "task", v.task, "upload", v.upload, "webhook", v.webhook, "tenant", "alpha", "key", v.apiKey, "flow", v.flow) + "?dry_run=true"
		contentType, body := doc.body(r, values)
		if contentType == "application/octet-stream" {
			path += "&name=a.txt"
		}
		resp, answer := operator.ask(r.method, path, contentType, body)
		knows := slices.ContainsFunc(r.op.Parameters, func(p parameter) bool { return p.Name == "dry_run" })
		switch {
		case r.path == "/v1/tasks/{task}:cancel" && resp.StatusCode == http.StatusConflict: // the task is dead
		case r.path == "/v1/index/migration" && resp.StatusCode == http.StatusConflict: // the index is of the configured model
		case knows && resp.StatusCode/100 != 2:
			t.Errorf("%s %s %s was not tried: %d %s", r.method, path, body, resp.StatusCode, answer)
		case knows:
			tried = append(tried, r.method+" "+r.path)
		case resp.StatusCode != http.StatusBadRequest || !strings.Contains(answer, "dry_run"):
			t.Errorf("%s %s does not know dry_run and answers %d %s", r.method, path, resp.StatusCode, answer)
		default:
			refused = append(refused, r.method+" "+r.path)
		}
		if after := s.everythingOf("alpha"); after != before {
			t.Fatalf("%s %s changed something: %d %s", r.method, path, resp.StatusCode, answer)
		}
	}
	if len(tried) < 14 || len(refused) < 10 {
		t.Errorf("%d routes know dry_run: %q\n%d refuse it: %q", len(tried), tried, len(refused), refused)
	}
	for _, route := range []string{"DELETE /v1/datasets/{ds}", "DELETE /v1/datasets/{ds}/documents/{doc}", "POST /v1/dead-letters:purge"} {
		if !slices.Contains(tried, route) {
			t.Errorf("%s does not know dry_run", route)
		}
	}
	// What they say is what happens then.
	type deletion struct {
		taskstore.DeleteReceipt
		Forecast *struct{ Documents int }
	}
	ask := func(method, path, body string) string {
		t.Helper()
		resp, answer := operator.ask(method, path, "application/json", []byte(body))
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, answer)
		}
		return answer
	}
	for _, verb := range []string{"retry", "purge"} {
		selection := `{"ids": ["` + v.task + `"]}`
		if verb == "purge" {
			selection = `{"all": true}`
		}
		would := decodeAs[api.Count](t, []byte(ask("POST", "/v1/dead-letters:"+verb+"?dry_run=true", selection)))
		did := decodeAs[api.Count](t, []byte(ask("POST", "/v1/dead-letters:"+verb, selection)))
		if would.Count != did.Count || !would.DryRun || did.DryRun {
			t.Errorf("%s: a dry run says %+v, then it is %+v", verb, would, did)
		}
	}
	for _, path := range []string{"/v1/datasets/vault/documents/" + v.document, "/v1/datasets/vault"} {
		var would, did deletion
		if err := json.Unmarshal([]byte(ask("DELETE", path+"?dry_run=true", "")), &would); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(ask("DELETE", path, "")), &did); err != nil {
			t.Fatal(err)
		}
		if would.Forecast == nil || would.Documents != 0 || would.Forecast.Documents != did.Documents {
			t.Errorf("%s: a dry run says %+v, then it is %+v", path, would, did)
		}
	}
}
