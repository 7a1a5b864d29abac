package command

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
)

func (g *global) openCommand() *cobra.Command {
	var printed bool
	cmd := &cobra.Command{
		Use: "open [DOCUMENT|JOB]", Short: "Open the page in a browser, or print its address", Args: needs(0, 1, "one DOCUMENT or JOB"), ValidArgsFunction: g.documentNames,
		Long:    "Opens the page of a dataset, a document or a job in a browser. Where there is no terminal, it prints the address.",
		Example: "  sheaf open\n  sheaf open -d contracts\n  sheaf open report.pdf --print",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			path := "/datasets/" + url.PathEscape(g.dataset)
			if len(args) == 1 {
				path, err = g.pagePath(ctx, c, args[0])
			} else {
				_, err = g.readDataset(ctx, c, g.dataset)
			}
			if err != nil {
				return err
			}
			address := c.base + path
			if g.json {
				return g.printJSON(map[string]string{"url": address})
			}
			fmt.Fprintln(g.out, address)
			if printed || !g.isTerminal(g.out) {
				return nil
			}
			if err := g.browse(address); err != nil {
				return cured(fmt.Errorf("no browser could be started: %w", err), "Open %s yourself.", address)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&printed, "print", "p", false, "print the address and open nothing")
	return cmd
}
