package command

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/search"
)

// searchModes are the search modes.
var searchModes = []string{"hybrid", "text", "vector"}

// groupings are what hits can be grouped by.
var groupings = []string{string(search.GroupByDocument), string(search.GroupByPage), string(search.GroupByText)}

func (g *global) searchCommand() *cobra.Command {
	var limit, groupSize int
	mode, graph, groupBy := []string{"hybrid"}, []string{""}, []string{""}
	var filter search.Filter
	var kinds []string
	cmd := &cobra.Command{
		SuggestFor: []string{"find", "query"}, Example: `  sheaf search "termination notice period"
  sheaf search -d contracts --mode text -n 20 "force majeure"
  sheaf search --language de --keyword kessel "how is it installed"`,
		Use: "search QUERY", Short: "Search, with page and box of each hit", Args: needs(1, -1, "a QUERY"),
		RunE: func(cmd *cobra.Command, words []string) error {
			if err := goesWith(cmd, "group-by", "group-size"); err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			body, dataset := map[string]any{"query": strings.Join(words, " "), "limit": limit, "filter": filter}, g.dataset
			if cmd.Flags().Changed("mode") {
				body["mode"] = mode[0]
			}
			if kinds != nil {
				body["kinds"] = kinds
			}
			if groupBy[0] != "" {
				body["group_by"], body["group_size"] = groupBy[0], groupSize
			}
			if graph[0] != "" {
				body["graph"], dataset = graph[0], cmp.Or(dataset, "default")
			}
			r, err := c.search(cmd.Context(), dataset, body)
			if isMissing(err) {
				err = g.noDataset(cmd.Context(), c, g.dataset, err)
			}
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(r)
			}
			printHits(cmd.OutOrStdout(), r)
			return nil
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 5, "hits")
	cmd.Flags().Var(&choice{value: &mode, of: searchModes}, "mode", "`MODE`: hybrid, text or vector")
	g.complete(cmd, "mode", oneOf(searchModes...))
	cmd.Flags().Var(&choice{value: &graph, of: graphModes}, "graph", "`HOW`: local (from entities), global (from communities) or mix, in the graph of the dataset")
	g.complete(cmd, "graph", oneOf(graphModes...))
	cmd.Flags().Var(&choice{value: &groupBy, of: groupings}, "group-by", "keep only the best hits per `WHAT`: document, page or text (identical passages)")
	g.complete(cmd, "group-by", oneOf(groupings...))
	cmd.Flags().IntVar(&groupSize, "group-size", 1, "hits to keep per group, with --group-by")
	cmd.Flags().StringSliceVar(&kinds, "kind", nil, "text, summary, or both with a comma; without it both, and at most a third summaries")
	g.complete(cmd, "kind", oneOf(search.KindText, search.KindSummary))
	cmd.Flags().StringSliceVar((*[]string)(&filter.DocumentIDs), "document", nil, "in these documents only, by id")
	g.complete(cmd, "document", g.documentNames)
	cmd.Flags().StringSliceVar((*[]string)(&filter.MediaTypes), "media-type", nil, "in files of these types only")
	cmd.Flags().StringSliceVar((*[]string)(&filter.Languages), "language", nil, "chunks in one of these languages only, such as en")
	cmd.Flags().StringArrayVar((*[]string)(&filter.Keywords), "keyword", nil, "chunks with this keyword only; given again: one of them")
	cmd.Flags().StringArrayVar((*[]string)(&filter.Tags), "tag", nil, "chunks with this tag only; given again: one of them")
	cmd.Flags().StringToStringVar(&filter.Metadata, "metadata", nil, "chunks with this metadata only, key=value")
	return cmd
}
