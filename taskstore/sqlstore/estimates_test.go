package sqlstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecentIsReadNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		var took time.Duration
		large := true
		var failed error
		r := recent[int]{age: 2 * time.Second}
		get := func(want int) {
			t.Helper()
			n, err := r.get(func() (int, bool, error) {
				reads++
				time.Sleep(took)
				return reads, large, failed
			})
			if !errors.Is(err, failed) || n != want {
				t.Fatalf("got %d, %v, want %d", n, err, want)
			}
		}
		get(1)
		time.Sleep(1999 * time.Millisecond)
		get(1)
		time.Sleep(time.Millisecond)
		took = time.Second // over a large store: no more than a twentieth of the time
		get(2)
		time.Sleep(19 * time.Second)
		get(2)
		time.Sleep(time.Second)
		took, failed = 0, errors.New("away")
		get(3) // a failure is not kept
		failed = nil
		get(4)
		large = false
		time.Sleep(time.Minute)
		get(5)
		get(6)
		took = time.Millisecond // among many rows
		get(7)
		took = 0
		time.Sleep(999 * time.Millisecond)
		get(7)
		time.Sleep(time.Millisecond)
		get(8)
		large = true
		r.age = -1
		time.Sleep(time.Minute)
		get(9)
		get(10)
	})
}
