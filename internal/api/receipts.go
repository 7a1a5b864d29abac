package api

import (
	"context"
	"errors"

	"sheaf"
	"sheaf/internal/receipt"
	"sheaf/internal/secrets"
	"sheaf/taskstore"
)

// ReceiptPath names a receipt.
type ReceiptPath struct {
	Receipt string `path:"receipt" maxLength:"64" doc:"id of the receipt, as the deletion returned it"`
}

// receiptRoutes registers the routes for deletion receipts. Receipts outlive what
// was deleted; those of a deleted dataset are found by its id.
func (s *Server) receiptRoutes() {
	type listIn struct {
		DatasetPath
		ListInput
	}
	op := get("/v1/datasets/{ds}/receipts", "List the receipts of a dataset's deletions")
	op.Description = "Name a deleted dataset by its id."
	op.Tags = []string{"receipts"}
	handle(s, op, func(ctx context.Context, in *listIn) (*output[List[taskstore.Receipt]], error) {
		id := in.Dataset
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err == nil {
			id = ds.ID
		} else if !errors.Is(err, sheaf.ErrNotFound) {
			return nil, err
		}
		list, next, listErr := s.cfg.Catalog.Receipts(ctx, tenantOf(ctx), id, in.page())
		if listErr == nil && err != nil && len(list) == 0 && in.Cursor == "" {
			return nil, err // neither the dataset nor a receipt of it exists
		}
		return s.signedList(list, next, listErr)
	})
	handle(s, get("/v1/receipts", "List the receipts of deletions"), func(ctx context.Context, in *ListInput) (*output[List[taskstore.Receipt]], error) {
		return s.signedList(s.cfg.Catalog.Receipts(ctx, tenantOf(ctx), "", in.page()))
	})
	one := get("/v1/receipts/{receipt}", "Read the receipt of a deletion")
	one.Description = "It is pending until every object, chunk and vector is removed, a few minutes later, and then completed for good. The signature covers all of it."
	handle(s, one, func(ctx context.Context, in *ReceiptPath) (*output[*taskstore.Receipt], error) {
		r, err := s.cfg.Catalog.Receipt(ctx, tenantOf(ctx), in.Receipt)
		if err == nil {
			err = s.signed(r)
		}
		return &output[*taskstore.Receipt]{r}, err
	})
	type documentsIn struct {
		ReceiptPath
		ListInput
	}
	documents := get("/v1/receipts/{receipt}/documents", "List the documents of a deletion and what was removed of each")
	documents.Tags = []string{"receipts"}
	handle(s, documents, func(ctx context.Context, in *documentsIn) (*output[List[taskstore.ReceiptDocument]], error) {
		docs, next, err := s.cfg.Catalog.ReceiptDocuments(ctx, tenantOf(ctx), in.Receipt, in.page())
		return listOf(docs, next), err
	})
	type verifyIn struct {
		Body struct {
			Receipt string `json:"receipt" doc:"the JSON text of the receipt as returned, in any layout"`
		}
	}
	verify := needs(post("/v1/receipts:verify", "Verify the signature of a receipt"), scopeRead)
	verify.Description = "Checks that this installation signed the receipt and that it was not changed since. It needs only the text: the receipt is not looked up."
	verify.MaxBodyBytes = 2 * receipt.MaxBytes // JSON string escaping
	handle(s, verify, func(_ context.Context, in *verifyIn) (*output[Verified], error) {
		if s.cfg.Receipts == nil {
			return nil, newProblem(404, "", "this installation has no key to sign receipts with")
		}
		r, err := s.cfg.Receipts.Verify([]byte(in.Body.Receipt))
		switch {
		case errors.Is(err, secrets.ErrUnknownKey):
			return &output[Verified]{Verified{Reason: "another installation signed the receipt, or its key was taken away: " + err.Error()}}, nil
		case err != nil:
			return &output[Verified]{Verified{Reason: sentence(err, sheaf.ErrInvalid)}}, nil
		}
		return &output[Verified]{Verified{Valid: true, ID: r.ID, State: r.State, KeyID: r.Signature.KeyID}}, nil
	})
}

// Verified is the result of checking a receipt's signature.
type Verified struct {
	Valid  bool                   `json:"valid"`
	Reason string                 `json:"reason,omitempty" doc:"why not"`
	ID     string                 `json:"id,omitempty" doc:"of the receipt"`
	State  taskstore.ReceiptState `json:"state,omitempty"`
	KeyID  string                 `json:"key_id,omitempty"`
}

// signed signs a receipt that is still pending, since it changes until completed; a
// completed one is already signed.
func (s *Server) signed(r *taskstore.Receipt) error {
	if s.cfg.Receipts == nil || r.State == taskstore.ReceiptCompleted {
		return nil
	}
	return s.cfg.Receipts.Sign(r)
}

func (s *Server) signedList(list []taskstore.Receipt, next string, err error) (*output[List[taskstore.Receipt]], error) {
	for i := range list {
		if err == nil {
			err = s.signed(&list[i])
		}
	}
	return listOf(list, next), err
}
