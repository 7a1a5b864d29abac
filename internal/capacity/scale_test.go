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
	{"The same with what it lacked first",
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
	line("# How far a fleet goes\n")
	line("What `sheaf plan` says of some fleets: a model of uploads, feed, queue, executors, engines and keepers that plays some minutes to hours event by event. `go test ./internal/capacity -run Scale -update` writes this page. `make bench` holds the model against fleets that run (the rows `capacity.fleet` and `capacity.wait`: 1, 2 and 4 executors, 1, 100 and 10,000 tenants), each within 20 %%. What it does not know: how an engine slows down as its tables and shards grow, networks, and the time of day.\n")
	line("Ask it about your own fleet, with what `make bench` measures on your machines:\n")
	line("<!-- not run by the tests: make bench takes an hour -->\n\n```\nmake bench\nsheaf plan --executors 20 --tenants 500 --pages-per-day 3e7 --service-times bench/out/bench.json\n```\n")
	line("Executors have 2 cores, tenants upload by Zipf's law under a cap of 8 tasks each, documents are of 1 (30 %%), 5 (40 %%), 20 (25 %%) and 200 pages (5 %%), a tenth of them interactive and a tenth backfill. A core with its memory costs 0.05 an hour (`--core-price`), about what clouds ask for a plain one in dollars; storage is not in the price (`--disk-price`, `--blob-price`).")
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
			verdict = fmt.Sprintf("It does not keep up: first to give out are the %s.", r.Parts[0].Name)
		}
		line("Of %s pages/s %s become searchable, %s documents/s. %s A million pages cost %.2f on %d cores, and %.2f where the first part below is used whole. The keeper's longest round of the feed takes %s.\n", figure(r.Offered), figure(r.Pages), figure(r.Docs), verdict, r.Money, r.Cores, r.Least, lasting(r.Feed))
		line("| gives out | used | full at | what to do |\n|---|---|---|---|")
		for i, p := range r.Parts[:3] {
			at := "–"
			if p.Full > 0 {
				at = figure(p.Full) + " pages/s"
			}
			line("| %d. %s | %.0f %% | %s | %s |", i+1, p.Name, 100*p.Used, at, cure(p.Cure))
		}
		line("\n| waits | due to claimed: p50 | p99 | upload to searchable: p50 | p99 |\n|---|---|---|---|---|")
		for _, waits := range [][]Wait{r.Lanes, r.Tenants} {
			for _, w := range waits {
				line("| %s | %s | %s | %s | %s |", map[bool]string{true: w.Of + " lane", false: w.Of + " of the tenants"}[len(waits) == 3 && waits[0].Of == "interactive"],
					lasting(w.Claimed.P50), lasting(w.Claimed.P99), lasting(w.Searchable.P50), lasting(w.Searchable.P99))
			}
		}
		line("\n| kept | number | size |\n|---|---|---|")
		for _, s := range r.Stored {
			line("| %s | %s | %s |", s.Name, figure(s.Count), bytes(s.Bytes))
		}
		line("| shards of the index, with a replica each | %d | |", r.Shards)
		line("| Redis | | %s; %s with every window full |", bytes(r.Redis), bytes(r.RedisMax))
	}
	line("\n## What a page costs\n")
	line("The costs that the model is fed with, which `--service-times` replaces by name. They were measured on two cores at 2.9 GHz that had other work to do, with `sheaf-pdfium` beside the executor, MariaDB 10.11, Redis 7.0, MinIO and Elasticsearch 8.19; a source that is the name of a row is one of `make bench`. Those of documents are of a fleet of one executor, which gathers less than many do: they are rather too high.\n")
	line("| cost | default | unit | from |\n|---|---|---|---|")
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
