package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/doctor"
	"sheaf/internal/search"
	"sheaf/parser"
	"sheaf/taskstore"
)

// submitBatch is how many files one upload request carries.
const submitBatch = 100

func clientCommands(g *global) []*cobra.Command {
	return []*cobra.Command{g.ingestCommand(), g.searchCommand(), g.docsCommand(), g.jobsCommand(), g.retryCommand(), g.queueCommand()}
}

func (g *global) ingestCommand() *cobra.Command {
	var wait, dryRun bool
	var lane int
	var settings string
	cmd := &cobra.Command{
		Use: "ingest PATH…", Short: "Upload files and folders", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			files, err := collect(paths)
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return errors.New("there are no files under " + strings.Join(paths, ", "))
			}
			if err := c.ensureDataset(ctx, g.dataset); err != nil {
				return err
			}
			fields := map[string]string{"lane": fmt.Sprint(lane)}
			if settings != "" {
				fields["parser_config"] = settings
			}
			query := ""
			if dryRun {
				query = "?dry_run=true"
			}
			failed := 0
			for batch := range slices.Chunk(files, submitBatch) {
				send := func() (*api.SubmitAnswer, error) { return c.submitAnswer(ctx, g.dataset, batch, fields, query) }
				if !dryRun && slices.ContainsFunc(batch, resumable) {
					send = func() (*api.SubmitAnswer, error) { return c.submitPieces(ctx, g.dataset, batch, fields) }
				}
				answer, err := send()
				if err != nil {
					return err
				}
				for _, r := range answer.Rejected {
					failed++
					fmt.Fprintf(os.Stderr, "%s: not taken: %s (%s)\n", r.Name, r.Failure.Message, r.Failure.Code)
				}
				if dryRun || !wait {
					if g.json {
						if err := printJSON(answer); err != nil {
							return err
						}
					} else if answer.Job != nil {
						fmt.Printf("job %s: %d documents queued\n", answer.Job.ID, len(answer.Documents))
					} else {
						for _, p := range answer.Plans {
							fmt.Printf("%s: %d %ss in %d ranges, %d reused\n", p.Name, p.Units, p.Unit, len(p.Ranges), p.Reused.Ranges)
						}
					}
					continue
				}
				job, err := c.follow(ctx, answer.Job.ID, os.Stderr)
				if err != nil {
					return err
				}
				n, err := c.report(ctx, job, g.json)
				if err != nil {
					return err
				}
				failed += n
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d files did not succeed; `sheaf docs --state failed` lists them", failed, len(files))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "show progress until the documents are searchable")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done and change nothing")
	cmd.Flags().IntVar(&lane, "lane", 2, "1 interactive, 2 normal, 3 backfill")
	cmd.Flags().StringVar(&settings, "parser-config", "", `settings as JSON, such as {"chunk_token_num": 256}`)
	return cmd
}

// ensureDataset creates the dataset if it is not there.
func (c *client) ensureDataset(ctx context.Context, name string) error {
	var ds sheaf.Dataset
	if err := c.call(ctx, http.MethodGet, "/v1/datasets/"+url.PathEscape(name), nil, &ds); err == nil {
		return nil
	}
	return c.call(ctx, http.MethodPost, "/v1/datasets", map[string]any{"name": name}, &ds)
}

// report prints how a job ended and returns how many documents failed.
func (c *client) report(ctx context.Context, job *sheaf.Job, asJSON bool) (failed int, err error) {
	if asJSON {
		return job.Documents.ByState[sheaf.DocFailed], printJSON(job)
	}
	var list api.List[sheaf.JobError]
	if err := c.call(ctx, http.MethodGet, "/v1/jobs/"+job.ID+"/errors?limit=100", nil, &list); err != nil {
		return 0, err
	}
	for _, e := range list.Items {
		at := ""
		if e.Failure.Page > 0 {
			at = fmt.Sprintf(", page %d", e.Failure.Page)
		}
		fmt.Printf("%s%s: %s (%s)\n", e.Document, at, e.Failure.Message, e.Failure.Code)
	}
	return job.Documents.ByState[sheaf.DocFailed], nil
}

func (g *global) searchCommand() *cobra.Command {
	var limit int
	var mode string
	var filter search.Filter
	cmd := &cobra.Command{
		Use: "search QUERY", Short: "Search, with page and box of each hit", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			r, err := c.search(cmd.Context(), g.dataset, map[string]any{"query": strings.Join(words, " "), "limit": limit, "mode": mode, "filter": filter})
			if err != nil {
				return err
			}
			if g.json {
				return printJSON(r)
			}
			printHits(cmd.OutOrStdout(), r)
			return nil
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 5, "hits")
	cmd.Flags().StringVar(&mode, "mode", "hybrid", "hybrid, text or vector")
	cmd.Flags().StringSliceVar(&filter.DocumentIDs, "document", nil, "in these documents only, by id")
	cmd.Flags().StringSliceVar(&filter.MediaTypes, "media-type", nil, "in files of these types only")
	cmd.Flags().StringSliceVar(&filter.Languages, "language", nil, "chunks in one of these languages only, such as en")
	cmd.Flags().StringArrayVar(&filter.Keywords, "keyword", nil, "chunks with this keyword only; given again: one of them")
	cmd.Flags().StringArrayVar(&filter.Tags, "tag", nil, "chunks with this tag only; given again: one of them")
	cmd.Flags().StringToStringVar(&filter.Metadata, "metadata", nil, "chunks with this metadata only, key=value")
	return cmd
}

func (g *global) docsCommand() *cobra.Command {
	var states []string
	var limit int
	var verdicts bool
	cmd := &cobra.Command{
		Use: "docs", Short: "List documents with their state", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			docs, err := c.documents(cmd.Context(), g.dataset, states, limit, verdicts)
			if err != nil {
				return err
			}
			if verdicts {
				return printVerdicts(os.Stdout, docs, g.json)
			}
			if g.json {
				return printJSON(docs)
			}
			return table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tNAME\tSTATE\tPROGRESS\tUNITS\tCHUNKS\tWHY")
				for _, d := range docs {
					why := ""
					if d.Failure != nil {
						why = d.Failure.Code
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%.0f %%\t%d %s\t%d\t%s\n", d.ID, excerpt(d.Name, 50), d.State, d.Progress*100, d.Units, d.Unit, d.Chunks, why)
				}
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only documents in these states")
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "documents; 0 for all")
	cmd.Flags().BoolVar(&verdicts, "verdicts", false, "count verdicts by format instead")
	return cmd
}

// documents lists up to limit documents; 0, or all, lists every one.
func (c *client) documents(ctx context.Context, dataset string, states []string, limit int, all bool) ([]sheaf.Document, error) {
	var out []sheaf.Document
	q := url.Values{"limit": {"1000"}}
	for _, s := range states {
		q.Add("state", s)
	}
	for {
		var page api.List[sheaf.Document]
		if err := c.call(ctx, http.MethodGet, "/v1/datasets/"+url.PathEscape(dataset)+"/documents?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Items...)
		if !all && limit > 0 && len(out) >= limit {
			return out[:limit], nil
		}
		if page.NextCursor == nil {
			return out, nil
		}
		q.Set("cursor", *page.NextCursor)
	}
}

// printVerdicts counts how documents ended, by format and reason.
func printVerdicts(w io.Writer, docs []sheaf.Document, asJSON bool) error {
	type row struct {
		Format  string `json:"format"`
		Verdict string `json:"verdict"`
		Count   int    `json:"count"`
	}
	counts := map[[2]string]int{}
	for _, d := range docs {
		verdict := string(d.State)
		if d.Failure != nil {
			verdict += ": " + d.Failure.Code
		}
		format, _, _ := strings.Cut(cmp.Or(d.Parser, d.MediaType), "/")
		if d.Parser == "" {
			format = d.MediaType
		}
		counts[[2]string{format, verdict}]++
	}
	var rows []row
	for k, n := range counts {
		rows = append(rows, row{k[0], k[1], n})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.Format, b.Format), cmp.Compare(b.Count, a.Count), strings.Compare(a.Verdict, b.Verdict))
	})
	if asJSON {
		return printJSON(rows)
	}
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "FORMAT\tVERDICT\tDOCUMENTS")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%d\n", r.Format, r.Verdict, r.Count)
		}
	})
}

func (g *global) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs [ID]", Short: "List jobs, or show one", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				job, err := c.job(cmd.Context(), args[0], "")
				if err != nil {
					return err
				}
				if g.json {
					return printJSON(job)
				}
				fmt.Println(progressLine(job))
				_, err = c.report(cmd.Context(), job, false)
				return err
			}
			var list api.List[sheaf.Job]
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/jobs?limit=50", nil, &list); err != nil {
				return err
			}
			if g.json {
				return printJSON(list.Items)
			}
			return table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tKIND\tSTATE\tPROGRESS\tDOCUMENTS\tCREATED")
				for _, j := range list.Items {
					fmt.Fprintf(w, "%s\t%s\t%s\t%.0f %%\t%d\t%s\n", j.ID, j.Kind, j.State, j.Progress*100, j.Documents.Total, j.CreatedAt.Local().Format(time.DateTime))
				}
			})
		},
	}
	for verb, short := range map[string]string{"cancel": "Stop a job", "pause": "Hold a job's queued work", "resume": "Free a job's queued work"} {
		cmd.AddCommand(&cobra.Command{
			Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return g.act(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0])+":"+verb, nil)
			},
		})
	}
	return cmd
}

// act posts to an action and prints its answer.
func (g *global) act(ctx context.Context, path string, body any) error {
	c, err := g.client()
	if err != nil {
		return err
	}
	var out json.RawMessage
	if err := c.call(ctx, http.MethodPost, path, body, &out); err != nil {
		return err
	}
	return printJSON(out)
}

func (g *global) retryCommand() *cobra.Command {
	var units, codes []string
	var dry bool
	c := &cobra.Command{
		Use: "retry DOCUMENT…", Short: "Run again what failed in documents, or only some pages or codes of it", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			body := map[string]any{"filter": map[string]any{"document_ids": ids}, "dry_run": dry}
			var runs [][2]int
			for _, u := range units {
				from, to, isRange := strings.Cut(u, "-")
				if !isRange {
					to = from
				}
				a, errA := strconv.Atoi(from)
				b, errB := strconv.Atoi(to)
				if errA != nil || errB != nil || a < 1 || b < a {
					return fmt.Errorf("--units %s: give numbers and ranges such as 5,9-12", u)
				}
				runs = append(runs, [2]int{a, b})
			}
			if len(runs) > 0 {
				body["units"] = runs
			}
			if len(codes) > 0 {
				body["codes"] = codes
			}
			return g.act(cmd.Context(), "/v1/datasets/"+url.PathEscape(g.dataset)+"/documents:retry", body)
		},
	}
	c.Flags().StringSliceVar(&units, "units", nil, "only these pages, rows or parts, such as 5,9-12")
	c.Flags().StringSliceVar(&codes, "code", nil, "only what failed with this code, such as parse_timeout")
	c.Flags().BoolVar(&dry, "dry-run", false, "print what would be done")
	return c
}

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
	var allTenants bool
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
				body := map[string]any{}
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
			query := url.Values{"limit": {"200"}, "kind": {kind}, "code": {code}, "category": {category}}
			if tenant != "" {
				query.Set("tenant", tenant)
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

// withStore opens the store of the configuration for one command.
func (g *global) withStore(ctx context.Context, f func(ctx context.Context, s *taskstore.Store) error) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	dsn := cfg.Store.DSN.Reveal()
	if cfg.Store.Driver == "sqlite" {
		if err := makeDataDir(cfg.DataDir); err != nil {
			return err
		}
		dsn = a.path("sheaf.db")
	}
	s, err := taskstore.Open(ctx, taskstore.Config{Driver: cfg.Store.Driver, DSN: dsn, MaxOpenConns: 2})
	if err != nil {
		return fmt.Errorf("opening the %s store: %w", cfg.Store.Driver, err)
	}
	defer s.Close()
	if err := s.Migrate(ctx); err != nil {
		return fmt.Errorf("migrating the %s store: %w", cfg.Store.Driver, err)
	}
	return f(ctx, s)
}

func adminCommands(g *global) []*cobra.Command {
	migrate := &cobra.Command{
		Use: "migrate", Short: "Bring the store's schema up to date", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(context.Context, *taskstore.Store) error {
				fmt.Println("the schema is up to date")
				return nil
			})
		},
	}
	show := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if g.json {
				return printJSON(map[string]string{"version": version()})
			}
			fmt.Println(version())
			return nil
		},
	}
	return []*cobra.Command{migrate, show, g.formatsCommand(), g.tenantCommand(), g.keyCommand(), g.configCommand(), g.doctorCommand(), g.indexCommand()}
}

// formatsCommand shows what this binary reads on this machine.
func (g *global) formatsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "formats", Short: "List the formats that are read, and the optional parts that are missing", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			type line struct {
				Format     string   `json:"format"`
				OK         bool     `json:"ok"`
				MediaTypes []string `json:"media_types"`
				Error      string   `json:"error,omitempty"`
			}
			var lines []line
			for _, f := range allFormats(optionalParts(cfg)) {
				l := line{Format: f.ID(), OK: true, MediaTypes: f.MediaTypes()}
				if err := parser.Available(f); err != nil {
					l.OK, l.Error = false, sheaf.AsFailure(err, "").Message
				}
				lines = append(lines, l)
			}
			if g.json {
				return printJSON(lines)
			}
			return table(func(w io.Writer) {
				fmt.Fprintln(w, "FORMAT\tSTATE\tREADS")
				for _, l := range lines {
					state, says := "ready", strings.Join(l.MediaTypes, " ")
					if !l.OK {
						state, says = "missing", l.Error
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", l.Format, state, says)
				}
			})
		},
	}
}

func (g *global) doctorCommand() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Compare database, index and blob store of a running Sheaf", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var r doctor.Report
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/doctor", map[string]any{"repair": repair}, &r); err != nil {
				return err
			}
			if g.json {
				if err := printJSON(r); err != nil {
					return err
				}
			} else {
				fmt.Printf("checked %d range results, %d objects, %d index entries\n", r.Ranges, r.Objects, r.Chunks)
				for _, f := range r.Findings {
					fmt.Printf("%s: %d, repaired %d; cure: %s\n", f.Code, f.Count, f.Repaired, f.Cure)
					for _, e := range f.Examples {
						fmt.Printf("  %s\n", e)
					}
				}
			}
			if n := r.Drift(); n > 0 {
				return fmt.Errorf("%d disagreements are left; run `sheaf doctor --repair`, or follow the cures above", n)
			}
			if !g.json {
				fmt.Println("everything agrees")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "cure what can be cured")
	return cmd
}

func (g *global) indexCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "index", Short: "Act on the search index"}
	cmd.AddCommand(&cobra.Command{
		Use: "rebuild", Short: "Fill the index from the stored artifacts; nothing is parsed or embedded", Args: cobra.NoArgs,
		Long: "Fills the index from the stored artifacts. An embedded index is made anew, for which the server must be stopped; in Elasticsearch what is missing is added.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			if cfg.Index.Driver == "embedded" {
				unlock, err := lockDir(cfg.DataDir)
				if err != nil {
					return err
				}
				for _, end := range []string{"", "-wal", "-shm"} {
					if err := os.Remove(filepath.Join(cfg.DataDir, "index.db"+end)); err != nil && !errors.Is(err, os.ErrNotExist) {
						return err
					}
				}
				if err := unlock(); err != nil {
					return err
				}
			}
			a, err := build(cmd.Context(), cfg, roles{}, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer a.close()
			tty := isTerminal(os.Stderr)
			err = doctor.Rebuild(cmd.Context(), a.doctorConfig(), func(done, total int) {
				if tty {
					fmt.Fprintf(os.Stderr, "\r\x1b[K%d of %d ranges", done, total)
				}
				if done == total {
					fmt.Fprintf(os.Stderr, "\rrebuilt the index from %d ranges\n", total)
				}
			})
			return err
		},
	})
	return cmd
}

func (g *global) tenantCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tenant", Short: "Create and list tenants"}
	var weight, limit, documents, queued int
	var bytes int64
	create := &cobra.Command{
		Use: "create ID", Short: "Create a tenant", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				t, err := s.CreateTenant(ctx, sheaf.Tenant{ID: args[0], Name: args[0], Weight: weight, Cap: limit, Quota: sheaf.Quota{Documents: documents, Bytes: bytes, QueuedTasks: queued}})
				if err != nil {
					return err
				}
				if _, err := s.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: t.ID, Name: defaultDataset}); err != nil && !errors.Is(err, sheaf.ErrConflict) {
					return err
				}
				return printJSON(t)
			})
		},
	}
	create.Flags().IntVar(&weight, "weight", 1, "share of the executors")
	create.Flags().IntVar(&limit, "cap", 8, "tasks running at once")
	create.Flags().IntVar(&documents, "max-documents", 0, "quota; 0 for none")
	create.Flags().Int64Var(&bytes, "max-bytes", 0, "quota; 0 for none")
	create.Flags().IntVar(&queued, "max-queued", 0, "quota of queued tasks; 0 for none")
	list := &cobra.Command{
		Use: "list", Short: "List tenants", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				ts, err := s.Tenants(ctx)
				if err != nil {
					return err
				}
				return printJSON(ts)
			})
		},
	}
	cmd.AddCommand(create, list)
	return cmd
}

func (g *global) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Create, list and revoke API keys"}
	var name string
	var scopes []string
	create := &cobra.Command{
		Use: "create TENANT", Short: "Create an API key; its secret is printed once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range scopes {
				if !slices.Contains([]string{"read", "write", "admin"}, s) {
					return usageError{fmt.Errorf("scope %q is not one of read, write, admin", s)}
				}
			}
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				if _, err := s.Tenant(ctx, args[0]); err != nil {
					return fmt.Errorf("tenant %s: %w; create it with `sheaf tenant create %s`", args[0], err, args[0])
				}
				secret := newSecret()
				k := sheaf.Key{ID: sheaf.NewID(), TenantID: args[0], Name: name, Scopes: scopes}
				if err := s.CreateKey(ctx, k, api.HashKey(secret)); err != nil {
					return err
				}
				if g.json {
					return printJSON(map[string]string{"id": k.ID, "key": secret})
				}
				fmt.Println(secret)
				return nil
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "what the key is for")
	create.Flags().StringSliceVar(&scopes, "scope", []string{"write"}, "read, write, admin")
	list := &cobra.Command{
		Use: "list TENANT", Short: "List a tenant's keys", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				ks, err := s.Keys(ctx, args[0])
				if err != nil {
					return err
				}
				return printJSON(ks)
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke TENANT KEY-ID", Short: "Revoke a key", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				return s.RevokeKey(ctx, args[0], args[1])
			})
		},
	}
	cmd.AddCommand(create, list, revoke)
	return cmd
}

// newSecret is an API key: 32 random bytes, recognisable by its prefix.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
	return "sheaf_" + hex.EncodeToString(b[:])
}

func (g *global) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show settings"}
	cmd.AddCommand(&cobra.Command{
		Use: "reference", Short: "Print every setting with its default and meaning", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { fmt.Print(config.Reference()); return nil },
	}, &cobra.Command{
		Use: "print", Short: "Print the settings in force; secrets are not shown", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			for _, f := range config.Fields(&cfg) {
				fmt.Printf("%s = %s\n", f.Name, f)
			}
			return err
		},
	})
	return cmd
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func table(rows func(w io.Writer)) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	rows(w)
	return w.Flush()
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
