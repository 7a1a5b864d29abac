package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

var ctx = context.Background()

// Run runs the contract of executors and the keeper on one engine.
func Run(t *testing.T, engine string) {
	for _, c := range []struct {
		name string
		test func(f *Fixture)
	}{
		{"ClaimIsExclusiveAndLogged", claimIsExclusive},
		{"IndexStateIsFenced", indexStateIsFenced},
		{"ClaimIsRefusedWithTheState", claimIsRefused},
		{"ClaimOfManyAtOnceHasOneWinner", claimRace},
		{"BatchHasAnOutcomeForEach", batchMixed},
		{"BatchesRaceOverTheSameTasks", batchRace},
		{"BatchSurvivesADeadlock", batchDeadlock},
		{"BadCompletionFailsAlone", batchBadItem},
		{"BatchBrokenOffLeavesNothing", batchBrokenOff},
		{"PlanWritesTheDocumentAndItsTasks", planWrites},
		{"SplitTwiceIsSplitOnce", splitTwice},
		{"ZombieChangesNothing", zombie},
		{"PoisonDiesAfterThreeLosses", poison},
		{"SilentWorkerIsReapedBeforeItsLease", silentWorker},
		{"FailuresCountAndDie", failures},
		{"SnoozeAndReleaseTouchNoBudget", snoozeAndRelease},
		{"HeldAreTheWorkersOwn", heldByWorker},
		{"HeartbeatTellsLostAndCanceled", heartbeat},
		{"HeartbeatTellsWhatWasCalledOff", calledOff},
		{"CancelMeetsClaimAndComplete", cancelRaces},
		{"CancelMeetsSpawn", cancelMeetsSpawn},
		{"HardCancelFences", hardCancel},
		{"OneTaskIsCanceled", cancelOne},
		{"CanceledPlanEndsTheDocument", cancelPlan},
		{"ReparseSupersedes", reparse},
		{"ChildrenWaitForAllParents", dependencies},
		{"TwoParentsEndAtOnce", parentsRace},
		{"ChildrenOfTheDeadEnd", deadParent},
		{"ParkedAreWokenByTheSweep", wakeParked},
		{"NodesRunWhenTheirInputsEnded", graphsOfNodes},
		{"PoolsAreFedApart", poolsAreFedApart},
		{"CapsFollowTheFleet", capsFollowTheFleet},
		{"SpendingStopsAtItsCaps", spendingStops},
		{"OutputsAreCollectedOnceUnlisted", outputsAreCollected},
		{"PausedWorkWaits", paused},
		{"FoldFollowsTheTasks", foldFollows},
		{"FoldLeavesProgressForLater", foldLeaves},
		{"FinalizeOnceWithManyFolders", finalizeOnce},
		{"FoldOfManyIsThatOfEach", foldMany},
		{"HeldDocumentsAreFoldedLater", foldHeld},
		{"FoldersShareTheDocuments", foldShares},
		{"FoldersKnowTheirRank", foldRanks},
		{"LastRangeFinishesWithoutTheKeeper", lastRange},
		{"PublishIsGuarded", publishGuard},
		{"StitchReplacesResultsBeforePublication", stitchGuard},
		{"NodesOverTheDocumentRunBeforePublication", lastGuard},
		{"OutlinesOfFinishedRangesAreListed", rangeOutlines},
		{"FailedGenerationLeavesTheLiveOne", failedPublish},
		{"DeadPlanFailsTheDocument", deadPlan},
		{"DeadFinalizeFailsTheDocument", deadFinalize},
		{"CanceledDocumentEndsCanceled", canceledDocument},
		{"RetriedTaskReopensTheDocument", reopened},
		{"PublishDropsOldRanges", dropOldRanges},
		{"PublishKeepsOldArtifactsForAWhile", keepOldVersions},
		{"EndedAttemptsLeaveGarbage", attemptGarbage},
		{"PlanPublishesASmallDocument", wholeDocument},
		{"PlanPublishesNothingThatChanged", wholeDocumentGuards},
		{"ReusableRangesPreferTheDocument", reusable},
		{"EventsAreAppendedInOrder", appendEvents},
		{"FeedIsOrderedAndWindowed", feed},
		{"FeedOfManyBacklogsComesInSlices", feedSlices},
		{"BegunDocumentsAreServedFirst", depthFirst},
		{"RetriesKeepTheirPlace", placeIsKept},
		{"TasksOfAnEarlierVersionAreServed", earlierVersion},
		{"AheadIsByPhase", aheadByPhase},
		{"AheadIsOfOneMoment", aheadAtOnce},
		{"AgedTasksMoveUp", aging},
		{"SpentHintIsNotEnqueued", spentHint},
		{"LostHintIsNotEnqueued", lostHint},
		{"PromoteDueInBatches", promote},
		{"FairnessIsOfWhatWasServedLately", fairness},
		{"WorkForLaterWaits", scheduled},
		{"WorkForLaterIsCanceledAndReplaced", scheduledEnds},
		{"LeasesHaveOneHolder", leases},
		{"MetaRoundTrips", meta},
		{"ReleaseRunningGivesAllBack", releaseRunning},
		{"NothingWaitsForAClockThatWentBack", clockWentBack},
		{"AgeIsNotWhatAClockThatJumpedSays", clockJumped},
		{"CleanupKeepsWhatCounts", cleanup},
		{"CleanupGoesOnWhereItStopped", cleanupGoesOn},
		{"JobsLeaveWhenNothingIsLeft", jobsLeave},
		{"SumsOfAnEndedJobAreKept", endedJobSums},
		{"CanceledContextChangesNothing", canceledContext},
		{"MembersAreMadeOnce", membersOnce},
		{"MembersAreMadeForTheHolderAlone", membersFenced},
		{"MembersObeyQuotas", membersQuota},
		{"MembersFollowTheArchive", membersFollow},
		{"MembersMeetTheirArchivesEnd", membersRace},
		{"DeletionLeavesNeitherNameNorWord", deletionLeavesNothing},
		{"DeletionIsResumed", deletionResumed},
		{"DeletionOfManyDocuments", deletionOfMany},
		{"ReceiptFollowsADeletionToItsEnd", receiptCompletes},
		{"ReceiptNamesWhatIsKept", receiptKept},
		{"ReceiptOfADatasetOutlivesIt", datasetReceipt},
		{"FormerMembersHaveAReceipt", formerMembersReceipt},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(New(t, engine)) })
	}
}

func want[T comparable](f *Fixture, what string, got, want T) {
	f.T.Helper()
	if got != want {
		f.T.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func wantList[T comparable](f *Fixture, what string, got []T, want ...T) {
	f.T.Helper()
	if !slices.Equal(got, want) {
		f.T.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func claimIsExclusive(f *Fixture) {
	d := f.Document("t")
	before := time.Now()
	t := f.Claim(d.Plan, "w1")
	want(f, "state", t.State, sheaf.TaskRunning)
	want(f, "epoch", t.Epoch, 1)
	want(f, "attempts", t.Attempts, 1)
	want(f, "worker", t.WorkerID, "w1")
	if lease := t.LeaseUntil.Sub(t.StartedAt); lease != time.Minute {
		f.T.Fatalf("lease of %v, want a minute", lease)
	}
	if d := t.StartedAt.Sub(before); d < -time.Minute || d > time.Minute {
		f.T.Fatalf("started %v away from now", d)
	}
	f.Refused(d.Plan, sheaf.TaskRunning)
	wantList(f, "events", f.Events(d.Plan), "claimed")
	want(f, "epoch of the event", f.Int("SELECT epoch FROM events WHERE task_id=?", d.Plan), 1)
}

func claimIsRefused(f *Fixture) {
	f.Refused("nothing", "")
	d := f.Document("t")
	tasks := f.Plan(d, Parse(3)...)
	f.Refused(d.Plan, sheaf.TaskDone)
	f.Exec("UPDATE tasks SET run_at=run_at+3600000 WHERE id=?", tasks[0].ID)
	f.Refused(tasks[0].ID, sheaf.TaskPending)
	f.Store.AdvanceClock(2 * time.Hour)
	f.Claim(tasks[0].ID, "w")
	f.Exec("UPDATE tasks SET cancel_requested_at=1 WHERE id=?", tasks[1].ID)
	f.Refused(tasks[1].ID, sheaf.TaskPending)
	f.Exec("UPDATE documents SET deleted_at=1 WHERE id=?", d.ID)
	f.Refused(tasks[2].ID, sheaf.TaskPending)
	if _, err := f.Store.DocumentByID(ctx, d.ID); !errors.Is(err, sheaf.ErrNotFound) {
		f.T.Fatalf("a deleted document: %v, want ErrNotFound", err)
	}
	deleted, err := f.Store.DeletedDocuments(ctx, []string{f.Document("t").ID, d.ID, "never"})
	f.OK(err)
	wantList(f, "deleted documents", deleted, d.ID, "never")
}

func claimRace(f *Fixture) {
	d := f.Document("t")
	stores := []*sqlstore.Store{f.Store, f.Second()}
	for _, t := range f.Plan(d, Parse(10)...) {
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				_, err := stores[i%2].Claim(ctx, t.ID, fmt.Sprint("w", i), time.Minute)
				if err == nil {
					won.Add(1)
				} else if refusal, ok := errors.AsType[*taskstore.NotClaimable](err); !ok || refusal.State != sheaf.TaskRunning {
					f.T.Errorf("a claim that lost: %v", err)
				}
			})
		}
		wg.Wait()
		want(f, "claims won", won.Load(), 1)
		want(f, "claimed events", f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND kind='claimed'", t.ID), 1)
	}
}

func planWrites(f *Fixture) {
	d := f.Document("t")
	f.Exec("UPDATE documents SET metadata=? WHERE id=?", `{"source":"mail"}`, d.ID)
	t := f.Claim(d.Plan, "w")
	reused := sheaf.TaskResult{RangeID: "r1", ArtifactKey: "k1", Chunks: 4, Tokens: 40, Reused: true}
	spawn := Parse(2)
	spawn[0].Done = &reused
	spawn[1].Payload = json.RawMessage(`{"format":"pdf"}`)
	f.OK(f.Store.Complete(ctx, t.Held(), taskstore.Completion{
		Plan: &sheaf.PlanResult{Parser: "pdf/1", Unit: sheaf.UnitPage, Units: 24, Metadata: map[string]string{"title": "A"},
			Warnings: []sheaf.Warning{{Code: "c", Message: "m"}}},
		Spawn: spawn,
	}))
	doc := f.Doc(d.ID)
	if doc.Parser != "pdf/1" || doc.Unit != sheaf.UnitPage || doc.Units != 24 || doc.Metadata["title"] != "A" || doc.Metadata["source"] != "mail" || len(doc.Warnings) != 1 || doc.StartedAt.IsZero() {
		f.T.Fatalf("the plan did not reach the document: %+v", doc)
	}
	want(f, "units of the generation", f.Int("SELECT units FROM generations WHERE doc_id=? AND gen=1", d.ID), 24)
	tasks := f.Tasks(d.ID, 1)
	want(f, "tasks", len(tasks), 2)
	want(f, "reused task", tasks[0].State, sheaf.TaskDone)
	want(f, "its range", tasks[0].Result.RangeID, "r1")
	want(f, "its chunks", tasks[0].Result.Chunks, 4)
	want(f, "new task", tasks[1].State, sheaf.TaskPending)
	want(f, "its payload", string(tasks[1].Payload), `{"format":"pdf"}`)
	want(f, "its job", tasks[1].JobID, d.Job)
	want(f, "its tenant", tasks[1].TenantID, "t")
	want(f, "its range", tasks[1].Range, sheaf.Range{From: 13, To: 24})
	f.Stale(f.Store.Complete(ctx, t.Held(), taskstore.Completion{Spawn: Parse(5)}))
	want(f, "tasks after the second completion", len(f.Tasks(d.ID, 1)), 2)
}

func splitTwice(f *Fixture) {
	d := f.Document("t")
	first := f.Plan(d, Parse(3)...)
	// A second planner that lost the race brings its own tasks for the same ranges, one
	// of which depends on another.
	f.Exec("UPDATE tasks SET state='pending' WHERE id=?", d.Plan)
	again := Parse(4)
	again[3].DependsOn = []string{again[0].ID}
	tasks := f.Plan(d, again...)
	want(f, "tasks", len(tasks), 4)
	for i, t := range first {
		want(f, "id of an existing task", tasks[i].ID, t.ID)
	}
	f.InState(again[3].ID, sheaf.TaskParked)
	f.Done(first[0].ID)
	f.InState(again[3].ID, sheaf.TaskPending)
}

func zombie(f *Fixture) {
	d := f.Document("t")
	id := f.Plan(d, Parse(1)...)[0].ID
	old := f.Claim(id, "w1")
	f.Store.AdvanceClock(2 * time.Minute)
	n, err := f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
	f.OK(err)
	want(f, "reaped", n, 1)
	f.InState(id, sheaf.TaskPending)
	held := f.Claim(id, "w2")
	want(f, "epoch", held.Epoch, 3)

	f.Stale(f.Store.Complete(ctx, old.Held(), taskstore.Completion{Result: Result(old)}))
	_, err = f.Store.FailTask(ctx, old.Held(), taskstore.FailReport{Failure: *sheaf.Fail("internal", "x", "x")})
	f.Stale(err)
	f.Stale(f.Store.Snooze(ctx, old.Held(), time.Second, sheaf.Failure{Message: "x"}))
	f.Stale(f.Store.Release(ctx, old.Held()))
	f.Stale(f.Store.AppendEvents(ctx, old.Held(), []sheaf.Event{{Kind: sheaf.EventMessage, Text: "x"}}))
	reply, err := f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: "w1"}, time.Minute, []sheaf.Claim{old.Held()})
	f.OK(err)
	if len(reply.Lost) != 1 {
		f.T.Fatalf("the zombie's heartbeat answers %+v", reply)
	}
	f.InState(id, sheaf.TaskRunning)
	want(f, "worker", f.Task(id).WorkerID, "w2")
	wantList(f, "events", f.Events(id), "claimed", "lost", "claimed")

	r := Result(held)
	f.OK(f.Store.Complete(ctx, held.Held(), taskstore.Completion{Result: r}))
	f.Stale(f.Store.Complete(ctx, held.Held(), taskstore.Completion{Result: r}))
	want(f, "done events", f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND kind='done'", id), 1)
	want(f, "range", f.Task(id).Result.RangeID, r.RangeID)
	want(f, "done epoch", f.Int("SELECT done_epoch FROM tasks WHERE id=?", id), 3)
}

func promoteAll(f *Fixture) error {
	f.Store.AdvanceClock(time.Hour)
	_, err := f.Store.PromoteDue(ctx, 1000)
	return err
}

func poison(f *Fixture) {
	d := f.Document("t")
	ids := f.Plan(d, Parse(2)...)
	for _, after := range []sheaf.TaskState{sheaf.TaskPending, sheaf.TaskRetryWait, sheaf.TaskDead} {
		f.Claim(ids[0].ID, "w")
		f.Store.AdvanceClock(2 * time.Minute)
		n, err := f.Store.Reap(ctx, taskstore.ReapPolicy{MaxLost: 3, MaxJitter: time.Second}, 10)
		f.OK(err)
		want(f, "reaped", n, 1)
		f.InState(ids[0].ID, after)
		f.OK(promoteAll(f))
	}
	f.Refused(ids[0].ID, sheaf.TaskDead)
	t := f.Task(ids[0].ID)
	want(f, "lost", t.LostCount, 3)
	want(f, "failed", t.FailCount, 0)
	if t.Failure == nil || t.Failure.Code != "worker_lost" || t.FinishedAt.IsZero() {
		f.T.Fatalf("a dead task without its reason: %+v", t)
	}
	wantList(f, "events", f.Events(t.ID), "claimed", "lost", "claimed", "lost", "claimed", "lost", "dead")
	f.Done(ids[1].ID)
	f.Fold()
	want(f, "document", f.Doc(d.ID).State, sheaf.DocFinalizing)
}

func silentWorker(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(3)...)
	policy := taskstore.ReapPolicy{WorkerTimeout: 30 * time.Second}
	beat := func(w string, c sheaf.Claim) {
		_, err := f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: w}, time.Hour, []sheaf.Claim{c})
		f.OK(err)
	}
	alive, silent, young := f.Claim(tasks[0].ID, "alive"), f.Claim(tasks[1].ID, "silent"), (*sheaf.Task)(nil)
	beat("silent", silent.Held())
	f.Store.AdvanceClock(40 * time.Second)
	beat("alive", alive.Held())
	young = f.Claim(tasks[2].ID, "young") // too recent for a heartbeat
	n, err := f.Store.Reap(ctx, policy, 10)
	f.OK(err)
	want(f, "reaped", n, 1)
	f.InState(silent.ID, sheaf.TaskPending)
	f.InState(alive.ID, sheaf.TaskRunning)
	f.InState(young.ID, sheaf.TaskRunning)
	f.OK(f.Store.Deregister(ctx, "alive"))
	f.Store.AdvanceClock(31 * time.Second)
	n, err = f.Store.Reap(ctx, policy, 10)
	f.OK(err)
	want(f, "reaped of the unregistered", n, 2)
}

func failures(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(2)...)
	report := taskstore.FailReport{Failure: *sheaf.FailRetryable(sheaf.CategoryTimeout, "slow", "Too slow."), Delay: 10 * time.Second, MaxFails: 2}
	t := f.Claim(tasks[0].ID, "w")
	state, err := f.Store.FailTask(ctx, t.Held(), report)
	f.OK(err)
	want(f, "after the first failure", state, sheaf.TaskRetryWait)
	n, err := f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	want(f, "promoted before the delay", len(n.Tasks), 0)
	want(f, "the next one is due in", n.NextIn > 0 && n.NextIn <= 10*time.Second, true)
	f.Refused(t.ID, sheaf.TaskRetryWait)
	f.Store.AdvanceClock(11 * time.Second)
	n, err = f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	want(f, "promoted", len(n.Tasks), 1)
	want(f, "id", n.Tasks[0].ID, t.ID)
	want(f, "lane", n.Tasks[0].Lane, t.Lane)
	want(f, "late by what the clock went beyond the delay", n.Tasks[0].Late >= time.Second, true)
	want(f, "next one", n.NextIn, 0)
	t = f.Claim(t.ID, "w")
	want(f, "attempts", t.Attempts, 2)
	state, err = f.Store.FailTask(ctx, t.Held(), report)
	f.OK(err)
	want(f, "after the second failure", state, sheaf.TaskDead)
	wantList(f, "events", f.Events(t.ID), "claimed", "failed", "claimed", "dead")
	got := f.Task(t.ID)
	want(f, "fail count", got.FailCount, 2)
	want(f, "code", got.Failure.Code, "slow")

	t = f.Claim(tasks[1].ID, "w")
	state, err = f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryEncrypted, "password", "Give the password."), MaxFails: 9})
	f.OK(err)
	want(f, "after a failure that no retry cures", state, sheaf.TaskDead)
}

func snoozeAndRelease(f *Fixture) {
	d := f.Document("t")
	id := f.Plan(d, Parse(1)...)[0].ID
	t := f.Claim(id, "w")
	f.OK(f.Store.Snooze(ctx, t.Held(), 30*time.Second, sheaf.Failure{Code: "embedder_down", Message: "the embedder is down"}))
	f.Refused(id, sheaf.TaskRetryWait)
	f.OK(promoteAll(f))
	t = f.Claim(id, "w")
	f.Enqueued(sheaf.Hint{TaskID: id})
	f.OK(f.Store.Release(ctx, t.Held()))
	f.Stale(f.Store.Release(ctx, t.Held()))
	f.InState(id, sheaf.TaskPending)
	t = f.Claim(id, "w")
	got := f.Task(id)
	if got.FailCount != 0 || got.LostCount != 0 || got.Attempts != 3 {
		f.T.Fatalf("budgets were touched: %+v", got)
	}
	want(f, "epoch", t.Epoch, 4) // three claims and a release
	wantList(f, "events", f.Events(id), "claimed", "snoozed", "claimed", "released", "claimed")
	events, err := f.Store.TaskEvents(ctx, "t", id)
	f.OK(err)
	var why sheaf.Failure
	f.OK(json.Unmarshal(events[1].Detail, &why))
	want(f, "why it waited", events[1].Text+" "+why.Code, "the embedder is down embedder_down")
}

func heldByWorker(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(4)...)
	mine, theirs, over := f.Claim(tasks[0].ID, "w"), f.Claim(tasks[1].ID, "other"), f.Claim(tasks[2].ID, "w")
	f.OK(f.Store.Release(ctx, over.Held()))
	ids := []string{mine.ID, theirs.ID, over.ID, tasks[3].ID, mine.ID, "no-such-task"}
	held, err := f.Store.Held(ctx, "w", ids)
	f.OK(err)
	if !slices.Equal(held, []sheaf.Claim{mine.Held()}) {
		f.T.Fatalf("w holds %v, want %v alone", held, mine.Held())
	}
	held, err = f.Store.Held(ctx, "w", nil)
	f.OK(err)
	want(f, "held of none", len(held), 0)
}

func heartbeat(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(1200)...)
	var held []sheaf.Claim
	for _, t := range tasks[:1100] { // more than fit into one statement
		held = append(held, f.Claim(t.ID, "w").Held())
	}
	f.Store.AdvanceClock(50 * time.Second)
	status := taskstore.WorkerStatus{ID: "w", Host: "h", Slots: 4, StartedAt: time.Now()}
	reply, err := f.Store.Heartbeat(ctx, status, time.Minute, held)
	f.OK(err)
	if len(reply.Lost)+len(reply.Canceled) != 0 {
		f.T.Fatalf("heartbeat answers %+v", reply)
	}
	f.Store.AdvanceClock(50 * time.Second)
	n, err := f.Store.Reap(ctx, taskstore.ReapPolicy{}, 2000)
	f.OK(err)
	want(f, "reaped in spite of the heartbeat", n, 0)
	f.Exec("UPDATE tasks SET cancel_requested_at=1 WHERE id=?", held[3].TaskID)
	f.OK(f.Store.Release(ctx, held[5]))
	other := f.Claim(tasks[1101].ID, "other")
	reply, err = f.Store.Heartbeat(ctx, status, time.Minute, append(held, other.Held()))
	f.OK(err)
	if len(reply.Canceled) != 1 || reply.Canceled[0] != held[3] {
		f.T.Fatalf("asked to stop: %v", reply.Canceled)
	}
	if len(reply.Lost) != 2 || !slices.Contains(reply.Lost, held[5]) || !slices.Contains(reply.Lost, other.Held()) {
		f.T.Fatalf("lost: %v", reply.Lost)
	}
	want(f, "workers", f.Int("SELECT COUNT(*) FROM workers"), 1)
	if _, err := f.Store.Heartbeat(ctx, status, time.Minute, nil); err != nil {
		f.T.Fatalf("a heartbeat without tasks: %v", err)
	}
	f.OK(f.Store.Deregister(ctx, "w"))
	want(f, "workers", f.Int("SELECT COUNT(*) FROM workers"), 0)
}

// cancelRaces lets a cancel meet every point in the life of a task: the row must end
// in one state, by one transition, and nothing may start after it.
func cancelRaces(f *Fixture) {
	for range 15 {
		d := f.Document("t")
		tasks := f.Plan(d, Parse(4)...)
		var wg sync.WaitGroup
		for _, t := range tasks {
			wg.Go(func() {
				got, err := f.Store.Claim(ctx, t.ID, "w", time.Minute)
				if err != nil {
					if _, ok := errors.AsType[*taskstore.NotClaimable](err); !ok {
						f.T.Error(err)
					}
					return
				}
				if err := f.Store.Complete(ctx, got.Held(), taskstore.Completion{Result: Result(got)}); err != nil && !errors.Is(err, sheaf.ErrStale) {
					f.T.Error(err)
				}
			})
		}
		wg.Go(func() { f.Cancel(d) })
		wg.Wait()
		f.Fold()
		for _, t := range tasks {
			got := f.Task(t.ID)
			events := f.Events(t.ID)
			switch got.State {
			case sheaf.TaskDone:
				wantList(f, "events of a done task", events, "claimed", "done")
			case sheaf.TaskCanceled:
				wantList(f, "events of a canceled task", events, "canceled")
			default:
				f.T.Fatalf("task ended %s with events %v", got.State, events)
			}
		}
		want(f, "document", f.Doc(d.ID).State, sheaf.DocCanceled)
		want(f, "live generation", f.Doc(d.ID).LiveGeneration, 0)
	}
}

func cancelMeetsSpawn(f *Fixture) {
	for range 10 {
		d := f.Document("t")
		plan := f.Claim(d.Plan, "w")
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := f.Store.Complete(ctx, plan.Held(), taskstore.Completion{Plan: &sheaf.PlanResult{Unit: sheaf.UnitPage, Units: 60}, Spawn: Parse(5)}); err != nil && !errors.Is(err, sheaf.ErrStale) {
				f.T.Error(err)
			}
		})
		wg.Go(func() { f.Cancel(d) })
		wg.Wait()
		want(f, "tasks that would still run", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND state NOT IN ('done','canceled')", d.ID), 0)
		f.Fold()
		want(f, "document", f.Doc(d.ID).State, sheaf.DocCanceled)
	}
}

func hardCancel(f *Fixture) {
	d := f.Document("t")
	id := f.Plan(d, Parse(1)...)[0].ID
	t := f.Claim(id, "w")
	f.Cancel(d)
	n, err := f.Store.HardCancel(ctx, 30*time.Second, 10)
	f.OK(err)
	want(f, "canceled within the grace", n, 0)
	f.Store.AdvanceClock(31 * time.Second)
	n, err = f.Store.HardCancel(ctx, 30*time.Second, 10)
	f.OK(err)
	want(f, "canceled", n, 1)
	f.Stale(f.Store.Complete(ctx, t.Held(), taskstore.Completion{Result: Result(t)}))
	f.InState(id, sheaf.TaskCanceled)
	wantList(f, "events", f.Events(id), "claimed", "canceled")
	f.Fold()
	want(f, "document", f.Doc(d.ID).State, sheaf.DocCanceled)

	// A canceled attempt that fails, snoozes, releases or is lost does not come back.
	for i, end := range []func(t *sheaf.Task) error{
		func(t *sheaf.Task) error {
			state, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable("timeout", "x", "x"), MaxFails: 9})
			if err == nil && state != sheaf.TaskCanceled {
				return fmt.Errorf("FailTask answers %s", state)
			}
			return err
		},
		func(t *sheaf.Task) error {
			return f.Store.Snooze(ctx, t.Held(), time.Second, sheaf.Failure{Message: "x"})
		},
		func(t *sheaf.Task) error { return f.Store.Release(ctx, t.Held()) },
		func(*sheaf.Task) error {
			f.Store.AdvanceClock(time.Hour)
			_, err := f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
			return err
		},
	} {
		d := f.Document("t")
		t := f.Claim(f.Plan(d, Parse(1)...)[0].ID, "w")
		f.Cancel(d)
		f.OK(end(t))
		f.InState(t.ID, sheaf.TaskCanceled)
		got := f.Task(t.ID)
		if got.FailCount != 0 || got.LostCount != 0 || got.FinishedAt.IsZero() {
			f.T.Fatalf("way %d of ending a canceled attempt counted: %+v", i, got)
		}
		wantList(f, "events", f.Events(t.ID), "claimed", "canceled")
	}
}

func reparse(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(2)...)
	old := f.Claim(tasks[0].ID, "w")
	f.Done(tasks[1].ID)
	d = f.Reparse(d)
	f.Stale(f.Store.Complete(ctx, old.Held(), taskstore.Completion{Result: Result(old)}))
	f.Refused(tasks[0].ID, sheaf.TaskSuperseded)
	f.Refused(tasks[1].ID, sheaf.TaskDone)
	for _, t := range f.Plan(d, Parse(2)...) {
		want(f, "generation", t.Generation, 2)
		f.Done(t.ID)
	}
	f.Publish(d.ID, sheaf.DocSucceeded)
	doc := f.Doc(d.ID)
	want(f, "live generation", doc.LiveGeneration, 2)
	want(f, "state of the old generation", f.Strings("SELECT state FROM generations WHERE doc_id=? AND gen=1", d.ID)[0], "canceled")
	wantList(f, "events of a task that ran", f.Events(old.ID), "claimed", "superseded")
}

func dependencies(f *Fixture) {
	d := f.Document("t")
	spawn := Parse(3)
	spawn[2].DependsOn = []string{spawn[0].ID, spawn[1].ID, d.Plan}
	f.Plan(d, spawn...)
	f.Refused(spawn[2].ID, sheaf.TaskParked)
	f.Done(spawn[0].ID)
	f.Refused(spawn[2].ID, sheaf.TaskParked)
	f.Done(spawn[1].ID)
	f.InState(spawn[2].ID, sheaf.TaskPending)
	want(f, "unmet", f.Int("SELECT unmet FROM tasks WHERE id=?", spawn[2].ID), 0)
	f.Done(spawn[2].ID)

	d = f.Document("t")
	bad := Parse(1)
	bad[0].DependsOn = []string{"nothing"}
	plan := f.Claim(d.Plan, "w")
	err := f.Store.Complete(ctx, plan.Held(), taskstore.Completion{Spawn: bad})
	if !errors.Is(err, sheaf.ErrInvalid) {
		f.T.Fatalf("a dependency on nothing: %v, want ErrInvalid", err)
	}
	f.InState(d.Plan, sheaf.TaskRunning)
}

func parentsRace(f *Fixture) {
	stores := []*sqlstore.Store{f.Store, f.Second()}
	for round := range 20 {
		d := f.Document("t")
		spawn := Parse(3)
		spawn[2].DependsOn = []string{spawn[0].ID, spawn[1].ID}
		f.Plan(d, spawn...)
		a, b := f.Claim(spawn[0].ID, "w1"), f.Claim(spawn[1].ID, "w2")
		var wg sync.WaitGroup
		for i, t := range []*sheaf.Task{a, b} {
			wg.Go(func() {
				// From two processes, and as one batch of one.
				if err := stores[i*round%2].Complete(ctx, t.Held(), taskstore.Completion{Result: Result(t)}); err != nil {
					f.T.Error(err)
				}
			})
		}
		wg.Wait()
		f.InState(spawn[2].ID, sheaf.TaskPending)
	}
}

func deadParent(f *Fixture) {
	d := f.Document("t")
	spawn := Parse(4)
	spawn[1].DependsOn = []string{spawn[0].ID}
	spawn[2].DependsOn = []string{spawn[1].ID}
	f.Plan(d, spawn...)
	t := f.Claim(spawn[0].ID, "w")
	_, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail("bad_input", "x", "x")})
	f.OK(err)
	f.Fold()
	f.InState(spawn[1].ID, sheaf.TaskDead)
	f.InState(spawn[2].ID, sheaf.TaskDead)
	want(f, "code", f.Task(spawn[2].ID).Failure.Code, "dependency_failed")
	f.Done(spawn[3].ID)
	f.Fold()
	want(f, "document", f.Doc(d.ID).State, sheaf.DocFinalizing)
}

func wakeParked(f *Fixture) {
	d := f.Document("t")
	spawn := Parse(2)
	spawn[1].DependsOn = []string{spawn[0].ID}
	f.Plan(d, spawn...)
	n, err := f.Store.WakeParked(ctx, 10)
	f.OK(err)
	want(f, "woken while the parent runs", n, 0)
	f.Exec("UPDATE tasks SET state='done' WHERE id=?", spawn[0].ID) // as after a missed wake-up
	n, err = f.Store.WakeParked(ctx, 10)
	f.OK(err)
	want(f, "woken", n, 1)
	f.Done(spawn[1].ID)
}

func paused(f *Fixture) {
	d := f.Document("t")
	f.Exec("UPDATE jobs SET paused=1 WHERE id=?", d.Job)
	tasks := f.Plan(d, Parse(2)...) // the plan itself was not paused
	f.Refused(tasks[0].ID, sheaf.TaskPending)
	hints, err := f.Store.Runnable(ctx, "t", 10, 0)
	f.OK(err)
	want(f, "runnable", len(hints), 0)
	hints = f.Feedable(10, time.Minute)
	want(f, "feedable", len(hints), 0)
	loads, err := f.Store.RunnableTenants(ctx)
	f.OK(err)
	want(f, "tenants", len(loads), 0)
	f.Exec("UPDATE tasks SET paused=0 WHERE doc_id=?", d.ID)
	f.Claim(tasks[0].ID, "w")
	for _, q := range []string{"UPDATE tenants SET paused=1", "UPDATE datasets SET paused=1"} {
		d := f.Document("t")
		f.Exec(q)
		tasks := f.Plan(d, Parse(1)...)
		f.Refused(tasks[0].ID, sheaf.TaskPending)
		f.Exec(strings.Replace(q, "=1", "=0", 1))
	}
}

func foldFollows(f *Fixture) {
	d := f.Document("t")
	f.Fold()
	want(f, "untouched", f.Doc(d.ID).State, sheaf.DocQueued)
	plan := f.Claim(d.Plan, "w")
	f.Fold()
	doc := f.Doc(d.ID)
	want(f, "while planning", doc.State, sheaf.DocRunning)
	want(f, "progress before the plan is done", doc.Progress, 0)
	if doc.StartedAt.IsZero() {
		f.T.Fatal("a running document without a start")
	}
	f.OK(f.Store.Complete(ctx, plan.Held(), taskstore.Completion{Spawn: Parse(2)}))
	f.Fold()
	p0 := f.Doc(d.ID).Progress
	near(f, "progress after the plan", p0, 0.99*1/25)
	t := f.Tasks(d.ID, 1)
	a := f.Claim(t[0].ID, "w")
	f.OK(f.Store.AppendEvents(ctx, a.Held(), []sheaf.Event{{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":3,"total":12}`)}}))
	f.OK(f.Store.AppendEvents(ctx, a.Held(), []sheaf.Event{{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":6,"total":12}`)}}))
	f.Fold()
	near(f, "progress within a task", f.Doc(d.ID).Progress, 0.99*7/25)
	f.OK(f.Store.Release(ctx, a.Held()))
	f.Fold()
	near(f, "progress after a step back", f.Doc(d.ID).Progress, 0.99*7/25)
	f.Done(t[0].ID)
	f.Fold()
	near(f, "progress after a task", f.Doc(d.ID).Progress, 0.99*13/25)
	f.Done(t[1].ID)
	f.Fold()
	doc = f.Doc(d.ID)
	want(f, "when all is done", doc.State, sheaf.DocFinalizing)
	near(f, "progress before the publication", doc.Progress, 0.99)
	want(f, "finalize epoch", doc.FinalizeEpoch, 1)
	f.Publish(d.ID, sheaf.DocSucceeded)
	doc = f.Doc(d.ID)
	want(f, "in the end", doc.State, sheaf.DocSucceeded)
	want(f, "progress in the end", doc.Progress, 1)
	want(f, "chunks", doc.Chunks, 6)
	want(f, "tokens", doc.Tokens, 60)
	want(f, "ledger", doc.Ledger.OK, 24)
	wantList(f, "documents' events", f.Strings("SELECT detail FROM events WHERE doc_id=? AND kind='document' AND n<>2 ORDER BY seq", d.ID),
		`{"state":"queued","progress":0}`, `{"state":"running","progress":0}`, `{"state":"succeeded","progress":1}`)
	want(f, "number of them", f.Int("SELECT COUNT(*) FROM events WHERE doc_id=? AND kind='document'", d.ID), 4)
	n, _, err := f.Store.Fold(ctx, 10, 0)
	f.OK(err)
	want(f, "changes at rest", n, 0)
}

// Progress may be postponed, the end of a document may not.
func foldLeaves(f *Fixture) {
	d, other := f.Document("t"), f.Document("t")
	tasks := f.Plan(d, Parse(3)...)
	f.Fold()
	fold := func(when string, changed int, later bool) {
		f.T.Helper()
		n, left, err := f.Store.Fold(ctx, 10, time.Hour)
		f.OK(err)
		want(f, "changed "+when, n, changed)
		want(f, "left for later "+when, left, later)
	}
	before := f.Doc(d.ID).Progress
	f.Done(tasks[0].ID)
	fold("with tasks left", 0, true)
	near(f, "progress meanwhile", f.Doc(d.ID).Progress, before)
	f.Claim(other.Plan, "w")
	fold("of another document", 1, true)
	want(f, "the other document", f.Doc(other.ID).State, sheaf.DocRunning)
	f.Exec("UPDATE documents SET updated_at=updated_at-3600001 WHERE id=?", d.ID)
	fold("after a while", 1, false)
	after := f.Doc(d.ID).Progress
	if after <= before {
		f.T.Fatalf("progress %v after a while, it was %v", after, before)
	}
	f.Done(tasks[1].ID)
	fold("with one task left", 0, true)
	f.Exec("UPDATE documents SET updated_at=updated_at+3600001 WHERE id=?", d.ID)
	fold("by a clock that went back", 1, false)
	f.Done(tasks[2].ID)
	fold("after the last task", 1, false)
	want(f, "when all is done", f.Doc(d.ID).State, sheaf.DocFinalizing)
}

func near(f *Fixture, what string, got, want float64) {
	f.T.Helper()
	if d := got - want; d > 1e-9 || d < -1e-9 {
		f.T.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func finalizeOnce(f *Fixture) {
	for range 8 {
		d := f.Document("t")
		tasks := f.Plan(d, Parse(4)...)
		var wg sync.WaitGroup
		for _, t := range tasks {
			wg.Go(func() {
				got, err := f.Store.Claim(ctx, t.ID, "w", time.Minute)
				if err == nil {
					err = f.Store.Complete(ctx, got.Held(), taskstore.Completion{Result: Result(got)})
				}
				if err != nil {
					f.T.Error(err)
				}
			})
		}
		for range 3 {
			wg.Go(func() {
				for range 5 {
					if _, _, err := f.Store.Fold(ctx, 100, 0); err != nil {
						f.T.Error(err)
					}
				}
			})
		}
		wg.Wait()
		f.Fold()
		want(f, "finalize tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize'", d.ID), 1)
		want(f, "finalize epoch", f.Doc(d.ID).FinalizeEpoch, 1)
		f.Publish(d.ID, sheaf.DocSucceeded)
	}
}

func publishGuard(f *Fixture) {
	publish := taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocSucceeded, Chunks: 1}}
	ready := func() (Doc, *sheaf.Task) {
		d := f.Document("t")
		for _, t := range f.Plan(d, Parse(1)...) {
			f.Done(t.ID)
		}
		f.Fold()
		return d, f.Claim(f.Finalizer(d.ID), "w")
	}
	for name, break_ := range map[string]func(d Doc){
		"a newer decision": func(d Doc) { f.Exec("UPDATE documents SET fin_epoch=fin_epoch+1 WHERE id=?", d.ID) },
		"a cancel":         f.Cancel,
		"a deletion":       func(d Doc) { f.Exec("UPDATE documents SET deleted_at=1 WHERE id=?", d.ID) },
		"a new generation": func(d Doc) { f.Reparse(d) },
	} {
		d, t := ready()
		break_(d)
		f.Stale(f.Store.Complete(ctx, t.Held(), publish))
		want(f, "live generation after "+name, f.Int("SELECT live_gen FROM documents WHERE id=?", d.ID), 0)
		want(f, "done events after "+name, f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND kind='done'", t.ID), 0)
	}
	d, t := ready()
	if err := f.Store.Complete(ctx, t.Held(), taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocRunning}}); !errors.Is(err, sheaf.ErrInvalid) {
		f.T.Fatalf("publication as running: %v, want ErrInvalid", err)
	}
	f.OK(f.Store.Complete(ctx, t.Held(), publish))
	f.Stale(f.Store.Complete(ctx, t.Held(), publish))
	want(f, "live generation", f.Doc(d.ID).LiveGeneration, 1)
	if f.Int("SELECT published_at FROM generations WHERE doc_id=?", d.ID) == 0 || f.Doc(d.ID).FinishedAt.IsZero() {
		f.T.Fatal("a publication without its time")
	}
}

// rangeOutlines lists the reports of finished ranges, and none of ranges that are
// running, report nothing or belong to another generation.
func rangeOutlines(f *Fixture) {
	d := f.Document("t")
	var want []taskstore.RangeOutline
	tasks := f.Plan(d, Parse(4)...)
	for i, planned := range tasks[:3] {
		t := f.Claim(planned.ID, "w")
		r := Result(t)
		if i != 1 {
			r.Outline = &sheaf.RangeOutline{Under: []sheaf.Heading{{Level: 1, Title: "before"}}, Headings: []sheaf.Heading{{Level: 2, Title: fmt.Sprint("heading ", i), Page: t.Range.From}}}
			want = append(want, taskstore.RangeOutline{Range: t.Range, Headings: r.Outline.Headings})
		}
		f.OK(f.Store.Complete(ctx, t.Held(), taskstore.Completion{Result: r}))
	}
	f.Claim(tasks[3].ID, "w")
	for generation, want := range [][]taskstore.RangeOutline{nil, want, nil} {
		got, err := f.Store.RangeOutlines(ctx, d.ID, generation)
		if f.OK(err); !reflect.DeepEqual(got, want) {
			f.T.Errorf("generation %d reports %+v, want %+v", generation, got, want)
		}
	}
}

// stitchGuard replaces a range result of a complete generation: under the guard of a
// publication, atomically, and never visibly.
func stitchGuard(f *Fixture) {
	ready := func() (Doc, *sheaf.Task, []sheaf.TaskResult, taskstore.Completion) {
		d := f.Document("t")
		var made []sheaf.TaskResult
		tasks := f.Plan(d, Parse(2)...)
		for _, t := range tasks {
			made = append(made, f.Done(t.ID))
		}
		f.Fold()
		old := tasks[1]
		return d, f.Claim(f.Finalizer(d.ID), "w"), made, taskstore.Completion{Stitch: []taskstore.Stitch{{TaskID: old.ID, RangeID: made[1].RangeID, Task: sheaf.NewTask{
			ID: sheaf.NewID(), Kind: sheaf.KindIndex, Node: "stitch-1", Unit: old.Unit, Range: old.Range, Cost: old.Cost, ReuseKey: old.ReuseKey, Digest: old.Digest}}}}
	}
	for name, break_ := range map[string]func(d Doc, done *taskstore.Completion){
		"a newer decision": func(d Doc, _ *taskstore.Completion) {
			f.Exec("UPDATE documents SET fin_epoch=fin_epoch+1 WHERE id=?", d.ID)
		},
		"a cancel":         func(d Doc, _ *taskstore.Completion) { f.Cancel(d) },
		"a deletion":       func(d Doc, _ *taskstore.Completion) { f.Exec("UPDATE documents SET deleted_at=1 WHERE id=?", d.ID) },
		"a new generation": func(d Doc, _ *taskstore.Completion) { f.Reparse(d) },
		"another task": func(_ Doc, done *taskstore.Completion) {
			done.Stitch = append(done.Stitch, taskstore.Stitch{TaskID: sheaf.NewID(), RangeID: "r", Task: sheaf.NewTask{ID: sheaf.NewID(), Kind: sheaf.KindIndex}})
		},
	} {
		d, t, _, done := ready()
		break_(d, &done)
		f.Stale(f.Store.Complete(ctx, t.Held(), done))
		want(f, "results replaced after "+name, f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='index'", d.ID), 0)
	}

	d, t, made, done := ready()
	f.OK(f.Store.Complete(ctx, t.Held(), done))
	f.Stale(f.Store.Complete(ctx, t.Held(), done))
	f.Fold()
	want(f, "state", f.Doc(d.ID).State, sheaf.DocRunning)
	want(f, "finalize tasks at work", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='finalize' AND state<>'done'", d.ID), 0)
	stitched := f.Done(done.Stitch[0].Task.ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	live := f.Strings("SELECT range_id FROM tasks WHERE doc_id=? AND state='done' AND range_id<>''", d.ID)
	slices.Sort(live)
	want := []string{made[0].RangeID, stitched.RangeID}
	slices.Sort(want)
	wantList(f, "ranges of the document", live, want...)
	wantList(f, "garbage", f.Strings("SELECT range_id FROM garbage WHERE doc_id=?", d.ID), made[1].RangeID)
	finished, err := f.Store.FinishedRanges(ctx, d.ID, t.Generation)
	f.OK(err)
	tasks := Parse(2)
	wantList(f, "finished ranges", finished,
		taskstore.FinishedRange{Unit: tasks[0].Unit, Range: tasks[0].Range, ArtifactKey: made[0].ArtifactKey},
		taskstore.FinishedRange{Unit: tasks[1].Unit, Range: tasks[1].Range, ArtifactKey: stitched.ArtifactKey})
	now, err := f.Store.LiveRanges(ctx, "t", d.ID)
	f.OK(err)
	live = live[:0]
	for _, r := range now {
		live = append(live, r.Result.RangeID)
	}
	slices.Sort(live)
	wantList(f, "live ranges", live, want...)
	key := Parse(2)[1].ReuseKey
	found, err := f.Store.ReusableRanges(ctx, "t", d.ID, []string{key})
	f.OK(err)
	if got := found[key]; got.DocumentID == d.ID && got.Result.RangeID != stitched.RangeID {
		f.T.Errorf("range %s would be used again, want %s", got.Result.RangeID, stitched.RangeID)
	}
}

// calledOff distinguishes a task that is no longer needed from one that another
// worker holds.
func calledOff(f *Fixture) {
	status := taskstore.WorkerStatus{ID: "w"}
	held := func() (Doc, []sheaf.Claim) {
		d := f.Document("t")
		tasks := f.Plan(d, Parse(2)...)
		return d, []sheaf.Claim{f.Claim(tasks[0].ID, "w").Held(), f.Claim(tasks[1].ID, "w").Held()}
	}
	for name, off := range map[string]func(d Doc){
		"parsed anew": func(d Doc) { f.Reparse(d) },
		"deleted": func(d Doc) {
			_, err := f.Store.DeleteDocuments(ctx, "t", []string{d.ID})
			f.OK(err)
		},
	} {
		d, claims := held()
		off(d)
		reply, err := f.Store.Heartbeat(ctx, status, time.Minute, claims)
		f.OK(err)
		if len(reply.Ended) != 2 || len(reply.Lost)+len(reply.Canceled) != 0 {
			f.T.Errorf("of a document that was %s a heartbeat answers %+v", name, reply)
		}
	}
	_, claims := held()
	f.OK(f.Store.Release(ctx, claims[0]))
	reply, err := f.Store.Heartbeat(ctx, status, time.Minute, append(claims, sheaf.Claim{TaskID: "gone", Epoch: 1}))
	f.OK(err)
	if len(reply.Lost) != 1 || reply.Lost[0] != claims[0] || len(reply.Ended) != 1 || reply.Ended[0].TaskID != "gone" {
		f.T.Errorf("a heartbeat answers %+v", reply)
	}
}

// lastGuard runs tasks over the whole document between the end of its ranges and its
// publication. Their results appear and disappear with their generation.
func lastGuard(f *Fixture) {
	complete := func(d Doc) (*sheaf.Task, taskstore.Completion) {
		for _, t := range f.Plan(d, Parse(2)...) {
			f.Done(t.ID)
		}
		f.Fold()
		return f.Claim(f.Finalizer(d.ID), "w"), taskstore.Completion{Last: []sheaf.NewTask{{ID: sheaf.NewID(), Kind: sheaf.KindDataflow, Node: "tree", Cost: 1}}}
	}
	put := func(c sheaf.Claim, d Doc, name string) error {
		f.OK(f.Store.ReserveRanges(ctx, "t", d.ID, []string{sheaf.RunRangePrefix + name}))
		return f.Store.PutNodeResult(ctx, c, taskstore.RunResult{RangeID: sheaf.RunRangePrefix + name, Kind: sheaf.KindRaptor, DocumentID: d.ID, Name: name, Chunks: 3, Tokens: 30})
	}
	seen := func(d Doc) (names []string) {
		all, err := f.Store.RunResults(ctx, "t", d.Dataset, sheaf.KindRaptor, d.ID, "", 10)
		f.OK(err)
		for _, r := range all {
			names = append(names, r.Name)
		}
		return names
	}
	gone := func(d Doc) []string {
		return f.Strings("SELECT range_id FROM garbage WHERE doc_id=? AND range_id LIKE 'run%' ORDER BY range_id", d.ID)
	}
	for name, break_ := range map[string]func(d Doc){
		"a newer decision": func(d Doc) { f.Exec("UPDATE documents SET fin_epoch=fin_epoch+1 WHERE id=?", d.ID) },
		"a cancel":         func(d Doc) { f.Cancel(d) },
		"a new generation": func(d Doc) { f.Reparse(d) },
	} {
		d := f.Document("t")
		t, done := complete(d)
		break_(d)
		f.Stale(f.Store.Complete(ctx, t.Held(), done))
		want(f, "nodes after "+name, f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND kind='dataflow'", d.ID), 0)
	}

	d := f.Document("t")
	t, done := complete(d)
	f.OK(f.Store.Complete(ctx, t.Held(), done))
	f.Fold()
	want(f, "state", f.Doc(d.ID).State, sheaf.DocRunning)
	lost := f.Claim(done.Last[0].ID, "w")
	f.OK(put(lost.Held(), d, "lost"))
	f.OK(f.Store.Release(ctx, lost.Held()))
	node := f.Claim(done.Last[0].ID, "w")
	f.Stale(put(lost.Held(), d, "late"))
	f.OK(put(node.Held(), d, "one"))
	wantList(f, "results of a generation that is not live", seen(d))
	f.OK(f.Store.Complete(ctx, node.Held(), taskstore.Completion{Result: sheaf.TaskResult{Output: &sheaf.NodeOutput{Chunks: 3}}}))
	f.Publish(d.ID, sheaf.DocSucceeded)
	wantList(f, "results", seen(d), "one")
	wantList(f, "garbage", gone(d), sheaf.RunRangePrefix+"late", sheaf.RunRangePrefix+"lost")

	// A canceled generation removes its own results, and leaves the live ones.
	d = f.Reparse(d)
	t, done = complete(d)
	f.OK(f.Store.Complete(ctx, t.Held(), done))
	node = f.Claim(done.Last[0].ID, "w")
	f.OK(put(node.Held(), d, "two"))
	f.Cancel(d)
	_ = f.Store.Release(ctx, node.Held()) // the cancel may have ended it
	f.Fold()
	want(f, "state after a cancel", f.Doc(d.ID).State, sheaf.DocCanceled)
	wantList(f, "results after a cancel", seen(d), "one")
	wantList(f, "garbage after a cancel", gone(d), sheaf.RunRangePrefix+"late", sheaf.RunRangePrefix+"lost", sheaf.RunRangePrefix+"two")

	// The next published generation replaces them, even without such a node.
	d = f.Reparse(d)
	for _, t := range f.Plan(d, Parse(2)...) {
		f.Done(t.ID)
	}
	f.Fold()
	f.Publish(d.ID, sheaf.DocSucceeded)
	wantList(f, "results after a new generation", seen(d))
	want(f, "rows of results", f.Int("SELECT COUNT(*) FROM run_results WHERE doc_id=?", d.ID)+f.Int("SELECT COUNT(*) FROM run_result_sources WHERE doc_id=?", d.ID), 0)
}

func failedPublish(f *Fixture) {
	d := f.Document("t")
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocPartiallySucceeded)
	d = f.Reparse(d)
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Fold()
	t := f.Claim(f.Finalizer(d.ID), "w")
	f.OK(f.Store.Complete(ctx, t.Held(), taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocFailed, Failure: sheaf.Fail("bad_input", "empty", "Nothing could be read."), Chunks: 0}}))
	doc := f.Doc(d.ID)
	want(f, "state", doc.State, sheaf.DocFailed)
	want(f, "live generation", doc.LiveGeneration, 1)
	want(f, "chunks of the live generation", doc.Chunks, 6)
	want(f, "failure", doc.Failure.Code, "empty")
	want(f, "published", f.Int("SELECT COUNT(*) FROM generations WHERE doc_id=? AND published_at<>0", d.ID), 1)
	want(f, "garbage", f.Int("SELECT COUNT(*) FROM garbage"), 0)
}

func deadPlan(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(d.Plan, "w")
	_, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail(sheaf.CategoryEncrypted, "password_required", "Give the password.")})
	f.OK(err)
	f.Fold()
	doc := f.Doc(d.ID)
	want(f, "state", doc.State, sheaf.DocFailed)
	want(f, "code", doc.Failure.Code, "password_required")
	want(f, "generation", f.Strings("SELECT state FROM generations WHERE doc_id=?", d.ID)[0], "failed")
	want(f, "finalize tasks", f.Int("SELECT COUNT(*) FROM tasks WHERE kind='finalize'"), 0)
}

func deadFinalize(f *Fixture) {
	d := f.Document("t")
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Fold()
	t := f.Claim(f.Finalizer(d.ID), "w")
	_, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail("internal", "count_mismatch", "x")})
	f.OK(err)
	f.Fold()
	want(f, "state", f.Doc(d.ID).State, sheaf.DocFailed)
	want(f, "code", f.Doc(d.ID).Failure.Code, "count_mismatch")

	// Another attempt: the decision is made again, and the old one is void.
	f.Retry(d, t.ID)
	f.Exec("UPDATE tasks SET state='pending' WHERE id=?", t.ID)
	f.Stale(f.Store.Complete(ctx, f.Claim(t.ID, "w").Held(), taskstore.Completion{Publish: &taskstore.Publication{State: sheaf.DocSucceeded}}))
	f.Exec("UPDATE tasks SET state='superseded' WHERE id=?", t.ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	want(f, "finalize epoch", f.Doc(d.ID).FinalizeEpoch, 2)
	want(f, "state", f.Doc(d.ID).State, sheaf.DocSucceeded)
}

func canceledDocument(f *Fixture) {
	d := f.Document("t")
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	d = f.Reparse(d)
	tasks := f.Plan(d, Parse(3)...)
	done := f.Done(tasks[0].ID)
	running := f.Claim(tasks[1].ID, "w")
	f.Cancel(d)
	f.Fold()
	want(f, "while a task runs", f.Doc(d.ID).State, sheaf.DocCanceling)
	f.OK(f.Store.Release(ctx, running.Held()))
	f.Fold()
	doc := f.Doc(d.ID)
	want(f, "in the end", doc.State, sheaf.DocCanceled)
	want(f, "live generation", doc.LiveGeneration, 1)
	want(f, "chunks", doc.Chunks, 6)
	want(f, "generation", f.Strings("SELECT state FROM generations WHERE doc_id=? AND gen=2", d.ID)[0], "canceled")
	want(f, "finalize tasks of it", f.Int("SELECT COUNT(*) FROM tasks WHERE gen=2 AND kind='finalize'"), 0)
	// What it had finished is removed, and what the live generation lists stays.
	f.Store.AdvanceClock(3 * time.Minute)
	items, err := f.Store.Garbage(ctx, 10)
	f.OK(err)
	var ranges []string
	for _, g := range items {
		ranges = append(ranges, g.RangeID)
	}
	slices.Sort(ranges)
	expect := []string{done.RangeID, sheaf.RangeID(running.ID, running.Epoch)}
	slices.Sort(expect)
	wantList(f, "ranges to collect", ranges, expect...)
	want(f, "ranges that a retry could list", f.Int("SELECT COUNT(*) FROM tasks WHERE gen=2 AND range_id<>''"), 0)
}

func reopened(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(2)...)
	f.Done(tasks[0].ID)
	t := f.Claim(tasks[1].ID, "w")
	_, err := f.Store.FailTask(ctx, t.Held(), taskstore.FailReport{Failure: *sheaf.Fail("internal", "x", "x")})
	f.OK(err)
	f.Publish(d.ID, sheaf.DocPartiallySucceeded)
	f.Fold()
	f.Retry(d, t.ID)
	f.Fold()
	doc := f.Doc(d.ID)
	want(f, "while the task is tried again", doc.State, sheaf.DocRunning)
	want(f, "live generation", doc.LiveGeneration, 1)
	f.Done(t.ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	want(f, "in the end", f.Doc(d.ID).State, sheaf.DocSucceeded)
}

func dropOldRanges(f *Fixture) {
	d := f.Document("t")
	var first []sheaf.TaskResult
	for _, t := range f.Plan(d, Parse(3)...) {
		first = append(first, f.Done(t.ID))
	}
	f.Publish(d.ID, sheaf.DocSucceeded)
	want(f, "garbage of a first generation", f.Int("SELECT COUNT(*) FROM garbage"), 0)

	d = f.Reparse(d)
	second := Parse(3)
	second[0].Done = &first[0] // listed again
	f.Plan(d, second...)
	f.Done(second[1].ID)
	f.Done(second[2].ID)
	want(f, "garbage before the publication", f.Int("SELECT COUNT(*) FROM garbage"), 0)
	f.Publish(d.ID, sheaf.DocSucceeded)
	items, err := f.Store.Garbage(ctx, 10)
	f.OK(err)
	want(f, "garbage within the grace", len(items), 0)
	f.Store.AdvanceClock(3 * time.Minute)
	items, err = f.Store.Garbage(ctx, 10)
	f.OK(err)
	var ranges []string
	var ids []int64
	for _, g := range items {
		ranges, ids = append(ranges, g.RangeID), append(ids, g.ID)
		if g.TenantID != "t" || g.DocumentID != d.ID || g.ArtifactKey != sheaf.ArtifactKey("t", d.ID, g.RangeID) {
			f.T.Fatalf("garbage %+v", g)
		}
	}
	slices.Sort(ranges)
	wanted := []string{first[1].RangeID, first[2].RangeID}
	slices.Sort(wanted)
	wantList(f, "garbage", ranges, wanted...)
	found, err := f.Store.ReusableRanges(ctx, "t", "", []string{"key-0", "key-1"})
	f.OK(err)
	want(f, "range that both list", found["key-0"].Result.RangeID, first[0].RangeID)
	want(f, "range whose first version is garbage", found["key-1"].Result.RangeID, f.Task(second[1].ID).Result.RangeID)

	// A listed range is never returned, whatever put it there.
	f.Exec("INSERT INTO garbage (tenant_id, doc_id, range_id, not_before) VALUES ('t', ?, ?, 1)", d.ID, first[0].RangeID)
	items, err = f.Store.Garbage(ctx, 10)
	f.OK(err)
	want(f, "garbage with a listed range in it", len(items), 2)
	f.OK(f.Store.GarbageDone(ctx, ids))
	items, err = f.Store.Garbage(ctx, 10)
	f.OK(err)
	want(f, "garbage after it was removed", len(items), 0)
}

func keepOldVersions(f *Fixture) {
	f.Config.KeepVersions = time.Hour
	f.Store = f.Second()
	d := f.Document("t")
	first := f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	d = f.Reparse(d)
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)

	tasks, err := f.Store.Tasks(ctx, "t", d.ID, 1)
	f.OK(err)
	old := tasks[slices.IndexFunc(tasks, func(t sheaf.Task) bool { return t.Kind == sheaf.KindParse })].Result
	want(f, "range of the replaced version", old.RangeID, "")
	want(f, "its artifact", old.FormerArtifact, first.ArtifactKey)

	due := func() taskstore.Garbage {
		items, err := f.Store.Garbage(ctx, 10)
		f.OK(err)
		want(f, "garbage", len(items), 1)
		f.OK(f.Store.GarbageDone(ctx, []int64{items[0].ID}))
		return items[0]
	}
	f.Store.AdvanceClock(3 * time.Minute)
	g := due()
	want(f, "range after the grace", g.RangeID, first.RangeID)
	want(f, "artifact after the grace", g.ArtifactKey, "")
	items, err := f.Store.Garbage(ctx, 10)
	f.OK(err)
	want(f, "garbage while the version is kept", len(items), 0)
	f.Store.AdvanceClock(time.Hour)
	want(f, "artifact after that", due().ArtifactKey, first.ArtifactKey)
}

func attemptGarbage(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(5)...)
	var lost []string
	claim := func(i int) *sheaf.Task {
		t := f.Claim(tasks[i].ID, "w")
		lost = append(lost, sheaf.RangeID(t.ID, t.Epoch))
		return t
	}
	_, err := f.Store.FailTask(ctx, claim(0).Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable("timeout", "x", "x")})
	f.OK(err)
	f.OK(f.Store.Snooze(ctx, claim(1).Held(), time.Second, sheaf.Failure{Message: "x"}))
	f.OK(f.Store.Release(ctx, claim(2).Held()))
	claim(3)
	f.Store.AdvanceClock(2 * time.Minute)
	_, err = f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
	f.OK(err)
	claim(4)
	f.Cancel(d)
	f.Store.AdvanceClock(time.Minute)
	_, err = f.Store.HardCancel(ctx, time.Second, 10)
	f.OK(err)
	slices.Sort(lost)
	wantList(f, "garbage", f.Strings("SELECT range_id FROM garbage ORDER BY range_id"), lost...)
	want(f, "artifact key", f.Strings("SELECT artifact_key FROM garbage WHERE range_id=?", lost[0])[0], sheaf.ArtifactKey("t", d.ID, lost[0]))
}

func reusable(f *Fixture) {
	d1, d2 := f.Document("t"), f.Document("t")
	other := f.Document("u")
	r1 := f.Done(f.Plan(d1, Parse(2)...)[0].ID)
	r2 := f.Done(f.Plan(d2, Parse(2)...)[0].ID)
	f.Done(f.Plan(other, Parse(2)...)[1].ID)
	keys := []string{"key-0", "key-1", "", "key-0"}
	for prefer, r := range map[string]string{d1.ID: r1.RangeID, d2.ID: r2.RangeID} {
		found, err := f.Store.ReusableRanges(ctx, "t", prefer, keys)
		f.OK(err)
		want(f, "found", len(found), 1)
		got := found["key-0"]
		want(f, "range", got.Result.RangeID, r)
		want(f, "document", got.DocumentID, prefer)
		want(f, "units", got.Range, sheaf.Range{From: 1, To: 12})
		want(f, "ledger", len(got.Result.Ledger), 1)
	}
	// The output of a node after a failed one hides no complete output of that name.
	d3 := f.Document("t")
	nodes := f.Plan(d3, Parse(2)...)
	whole := f.Done(nodes[0].ID)
	f.Done(nodes[1].ID)
	f.Exec("UPDATE tasks SET reuse_key='key-0', result=? WHERE id=?", `{"output":{"name":"key-0","incomplete":true}}`, nodes[1].ID)
	if nodes[1].ID < nodes[0].ID {
		f.T.Fatal("the second task is older than the first")
	}
	found, err := f.Store.ReusableRanges(ctx, "t", d3.ID, keys)
	f.OK(err)
	want(f, "the whole output", found["key-0"].Result.RangeID, whole.RangeID)
	// The same once the version is live, whose ranges are listed, and for a key that
	// it does not have.
	live := func(tenant, document string) (ranges []string) {
		list, err := f.Store.LiveRanges(ctx, tenant, document)
		f.OK(err)
		for _, r := range list {
			want(f, "document of a live range", r.DocumentID, document)
			want(f, "unit of a live range", r.Unit, nodes[0].Unit)
			ranges = append(ranges, fmt.Sprint(r.Kind, " ", r.Range, " ", r.ReuseKey, " ", r.Result.RangeID))
		}
		return ranges
	}
	wantList(f, "ranges before a version is live", live("t", d3.ID))
	f.Exec("UPDATE documents SET live_gen=1 WHERE id=?", d3.ID)
	wantList(f, "ranges of the live version", live("t", d3.ID),
		fmt.Sprint("parse ", nodes[0].Range, " key-0 ", whole.RangeID), fmt.Sprint("parse ", nodes[1].Range, " key-0 ", f.Task(nodes[1].ID).Result.RangeID))
	wantList(f, "ranges for another tenant", live("u", d3.ID))
	f.Exec("UPDATE tasks SET reuse_key='key-2' WHERE range_id=?", r1.RangeID)
	found, err = f.Store.ReusableRanges(ctx, "t", d3.ID, append(keys, "key-2", "key-9"))
	f.OK(err)
	want(f, "found of a live version", len(found), 2)
	want(f, "the whole output of a live version", found["key-0"].Result.RangeID, whole.RangeID)
	want(f, "what another document has", found["key-2"].DocumentID, d1.ID)
	f.Exec("UPDATE tasks SET reuse_key='key-0' WHERE range_id=?", r1.RangeID)
	f.Exec("UPDATE documents SET deleted_at=1 WHERE id IN (?,?)", d2.ID, d3.ID)
	wantList(f, "ranges of a deleted document", live("t", d3.ID))
	found, err = f.Store.ReusableRanges(ctx, "t", d2.ID, keys)
	f.OK(err)
	want(f, "range of a document that is left", found["key-0"].Result.RangeID, r1.RangeID)
	found, err = f.Store.ReusableRanges(ctx, "t", "", nil)
	f.OK(err)
	want(f, "found for no keys", len(found), 0)
}

func appendEvents(f *Fixture) {
	d := f.Document("t")
	t := f.Claim(f.Plan(d, Parse(1)...)[0].ID, "w")
	long := strings.Repeat("ü", 900)
	for range 3 {
		f.OK(f.Store.AppendEvents(ctx, t.Held(), []sheaf.Event{
			{Kind: sheaf.EventMessage, Level: "warn", Text: long},
			{Kind: sheaf.EventProgress, Detail: json.RawMessage(`{"stage":"parse","done":1,"total":2}`)},
			{Kind: sheaf.EventMessage, Text: "b"},
		}))
	}
	want(f, "messages", f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND kind='message'", t.ID), 6)
	want(f, "distinct numbers", f.Int("SELECT COUNT(DISTINCT n) FROM events WHERE task_id=? AND kind='message'", t.ID), 6)
	want(f, "progress events", f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND kind='progress'", t.ID), 3)
	want(f, "text cut at whole characters", f.Strings("SELECT text FROM events WHERE task_id=? AND level='warn'", t.ID)[0], strings.Repeat("ü", 500))
	for _, kind := range []string{sheaf.EventDone, sheaf.EventClaimed, sheaf.EventDocument, ""} {
		if err := f.Store.AppendEvents(ctx, t.Held(), []sheaf.Event{{Kind: kind}}); !errors.Is(err, sheaf.ErrInvalid) {
			f.T.Fatalf("appending %q: %v, want ErrInvalid", kind, err)
		}
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 5 {
				if err := f.Store.AppendEvents(ctx, t.Held(), []sheaf.Event{{Kind: sheaf.EventMessage, Text: "c"}}); err != nil {
					f.T.Error(err)
				}
			}
		})
	}
	wg.Wait()
	want(f, "messages of many writers", f.Int("SELECT COUNT(*) FROM events WHERE task_id=? AND text='c'", t.ID), 30)
}

func feed(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(30)...)
	for i, t := range tasks {
		f.Exec("UPDATE tasks SET lane=?, place=? WHERE id=?", 1+i%3, 1000+i, t.ID)
	}
	other := f.Document("u")
	f.Exec("UPDATE tenants SET weight=5, cap=3 WHERE id='u'")
	f.Claim(other.Plan, "w")
	f.Document("u")

	hints, err := f.Store.Runnable(ctx, "t", 5, 0)
	f.OK(err)
	want(f, "runnable", len(hints), 15)
	for i, h := range hints {
		n := 3*(i%5) + i/5
		if h.TaskID != tasks[n].ID || h.TenantID != "t" || h.Cost != 12 || h.Kind != sheaf.KindParse || h.Lane != sheaf.Lane(1+i/5) ||
			h.Phase != sheaf.PhaseRanges || h.Place.UnixMilli() != int64(1000+n) {
			f.T.Fatalf("hint %d: %+v", i, h)
		}
	}
	loads, err := f.Store.RunnableTenants(ctx)
	f.OK(err)
	if len(loads) != 2 || loads[0] != (taskstore.TenantLoad{TenantID: "t", Weight: 1, Cap: 8}) || loads[1] != (taskstore.TenantLoad{TenantID: "u", Weight: 5, Cap: 3, Running: 1}) {
		f.T.Fatalf("loads %+v", loads)
	}

	fed := func(after time.Duration) []sheaf.Hint {
		hints := f.Feedable(4, after)
		return slices.DeleteFunc(hints, func(h sheaf.Hint) bool { return h.TenantID != "t" })
	}
	first := fed(time.Minute)
	want(f, "feedable", len(first), 12)
	f.Enqueued(first[:6]...)
	want(f, "feedable with six enqueued", len(fed(time.Minute)), 6)
	f.Claim(first[0].TaskID, "w")
	want(f, "feedable after a claim freed a place", len(fed(time.Minute)), 7)
	f.Store.AdvanceClock(2 * time.Minute)
	want(f, "feedable when the queue has long said nothing", len(fed(time.Minute)), 12)
	n, err := f.Store.ForgetEnqueued(ctx, nil, "none")
	f.OK(err)
	want(f, "forgotten of no lane", n, 0)
	inLane := map[sheaf.Lane]int{}
	for _, h := range first[1:6] {
		inLane[h.Lane]++
	}
	n, err = f.Store.ForgetEnqueued(ctx, []sheaf.Lane{first[1].Lane}, "one")
	f.OK(err)
	if want(f, "forgotten of one lane", n, inLane[first[1].Lane]); n == 0 || n == 5 {
		f.T.Fatalf("of the lanes %v one was to be forgotten", inLane)
	}
	n, err = f.Store.ForgetEnqueued(ctx, sheaf.Lanes[:], "all")
	f.OK(err)
	want(f, "forgotten of all lanes", n, 5-inLane[first[1].Lane])
	want(f, "feedable after the queue lost its memory", len(fed(time.Hour)), 12)

	last := tasks[5] // of the third lane
	f.Claim(last.ID, "dead")
	f.Store.AdvanceClock(time.Hour)
	_, err = f.Store.Reap(ctx, taskstore.ReapPolicy{}, 10)
	f.OK(err)
	hints = f.Feedable(40, 0)
	for _, h := range hints {
		switch lost := h.TaskID == first[0].TaskID || h.TaskID == last.ID; {
		case lost && h.Lane != sheaf.LaneInteractive:
			f.T.Fatalf("the hint of a lost task waits in lane %d", h.Lane)
		case h.TaskID == last.ID:
			return
		}
	}
	f.T.Fatal("the lost task is not fed")
}

// feedSlices: with many tenants' backlogs, the first are fed before the others are
// read; all of them are fed, each task once.
func feedSlices(f *Fixture) {
	const tenants, tasks, window = 30, 4, 2
	for i := range tenants {
		id := fmt.Sprintf("t%02d", i)
		d := f.Document(id)
		if i%5 != 0 { // one in five has almost nothing
			f.Plan(d, Parse(tasks)...)
		}
	}
	seen := map[string]int{}
	looks := 0
	for after := ""; ; {
		looks++
		slice, err := f.Store.Feedable(ctx, after, window, time.Minute)
		f.OK(err)
		listed := map[string]bool{}
		for _, t := range slice.Tenants {
			listed[t.TenantID] = true
		}
		if len(slice.Tenants) > 20 {
			f.T.Errorf("%d tenants with a backlog are in one slice", len(slice.Tenants))
		}
		for _, h := range slice.Hints {
			if !listed[h.TenantID] {
				f.T.Fatalf("a hint of %s, whose share the slice does not tell", h.TenantID)
			}
			if seen[h.TaskID]++; seen[h.TaskID] > 1 {
				f.T.Fatalf("task %s of %s is in two slices", h.TaskID, h.TenantID)
			}
		}
		if after = slice.Next; after == "" {
			break
		}
	}
	want(f, "hints", len(seen), tenants/5+tenants*4/5*window)
	if looks < 2 {
		f.T.Errorf("%d slices", looks)
	}
}

func aging(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(2)...)
	f.Exec("UPDATE tasks SET lane=3, place=place-700000 WHERE id=?", tasks[0].ID)
	for after, first := range map[time.Duration]string{0: tasks[1].ID, 10 * time.Minute: tasks[0].ID, 20 * time.Minute: tasks[1].ID} {
		hints, err := f.Store.Runnable(ctx, "t", 2, after)
		f.OK(err)
		want(f, fmt.Sprintf("first with aging after %v", after), hints[0].TaskID, first)
	}
}

// spentHint: the hint is published, an executor takes it, claims and releases, and
// only then the feeder records that the queue holds it. The task needs another hint,
// so it must not count as enqueued.
func spentHint(f *Fixture) {
	d := f.Document("t")
	id := f.Plan(d, Parse(1)...)[0].ID
	hints := f.Feedable(10, time.Minute)
	i := slices.IndexFunc(hints, func(h sheaf.Hint) bool { return h.TaskID == id })
	hint := hints[i]
	f.OK(f.Store.Release(ctx, f.Claim(id, "w").Held()))
	f.Enqueued(hint)
	again := f.Feedable(10, time.Minute)
	if !slices.ContainsFunc(again, func(h sheaf.Hint) bool { return h.TaskID == id }) {
		f.T.Error("a task whose hint is spent is not fed again")
	}
	running, err := f.Store.Running(ctx)
	f.OK(err)
	want(f, "running after a release", len(running["t"]), 0)
}

// lostHint: a keeper publishes a hint and stalls. The queue loses its memory, another
// keeper notices, and only then the first records that the queue holds the hint.
func lostHint(f *Fixture) {
	d := f.Document("t")
	id := f.Plan(d, Parse(1)...)[0].ID
	_, err := f.Store.ForgetEnqueued(ctx, sheaf.Lanes[:], "before")
	f.OK(err)
	hints := slices.DeleteFunc(f.Feedable(10, time.Minute), func(h sheaf.Hint) bool { return h.TaskID != id })
	want(f, "feedable", len(hints), 1)
	_, err = f.Store.ForgetEnqueued(ctx, sheaf.Lanes[:], "after")
	f.OK(err)
	marked, err := f.Store.MarkEnqueued(ctx, hints, "before")
	f.OK(err)
	want(f, "marked for a queue without memory of it", marked, false)
	want(f, "enqueued", f.Int("SELECT COUNT(*) FROM tasks WHERE enqueued_at<>0"), 0)
	f.Enqueued(hints...)
	want(f, "enqueued again", f.Int("SELECT COUNT(*) FROM tasks WHERE enqueued_at<>0"), 1)
	_, err = f.Store.ForgetEnqueued(ctx, nil, "unchanged")
	f.OK(err)
	runs, err := f.Store.Meta(ctx, taskstore.QueueRunsKey)
	f.OK(err)
	want(f, "run ids", runs, "after")
}

func promote(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(25)...)
	f.Enqueued(sheaf.Hint{TaskID: tasks[0].ID})
	f.Exec("UPDATE tasks SET state='retry_wait' WHERE kind='parse'")
	for _, wanted := range []int{10, 10, 5, 0} {
		n, err := f.Store.PromoteDue(ctx, 10)
		f.OK(err)
		want(f, "promoted", len(n.Tasks), wanted)
	}
	want(f, "known to a queue", f.Int("SELECT COUNT(*) FROM tasks WHERE enqueued_at<>0"), 0)
	f.Exec("UPDATE tasks SET state='retry_wait' WHERE kind='parse'")
	var total atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				n, err := f.Store.PromoteDue(ctx, 5)
				if err != nil {
					f.T.Error(err)
				}
				total.Add(int32(len(n.Tasks)))
			}
		})
	}
	wg.Wait()
	want(f, "promoted by four at once", total.Load(), 25)
}

func leases(f *Fixture) {
	acquire := func(holder string, wanted bool) {
		f.T.Helper()
		got, err := f.Store.AcquireLease(ctx, "keeper", holder, 15*time.Second)
		f.OK(err)
		want(f, "lease for "+holder, got, wanted)
	}
	acquire("a", true)
	acquire("b", false)
	acquire("a", true)
	f.Store.AdvanceClock(10 * time.Second)
	acquire("a", true)
	f.Store.AdvanceClock(10 * time.Second)
	acquire("b", false)
	f.Store.AdvanceClock(6 * time.Second)
	acquire("b", true)
	acquire("a", false)
	f.OK(f.Store.ReleaseLease(ctx, "keeper", "a"))
	acquire("a", false)
	f.OK(f.Store.ReleaseLease(ctx, "keeper", "b"))
	acquire("a", true)

	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			got, err := f.Store.AcquireLease(ctx, "race", fmt.Sprint(i), time.Minute)
			if err != nil {
				f.T.Error(err)
			}
			if got {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	want(f, "winners of a free lease", won.Load(), 1)
}

func meta(f *Fixture) {
	v, err := f.Store.Meta(ctx, "k")
	f.OK(err)
	want(f, "absent", v, "")
	for _, value := range []string{"1", "2", "2"} {
		f.OK(f.Store.SetMeta(ctx, "k", value))
		v, err = f.Store.Meta(ctx, "k")
		f.OK(err)
		want(f, "value", v, value)
	}
}

// What was written while the clock was an hour ahead is due immediately when the
// clock is right again, and so is the end of an executor that died meanwhile.
func clockWentBack(f *Fixture) {
	watch := func() time.Duration {
		f.T.Helper()
		_, back, err := f.Store.WatchClock(ctx)
		f.OK(err)
		return back
	}
	want(f, "a clock seen for the first time", watch(), 0)
	early := f.Plan(f.Document("t"), Parse(2)...)
	alive := f.Claim(early[0].ID, "alive")
	beat := func(worker string, held ...sheaf.Claim) taskstore.HeartbeatReply {
		f.T.Helper()
		r, err := f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: worker}, time.Minute, held)
		f.OK(err)
		return r
	}
	beat("alive", alive.Held())

	f.Store.AdvanceClock(time.Hour)
	beat("alive", alive.Held())
	want(f, "back, when it jumped ahead", watch(), 0)
	d := f.Document("t")
	tasks := f.Plan(d, Parse(3)...)
	orphan := f.Claim(tasks[0].ID, "dead")
	beat("dead", orphan.Held())
	failed := f.Claim(tasks[1].ID, "alive")
	state, err := f.Store.FailTask(ctx, failed.Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable(sheaf.CategoryInternal, "x", "x"), Delay: 30 * time.Second})
	f.OK(err)
	want(f, "state of the failed", state, sheaf.TaskRetryWait)
	got, err := f.Store.AcquireLease(ctx, "leader", "dead", 15*time.Second)
	f.OK(err)
	want(f, "lease", got, true)

	f.Store.AdvanceClock(-time.Hour)
	f.Refused(tasks[2].ID, sheaf.TaskPending) // not due for an hour
	got, err = f.Store.AcquireLease(ctx, "leader", "alive", 15*time.Second)
	f.OK(err)
	want(f, "lease of one who died while the clock was ahead", got, true)
	if back := watch(); back < 59*time.Minute || back > time.Hour {
		f.T.Errorf("the clock went back by an hour, and %v were noticed", back)
	}
	want(f, "back, once it was noticed", watch(), 0)
	f.Claim(tasks[2].ID, "alive")
	want(f, "what the living one has lost", len(beat("alive", alive.Held()).Lost), 0)

	// Within a lease everything is as if the clock had never jumped.
	f.Store.AdvanceClock(time.Minute)
	beat("alive", alive.Held())
	n, err := f.Store.PromoteDue(ctx, 10)
	f.OK(err)
	want(f, "retries that are due", len(n.Tasks), 1)
	f.Claim(tasks[1].ID, "alive")
	_, err = f.Store.Reap(ctx, taskstore.ReapPolicy{WorkerTimeout: 6 * time.Second}, 10)
	f.OK(err)
	f.InState(tasks[0].ID, sheaf.TaskPending)
	f.Claim(tasks[0].ID, "alive")
	f.Stale(f.Store.Complete(ctx, orphan.Held(), taskstore.Completion{}))
	f.OK(f.Store.Complete(ctx, alive.Held(), taskstore.Completion{}))
}

// A clock that jumps two days ahead, and back, leaves uploads, idempotency keys and
// the collector as if it had not jumped.
func clockJumped(f *Fixture) {
	const grace, life, jump = 2 * time.Minute, 24 * time.Hour, 48 * time.Hour
	_, _, err := f.Store.WatchClock(ctx)
	f.OK(err)
	d := f.Document("t")
	up, err := f.Store.CreateUpload(ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: "t", DatasetID: d.Dataset, DocumentID: sheaf.NewID(), Size: 5}, life)
	f.OK(err)
	key := taskstore.KeyedRequest{TenantID: "t", Key: "k", Hash: "h", Holder: "first"}
	_, err = f.Store.Idempotent(ctx, key, time.Minute)
	f.OK(err)
	lost := f.Claim(f.Plan(d, Parse(1)...)[0].ID, "w") // its attempt may have begun to write
	state, err := f.Store.FailTask(ctx, lost.Held(), taskstore.FailReport{Failure: *sheaf.FailRetryable(sheaf.CategoryInternal, "x", "x"), Delay: time.Hour})
	f.OK(err)
	want(f, "state of the failed", state, sheaf.TaskRetryWait)
	pending := f.Int("SELECT COUNT(*) FROM garbage")
	if pending == 0 {
		f.T.Fatal("the attempt left no garbage")
	}
	still := func(when string) {
		f.T.Helper()
		n, err := f.Store.ExpireUploads(ctx, 10)
		f.OK(err)
		want(f, "uploads that expired "+when, n, 0)
		due, err := f.Store.Garbage(ctx, 10)
		f.OK(err)
		want(f, "garbage that is due "+when, len(due), 0)
		second := key
		second.Holder = "second"
		s, err := f.Store.Idempotent(ctx, second, time.Minute)
		f.OK(err)
		want(f, "whether another try of the request has the key "+when, s.Held, false)
	}
	still("at first")

	f.Store.AdvanceClock(jump)
	f.OK(f.Store.ClockJumped(ctx, jump))
	_, _, err = f.Store.WatchClock(ctx)
	f.OK(err)
	still("after the jump")
	f.OK(f.Store.RenewIdempotent(ctx, key, time.Minute))
	late, err := f.Store.CreateUpload(ctx, taskstore.PartialUpload{ID: sheaf.NewID(), TenantID: "t", DatasetID: d.Dataset, DocumentID: sheaf.NewID(), Size: 5}, life)
	f.OK(err)
	abandoned := taskstore.KeyedRequest{TenantID: "t", Key: "l", Hash: "h", Holder: "dead"}
	_, err = f.Store.Idempotent(ctx, abandoned, time.Minute)
	f.OK(err)

	f.Store.AdvanceClock(-jump)
	_, back, err := f.Store.WatchClock(ctx)
	f.OK(err)
	if back < jump-time.Minute {
		f.T.Fatalf("the clock went back by %v, and %v were noticed", jump, back)
	}
	still("when the clock was right again")
	for name, id := range map[string]string{"before": up.ID, "during": late.ID} {
		u, err := f.Store.Upload(ctx, "t", id)
		f.OK(err)
		if left := u.ExpiresAt.Sub(u.CreatedAt.Add(life)); name == "before" && (left < -time.Minute || left > time.Minute) {
			f.T.Errorf("the upload made before the jump expires %v too late", left)
		} else if left > time.Minute {
			f.T.Errorf("the upload made %s the jump expires %v too late", name, left)
		}
	}
	f.Store.AdvanceClock(grace + time.Minute)
	due, err := f.Store.Garbage(ctx, 10)
	f.OK(err)
	want(f, "garbage that is due after its grace", len(due), pending)
	abandoned.Holder = "alive"
	s, err := f.Store.Idempotent(ctx, abandoned, time.Minute)
	f.OK(err)
	want(f, "whether the next try has the key of one that died while the clock was ahead", s.Held, true)
	f.Store.AdvanceClock(life)
	n, err := f.Store.ExpireUploads(ctx, 10)
	f.OK(err)
	want(f, "uploads that expired a day later", n, 2)
}

func releaseRunning(f *Fixture) {
	d := f.Document("t")
	tasks := f.Plan(d, Parse(3)...)
	a := f.Claim(tasks[0].ID, "w")
	f.Claim(tasks[1].ID, "w")
	f.Exec("UPDATE tasks SET cancel_requested_at=1 WHERE id=?", tasks[1].ID)
	n, err := f.Store.ReleaseRunning(ctx)
	f.OK(err)
	want(f, "released", n, 2)
	f.InState(tasks[0].ID, sheaf.TaskPending)
	f.InState(tasks[1].ID, sheaf.TaskCanceled)
	f.Stale(f.Store.Complete(ctx, a.Held(), taskstore.Completion{}))
	f.Done(tasks[0].ID)
}

func cleanup(f *Fixture) {
	d := f.Document("t")
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	canceled := f.Reparse(d)
	unlisted := f.Done(f.Plan(canceled, Parse(1)...)[0].ID)
	d = f.Reparse(d)
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	running := f.Claim(f.Document("t").Plan, "w")
	_, err := f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: "w"}, time.Minute, []sheaf.Claim{running.Held()})
	f.OK(err)
	_, err = f.Store.Heartbeat(ctx, taskstore.WorkerStatus{ID: "gone"}, time.Minute, nil)
	f.OK(err)
	f.Exec("INSERT INTO idempotency (tenant_id, k, request_hash, created_at) VALUES ('t', 'k', 'h', 1)")
	f.Store.AdvanceClock(48 * time.Hour)
	old := f.Int("SELECT COUNT(*) FROM events")
	f.Document("t") // young
	tasks, events := f.Int("SELECT COUNT(*) FROM tasks"), f.Int("SELECT COUNT(*) FROM events")

	dry, err := f.Store.Cleanup(ctx, 24*time.Hour, 1000, true)
	f.OK(err)
	want(f, "tasks after the dry run", f.Int("SELECT COUNT(*) FROM tasks"), tasks)
	want(f, "events after the dry run", f.Int("SELECT COUNT(*) FROM events"), events)
	report, err := f.Store.Cleanup(ctx, 24*time.Hour, 1000, false)
	f.OK(err)
	want(f, "report and dry run", report, dry)
	want(f, "report", report, taskstore.CleanupReport{Events: old, Tasks: 2, Workers: 1, Idempotency: 1})
	want(f, "tasks", f.Int("SELECT COUNT(*) FROM tasks"), tasks-2) // the canceled generation's plan and parse
	want(f, "tasks of the live generation", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND gen=1", d.ID), 3)
	want(f, "the range that nobody lists any more", f.Int("SELECT COUNT(*) FROM garbage WHERE range_id=?", unlisted.RangeID), 1)
	wantList(f, "workers", f.Strings("SELECT id FROM workers"), "w")
	f.InState(running.ID, sheaf.TaskRunning)

	// A deleted document is removed when its tasks and its garbage are gone.
	f.Exec("UPDATE documents SET deleted_at=1 WHERE id=?", d.ID)
	f.Exec("UPDATE tasks SET state='canceled', finished_at=1 WHERE doc_id=? AND state<>'done'", d.ID)
	f.Exec("UPDATE garbage SET not_before=1")
	f.Store.AdvanceClock(48 * time.Hour)
	for range 2 {
		if _, err := f.Store.Cleanup(ctx, 24*time.Hour, 1000, false); err != nil {
			f.T.Fatal(err)
		}
		for _, id := range f.Strings("SELECT id FROM garbage WHERE doc_id=?", d.ID) {
			f.Exec("DELETE FROM garbage WHERE id=?", id)
		}
	}
	_, err = f.Store.Cleanup(ctx, 24*time.Hour, 1000, false)
	f.OK(err)
	want(f, "tasks of the deleted document", f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=?", d.ID), 0)
	want(f, "the deleted document", f.Int("SELECT COUNT(*) FROM documents WHERE id=?", d.ID), 0)
	want(f, "its generations", f.Int("SELECT COUNT(*) FROM generations WHERE doc_id=?", d.ID), 0)
}

// jobsLeave checks that a job is removed with its versions when nothing is left of
// them, and neither too early nor while a document has something of it.
func jobsLeave(f *Fixture) {
	f.Config.KeepHistory = 30 * 24 * time.Hour
	f.Store = f.Second()
	one, two := f.Document("t"), f.Document("t")
	for _, d := range []Doc{one, two} {
		f.Done(f.Plan(d, Parse(1)...)[0].ID)
		f.Publish(d.ID, sheaf.DocSucceeded)
	}
	first, kept := one.Job, two.Job
	d := f.Reparse(one)
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	clean := func(want int) {
		f.T.Helper()
		dry, err := f.Store.Cleanup(ctx, 24*time.Hour, 1000, true)
		f.OK(err)
		r, err := f.Store.Cleanup(ctx, 24*time.Hour, 1000, false)
		f.OK(err)
		if r.Jobs != want || dry.Jobs != want {
			f.T.Fatalf("%d jobs went, %d by a dry run, want %d", r.Jobs, dry.Jobs, want)
		}
	}
	jobs := func() []string { return f.Strings("SELECT id FROM jobs ORDER BY id") }
	all := jobs()
	clean(0)
	f.Store.AdvanceClock(3 * 24 * time.Hour)
	clean(0) // its tasks are removed
	want(f, "tasks of the first version", f.Int("SELECT COUNT(*) FROM tasks WHERE job_id=?", first), 0)
	wantList(f, "jobs after the retention", jobs(), all...)
	f.Store.AdvanceClock(30 * 24 * time.Hour)
	newcomer := f.Document("t")
	young := newcomer.Job
	clean(1)
	want(f, "the first job", f.Int("SELECT COUNT(*) FROM jobs WHERE id=?", first), 0)
	want(f, "what it made", f.Int("SELECT COUNT(*) FROM generations WHERE job_id=?", first), 0)
	for what, id := range map[string]string{"the job of the live version": d.Job, "the job of the other document": kept, "a young one": young} {
		want(f, what, f.Int("SELECT COUNT(*) FROM jobs WHERE id=?", id), 1)
		want(f, what+", its versions", f.Int("SELECT COUNT(*) FROM generations WHERE job_id=?", id), 1)
	}
	clean(0)
	// After a clock jump everything looks old: the retention, and the time that jobs
	// stay, grow by the jump.
	f.Done(f.Plan(newcomer, Parse(1)...)[0].ID)
	f.Publish(newcomer.ID, sheaf.DocSucceeded)
	d = f.Reparse(newcomer)
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	f.Store.AdvanceClock(3 * 24 * time.Hour)
	clean(0)
	const jump = 100 * 24 * time.Hour
	f.Store.AdvanceClock(jump)
	r, err := f.Store.Cleanup(ctx, 24*time.Hour+jump, 1000, false)
	f.OK(err)
	want(f, "jobs that leave for a jump", r.Jobs, 0)
}

// cleanupGoesOn checks that documents are not read again for each batch of old
// tasks, and that no old task is missed.
func cleanupGoesOn(f *Fixture) {
	const fillers = 5001 // more than one statement reads, all before the document
	for from := 0; from < fillers; from += 500 {
		var rows []string
		for i := from; i < min(from+500, fillers); i++ {
			rows = append(rows, fmt.Sprintf("('%032d','t','ds-t','n','text/plain',1,'x','k','succeeded',1,1,'{}','j',1,1)", i))
		}
		f.Exec("INSERT INTO documents (id,tenant_id,dataset_id,name,media_type,size,sha256,blob_key,state,gen,live_gen,parse_config,job_id,created_at,updated_at) VALUES " + strings.Join(rows, ","))
	}
	d := f.Document("t")
	f.Done(f.Plan(d, Parse(1)...)[0].ID)
	f.Publish(d.ID, sheaf.DocSucceeded)
	replaced := f.Reparse(d)
	f.Done(f.Plan(replaced, Parse(1)...)[0].ID)
	f.Reparse(d)
	f.Store.AdvanceClock(48 * time.Hour)
	left := func() int { return f.Int("SELECT COUNT(*) FROM tasks WHERE doc_id=? AND gen=2", d.ID) }
	clean := func(limit, want int, after string) {
		f.T.Helper()
		r, err := f.Store.Cleanup(ctx, 24*time.Hour, limit, false)
		f.OK(err)
		at, err := f.Store.Meta(ctx, "cleanup_after")
		f.OK(err)
		if r.Tasks != want || at != after {
			f.T.Fatalf("%d tasks went, and it goes on after %q; want %d and %q", r.Tasks, at, want, after)
		}
	}
	first := fmt.Sprintf("%032d", 4999)
	want(f, "tasks of the replaced generation", left(), 2)
	clean(1, 1, first)
	want(f, "after one", left(), 1)
	clean(1, 1, first)
	want(f, "after both", left(), 0)
	clean(1, 0, "")
	clean(1, 0, "")
}

func canceledContext(f *Fixture) {
	d := f.Document("t")
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.Store.Claim(gone, d.Plan, "w", time.Minute); !errors.Is(err, context.Canceled) {
		f.T.Fatalf("claim under a canceled context: %v", err)
	}
	f.InState(d.Plan, sheaf.TaskPending)
}
