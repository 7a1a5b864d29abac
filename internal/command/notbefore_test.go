package command

import (
	"testing"
	"time"
)

// A time of day is the next such time; the rest is as it is written.
func TestNotBeforeIsReadAsPeopleWriteIt(t *testing.T) {
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 3, 31, 21, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"22:00": "2026-03-31T22:00:00+02:00", "21:30": "2026-04-01T21:30:00+02:00", "7:05": "2026-04-01T07:05:00+02:00", "90m": "2026-03-31T23:00:00+02:00",
		"2026-12-24 18:00": "2026-12-24T18:00:00+02:00", "2026-12-24T18:00:00Z": "2026-12-24T18:00:00Z",
	} {
		if at, err := laterTime(text, now); err != nil || at.Format(time.RFC3339) != want {
			t.Errorf("%s is %s (%v), want %s", text, at.Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"", "tonight", "25:00", "-2h", "2026-12-24"} {
		if at, err := laterTime(text, now); err == nil {
			t.Errorf("%q is taken as %s", text, at)
		}
	}
}
