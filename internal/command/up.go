package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/buildinfo"
	"sheaf/internal/config"
	"sheaf/parser"
	"sheaf/samples"
)

func serverCommands(g *global) []*cobra.Command {
	var listen string
	var demo bool
	up := &cobra.Command{
		Use: "up", Example: "  sheaf up\n  sheaf up --demo\n  sheaf up --listen 127.0.0.1:9000 --data-dir ./data", Short: "Run everything in one process", Args: needs(0, 0, ""),
		Long: "Runs API, page, executor and keeper in one process. Without a configuration nothing else needs to be installed: SQLite, local files, an embedded index and a built-in embedding model.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.serve(cmd.Context(), roles{api: true, executor: true, keeper: true}, listen, demo)
		},
	}
	up.Flags().StringVar(&listen, "listen", "", "address of the API and the page; default 127.0.0.1:8080, or a free port if that is taken")
	up.Flags().BoolVar(&demo, "demo", false, "ingest the sample documents and search them once")
	serve := &cobra.Command{
		Use: "serve", Example: "  sheaf serve --config fleet.toml", Short: "Run the API and the page of a fleet", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.serve(cmd.Context(), roles{api: true}, listen, false)
		},
	}
	serve.Flags().StringVar(&listen, "listen", "", "address to listen on")
	exec := &cobra.Command{
		Use: "executor", Example: "  sheaf executor --config fleet.toml", Short: "Run an executor of a fleet", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.serve(cmd.Context(), roles{executor: true}, "", false)
		},
	}
	keep := &cobra.Command{
		Use: "keeper", Example: "  sheaf keeper --config fleet.toml", Short: "Run a keeper of a fleet; one of them leads", Args: needs(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.serve(cmd.Context(), roles{keeper: true}, "", false)
		},
	}
	health := &cobra.Command{
		Use: "health [URL]", Example: "  sheaf health http://127.0.0.1:6060/healthz", Short: "Ask a process whether it lives; for containers, which hold no other program", Args: needs(0, 1, "one URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := g.load()
			if err != nil {
				return err
			}
			url := "http://" + cmp.Or(cfg.Server.DebugListen, cfg.Server.Listen) + "/healthz"
			if len(args) == 1 {
				url = args[0]
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return usageError{err}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s answers %s", url, resp.Status)
			}
			return nil
		},
	}
	return []*cobra.Command{up, serve, exec, keep, health}
}

// serve runs one process of the service until a signal ends it.
func (g *global) serve(ctx context.Context, r roles, listen string, demo bool) error {
	g.serving.Store(true)
	cfg, err := g.load()
	if err != nil {
		return err
	}
	picked := listen == "" && cfg.Server.Listen == config.Default().Server.Listen
	if listen != "" {
		cfg.Server.Listen = listen
		if err := cfg.Validate(); err != nil {
			return err
		}
	}
	if cfg.Sole() && !(r.api && r.executor && r.keeper) {
		return usageError{errors.New("a fleet needs parts that processes can share: set store.driver, queue.driver, blob.driver and index.driver, or run `sheaf up`")}
	}
	log := newLogger(cfg.Log, g.err)
	if demo && cfg.Log == config.Default().Log {
		log = newLogger(config.Log{Level: "warn", Format: "text"}, g.err)
	}
	slog.SetDefault(log)
	for _, stray := range config.Strays(os.Environ()) {
		log.Warn(stray)
	}

	p := &private{log: log}
	if err := p.listen(cfg.Server.DebugListen); err != nil {
		return err
	}
	defer p.close()
	a, err := g.buildWaiting(ctx, cfg, r, log, p.waits)
	if err != nil {
		return err
	}
	p.built(a)
	defer func() {
		if err := a.close(); err != nil {
			log.Warn("closing", "error", err)
		}
	}()
	var ln net.Listener
	if r.api {
		if ln, err = listenOn(cfg.Server.Listen, picked); err != nil {
			return err
		}
		url := "http://" + ln.Addr().String()
		forget, err := announce(cfg.DataDir, url)
		if err != nil {
			log.Warn("other commands will not find this server by its data folder", "error", err)
		}
		defer forget()
		fmt.Fprintf(g.out, "Sheaf %s\n  page  %s/\n  API   %s/v1  (reference: %s/docs)\n  data  %s\n", buildinfo.Get().String(), url, url, url, cfg.DataDir)
		if a.pdf.Absent {
			fmt.Fprintln(g.out, "  tip   "+offerHelper)
		}
		if demo {
			go func() {
				if err := g.runDemo(ctx, url, cmp.Or(g.key, os.Getenv("SHEAF_KEY"))); err != nil && ctx.Err() == nil {
					fmt.Fprintln(g.err, "sheaf: the demo failed:", err)
				}
			}()
		}
	}
	// The first signal drains, the second stops immediately.
	hard, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		log.Info("stopping; send the signal again to stop at once")
		select {
		case <-again:
			close(hard)
		case <-ended:
			return
		}
		select {
		case <-again:
			os.Exit(1)
		case <-ended:
		}
	}()
	return a.run(ctx, ln, hard)
}

// buildWaiting builds the parts. A fleet process whose engines are missing or not
// set up yet waits for them and says so, so that setting them up needs no restart.
// Errors that only a changed setting can fix fail immediately, as does the embedded
// process, since no one else will start its parts. waits is called with each reason
// to wait.
func (m Main) buildWaiting(ctx context.Context, cfg config.Config, r roles, log *slog.Logger, waits func(error)) (*app, error) {
	for wait := cmp.Or(m.FirstWait, time.Second); ; wait = min(2*wait, 30*time.Second) {
		a, err := m.build(ctx, cfg, r, log)
		if err == nil || cfg.Sole() || errors.Is(err, sheaf.ErrInvalid) || ctx.Err() != nil {
			return a, err
		}
		waits(err)
		log.Warn("waiting for a dependency", "error", err, "next_try", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// listenOn listens on the address or, if it is the default and taken, on a free
// port.
func listenOn(addr string, fallback bool) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	if fallback && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(addr)
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is taken by another process; choose another address with --listen", addr)
	}
	return nil, fmt.Errorf("listening on %s: %w", addr, err)
}

// announcement lets commands find the server of a data folder.
type announcement struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

func announce(dataDir, url string) (forget func(), err error) {
	path := filepath.Join(dataDir, "server.json")
	b, _ := json.Marshal(announcement{URL: url, PID: os.Getpid()}) // plain fields always encode
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return func() {}, err
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return func() {}, err
	}
	return func() { _ = os.Remove(path) }, nil // a stale file names a server that does not answer
}

// runDemo runs the main workflow once, as a new user would: upload, watch, search.
func (g *global) runDemo(ctx context.Context, url, key string) error {
	c := newClient(url, key)
	entries, err := samples.FS.ReadDir(".")
	if err != nil {
		return err
	}
	var files []source
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), "handbook.") {
			continue
		}
		files = append(files, source{name: e.Name(), open: func() (io.ReadCloser, error) { return samples.FS.Open(e.Name()) }})
	}
	fmt.Fprintf(g.out, "\nIngesting %d sample documents …\n", len(files))
	job, err := c.submit(ctx, defaultDataset, files, nil)
	if err != nil {
		return err
	}
	jobs, err := c.follow(ctx, []string{job.ID}, &bar{w: g.out, tty: g.isTerminal(g.out), last: -1})
	if err != nil {
		return err
	}
	fmt.Fprintln(g.out, sumOf(jobs).line(0))
	const question = "what happens when an executor is killed while it works"
	fmt.Fprintf(g.out, "\nSearching for %q\n", question)
	hits, err := c.search(ctx, defaultDataset, map[string]any{"query": question, "limit": 1, "filter": map[string]any{"media_types": []string{parser.MediaPDF}}})
	if err != nil {
		return err
	}
	printHits(g.out, hits)
	fmt.Fprintf(g.out, "\nThe server stays up: open %s/ and drop your own files on it. Ctrl-C stops it.\n", url)
	return nil
}
