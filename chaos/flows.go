package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/taskstore"
)

// flows are used by a share of the documents: several nodes with separate tasks,
// and the same in one task per range. All pages pass, so that a client finds each
// one once.
var flows = []string{"nodes", "whole"}

func flowName(n int) string { return "chaos-" + flows[n] }

const flowNodes = `
[[node]]
id = "read"
kind = "parse"

[[node]]
id = "cut"
kind = "chunk"
from = ["read"]

[[node]]
id = "keep"
kind = "filter"
from = ["cut"]
config = { keep = "chunk.tokens > 0" }

[[node]]
id = "rare"
kind = "filter"
from = ["keep"]
when = "document.pages > 16"
config = { keep = "chunk.tokens > 0" }

[[node]]
id = "out"
kind = "index"
from = ["rare", "keep"]

[[node]]
id = "over"
kind = "mindmap"
from = ["out"]
`

// createFlows creates the flows for a tenant.
func (l *load) createFlows(ctx context.Context, tenant string) error {
	for i, mode := range flows {
		if err := l.post(ctx, tenant, "/v1/flows", map[string]string{"toml": fmt.Sprintf("name = %q\nmode = %q\n%s", flowName(i), mode, flowNodes)}, nil); err != nil {
			return fmt.Errorf("creating the flow %s: %w", mode, err)
		}
	}
	return nil
}

// runKinds are the runs over a dataset. Without a language model each does the part
// that needs none.
var runKinds = []sheaf.TaskKind{sheaf.KindRaptor, sheaf.KindMindmap, sheaf.KindGraphRAG}

// runOverDataset starts runs over a tenant's dataset, one kind after the other, and
// cancels some. While there is nothing to run over, or another run is active, a
// start is refused.
func (l *load) runOverDataset(ctx context.Context, tenant string) {
	runs := "/v1/datasets/" + dataset + "/"
	for i := 0; ctx.Err() == nil; i++ {
		kind := runKinds[i%len(runKinds)]
		var begun struct{ ID string }
		err := l.post(ctx, tenant, runs+string(kind), map[string]any{}, &begun)
		s, refused := errors.AsType[*status](err)
		switch {
		case err == nil && l.intn(2) == 0:
			// At once, since few runs take a second; and without retries: only an
			// answered cancel is certain.
			l.mu.Lock()
			l.stopping[begun.ID] = true
			l.mu.Unlock()
			if l.once(ctx, tenant, http.MethodPost, runs+"runs/"+begun.ID+":cancel", "application/json", "", nil, nil) == nil {
				l.mu.Lock()
				l.stopped[begun.ID] = true
				l.mu.Unlock()
			}
		case refused && s.code < 500 && s.code != http.StatusConflict && s.code != http.StatusTooManyRequests:
			l.violation("flows: a run of %s is refused: %v", kind, err)
		}
		pause(ctx, 4*time.Second)
	}
}

// nodes checks the results of flow nodes: the outputs listed by live document
// versions exist, as written, and each document's run counts a node once per range.
func (c *checker) nodes(ctx context.Context, blobs blob.Store) error {
	rs, err := c.e.db.QueryContext(ctx, `SELECT t.id, t.tenant_id, t.doc_id, t.artifact_key, t.result FROM tasks t JOIN documents d ON d.id=t.doc_id AND d.live_gen=t.gen
		WHERE d.deleted_at=0 AND t.kind='dataflow' AND t.state='done' AND t.artifact_key<>''`)
	if err != nil {
		return err
	}
	defer rs.Close()
	for rs.Next() {
		var id, tenant, doc, key, text string
		if err := rs.Scan(&id, &tenant, &doc, &key, &text); err != nil {
			return err
		}
		var result sheaf.TaskResult
		if err := json.Unmarshal([]byte(text), &result); err != nil || result.Output == nil {
			c.violation("flows: the node's task %s of document %s is done without an output (%v)", id, doc, err)
			continue
		}
		b, err := read(ctx, blobs, key)
		if err != nil && !errors.Is(err, sheaf.ErrNotFound) {
			return err
		}
		if digest := fmt.Sprintf("%016x", xxhash.Sum64(b)); err != nil || digest != result.Output.Digest || int64(len(b)) != result.Output.Bytes {
			c.violation("flows: the output of task %s of document %s is not what was written: %d bytes of %d (%v)", id, doc, len(b), result.Output.Bytes, err)
			continue
		}
		c.outputs++
	}
	if err := rs.Err(); err != nil {
		return err
	}
	// Runs over the dataset keep or replace the results of nodes over documents.
	odd, err := c.e.db.QueryContext(ctx, `SELECT d.id, (SELECT COUNT(*) FROM run_results r JOIN run_result_sources x ON x.range_id=r.range_id WHERE r.doc_id=d.id AND r.kind='mindmap' AND x.gen=d.live_gen) AS n
		FROM documents d JOIN tasks t ON t.doc_id=d.id AND t.gen=d.live_gen WHERE d.deleted_at=0 AND t.kind='dataflow' AND t.node='over' AND t.state='done'`)
	if err != nil {
		return err
	}
	defer odd.Close()
	for odd.Next() {
		var id string
		var n int
		if err := odd.Scan(&id, &n); err != nil {
			return err
		}
		if n != 1 {
			c.violation("flows: the node over document %s is done, and %d of its results are there", id, n)
		}
	}
	if err := odd.Err(); err != nil {
		return err
	}
	for _, d := range c.l.docs {
		if d.id == "" || d.flow == "" || d.deleted || d.canceled {
			continue
		}
		var run struct {
			State sheaf.DocumentState
			Mode  string
			Nodes []struct {
				ID, State    string
				Ranges, Done int
			}
		}
		if err := c.l.call(ctx, d.tenant, "GET", "/v1/datasets/"+dataset+"/documents/"+d.id+"/run", "application/json", "", nil, &run); err != nil {
			return fmt.Errorf("the run of document %s: %w", d.id, err)
		}
		var ids []string
		for _, n := range run.Nodes {
			ids = append(ids, n.ID)
			if run.State == sheaf.DocSucceeded && n.Done != n.Ranges {
				c.violation("flows: node %s of document %s, which succeeded, has done %d of %d ranges and is %s", n.ID, d.id, n.Done, n.Ranges, n.State)
			}
		}
		slices.Sort(ids)
		if want := []string{"cut", "keep", "out", "over", "rare", "read"}; !slices.Equal(ids, want) || "chaos-"+run.Mode != d.flow {
			c.violation("flows: the run of document %s through %s is in the mode %s and counts the nodes %v, want %v", d.id, d.flow, run.Mode, ids, want)
		}
		c.flowRuns++
	}
	return nil
}

// ran checks that every run over a dataset has an outcome, that a run whose cancel
// was answered stays canceled, and counts runs by kind and state. A run may fail as
// a document may: when its task was lost three times.
func (c *checker) ran(ctx context.Context) error {
	rs, err := c.e.db.QueryContext(ctx, `SELECT r.id, r.kind, r.outcome, r.cause, COALESCE(t.state,''), COALESCE(t.failure_code,'') FROM dataset_runs r LEFT JOIN tasks t ON t.id=r.task_id`)
	if err != nil {
		return err
	}
	defer rs.Close()
	c.ended = map[string]int{}
	for rs.Next() {
		var id, kind, outcome, cause, task, failure string
		if err := rs.Scan(&id, &kind, &outcome, &cause, &task, &failure); err != nil {
			return err
		}
		c.ended[kind+" "+cmp.Or(outcome, task)]++
		came := task == "done" && (outcome == string(taskstore.RunSucceeded) || outcome == string(taskstore.RunPartial))
		switch stopped := c.l.stopped[id]; {
		case stopped && task != "canceled":
			c.violation("flows: the cancel of the run %s of %s was answered, and its task is %q, the run %q", id, kind, task, outcome)
		case stopped, task == "canceled" && c.l.stopping[id]: // or canceled, and the answer was lost
		case !came && !(task == "dead" && failure == "worker_lost"):
			c.violation("flows: the run %s of %s over a dataset came to nothing: its task is %q (%s), the run %q: %s", id, kind, task, failure, outcome, cause)
		}
	}
	return rs.Err()
}

// read reads an object, of at most 16 MB.
func read(ctx context.Context, blobs blob.Store, key string) ([]byte, error) {
	r, err := blobs.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, 16<<20))
}
