package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sheaf"
	"sheaf/internal/api"
)

// Exit codes. They are documented in `sheaf help exit-codes` and the handbook.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitPartial     = 3
	exitUnreachable = 10
	exitNotFound    = 11
	exitDenied      = 12
	exitBusy        = 13
	exitInterrupted = 130
)

// exitCodes documents them.
var exitCodes = []struct {
	Code    int
	Name    string
	Meaning string
}{
	{exitOK, "ok", "everything was done"},
	{exitFailed, "failed", "it could not be done; the message says why"},
	{exitUsage, "usage", "the command line or a value in it is wrong; nothing was changed"},
	{exitPartial, "partial", "it was done, but some documents failed, in part or whole"},
	{exitUnreachable, "unreachable", "no server answers"},
	{exitNotFound, "not_found", "the dataset, document, job or other thing named does not exist"},
	{exitDenied, "denied", "the API key is missing, unknown or lacks a scope"},
	{exitBusy, "busy", "a quota is full, something is in the way, or the server is overloaded; try again later"},
	{exitInterrupted, "interrupted", "Ctrl-C; 143 after a termination signal"},
}

// apart rejects a flag given together with others that it makes meaningless.
func apart(cmd *cobra.Command, flag string, others ...string) error {
	for _, other := range others {
		if other != flag && cmd.Flags().Changed(flag) && cmd.Flags().Changed(other) {
			return usageError{fmt.Errorf("--%s and --%s cannot go together; give one of them", flag, other)}
		}
	}
	return nil
}

// goesWith rejects flags that have no effect without another.
func goesWith(cmd *cobra.Command, flag string, others ...string) error {
	for _, other := range others {
		if cmd.Flags().Changed(other) && !cmd.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s does nothing without --%s; give both, or leave it out", other, flag)}
		}
	}
	return nil
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command ends with one of these exit codes:\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %-12s %s\n", c.Code, c.Name, c.Meaning)
	}
	b.WriteString("\nWith --json an error is one JSON object on standard error, with code, message,\ncure where one is known, and exit_code.")
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}

// usageError is an invalid command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// curedError is an error with advice on how to fix it.
type curedError struct {
	error
	cure string
}

func (e curedError) Unwrap() error { return e.error }

// cured adds advice to an error.
func cured(err error, format string, args ...any) error {
	return curedError{err, fmt.Sprintf(format, args...)}
}

// listedBy adds to the error of a wrong name or id which command lists the right ones.
func listedBy(err error, cure string, args ...any) error {
	if isMissing(err) || errors.Is(err, sheaf.ErrNotFound) {
		return cured(err, cure, args...)
	}
	return err
}

// partialError means that some documents failed while others succeeded.
type partialError struct{ error }

// interrupted is the cause of a context canceled by a signal.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "stopped by " + i.signal.String() }

func (i interrupted) exitCode() int {
	if i.signal == syscall.SIGTERM {
		return 128 + int(syscall.SIGTERM)
	}
	return exitInterrupted
}

// trouble is the --json form of an error.
type trouble struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Cure      string `json:"cure,omitempty"`
	Status    int    `json:"status,omitempty"` // of the server's response
	RequestID string `json:"request_id,omitempty"`
	ExitCode  int    `json:"exit_code"`
}

// report prints an error and returns its exit code.
func (g *global) report(ctx context.Context, w io.Writer, args []string, err error) int {
	t := troubleOf(ctx, err)
	if g.json || slices.Contains(args, "--json") { // parsing stops at a bad flag, possibly before --json
		_ = json.NewEncoder(w).Encode(t) // there is nowhere else to report it
		return t.ExitCode
	}
	fmt.Fprintln(w, "sheaf:", t.Message)
	if t.Cure != "" {
		fmt.Fprintln(w, t.Cure)
	}
	return t.ExitCode
}

func troubleOf(ctx context.Context, err error) trouble {
	t := trouble{Code: "failed", Message: err.Error(), ExitCode: exitFailed}
	if c, ok := errors.AsType[curedError](err); ok {
		t.Cure = c.cure
	}
	if a, ok := errors.AsType[*answerError](err); ok {
		t.Status, t.RequestID = a.status, a.requestID
		t.Code, t.ExitCode = cmp.Or(a.code, "failed"), exitOf(a)
		t.Cure = cmp.Or(t.Cure, cureOf(a))
	}
	kinds := []struct {
		is   bool
		code string
		exit int
	}{
		{isA[usageError](err), "usage", exitUsage},
		{isA[partialError](err), "partial", exitPartial},
		{isA[unreachableError](err), "unreachable", exitUnreachable},
		{t.Status == 0 && errors.Is(err, sheaf.ErrNotFound), "not_found", exitNotFound},
		{t.Status == 0 && errors.Is(err, sheaf.ErrConflict), "conflict", exitBusy},
	}
	for _, k := range kinds {
		if k.is {
			t.Code, t.ExitCode = k.code, k.exit
			break
		}
	}
	if i, ok := errors.AsType[interrupted](context.Cause(ctx)); ok && t.ExitCode == exitFailed {
		t.Code, t.ExitCode = "interrupted", i.exitCode()
		if errors.Is(err, context.Canceled) && t.Cure == "" {
			t.Message = "stopped; nothing that was asked of the server is undone"
		}
	}
	return t
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func exitOf(a *answerError) int {
	if a.code == "" {
		return exitFailed // not a response from Sheaf
	}
	switch a.status {
	case 401, 403:
		return exitDenied
	case 404, 410:
		return exitNotFound
	case 409, 412, 429, 503, 507:
		return exitBusy
	case 400, 422:
		if a.code == "invalid" {
			return exitUsage
		}
	}
	return exitFailed
}

// cureOf is the advice for a response that contains none.
func cureOf(a *answerError) string {
	switch {
	case a.status == 401:
		return "Name a key with --key or SHEAF_KEY; `sheaf key create TENANT` makes one."
	case a.status == 403 && a.code == "forbidden":
		return "Use a key that has the scope; `sheaf key create TENANT --scope admin` makes one."
	case a.status == 503:
		return "`sheaf status` shows what the server waits for."
	}
	return ""
}

// flagError rewords an error of the flag package as a sentence.
func flagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		dashes := "--"
		if e.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		var names []string
		note := func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		}
		cmd.Flags().VisitAll(note)
		cmd.InheritedFlags().VisitAll(note)
		said := fmt.Errorf("`%s` has no flag %s%s", cmd.CommandPath(), dashes, name)
		if near := api.Nearest(name, names); near != "" && dashes == "--" {
			return usageError{cured(said, "Did you mean --%s?", near)}
		}
		return usageError{cured(said, "`%s --help` lists the flags.", cmd.CommandPath())}
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		what, usage := pflag.UnquoteUsage(e.GetFlag())
		return usageError{fmt.Errorf("--%s needs a value: --%s %s, %s", e.GetFlag().Name, e.GetFlag().Name, what, usage)}
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		why := e.Unwrap().Error()
		kinds := map[string]string{"int": "a whole number", "int64": "a whole number", "bool": "true or false", "float64": "a number", "duration": "a duration such as 90s or 5m", "stringToString": "written as key=value"}
		if kind, ok := kinds[e.GetFlag().Value.Type()]; ok {
			why = fmt.Sprintf("%q is not %s", e.GetValue(), kind)
		}
		return usageError{fmt.Errorf("--%s: %s", e.GetFlag().Name, why)}
	}
	return usageError{err}
}

// needs checks the number of arguments: at least least and, unless most is -1, at
// most most. what names them in the singular, such as "a JOB".
func needs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		say := func(format string, values ...any) error {
			usage := "Usage: " + strings.TrimSuffix(cmd.UseLine(), " [flags]")
			if cmd.Example != "" {
				first, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
				first, _, _ = strings.Cut(first, "  #")
				usage += "\nExample: " + strings.TrimSpace(first)
			}
			return usageError{cured(fmt.Errorf(format, values...), "%s", usage)}
		}
		switch {
		case len(args) < least:
			return say("`%s` needs %s", cmd.CommandPath(), what)
		case most == 0 && len(args) > 0:
			return say("`%s` takes no arguments, and got %q", cmd.CommandPath(), args[0])
		case most >= 0 && len(args) > most:
			return say("`%s` takes only %s, and got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// choice is a flag that takes one of some words, or a list of them.
type choice struct {
	value *[]string // a single one unless many
	of    []string
	many  bool
	set   bool
}

func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return strings.Join(*c.value, ",")
}

func (c *choice) Type() string { return strings.Join(c.of, "|") }

func (c *choice) Set(s string) error {
	said := []string{s}
	if c.many {
		said = strings.Split(s, ",")
	}
	if !c.set {
		*c.value, c.set = nil, true
	}
	for _, v := range said {
		v = strings.TrimSpace(v)
		if !slices.Contains(c.of, v) {
			return notOneOf(v, c.of)
		}
		*c.value = append(*c.value, v)
	}
	if !c.many {
		*c.value = (*c.value)[len(*c.value)-1:]
	}
	return nil
}

// notOneOf says that a value is not one of the choices.
func notOneOf(value string, of []string) error {
	if near := api.Nearest(value, of); near != "" {
		return fmt.Errorf("there is no %q; did you mean %s?", value, near)
	}
	return fmt.Errorf("there is no %q; choose from %s", value, strings.Join(of, ", "))
}
