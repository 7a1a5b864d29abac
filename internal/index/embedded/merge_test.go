package embedded

import (
	"testing"

	"pgregory.net/rapid"
)

// TestMergesArePaidFor writes parts of any sizes one after another. A merge at
// least doubles the size of the part that a row is in, so that no row is
// written again more often than that can happen, and the parts stay few.
func TestMergesArePaidFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts []*part
		first := uint32(1)
		for n, rows := range rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(1, 40), rapid.Uint32Range(1, 3000)), 1, 400).Draw(t, "rows") {
			parts = append(parts, &part{first: first, rows: rows})
			first += rows
			for from, to := mergeable(parts); to > from; from, to = mergeable(parts) {
				merged, largest := part{first: parts[from].first}, uint32(0)
				for _, p := range parts[from:to] {
					merged.rows += p.rows
					largest = max(largest, p.rows)
				}
				if merged.rows < 2*largest && merged.rows < maxPartRows/2 {
					t.Fatalf("write %d: a part of %d rows was written again for %d others", n, largest, merged.rows-largest)
				}
				parts = append(append(parts[:from:from], &merged), parts[to:]...)
			}
			if full := int(first/(maxPartRows/2)) + 1; len(parts) > 5*mergeWidth+2*full {
				t.Fatalf("write %d: %d parts of %d rows", n, len(parts), first-1)
			}
		}
	})
}
