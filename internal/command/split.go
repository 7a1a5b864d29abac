package command

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/taskstore"
)

func (g *global) datasetSplit() *cobra.Command {
	var p paging
	var remove string
	cmd := &cobra.Command{
		Use: "split DATASET [NAME NAME…]", Short: "Keep names apart in the graph of a dataset", Args: needs(1, -1, "a DATASET"),
		Long: `Undoes a wrong merge in the graph of a dataset: of the names that are given no two
are one entity from then on, also in documents that come later. "sheaf dataset graph
DATASET ENTITY" shows the names that an entity was merged from. No model is asked.

Without names it lists what is kept apart; --remove takes one of these back.`,
		Example: "  sheaf dataset graph contracts IT\n  sheaf dataset split contracts IT \"Information Technology\"\n  sheaf dataset split contracts\n  sheaf dataset split contracts --remove SPLIT-ID",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, names := datasetPath(args[0])+"/graph/splits", args[1:]
			switch {
			case len(names) == 1:
				return usageError{fmt.Errorf("%q stands alone; give the names that are to be kept apart, with quotes around those of several words", names[0])}
			case len(names) > 0 && remove != "":
				return usageError{fmt.Errorf("--remove takes a split back, and names make one; leave one of them out")}
			case len(names) > 0 || remove != "":
				for _, flag := range []string{"limit", "cursor"} {
					if cmd.Flags().Changed(flag) {
						return usageError{fmt.Errorf("--%s is of the list, which is shown without names and --remove; leave it out", flag)}
					}
				}
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(names) > 0 {
				var made taskstore.Split
				if err := c.call(cmd.Context(), http.MethodPost, path, api.NewSplit{Names: names}, &made); err != nil {
					return err
				}
				return g.done(made, "Keeps apart %s. `sheaf dataset split %s --remove %s` takes it back.", strings.Join(made.Names, " | "), args[0], made.ID)
			}
			if remove != "" {
				if err := c.call(cmd.Context(), http.MethodDelete, path+"/"+url.PathEscape(remove), nil, nil); err != nil {
					return listedBy(err, "`sheaf dataset split %s` lists them.", quoted(args[0]))
				}
				return g.done(map[string]string{"removed": remove}, "Took %s back.", remove)
			}
			if _, err := g.readDataset(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			items, next, err := pages[taskstore.Split](cmd.Context(), c, path, nil, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[taskstore.Split]{Items: listed(items).Items, NextCursor: next})
			}
			if len(items) == 0 {
				g.note("The graph of the dataset keeps no names apart. `sheaf dataset split %s NAME NAME` does so.", args[0])
				return nil
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tKEPT APART")
				for _, s := range items {
					fmt.Fprintf(w, "%s\t%s\n", s.ID, strings.Join(s.Names, " | "))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	p.flags(cmd, 100, "splits")
	cmd.Flags().StringVar(&remove, "remove", "", "`SPLIT-ID` to take back")
	return cmd
}
