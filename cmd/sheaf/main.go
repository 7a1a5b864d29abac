// Command sheaf is the whole service and its client in one binary: `sheaf up`
// runs everything with nothing else installed; `serve`, `executor` and
// `keeper` are the parts of a fleet; the other commands talk to a running one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/formats"
)

func main() {
	// A child that parses strangers' files is this binary too, and does nothing else.
	child.MaybeRun(allFormats(formats.FromEnviron()))
	os.Exit(run(os.Args[1:]))
}

// allFormats is what this binary can read. Tests add formats that misbehave.
var allFormats = builtinFormats

func builtinFormats(c formats.Config) []parser.Format { return formats.All(c) }

// run executes one command line and returns the exit code.
func run(args []string) int {
	g := &global{}
	ctx, done := g.untilSignal(context.Background())
	defer done()
	return g.execute(ctx, args)
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

// untilSignal ends the context with the first signal. The second ends a client
// at once; a server has its own way to stop.
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
