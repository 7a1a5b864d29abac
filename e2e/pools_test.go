package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
)

// A node in a pool that no executor serves waits, and job, run, /readyz and a
// metric say so; an executor that serves the pool takes it, and nothing is left
// of the saying. The others' work goes on meanwhile.
func TestPoolThatNobodyServes(t *testing.T) {
	t.Parallel()
	t.Run("one process", func(t *testing.T) {
		cfg := config.Default()
		cfg.DataDir = t.TempDir()
		s := startWith(t, cfg)
		job := poolsSaid(t, s)
		var ready api.Readiness
		waitFor(t, "the metric", func() bool {
			resp, err := http.Get(s.base + "/metrics")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return strings.Contains(string(b), `sheaf_pool_unserved_tasks{pool="gpu"} 1`)
		})
		waitFor(t, "/readyz to say it", func() bool {
			s.get("/readyz", &ready)
			return slices.Equal(ready.UnservedPools, []string{"gpu"})
		})
		if ready.Status != api.Degraded || !strings.Contains(ready.Capabilities[api.CanProcess].Reason, "executor.pools = gpu") {
			t.Errorf("/readyz answers %+v", ready)
		}
		s.stop()
		cfg.Executor.Pools = []string{"default", "gpu"}
		s = startWith(t, cfg)
		poolsServed(t, s, job)
		waitFor(t, "/readyz to be ready", func() bool {
			ready = api.Readiness{}
			s.get("/readyz", &ready)
			return ready.Status == api.Ready && len(ready.UnservedPools) == 0
		})
	})
	t.Run("a fleet with Redis", func(t *testing.T) {
		f := newFleet(t)
		f.sheaf("migrate")
		f.sheaf("tenant", "create", "alpha")
		secret := f.sheaf("key", "create", "alpha", "--scope", "write")
		s := &service{client: newClient(f.serve(), secret), t: t}
		f.start("keeper")
		f.start("executor")
		job := poolsSaid(t, s)
		f.env = append(f.env, "SHEAF_EXECUTOR_POOLS=gpu")
		f.start("executor")
		poolsServed(t, s, job)
	})
}

// poolsSaid uploads a document whose flow has a node in the pool gpu, and waits
// until job and run say that nobody serves it.
func poolsSaid(t *testing.T, s *service) (jobID string) {
	t.Helper()
	var v api.FlowAnswer
	s.post("/v1/flows", map[string]any{"toml": `name = "pooled"
node = [
  { id = "read", kind = "parse" },
  { id = "cut", kind = "chunk", from = ["read"] },
  { id = "heavy", kind = "filter", from = ["cut"], pool = "gpu", config = { keep = "true" } },
  { id = "out", kind = "index", from = ["heavy"] },
]
`}, &v)
	answer, err := s.submitAnswer(t.Context(), "default", []source{text("minutes.md", "# Minutes\n\nThe quartzite was measured twice.\n")}, map[string]string{"parser_config": `{"flow":"pooled"}`}, "")
	if err != nil {
		t.Fatal(err)
	}
	path := "/v1/datasets/default/documents/" + answer.Documents[0].ID
	var run api.FlowRun
	heavy := func() (n api.RunNode) {
		run = api.FlowRun{}
		if s.call(t.Context(), http.MethodGet, path+"/run", nil, &run) != nil { // until the plan is made
			return n
		}
		return run.Nodes[slices.IndexFunc(run.Nodes, func(n api.RunNode) bool { return n.ID == "heavy" })]
	}
	waitFor(t, "the node to be pending", func() bool { return heavy().State == "pending" })
	since := time.Now()
	waitFor(t, "the run to say that nobody serves the pool", func() bool {
		n := heavy()
		return slices.Equal(run.UnservedPools, []string{"gpu"}) && strings.Contains(n.Reason, "No executor serves the pool gpu")
	})
	waitFor(t, "the job to say it", func() bool {
		job, err := s.job(t.Context(), answer.Job.ID, "")
		return err == nil && slices.Equal(job.UnservedPools, []string{"gpu"})
	})
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("it was said after %v", took)
	}
	// What needs no pool is not held up.
	other, err := s.submitAnswer(t.Context(), "default", []source{text("plain.md", "# Plain\n\nFeldspar.\n")}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if j := s.ended(other.Job.ID); j.State != sheaf.DocSucceeded || len(j.UnservedPools) != 0 {
		t.Errorf("the other job ends %s and waits for %v", j.State, j.UnservedPools)
	}
	return answer.Job.ID
}

// poolsServed waits for the job's end by an executor that serves the pool.
func poolsServed(t *testing.T, s *service, jobID string) {
	t.Helper()
	if job := s.ended(jobID); job.State != sheaf.DocSucceeded || len(job.UnservedPools) != 0 {
		t.Fatalf("the job ends %s and waits for %v", job.State, job.UnservedPools)
	}
	if found := s.findIn("default", "quartzite"); !strings.Contains(fmt.Sprint(found), "measured twice") {
		t.Errorf("search finds %q", found)
	}
}
