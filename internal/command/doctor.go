package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/parser/child"
	"sheaf/parser/pdf/pdfium"
)

// offerHelper is printed where sheaf-pdfium is missing and would help.
const offerHelper = "PDFs are read twice as fast with sheaf-pdfium: `make helper` builds it beside this program"

func (g *global) doctorCommand() *cobra.Command {
	var repair, parsers bool
	cmd := &cobra.Command{
		Use: "doctor", Example: "  sheaf doctor\n  sheaf doctor --repair", Short: "Compare database, index and blob store of a running Sheaf", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if parsers && repair {
				return usageError{errors.New("--parsers looks at this machine and repairs nothing; leave out --repair")}
			}
			if parsers {
				return g.printParsers(cmd.Context())
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			var r api.DoctorReport
			if err := c.call(cmd.Context(), http.MethodPost, "/v1/doctor", map[string]any{"repair": repair}, &r); err != nil {
				return err
			}
			if g.json {
				if err := g.printJSON(r); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(g.out, "checked %d range results, %d objects, %d index entries\n", r.Ranges, r.Objects, r.Chunks)
				for _, f := range r.Findings {
					fmt.Fprintf(g.out, "%s: %d, repaired %d; cure: %s\n", f.Code, f.Count, f.Repaired, f.Cure)
					for _, e := range f.Examples {
						fmt.Fprintf(g.out, "  %s\n", e)
					}
				}
				for _, p := range r.Parsers {
					if !p.InForce {
						fmt.Fprintf(g.out, "parsers are not protected by %s: %s\n", p.Name, p.Detail)
					}
				}
			}
			if n := r.Drift(); n > 0 {
				return fmt.Errorf("%s left; run `sheaf doctor --repair`, or follow the cures above", count(n, "disagreement"))
			}
			if !g.json {
				fmt.Fprintln(g.out, "everything agrees")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "cure what can be cured")
	cmd.Flags().BoolVar(&parsers, "parsers", false, "only say what confines the parsers on this machine; needs no running Sheaf")
	return cmd
}

// printParsers starts one parser locally, as configured, and prints how it is
// sandboxed.
func (g *global) printParsers(ctx context.Context) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sheaf-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	found, err := pdfium.Find(ctx, cfg.PDF.Engine, cfg.PDF.Helper, child.ProgramPath)
	if err != nil {
		return err
	}
	defer found.Close()
	pool, err := child.New(withPDF(child.Config{Size: 1, TempDir: dir, ReadDirs: []string{dir}, Sandbox: cfg.Parser.Sandbox, MaxRSSBytes: cfg.Parser.MemoryBytes, Ports: parserPorts(cfg.Parser)}, found))
	if err != nil {
		return err
	}
	defer pool.Close()
	all, err := pool.Protections(ctx)
	if err != nil {
		return err
	}
	if g.json {
		return g.printJSON(listed(all))
	}
	if err := g.table(func(w io.Writer) {
		fmt.Fprintln(w, "PROTECTION\tIN FORCE\tDETAIL")
		for _, p := range all {
			fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, map[bool]string{true: "yes", false: "no"}[p.InForce], p.Detail)
		}
	}); err != nil {
		return err
	}
	fmt.Fprintf(g.out, "PDFs are read by %s\n", found)
	if found.Absent {
		fmt.Fprintln(g.out, offerHelper)
	}
	return nil
}
