package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

func (g *global) jobsCommand() *cobra.Command {
	var p paging
	var wait bool
	var kinds, states []string
	var requester, query string
	cmd := &cobra.Command{
		Use: "jobs [JOB]", Aliases: []string{"job"}, Short: "List jobs, show one, or follow it to its end", Args: needs(0, 1, "one JOB"), ValidArgsFunction: g.jobIDs,
		Example: `  sheaf jobs                   # of all datasets, the newest first
  sheaf jobs -d contracts
  sheaf jobs --kind reparse --requester scanner
  sheaf jobs --query invoices  # by part of a name
  sheaf jobs JOB --wait        # follow it to its end
  sheaf jobs cancel JOB`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				job, err := c.job(ctx, url.PathEscape(args[0]), "")
				if err != nil {
					return noJob(err)
				}
				if wait {
					return g.watch(ctx, c, job)
				}
				return g.showJob(ctx, c, job)
			}
			if wait {
				return usageError{cured(fmt.Errorf("--wait needs a JOB"), "`sheaf jobs` lists them.")}
			}
			q := url.Values{}
			if cmd.Flags().Changed("dataset") {
				q.Set("dataset", g.dataset)
			}
			for _, k := range kinds {
				q.Add("kind", k)
			}
			for _, st := range states {
				q.Add("state", st)
			}
			if requester != "" {
				q.Set("requester", requester)
			}
			if query != "" {
				q.Set("q", query)
			}
			items, next, err := pages[sheaf.Job](ctx, c, "/v1/jobs", q, p)
			if err != nil {
				if isMissing(err) {
					err = g.noDataset(ctx, c, g.dataset, err)
				}
				return err
			}
			if g.json {
				return g.printJSON(api.List[sheaf.Job]{Items: listed(items).Items, NextCursor: next})
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tKIND\tSTATE\tDONE\tDOCUMENTS\tFAILED\tCREATED\tTOOK\tREQUESTER\tNAME")
				for i := range items {
					j := &items[i]
					took := ""
					if !j.FinishedAt.IsZero() && !j.StartedAt.IsZero() {
						took = span(j.FinishedAt.Sub(j.StartedAt))
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, j.Kind, jobWord(j), jobShare(j), number(j.Documents.Total), number(j.Documents.ByState[sheaf.DocFailed]), moment(j.CreatedAt), took, j.Requester, shortName(j.Name, 60))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the job to its end")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "only jobs of this kind: ingest, reparse or retry; repeat for or")
	cmd.Flags().Var(&choice{value: &states, of: jobStates, many: true}, "state", "only jobs in these `STATES`: "+strings.Join(jobStates, ", "))
	g.complete(cmd, "state", oneOf(jobStates...))
	cmd.Flags().StringVar(&requester, "requester", "", "only jobs that the key of this name asked for")
	cmd.Flags().StringVar(&query, "query", "", "only jobs whose name, or one of their first two files, holds this text")
	p.flags(cmd, 50, "jobs")
	cmd.AddCommand(g.jobCancel(), g.jobClose(), g.jobHold("pause", "Hold a job's queued work"), g.jobHold("resume", "Free a job's queued work"))
	return cmd
}

// jobStates are the possible states of a job.
var jobStates = []string{"unstarted", "queued", "running", "succeeded", "partially_succeeded", "failed", "canceling", "canceled"}

func noJob(err error) error { return listedBy(err, "`sheaf jobs` lists the jobs.") }

// jobWord is a job's state.
func jobWord(j *sheaf.Job) string {
	if j.Paused && !j.State.Terminal() {
		return "paused"
	}
	return string(j.State)
}

// jobShare is how much of a job is done; once it has ended, the share of readable
// documents, so that a failed job does not show 100 %.
func jobShare(j *sheaf.Job) string {
	if !j.State.Terminal() {
		return fmt.Sprintf("%d %%", min(int(j.Progress*100), 99))
	}
	if j.Documents.Total == 0 {
		return "–"
	}
	good := j.Documents.ByState[sheaf.DocSucceeded] + j.Documents.ByState[sheaf.DocPartiallySucceeded]
	if good == 0 {
		return "–"
	}
	return fmt.Sprintf("%d %%", good*100/j.Documents.Total)
}

// showJob prints a job and its failures.
func (g *global) showJob(ctx context.Context, c *client, job *sheaf.Job) error {
	if g.json {
		return g.printJSON(job)
	}
	out := &ingested{Jobs: []*sheaf.Job{job}, page: c.base}
	if err := out.explain(ctx, c); err != nil {
		return err
	}
	sum := sumOf(out.Jobs)
	if err := g.table(func(w io.Writer) {
		fmt.Fprintf(w, "job\t%s\nkind\t%s\nstate\t%s\ndone\t%s, %s\n", job.ID, job.Kind, jobWord(job), jobShare(job), sum.line(0))
		if job.Name != "" {
			fmt.Fprintf(w, "name\t%s\n", job.Name)
		}
		if job.Requester != "" {
			fmt.Fprintf(w, "requester\t%s\n", job.Requester)
		}
		if !job.OpenUntil.IsZero() {
			fmt.Fprintf(w, "open\tfor more files, until %s\n", moment(job.OpenUntil))
		}
		fmt.Fprintf(w, "created\t%s\n", moment(job.CreatedAt))
		if !job.FinishedAt.IsZero() {
			fmt.Fprintf(w, "finished\t%s\n", moment(job.FinishedAt))
			fmt.Fprintf(w, "took\t%s\n", span(job.FinishedAt.Sub(orTime(job.StartedAt, job.CreatedAt))))
		}
		fmt.Fprintf(w, "page\t%s\n", out.URL)
	}); err != nil {
		return err
	}
	out.printWhy(g.out)
	return nil
}

func orTime(a, b time.Time) time.Time {
	if a.IsZero() {
		return b
	}
	return a
}

// watch follows a job to its end and prints it.
func (g *global) watch(ctx context.Context, c *client, job *sheaf.Job) error {
	jobs, err := c.follow(ctx, []string{job.ID}, g.bar())
	if jobs[0] != nil {
		job = jobs[0]
	}
	if err != nil {
		return g.left(ctx, err, []*sheaf.Job{job})
	}
	if err := g.showJob(ctx, c, job); err != nil {
		return err
	}
	return (&ingested{Jobs: []*sheaf.Job{job}, files: job.Documents.Total}).err()
}

func (g *global) jobCancel() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "cancel JOB", Short: "Stop a job", Args: needs(1, 1, "a JOB"), ValidArgsFunction: g.jobIDs, SuggestFor: []string{"stop", "kill"},
		Example: "  sheaf jobs cancel JOB",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			path := "/v1/jobs/" + url.PathEscape(args[0]) + ":cancel"
			if sure.dryRun {
				path += "?dry_run=true"
			}
			var r api.CancelAnswer
			if err := c.call(cmd.Context(), http.MethodPost, path, nil, &r); err != nil {
				return noJob(err)
			}
			if sure.dryRun && r.Forecast != nil {
				return g.done(r, "Nothing was changed. This would stop %s.", count(r.Forecast.Documents, "document"))
			}
			return g.done(r, "Stopped %s: %s left the queue, %s were told to stop.", count(r.Documents, "document"), count(r.Queued, "task"), number(r.Running))
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) jobClose() *cobra.Command {
	return &cobra.Command{
		Use: "close JOB", Short: "Let an open job end with the files it has", Args: needs(1, 1, "a JOB"), ValidArgsFunction: g.jobIDs,
		Example: "  sheaf jobs close JOB",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var job sheaf.Job
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/jobs/"+url.PathEscape(args[0])+":close", nil, &job); err != nil {
				return noJob(err)
			}
			return g.done(job, "Job %s takes no more files; it ends with the %s it has.", job.ID, count(job.Documents.Total, "document"))
		},
	}
}

func (g *global) jobHold(verb, short string) *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: verb + " JOB", Short: short, Args: needs(1, 1, "a JOB"), ValidArgsFunction: g.jobIDs,
		Example: "  sheaf jobs " + verb + " JOB",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			id := url.PathEscape(args[0])
			if _, err := c.job(cmd.Context(), id, ""); err != nil {
				return noJob(err)
			}
			return g.hold(cmd.Context(), c, sure, "/v1/jobs/"+id+":"+verb, "job "+args[0])
		},
	}
	sure.dryFlag(cmd)
	return cmd
}
