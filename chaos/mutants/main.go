// Command mutants shows that the guards are tested: it takes one guard at a
// time out of a copy of the tree, runs the tests that ought to notice, and
// fails if they pass.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// mutant is one guard taken away.
type mutant struct {
	guard    string
	file     string
	old, new string
	pkg, run string    // the tests that notice
	also     [2]string // a second guard of the same thing, taken away with it
}

var none [2]string

const redisOrder = "^TestContract$/(Places|Equal|Large|NoPhase|Window)|TestExecutorsOfTheVersionBefore"

var mutants = []mutant{
	{
		"fencing: a write needs the claim's epoch", "taskstore/sqlstore/tasks.go",
		`row, err := s.updateTask(tx, c.TaskID, set, "state='running' AND epoch=?"`, `row, err := s.updateTask(tx, c.TaskID, set, "state='running' AND ?>=0"`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"fencing: a completion needs the claim's epoch", "taskstore/sqlstore/batch.go",
		`r.State != string(sheaf.TaskRunning) || r.Epoch != c.Epoch {`, `r.State != string(sheaf.TaskRunning) {`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"fencing: a completion needs a running task", "taskstore/sqlstore/batch.go",
		`r.State != string(sheaf.TaskRunning) || r.Epoch != c.Epoch {`, `r.Epoch != c.Epoch {`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"fencing: an event needs the claim's epoch", "taskstore/sqlstore/tasks.go",
		`"SELECT * FROM tasks WHERE id=? AND state='running' AND epoch=?"`, `"SELECT * FROM tasks WHERE id=? AND ?>=0"`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"fencing: an executor stops before its lease ends", "internal/worker/worker.go",
		`if int64(now.Sub(w.started)) > a.fence.Load() {`, `if false {`,
		"./internal/worker", ".", none,
	},
	{
		"fencing: a claim behind an error is given back", "internal/worker/worker.go",
		`w.releaseUnresolved(ask)`, `_ = ask`,
		"./internal/worker", ".", none,
	},
	{
		"claim guard: only what is pending can be claimed", "taskstore/sqlstore/batch.go",
		`r.State != string(sheaf.TaskPending) || r.RunAt > r.Now`, `r.RunAt > r.Now`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"claim guard: nothing is claimed after its cancel", "taskstore/sqlstore/lifecycle.go",
		`state=CASE WHEN cancel_requested_at<>0 THEN 'canceled' WHEN %[2]s THEN`, `state=CASE WHEN %[2]s THEN`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"PDF: a program made of another build of PDFium is refused", "parser/pdf/pdfiumhelper/helper.go",
		`case string(body[8:]) != e.cfg.Module:`, `case len(e.cfg.Module) == 0:`,
		"./parser/pdf/pdfiumhelper", "TestProgramsThatAreNotTheHelper", none,
	},
	{
		"finalize guard: every task has ended", "taskstore/sqlstore/fold.go",
		`kind NOT IN ` + "`+notCounted+`" + ` AND t.` + "`+isOpen+`" + `)`, `kind NOT IN ` + "`+notCounted+`" + ` AND 1=0)`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite",
		// The fold counts under the document's lock, and the statement counts again.
		[2]string{"case f.planned && f.open == 0:", "case f.planned && f.started:"},
	},
	{
		"finalize guard: only the latest decision publishes", "taskstore/sqlstore/publish.go",
		`WHERE id=? AND gen=? AND state='finalizing' AND fin_epoch=? AND deleted_at=0`, `WHERE id=? AND gen=? AND ?>=0 AND deleted_at=0`,
		"./taskstore/sqlstore", "TestContract/sqlite|TestModel/sqlite", none,
	},
	{
		"flows: the end of a node that failed and is replaced wakes what reads it", "taskstore/sqlstore/tasks.go",
		"if state == sheaf.TaskDone {\n\t\t\tif err := s.wakeChildren", "if false {\n\t\t\tif err := s.wakeChildren",
		"./executor", "TestFlowsAgainstAModel/sqlite", none,
	},
	{
		"flows: an output is named by the config of its node", "executor/nodes.go",
		`n.Kind, n.Config, asked, inputs`, `n.Kind, asked, inputs`,
		"./executor", "TestFlowsAgainstAModel/sqlite", none,
	},
	{
		"post-filter: the database decides what is seen", "internal/search/search.go",
		`return !ok || v.DocumentID`, `return false && !ok || ok && v.DocumentID`,
		"./internal/search", ".", none,
	},
	{
		"run id: a queue that lost its memory is fed again", "internal/keeper/keeper.go",
		`len(lost) > 0 {`, `len(lost) > 0 && false {`,
		"./internal/keeper", ".", none,
	},
	{
		"fold: the end of the last task is not left for later", "taskstore/sqlstore/fold.go",
		`AND t.` + "` + isOpen + `" + ` AND t.kind`, `AND t.kind`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"capacity: what a cap withheld is read again when it has headroom", "internal/queue/sqlqueue/sqlqueue.go",
		`l.left == 0 && !l.all {`, `l.hints == nil {`,
		"./internal/queue/sqlqueue", ".", none,
	},
	{
		"finish: the end of the last range needs no keeper", "taskstore/sqlstore/batch.go",
		`answers[i].last, goesOn[d] = d, true`, `goesOn[d] = true`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"order: what has begun goes before what has not", "taskstore/sqlstore/taskrows.go",
		`return sheaf.PhaseRanges, b.Place`, `return sheaf.PhaseBegin, b.Place`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"order: many ranges do not delay small documents", "taskstore/sqlstore/taskrows.go",
		`case ranges > sheaf.BulkRanges:`, `case false:`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"order: what follows has the place of its document", "taskstore/sqlstore/fold.go",
		`base.Place = plan.Trace, cmp.Or(plan.Place, plan.CreatedAt)`, `base.Place = plan.Trace, cmp.Or(plan.CreatedAt*2, plan.Place)`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"order: the SQL queue reads each phase by itself", "taskstore/sqlstore/feed.go",
		`fmt.Sprintf("phase<=%d", sheaf.PhaseRanges), fmt.Sprintf("phase=%d", sheaf.PhaseBegin), fmt.Sprintf("phase=%d", sheaf.PhaseBulk),`, `"phase>=0",`,
		"./taskstore/sqlstore", "TestContract/sqlite", none,
	},
	{
		"turns: the bulk has its share", "internal/queue/turns.go",
		`case turn%BulkEvery == 0:`, `case false:`,
		"./internal/queue/sqlqueue", "TestContract", none,
	},
	{
		"turns: what is aged is served whatever begins", "internal/queue/turns.go",
		`case turn%AgedEvery == 0:`, `case false:`,
		"./internal/queue/sqlqueue", "TestContract", none,
	},
	{
		"order: Redis hands out by phase", "internal/queue/redisstream/lua/take.lua",
		`local list = first(lane, 0, phases - 1, false, byScore)`, `local list = first(lane, 0, phases - 1, false, byPlace)`,
		"./internal/queue/redisstream", redisOrder, none,
	},
	{
		"turns: the bulk has its share in Redis", "internal/queue/redisstream/lua/take.lua",
		`elseif turn % tonumber(ARGV[8]) == 0 then`, `elseif false then`,
		"./internal/queue/redisstream", redisOrder, none,
	},
	{
		"turns: what is aged is served in Redis", "internal/queue/redisstream/lua/take.lua",
		`if turn % tonumber(ARGV[9]) == 0 then`, `if false then`,
		"./internal/queue/redisstream", redisOrder, none,
	},
	{
		"order: executors of a version before let no tenant go", "internal/queue/redisstream/lua/activate.lua",
		`redis.call('HDEL', KEYS[4], ARGV[1])`, `redis.call('HSET', KEYS[4], ARGV[1], '1')`,
		"./internal/queue/redisstream", redisOrder, none,
	},
	{
		"window: the ends of documents have capacity beside plans", "internal/queue/redisstream/lua/publish.lua",
		`if last == 1 then`, `if false then`,
		"./internal/queue/redisstream", redisOrder, none,
	},
	{
		"breaker: what is away is left alone", "internal/worker/breaker.go",
		`case b.failures >= tripAfter, errors.Is(err, sheaf.ErrMisconfigured):`, `case errors.Is(err, sheaf.ErrMisconfigured):`,
		"./internal/worker", ".", none,
	},
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
	if err := copyTree(ctx, dir); err != nil {
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
		noticed, err := try(ctx, dir, m)
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

// try mutates the copy, runs the tests, and puts the file back.
func try(ctx context.Context, dir string, m mutant) (noticed bool, err error) {
	path := filepath.Join(dir, m.file)
	sound, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	if n := bytes.Count(sound, []byte(m.old)); n != 1 {
		return false, fmt.Errorf("%s holds %d times %q, want once: the guard was moved, follow it", m.file, n, m.old)
	}
	defer func() {
		if back := os.WriteFile(path, sound, 0o644); err == nil {
			err = back
		}
	}()
	changed := bytes.Replace(sound, []byte(m.old), []byte(m.new), 1)
	if m.also != none {
		if n := bytes.Count(sound, []byte(m.also[0])); n != 1 {
			return false, fmt.Errorf("%s holds %d times %q, want once: the guard was moved, follow it", m.file, n, m.also[0])
		}
		changed = bytes.Replace(changed, []byte(m.also[0]), []byte(m.also[1]), 1)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		return false, err
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

// copyTree copies the files that git knows or would add.
func copyTree(ctx context.Context, dir string) error {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return fmt.Errorf("listing the tree: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
