package retryafter

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	// Where this clock is the year has a second left; in GMT it is over.
	now := time.Date(2027, time.December, 31, 23, 59, 59, 0, time.FixedZone("", -5*3600))
	gmt := func(d time.Duration) string { return now.Add(d).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") }
	for value, want := range map[string]time.Duration{
		"0":                                0,
		"7":                                7 * time.Second,
		" 7 ":                              7 * time.Second,
		"1.5":                              1500 * time.Millisecond,
		"3600":                             time.Hour,
		"604800":                           time.Hour,
		"1e999":                            time.Hour, // more than a number holds
		"99999999999999999999":             time.Hour,
		gmt(30 * time.Second):              30 * time.Second,
		gmt(-30 * time.Second):             0,
		gmt(48 * time.Hour):                time.Hour,
		"Saturday, 01-Jan-28 05:00:29 GMT": 30 * time.Second, // RFC 850, which recipients must take
		"Sat Jan  1 05:00:29 2028":         30 * time.Second, // asctime
		"":                                 0,
		"-7":                               0,
		"-1e999":                           0,
		"NaN":                              0,
		"soon":                             0,
		"2028-01-01T05:00:29Z":             0, // no form of HTTP
	} {
		if got := Parse(value, now); got != want {
			t.Errorf("%q is %s, want %s", value, got, want)
		}
	}
}
