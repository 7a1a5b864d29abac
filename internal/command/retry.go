package command

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
)

// retryScopes are what a retry can repeat.
var retryScopes = []string{"failed", "all", "stage:parse", "stage:chunk", "stage:embed", "stage:index"}

func (g *global) retryCommand() *cobra.Command {
	var s chosen
	var units, codes []string
	var job string
	var wait bool
	var notBefore later
	scope := []string{"failed"}
	cmd := &cobra.Command{
		Use: "retry DOCUMENT…", Short: "Run again what failed in documents, or in some of their pages", ValidArgsFunction: g.documentNames,
		Example: `  sheaf retry report.pdf
  sheaf retry report.pdf --units 5,9-12
  sheaf retry --state failed,partially_succeeded --code parse_timeout --dry-run
  sheaf retry --job JOB --wait
  sheaf retry --job JOB --not-before 22:00`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			body := map[string]any{}
			var runs []sheaf.Range
			for _, u := range units {
				r, err := unitRange(u)
				if err != nil {
					return err
				}
				runs = append(runs, r)
			}
			if len(runs) > 0 {
				body["units"] = runs
			}
			if len(codes) > 0 {
				body["codes"] = codes
			}
			if scope[0] != "failed" {
				body["scope"] = scope[0]
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			if job != "" {
				if len(args) > 0 || s.all || len(s.states) > 0 || len(units)+len(codes) > 0 {
					return usageError{fmt.Errorf("--job retries a whole job; leave out documents, --state, --all, --units and --code")}
				}
				return noJob(g.again(ctx, c, "/v1/jobs/"+url.PathEscape(job)+":retry"+notBefore.query(), body, "retry", s.dryRun, wait))
			}
			filter, err := g.filter(ctx, c, cmd, s, args, false)
			if err != nil {
				return err
			}
			body["filter"] = filter
			return g.again(ctx, c, datasetPath(g.dataset)+"/documents:retry"+notBefore.query(), body, "retry", s.dryRun, wait)
		},
	}
	f := cmd.Flags()
	notBefore.flag(cmd, &wait)
	s.flagsOf(g, cmd)
	f.StringVar(&job, "job", "", "what failed in this `JOB`")
	f.StringSliceVar(&units, "units", nil, "only these pages, rows or parts, such as 5,9-12")
	f.StringSliceVar(&codes, "code", nil, "only what failed with this `CODE`, such as parse_timeout")
	f.Var(&choice{value: &scope, of: retryScopes}, "scope", "`SCOPE`: failed, all, or a stage to repeat with what follows it, such as stage:embed")
	f.BoolVar(&wait, "wait", false, "show progress until it is done")
	s.dryFlag(cmd)
	g.complete(cmd, "scope", oneOf(retryScopes...))
	g.complete(cmd, "job", g.jobIDs)
	return cmd
}

// unitRange parses a number or a range: 5, 9-12.
func unitRange(text string) (sheaf.Range, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.Atoi(from)
	b, errB := strconv.Atoi(to)
	if errA != nil || errB != nil || a < 1 || b < a {
		return sheaf.Range{}, usageError{fmt.Errorf("--units %s: give numbers and ranges such as 5,9-12", text)}
	}
	return sheaf.Range{From: a, To: b}, nil
}
