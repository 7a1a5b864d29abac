package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"sheaf/internal/capacity"
)

// planCommand predicts what a fleet does. It needs no service.
func (g *global) planCommand() *cobra.Command {
	c := capacity.Defaults()
	sizes, lanes, times := "1:30,5:40,20:25,200:5", "10,80,10", ""
	cmd := &cobra.Command{
		Use: "plan", Short: "Predict what a fleet does, what it lacks first and what it costs", Args: needs(0, 0, ""),
		Long: `Plays some minutes or hours of a fleet in a model, with costs that were measured, and
prints what it makes searchable, how long that waits, how far each part is used, and
what is kept. docs/scale.md has three sizes of fleet. --json has all of it, with the costs and
where each was measured; --service-times replaces them, also by what "make bench"
wrote on your machines.`,
		Example: "  sheaf plan --executors 10 --tenants 1000 --pages-per-day 20e6\n  sheaf plan --documents 1:90,300:10 --cap 16\n  sheaf plan --service-times bench/out/bench.json --json",
		RunE: func(*cobra.Command, []string) (err error) {
			if c.Sizes, err = capacity.ParseSizes(sizes); err != nil {
				return usageError{err}
			}
			if c.Lanes, err = capacity.ParseLanes(lanes); err != nil {
				return usageError{err}
			}
			if times != "" {
				text, err := os.ReadFile(times)
				if err != nil {
					return err
				}
				if err := c.Times.Read(text); err != nil {
					return usageError{err}
				}
			}
			r, err := capacity.Predict(c)
			if err != nil {
				return usageError{err}
			}
			if g.json {
				return g.printJSON(r)
			}
			return g.printPlan(r)
		},
	}
	f := cmd.Flags()
	for _, v := range []struct {
		to          *int
		name, usage string
	}{
		{&c.Executors, "executors", "executors"},
		{&c.Cores, "cores", "cores of each executor"},
		{&c.Slots, "slots", "tasks at once of each executor; 0: 2 × cores + 2"},
		{&c.Tenants, "tenants", "tenants"},
		{&c.Cap, "cap", "tasks of a tenant at once"},
		{&c.Window, "window", "hints of a tenant and lane in Redis"},
		{&c.Serves, "serves", "API processes, of one core each"},
		{&c.Keepers, "keepers", "keepers, of one core each"},
		{&c.Database, "database-cores", "cores of the database"},
		{&c.Elasticsearch, "elasticsearch-cores", "cores of Elasticsearch, all nodes together"},
		{&c.ObjectStore, "object-store-cores", "cores of the object store, all nodes together"},
		{&c.Redis, "redis-servers", "Redis servers, of one core each"},
	} {
		f.IntVar(v.to, v.name, *v.to, v.usage)
	}
	for _, v := range []struct {
		to          *float64
		name, usage string
	}{
		{&c.PagesPerDay, "pages-per-day", "pages that are uploaded in a day"},
		{&c.CorpusPages, "corpus-pages", "pages that are kept; 0: those of 30 days"},
		{&c.Zipf, "zipf", "exponent of the law by which tenants upload; 0: all alike"},
		{&c.CorePrice, "core-price", "price of a core with its memory for an hour, in your currency"},
		{&c.DiskPrice, "disk-price", "price of a gigabyte on the disks of database and index for a month"},
		{&c.BlobPrice, "blob-price", "price of a gigabyte in the object store for a month"},
	} {
		f.Float64Var(v.to, v.name, *v.to, v.usage)
	}
	f.StringVar(&sizes, "documents", sizes, "how many `PAGES` documents have, and which share of them")
	f.StringVar(&lanes, "lanes", lanes, "shares of the lanes interactive, normal and backfill")
	f.StringVar(&times, "service-times", "", "JSON `FILE` of costs, or of what make bench wrote")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "what chance is drawn from")
	return cmd
}

func (g *global) printPlan(r *capacity.Report) error {
	whole := func(v float64) string {
		if v < 10 {
			return fmt.Sprintf("%.2g", v)
		}
		return number(int(v + .5))
	}
	verdict := "keeps up with all of"
	if !r.KeepsUp {
		verdict = "does not keep up with"
	}
	fmt.Fprintf(g.out, "%s pages/s, %s documents/s: %s %s pages/s\n", whole(r.Pages), whole(r.Docs), verdict, whole(r.Offered))
	fmt.Fprintf(g.out, "a million pages cost %.2f on %s, %.2f if it were full; storage %s a month\n\n", r.Money, count(r.Cores, "core"), r.Least, whole(r.Storage))
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "PART\tUSED\tFULL AT PAGES/S\tWHAT TO DO")
		for _, p := range r.Parts {
			at := "-"
			if p.Full > 0 {
				at = whole(p.Full)
			}
			fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%s\n", p.Name, 100*p.Used, at, p.Cure)
		}
		fmt.Fprintln(w, "\nWAITS OF\tDOCUMENTS\tDUE TO CLAIMED, P50, P99\tUPLOAD TO SEARCHABLE, P50, P99")
		for _, waits := range [][]capacity.Wait{r.Lanes, r.Tenants} {
			for _, v := range waits {
				fmt.Fprintf(w, "%s\t%s\t%s, %s\t%s, %s\n", v.Of, number(v.Documents), waited(v.Claimed.P50), waited(v.Claimed.P99), waited(v.Searchable.P50), waited(v.Searchable.P99))
			}
		}
		fmt.Fprintln(w, "\nKEPT\tNUMBER\tSIZE")
		for _, v := range r.Stored {
			fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, whole(v.Count), size(int64(v.Bytes)))
		}
		fmt.Fprintf(w, "shards\t%s\t\nRedis\t\t%s, %s at most\n", number(r.Shards), size(int64(r.Redis)), size(int64(r.RedisMax)))
		fmt.Fprintf(w, "\nThe keeper's longest round of the feed takes %s.\n", waited(r.Feed))
	})
}

// waited writes seconds, and what is less than one in milliseconds.
func waited(s float64) string {
	if s < .9995 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return seconds(s)
}
