// Package retryafter parses the wait a server requests.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Max is the longest accepted wait: a wrong clock or header must not stop work for
// days.
const Max = time.Hour

// Parse reads the value of a Retry-After header: seconds, possibly with a fraction
// as some servers send them, or a date (RFC 9110, 10.2.3), relative to now. It is 0
// if there is neither or the date has passed, at most Max.
func Parse(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseFloat(value, 64); seconds >= 0 && (err == nil || seconds > Max.Seconds()) {
		return time.Duration(min(seconds, Max.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), Max)
	}
	return 0
}
