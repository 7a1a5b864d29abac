// Command bench measures the service against what a user would pick instead, in one
// run on one machine: pages per CPU-second against pdftotext, the cost of the
// pipeline around the parser, memory, search, the queue and its fairness. It is
// separate from the product: it starts the real binary for what users wait for, and
// drives the real components for what they do not see.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
	"sheaf/parser/pdf/pdfium"
)

// builtIn are the formats without optional programs: the compared programs do not
// read pictures or convert office files either.
func builtIn() []parser.Format {
	return formats.All(formats.Config{PDF: formats.FromEnviron().PDF}) // as configured by the pool that starts this program
}

func main() {
	child.MaybeRun(builtIn()) // the parser pool starts this program again
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one measured value. Bound is empty if a value is only reported.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Bound string  `json:"bound"`
	Holds *bool   `json:"holds"` // null without a bound
	Note  string  `json:"note,omitempty"`
}

// bench is one run.
type bench struct {
	bin     string // of the service
	corpus  string // "" if there is none
	tmp     string // removed at the end
	rows    []row
	texts   int          // documents created by text
	pdf     pdfium.Found // sheaf-pdfium, if it is next to the service as in a release
	engines string       // folder of the engines started by this run, "" for none
	noop    time.Duration
}

// measure is a selectable part of the run. Its names are those of the rows it
// produces, or prefixes of them.
type measure struct {
	names []string
	run   func(ctx context.Context, b *bench) error
}

var measures = []measure{
	{[]string{"parse.realistic"}, func(ctx context.Context, b *bench) error { return b.parseRealistic(ctx) }},
	{[]string{"parse.large"}, func(ctx context.Context, b *bench) error { return b.parseLarge(ctx) }},
	{[]string{"parse.helper"}, func(ctx context.Context, b *bench) error { return b.parseHelper(ctx) }},
	{[]string{"peers"}, func(ctx context.Context, b *bench) error { return b.peers(ctx) }},
	{[]string{"formats"}, func(ctx context.Context, b *bench) error { return b.formats(ctx) }},
	{[]string{"store.cycles"}, func(ctx context.Context, b *bench) error { return b.storeCycles(ctx) }},
	{[]string{"flow.node"}, func(ctx context.Context, b *bench) error { return b.flowNodes(ctx) }},
	{[]string{"flow.fanout"}, func(ctx context.Context, b *bench) error { return b.flowFanOut(ctx) }},
	{[]string{"graph"}, func(ctx context.Context, b *bench) error { return b.graph(ctx) }},
	{[]string{"raptor"}, func(ctx context.Context, b *bench) error { return b.raptor(ctx) }},
	{[]string{"e2e", "store.share"}, func(ctx context.Context, b *bench) error { return b.endToEnd(ctx) }},
	{[]string{"memory.pdf", "reparse"}, func(ctx context.Context, b *bench) error { return b.bigPDF(ctx) }},
	{[]string{"plan.share"}, func(ctx context.Context, b *bench) error { return b.planShare(ctx) }},
	{[]string{"changed.page"}, func(ctx context.Context, b *bench) error { return b.changedPage(ctx) }},
	{[]string{"memory.upload"}, func(ctx context.Context, b *bench) error { return b.bigUpload(ctx) }},
	{[]string{"memory.csv"}, func(ctx context.Context, b *bench) error { return b.bigTable(ctx, "csv") }},
	{[]string{"memory.xlsx"}, func(ctx context.Context, b *bench) error { return b.bigTable(ctx, "xlsx") }},
	{[]string{"first.searchable"}, func(ctx context.Context, b *bench) error { return b.firstSearchable(ctx) }},
	{[]string{"document"}, func(ctx context.Context, b *bench) error { return b.smallDocument(ctx) }},
	{[]string{"search"}, func(ctx context.Context, b *bench) error { return b.search(ctx) }},
	{[]string{"embed.model"}, func(ctx context.Context, b *bench) error { return b.embedModel(ctx) }},
	{[]string{"page.first", "page.bytes", "page.end", "page.sort", "page.select", "page.turn"}, func(ctx context.Context, b *bench) error { return b.page(ctx) }},
	{[]string{"page.busy", "page.intake"}, func(ctx context.Context, b *bench) error { return b.pageBusy(ctx) }},
	{[]string{"fairness"}, func(ctx context.Context, b *bench) error { return b.fairness(ctx) }},
	{[]string{"fleet.cycles"}, func(ctx context.Context, b *bench) error { return b.fleetCycles(ctx) }},
	{[]string{"fleet.document"}, func(ctx context.Context, b *bench) error { return b.fleetDocument(ctx) }},
	{[]string{"fleet.pages"}, func(ctx context.Context, b *bench) error { return b.fleetPages(ctx) }},
	{[]string{"fleet.engines"}, func(ctx context.Context, b *bench) error { return b.fleetEngines(ctx) }},
	{[]string{"fleet.rebuild"}, func(ctx context.Context, b *bench) error { return b.fleetRebuild(ctx) }},
	{[]string{"fleet.first.searchable"}, func(ctx context.Context, b *bench) error { return b.fleetFirstSearchable(ctx) }},
	{[]string{"fleet.spread"}, func(ctx context.Context, b *bench) error { return b.fleetSpread(ctx) }},
	{[]string{"watchers"}, func(ctx context.Context, b *bench) error { return b.watchers(ctx) }},
	{[]string{"promotion"}, func(ctx context.Context, b *bench) error { return b.promotion(ctx) }},
	{[]string{"upload.tiny"}, func(ctx context.Context, b *bench) error { return b.tinyUploads(ctx) }},
	{[]string{"notes"}, func(ctx context.Context, b *bench) error { return b.notes(ctx) }},
	{[]string{"queue.first"}, func(ctx context.Context, b *bench) error { return b.firstHint(ctx) }},
	{[]string{"fold"}, func(ctx context.Context, b *bench) error { return b.fold(ctx) }},
	{[]string{"facades.tika", "facades.docling", "facades.openwebui", "facades.openai", "facades.ragflow"}, func(ctx context.Context, b *bench) error { return b.facades(ctx) }},
	{[]string{"facades.crowd"}, func(ctx context.Context, b *bench) error { return b.facadeCrowds(ctx) }},
	{[]string{"facades.dify"}, func(ctx context.Context, b *bench) error { return b.facadeSearch(ctx) }},
	{[]string{"capacity.fleet", "capacity.row", "capacity.wait"}, func(ctx context.Context, b *bench) error { return b.capacity(ctx) }},
	{[]string{"capacity.document", "capacity.page"}, func(ctx context.Context, b *bench) error { return b.capacityDocuments(ctx) }},
	{[]string{"queue.latency"}, func(ctx context.Context, b *bench) error { return b.queueLatency(ctx) }},
}

func run(ctx context.Context) error {
	only := flag.String("only", "", "measures to run, by the start of their names, separated by commas; default all")
	corpus := flag.String("corpus", "", "folder of test documents; default SHEAF_CORPUS")
	out := flag.String("out", "bench/out/bench.json", "where the rows are written as JSON")
	bin := flag.String("bin", "bin/sheaf", "the service to measure, made by `make build`")
	profile := flag.String("profile", "", "file for a CPU profile of this program, which runs the parts of the store and queue measures itself")
	page := flag.String("doc", "", "file for the page on performance, written from the reports that are named as arguments; nothing is measured")
	strict := flag.Bool("strict", false, "exit with 1 when a bound does not hold")
	flag.Parse()
	if *page != "" {
		return writePerformance(*page, flag.Args())
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; measures are chosen with -only", flag.Arg(0))
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return errors.New("CPU time and memory are read from /proc, which this system does not have; run the benchmarks on Linux")
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	b := &bench{corpus: findCorpus(*corpus)}
	if b.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	if _, err := os.Stat(b.bin); err != nil {
		return fmt.Errorf("there is no %s; run `make build` first, or name one with -bin", *bin)
	}
	if *corpus != "" && b.corpus == "" {
		return fmt.Errorf("the corpus folder %s holds no pdf folder", *corpus)
	}
	if b.tmp, err = os.MkdirTemp("", "sheaf-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	defer b.stopEngines()
	// The service finds it there automatically; use the same one here.
	if b.pdf, err = pdfium.Find(ctx, pdfium.Auto, filepath.Join(filepath.Dir(b.bin), pdfium.Program), child.ProgramPath); err != nil {
		return err
	}
	defer b.pdf.Close()

	fmt.Printf("%s/%s, %d CPUs, load %s, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load(), time.Now().Format(time.RFC3339))
	fmt.Println("PDFs are read by", b.pdf)
	if b.corpus == "" {
		fmt.Println("no corpus (-corpus or SHEAF_CORPUS): the rows that need one are left out; the sample documents stand in for a first look")
	}
	var failed []error
	for _, m := range chosen {
		if ctx.Err() != nil {
			break
		}
		from, begun := len(b.rows), time.Now()
		fmt.Printf("\n%s …\n", strings.Join(m.names, ", "))
		if err := m.run(ctx, b); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", strings.Join(m.names, ", "), err))
			fmt.Println("  failed:", err)
		}
		printRows(b.rows[from:])
		fmt.Printf("  %s\n", time.Since(begun).Round(100*time.Millisecond))
	}
	fmt.Println("\nAll rows:")
	printRows(b.rows)
	if err := b.write(*out); err != nil {
		return err
	}
	fmt.Println("written to", *out)
	missed := slices.ContainsFunc(b.rows, func(r row) bool { return r.Holds != nil && !*r.Holds })
	if *strict && missed {
		failed = append(failed, errors.New("a bound does not hold"))
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// choose picks the measures with a name that is a prefix of a requested one, or
// vice versa.
func choose(only string) ([]measure, error) {
	if only == "" {
		return measures, nil
	}
	var out []measure
	asked := strings.Split(only, ",")
	found := map[string]bool{}
	for _, m := range measures {
		take := false
		for _, a := range asked {
			for _, n := range m.names {
				if strings.HasPrefix(n, a) || strings.HasPrefix(a, n) {
					take, found[a] = true, true
				}
			}
		}
		if take {
			out = append(out, m)
		}
	}
	for _, a := range asked {
		if !found[a] {
			var all []string
			for _, m := range measures {
				all = append(all, m.names...)
			}
			return nil, fmt.Errorf("no measure is called %q; there are %s", a, strings.Join(all, ", "))
		}
	}
	return out, nil
}

// findCorpus returns "" if the named folder, or that of SHEAF_CORPUS, contains no
// PDFs.
func findCorpus(named string) string {
	dir := cmp.Or(named, os.Getenv("SHEAF_CORPUS"))
	if info, err := os.Stat(filepath.Join(dir, "pdf")); dir == "" || err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// leftOut reports why rows are missing.
func leftOut(names, why string) { fmt.Printf("  %s left out: %s\n", names, why) }

// tell adds a value without a bound.
func (b *bench) tell(name string, value float64, unit, note string) {
	b.rows = append(b.rows, row{Name: name, Value: value, Unit: unit, Note: note})
}

func (b *bench) atLeast(name string, value float64, unit string, bound float64, note string) {
	holds := value >= bound
	b.rows = append(b.rows, row{Name: name, Value: value, Unit: unit, Bound: fmt.Sprintf("≥ %g", bound), Holds: &holds, Note: note})
}

func (b *bench) atMost(name string, value float64, unit string, bound float64, note string) {
	holds := value <= bound
	b.rows = append(b.rows, row{Name: name, Value: value, Unit: unit, Bound: fmt.Sprintf("≤ %g", bound), Holds: &holds, Note: note})
}

func printRows(rows []row) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		verdict := ""
		if r.Holds != nil {
			verdict = map[bool]string{true: "holds", false: "MISSED"}[*r.Holds]
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", r.Name, number(r.Value), r.Unit, r.Bound, verdict, r.Note)
	}
	_ = w.Flush() // to standard output
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// report is the output of a run.
type report struct {
	At       time.Time         `json:"at"`
	OS       string            `json:"os"`
	CPUs     int               `json:"cpus"`
	Load     string            `json:"load"`
	Versions map[string]string `json:"versions"` // of Sheaf and its peers
	Rows     []row             `json:"rows"`
}

func (b *bench) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	doc := report{time.Now().UTC(), runtime.GOOS + "/" + runtime.GOARCH, runtime.NumCPU(), load(), b.versions(context.Background()), b.rows}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// load returns the machine's load average: how much to trust wall times.
func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:min(3, len(strings.Fields(string(b))))], " ")
}

// median returns the median of values; it sorts them.
func median[T int64 | float64 | time.Duration](values []T) T { return quantile(values, 0.5) }

func quantile[T int64 | float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}
