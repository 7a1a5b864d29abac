package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"sheaf/internal/config"
)

func (g *global) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show settings"}
	cmd.AddCommand(&cobra.Command{
		Use: "reference", Short: "Print every setting with its default and meaning", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { fmt.Print(config.Reference()); return nil },
	}, &cobra.Command{
		Use: "print", Short: "Print the settings in force; secrets are not shown", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			for _, f := range config.Fields(&cfg) {
				fmt.Printf("%s = %s\n", f.Name, f)
			}
			return err
		},
	})
	return cmd
}
