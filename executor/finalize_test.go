package executor

import (
	"slices"
	"testing"

	"sheaf"
)

func TestNoGenerationSucceedsWithoutAVerdictOnEveryUnit(t *testing.T) {
	doc := &sheaf.Document{Units: 24}
	done := func(from, to, chunks int, runs ...sheaf.LedgerRun) sheaf.Task {
		if len(runs) == 0 {
			runs = []sheaf.LedgerRun{{From: from, To: to, Status: sheaf.UnitOK}}
		}
		return sheaf.Task{Kind: sheaf.KindParse, State: sheaf.TaskDone, Range: sheaf.Range{From: from, To: to}, Result: sheaf.TaskResult{Chunks: chunks, Ledger: runs}}
	}
	dead := func(from, to int) sheaf.Task {
		return sheaf.Task{Kind: sheaf.KindParse, State: sheaf.TaskDead, Range: sheaf.Range{From: from, To: to}, Failure: sheaf.Fail(sheaf.CategoryTimeout, "parse_timeout", "took too long")}
	}
	all := func(s sheaf.UnitStatus, code string) []sheaf.LedgerRun {
		return []sheaf.LedgerRun{{From: 1, To: 24, Status: s, Code: code, Message: code}}
	}
	for name, c := range map[string]struct {
		tasks []sheaf.Task
		pages []sheaf.Range
		state sheaf.DocumentState
		code  string
		count sheaf.LedgerCounts
	}{
		"all read":            {tasks: []sheaf.Task{done(1, 12, 5), done(13, 24, 5)}, state: sheaf.DocSucceeded, count: sheaf.LedgerCounts{OK: 24}},
		"a range is missing":  {tasks: []sheaf.Task{done(1, 12, 5)}, state: sheaf.DocPartiallySucceeded, code: "not_planned", count: sheaf.LedgerCounts{OK: 12, Failed: 12}},
		"a range is dead":     {tasks: []sheaf.Task{done(1, 12, 5), dead(13, 24)}, state: sheaf.DocPartiallySucceeded, code: "parse_timeout", count: sheaf.LedgerCounts{OK: 12, Failed: 12}},
		"all is dead":         {tasks: []sheaf.Task{dead(1, 12), dead(13, 24)}, state: sheaf.DocFailed, code: "parse_timeout", count: sheaf.LedgerCounts{Failed: 24}},
		"no task at all":      {state: sheaf.DocFailed, code: "not_planned", count: sheaf.LedgerCounts{Failed: 24}},
		"nothing but scans":   {tasks: []sheaf.Task{done(1, 24, 0, all(sheaf.UnitSkipped, "needs_ocr")...)}, state: sheaf.DocFailed, code: "needs_ocr", count: sheaf.LedgerCounts{Skipped: 24}},
		"all pages crash":     {tasks: []sheaf.Task{done(1, 24, 0, all(sheaf.UnitFailed, "parser_crash")...)}, state: sheaf.DocFailed, code: "parser_crash", count: sheaf.LedgerCounts{Failed: 24}},
		"nothing but blanks":  {tasks: []sheaf.Task{done(1, 24, 0, all(sheaf.UnitBlank, "")...)}, state: sheaf.DocFailed, code: "empty_document", count: sheaf.LedgerCounts{Blank: 24}},
		"read, but no chunks": {tasks: []sheaf.Task{done(1, 24, 0)}, state: sheaf.DocFailed, code: "no_text", count: sheaf.LedgerCounts{OK: 24}},
		"only what was asked": {tasks: []sheaf.Task{done(5, 9, 2)}, pages: []sheaf.Range{{From: 5, To: 9}}, state: sheaf.DocSucceeded, count: sheaf.LedgerCounts{OK: 5}},
		"a retried page": {tasks: []sheaf.Task{
			done(1, 12, 5, sheaf.LedgerRun{From: 1, To: 6, Status: sheaf.UnitOK}, sheaf.LedgerRun{From: 7, To: 7, Status: sheaf.UnitFailed, Code: "x"}, sheaf.LedgerRun{From: 8, To: 12, Status: sheaf.UnitOK}),
			done(7, 7, 1), done(13, 24, 5),
		}, state: sheaf.DocSucceeded, count: sheaf.LedgerCounts{OK: 24}},
		"other kinds do not count": {tasks: []sheaf.Task{done(1, 24, 5), {Kind: sheaf.KindPlan, State: sheaf.TaskDone}, {Kind: sheaf.KindFinalize, State: sheaf.TaskRunning}}, state: sheaf.DocSucceeded, count: sheaf.LedgerCounts{OK: 24}},
	} {
		doc.ParseConfig.Pages = sheaf.Set(c.pages)
		got := outcome(doc, c.tasks)
		code := ""
		if got.Failure != nil {
			code = got.Failure.Code
		}
		if want := map[string]sheaf.Category{"parser_crash": sheaf.CategoryCrash, "parse_timeout": sheaf.CategoryTimeout, "not_planned": sheaf.CategoryInternal, "needs_ocr": sheaf.CategoryBadInput}[code]; want != "" && got.Failure.Category != want {
			t.Errorf("%s: the category of %s is %s, want %s", name, code, got.Failure.Category, want)
		}
		if got.State != c.state || code != c.code || got.Ledger != c.count {
			t.Errorf("%s: %s %q %+v, want %s %q %+v", name, got.State, code, got.Ledger, c.state, c.code, c.count)
		}
	}
}

// A document shows what its plan and its ranges warn of, each thing once.
func TestWarningsOfThePlanAreKept(t *testing.T) {
	warning := func(code string, page int) sheaf.Warning {
		return sheaf.Warning{Code: code, Message: code, Page: page}
	}
	task := func(kind sheaf.TaskKind, state sheaf.TaskState, ws ...sheaf.Warning) sheaf.Task {
		return sheaf.Task{Kind: kind, State: state, Range: sheaf.Range{From: 1, To: 1}, Result: sheaf.TaskResult{
			Chunks: 1, Ledger: sheaf.Ledger{{From: 1, To: 1, Status: sheaf.UnitOK}}, Warnings: ws,
		}}
	}
	got := outcome(&sheaf.Document{Units: 1}, []sheaf.Task{
		task(sheaf.KindParse, sheaf.TaskDone, warning("blurred", 1), warning("hidden", 0)),
		task(sheaf.KindParse, sheaf.TaskSuperseded, warning("former", 1)),
		task(sheaf.KindPlan, sheaf.TaskSuperseded, warning("former plan", 0)),
		task(sheaf.KindPlan, sheaf.TaskDone, warning("hidden", 0), warning("ragged", 0)),
	})
	if want := []sheaf.Warning{warning("hidden", 0), warning("ragged", 0), warning("blurred", 1)}; !slices.Equal(got.Warnings, want) {
		t.Errorf("got %v, want %v", got.Warnings, want)
	}

	var many []sheaf.Task
	for n := range 10 {
		t := task(sheaf.KindParse, sheaf.TaskDone)
		for page := range maxWarnings {
			t.Result.Warnings = append(t.Result.Warnings, warning("w", n*maxWarnings+page+1))
		}
		many = append(many, t)
	}
	if got := outcome(&sheaf.Document{Units: 1}, many); len(got.Warnings) != maxDocumentWarnings {
		t.Errorf("%d warnings", len(got.Warnings))
	}
}

func TestRangesConsumeTheBytesOfTheirDocument(t *testing.T) {
	for _, size := range []int64{0, 1, 1000, 12345} {
		var sum int64
		for _, r := range []sheaf.Range{{From: 1, To: 7}, {From: 8, To: 8}, {From: 9, To: 24}} {
			sum += usageOf(sheaf.TaskResult{}, &sheaf.Document{Size: size, Units: 24}, &sheaf.Task{Range: r}).Bytes
		}
		if sum != size {
			t.Errorf("ranges of a document of %d bytes consumed %d", size, sum)
		}
		if u := usageOf(sheaf.TaskResult{}, &sheaf.Document{Size: size}, &sheaf.Task{}); u.Bytes != size {
			t.Errorf("a task for a document of %d bytes consumed %d", size, u.Bytes)
		}
	}
}
