package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/taskstore"
)

// Claims and completions are most of what a busy fleet asks of the database,
// and each costs a transaction of half a dozen statements whether it moves one
// task or thirty. So those that come together are written together, each under
// its own guard and with its own result. While a transaction runs, all that
// arrives makes up the next, which is then as large as the load asks for.
// Servers take a second transaction beside the first when enough has come
// together, so that one computes while the other waits for the disk.

const (
	maxBatch         = 64               // claims and completions of one transaction
	batchTimeout     = 15 * time.Second // for one transaction and its retries
	writeConcurrency = 2                // transactions of claims and completions at once
	minBatch         = 16               // of them in the second at least: with 8, batches of 10 instead of 14 took 5 % more CPU
)

// ClaimAsk is one claim of a batch.
type ClaimAsk struct {
	TaskID   string
	WorkerID string
	Lease    time.Duration
}

// ClaimAnswer is what became of a ClaimAsk: the task, or the error that Claim
// names.
type ClaimAnswer struct {
	Task *sheaf.Task
	Err  error
}

// Finished is one completion of a batch, of a task that leaves its result and
// nothing else.
type Finished struct {
	Claim  sheaf.Claim
	Result sheaf.TaskResult
}

// write is a call of Claim, or of Complete when done is set.
type write struct {
	claim ClaimAsk
	done  *Finished
}

// tasks is what executors claim and end.
type tasks struct {
	*handle
	*folds
	deletions
	writes *batching.Group[write, answer]
}

func newTasks(h *handle, f *folds, d deletions) *tasks {
	s := &tasks{handle: h, folds: f, deletions: d}
	writes := batching.Config[write]{Max: maxBatch, Timeout: batchTimeout}
	if h.d.name != "sqlite" { // which has one writer
		writes.Concurrency, writes.MinBatch = writeConcurrency, minBatch
	}
	s.writes = batching.New(writes, s.runBatch)
	return s
}

// Claim makes a pending, due, unpaused task running under a new epoch. When the
// task is in any other state it fails with *NotClaimable. An error that is not
// *NotClaimable leaves open whether the claim happened. Claims and completions
// that come together share a transaction.
func (s *tasks) Claim(ctx context.Context, taskID, workerID string, lease time.Duration) (*sheaf.Task, error) {
	a, err := s.writes.Do(ctx, write{claim: ClaimAsk{TaskID: taskID, WorkerID: workerID, Lease: lease}})
	return a.Task, cmp.Or(err, a.Err)
}

// Complete makes the task done and writes, in the same transaction, what
// follows from it. A completion that reaches beyond its task has a transaction
// of its own.
func (s *tasks) Complete(ctx context.Context, c sheaf.Claim, done taskstore.Completion) error {
	if done.Plan != nil || len(done.Spawn) > 0 || done.Publish != nil || len(done.Stitch) > 0 || len(done.Last) > 0 || done.Run != nil {
		return s.completeWide(ctx, c, done)
	}
	a, err := s.writes.DoWithin(ctx, write{done: &Finished{Claim: c, Result: done.Result}}, done.CanWait)
	if err := cmp.Or(err, a.Err); err != nil {
		return err
	}
	if a.last != "" && done.NextFunc != nil {
		// The end is written. What fails from here on the keeper makes good.
		if h, err := s.finishDocument(ctx, a.last); err == nil && h != nil {
			done.NextFunc(*h)
		}
	}
	return nil
}

// answer is what became of a write.
type answer struct {
	ClaimAnswer
	last string // the document, if this was the batch's last end in it and no claim of the batch goes on with it
}

// runBatch writes the calls of one batch.
func (s *tasks) runBatch(ctx context.Context, batch []write) []answer {
	var finished []Finished
	var asks []ClaimAsk
	for _, w := range batch {
		if w.done != nil {
			finished = append(finished, *w.done)
		} else {
			asks = append(asks, w.claim)
		}
	}
	documents := make([]string, len(finished))
	errs, claims := s.writeAll(ctx, finished, asks, documents)
	goesOn := map[string]bool{"": true}
	for _, c := range claims {
		if c.Err == nil {
			goesOn[c.Task.DocumentID] = true
		}
	}
	answers := make([]answer, len(batch))
	for i := len(batch) - 1; i >= 0; i-- {
		if batch[i].done == nil {
			n := len(claims) - 1
			answers[i].ClaimAnswer, claims = claims[n], claims[:n]
			continue
		}
		n := len(errs) - 1
		answers[i].Err, errs = errs[n], errs[:n]
		if d := documents[n]; answers[i].Err == nil && !goesOn[d] {
			// guard: finish: the end of the last range needs no keeper
			answers[i].last, goesOn[d] = d, true
		}
	}
	return answers
}

// WriteAll makes each finished task done whose claim still holds and each claim
// that its task's state allows, in one transaction. It answers in the order of
// its arguments. Of two completions under one claim, and of two claims of one
// task, the first counts. Claims see their tasks as they were before the batch
// but for its completions: a task that a completion wakes is not claimed yet.
func (s *tasks) WriteAll(ctx context.Context, finished []Finished, asks []ClaimAsk) ([]error, []ClaimAnswer) {
	return s.writeAll(ctx, finished, asks, make([]string, len(finished)))
}

// writeAll is WriteAll; it puts the document of each task that it ends in
// documents.
func (s *tasks) writeAll(ctx context.Context, finished []Finished, asks []ClaimAsk, documents []string) ([]error, []ClaimAnswer) {
	errs, answers := make([]error, len(finished)), make([]ClaimAnswer, len(asks))
	ids := make([]string, 0, len(finished)+len(asks))
	for _, f := range finished {
		ids = append(ids, f.Claim.TaskID)
	}
	for _, a := range asks {
		ids = append(ids, a.TaskID)
	}
	if len(ids) == 0 {
		return errs, answers
	}
	ending := ids[:len(finished)]
	err := s.moveTasks(ctx, ids, ending, func(tasks map[string]*taskRow) (script, []*taskRow) {
		var ended, claimed []*taskRow
		var events []eventRow
		var dirty []string
		for i, f := range finished {
			t := tasks[f.Claim.TaskID]
			if errs[i] = t.end(f.Claim, f.Result); errs[i] == nil {
				ended, documents[i] = append(ended, t), t.DocID
				events = append(events, t.doneEvent(f.Result))
				dirty = append(dirty, t.DocID)
			}
		}
		for i, a := range asks {
			t := tasks[a.TaskID]
			if answers[i].Task, answers[i].Err = nil, t.claimFor(a); answers[i].Err == nil {
				task := t.toDomain(s.vault)
				answers[i].Task, claimed = &task, append(claimed, t)
				events = append(events, t.event(sheaf.EventClaimed, t.Epoch))
				if t.Kind == string(sheaf.KindPlan) {
					// The plan is what starts a document. For the others the mark would
					// tell nothing new, and all claims of a document would queue for it.
					dirty = append(dirty, t.DocID)
				}
			}
		}
		var writes script
		s.saveClaimed(&writes, claimed)
		s.saveEnded(&writes, ended)
		s.logEvents(&writes, events)
		s.dirty(&writes, dirty)
		return writes, ended
	})
	if err == nil {
		return errs, answers
	}
	// What one of them holds may be what the engine refused. Alone, each fails
	// for itself.
	alone := len(ids) > 1 && mayBeOnes(err)
	for i := range finished {
		if errs[i] = err; alone {
			one, _ := s.writeAll(ctx, finished[i:i+1], nil, documents[i:i+1])
			errs[i] = one[0]
		}
	}
	for i := range asks {
		if answers[i] = (ClaimAnswer{Err: err}); alone {
			_, one := s.WriteAll(ctx, nil, asks[i:i+1])
			answers[i] = one[0]
		}
	}
	return errs, answers
}

// mayBeOnes reports whether a batch may have failed for what one of it holds,
// so that the others would pass without it.
func mayBeOnes(err error) bool {
	return !errors.Is(err, sheaf.ErrUnavailable) && !errors.Is(err, sheaf.ErrReadOnly) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// claimFor gives a locked task to a worker if its state allows; nil is a task
// that does not exist.
func (r *taskRow) claimFor(a ClaimAsk) error {
	if r == nil {
		return &taskstore.NotClaimable{TaskID: a.TaskID}
	}
	// guard: claim guard: only what is pending can be claimed
	if r.State != string(sheaf.TaskPending) || r.RunAt > r.Now || r.Paused%ofPool != 0 || r.CancelRequestedAt != 0 || r.Deleted != 0 {
		return &taskstore.NotClaimable{TaskID: a.TaskID, State: sheaf.TaskState(r.State)}
	}
	r.State, r.Epoch, r.Attempts, r.WorkerID = string(sheaf.TaskRunning), r.Epoch+1, r.Attempts+1, a.WorkerID
	r.StartedAt, r.LeaseUntil, r.EnqueuedAt = r.Now, r.Now+a.Lease.Milliseconds(), 0
	return nil
}

// end makes a locked task done if the claim holds; nil is a task that does not
// exist.
func (r *taskRow) end(c sheaf.Claim, result sheaf.TaskResult) error {
	// guard: fencing: a completion needs the claim's epoch
	// guard: fencing: a completion needs a running task
	if r == nil || r.State != string(sheaf.TaskRunning) || r.Epoch != c.Epoch {
		return notHeld(c)
	}
	r.State, r.DoneEpoch, r.LeaseUntil, r.FinishedAt = string(sheaf.TaskDone), r.Epoch, 0, r.Now
	r.RangeID, r.ArtifactKey, r.ChunkCount, r.TokenCount = result.RangeID, result.ArtifactKey, result.Chunks, result.Tokens
	r.Reused, r.Result = flag(result.Reused), encode(result)
	return nil
}

// saveClaimed writes what claimFor has changed of locked tasks: one statement
// for all that one worker claims, since they get the same.
func (s *tasks) saveClaimed(c *script, tasks []*taskRow) {
	type hold struct {
		worker string
		from   int64
		until  int64
	}
	ids := map[hold][]string{}
	for _, t := range tasks {
		h := hold{t.WorkerID, t.StartedAt, t.LeaseUntil}
		ids[h] = append(ids[h], t.ID)
	}
	for h, batch := range ids {
		c.add(`UPDATE tasks`+s.d.byID+` SET state='running', epoch=epoch+1, attempts=attempts+1, worker_id=?, started_at=?, lease_until=?, enqueued_at=0
			WHERE id IN ?`, h.worker, h.from, h.until, sortedUnique(batch))
	}
}

// saveEnded writes what end has changed of locked tasks. Each row has values of
// its own, which an insert that overwrites what is in its way carries best;
// measured on MariaDB: with a CASE per column it takes half as much again for
// 16 tasks. Since the rows are there, the other columns without a default are
// only for show.
func (s *tasks) saveEnded(c *script, tasks []*taskRow) {
	changed := []string{"state", "lease_until", "done_epoch", "finished_at", "range_id", "artifact_key", "chunk_count", "token_count", "reused", "result"}
	columns := append([]string{"id", "tenant_id", "dataset_id", "doc_id", "job_id", "gen", "kind", "run_at", "created_at"}, changed...)
	const none, zero = raw("''"), raw("0")
	rows := make([][]any, len(tasks))
	for i, t := range tasks {
		rows[i] = []any{t.ID, none, none, none, none, zero, none, zero, zero,
			t.State, t.LeaseUntil, t.DoneEpoch, t.FinishedAt, t.RangeID, t.ArtifactKey, t.ChunkCount, t.TokenCount, t.Reused, t.Result}
	}
	c.insert("tasks", columns, rows, s.d.upsert("id", changed...))
}

func (r *taskRow) doneEvent(result sheaf.TaskResult) eventRow {
	e := r.event(sheaf.EventDone, r.Epoch)
	e.Detail = encode(map[string]int{"chunks": result.Chunks, "tokens": result.Tokens})
	return e
}
