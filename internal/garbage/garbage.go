// Package garbage says how often a process of Sheaf looks for garbage: the
// service and its parsers' children have small heaps, which Go would look through
// after every few megabytes of what passes through them.
package garbage

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// How much is allocated, at least, between two garbage collections. A heap that is
// larger than this doubles, as any of Go does, so that large documents take no more
// memory.
const (
	// EveryOfChild is for a parser's child. By default the collector lets a small
	// heap double, and comes after every 4 MB: for each handful of small files, a
	// tenth of their CPU.
	EveryOfChild = 32 << 20
	// EveryOfService is for the service. What it holds takes some 60 MB, half of it
	// the embedding model; a collection costs 13 CPU-ms, and came with every 60 MB:
	// 3 % of what the upload of files takes.
	EveryOfService = 96 << 20
)

// minHeapAt100 is the smallest heap that the collector aims at where the
// percentage is 100; it grows with it (runtime, heapMinimum).
const minHeapAt100 = 4 << 20

// Collector sets when garbage is collected by what is alive. There is one in a
// process.
type Collector struct {
	// Every is how many bytes are allocated, at least, between two collections.
	Every uint64

	mu  sync.Mutex
	set int // the percentage that was set last, 0 before
}

// OfService sets the collector of the process for the service; once is enough.
var OfService = sync.OnceFunc(func() { (&Collector{Every: EveryOfService}).Start() })

// Start sets the collector now and after each collection, unless GOGC says what is
// wanted.
func (c *Collector) Start() {
	if os.Getenv("GOGC") == "" {
		c.start()
	}
}

func (c *Collector) start() {
	type sentinel struct{ _ *byte } // with a pointer: it is not packed together with others
	c.Tune()
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) { c.start() })
}

// Tune fits the percentage to what was alive after the last collection. Others may
// have set another for a while and put this one back: it is left alone meanwhile,
// and Tune is to be called then, since what was put back may be of a time when much
// less was alive.
func (c *Collector) Tune() {
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
	if percent := c.percent(now[0].Value.Uint64()); percent != c.set {
		c.set = percent
		debug.SetGCPercent(percent)
	}
}

// percent is the growth after which a heap of so many live bytes is collected, for
// debug.SetGCPercent.
func (c *Collector) percent(live uint64) int {
	most := 100 * c.Every / minHeapAt100
	return int(max(100, min(most, 100*c.Every/max(live, 1))))
}
