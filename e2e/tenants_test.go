package e2e

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// Tenants and keys are changed at the command line, in the store that the
// server reads.
func TestTenantsAndKeysAreChangedAtTheCommandLine(t *testing.T) {
	t.Setenv("SHEAF_DATA_DIR", t.TempDir())
	run := func(code int, args ...string) ending {
		t.Helper()
		o := typed{ctx: t.Context()}.run(args...)
		if o.code != code {
			t.Fatalf("sheaf %s ends with %d, want %d: %s%s", strings.Join(args, " "), o.code, code, o.out, o.err)
		}
		return o
	}
	tenant := func() sheaf.Tenant {
		t.Helper()
		return decodeAs[api.TenantAnswer](t, []byte(run(0, "tenant", "show", "acme", "--json").out)).Tenant
	}
	run(0, "tenant", "create", "acme", "--weight", "2", "--max-documents", "100")
	made := tenant()
	if made.Weight != 2 || made.Cap != 0 || made.Name != "acme" || made.Quota != (sheaf.Quota{Documents: 100}) {
		t.Fatalf("made %+v", made)
	}
	o := run(exitBusy, "tenant", "create", "acme")
	if !strings.Contains(o.err, "there is a tenant acme already") || !strings.Contains(o.err, "`sheaf tenant set acme` changes it.") || strings.Contains(strings.ToLower(o.err), "constraint") {
		t.Errorf("a tenant made twice: %s", o.err)
	}
	// A server that the environment names is not the store of the usual folder either.
	t.Setenv("SHEAF_URL", "http://127.0.0.1:1")
	run(0, "tenant", "list")
	dir := os.Getenv("SHEAF_DATA_DIR")
	t.Setenv("SHEAF_DATA_DIR", "")
	if o := (typed{}).run("tenant", "list"); o.code != exitUsage || !strings.Contains(o.err, "SHEAF_URL names one") {
		t.Errorf("with SHEAF_URL: %d %s", o.code, o.err)
	}
	run(0, "tenant", "list", "--data-dir", dir)
	t.Setenv("SHEAF_URL", "")
	t.Setenv("SHEAF_DATA_DIR", dir)
	if o := run(0, "tenant", "list", "--set", "embed.api_key=hushed"); !strings.Contains(o.err, "SHEAF_EMBED_API_KEY_FILE") || strings.Contains(o.err, "hushed") {
		t.Errorf("a secret on the command line: %s", o.err)
	}
	for _, wrong := range [][]string{
		{"tenant", "create", "a/b"}, {"tenant", "create", "b", "--cap", "-1"}, {"tenant", "set", "acme"}, {"tenant", "set", "acme", "--weight", "0"}, {"tenant", "set", "acme", "--pause", "--resume"},
		{"tenant", "set", "acme", "--max-bytes", "-1"}, {"key", "set", "acme", "x"}, {"key", "set", "acme", "x", "--scope", "root"},
		{"tenant", "list", "--server", "http://127.0.0.1:1"}, {"tenant", "set", "acme", "--cap", "1", "--server", "http://127.0.0.1:1"}, {"key", "create", "acme", "--server", "http://127.0.0.1:1"},
		{"migrate", "--dry-run", "--server", "http://127.0.0.1:1"}, {"tenant", "create", "b", "--dry-run", "--server", "http://127.0.0.1:1"},
	} {
		if o := run(exitUsage, wrong...); o.err == "" {
			t.Errorf("%q says nothing", wrong)
		}
	}
	if now := tenant(); now != made {
		t.Errorf("what was refused changed the tenant to %+v", now)
	}
	change := []string{"tenant", "set", "acme", "--weight", "5", "--cap", "3", "--max-documents", "0", "--max-bytes", "1000", "--name", "Acme Ltd", "--pause"}
	want := made
	want.Weight, want.Cap, want.Name, want.Paused, want.Quota = 5, 3, "Acme Ltd", true, sheaf.Quota{Bytes: 1000}
	if would := decodeAs[api.ChangedTenant](t, []byte(run(0, append(change, "--dry-run", "--json")...).out)); !would.DryRun || would.Tenant != want {
		t.Errorf("the dry run says %+v", would)
	}
	if now := tenant(); now != made {
		t.Errorf("a dry run changed the tenant to %+v", now)
	}
	run(0, change...)
	if now := tenant(); now != want {
		t.Errorf("changed to %+v, want %+v", now, want)
	}
	run(0, "tenant", "set", "acme", "--resume", "--max-queued", "7")
	want.Paused, want.Quota.QueuedTasks = false, 7
	if now := tenant(); now != want {
		t.Errorf("changed to %+v, want %+v", now, want)
	}
	if o := run(0, "tenant", "list"); !strings.Contains(o.out, "Acme Ltd") || !strings.Contains(o.out, "MAX QUEUED") {
		t.Errorf("the list: %s", o.out)
	}
	for _, line := range []string{"tenant set nobody --pause", "tenant set nobody --pause --dry-run", "tenant show nobody", "key list nobody", "key create nobody"} {
		if o := run(exitNotFound, strings.Fields(line)...); !strings.Contains(o.err, "`sheaf tenant create nobody` creates this one") {
			t.Errorf("sheaf %s: %s", line, o.err)
		}
	}

	id := decodeAs[struct{ ID string }](t, []byte(run(0, "key", "create", "acme", "--json").out)).ID
	key := func() sheaf.Key {
		t.Helper()
		return decodeAs[api.List[sheaf.Key]](t, []byte(run(0, "key", "list", "acme", "--json").out)).Items[0]
	}
	run(0, "key", "set", "acme", id, "--scope", "read", "--name", "dashboard", "--dry-run")
	if k := key(); k.Name != "" || !slices.Equal(k.Scopes, []string{"write"}) {
		t.Errorf("a dry run changed the key to %+v", k)
	}
	run(0, "key", "set", "acme", id, "--scope", "read", "--name", "dashboard")
	if k := key(); k.Name != "dashboard" || !slices.Equal(k.Scopes, []string{"read"}) {
		t.Errorf("changed to %+v", k)
	}
	if o := run(exitUsage, "key", "revoke", "acme", id); !strings.Contains(o.err, "dashboard, read") || !strings.Contains(o.err, "--yes") {
		t.Errorf("without --yes: %s", o.err)
	}
	run(0, "key", "revoke", "acme", id, "--dry-run")
	if k := key(); !k.RevokedAt.IsZero() {
		t.Error("the key is revoked without a confirmation")
	}
	run(0, "key", "revoke", "acme", id, "--yes")
	if k := key(); k.RevokedAt.IsZero() {
		t.Error("the key is not revoked")
	}
	run(exitBusy, "key", "set", "acme", id, "--name", "again")
	if o := run(exitNotFound, "key", "revoke", "acme", "nothing", "--yes"); !strings.Contains(o.err, "`sheaf key list acme` lists the keys") {
		t.Errorf("a key that does not exist: %s", o.err)
	}
}

// The queues of all tenants are for a key with the scope admin.
func TestQueueStatsOfAllTenants(t *testing.T) {
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	writer, admin := s.tenant("alpha", "write", sheaf.Quota{}), s.tenant("beta", "admin", sheaf.Quota{})
	if o := admin.must("queue", "stats", "--all-tenants"); !strings.Contains(o.out, "alpha") || !strings.Contains(o.out, "beta") {
		t.Errorf("%s", o.out)
	}
	if o := writer.must("queue", "stats"); !strings.Contains(o.out, "alpha") || strings.Contains(o.out, "beta") {
		t.Errorf("%s", o.out)
	}
	if o := writer.sheaf("queue", "stats", "--all-tenants"); o.code == 0 || !strings.Contains(o.err, http.StatusText(http.StatusForbidden)) && !strings.Contains(o.err, "scope") {
		t.Errorf("%d %s%s", o.code, o.out, o.err)
	}
}

// Nothing is made, changed or given up by a command with --dry-run.
func TestDryRunsOfOperatorsChangeNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	t.Setenv("SHEAF_DATA_DIR", dir)
	run := func(code int, args ...string) ending {
		t.Helper()
		o := typed{ctx: t.Context()}.run(args...)
		if o.code != code {
			t.Fatalf("sheaf %s ends with %d, want %d: %s%s", strings.Join(args, " "), o.code, code, o.out, o.err)
		}
		return o
	}
	if o := run(0, "migrate", "--dry-run"); !strings.Contains(o.out, "would run 0001_init, 0002_") {
		t.Errorf("%s", o.out)
	}
	operators := [][]string{
		{"tenant", "create", "acme"}, {"tenant", "set", "local", "--weight", "2"}, {"key", "create", "local"}, {"key", "set", "local", "k", "--name", "x"}, {"key", "revoke", "local", "k"},
		{"secrets", "rotate"}, {"secrets", "forget"}, {"queue", "cleanup"},
	}
	// older has every command say that the schema is older, and change nothing.
	older := func() {
		t.Helper()
		for _, args := range operators {
			if o := run(exitFailed, append(args, "--dry-run")...); !strings.Contains(o.err, "schema is older") || !strings.Contains(o.err, "sheaf migrate") {
				t.Errorf("%v on an older schema: %s", args, o.err)
			}
		}
	}
	older()
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dry run made %s: %v", dir, err)
	}
	unpack(t, "testdata/released/0006.tar.gz", dir)
	pending := run(0, "migrate", "--dry-run").out
	older()
	if now := run(0, "migrate", "--dry-run").out; now != pending || !strings.Contains(now, "would run 0007_") {
		t.Errorf("dry runs migrated an older schema: %s, before %s", now, pending)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	run(0, "migrate")
	run(0, "secrets", "rotate", "--dry-run")
	if _, err := os.Stat(filepath.Join(dir, keyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dry run made a key: %v", err)
	}
	if o := run(0, "migrate", "--dry-run"); !strings.Contains(o.out, "is up to date") {
		t.Errorf("%s", o.out)
	}
	if o := run(0, "tenant", "create", "acme", "--weight", "3", "--dry-run"); !strings.Contains(o.out, "acme would be created") {
		t.Errorf("%s", o.out)
	}
	run(exitNotFound, "tenant", "show", "acme")
	run(0, "tenant", "create", "acme")
	run(exitBusy, "tenant", "create", "acme", "--dry-run")
	if o := run(0, "key", "create", "acme", "--expires", "720h", "--dry-run"); !strings.Contains(o.out, "write, expires ") || strings.Contains(o.out, "sheaf_") {
		t.Errorf("%s", o.out)
	}
	run(exitNotFound, "key", "create", "nobody", "--dry-run")
	if o := run(0, "key", "list", "acme", "--json"); strings.Contains(o.out, `"id"`) {
		t.Errorf("a dry run made a key: %s", o.out)
	}
	key := func() string { return run(0, "secrets", "status", "--json").out }
	before := key()
	for _, c := range []struct{ verb, says string }{{"rotate", "with a new key"}, {"forget", "would give up"}} {
		if o := run(0, "secrets", c.verb, "--dry-run"); !strings.Contains(o.out, c.says) {
			t.Errorf("%s: %s", c.verb, o.out)
		}
		if now := key(); now != before {
			t.Errorf("a dry run of secrets %s: %s, before %s", c.verb, now, before)
		}
	}
	// What is made for real expires.
	run(0, "key", "create", "acme", "--expires", "720h", "--scope", "read")
	if o := run(0, "key", "list", "acme", "--json"); !strings.Contains(o.out, `"expires_at"`) {
		t.Errorf("%s", o.out)
	}
}
