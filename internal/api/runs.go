package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"sheaf"
	"sheaf/internal/flow"
	"sheaf/taskstore"
)

// FlowRun is one execution of a flow over a version of a document. Its states are
// those of the tasks at this moment.
type FlowRun struct {
	Generation    int                 `json:"generation"`
	Flow          string              `json:"flow" doc:"name and version"`
	Mode          string              `json:"mode" enum:"whole,nodes" doc:"whole: one task a range runs all nodes; nodes: nodes have tasks of their own"`
	Reason        string              `json:"reason" doc:"why this mode, in a sentence"`
	State         sheaf.DocumentState `json:"state"`
	Nodes         []RunNode           `json:"nodes" nullable:"false" doc:"in the order in which they run"`
	UnservedPools []string            `json:"unserved_pools,omitempty" doc:"pools in which tasks of the run wait and that no executor serves"`
}

// RunNode is a node of a run.
type RunNode struct {
	ID       string         `json:"id"`
	State    string         `json:"state" enum:"parked,pending,running,retry_wait,done,skipped,failed,canceled,reused" doc:"of the range that is furthest behind; reused: nothing that it makes was needed again"`
	Reason   string         `json:"reason,omitempty" doc:"why it is skipped, or what it waits for"`
	Pool     string         `json:"pool,omitempty"`
	Ranges   int            `json:"ranges" doc:"of the document that it works on, each by a task"`
	Done     int            `json:"done" doc:"ranges that are done, skipped ones included"`
	Reused   int            `json:"reused" doc:"ranges whose output was there"`
	Attempts int            `json:"attempts"`
	Chunks   int            `json:"chunks" doc:"in its outputs"`
	Bytes    int64          `json:"bytes" doc:"of its outputs"`
	MS       int64          `json:"ms" doc:"that its tasks took together"`
	Failure  *sheaf.Failure `json:"failure,omitempty" doc:"of the first range that failed for good"`
	Asked    *sheaf.Asked   `json:"asked,omitempty" doc:"of a language model"`
	Files    []RunFile      `json:"files,omitempty" doc:"that an export has left, by range; at most 1,000"`
}

// RunFile is a file of a node.
type RunFile struct {
	Range  [2]int `json:"range" doc:"units, from 1, both ends included"`
	Media  string `json:"media"`
	Chunks int    `json:"chunks"`
	Bytes  int64  `json:"bytes"`
	Key    string `json:"key" doc:"in the blob store, below blob.prefix"`
	Path   string `json:"path" doc:"of the bytes, in this API"`
}

const maxRunFiles = 1000

func (s *Server) runRoutes() {
	op := get("/v1/datasets/{ds}/documents/{doc}/run", "Read the run of a flow over a document")
	op.Description = "How the flow of the document runs, and the states of its nodes. 404 until its plan is made."
	handle(s, op, func(ctx context.Context, in *struct {
		DocumentPath
		Generation int `query:"generation" minimum:"1" doc:"default: the newest"`
	}) (*output[FlowRun], error) {
		d, err := s.document(ctx, in.DocumentPath)
		if err != nil {
			return nil, err
		}
		gens, err := s.cfg.Catalog.Generations(ctx, d.TenantID, d.ID)
		if err != nil {
			return nil, err
		}
		n := cmp.Or(in.Generation, d.Generation)
		i := slices.IndexFunc(gens, func(g sheaf.Generation) bool { return g.Generation == n })
		if i < 0 {
			return nil, noVersion(d, n)
		}
		if g := &gens[i]; g.Flow == nil {
			if name, _, _ := strings.Cut(g.ParseConfig.Flow.V, "@"); name != "" && name != flow.StandardName {
				return nil, newProblem(http.StatusNotFound, "no_run", "no plan has decided yet how the flow runs over this version, or it was made from what an older one left; ask again, or for another generation")
			}
			g.Flow = &sheaf.FlowDecision{Ref: flow.StandardName + "@1", Mode: string(flow.ModeWhole), Reason: "The standard pipeline runs in one task a range."}
			for _, n := range flow.StandardFlow().Nodes {
				g.Flow.Nodes = append(g.Flow.Nodes, n.ID)
			}
		}
		tasks, err := s.cfg.Catalog.Tasks(ctx, d.TenantID, d.ID, n)
		if err != nil {
			return nil, err
		}
		run := runOf(&gens[i], tasks)
		if !run.State.Terminal() {
			if run.UnservedPools, err = s.cfg.Catalog.JobWaitsFor(ctx, gens[i].JobID, d.ID, taskstore.UnservedAfter); err != nil {
				return nil, err
			}
			for i := range run.Nodes {
				if node := &run.Nodes[i]; node.State == "retry_wait" {
					if node.Reason, err = s.whyWaits(ctx, tasks, node); err != nil {
						return nil, err
					}
				}
				if node := &run.Nodes[i]; node.State == "pending" && slices.Contains(run.UnservedPools, node.Pool) {
					node.Reason = fmt.Sprintf("No executor serves the pool %s. Start one with executor.pools = %s.", node.Pool, node.Pool)
				}
			}
		}
		return &output[FlowRun]{run}, nil
	})
}

// runOf says where a run is, by its tasks.
func runOf(g *sheaf.Generation, tasks []sheaf.Task) FlowRun {
	out := FlowRun{Generation: g.Generation, Flow: g.Flow.Ref, Mode: g.Flow.Mode, Reason: g.Flow.Reason, State: g.State, Nodes: []RunNode{}}
	for _, id := range g.Flow.Nodes {
		n := RunNode{ID: id, State: "reused"}
		if reason, skipped := g.Flow.Skipped[id]; skipped {
			n.State, n.Reason = "skipped", reason
		} else if !n.count(tasks, func(t *sheaf.Task) bool { return t.Kind == sheaf.KindDataflow && t.Node == id }) && !slices.Contains(g.Flow.Tasks, id) {
			// The task of the range runs it.
			n.count(tasks, func(t *sheaf.Task) bool { return t.Kind == sheaf.KindParse || t.Kind == sheaf.KindIndex })
		}
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

// whyWaits is what the last attempt of a task of a node that waits ended with.
func (s *Server) whyWaits(ctx context.Context, tasks []sheaf.Task, n *RunNode) (string, error) {
	i := slices.IndexFunc(tasks, func(t sheaf.Task) bool {
		return t.State == sheaf.TaskRetryWait && (t.Kind == sheaf.KindDataflow && t.Node == n.ID || n.Pool == "" && t.Kind != sheaf.KindDataflow)
	})
	if i < 0 {
		return n.Reason, nil
	}
	events, err := s.cfg.Catalog.TaskEvents(ctx, tasks[i].TenantID, tasks[i].ID)
	if err != nil {
		return "", err
	}
	for _, e := range slices.Backward(events) {
		if (e.Kind == sheaf.EventSnoozed || e.Kind == sheaf.EventFailed) && e.Text != "" {
			return e.Text, nil
		}
	}
	return n.Reason, nil
}

// order is how far behind a state is: of several ranges the first counts.
var order = []string{"failed", "canceled", "running", "retry_wait", "pending", "parked", "done", "skipped"}

// count adds up the tasks of a node and reports whether there are any.
func (n *RunNode) count(tasks []sheaf.Task, mine func(t *sheaf.Task) bool) bool {
	for i := range tasks {
		t := &tasks[i]
		if !mine(t) || t.State == sheaf.TaskSuperseded {
			continue
		}
		state, out := string(t.State), t.Result.Output
		switch {
		case t.State == sheaf.TaskDead:
			state = "failed"
		case t.State == sheaf.TaskScheduled:
			state = "pending"
		case out != nil && out.Skipped != "":
			state, n.Reason = "skipped", out.Skipped
		}
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
		if !t.StartedAt.IsZero() && t.FinishedAt.After(t.StartedAt) {
			n.MS += int64(t.FinishedAt.Sub(t.StartedAt) / time.Millisecond)
		}
		if n.Reason == "" && t.State == sheaf.TaskRetryWait && t.Failure != nil {
			n.Reason = t.Failure.Message
		}
		if out != nil && out.Asked != nil {
			if n.Asked == nil {
				n.Asked = &sheaf.Asked{}
			}
			n.Asked.Calls, n.Asked.Cached, n.Asked.Tokens = n.Asked.Calls+out.Asked.Calls, n.Asked.Cached+out.Asked.Cached, n.Asked.Tokens+out.Asked.Tokens
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
