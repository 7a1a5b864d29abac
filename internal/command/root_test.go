package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

var updateGolden = flag.Bool("update-golden", false, "write testdata/help.txt")

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
	if got := s.line(2041.3); !strings.Contains(got, ", 2,041 pages/s,") {
		t.Errorf("a job of many pages a second: %q", got)
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
