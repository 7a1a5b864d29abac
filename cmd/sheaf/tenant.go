package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/taskstore"
)

func (g *global) tenantCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "tenant", Short: "Create and list tenants", Example: "  sheaf tenant create acme --weight 2\n  sheaf tenant list"})
	var weight, limit, documents, queued int
	var bytes int64
	create := &cobra.Command{
		Use: "create ID", Short: "Create a tenant", Args: needs(1, 1, "an ID"), Example: "  sheaf tenant create acme --weight 2 --max-queued 100000",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				t, err := s.CreateTenant(ctx, sheaf.Tenant{ID: args[0], Name: args[0], Weight: weight, Cap: limit, Quota: sheaf.Quota{Documents: documents, Bytes: bytes, QueuedTasks: queued}})
				if err != nil {
					return err
				}
				if _, err := s.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: t.ID, Name: defaultDataset}); err != nil && !errors.Is(err, sheaf.ErrConflict) {
					return err
				}
				return g.printJSON(t)
			})
		},
	}
	create.Flags().IntVar(&weight, "weight", 1, "share of the executors")
	create.Flags().IntVar(&limit, "cap", 8, "tasks running at once")
	create.Flags().IntVar(&documents, "max-documents", 0, "quota; 0 for none")
	create.Flags().Int64Var(&bytes, "max-bytes", 0, "quota; 0 for none")
	create.Flags().IntVar(&queued, "max-queued", 0, "quota of queued tasks; 0 for none")
	list := &cobra.Command{
		Use: "list", Example: "  sheaf tenant list", Short: "List tenants", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				ts, err := s.Tenants(ctx)
				if err != nil {
					return err
				}
				return g.printJSON(listed(ts))
			})
		},
	}
	cmd.AddCommand(create, list)
	return cmd
}
