package command

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sheaf/internal/doctor"
)

func (g *global) indexCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "index", Short: "Act on the search index", Example: "  sheaf index rebuild"})
	cmd.AddCommand(&cobra.Command{
		Use: "rebuild", Example: "  sheaf index rebuild", Short: "Fill the index from the stored artifacts; nothing is parsed or embedded", Args: needs(0, 0, ""),
		Long: "Fills the index from the stored artifacts. An embedded index is made anew, for which the server must be stopped; in Elasticsearch what is missing is added.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			if cfg.Index.Driver == "embedded" {
				unlock, err := lockDir(cfg.DataDir)
				if err != nil {
					return err
				}
				for _, end := range []string{"", "-wal", "-shm"} {
					if err := os.Remove(filepath.Join(cfg.DataDir, "index.db"+end)); err != nil && !errors.Is(err, os.ErrNotExist) {
						return err
					}
				}
				if err := unlock(); err != nil {
					return err
				}
			}
			a, err := g.build(cmd.Context(), cfg, roles{}, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer a.close()
			tty := g.isTerminal(g.err)
			err = doctor.Rebuild(cmd.Context(), a.doctorConfig(), func(done, total int) {
				if tty {
					fmt.Fprintf(g.err, "\r\x1b[K%d of %d ranges", done, total)
				}
				if done == total {
					fmt.Fprintf(g.err, "\rrebuilt the index from %d ranges\n", total)
				}
			})
			return err
		},
	})
	return cmd
}
