package command

import (
	"bytes"
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
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/taskstore"
)

// maxQueriesFile is more than a thousand queries with twenty texts each need.
const maxQueriesFile = 64 << 20

func (g *global) evalCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{
		Use: "eval", Short: "Measure search by saved queries", SuggestFor: []string{"evaluate", "evaluation", "recall"},
		Long:    "Saved queries are questions with the pages or texts that answer them. An evaluation asks them all and says how often the answer comes first. One runs by itself when the model or the settings of the dataset change, and when documents were parsed again.",
		Example: "  sheaf eval generate\n  sheaf eval import queries.json\n  sheaf eval run\n  sheaf eval run --min hit_5=0.8\n  sheaf eval show ID --against EARLIER",
	})
	cmd.AddCommand(g.evalRun(), g.evalList(), g.evalShow(), g.evalQueries(), g.evalImport(), g.evalGenerate(), g.evalDelete())
	return cmd
}

// measure is one number of an evaluation.
type measure struct {
	name  string
	value func(m *taskstore.Measures) float64
}

// measures are the ones that --min accepts, with the API's names.
var measures = []measure{
	{"hit_1", func(m *taskstore.Measures) float64 { return m.Hit1 }},
	{"hit_5", func(m *taskstore.Measures) float64 { return m.Hit5 }},
	{"hit_10", func(m *taskstore.Measures) float64 { return m.Hit10 }},
	{"recall", func(m *taskstore.Measures) float64 { return m.Recall }},
	{"mrr", func(m *taskstore.Measures) float64 { return m.MRR }},
	{"ndcg", func(m *taskstore.Measures) float64 { return m.NDCG }},
}

// heldMeasure is a measure with the minimum an evaluation must reach.
type heldMeasure struct {
	measure
	least float64
}

// heldMeasures parses the values of --min.
func heldMeasures(given []string) (out []heldMeasure, err error) {
	for _, text := range given {
		name, value, _ := strings.Cut(text, "=")
		at := slices.IndexFunc(measures, func(m measure) bool { return m.name == name })
		if at < 0 {
			names := make([]string, len(measures))
			for i, m := range measures {
				names[i] = m.name
			}
			return nil, usageError{fmt.Errorf("--min %s: there is no measure %q; it is one of %s, such as hit_5=0.8", text, name, strings.Join(names, ", "))}
		}
		least, err := strconv.ParseFloat(value, 64)
		if err != nil || !(least >= 0 && least <= 1) {
			return nil, usageError{fmt.Errorf("--min %s: %q is not a number from 0 to 1, such as hit_5=0.8", text, value)}
		}
		out = append(out, heldMeasure{measures[at], least})
	}
	return out, nil
}

// evaluation reads an evaluation, optionally compared with another.
func (g *global) evaluation(ctx context.Context, c *client, id, against string) (*api.EvaluationAnswer, error) {
	path := datasetPath(g.dataset) + "/evaluations/" + url.PathEscape(id)
	if against != "" {
		path += "?against=" + url.QueryEscape(against)
	}
	var e api.EvaluationAnswer
	return &e, listedBy(c.call(ctx, http.MethodGet, path, nil, &e), "`sheaf eval list%s` lists the evaluations.", g.inDataset())
}

func (g *global) evalRun() *cobra.Command {
	var least []string
	var against string
	cmd := &cobra.Command{
		Use: "run", Short: "Ask the saved queries, and compare with the run before", Args: needs(0, 0, ""),
		Long:    "Asks all saved queries of the dataset, prints how often the answer comes first, and which queries changed since the evaluation before. With --min it ends with code 1 when a measure is lower, as builds need it.",
		Example: "  sheaf eval run -d contracts\n  sheaf eval run --min hit_5=0.8 --min mrr=0.5\n  sheaf eval run --against ID",
		RunE: func(cmd *cobra.Command, _ []string) error {
			held, err := heldMeasures(least)
			if err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if _, err := g.readDataset(ctx, c, g.dataset); err != nil {
				return err
			}
			if against == "" {
				var before api.List[taskstore.Evaluation]
				if err := c.call(ctx, http.MethodGet, datasetPath(g.dataset)+"/evaluations?limit=1", nil, &before); err != nil {
					return err
				}
				if len(before.Items) > 0 {
					against = before.Items[0].ID
				}
			} else if _, err := g.evaluation(ctx, c, against, ""); err != nil { // report a typo before doing the work
				return err
			}
			var made api.EvaluationAnswer
			if err := c.call(ctx, http.MethodPost, datasetPath(g.dataset)+"/evaluations", nil, &made); err != nil {
				return err
			}
			e, err := g.evaluation(ctx, c, made.ID, against)
			if err != nil {
				return err
			}
			if err := g.printEvaluation(e); err != nil {
				return err
			}
			var low []string
			for _, b := range held {
				if is := b.value(&e.Measures); is < b.least {
					low = append(low, fmt.Sprintf("%s is %.3f, less than %g", b.name, is, b.least))
				}
			}
			if low != nil {
				return errors.New(strings.Join(low, "; "))
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&least, "min", nil, "end with code 1 when a `MEASURE=VALUE` is not reached; may be repeated")
	cmd.Flags().StringVar(&against, "against", "", "compare with the evaluation of this `ID`; default: the newest")
	return cmd
}

func (g *global) evalList() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List evaluations, newest first", Args: needs(0, 0, ""), Example: "  sheaf eval list\n  sheaf eval list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if _, err := g.readDataset(cmd.Context(), c, g.dataset); err != nil {
				return err
			}
			items, next, err := pages[taskstore.Evaluation](cmd.Context(), c, datasetPath(g.dataset)+"/evaluations", nil, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[taskstore.Evaluation]{Items: listed(items).Items, NextCursor: next})
			}
			if len(items) == 0 {
				g.note("No evaluation has run yet. `sheaf eval run` runs one.")
				return nil
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tRAN\tCAUSE\tMODEL\tQUERIES\tHIT@1\tHIT@5\tHIT@10\tMRR\tNDCG")
				for _, e := range items {
					m := e.Measures
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t%.3f\t%.3f\n", e.ID, moment(e.CreatedAt), e.Cause, e.Model, m.Queries, m.Hit1, m.Hit5, m.Hit10, m.MRR, m.NDCG)
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	p.flags(cmd, 20, "evaluations")
	return cmd
}

func (g *global) evalShow() *cobra.Command {
	var against string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an evaluation, or compare it with another", Args: needs(1, 1, "an ID"), Example: "  sheaf eval show ID\n  sheaf eval show ID --against EARLIER",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			e, err := g.evaluation(cmd.Context(), c, args[0], against)
			if err != nil {
				return err
			}
			return g.printEvaluation(e)
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "compare with the evaluation of this `ID`")
	return cmd
}

// printEvaluation prints the measures, what changed, and what was not found.
func (g *global) printEvaluation(e *api.EvaluationAnswer) error {
	if g.json {
		return g.printJSON(e)
	}
	if err := g.table(func(w io.Writer) {
		head, now, was := "", fmt.Sprintf("%d queries", e.Measures.Queries), "before"
		for _, m := range measures {
			head += "\t" + strings.ToUpper(m.name)
			now += fmt.Sprintf("\t%.3f", m.value(&e.Measures))
			if e.Against != nil {
				was += fmt.Sprintf("\t%.3f", m.value(&e.Against.Measures))
			}
		}
		fmt.Fprintf(w, "%s\n%s\n", head, now)
		if e.Against != nil {
			fmt.Fprintln(w, was)
		}
	}); err != nil {
		return err
	}
	if e.Stale {
		fmt.Fprintln(g.out, "Some searches did not see all there is; run it again before it is compared.")
	}
	for _, d := range e.Differences {
		fmt.Fprintf(g.out, "Since then %s.\n", d)
	}
	const most = 20 // rows; --json has all
	if len(e.Changes) > 0 {
		fmt.Fprintln(g.out)
		if err := g.table(func(w io.Writer) {
			fmt.Fprintln(w, "WAS\tIS\tQUERY\tWHY")
			for _, c := range e.Changes[:min(most, len(e.Changes))] {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", rankText(c.Was), rankText(c.Is), c.Question, c.Why)
			}
		}); err != nil {
			return err
		}
		g.rest(len(e.Changes)-most, "changed")
	}
	var missed []string
	for _, r := range e.Results {
		if r.Rank == 0 {
			missed = append(missed, r.Question)
		}
	}
	if len(missed) > 0 {
		fmt.Fprintf(g.out, "\nThe answer is not among the first 50 hits of %d:\n", len(missed))
		for _, q := range missed[:min(most, len(missed))] {
			fmt.Fprintf(g.out, "  %s\n", q)
		}
		g.rest(len(missed)-most, "not found")
	}
	g.note("\nEvaluation %s. `sheaf eval list` lists all.", e.ID)
	return nil
}

// rest notes that a table was truncated.
func (g *global) rest(n int, what string) {
	if n > 0 {
		g.note("%d more %s; --json prints all.", n, what)
	}
}

// rankText formats a rank, or "-" for none.
func rankText(rank int) string {
	if rank == 0 {
		return "-"
	}
	return strconv.Itoa(rank)
}

func (g *global) evalQueries() *cobra.Command {
	var p paging
	cmd := &cobra.Command{
		Use: "queries", Short: "List saved queries", Args: needs(0, 0, ""), Example: "  sheaf eval queries\n  sheaf eval queries --limit 0",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			if _, err := g.readDataset(cmd.Context(), c, g.dataset); err != nil {
				return err
			}
			items, next, err := pages[taskstore.SavedQuery](cmd.Context(), c, datasetPath(g.dataset)+"/queries", nil, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[taskstore.SavedQuery]{Items: listed(items).Items, NextCursor: next})
			}
			if len(items) == 0 {
				g.note("The dataset has no saved queries. `sheaf eval import FILE` saves some, `sheaf eval generate` makes some.")
				return nil
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "ID\tFROM\tQUERY\tEXPECTED")
				for _, q := range items {
					expected := make([]string, len(q.Expected))
					for i, e := range q.Expected {
						expected[i] = expectedText(e)
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", q.ID, cmp.Or(string(q.Source), "-"), q.Question, strings.Join(expected, "; "))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	p.flags(cmd, 100, "queries")
	return cmd
}

// expectedText summarizes an expected hit.
func expectedText(e taskstore.ExpectedAnswer) string {
	text := e.DocumentID
	switch {
	case e.To > e.From:
		text += fmt.Sprintf(" p. %d-%d", e.From, e.To)
	case e.From > 0:
		text += fmt.Sprintf(" p. %d", e.From)
	}
	if e.Text != "" {
		text += " " + quoted(e.Text)
	}
	return strings.TrimSpace(text)
}

func (g *global) evalImport() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Save queries from a file of JSON or JSON Lines", Args: needs(1, 1, "a FILE"),
		Long:    "Reads queries as {\"question\": …, \"expected\": [{\"document\": NAME, \"from\": PAGE, \"to\": PAGE, \"text\": …}]}: one, a list, one a line, or {\"queries\": [ … ]}. - is standard input. All are saved, or none; a question that the dataset has gets the hits that are given.",
		Example: "  sheaf eval import queries.json\n  sheaf eval import -d contracts queries.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			queries, err := g.queriesFile(args[0])
			if err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			if _, err := g.readDataset(cmd.Context(), c, g.dataset); err != nil {
				return err
			}
			var saved api.QueriesImported
			if err := c.call(cmd.Context(), http.MethodPost, datasetPath(g.dataset)+"/queries:import", map[string]any{"queries": queries}, &saved); err != nil {
				return err
			}
			return g.done(saved, "Saved %d queries. `sheaf eval run` asks them.", saved.Saved)
		},
	}
}

// queriesFile reads the queries in a file. The server validates their content.
func (g *global) queriesFile(name string) ([]json.RawMessage, error) {
	in := g.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxQueriesFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, err)
	case len(text) > maxQueriesFile:
		return nil, usageError{fmt.Errorf("%s is larger than %d MiB; a dataset has at most %d queries", name, maxQueriesFile>>20, taskstore.MaxQueries)}
	}
	var out []json.RawMessage
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var v json.RawMessage
		if err := d.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, usageError{fmt.Errorf("%s is not JSON near byte %d: %w", name, d.InputOffset(), err)}
		}
		var list []json.RawMessage
		var one struct {
			Queries []json.RawMessage `json:"queries"`
			Items   []json.RawMessage `json:"items"`
		}
		switch {
		case json.Unmarshal(v, &list) == nil:
			out = append(out, list...)
		case json.Unmarshal(v, &one) == nil && one.Queries != nil:
			out = append(out, one.Queries...)
		case one.Items != nil:
			return nil, usageError{fmt.Errorf("%s is a list of saved queries as `sheaf eval queries --json` prints it, with ids; give each as question and expected", name)}
		default:
			out = append(out, v)
		}
	}
	switch {
	case len(out) == 0:
		return nil, usageError{fmt.Errorf(`%s has no queries; write them as {"question": "…", "expected": [{"document": "NAME", "from": 3}]}`, name)}
	case len(out) > taskstore.MaxQueries:
		return nil, usageError{fmt.Errorf("%s has %d queries; a dataset has at most %d", name, len(out), taskstore.MaxQueries)}
	}
	return out, nil
}

func (g *global) evalGenerate() *cobra.Command {
	var in api.GenerateQueries
	var from string
	cmd := &cobra.Command{
		Use: "generate", Short: "Make queries from headings, or by a language model from chunks", Args: needs(0, 0, ""),
		Long:    "Saves questions whose answers are known from the documents of the dataset: headings, which the pages of their section answer, or with --from chunks a question that the language model of chat.url writes about each of some chunks. They are marked, and a question that the dataset has stays as it is. With --dry-run nothing is saved, and no model is asked.",
		Example: "  sheaf eval generate\n  sheaf eval generate --from chunks --limit 20 --dry-run\n  sheaf eval generate -d contracts --from chunks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.From = taskstore.QuerySource(from)
			c, err := g.client()
			if err != nil {
				return err
			}
			if _, err := g.readDataset(cmd.Context(), c, g.dataset); err != nil {
				return err
			}
			var made api.GeneratedQueries
			if err := c.call(cmd.Context(), http.MethodPost, datasetPath(g.dataset)+"/queries:generate", in, &made); err != nil {
				return err
			}
			switch {
			case g.json:
				return g.printJSON(made)
			case in.DryRun && in.From == taskstore.SourceChunks:
				return g.done(made, "The model would be asked %d questions about %d tokens of text.", made.Asks, made.Tokens)
			case len(made.Queries) == 0:
				return g.done(made, "There is nothing to ask: the dataset has no %s that could be, or all are saved.", from)
			}
			for _, q := range made.Queries {
				fmt.Fprintln(g.out, q.Question)
			}
			if made.Failed > 0 {
				g.note("The model wrote no question about %d of %d chunks: %s", made.Failed, made.Asks, made.Failure)
			}
			if in.DryRun {
				g.note("%d questions would be saved.", len(made.Queries))
				return nil
			}
			g.note("Saved %d questions. `sheaf eval run` asks them.", made.Saved)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", string(taskstore.SourceHeadings), "what questions are made of: headings, or chunks by the language model")
	cmd.Flags().IntVar(&in.Limit, "limit", 50, "questions at most, up to 200")
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "save nothing, and ask no model")
	return cmd
}

func (g *global) evalDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete QUERY-ID…", Aliases: []string{"rm"}, Short: "Delete saved queries", Args: needs(1, -1, "a QUERY-ID"), Example: "  sheaf eval delete QUERY-ID",
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			for i, id := range ids {
				err := listedBy(c.call(cmd.Context(), http.MethodDelete, datasetPath(g.dataset)+"/queries/"+url.PathEscape(id), nil, nil), "`sheaf eval queries%s` lists the queries.", g.inDataset())
				if err != nil && len(ids) > 1 {
					return fmt.Errorf("after %d of %d: %w", i, len(ids), err)
				}
				if err != nil {
					return err
				}
			}
			return g.done(map[string]int{"deleted": len(ids)}, "Deleted %d queries.", len(ids))
		},
	}
}
