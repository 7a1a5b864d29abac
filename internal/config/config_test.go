package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// TestReferenceIsCommitted keeps the table in the documentation equal to the
// code: go test ./internal/config -run Reference -update writes it.
func TestReferenceIsCommitted(t *testing.T) {
	const path, from, to = "../../docs/configuration.md", "<!-- settings -->\n", "<!-- /settings -->"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), from)
	table, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s…%s", path, strings.TrimSpace(from), to)
	}
	if table == Reference() {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run go test ./internal/config -run Reference -update", path)
	}
	if err := os.WriteFile(path, []byte(head+from+Reference()+to+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEverySettingIsDocumented(t *testing.T) {
	c := Default()
	for _, f := range Fields(&c) {
		if strings.TrimSpace(f.Doc) == "" || strings.HasSuffix(f.Doc, ": ") {
			t.Errorf("%s has no doc tag", f.Name)
		}
	}
}

// Each setting can come from the file, the environment and a mounted file, and
// the later of these wins.
func TestLaterSourcesWin(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sheaf.toml")
	secret := filepath.Join(dir, "dsn")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file, "[store]\ndriver='mysql'\ndsn='from-file'\nmax_conns=3\nevent_lag='5s'\n[queue]\naddrs=['a:1']\n[queue.interactive]\naddrs=['b:2','c:3']\nmaster='m'\n[executor.task_timeout]\nparse='4m'\n")
	write(secret, "from-secret\n")
	c, err := Load(file, []string{"SHEAF_STORE_DSN=from-env", "SHEAF_STORE_DSN_FILE=" + secret, "SHEAF_STORE_MAX_CONNS=7", "SHEAF_QUEUE_BACKFILL_ADDRS=d:4, e:5", "SHEAF_EXECUTOR_TASK_TIMEOUT=plan=1m,parse=2m", "OTHER=x"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Store.DSN.Reveal(); got != "from-secret" {
		t.Errorf("the DSN is %q", got)
	}
	if c.Store.MaxConns != 7 || c.Store.EventLag != Duration(5*time.Second) || c.Queue.Addrs[0] != "a:1" || len(c.Queue.Interactive.Addrs) != 2 || c.Queue.Interactive.Master != "m" || c.Queue.Backfill.Addrs[1] != "e:5" {
		t.Errorf("%+v %+v", c.Store, c.Queue)
	}
	if c.Executor.TaskTimeout["parse"] != Duration(2*time.Minute) || c.Executor.TaskTimeout["plan"] != Duration(time.Minute) {
		t.Errorf("task timeouts: %v", c.Executor.TaskTimeout)
	}
	for _, bad := range []struct{ file, env, want string }{
		{"[store]\ndns='x'\n", "", `unknown setting "store.dns"`},
		{"[embed]\napi_key_file='x'\n", "", `the environment variable SHEAF_EMBED_API_KEY_FILE names a file that holds embed.api_key`},
		{"", "SHEAF_STORE_MAX_CONNS=many", "SHEAF_STORE_MAX_CONNS"},
		{"", "SHEAF_STORE_DSN_FILE=" + filepath.Join(dir, "absent"), "SHEAF_STORE_DSN_FILE"},
	} {
		write(file, bad.file)
		if _, err := Load(file, []string{bad.env}); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Whatever prints a configuration prints no secret.
func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "hunter2"
	c := Default()
	secrets := 0
	for _, f := range Fields(&c) {
		if f.Secret {
			secrets++
			if err := f.Set(secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	if secrets < 10 {
		t.Fatalf("only %d settings are secret", secrets)
	}
	for _, name := range []string{"dsn", "password", "api_key", "access_key", "secret_key", "headers"} {
		for _, f := range Fields(&c) {
			if strings.HasSuffix(f.Name, name) && !f.Secret {
				t.Errorf("%s is not tagged as secret", f.Name)
			}
		}
	}
	// People put credentials into addresses too.
	c.Index.Addrs = []string{"https://elastic:" + secret + "@es:9200"}
	c.Blob.Driver, c.Blob.Endpoint = "s3", "s3://user:"+secret+"@"
	c.Trace.Endpoint = "http://u:" + secret + "@collector:4318"
	var fields strings.Builder
	for _, f := range Fields(&c) {
		fmt.Fprintln(&fields, f.Name, f.String(), f)
	}
	var file bytes.Buffer
	asTOML := c
	asTOML.Index.Addrs, asTOML.Blob.Endpoint, asTOML.Trace.Endpoint = nil, "", "" // only Fields prints addresses
	if err := toml.NewEncoder(&file).Encode(asTOML); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(asTOML)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"fields": fields.String(), "TOML": file.String(), "JSON": string(asJSON), "%v": fmt.Sprintf("%v", asTOML), "%+v": fmt.Sprintf("%+v", asTOML), "%#v": fmt.Sprintf("%#v", asTOML),
		"%s": fmt.Sprintf("%s %q", c.Store.DSN, c.Store.DSN), "Validate": fmt.Sprint(c.Validate()),
	} {
		if i := strings.Index(text, secret); i >= 0 {
			t.Errorf("%s shows a secret: …%s…", what, text[max(0, i-60):min(len(text), i+20)])
		}
	}
}

func TestStraysAreTold(t *testing.T) {
	for name, want := range map[string]string{
		"SHEAF_DEBUG_LISTEN":             "SHEAF_SERVER_DEBUG_LISTEN",
		"SHEAF_STORE_DNS":                "sheaf config reference",
		"SHEAF_STORE_DSN":                "",
		"SHEAF_STORE_DSN_FILE":           "",
		"SHEAF_DATA_DIR":                 "",
		"SHEAF_URL":                      "",
		"SHEAF_CONFIG":                   "",
		"SHEAF_TEST_REQUIRE":             "",
		"SHEAF_SERVICE_HOST":             "",
		"SHEAF_SERVER_PORT":              "",
		"SHEAF_STORE_PORT_3306_TCP_ADDR": "",
		"HOME":                           "",
	} {
		got := Strays([]string{name + "=secret"})
		if want == "" {
			if len(got) != 0 {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0], name) || !strings.Contains(got[0], want) || strings.Contains(got[0], "secret") {
			t.Errorf("%s: %q, which should say %s", name, got, want)
		}
	}
}

// The handbook shows every setting with its default and what it says of itself.
func TestHandbookListsEverySetting(t *testing.T) {
	md, err := os.ReadFile("../../docs/handbook.md")
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	for _, f := range Fields(&c) {
		def := f.String()
		switch {
		case f.Name == "data_dir":
			def = "~/.local/share/sheaf" // depends on the user
		case f.Secret:
			def = ""
		}
		cell := "–"
		if def != "" {
			cell = "`" + def + "`"
		}
		doc := f.Doc
		if doc == "" {
			doc = "–"
		}
		if row := "| `" + f.Name + "` | " + cell + " | " + doc + " |\n"; !strings.Contains(string(md), row) {
			t.Errorf("docs/handbook.md, Settings: want the row\n%s", row)
		}
	}
}

// A number that is less than 0 has a meaning that its text tells, or is refused.
func TestNegativeSettingsAreRefused(t *testing.T) {
	refused, allowed := 0, 0
	for i := range Fields(new(Config)) {
		for _, v := range []string{"-1", "-1h", "parse=-1h"} {
			c := Default()
			f := Fields(&c)[i]
			if f.Set(v) != nil || !f.negative() {
				continue
			}
			err := c.Validate()
			if strings.Contains(f.Doc, "negative") {
				allowed++
			} else if refused++; err == nil || !strings.Contains(err.Error(), f.Name) {
				t.Errorf("%s = %s: %v", f.Name, v, err)
			}
		}
	}
	if refused < 60 || allowed < 3 {
		t.Errorf("%d settings were refused and %d allowed", refused, allowed)
	}
}
