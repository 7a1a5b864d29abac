package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

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
