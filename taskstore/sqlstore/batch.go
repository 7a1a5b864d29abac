package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"gorm.io/gorm"

	"sheaf"
	"sheaf/internal/batching"
	"sheaf/taskstore"
)

// Claims and completions are most of a busy fleet's database load, and each costs a
// transaction of half a dozen statements whether it moves one task or thirty. So
// concurrent ones are written together, each with its own guard and result. Calls
// that arrive while a transaction runs form the next one, so batches grow with the
// load. On servers, a second transaction runs concurrently once enough calls have
// gathered, so that one computes while the other waits for the disk.

const (
	maxBatch         = 64               // claims and completions per transaction
	batchTimeout     = 15 * time.Second // per transaction, including its retries
	writeConcurrency = 2                // concurrent transactions of claims and completions
	minBatch         = 16               // minimum size of the second transaction: with 8, batches of 10 instead of 14 took 5 % more CPU
)

// ClaimAsk is one claim of a batch.
type ClaimAsk struct {
	TaskID   string
	WorkerID string
	Lease    time.Duration
}

// ClaimAnswer is the outcome of a ClaimAsk: the task, or an error as from Claim.
type ClaimAnswer struct {
	Task *sheaf.Task
	Err  error
}

// Finished is one completion in a batch, for a task that leaves only its result.
type Finished struct {
	Claim  sheaf.Claim
	Result sheaf.TaskResult
}

// write is a Claim call, or a Complete call if done is set.
type write struct {
	claim ClaimAsk
	done  *Finished
}

// tasks implements claiming and ending tasks.
type tasks struct {
	*handle
	*folds
	deletions
	writes *batching.Group[write, answer]
	wholes *batching.Group[whole, error] // of documents that their plans publish; nil where each has its own transaction
}

func newTasks(h *handle, f *folds, d deletions) *tasks {
	s := &tasks{handle: h, folds: f, deletions: d}
	writes := batching.Config[write]{Max: maxBatch, Timeout: batchTimeout}
	if h.d.name != "sqlite" { // it has a single writer
		writes.Concurrency, writes.MinBatch = writeConcurrency, minBatch
	}
	s.writes = batching.New(writes, s.runBatch)
	if h.d.name == "sqlite" {
		s.wholes = batching.New(batching.Config[whole]{Max: maxWholes, Timeout: batchTimeout}, s.completeWholes)
	}
	return s
}

// Claim makes a pending, due, unpaused task running under a new epoch. For a task in
// any other state it fails with *NotClaimable. Any other error leaves it unknown
// whether the claim happened. Concurrent claims and completions share a transaction.
func (s *tasks) Claim(ctx context.Context, taskID, workerID string, lease time.Duration) (*sheaf.Task, error) {
	a, err := s.writes.Do(ctx, write{claim: ClaimAsk{TaskID: taskID, WorkerID: workerID, Lease: lease}})
	return a.Task, cmp.Or(err, a.Err)
}

// Complete makes the task done and writes its consequences in the same transaction.
// A completion that affects more than its task has its own transaction.
func (s *tasks) Complete(ctx context.Context, c sheaf.Claim, done taskstore.Completion) error {
	if done.Plan != nil || len(done.Spawn) > 0 || done.Publish != nil || len(done.Stitch) > 0 || len(done.Last) > 0 || done.Run != nil {
		if s.wholes != nil && isWhole(&done) {
			failed, err := s.wholes.Do(ctx, whole{c, &done})
			return cmp.Or(err, failed)
		}
		return s.completeWide(ctx, c, done)
	}
	a, err := s.writes.DoWithin(ctx, write{done: &Finished{Claim: c, Result: done.Result}}, done.CanWait)
	if err := cmp.Or(err, a.Err); err != nil {
		return err
	}
	if a.last != "" && done.NextFunc != nil {
		// The completion is written; the keeper makes up for any failure from here on.
		if h, err := s.finishDocument(ctx, a.last); err == nil && h != nil {
			done.NextFunc(*h)
		}
	}
	return nil
}

// whole is a call of Complete that isWhole.
type whole struct {
	claim sheaf.Claim
	done  *taskstore.Completion
}

// maxWholes is how many of them share a transaction.
const maxWholes = 32

// completeWholes writes completions in one transaction: with SQLite, which has one
// writer, a commit costs as much as a document's other statements. If one fails,
// each is written alone.
func (s *tasks) completeWholes(ctx context.Context, batch []whole) []error {
	errs := make([]error, len(batch))
	err := s.tx(ctx, func(tx *gorm.DB) error {
		for _, w := range batch {
			if err := s.completeIn(tx, w.claim, w.done); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && len(batch) > 1 && mayBeOnes(err) {
		for i, w := range batch {
			errs[i] = s.completeWide(ctx, w.claim, *w.done)
		}
		return errs
	}
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// answer is the outcome of a write.
type answer struct {
	ClaimAnswer
	last string // the document, if this was the batch's last completion in it and no claim in the batch continues it
}

// runBatch writes one batch of calls.
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

// WriteAll makes each finished task done if its claim still holds, and claims each
// asked task if its state allows, in one transaction. It returns results in the
// order of its arguments. Of two completions under one claim, and of two claims of
// one task, the first counts. Claims see their tasks as before the batch, except for
// its completions: a task woken by a completion is not claimable yet.
func (s *tasks) WriteAll(ctx context.Context, finished []Finished, asks []ClaimAsk) ([]error, []ClaimAnswer) {
	return s.writeAll(ctx, finished, asks, make([]string, len(finished)))
}

// writeAll is WriteAll; it stores the document of each completed task in documents.
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
					// The plan is what starts a document. For other tasks the mark
					// would add nothing, and all claims of a document would queue for
					// it.
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
	// One item's content may be what the engine rejected. Written alone, each fails on
	// its own.
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

// mayBeOnes reports whether a batch may have failed because of one item's content,
// so that the others would succeed without it.
func mayBeOnes(err error) bool {
	return !errors.Is(err, sheaf.ErrUnavailable) && !errors.Is(err, sheaf.ErrReadOnly) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// claimFor assigns a locked task to a worker if its state allows; nil is a task that
// does not exist.
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

// saveClaimed writes the changes of claimFor to locked tasks: one statement per
// worker and lease, since these tasks get the same values.
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

// saveEnded writes the changes of end to locked tasks. Each row has its own values,
// for which an overwriting insert works best; measured on MariaDB, a CASE per column
// takes half as much again for 16 tasks. Since the rows exist, the other columns
// without a default are placeholders.
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
