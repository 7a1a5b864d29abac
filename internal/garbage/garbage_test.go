package garbage

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Not parallel: there is one collector.
func TestAFormatsOwnPercentageStaysUntilItIsPutBack(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	c := Collector{Every: EveryOfChild}
	runtime.GC()
	c.Tune()
	small := percent()
	if small <= 100 || small != c.set {
		t.Fatalf("%d %% for a small heap, noted %d", small, c.set)
	}
	debug.SetGCPercent(250) // as a format does
	live := make([]byte, 2*EveryOfChild)
	runtime.GC()
	c.Tune()
	if got := percent(); got != 250 {
		t.Errorf("%d %% while a format has its own", got)
	}
	debug.SetGCPercent(small) // what it found
	c.Tune()
	if got := percent(); got != 100 {
		t.Errorf("%d %% for %d live bytes", got, len(live))
	}
	runtime.KeepAlive(live)
}

func TestASmallHeapIsLeftAloneAndALargeOneDoubles(t *testing.T) {
	t.Parallel()
	child := Collector{Every: EveryOfChild}
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 800}, {1 << 20, 800}, {4 << 20, 800}, {8 << 20, 400}, {16 << 20, 200}, {32 << 20, 100}, {33 << 20, 100}, {1 << 33, 100}} {
		if got := child.percent(c.live); got != c.want {
			t.Errorf("%d live bytes: %d %%, want %d", c.live, got, c.want)
		}
	}
	service := Collector{Every: EveryOfService}
	if got := service.percent(64 << 20); got != 150 {
		t.Errorf("%d %% for the service, want 150", got)
	}
}
