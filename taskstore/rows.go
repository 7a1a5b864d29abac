package taskstore

import (
	"context"
	"sync/atomic"
)

type rowsKey struct{}

// CountRows makes statements under the context add the number of rows they read to
// n. The keeper uses it to measure the database load of each loop.
func CountRows(ctx context.Context, n *atomic.Int64) context.Context {
	return context.WithValue(ctx, rowsKey{}, n)
}

// RowsRead adds rows that a statement has read, if they are being counted.
func RowsRead(ctx context.Context, n int) {
	if sum, ok := ctx.Value(rowsKey{}).(*atomic.Int64); ok {
		sum.Add(int64(n))
	}
}
