package command

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
)

func (g *global) docEdit() *cobra.Command {
	var text string
	var keywords []string
	var on, off, remove bool
	cmd := &cobra.Command{
		Use: "edit DOCUMENT CHUNK", Short: "Change a chunk, switch it off or delete it", Args: needs(2, 2, "a DOCUMENT and the id of a CHUNK"), ValidArgsFunction: g.documentNames,
		Long:    "Changes what a chunk reads and what finds it. Searches follow at once, and later\nversions of the document have the change where they have the chunk. doc chunks --json\nlists the ids of chunks; doc edits lists changes, and doc undo takes one back.",
		Example: "  sheaf doc edit report.pdf 0f6b…-3 --text 'The rent is 900 euros.'\n  sheaf doc edit report.pdf 0f6b…-3 --off",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := apart(cmd, "on", "off"); err != nil {
				return err
			}
			body := api.ChunkPatch{}
			set := cmd.Flags().Changed
			if set("text") {
				body.Text = &text
			}
			if set("keywords") {
				body.Keywords = &keywords
			}
			if on || off {
				body.Enabled = &on
			}
			if remove == (body != api.ChunkPatch{}) {
				return usageError{errors.New("say what to change: --text, --keywords, --on or --off, or --delete alone")}
			}
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path := docPath(d) + "/chunks/" + url.PathEscape(args[1])
			var out api.EditedChunk
			if remove {
				err = c.call(cmd.Context(), http.MethodDelete, path, nil, &out)
			} else {
				err = c.call(cmd.Context(), http.MethodPatch, path, body, &out)
			}
			if err != nil {
				return listedBy(err, "`sheaf doc chunks %s%s` lists the chunks.", quoted(args[0]), g.inDataset())
			}
			if out.Edit == nil {
				return g.done(out, "The chunk is so already.")
			}
			return g.done(out, "This is version %d of edit %s.", out.Edit.Version, out.Edit.ID)
		},
	}
	f := cmd.Flags()
	f.StringVar(&text, "text", "", "what the chunk shall read")
	f.StringSliceVar(&keywords, "keywords", nil, "what it shall be found by, too; in place of those that it has")
	f.BoolVar(&on, "on", false, "searches find it again")
	f.BoolVar(&off, "off", false, "no search finds it")
	f.BoolVar(&remove, "delete", false, "no search finds it and no list has it")
	return cmd
}

func (g *global) docEdits() *cobra.Command {
	var p paging
	var state string
	cmd := &cobra.Command{
		Use: "edits DOCUMENT", Short: "List what people made of a document's chunks", Args: needs(1, 1, "a DOCUMENT"), ValidArgsFunction: g.documentNames,
		Example: "  sheaf doc edits report.pdf\n  sheaf doc edits report.pdf --state unplaced",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			q := url.Values{}
			if state != "" {
				q.Set("state", state)
			}
			items, next, err := pages[api.Edit](cmd.Context(), c, docPath(d)+"/edits", q, p)
			if err != nil {
				return err
			}
			if g.json {
				return g.printJSON(api.List[api.Edit]{Items: listed(items).Items, NextCursor: next})
			}
			if err := g.table(func(w io.Writer) {
				fmt.Fprintln(w, "EDIT\tVERSION\tSTATE\tBY\tCHUNK")
				for _, e := range items {
					fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\n", e.ID, e.Version, e.State, e.Author, excerpt(e.Excerpt, 60))
				}
			}); err != nil {
				return err
			}
			g.more(next)
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "only those that are applied, undone or unplaced")
	p.flags(cmd, 50, "edits")
	return cmd
}

func (g *global) docUndo() *cobra.Command {
	var to int
	cmd := &cobra.Command{
		Use: "undo DOCUMENT EDIT", Short: "Go back to an earlier version of an edit", Args: needs(2, 2, "a DOCUMENT and the id of an EDIT"), ValidArgsFunction: g.documentNames,
		Example: "  sheaf doc undo report.pdf 0198…\n  sheaf doc undo report.pdf 0198… --to 0",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, d, err := g.oneDocument(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var body api.UndoRequest
			if cmd.Flags().Changed("to") {
				body.To = &to
			}
			var out api.EditedChunk
			if err := c.call(cmd.Context(), http.MethodPost, docPath(d)+"/edits/"+url.PathEscape(args[1])+":undo", body, &out); err != nil {
				return listedBy(err, "`sheaf doc edits %s%s` lists the edits.", quoted(args[0]), g.inDataset())
			}
			return g.done(out, "This is version %d of edit %s.", out.Edit.Version, out.Edit.ID)
		},
	}
	cmd.Flags().IntVar(&to, "to", 0, "version that is wanted again, 0 for the chunk as it was parsed; else the one before the newest")
	return cmd
}
