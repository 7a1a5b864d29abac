package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
	"sheaf/taskstore"
	"sheaf/taskstore/sqlstore"
)

func (g *global) tenantCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "tenant", Short: "Create, show and change tenants", Example: "  sheaf tenant create acme --weight 2\n  sheaf tenant set acme --cap 16\n  sheaf tenant list"})
	cmd.AddCommand(g.tenantCreate(), g.tenantSet(), g.tenantShow(), g.tenantList())
	return cmd
}

// tenantFlags declares the flags of a tenant, with t's current values as defaults.
func tenantFlags(cmd *cobra.Command, t *sheaf.Tenant) {
	f := cmd.Flags()
	f.StringVar(&t.Name, "name", t.Name, "for people")
	f.IntVar(&t.Weight, "weight", t.Weight, "share of the executors")
	f.IntVar(&t.Cap, "cap", t.Cap, "tasks running at once; 0 for as many as the fleet has workers")
	f.IntVar(&t.Quota.Documents, "max-documents", 0, "quota; 0 for none")
	f.Int64Var(&t.Quota.Bytes, "max-bytes", 0, "quota; 0 for none")
	f.IntVar(&t.Quota.QueuedTasks, "max-queued", 0, "quota of queued tasks; 0 for none")
}

// tenantChange is the change that the flags of tenantFlags make.
func tenantChange(cmd *cobra.Command, t *sheaf.Tenant) (c taskstore.TenantChange, any bool) {
	said := func(name string) bool {
		changed := cmd.Flags().Changed(name)
		any = any || changed
		return changed
	}
	if said("name") {
		c.Name = &t.Name
	}
	if said("weight") {
		c.Weight = &t.Weight
	}
	if said("cap") {
		c.Cap = &t.Cap
	}
	if said("max-documents") {
		c.Documents = &t.Quota.Documents
	}
	if said("max-bytes") {
		c.Bytes = &t.Quota.Bytes
	}
	if said("max-queued") {
		c.QueuedTasks = &t.Quota.QueuedTasks
	}
	return c, any
}

func (g *global) tenantCreate() *cobra.Command {
	t := sheaf.Tenant{Weight: 1}
	var sure confirmation
	cmd := &cobra.Command{
		Use: "create ID", Short: "Create a tenant", Args: needs(1, 1, "an ID"), Example: "  sheaf tenant create acme --weight 2 --max-queued 100000\n  sheaf tenant create acme --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			t.ID = args[0]
			if t.Name == "" {
				t.Name = t.ID
			}
			if err := errors.Join(taskstore.CheckTenantID(t.ID), taskstore.CheckTenant(&t)); err != nil {
				return usageError{err}
			}
			return g.withStore(cmd.Context(), sure.dryRun, func(ctx context.Context, s *sqlstore.Store) error {
				if sure.dryRun {
					_, err := s.Tenant(ctx, t.ID)
					switch {
					case errors.Is(err, sheaf.ErrNotFound):
						return g.done(api.ChangedTenant{Tenant: t, DryRun: true}, "Nothing was changed. The tenant %s would be created.", t.ID)
					case err == nil:
						err = cured(fmt.Errorf("%w: there is a tenant %s already", sheaf.ErrConflict, t.ID), "`sheaf tenant set %s` changes it.", quoted(t.ID))
					}
					return err
				}
				made, err := s.CreateTenant(ctx, t)
				if errors.Is(err, sheaf.ErrConflict) {
					err = cured(err, "`sheaf tenant set %s` changes it.", quoted(t.ID))
				}
				if err != nil {
					return err
				}
				if _, err := s.CreateDataset(ctx, sheaf.Dataset{ID: sheaf.NewID(), TenantID: t.ID, Name: defaultDataset}); err != nil && !errors.Is(err, sheaf.ErrConflict) {
					return err
				}
				return g.printJSON(made)
			})
		},
	}
	tenantFlags(cmd, &t)
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) tenantSet() *cobra.Command {
	var to sheaf.Tenant
	var sure confirmation
	var pause, resume bool
	cmd := &cobra.Command{
		Use: "set ID", Short: "Change a tenant's share, quotas and name, or hold its work", Args: needs(1, 1, "an ID"),
		Long:    "Changes what is named; the rest stays. It holds within a second, without a restart:\nfor the next task that is started, and for the next upload. What runs goes on.",
		Example: "  sheaf tenant set acme --weight 3 --cap 16\n  sheaf tenant set acme --max-bytes 50000000000 --dry-run\n  sheaf tenant set acme --pause",
		RunE: func(cmd *cobra.Command, args []string) error {
			change, some := tenantChange(cmd, &to)
			if !some && !pause && !resume {
				return usageError{cured(errors.New("nothing says what to change"), "Give one of --name, --weight, --cap, --max-documents, --max-bytes, --max-queued, --pause and --resume.")}
			}
			if err := apart(cmd, "pause", "resume"); err != nil {
				return err
			}
			return g.withStore(cmd.Context(), sure.dryRun, func(ctx context.Context, s *sqlstore.Store) error {
				t, err := setTenant(ctx, s, args[0], change, pause, resume, sure.dryRun)
				err = noTenant(err, args[0])
				if errors.Is(err, sheaf.ErrInvalid) {
					err = usageError{err}
				}
				if err != nil {
					return err
				}
				if sure.dryRun {
					g.note("Nothing was changed. The tenant would be:")
				}
				return g.printTenant(api.ChangedTenant{Tenant: *t, DryRun: sure.dryRun}, t, nil)
			})
		},
	}
	tenantFlags(cmd, &to)
	cmd.Flags().BoolVar(&pause, "pause", false, "hold what is queued; what runs goes on")
	cmd.Flags().BoolVar(&resume, "resume", false, "free what is held")
	sure.dryFlag(cmd)
	return cmd
}

func noTenant(err error, id string) error {
	return listedBy(err, "`sheaf tenant list` lists the tenants; `sheaf tenant create %s` creates this one.", quoted(id))
}

// setTenant changes a tenant, or returns what a change would produce.
func setTenant(ctx context.Context, s *sqlstore.Store, id string, change taskstore.TenantChange, pause, resume, dryRun bool) (*sheaf.Tenant, error) {
	var t *sheaf.Tenant
	var err error
	if dryRun {
		if t, err = s.Tenant(ctx, id); err == nil {
			err = change.Apply(t)
		}
	} else {
		t, err = s.ChangeTenant(ctx, id, change)
	}
	if err != nil || !pause && !resume {
		return t, err
	}
	t.Paused = pause
	if !dryRun {
		_, err = s.SetPaused(ctx, id, taskstore.PauseScope{Tenant: true}, pause)
	}
	return t, err
}

func (g *global) tenantShow() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a tenant with what it holds", Args: needs(1, 1, "an ID"), Example: "  sheaf tenant show acme",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd.Context(), false, func(ctx context.Context, s *sqlstore.Store) error {
				t, err := s.Tenant(ctx, args[0])
				if err != nil {
					return noTenant(err, args[0])
				}
				held, err := s.QuotaUsage(ctx, t.ID)
				if err != nil {
					return err
				}
				return g.printTenant(api.TenantAnswer{Tenant: *t, Holds: held}, t, &held)
			})
		},
	}
}

// printTenant prints answer as JSON, or t line by line; held may be nil.
func (g *global) printTenant(answer any, t *sheaf.Tenant, held *sheaf.Quota) error {
	if g.json {
		return g.printJSON(answer)
	}
	return g.table(func(w io.Writer) {
		line := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
		line("Tenant", t.ID)
		line("Name", t.Name)
		line("Weight", t.Weight)
		line("Cap", capOf(t))
		line("Paused", yesOrNo(t.Paused))
		if held == nil {
			line("Documents", "at most "+bound(int64(t.Quota.Documents)))
			line("Bytes", "at most "+bound(t.Quota.Bytes))
			line("Queued tasks", "at most "+bound(int64(t.Quota.QueuedTasks)))
			return
		}
		line("Documents", fmt.Sprintf("%d of %s", held.Documents, bound(int64(t.Quota.Documents))))
		line("Bytes", fmt.Sprintf("%d of %s", held.Bytes, bound(t.Quota.Bytes)))
		line("Queued tasks", fmt.Sprintf("%d of %s", held.QueuedTasks, bound(int64(t.Quota.QueuedTasks))))
		line("Created", moment(t.CreatedAt))
	})
}

// capOf formats a tenant's own cap.
func capOf(t *sheaf.Tenant) string {
	if t.Cap == 0 {
		return "fleet"
	}
	return strconv.Itoa(t.Cap)
}

// bound formats a quota in words.
func bound(n int64) string {
	if n == 0 {
		return "any number"
	}
	return strconv.FormatInt(n, 10)
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (g *global) tenantList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Example: "  sheaf tenant list", Short: "List tenants", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), false, func(ctx context.Context, s *sqlstore.Store) error {
				ts, err := everyPage(func(p taskstore.Page) ([]sheaf.Tenant, string, error) { return s.Tenants(ctx, p) })
				if err != nil {
					return err
				}
				if g.json {
					return g.printJSON(listed(ts))
				}
				return g.table(func(w io.Writer) {
					fmt.Fprintln(w, "TENANT\tNAME\tWEIGHT\tCAP\tPAUSED\tMAX DOCUMENTS\tMAX BYTES\tMAX QUEUED")
					for _, t := range ts {
						fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, t.Weight, capOf(&t), yesOrNo(t.Paused), most(int64(t.Quota.Documents)), most(t.Quota.Bytes), most(int64(t.Quota.QueuedTasks)))
					}
				})
			})
		},
	}
}

// most formats a quota for a table.
func most(n int64) string {
	if n == 0 {
		return "–"
	}
	return strconv.FormatInt(n, 10)
}

// everyPage reads a list to its end.
func everyPage[T any](read func(taskstore.Page) ([]T, string, error)) ([]T, error) {
	var all []T
	p := taskstore.Page{Limit: 1000, Ascending: true}
	for {
		items, next, err := read(p)
		all = append(all, items...)
		if err != nil || next == "" {
			return all, err
		}
		p.Cursor = next
	}
}
