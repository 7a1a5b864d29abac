// Package garbage sets how often a process of Sheaf collects garbage: the service
// and its parsers' children have small heaps, which Go would collect after every
// few megabytes of throughput.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// Minimum allocation between two garbage collections. A larger heap doubles, as
// usual in Go, so that large documents do not take more memory.
const (
	// EveryOfChild is for a parser's child. By default the collector lets a small
	// heap double, and runs every 4 MB: for each handful of small files, a tenth of
	// their CPU.
	EveryOfChild = 32 << 20
	// EveryOfService is for the service. Its live heap is some 60 MB, half of it
	// the embedding model; a collection costs 13 CPU-ms, and ran every 60 MB: 3 %
	// of the cost of uploading files.
	EveryOfService = 96 << 20
)

// minHeapAt100 is the collector's minimum heap goal at 100 percent; it scales with
// the percentage (runtime, heapMinimum).
const minHeapAt100 = 4 << 20

// Collector adjusts garbage collection to the live heap. There is one per process.
type Collector struct {
	// Every is the minimum number of bytes allocated between two collections.
	Every uint64

	mu  sync.Mutex
	set int // the last percentage set, initially 0
}

// OfService configures the process's collector for the service; once is enough.
var OfService = sync.OnceFunc(func() { (&Collector{Every: EveryOfService}).Start() })

// Start adjusts the collector now and after each collection, unless GOGC is set.
func (c *Collector) Start() {
	if os.Getenv("GOGC") == "" {
		c.start()
	}
}

func (c *Collector) start() {
	type sentinel struct{ _ *byte } // contains a pointer, so that it is not packed with others
	c.Tune()
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) { c.start() })
}

// Tune adjusts the percentage to the live heap after the last collection. Other
// code may set another temporarily and restore this one: meanwhile it is not
// changed. Tune must be called afterwards, since the restored value may date from
// when the live heap was much smaller.
func (c *Collector) Tune() {
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	c.mu.Lock()
	defer c.mu.Unlock()
	metrics.Read(now)
	if now[0].Value.Kind() != metrics.KindUint64 || now[1].Value.Kind() != metrics.KindUint64 {
		return // unsupported by the runtime
	}
	if c.set != 0 && now[1].Value.Uint64() != uint64(c.set) {
		return
	}
	if percent := c.percent(now[0].Value.Uint64()); percent != c.set {
		c.set = percent
		debug.SetGCPercent(percent)
	}
}

// percent returns the growth after which a heap with that many live bytes is
// collected, for debug.SetGCPercent.
func (c *Collector) percent(live uint64) int {
	most := 100 * c.Every / minHeapAt100
	return int(max(100, min(most, 100*c.Every/max(live, 1))))
}
