package keeper

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What measuring costs is a small share of the time, however long it takes.
func TestMeasuringIsPacedByWhatItCosts(t *testing.T) {
	for name, c := range map[string]struct {
		backlog, population time.Duration
		least, most         int // measurements in ten minutes
		populations         int // at most
	}{
		"quick": {time.Millisecond, 2 * time.Millisecond, 118, 121, 11},
		"slow":  {2 * time.Second, 30 * time.Second, 8, 16, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, populations := 0, 0
				k := New(Config{Measure: func(_ context.Context, population bool) error {
					runs++
					time.Sleep(c.backlog)
					if population {
						populations++
						time.Sleep(c.population)
					}
					return nil
				}})
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Second) {
					if _, err := k.measure(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if runs < c.least || runs > c.most || populations < 1 || populations > c.populations {
					t.Errorf("measured %d times, %d of them with the population", runs, populations)
				}
			})
		})
	}
}
