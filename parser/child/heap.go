package child

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
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

// collectRarely sets the collector for what lives now, and again after each
// collection.
func collectRarely() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 0
	type sentinel struct{ _ *byte } // with a pointer: it is not packed together with others
	var arm func()
	arm = func() {
		metrics.Read(live)
		bytes := uint64(0)
		if live[0].Value.Kind() == metrics.KindUint64 {
			bytes = live[0].Value.Uint64()
		}
		if percent := heapPercent(bytes); percent != set {
			set = percent
			debug.SetGCPercent(percent)
		}
		runtime.SetFinalizer(&sentinel{}, func(*sentinel) { arm() })
	}
	arm()
}

// heapPercent is the growth after which a heap of so many live bytes is
// collected, for debug.SetGCPercent.
func heapPercent(live uint64) int {
	most := uint64(100 * collectEvery / minHeapAt100)
	return int(max(100, min(most, 100*collectEvery/max(live, 1))))
}
