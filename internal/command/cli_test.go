package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
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

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/chaos/proxy"
	"sheaf/internal/api"
	"sheaf/internal/buildinfo"
)

var updateGolden = flag.Bool("update-golden", false, "write testdata/help.txt")

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
	m := Main{In: c.in, Out: &out, Err: &errs, TerminalFunc: func(stream any) bool { return c.terminal && stream == c.in }}
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

// must runs a command that has to end well.
func (s *service) must(args ...string) ending {
	s.t.Helper()
	o := s.sheaf(args...)
	if o.code != 0 {
		s.t.Fatalf("sheaf %s ends with %d: %s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o
}

// A wrong command line is answered with a sentence and what is probably meant.
func TestWrongCommandLines(t *testing.T) {
	t.Setenv("SHEAF_DATA_DIR", t.TempDir())
	for line, says := range map[string][]string{
		"ingst":                            {"no command `sheaf ingst`", "Did you mean `sheaf ingest`?"},
		"upload":                           {"Did you mean `sheaf ingest`?"},
		"dataset rm":                       {"Did you mean `sheaf dataset delete`?"},
		"queue nothing":                    {"no command `sheaf queue nothing`", "--help"},
		"ingest":                           {"`sheaf ingest` needs a file, a folder", "Usage: sheaf ingest PATH…", "Example: sheaf ingest ~/Documents"},
		"ingest /no/such/thing":            {"there is no file or folder /no/such/thing"},
		"ingest --data x .":                {"has no flag --data", "Did you mean --data-dir?"},
		"ingest --lane fast .":             {`there is no "fast"`, "interactive, normal, backfill"},
		"ingest --lane backfil .":          {"did you mean backfill?"},
		"ingest --setting chunk_size=1 .":  {`there is no setting "chunk_size"`},
		"ingest --setting chunk_token=1 .": {"Did you mean chunk_token_num?"},
		"ingest --setting chunk_token_num=many .": {`"many" is not a whole number`},
		"ingest --setting pages .":                {"NAME=VALUE"},
		"ingest --parser-config {a .":             {"--parser-config is not a JSON object", "--setting"},
		"ingest --include [ .":                    {`"[" is not a pattern`},
		"docs --state fialed":                     {`there is no "fialed"; did you mean failed?`},
		"docs --limit x":                          {`"x" is not a whole number`},
		"docs --limit":                            {"--limit needs a value"},
		"docs -Z":                                 {"has no flag -Z"},
		"docs extra":                              {"takes no arguments", `"extra"`},
		"docs --server ::1:x":                     {"is not an address", "127.0.0.1:8080"},
		"docs --server ftp://a.b":                 {"is not an address"},
		"search":                                  {"`sheaf search` needs a QUERY"},
		"search --mode fuzy x":                    {`there is no "fuzy"`},
		"jobs a b":                                {"takes only one JOB, and got 2"},
		"jobs --wait":                             {"--wait needs a JOB"},
		"retry --units 9-5 x":                     {"5,9-12"},
		"doc delete":                              {"say which documents", "--state", "--all"},
		"doc delete x --all":                      {"say which documents"},
		"queue cancel":                            {"needs a TASK", "sheaf doc cancel --all"},
		"queue purge":                             {"say which dead tasks", "--all"},
		"key create acme --scope adm":             {`there is no "adm"; did you mean admin?`},
		"dataset rename a":                        {"needs a NAME and a NEW-NAME"},
		"completion nope":                         {"no command `sheaf completion nope`", "--help"},
		"plan --lanes 3":                          {`"3" is not a list of lane shares`, "10,80,10"},
		"plan --documents x":                      {`"x" is not a list of document sizes`, "1:30,20:70"},
		"plan --pages-per-day 1e15":               {"pages-per-day is 1e+15", "less than 1e15"},
		"plan --executors 0":                      {"executors is 0"},
		"models install nope":                     {`there is no model "nope"`, "bge-small-en-v1.5"},
	} {
		o := typed{}.run(strings.Fields(line)...)
		if o.code != exitUsage || o.out != "" {
			t.Errorf("sheaf %s ends with %d and prints %q", line, o.code, o.out)
		}
		for _, text := range says {
			if !strings.Contains(o.err, text) {
				t.Errorf("sheaf %s says %q, without %q", line, o.err, text)
			}
		}
		for _, raw := range []string{"arg(s)", "lstat", "pflag", "strconv", "first path segment"} {
			if strings.Contains(o.err, raw) {
				t.Errorf("sheaf %s says %q", line, o.err)
			}
		}
		j := typed{}.run(append([]string{"--json"}, strings.Fields(line)...)...)
		var e trouble
		if err := json.Unmarshal([]byte(j.err), &e); err != nil || e.Code != "usage" || e.Message == "" || e.ExitCode != exitUsage {
			t.Errorf("sheaf --json %s prints %q as its error", line, j.err)
		}
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv("SHEAF_DATA_DIR", t.TempDir())
	gone := httptest.NewServer(http.NotFoundHandler())
	address := strings.TrimPrefix(gone.URL, "http://")
	if o := (typed{}).run("docs", "--server", address); o.code == exitUnreachable || !strings.Contains(o.err, "is "+gone.URL+" a Sheaf?") {
		t.Errorf("a server that is no Sheaf: %d %s", o.code, o.err)
	}
	gone.Close()
	o := typed{}.run("docs", "--server", address, "--json")
	var e trouble
	if err := json.Unmarshal([]byte(o.err), &e); err != nil || o.code != exitUnreachable || e.Code != "unreachable" || !strings.Contains(e.Cure, "sheaf up") || !strings.Contains(e.Message, "connection refused") || strings.Contains(e.Message, "dial") {
		t.Errorf("without a server: %d %s", o.code, o.err)
	}
	// A completion says nothing and does not wait.
	begun := time.Now()
	if o := (typed{}).run("__complete", "--server", address, "docs", "-d", ""); !strings.HasPrefix(o.out, ":4") || time.Since(begun) > 10*time.Second {
		t.Errorf("a completion without a server: %q", o.out)
	}
}

// The help of every command has an example and a group; two of them are held
// word by word.
func TestHelp(t *testing.T) {
	t.Setenv("SHEAF_CONFIG", "")
	t.Setenv("SHEAF_URL", "")
	var all strings.Builder
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c.Example == "" && c.Name() != "exit-codes" {
			t.Errorf("`%s` shows no example", c.CommandPath())
		}
		if c.HasParent() && c.Parent().Name() == "sheaf" && c.GroupID == "" && c.Name() != "exit-codes" {
			t.Errorf("`%s` is in no group", c.CommandPath())
		}
		o := typed{}.run(append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if !strings.Contains(o.out, "Usage:") && c.Name() != "exit-codes" {
			t.Errorf("`%s --help` prints %q", c.CommandPath(), o.out)
		}
		if c.CommandPath() == "sheaf" || c.CommandPath() == "sheaf ingest" {
			fmt.Fprintf(&all, "$ %s --help\n%s\n", c.CommandPath(), o.out)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	got := all.String()
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		got = strings.ReplaceAll(got, home, "~")
	}
	const path = "testdata/help.txt"
	if *updateGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := readFile(t, path); got != want {
		a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("the help changed at line %d from\n%s\nto\n%s\nrun go test ./internal/command -run TestHelp -update-golden when it should", i+1, a[i], b[i])
			}
		}
		t.Fatal("the help changed; run go test ./internal/command -run TestHelp -update-golden when it should")
	}
}

// shellWord matches one word, with its quotes.
var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)

// Every example that the help shows is a command that exists, with its flags.
func TestExamplesInTheHelp(t *testing.T) {
	n := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, " #")
			i := strings.Index(line, "sheaf ")
			if i < 0 {
				t.Errorf("`%s` shows %q", c.CommandPath(), line)
				continue
			}
			line, _, _ = strings.Cut(line[i+len("sheaf "):], " | ")
			line, _, _ = strings.Cut(line, " > ")
			root := newRoot()
			words := shellWord.FindAllString(line, -1)
			for i, w := range words {
				words[i] = strings.Trim(w, `'"`)
			}
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root {
				t.Errorf("`%s` shows `sheaf %s`, which does not exist", c.CommandPath(), line)
				continue
			}
			n++
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("`%s` shows `sheaf %s`: %v", c.CommandPath(), line, err)
			} else if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
				t.Errorf("`%s` shows `sheaf %s`: %v", c.CommandPath(), line, err)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
	if n < 60 {
		t.Errorf("only %d examples are shown", n)
	}
}

func TestExitCodesAreDocumented(t *testing.T) {
	book := readFile(t, "../../docs/handbook.md")
	topic := typed{}.run("help", "exit-codes").out
	for _, c := range exitCodes {
		if !strings.Contains(book, fmt.Sprintf("| %d | %s |", c.Code, c.Name)) {
			t.Errorf("the handbook has no row for exit code %d, %s", c.Code, c.Name)
		}
		if !strings.Contains(topic, fmt.Sprintf("%3d  %-12s %s", c.Code, c.Name, c.Meaning)) {
			t.Errorf("`sheaf help exit-codes` has no line for %d: %s", c.Code, topic)
		}
	}
}

// The closing summary says what came of the files, each failure once, and what
// to do next in the dataset that was meant.
func TestClosingSummary(t *testing.T) {
	job := &sheaf.Job{ID: "01a2", State: sheaf.DocPartiallySucceeded, Usage: sheaf.Usage{Pages: 3000}, Reused: sheaf.Reused{Pages: 410}}
	job.Documents = sheaf.JobDocuments{Total: 175, ByState: map[sheaf.DocumentState]int{sheaf.DocSucceeded: 158, sheaf.DocPartiallySucceeded: 1, sheaf.DocFailed: 16}}
	o := &ingested{
		Dataset: "my pdfs", Jobs: []*sheaf.Job{job}, files: 177, bytes: 81_400_000, begun: time.Now().Add(-72 * time.Second), flag: " -d 'my pdfs'", URL: "http://127.0.0.1:8080/jobs/01a2",
		Rejected: []api.Rejected{{Name: "a.exe"}}, Unread: []unread{{"/x/locked.pdf", "permission denied"}},
		Failures: []verdict{
			{"encrypted", "The document opens only with a password.", []string{"a.pdf", "b.pdf", "c.pdf", "d.pdf", "e.pdf", "f.pdf", "g.pdf"}},
			{"unsupported_format", "Programs are not read.", []string{"a.exe"}},
		},
	}
	var b strings.Builder
	o.print(&b, true)
	const want = `Ingested 177 files (81 MB) into my pdfs in 1 min 12 s: 3,410 pages, 410 of them reused.
     158  succeeded
       1  succeeded in part
      16  failed
       1  refused
       1  could not be read here

Issues
  encrypted (7): The document opens only with a password.
      a.pdf · b.pdf · c.pdf · d.pdf · e.pdf · and 2 more
  unsupported_format (1): Programs are not read.
      a.exe
  /x/locked.pdf: permission denied

Next
  sheaf search -d 'my pdfs' "your question"                  search
  sheaf docs -d 'my pdfs' --state failed,partially_succeeded  list what did not succeed
  http://127.0.0.1:8080/jobs/01a2                             see it in the page
`
	if got := b.String(); got != strings.Replace(want, `question"                  search`, `question"                   search`, 1) {
		t.Errorf("the summary reads\n%s\nwant\n%s", got, want)
	}
	if err := o.err(); !isA[partialError](err) || err.Error() != "18 of 177 files did not succeed, 1 document succeeded in part" {
		t.Errorf("it ends with %v", err)
	}
	one := &ingested{files: 1, Jobs: []*sheaf.Job{{Documents: sheaf.JobDocuments{Total: 1, ByState: map[sheaf.DocumentState]int{sheaf.DocFailed: 1}}}}}
	if err := one.err(); err == nil || isA[partialError](err) || err.Error() != "1 of 1 file did not succeed" {
		t.Errorf("one file that failed ends with %v", err)
	}
}

func TestNumbersInWords(t *testing.T) {
	for got, want := range map[string]string{
		count(0, "document"): "0 documents", count(1, "document"): "1 document", count(2415, "page"): "2,415 pages", count(2, "entry"): "2 entries", count(1234567, "day"): "1,234,567 days",
		number(999): "999", number(-1000): "-1,000", size(0): "0 B", size(14_300): "14 kB", size(6_600_000): "6.6 MB", size(999_600): "1.0 MB",
		span(400 * time.Millisecond): "0.4 s", span(12 * time.Second): "12 s", span(72 * time.Second): "1 min 12 s", span(60 * time.Second): "1 min", span(3*time.Hour + 5*time.Minute): "3 h 5 min", span(52 * time.Hour): "2 d 4 h",
		left(0, 0): "almost done", left(0.2, 1.1): "almost done", left(20, 40): "about 20–40 s left", left(100, 170): "about 2–3 min left", left(60, 170): "about 60 s–3 min left", left(9000, 9100): "about 2 h–3 h left"[:0] + left(9000, 9100),
		quoted("a-b.c"): "a-b.c", quoted("my pdfs"): "'my pdfs'", quoted("it's"): `'it'\''s'`,
		shortName("a-very-long-name-of-a-file-that-ends-in-2026.pdf", 24): "a-very-long-nam…2026.pdf",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for said, want := range map[string]string{"pdsf": "pdfs", "cont": "contracts", "xyz": "", "PDFS": "pdfs", "contratcs": "contracts"} {
		if got := api.Nearest(said, []string{"contracts", "pdfs", "default"}); got != want {
			t.Errorf("nearest to %q is %q, want %q", said, got, want)
		}
	}
}

// TestCommands runs every command that talks to a server against a real one.
func TestCommands(t *testing.T) {
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
	var in ingested
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
	has(s.sheaf("jobs", "00000000000000000000000000000000"), exitNotFound, "`sheaf jobs` lists")
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
	var st serverStatus
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
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan ending, 1)
	go func() { done <- s.typed(typed{ctx: ctx}, "ingest", path) }()
	var jobs api.List[sheaf.Job]
	waitFor(t, "the job", func() bool { s.get("/v1/jobs", &jobs); return len(jobs.Items) == 1 })
	stop(interrupted{os.Interrupt})
	o, id := <-done, jobs.Items[0].ID
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

// Ctrl-C during the upload says what is stored; the same command again sends
// the rest and makes one job of all.
func TestStopUploading(t *testing.T) {
	s := start(t, nil)
	dir := t.TempDir()
	put(t, dir, "a.md", []byte("# Small\n\nIt is stored.\n"))
	put(t, dir, "b.trial", largeTrial(7, 20<<20))
	p := cutAfter(t, strings.TrimPrefix(s.base, "http://"))
	p.Set(proxy.Delay, 10*time.Millisecond)
	ctx, stop := context.WithCancelCause(t.Context())
	args := []string{"--server", p.Addr(), "ingest", "--parser-config", trialSettings, "--wait=false", dir}
	done := make(chan ending, 1)
	go func() { done <- typed{ctx: ctx}.run(args...) }()
	var list api.List[api.UploadStatus]
	waitFor(t, "the small file, and some of the large one", func() bool {
		s.get("/v1/datasets/default/uploads", &list)
		return len(list.Items) == 2 && slices.ContainsFunc(list.Items, func(u api.UploadStatus) bool { return u.Complete }) && s.stored("default") > 1000
	})
	stop(interrupted{os.Interrupt})
	o := <-done
	if o.code != exitInterrupted || !strings.Contains(o.err, "1 of 2 files are stored at the server until 20") || !strings.Contains(o.err, "Run the same command again to resume") {
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
	var jobs api.List[sheaf.Job]
	if s.get("/v1/jobs", &jobs); len(jobs.Items) != 1 || jobs.Items[0].Documents.Total != 2 {
		t.Errorf("the jobs: %+v", jobs.Items)
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

// Documents of many jobs are followed as one.
func TestProgressOfManyJobs(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	running := &sheaf.Job{State: sheaf.DocRunning, Progress: 0.5, Documents: sheaf.JobDocuments{Total: 300, ByState: map[sheaf.DocumentState]int{sheaf.DocSucceeded: 100, sheaf.DocRunning: 190, sheaf.DocFailed: 10}},
		Usage: sheaf.Usage{Pages: 2000}, Queue: &sheaf.QueuePosition{ETASeconds: sheaf.ETA{P50: p(100), P90: p(170)}}}
	over := &sheaf.Job{State: sheaf.DocSucceeded, Progress: 1, Documents: sheaf.JobDocuments{Total: 100, ByState: map[sheaf.DocumentState]int{sheaf.DocSucceeded: 100}}, Usage: sheaf.Usage{Pages: 100}, Reused: sheaf.Reused{Pages: 5}}
	s := sumOf([]*sheaf.Job{running, over})
	if s.progress != 0.625 {
		t.Errorf("progress %v", s.progress)
	}
	if got, want := s.line(24.51), "210 of 400 documents, 2,105 pages, 5 of them reused, 10 failed, 24.5 pages/s, about 2–3 min left"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	waits := &sheaf.Job{State: sheaf.DocQueued, Documents: sheaf.JobDocuments{Total: 1}, Queue: &sheaf.QueuePosition{AheadOwn: 3}}
	if got, want := sumOf([]*sheaf.Job{waits}).line(0), "0 of 1 document, 3 tasks ahead"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b bytes.Buffer
	line := &bar{w: &b, last: -1, begun: time.Now().Add(-time.Minute)}
	for _, share := range []float64{0, 0.1, 0.3, 0.31, 0.999, 1} {
		line.show(share, "x")
	}
	if got := regexp.MustCompile(`\d+ %`).FindAllString(b.String(), -1); fmt.Sprint(got) != "[0 % 30 % 99 % 100 %]" {
		t.Errorf("without a terminal the shares %v are shown", got)
	}
	if got := jobShare(&sheaf.Job{State: sheaf.DocFailed, Progress: 1, Documents: sheaf.JobDocuments{Total: 1}}); got != "–" {
		t.Errorf("a job that failed is shown as %s", got)
	}
	for want, d := range map[string]sheaf.Document{
		"–":     {State: sheaf.DocFailed, Progress: 1},
		"99 %":  {State: sheaf.DocRunning, Progress: 1},
		"100 %": {State: sheaf.DocSucceeded, Progress: 1},
		"98 %":  {State: sheaf.DocPartiallySucceeded, Progress: 1, Ledger: sheaf.LedgerCounts{OK: 98, Failed: 2}},
	} {
		if got := progressWord(&d); got != want {
			t.Errorf("%s at %v is shown as %s, want %s", d.State, d.Progress, got, want)
		}
	}
	if got := cmp.Or(formatName("pdf/1", "application/pdf"), "-") + " " + formatName("", "application/pdf") + " " + formatName("", "application/x-made-up"); got != "pdf pdf made-up" {
		t.Errorf("formats are named %s", got)
	}
}
