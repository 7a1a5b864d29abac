package executor

import "sheaf"

// failedUnits returns the verdict on every unit of a generation, including the units
// of tasks that ended without a result.
func failedUnits(tasks []sheaf.Task) sheaf.Ledger {
	var ledgers []sheaf.Ledger
	for _, t := range tasks {
		if !covers(t) || t.State == sheaf.TaskSuperseded {
			continue
		}
		l := t.Result.Ledger
		if t.State != sheaf.TaskDone {
			l = sheaf.Ledger{unreadRun(t, t.Range)}
		}
		ledgers = append(ledgers, l)
	}
	return sheaf.MergeLedgers(ledgers...)
}

func unreadRun(t sheaf.Task, r sheaf.Range) sheaf.LedgerRun {
	f := whyUnread(t)
	return sheaf.LedgerRun{From: r.From, To: r.To, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}
}

// whyUnread is the failure of a task that ended without a result: it may have none.
func whyUnread(t sheaf.Task) *sheaf.Failure {
	if t.Failure != nil {
		return t.Failure
	}
	return sheaf.Fail(sheaf.CategoryInternal, string(t.State), "The task for units %s ended %s.", t.Range, t.State)
}

// keepFailed makes tasks that account for units of a task without a result that are
// not retried: the next generation's ledger must cover them too.
func keepFailed(t sheaf.Task, rest []sheaf.Range) []sheaf.NewTask {
	var out []sheaf.NewTask
	for _, r := range rest {
		out = append(out, sheaf.NewTask{
			ID: sheaf.NewID(), Kind: sheaf.KindParse, Unit: t.Unit, Range: r, Cost: costShare(t, r), Digest: t.Digest, Payload: t.Payload,
			Done: &sheaf.TaskResult{Reused: true, Ledger: sheaf.Ledger{unreadRun(t, r)}},
		})
	}
	return out
}

// costShare is the share of a task's cost for a part of its range.
func costShare(t sheaf.Task, r sheaf.Range) int {
	return max(1, t.Cost*r.Len()/max(1, t.Range.Len()))
}

// without lists the units of runs that are not in taken.
func without(runs, taken []sheaf.Range) []sheaf.Range {
	var l sheaf.Ledger
	for _, r := range taken {
		l = append(l, sheaf.LedgerRun{From: r.From, To: r.To, Status: sheaf.UnitOK})
	}
	return sheaf.MergeLedgers(l).Missing(runs)
}
