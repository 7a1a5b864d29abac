package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/api"
)

func (g *global) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "jobs [ID]", Short: "List jobs, or show one", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				job, err := c.job(cmd.Context(), args[0], "")
				if err != nil {
					return err
				}
				if g.json {
					return printJSON(job)
				}
				fmt.Println(progressLine(job))
				_, err = c.report(cmd.Context(), job, false)
				return err
			}
			var list api.List[sheaf.Job]
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/jobs?limit=50", nil, &list); err != nil {
				return err
			}
			if g.json {
				return printJSON(list.Items)
			}
			return table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tKIND\tSTATE\tPROGRESS\tDOCUMENTS\tCREATED")
				for _, j := range list.Items {
					fmt.Fprintf(w, "%s\t%s\t%s\t%.0f %%\t%d\t%s\n", j.ID, j.Kind, j.State, j.Progress*100, j.Documents.Total, j.CreatedAt.Local().Format(time.DateTime))
				}
			})
		},
	}
	for verb, short := range map[string]string{"cancel": "Stop a job", "pause": "Hold a job's queued work", "resume": "Free a job's queued work"} {
		cmd.AddCommand(&cobra.Command{
			Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return g.act(cmd.Context(), "/v1/jobs/"+url.PathEscape(args[0])+":"+verb, nil)
			},
		})
	}
	return cmd
}
