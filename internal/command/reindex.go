package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/internal/config"
	"sheaf/internal/indexset"
)

func (g *global) indexCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "index", Short: "Act on the search index", Example: "  sheaf index status\n  sheaf index rebuild\n  sheaf index migrate start --dry-run"})
	cmd.AddCommand(&cobra.Command{
		Use: "status", Example: "  sheaf index status", Short: "Say whether the index is whole, and how far a migration is", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var st indexset.Status
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/index", nil, &st); err != nil {
				return err
			}
			return g.printIndex(&st, nil)
		},
	}, &cobra.Command{
		Use: "rebuild", Example: "  sheaf index rebuild", Short: "Make the index anew from the stored artifacts; nothing is parsed or embedded", Args: needs(0, 0, ""),
		Long: "Fills a new index from the stored artifacts while the present one is searched, then takes its place. An interrupted rebuild resumes. Where no server runs, this command does the work.",
		RunE: func(cmd *cobra.Command, _ []string) error { return g.rebuildIndex(cmd.Context()) },
	}, g.migrateIndexCommand(), g.dedicateIndexCommand(), g.shareIndexCommand())
	return cmd
}

func (g *global) dedicateIndexCommand() *cobra.Command {
	shards, dryRun := 2, false
	cmd := &cobra.Command{
		Use: "dedicate TENANT", Example: "  sheaf index dedicate acme --shards 4", Short: "Move a tenant to an index of its own", Args: needs(1, 1, "a tenant"),
		Long: `For a tenant that outgrows a shard of the index that all share. Its chunks are filled into the new index from the
stored artifacts while search goes on. sheaf index status says how far that is, sheaf index migrate cancel stops it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.moveTenant(cmd.Context(), map[string]any{"action": indexset.Dedicate, "tenant": args[0], "shards": shards}, dryRun)
		},
	}
	cmd.Flags().IntVar(&shards, "shards", shards, "shards of the index; about one per 10 million chunks")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; say whether it could be done")
	return cmd
}

func (g *global) shareIndexCommand() *cobra.Command {
	dryRun := false
	cmd := &cobra.Command{
		Use: "share TENANT", Example: "  sheaf index share acme", Short: "Move a tenant back to the shared index", Args: needs(1, 1, "a tenant"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.moveTenant(cmd.Context(), map[string]any{"action": indexset.Share, "tenant": args[0]}, dryRun)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; say whether it could be done")
	return cmd
}

func (g *global) moveTenant(ctx context.Context, ask map[string]any, dryRun bool) error {
	c, err := g.client()
	if err != nil {
		return err
	}
	var out api.IndexAnswer
	if err := c.call(ctx, http.MethodPost, migrationPath(dryRun), ask, &out); err != nil {
		return err
	}
	if dryRun && !g.json {
		fmt.Fprintf(g.out, "tenant %s can be moved; nothing was changed\n", ask["tenant"])
	}
	return g.printIndex(&out.Status, nil)
}

func migrationPath(dryRun bool) string {
	if dryRun {
		return "/v1/index/migration?dry_run=true"
	}
	return "/v1/index/migration"
}

// rebuildIndex has the running server rebuild the index, or does it locally.
func (g *global) rebuildIndex(ctx context.Context) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	if g.server == "" && cfg.Sole() {
		if unlock, err := lockDir(cfg.DataDir); err == nil { // no other process uses this folder
			if err := unlock(); err != nil {
				return err
			}
			return g.rebuildHere(ctx, cfg)
		}
	}
	c, err := g.client()
	if err != nil {
		return err
	}
	var st indexset.Status
	err = c.call(ctx, http.MethodPost, "/v1/index/rebuild", nil, &st)
	if _, away := errors.AsType[unreachableError](err); away && g.server == "" && !cfg.Sole() {
		return g.rebuildHere(ctx, cfg)
	}
	if err != nil {
		return err
	}
	tty := g.isTerminal(g.err)
	for {
		m := st.Migration
		if m == nil || !m.Rebuild {
			if m != nil && m.Phase == indexset.Refused {
				return fmt.Errorf("the new index was not taken: %s", m.Gate.Reason)
			}
			fmt.Fprintln(g.err, "rebuilt the index")
			return nil
		}
		if tty {
			fmt.Fprintf(g.err, "\r\x1b[K%d of %d ranges\r", m.Ranges, m.TotalRanges)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
		st = indexset.Status{}
		if err := c.call(ctx, http.MethodGet, "/v1/index", nil, &st); err != nil {
			return err
		}
	}
}

func (g *global) rebuildHere(ctx context.Context, cfg config.Config) error {
	a, err := g.build(ctx, cfg, roles{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer a.close()
	total := 0
	// A rebuild in progress continues; while a tenant is moved it is refused.
	if st := a.index.View().State; st.Lost == "" && (!st.Auto || st.Beside.Tenant != "") {
		if _, _, err := a.index.Act(ctx, indexset.Rebuild, false, false); err != nil {
			return err
		}
	}
	tty := g.isTerminal(g.err)
	err = a.fillIndex(ctx, func(st *indexset.Status) {
		if m := st.Migration; m != nil {
			total = max(total, m.TotalRanges)
			if tty {
				fmt.Fprintf(g.err, "\r\x1b[K%d of %d ranges\r", m.Ranges, m.TotalRanges)
			}
		}
	})
	if err == nil {
		fmt.Fprintf(g.err, "rebuilt the index from %s\n", count(total, "range"))
	}
	return err
}

func (g *global) migrateIndexCommand() *cobra.Command {
	var dryRun, force bool
	verbs := []string{"status"}
	for _, a := range indexset.Actions {
		verbs = append(verbs, string(a))
	}
	cmd := &cobra.Command{
		Use: "migrate " + strings.ToUpper(strings.Join(verbs, "|")), Short: "Change the embedding model without a gap in search", Args: needs(1, 1, "one of "+strings.Join(verbs, ", ")), ValidArgs: verbs,
		Long: `After embed.model names another model, search goes on with the index and the model that were there.

start fills an index of the new model beside it, from the stored artifacts; --dry-run says what that takes.
pause and resume hold it up. switch searches the new index once nothing is missing and the gate has passed.
rollback searches the former one again; confirm deletes that. cancel deletes the new one before the switch.`,
		Example: "  sheaf index migrate start --dry-run\n  sheaf index migrate start\n  sheaf index migrate status\n  sheaf index migrate switch\n  sheaf index migrate confirm",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var out api.IndexAnswer
			verb := strings.ToLower(args[0])
			if verb == "status" {
				err = c.call(cmd.Context(), http.MethodGet, "/v1/index", nil, &out.Status)
			} else {
				err = c.call(cmd.Context(), http.MethodPost, migrationPath(dryRun), map[string]any{"action": verb, "force": force}, &out)
			}
			if err != nil {
				return err
			}
			return g.printIndex(&out.Status, out.Estimate)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; of start, say what it would take")
	cmd.Flags().BoolVar(&force, "force", false, "switch although the gate has not passed")
	return cmd
}

// printIndex prints the state of the index, one fact per line.
func (g *global) printIndex(st *indexset.Status, estimate *indexset.Estimate) error {
	if g.json {
		return g.printJSON(api.IndexAnswer{Status: *st, Estimate: estimate})
	}
	if e := estimate; e != nil {
		fmt.Fprintf(g.out, "an index of %s: %d ranges, %d chunks, %d tokens to embed%s, about %s\n", e.To, e.Ranges, e.Chunks, e.Tokens, priceOf(e.Price, e.Currency), roughTime(e.Seconds))
	}
	fmt.Fprintf(g.out, "searched: %s\n", st.Model)
	if st.Configured != st.Model {
		fmt.Fprintf(g.out, "configured: %s\n", st.Configured)
	}
	if st.Stale {
		fmt.Fprintf(g.out, "stale: %s\n", st.Reason)
	}
	if st.Embedder != "" {
		fmt.Fprintf(g.out, "by words alone: %s\n", st.Embedder)
	}
	for _, d := range st.Dedicated {
		fmt.Fprintf(g.out, "dedicated: %s, %s\n", d.Tenant, count(d.Shards, "shard"))
	}
	m := st.Migration
	if m == nil {
		return nil
	}
	kind := "migration to " + m.To
	if m.Tenant != "" {
		kind = "move of tenant " + m.Tenant
	} else if m.Rebuild {
		kind = "rebuild"
	}
	fmt.Fprintf(g.out, "%s: %s, %d of %d ranges, %d tokens embedded%s\n", kind, cmp.Or(string(m.Wanted), string(m.Phase)), m.Ranges, m.TotalRanges, m.Tokens, priceOf(m.Price, m.Currency))
	if m.SecondsLeft > 0 {
		fmt.Fprintf(g.out, "%.0f ranges a second, %s left\n", m.RangesPerSecond, roughTime(m.SecondsLeft))
	}
	if gate := m.Gate; gate != nil {
		fmt.Fprintf(g.out, "gate: %s; %d missing, recall %.2f, before %.2f, of %d questions\n", map[bool]string{true: "passed", false: "refused"}[gate.Passed], gate.Missing, gate.Recall, gate.RecallLive, gate.Samples)
		if gate.Saved > 0 {
			fmt.Fprintf(g.out, "  recall %.2f, before %.2f, of %d saved queries\n", gate.SavedRecall, gate.SavedRecallLive, gate.Saved)
		}
		if gate.Reason != "" {
			fmt.Fprintf(g.out, "  %s\n", gate.Reason)
		}
	}
	if m.Error != "" {
		fmt.Fprintf(g.out, "error: %s\n", m.Error)
	}
	return nil
}

func priceOf(amount float64, currency string) string {
	if amount == 0 {
		return ""
	}
	digits := 2
	if amount < 1 { // a run may cost less than a cent
		digits = 4
	}
	return strings.TrimRight(fmt.Sprintf(" (%.*f %s", digits, amount, currency), " ") + ")"
}

func roughTime(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
