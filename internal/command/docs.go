package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/parser"
	"sheaf/parser/formats"
	"sheaf/taskstore"
)

// mostCounted bounds how many further documents are read to count them.
const mostCounted = 5000

func (g *global) docsCommand() *cobra.Command {
	var states, warnings []string
	var name, order string
	var p paging
	var verdicts, issues bool
	orders := []string{"newest"}
	cmd := &cobra.Command{
		Use: "docs", Short: "List documents with their state", Args: needs(0, 0, ""), SuggestFor: []string{"ls", "list", "documents"},
		Example: `  sheaf docs                                   # the newest first
  sheaf docs -d contracts --state failed,partially_succeeded
  sheaf docs --name invoice --limit 0 --json
  sheaf docs --warning rows_clipped            # those with this warning
  sheaf docs --verdicts                        # how documents ended, by format
  sheaf docs --issues                          # why documents failed, and what to do`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Causes and formats cover all documents and have their own order.
			if err := cmp.Or(apart(cmd, "issues", "verdicts", "limit", "cursor", "order"), apart(cmd, "verdicts", "limit", "cursor", "order")); err != nil {
				return err
			}
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			order = orders[0]
			q := url.Values{"order": {order}}
			for _, s := range states {
				q.Add("state", s)
			}
			if name != "" {
				q.Set("q", name)
			}
			for _, code := range warnings {
				q.Add("warning", code)
			}
			if verdicts {
				p.limit = 0
			}
			ds, err := g.readDataset(ctx, c, g.dataset)
			if err != nil {
				return err
			}
			path := datasetPath(ds.ID) + "/documents"
			if issues {
				var found taskstore.Facets
				q.Del("order")
				if err := c.call(ctx, http.MethodGet, path+"/facets?"+q.Encode(), nil, &found); err != nil {
					return err
				}
				return g.printIssues(found.Issues)
			}
			docs, next, err := pages[sheaf.Document](ctx, c, path, q, p)
			if err != nil {
				return err
			}
			if verdicts {
				return g.printVerdicts(docs)
			}
			if g.json {
				return g.printJSON(api.List[sheaf.Document]{Items: listed(docs).Items, NextCursor: next})
			}
			if len(docs) == 0 {
				if len(states)+len(warnings) > 0 || name != "" {
					g.note("No document of %s is like that.", g.dataset)
				} else {
					g.note("There are no documents in %s yet; `sheaf ingest%s PATH` adds some.", g.dataset, g.inDataset())
				}
				return nil
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tNAME\tFORMAT\tSTATE\tREAD\tUNITS\tCHUNKS\tWHY")
				for i := range docs {
					d := &docs[i]
					why := ""
					if d.Failure != nil {
						why = d.Failure.Code
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.ID, shortName(d.Name, 50), formatName(d.Parser, d.MediaType), d.State, progressWord(d), units(d.Units, d.Unit), number(d.Chunks), why)
				}
			}); err != nil {
				return err
			}
			if next != nil && !g.quiet {
				n, exact, err := c.countMore(ctx, path, q, *next)
				if err != nil {
					return err
				}
				some := number(n)
				if !exact {
					some = "more than " + some
				}
				g.note("\n%s shown, %s more. Add --limit 0 for all of them, or --cursor %s for the next.", number(len(docs)), some, quoted(*next))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Var(&choice{value: &states, of: docStates, many: true}, "state", "only documents in these `STATES`")
	f.StringVar(&name, "name", "", "only documents whose name contains this `TEXT`")
	f.StringSliceVar(&warnings, "warning", nil, "only documents with a warning of one of these `CODES`, such as rows_clipped")
	f.Var(&choice{value: &orders, of: []string{"newest", "oldest"}}, "order", "`ORDER`: newest or oldest first")
	f.BoolVar(&verdicts, "verdicts", false, "count how documents ended by format instead")
	f.BoolVar(&issues, "issues", false, "group failed documents by cause instead")
	p.flags(cmd, 100, "documents")
	g.complete(cmd, "state", oneOf(docStates...))
	g.complete(cmd, "order", oneOf("newest", "oldest"))
	return cmd
}

// countMore counts the rest of a list, up to mostCounted.
func (c *client) countMore(ctx context.Context, path string, q url.Values, cursor string) (n int, exact bool, err error) {
	q = maps.Clone(q)
	rest, next, err := pages[struct{}](ctx, c, path, q, paging{limit: mostCounted, cursor: cursor})
	return len(rest), next == nil, err
}

// printIssues lists causes of failures, most frequent first.
func (g *global) printIssues(found []taskstore.Issue) error {
	if g.json {
		return g.printJSON(listed(found))
	}
	if len(found) == 0 {
		g.note("No document of %s has failed.", g.dataset)
		return nil
	}
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "CODE\tDOCUMENTS\tUNREADABLE\tEXAMPLE\tWHAT TO DO")
		for _, i := range found {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Code, number(i.Documents), number(i.Failed), shortName(i.Name, 30), excerpt(i.Sample.Message, 120))
		}
	})
}

// printVerdicts counts outcomes of documents by format and reason.
func (g *global) printVerdicts(docs []sheaf.Document) error {
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
		counts[[2]string{formatName(d.Parser, d.MediaType), verdict}]++
	}
	rows := []row{}
	for k, n := range counts {
		rows = append(rows, row{k[0], k[1], n})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(a.Format, b.Format), cmp.Compare(b.Count, a.Count), strings.Compare(a.Verdict, b.Verdict))
	})
	if g.json {
		return g.printJSON(listed(rows))
	}
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "FORMAT\tVERDICT\tDOCUMENTS")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Format, r.Verdict, number(r.Count))
		}
	})
}

// knownFormats looks up formats by media type.
var knownFormats = sync.OnceValue(func() *parser.Registry { return parser.NewRegistry(formats.All(formats.Config{})...) })

// formatName normalizes a document's format, whether it was parsed ("pdf/1") or
// rejected before parsing ("application/pdf").
func formatName(parsedBy, mediaType string) string {
	if name, _, _ := strings.Cut(parsedBy, "/"); name != "" {
		return name
	}
	if f, ok := knownFormats().ByMediaType(mediaType); ok {
		return f.ID()
	}
	_, name, _ := strings.Cut(mediaType, "/")
	return strings.TrimPrefix(cmp.Or(name, mediaType), "x-")
}
