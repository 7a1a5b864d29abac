package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sheaf"
	"sheaf/internal/config"
)

// The Python package is built as it is released and type-checked, and its tests
// run with the wheel against a server, among them the suites of langchain-tests.
func TestPythonClient(t *testing.T) {
	tools := fetched(t, "python-client-*")
	s := start(t, func(c *config.Config) { c.Server.Auth = true })
	writer := s.tenant("alpha", "write", sheaf.Quota{})
	reader, other := s.withKey("alpha", "read"), s.tenant("beta", "write", sheaf.Quota{})

	source, dist, installed := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.CopyFS(source, os.DirFS(filepath.Join("..", "clients", "python"))); err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Abs(filepath.Join("..", "samples"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "python3", args...)
		cmd.Dir = source
		cmd.Env = append(os.Environ(), "PYTHONPATH="+installed+string(os.PathListSeparator)+tools, "PYTHONDONTWRITEBYTECODE=1",
			"SHEAF_URL="+s.base, "SHEAF_KEY="+writer.key, "SHEAF_READ_KEY="+reader.key, "SHEAF_OTHER_KEY="+other.key, "SHEAF_SAMPLES="+samples)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("python3 %v: %v\n%s", args, err, out)
		}
	}
	run("-m", "build", "--no-isolation", "--outdir", dist)
	for _, kind := range []string{"*.tar.gz", "*.whl"} {
		if made, _ := filepath.Glob(filepath.Join(dist, kind)); len(made) != 1 {
			t.Errorf("%s: %v were built", kind, made)
		}
	}
	wheel, _ := filepath.Glob(filepath.Join(dist, "*.whl"))
	run("-m", "zipfile", "-e", wheel[0], installed)
	if missing(filepath.Join(installed, "sheaf_client", "py.typed")) {
		t.Error("the wheel has no py.typed")
	}
	run("-m", "mypy", "--cache-dir", filepath.Join(filepath.Dir(tools), "mypy"))
	run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests")
}
