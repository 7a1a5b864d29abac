package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

// runFlags are the flags of a command that starts a run.
type runFlags struct {
	options            []string
	maxTokens          int64
	maxPrice           float64
	auto               string
	wait, dryRun, wipe bool
}

func (f *runFlags) add(cmd *cobra.Command, options bool) {
	if options {
		cmd.Flags().StringArrayVarP(&f.options, "option", "o", nil, "`KEY=VALUE` of the run, such as scope=dataset; repeat for more. Without any, those of the run before")
	}
	cmd.Flags().Int64Var(&f.maxTokens, "max-tokens", 0, "that the chat model may read and write; 0 for no limit")
	cmd.Flags().Float64Var(&f.maxPrice, "max-price", 0, "the same as a price; 0 for no limit")
	cmd.Flags().StringVar(&f.auto, "auto-update", "", "begin the next run by itself so long after this one, such as 10m, where documents have changed")
	cmd.Flags().BoolVarP(&f.wait, "wait", "w", false, "wait for its end, and show progress")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be done at most, and do nothing")
	cmd.Flags().BoolVar(&f.wipe, "wipe", false, "remove what runs have made instead")
}

func (g *global) datasetRaptor() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "raptor DATASET", Short: "Sum up the documents of a dataset, for search", Args: needs(1, 1, "a DATASET"), ValidArgsFunction: g.datasetNames,
		Long: `Makes summaries of each document, layer over layer (RAPTOR), which search finds
beside the text, with the pages that they sum up. With a chat model it words
them, else they are the most central sentences. What is there is kept: only
documents that changed are summed up anew. The option scope=dataset goes on
above the documents.`,
		Example: "  sheaf dataset raptor contracts --dry-run\n  sheaf dataset raptor contracts --wait --max-tokens 2000000\n  sheaf dataset raptor contracts -o scope=dataset -o max_token=256\n  sheaf dataset raptor contracts --wipe",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.startRun(cmd, args[0], sheaf.KindRaptor, &f)
		},
	}
	f.add(cmd, true)
	return cmd
}

func (g *global) datasetMindmap() *cobra.Command {
	var f runFlags
	var show, document string
	cmd := &cobra.Command{
		Use: "mindmap DATASET", Short: "Make or show a mind map of a dataset", Args: needs(1, 1, "a DATASET"), ValidArgsFunction: g.datasetNames,
		Long: `Makes a tree of what each document is about, from its headings, or where it has
none from its topics, which a chat model names if there is one. --show prints
what was made, of the dataset or of one document.`,
		Example: "  sheaf dataset mindmap contracts --wait\n  sheaf dataset mindmap contracts --show markdown\n  sheaf dataset mindmap contracts --show svg --document ID > map.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			if show == "" {
				if err := goesWith(cmd, "show", "document"); err != nil {
					return err
				}
				return g.startRun(cmd, args[0], sheaf.KindMindmap, &f)
			}
			if err := apart(cmd, "show", append(slices.Clone(runAsks), "wipe")...); err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			q := url.Values{"format": {show}}
			if document != "" {
				q.Set("document", document)
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, datasetPath(args[0])+"/mindmap?"+q.Encode(), nil, "")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			_, err = io.Copy(g.out, resp.Body)
			return err
		},
	}
	f.add(cmd, false)
	cmd.Flags().StringVar(&show, "show", "", "print the mind map as json, markdown or svg instead")
	cmd.Flags().StringVar(&document, "document", "", "with --show: `ID` of a document; without it the dataset")
	return cmd
}

// runAsks are the flags that define what a run does.
var runAsks = []string{"option", "max-tokens", "max-price", "auto-update", "wait", "dry-run"}

// startRun executes the flags of a run command.
func (g *global) startRun(cmd *cobra.Command, dataset string, kind sheaf.TaskKind, f *runFlags) error {
	if err := cmp.Or(apart(cmd, "wipe", runAsks...), apart(cmd, "dry-run", "wait")); err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := g.client()
	if err != nil {
		return err
	}
	ds, err := g.readDataset(ctx, c, dataset)
	if err != nil {
		return err
	}
	path := datasetPath(ds.ID) + "/" + string(kind)
	if f.wipe {
		var w api.Wiped
		if err := c.call(ctx, http.MethodDelete, path, nil, &w); err != nil {
			return err
		}
		return g.done(w, "Removed what %s runs of %s had made.", number(w.Runs), kind)
	}
	ask := api.NewRun{RunBudget: api.RunBudget{MaxTokens: f.maxTokens, MaxPrice: f.maxPrice}, AutoUpdate: f.auto}
	if ask.Options, err = runOptions(f.options); err != nil {
		return err
	}
	if f.dryRun {
		path += "?dry_run=true"
	}
	var r api.RunStarted
	if err := c.call(ctx, http.MethodPost, path, ask, &r); err != nil {
		return err
	}
	if p := r.Plan; p != nil {
		return g.done(p, "Nothing was started. %s of %s documents are to be read, %s chunks; at most %s questions to the chat model and %s tokens%s.",
			number(p.Documents-p.Current), number(p.Documents), number(int(p.Chunks)), number(int(p.Calls)), number(int(p.Tokens)), priceOf(p.Price, p.Currency))
	}
	run := r.DatasetRun
	if f.wait {
		if run, err = g.followRun(ctx, c, ds.ID, run); err != nil {
			return err
		}
	}
	return g.printRun(run)
}

// runOptions parses KEY=VALUE: a value is a number, a boolean or text.
func runOptions(given []string) (json.RawMessage, error) {
	if len(given) == 0 {
		return nil, nil
	}
	all := map[string]any{}
	for _, o := range given {
		key, value, ok := strings.Cut(o, "=")
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("--option %s: write KEY=VALUE, such as scope=dataset", o)}
		}
		if _, twice := all[key]; twice {
			return nil, usageError{fmt.Errorf("--option %s is given twice; give one of them", key)}
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[key] = n
		} else if b, err := strconv.ParseBool(value); err == nil {
			all[key] = b
		} else if key == "entity_types" {
			all[key] = strings.Split(value, ",")
		} else {
			all[key] = value
		}
	}
	return json.Marshal(all)
}

// runPoll is the interval between polls of a run.
const runPoll = 500 * time.Millisecond

// followRun shows the progress of a run until it ends.
func (g *global) followRun(ctx context.Context, c *client, dataset string, r *api.DatasetRun) (*api.DatasetRun, error) {
	b := g.bar()
	defer b.end()
	for r.State.Open() {
		phase := string(r.State)
		if r.Phase != "" {
			phase = fmt.Sprintf("%s, %d of %d", r.Phase, r.Done, r.Total)
		}
		b.show(min(r.Progress, 0.99), "%s", phase)
		select {
		case <-time.After(runPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		next := &api.DatasetRun{}
		if err := c.call(ctx, http.MethodGet, datasetPath(dataset)+"/runs/"+url.PathEscape(r.ID), nil, next); err != nil {
			return nil, err
		}
		r = next
	}
	return r, nil
}

// printRun prints a run; a failed run is an error.
func (g *global) printRun(r *api.DatasetRun) error {
	if g.json {
		if err := g.printJSON(r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(g.out, "run %s of %s: %s, %s documents, %s tokens in %s questions, %s answers reused%s\n", r.ID, r.Kind, r.State, number(r.Documents), number(int(r.Tokens)), number(r.Calls), number(r.Cached), priceOf(r.Price, r.Currency))
		if r.Cause != "" && r.State != taskstore.RunFailed {
			fmt.Fprintln(g.out, r.Cause)
		}
		if r.Behind > 0 {
			fmt.Fprintf(g.out, "behind: %s documents\n", number(r.Behind))
		}
		if len(r.Result) > 0 {
			fmt.Fprintf(g.out, "result: %s\n", r.Result)
		}
	}
	if r.State == taskstore.RunFailed {
		return fmt.Errorf("the run failed: %s", r.Cause)
	}
	return nil
}

func (g *global) datasetRuns() *cobra.Command {
	var f runFlags
	var cancel, resume bool
	var p paging
	cmd := &cobra.Command{
		Use: "runs DATASET [RUN]", Short: "List, show, stop or resume runs over a dataset", Args: needs(1, 2, "a DATASET"), ValidArgsFunction: g.datasetNames,
		Long:    "Lists the runs over a dataset, or shows one: its state, what it spent, and how many documents have changed since. --cancel stops it; --resume goes on with one that is parked at its budget, partial, failed or canceled.",
		Example: "  sheaf dataset runs contracts\n  sheaf dataset runs contracts ID\n  sheaf dataset runs contracts ID --resume --max-tokens 5000000 --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch err := cmp.Or(apart(cmd, "cancel", "resume"), goesWith(cmd, "resume", "max-tokens", "max-price")); {
			case err != nil:
				return err
			case len(args) == 1 && (cancel || resume || f.wait):
				return usageError{fmt.Errorf("say which run: sheaf dataset runs %s RUN", args[0])}
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			ds, err := g.readDataset(ctx, c, args[0])
			if err != nil {
				return err
			}
			path := datasetPath(ds.ID) + "/runs"
			if len(args) == 1 {
				return g.listRuns(ctx, c, path, p)
			}
			path += "/" + url.PathEscape(args[1])
			var r api.DatasetRun
			switch {
			case cancel:
				err = c.call(ctx, http.MethodPost, path+":cancel", nil, &r)
			case resume:
				err = c.call(ctx, http.MethodPost, path+":resume", api.RunBudget{MaxTokens: f.maxTokens, MaxPrice: f.maxPrice}, &r)
			default:
				err = c.call(ctx, http.MethodGet, path, nil, &r)
			}
			if err != nil {
				return listedBy(err, "`sheaf dataset runs %s` lists the runs.", quoted(ds.Name))
			}
			run := &r
			if f.wait {
				if run, err = g.followRun(ctx, c, ds.ID, run); err != nil {
					return err
				}
			}
			return g.printRun(run)
		},
	}
	p.flags(cmd, 20, "runs")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "stop the run")
	cmd.Flags().BoolVar(&resume, "resume", false, "go on with the run")
	cmd.Flags().Int64Var(&f.maxTokens, "max-tokens", 0, "with --resume: that the chat model may read and write in all; 0 for no limit")
	cmd.Flags().Float64Var(&f.maxPrice, "max-price", 0, "with --resume: the same as a price; 0 for no limit")
	cmd.Flags().BoolVarP(&f.wait, "wait", "w", false, "wait for its end, and show progress")
	return cmd
}

func (g *global) listRuns(ctx context.Context, c *client, path string, p paging) error {
	runs, next, err := pages[api.DatasetRun](ctx, c, path, nil, p)
	if err != nil {
		return err
	}
	if g.json {
		return g.printJSON(api.List[api.DatasetRun]{Items: listed(runs).Items, NextCursor: next})
	}
	if len(runs) == 0 {
		g.note("No runs yet; sheaf dataset raptor begins one.")
		return nil
	}
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "ID\tKIND\tSTATE\tDOCUMENTS\tTOKENS\tCREATED")
		for _, r := range runs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, r.Kind, r.State, number(r.Documents), number(int(r.Tokens)), r.CreatedAt.Local().Format(time.DateTime))
		}
	})
}
