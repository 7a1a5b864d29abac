// Command mutants verifies that the guards are tested: it removes one guard at a
// time from a copy of the tree, runs the tests that should notice, and fails if
// they pass.
//
// A guard stands below a comment "guard: NAME", in whichever file; what is taken
// away is found in the lines below it. So code may be renamed and moved.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one removed guard: the first match of old after the comment that names
// the guard is replaced by the expansion of new (regexp.Expand).
type mutant struct {
	guard    string
	old, new string
	pkg, run string  // the tests that should fail
	also     *mutant // a second guard against the same thing, removed with it
}

// reach is how many lines after its comment a guard is searched: the longest
// statement containing one begins that far above it.
const reach = 12

// counted: the rollup counts under the document's lock, and the statement that ends
// it counts again.
var counted = &mutant{guard: "finalize guard: every task has ended, as counted", old: `&& (\w+)\.\w+ == 0:`, new: `&& $1.started:`}

const redisOrder = "^TestContract$/(Places|Equal|Large|NoPhase|Window)|TestExecutorsOfTheVersionBefore"

var mutants = []mutant{
	{"fencing: a write needs the claim's epoch", `epoch=\?`, `?>=0`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"fencing: a completion needs the claim's epoch", ` \|\| \S+\.Epoch != \S+\.Epoch \{`, ` {`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"fencing: a completion needs a running task", `\S+\.State != string\(sheaf\.TaskRunning\) \|\| `, ``,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"fencing: an event needs the claim's epoch", `state='running' AND epoch=\?`, `?>=0`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"fencing: an executor stops before its lease ends", `if .* \{`, `if false {`,
		"./internal/worker", ".", nil},
	{"fencing: a claim behind an error is given back", `\w+\.releaseUnresolved\((\w+)\)`, `_ = $1`,
		"./internal/worker", ".", nil},
	{"claim guard: only what is pending can be claimed", `\S+\.State != string\(sheaf\.TaskPending\) \|\| `, ``,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"claim guard: nothing is claimed after its cancel", `WHEN cancel_requested_at<>0 THEN 'canceled' `, ``,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"PDF: a program made of another build of PDFium is refused", `case .*:`, `case false:`,
		"./parser/pdf/pdfiumhelper", "TestProgramsThatAreNotTheHelper", nil},
	{"finalize guard: every task has ended", `AND \w+\." \+ \w+ \+ "\)"`, `AND 1=0)"`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", counted},
	{"finalize guard: only the latest decision publishes", `AND fin_epoch=\?`, `AND ?>=0`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", nil},
	{"flows: the end of a node that failed and is replaced wakes what reads it", `if .* \{`, `if false {`,
		"./executor", "TestFlowsAgainstAModel/sqlite", nil},
	{"flows: an output is named by the config of its node", `(\w+\.Kind), \w+\.Config`, `$1`,
		"./executor", "TestFlowsAgainstAModel/sqlite", nil},
	{"flows: a node over the document leaves its result under the claim's epoch", `AND epoch=\?`, `AND ?>=0`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"flows: a node over the document has one result", `before\); `, `before[:0]); `,
		"./executor", "TestFlowsAgainstAModel/sqlite", nil},
	{"flows: results of nodes over the document go with their generation", `x\.gen<=\?`, `x.gen<0*?`,
		"./executor", "TestFlowsAgainstAModel/sqlite", nil},
	{"flows: a document is published behind the nodes over it", `if .* \{`, `if false {`,
		"./executor", "TestFlowsAgainstAModel/sqlite", nil},
	{"post-filter: the database decides what is seen", `return !(\w+) \|\| `, `return false && !$1 || $1 && `,
		"./internal/search", ".", nil},
	{"run id: a queue that lost its memory is fed again", `(len\(\w+\) > 0) \{`, `$1 && false {`,
		"./internal/keeper", ".", nil},
	{"run id: a hint that the queue has lost is not marked late", `(value\(\w+\)) == \w+`, `$1 == $1`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"fold: the end of the last task is not left for later", "AND \\w+\\.` \\+ \\w+ \\+ ` AND (\\w+\\.kind)", `AND $1`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"capacity: what a cap withheld is read again when it has headroom", `if (\w+)\..* \{`, `if $1.hints == nil {`,
		"./internal/queue/sqlqueue", ".", nil},
	{"finish: the end of the last range needs no keeper", `\S+, (\S+) = \w+, true`, `$1 = true`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"order: what has begun goes before what has not", `PhaseRanges`, `PhaseBegin`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"order: many ranges do not delay small documents", `case .*:`, `case false:`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"order: what follows has the place of its document", `cmp\.Or\((\S+), (\S+)\)`, `cmp.Or($2*2, $1)`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"order: the SQL queue reads each phase by itself", `\{sheaf\.PhaseRanges, .*`, `{sheaf.PhaseRanges, "phase>=-"},`,
		"./taskstore/sqlstore", "TestContract/sqlite", nil},
	{"turns: the bulk has its share", `case .*:`, `case false:`,
		"./internal/queue/sqlqueue", "TestContract", nil},
	{"turns: what is aged is served whatever begins", `case .*:`, `case false:`,
		"./internal/queue/sqlqueue", "TestContract", nil},
	{"order: Redis hands out by phase", `byScore\)`, `byPlace)`,
		"./internal/queue/redisstream", redisOrder, nil},
	{"turns: the bulk has its share in Redis", `elseif .* then`, `elseif false then`,
		"./internal/queue/redisstream", redisOrder, nil},
	{"turns: what is aged is served in Redis", `if .* then`, `if false then`,
		"./internal/queue/redisstream", redisOrder, nil},
	{"fairness: what a task takes beyond its cost is charged", `beyond >= leastCharge`, `false`,
		"./internal/worker", "TestTaskIsCharged", nil},
	{"fairness: who was kept by its cap is still owed", `if .* \{`, `if false {`,
		"./internal/queue/sqlqueue", "^TestContract$/WhoWas", nil},
	{"fairness: who was kept by its cap is still owed in Redis", `if .* then`, `if false then`,
		"./internal/queue/redisstream", "^TestContract$/WhoWas", nil},
	{"fairness: parsers go to the tenant that had the least time", `\S+ < \S+ \|\| `, `false || `,
		"./internal/queue", "TestSlots", nil},
	{"jobs: kept sums hold until something happens", ` > `, ` < `,
		"./taskstore/sqlstore", "^TestContract$/^sqlite$/SumsOf", nil},
	{"fairness: searches wait for their tenant's turn", `\w+\.TenantID`, `""`,
		"./internal/search", "TestSearchesAreShared", nil},
	{"webhooks: those of a tenant do not take all places", ` \|\| \S+ == \w+ \{`, ` {`,
		"./internal/webhook", "TestSlow", nil},
	{"filled: who fills the cap and leaves hints has the next free place announced", `redis\.call\('SET'.*\)`, ``,
		"./internal/queue/redisstream", "^TestContract$/FreedPlace", nil},
	{"filled: a place of a tenant that may have more is announced to who waits", `\w+\.full\(\) && `, `false && `,
		"./internal/queue/sqlqueue", "^TestContract$/FreedPlace", nil},
	{"order: executors of a version before let no tenant go", `redis\.call\('HDEL', (.*)\)`, `redis.call('HSET', $1, '1')`,
		"./internal/queue/redisstream", redisOrder, nil},
	{"window: the ends of documents have capacity beside plans", `if .* then`, `if false then`,
		"./internal/queue/redisstream", redisOrder, nil},
	{"breaker: what is away is left alone", `case .*, (errors\..*):`, `case $1:`,
		"./internal/worker", ".", nil},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	only := flag.String("only", "", "words of the guards to try; none means all")
	flag.Parse()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	for _, name := range []string{"SHEAF_TEST_REDIS_ADDR"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set; start the engines with `make services` and set the variables that it prints", name)
		}
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names, err := tree(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	files, err := guarded(dir, names)
	if err != nil {
		return err
	}
	sound := map[string]bool{}
	survived := 0
	fmt.Printf("%-58s %-9s %7s\n", "guard taken away", "verdict", "seconds")
	for _, m := range mutants {
		if !strings.Contains(m.guard, only) {
			continue
		}
		if key := m.pkg + m.run; !sound[key] {
			if out, err := test(ctx, dir, m); err != nil {
				return fmt.Errorf("the tests of %s fail with every guard in place:\n%s", m.pkg, out)
			}
			sound[key] = true
		}
		begun := time.Now()
		noticed, err := try(ctx, dir, files, m)
		if err != nil {
			return err
		}
		verdict := "noticed"
		if !noticed {
			verdict = "SURVIVED"
			survived++
		}
		fmt.Printf("%-58s %-9s %7.1f\n", m.guard, verdict, time.Since(begun).Seconds())
	}
	if survived > 0 {
		return fmt.Errorf("%d guards can be taken away and no test fails", survived)
	}
	return nil
}

// try mutates the copy, runs the tests, and restores the files.
func try(ctx context.Context, dir string, files map[string]string, m mutant) (noticed bool, err error) {
	for of := &m; of != nil; of = of.also {
		path := files[of.guard]
		sound, readErr := os.ReadFile(path)
		if readErr != nil {
			return false, fmt.Errorf("no file has the comment \"guard: %s\"; put it above what the mutant takes away", of.guard)
		}
		changed, mutateErr := of.mutate(sound)
		if mutateErr != nil {
			return false, fmt.Errorf("%s: %w", path, mutateErr)
		}
		defer func() { err = errors.Join(err, os.WriteFile(path, sound, 0o644)) }()
		if err := os.WriteFile(path, changed, 0o644); err != nil {
			return false, err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", m.pkg)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return false, fmt.Errorf("without %q the code does not compile: %s", m.guard, out)
	}
	_, err = test(ctx, dir, m)
	return err != nil, ctx.Err()
}

func test(ctx context.Context, dir string, m mutant) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-timeout", "5m", "-run", m.run, m.pkg)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

var comment = regexp.MustCompile(`(?m)^[ \t]*(?://|--) guard: (.*)$`)

// mutate removes the guard from a file.
func (m *mutant) mutate(text []byte) ([]byte, error) {
	for _, at := range comment.FindAllSubmatchIndex(text, -1) {
		if string(text[at[2]:at[3]]) != m.guard {
			continue
		}
		old, err := regexp.Compile(m.old)
		if err != nil {
			return nil, err
		}
		behind := text[at[1]:]
		match := old.FindSubmatchIndex(behind)
		if match == nil || bytes.Count(behind[:match[0]], []byte("\n")) > reach {
			return nil, fmt.Errorf("within %d lines of the comment \"guard: %s\" nothing matches %s: follow what was changed", reach, m.guard, m.old)
		}
		changed := old.Expand(bytes.Clone(text[:at[1]+match[0]]), []byte(m.new), behind, match)
		return append(changed, behind[match[1]:]...), nil
	}
	return nil, fmt.Errorf("the comment \"guard: %s\" is missing", m.guard)
}

// guarded finds the file of each guard.
func guarded(dir string, names []string) (map[string]string, error) {
	files := map[string]string{}
	for _, name := range names {
		if ext := filepath.Ext(name); ext != ".go" && ext != ".lua" {
			continue
		}
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, found := range comment.FindAllSubmatch(text, -1) {
			guard := string(found[1])
			if other := files[guard]; other != "" {
				return nil, fmt.Errorf("the comment \"guard: %s\" stands in %s and in %s; one guard, one comment", guard, other, path)
			}
			files[guard] = path
		}
	}
	return files, nil
}

// tree lists the files that git tracks or would add.
func tree(ctx context.Context) ([]string, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the tree: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"), nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if os.IsNotExist(err) {
		return nil // deleted but not yet committed
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
