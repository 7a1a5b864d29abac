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

	"sheaf/taskstore/sqlstore"
)

// withStore opens the store of the configuration for one command, with the
// schema of this version.
func (g *global) withStore(ctx context.Context, f func(ctx context.Context, s *sqlstore.Store) error) error {
	return g.withSchema(ctx, func(ctx context.Context, s *sqlstore.Store) error {
		if err := s.Migrate(ctx); err != nil {
			return fmt.Errorf("migrating the store: %w", err)
		}
		return f(ctx, s)
	})
}

// withSchema opens the store as it is.
func (g *global) withSchema(ctx context.Context, f func(ctx context.Context, s *sqlstore.Store) error) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	a := &app{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	privateFiles()
	dsn := cfg.Store.DSN.Reveal()
	if cfg.Store.Driver == "sqlite" {
		if err := makeDataDir(cfg.DataDir); err != nil {
			return err
		}
		dsn = a.path("sheaf.db")
	}
	s, err := sqlstore.Open(ctx, sqlstore.Config{Driver: cfg.Store.Driver, DSN: dsn, MaxOpenConns: 2})
	if err != nil {
		return fmt.Errorf("opening the %s store: %w", cfg.Store.Driver, err)
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
				return g.pendingMigrations(cmd.Context())
			}
			return g.withStore(cmd.Context(), func(context.Context, *sqlstore.Store) error {
				fmt.Fprintln(g.out, "the schema is up to date")
				return nil
			})
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

// pendingMigrations shows what migrate would do. A SQLite store that does not
// exist is not made for it.
func (g *global) pendingMigrations(ctx context.Context) error {
	show := func(names []string) error {
		answer := map[string]any{"pending": listed(names), "dry_run": true}
		if len(names) == 0 {
			return g.done(answer, "The schema is up to date.")
		}
		return g.done(answer, "Nothing was changed. This would run %s.", strings.Join(names, ", "))
	}
	cfg, err := g.load()
	if err != nil {
		return err
	}
	if cfg.Store.Driver == "sqlite" {
		if _, err := os.Stat((&app{cfg: cfg}).path("sheaf.db")); errors.Is(err, fs.ErrNotExist) {
			names, err := sqlstore.Migrations(cfg.Store.Driver)
			if err != nil {
				return err
			}
			return show(names)
		}
	}
	return g.withSchema(ctx, func(ctx context.Context, s *sqlstore.Store) error {
		names, err := s.PendingMigrations(ctx)
		if err != nil {
			return err
		}
		return show(names)
	})
}
