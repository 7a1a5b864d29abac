package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
)

func (g *global) diagnosticsCommand() *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use: "diagnostics JOB|DOCUMENT", Aliases: []string{"flight-record"}, SuggestFor: []string{"debug"}, Short: "Download diagnostics of a job or a document", Args: needs(1, 1, "a JOB or a DOCUMENT"),
		Long: `Downloads all that is known of a run, to attach it to a report: versions,
dependencies, executors, documents, tasks and events. It holds no names, texts
or metadata of documents and nothing that the parser wrote.`,
		Example:           "  sheaf diagnostics JOB\n  sheaf diagnostics report.pdf -o - | jq .tasks",
		ValidArgsFunction: g.jobIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			path, id, err := g.subject(ctx, c, args[0])
			if err != nil {
				return err
			}
			resp, err := c.do(ctx, http.MethodGet, path+"/diagnostics", nil, "")
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if output == "-" {
				_, err := io.Copy(g.out, resp.Body)
				return err
			}
			file := output
			if file == "" {
				file = "sheaf-diagnostics-" + id + ".json"
			}
			n, err := writeFile(file, resp.Body, force)
			if err != nil {
				return err
			}
			return g.done(map[string]any{"path": file, "bytes": n}, "Wrote %s (%s). It holds no names or texts of documents.", file, size(n))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FILE` to write, - for standard output; default: sheaf-diagnostics-ID.json")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "overwrite a file that exists")
	return cmd
}

// subject finds the job or document that an argument names, and its URL path.
func (g *global) subject(ctx context.Context, c *client, said string) (path, id string, err error) {
	if anID.MatchString(said) {
		path = "/v1/jobs/" + said
		if _, err := c.job(ctx, said, ""); err == nil || !isMissing(err) {
			return path, said, err
		}
		path = datasetPath(g.dataset) + "/documents/" + said
		var d api.DocumentAnswer
		if err := c.call(ctx, http.MethodGet, path, nil, &d); err == nil || !isMissing(err) {
			return path, said, err
		}
		return "", "", cured(&answerError{status: http.StatusNotFound, code: "not_found", msg: fmt.Sprintf("there is no job %s, and no such document in %s", said, g.dataset)}, "Name the dataset of a document with -d.")
	}
	d, err := g.document(ctx, c, said)
	if err != nil {
		return "", "", err
	}
	return docPath(d), d.ID, nil
}

// pagePath is where the web page shows what an argument names.
func (g *global) pagePath(ctx context.Context, c *client, said string) (string, error) {
	path, id, err := g.subject(ctx, c, said)
	if err != nil {
		return "", err
	}
	if path == "/v1/jobs/"+id {
		return "/jobs/" + id, nil
	}
	return "/datasets/" + url.PathEscape(g.dataset) + "/documents/" + id, nil
}
