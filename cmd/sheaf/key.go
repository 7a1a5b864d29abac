package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

func (g *global) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Create, list and revoke API keys"}
	var name string
	var scopes []string
	create := &cobra.Command{
		Use: "create TENANT", Short: "Create an API key; its secret is printed once", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, s := range scopes {
				if !slices.Contains([]string{"read", "write", "admin"}, s) {
					return usageError{fmt.Errorf("scope %q is not one of read, write, admin", s)}
				}
			}
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				if _, err := s.Tenant(ctx, args[0]); err != nil {
					return fmt.Errorf("tenant %s: %w; create it with `sheaf tenant create %s`", args[0], err, args[0])
				}
				secret := newSecret()
				k := sheaf.Key{ID: sheaf.NewID(), TenantID: args[0], Name: name, Scopes: scopes}
				if err := s.CreateKey(ctx, k, api.HashKey(secret)); err != nil {
					return err
				}
				if g.json {
					return printJSON(map[string]string{"id": k.ID, "key": secret})
				}
				fmt.Println(secret)
				return nil
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "what the key is for")
	create.Flags().StringSliceVar(&scopes, "scope", []string{"write"}, "read, write, admin")
	list := &cobra.Command{
		Use: "list TENANT", Short: "List a tenant's keys", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				ks, err := s.Keys(ctx, args[0])
				if err != nil {
					return err
				}
				return printJSON(ks)
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke TENANT KEY-ID", Short: "Revoke a key", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				return s.RevokeKey(ctx, args[0], args[1])
			})
		},
	}
	cmd.AddCommand(create, list, revoke)
	return cmd
}

// newSecret is an API key: 32 random bytes, recognisable by its prefix.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
	return "sheaf_" + hex.EncodeToString(b[:])
}
