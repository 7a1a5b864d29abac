package child

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// collectEvery is how much a child allocates, at least, between two garbage
// collections. By default the collector lets a small heap double, and comes
// after every 4 MB: for each handful of small files, a tenth of their CPU. A
// heap that is larger than this doubles as ever, so large documents take no
// more memory than they did.
const collectEvery = 32 << 20

// minHeapAt100 is the smallest heap that the collector aims at where the
// percentage is 100; it grows with it (runtime, heapMinimum).
const minHeapAt100 = 4 << 20

// collector sets when garbage is collected by what is alive.
type collector struct {
	mu  sync.Mutex
	set int // the percentage that was set last, 0 before
}

// start sets the collector now and after each collection.
func (c *collector) start() {
	type sentinel struct{ _ *byte } // with a pointer: it is not packed together with others
	c.tune()
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) { c.start() })
}

// tune fits the percentage to what was alive after the last collection. A
// format may have set another for a while and put this one back: it is left
// alone meanwhile, and tune is called when a request has been answered, since
// what was put back may be of a time when much less was alive.
func (c *collector) tune() {
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	c.mu.Lock()
	defer c.mu.Unlock()
	metrics.Read(now)
	if now[0].Value.Kind() != metrics.KindUint64 || now[1].Value.Kind() != metrics.KindUint64 {
		return // a runtime that does not tell
	}
	if c.set != 0 && now[1].Value.Uint64() != uint64(c.set) {
		return
	}
	if percent := heapPercent(now[0].Value.Uint64()); percent != c.set {
		c.set = percent
		debug.SetGCPercent(percent)
	}
}

// heapPercent is the growth after which a heap of so many live bytes is
// collected, for debug.SetGCPercent.
func heapPercent(live uint64) int {
	most := uint64(100 * collectEvery / minHeapAt100)
	return int(max(100, min(most, 100*collectEvery/max(live, 1))))
}
