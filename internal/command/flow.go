package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/internal/flow"
)

func (g *global) flowCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "flow", Aliases: []string{"flows"}, Short: "Check, create and compare flows: what is done with a document",
		Example: `  sheaf flow show standard
  sheaf flow validate contracts.toml
  sheaf flow apply contracts.toml
  sheaf flow diff contracts@3`})
	cmd.AddCommand(g.flowValidate(), g.flowApply(), g.flowList(), g.flowKinds(), g.flowShow(), g.flowDiff(), g.flowDelete())
	return cmd
}

// flowFile reads a flow from a file, or from standard input for "-". A file that
// starts with a brace is JSON, any other TOML.
func (g *global) flowFile(name string) (body any, err error) {
	from := g.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, flow.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(text) > flow.MaxBytes {
		return nil, usageError{fmt.Errorf("%s has more than %d bytes, which a flow may have", name, flow.MaxBytes)}
	}
	if before, inside, is := strings.Cut(string(text), "{"); is && strings.TrimSpace(before) == "" {
		if !json.Valid(text) { // otherwise the request could not be encoded
			where := ""
			if wrong, ok := errors.AsType[flow.Invalid](flow.CheckJSON(text)); ok && wrong[0].Line > 0 {
				where = fmt.Sprintf(" in line %d", wrong[0].Line)
			}
			return nil, usageError{fmt.Errorf("%s begins as JSON and is none%s; correct it, or write it as TOML", name, where)}
		}
		// Sent verbatim, blank lines included, so that line numbers in errors match
		// the file.
		return written(`{"flow":{` + before + inside + "}"), nil
	}
	return map[string]any{"toml": string(text)}, nil
}

// sendFlow posts the flow in a file and decodes the response.
func (g *global) sendFlow(ctx context.Context, file, path string, answer any) error {
	body, err := g.flowFile(file)
	if err != nil {
		return err
	}
	c, err := g.client()
	if err != nil {
		return err
	}
	err = c.call(ctx, http.MethodPost, path, body, answer)
	if a, ok := errors.AsType[*answerError](err); ok && a.code == "invalid_flow" {
		lines := make([]string, len(a.details))
		for i, d := range a.details {
			lines[i] = "\n  " + d.Location + ": " + d.Message
		}
		a.msg = file + " is refused (invalid_flow):" + strings.Join(lines, "")
	}
	return err
}

func (g *global) flowValidate() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE", Short: "Say what is wrong with a flow", Args: needs(1, 1, "a FILE, or - for standard input"),
		Long:    "Checks a flow as apply does, and creates nothing. It exits with 2 when something is wrong.",
		Example: "  sheaf flow validate contracts.toml",
		RunE: func(cmd *cobra.Command, args []string) error {
			var checked api.FlowChecked
			if err := g.sendFlow(cmd.Context(), args[0], "/v1/flows:validate", &checked); err != nil {
				return err
			}
			if checked.Valid {
				return g.done(checked, "%s is valid.", args[0])
			}
			lines := make([]string, len(checked.Problems))
			for i, p := range checked.Problems {
				lines[i] = problemLine(p)
			}
			return usageError{fmt.Errorf("%s is refused:\n%s", args[0], strings.Join(lines, "\n"))}
		},
	}
}

// problemLine is a problem prefixed with its location.
func problemLine(p api.FlowProblem) string {
	line := "  "
	if p.Line > 0 {
		line += fmt.Sprintf("line %d: ", p.Line)
	}
	if p.Node != "" {
		line += "node " + p.Node + ": "
	}
	if p.Field != "" {
		line += p.Field + ": "
	}
	return line + p.Message
}

func (g *global) flowApply() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Create a flow, or its next version", Args: needs(1, 1, "a FILE, or - for standard input"),
		Long:    "Creates a flow from TOML or JSON. A flow that does the same as its latest version\ncreates none.",
		Example: "  sheaf flow apply contracts.toml\n  sheaf flow apply contracts.toml --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, said := "/v1/flows", "%s is the latest version of the flow."
			if sure.dryRun {
				path, said = "/v1/flows?dry_run=true", "Nothing was changed. %s would be the latest version of the flow."
			}
			var v api.FlowAnswer
			if err := g.sendFlow(cmd.Context(), args[0], path, &v); err != nil {
				return err
			}
			return g.done(v, said, v.Ref)
		},
	}
	sure.dryFlag(cmd)
	return cmd
}

func (g *global) flowList() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List flows", Args: needs(0, 0, ""),
		Example: "  sheaf flow list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			items, next, err := pages[api.FlowListed](cmd.Context(), c, "/v1/flows", nil, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[api.FlowListed]{Items: listed(items).Items, NextCursor: next})
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "FLOW\tNODES\tCREATED")
				for _, f := range items {
					created := "built in"
					if !f.BuiltIn {
						created = moment(f.CreatedAt)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", f.Ref, number(f.Nodes), created)
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	p.flags(cmd, 100, "flows")
	return cmd
}

func (g *global) flowKinds() *cobra.Command {
	return &cobra.Command{
		Use: "kinds [KIND]", Short: "List the kinds of nodes, or the settings of one", Args: needs(0, 1, ""),
		Example: "  sheaf flow kinds\n  sheaf flow kinds extract",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var kinds api.FlowKinds
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/node-kinds", nil, &kinds); err != nil {
				return err
			}
			if len(args) == 0 {
				if g.json {
					return g.printJSON(kinds)
				}
				return g.table(func(w io.Writer) {
					fmt.Fprintln(w, "KIND\tREADS\tPASSES ON\tWHAT IT DOES")
					for _, k := range kinds.Items {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.Name, portWords(k.In, "the document"), cmp.Or(string(k.Out), "–"), k.Doc)
					}
				})
			}
			i := slices.IndexFunc(kinds.Items, func(k api.FlowKind) bool { return k.Name == args[0] })
			if i < 0 {
				return usageError{cured(fmt.Errorf("there is no kind %q", args[0]), "sheaf flow kinds lists those that there are.")}
			}
			k := kinds.Items[i]
			if g.json {
				return g.printJSON(k)
			}
			fmt.Fprintf(g.out, "%s %s.\n\n", k.Name, k.Doc)
			return g.table(func(w io.Writer) {
				fmt.Fprintln(w, "SETTING\tTYPE\tMEANING")
				for _, of := range []struct {
					under string
					all   []api.FlowSetting
				}{{"config.", k.Config}, {"", kinds.Common}} {
					for _, s := range of.all {
						if of.under == "" && !slices.Contains(k.Common, s.Name) {
							continue
						}
						kind := s.Type
						if s.Values != nil {
							kind = strings.Join(s.Values, ", ")
						}
						if s.Required {
							kind += ", required"
						}
						fmt.Fprintf(w, "%s%s\t%s\t%s\n", of.under, s.Name, kind, s.Doc)
					}
				}
			})
		},
	}
}

func portWords(ports []flow.Port, none string) string {
	var words []string
	for _, p := range ports {
		words = append(words, string(p))
	}
	return cmp.Or(strings.Join(words, ", "), none)
}

// flowPath is the URL path of a flow.
func noFlow(err error) error { return listedBy(err, "`sheaf flow list` lists the flows.") }

func flowPath(ref string) string { return "/v1/flows/" + url.PathEscape(ref) }

func (g *global) flowShow() *cobra.Command {
	return &cobra.Command{
		Use: "show FLOW[@VERSION]", Short: "Print a flow as TOML", Args: needs(1, 1, "a FLOW"), ValidArgsFunction: g.flowNames,
		Example: "  sheaf flow show contracts@3\n  sheaf flow show standard > mine.toml",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var v api.FlowAnswer
			if err := c.call(cmd.Context(), http.MethodGet, flowPath(args[0]), nil, &v); err != nil {
				return noFlow(err)
			}
			if g.json {
				return g.printJSON(v)
			}
			g.note("# %s", v.Ref)
			_, err = fmt.Fprint(g.out, v.TOML)
			return err
		},
	}
}

func (g *global) flowDiff() *cobra.Command {
	var from int
	cmd := &cobra.Command{
		Use: "diff FLOW[@VERSION]", Short: "Compare a version of a flow with the one before", Args: needs(1, 1, "a FLOW"), ValidArgsFunction: g.flowNames,
		Example: "  sheaf flow diff contracts\n  sheaf flow diff contracts@3 --from 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			path := flowPath(args[0]) + "/diff"
			if from > 0 {
				path += fmt.Sprintf("?from=%d", from)
			}
			var d api.FlowDiff
			if err := c.call(cmd.Context(), http.MethodGet, path, nil, &d); err != nil {
				return noFlow(err)
			}
			if g.json {
				return g.printJSON(d)
			}
			g.note("from %s to %s", cmp.Or(d.From, "nothing"), d.To)
			if len(d.Changes) == 0 {
				return g.done(d, "They do the same.")
			}
			return g.table(func(w io.Writer) {
				for _, change := range d.Changes {
					fmt.Fprintf(w, "%s\t%s\t%s → %s\n", cmp.Or(change.Node, "(flow)"), change.Field, valueText(change.Was), valueText(change.Is))
				}
			})
		},
	}
	cmd.Flags().IntVar(&from, "from", 0, "the `VERSION` to compare with; default: the one before")
	return cmd
}

// valueText formats a flow value on one line.
func valueText(v any) string {
	if v == nil {
		return "–"
	}
	b, _ := json.Marshal(v) // it came from JSON
	return excerpt(string(b), 200)
}

func (g *global) flowDelete() *cobra.Command {
	var sure confirmation
	cmd := &cobra.Command{
		Use: "delete FLOW[@VERSION]", Short: "Delete a flow, or one version of it", Args: needs(1, 1, "a FLOW"), SuggestFor: []string{"rm", "remove"}, ValidArgsFunction: g.flowNames,
		Long:    "Deletes all versions of a flow, or the one that is named. Documents that were\nmade by it stay. It asks first; --yes answers for you.",
		Example: "  sheaf flow delete contracts@2 --dry-run\n  sheaf flow delete contracts --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var would, did api.FlowsDeleted
			if err := c.call(cmd.Context(), http.MethodDelete, flowPath(args[0])+"?dry_run=true", nil, &would); err != nil {
				return noFlow(err)
			}
			what := strings.Join(would.Deleted, ", ")
			if sure.dryRun {
				return g.done(would, "Nothing was changed. This would delete %s.", what)
			}
			if err := g.ask(sure, "Delete "+what+"? This cannot be undone."); err != nil {
				return err
			}
			if err := c.call(cmd.Context(), http.MethodDelete, flowPath(args[0]), nil, &did); err != nil {
				return err
			}
			return g.done(did, "Deleted %s.", strings.Join(did.Deleted, ", "))
		},
	}
	sure.flags(cmd)
	return cmd
}

// flowNames completes the name of a flow.
func (g *global) flowNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return completions(g, "/v1/flows?limit=200", func(f api.FlowListed) string { return f.Name })
}
