package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"sheaf/internal/config"
)

func (g *global) configCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "config", Short: "Show settings of the server", Example: "  sheaf config print\n  sheaf config reference"})
	cmd.AddCommand(&cobra.Command{
		Use: "reference", Example: "  sheaf config reference", Short: "Print every setting with its default and meaning", Args: needs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error { fmt.Fprint(g.out, config.Reference()); return nil },
	}, &cobra.Command{
		Use: "print", Example: "  sheaf config print --config fleet.toml", Short: "Print the settings in force; secrets are not shown", Args: needs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			for _, f := range config.Fields(&cfg) {
				fmt.Fprintf(g.out, "%s = %s\n", f.Name, f)
			}
			return err
		},
	})
	return cmd
}
