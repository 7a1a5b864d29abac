package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sheaf"
	"sheaf/taskstore"
)

// graphsOfNodes runs random task graphs, whose tasks end in random order and in
// random ways, next to a model: a task becomes pending exactly when the last of its
// inputs ends, in the transaction of that end. Inputs end done, failed permanently
// with each on_failure, lost, or released and run again.
func graphsOfNodes(f *Fixture) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		n := 2 + r.IntN(9)
		spawn := make([]sheaf.NewTask, n)
		at := map[string]int{}
		for i := range spawn {
			spawn[i] = sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: fmt.Sprintf("n%d", i), Unit: sheaf.UnitPage, Range: sheaf.Range{From: 1, To: 2}, Cost: 1,
				OnFailure: []string{"", sheaf.OnFailureSkip, sheaf.OnFailureDefault}[r.IntN(3)]}
			at[spawn[i].ID] = i
			for k := range i {
				if r.IntN(3) == 0 {
					spawn[i].DependsOn = append(spawn[i].DependsOn, spawn[k].ID)
				}
			}
		}
		d := f.Document("t")
		f.Plan(d, spawn...)
		state := make([]sheaf.TaskState, n)
		claims := make([]int, n)
		for {
			var ready []int
			for i, t := range spawn {
				if state[i].Terminal() {
					continue
				}
				open, broken := 0, false
				for _, p := range t.DependsOn {
					broken = broken || state[at[p]] == sheaf.TaskDead
					if state[at[p]] != sheaf.TaskDone {
						open++
					}
				}
				want := sheaf.TaskPending
				if open > 0 {
					want = sheaf.TaskParked
				}
				if broken { // ended by the fold that follows the death of its input
					want, state[i] = sheaf.TaskDead, sheaf.TaskDead
				}
				if got := f.Task(t.ID).State; got != want {
					f.T.Fatalf("seed %d: node %d, which reads %v, is %s and should be %s; all are %v", seed, i, t.DependsOn, got, want, state)
				}
				switch want {
				case sheaf.TaskParked:
					f.Refused(t.ID, want)
				case sheaf.TaskPending:
					ready = append(ready, i)
				}
			}
			if len(ready) == 0 {
				break
			}
			i := ready[r.IntN(len(ready))]
			t := f.Claim(spawn[i].ID, "w")
			claims[i]++
			inputs, err := f.Store.Inputs(ctx, t.ID)
			f.OK(err)
			var read []string
			for _, p := range inputs {
				read = append(read, p.ID)
			}
			slices.Sort(read)
			reads := slices.Clone(spawn[i].DependsOn)
			slices.Sort(reads)
			wantList(f, "inputs", read, reads...)
			end := r.IntN(6)
			failed := func() {
				state[i] = sheaf.TaskDone
				if spawn[i].OnFailure == "" {
					state[i] = sheaf.TaskDead
				}
				f.InState(t.ID, state[i])
				if out := f.Task(t.ID).Result.Output; (state[i] == sheaf.TaskDone) != (out != nil && out.Failed && (out.Skipped != "") == (spawn[i].OnFailure == sheaf.OnFailureSkip)) {
					f.T.Fatalf("seed %d: a node of on_failure %q that failed leaves %+v", seed, spawn[i].OnFailure, out)
				}
				if state[i] == sheaf.TaskDone {
					want(f, "done epoch", f.Int("SELECT done_epoch FROM tasks WHERE id=?", t.ID), int(t.Epoch))
					return
				}
				for range n { // what only a dead node feeds is ended by the folds after it
					f.Fold()
				}
			}
			switch {
			case end == 0:
				f.OK(f.Store.Release(ctx, t.Held()))
			case end == 1:
				_, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail("bad_input", "x", "It is broken.")})
				f.OK(err)
				failed()
			case end == 2:
				f.Exec("UPDATE tasks SET lease_until=1 WHERE id=?", t.ID)
				taken, err := f.Store.Reap(ctx, taskstore.ReapPolicy{MaxLost: 1}, 10)
				f.OK(err)
				want(f, "taken", taken, 1)
				failed()
			default:
				done := taskstore.Completion{Result: sheaf.TaskResult{Output: &sheaf.NodeOutput{Name: fmt.Sprint(i)}}}
				f.OK(f.Store.Complete(ctx, t.Held(), done))
				state[i] = sheaf.TaskDone
				f.Stale(f.Store.Complete(ctx, t.Held(), done)) // a repeated end wakes nothing twice
			}
		}
		for i := range spawn {
			if !state[i].Terminal() {
				f.T.Fatalf("seed %d: node %d never ended", seed, i)
			}
		}
		n, err := f.Store.WakeParked(ctx, 100)
		f.OK(err)
		want(f, "tasks that only the sweep wakes", n, 0)
		f.Fold()
		want(f, "document", f.Doc(d.ID).State, sheaf.DocFinalizing)
	}
}

// poolsAreFedApart: tasks of a pool are fed only to those who serve it, a pause
// holds them like others, and a pool that no live worker serves is reported.
func poolsAreFedApart(f *Fixture) {
	node := func(id, pool string) sheaf.NewTask {
		return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: id, Pool: pool, Cost: 1}
	}
	d := f.Document("t")
	spawn := []sheaf.NewTask{node("a", "llm"), node("b", "gpu"), node("c", "")}
	f.Plan(d, spawn...)
	fed := func(what string, feed taskstore.Feed, ids ...string) {
		f.T.Helper()
		hints, err := feed.Runnable(ctx, "t", 10, 0)
		f.OK(err)
		var got []string
		for _, h := range hints {
			got = append(got, h.TaskID)
		}
		slices.Sort(got)
		slices.Sort(ids)
		wantList(f, what, got, ids...)
		loads, err := feed.RunnableTenants(ctx)
		f.OK(err)
		want(f, what+": tenants", len(loads), min(len(ids), 1))
	}
	llm, both := f.Store.PoolFeed([]string{"llm"}), f.Store.PoolFeed([]string{"gpu", "llm"})
	fed("default", f.Store, spawn[2].ID)
	fed("llm", llm, spawn[0].ID)
	fed("both", both, spawn[0].ID, spawn[1].ID)
	fed("another", f.Store.PoolFeed([]string{"tpu"}))
	hints := f.Feedable(10, time.Minute)
	want(f, "feedable", len(hints), 1)

	unserved := func(names ...string) {
		f.T.Helper()
		pools, err := f.Store.UnservedPools(ctx, time.Minute)
		f.OK(err)
		var got []string
		for _, p := range pools {
			got = append(got, p.Pool)
			want(f, "tasks that wait for "+p.Pool, p.Tasks, 1)
		}
		wantList(f, "unserved pools", got, names...)
		names = slices.DeleteFunc(names, func(p string) bool { return p == taskstore.DefaultPool })
		for doc, want := range map[string][]string{"": names, d.ID: names, "another": nil} {
			waits, err := f.Store.JobWaitsFor(ctx, d.Job, doc, time.Minute)
			f.OK(err)
			wantList(f, "pools that the job waits for", waits, want...)
		}
		job, err := f.Store.Job(ctx, "t", d.Job)
		f.OK(err)
		wantList(f, "unserved pools of the job", job.UnservedPools, names...)
	}
	unserved("gpu", "llm")
	status := taskstore.WorkerStatus{ID: "w-llm", Pools: []string{"default", "llm"}}
	_, err := f.Store.Heartbeat(ctx, status, time.Minute, nil)
	f.OK(err)
	unserved("gpu")
	f.Exec("UPDATE workers SET seen_at=1 WHERE id='w-llm'")
	unserved("gpu", "llm")
	slow := taskstore.WorkerStatus{ID: "w-slow", HeartbeatMS: time.Hour.Milliseconds(), Pools: []string{"gpu"}}
	_, err = f.Store.Heartbeat(ctx, slow, time.Minute, nil)
	f.OK(err)
	f.Exec("UPDATE workers SET seen_at=seen_at-7200000 WHERE id='w-slow'")
	unserved(taskstore.DefaultPool, "llm") // its next heartbeat is not late yet, and it does not serve tasks without a pool
	f.OK(f.Store.Deregister(ctx, "w-slow"))
	unserved("gpu", "llm")
	_, err = f.Store.Heartbeat(ctx, status, time.Minute, nil)
	f.OK(err)

	held, err := f.Store.SetPaused(ctx, "t", taskstore.PauseScope{JobID: d.Job}, true)
	f.OK(err)
	want(f, "held", held, 3)
	fed("paused llm", llm)
	f.Refused(spawn[0].ID, sheaf.TaskPending)
	unserved() // they wait because of the pause
	_, err = f.Store.SetPaused(ctx, "t", taskstore.PauseScope{JobID: d.Job}, false)
	f.OK(err)
	fed("llm after the pause", llm, spawn[0].ID)
	fed("default after the pause", f.Store, spawn[2].ID)
	f.Done(spawn[0].ID)
	f.Done(spawn[1].ID)
	unserved()
	_, err = f.Store.RunnableTenants(ctx)
	f.OK(err)
}

// outputsAreCollected: of a version's node outputs, those that the next version
// lists stay; the others, and those of failed attempts, go to the collector.
func outputsAreCollected(f *Fixture) {
	node := func(id string, done *sheaf.TaskResult) sheaf.NewTask {
		return sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: id, Unit: sheaf.UnitPage, Range: sheaf.Range{From: 1, To: 12}, Cost: 1, ReuseKey: "key-" + id, Done: done}
	}
	d := f.Document("t")
	spawn := append([]sheaf.NewTask{node("kept", nil), node("old", nil)}, Parse(1)...)
	f.Plan(d, spawn...)
	lost := f.Claim(spawn[1].ID, "w")
	f.OK(f.Store.Release(ctx, lost.Held()))
	kept, old := f.Done(spawn[0].ID), f.Done(spawn[1].ID)
	f.Done(spawn[2].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)

	d = f.Reparse(d)
	spawn = append([]sheaf.NewTask{node("kept", &kept), node("new", nil)}, Parse(1)...)
	f.Plan(d, spawn...)
	made := f.Done(spawn[1].ID)
	f.Done(spawn[2].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	f.Exec("UPDATE garbage SET not_before=1")
	items, err := f.Store.Garbage(ctx, 100)
	f.OK(err)
	collected := map[string]bool{}
	for _, g := range items {
		collected[g.RangeID] = true
	}
	attempt := sheaf.RangeID(lost.ID, lost.Epoch)
	want(f, "the output that is not listed, and that of the lost attempt, are collected", collected[old.RangeID] && collected[attempt], true)
	want(f, "an output that is listed is collected", collected[kept.RangeID] || collected[made.RangeID], false)
}
