package command

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

// completionTime bounds how long a shell waits for the server's completions.
const completionTime = time.Second

type completer = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// complete registers the completion of a flag's values.
func (g *global) complete(cmd *cobra.Command, flag string, f completer) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic("sheaf: " + err.Error()) // an undefined flag
	}
}

// oneOf completes one of some words, or a comma-separated list of them.
func oneOf(words ...string) completer {
	return func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		said := begun[:strings.LastIndexByte(begun, ',')+1]
		out := make([]string, len(words))
		for i, w := range words {
			out[i] = said + w
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// completions reads a list for a completion; on error or timeout there are none.
func completions[T any](g *global, path string, name func(T) string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	var list api.List[T]
	c, err := g.client()
	if err != nil || c.call(ctx, http.MethodGet, path, nil, &list) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, item := range list.Items {
		if n := name(item); n != "" {
			out = append(out, n)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (g *global) datasetNames(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completions(g, "/v1/datasets?"+namedLike(200, begun), func(d sheaf.Dataset) string { return d.Name })
}

// namedLike is the query for items whose name contains what is typed so far.
func namedLike(limit int, begun string) string {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if begun != "" {
		q.Set("q", begun)
	}
	return q.Encode()
}

func (g *global) documentNames(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return completions(g, datasetPath(g.dataset)+"/documents?"+namedLike(100, begun), func(d sheaf.Document) string { return d.Name })
}

func (g *global) jobIDs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return completions(g, "/v1/jobs?limit=50", func(j sheaf.Job) string {
		return j.ID + "\t" + string(j.Kind) + " of " + count(j.Documents.Total, "document") + ", " + jobWord(&j) + ", " + moment(j.CreatedAt)
	})
}
