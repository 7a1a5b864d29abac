package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/buildinfo"
	"sheaf/taskstore"
)

// serverStatus is the output of `sheaf status`.
type serverStatus struct {
	URL          string                    `json:"url"`
	Server       buildinfo.Info            `json:"server"`
	Status       string                    `json:"status"` // from /readyz
	Dependencies map[string]api.Dependency `json:"dependencies"`
	Executors    int                       `json:"executors"`
	Slots        int                       `json:"slots"`
	Running      int                       `json:"running"` // tasks
	Pending      int                       `json:"pending"`
	Dead         int                       `json:"dead"`
	Paused       bool                      `json:"paused"`
	Datasets     []sheaf.Dataset           `json:"datasets"` // at most 1,000
	Jobs         []sheaf.Job               `json:"jobs"`     // unfinished ones among the newest 100
}

func (g *global) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the server, its queue and unfinished jobs", Args: needs(0, 0, ""),
		Example: "  sheaf status\n  sheaf status --json | jq .pending",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			s := serverStatus{URL: c.base}
			if err := c.call(ctx, http.MethodGet, "/v1/info", nil, &s.Server); err != nil {
				return err
			}
			if err := c.readiness(cmd, &s); err != nil {
				return err
			}
			var executors api.List[taskstore.WorkerStatus]
			var queues api.List[taskstore.TenantQueue]
			var jobs api.List[sheaf.Job]
			for path, into := range map[string]any{"/v1/executors": &executors, "/v1/queues": &queues, "/v1/jobs?limit=100&state=unstarted&state=queued&state=running&state=canceling": &jobs} {
				if err := c.call(ctx, http.MethodGet, path, nil, into); err != nil {
					return err
				}
			}
			datasets, _, err := pages[sheaf.Dataset](ctx, c, "/v1/datasets", nil, paging{})
			if err != nil {
				return err
			}
			if jobs.NextCursor != nil {
				g.note("Older jobs may be at work, too: `sheaf jobs --state queued,running` lists them.")
			}
			s.Executors, s.Datasets, s.Jobs = len(executors.Items), listed(datasets).Items, listed(jobs.Items).Items
			for _, e := range executors.Items {
				s.Slots += e.Slots
			}
			for _, q := range queues.Items {
				s.Running, s.Dead, s.Paused = s.Running+q.Running, s.Dead+q.Dead, s.Paused || q.Paused
				for _, l := range q.Lanes {
					s.Pending += l.Pending
				}
			}
			if g.json {
				err = g.printJSON(s)
			} else {
				err = g.printStatus(&s)
			}
			if err == nil && s.Status == "unready" {
				err = errors.New("the server is not ready")
			}
			return err
		},
	}
}

// readiness reads /readyz, which answers 503 when unready.
func (c *client) readiness(cmd *cobra.Command, s *serverStatus) error {
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var r api.Readiness
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&r); err != nil {
		return fmt.Errorf("reading the answer of /readyz: %w", err)
	}
	s.Status, s.Dependencies = r.Status, r.Dependencies
	return nil
}

func (g *global) printStatus(s *serverStatus) error {
	state := s.Status
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if d := s.Dependencies[name]; !d.OK {
			state += fmt.Sprintf("; %s: %s", name, d.Error)
		}
	}
	queue := fmt.Sprintf("%s pending, %s running", count(s.Pending, "task"), number(s.Running))
	if s.Dead > 0 {
		queue += fmt.Sprintf(", %s dead (`sheaf queue dead`)", number(s.Dead))
	}
	if s.Paused {
		queue += ", paused"
	}
	work := fmt.Sprintf("%s, %s", count(s.Executors, "executor"), count(s.Slots, "slot"))
	if s.Executors == 0 {
		work = "none: nothing will be parsed; start one with `sheaf executor`"
	}
	documents, chunks := 0, 0
	for _, d := range s.Datasets {
		documents, chunks = documents+d.Documents, chunks+d.Chunks
	}
	if err := g.table(func(w io.Writer) {
		fmt.Fprintf(w, "server\t%s\nversion\t%s\nstate\t%s\nexecutors\t%s\nqueue\t%s\n", s.URL, s.Server, state, work, queue)
		fmt.Fprintf(w, "holds\t%s, %s, %s\n", count(len(s.Datasets), "dataset"), count(documents, "document"), count(chunks, "chunk"))
	}); err != nil {
		return err
	}
	if len(s.Jobs) == 0 {
		return nil
	}
	fmt.Fprintln(g.out)
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "JOB\tSTATE\tDONE\tPROGRESS")
		for i := range s.Jobs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Jobs[i].ID, jobWord(&s.Jobs[i]), jobShare(&s.Jobs[i]), sumOf([]*sheaf.Job{&s.Jobs[i]}).line(0))
		}
	})
}
