package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/backup"
	"sheaf/internal/buildinfo"
	"sheaf/taskstore/sqlstore"
)

// database is the SQLite store in the data folder.
const database = "sheaf.db"

func (g *global) backupCommand() *cobra.Command {
	var prune bool
	cmd := &cobra.Command{
		Use: "backup FOLDER", Short: "Copy the data folder while Sheaf runs", Args: needs(1, 1, "the folder that the backup goes to"),
		Long: `Copy the data folder of "sheaf up" to FOLDER, whether it runs or not. FOLDER is a
data folder itself: to restore, stop Sheaf, copy FOLDER to the place of the data
folder, and start. The index is not copied; it is rebuilt at the first start.

The next backup into the same folder copies what is new, and keeps the database
before as sheaf.db.previous. The key of the secrets is copied, too: whoever can read
the backup can read them.`,
		Example: "  sheaf backup /mnt/backup/sheaf\n  sheaf backup --prune /mnt/backup/sheaf",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.backup(cmd.Context(), args[0], prune)
		},
	}
	cmd.Flags().BoolVar(&prune, "prune", false, "remove files of deleted documents from FOLDER; sheaf.db.previous may need them")
	return cmd
}

func (g *global) backup(ctx context.Context, folder string, prune bool) error {
	cfg, err := g.storeConfig()
	if err != nil {
		return err
	}
	if cfg.Store.Driver != "sqlite" {
		return usageError{cured(fmt.Errorf("`sheaf backup` copies a data folder, and the store is %s", cfg.Store.Driver),
			"Use the tools of the database and then of the bucket; docs/operations.md has the commands.")}
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	privateFiles()
	var copied atomic.Int64
	c := backup.Config{
		Source: cfg.DataDir, Target: folder, Database: database, Files: []string{keyFile}, Trees: []string{"models"},
		Prune: prune, Program: buildinfo.Get().String(), LockFunc: lockDir,
		SnapshotFunc: func(ctx context.Context, to string) error {
			return sqlstore.Snapshot(ctx, filepath.Join(cfg.DataDir, database), to)
		},
		ProgressFunc: func() { copied.Add(1) },
	}
	bucket := ""
	if cfg.Blob.Driver == "file" {
		c.Trees = append(c.Trees, filepath.Join("blobs", "objects"))
	} else {
		bucket = " The bucket is not part of it: copy that now."
	}
	stop := g.watchCopy(&copied)
	r, err := backup.Run(ctx, c)
	stop()
	switch {
	case err == nil:
	case r != nil:
		return fmt.Errorf("the backup was made, but old files are still in it: %w", err)
	case errors.Is(err, sheaf.ErrInvalid):
		return usageError{fmt.Errorf("no backup was made: %s", strings.TrimPrefix(err.Error(), sheaf.ErrInvalid.Error()+": "))}
	default:
		return fmt.Errorf("no backup was made: %w", err)
	}
	removed := ""
	if r.Removed > 0 {
		removed = fmt.Sprintf(", %s removed", number(int(r.Removed)))
	}
	return g.done(r, "Backed up %s to %s in %s: a database of %s and %s of %s, %s of them new%s.%s",
		r.Source, r.Target, span(time.Duration(r.Seconds*float64(time.Second))), size(r.DatabaseBytes), count(int(r.Files), "file"), size(r.Bytes), number(int(r.NewFiles)), removed, bucket)
}

// watchCopy shows how many files were looked at, on a terminal.
func (g *global) watchCopy(copied *atomic.Int64) (stop func()) {
	if g.quiet || g.json || !g.isTerminal(g.err) {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(g.err, "\r\x1b[K%s copied\r", count(int(copied.Load()), "file"))
			case <-done:
				fmt.Fprint(g.err, "\r\x1b[K")
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
