package capacity

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/scale.md")

// scales are the fleets of docs/scale.md.
var scales = []struct {
	title, command string
	change         func(c *Config)
}{
	{"One executor, one tenant", "sheaf plan --pages-per-day 3e6", func(c *Config) { c.PagesPerDay = 3e6 }},
	{"Ten executors, a thousand tenants", "sheaf plan --executors 10 --tenants 1000 --pages-per-day 5e7", func(c *Config) {
		c.Executors, c.Tenants, c.PagesPerDay = 10, 1000, 5e7
	}},
	{"A hundred executors, ten thousand tenants, a billion pages",
		"sheaf plan --executors 100 --tenants 10000 --pages-per-day 1e9 --corpus-pages 1e9 --serves 8 --database-cores 16 --elasticsearch-cores 32 --object-store-cores 16",
		func(c *Config) {
			c.Executors, c.Tenants, c.PagesPerDay, c.CorpusPages = 100, 10_000, 1e9, 1e9
			c.Serves, c.Database, c.Elasticsearch, c.ObjectStore = 8, 16, 32, 16
		}},
	{"The same without its first bottlenecks",
		"sheaf plan --executors 100 --tenants 10000 --pages-per-day 1e9 --corpus-pages 1e9 --serves 8 --database-cores 32 --elasticsearch-cores 32 --object-store-cores 16 --cap 200 --window 5000",
		func(c *Config) {
			c.Executors, c.Tenants, c.PagesPerDay, c.CorpusPages = 100, 10_000, 1e9, 1e9
			c.Serves, c.Database, c.Elasticsearch, c.ObjectStore, c.Cap, c.Window = 8, 32, 32, 16, 200, 5000
		}},
}

// figure writes a number with three digits that count and its thousands apart.
func figure(v float64) string {
	unit := ""
	for _, u := range []string{" thousand", " million", " billion"} {
		if v < 99_950 && (unit == "" || v < 999.5) {
			break
		}
		v, unit = v/1000, u
	}
	switch {
	case v < 9.95:
		return fmt.Sprintf("%.2g", v) + unit
	case v < 999.5:
		return fmt.Sprintf("%.0f", v) + unit
	}
	digits := math.Pow(10, math.Floor(math.Log10(v))-2)
	whole := int(math.Round(v/digits) * digits)
	return fmt.Sprintf("%d,%03d", whole/1000, whole%1000) + unit
}

func bytes(v float64) string {
	unit := "B"
	for _, u := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	if v < 9.95 && unit != "B" {
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

func lasting(seconds float64) string {
	switch {
	case seconds < .0995:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	case seconds < 9.95:
		return fmt.Sprintf("%.1f s", seconds)
	case seconds < 99.5:
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.0f min", seconds/60)
}

// scaleDocument is docs/scale.md.
func scaleDocument(t *testing.T) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Capacity of a fleet\n")
	line("Predictions of `sheaf plan` for four fleets. The command runs a discrete-event simulation of uploads, feed, queue, executors, engines and keepers over minutes to hours. `go test ./internal/capacity -run Scale -update` writes this page. `make bench` compares predictions with real fleets (rows `capacity.fleet` and `capacity.wait`: 1, 2 and 4 executors; 1, 100 and 10,000 tenants); each must be within 20 %%. The model does not know how engines slow down as tables and shards grow, networks, or daily peaks.\n")
	line("Plan your own fleet with the service times that `make bench` measures on your machines:\n")
	line("<!-- not run by the tests: make bench takes an hour -->\n\n```\nmake bench\nsheaf plan --executors 20 --tenants 500 --pages-per-day 3e7 --service-times bench/out/bench.json\n```\n")
	line("Executors have 2 cores. Tenants upload by Zipf's law, and each may use as many workers as the fleet has. Documents have 1 (30 %%), 5 (40 %%), 20 (25 %%) and 200 pages (5 %%); a tenth are interactive and a tenth backfill. A core with its memory costs 0.05 per hour (`--core-price`), about the dollar price of a general-purpose cloud core. Storage is not included (`--disk-price`, `--blob-price`).")
	for _, of := range scales {
		c := Defaults()
		of.change(&c)
		r, err := Predict(c)
		if err != nil {
			t.Fatal(err)
		}
		line("\n## %s\n\n`%s`\n", of.title, of.command)
		verdict := "It keeps up."
		if !r.KeepsUp {
			verdict = fmt.Sprintf("It does not keep up; the first bottleneck: %s.", r.Parts[0].Name)
		}
		line("Of %s uploaded pages/s, %s become searchable (%s documents/s). %s A million pages cost %.2f on %d cores, or %.2f with the first bottleneck fully utilized. The keeper's longest feed round takes %s.\n", figure(r.Offered), figure(r.Pages), figure(r.Docs), verdict, r.Money, r.Cores, r.Least, lasting(r.Feed))
		line("| bottleneck | utilization | saturates at | remedy |\n|---|---|---|---|")
		for i, p := range r.Parts[:3] {
			at := "–"
			if p.Full > 0 {
				at = figure(p.Full) + " pages/s"
			}
			line("| %d. %s | %.0f %% | %s | %s |", i+1, p.Name, 100*p.Used, at, cure(p.Cure))
		}
		line("\n| latency | queue wait: p50 | p99 | upload to searchable: p50 | p99 |\n|---|---|---|---|---|")
		for _, waits := range [][]Wait{r.Lanes, r.Tenants} {
			for _, w := range waits {
				line("| %s | %s | %s | %s | %s |", map[bool]string{true: w.Of + " lane", false: w.Of + " of the tenants"}[len(waits) == 3 && waits[0].Of == "interactive"],
					lasting(w.Claimed.P50), lasting(w.Claimed.P99), lasting(w.Searchable.P50), lasting(w.Searchable.P99))
			}
		}
		line("\n| stored | count | size |\n|---|---|---|")
		for _, s := range r.Stored {
			line("| %s | %s | %s |", s.Name, figure(s.Count), bytes(s.Bytes))
		}
		line("| index shards, each with a replica | %d | |", r.Shards)
		line("| Redis | | %s; %s if every window is full |", bytes(r.Redis), bytes(r.RedisMax))
	}
	line("\n## Service times\n")
	line("Inputs of the model. `--service-times` replaces them by name. They were measured on two shared cores at 2.9 GHz, with `sheaf-pdfium`, MariaDB 10.11, Redis 7.0, MinIO and Elasticsearch 8.19. Sources that are row names refer to `make bench`. Costs per document come from a fleet of one executor, which batches less than larger ones, so they are on the high side.\n")
	line("| input | default | unit | source |\n|---|---|---|---|")
	times := DefaultTimes()
	for _, i := range times.Inputs() {
		line("| `%s` | %g | %s | %s |", i.Name, i.Value, i.Unit, i.Source)
	}
	return b.String()
}

// cure puts commands and settings in code.
func cure(text string) string {
	if before, command, ok := strings.Cut(text, ": sheaf "); ok {
		return before + ": `sheaf " + command + "`"
	}
	words := strings.Fields(text)
	for i, w := range words {
		if plain := strings.Trim(w, ",:"); strings.Contains(plain, ".") {
			words[i] = strings.Replace(w, plain, "`"+plain+"`", 1)
		}
	}
	return strings.Join(words, " ")
}

// docs/scale.md is what the model says.
func TestScaleDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("plays some hours of large fleets")
	}
	const path = "../../docs/scale.md"
	got := scaleDocument(t)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Error("docs/scale.md says something else than the model; run go test ./internal/capacity -run Scale -update")
	}
}
