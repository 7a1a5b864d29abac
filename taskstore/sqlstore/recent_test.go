package sqlstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowCountIsReadBesideItsCallers holds that a caller waits for a slow read only if
// there is no value, or only a very old one.
func TestSlowCountIsReadBesideItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recent[int]{age: 2 * time.Second}
		var reads atomic.Int64
		var away atomic.Bool
		read := func() (int, bool, error) {
			time.Sleep(3 * time.Second)
			n := int(reads.Add(1))
			if away.Load() {
				return 0, false, errors.New("the database is away")
			}
			return n, true, nil
		}
		get := func(want int, within time.Duration) {
			t.Helper()
			begun := time.Now()
			got, err := r.getStale(read)
			if took := time.Since(begun); err != nil || got != want || took > within {
				t.Fatalf("got %d in %v, %v; want %d within %v", got, took, err, want, within)
			}
		}
		get(1, 3*time.Second)
		get(1, 0)

		time.Sleep(recentShare * 3 * time.Second)
		get(1, 0) // and reads the next
		get(1, 0) // which reads no third
		time.Sleep(4 * time.Second)
		get(2, 0)

		// What fails beside the callers is tried again by the next of them.
		away.Store(true)
		time.Sleep(recentShare * 3 * time.Second)
		get(2, 0)
		time.Sleep(4 * time.Second)
		away.Store(false)
		get(2, 0)
		time.Sleep(4 * time.Second)
		get(4, 0)

		time.Sleep(recentShare*3*time.Second + staleAge)
		get(5, 3*time.Second)
	})
}
