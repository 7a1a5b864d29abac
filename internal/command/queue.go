package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

func (g *global) queueCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "queue", Short: "Look at the queue, and act on dead tasks",
		Example: "  sheaf queue stats\n  sheaf queue dead\n  sheaf queue retry --code parse_timeout --dry-run"})
	var everyone bool
	stats := &cobra.Command{
		Use: "stats", Example: "  sheaf queue stats\n  sheaf queue stats --all-tenants --json", Short: "Show depth, age and running tasks per tenant and lane", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var list api.List[taskstore.TenantQueue]
			path := "/v1/queues"
			if everyone {
				path = "/v1/admin/queues?limit=1000"
			}
			if err := c.call(cmd.Context(), http.MethodGet, path, nil, &list); err != nil {
				return err
			}
			if list.NextCursor != nil {
				g.note("These are the first %s by id.", count(len(list.Items), "tenant"))
			}
			if g.json {
				return g.printJSON(list)
			}
			for _, q := range list.Items {
				if slices.ContainsFunc(q.Lanes, func(l taskstore.LaneDepth) bool { return l.Pending > 0 }) && q.Running >= q.Cap && !q.Paused {
					g.note("%s is at its cap of %s: others of its tasks run when these end, whatever the number of executors. `sheaf tenant set %s --cap NUMBER` changes it; 0 follows the fleet.", q.TenantID, count(q.Cap, "task"), quoted(q.TenantID))
				}
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintln(w, "TENANT\tLANE\tPENDING\tCOST\tOLDEST\tRUNNING\tLATER\tRETRY\tPARKED\tDEAD\tCAP\tWEIGHT")
				for _, q := range list.Items {
					for _, l := range q.Lanes {
						fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", q.TenantID, lanes[min(max(int(l.Lane), 1), 3)-1], l.Pending, l.Cost, seconds(l.OldestPendingAge), q.Running, q.Scheduled, q.RetryWait, q.Parked, q.Dead, q.Cap, q.Weight)
					}
				}
			})
		},
	}
	stats.Flags().BoolVar(&everyone, "all-tenants", false, "of every tenant; needs a key with the scope admin")
	var kind, code, category, document, job, tenant string
	var allTenants bool
	var p paging
	// whose is the path prefix: the key's own tenant, or any tenant.
	whose := func() string {
		if allTenants || tenant != "" {
			return "/v1/admin"
		}
		return "/v1"
	}
	filters := func(c *cobra.Command) {
		c.Flags().BoolVar(&allTenants, "all-tenants", false, "of every tenant; needs a key with the scope admin")
		c.Flags().StringVar(&tenant, "tenant", "", "of this tenant; needs a key with the scope admin")
		c.Flags().StringVar(&kind, "kind", "", "only tasks of this kind, such as parse")
		c.Flags().StringVar(&code, "code", "", "only tasks that failed with this code, such as parse_timeout")
		c.Flags().StringVar(&category, "category", "", "only failures of this class, such as parser_crash")
		c.Flags().StringVar(&document, "document", "", "only tasks of the document with this `ID`")
		c.Flags().StringVar(&job, "job", "", "only tasks of this `JOB`")
		g.complete(c, "job", g.jobIDs)
	}
	dead := func(verb, short, example string) *cobra.Command {
		var sure confirmation
		var all bool
		c := &cobra.Command{
			Use: verb + " [TASK…]", Short: short, Example: example, Args: needs(0, -1, ""),
			RunE: func(cmd *cobra.Command, ids []string) error {
				some := len(ids) > 0 || kind+code+category+document+job+tenant != ""
				if !some && !all || len(ids) > 0 && all {
					return usageError{cured(errors.New("say which dead tasks"), "Name them, choose them by --job, --document, --kind, --code or --category, or give --all.")}
				}
				body := map[string]any{}
				if !some {
					body["all"] = true
				}
				if len(ids) > 0 {
					body["ids"] = ids
				}
				for name, value := range map[string]string{"kind": kind, "code": code, "category": category, "document_id": document, "job_id": job, "tenant_id": tenant} {
					if value != "" {
						body[name] = value
					}
				}
				c, err := g.client()
				if err != nil {
					return err
				}
				path := whose() + "/dead-letters:" + verb
				var r api.Count
				if sure.dryRun || verb == "purge" {
					body["dry_run"] = true
					if err := c.call(cmd.Context(), http.MethodPost, path, body, &r); err != nil {
						return err
					}
					if sure.dryRun {
						return g.done(r, "Nothing was changed. This would %s %s.", verb, count(r.Count, "dead task"))
					}
					if r.Count > 0 {
						if err := g.ask(sure, "Remove "+count(r.Count, "dead task")+"? Their documents keep what was read."); err != nil {
							return err
						}
					}
					delete(body, "dry_run")
				}
				if err := c.call(cmd.Context(), http.MethodPost, path, body, &r); err != nil {
					return err
				}
				done := "Gave %s a new budget."
				if verb == "purge" {
					done = "Removed %s."
				}
				return g.done(r, done, count(r.Count, "dead task"))
			},
		}
		filters(c)
		c.Flags().BoolVar(&all, "all", false, "all dead tasks")
		if verb == "purge" {
			sure.flags(c)
		} else {
			sure.dryFlag(c)
		}
		return c
	}
	var files bool
	list := &cobra.Command{
		Use: "dead [TASK]", Short: "List dead tasks, or show all that is known of one", Args: needs(0, 1, "one TASK"), Example: "  sheaf queue dead\n  sheaf queue dead --category parser_crash\n  sheaf queue dead TASK",
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(ids) == 1 && tenant != "" {
				return g.showTask(cmd.Context(), c, "/v1/admin/tenants/"+url.PathEscape(tenant)+"/tasks/"+url.PathEscape(ids[0]))
			}
			if len(ids) == 1 {
				return g.showTask(cmd.Context(), c, "/v1/tasks/"+url.PathEscape(ids[0]))
			}
			query := url.Values{}
			for name, value := range map[string]string{"kind": kind, "code": code, "category": category, "document": document, "job": job, "tenant": tenant} {
				if value != "" {
					query.Set(name, value)
				}
			}
			items, next, err := pages[api.AnyTenantsTask](cmd.Context(), c, whose()+"/dead-letters", query, p) // TenantID is empty when only one tenant's are listed
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[api.AnyTenantsTask]{Items: listed(items).Items, NextCursor: next})
			}
			if all := len(items); !files && kind+code+category+document+job == "" {
				items = slices.DeleteFunc(items, func(t api.AnyTenantsTask) bool { return ofItsFile(t.Failure) })
				if n := all - len(items); n > 0 {
					are, them := "are", "them"
					if n == 1 {
						are, them = "is", "it"
					}
					defer g.note("%s failed because of the file itself and %s left out; --files lists %s, and `sheaf docs --issues` the documents.", count(n, "task"), are, them)
				}
			}
			defer g.more(next)
			return g.table(func(w io.Writer) {
				owner := func(string) string { return "" }
				if whose() != "/v1" {
					owner = func(tenant string) string { return tenant + "\t" }
				}
				fmt.Fprintln(w, owner("TENANT")+"TASK\tDOCUMENT\tKIND\tRANGE\tATTEMPTS\tCODE\tMESSAGE")
				for _, t := range items {
					at, why, msg := "", "", ""
					if t.Range != nil {
						at = t.Range.String()
					}
					if t.Failure != nil {
						why, msg = t.Failure.Code, t.Failure.Message
					}
					fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%d\t%s\t%s\n", owner(t.TenantID), t.ID, t.DocumentID, t.Kind, at, t.Attempts, why, excerpt(msg, 80))
				}
			})
		},
	}
	filters(list)
	list.Flags().BoolVar(&files, "files", false, "list tasks that failed because of their file, too: locked, damaged, empty or of an unknown format")
	p.flags(list, 200, "dead tasks")
	var sure confirmation
	cancel := &cobra.Command{
		Use: "cancel TASK…", Short: "Stop single tasks; their documents go on without them", Args: needs(1, -1, "a TASK; `sheaf doc cancel --all -d DATASET` stops documents, and `sheaf jobs cancel JOB` a job"),
		Example: "  sheaf queue cancel TASK --dry-run\n  sheaf queue cancel TASK",
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var sum api.CanceledTask
			for _, id := range ids {
				var r api.CanceledTask
				if err := c.call(cmd.Context(), http.MethodPost, "/v1/tasks/"+url.PathEscape(id)+":cancel?dry_run="+strconv.FormatBool(sure.dryRun), nil, &r); err != nil {
					return noTask(err)
				}
				sum.Queued, sum.Running, sum.DryRun = sum.Queued+r.Queued, sum.Running+r.Running, r.DryRun
			}
			if sure.dryRun {
				return g.done(sum, "Nothing was changed. This would cancel %s and ask %s to stop.", count(sum.Queued, "waiting task"), count(sum.Running, "running one"))
			}
			return g.done(sum, "Canceled %s and asked %s to stop. `sheaf queue retry TASK` brings a task back.", count(sum.Queued, "waiting task"), count(sum.Running, "running one"))
		},
	}
	sure.dryFlag(cancel)
	var retention time.Duration
	var dry bool
	cleanup := &cobra.Command{
		Use: "cleanup", Example: "  sheaf queue cleanup --retention 7d --dry-run", Short: "Remove old events and tasks of old generations (opens the store itself)", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), dry, func(ctx context.Context, s *sqlstore.Store) error {
				sum, _, err := taskstore.CleanUp(ctx, s, retention, 10_000, dry)
				if err != nil {
					return err
				}
				return g.printJSON(sum)
			})
		},
	}
	cleanup.Flags().Var(&days{&retention}, "retention", "keep what is younger, such as 7d or 36h")
	cleanup.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed")
	retention = 7 * 24 * time.Hour
	cmd.AddCommand(stats, list, dead("retry", "Give dead tasks a new budget", "  sheaf queue retry TASK\n  sheaf queue retry --code index_read_only\n  sheaf queue retry --job JOB --dry-run"),
		dead("purge", "Remove dead tasks", "  sheaf queue purge --code invalid_pdf --dry-run"), cancel, cleanup)
	return cmd
}

// days is a duration flag that also accepts days.
type days struct{ d *time.Duration }

func (v *days) String() string {
	if v.d == nil || *v.d == 0 {
		return "7d"
	}
	return v.d.String()
}

func (v *days) Type() string { return "duration" }

func (v *days) Set(s string) error {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		h, err := time.ParseDuration(n + "h")
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 7d or 36h", s)
		}
		*v.d = 24 * h
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 7d or 36h", s)
	}
	*v.d = d
	return nil
}

func noTask(err error) error {
	return listedBy(err, "`sheaf queue dead` lists the dead tasks, `sheaf doc show DOCUMENT` those of a document.")
}

// showTask prints the history of a task: each attempt with its worker, time and
// outcome, and the parser's last output.
func (g *global) showTask(ctx context.Context, c *client, path string) error {
	var t api.TaskHistory
	if err := c.call(ctx, http.MethodGet, path, nil, &t); err != nil {
		return noTask(err)
	}
	if g.json {
		return g.printJSON(t)
	}
	what := string(t.Kind)
	if t.Range != nil {
		what += " " + string(t.Unit) + " " + t.Range.String()
	}
	fmt.Fprintf(g.out, "%s of document %s, generation %d: %s\n", what, t.DocumentID, t.Generation, t.State)
	if t.Content != "" {
		fmt.Fprintf(g.out, "file: %s\n", t.Content)
	}
	if t.Failure != nil {
		fmt.Fprintf(g.out, "%s (%s): %s\n", t.Failure.Code, t.Failure.Category, t.Failure.Message)
	}
	if err := g.table(func(w io.Writer) {
		fmt.Fprintln(w, "\nSTARTED\tENDED\tWORKER\tOUTCOME\tCODE\tTEXT")
		for _, a := range t.Tries {
			ended, code := moment(a.EndedAt), ""
			if a.Failure != nil {
				code = a.Failure.Code
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", moment(a.StartedAt), ended, a.Worker, a.Outcome, code, excerpt(a.Text, 80))
		}
	}); err != nil {
		return err
	}
	for _, a := range t.Tries {
		for _, o := range a.Output {
			fmt.Fprintf(g.out, "\n%s %s (%s), the parser's last lines:\n%s\n", t.Unit, sheaf.Range{From: o.From, To: o.To}, o.Code, strings.TrimSpace(o.Lines))
		}
	}
	if t.Failure != nil && t.Failure.Detail != "" {
		fmt.Fprintf(g.out, "\n%s\n", strings.TrimSpace(t.Failure.Detail))
	}
	return nil
}

// ofItsFile reports whether a task died because of its file, which only the
// uploader can fix. The web page omits the same ones.
func ofItsFile(f *sheaf.Failure) bool {
	if f == nil || f.Category == sheaf.CategoryEncrypted {
		return f != nil
	}
	return f.Category == sheaf.CategoryBadInput && !operators.MatchString(f.Code)
}

// operators matches bad-input codes that a setting or installed program fixes.
var operators = regexp.MustCompile(`^(too_|zip_bomb$|text_too_long$|range_too_large$|part_missing$|needs_ocr$|(embed|chat|rerank)_)`)
