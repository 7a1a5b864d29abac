package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"sheaf/internal/capacity"
)

// planCommand predicts the performance of a fleet. It needs no server.
func (g *global) planCommand() *cobra.Command {
	c := capacity.Defaults()
	sizes, lanes, times := "1:30,5:40,20:25,200:5", "10,80,10", ""
	cmd := &cobra.Command{
		Use: "plan", Short: "Predict a fleet's throughput, bottlenecks and cost", Args: needs(0, 0, ""),
		Long: `Simulates minutes or hours of a fleet, with measured service times, and prints its
throughput, latencies, utilization, storage and cost. It needs no running server.
docs/scale.md shows three sizes of fleet. --json prints everything, including each service
time and where it was measured; --service-times replaces them, also with the report that
"make bench" writes on your machines.`,
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
		{&c.Executors, "executors", "number of executors"},
		{&c.Cores, "cores", "cores per executor"},
		{&c.Slots, "slots", "concurrent tasks per executor; 0 for 2 × cores + 2"},
		{&c.Tenants, "tenants", "number of tenants"},
		{&c.Cap, "cap", "concurrent tasks per tenant; 0 for as many as the fleet has workers"},
		{&c.Window, "window", "queued tasks per tenant and lane in Redis"},
		{&c.Serves, "serves", "API processes with one core each"},
		{&c.Keepers, "keepers", "keepers with one core each"},
		{&c.Database, "database-cores", "cores of the database"},
		{&c.Elasticsearch, "elasticsearch-cores", "cores of Elasticsearch, over all nodes"},
		{&c.ObjectStore, "object-store-cores", "cores of the object store, over all nodes"},
		{&c.Redis, "redis-servers", "Redis servers with one core each"},
	} {
		f.IntVar(v.to, v.name, *v.to, v.usage)
	}
	for _, v := range []struct {
		to          *float64
		name, usage string
	}{
		{&c.PagesPerDay, "pages-per-day", "pages uploaded per day"},
		{&c.CorpusPages, "corpus-pages", "pages stored; 0 for 30 days of uploads"},
		{&c.Zipf, "zipf", "Zipf exponent of uploads by tenant; 0 for equal tenants"},
		{&c.CorePrice, "core-price", "price per core-hour with its memory, in your currency"},
		{&c.DiskPrice, "disk-price", "price per gigabyte-month on database and index disks"},
		{&c.BlobPrice, "blob-price", "price per gigabyte-month in the object store"},
	} {
		f.Float64Var(v.to, v.name, *v.to, v.usage)
	}
	f.StringVar(&sizes, "documents", sizes, "`PAGES:SHARE` of document sizes, separated by commas")
	f.StringVar(&lanes, "lanes", lanes, "shares of the interactive, normal and backfill lanes")
	f.StringVar(&times, "service-times", "", "JSON `FILE` of service times, or a report of make bench")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "random seed")
	return cmd
}

func (g *global) printPlan(r *capacity.Report) error {
	verdict := "keeps up with all of"
	if !r.KeepsUp {
		verdict = "does not keep up with"
	}
	fmt.Fprintf(g.out, "%s pages/s, %s documents/s: %s %s pages/s\n", rateOf(r.Pages), rateOf(r.Docs), verdict, rateOf(r.Offered))
	fmt.Fprintf(g.out, "a million pages cost %.2f on %s, %.2f at full utilization; storage %s a month\n\n", r.Money, count(r.Cores, "core"), r.Least, rateOf(r.Storage))
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "RESOURCE\tUTILIZATION\tSATURATES AT PAGES/S\tREMEDY")
		for _, p := range r.Parts {
			at := "-"
			if p.Full > 0 {
				at = rateOf(p.Full)
			}
			fmt.Fprintf(w, "%s\t%.0f %%\t%s\t%s\n", p.Name, 100*p.Used, at, p.Cure)
		}
		fmt.Fprintln(w, "\nLATENCY\tDOCUMENTS\tQUEUE WAIT P50, P99\tUPLOAD TO SEARCHABLE P50, P99")
		for _, waits := range [][]capacity.Wait{r.Lanes, r.Tenants} {
			for _, v := range waits {
				fmt.Fprintf(w, "%s\t%s\t%s, %s\t%s, %s\n", v.Of, number(v.Documents), waited(v.Claimed.P50), waited(v.Claimed.P99), waited(v.Searchable.P50), waited(v.Searchable.P99))
			}
		}
		fmt.Fprintln(w, "\nSTORED\tCOUNT\tSIZE")
		for _, v := range r.Stored {
			fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, rateOf(v.Count), size(int64(v.Bytes)))
		}
		fmt.Fprintf(w, "shards\t%s\t\nRedis\t\t%s, %s at most\n", number(r.Shards), size(int64(r.Redis)), size(int64(r.RedisMax)))
		fmt.Fprintf(w, "\nLongest feed round of the keeper: %s.\n", waited(r.Feed))
	})
}

// waited formats seconds, or milliseconds below one.
func waited(s float64) string {
	if s < .9995 {
		return fmt.Sprintf("%.0f ms", 1000*s)
	}
	return seconds(s)
}
