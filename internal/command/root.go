package command

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/internal/buildinfo"
	"sheaf/internal/config"
)

// global holds the flags common to all commands, and their streams.
type global struct {
	Main

	config  string
	dataDir string
	server  string
	path    string // of the command
	asked   string // how a server was named: --server or SHEAF_URL; "" if none was
	key     string
	json    bool
	quiet   bool
	dataset string
	set     []string

	in       io.Reader
	out, err io.Writer
	serving  atomic.Bool // a server is running and handles signals itself
}

// Groups of commands in the help.
const (
	groupDocuments = "documents"
	groupWork      = "work"
	groupServer    = "server"
	groupAdmin     = "admin"
)

func newRoot() *cobra.Command { return Main{}.global().root() }

func (g *global) root() *cobra.Command {
	root := &cobra.Command{
		Use: "sheaf", Short: "Document ingestion: upload, true progress, search with exact citations",
		Long: `Sheaf reads documents, follows their progress truthfully and searches them with
exact citations. "sheaf up" runs the whole service in one process; the other
commands talk to it, or to the one that --server names.`,
		Example: `  sheaf up                            # run everything on this machine
  sheaf ingest ~/Documents            # upload files and folders
  sheaf search "termination notice"   # search them, with page and box of each hit
  sheaf docs --state failed           # see what failed`,
		SilenceUsage: true, SilenceErrors: true, Version: buildinfo.Get().String(),
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { g.use(cmd) },
	}
	asGroup(root)
	f := root.PersistentFlags()
	f.StringVar(&g.config, "config", os.Getenv("SHEAF_CONFIG"), "configuration `FILE` (TOML)")
	f.StringArrayVar(&g.set, "set", nil, "a setting of the server as `NAME=VALUE`, over file and environment; may be repeated")
	f.StringVar(&g.dataDir, "data-dir", "", "`FOLDER` of everything the embedded parts keep")
	f.StringVar(&g.server, "server", os.Getenv("SHEAF_URL"), "`ADDRESS` of a running Sheaf; default: the one that uses the data folder")
	f.StringVar(&g.key, "key", "", "API `KEY`; default: SHEAF_KEY")
	f.BoolVar(&g.json, "json", false, "print JSON, errors too")
	f.BoolVarP(&g.quiet, "quiet", "q", false, "print results and errors only")
	f.StringVarP(&g.dataset, "dataset", "d", defaultDataset, "`DATASET`, by name or id")
	g.complete(root, "dataset", g.datasetNames)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupDocuments, Title: "Documents:"},
		&cobra.Group{ID: groupWork, Title: "Work in progress:"},
		&cobra.Group{ID: groupServer, Title: "Run Sheaf:"},
		&cobra.Group{ID: groupAdmin, Title: "Administration:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupDocuments, g.ingestCommand(), g.searchCommand(), g.docsCommand(), g.docCommand(), g.datasetCommand(), g.evalCommand(), g.flowCommand(), g.openCommand(), g.mcpCommand())
	add(groupWork, g.statusCommand(), g.jobsCommand(), g.retryCommand(), g.queueCommand(), g.receiptCommand(), g.diagnosticsCommand())
	add(groupServer, serverCommands(g)...)
	add(groupAdmin, g.tenantCommand(), g.keyCommand(), g.backupCommand(), g.doctorCommand(), g.indexCommand(), g.planCommand(), g.modelsCommand(), g.migrateCommand(), g.configCommand(), g.formatsCommand(), g.secretsCommand(), g.versionCommand())
	root.AddCommand(exitCodesTopic())
	root.SetCompletionCommandGroupID(groupAdmin)
	root.SetHelpCommandGroupID(groupAdmin)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			asGroup(c)
		}
	}
	return root
}

// use adopts the streams of a command, which tests replace.
func (g *global) use(cmd *cobra.Command) {
	g.in, g.out, g.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	given := cmd.Flags().Changed
	g.path, g.asked = cmd.CommandPath(), ""
	switch {
	case given("server"):
		g.asked = "--server"
	case os.Getenv("SHEAF_URL") != "" && !given("data-dir") && g.config == "" && os.Getenv("SHEAF_DATA_DIR") == "":
		g.asked = "SHEAF_URL" // and no store is named
	}
}

// asGroup makes a command that only holds others print its help, and suggest the
// nearest name for an unknown subcommand.
func asGroup(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
				if c.SuggestFor != nil && slices.Contains(c.SuggestFor, args[0]) {
					return usageError{cured(fmt.Errorf("there is no command `%s %s`", cmd.CommandPath(), args[0]), "Did you mean `%s`?", c.CommandPath())}
				}
			}
		}
		if near := api.Nearest(args[0], names); near != "" {
			return usageError{cured(fmt.Errorf("there is no command `%s %s`", cmd.CommandPath(), args[0]), "Did you mean `%s %s`?", cmd.CommandPath(), near)}
		}
		return usageError{cured(fmt.Errorf("there is no command `%s %s`", cmd.CommandPath(), args[0]), "`%s --help` lists the commands.", cmd.CommandPath())}
	}
	return cmd
}

// load reads and validates the configuration that the flags name.
func (g *global) load() (config.Config, error) {
	cfg, err := config.Load(g.config, os.Environ())
	if err != nil {
		return cfg, err
	}
	for _, kv := range g.set {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return cfg, usageError{fmt.Errorf("--set %s: write it as NAME=VALUE", kv)}
		}
		if err := cfg.Set(name, value); err != nil {
			return cfg, usageError{fmt.Errorf("--set %s: %w", name, err)}
		}
		if env := config.SecretEnv(name); env != "" {
			g.note("--set %s shows the secret to everybody who lists processes here; %s, or %s_FILE with a file that holds it, does not.", name, env, env)
		}
	}
	if g.dataDir != "" {
		cfg.DataDir = g.dataDir
	}
	// Parser children run in their own folders, where a relative path would point
	// elsewhere.
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return cfg, fmt.Errorf("the data folder: %w", err)
	}
	return cfg, cfg.Validate()
}
