package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

func (g *global) queueCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Look at and act on the queue"}
	stats := &cobra.Command{
		Use: "stats", Short: "Show depth, age and running tasks per tenant and lane", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var list api.List[sheaf.TenantQueue]
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/queues", nil, &list); err != nil {
				return err
			}
			if g.json {
				return printJSON(list.Items)
			}
			return table(func(w io.Writer) {
				fmt.Fprintln(w, "TENANT\tLANE\tPENDING\tCOST\tOLDEST\tRUNNING\tRETRY\tPARKED\tDEAD\tCAP\tWEIGHT")
				for _, q := range list.Items {
					for _, l := range q.Lanes {
						fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", q.TenantID, l.Lane, l.Pending, l.Cost, seconds(l.OldestPendingAge), q.Running, q.RetryWait, q.Parked, q.Dead, q.Cap, q.Weight)
					}
				}
			})
		},
	}
	var kind, code, category, tenant string
	var allTenants, every, dryRun bool
	// whose is the start of the paths: the key's tenant's, or any tenant's.
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
	}
	dead := func(verb, short string) *cobra.Command {
		c := &cobra.Command{
			Use: verb + " [TASK…]", Short: short,
			RunE: func(cmd *cobra.Command, ids []string) error {
				some := len(ids) > 0 || kind+code+category+tenant != ""
				switch {
				case every && len(ids) > 0:
					return errors.New("--all is for every dead task; leave out --all or the tasks")
				case !every && !some:
					return errors.New("name the tasks, choose them by --kind, --code or --category, or give --all for every dead task")
				}
				body := map[string]any{"dry_run": dryRun}
				if !some {
					body["all"] = true
				}
				if len(ids) > 0 {
					body["ids"] = ids
				}
				if kind != "" {
					body["kind"] = kind
				}
				if code != "" {
					body["code"] = code
				}
				if category != "" {
					body["category"] = category
				}
				if tenant != "" {
					body["tenant_id"] = tenant
				}
				return g.act(cmd.Context(), whose()+"/dead-letters:"+verb, body)
			},
		}
		filters(c)
		c.Flags().BoolVar(&every, "all", false, "every dead task that the other flags select")
		c.Flags().BoolVar(&dryRun, "dry-run", false, "count them and change nothing")
		return c
	}
	list := &cobra.Command{
		Use: "dead [TASK]", Short: "List dead tasks, or show all that is known of one", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(ids) == 1 && tenant != "" {
				return showTask(cmd.Context(), c, g.json, "/v1/admin/tenants/"+url.PathEscape(tenant)+"/tasks/"+url.PathEscape(ids[0]))
			}
			if len(ids) == 1 {
				return showTask(cmd.Context(), c, g.json, "/v1/tasks/"+url.PathEscape(ids[0]))
			}
			query := url.Values{"limit": {"200"}}
			for name, value := range map[string]string{"kind": kind, "code": code, "category": category, "tenant": tenant} {
				if value != "" {
					query.Set(name, value)
				}
			}
			var list api.List[api.AnyTenantsTask] // without a tenant where only one's are asked for
			if err := c.call(cmd.Context(), http.MethodGet, whose()+"/dead-letters?"+query.Encode(), nil, &list); err != nil {
				return err
			}
			if g.json {
				return printJSON(list.Items)
			}
			return table(func(w io.Writer) {
				owner := func(string) string { return "" }
				if whose() != "/v1" {
					owner = func(tenant string) string { return tenant + "\t" }
				}
				fmt.Fprintln(w, owner("TENANT")+"TASK\tDOCUMENT\tKIND\tRANGE\tATTEMPTS\tCODE\tMESSAGE")
				for _, t := range list.Items {
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
	cancel := &cobra.Command{
		Use: "cancel", Short: "Stop all unfinished documents of the dataset", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.act(cmd.Context(), "/v1/datasets/"+url.PathEscape(g.dataset)+"/documents:cancel", map[string]any{"filter": map[string]any{"state": []string{"queued", "running", "finalizing"}}})
		},
	}
	var retention time.Duration
	var dry bool
	cleanup := &cobra.Command{
		Use: "cleanup", Short: "Remove old events and tasks of old generations (opens the store itself)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				var sum sheaf.CleanupReport
				for range 10_000 { // bounded: 10 million rows a call
					r, err := s.Cleanup(ctx, retention, 1000, dry)
					if err != nil {
						return err
					}
					sum.Events += r.Events
					sum.Tasks += r.Tasks
					sum.Workers += r.Workers
					sum.Idempotency += r.Idempotency
					sum.Deliveries += r.Deliveries
					if dry || r.Events+r.Tasks+r.Workers+r.Idempotency+r.Deliveries == 0 {
						break
					}
				}
				return printJSON(sum)
			})
		},
	}
	cleanup.Flags().Var(&days{&retention}, "retention", "keep what is younger, such as 7d or 36h")
	cleanup.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed")
	retention = 7 * 24 * time.Hour
	cmd.AddCommand(stats, list, dead("retry", "Give dead tasks a new budget"), dead("purge", "Remove dead tasks"), cancel, cleanup)
	return cmd
}

// days is a duration flag that also takes days.
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

// showTask prints what happened to one task: each attempt with who made it,
// when and how it ended, and the parser's last words.
func showTask(ctx context.Context, c *client, asJSON bool, path string) error {
	var t api.TaskHistory
	if err := c.call(ctx, http.MethodGet, path, nil, &t); err != nil {
		return err
	}
	if asJSON {
		return printJSON(t)
	}
	what := string(t.Kind)
	if t.Range != nil {
		what += " " + string(t.Unit) + " " + t.Range.String()
	}
	fmt.Printf("%s of document %s, generation %d: %s\n", what, t.DocumentID, t.Generation, t.State)
	if t.Content != "" {
		fmt.Printf("file: %s\n", t.Content)
	}
	if t.Failure != nil {
		fmt.Printf("%s (%s): %s\n", t.Failure.Code, t.Failure.Category, t.Failure.Message)
	}
	if err := table(func(w io.Writer) {
		fmt.Fprintln(w, "\nSTARTED\tENDED\tWORKER\tOUTCOME\tCODE\tTEXT")
		for _, a := range t.Tries {
			ended, code := "", ""
			if !a.EndedAt.IsZero() {
				ended = a.EndedAt.Local().Format(time.DateTime)
			}
			if a.Failure != nil {
				code = a.Failure.Code
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", a.StartedAt.Local().Format(time.DateTime), ended, a.Worker, a.Outcome, code, excerpt(a.Text, 80))
		}
	}); err != nil {
		return err
	}
	for _, a := range t.Tries {
		for _, o := range a.Output {
			fmt.Printf("\n%s %s (%s), the parser's last lines:\n%s\n", t.Unit, sheaf.Range{From: o.From, To: o.To}, o.Code, strings.TrimSpace(o.Lines))
		}
	}
	if t.Failure != nil && t.Failure.Detail != "" {
		fmt.Printf("\n%s\n", strings.TrimSpace(t.Failure.Detail))
	}
	return nil
}
