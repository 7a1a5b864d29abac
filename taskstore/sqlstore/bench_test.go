package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"sheaf/taskstore"
	"sheaf/taskstore/storetest"
)

// BenchmarkClaimComplete is one claim and one completion of a parse task,
// with the events and marks that go with them.
func BenchmarkClaimComplete(b *testing.B) {
	for _, engine := range storetest.Engines {
		b.Run(engine, func(b *testing.B) {
			f := storetest.New(b, engine)
			ctx := context.Background()
			d := f.Document("t")
			tasks := storetest.Parse(b.N)
			f.Plan(d, tasks...)
			b.ResetTimer()
			for _, t := range tasks {
				got, err := f.Store.Claim(ctx, t.ID, "w", time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				if err := f.Store.Complete(ctx, got.Held(), taskstore.Completion{Result: storetest.Result(got)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
