package keeper

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sheaf"
	"sheaf/internal/queue"
	"sheaf/taskstore"
)

// backlog is a store of one tenant whose tasks do not end, and the stream that
// they are fed to.
type backlog struct {
	Store
	queue.Queue
	window int

	mu     sync.Mutex
	next   int // number of the first task that was not fed yet
	stream int // hints in the stream
	runs   int
	dry    int // takes that found nothing
}

func (b *backlog) RunIDs(context.Context) (map[sheaf.Lane]string, error) { return nil, nil }
func (b *backlog) Meta(context.Context, string) (string, error)          { return "", nil }
func (b *backlog) SetShare(context.Context, string, int, int) error      { return nil }

func (b *backlog) Feedable(_ context.Context, _ string, perLane int, _ time.Duration) (slice taskstore.FeedSlice, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs++
	for i := range perLane - b.stream { // the others of the first are in the stream
		slice.Hints = append(slice.Hints, sheaf.Hint{TaskID: fmt.Sprint(b.next + i), TenantID: "t", Lane: sheaf.LaneNormal})
	}
	return slice, nil
}

func (b *backlog) Publish(_ context.Context, _ string, _ sheaf.Lane, hints []sheaf.Hint) (int, error) {
	time.Sleep(2 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(hints), b.window-b.stream)
	b.stream, b.next = b.stream+n, b.next+n
	return n, nil
}

func (b *backlog) MarkEnqueued(context.Context, []sheaf.Hint, string) (bool, error) {
	time.Sleep(3 * time.Millisecond)
	return true, nil
}

func (b *backlog) take() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stream == 0 {
		b.dry++
		return
	}
	b.stream--
}

// A keeper in a process of its own, which nothing tells of ends, fills a stream
// before it is empty, however fast tasks end, and looks no more often than at
// each tick where they are slow.
func TestStreamIsFilledBeforeItIsEmpty(t *testing.T) {
	for rate, most := range map[int]int{10: 70, 100: 70, 1000: 500, 4000: 2000} { // tasks/s and runs in half a minute
		synctest.Test(t, func(t *testing.T) {
			b := &backlog{window: 256}
			k := New(Config{Store: b, Queue: b, Feeds: true, Window: b.window})
			ctx, stop := context.WithCancel(t.Context())
			var ended sync.WaitGroup
			defer func() { stop(); ended.Wait() }()
			for _, l := range k.loops {
				if l.name == "feed" {
					ended.Go(func() { k.run(ctx, l, nil) })
				}
			}
			synctest.Wait()
			work := func(d time.Duration) {
				every := time.Second / time.Duration(rate)
				for range d / every {
					time.Sleep(every)
					b.take()
				}
			}
			work(3 * time.Second) // it learns the rate
			b.mu.Lock()
			b.dry, b.runs = 0, 0
			b.mu.Unlock()
			work(30 * time.Second)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.dry > 0 || b.runs > most {
				t.Errorf("%d tasks/s: the stream was empty %d times in 30 s, with %d runs of the loop; want none, and %d", rate, b.dry, b.runs, most)
			}
		})
	}
}

func TestLasting(t *testing.T) {
	for _, c := range []struct {
		most int
		want time.Duration
	}{{0, 0}, {1, 64 * time.Second}, {32, 2 * time.Second}, {64, time.Second}, {127, 64 * time.Second / 127}, {128, time.Second / 4}} {
		if got := halfEmptyIn(time.Second, c.most, 128); got != c.want {
			t.Errorf("%d of a window of 128 in a second: %v, want %v", c.most, got, c.want)
		}
	}
}
