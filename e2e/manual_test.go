package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"sheaf"
	"sheaf/parser/pdf/enginetest"
	"sheaf/samples"
)

// manual is one page whose commands are run, against a server of its own that the
// commands find by its data folder.
type manual struct {
	*service
	folder  string            // where the commands run, which is their home, too
	learned map[string]string // ids that commands of the block have answered
}

// Every command of the README, the handbook and the manual of operations works:
// the blocks of a page run in order against a fresh server, and each ends without
// an error. What stands for an id is replaced by one that is there. A block that
// cannot run here says so before it.
func TestCommandsOfTheManuals(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/handbook.md", "docs/operations.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", page))
			if err != nil {
				t.Fatal(err)
			}
			m := newManual(t)
			for _, b := range fencedBlock.FindAllStringSubmatch(string(text), -1) {
				before, language, block := b[1], b[2], b[3]
				if strings.Contains(before, notRun) || language == "text" {
					continue
				}
				m.check(t, language, block)
			}
		})
	}
}

// ofShell are the commands of a block, those over several lines whole.
func ofShell(block string) (out []string) {
	for line := range strings.Lines(block) {
		if n := len(out); n > 0 && strings.HasSuffix(out[n-1], "\\\n") {
			out[n-1] += line
			continue
		}
		if strings.TrimSpace(line) != "" {
			out = append(out, line)
		}
	}
	return out
}

func newManual(t *testing.T) *manual {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the whole service")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Some hundred commands run, each as a process: the race detector only watches
	// the server.
	command := cmp.Or(os.Getenv("SHEAF_TEST_BINARY"), exe)
	m := &manual{folder: t.TempDir(), learned: map[string]string{}}
	data := filepath.Join(m.folder, "data")
	server := exec.Command(exe, "up", "--data-dir", data, "--listen", "127.0.0.1:0", "--set", "webhooks.hosts=app.example.org", "--set", "parser.unit_timeout=1m",
		"--set", "executor.lease=10s", "--set", "keeper.grace=11s") // so that deletions are complete soon
	server.Env = append(os.Environ(), mainVar+"=1")
	log, err := os.Create(filepath.Join(m.folder, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the server said: %s", said)
		}
	})
	var at struct{ URL string }
	for deadline := time.Now().Add(time.Minute); at.URL == ""; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(data, "server.json")); err == nil {
			_ = json.Unmarshal(b, &at)
		}
		if time.Now().After(deadline) {
			t.Fatal("the server did not start")
		}
	}
	m.service = &service{client: newClient(at.URL, ""), t: t}

	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	var lease enginetest.File
	for i, says := range []string{"Parties", "Rent", "Repairs", "The lease can be ended in May of each year.", "Signatures"} {
		lease.Pages = append(lease.Pages, enginetest.Page{Content: enginetest.Text("F1", 12, 60, 700, fmt.Sprintf("%d. %s", i+1, says))})
	}
	const note = "# Herons\n\nThe heron waits in the shallow water. The termination notice period is three months.\n"
	for name, content := range map[string]string{
		"report.pdf": string(pdf), "a.pdf": string(pdf), "b.pdf": string(lease.Bytes()), "lease.pdf": string(lease.Bytes()), "broken.pdf": "%PDF-1.7 and nothing more",
		"scans/one.md": note, "archive/two.md": note, "notes.md": note, "Documents/three.pdf": string(lease.Bytes()), "Documents/drafts/four.md": note,
		"schema.sql": "CREATE TABLE heron (waits BOOLEAN);\n", "topics.csv": "The boiler is cold.,heating\nThe door is broken.,repair\n",
		"queries.jsonl": `{"question": "When can the lease be ended?", "expected": [{"document": "lease.pdf", "from": 4, "to": 5}]}` + "\n",
		// What cannot be undone asks first, which needs a terminal.
		"bin/sheaf": "#!/usr/bin/env bash\ncase \"$1 $2\" in 'dataset delete' | 'queue purge' | 'key revoke') set -- \"$@\" --yes ;; esac\n" + mainVar + "=1 exec '" + command + "' \"$@\"\n",
	} {
		path := filepath.Join(m.folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.add("default", onDisk(t, filepath.Join(m.folder, "report.pdf")), onDisk(t, filepath.Join(m.folder, "lease.pdf")))
	return m
}

func onDisk(t *testing.T, path string) source {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text(filepath.Base(path), string(b))
}

func (m *manual) check(t *testing.T, language, block string) {
	t.Helper()
	switch language {
	case "toml":
		var v any
		if _, err := toml.Decode(block, &v); err != nil {
			t.Errorf("%s:\n%s", err, block)
		}
		if strings.Contains(block, "[[node]]") {
			if err := os.WriteFile(filepath.Join(m.folder, "contracts.toml"), []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	case "json":
		if !json.Valid([]byte(block)) {
			t.Errorf("no JSON:\n%s", block)
		}
	case "yaml":
		var v any
		if err := yaml.Unmarshal([]byte(block), &v); err != nil {
			t.Errorf("%s:\n%s", err, block)
		}
	case "", "sh":
		m.learned = map[string]string{}
		for _, command := range ofShell(block) {
			m.prepare(t, command)
			m.run(t, command)
		}
	default:
		t.Errorf("a block of %s is neither run nor checked:\n%s", language, block)
	}
}

// prepare brings about what a command takes to be there.
func (m *manual) prepare(t *testing.T, command string) {
	t.Helper()
	if strings.HasPrefix(command, "sheaf doc ") && strings.Contains(command, "report.pdf") || strings.Contains(command, "/compare?") { // the page uploads it several times
		var list struct{ Items []sheaf.Document }
		m.get("/v1/datasets/default/documents?q=report.pdf&order=oldest", &list)
		for _, d := range list.Items[min(1, len(list.Items)):] {
			if err := m.call(t.Context(), http.MethodDelete, "/v1/datasets/default/documents/"+d.ID, nil, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for says, before := range map[string]string{
		"sheaf dataset create contracts": "sheaf dataset delete contracts",
		"sheaf dataset delete drafts":    "sheaf dataset create drafts",
		"/compare?":                      "sheaf doc reparse report.pdf --setting chunk_token_num=200 --wait",
		"sheaf queue dead --category":    "sheaf ingest broken.pdf || true",
		"sheaf queue retry TASK":         "sheaf ingest broken.pdf || true",
	} {
		if strings.Contains(command, says) {
			m.run(t, before)
		}
	}
}

// refused are commands that the page shows with the error that answers them.
var refused = map[string]string{"dryrun=true": "did you mean dry_run?"}

func (m *manual) run(t *testing.T, command string) {
	t.Helper()
	filled := strings.NewReplacer("http://127.0.0.1:8080", m.base, "localhost:8080", strings.TrimPrefix(m.base, "http://")).Replace(m.fill(t, command))
	const shell = "curl() { command curl -sS --fail-with-body --max-time 60 \"$@\"; }\n"
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", shell+filled)
	cmd.Dir = m.folder
	cmd.Env = append(os.Environ(), "HOME="+m.folder, "PATH="+filepath.Join(m.folder, "bin")+":"+os.Getenv("PATH"), "SHEAF_DATA_DIR="+filepath.Join(m.folder, "data"))
	for name, value := range m.variables(command) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	for part, says := range refused {
		if strings.Contains(command, part) {
			if err == nil || !strings.Contains(string(out), says) {
				t.Errorf("%s\nis not refused with %q: %s", filled, says, out)
			}
			return
		}
	}
	if err != nil {
		t.Errorf("%v:\n%s\n%s", err, filled, out)
	}
	if id := regexp.MustCompile(`/uploads/([0-9a-z]+)`).FindSubmatch(out); id != nil {
		m.learned["UPLOAD"] = string(id[1])
	}
	if strings.HasSuffix(strings.Fields(command)[len(strings.Fields(command))-1], "id") { // "… # answers the job's id"
		var job sheaf.Job
		if json.Unmarshal(out, &job) == nil {
			m.learned["JOB"] = job.ID
		}
	}
}

var placeholder = regexp.MustCompile(`\b(ID-OF-TOPICS|KEY-ID|RECEIPT|DOCUMENT|UPLOAD|EARLIER|TASK|JOB|ID)\b`)

// fill puts ids that are there in the place of words that stand for some.
func (m *manual) fill(t *testing.T, command string) string {
	t.Helper()
	return placeholder.ReplaceAllStringFunc(command, func(word string) string {
		if id := m.learned[word]; id != "" {
			return id
		}
		switch word {
		case "JOB":
			return m.first("/v1/jobs", nil)
		case "DOCUMENT":
			return m.document()
		case "TASK":
			return m.first("/v1/dead-letters", nil)
		case "RECEIPT":
			return m.completed(t)
		case "ID-OF-TOPICS":
			var d sheaf.Dataset
			m.get("/v1/datasets/topics", &d)
			return d.ID
		case "ID", "EARLIER":
			return m.first("/v1/datasets/default/evaluations", nil)
		case "KEY-ID":
			cmd := exec.Command(filepath.Join(m.folder, "bin", "sheaf"), "key", "list", "acme", "--json")
			cmd.Env = append(os.Environ(), "SHEAF_DATA_DIR="+filepath.Join(m.folder, "data"))
			out, err := cmd.Output()
			var list struct{ Items []struct{ ID string } }
			if err == nil {
				err = json.Unmarshal(out, &list)
			}
			if err != nil || len(list.Items) == 0 {
				t.Errorf("keys of acme: %v %s", err, out)
				return word
			}
			return list.Items[0].ID
		}
		t.Errorf("%s stands for nothing in %s", word, command)
		return word
	})
}

// first is the id of the first item of a list, "" for none.
func (m *manual) first(path string, q url.Values) string {
	var list struct{ Items []struct{ ID string } }
	m.get(path+"?"+q.Encode(), &list)
	if len(list.Items) == 0 {
		m.t.Errorf("%s?%s has nothing", path, q.Encode())
		return ""
	}
	return list.Items[0].ID
}

// document is the oldest report.pdf, when nothing is at work on it any more.
func (m *manual) document() string {
	id := m.first("/v1/datasets/default/documents", url.Values{"q": {"report.pdf"}, "order": {"oldest"}})
	for deadline := time.Now().Add(2 * time.Minute); id != ""; time.Sleep(50 * time.Millisecond) {
		var d sheaf.Document
		if m.get("/v1/datasets/default/documents/"+id, &d); d.State.Terminal() {
			break
		}
		if time.Now().After(deadline) {
			m.t.Errorf("the document is %s", d.State)
			break
		}
	}
	return id
}

// completed is a receipt whose deletion is complete.
func (m *manual) completed(t *testing.T) string {
	t.Helper()
	var answer struct{ Items []struct{ ID, State string } }
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		m.get("/v1/receipts?limit=100", &answer)
		for _, r := range answer.Items {
			if r.State == "completed" {
				return r.ID
			}
		}
		if time.Now().After(deadline) {
			t.Errorf("no receipt is completed: %+v", answer)
			return ""
		}
	}
}

// variables are those of the shell that a command uses.
func (m *manual) variables(command string) map[string]string {
	out := map[string]string{}
	if !strings.Contains(command, "$DOC") {
		return out
	}
	id := m.document()
	at := "/v1/datasets/default/documents/" + id
	if out["DOC"] = m.base + at; strings.Contains(command, "documents/$DOC") {
		out["DOC"] = id
	}
	if strings.Contains(command, "$CHUNK") {
		out["CHUNK"] = m.first(at+"/chunks", nil)
	}
	if strings.Contains(command, "$EDIT") {
		out["EDIT"] = m.first(at+"/edits", nil)
	}
	return out
}
