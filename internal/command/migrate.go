package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/config"
	"sheaf/taskstore/sqlstore"
)

// withStore opens the configured store for one command, migrated to this version's
// schema. A dry run does not migrate; it fails on an older schema.
func (g *global) withStore(ctx context.Context, dryRun bool, f func(ctx context.Context, s *sqlstore.Store) error) error {
	if dryRun {
		pending, err := g.pendingMigrations(ctx)
		if err != nil {
			return err
		}
		if n := len(pending); n > 0 {
			return cured(fmt.Errorf("the store's schema is older than this program (%d migrations are pending, from %s on), and a dry run does not migrate it", n, pending[0]),
				"`sheaf migrate --dry-run` lists them, `sheaf migrate` runs them.")
		}
		return g.withSchema(ctx, f)
	}
	return g.withSchema(ctx, func(ctx context.Context, s *sqlstore.Store) error {
		if err := s.Migrate(ctx); err != nil {
			return fmt.Errorf("migrating the store: %w", err)
		}
		return f(ctx, s)
	})
}

// storeConfig is the configuration of a command that opens the store directly.
func (g *global) storeConfig() (config.Config, error) {
	if g.asked != "" { // otherwise it could act on a different store than intended
		cure := "Name the store with --data-dir or --config, without --server."
		if strings.HasPrefix(g.path, "sheaf tenant ") || strings.HasPrefix(g.path, "sheaf key ") {
			cure += " A server with keys does the same under /v1/admin."
		}
		return config.Config{}, usageError{cured(fmt.Errorf("`%s` opens the store itself and asks no server, and %s names one", g.path, g.asked), "%s", cure)}
	}
	return g.load()
}

// withSchema opens the store without migrating it.
func (g *global) withSchema(ctx context.Context, f func(ctx context.Context, s *sqlstore.Store) error) error {
	cfg, err := g.storeConfig()
	if err != nil {
		return err
	}
	a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	privateFiles()
	if cfg.Store.Driver == "sqlite" {
		if err := makeDataDir(cfg.DataDir); err != nil {
			return err
		}
	}
	s, err := a.openStore(ctx, 2)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(ctx, s)
}

func (g *global) migrateCommand() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the store's schema up to date", Args: needs(0, 0, ""), Example: "  sheaf migrate --config fleet.toml\n  sheaf migrate --dry-run",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sure.dryRun {
				return g.showPending(cmd.Context())
			}
			return g.withStore(cmd.Context(), false, func(context.Context, *sqlstore.Store) error {
				fmt.Fprintln(g.out, "the schema is up to date")
				return nil
			})
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

// showPending shows what migrate would do.
func (g *global) showPending(ctx context.Context) error {
	names, err := g.pendingMigrations(ctx)
	if err != nil {
		return err
	}
	answer := map[string]any{"pending": listed(names), "dry_run": true}
	if len(names) == 0 {
		return g.done(answer, "The schema is up to date.")
	}
	return g.done(answer, "Nothing was changed. This would run %s.", strings.Join(names, ", "))
}

// pendingMigrations names what migrate would run. It does not create a missing
// SQLite store.
func (g *global) pendingMigrations(ctx context.Context) (names []string, err error) {
	cfg, err := g.storeConfig()
	if err != nil {
		return nil, err
	}
	if cfg.Store.Driver == "sqlite" {
		if _, err := os.Stat((&app{cfg: cfg}).path(database)); errors.Is(err, fs.ErrNotExist) {
			return sqlstore.Migrations(cfg.Store.Driver)
		}
	}
	err = g.withSchema(ctx, func(ctx context.Context, s *sqlstore.Store) error {
		names, err = s.PendingMigrations(ctx)
		return err
	})
	return names, err
}
