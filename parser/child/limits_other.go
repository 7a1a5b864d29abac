//go:build !linux

package child

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func isolate(namespaces, network bool) *syscall.SysProcAttr { return nil }

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func lowerPriority(int) error { return nil }

// confine protects nothing here: production runs on Linux.
func confine(sandbox, int64) []Protection {
	var all []Protection
	for _, name := range []string{ProtectLimits, ProtectPrivileges, ProtectSyscalls, ProtectFiles, ProtectNetwork, ProtectSignals, ProtectUser} {
		all = append(all, Protection{name, false, "only Linux offers it"})
	}
	return all
}

// residentBytes is unknown here: GOMEMLIMIT and the engine's own limit remain.
func residentBytes(*os.File) int64 { return 0 }

func openStatm(int) *os.File { return nil }

func keepPipes(...int) {}

func awaitExit(int) bool { return false }

func lockFolder(string) (*os.File, bool) { return nil, false }

// ownTime is unknown here.
func ownTime() time.Duration { return 0 }

// launcher is not needed here: without namespaces, starting a process copies nothing
// of the service.
type launcher struct{}

var errLauncher = errors.New("no launcher")

func (p *Pool) startLaunched(command) (*os.Process, error) { return nil, errors.ErrUnsupported }

func (p *Pool) endLauncher() {}

func serveLauncher() int { return exitProtocol }

func dieWithParent() error { return nil }
