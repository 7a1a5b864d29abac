package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

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
