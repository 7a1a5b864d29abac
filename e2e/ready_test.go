package e2e

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"sheaf/chaos/proxy"
	"sheaf/internal/api"
)

// Each engine of a fleet is taken away in turn: what does not need it goes on,
// and readiness says so.
func TestServiceIsReadyForWhatItCanDo(t *testing.T) {
	t.Parallel()
	cfg := fleetConfig(t)
	proxies := map[string]*proxy.Proxy{}
	front := func(name, target string) string {
		t.Helper()
		p, err := proxy.Start(target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		proxies[name] = p
		return p.Addr()
	}
	inURL := func(name, address string) string {
		t.Helper()
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.Host = front(name, u.Host)
		return u.String()
	}
	vectors, _ := vectorServer(t)
	cfg.Queue.Driver, cfg.Queue.Addrs, cfg.Queue.Prefix = "redis", []string{front("queue", engine(t, "SHEAF_TEST_REDIS_ADDR"))}, cfg.Blob.Bucket+":"
	cfg.Blob.Endpoint = inURL("blobs", cfg.Blob.Endpoint)
	cfg.Index.Addrs = []string{inURL("index", cfg.Index.Addrs[0])}
	cfg.Embed.Driver, cfg.Embed.URL, cfg.Embed.Model = "openai", inURL("embedder", vectors), "words"
	s := startWith(t, cfg)
	s.send(nil, text("a.md", "# Herons\n\nHerons wait in shallow water until something moves.\n"))
	readiness := func(role api.Role) (r api.Readiness, status int) {
		t.Helper()
		resp, err := http.Get(s.base + "/readyz?role=" + string(role))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
			t.Fatal(err)
		}
		return r, resp.StatusCode
	}
	for name, p := range proxies {
		p.Set(proxy.Cut, 0)
		waitFor(t, name+" to be missed", func() bool { r, _ := readiness(api.RoleServe); return !r.Dependencies[name].OK })
		r, status := readiness(api.RoleServe)
		if status != http.StatusOK || r.Status != api.Degraded || r.Dependencies[name].Error == "" {
			t.Errorf("without %s the API is %s (%d): %+v", name, r.Status, status, r.Dependencies[name])
		}
		if r, status := readiness(api.RoleExecutor); (status == 503) != (name == "queue" || name == "blobs") {
			t.Errorf("without %s an executor is %s (%d)", name, r.Status, status)
		}
		if r.Capabilities[api.CanUpload].OK {
			resp, b := s.request("POST", "/v1/datasets/default/documents?name="+name+".txt", "Said while the "+name+" was away.")
			if resp.StatusCode != http.StatusAccepted {
				t.Errorf("without %s an upload is answered %s: %s", name, resp.Status, b)
			}
		}
		if r.Capabilities[api.CanSearch].OK && !s.finds("Herons wait in shallow water") {
			t.Errorf("without %s nothing is found", name)
		}
		p.Set(proxy.Pass, 0)
		waitFor(t, name+" to be back", func() bool { r, _ := readiness(api.RoleServe); return r.Status == api.Ready })
	}
	waitFor(t, "what was uploaded meanwhile", func() bool { return s.finds("Said while the index was away") })
}
