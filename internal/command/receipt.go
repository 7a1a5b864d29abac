package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"sheaf/internal/api"
	"sheaf/internal/receipt"
	"sheaf/taskstore"
)

func (g *global) receiptCommand() *cobra.Command {
	cmd := asGroup(&cobra.Command{Use: "receipt", Short: "Look at and verify the receipts of deletions", Example: "  sheaf receipt list\n  sheaf receipt show ID > receipt.json\n  sheaf receipt verify receipt.json"})
	limit, all := 50, false
	list := &cobra.Command{
		Use: "list", Short: "List receipts of the dataset, newest first", Args: needs(0, 0, ""), Example: "  sheaf receipt list -d contracts\n  sheaf receipt list --all-datasets",
		Long: "Lists the receipts of the dataset's deletions, newest first. A dataset that was deleted itself is named by its id.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			path := "/v1/datasets/" + url.PathEscape(g.dataset) + "/receipts"
			if all {
				path = "/v1/receipts"
			}
			var list api.List[taskstore.Receipt]
			if err := c.call(cmd.Context(), http.MethodGet, fmt.Sprintf("%s?limit=%d", path, limit), nil, &list); err != nil {
				return err
			}
			if g.json {
				return g.printJSON(list.Items)
			}
			return g.table(func(w io.Writer) {
				fmt.Fprintln(w, "RECEIPT\tREQUESTED\tKIND\tSTATE\tDOCUMENTS\tOBJECTS\tCHUNKS\tVECTORS\tKEPT")
				for _, r := range list.Items {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.ID, r.RequestedAt.Format(time.RFC3339), r.Kind, r.State, r.Documents, r.Removed.Objects, r.Removed.Chunks, r.Removed.Vectors, len(r.Kept))
				}
			})
		},
	}
	list.Flags().IntVar(&limit, "limit", limit, "receipts at most, up to 1000")
	list.Flags().BoolVar(&all, "all-datasets", false, "of every dataset")
	show := &cobra.Command{
		Use: "show ID", Short: "Print a receipt as JSON, to be kept", Args: needs(1, 1, "an ID"), Example: "  sheaf receipt show ID > receipt.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := g.client()
			if err != nil {
				return err
			}
			var raw json.RawMessage // verbatim as signed, with fields of later versions
			if err := c.call(cmd.Context(), http.MethodGet, "/v1/receipts/"+url.PathEscape(args[0]), nil, &raw); err != nil {
				return listedBy(err, "`sheaf receipt list` lists those of a dataset.")
			}
			return g.printJSON(raw)
		},
	}
	verify := &cobra.Command{
		Use: "verify FILE", Short: "Tell whether a receipt was signed by this installation and not changed", Args: needs(1, 1, "a FILE"), Example: "  sheaf receipt verify receipt.json",
		Long: "Asks the server whether it signed the receipt in the file, - for standard input, and whether anything in it was changed since. Ends with code 1 when the signature does not hold.",
		RunE: func(cmd *cobra.Command, args []string) error { return g.verifyReceipt(cmd.Context(), args[0]) },
	}
	cmd.AddCommand(list, show, verify)
	return cmd
}

func (g *global) verifyReceipt(ctx context.Context, file string) error {
	in := g.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, receipt.MaxBytes+1))
	if err != nil {
		return err
	}
	if len(raw) > receipt.MaxBytes || !json.Valid(raw) {
		return fmt.Errorf("%s is no receipt; `sheaf receipt show ID` prints one", file)
	}
	c, err := g.client()
	if err != nil {
		return err
	}
	var v api.Verified
	if err := c.call(ctx, http.MethodPost, "/v1/receipts:verify", map[string]string{"receipt": string(raw)}, &v); err != nil {
		return err
	}
	if g.json {
		if err := g.printJSON(v); err != nil {
			return err
		}
	}
	if !v.Valid {
		return fmt.Errorf("the receipt is not valid: %s", v.Reason)
	}
	if !g.json {
		fmt.Fprintf(g.out, "receipt %s is valid: %s, signed with key %s\n", v.ID, v.State, v.KeyID)
	}
	return nil
}
