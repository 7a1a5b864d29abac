package command

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/internal/graphs"
	"sheaf/internal/search"
)

// graphModes are the ways to search a graph.
var graphModes = []string{"local", "global", "mix"}

func (g *global) datasetGraph() *cobra.Command {
	var depth, limit int
	var file, method string
	var runs runFlags
	var force bool
	cmd := &cobra.Command{
		Use: "graph DATASET [ENTITY]", Short: "Show the graph of a dataset, or have a language model read it", Args: needs(1, -1, "a DATASET"),
		Long: `Shows the entities that the chunks of a dataset name, and which stand together,
with the page of a chunk that says so; of an ENTITY also the names that it was
merged from, which "sheaf dataset split" keeps apart. The graph is made when it is
first asked for, and follows the documents.

--method has the chat model read entities and relations of each chunk (light), and
report on the communities that they form (general), or name the entities alone
(ner); cooccurrence goes back to rules. What is there is kept: only chunks that
changed are read anew.`,
		Example: "  sheaf dataset graph contracts\n  sheaf dataset graph contracts \"Acme Corp\" --depth 2\n  sheaf dataset graph contracts --graphml graph.graphml\n  sheaf dataset graph contracts --method light --wait --max-tokens 2000000\n  sheaf dataset graph contracts --method general -o entity_types=organization,person,product --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cmd.Flags()
			if asks := append([]string{"method", "wipe"}, runAsks...); slices.ContainsFunc(asks, flags.Changed) {
				for _, other := range []string{"depth", "limit", "graphml", "force"} {
					if err := apart(cmd, other, asks...); err != nil {
						return err
					}
				}
				if err := apart(cmd, "wipe", "method"); err != nil {
					return err
				}
				if len(args) > 1 {
					return usageError{fmt.Errorf("an entity is shown, and no run is made of one; leave %q out", strings.Join(args[1:], " "))}
				}
				if method != "" {
					runs.options = append(runs.options, "method="+method)
				}
				return g.startRun(cmd, args[0], sheaf.KindGraphRAG, &runs)
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			path, words := datasetPath(args[0])+"/graph", args[1:]
			if file != "" {
				resp, err := c.do(cmd.Context(), http.MethodGet, path+"/export", nil, "")
				if err != nil {
					return err
				}
				return g.save(resp, file, force)
			}
			q := url.Values{"depth": {fmt.Sprint(depth)}, "limit": {fmt.Sprint(limit)}}
			if len(words) > 0 {
				q.Set("entity", strings.Join(words, " "))
			}
			var p graphs.Part
			if err := c.call(cmd.Context(), http.MethodGet, path+"?"+q.Encode(), nil, &p); err != nil {
				return err
			}
			if g.json {
				return g.printJSON(p)
			}
			if len(p.Entities) == 0 {
				g.note("The graph is empty: no two names stand in one sentence of this dataset often enough.")
				return nil
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ENTITY\tTYPE\tSENTENCES\tRELATIONS\tCHUNKS\tCOMMUNITY")
				for _, e := range p.Entities {
					group := ""
					if e.Community != nil {
						group = fmt.Sprint(*e.Community)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Name, e.Type, number(e.Count), number(e.Degree), number(e.Chunks), group)
				}
				if len(words) > 0 {
					fmt.Fprintln(w, "\nFROM\tTO\tSENTENCES\tSEEN IN")
					for _, r := range p.Relations {
						fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Source, r.Target, number(r.Count), place(r.Sources))
					}
					if names := p.Entities[0].Names; len(names) > 0 {
						fmt.Fprintln(w, "\nMERGED FROM\tBY\tSENTENCES\tSEEN IN")
						for _, n := range names {
							fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, n.Reason, number(n.Count), place(n.Sources))
						}
					}
				}
			}); err != nil {
				return err
			}
			g.note("\n%s entities and %s relations in all.", number(p.Total.Entities), number(p.Total.Relations))
			return nil
		},
	}
	runs.add(cmd, true)
	cmd.Flags().StringVar(&method, "method", "", "begin a run: light, general or ner by the chat model, or cooccurrence by rules")
	cmd.Flags().IntVar(&depth, "depth", 1, "relations away from the entity, 1 to 3")
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "entities, up to 500")
	cmd.Flags().StringVar(&file, "graphml", "", "`FILE` to write the whole graph to as GraphML, - for standard output")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "overwrite a file that exists")
	return cmd
}

// place is the location of the first of some chunks.
func place(sources []search.GraphSource) string {
	if len(sources) == 0 {
		return ""
	}
	s := sources[0]
	if len(s.Pages) == 0 {
		return s.DocumentID
	}
	return fmt.Sprintf("%s, page %d", s.DocumentID, s.Pages[0])
}
