//go:build !linux

package child

import (
	"os"
	"syscall"
)

func isolate() *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func limitSelf(int64, int) error { return nil }

// residentBytes is unknown here: GOMEMLIMIT and the engine's own limit remain.
func residentBytes(*os.File) int64 { return 0 }

func openStatm(int) *os.File { return nil }

func keepPipes(...int) {}

func awaitExit(int) bool { return false }

func lockFolder(string) (*os.File, bool) { return nil, false }
