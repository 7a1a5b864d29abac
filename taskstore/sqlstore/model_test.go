package sqlstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
	"sheaf/taskstore/storetest"
)

// Times of the model: coarse, and never equal to a sum of the steps by which
// its clock moves, so that the milliseconds of the real clock do not matter.
const (
	modelLease = 5*time.Minute + 30*time.Second
	modelDelay = 1*time.Minute + 30*time.Second
	modelGrace = 2*time.Minute + 30*time.Second
	modelFails = 2
	modelLost  = 2
)

type modelTask struct {
	id, doc                string
	gen                    int
	kind                   sheaf.TaskKind
	state                  sheaf.TaskState
	epoch                  int64
	attempts, fails, losts int
	cancel                 bool
	cancelAt, runAt, lease time.Duration
	worker                 string
	parents                []string
	fin                    int64 // of a finalize task
}

type modelDoc struct {
	storetest.Doc
	gen, live int
	state     sheaf.DocumentState
	fin       int64
	progress  float64
}

// model is what the store should hold, written down in memory in the plainest
// way there is.
type model struct {
	f      *storetest.Fixture
	tenant string
	clock  time.Duration
	tasks  map[string]*modelTask
	docs   map[string]*modelDoc
	order  []string // task ids as they came
	claims []sheaf.Claim
	owner  map[sheaf.Claim]string
	reset  bool // the last step may have set a document's progress back
}

var ctx = context.Background()

// TestModel lets random steps of executors, keeper and users meet, and
// compares the tables with a model after each, and the history with the
// invariants at the end.
func TestModel(t *testing.T) {
	checks := map[string]string{"sqlite": "150", "mysql": "12", "postgres": "12"}
	if testing.Short() {
		checks = map[string]string{"sqlite": "20", "mysql": "2", "postgres": "2"}
	}
	before, steps := flag.Lookup("rapid.checks").Value.String(), flag.Lookup("rapid.steps").Value.String()
	defer flag.Set("rapid.checks", before)
	if steps == "30" {
		defer flag.Set("rapid.steps", steps)
		if err := flag.Set("rapid.steps", "70"); err != nil {
			t.Fatal(err)
		}
	}
	storetest.ForEachEngine(t, func(t *testing.T, engine string) {
		if before == "100" { // the default: nobody asked for another number
			if err := flag.Set("rapid.checks", checks[engine]); err != nil {
				t.Fatal(err)
			}
		}
		f := storetest.New(t, engine)
		var run atomic.Int64
		rapid.Check(t, func(t *rapid.T) {
			m := &model{f: f, tenant: fmt.Sprintf("t%d", run.Add(1)), tasks: map[string]*modelTask{}, docs: map[string]*modelDoc{}, owner: map[sheaf.Claim]string{}}
			m.create(t)
			t.Repeat(map[string]func(*rapid.T){
				"create":     m.create,
				"claim":      m.claim,
				"claim2":     m.claim, // twice as likely
				"heartbeat":  m.heartbeat,
				"complete":   m.complete,
				"complete2":  m.complete,
				"together":   m.together,
				"fail":       m.fail,
				"snooze":     m.snooze,
				"release":    m.release,
				"append":     m.append,
				"cancel":     m.cancelDoc,
				"reparse":    m.reparse,
				"retry":      m.retry,
				"advance":    m.advance,
				"reap":       m.reap,
				"hardcancel": m.hardCancel,
				"promote":    m.promote,
				"wake":       m.wake,
				"fold":       func(t *rapid.T) { m.fold(t) },
				"":           m.check,
			})
			m.settle(t)
			m.checkHistory(t)
		})
	})
}

func ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// expect checks the answer to a write under a claim: ErrStale, and only then,
// when the model says that the claim is over.
func expect(t *rapid.T, what string, err error, held bool) {
	if held && err != nil || !held && !errors.Is(err, sheaf.ErrStale) {
		t.Fatalf("%s: %v, while the model says held=%v", what, err, held)
	}
}

func (m *model) create(t *rapid.T) {
	if len(m.docs) == 3 {
		t.Skip("enough documents")
	}
	d := m.f.Document(m.tenant)
	m.docs[d.ID] = &modelDoc{Doc: d, gen: 1, state: sheaf.DocQueued}
	m.add(&modelTask{id: d.Plan, doc: d.ID, gen: 1, kind: sheaf.KindPlan, state: sheaf.TaskPending})
}

func (m *model) add(task *modelTask) {
	task.runAt = m.clock
	m.tasks[task.id] = task
	m.order = append(m.order, task.id)
}

func (m *model) claim(t *rapid.T) {
	from := m.order
	var pending []string
	for _, id := range m.order {
		if m.tasks[id].state == sheaf.TaskPending {
			pending = append(pending, id)
		}
	}
	// Mostly what can be claimed, else deep states are never reached.
	if len(pending) > 0 && rapid.IntRange(0, 4).Draw(t, "any") > 0 {
		from = pending
	}
	task := m.tasks[rapid.SampledFrom(from).Draw(t, "task")]
	m.claimTask(t, task, rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "worker"))
}

func (m *model) claimTask(t *rapid.T, task *modelTask, worker string) sheaf.Claim {
	got, err := m.f.Store.Claim(ctx, task.id, worker, modelLease)
	return m.claimed(t, task, worker, got, err)
}

// claimed checks the answer to a claim and takes it over.
func (m *model) claimed(t *rapid.T, task *modelTask, worker string, got *sheaf.Task, err error) sheaf.Claim {
	if task.state != sheaf.TaskPending || task.runAt > m.clock {
		refusal, is := errors.AsType[*taskstore.NotClaimable](err)
		if !is || refusal.State != task.state {
			t.Fatalf("claim of a task that is %s: %v", task.state, err)
		}
		return sheaf.Claim{}
	}
	ok(t, err)
	if got.Epoch != task.epoch+1 || got.Attempts != task.attempts+1 || got.WorkerID != worker || got.State != sheaf.TaskRunning {
		t.Fatalf("claimed as %+v, while the model has epoch %d and %d attempts", got, task.epoch, task.attempts)
	}
	task.state, task.worker, task.lease = sheaf.TaskRunning, worker, m.clock+modelLease
	task.epoch++
	task.attempts++
	m.claims = append(m.claims, got.Held())
	m.owner[got.Held()] = worker
	return got.Held()
}

// held picks a claim, be it current or long over.
func (m *model) held(t *rapid.T) (sheaf.Claim, *modelTask, bool) {
	if len(m.claims) == 0 {
		t.Skip("no claims yet")
	}
	from := m.claims
	var current []sheaf.Claim
	for _, c := range m.claims {
		if m.holds(c) {
			current = append(current, c)
		}
	}
	if len(current) > 0 && rapid.IntRange(0, 4).Draw(t, "any") > 0 {
		from = current
	}
	c := rapid.SampledFrom(from).Draw(t, "claim")
	task := m.tasks[c.TaskID]
	return c, task, m.holds(c)
}

func (m *model) holds(c sheaf.Claim) bool {
	task := m.tasks[c.TaskID]
	return task.state == sheaf.TaskRunning && task.epoch == c.Epoch
}

func (m *model) heartbeat(t *rapid.T) {
	worker := rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "worker")
	var mine []sheaf.Claim
	for _, c := range m.claims {
		if m.owner[c] == worker && !slices.ContainsFunc(mine, func(o sheaf.Claim) bool { return o.TaskID == c.TaskID }) {
			mine = append(mine, c)
		}
	}
	reply, err := m.f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: worker}, modelLease, mine)
	ok(t, err)
	for _, c := range mine {
		task := m.tasks[c.TaskID]
		running := task.state == sheaf.TaskRunning && task.worker == worker
		if running {
			task.lease = m.clock + modelLease
		}
		off := task.state == sheaf.TaskCanceled || task.state == sheaf.TaskSuperseded
		if lost, ended := slices.Contains(reply.Lost, c), slices.Contains(reply.Ended, c); lost != (!m.holds(c) && !off) || ended != (!m.holds(c) && off) {
			t.Fatalf("heartbeat says lost=%v and ended=%v of %v, which is %s, the model holds=%v", lost, ended, c, task.state, m.holds(c))
		}
		if canceled := slices.Contains(reply.Canceled, c); canceled != (m.holds(c) && task.cancel) {
			t.Fatalf("heartbeat says canceled=%v of %v", canceled, c)
		}
	}
}

func (m *model) complete(t *rapid.T) {
	c, task, held := m.held(t)
	spawn, dep := rapid.IntRange(1, 3).Draw(t, "spawn"), rapid.Bool().Draw(t, "dep")
	state := rapid.SampledFrom([]sheaf.DocumentState{sheaf.DocSucceeded, sheaf.DocPartiallySucceeded, sheaf.DocFailed}).Draw(t, "publish")
	m.completeTask(t, c, task, held, spawn, dep, state)
}

func (m *model) completeTask(t *rapid.T, c sheaf.Claim, task *modelTask, held bool, spawn int, dep bool, publish sheaf.DocumentState) {
	doc := m.docs[task.doc]
	var done taskstore.Completion
	var spawned []*modelTask
	switch task.kind {
	case sheaf.KindPlan:
		done.Plan = &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 12 * spawn}
		done.Spawn = storetest.Parse(spawn)
		for i := range done.Spawn {
			n := &modelTask{id: done.Spawn[i].ID, doc: task.doc, gen: task.gen, kind: sheaf.KindParse, state: sheaf.TaskPending}
			if i > 0 && dep {
				done.Spawn[i].DependsOn = []string{done.Spawn[0].ID}
				n.parents, n.state = []string{done.Spawn[0].ID}, sheaf.TaskParked
			}
			if task.cancel || doc.state == sheaf.DocCanceling || doc.state == sheaf.DocCanceled {
				n.state = sheaf.TaskCanceled
			}
			spawned = append(spawned, n)
		}
	case sheaf.KindFinalize:
		done.Publish = &taskstore.Publication{State: publish, Chunks: 1}
		held = held && doc.state == sheaf.DocFinalizing && doc.gen == task.gen && doc.fin == task.fin
	default:
		id := sheaf.RangeID(c.TaskID, c.Epoch)
		done.Result = sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(m.tenant, task.doc, id), Chunks: 1}
	}
	expect(t, "complete", m.f.Store.Complete(ctx, c, done), held)
	if !held {
		return
	}
	for _, n := range spawned {
		m.add(n)
	}
	if done.Publish != nil {
		doc.state = publish
		if publish != sheaf.DocFailed {
			doc.live = doc.gen
		}
	}
	m.done(task)
}

// done ends a task and wakes those that waited for it alone.
func (m *model) done(task *modelTask) {
	task.state = sheaf.TaskDone
	for _, child := range m.tasks {
		if child.state == sheaf.TaskParked && slices.Contains(child.parents, task.id) && m.unmet(child) == 0 {
			child.state, child.runAt = sheaf.TaskPending, m.clock
		}
	}
}

// together writes completions and claims as one batch, of which some are stale,
// some not claimable, and some there twice.
func (m *model) together(t *rapid.T) {
	var finished []sheaf.Claim
	for range rapid.IntRange(0, 4).Draw(t, "completions") {
		if len(m.claims) == 0 {
			break
		}
		c, task, _ := m.held(t)
		if task.kind == sheaf.KindParse {
			finished = append(finished, c)
		}
	}
	asks := make([]sqlstore.ClaimAsk, rapid.IntRange(0, 4).Draw(t, "claims"))
	for i := range asks {
		asks[i] = sqlstore.ClaimAsk{TaskID: rapid.SampledFrom(m.order).Draw(t, "task"), WorkerID: rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "worker"), Lease: modelLease}
	}
	ends := make([]sqlstore.Finished, len(finished))
	for i, c := range finished {
		id := sheaf.RangeID(c.TaskID, c.Epoch)
		ends[i] = sqlstore.Finished{Claim: c, Result: sheaf.TaskResult{RangeID: id, ArtifactKey: sheaf.ArtifactKey(m.tenant, m.tasks[c.TaskID].doc, id), Chunks: 1}}
	}
	parked := map[string]bool{} // claims see what waits as it was before the batch
	for _, a := range asks {
		parked[a.TaskID] = m.tasks[a.TaskID].state == sheaf.TaskParked
	}
	errs, answers := m.f.Store.WriteAll(ctx, ends, asks)
	for i, c := range finished {
		held := m.holds(c)
		expect(t, "complete in a batch", errs[i], held)
		if held {
			m.done(m.tasks[c.TaskID])
		}
	}
	for i, a := range asks {
		if !parked[a.TaskID] {
			m.claimed(t, m.tasks[a.TaskID], a.WorkerID, answers[i].Task, answers[i].Err)
		} else if refusal, is := errors.AsType[*taskstore.NotClaimable](answers[i].Err); !is || refusal.State != sheaf.TaskParked {
			t.Fatalf("claim of a task that is parked: %v", answers[i].Err)
		}
	}
}

func (m *model) unmet(task *modelTask) (n int) {
	for _, p := range task.parents {
		if m.tasks[p].state != sheaf.TaskDone {
			n++
		}
	}
	return n
}

func (m *model) fail(t *rapid.T) {
	c, task, held := m.held(t)
	retryable := rapid.Bool().Draw(t, "retryable")
	f := sheaf.Fail(sheaf.CategoryInternal, "x", "x")
	f.Retryable = retryable
	state, err := m.f.Store.FailTask(ctx, c, taskstore.FailReport{Failure: *f, Delay: modelDelay, MaxFails: modelFails})
	expect(t, "fail", err, held)
	if !held {
		return
	}
	switch {
	case task.cancel:
		task.state = sheaf.TaskCanceled
	case !retryable || task.fails+1 >= modelFails:
		task.state = sheaf.TaskDead
		task.fails++
	default:
		task.state, task.runAt = sheaf.TaskRetryWait, m.clock+modelDelay
		task.fails++
	}
	if state != task.state {
		t.Fatalf("FailTask answers %s, the model says %s", state, task.state)
	}
}

func (m *model) snooze(t *rapid.T) {
	c, task, held := m.held(t)
	expect(t, "snooze", m.f.Store.Snooze(ctx, c, modelDelay, sheaf.Failure{Message: "x"}), held)
	if held {
		task.state, task.runAt = sheaf.TaskRetryWait, m.clock+modelDelay
		if task.cancel {
			task.state = sheaf.TaskCanceled
		}
	}
}

func (m *model) release(t *rapid.T) {
	c, task, held := m.held(t)
	expect(t, "release", m.f.Store.Release(ctx, c), held)
	if held {
		task.state, task.runAt = sheaf.TaskPending, m.clock
		if task.cancel {
			task.state = sheaf.TaskCanceled
		}
		task.epoch++
	}
}

func (m *model) append(t *rapid.T) {
	c, _, held := m.held(t)
	n := rapid.IntRange(0, 12).Draw(t, "done")
	count := func() int { return m.f.Int("SELECT COUNT(*) FROM events WHERE subject_id=?", c.TaskID) } // by its index
	before := count()
	err := m.f.Store.AppendEvents(ctx, c, []sheaf.Event{
		{Kind: sheaf.EventProgress, Detail: fmt.Appendf(nil, `{"stage":"parse","done":%d,"total":12}`, n)}, {Kind: sheaf.EventMessage, Text: "x"}})
	expect(t, "append", err, held)
	added := count() - before
	if held && added != 2 || !held && added != 0 {
		t.Fatalf("%d events were added, held=%v", added, held)
	}
}

func (m *model) doc(t *rapid.T) *modelDoc {
	ids := slices.Sorted(maps.Keys(m.docs))
	return m.docs[rapid.SampledFrom(ids).Draw(t, "document")]
}

func (m *model) of(d *modelDoc) []*modelTask {
	var out []*modelTask
	for _, id := range m.order {
		if task := m.tasks[id]; task.doc == d.ID && task.gen == d.gen {
			out = append(out, task)
		}
	}
	return out
}

func (m *model) cancelDoc(t *rapid.T) {
	d := m.doc(t)
	m.f.Cancel(d.Doc)
	if d.state.Terminal() {
		return
	}
	d.state = sheaf.DocCanceling
	for _, task := range m.of(d) {
		switch {
		case task.state.Terminal():
		case task.state == sheaf.TaskRunning:
			if !task.cancel {
				task.cancel, task.cancelAt = true, m.clock
			}
		default:
			task.state, task.cancel, task.cancelAt = sheaf.TaskCanceled, true, m.clock
			task.epoch++
		}
	}
}

func (m *model) reparse(t *rapid.T) {
	d := m.doc(t)
	if d.gen == 4 {
		t.Skip("enough generations")
	}
	for _, task := range m.of(d) {
		if !task.state.Terminal() {
			task.state = sheaf.TaskSuperseded
			task.epoch++
		}
	}
	d.Doc = m.f.Reparse(d.Doc)
	d.gen++
	d.state, d.progress = sheaf.DocQueued, 0
	m.add(&modelTask{id: d.Plan, doc: d.ID, gen: d.gen, kind: sheaf.KindPlan, state: sheaf.TaskPending})
}

func (m *model) retry(t *rapid.T) {
	var dead []string
	for _, id := range m.order {
		if s := m.tasks[id].state; s == sheaf.TaskDead || s == sheaf.TaskCanceled {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		t.Skip("nothing is dead")
	}
	task := m.tasks[rapid.SampledFrom(dead).Draw(t, "dead")]
	d := m.docs[task.doc]
	n, err := m.f.Store.RetryDead(ctx, m.tenant, taskstore.DeadLetterFilter{IDs: []string{task.id}})
	ok(t, err)
	m.reset = true
	if d.gen != task.gen || d.state == sheaf.DocCanceling || d.state == sheaf.DocCanceled {
		if n != 0 {
			t.Fatalf("retried a task of a generation that is over")
		}
		return
	}
	if n != 1 {
		t.Fatalf("retried %d tasks, want 1", n)
	}
	task.epoch++
	if task.kind == sheaf.KindFinalize {
		task.state = sheaf.TaskSuperseded
	} else {
		task.state, task.fails, task.losts, task.cancel, task.runAt = sheaf.TaskPending, 0, 0, false, m.clock
		if m.unmet(task) > 0 {
			task.state = sheaf.TaskParked
		}
	}
	switch d.state {
	case sheaf.DocFailed, sheaf.DocPartiallySucceeded, sheaf.DocFinalizing:
		d.state = sheaf.DocRunning
	}
}

func (m *model) advance(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 7).Draw(t, "minutes")) * time.Minute
	m.f.Store.AdvanceClock(d)
	m.clock += d
}

func (m *model) reap(t *rapid.T) {
	_, err := m.f.Store.Reap(ctx, taskstore.ReapPolicy{MaxLost: modelLost}, 1000)
	ok(t, err)
	for _, task := range m.tasks {
		if task.state != sheaf.TaskRunning || task.lease > m.clock {
			continue
		}
		task.epoch++
		task.runAt = m.clock
		switch {
		case task.cancel:
			task.state = sheaf.TaskCanceled
			continue
		case task.losts+1 >= modelLost:
			task.state = sheaf.TaskDead
		case task.losts == 0:
			task.state = sheaf.TaskPending
		default:
			task.state = sheaf.TaskRetryWait
		}
		task.losts++
	}
}

func (m *model) hardCancel(t *rapid.T) {
	_, err := m.f.Store.HardCancel(ctx, modelGrace, 1000)
	ok(t, err)
	for _, task := range m.tasks {
		if task.state == sheaf.TaskRunning && task.cancel && task.cancelAt+modelGrace <= m.clock {
			task.state = sheaf.TaskCanceled
			task.epoch++
		}
	}
}

func (m *model) promote(t *rapid.T) {
	_, err := m.f.Store.PromoteDue(ctx, 1000)
	ok(t, err)
	for _, task := range m.tasks {
		if task.state == sheaf.TaskRetryWait && task.runAt <= m.clock {
			task.state = sheaf.TaskPending
		}
	}
}

func (m *model) wake(t *rapid.T) {
	_, err := m.f.Store.WakeParked(ctx, 1000)
	ok(t, err)
	m.wakeModel()
}

func (m *model) wakeModel() (changed bool) {
	for _, task := range m.tasks {
		if task.state != sheaf.TaskParked {
			continue
		}
		var dead, over bool
		for _, p := range task.parents {
			s := m.tasks[p].state
			dead = dead || s == sheaf.TaskDead
			over = over || s.Terminal() && s != sheaf.TaskDone
		}
		switch {
		case dead:
			task.state = sheaf.TaskDead
		case over:
			task.state = sheaf.TaskCanceled
		default:
			continue
		}
		task.epoch++
		changed = true
	}
	return changed
}

// fold lets two folders work at once, which must be as good as one.
func (m *model) fold(t *rapid.T) {
	other := make(chan error, 1)
	go func() {
		_, _, err := m.f.Store.Fold(ctx, 1000, 0)
		other <- err
	}()
	_, _, err := m.f.Store.Fold(ctx, 1000, 0)
	ok(t, err)
	// What one has locked the other leaves marked: all is folded once both are done.
	ok(t, <-other)
	m.f.Fold()
	for changed := true; changed; {
		changed = false
		for _, d := range m.docs {
			changed = m.foldDoc(t, d) || changed
		}
		changed = m.wakeModel() || changed
	}
}

func (m *model) foldDoc(t *rapid.T, d *modelDoc) bool {
	var open, openAll int
	var started, planned bool
	var plan, finalizer *modelTask
	for _, task := range m.of(d) {
		if task.attempts > 0 || task.state == sheaf.TaskDone {
			started = true
		}
		if !task.state.Terminal() {
			openAll++
		}
		switch {
		case task.kind == sheaf.KindFinalize:
			if task.fin == d.fin {
				finalizer = task
			}
			continue
		case task.kind == sheaf.KindPlan:
			plan = task
			planned = task.state == sheaf.TaskDone
		}
		if !task.state.Terminal() {
			open++
		}
	}
	before := d.state
	switch {
	case d.state == sheaf.DocCanceling:
		if openAll == 0 {
			d.state = sheaf.DocCanceled
		}
	case d.state.Terminal():
		if d.state != sheaf.DocCanceled && openAll > 0 {
			d.state = sheaf.DocRunning
		}
	case !planned && plan.state == sheaf.TaskDead:
		d.state = sheaf.DocFailed
	case !planned && plan.state.Terminal():
		d.state = sheaf.DocCanceled
	case d.state == sheaf.DocFinalizing:
		if finalizer.state == sheaf.TaskDead {
			d.state = sheaf.DocFailed
		} else if finalizer.state == sheaf.TaskCanceled {
			d.state = sheaf.DocCanceled
		}
	case planned && open == 0:
		d.state = sheaf.DocFinalizing
		d.fin++
		ids := m.f.Strings("SELECT id FROM tasks WHERE doc_id=? AND gen=? AND kind='finalize' AND node=?", d.ID, d.gen, fmt.Sprint(d.fin))
		if len(ids) != 1 {
			t.Fatalf("%d finalize tasks for decision %d", len(ids), d.fin)
		}
		m.add(&modelTask{id: ids[0], doc: d.ID, gen: d.gen, kind: sheaf.KindFinalize, state: sheaf.TaskPending, fin: d.fin})
	case started:
		d.state = sheaf.DocRunning
	}
	return d.state != before
}

// check compares the tables with the model.
func (m *model) check(t *rapid.T) {
	rows, err := m.f.Query("SELECT id, state, epoch, attempts, fail_count, lost_count, cancel_requested_at, unmet, worker_id FROM tasks WHERE tenant_id=?", m.tenant)
	ok(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, state, worker string
		var epoch, cancel int64
		var attempts, fails, losts, unmet int
		ok(t, rows.Scan(&id, &state, &epoch, &attempts, &fails, &losts, &cancel, &unmet, &worker))
		w := m.tasks[id]
		if w == nil {
			t.Fatalf("task %s is not in the model", id)
		}
		n++
		got := fmt.Sprintf("%s epoch %d attempts %d fails %d losts %d cancel %v worker %s", state, epoch, attempts, fails, losts, cancel != 0, worker)
		want := fmt.Sprintf("%s epoch %d attempts %d fails %d losts %d cancel %v worker %s", w.state, w.epoch, w.attempts, w.fails, w.losts, w.cancel, w.worker)
		if got != want {
			t.Fatalf("%s task %s of generation %d is\n%s, the model says\n%s", w.kind, id, w.gen, got, want)
		}
		if unmet != m.unmet(w) {
			t.Fatalf("task %s waits for %d tasks, the model says %d", id, unmet, m.unmet(w))
		}
	}
	ok(t, rows.Err())
	if n != len(m.tasks) {
		t.Fatalf("%d tasks, the model has %d", n, len(m.tasks))
	}
	m.checkDocs(t)
}

func (m *model) checkDocs(t *rapid.T) {
	rows, err := m.f.Query("SELECT id, state, gen, live_gen, fin_epoch, progress FROM documents WHERE tenant_id=?", m.tenant)
	ok(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, state string
		var gen, live int
		var fin int64
		var progress float64
		ok(t, rows.Scan(&id, &state, &gen, &live, &fin, &progress))
		d := m.docs[id]
		if d == nil {
			t.Fatalf("document %s is not in the model", id)
		}
		n++
		got := fmt.Sprintf("%s generation %d live %d finalize %d", state, gen, live, fin)
		want := fmt.Sprintf("%s generation %d live %d finalize %d", d.state, d.gen, d.live, d.fin)
		if got != want {
			t.Fatalf("document is %s, the model says %s", got, want)
		}
		if progress < d.progress && !m.reset {
			t.Fatalf("progress fell from %v to %v", d.progress, progress)
		}
		d.progress = progress
	}
	ok(t, rows.Err())
	if n != len(m.docs) {
		t.Fatalf("%d documents, the model has %d", n, len(m.docs))
	}
	m.reset = false
}

// settle stops all faults: everything that is left must come to its end.
func (m *model) settle(t *rapid.T) {
	for range 40 {
		m.f.Store.AdvanceClock(10 * time.Minute)
		m.clock += 10 * time.Minute
		m.reap(t)
		m.promote(t)
		m.wake(t)
		m.fold(t)
		m.check(t)
		idle := true
		for _, id := range slices.Clone(m.order) {
			task := m.tasks[id]
			if task.state != sheaf.TaskPending {
				idle = idle && task.state.Terminal()
				continue
			}
			idle = false
			c := m.claimTask(t, task, "w1")
			d := m.docs[task.doc]
			if task.kind == sheaf.KindFinalize && (d.state != sheaf.DocFinalizing || d.fin != task.fin) {
				// A decision that was overruled: its task ends without effect.
				_, err := m.f.Store.FailTask(ctx, c, taskstore.FailReport{Failure: *sheaf.Fail("internal", "stale", "x")})
				ok(t, err)
				task.state = sheaf.TaskDead
				task.fails++
				continue
			}
			m.completeTask(t, c, task, true, 2, false, sheaf.DocSucceeded)
		}
		if idle {
			for _, d := range m.docs {
				if !d.state.Terminal() {
					t.Fatalf("all tasks are over and the document is %s", d.state)
				}
			}
			return
		}
	}
	t.Fatal("the work does not end")
}

// checkHistory walks the log of every task: each claim ends exactly once, what
// is over stays over until somebody retries it, and the budgets are what the
// log says.
func (m *model) checkHistory(t *rapid.T) {
	rows, err := m.f.Query("SELECT task_id, kind, epoch, seq FROM events WHERE tenant_id=? AND task_id<>'' AND kind NOT IN ('progress','message') ORDER BY seq", m.tenant)
	ok(t, err)
	defer rows.Close()
	type history struct {
		running, over   bool
		lostJustNow     bool
		epoch, done     int64
		fails, losts    int
		doneSeq, begins int64
	}
	all := map[string]*history{}
	for rows.Next() {
		var id, kind string
		var epoch, seq int64
		ok(t, rows.Scan(&id, &kind, &epoch, &seq))
		h := all[id]
		if h == nil {
			h = &history{}
			all[id] = h
		}
		bad := func(why string) { t.Fatalf("task %s: event %s at epoch %d: %s", id, kind, epoch, why) }
		if epoch < h.epoch {
			bad("the epoch fell")
		}
		afterLoss := h.lostJustNow
		h.lostJustNow = false
		if h.over && kind != sheaf.EventRetried {
			bad("the task was over")
		}
		switch kind {
		case sheaf.EventClaimed:
			if h.running || epoch <= h.epoch {
				bad("claimed while it ran, or under an old epoch")
			}
			h.running = true
			if h.begins == 0 {
				h.begins = seq
			}
		case sheaf.EventDone:
			if !h.running || epoch != h.epoch {
				bad("done under an epoch that was not the claim's")
			}
			h.running, h.over, h.done, h.doneSeq = false, true, epoch, seq
		case sheaf.EventFailed, sheaf.EventSnoozed, sheaf.EventReleased, sheaf.EventLost:
			if !h.running {
				bad("nobody ran it")
			}
			h.running = false
			if kind == sheaf.EventFailed {
				h.fails++
			}
			if kind == sheaf.EventLost {
				h.losts++
				h.lostJustNow = true
			}
		case sheaf.EventDead:
			if h.running {
				h.fails++
			} else if !afterLoss && len(m.tasks[id].parents) == 0 {
				bad("dead without a reason")
			}
			h.running, h.over = false, true
		case sheaf.EventCanceled, sheaf.EventSuperseded:
			h.running, h.over = false, true
		case sheaf.EventRetried:
			if !h.over || h.done != 0 {
				bad("retried though it was not over, or was done")
			}
			h.over, h.fails, h.losts = m.tasks[id].kind == sheaf.KindFinalize, 0, 0
		}
		h.epoch = epoch
	}
	ok(t, rows.Err())
	for id, h := range all {
		task := m.tasks[id]
		if !h.over || h.running {
			t.Fatalf("task %s is %s and its history does not end", id, task.state)
		}
		if task.kind != sheaf.KindFinalize && (h.fails != task.fails || h.losts != task.losts) {
			t.Fatalf("task %s: %d failures and %d losses in the log, %d and %d in the row", id, h.fails, h.losts, task.fails, task.losts)
		}
		for _, p := range task.parents {
			if h.begins != 0 && (all[p] == nil || all[p].doneSeq == 0 || all[p].doneSeq > h.begins) {
				t.Fatalf("task %s was claimed before its parent %s was done", id, p)
			}
		}
	}
	if n := m.f.Int("SELECT COUNT(*) FROM tasks WHERE tenant_id=? AND state='done' AND kind<>'plan' AND done_epoch<>epoch", m.tenant); n != 0 {
		t.Fatalf("%d tasks are done under an epoch that is not theirs", n)
	}
	m.checkVisible(t)
}

// checkVisible holds what a search may show against what is live: the results
// of the tasks that are done in the live generation, and nothing else; and
// none of them may be among the garbage.
func (m *model) checkVisible(t *rapid.T) {
	var asked []string
	want := map[string]bool{}
	for _, c := range m.claims {
		task := m.tasks[c.TaskID]
		if task.kind != sheaf.KindParse {
			continue
		}
		id := sheaf.RangeID(c.TaskID, c.Epoch)
		asked = append(asked, id)
		if task.state == sheaf.TaskDone && task.epoch == c.Epoch && task.gen == m.docs[task.doc].live {
			want[id] = true
		}
	}
	visible, err := m.f.Store.Visible(ctx, m.tenant, asked)
	ok(t, err)
	for _, id := range asked {
		if _, is := visible[id]; is != want[id] {
			t.Fatalf("range %s: visible %v, want %v", id, is, want[id])
		}
	}
	m.f.Store.AdvanceClock(10 * time.Minute)
	items, err := m.f.Store.Garbage(ctx, 100000)
	ok(t, err)
	listed := map[string]bool{}
	for _, g := range items {
		if want[g.RangeID] {
			t.Fatalf("the visible range %s is garbage", g.RangeID)
		}
		listed[g.RangeID] = true
	}
	for _, c := range m.claims {
		task := m.tasks[c.TaskID]
		ended := task.kind == sheaf.KindParse && !(task.state == sheaf.TaskDone && task.epoch == c.Epoch)
		id := sheaf.RangeID(c.TaskID, c.Epoch)
		if ended && !listed[id] {
			t.Fatalf("attempt %v ended without a result, and its range %s is not collected", c, id)
		}
		d := m.docs[task.doc]
		if task.kind == sheaf.KindParse && d.state == sheaf.DocCanceled && task.gen != d.live && !listed[id] {
			t.Fatalf("generation %d of document %s was canceled, and its range %s is not collected", task.gen, task.doc, id)
		}
	}
}
