package config

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestSettingsComeFromFileEnvironmentAndFlagInThatOrder(t *testing.T) {
	path := t.TempDir() + "/sheaf.toml"
	write(t, path, "[store]\ndriver = \"mysql\"\ndsn = \"u:from-file@tcp(h)/d\"\n[executor]\nlease = \"90s\"\n[executor.task_timeout]\nparse = \"5m\"\n[executor.retry]\n\"dataflow/sum\" = \"attempts=8 max=30m jitter=0\"\n")
	secret := t.TempDir() + "/dsn"
	write(t, secret, "u:from-secret@tcp(h)/d\n")
	c, err := Load(path, []string{"SHEAF_STORE_DSN_FILE=" + secret, "SHEAF_EXECUTOR_WORKERS=7", "SHEAF_QUEUE_ADDRS=a:1, b:2", "UNRELATED=1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Store.Driver != "mysql" || c.Store.DSN.Reveal() != "u:from-secret@tcp(h)/d" || c.Executor.Workers != 7 || time.Duration(c.Executor.Lease) != 90*time.Second ||
		len(c.Queue.Addrs) != 2 || c.Queue.Addrs[1] != "b:2" || time.Duration(c.Executor.TaskTimeout["parse"]) != 5*time.Minute {
		t.Errorf("%+v", c)
	}
	if got, want := c.Executor.Retry["dataflow/sum"], (Retry{Attempts: 8, Max: Duration(30 * time.Minute), Jitter: -1}); got != want {
		t.Errorf("retry %+v, want %+v", got, want)
	}
	for _, bad := range []string{"parse", "parse=attempts=0", "parse=jitter=2", "parse=tries=3", "parse=base=soon"} {
		if err := c.Set("executor.retry", bad); err == nil {
			t.Errorf("executor.retry %q was taken", bad)
		}
	}
	if err := c.Set("executor.workers", "9"); err != nil || c.Executor.Workers != 9 {
		t.Errorf("Set: %v, %d", err, c.Executor.Workers)
	}
	for _, f := range Fields(&c) {
		if strings.Contains(f.String(), "from-secret") {
			t.Errorf("%s prints a secret", f.Name)
		}
		if again := f.Set(f.String()); again != nil && !f.Secret {
			t.Errorf("%s does not read what it prints: %v", f.Name, again)
		}
	}
	if err := c.Set("store.dirver", "x"); err == nil {
		t.Error("an unknown setting was taken")
	}
}

func TestTyposInTheFileAreRefused(t *testing.T) {
	path := t.TempDir() + "/sheaf.toml"
	write(t, path, "[store]\ndirver = \"mysql\"\n")
	if _, err := Load(path, nil); err == nil || !strings.Contains(err.Error(), "dirver") {
		t.Errorf("got %v", err)
	}
}

func TestOpenServersNeedKeys(t *testing.T) {
	c := Default()
	c.Server.Listen = "0.0.0.0:8080"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "server.auth") {
		t.Errorf("got %v", err)
	}
	c.Server.Auth = true
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A number of slots that no executor can have is refused where it is read, and
// the message names the setting.
func TestSlotsOfAnExecutor(t *testing.T) {
	for _, bad := range []func(e *Executor){func(e *Executor) { e.Batch = 0 }, func(e *Executor) { e.Batch = -4 }, func(e *Executor) { e.Workers = -1 }} {
		c := Default()
		bad(&c.Executor)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "executor.batch") || !strings.Contains(err.Error(), "executor.workers") {
			t.Errorf("workers %d, batch %d: got %v", c.Executor.Workers, c.Executor.Batch, err)
		}
	}
}

func TestRerankingNeedsAnAddressAndBounds(t *testing.T) {
	for name, change := range map[string]func(r *Rerank){
		"search.rerank.url":        func(r *Rerank) { r.URL = "api.jina.ai/v1/rerank" },
		"search.rerank.protocol":   func(r *Rerank) { r.Protocol = "voyage" },
		"search.rerank.budget":     func(r *Rerank) { r.Budget = Duration(time.Minute) },
		"search.rerank.candidates": func(r *Rerank) { r.Candidates = 0 },
	} {
		c := Default()
		c.Search.Rerank.URL, c.Search.Rerank.Protocol = "https://api.jina.ai/v1/rerank", "jina"
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c.Search.Rerank)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
