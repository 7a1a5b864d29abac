package keeper_test

import (
	"context"
	"testing"
	"time"

	"sheaf"
	"sheaf/internal/keeper"
	"sheaf/internal/queue/sqlqueue"
	"sheaf/taskstore/storetest"
)

// Each loop counts the rows that it reads, and no loop those of another: a
// promotion reads the tasks that it promotes, and the time of the next.
func TestLoopsCountTheRowsTheyRead(t *testing.T) {
	f := storetest.New(t, "sqlite")
	d := f.Document("alpha")
	tasks := f.Plan(d, storetest.Parse(3)...)
	for _, task := range tasks {
		held := f.Claim(task.ID, "w").Held()
		f.OK(f.Store.Snooze(t.Context(), held, time.Second, sheaf.Failure{Message: "x"}))
	}
	f.Store.AdvanceClock(time.Minute)

	ctx, stop := context.WithCancel(t.Context())
	promoted := make(chan sheaf.Lane, len(tasks))
	ended := make(chan error, 1)
	k := keeper.New(keeper.Config{
		Store: f.Store, Queue: sqlqueue.New(f.Store, sqlqueue.Config{}), PromoteEvery: time.Hour, ReapEvery: time.Hour, FoldEvery: time.Hour, SlowEvery: time.Hour, CollectEvery: time.Hour,
		Promoted: func(lane sheaf.Lane, late time.Duration) {
			if late < 50*time.Second {
				t.Errorf("promoted %s after it was due", late)
			}
			promoted <- lane
		},
	})
	go func() { ended <- k.Run(ctx) }()
	for range tasks {
		if lane := <-promoted; lane != tasks[0].Lane {
			t.Errorf("promoted in lane %d, want %d", lane, tasks[0].Lane)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// The head, the tasks, and nothing that is next.
	if n := k.Loops()["promote"].Scanned.Load(); n != int64(1+len(tasks)) {
		t.Errorf("the promotion read %d rows, want %d", n, 1+len(tasks))
	}
	if n := k.Loops()["cleanup"].Scanned.Load(); n > 3 {
		t.Errorf("the cleanup, which has nothing to do, read %d rows", n)
	}
}
