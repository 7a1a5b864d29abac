package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sheaf"
	"sheaf/chaos/proxy"
	"sheaf/internal/api"
	"sheaf/internal/buildinfo"
	"sheaf/internal/command"
	"sheaf/taskstore"
)

// Exit codes, as the handbook documents them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitPartial     = 3
	exitNotFound    = 11
	exitBusy        = 13
	exitInterrupted = 130
)

// keyFile is the key of the stored secrets, in the data folder.
const keyFile = "secrets.key"

// ending is how a command line ended.
type ending struct {
	code     int
	out, err string
}

// typed is a command line as a test gives it.
type typed struct {
	ctx      context.Context
	in       io.Reader
	terminal bool // a person sits at in
}

func (c typed) run(args ...string) ending {
	var out, errs bytes.Buffer
	m := command.Main{In: c.in, Out: &out, Err: &errs, TerminalFunc: func(stream any) bool { return c.terminal && stream == c.in }}
	if c.in == nil {
		m.In = strings.NewReader("")
	}
	ctx := c.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	code := m.Execute(ctx, args)
	return ending{code, out.String(), errs.String()}
}

// sheaf runs a command against the service.
func (s *service) sheaf(args ...string) ending {
	return s.typed(typed{ctx: s.t.Context()}, args...)
}

func (s *service) typed(c typed, args ...string) ending {
	return c.run(append([]string{"--server", strings.TrimPrefix(s.base, "http://"), "--key", s.key}, args...)...)
}

// spawned runs a command as a process, which the answer interrupts as Ctrl-C does.
func spawned(t *testing.T, args ...string) (interrupt func() ending) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, args...)
	cmd.Env = append(os.Environ(), mainVar+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() ending {
		t.Helper()
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the exit code says it
		return ending{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

// must runs a command that has to end well.
func (s *service) must(args ...string) ending {
	s.t.Helper()
	o := s.sheaf(args...)
	if o.code != 0 {
		s.t.Fatalf("sheaf %s ends with %d: %s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o
}

// TestCommands runs every command that talks to a server against a real one.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	dir := t.TempDir()
	put(t, dir, "alpha.md", []byte("# Alpha\n\nThe basalt of the quarry is dark.\n"))
	put(t, dir, "beta.md", []byte("# Beta\n\nThe quartzite of the quarry is light.\n"))
	put(t, dir, "broken.pdf", []byte("no PDF at all"))
	put(t, dir, ".hidden.md", []byte("hidden"))
	if err := os.MkdirAll(filepath.Join(dir, "drafts"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "drafts"), "gamma.md", []byte("# Gamma\n\nA draft.\n"))
	has := func(o ending, code int, texts ...string) {
		t.Helper()
		if o.code != code {
			t.Fatalf("ends with %d, want %d:\n%s%s", o.code, code, o.out, o.err)
		}
		for _, text := range texts {
			if !strings.Contains(o.out+o.err, text) {
				t.Fatalf("prints\n%s%s\nwithout %q", o.out, o.err, text)
			}
		}
	}
	list := func(o ending) (items []map[string]any, next any) {
		t.Helper()
		var l struct {
			Items []map[string]any `json:"items"`
			Next  any              `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(o.out), &l); err != nil || l.Items == nil || !strings.Contains(o.out, `"next_cursor"`) {
			t.Fatalf("no list: %v: %s%s", err, o.out, o.err)
		}
		return l.Items, l.Next
	}

	// A mistyped dataset is not created.
	has(s.must("dataset", "create", "stones", "--setting", "chunk_token_num=256"), 0, "Created dataset stones")
	has(s.sheaf("dataset", "create", "stones", "--dry-run"), exitBusy, "already")
	has(s.sheaf("ingest", "-d", "stonse", dir), exitNotFound, `there is no dataset "stonse"`, "Did you mean -d stones?")
	has(s.sheaf("docs", "-d", "stonse"), exitNotFound, "Did you mean -d stones?")
	has(s.sheaf("search", "-d", "stonse", "basalt"), exitNotFound, "Did you mean")
	has(s.sheaf("search", "-d", "quarry", "basalt"), exitNotFound, "Create it with `sheaf dataset create quarry` or `sheaf ingest --create`")
	if items, next := list(s.must("dataset", "list", "--json")); len(items) != 2 || next != nil {
		t.Fatalf("datasets: %v", items)
	}
	if items, next := list(s.must("dataset", "list", "--json", "--limit", "1")); len(items) != 1 || next == nil {
		t.Fatalf("one dataset of two: %v, next %v", items, next)
	}

	// One drop is one job, whatever kinds of file; a dry run stores nothing.
	has(s.must("ingest", "-d", "stones", "--dry-run", "--exclude", "*.pdf", dir), 0, "Nothing was changed. 3 documents would be ingested into stones")
	has(s.sheaf("ingest", "-d", "stones", "--exclude", "drafts", dir), exitPartial,
		"Ingested 3 files", "2  succeeded", "1  failed", "invalid_pdf (1)", "broken.pdf", `sheaf search -d stones "your question"`, "sheaf docs -d stones --state failed", "/jobs/", "1 of 3 files did not succeed")
	jobs, _ := list(s.must("jobs", "-d", "stones", "--json"))
	if len(jobs) != 1 {
		t.Fatalf("one drop made %d jobs", len(jobs))
	}
	job := jobs[0]["id"].(string)
	if o := s.sheaf("ingest", "-d", "stones", filepath.Join(dir, "broken.pdf")); o.code != exitFailed || strings.Count(o.out, "broken.pdf") != 1 {
		t.Fatalf("a broken file alone ends with %d and is named %d times: %s", o.code, strings.Count(o.out, "broken.pdf"), o.out)
	}
	has(s.must("ingest", "-d", "stones", "--include", "gam*", dir, "-q"), 0)
	if o := s.must("ingest", "-q", "--create", "-d", "stones", filepath.Join(dir, "alpha.md")); o.out+o.err != "" {
		t.Errorf("--quiet prints %q %q", o.out, o.err)
	}
	has(s.sheaf("ingest", "-d", "stones", "--include", "*.xyz", dir), exitUsage, "there are no files", "left out")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "# Fetched\n\nFeldspar from the web.\n")
	}))
	defer web.Close()
	has(s.must("ingest", "-d", "stones", web.URL+"/notes/fetched.md"), 0, "Ingested 1 file", "1 page"[:0])
	has(s.typed(typed{in: strings.NewReader("# Piped\n\nMica from a pipe.\n")}, "ingest", "-d", "stones", "-", "--name", "piped.md"), 0, "1  succeeded")
	var in struct {
		Jobs []*sheaf.Job
		URL  string
	}
	o := s.must("ingest", "-d", "stones", "--json", filepath.Join(dir, "beta.md"))
	if err := json.Unmarshal([]byte(o.out), &in); err != nil || len(in.Jobs) != 1 || in.Jobs[0].State != sheaf.DocSucceeded || in.URL == "" || o.err == "\n" {
		t.Errorf("ingest --json prints %s%s", o.out, o.err)
	}

	// Lists, with how many there are more.
	has(s.must("docs", "-d", "stones", "--name", "piped"), 0, "piped.md", "markdown", "100 %")
	o = s.must("docs", "-d", "stones", "-n", "2")
	has(o, 0, "2 shown, 7 more", "--cursor")
	cursor := regexp.MustCompile(`--cursor (\S+)`).FindStringSubmatch(o.err)[1]
	if items, next := list(s.must("docs", "-d", "stones", "--limit", "0", "--cursor", cursor, "--json")); len(items) != 7 || next != nil {
		t.Errorf("%d documents after the first two", len(items))
	}
	o = s.must("docs", "-d", "stones", "--state", "failed")
	has(o, 0, "broken.pdf", "pdf", "–", "invalid_pdf")
	if strings.Contains(o.out, "100 %") || strings.Contains(o.out, "application/") {
		t.Errorf("what failed is shown as\n%s", o.out)
	}
	has(s.must("docs", "-d", "stones", "--issues"), 0, "UNREADABLE", "invalid_pdf")
	if rows, _ := list(s.must("docs", "-d", "stones", "--issues", "--json")); len(rows) != 1 {
		t.Errorf("issues are %v", rows)
	}
	has(s.sheaf("docs", "-d", "stones", "--issues", "--verdicts"), exitUsage, "issues", "verdicts")
	has(s.sheaf("docs", "-d", "stones", "--issues", "--limit", "5"), exitUsage, "issues", "limit")
	has(s.sheaf("docs", "-d", "stones", "--verdicts", "--cursor", "x"), exitUsage, "verdicts", "cursor")
	if rows, _ := list(s.must("docs", "-d", "stones", "--verdicts", "--json")); len(rows) != 2 {
		t.Errorf("verdicts: %v", rows)
	}
	has(s.must("jobs", job), 0, "partially_succeeded", "66 %", "3 of 3 documents", "1 failed", "invalid_pdf (1)")
	has(s.must("jobs", "--state", "running,partially_succeeded"), 0, job)
	if none, _ := list(s.must("jobs", "--state", "canceled", "--json")); len(none) != 0 {
		t.Errorf("jobs that were canceled: %v", none)
	}
	has(s.sheaf("jobs", "--state", "partial"), exitUsage, "partially_succeeded")
	has(s.sheaf("jobs", job, "--wait"), exitPartial, "66 %")
	const nothing = "00000000000000000000000000000000"
	for _, c := range []struct {
		line, lists string
	}{
		{"jobs " + nothing, "`sheaf jobs` lists"},
		{"retry --job " + nothing, "`sheaf jobs` lists"},
		{"flow show nothing", "`sheaf flow list` lists"},
		{"flow diff nothing", "`sheaf flow list` lists"},
		{"flow delete nothing --yes", "`sheaf flow list` lists"},
		{"receipt show " + nothing, "`sheaf receipt list` lists"},
		{"dataset runs stones " + nothing, "`sheaf dataset runs stones` lists"},
		{"dataset split stones --remove " + nothing, "`sheaf dataset split stones` lists"},
		{"queue dead " + nothing, "`sheaf queue dead` lists"},
		{"queue cancel " + nothing, "`sheaf queue dead` lists"},
		{"eval show -d stones " + nothing, "`sheaf eval list -d stones` lists"},
		{"eval delete -d stones " + nothing, "`sheaf eval queries -d stones` lists"},
	} {
		has(s.sheaf(strings.Fields(c.line)...), exitNotFound, c.lists)
	}
	has(s.must("jobs", "cancel", job, "--dry-run"), 0, "would stop 0 documents")
	has(s.must("jobs", "pause", job, "--dry-run"), 0, "would pause job")

	// One document, by name and by id.
	o = s.must("doc", "show", "-d", "stones", "gamma.md", "--json")
	var d api.DocumentAnswer
	if err := json.Unmarshal([]byte(o.out), &d); err != nil || d.Name != "gamma.md" || d.MadeWith.ChunkTokenNum.V != 256 {
		t.Fatalf("doc show --json prints %s", o.out)
	}
	has(s.must("doc", "show", "-d", "stones", d.ID), 0, "gamma.md", "succeeded", "markdown", "/documents/"+d.ID)
	has(s.sheaf("doc", "show", "-d", "stones", "alpha.md"), exitUsage, "2 documents", "Name one by its id")
	has(s.sheaf("doc", "show", "-d", "stones", "gamm"), exitNotFound, "Did you mean gamma.md?")
	has(s.sheaf("doc", "show", d.ID), exitNotFound, "name its dataset with -d")
	has(s.sheaf("doc", "edit", "-d", "stones", "gamma.md", nothing, "--off"), exitNotFound, "`sheaf doc chunks gamma.md -d stones` lists")
	has(s.sheaf("doc", "undo", "-d", "stones", "gamma.md", nothing), exitNotFound, "`sheaf doc edits gamma.md -d stones` lists")
	if o := s.must("doc", "text", "-d", "stones", "gamma.md"); !strings.Contains(o.out, "A draft.") {
		t.Errorf("doc text prints %q", o.out)
	}
	if items, _ := list(s.must("doc", "chunks", "-d", "stones", "gamma.md", "--json")); len(items) == 0 || !strings.Contains(items[0]["text"].(string), "draft") {
		t.Errorf("doc chunks: %v", items)
	}
	has(s.must("doc", "chunks", "-d", "stones", "gamma.md"), 0, "TOKENS", "A draft.")
	back := filepath.Join(dir, "back.md")
	has(s.must("doc", "download", "-d", "stones", "gamma.md", "-o", back), 0, "Wrote "+back)
	if got := readFile(t, back); got != "# Gamma\n\nA draft.\n" {
		t.Errorf("the download holds %q", got)
	}
	has(s.sheaf("doc", "download", "-d", "stones", "gamma.md", "-o", back), exitUsage, "exists", "--force")
	if o := s.must("doc", "download", "-d", "stones", "gamma.md", "-o", "-"); o.out != "# Gamma\n\nA draft.\n" {
		t.Errorf("the download prints %q", o.out)
	}
	has(s.must("open", "-d", "stones"), 0, s.base+"/datasets/stones")
	has(s.must("open", "-d", "stones", "gamma.md"), 0, s.base+"/datasets/stones/documents/"+d.ID)
	has(s.must("open", job), 0, s.base+"/jobs/"+job)
	has(s.must("search", "-d", "stones", "draft", "--mode", "text"), 0, "gamma.md")
	has(s.must("search", "-d", "stones", "draft", "--group-by", "text", "--group-size", "2"), 0, "gamma.md")
	has(s.sheaf("search", "-d", "stones", "draft", "--group-size", "2"), exitUsage, "--group-by")

	// The flight record says what ran and nothing of what was read.
	record := filepath.Join(dir, "record.json")
	has(s.must("diagnostics", job, "-o", record), 0, "Wrote")
	var r api.Diagnostics
	text := readFile(t, record)
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Documents) != 3 || len(r.Tasks) < 5 || len(r.Events) == 0 || r.Job == nil || len(r.Executors) != 1 || !r.Dependencies["store"].OK || r.Server.Go == "" {
		t.Errorf("the flight record: %v %s", err, text)
	}
	if !strings.Contains(text, "invalid_pdf") {
		t.Error("the flight record has no code of what failed")
	}
	for _, secret := range []string{"alpha", "beta.md", "broken.pdf", "basalt", "Beta"} {
		if strings.Contains(text, secret) {
			t.Errorf("the flight record holds %q", secret)
		}
	}
	has(s.must("diagnostics", "-d", "stones", "gamma.md", "-o", "-"), 0, d.ID)

	// Parsing again, retrying, canceling: shown first, then done.
	has(s.must("doc", "reparse", "-d", "stones", "gamma.md", "--setting", "chunk_token_num=64", "--dry-run"), 0, "Nothing was changed", "1 document")
	has(s.must("doc", "reparse", "-d", "stones", "gamma.md", "--setting", "chunk_token_num=64", "--wait"), 0, "reparse", "succeeded", "100 %")
	if s.must("doc", "show", "-d", "stones", "gamma.md", "--json"); !strings.Contains(s.must("doc", "show", "-d", "stones", "gamma.md").out, "2, live 2") {
		t.Error("the document was not parsed again")
	}
	has(s.must("doc", "retry", "-d", "stones", "--state", "failed", "--dry-run"), 0, "Nothing was changed")
	has(s.must("doc", "cancel", "-d", "stones", "--all"), 0, "nothing to stop")

	// Settings and names of datasets.
	has(s.must("dataset", "settings", "stones"), 0, "chunk_token_num", "256", "512")
	has(s.must("dataset", "settings", "stones", "chunk_token_num=128", "--dry-run"), 0, "Nothing was changed", "128")
	has(s.must("dataset", "settings", "stones", "overlapped_percent=0", "chunk_method=book"), 0, "Changed", "book", "256")
	o = s.must("dataset", "settings", "stones", "--unset", "chunk_token_num", "--json")
	if strings.Contains(o.out, "256") || !strings.Contains(o.out, "book") {
		t.Errorf("a setting that was taken back: %s", o.out)
	}
	has(s.sheaf("dataset", "settings", "stones", "chunk_token_num=1"), exitUsage, "chunk_token_num")
	has(s.must("dataset", "rename", "stones", "rocks", "--dry-run"), 0, "Nothing was changed")
	has(s.must("dataset", "rename", "stones", "rocks"), 0, "Renamed")
	has(s.must("dataset", "pause", "rocks"), 0, "Paused dataset rocks")
	has(s.must("dataset", "show", "rocks"), 0, "paused")
	has(s.must("dataset", "resume", "rocks"), 0, "Resumed")

	// What goes is asked for.
	has(s.sheaf("doc", "delete", "-d", "rocks", "gamma.md"), exitUsage, "needs a confirmation", "Delete 1 document (", "--yes")
	// Faults of files are for those who sent them, not for an operator.
	has(s.must("queue", "dead"), 0, "2 tasks failed because of the file itself and are left out; --files lists them")
	has(s.must("queue", "dead", "--files"), 0, "invalid_pdf")
	has(s.must("queue", "dead", "--category", "bad_input"), 0, "invalid_pdf")
	has(s.must("doc", "delete", "-d", "rocks", "--state", "failed", "--dry-run"), 0, "This would delete 2 documents")
	has(s.must("doc", "delete", "-d", "rocks", "--state", "failed", "--yes"), 0, "Deleted 2 documents")
	has(s.must("doc", "delete", "-d", "rocks", "--state", "failed", "--yes"), 0, "nothing to delete")
	has(s.sheaf("dataset", "delete", "rocks"), exitUsage, "the dataset rocks with 7 documents")
	has(s.must("dataset", "delete", "rocks", "--dry-run"), 0, "Nothing was changed", "7 documents")
	has(s.typed(typed{in: strings.NewReader("no\n"), terminal: true}, "dataset", "delete", "rocks"), exitFailed, "[y/N]", "nothing was changed")
	has(s.typed(typed{in: strings.NewReader("n\n"), terminal: true}, "ingest", "-d", "rcks", dir), exitFailed, `there is no dataset "rcks"`, "Create it? [y/N]")
	has(s.typed(typed{in: strings.NewReader("y\n"), terminal: true}, "dataset", "delete", "rocks"), 0, "Deleted the dataset rocks with 7 documents")
	if items, _ := list(s.must("dataset", "list", "--json")); len(items) != 1 {
		t.Errorf("after all there are %v", items)
	}

	// The rest of the lists are objects, too.
	for _, args := range [][]string{{"queue", "stats"}, {"queue", "dead"}, {"jobs"}, {"formats"}} {
		list(s.must(append(args, "--json")...))
	}
	has(s.must("queue", "stats"), 0, "interactive", "backfill")
	has(s.must("queue", "purge", "--all", "--dry-run"), 0, "Nothing was changed")
	has(s.must("queue", "retry", "--job", "none", "--document", "none", "--dry-run"), 0, "would retry 0 dead tasks")
	has(s.must("status"), 0, "ready", s.base, "1 executor", "1 dataset")
	var st struct {
		Status string
		Server buildinfo.Info
	}
	if err := json.Unmarshal([]byte(s.must("status", "--json").out), &st); err != nil || st.Status != "ready" || st.Server != buildinfo.Get() {
		t.Errorf("status --json: %v %+v", err, st)
	}
	var i buildinfo.Info
	if err := json.Unmarshal([]byte(s.must("version", "--json").out), &i); err != nil || i != buildinfo.Get() {
		t.Errorf("version --json: %+v", i)
	}
	if o := s.must("version"); !strings.Contains(o.out, "go1.") || strings.Contains(o.out, "(devel)") {
		t.Errorf("version prints %s", o.out)
	}

	// Words are completed, and so are names that the server knows.
	for line, want := range map[string]string{
		"docs --state fa":                         "failed",
		"docs --state failed,queu":                "failed,queued",
		"search --mode t":                         "text",
		"ingest --setting chunk_me":               "chunk_method=",
		"dataset settings default chunk_method=b": "chunk_method=book",
		"docs -d ":                                "default",
		"dataset delete ":                         "default",
		"jobs ":                                   job,
		"key create x --scope ":                   "admin",
		"retry --scope stage:e":                   "stage:embed",
	} {
		words := strings.Split(line, " ")
		o := s.sheaf(append([]string{"__complete"}, words...)...)
		o = typed{}.run(append([]string{"__complete", "--server", s.base}, words...)...)
		if !slices.ContainsFunc(strings.Split(o.out, "\n"), func(l string) bool { l, _, _ = strings.Cut(l, "\t"); return l == want }) {
			t.Errorf("`sheaf %s` is completed by %q, not %q", line, o.out, want)
		}
	}
}

// Ctrl-C while the server works says what goes on there and how to follow it.
func TestStopWatching(t *testing.T) {
	s := start(t, nil)
	s.post("/v1/queues:pause", nil, nil)
	path := put(t, t.TempDir(), "waits.md", []byte("# Waits\n"))
	interrupt := spawned(t, "--server", s.base, "ingest", path)
	var jobs api.List[sheaf.Job]
	waitFor(t, "the job", func() bool { s.get("/v1/jobs", &jobs); return len(jobs.Items) == 1 })
	o, id := interrupt(), jobs.Items[0].ID
	if o.code != exitInterrupted || strings.Contains(o.err, "context canceled") {
		t.Errorf("it ends with %d: %s", o.code, o.err)
	}
	for _, text := range []string{"everything is uploaded and submitted", "job " + id, "0 of 1 document done", "sheaf jobs " + id + " --wait", "sheaf jobs cancel " + id} {
		if !strings.Contains(o.err, text) {
			t.Errorf("it says %q, without %q", o.err, text)
		}
	}
	s.post("/v1/queues:resume", nil, nil)
	if o := s.must("jobs", id, "--wait"); !strings.Contains(o.out, "succeeded") {
		t.Errorf("followed on: %s", o.out)
	}
}

// What was left out of documents that were read is listed for the whole job.
func TestWarningsAreShown(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	dir := t.TempDir()
	for name, body := range map[string]string{"first.csv": "a,b,c\n1,2,3\n4,5\n", "second.csv": "a,b,c\n1,2\n7,8,9\n", "plain.csv": "a,b,c\n1,2,3\n"} {
		put(t, dir, name, []byte(body))
	}
	o := s.must("ingest", dir)
	for _, text := range []string{"3  succeeded", "\nWarnings\n  ragged_rows (2): Rows with another number of fields", "first.csv", "second.csv", "sheaf docs --warning CODE"} {
		if !strings.Contains(o.out, text) {
			t.Errorf("the summary lacks %q: %s", text, o.out)
		}
	}
	if strings.Contains(o.out, "Issues") || strings.Contains(o.out, "plain.csv") {
		t.Errorf("the summary says more: %s", o.out)
	}
	var jobs api.List[sheaf.Job]
	s.get("/v1/jobs", &jobs)
	if o := s.must("jobs", jobs.Items[0].ID); !strings.Contains(o.out, "ragged_rows (2)") {
		t.Errorf("the job: %s", o.out)
	}
	if o := s.must("docs", "--warning", "ragged_rows,rows_clipped"); strings.Count(o.out, ".csv") != 2 {
		t.Errorf("the documents with the warning: %s", o.out)
	}
	var facets taskstore.Facets
	s.get("/v1/datasets/default/documents/facets?warning=ragged_rows", &facets)
	if facets.Documents != 2 || len(facets.Warnings) != 1 || facets.Warnings[0].Documents != 2 {
		t.Errorf("facets: %+v", facets)
	}
	var tagged api.Tagged
	s.post("/v1/datasets/default/documents:tag", map[string]any{"filter": map[string]any{"warnings": []string{"ragged_rows"}}, "tag": "look"}, &tagged)
	if tagged.Documents != 2 {
		t.Errorf("%d documents were tagged by their warning", tagged.Documents)
	}
}

// Ctrl-C during the upload says what is stored and what has begun; the same command
// again sends the rest and makes one job of all.
func TestStopUploading(t *testing.T) {
	s := start(t, nil)
	dir := t.TempDir()
	put(t, dir, "a.md", []byte("# Small\n\nIt is stored.\n"))
	put(t, dir, "b.trial", largeTrial(7, 20<<20))
	p := cutAfter(t, strings.TrimPrefix(s.base, "http://"))
	p.Set(proxy.Delay, 30*time.Millisecond)
	args := []string{"--server", p.Addr(), "ingest", "--parser-config", trialSettings, "--wait=false", dir}
	interrupt := spawned(t, args...)
	var list api.List[api.UploadStatus]
	var jobs api.List[sheaf.Job]
	waitFor(t, "the small file to be read, and some of the large one", func() bool {
		s.get("/v1/datasets/default/uploads", &list)
		s.get("/v1/jobs", &jobs)
		return len(list.Items) == 2 && s.stored("default") > 1000 && len(jobs.Items) == 1 && jobs.Items[0].Documents.ByState[sheaf.DocSucceeded] == 1
	})
	o := interrupt()
	if o.code != exitInterrupted || !strings.Contains(o.err, "1 of 2 files are stored at the server, 1 of them in job "+jobs.Items[0].ID+". Run the same command again before 20") {
		t.Fatalf("it ends with %d: %s", o.code, o.err)
	}
	p.Set(proxy.Pass, 0)
	again := typed{ctx: t.Context()}.run(args...)
	if again.code != 0 || !strings.Contains(again.err, "1 file had been stored by an earlier run") || !strings.Contains(again.out, "Submitted 2 documents (") || !strings.Contains(again.out, "--wait") {
		t.Errorf("again it ends with %d: %s%s", again.code, again.out, again.err)
	}
	s.get("/v1/datasets/default/uploads", &list)
	if len(list.Items) != 2 {
		t.Errorf("%d uploads were made of two files", len(list.Items))
	}
	jobs = api.List[sheaf.Job]{}
	if s.get("/v1/jobs", &jobs); len(jobs.Items) != 1 || jobs.Items[0].Documents.Total != 2 || !jobs.Items[0].OpenUntil.IsZero() {
		t.Errorf("the jobs: %+v", jobs.Items)
	}
	if o := (typed{ctx: t.Context()}).run(args...); o.code != 0 || strings.Contains(o.err, "earlier run") { // which ended
		t.Errorf("a third time it ends with %d: %s%s", o.code, o.out, o.err)
	}
	if s.get("/v1/jobs", &jobs); len(jobs.Items) != 2 {
		t.Errorf("%d jobs after a command that ended was repeated", len(jobs.Items))
	}
}

// The second Ctrl-C ends a command at once, whatever it waits for.
func TestSecondInterrupt(t *testing.T) {
	s := start(t, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "ingest", "-", "--server", s.base)
	cmd.Env = append(os.Environ(), mainVar+"=1")
	in, err := cmd.StdinPipe() // never ends
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if _, err := in.Write([]byte("begun")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(time.Minute); ; {
		_ = cmd.Process.Signal(syscall.SIGINT) // again, until it ends: the first may come before it listens
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code != exitInterrupted && code != -1 {
				t.Errorf("it ends with %d: %s", code, errs.String())
			}
			return
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			_ = cmd.Process.Kill()
			t.Fatal("it does not end")
		}
	}
}
