package enrich

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what this process has used: a bound on it holds on a machine that
// does other things as well.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
