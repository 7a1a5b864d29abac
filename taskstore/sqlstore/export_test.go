package sqlstore

import (
	"context"
	"fmt"

	"sheaf/taskstore"
)

// Explain is how the engine would answer a query on a connection of the store.
func (s *Store) Explain(ctx context.Context, query string) (string, error) {
	var steps []map[string]any
	err := s.handle.read(ctx).Raw("EXPLAIN " + query).Scan(&steps).Error
	return fmt.Sprint(steps), err
}

// FinishedQuery is the statement that finished reads with.
func FinishedQuery(columns string) string { return finishedQuery(columns, "'parse'") }

// FacetsApart is Facets with a statement for each list.
func (s *Store) FacetsApart(ctx context.Context, tenantID string, f taskstore.DocumentFilter) (*taskstore.Facets, error) {
	return s.documents.facetsApart(ctx, tenantID, f)
}
