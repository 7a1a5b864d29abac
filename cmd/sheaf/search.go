package main

import (
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/search"
)

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
	cmd.Flags().StringSliceVar((*[]string)(&filter.DocumentIDs), "document", nil, "in these documents only, by id")
	cmd.Flags().StringSliceVar((*[]string)(&filter.MediaTypes), "media-type", nil, "in files of these types only")
	cmd.Flags().StringSliceVar((*[]string)(&filter.Languages), "language", nil, "chunks in one of these languages only, such as en")
	cmd.Flags().StringArrayVar((*[]string)(&filter.Keywords), "keyword", nil, "chunks with this keyword only; given again: one of them")
	cmd.Flags().StringArrayVar((*[]string)(&filter.Tags), "tag", nil, "chunks with this tag only; given again: one of them")
	cmd.Flags().StringToStringVar(&filter.Metadata, "metadata", nil, "chunks with this metadata only, key=value")
	return cmd
}
