package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"sheaf/internal/doctor"
)

func (g *global) doctorCommand() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Compare database, index and blob store of a running Sheaf", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var r doctor.Report
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/doctor", map[string]any{"repair": repair}, &r); err != nil {
				return err
			}
			if g.json {
				if err := printJSON(r); err != nil {
					return err
				}
			} else {
				fmt.Printf("checked %d range results, %d objects, %d index entries\n", r.Ranges, r.Objects, r.Chunks)
				for _, f := range r.Findings {
					fmt.Printf("%s: %d, repaired %d; cure: %s\n", f.Code, f.Count, f.Repaired, f.Cure)
					for _, e := range f.Examples {
						fmt.Printf("  %s\n", e)
					}
				}
			}
			if n := r.Drift(); n > 0 {
				return fmt.Errorf("%d disagreements are left; run `sheaf doctor --repair`, or follow the cures above", n)
			}
			if !g.json {
				fmt.Println("everything agrees")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "cure what can be cured")
	return cmd
}
