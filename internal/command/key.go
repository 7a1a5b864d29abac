package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

func (g *global) keyCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "key", Short: "Create, list, change and revoke API keys", Example: "  sheaf key create acme --scope write\n  sheaf key set acme KEY-ID --scope read\n  sheaf key list acme"})
	var name string
	var expires time.Duration
	var sure confirmation
	scopes := []string{"write"}
	create := &cobra.Command{
		Use: "create TENANT", Short: "Create an API key; its secret is printed once", Args: needs(1, 1, "a TENANT"),
		Example: "  sheaf key create acme --scope read --name dashboard\n  sheaf key create acme --expires 720h\n  sheaf key create acme --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), sure.dryRun, func(ctx context.Context, s *sqlstore.Store) error {
				k := sheaf.Key{TenantID: args[0], Name: name, Scopes: scopes}
				if expires != 0 {
					k.ExpiresAt = time.Now().Add(expires)
				}
				made, secret, err := api.MakeKey(ctx, s, k, sure.dryRun)
				switch {
				case errors.Is(err, sheaf.ErrNotFound):
					return noTenant(fmt.Errorf("tenant %s: %w", args[0], err), args[0])
				case err != nil:
					return err
				case sure.dryRun:
					return g.done(api.CreatedKey{Key: *made, DryRun: true}, "Nothing was changed. A key of %s would be created: %s.", args[0], keyText(made))
				case g.json:
					return g.printJSON(struct {
						sheaf.Key
						Secret string `json:"key"`
					}{*made, secret})
				}
				fmt.Fprintln(g.out, secret)
				return nil
			})
		},
	}
	create.Flags().DurationVar(&expires, "expires", 0, "refuse the key after this long, such as 720h; never by default")
	sure.dryFlag(create)
	create.Flags().StringVar(&name, "name", "", "what the key is used for")
	create.Flags().Var(&choice{value: &scopes, of: taskstore.KeyScopes, many: true}, "scope", "`SCOPE`: read, write or admin; may be repeated")
	g.complete(create, "scope", oneOf(taskstore.KeyScopes...))
	cmd.AddCommand(create, g.keyList(), g.keySet(), g.keyRevoke())
	return cmd
}

func noKey(err error, tenant string) error {
	return listedBy(err, "`sheaf key list %s` lists the keys.", quoted(tenant))
}

func (g *global) keyList() *cobra.Command {
	return &cobra.Command{
		Use: "list TENANT", Short: "List a tenant's keys", Args: needs(1, 1, "a TENANT"), Example: "  sheaf key list acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), false, func(ctx context.Context, s *sqlstore.Store) error {
				if _, err := s.Tenant(ctx, args[0]); err != nil {
					return noTenant(err, args[0])
				}
				ks, err := everyPage(func(p taskstore.Page) ([]sheaf.Key, string, error) { return s.Keys(ctx, args[0], p) })
				if err != nil {
					return err
				}
				if g.json {
					return g.printJSON(listed(ks))
				}
				return g.table(func(w io.Writer) {
					fmt.Fprintln(w, "KEY\tNAME\tSCOPES\tCREATED\tEXPIRES\tREVOKED")
					for _, k := range ks {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, strings.Join(k.Scopes, ","), moment(k.CreatedAt), moment(k.ExpiresAt), moment(k.RevokedAt))
					}
				})
			})
		},
	}
}

func (g *global) keySet() *cobra.Command {
	var name string
	var scopes []string
	var sure confirmation
	cmd := &cobra.Command{
		Use: "set TENANT KEY-ID", Short: "Change a key's name and scopes; its secret stays", Args: needs(2, 2, "a TENANT and a KEY-ID"),
		Long:    "Changes what is named; the rest stays. It holds for the next request with the key.",
		Example: "  sheaf key set acme KEY-ID --scope read\n  sheaf key set acme KEY-ID --name dashboard --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			var to taskstore.KeyChange
			if cmd.Flags().Changed("name") {
				to.Name = &name
			}
			if cmd.Flags().Changed("scope") {
				to.Scopes = scopes
			}
			if to.Name == nil && to.Scopes == nil {
				return usageError{cured(errors.New("nothing says what to change"), "Give --name or --scope.")}
			}
			return g.withStore(cmd.Context(), sure.dryRun, func(ctx context.Context, s *sqlstore.Store) (err error) {
				var k *sheaf.Key
				if sure.dryRun {
					if k, err = s.Key(ctx, args[0], args[1]); err == nil {
						err = to.Apply(k)
					}
				} else {
					k, err = s.ChangeKey(ctx, args[0], args[1], to)
				}
				if err != nil {
					return noKey(err, args[0])
				}
				done := "Changed key %s: %s."
				if sure.dryRun {
					done = "Nothing was changed. Key %s would be: %s."
				}
				return g.done(api.ChangedKey{Key: *k, DryRun: sure.dryRun}, done, k.ID, keyText(k))
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the key is used for")
	cmd.Flags().Var(&choice{value: &scopes, of: taskstore.KeyScopes, many: true}, "scope", "`SCOPE` in place of those it has: read, write or admin; may be repeated")
	g.complete(cmd, "scope", oneOf(taskstore.KeyScopes...))
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) keyRevoke() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "revoke TENANT KEY-ID", Short: "Revoke a key", Args: needs(2, 2, "a TENANT and a KEY-ID"),
		Long:    "Refuses the key from the next request on, for good. It asks first; --yes answers for you.",
		Example: "  sheaf key revoke acme KEY-ID --dry-run\n  sheaf key revoke acme KEY-ID --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), sure.dryRun, func(ctx context.Context, s *sqlstore.Store) error {
				k, err := s.Key(ctx, args[0], args[1])
				if err != nil {
					return noKey(err, args[0])
				}
				what := fmt.Sprintf("the key %s of %s (%s)", k.ID, k.TenantID, keyText(k))
				if sure.dryRun {
					return g.done(api.ChangedKey{Key: *k, DryRun: true}, "Nothing was changed. This would revoke %s.", what)
				}
				if err := g.ask(sure, "Revoke "+what+"? This cannot be undone."); err != nil {
					return err
				}
				if err := s.RevokeKey(ctx, k.TenantID, k.ID); err != nil {
					return err
				}
				if k, err = s.Key(ctx, k.TenantID, k.ID); err != nil {
					return err
				}
				return g.done(api.ChangedKey{Key: *k}, "Revoked %s.", what)
			})
		},
	}
	sure.flags(cmd)
	return cmd
}

// keyText summarizes a key's purpose and permissions.
func keyText(k *sheaf.Key) string {
	text := strings.Join(k.Scopes, ", ")
	if k.Name != "" {
		text = k.Name + ", " + text
	}
	switch {
	case !k.RevokedAt.IsZero():
		text += ", revoked"
	case !k.ExpiresAt.IsZero():
		text += ", expires " + moment(k.ExpiresAt)
	}
	return text
}
