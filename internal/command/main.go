// Package command is the sheaf command: its flags, one file per command, and the
// wiring of the server, executor and keeper processes. cmd/sheaf runs a Main; tests
// run one with replaced parts.
package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/term"

	"sheaf/internal/indexset"
	"sheaf/internal/keeper"
	"sheaf/internal/queue"
	"sheaf/internal/telemetry"
	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
)

// Main is one run of the command. The zero value is the product; each field
// replaces a part of it.
type Main struct {
	In       io.Reader // nil: the standard streams
	Out, Err io.Writer

	FormatsFunc  func(formats.Config) []parser.Format                                    // supported formats; nil: formats.All
	KeeperFunc   func(*keeper.Config)                                                    // changes what no setting does; may be nil
	IndexesFunc  func(*indexset.Config)                                                  // the same for the search indexes; may be nil
	QueueFunc    func(queue.Queue) queue.Queue                                           // wraps the queue; may be nil
	HandlerFunc  func(http.Handler) http.Handler                                         // wraps the API and the page; may be nil
	TracerFunc   func(context.Context, telemetry.TraceConfig) (*telemetry.Tracer, error) // nil: telemetry.NewTracer
	TerminalFunc func(stream any) bool                                                   // reports whether the stream is a terminal; nil asks the system
	BrowseFunc   func(address string) error                                              // opens an address; nil: in a browser
	FirstWait    time.Duration                                                           // first pause between attempts to reach the engines; 0: 1 s. It doubles.
}

// Run executes args, which exclude the program's name, and returns the exit code.
// In a parser child process it runs the parser and does not return.
func (m Main) Run(args []string) int {
	// The child that parses untrusted files is this binary too and only does that.
	child.MaybeRun(m.formats(formats.FromEnviron()))
	g := m.global()
	ctx, done := g.untilSignal(context.Background())
	defer done()
	return g.execute(ctx, args)
}

// Execute runs one command line until it finishes or ctx ends, and returns the exit
// code.
func (m Main) Execute(ctx context.Context, args []string) int { return m.global().execute(ctx, args) }

func (m Main) global() *global { return &global{Main: m, in: m.In, out: m.Out, err: m.Err} }

func (m Main) formats(c formats.Config) []parser.Format {
	if m.FormatsFunc != nil {
		return m.FormatsFunc(c)
	}
	return formats.All(c)
}

func (m Main) newTracer(ctx context.Context, c telemetry.TraceConfig) (*telemetry.Tracer, error) {
	if m.TracerFunc != nil {
		return m.TracerFunc(ctx, c)
	}
	return telemetry.NewTracer(ctx, c)
}

func (m Main) isTerminal(stream any) bool {
	if m.TerminalFunc != nil {
		return m.TerminalFunc(stream)
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (m Main) browse(address string) error {
	if m.BrowseFunc != nil {
		return m.BrowseFunc(address)
	}
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	return exec.Command(name, args...).Run()
}

// execute runs one command line and reports its error.
func (g *global) execute(ctx context.Context, args []string) int {
	root := g.root()
	root.SetArgs(args)
	root.SetIn(g.in)
	root.SetOut(g.out)
	root.SetErr(g.err)
	if err := root.ExecuteContext(ctx); err != nil {
		return g.report(ctx, root.ErrOrStderr(), args, err)
	}
	return exitOK
}

// untilSignal cancels the context on the first signal. The second one ends a client
// immediately; a server handles it itself.
func (g *global) untilSignal(parent context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for first := true; ; first = false {
			select {
			case s := <-signals:
				cancel(interrupted{s})
				if !first && !g.serving.Load() {
					fmt.Fprintln(os.Stderr)
					os.Exit(interrupted{s}.exitCode())
				}
			case <-parent.Done():
				return
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}
