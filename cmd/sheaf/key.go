package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

// keyScopes are what a key may do.
var keyScopes = []string{"read", "write", "admin"}

func (g *global) keyCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "key", Short: "Create, list and revoke API keys", Example: "  sheaf key create acme --scope write\n  sheaf key list acme"})
	var name string
	scopes := []string{"write"}
	create := &cobra.Command{
		Use: "create TENANT", Short: "Create an API key; its secret is printed once", Args: needs(1, 1, "a TENANT"), Example: "  sheaf key create acme --scope read --name dashboard",
		RunE: func(cmd *cobra.Command, args []string) error {
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
					return g.printJSON(map[string]string{"id": k.ID, "key": secret})
				}
				fmt.Fprintln(g.out, secret)
				return nil
			})
		},
	}
	create.Flags().StringVar(&name, "name", "", "what the key is for")
	create.Flags().Var(&choice{value: &scopes, of: keyScopes, many: true}, "scope", "`SCOPE`: read, write or admin; may be repeated")
	g.complete(create, "scope", oneOf(keyScopes...))
	list := &cobra.Command{
		Use: "list TENANT", Short: "List a tenant's keys", Args: needs(1, 1, "a TENANT"), Example: "  sheaf key list acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), func(ctx context.Context, s *taskstore.Store) error {
				ks, err := s.Keys(ctx, args[0])
				if err != nil {
					return err
				}
				return g.printJSON(listed(ks))
			})
		},
	}
	revoke := &cobra.Command{
		Use: "revoke TENANT KEY-ID", Short: "Revoke a key", Args: needs(2, 2, "a TENANT and a KEY-ID"), Example: "  sheaf key revoke acme KEY-ID",
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
