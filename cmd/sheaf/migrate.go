package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"sheaf/taskstore/sqlstore"
)

// withStore opens the store of the configuration for one command.
func (g *global) withStore(ctx context.Context, f func(ctx context.Context, s *sqlstore.Store) error) error {
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
	if err := s.Migrate(ctx); err != nil {
		return fmt.Errorf("migrating the %s store: %w", cfg.Store.Driver, err)
	}
	return f(ctx, s)
}

func (g *global) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Bring the store's schema up to date", Args: needs(0, 0, ""), Example: "  sheaf migrate --config fleet.toml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(context.Context, *sqlstore.Store) error {
				fmt.Fprintln(g.out, "the schema is up to date")
				return nil
			})
		},
	}
}
