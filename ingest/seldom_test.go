package ingest

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatedWarningIsLoggedOnceAnHour also holds that memory is bounded.
func TestRepeatedWarningIsLoggedOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seldom
		logged := 0
		for range 2 * 360 { // two hours of a keeper that looks every ten seconds
			if s.due("a") {
				logged++
			}
			time.Sleep(10 * time.Second)
		}
		if logged != 2 {
			t.Errorf("logged %d times in two hours, want 2", logged)
		}
		for i := range maxWarned + 10 {
			if !s.due(strconv.Itoa(i)) {
				t.Fatalf("the first warning about %d is held back", i)
			}
		}
		if len(s.last) > maxWarned {
			t.Errorf("%d subjects are remembered, want at most %d", len(s.last), maxWarned)
		}
	})
}
