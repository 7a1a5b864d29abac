package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	_ "modernc.org/sqlite"

	"sheaf"
	"sheaf/internal/blob/file"
)

// flowWorld is what the checks of flows look at, as it is after a run without
// faults: a node's output, the run of a document, runs over a dataset.
type flowWorld struct {
	*checker
	t     *testing.T
	blobs *file.Store
	run   map[string]any // that the API answers
}

const flowOutput = "what a node left"

func newFlowWorld(t *testing.T) *flowWorld {
	t.Helper()
	w := &flowWorld{t: t}
	node := func(id string) map[string]any {
		return map[string]any{"id": id, "state": "done", "ranges": 2, "done": 2}
	}
	w.run = map[string]any{"state": sheaf.DocSucceeded, "mode": "nodes", "nodes": []any{node("read"), node("cut"), node("keep"), node("rare"), node("out"), node("over")}}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(rw).Encode(w.run) }))
	t.Cleanup(api.Close)
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/flows.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if w.blobs, err = file.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	l := &load{urls: []string{api.URL}, keys: map[string]string{}, http: api.Client(), rng: rand.New(rand.NewPCG(1, 1)), stopping: map[string]bool{"stopped": true}, stopped: map[string]bool{"stopped": true},
		docs: []*document{{id: "doc", tenant: "t", flow: flowName(0)}, {id: "standard", tenant: "t"}, {id: "deleted", tenant: "t", flow: flowName(0), deleted: true}}}
	w.checker = &checker{e: &engines{db: db}, l: l}
	for _, q := range []string{
		"CREATE TABLE documents (id TEXT, live_gen INTEGER, deleted_at INTEGER)",
		"CREATE TABLE tasks (id TEXT, tenant_id TEXT, doc_id TEXT, gen INTEGER, kind TEXT, state TEXT, artifact_key TEXT, result TEXT, failure_code TEXT, node TEXT NOT NULL DEFAULT '')",
		"CREATE TABLE run_results (range_id TEXT, doc_id TEXT, kind TEXT)",
		"CREATE TABLE run_result_sources (range_id TEXT, doc_id TEXT, gen INTEGER)",
		"INSERT INTO run_results VALUES ('run-map', 'doc', 'mindmap')",
		"INSERT INTO run_result_sources VALUES ('run-map', 'doc', 2)",
		"CREATE TABLE dataset_runs (id TEXT, kind TEXT, outcome TEXT, cause TEXT, task_id TEXT)",
		"INSERT INTO documents VALUES ('doc', 2, 0)",
		"INSERT INTO tasks VALUES ('over', 't', 'doc', 2, 'dataflow', 'done', '', '', '', 'over')",
		"INSERT INTO tasks VALUES ('old', 't', 'doc', 1, 'dataflow', 'done', 'gone', '{}', '', '')", // of a version that is not live
		"INSERT INTO tasks VALUES ('run', 't', '', 0, 'raptor', 'done', '', '', '', ''), ('lost', 't', '', 0, 'raptor', 'dead', '', '', 'worker_lost', ''), ('end', 't', '', 0, 'raptor', 'canceled', '', '', '', '')",
		"INSERT INTO dataset_runs VALUES ('good', 'raptor', 'succeeded', '', 'run'), ('unlucky', 'raptor', '', '', 'lost'), ('stopped', 'raptor', '', '', 'end')",
	} {
		w.exec(q)
	}
	b, err := json.Marshal(sheaf.TaskResult{Output: &sheaf.NodeOutput{Digest: fmt.Sprintf("%016x", xxhash.Sum64String(flowOutput)), Bytes: int64(len(flowOutput))}})
	if err != nil {
		t.Fatal(err)
	}
	w.exec("INSERT INTO tasks VALUES ('node', 't', 'doc', 2, 'dataflow', 'done', 'key', ?, '', 'keep')", string(b))
	w.put(flowOutput)
	return w
}

func (w *flowWorld) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.e.db.ExecContext(w.t.Context(), query, args...); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
}

func (w *flowWorld) put(text string) {
	w.t.Helper()
	if _, err := w.blobs.Put(w.t.Context(), "key", bytes.NewReader([]byte(text)), int64(len(text))); err != nil {
		w.t.Fatal(err)
	}
}

func (w *flowWorld) node(i int) map[string]any { return w.run["nodes"].([]any)[i].(map[string]any) }

// Each check of flows fails when the fault that it looks for is planted, and none
// without.
func TestPlantedFaultsOfFlowsAreFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(w *flowWorld)
		says  string // "" for nothing
	}{
		{"none", func(*flowWorld) {}, ""},
		{"an output is gone", func(w *flowWorld) {
			if err := w.blobs.Delete(w.t.Context(), "key"); err != nil {
				w.t.Fatal(err)
			}
		}, "is not what was written: 0 bytes"},
		{"an output has other bytes", func(w *flowWorld) { w.put(strings.ToUpper(flowOutput)) }, "is not what was written"},
		{"an output is cut off", func(w *flowWorld) { w.put(flowOutput[:3]) }, "is not what was written: 3 bytes"},
		{"a node is done without an output", func(w *flowWorld) { w.exec("UPDATE tasks SET result='{}' WHERE id='node'") }, "is done without an output"},
		{"a document succeeds without a range of a node", func(w *flowWorld) { w.node(2)["done"] = 1 }, "node keep of document doc, which succeeded, has done 1 of 2"},
		{"a node is counted twice", func(w *flowWorld) { w.run["nodes"] = append(w.run["nodes"].([]any), w.node(1)) }, "counts the nodes [cut cut keep out over"},
		{"a node is missing", func(w *flowWorld) { w.run["nodes"] = w.run["nodes"].([]any)[:4] }, "counts the nodes [cut keep rare read]"},
		{"a result of a node over the document is gone", func(w *flowWorld) { w.exec("DELETE FROM run_result_sources") }, "the node over document doc is done, and 0 of its results"},
		{"a document goes through another flow", func(w *flowWorld) { w.run["mode"] = "whole" }, "is in the mode whole"},
		{"a run over a dataset is canceled by nobody", func(w *flowWorld) { w.exec("UPDATE tasks SET state='canceled' WHERE id='run'") }, "the run good of raptor over a dataset came to nothing"},
		{"the answer to a run's cancel is lost", func(w *flowWorld) {
			w.l.stopping["good"] = true
			w.exec("UPDATE tasks SET state='canceled' WHERE id='run'")
		}, ""},
		{"a run ends parked without a budget", func(w *flowWorld) { w.exec("UPDATE dataset_runs SET outcome='parked' WHERE id='good'") }, "the run good of raptor over a dataset came to nothing"},
		{"the task of a run is gone", func(w *flowWorld) { w.exec("DELETE FROM tasks WHERE id='run'") }, "the run good of raptor over a dataset came to nothing"},
		{"a run dies of something else", func(w *flowWorld) { w.exec("UPDATE tasks SET failure_code='internal' WHERE id='lost'") }, "the run unlucky of raptor over a dataset came to nothing"},
		{"a canceled run goes on", func(w *flowWorld) {
			w.exec("UPDATE tasks SET state='done' WHERE id='end'")
			w.exec("UPDATE dataset_runs SET outcome='succeeded' WHERE id='stopped'")
		}, "the cancel of the run stopped of raptor was answered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFlowWorld(t)
			c.plant(w)
			if err := w.nodes(t.Context(), w.blobs); err != nil {
				t.Fatal(err)
			}
			if err := w.ran(t.Context()); err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(w.found, func(v string) bool { return strings.HasPrefix(v, "flows: ") && strings.Contains(v, c.says) })
			if (c.says == "") != (len(w.found) == 0) || c.says != "" && (!found || len(w.found) > 1) {
				t.Errorf("found %q, want %q", w.found, c.says)
			}
			if c.says == "" && (w.outputs != 1 || w.flowRuns != 1 || w.ended["raptor succeeded"] != 1) {
				t.Errorf("looked at %d outputs, %d runs, %v", w.outputs, w.flowRuns, w.ended)
			}
		})
	}
}
