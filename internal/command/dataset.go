package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/internal/settings"
	"sheaf/taskstore"
)

func (g *global) datasetCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "dataset", Aliases: []string{"datasets"}, Short: "List, create and change datasets",
		Example: `  sheaf dataset list
  sheaf dataset create contracts --setting chunk_token_num=256
  sheaf dataset settings contracts
  sheaf dataset delete contracts --dry-run`})
	cmd.AddCommand(g.datasetList(), g.datasetCreate(), g.datasetShow(), g.datasetRename(), g.datasetDelete(), g.datasetSettings(), g.datasetExport(), g.datasetGraph(), g.datasetSplit(), g.datasetRaptor(), g.datasetMindmap(), g.datasetRuns(),
		g.datasetPause("pause", "Hold the queued work of a dataset"), g.datasetPause("resume", "Free the queued work of a dataset"))
	return cmd
}

// paging holds the flags of a list command.
type paging struct {
	limit  int
	cursor string
}

func (p *paging) flags(cmd *cobra.Command, limit int, what string) {
	cmd.Flags().IntVarP(&p.limit, "limit", "n", limit, what+" to list; 0 for all")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on after an earlier list, by its next_cursor")
}

// pages reads up to p.limit items of a list. next is where the list continues, or
// nil at its end.
func pages[T any](ctx context.Context, c *client, path string, q url.Values, p paging) (items []T, next *string, err error) {
	if p.limit < 0 {
		return nil, nil, usageError{fmt.Errorf("--limit: %d is below 0", p.limit)}
	}
	if q == nil {
		q = url.Values{}
	}
	if p.cursor != "" {
		q.Set("cursor", p.cursor)
	}
	for {
		most := 1000
		if p.limit > 0 {
			most = min(most, p.limit-len(items))
		}
		q.Set("limit", fmt.Sprint(most))
		var page api.List[T]
		if err := c.call(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &page); err != nil {
			return nil, nil, err
		}
		items = append(items, page.Items...)
		if page.NextCursor == nil || p.limit > 0 && len(items) >= p.limit {
			return items, page.NextCursor, nil
		}
		q.Set("cursor", *page.NextCursor)
	}
}

// more prints how to continue a list.
func (g *global) more(next *string) {
	if next != nil {
		g.note("\nThere are more: add --limit 0 for all of them, or --cursor %s for the next.", quoted(*next))
	}
}

func (g *global) datasetList() *cobra.Command {
	var p paging
	var name string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List datasets", Args: needs(0, 0, ""),
		Example: "  sheaf dataset list\n  sheaf dataset list --name acme\n  sheaf dataset list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			query := url.Values{}
			if name != "" {
				query.Set("q", name)
			}
			items, next, err := pages[sheaf.Dataset](cmd.Context(), c, "/v1/datasets", query, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[sheaf.Dataset]{Items: listed(items).Items, NextCursor: next})
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "NAME\tID\tDOCUMENTS\tCHUNKS\tSTATE\tCREATED")
				for _, d := range items {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.ID, number(d.Documents), number(d.Chunks), pausedWord(d.Paused), moment(d.CreatedAt))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "only datasets whose name contains this `TEXT`")
	p.flags(cmd, 100, "datasets")
	return cmd
}

func pausedWord(paused bool) string {
	if paused {
		return "paused"
	}
	return "active"
}

// datasetPath is the URL path of a dataset.
func datasetPath(name string) string { return "/v1/datasets/" + url.PathEscape(name) }

// readDataset reads a dataset. If it does not exist, the error suggests the nearest
// name.
func (g *global) readDataset(ctx context.Context, c *client, name string) (*sheaf.Dataset, error) {
	var d sheaf.Dataset
	err := c.call(ctx, http.MethodGet, datasetPath(name), nil, &d)
	if isMissing(err) {
		err = g.noDataset(ctx, c, name, err)
	}
	return &d, err
}

func (g *global) datasetCreate() *cobra.Command {
	var config string
	var settings []string
	var sure confirmation
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a dataset", Args: needs(1, 1, "a NAME"),
		Example: "  sheaf dataset create contracts\n  sheaf dataset create papers --setting chunk_method=paper",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"name": args[0]}
			config, err := parserConfig(config, settings)
			if err != nil {
				return err
			}
			if config != "" {
				body["parser_config"] = json.RawMessage(config)
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			var d sheaf.Dataset
			if sure.dryRun {
				err := c.call(cmd.Context(), http.MethodGet, datasetPath(args[0]), nil, &d)
				if err == nil {
					return &answerError{status: http.StatusConflict, code: "conflict", msg: fmt.Sprintf("there is a dataset %q already", args[0])}
				}
				if !isMissing(err) {
					return err
				}
				return g.done(body, "Nothing was changed. The dataset %s would be created.", args[0])
			}
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/datasets", body, &d); err != nil {
				return err
			}
			return g.done(d, "Created dataset %s (%s).", d.Name, d.ID)
		},
	}
	cmd.Flags().StringVar(&config, "parser-config", "", "settings as `JSON`")
	cmd.Flags().StringArrayVar(&settings, "setting", nil, "one setting as `NAME=VALUE`; may be repeated")
	g.complete(cmd, "setting", settingAssignments)
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) datasetShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [NAME]", Short: "Show a dataset", Args: needs(0, 1, "one NAME"), ValidArgsFunction: g.datasetNames,
		Example: "  sheaf dataset show contracts",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			d, err := g.readDataset(cmd.Context(), c, g.datasetOf(args))
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(d)
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintf(w, "name\t%s\nid\t%s\ndocuments\t%s\nchunks\t%s\nstate\t%s\ncreated\t%s\nchanged\t%s\npage\t%s\n", d.Name, d.ID, number(d.Documents), number(d.Chunks),
					pausedWord(d.Paused), moment(d.CreatedAt), moment(d.UpdatedAt), c.base+"/datasets/"+url.PathEscape(d.Name))
			})
		},
	}
}

func (g *global) datasetExport() *cobra.Command {
	formats := make([]string, len(api.ExportFormats))
	for i, f := range api.ExportFormats {
		formats[i] = string(f)
	}
	format := []string{string(api.ExportJSONL)}
	var states, tags []string
	var name, output string
	var force bool
	cmd := &cobra.Command{
		Use: "export [NAME]", Short: "Write the chunks of a dataset into a file", Args: needs(0, 1, "one NAME"), SuggestFor: []string{"dump", "download"}, ValidArgsFunction: g.datasetNames,
		Long: `Writes the published versions of a dataset's documents, as people edited them:
jsonl is a chunk a line, parquet a chunk a row, and markdown a zip with a file for
each document. The file is there when it is whole. Documents that are not parsed
yet are left out.`,
		Example: `  sheaf dataset export contracts
  sheaf dataset export contracts --format parquet -o contracts.parquet
  sheaf dataset export contracts --format markdown --state succeeded
  sheaf dataset export contracts -o - | wc -l`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			ds, err := g.readDataset(cmd.Context(), c, g.datasetOf(args))
			if err != nil {
				return err
			}
			q := url.Values{"format": format, "state": states, "tag": tags}
			if name != "" {
				q.Set("q", name)
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, datasetPath(ds.ID)+"/export?"+q.Encode(), nil, "")
			if err != nil {
				return err
			}
			path := output
			if path == "" {
				if _, said, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil {
					path = filepath.Base(said["filename"]) // never a path elsewhere
				}
				if path == "" || path == "." || path == ".." || path == string(filepath.Separator) {
					path = ds.ID + "." + format[0]
				}
			}
			return g.save(resp, path, force)
		},
	}
	f := cmd.Flags()
	f.Var(&choice{value: &format, of: formats}, "format", "`FORMAT` of the file: jsonl, parquet or markdown")
	f.StringVarP(&output, "output", "o", "", "`FILE` to write, - for standard output; default: the name of the dataset")
	f.BoolVarP(&force, "force", "f", false, "overwrite a file that exists")
	f.Var(&choice{value: &states, of: docStates, many: true}, "state", "only documents in these `STATES`")
	f.StringVar(&name, "name", "", "only documents whose name contains this `TEXT`")
	f.StringSliceVar(&tags, "tag", nil, "only documents with one of these `TAGS`")
	g.complete(cmd, "format", oneOf(formats...))
	g.complete(cmd, "state", oneOf(docStates...))
	return cmd
}

// datasetOf is the dataset named by the argument, or else by the flag.
func (g *global) datasetOf(args []string) string {
	if len(args) > 0 {
		return args[0]
	}
	return g.dataset
}

func (g *global) datasetRename() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "rename NAME NEW-NAME", Short: "Give a dataset another name; its id stays", Args: needs(2, 2, "a NAME and a NEW-NAME"), ValidArgsFunction: g.datasetNames,
		Example: "  sheaf dataset rename contracts contracts-2026",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			d, err := g.readDataset(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if sure.dryRun {
				return g.done(d, "Nothing was changed. The dataset %s would be named %s.", d.Name, args[1])
			}
			if err := c.call(cmd.Context(), http.MethodPatch, datasetPath(d.ID), map[string]any{"name": args[1]}, d); err != nil {
				return err
			}
			return g.done(d, "Renamed dataset %s to %s.", args[0], d.Name)
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) datasetDelete() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a dataset with its documents", Args: needs(1, 1, "a NAME"), SuggestFor: []string{"rm", "remove"}, ValidArgsFunction: g.datasetNames,
		Long:    "Deletes a dataset with all its documents, chunks and originals. It asks first; --yes answers for you.",
		Example: "  sheaf dataset delete drafts --dry-run\n  sheaf dataset delete drafts --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			d, err := g.readDataset(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			f, err := c.forecast(cmd.Context(), d.ID, "delete", map[string]any{"filter": everyState})
			if err != nil {
				return err
			}
			what := fmt.Sprintf("the dataset %s with %s", d.Name, removal(f))
			if sure.dryRun {
				return g.done(f, "Nothing was changed. This would delete %s.", what)
			}
			if err := g.ask(sure, "Delete "+what+"? This cannot be undone."); err != nil {
				return err
			}
			var r taskstore.DeleteReceipt
			if err := c.call(cmd.Context(), http.MethodDelete, datasetPath(d.ID), nil, &r); err != nil {
				return err
			}
			return g.done(r, "Deleted %s.", what)
		},
	}
	sure.flags(cmd)
	return cmd
}

func (g *global) datasetSettings() *cobra.Command {
	var unset []string
	var all bool
	var sure confirmation
	cmd := &cobra.Command{
		Use: "settings NAME [SETTING=VALUE…]", Short: "Show or change how documents of a dataset are parsed", Args: needs(1, -1, "a NAME"),
		Long: `Shows the settings of a dataset, or changes those that are given. They hold for
documents to come; "sheaf doc reparse --all" applies them to those that exist.`,
		Example: `  sheaf dataset settings contracts
  sheaf dataset settings contracts chunk_token_num=256 chunk_method=laws
  sheaf dataset settings contracts --unset chunk_token_num`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return g.datasetNames(cmd, args, begun)
			}
			return settingAssignments(cmd, args, begun)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			change := map[string]any{}
			for _, a := range args[1:] {
				name, value, err := assignment(a)
				if err != nil {
					return err
				}
				change[name] = value
			}
			for _, name := range unset {
				if err := checkSetting(name); err != nil {
					return err
				}
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			d, err := g.readDataset(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if len(change)+len(unset) > 0 {
				if err := c.changeSettings(cmd.Context(), d, change, unset, sure.dryRun); err != nil {
					return err
				}
				if sure.dryRun {
					g.note("Nothing was changed. These would be the settings:")
				} else {
					g.note("Changed. It holds for documents to come; `sheaf doc reparse --all -d %s` applies it to the others.", quoted(d.Name))
				}
			}
			return g.printSettings(d, all)
		},
	}
	cmd.Flags().StringSliceVar(&unset, "unset", nil, "`SETTINGS` that go back to their default")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show what each setting means, too")
	g.complete(cmd, "unset", oneOf(settings.DatasetNames()...))
	sure.dryFlag(cmd)
	return cmd
}

// changeSettings changes settings of a dataset; unnamed ones are kept.
func (c *client) changeSettings(ctx context.Context, d *sheaf.Dataset, change map[string]any, unset []string, dryRun bool) error {
	for _, name := range unset {
		change[name] = nil
	}
	if !dryRun {
		var changed sheaf.Dataset
		err := c.call(ctx, http.MethodPatch, datasetPath(d.ID), map[string]any{"parser_config": change}, &changed)
		if err == nil {
			*d = changed
		}
		return err
	}
	b, err := json.Marshal(change)
	if err != nil {
		return err
	}
	var said sheaf.ParseConfig
	if err := json.Unmarshal(b, &said); err != nil {
		return usageError{err}
	}
	d.ParseConfig = settings.Patch(said, d.ParseConfig, sheaf.ParseConfig{})
	if err := settings.Check(d.ParseConfig); err != nil {
		return usageError{err}
	}
	return nil
}

// printSettings prints the settings of a dataset next to their defaults.
func (g *global) printSettings(d *sheaf.Dataset, meanings bool) error {
	if g.json {
		return g.printJSON(map[string]any{"dataset": d.Name, "parser_config": d.ParseConfig})
	}
	b, err := json.Marshal(d.ParseConfig)
	if err != nil {
		return err
	}
	said := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &said); err != nil {
		return err
	}
	return g.table(func(w io.Writer) {
		head := "SETTING\tVALUE\tDEFAULT"
		if meanings {
			head += "\tMEANING"
		}
		fmt.Fprintln(w, head)
		row := func(name, byDefault, meaning string) {
			value := "–"
			if v, ok := said[name]; ok {
				value = strings.Trim(string(v), `"`)
			}
			fmt.Fprintf(w, "%s\t%s\t%s", name, excerpt(value, 40), byDefault)
			if meanings {
				fmt.Fprintf(w, "\t%s", meaning)
			}
			fmt.Fprintln(w)
		}
		for _, s := range settings.Table {
			row(s.Name, s.Default(), s.Meaning)
		}
		for _, r := range settings.Runs {
			row(r.Name, "begun by hand", r.Meaning)
		}
	})
}

func (g *global) datasetPause(verb, short string) *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: needs(1, 1, "a NAME"), ValidArgsFunction: g.datasetNames,
		Example: "  sheaf dataset " + verb + " contracts",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			d, err := g.readDataset(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return g.hold(cmd.Context(), c, sure, datasetPath(d.ID)+":"+verb, "dataset "+d.Name)
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

// hold pauses or resumes what path names.
func (g *global) hold(ctx context.Context, c *client, sure confirmation, path, what string) error {
	done, would := "Paused", "pause"
	if strings.HasSuffix(path, ":resume") {
		done, would = "Resumed", "resume"
	}
	if sure.dryRun {
		return g.done(map[string]any{"dry_run": true, "action": would, "of": what}, "Nothing was changed. This would %s %s.", would, what)
	}
	var p api.Paused
	if err := c.call(ctx, http.MethodPost, path, nil, &p); err != nil {
		return err
	}
	return g.done(p, "%s %s; it concerns %s.", done, what, count(p.Tasks, "queued task"))
}
