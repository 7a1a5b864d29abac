package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

// submitBatch is how many files one upload request carries.
const submitBatch = 100

func (g *global) ingestCommand() *cobra.Command {
	var wait, dryRun bool
	var lane int
	var settings string
	cmd := &cobra.Command{
		Use: "ingest PATH…", Short: "Upload files and folders", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			ctx := cmd.Context()
			c, err := g.client()
			if err != nil {
				return err
			}
			files, err := collect(paths)
			if err != nil {
				return err
			}
			if len(files) == 0 {
				return errors.New("there are no files under " + strings.Join(paths, ", "))
			}
			if err := c.ensureDataset(ctx, g.dataset); err != nil {
				return err
			}
			fields := map[string]string{"lane": fmt.Sprint(lane)}
			if settings != "" {
				fields["parser_config"] = settings
			}
			query := ""
			if dryRun {
				query = "?dry_run=true"
			}
			failed := 0
			for batch := range slices.Chunk(files, submitBatch) {
				send := func() (*api.SubmitAnswer, error) { return c.submitAnswer(ctx, g.dataset, batch, fields, query) }
				if !dryRun && slices.ContainsFunc(batch, resumable) {
					send = func() (*api.SubmitAnswer, error) { return c.submitPieces(ctx, g.dataset, batch, fields) }
				}
				answer, err := send()
				if err != nil {
					return err
				}
				for _, r := range answer.Rejected {
					failed++
					fmt.Fprintf(os.Stderr, "%s: not taken: %s (%s)\n", r.Name, r.Failure.Message, r.Failure.Code)
				}
				if dryRun || !wait {
					if g.json {
						if err := printJSON(answer); err != nil {
							return err
						}
					} else if answer.Job != nil {
						fmt.Printf("job %s: %d documents queued\n", answer.Job.ID, len(answer.Documents))
					} else {
						for _, p := range answer.Plans {
							fmt.Printf("%s: %d %ss in %d ranges, %d reused\n", p.Name, p.Units, p.Unit, len(p.Ranges), p.Reused.Ranges)
						}
					}
					continue
				}
				job, err := c.follow(ctx, answer.Job.ID, os.Stderr)
				if err != nil {
					return err
				}
				n, err := c.report(ctx, job, g.json)
				if err != nil {
					return err
				}
				failed += n
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d files did not succeed; `sheaf docs --state failed` lists them", failed, len(files))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", true, "show progress until the documents are searchable")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be done and change nothing")
	cmd.Flags().IntVar(&lane, "lane", 2, "1 interactive, 2 normal, 3 backfill")
	cmd.Flags().StringVar(&settings, "parser-config", "", `settings as JSON, such as {"chunk_token_num": 256}`)
	return cmd
}

// ensureDataset creates the dataset if it is not there.
func (c *client) ensureDataset(ctx context.Context, name string) error {
	var ds sheaf.Dataset
	if err := c.call(ctx, http.MethodGet, "/v1/datasets/"+url.PathEscape(name), nil, &ds); err == nil {
		return nil
	}
	return c.call(ctx, http.MethodPost, "/v1/datasets", map[string]any{"name": name}, &ds)
}

// report prints how a job ended and returns how many documents failed.
func (c *client) report(ctx context.Context, job *sheaf.Job, asJSON bool) (failed int, err error) {
	if asJSON {
		return job.Documents.ByState[sheaf.DocFailed], printJSON(job)
	}
	var list api.List[sheaf.JobError]
	if err := c.call(ctx, http.MethodGet, "/v1/jobs/"+job.ID+"/errors?limit=100", nil, &list); err != nil {
		return 0, err
	}
	for _, e := range list.Items {
		at := ""
		if e.Failure.Page > 0 {
			at = fmt.Sprintf(", page %d", e.Failure.Page)
		}
		fmt.Printf("%s%s: %s (%s)\n", e.Document, at, e.Failure.Message, e.Failure.Code)
	}
	return job.Documents.ByState[sheaf.DocFailed], nil
}
