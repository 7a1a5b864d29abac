package sqlstore

import (
	"context"
	"fmt"
	"sync"

	"gorm.io/gorm"

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

// Statements makes seen receive the text of each statement, arguments left out.
func (s *Store) Statements(seen func(query string)) error {
	var mu sync.Mutex
	of := func(db *gorm.DB) {
		mu.Lock()
		defer mu.Unlock()
		seen(db.Statement.SQL.String())
	}
	const name = "test:statements"
	for _, pool := range []*gorm.DB{s.handle.w, s.handle.r} {
		for _, err := range []error{
			pool.Callback().Query().After("gorm:query").Register(name, of),
			pool.Callback().Row().After("gorm:row").Register(name, of),
			pool.Callback().Raw().After("gorm:raw").Register(name, of),
		} {
			if err != nil {
				return err
			}
		}
	}
	return nil
}
