package e2e

import (
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Addresses of the services that tests and developers use stay the same from
// start to start, so that a configuration that names them stays true.
func TestServicesKeepTheirPorts(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	dir, err := os.MkdirTemp("", "sheaf-ports") // one that other users can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	services := func(what string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "../scripts/services.sh", what, dir, "redis")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("services.sh %s: %v\n%s", what, err, stderr.String())
		}
		return regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(out))
	}
	t.Cleanup(func() { _ = exec.Command("../scripts/services.sh", "down", dir, "redis").Run() })
	first := services("up")
	services("down")
	if again := services("up"); first == "" || again != first {
		t.Errorf("after a second start Redis is at %q, want %q", again, first)
	}
	services("down")
	ln, err := net.Listen("tcp", first)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if other := services("up"); other == first || other == "" {
		t.Errorf("with its port taken Redis is at %q", other)
	}
}
