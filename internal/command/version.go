package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sheaf/internal/buildinfo"
)

func (g *global) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit, date and Go version", Args: needs(0, 0, ""),
		Example: "  sheaf version --json",
		RunE: func(*cobra.Command, []string) error {
			i := buildinfo.Get()
			if g.json {
				return g.printJSON(i)
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintf(w, "sheaf\t%s\n", i.Version)
				for _, line := range [][2]string{{"commit", i.Commit}, {"date", i.Date}, {"go", i.Go}, {"platform", i.Platform}} {
					if line[1] == "" {
						line[1] = "not recorded by this build"
					}
					fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
				}
			})
		},
	}
}
