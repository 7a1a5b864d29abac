package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/taskstore/storetest"
)

// TestEveryPartCanBeMixed runs the main job with such mixes of engines that
// every two choices meet in one of them.
func TestEveryPartCanBeMixed(t *testing.T) {
	for name, mix := range map[string]struct {
		store, queue, blob, index string
	}{
		"sqlite sql s3 elasticsearch":       {"sqlite", "sql", "s3", "elasticsearch"},
		"sqlite redis file embedded":        {"sqlite", "redis", "file", "embedded"},
		"mysql sql file elasticsearch":      {"mysql", "sql", "file", "elasticsearch"},
		"mysql redis s3 embedded":           {"mysql", "redis", "s3", "embedded"},
		"postgres sql s3 embedded":          {"postgres", "sql", "s3", "embedded"},
		"postgres redis file elasticsearch": {"postgres", "redis", "file", "elasticsearch"},
	} {
		t.Run(name, func(t *testing.T) {
			own := "mix" + sheaf.NewID()[20:]
			cfg := config.Default()
			cfg.DataDir = t.TempDir()
			cfg.Store.Driver, cfg.Queue.Driver, cfg.Blob.Driver, cfg.Index.Driver = mix.store, mix.queue, mix.blob, mix.index
			if mix.store != "sqlite" {
				engine(t, map[string]string{"mysql": "SHEAF_TEST_MYSQL_DSN", "postgres": "SHEAF_TEST_POSTGRES_DSN"}[mix.store])
				cfg.Store.DSN, cfg.Store.SecretsKey = config.Secret(storetest.Config(t, mix.store).DSN), testSecretsKey
			}
			if mix.queue == "redis" {
				cfg.Queue.Addrs, cfg.Queue.Prefix = []string{engine(t, "SHEAF_TEST_REDIS_ADDR")}, own+":"
			}
			if mix.blob == "s3" {
				cfg.Blob.Endpoint, cfg.Blob.Bucket = engine(t, "SHEAF_TEST_S3_ENDPOINT"), own
				cfg.Blob.AccessKey, cfg.Blob.SecretKey = config.Secret(os.Getenv("SHEAF_TEST_S3_ACCESS_KEY")), config.Secret(os.Getenv("SHEAF_TEST_S3_SECRET_KEY"))
			}
			if mix.index == "elasticsearch" {
				es := engine(t, "SHEAF_TEST_ES_URL")
				cfg.Index.Addrs, cfg.Index.Prefix = []string{es}, own
				t.Cleanup(func() { esDrop(t, es, own) })
			}
			s := startWith(t, cfg)
			job, docs := s.send(nil, text("herons.md", "# Herons\n\nHerons wait in shallow water until something moves.\n"), text("prices.csv", "bird,price\nheron,12\n"))
			if job.State != sheaf.DocSucceeded || !s.finds("Herons wait in shallow water") {
				t.Fatalf("the job ended %s, or its page is not found", job.State)
			}
			s.everyDependencyAnswers()
			if got := s.original(docs[1].ID); string(got) != "bird,price\nheron,12\n" {
				t.Errorf("the original reads %q", got)
			}
			if err := s.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+docs[0].ID, nil, nil); err != nil {
				t.Fatal(err)
			}
			if s.finds("Herons wait in shallow water") {
				t.Error("what was deleted is found")
			}
		})
	}
}

// everyDependencyAnswers asks /readyz.
func (s *service) everyDependencyAnswers() {
	s.t.Helper()
	resp, err := http.Get(s.base + "/readyz")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Dependencies map[string]struct {
			OK        bool
			LatencyMS *float64 `json:"latency_ms"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("/readyz: %s, %v", resp.Status, err)
	}
	for _, name := range []string{"store", "queue", "blobs", "index", "embedder"} {
		if d := answer.Dependencies[name]; !d.OK || d.LatencyMS == nil {
			s.t.Errorf("/readyz says of %s: %+v", name, d)
		}
	}
}
