// Command sheaf is the whole service and its client in one binary: `sheaf up`
// runs everything with nothing else installed; `serve`, `executor` and
// `keeper` are the parts of a fleet; the other commands talk to a running one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sheaf/internal/config"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
	"sheaf/taskstore"
)

func main() {
	// A child that parses strangers' files is this binary too, and does nothing else.
	child.MaybeRun(allFormats(formats.FromEnviron()))
	os.Exit(run(os.Args[1:]))
}

// allFormats is what this binary can read. Tests add formats that misbehave.
var allFormats = builtinFormats

func builtinFormats(c formats.Config) []parser.Format { return formats.All(c) }

// run executes one command line and returns the exit code: 0 done, 1 failed,
// 2 the command line is wrong.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "sheaf:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// usageError is a command line that cannot be obeyed.
type usageError struct{ error }

// global is what every command may be told.
type global struct {
	config  string
	dataDir string
	server  string
	key     string
	json    bool
	dataset string
	set     []string
}

func newRoot() *cobra.Command {
	g := &global{}
	root := &cobra.Command{
		Use: "sheaf", Short: "Document ingestion: upload, true progress, search with exact citations",
		SilenceUsage: true, SilenceErrors: true, Version: version(),
	}
	f := root.PersistentFlags()
	f.StringVar(&g.config, "config", os.Getenv("SHEAF_CONFIG"), "configuration file (TOML)")
	f.StringArrayVar(&g.set, "set", nil, "a setting, over file and environment: --set store.driver=mysql; repeat for more")
	f.StringVar(&g.dataDir, "data-dir", "", "folder of everything the embedded parts keep")
	f.StringVar(&g.server, "server", os.Getenv("SHEAF_URL"), "address of a running Sheaf; default: the one that uses the data folder")
	f.StringVar(&g.key, "key", os.Getenv("SHEAF_KEY"), "API key")
	f.BoolVar(&g.json, "json", false, "print JSON")
	f.StringVarP(&g.dataset, "dataset", "d", defaultDataset, "dataset, by name or id")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(serverCommands(g)...)
	root.AddCommand(clientCommands(g)...)
	root.AddCommand(adminCommands(g)...)
	return root
}

// load reads the configuration that the flags name and checks it.
func (g *global) load() (config.Config, error) {
	cfg, err := config.Load(g.config, os.Environ())
	if err != nil {
		return cfg, err
	}
	for _, kv := range g.set {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return cfg, usageError{fmt.Errorf("--set %s: write it as name=value", kv)}
		}
		if err := cfg.Set(name, value); err != nil {
			return cfg, usageError{fmt.Errorf("--set %s: %w", name, err)}
		}
	}
	if g.dataDir != "" {
		cfg.DataDir = g.dataDir
	}
	// Parser children work in folders of their own, where a relative path
	// would mean another place.
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return cfg, fmt.Errorf("the data folder: %w", err)
	}
	return cfg, cfg.Validate()
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && (v == "" || v == "(devel)") {
			v = "dev-" + s.Value[:12]
		}
	}
	if v == "" {
		v = "dev"
	}
	return v
}

func clientCommands(g *global) []*cobra.Command {
	return []*cobra.Command{g.ingestCommand(), g.searchCommand(), g.docsCommand(), g.jobsCommand(), g.retryCommand(), g.queueCommand()}
}

func adminCommands(g *global) []*cobra.Command {
	migrate := &cobra.Command{
		Use: "migrate", Short: "Bring the store's schema up to date", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd.Context(), func(context.Context, *taskstore.Store) error {
				fmt.Println("the schema is up to date")
				return nil
			})
		},
	}
	show := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if g.json {
				return printJSON(map[string]string{"version": version()})
			}
			fmt.Println(version())
			return nil
		},
	}
	return []*cobra.Command{migrate, show, g.formatsCommand(), g.tenantCommand(), g.keyCommand(), g.configCommand(), g.doctorCommand(), g.indexCommand(), g.secretsCommand()}
}
