package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/internal/watch"
	"sheaf/taskstore"
)

// FlowRun is one execution of a flow over a version of a document. Its states are
// those of the tasks at this moment.
type FlowRun struct {
	Generation    int                 `json:"generation"`
	Flow          string              `json:"flow" doc:"name and version"`
	Mode          string              `json:"mode" enum:"whole,nodes" doc:"whole: one task per range runs all nodes; nodes: nodes have their own tasks"`
	Reason        string              `json:"reason" doc:"why this mode, in a sentence"`
	State         sheaf.DocumentState `json:"state"`
	Nodes         []RunNode           `json:"nodes" nullable:"false" doc:"in execution order"`
	UnservedPools []string            `json:"unserved_pools,omitempty" doc:"pools in which tasks of the run wait and that no executor serves"`
	CreatedAt     time.Time           `json:"created_at" doc:"when it was requested"`
	FinishedAt    time.Time           `json:"finished_at,omitzero" doc:"absent while it runs"`
	Budget        *VersionBudget      `json:"budget,omitempty" doc:"absent once it has ended, or if nothing was asked"`
	RunCost
}

// VersionBudget is a document version's budget for the language model.
type VersionBudget struct {
	Spent     int64   `json:"spent" doc:"tokens that count toward the cap, including those of requests in flight"`
	Price     float64 `json:"price,omitempty" doc:"of these, where a price is configured"`
	Currency  string  `json:"currency,omitempty"`
	MaxTokens int64   `json:"max_tokens,omitempty" doc:"the cap that it was raised to; absent: flow.max_tokens and flow.max_price"`
	Unbounded bool    `json:"unbounded,omitempty" doc:"the cap was removed"`
	Waits     bool    `json:"waits" doc:"it is at the cap and resumes when that is raised by POST …/documents/{doc}:resume"`
}

// RunCost is the language model usage of a run or one of its nodes.
type RunCost struct {
	Asked    *sheaf.Asked `json:"asked,omitempty" doc:"of a language model"`
	Price    float64      `json:"price,omitempty" doc:"of the tokens, where a price is configured"`
	Currency string       `json:"currency,omitempty" doc:"of the price"`
}

// ask adds usage.
func (c *RunCost) ask(a *sheaf.Asked) {
	if a == nil {
		return
	}
	if c.Asked == nil {
		c.Asked = &sheaf.Asked{}
	}
	c.Asked.Calls, c.Asked.Cached, c.Asked.Tokens = c.Asked.Calls+a.Calls, c.Asked.Cached+a.Cached, c.Asked.Tokens+a.Tokens
}

// pricing fills in the price of the usage.
func (s *Server) pricing(c *RunCost) {
	if c.Asked != nil && s.cfg.Prices.PerMillionTokens > 0 {
		c.Price, c.Currency = s.priced(c.Asked.Tokens)
	}
}

// FlowRunPath names the run of a flow over a version of a document.
type FlowRunPath struct {
	DocumentPath
	ETagInput
	Generation int `query:"generation" minimum:"1" doc:"default: the newest"`
}

// FlowRunListed is the newest run of a flow over a document.
type FlowRunListed struct {
	DocumentID string              `json:"document_id"`
	Document   string              `json:"document" doc:"its name"`
	Generation int                 `json:"generation"`
	Flow       string              `json:"flow" doc:"name and version; no version until its plan is made"`
	Mode       string              `json:"mode,omitempty" enum:"whole,nodes" doc:"absent until its plan is made"`
	Reason     string              `json:"reason,omitempty" doc:"why this mode, in a sentence"`
	State      sheaf.DocumentState `json:"state"`
	Chunks     int                 `json:"chunks"`
	CreatedAt  time.Time           `json:"created_at" doc:"when it was requested"`
	FinishedAt time.Time           `json:"finished_at,omitzero" doc:"absent while it runs"`
	RunCost
}

// RunNodeAnswer is a node of a run with its tasks.
type RunNodeAnswer struct {
	RunNode
	Tasks []RunTask `json:"tasks" nullable:"false" doc:"by range; at most 1,000"`
}

// RunTask is the work of a node on a range of a document, and its output.
type RunTask struct {
	ID       string         `json:"id" doc:"of /v1/tasks/{task}, which has its attempts"`
	Range    *[2]int        `json:"range,omitempty" doc:"units, from 1, both ends included"`
	State    string         `json:"state" enum:"parked,pending,running,retry_wait,done,skipped,failed,canceled"`
	Reason   string         `json:"reason,omitempty" doc:"why it is skipped"`
	Attempts int            `json:"attempts"`
	Reused   bool           `json:"reused,omitempty" doc:"its output existed"`
	MS       int64          `json:"ms" doc:"that it took"`
	Chunks   int            `json:"chunks" doc:"in its output"`
	Bytes    int64          `json:"bytes" doc:"of its output"`
	Name     string         `json:"name,omitempty" doc:"of the output: a digest of what made it"`
	Digest   string         `json:"digest,omitempty" doc:"xxhash64 of the bytes of the output"`
	Failure  *sheaf.Failure `json:"failure,omitempty"`
}

// RunNode is a node of a run.
type RunNode struct {
	ID       string         `json:"id"`
	State    string         `json:"state" enum:"parked,pending,running,retry_wait,done,skipped,failed,canceled,reused" doc:"of the range that is furthest behind; reused: it did not have to run again"`
	Reason   string         `json:"reason,omitempty" doc:"why it is skipped, or what it waits for"`
	Pool     string         `json:"pool,omitempty"`
	Ranges   int            `json:"ranges" doc:"of the document, each with a task"`
	Done     int            `json:"done" doc:"ranges done, including skipped ones"`
	Reused   int            `json:"reused" doc:"ranges whose output existed"`
	Attempts int            `json:"attempts"`
	Chunks   int            `json:"chunks" doc:"in its outputs"`
	Bytes    int64          `json:"bytes" doc:"of its outputs"`
	MS       int64          `json:"ms" doc:"that its tasks took in total"`
	Failure  *sheaf.Failure `json:"failure,omitempty" doc:"of the first range that failed for good"`
	Files    []RunFile      `json:"files,omitempty" doc:"written by an export, by range; at most 1,000"`
	// Shared nodes have no task of their own; within is the node whose task runs
	// it, or "" for the range's task.
	Shared     bool `json:"shared,omitempty" doc:"one task runs it with other nodes: attempts and time are of them all"`
	within     string
	Definition *flow.Node `json:"definition,omitempty" doc:"kind, inputs and settings in the version of the flow; absent if that was deleted"`
	RunCost
}

// RunFile is a file produced by a node.
type RunFile struct {
	Range  [2]int `json:"range" doc:"units, from 1, both ends included"`
	Media  string `json:"media"`
	Chunks int    `json:"chunks"`
	Bytes  int64  `json:"bytes"`
	Key    string `json:"key" doc:"in the blob store, below blob.prefix"`
	Path   string `json:"path" doc:"of the bytes, in this API"`
}

const (
	maxRunFiles = 1000
	maxRunTasks = 1000
)

func (s *Server) runRoutes() {
	op := get("/v1/datasets/{ds}/documents/{doc}/run", "Read the run of a flow over a document")
	op.Description = "How the flow of the document runs, and the states of its nodes. 404 until its plan is made. Send the ETag of the previous answer to get 304 if nothing changed."
	handle(s, op, func(ctx context.Context, in *FlowRunPath) (*tagged[*FlowRun], error) {
		d, n, err := s.versionOf(ctx, in)
		if err != nil {
			return nil, err
		}
		return snapshotOf[*FlowRun](ctx, s, in.ETagInput, runScope(d, n, ""), func(ctx context.Context) (any, error) {
			run, _, err := s.run(ctx, d, n)
			return run, err
		})
	})
	one := get("/v1/datasets/{ds}/documents/{doc}/run/nodes/{node}", "Read a node of a run, with its tasks and outputs")
	one.Description = "Each task is the work on a range of the document, with the digest and size of its output."
	handle(s, one, func(ctx context.Context, in *struct {
		FlowRunPath
		Node string `path:"node" maxLength:"63" doc:"id of the node"`
	}) (*tagged[*RunNodeAnswer], error) {
		d, n, err := s.versionOf(ctx, &in.FlowRunPath)
		if err != nil {
			return nil, err
		}
		return snapshotOf[*RunNodeAnswer](ctx, s, in.ETagInput, runScope(d, n, in.Node), func(ctx context.Context) (any, error) {
			run, tasks, err := s.run(ctx, d, n)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(run.Nodes, func(n RunNode) bool { return n.ID == in.Node })
			if i < 0 {
				return nil, fmt.Errorf("%w: node %s of the flow %s", sheaf.ErrNotFound, in.Node, run.Flow)
			}
			return &RunNodeAnswer{run.Nodes[i], run.Nodes[i].tasks(tasks)}, nil
		})
	})
	s.resumeRoute()
	list := get("/v1/datasets/{ds}/documents/runs", "List the newest run of each document of a dataset")
	list.Description = "Newest documents first. Each with its flow, why it runs whole or in nodes, and its use of a language model."
	handle(s, list, func(ctx context.Context, in *struct {
		DatasetPath
		ETagInput
		Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"items per page"`
		Cursor string `query:"cursor" format:"cursor" doc:"previous page's next_cursor"`
	}) (*tagged[List[FlowRunListed]], error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		page := taskstore.Page{Limit: in.Limit, Cursor: in.Cursor}
		return snapshotOf[List[FlowRunListed]](ctx, s, in.ETagInput, watch.Scope{TenantID: ds.TenantID, DatasetID: ds.ID, What: fmt.Sprintf("runs %+v", page)}, func(ctx context.Context) (any, error) {
			items, next, err := s.newestRuns(ctx, ds, page)
			return listOf(items, next).Body, err
		})
	})
}

// versionBudget returns what a version has spent; nil for nothing.
func (s *Server) versionBudget(ctx context.Context, d *sheaf.Document, generation int) (*VersionBudget, error) {
	of := taskstore.VersionSpending(d.ID, generation, 0)
	spent, err := s.cfg.Catalog.Spent(ctx, d.TenantID, of.Name)
	if err != nil {
		return nil, err
	}
	most, err := s.cfg.Catalog.Spent(ctx, d.TenantID, of.Raised)
	if err != nil || spent == 0 && most == 0 {
		return nil, err
	}
	b := &VersionBudget{Spent: spent, MaxTokens: most}
	if most >= taskstore.NoCap {
		b.MaxTokens, b.Unbounded = 0, true
	}
	b.Price, b.Currency = s.priced(spent)
	return b, nil
}

// resumeRoute raises the cap of a version of a document.
func (s *Server) resumeRoute() {
	op := post("/v1/datasets/{ds}/documents/{doc}:resume", "Raise the budget of a document")
	op.Description = "For the version being made. At the cap of flow.max_tokens and flow.max_price its tasks wait; they resume within 20 seconds after it is raised, and answered requests are not repeated. The budget includes what was spent before; without one there is no limit. The tenant's daily cap stays. 409 for a document that is not being made, and with the code budget_spent if the budget is already spent."
	handle(s, op, func(ctx context.Context, in *struct {
		DocumentPath
		Body RunBudget
	}) (*output[*VersionBudget], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		if d.State.Terminal() {
			return nil, newProblem(409, "", "the document is not being made, so that nothing of it waits at a cap; parse it again, and raise the budget when it waits")
		}
		var o taskstore.RunOptions
		if err := s.budget(in.Body, &o); err != nil {
			return nil, err
		}
		of := taskstore.VersionSpending(d.ID, d.Generation, 0)
		spent, err := s.cfg.Catalog.Spent(ctx, d.TenantID, of.Name)
		if err != nil {
			return nil, err
		}
		most := cmp.Or(o.Tokens(), taskstore.NoCap)
		if most <= spent {
			return nil, newProblem(409, "budget_spent", fmt.Sprintf("%d tokens are spent or on their way; raise the budget above that", spent))
		}
		if err := s.cfg.Catalog.RaiseCap(ctx, d.TenantID, of.Raised, most); err != nil {
			return nil, err
		}
		b, err := s.versionBudget(ctx, d, d.Generation)
		return &output[*VersionBudget]{b}, err
	})
}

// versionOf finds the document and version of a run.
func (s *Server) versionOf(ctx context.Context, in *FlowRunPath) (*sheaf.Document, int, error) {
	d, err := s.document(ctx, in.DocumentPath)
	if err != nil {
		return nil, 0, err
	}
	return d, cmp.Or(in.Generation, d.Generation), nil
}

// runScope is the shared scope for everyone watching a run or one of its nodes.
func runScope(d *sheaf.Document, generation int, node string) watch.Scope {
	return watch.Scope{TenantID: d.TenantID, DatasetID: d.DatasetID, DocumentID: d.ID, What: fmt.Sprintf("run %d %q", generation, node)}
}

// newestRuns lists the newest run of each document of a page.
func (s *Server) newestRuns(ctx context.Context, ds *sheaf.Dataset, p taskstore.Page) ([]FlowRunListed, string, error) {
	docs, next, err := s.cfg.Catalog.Documents(ctx, ds.TenantID, taskstore.DocumentFilter{DatasetID: ds.ID}, p)
	if err != nil {
		return nil, "", err
	}
	ids := make([]string, len(docs))
	for i := range docs {
		ids[i] = docs[i].ID
	}
	gens, err := s.cfg.Catalog.NewestGenerations(ctx, ds.TenantID, ids)
	if err != nil {
		return nil, "", err
	}
	items := make([]FlowRunListed, 0, len(docs))
	for i := range docs {
		d, g := &docs[i], gens[docs[i].ID]
		if g.Generation == 0 {
			continue // never started
		}
		r := FlowRunListed{DocumentID: d.ID, Document: d.Name, Generation: g.Generation, Flow: cmp.Or(g.ParseConfig.Flow.V, flow.StandardName), State: d.State, Chunks: g.Chunks, CreatedAt: g.CreatedAt, FinishedAt: g.FinishedAt}
		decide(&g)
		if g.Flow != nil {
			r.Flow, r.Mode, r.Reason = g.Flow.Ref, g.Flow.Mode, g.Flow.Reason
			if len(g.Flow.Asks) > 0 { // only these have called the model
				tasks, err := s.cfg.Catalog.Tasks(ctx, ds.TenantID, d.ID, g.Generation)
				if errors.Is(err, sheaf.ErrNotFound) {
					continue // deleted in the meantime
				}
				if err != nil {
					return nil, "", err
				}
				for i := range tasks {
					if out := tasks[i].Result.Output; out != nil {
						r.ask(out.Asked)
					}
				}
				s.pricing(&r.RunCost)
			}
		}
		items = append(items, r)
	}
	return items, next, nil
}

// decide fills in how the standard pipeline runs, which is not stored.
func decide(g *sheaf.Generation) {
	if name, _, _ := strings.Cut(g.ParseConfig.Flow.V, "@"); g.Flow != nil || name != "" && name != flow.StandardName {
		return
	}
	g.Flow = &sheaf.FlowDecision{Ref: flow.StandardName + "@1", Mode: string(flow.ModeWhole), Reason: "The standard pipeline runs in one task a range."}
	for _, n := range flow.StandardFlow().Nodes {
		g.Flow.Nodes = append(g.Flow.Nodes, n.ID)
	}
}

// run reads the run of a flow over a version of a document, and its tasks.
func (s *Server) run(ctx context.Context, d *sheaf.Document, n int) (*FlowRun, []sheaf.Task, error) {
	gens, err := s.cfg.Catalog.Generations(ctx, d.TenantID, d.ID)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(gens, func(g sheaf.Generation) bool { return g.Generation == n })
	if i < 0 {
		return nil, nil, noVersion(d, n)
	}
	decide(&gens[i])
	if gens[i].Flow == nil {
		return nil, nil, newProblem(http.StatusNotFound, "no_run", "no plan has decided yet how the flow runs over this version, or it was made from what an older one left; ask again, or for another generation")
	}
	tasks, err := s.cfg.Catalog.Tasks(ctx, d.TenantID, d.ID, n)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := s.definitions(ctx, gens[i].Flow.Ref)
	if err != nil {
		return nil, nil, err
	}
	run := runOf(&gens[i], tasks, nodes)
	for i := range run.Nodes {
		run.ask(run.Nodes[i].Asked)
		s.pricing(&run.Nodes[i].RunCost)
	}
	s.pricing(&run.RunCost)
	if run.State.Terminal() {
		return &run, tasks, nil
	}
	if run.Budget, err = s.versionBudget(ctx, d, n); err != nil {
		return nil, nil, err
	}
	if run.UnservedPools, err = s.cfg.Catalog.JobWaitsFor(ctx, gens[i].JobID, d.ID, taskstore.UnservedAfter); err != nil {
		return nil, nil, err
	}
	for i := range run.Nodes {
		node := &run.Nodes[i]
		if node.State == "retry_wait" {
			var code string
			if node.Reason, code, err = s.whyWaits(ctx, tasks, node); err != nil {
				return nil, nil, err
			}
			if run.Budget != nil && code == taskstore.BudgetSpent {
				run.Budget.Waits = true
			}
		}
		if node.State == "pending" && slices.Contains(run.UnservedPools, node.Pool) {
			node.Reason = fmt.Sprintf("No executor serves the pool %s. Start one with executor.pools = %s.", node.Pool, node.Pool)
		}
	}
	return &run, tasks, nil
}

// definitions returns the nodes of a flow version by id, or nil if it was deleted.
func (s *Server) definitions(ctx context.Context, of string) (map[string]*flow.Node, error) {
	ref, err := flow.ParseRef(of)
	if err != nil {
		return nil, err
	}
	v, err := s.flow(ctx, ref)
	if errors.Is(err, sheaf.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := make(map[string]*flow.Node, len(v.Flow.Nodes))
	for i := range v.Flow.Nodes {
		out[v.Flow.Nodes[i].ID] = &v.Flow.Nodes[i]
	}
	return out, nil
}

// runsWithin returns the node whose task runs a node that has none: the first that
// reads it, or "" if that is the range's task.
func runsWithin(id string, d *sheaf.FlowDecision, nodes map[string]*flow.Node) string {
	for range d.Nodes { // each step leads to a later node
		if slices.Contains(d.Tasks, id) {
			return id
		}
		i := slices.IndexFunc(d.Nodes, func(reader string) bool {
			n := nodes[reader]
			return n != nil && d.Skipped[reader] == "" && slices.Contains(n.From, id)
		})
		if i < 0 {
			return ""
		}
		id = d.Nodes[i]
	}
	return ""
}

// runOf derives the state of a run from its tasks.
func runOf(g *sheaf.Generation, tasks []sheaf.Task, nodes map[string]*flow.Node) FlowRun {
	out := FlowRun{Generation: g.Generation, Flow: g.Flow.Ref, Mode: g.Flow.Mode, Reason: g.Flow.Reason, State: g.State, Nodes: []RunNode{}, CreatedAt: g.CreatedAt, FinishedAt: g.FinishedAt}
	for _, id := range g.Flow.Nodes {
		n := RunNode{ID: id, State: "reused", Definition: nodes[id]}
		if reason, skipped := g.Flow.Skipped[id]; skipped {
			n.State, n.Reason = "skipped", reason
		} else if found := n.count(tasks); !found && slices.Contains(g.Flow.Last, id) {
			if n.State = "pending"; g.State.Terminal() {
				n.State, n.Reason = "skipped", "the document ended before"
			}
		} else if !found && !slices.Contains(g.Flow.Tasks, id) {
			n.Shared, n.within = true, runsWithin(id, g.Flow, nodes)
			n.Shared = n.count(tasks)
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

// whyWaits returns the outcome of the last attempt of a waiting node's task, and
// its code, or "".
func (s *Server) whyWaits(ctx context.Context, tasks []sheaf.Task, n *RunNode) (reason, code string, err error) {
	i := slices.IndexFunc(tasks, func(t sheaf.Task) bool {
		return t.State == sheaf.TaskRetryWait && (t.Kind == sheaf.KindDataflow && t.Node == n.ID || n.Pool == "" && t.Kind != sheaf.KindDataflow)
	})
	if i < 0 {
		return n.Reason, "", nil
	}
	events, err := s.cfg.Catalog.TaskEvents(ctx, tasks[i].TenantID, tasks[i].ID)
	if err != nil {
		return "", "", err
	}
	for _, e := range slices.Backward(events) {
		if (e.Kind == sheaf.EventSnoozed || e.Kind == sheaf.EventFailed) && e.Text != "" {
			var why sheaf.Failure
			_ = json.Unmarshal(e.Detail, &why) // events of earlier versions have no detail
			return e.Text, why.Code, nil
		}
	}
	return n.Reason, "", nil
}

// order ranks states: a node takes the first one that any of its ranges is in.
var order = []string{"failed", "canceled", "running", "retry_wait", "pending", "parked", "done", "skipped"}

// has reports whether a task belongs to a node: its own, or the ranges'.
func (n *RunNode) has(t *sheaf.Task) bool {
	if t.State == sheaf.TaskSuperseded {
		return false
	}
	if n.Shared && n.within != "" {
		return t.Kind == sheaf.KindDataflow && t.Node == n.within
	}
	if n.Shared {
		return t.Kind == sheaf.KindParse || t.Kind == sheaf.KindIndex
	}
	return t.Kind == sheaf.KindDataflow && t.Node == n.ID
}

// stateOf maps a task's state to a node's, with the reason if it was skipped.
func stateOf(t *sheaf.Task) (state, reason string) {
	switch out := t.Result.Output; {
	case t.State == sheaf.TaskDead:
		return "failed", ""
	case t.State == sheaf.TaskScheduled:
		return "pending", ""
	case out != nil && out.Skipped != "":
		return "skipped", out.Skipped
	}
	return string(t.State), ""
}

// took returns how long a task's last attempt ran, in milliseconds.
func took(t *sheaf.Task) int64 {
	if t.StartedAt.IsZero() || !t.FinishedAt.After(t.StartedAt) {
		return 0
	}
	return int64(t.FinishedAt.Sub(t.StartedAt) / time.Millisecond)
}

// tasks lists the node's tasks.
func (n *RunNode) tasks(all []sheaf.Task) []RunTask {
	out := []RunTask{}
	for i := range all {
		t := &all[i]
		if !n.has(t) || len(out) == maxRunTasks {
			continue
		}
		r := RunTask{ID: t.ID, Attempts: t.Attempts, Reused: t.Result.Reused, MS: took(t), Chunks: t.Result.Chunks, Failure: t.Failure}
		r.State, r.Reason = stateOf(t)
		if t.Range != (sheaf.Range{}) {
			r.Range = &[2]int{t.Range.From, t.Range.To}
		}
		if o := t.Result.Output; o != nil {
			r.Chunks, r.Bytes, r.Name, r.Digest = o.Chunks, o.Bytes, o.Name, o.Digest
		}
		out = append(out, r)
	}
	return out
}

// count sums the tasks of a node and reports whether there are any.
func (n *RunNode) count(tasks []sheaf.Task) bool {
	for i := range tasks {
		t := &tasks[i]
		if !n.has(t) {
			continue
		}
		state, skipped := stateOf(t)
		out := t.Result.Output
		n.Reason = cmp.Or(skipped, n.Reason)
		if n.Ranges == 0 || slices.Index(order, state) < slices.Index(order, n.State) {
			n.State = state
		}
		n.Ranges++
		n.Pool, n.Attempts = t.Pool, n.Attempts+t.Attempts
		if t.State == sheaf.TaskDone {
			n.Done++
		}
		if t.Result.Reused {
			n.Reused++
		}
		if out != nil {
			n.Chunks, n.Bytes = n.Chunks+out.Chunks, n.Bytes+out.Bytes
		}
		n.MS += took(t)
		if n.Reason == "" && t.State == sheaf.TaskRetryWait && t.Failure != nil {
			n.Reason = t.Failure.Message
		}
		if out != nil {
			n.ask(out.Asked)
		}
		if out != nil && out.Media != "" && t.State == sheaf.TaskDone && t.Result.ArtifactKey != "" && len(n.Files) < maxRunFiles {
			n.Files = append(n.Files, RunFile{
				Range: [2]int{t.Range.From, t.Range.To}, Media: out.Media, Chunks: out.Chunks, Bytes: out.Bytes, Key: t.Result.ArtifactKey,
				Path: "/v1/datasets/" + t.DatasetID + "/documents/" + t.DocumentID + "/artifacts/" + t.Result.RangeID,
			})
		}
		if n.Failure == nil && t.Failure != nil && (t.State == sheaf.TaskDead || out != nil && out.Failed) {
			n.Failure = t.Failure
		}
	}
	return n.Ranges > 0
}
