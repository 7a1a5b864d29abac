package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/parser"
)

// formatsCommand lists the formats this binary reads on this machine.
func (g *global) formatsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "formats", Example: "  sheaf formats", Short: "List the formats that are read, and the optional parts that are missing", Args: needs(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			type line struct {
				Format     string   `json:"format"`
				OK         bool     `json:"ok"`
				MediaTypes []string `json:"media_types"`
				Error      string   `json:"error,omitempty"`
			}
			var lines []line
			for _, f := range g.formats(optionalParts(cfg)) {
				l := line{Format: f.ID(), OK: true, MediaTypes: parser.MediaTypes(f)}
				if err := parser.Available(f); err != nil {
					l.OK, l.Error = false, sheaf.AsFailure(err, "").Message
				}
				lines = append(lines, l)
			}
			if g.json {
				return g.printJSON(listed(lines))
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintln(w, "FORMAT\tSTATE\tREADS")
				for _, l := range lines {
					state, says := "ready", strings.Join(l.MediaTypes, " ")
					if !l.OK {
						state, says = "missing", l.Error
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", l.Format, state, says)
				}
			})
		},
	}
}
