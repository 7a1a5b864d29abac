package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sheaf"
	"sheaf/ingest"
	"sheaf/internal/api"
	"sheaf/taskstore"
)

// docStates are the possible states of a document.
var docStates = []string{
	string(sheaf.DocUnstarted), string(sheaf.DocQueued), string(sheaf.DocRunning), string(sheaf.DocFinalizing), string(sheaf.DocSucceeded),
	string(sheaf.DocPartiallySucceeded), string(sheaf.DocFailed), string(sheaf.DocCanceling), string(sheaf.DocCanceled),
}

// everyState selects all documents of a dataset.
var everyState = map[string]any{"state": docStates}

func (g *global) docCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "doc", Aliases: []string{"document"}, Short: "Show, download and change documents",
		Long: `Shows, downloads and changes documents. A document is named by its id or, where
only one in the dataset has it, by its name.`,
		Example: `  sheaf doc show report.pdf
  sheaf doc text report.pdf > report.txt
  sheaf doc reparse report.pdf --setting chunk_token_num=256
  sheaf doc delete --state failed --dry-run`})
	cmd.AddCommand(g.docShow(), g.docText(), g.docChunks(), g.docEdit(), g.docEdits(), g.docUndo(), g.docDownload(), g.docReparse(), g.retryCommand(), g.docResume(), g.docCancel(), g.docDelete())
	return cmd
}

var anID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// document finds a document of the dataset by id or name.
func (g *global) document(ctx context.Context, c *client, said string) (*sheaf.Document, error) {
	base := datasetPath(g.dataset) + "/documents"
	if anID.MatchString(said) {
		var d api.DocumentAnswer
		err := c.call(ctx, http.MethodGet, base+"/"+said, nil, &d)
		if isMissing(err) {
			if _, dsErr := g.readDataset(ctx, c, g.dataset); dsErr != nil {
				return nil, dsErr
			}
			err = cured(err, "If it is not in %s, name its dataset with -d.", g.dataset)
		}
		return &d.Document, err
	}
	var list api.List[sheaf.Document]
	if err := c.call(ctx, http.MethodGet, base+"?"+url.Values{"limit": {"1000"}, "q": {excerptExact(said, 255)}}.Encode(), nil, &list); err != nil {
		if isMissing(err) {
			err = g.noDataset(ctx, c, g.dataset, err)
		}
		return nil, err
	}
	var found []sheaf.Document
	var names []string
	for _, d := range list.Items {
		names = append(names, d.Name)
		if d.Name == said || d.Path == said {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 1:
		return &found[0], nil
	case len(found) > 1:
		var ids []string
		for _, d := range found[:min(len(found), 5)] {
			ids = append(ids, d.ID)
		}
		return nil, usageError{cured(fmt.Errorf("%s in %s are named %s", count(len(found), "document"), g.dataset, said), "Name one by its id: %s.", strings.Join(ids, ", "))}
	}
	err := error(&answerError{status: http.StatusNotFound, code: "not_found", msg: fmt.Sprintf("there is no document %q in %s", said, g.dataset)})
	if len(names) > 0 {
		return nil, cured(err, "Did you mean %s?", quoted(names[0]))
	}
	return nil, cured(err, "`sheaf docs%s` lists the documents.", g.inDataset())
}

// excerptExact returns the beginning of a text, at most n bytes.
func excerptExact(s string, n int) string {
	for len(s) > n {
		_, last := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-last]
	}
	return s
}

// documentIDs resolves arguments to documents.
func (g *global) documentIDs(ctx context.Context, c *client, args []string) ([]string, error) {
	ids := []string{}
	for _, a := range args {
		if anID.MatchString(a) {
			ids = append(ids, a)
			continue
		}
		d, err := g.document(ctx, c, a)
		if err != nil {
			return nil, err
		}
		ids = append(ids, d.ID)
	}
	return ids, nil
}

func (g *global) docShow() *cobra.Command {
	return &cobra.Command{
		Use: "show DOCUMENT", Short: "Show a document and what became of it", Args: needs(1, 1, "a DOCUMENT"), ValidArgsFunction: g.documentNames,
		Example: "  sheaf doc show report.pdf",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if g.json {
				var full api.DocumentAnswer
				if err := c.call(cmd.Context(), http.MethodGet, docPath(d), nil, &full); err != nil {
					return err
				}
				return g.printJSON(full)
			}
			if err := g.table(func(w io.Writer) {
				line := func(name, value string) {
					if value != "" {
						fmt.Fprintf(w, "%s\t%s\n", name, value)
					}
				}
				line("name", d.Name)
				line("id", d.ID)
				line("state", stateWord(d))
				line("format", formatName(d.Parser, d.MediaType))
				line("size", size(d.Size))
				line("units", units(d.Units, d.Unit))
				line("chunks", number(d.Chunks))
				line("version", fmt.Sprintf("%d, live %d", d.Generation, d.LiveGeneration))
				line("job", d.JobID)
				line("inside", d.ParentID)
				line("path", d.Path)
				line("created", moment(d.CreatedAt))
				line("finished", moment(d.FinishedAt))
				if !d.StartedAt.IsZero() && !d.FinishedAt.IsZero() {
					line("took", span(d.FinishedAt.Sub(d.StartedAt)))
				}
				for _, k := range slices.Sorted(maps.Keys(d.Metadata)) {
					line(k, excerpt(d.Metadata[k], 100))
				}
				line("page", c.base+"/datasets/"+url.PathEscape(g.dataset)+"/documents/"+d.ID)
			}); err != nil {
				return err
			}
			if d.Failure != nil {
				fmt.Fprintf(g.out, "\n%s (%s)\n", d.Failure.Message, d.Failure.Code)
			}
			if n := d.Ledger.Failed; n > 0 {
				fmt.Fprintf(g.out, "\n%s failed; `sheaf retry%s %s` runs what can be retried.\n", count(n, string(d.Unit)), g.inDataset(), d.ID)
			}
			for _, warning := range d.Warnings[:min(len(d.Warnings), 10)] {
				at := ""
				if warning.Page > 0 {
					at = fmt.Sprintf(", page %d", warning.Page)
				}
				fmt.Fprintf(g.out, "warning%s: %s (%s)\n", at, warning.Message, warning.Code)
			}
			if more := len(d.Warnings) - 10; more > 0 {
				fmt.Fprintf(g.out, "and %s more\n", count(more, "warning"))
			}
			return nil
		},
	}
}

// oneDocument finds the server and a document on it.
func (g *global) oneDocument(ctx context.Context, said string) (*client, *sheaf.Document, error) {
	c, err := g.client()
	if err != nil {
		return nil, nil, err
	}
	d, err := g.document(ctx, c, said)
	return c, d, err
}

func docPath(d *sheaf.Document) string { return datasetPath(d.DatasetID) + "/documents/" + d.ID }

// stateWord is a document's state, with its progress while it runs.
func stateWord(d *sheaf.Document) string {
	if p := progressWord(d); p != "" && !d.State.Terminal() {
		return string(d.State) + ", " + p
	}
	return string(d.State)
}

// progressWord is how much of a document has been read: a dash if it failed, and
// never 100 % while a page is missing.
func progressWord(d *sheaf.Document) string {
	switch d.State {
	case sheaf.DocFailed, sheaf.DocCanceled:
		return "–"
	case sheaf.DocSucceeded:
		return "100 %"
	case sheaf.DocPartiallySucceeded:
		if total := d.Ledger.Total(); total > 0 {
			return fmt.Sprintf("%d %%", min((total-d.Ledger.Failed)*100/total, 99))
		}
		return "–"
	}
	return fmt.Sprintf("%d %%", min(int(d.Progress*100), 99))
}

func (g *global) docText() *cobra.Command {
	var page int
	cmd := &cobra.Command{
		Use: "text DOCUMENT", Short: "Print the text of a document as it was read", Args: needs(1, 1, "a DOCUMENT"), ValidArgsFunction: g.documentNames,
		Long:    "Prints the chunks of the live version in reading order, one after another. Where chunks overlap, the overlap is printed twice.",
		Example: "  sheaf doc text report.pdf > report.txt\n  sheaf doc text report.pdf --page 12",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			first, n := true, 0
			return c.eachChunk(cmd.Context(), d, page, func(chunks []sheaf.Chunk) error {
				for i := range chunks {
					if chunks[i].Role != "" {
						continue
					}
					if n++; g.json {
						if err := g.printJSON(map[string]any{"pages": chunks[i].Pages, "text": chunks[i].Text}); err != nil {
							return err
						}
						continue
					}
					if !first {
						fmt.Fprintln(g.out)
					}
					first = false
					if _, err := fmt.Fprintln(g.out, strings.TrimRight(chunks[i].Text, "\n")); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVar(&page, "page", 0, "only this page, row or part")
	return cmd
}

// eachChunk reads the chunks of the live version in reading order.
func (c *client) eachChunk(ctx context.Context, d *sheaf.Document, page int, f func([]sheaf.Chunk) error) error {
	if d.LiveGeneration == 0 {
		return fmt.Errorf("%s has no text yet: it is %s", d.Name, d.State)
	}
	q := url.Values{"limit": {"1000"}}
	if page > 0 {
		q.Set("page", fmt.Sprint(page))
	}
	for {
		var list api.List[sheaf.Chunk]
		if err := c.call(ctx, http.MethodGet, docPath(d)+"/chunks?"+q.Encode(), nil, &list); err != nil {
			return err
		}
		if err := f(list.Items); err != nil {
			return err
		}
		if list.NextCursor == nil {
			return nil
		}
		q.Set("cursor", *list.NextCursor)
	}
}

func (g *global) docChunks() *cobra.Command {
	var p paging
	var page int
	cmd := &cobra.Command{
		Use: "chunks DOCUMENT", Short: "List the chunks of a document", Args: needs(1, 1, "a DOCUMENT"), ValidArgsFunction: g.documentNames,
		Example: "  sheaf doc chunks report.pdf --page 3\n  sheaf doc chunks report.pdf --limit 0 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			q := url.Values{}
			if page > 0 {
				q.Set("page", fmt.Sprint(page))
			}
			items, next, err := pages[sheaf.Chunk](cmd.Context(), c, docPath(d)+"/chunks", q, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[sheaf.Chunk]{Items: listed(items).Items, NextCursor: next})
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "#\tPAGES\tTOKENS\tKIND\tTEXT")
				for _, k := range items {
					fmt.Fprintf(w, "%d\t%s\t%d\t%s\t%s\n", k.Ordinal, strings.Trim(strings.ReplaceAll(fmt.Sprint(k.Pages), " ", ","), "[]"), k.Tokens, k.Kind, excerpt(k.Text, 80))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	cmd.Flags().IntVar(&page, "page", 0, "only chunks that touch this page, row or part")
	p.flags(cmd, 50, "chunks")
	return cmd
}

func (g *global) docDownload() *cobra.Command {
	var output string
	var force bool
	cmd := &cobra.Command{
		Use: "download DOCUMENT", Short: "Download the original file", Args: needs(1, 1, "a DOCUMENT"), SuggestFor: []string{"get", "content"}, ValidArgsFunction: g.documentNames,
		Example: "  sheaf doc download report.pdf\n  sheaf doc download report.pdf -o - | sha256sum",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path := output
			if path == "" {
				path = filepath.Base(filepath.FromSlash(d.Name)) // names are untrusted: never a path elsewhere
				if path == "." || path == ".." || path == string(filepath.Separator) {
					path = d.ID
				}
			}
			resp, err := c.do(cmd.Context(), http.MethodGet, docPath(d)+"/content", nil, "")
			if err != nil {
				return err
			}
			return g.save(resp, path, force)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FILE` to write, - for standard output; default: the name of the document")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "overwrite a file that exists")
	return cmd
}

// save writes a response body to a file, or to standard output for "-".
func (g *global) save(resp *http.Response, path string, force bool) error {
	defer resp.Body.Close()
	broken := func(err error) error {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return cured(errors.New("the answer broke off before its end"), "Nothing of it is whole. Run the command again; the log of the server says why it broke off.")
		}
		return err
	}
	if path == "-" {
		_, err := io.Copy(g.out, resp.Body)
		return broken(err)
	}
	n, err := writeFile(path, resp.Body, force)
	if err != nil {
		return broken(err)
	}
	return g.done(map[string]any{"path": path, "bytes": n}, "Wrote %s (%s).", path, size(n))
}

// writeFile writes a file atomically.
func writeFile(path string, r io.Reader, force bool) (n int64, err error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return 0, usageError{cured(fmt.Errorf("%s exists", path), "Add --force to overwrite it, or name another file with -o.")}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".sheaf-*")
	if err != nil {
		return 0, fmt.Errorf("cannot write %s: %s", path, reason(err))
	}
	defer os.Remove(f.Name()) // a no-op after the rename
	n, err = io.Copy(f, r)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}
	return n, nil
}

// chosen selects the documents a command acts on.
type chosen struct {
	states []string
	all    bool
	confirmation
}

func (s *chosen) flagsOf(g *global, cmd *cobra.Command) {
	cmd.Flags().Var(&choice{value: &s.states, of: docStates, many: true}, "state", "all documents in these `STATES`")
	cmd.Flags().BoolVar(&s.all, "all", false, "all documents of the dataset")
	g.complete(cmd, "state", oneOf(docStates...))
}

// filter builds the document filter; exactly one way of selecting must be used.
func (g *global) filter(ctx context.Context, c *client, cmd *cobra.Command, s chosen, args []string, unfinished bool) (map[string]any, error) {
	ways := 0
	for _, said := range []bool{len(args) > 0, len(s.states) > 0, s.all} {
		if said {
			ways++
		}
	}
	if ways != 1 {
		return nil, usageError{cured(errors.New("say which documents: name them, or give --state or --all"), "Usage: %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"))}
	}
	if _, err := g.readDataset(ctx, c, g.dataset); err != nil {
		return nil, err
	}
	switch {
	case len(args) > 0:
		ids, err := g.documentIDs(ctx, c, args)
		return map[string]any{"document_ids": ids}, err
	case s.all && unfinished:
		return map[string]any{"state": unfinishedStates}, nil
	case s.all:
		return everyState, nil
	}
	return map[string]any{"state": s.states}, nil
}

// unfinishedStates are the states in which a document can be canceled.
var unfinishedStates = []string{string(sheaf.DocUnstarted), string(sheaf.DocQueued), string(sheaf.DocRunning), string(sheaf.DocFinalizing)}

// forecast asks the server what an action on documents would do.
func (c *client) forecast(ctx context.Context, dataset, verb string, body map[string]any) (*ingest.Forecast, error) {
	ask := map[string]any{"dry_run": true}
	for k, v := range body {
		ask[k] = v
	}
	var answer struct{ Forecast *ingest.Forecast }
	if err := c.call(ctx, http.MethodPost, datasetPath(dataset)+"/documents:"+verb, ask, &answer); err != nil {
		return nil, err
	}
	if answer.Forecast == nil {
		return nil, errors.New("the server does not say what it would do; is it older than this command?")
	}
	return answer.Forecast, nil
}

// selected returns the filter for the documents a command acts on, and a forecast
// of the action.
func (g *global) selected(cmd *cobra.Command, verb string, s chosen, args []string, unfinished bool) (*client, map[string]any, *ingest.Forecast, error) {
	ctx := cmd.Context()
	c, err := g.client()
	if err != nil {
		return nil, nil, nil, err
	}
	filter, err := g.filter(ctx, c, cmd, s, args, unfinished)
	if err != nil {
		return nil, nil, nil, err
	}
	f, err := c.forecast(ctx, g.dataset, verb, map[string]any{"filter": filter})
	return c, filter, f, err
}

// removal describes what a delete removes.
func removal(f *ingest.Forecast) string {
	what := count(f.Documents, "document")
	if r := f.Removed; r != nil {
		what += fmt.Sprintf(" (%s, %s)", size(r.Bytes), count(r.Chunks, "indexed chunk"))
	}
	return what
}

func (g *global) docDelete() *cobra.Command {
	var s chosen
	cmd := &cobra.Command{
		Use: "delete DOCUMENT…", Short: "Delete documents", SuggestFor: []string{"rm", "remove"}, ValidArgsFunction: g.documentNames,
		Long:    "Deletes documents with their chunks and originals. It asks first; --yes answers for you.",
		Example: "  sheaf doc delete report.pdf\n  sheaf doc delete --state failed --dry-run\n  sheaf doc delete -d drafts --all --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, filter, f, err := g.selected(cmd, "delete", s, args, false)
			if err != nil {
				return err
			}
			if err := g.allThere(f.Documents, args); err != nil {
				return err
			}
			what := removal(f) + " from " + g.dataset
			if s.dryRun {
				return g.done(f, "Nothing was changed. This would delete %s.", what)
			}
			if f.Documents == 0 {
				return g.done(taskstore.DeleteReceipt{DocumentIDs: []string{}}, "There is nothing to delete.")
			}
			if err := g.ask(s.confirmation, "Delete "+what+"? This cannot be undone."); err != nil {
				return err
			}
			var r api.DeleteAnswer
			if err := c.call(ctx, http.MethodPost, datasetPath(g.dataset)+"/documents:delete", map[string]any{"filter": filter}, &r); err != nil {
				return err
			}
			return g.done(r.DeleteReceipt, "Deleted %s (%s) from %s.", count(r.Documents, "document"), size(r.Bytes), g.dataset)
		},
	}
	s.flagsOf(g, cmd)
	s.confirmation.flags(cmd)
	return cmd
}

// allThere rejects an action if none of the named documents exists.
func (g *global) allThere(found int, args []string) error {
	if len(args) > 0 && found == 0 {
		return cured(&answerError{status: http.StatusNotFound, code: "not_found", msg: "none of the documents named is in " + g.dataset}, "Name their dataset with -d; `sheaf docs%s` lists the documents.", g.inDataset())
	}
	return nil
}

func (g *global) docCancel() *cobra.Command {
	var s chosen
	cmd := &cobra.Command{
		Use: "cancel DOCUMENT…", Short: "Stop the processing of documents", SuggestFor: []string{"stop"}, ValidArgsFunction: g.documentNames,
		Long:    "Stops the processing of documents. What was live before stays live. --all stops every unfinished document of the dataset, and asks first.",
		Example: "  sheaf doc cancel report.pdf\n  sheaf doc cancel -d contracts --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, filter, f, err := g.selected(cmd, "cancel", s, args, true)
			if err != nil {
				return err
			}
			what := count(f.Documents, "document") + " of " + g.dataset
			if s.dryRun {
				return g.done(f, "Nothing was changed. This would stop %s.", what)
			}
			if f.Documents == 0 {
				return g.done(taskstore.CancelReceipt{}, "There is nothing to stop.")
			}
			if len(args) == 0 {
				if err := g.ask(s.confirmation, "Stop the processing of "+what+"?"); err != nil {
					return err
				}
			}
			var r api.CancelAnswer
			if err := c.call(ctx, http.MethodPost, datasetPath(g.dataset)+"/documents:cancel", map[string]any{"filter": filter}, &r); err != nil {
				return err
			}
			return g.done(r.CancelReceipt, "Stopped %s: %s left the queue, %s were told to stop.", count(r.Documents, "document"), count(r.Queued, "task"), number(r.Running))
		},
	}
	s.flagsOf(g, cmd)
	s.confirmation.flags(cmd)
	return cmd
}

func (g *global) docResume() *cobra.Command {
	var budget api.RunBudget
	cmd := &cobra.Command{
		Use: "resume DOCUMENT", Short: "Raise the budget of a document that waits at it", Args: needs(1, 1, "a DOCUMENT"), ValidArgsFunction: g.documentNames,
		Long: `Raises what the version of a document that is being made may spend on the chat
model. Its tasks wait at the cap of flow.max_tokens and flow.max_price, go on
after it is raised, and ask nothing again that was answered. The budget counts
what was spent before; without one there is no bound.`,
		Example: "  sheaf doc resume report.pdf --max-tokens 50000\n  sheaf doc resume report.pdf --max-price 2.50\n  sheaf doc resume report.pdf",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var b api.VersionBudget
			if err := c.call(cmd.Context(), http.MethodPost, docPath(d)+":resume", budget, &b); err != nil {
				return err
			}
			most := "without a bound"
			if !b.Unbounded {
				most = "up to " + number(int(b.MaxTokens)) + " tokens"
			}
			return g.done(b, "%s goes on %s, of which %s are spent.", d.Name, most, number(int(b.Spent)))
		},
	}
	cmd.Flags().Int64Var(&budget.MaxTokens, "max-tokens", 0, "that the chat model may read and write for this version in all; 0 for no limit")
	cmd.Flags().Float64Var(&budget.MaxPrice, "max-price", 0, "the same as a price; 0 for no limit")
	return cmd
}

func (g *global) docReparse() *cobra.Command {
	var s chosen
	var config string
	var settings []string
	var fresh, wait bool
	var notBefore later
	cmd := &cobra.Command{
		Use: "reparse DOCUMENT…", Short: "Parse documents again, with other settings if given", SuggestFor: []string{"reprocess"}, ValidArgsFunction: g.documentNames,
		Long: `Parses documents again. What search finds changes only when the new version is
complete. Parts that come out the same are reused unless --fresh is given.`,
		Example: "  sheaf doc reparse report.pdf --setting chunk_token_num=256\n  sheaf doc reparse --state failed --dry-run\n  sheaf doc reparse -d contracts --all --wait\n  sheaf doc reparse -d contracts --all --not-before 22:00",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			config, err := parserConfig(config, settings)
			if err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			filter, err := g.filter(ctx, c, cmd, s, args, false)
			if err != nil {
				return err
			}
			body := map[string]any{"filter": filter}
			if config != "" {
				body["parser_config"] = json.RawMessage(config)
			}
			if fresh {
				body["fresh"] = true
			}
			return g.again(ctx, c, datasetPath(g.dataset)+"/documents:reparse"+notBefore.query(), body, "parse again", s.dryRun, wait)
		},
	}
	notBefore.flag(cmd, &wait)
	s.flagsOf(g, cmd)
	s.dryFlag(cmd)
	cmd.Flags().StringVar(&config, "parser-config", "", "settings as `JSON`; those not named stay")
	cmd.Flags().StringArrayVar(&settings, "setting", nil, "one setting as `NAME=VALUE`; may be repeated")
	cmd.Flags().BoolVar(&fresh, "fresh", false, "ignore cached results")
	cmd.Flags().BoolVar(&wait, "wait", false, "show progress until it is done")
	g.complete(cmd, "setting", settingAssignments)
	return cmd
}

// again starts a job on existing documents, or shows what it would do.
func (g *global) again(ctx context.Context, c *client, path string, body map[string]any, verb string, dryRun, wait bool) error {
	if dryRun {
		body["dry_run"] = true
	}
	var answer api.BatchAnswer
	if err := c.call(ctx, http.MethodPost, path, body, &answer); err != nil {
		return err
	}
	if f := answer.Forecast; f != nil {
		about := ""
		if f.Estimated {
			about = "about "
		}
		note := fmt.Sprintf("%s%s in %s, %s reused", about, count(f.Units, "page"), count(f.Ranges, "range"), number(f.Reused.Ranges))
		if p50, p90 := f.Seconds.P50, f.Seconds.P90; p50 != nil && p90 != nil {
			note += ", " + strings.TrimSuffix(left(*p50, *p90), " left")
		}
		if f.Skipped > 0 {
			note += fmt.Sprintf("; %s skipped because of their state", count(f.Skipped, "document"))
		}
		return g.done(answer, "Nothing was changed. This would %s %s: %s.", verb, count(f.Documents, "document"), note)
	}
	if answer.Job == nil {
		return g.done(answer, "There is nothing to do.")
	}
	if at := answer.Job.NotBefore; !at.IsZero() {
		g.note("Job %s begins at %s.", answer.Job.ID, moment(at))
	}
	if !wait {
		return g.done(answer, "Job %s: %s to %s. Follow it with `sheaf jobs %s --wait`.", answer.Job.ID, count(answer.Job.Documents.Total, "document"), verb, answer.Job.ID)
	}
	return g.watch(ctx, c, answer.Job)
}
