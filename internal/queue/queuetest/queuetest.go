// Package queuetest specifies the behaviour of every queue.Queue as a suite that
// each engine's tests run.
package queuetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/queue"
)

// Harness is a fresh queue and the store it works for.
type Harness struct {
	Queue queue.Queue
	Store *Store
	// Second opens the same queue as another process would; nil if the queue is limited
	// to one process, in which case those tests are skipped.
	Second func(t *testing.T) queue.Queue
	// Window is the number of hints a tenant's lane holds; 0 if the queue holds none
	// itself.
	Window int
	// Lose makes the queue's engine forget everything; nil if there is nothing to lose.
	Lose func(t *testing.T)
	// Ops counts requests to the queue's engine so far: queries or commands.
	Ops func() int64
	// IdleOps is how many requests a Take that finds nothing may make.
	IdleOps int64
}

// Run runs the suite on queues made by open, a fresh one per test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	tests := []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"WeightsShareTakesByCost", testWeights},
		{"DearTasksAreChargedWhatTheyCost", testCosts},
		{"LateTenantIsServedWithinOneRound", testLateTenant},
		{"NobodySavesUpWhileIdle", testNoBankedCredit},
		{"NobodyShedsADebtByGoingEmpty", testDebt},
		{"TimeBeyondTheCostIsCharged", testCharge},
		{"NobodyShedsAChargeByGoingEmpty", testChargedDebt},
		{"WhoWasKeptByItsCapIsStillOwed", testCapKeepsCredit},
		{"CapIsNeverExceeded", testCap},
		{"FreedPlaceUnderTheCapIsUsedAtOnce", testCapFreed},
		{"FreedPlaceIsAnnouncedThoughNobodyMetTheCap", testFilledCapFreed},
		{"SlotsAreFilledAsFarAsCapsAllow", testFilled},
		{"LanesInOrder", testLanes},
		{"PlacesInOrder", testPlaces},
		{"EqualDocumentsEndOneAfterTheOther", testEqualDocuments},
		{"LargeAndSmallDocumentsBothMove", testLargeBesideSmall},
		{"NoPhaseStarvesAnother", testPhasesDoNotStarve},
		{"WindowBoundsWhatIsHeld", testWindow},
		{"HintIsHandedOutOnceWhileUnacked", testOnce},
		{"ConcurrentTakersNeverShareAHint", testConcurrent},
		{"AckedAndDoneFreesTheCap", testAckDone},
		{"AcksAndEndsThatComeTogetherAllCount", testAckTogether},
		{"ReconcileFreesWhatTheStoreDoesNotRun", testReconcile},
		{"DuplicatePublishIsHarmless", testDuplicate},
		{"RecoverFindsWhatWasTakenAndNotAcked", testRecover},
		{"LeaveLosesNothing", testLeave},
		{"SkippedKindsWaitAndAreNotLost", testSkip},
		{"LostMemoryHealsByPublishingAgain", testLose},
		{"NotifyWakesAWaiter", testNotify},
		{"RingBeforeWaitIsHeard", testRingBeforeWait},
		{"WaitEndsWithItsTimeAndItsContext", testWaitEnds},
		{"CancelReachesEveryListener", testCancel},
		{"ChangeReachesEveryListener", testChanges},
		{"ChangesThatNobodyReceivedAreOne", testChangesTogether},
		{"IdleTenantsCostNothing", testIdleTenants},
		{"IdleQueueAsksNothing", testIdleQueue},
		{"DepthsCountWhatIsHeld", testDepths},
		{"EverythingEndsWithManyWorkers", testDrain},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := open(t)
			test.run(t, h)
		})
	}
}

const worker = "worker-a"

func testWeights(t *testing.T, h Harness) {
	for _, slots := range []int{1, 4} {
		t.Run(fmt.Sprintf("Slots%d", slots), func(t *testing.T) {
			names := []string{fmt.Sprintf("one%d", slots), fmt.Sprintf("also%d", slots), fmt.Sprintf("two%d", slots)}
			h.Store.SetTenant(names[0], 1, 100)
			h.Store.SetTenant(names[1], 1, 100)
			h.Store.SetTenant(names[2], 2, 100)
			for _, name := range names {
				h.Store.Add(name, sheaf.LaneNormal, 1200)
			}
			served := make(map[string]int)
			total := serve(t, h, slots, 2000, func(hint sheaf.Hint) { served[hint.TenantID]++ })
			for i, want := range []float64{0.25, 0.25, 0.50} {
				if got := float64(served[names[i]]) / float64(total); math.Abs(got-want) > 0.02 {
					t.Errorf("tenant %s got %.3f of %d takes, want %.2f ± 0.02", names[i], got, total, want)
				}
			}
			serve(t, h, 16, 3600-total, func(sheaf.Hint) {})
		})
	}
}

func testCosts(t *testing.T, h Harness) {
	for range 600 {
		h.Store.AddTask(sheaf.Hint{TenantID: "cheap", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindParse}, time.Now())
	}
	for range 100 {
		h.Store.AddTask(sheaf.Hint{TenantID: "dear", Lane: sheaf.LaneNormal, Cost: 12, Kind: sheaf.KindParse}, time.Now())
	}
	cost := make(map[string]int)
	serve(t, h, 1, 520, func(hint sheaf.Hint) { cost[hint.TenantID] += hint.Cost })
	share := float64(cost["dear"]) / float64(cost["dear"]+cost["cheap"])
	if math.Abs(share-0.5) > 0.05 {
		t.Errorf("tenant with tasks of cost 12 got %.3f of the cost (%v), want 0.50 ± 0.05", share, cost)
	}
}

func testLateTenant(t *testing.T, h Harness) {
	h.Store.Add("crowd", sheaf.LaneNormal, 5000)
	for i := range 9 {
		h.Store.Add(fmt.Sprintf("tenant%d", i), sheaf.LaneNormal, 300)
	}
	serve(t, h, 1, 500, func(sheaf.Hint) {})
	h.Store.Add("late", sheaf.LaneNormal, 1)
	feed(t, h)
	takes := 0
	for found := false; !found; takes++ {
		for _, hint := range take(t, h.Queue, worker, 1) {
			found = found || hint.TenantID == "late"
			run(t, h, hint)
		}
		if takes > 11 {
			t.Fatalf("the late tenant was not served within %d takes, with 11 tenants at work", takes)
		}
	}
}

func testNoBankedCredit(t *testing.T, h Harness) {
	h.Store.Add("early", sheaf.LaneNormal, 1)
	serve(t, h, 1, 1, func(sheaf.Hint) {})
	h.Store.Add("steady", sheaf.LaneNormal, 1000)
	serve(t, h, 1, 300, func(sheaf.Hint) {}) // early has no work meanwhile
	h.Store.Add("early", sheaf.LaneNormal, 500)
	served := make(map[string]int)
	serve(t, h, 1, 100, func(hint sheaf.Hint) { served[hint.TenantID]++ })
	if n := served["early"]; n < 45 || n > 55 {
		t.Errorf("after 300 takes of absence the tenant got %d of 100, want 50 ± 5", n)
	}
}

func testDebt(t *testing.T, h Harness) {
	h.Store.Add("steady", sheaf.LaneNormal, 1500)
	cost := make(map[string]int)
	waits := false // the tenant with one task at a time has one waiting
	for takes := 0; cost["steady"] < 1000 && takes < 3000; takes++ {
		if !waits {
			h.Store.AddTask(sheaf.Hint{TenantID: "comer", Lane: sheaf.LaneNormal, Cost: 50, Kind: sheaf.KindParse}, time.Now())
			waits = true
		}
		feed(t, h)
		for _, hint := range take(t, h.Queue, worker, 1) {
			cost[hint.TenantID] += hint.Cost
			waits = waits && hint.TenantID != "comer"
			run(t, h, hint)
		}
	}
	if cost["comer"] < 900 || cost["comer"] > 1100 {
		t.Errorf("a tenant that comes and goes with tasks of cost 50 got %v, want about as much as the other", cost)
	}
}

// testCharge: of two tenants with tasks of the same cost, those of one are charged
// nine more when they end.
func testCharge(t *testing.T, h Harness) {
	h.Store.SetTenant("scans", 2, 100)
	h.Store.Add("scans", sheaf.LaneNormal, 200)
	h.Store.Add("texts", sheaf.LaneNormal, 600)
	served := make(map[string]int)
	serve(t, h, 1, 480, func(hint sheaf.Hint) {
		served[hint.TenantID]++
		if hint.TenantID == "scans" {
			charge(t, h, hint, 9)
		}
	})
	if n := served["scans"]; n < 74 || n > 86 {
		t.Errorf("a tenant of weight 2 whose tasks take ten times their cost got %d of 480 takes, want 80 ± 6", n)
	}
}

// testChargedDebt: a tenant is charged for its only task, and then has another.
func testChargedDebt(t *testing.T, h Harness) {
	h.Store.Add("steady", sheaf.LaneNormal, 400)
	h.Store.Add("comer", sheaf.LaneNormal, 1)
	var charged bool
	for takes := 0; !charged && takes < 10; takes++ {
		feed(t, h)
		for _, hint := range take(t, h.Queue, worker, 1) {
			claim(t, h, hint)
			if charged = hint.TenantID == "comer"; charged {
				charge(t, h, hint, 100)
			}
			finish(t, h, hint)
		}
	}
	h.Store.Add("comer", sheaf.LaneNormal, 1)
	waited := 0
	for waited < 200 {
		feed(t, h)
		hints := take(t, h.Queue, worker, 1)
		if len(hints) == 0 {
			t.Fatalf("nothing to take after %d", waited)
		}
		run(t, h, hints[0])
		if hints[0].TenantID == "comer" {
			break
		}
		waited++
	}
	if waited < 90 || waited > 110 {
		t.Errorf("after a charge of 100 a tenant was served after %d takes of the other, want 100 ± 10", waited)
	}
}

// testCapKeepsCredit: a tenant that owes is served while the other is at its cap, and
// then waits until the other has had as much.
func testCapKeepsCredit(t *testing.T, h Harness) {
	h.Store.SetTenant("tight", 1, 1)
	h.Store.Add("tight", sheaf.LaneNormal, 200)
	h.Store.Add("debtor", sheaf.LaneNormal, 20)
	next := func() sheaf.Hint {
		t.Helper()
		for range 3 {
			feed(t, h)
			if hints := take(t, h.Queue, worker, 1); len(hints) > 0 {
				return hints[0]
			}
		}
		t.Fatal("nothing to take")
		return sheaf.Hint{}
	}
	for owes := false; !owes; {
		hint := next()
		claim(t, h, hint)
		if owes = hint.TenantID == "debtor"; owes {
			charge(t, h, hint, 100)
		}
		finish(t, h, hint)
	}
	first := next()
	claim(t, h, first)
	if meanwhile := next(); first.TenantID != "tight" || meanwhile.TenantID != "debtor" {
		t.Fatalf("took of %s, then of %s", first.TenantID, meanwhile.TenantID)
	} else {
		run(t, h, meanwhile)
	}
	charge(t, h, first, 1) // which does not cost it what it is owed
	finish(t, h, first)
	waited := 0
	for ; waited < 150; waited++ {
		hint := next()
		run(t, h, hint)
		if hint.TenantID == "debtor" {
			break
		}
	}
	if waited < 85 || waited > 115 {
		t.Errorf("a tenant that owed 100 was served after %d takes of the one that was at its cap, want 100 ± 15", waited)
	}
}

func charge(t *testing.T, h Harness, hint sheaf.Hint, cost int) {
	t.Helper()
	if err := h.Queue.Charge(t.Context(), hint, cost); err != nil {
		t.Errorf("charge: %v", err)
	}
}

func testCap(t *testing.T, h Harness) {
	const cap = 3
	h.Store.SetTenant("capped", 1, cap)
	h.Store.Add("capped", sheaf.LaneNormal, 300)
	h.Store.Add("other", sheaf.LaneNormal, 300)
	queues := []queue.Queue{h.Queue}
	if h.Second != nil {
		queues = append(queues, h.Second(t))
	}
	work(t, h, queues, 4, 5)
	if peak := h.Store.Peak("capped"); peak > cap {
		t.Errorf("%d tasks ran at once under a cap of %d", peak, cap)
	} else if peak == 0 {
		t.Error("nothing of the capped tenant ran")
	}
}

func testCapFreed(t *testing.T, h Harness) {
	h.Store.SetTenant("a", 1, 1)
	h.Store.Add("a", sheaf.LaneNormal, 3)
	feed(t, h)
	for i := range 3 {
		hints := take(t, h.Queue, worker, 4)
		if len(hints) != 1 {
			t.Fatalf("round %d: took %d hints under a cap of 1", i, len(hints))
		}
		claim(t, h, hints[0])
		if more := take(t, h.Queue, worker, 4); len(more) != 0 {
			t.Fatalf("round %d: took %d more above the cap", i, len(more))
		}
		drain(t, h.Queue)
		finish(t, h, hints[0])
		if err := h.Queue.Done(t.Context(), hints[0].TenantID, hints[0].TaskID); err != nil { // again, which frees nothing more
			t.Fatal(err)
		}
		if i < 2 {
			start := time.Now()
			if err := h.Queue.Wait(t.Context(), 5*time.Second); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(start); waited > time.Second {
				t.Fatalf("round %d: nobody was notified when the place was freed (%v)", i, waited)
			}
		}
	}
}

// testFilledCapFreed fills a tenant's cap with exactly as many slots, so that no
// Take is refused. The worker that ends the task may serve another tenant next, so a
// waiter must be notified of the slot.
func testFilledCapFreed(t *testing.T, h Harness) {
	h.Store.SetTenant("a", 1, 2)
	h.Store.Add("a", sheaf.LaneNormal, 4)
	feed(t, h)
	hints := take(t, h.Queue, worker, 2)
	if len(hints) != 2 {
		t.Fatalf("took %d hints under a cap of 2", len(hints))
	}
	for _, hint := range hints {
		claim(t, h, hint)
	}
	drain(t, h.Queue)
	for i, hint := range hints {
		finish(t, h, hint)
		start := time.Now()
		if err := h.Queue.Wait(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited > time.Second {
			t.Fatalf("nobody was notified when place %d was freed (%v)", i, waited)
		}
		next := take(t, h.Queue, worker, 1) // it fills the cap again
		if len(next) != 1 {
			t.Fatalf("took %d hints for place %d", len(next), i)
		}
		claim(t, h, next[0])
		drain(t, h.Queue)
	}
}

// testFilled takes, claims and ends tasks of two tenants in any order. As long as a
// tenant has tasks and slots under its cap, a free slot gets one of them, without a
// notification or a wait.
func testFilled(t *testing.T, h Harness) {
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		type share struct{ headroom, waiting int }
		tenants := map[string]*share{}
		for i := range 2 {
			id, cap := fmt.Sprintf("round%d-%d", round, i), rapid.IntRange(1, 9).Draw(r, "cap")
			h.Store.SetTenant(id, 1, cap)
			h.Store.Add(id, sheaf.LaneNormal, 20)
			tenants[id] = &share{cap, 20}
			if h.Window > 0 {
				tenants[id].waiting = min(20, h.Window)
			}
		}
		feed(t, h)
		var taken, running []sheaf.Hint
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			switch rapid.IntRange(0, 3).Draw(r, "step") {
			case 0:
				want, slots := 0, rapid.IntRange(1, 8).Draw(r, "slots")
				for _, s := range tenants {
					want += min(s.headroom, s.waiting)
				}
				hints := take(t, h.Queue, worker, slots)
				if len(hints) != min(slots, want) {
					r.Fatalf("%d slots were filled with %d of the %d tasks that the caps allow", slots, len(hints), want)
				}
				for _, hint := range hints {
					tenants[hint.TenantID].headroom--
					tenants[hint.TenantID].waiting--
				}
				taken = append(taken, hints...)
			case 1:
				for _, hint := range taken {
					claim(t, h, hint)
				}
				running, taken = append(running, taken...), nil
			case 2:
				n := rapid.IntRange(0, len(running)).Draw(r, "ended")
				for _, hint := range running[:n] {
					finish(t, h, hint)
					tenants[hint.TenantID].headroom++
				}
				running = running[n:]
			case 3:
				notifyOne(t, h.Queue)
			}
		}
		for _, hint := range taken {
			claim(t, h, hint)
		}
		for _, hint := range append(running, taken...) {
			finish(t, h, hint)
		}
		serveAll(t, h)
	})
}

func testLanes(t *testing.T, h Harness) {
	for _, lane := range []sheaf.Lane{sheaf.LaneBackfill, sheaf.LaneNormal, sheaf.LaneInteractive} {
		h.Store.Add("a", lane, 5)
	}
	var order []sheaf.Lane
	serve(t, h, 4, 15, func(hint sheaf.Hint) { order = append(order, hint.Lane) })
	if !slices.IsSorted(order) {
		t.Errorf("lanes were served in the order %v", order)
	}
}

func testWindow(t *testing.T, h Harness) {
	if h.Window == 0 {
		t.Skip("this queue holds no hints")
	}
	hints := make([]sheaf.Hint, h.Window+20)
	for i, id := range h.Store.Add("a", sheaf.LaneNormal, len(hints)) {
		hints[i] = sheaf.Hint{TaskID: id, TenantID: "a", Lane: sheaf.LaneNormal, Phase: sheaf.PhaseBegin, Cost: 1, Kind: sheaf.KindPlan}
	}
	publish := func(want int) {
		t.Helper()
		n, err := h.Queue.Publish(t.Context(), "a", sheaf.LaneNormal, hints)
		if err != nil || n != want {
			t.Fatalf("accepted %d, %v; want %d", n, err, want)
		}
		hints = hints[n:]
	}
	publish(h.Window)
	publish(0)
	// Finishing a document has capacity beside a window full of plans.
	end := h.Store.AddTask(sheaf.Hint{TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindFinalize, Phase: sheaf.PhaseFinish}, time.Now())
	if n, err := h.Queue.Publish(t.Context(), "a", sheaf.LaneNormal, []sheaf.Hint{{TaskID: end, TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindFinalize}}); err != nil || n != 1 {
		t.Fatalf("the end of a document was accepted %d times, %v", n, err)
	}
	first := take(t, h.Queue, worker, 1)
	if len(first) != 1 || first[0].TaskID != end {
		t.Fatalf("%v was taken before the end of a document", first)
	}
	run(t, h, first[0])
	taken := take(t, h.Queue, worker, 5)
	publish(0) // taken but unacked still takes capacity
	for i, hint := range taken {
		if want := fmt.Sprintf("a-%06d", i+1); hint.TaskID != want {
			t.Errorf("hint %d is %s, want %s", i, hint.TaskID, want)
		}
		run(t, h, hint)
	}
	publish(len(taken))
	if n, err := h.Queue.Publish(t.Context(), "a", sheaf.LaneBackfill, hints[:3]); err != nil || n != 3 {
		t.Errorf("another lane accepted %d, %v; want 3", n, err)
	}
}

func testOnce(t *testing.T, h Harness) {
	h.Store.Add("a", sheaf.LaneNormal, 10)
	feed(t, h)
	seen := make(map[string]bool)
	for i := range 10 {
		for _, hint := range take(t, h.Queue, fmt.Sprint("worker-", i%3), 3) {
			if seen[hint.TaskID] {
				t.Errorf("%s was handed out twice", hint.TaskID)
			}
			seen[hint.TaskID] = true
		}
		notifyOne(t, h.Queue)
	}
	if len(seen) != 10 {
		t.Errorf("%d of 10 tasks were handed out", len(seen))
	}
}

func testConcurrent(t *testing.T, h Harness) {
	for i := range 10 {
		h.Store.Add(fmt.Sprint("t", i), sheaf.LaneNormal, 50)
	}
	feed(t, h)
	queues := []queue.Queue{h.Queue}
	if h.Second != nil {
		queues = append(queues, h.Second(t), h.Second(t))
	}
	var (
		mu   sync.Mutex
		seen = make(map[string]int)
		wg   sync.WaitGroup
	)
	for i := range 6 {
		wg.Go(func() {
			for {
				hints, err := queues[i%len(queues)].Take(t.Context(), fmt.Sprint("w", i), 7, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if len(hints) == 0 {
					return
				}
				mu.Lock()
				for _, hint := range hints {
					seen[hint.TaskID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range seen {
		if n > 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
	if len(seen) != 500 {
		t.Errorf("%d of 500 tasks were handed out", len(seen))
	}
}

func testAckDone(t *testing.T, h Harness) {
	h.Store.SetTenant("a", 1, 2)
	h.Store.Add("a", sheaf.LaneNormal, 4)
	feed(t, h)
	first := take(t, h.Queue, worker, 4)
	if len(first) != 2 {
		t.Fatalf("took %d under a cap of 2", len(first))
	}
	claim(t, h, first[0])
	// The second hint was spent: its task ended by other means.
	h.Store.Claim(first[1].TaskID)
	h.Store.Finish(first[1].TaskID, false)
	ack(t, h.Queue, first[1], false)
	second := take(t, h.Queue, worker, 4)
	if len(second) != 1 {
		t.Fatalf("took %d with one of two places free", len(second))
	}
	claim(t, h, second[0])
	finish(t, h, first[0])
	finish(t, h, second[0])
	if third := take(t, h.Queue, worker, 4); len(third) != 1 {
		t.Fatalf("took %d of the last task", len(third))
	}
}

// testAckTogether acks hints of several tenants and lanes, and ends their tasks, all
// at once: every second task runs, the others' hints are spent.
func testAckTogether(t *testing.T, h Harness) {
	const each, most = 8, 6
	for i := range 3 {
		tenant := fmt.Sprint("t", i)
		h.Store.SetTenant(tenant, 1, most)
		h.Store.Add(tenant, sheaf.LaneInteractive, each/2)
		h.Store.Add(tenant, sheaf.LaneBackfill, each/2)
	}
	for range 3 * each { // one round is not enough under the cap; each makes progress
		feed(t, h)
		hints := take(t, h.Queue, worker, 3*each)
		if len(hints) == 0 {
			break
		}
		var together sync.WaitGroup
		for i, hint := range hints {
			h.Store.Claim(hint.TaskID)
			runs := i%2 == 0
			if !runs { // ended by other means
				h.Store.Finish(hint.TaskID, false)
			}
			together.Go(func() { ack(t, h.Queue, hint, runs) })
		}
		together.Wait()
		depths, err := h.Queue.Depths(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range depths {
			if d.Taken != 0 {
				t.Errorf("%d hints of %s are still out after all were acked", d.Taken, d.TenantID)
			}
		}
		for i, hint := range hints {
			if i%2 == 0 {
				together.Go(func() { finish(t, h, hint) })
			}
		}
		together.Wait()
	}
	wantEmpty(t, h)
	// Every slot is free again.
	h.Store.Add("t0", sheaf.LaneNormal, 2*most)
	feed(t, h)
	if hints := take(t, h.Queue, worker, 2*most); len(hints) != most {
		t.Errorf("took %d with all of %d places free", len(hints), most)
	}
}

func testReconcile(t *testing.T, h Harness) {
	h.Store.SetTenant("a", 1, 2)
	h.Store.Add("a", sheaf.LaneNormal, 4)
	feed(t, h)
	hints := take(t, h.Queue, worker, 4)
	if len(hints) != 2 {
		t.Fatalf("took %d under a cap of 2", len(hints))
	}
	claim(t, h, hints[0])
	claim(t, h, hints[1])
	h.Store.Finish(hints[0].TaskID, false) // and its executor dies before reporting it
	reconcile := func() {
		t.Helper()
		if err := h.Queue.Reconcile(t.Context(), h.Store.Running()); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	reconcile()
	more := take(t, h.Queue, worker, 4)
	if len(more) != 1 {
		t.Fatalf("took %d after one of two places was reconciled", len(more))
	}
	claim(t, h, more[0])
	reconcile()
	reconcile()
	if over := take(t, h.Queue, worker, 4); len(over) != 0 {
		t.Errorf("took %d above the cap: reconcile dropped running tasks", len(over))
	}
}

func testDuplicate(t *testing.T, h Harness) {
	ids := h.Store.Add("a", sheaf.LaneNormal, 5)
	feed(t, h)
	h.Store.Forget()
	feed(t, h)
	serveAll(t, h)
	for _, id := range ids {
		if state := h.Store.State(id); state != sheaf.TaskDone {
			t.Errorf("%s is %s", id, state)
		}
	}
	wantEmpty(t, h)
}

func testRecover(t *testing.T, h Harness) {
	h.Store.Add("a", sheaf.LaneNormal, 3)
	h.Store.Add("b", sheaf.LaneBackfill, 2)
	feed(t, h)
	taken := take(t, h.Queue, "dead", 5)
	if len(taken) != 5 {
		t.Fatalf("took %d of 5", len(taken))
	}
	run(t, h, taken[0])
	q := h.Queue
	if h.Second != nil {
		q = h.Second(t)
	}
	if early := recoverHints(t, q, time.Hour); len(early) != 0 {
		t.Errorf("recovered %d that were taken a moment ago", len(early))
	}
	found := recoverHints(t, q, 0)
	if got, want := taskIDs(found), taskIDs(taken[1:]); !slices.Equal(got, want) {
		t.Fatalf("recovered %v, want %v", got, want)
	}
	for _, hint := range found {
		if hint.TenantID == "" || hint.Cost != 1 || hint.Kind != sheaf.KindParse || hint.Lane == 0 {
			t.Errorf("recovered hint is not whole: %+v", hint)
		}
		if !h.Store.Claim(hint.TaskID) {
			t.Errorf("%s was claimed before", hint.TaskID)
		}
		ack(t, q, hint, true)
		h.Store.Finish(hint.TaskID, false)
		if err := q.Done(t.Context(), hint.TenantID, hint.TaskID); err != nil {
			t.Fatal(err)
		}
	}
	if again := recoverHints(t, q, 0); len(again) != 0 {
		t.Errorf("recovered %d acked hints", len(again))
	}
	wantEmpty(t, h)
}

func testLeave(t *testing.T, h Harness) {
	ids := h.Store.Add("a", sheaf.LaneNormal, 4)
	h.Store.SetTenant("a", 1, 4)
	feed(t, h)
	taken := take(t, h.Queue, "leaver", 4)
	if len(taken) != 4 {
		t.Fatalf("took %d of 4", len(taken))
	}
	run(t, h, taken[0])
	for range 2 {
		if err := h.Queue.Leave(t.Context(), "leaver"); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, hint := range take(t, h.Queue, worker, 8) {
		got = append(got, hint.TaskID)
		run(t, h, hint)
	}
	if !slices.Equal(got, ids[1:]) {
		t.Errorf("another worker took %v, want %v", got, ids[1:])
	}
	wantEmpty(t, h)
}

func testSkip(t *testing.T, h Harness) {
	add := func(kind sheaf.TaskKind, n int) {
		for range n {
			h.Store.AddTask(sheaf.Hint{TenantID: "a", Lane: sheaf.LaneNormal, Cost: 1, Kind: kind}, time.Now())
		}
	}
	add(sheaf.KindParse, 20)
	add(sheaf.KindPlan, 2)
	add(sheaf.KindParse, 20)
	for range 3 {
		h.Store.AddTask(sheaf.Hint{TenantID: "only", Lane: sheaf.LaneNormal, Cost: 1, Kind: sheaf.KindParse}, time.Now())
	}
	feed(t, h)
	plans := 0
	for range 20 {
		hints, err := h.Queue.Take(t.Context(), worker, 2, []sheaf.TaskKind{sheaf.KindParse, sheaf.KindIndex})
		if err != nil {
			t.Fatal(err)
		}
		for _, hint := range hints {
			if hint.Kind != sheaf.KindPlan {
				t.Errorf("took a task of kind %s, which was to be skipped", hint.Kind)
			}
			plans++
			run(t, h, hint)
		}
	}
	if plans != 2 {
		t.Errorf("took %d plan tasks behind skipped ones, want 2", plans)
	}
	if left := h.Store.Left(); left != 43 {
		t.Fatalf("%d tasks are left, want 43", left)
	}
	serveAll(t, h)
	wantEmpty(t, h)
}

func testLose(t *testing.T, h Harness) {
	before, err := h.Queue.RunIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.Lose == nil {
		if len(before) > 0 {
			t.Errorf("a queue without memory has run ids %v", before)
		}
		return
	}
	if again, err := h.Queue.RunIDs(t.Context()); len(before) != len(sheaf.Lanes) || err != nil || !maps.Equal(again, before) {
		t.Fatalf("run ids %v, then %v, %v", before, again, err)
	}
	for i := range 5 {
		h.Store.Add(fmt.Sprint("t", i), sheaf.LaneNormal, 40)
	}
	h.Store.SetTenant("t0", 1, 4)
	feed(t, h)
	taken := take(t, h.Queue, worker, 10)
	for _, hint := range taken[:5] {
		claim(t, h, hint)
	}
	h.Lose(t)
	if hints := take(t, h.Queue, worker, 10); len(hints) != 0 {
		t.Errorf("took %d hints from a queue that forgot all", len(hints))
	}
	for i, hint := range taken { // from before the loss: must do no harm
		ack(t, h.Queue, hint, i < 5)
	}
	after, err := h.Queue.RunIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lane := range sheaf.Lanes {
		if after[lane] == before[lane] || after[lane] == "" {
			t.Fatalf("run ids after the loss are %v; it was %v", after, before)
		}
	}
	for _, hint := range taken[:5] {
		finish(t, h, hint)
	}
	h.Store.Forget()
	serveAll(t, h)
	wantEmpty(t, h)
}

func testNotify(t *testing.T, h Harness) {
	queues := []queue.Queue{h.Queue}
	if h.Second != nil {
		queues = append(queues, h.Second(t))
	}
	for i, q := range queues {
		drain(t, q)
		var delays []time.Duration
		for range 5 {
			woken := make(chan time.Time, 1)
			waiting := make(chan struct{})
			go func() {
				close(waiting)
				if err := q.Wait(t.Context(), 10*time.Second); err != nil {
					t.Error(err)
				}
				woken <- time.Now()
			}()
			<-waiting
			rang := time.Now()
			notifyOne(t, h.Queue)
			delays = append(delays, (<-woken).Sub(rang))
			drain(t, q)
		}
		slices.Sort(delays)
		if median := delays[len(delays)/2]; median > 100*time.Millisecond {
			t.Errorf("queue %d: notifications woke the waiter after %v, want 100 ms at most in the median", i, delays)
		}
	}
}

func testRingBeforeWait(t *testing.T, h Harness) {
	drain(t, h.Queue)
	notifyOne(t, h.Queue)
	start := time.Now()
	if err := h.Queue.Wait(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(start); waited > time.Second {
		t.Errorf("a notification just before the wait was received after %v", waited)
	}
}

func testWaitEnds(t *testing.T, h Harness) {
	drain(t, h.Queue)
	start := time.Now()
	if err := h.Queue.Wait(t.Context(), 50*time.Millisecond); err != nil {
		t.Error(err)
	}
	if waited := time.Since(start); waited < 40*time.Millisecond || waited > time.Second {
		t.Errorf("a wait of 50 ms took %v", waited)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	start = time.Now()
	if err := h.Queue.Wait(ctx, 10*time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context ended answers %v", err)
	}
	if waited := time.Since(start); waited > time.Second {
		t.Errorf("the end of the context was noticed after %v", waited)
	}
}

func testCancel(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := h.Queue
	if h.Second != nil {
		other = h.Second(t)
	}
	listeners := []<-chan string{h.Queue.Cancels(ctx), other.Cancels(ctx)}
	want := []string{"task-1", "task-2", "task-3"}
	if err := h.Queue.SignalCancel(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(5 * time.Second)
	for i, listener := range listeners {
		var got []string
		for len(got) < len(want) {
			select {
			case id := <-listener:
				got = append(got, id)
			case <-deadline:
				t.Fatalf("listener %d heard only %v", i, got)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listener %d heard %v", i, got)
		}
	}
	cancel()
	untilClosed(t, deadline, listeners...)
}

// untilClosed receives until each listener is closed, and returns how often it
// received, including the closings.
func untilClosed[T any](t *testing.T, deadline <-chan time.Time, listeners ...<-chan T) (received int) {
	t.Helper()
	for i, listener := range listeners {
		for open := true; open; {
			select {
			case _, open = <-listener:
				received++
			case <-deadline:
				t.Fatalf("listener %d was not closed", i)
			}
		}
	}
	return received
}

func testChanges(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	listeners := []<-chan struct{}{h.Queue.Changes(ctx), h.Queue.Changes(ctx)}
	if h.Second != nil {
		listeners = append(listeners, h.Second(t).Changes(ctx))
	}
	deadline := time.After(20 * time.Second)
	for round := range 5 { // one notification may be the subscriber's initial one
		if err := h.Queue.NotifyChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, listener := range listeners {
			select {
			case _, open := <-listener:
				if !open {
					t.Fatalf("listener %d was closed in round %d", i, round)
				}
			case <-deadline:
				t.Fatalf("listener %d heard nothing in round %d", i, round)
			}
		}
	}
	cancel()
	untilClosed(t, deadline, listeners...)
	if err := h.Queue.NotifyChange(t.Context()); err != nil {
		t.Errorf("a change that nobody subscribed to: %v", err)
	}
}

// testChangesTogether: a busy listener owes one run for all changes meanwhile.
func testChangesTogether(t *testing.T, h Harness) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard := h.Queue.Changes(ctx)
	const most = 200
	for range most {
		if err := h.Queue.NotifyChange(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(20 * time.Second)
	select {
	case <-heard:
	case <-deadline:
		t.Fatal("nothing was heard")
	}
	cancel()
	if more := untilClosed(t, deadline, heard); more > 3 { // one waiting, the listener's initial one, and the closing
		t.Errorf("%d changes were received after one of %d", more, most)
	}
}

func testIdleTenants(t *testing.T, h Harness) {
	perTake := func() float64 {
		t.Helper()
		for i := range 10 {
			h.Store.Add(fmt.Sprint("busy", i), sheaf.LaneNormal, 20)
		}
		feed(t, h)
		before := h.Ops()
		for range 200 {
			for _, hint := range take(t, h.Queue, worker, 1) {
				run(t, h, hint)
			}
		}
		ops := h.Ops() - before
		if left := h.Store.Left(); left != 0 {
			t.Fatalf("%d tasks are left", left)
		}
		take(t, h.Queue, worker, 10) // drops the emptied tenants
		return float64(ops) / 200
	}
	few := perTake()
	for i := range 5000 {
		h.Store.Add(fmt.Sprintf("idle%04d", i), sheaf.LaneNormal, 1)
	}
	serveAll(t, h)
	many := perTake()
	if many > few*1.05+0.1 {
		t.Errorf("a take costs %.2f requests with 10 tenants and %.2f with 5,000 idle ones besides", few, many)
	}
}

func testIdleQueue(t *testing.T, h Harness) {
	h.Store.Add("a", sheaf.LaneNormal, 3)
	serveAll(t, h)
	take(t, h.Queue, worker, 1)
	drain(t, h.Queue)
	take(t, h.Queue, worker, 1)
	before := h.Ops()
	for range 100 {
		if hints := take(t, h.Queue, worker, 4); len(hints) != 0 {
			t.Fatal("took from an empty queue")
		}
	}
	if ops := h.Ops() - before; ops > 100*h.IdleOps {
		t.Errorf("100 takes from an idle queue made %d requests, want %d at most", ops, 100*h.IdleOps)
	}
}

func testDepths(t *testing.T, h Harness) {
	h.Store.Add("a", sheaf.LaneNormal, 3)
	h.Store.Add("a", sheaf.LaneBackfill, 2)
	h.Store.Add("b", sheaf.LaneInteractive, 1)
	feed(t, h)
	take(t, h.Queue, worker, 2)
	depths, err := h.Queue.Depths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waiting, taken := 0, 0
	for _, d := range depths {
		waiting, taken = waiting+d.Waiting, taken+d.Taken
	}
	if taken != 2 {
		t.Errorf("%d hints count as taken, want 2: %+v", taken, depths)
	}
	if h.Window > 0 && waiting != 4 {
		t.Errorf("%d hints count as waiting, want 4: %+v", waiting, depths)
	}
	if !slices.IsSortedFunc(depths, queue.CompareDepths) {
		t.Errorf("depths are not in order: %+v", depths)
	}
}

func testDrain(t *testing.T, h Harness) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		tenant := fmt.Sprint("t", i)
		h.Store.SetTenant(tenant, 1+rng.IntN(4), 1+rng.IntN(6))
		for range 60 {
			h.Store.AddTask(sheaf.Hint{
				TenantID: tenant, Lane: sheaf.Lanes[rng.IntN(3)],
				Cost: 1 + rng.IntN(20), Kind: []sheaf.TaskKind{sheaf.KindParse, sheaf.KindPlan}[rng.IntN(2)],
			}, time.Now())
		}
	}
	queues := []queue.Queue{h.Queue}
	if h.Second != nil {
		queues = append(queues, h.Second(t), h.Second(t))
	}
	work(t, h, queues, 6, 4)
	wantEmpty(t, h)
}

// work runs workers, spread over the queues and with that many slots each, together
// with a feeder, until the store is empty. One claim in ten returns its task.
func work(t *testing.T, h Harness, queues []queue.Queue, workers, slots int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil && h.Store.Left() > 0 {
			if err := h.Store.FeedQueue(ctx, h.Queue); err != nil {
				t.Error(err)
				cancel()
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	for i := range workers {
		wg.Go(func() {
			q := queues[i%len(queues)]
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil && h.Store.Left() > 0 {
				hints, err := q.Take(ctx, fmt.Sprint("w", i), slots, nil)
				if err != nil {
					t.Error(err)
					cancel()
				}
				if len(hints) == 0 {
					if err := q.Wait(ctx, 20*time.Millisecond); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					continue
				}
				for _, hint := range hints {
					won := h.Store.Claim(hint.TaskID)
					ack(t, q, hint, won || h.Store.State(hint.TaskID) == sheaf.TaskRunning)
					if won {
						h.Store.Finish(hint.TaskID, rng.IntN(10) == 0)
						if err := q.Done(ctx, hint.TenantID, hint.TaskID); err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	if left := h.Store.Left(); left != 0 {
		t.Fatalf("%d tasks are left", left)
	}
}

// serve takes until n hints have come, feeding as a keeper does, and runs each to
// completion immediately.
func serve(t *testing.T, h Harness, slots, n int, each func(sheaf.Hint)) int {
	t.Helper()
	total := 0
	for takes, empty := 0, 0; total < n; takes++ {
		if takes%8 == 0 || empty > 0 {
			feed(t, h)
		}
		hints := take(t, h.Queue, worker, min(slots, n-total))
		if len(hints) == 0 {
			if empty++; empty > 3 {
				t.Fatalf("nothing more to take after %d of %d", total, n)
			}
			continue
		}
		empty = 0
		for _, hint := range hints {
			each(hint)
			run(t, h, hint)
		}
		total += len(hints)
	}
	return total
}

// serveAll runs everything in the store to completion, including refused hints.
func serveAll(t *testing.T, h Harness) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for empty := 0; empty < 3; {
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks are left after 30 s", h.Store.Left())
		}
		feed(t, h)
		hints := take(t, h.Queue, worker, 64)
		if len(hints) == 0 {
			empty++
			continue
		}
		empty = 0
		for _, hint := range hints {
			run(t, h, hint)
		}
	}
	if left := h.Store.Left(); left != 0 {
		t.Fatalf("%d tasks are left and the queue gives none", left)
	}
}

// run claims and acks a hint, and finishes the task if the claim was won.
func run(t *testing.T, h Harness, hint sheaf.Hint) {
	t.Helper()
	won := h.Store.Claim(hint.TaskID)
	ack(t, h.Queue, hint, won || h.Store.State(hint.TaskID) == sheaf.TaskRunning)
	if won {
		finish(t, h, hint)
	}
}

func claim(t *testing.T, h Harness, hint sheaf.Hint) {
	t.Helper()
	if !h.Store.Claim(hint.TaskID) {
		t.Fatalf("%s cannot be claimed", hint.TaskID)
	}
	ack(t, h.Queue, hint, true)
}

func finish(t *testing.T, h Harness, hint sheaf.Hint) {
	t.Helper()
	h.Store.Finish(hint.TaskID, false)
	if err := h.Queue.Done(t.Context(), hint.TenantID, hint.TaskID); err != nil {
		t.Errorf("done: %v", err)
	}
}

func feed(t *testing.T, h Harness) {
	t.Helper()
	if err := h.Store.FeedQueue(t.Context(), h.Queue); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, q queue.Queue, workerID string, slots int) []sheaf.Hint {
	t.Helper()
	hints, err := q.Take(t.Context(), workerID, slots, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(hints) > slots {
		t.Fatalf("took %d hints into %d slots", len(hints), slots)
	}
	return hints
}

func recoverHints(t *testing.T, q queue.Queue, minIdle time.Duration) []sheaf.Hint {
	t.Helper()
	hints, err := q.Recover(t.Context(), "rescuer", minIdle)
	if err != nil {
		t.Fatal(err)
	}
	return hints
}

func ack(t *testing.T, q queue.Queue, hint sheaf.Hint, running bool) {
	t.Helper()
	if err := q.Ack(context.WithoutCancel(t.Context()), hint, running); err != nil {
		t.Errorf("ack: %v", err)
	}
}

func notifyOne(t *testing.T, q queue.Queue) {
	t.Helper()
	if err := q.Notify(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// drain receives leftover notifications.
func drain(t *testing.T, q queue.Queue) {
	t.Helper()
	for range 200 {
		start := time.Now()
		if err := q.Wait(t.Context(), 30*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) >= 25*time.Millisecond {
			return
		}
	}
	t.Fatal("notifications do not end")
}

// wantEmpty checks that the queue is empty: no hint is waiting or taken.
func wantEmpty(t *testing.T, h Harness) {
	t.Helper()
	depths, err := h.Queue.Depths(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(depths) != 0 {
		t.Errorf("the queue still holds %+v", depths)
	}
}

func taskIDs(hints []sheaf.Hint) []string {
	ids := make([]string, len(hints))
	for i, hint := range hints {
		ids[i] = hint.TaskID
	}
	slices.Sort(ids)
	return ids
}
