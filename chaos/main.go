// Command chaos proves that the fleet loses nothing: it runs the product's own
// processes on real engines, breaks both at random while clients work, and then
// compares every engine with what clients were told. The same seed draws the same
// faults.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sheaf"
)

func main() {
	faults := flag.Int("n", 1000, "faults to inject")
	seed := flag.Uint64("seed", 0, "seed of the faults; 0 draws one")
	mean := flag.Duration("every", 700*time.Millisecond, "mean time between two faults")
	out := flag.String("out", "chaos/out/chaos.json", "where the record goes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := alone(ctx, config{faults: *faults, seed: *seed, mean: *mean})
	if err == nil {
		err = r.write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	r.print(os.Stdout)
	if len(r.Violations) > 0 {
		os.Exit(1)
	}
}

// alone runs with its own engines, in a temporary folder.
func alone(ctx context.Context, c config) (*record, error) {
	dir, err := os.MkdirTemp("", "sheaf-chaos")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the engines may run as another user
		return nil, err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return nil, err
	}
	c.dir, c.env = dir, os.Getenv
	if os.Getenv("SHEAF_TEST_S3_ENDPOINT") == "" || os.Getenv("SHEAF_TEST_ES_URL") == "" {
		env, stop, err := services(ctx, root, filepath.Join(dir, "services"))
		if err != nil {
			return nil, err
		}
		defer stop()
		c.env = env
	}
	c.progress = os.Stderr
	if c.exe, err = buildBinary(ctx, root, dir); err != nil {
		return nil, err
	}
	t, err := setup(ctx, c, steadyTimes...)
	if err != nil {
		return nil, err
	}
	defer t.close()
	return run(ctx, c, t)
}

// config is one run.
type config struct {
	faults   int
	seed     uint64
	mean     time.Duration
	dir      string              // of the run
	exe      string              // the product's binary, from buildBinary
	env      func(string) string // variables of MinIO and Elasticsearch
	progress *os.File            // nil for none
}

// record is the result of a run.
type record struct {
	Seed          uint64             `json:"seed"`
	Faults        int                `json:"faults"`
	ByKind        map[string]int     `json:"by_kind"`
	NotInjected   map[string]int     `json:"not_injected,omitempty"`
	Documents     int                `json:"documents"`
	Tasks         int                `json:"tasks"`
	Claims        int                `json:"claims"`
	Lost          int                `json:"lost_leases"`
	Spent         int                `json:"tasks_lost_three_times"`
	Searches      int                `json:"searches"`
	Unanswered    int                `json:"uploads_not_answered"`
	FlowRuns      int                `json:"flow_runs"`    // over documents that were neither canceled nor deleted
	NodeOutputs   int                `json:"node_outputs"` // of live versions, compared with what was written
	DatasetRuns   map[string]int     `json:"dataset_runs"` // by kind and outcome
	Promises      []promise          `json:"promises"`
	Recovery      recovery           `json:"recovery"`              // with nothing else broken and the product's own settings
	UnderFaults   recovery           `json:"recovery_under_faults"` // with other faults active and short times
	SettleS       float64            `json:"settle_s"`              // from the last fault until rest
	Cancels       int                `json:"cancels"`
	CancelP50     float64            `json:"cancel_p50_s"` // from the request until no task runs, without faults
	CancelP99     float64            `json:"cancel_p99_s"`
	Served        map[string]float64 `json:"served_of_fair_share"`          // by tenant, all with a backlog: 1 is exactly its share by weight
	NewcomerAfter int                `json:"newcomer_after_claims"`         // claims of tenants with a backlog until a new tenant has its first
	ClaimsPerS    float64            `json:"claims_per_s"`                  // with a backlog and no fault
	SlowestPerS   float64            `json:"claims_per_s_slowest_window"`   // of all four-second windows in that time
	FlushBackS    float64            `json:"throughput_back_after_flush_s"` // from FLUSHALL until a window has that many
	FlushPerS     float64            `json:"claims_per_s_after_flush"`      // in the two windows from then on
	ReadyFollows  float64            `json:"readiness_follows_s"`           // the slowest, over outages and recoveries
	CuredS        float64            `json:"refused_key_cured_s"`           // from the cure until everything that waited for it is done
	Watchers      int                `json:"slow_watchers"`
	DurationS     float64            `json:"duration_s"`
	DiskFull      bool               `json:"disk_full"` // whether a small file system could be mounted
	Violations    []string           `json:"violations"`
	Log           []injected         `json:"log"`
	LeftoverProc  []string           `json:"leftover_processes,omitempty"`
}

// tenants of a run, and their weights.
var (
	tenants = []string{"alpha", "beta", "gamma"}
	weights = map[string]int{"alpha": 1, "beta": 1, "gamma": 2}
)

// run breaks a running fleet and checks it.
func run(ctx context.Context, c config, t *trial) (r *record, err error) {
	begun := time.Now()
	if c.seed == 0 {
		c.seed = uint64(begun.UnixNano())
	}
	say := func(format string, args ...any) {
		if c.progress != nil {
			fmt.Fprintf(c.progress, "chaos %6.1fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, args...))
		}
	}
	say("seed %d", c.seed)
	r = &record{Seed: c.seed, ByKind: map[string]int{}}
	e, f, l := t.e, t.f, t.l
	rng := rand.New(rand.NewPCG(c.seed, 1))
	r.DiskFull = f.full != ""
	say("%d processes are up", len(f.all))

	if err := l.measureCancels(ctx, e, 12, r); err != nil {
		return nil, err
	}
	say("cancel p50 %.2f s, p99 %.2f s", r.CancelP50, r.CancelP99)

	if err := t.measureShares(ctx, r); err != nil {
		return nil, err
	}
	say("served of fair share %s, %d claims before a newcomer's, throughput back %.1f s after FLUSHALL", r.shares(), r.NewcomerAfter, r.FlushBackS)

	if r.Recovery, err = t.measureRecovery(ctx); err != nil {
		return nil, err
	}
	say("recovery of killed executors' tasks: %s", r.Recovery)
	if err := t.measureOutages(ctx, r); err != nil {
		return nil, err
	}
	say("readiness follows within %.1f s; %.1f s from the cure of a refused key until what waited is done", r.ReadyFollows, r.CuredS)
	r.compare(l)
	if err := f.restart(ctx, shortTimes...); err != nil {
		return nil, err
	}

	working, stopWork := context.WithCancel(ctx)
	in := &injector{e: e, f: f, l: l, w: &watchers{l: l}, running: ctx, begun: begun, busy: map[string]bool{}, counts: map[string]int{}, failed: map[string]int{}, waits: waits{}}
	watched := make(chan struct{})
	go func() { in.waits.watch(working, e); close(watched) }()
	defer stopWork()
	idle := make(chan struct{})
	go func() {
		l.run(working, func() int {
			var n int
			if e.db.QueryRowContext(working, "SELECT COUNT(*) FROM tasks WHERE state NOT IN "+terminal).Scan(&n) != nil {
				return 1 << 20 // the database is down: wait
			}
			return n
		})
		close(idle)
	}()
	pause(ctx, 2*time.Second)
	in.inject(ctx, plan(in.kinds(), c.faults, rng), c.mean, c.seed)
	for range 3 { // replacements for those that could not be injected
		if missing := c.faults - in.injected(); missing > 0 {
			in.inject(ctx, plan(in.kinds(), missing, rng), c.mean, c.seed)
		}
	}
	stopWork()
	<-idle
	<-watched
	e.restore()
	say("%d faults are over, %d documents sent", c.faults, len(l.docs))

	restored := time.Now()
	pause(ctx, 3*lease)
	what := ""
	err = until(ctx, 90*time.Second, "rest", func() error {
		if what, err = e.unrest(ctx); err != nil {
			return err
		}
		if what != "" {
			return fmt.Errorf("%s", what)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		l.violation("I1: %v", err)
	}
	r.SettleS = time.Since(restored).Seconds()
	pause(ctx, 2*reconcile+time.Second) // the queue's counts are reconciled in two rounds
	say("at rest after %.1f s", r.SettleS)

	if err := in.w.check(ctx, e); err != nil {
		return nil, err
	}
	say("%d slow watchers have seen everything", len(in.w.all))

	check := &checker{e: e, f: f, l: l, settings: t.own}
	found, err := check.run(ctx)
	if err != nil {
		return nil, err
	}
	r.FlowRuns, r.NodeOutputs, r.DatasetRuns = check.flowRuns, check.outputs, check.ended
	say("%d runs of flows left %d outputs; runs over datasets: %v", r.FlowRuns, r.NodeOutputs, r.DatasetRuns)
	t.stopped = true
	if err := f.stopAll(); err != nil {
		l.violation("I17: %v", err)
	}
	if err := until(ctx, 5*time.Second, "children", func() error {
		if r.LeftoverProc = f.leftovers(); len(r.LeftoverProc) > 0 {
			return fmt.Errorf("processes outlived the fleet: %s", strings.Join(r.LeftoverProc, "; "))
		}
		return nil
	}); err != nil {
		l.violation("%v", err)
	}
	if r.UnderFaults, err = e.recoveryAfter(ctx, in.kills, in.waits); err != nil {
		return nil, err
	}
	r.Faults = in.injected()
	r.ByKind, r.NotInjected, r.Log = in.counts, in.failed, in.log
	r.Watchers = len(in.w.all)
	r.Documents, r.Searches, r.Unanswered = len(l.docs), l.searches, l.unanswered
	r.Violations = append(l.violations, found...)
	err = e.db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(attempts),0), COALESCE(SUM(lost_count),0),
		COALESCE(SUM(state='dead' AND failure_code='worker_lost'),0) FROM tasks`).Scan(&r.Tasks, &r.Claims, &r.Lost, &r.Spent)
	r.DurationS = time.Since(begun).Seconds()
	return r, err
}

// trial is a working fleet with its engines and clients.
type trial struct {
	e       *engines
	f       *fleet
	l       *load
	own     map[string]string // names in the shared engines
	unmount func()
	stopped bool
}

// setup starts the engines and a fleet; settings override the harness's own.
func setup(ctx context.Context, c config, settings ...string) (t *trial, err error) {
	e, err := startEngines(ctx, c.dir, c.env)
	if err != nil {
		return nil, err
	}
	name := "chaos" + strings.ToLower(sheaf.NewID()[18:])
	t = &trial{e: e, own: map[string]string{"SHEAF_BLOB_BUCKET": name, "SHEAF_INDEX_PREFIX": name}, unmount: func() {}}
	t.f = &fleet{exe: c.exe, dir: filepath.Join(c.dir, "fleet"), env: append(e.settings(), settings...)}
	t.l = &load{keys: map[string]string{}, stopping: map[string]bool{}, stopped: map[string]bool{}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, rng: rand.New(rand.NewPCG(c.seed, 3))}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	for _, k := range slices.Sorted(maps.Keys(t.own)) {
		t.f.env = append(t.f.env, k+"="+t.own[k])
	}
	if err := os.MkdirAll(t.f.dir, 0o755); err != nil {
		return nil, err
	}
	t.unmount = t.f.mountSmall()
	if _, err := t.f.command(ctx, "migrate"); err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		if _, err := t.f.command(ctx, "tenant", "create", tenant, "--weight", fmt.Sprint(weights[tenant]), "--cap", fmt.Sprint(tenantCap*weights[tenant])); err != nil {
			return nil, err
		}
		if t.l.keys[tenant], err = t.f.command(ctx, "key", "create", tenant, "--scope", "write"); err != nil {
			return nil, err
		}
	}
	for _, role := range []string{"serve", "serve", "keeper", "keeper", "executor", "executor", "executor"} {
		p, err := t.f.add(role)
		if err != nil {
			return nil, err
		}
		if p.url != "" {
			t.l.urls = append(t.l.urls, p.url)
		}
	}
	for _, tenant := range tenants {
		if err := t.l.post(ctx, tenant, "/v1/datasets", map[string]any{"name": dataset}, nil); err != nil {
			return nil, fmt.Errorf("creating a dataset: %w", err)
		}
		if err := t.l.createFlows(ctx, tenant); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// close ends everything that setup started and removes its data from the shared
// engines.
func (t *trial) close() {
	if !t.stopped {
		for _, p := range t.f.all {
			_, _ = p.stop(time.Millisecond)
		}
	}
	t.unmount()
	dropIndex(t.e.es.String(), t.own["SHEAF_INDEX_PREFIX"])
	t.e.close()
}

// mountSmall gives executor 0 a file system that can be filled. If mounting is not
// permitted its disk is not filled, and the record notes that.
func (f *fleet) mountSmall() (unmount func()) {
	dir := filepath.Join(f.dir, "small")
	if os.MkdirAll(dir, 0o755) != nil || exec.Command("mount", "-t", "tmpfs", "-o", "size=24m", "chaos", dir).Run() != nil {
		return func() {}
	}
	f.full = dir
	return func() { _ = exec.Command("umount", "-l", dir).Run() }
}

func dropIndex(es, prefix string) {
	req, err := http.NewRequest(http.MethodDelete, es+"/"+prefix+"*?expand_wildcards=all", nil)
	if err != nil {
		return
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// measureCancels cancels documents in progress, without faults, and records how
// long it takes until none of their tasks run.
func (l *load) measureCancels(ctx context.Context, e *engines, n int, r *record) error {
	var took []time.Duration
	for i := range n {
		d, err := l.send(ctx, tenants[i%len(tenants)], true)
		if err != nil {
			return err
		}
		running := func() (n int, err error) {
			err = e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE doc_id=? AND state='running' AND kind='parse'", d.id).Scan(&n)
			return n, err
		}
		if err := until(ctx, 60*time.Second, "a running task", func() error {
			if n, err := running(); err != nil || n == 0 {
				return fmt.Errorf("no task of %s runs (%v)", d.id, err)
			}
			return nil
		}); err != nil {
			return err
		}
		begun := time.Now()
		if err := l.cancel(ctx, d); err != nil {
			return err
		}
		for deadline := begun.Add(30 * time.Second); time.Now().Before(deadline); pause(ctx, 10*time.Millisecond) {
			var open int
			if err := e.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks WHERE doc_id=? AND state NOT IN "+terminal, d.id).Scan(&open); err != nil {
				return err
			}
			if open == 0 {
				break
			}
		}
		took = append(took, time.Since(begun))
	}
	r.Cancels, r.CancelP50, r.CancelP99 = len(took), quantile(took, 0.5), quantile(took, 0.99)
	return nil
}

// promise is a measurement and its bound.
type promise struct {
	Measure string  `json:"measure"`
	Seconds float64 `json:"seconds"`
	Bound   float64 `json:"bound_s"`
}

// compare compares the measurements without faults with what is promised.
func (r *record) compare(l *load) {
	r.Promises = []promise{
		{"cancel of running work, p99", r.CancelP99, 2},
		{"recovery of a killed executor's tasks, p99", r.Recovery.P99, promised.Seconds()},
		{"full throughput after FLUSHALL", r.FlushBackS, promised.Seconds()},
		{"readiness follows an outage and its end", r.ReadyFollows, followed.Seconds()},
		{"a refused key is cured: what waited is done", r.CuredS, 2 * promised.Seconds()},
	}
	for _, p := range r.Promises {
		if p.Seconds > p.Bound {
			l.violation("%s: %.1f s, promised are %.0f s", p.Measure, p.Seconds, p.Bound)
		}
	}
}

// quantile returns seconds; 0 for no values.
func quantile(values []time.Duration, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Seconds()
}

func (r *record) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// shares formats how well each tenant was served.
func (r *record) shares() string {
	var parts []string
	for _, tenant := range tenants {
		parts = append(parts, fmt.Sprintf("%s %.2f", tenant, r.Served[tenant]))
	}
	return strings.Join(parts, ", ")
}

// print writes the table.
func (r *record) print(w *os.File) {
	fmt.Fprintf(w, "\n%-22s %6s\n", "fault", "times")
	for _, k := range slices.SortedFunc(maps.Keys(r.ByKind), func(a, b string) int { return cmp.Or(cmp.Compare(r.ByKind[b], r.ByKind[a]), cmp.Compare(a, b)) }) {
		fmt.Fprintf(w, "%-22s %6d\n", k, r.ByKind[k])
	}
	fmt.Fprintf(w, "%-22s %6d\n\n", "all", r.Faults)
	if len(r.NotInjected) > 0 {
		fmt.Fprintln(w, "not injected:", r.NotInjected)
	}
	if !r.DiskFull {
		fmt.Fprintln(w, "no disk was filled: mounting a file system is not permitted here")
	}
	fmt.Fprintf(w, "seed %d, %.0f s, %d documents, %d tasks, %d claims, %d lost leases, %d tasks lost three times, %d searches\n",
		r.Seed, r.DurationS, r.Documents, r.Tasks, r.Claims, r.Lost, r.Spent, r.Searches)
	fmt.Fprintf(w, "cancel of running work: %d, p50 %.2f s, p99 %.2f s\n", r.Cancels, r.CancelP50, r.CancelP99)
	fmt.Fprintf(w, "served of the fair share by weight: %s; a newcomer's first claim after %d of others\n", r.shares(), r.NewcomerAfter)
	fmt.Fprintf(w, "throughput: %.1f claims/s, in the slowest window %.1f; %.1f from %.1f s after FLUSHALL on\n", r.ClaimsPerS, r.SlowestPerS, r.FlushPerS, r.FlushBackS)
	fmt.Fprintf(w, "recovery of killed executors' tasks: %s\n", r.Recovery)
	fmt.Fprintf(w, "  under faults (lease %s, worker timeout %s): %s\n\n", lease, workerTimeout, r.UnderFaults)
	fmt.Fprintf(w, "%-46s %8s %8s\n", "promised, with nothing else broken", "seconds", "at most")
	for _, p := range r.Promises {
		fmt.Fprintf(w, "%-46s %8.2f %8.0f\n", p.Measure, p.Seconds, p.Bound)
	}
	fmt.Fprintf(w, "violations: %d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintln(w, "  "+v)
	}
}
