package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// clients is the folder of the programs of others that use Sheaf.
func clients(t *testing.T) string {
	t.Helper()
	return fetched(t, "clients-*")
}

// fetched is a folder that scripts/client-tools.sh fills.
func fetched(t *testing.T, pattern string) string {
	t.Helper()
	cache := os.Getenv("SHEAF_CACHE")
	if cache == "" {
		cache = "/var/cache/sheaf-test"
		if os.Getuid() != 0 {
			cache = filepath.Join(os.Getenv("HOME"), ".cache", "sheaf-test")
		}
	}
	found, _ := filepath.Glob(filepath.Join(cache, pattern))
	if len(found) > 0 {
		return found[len(found)-1]
	}
	const cure = "the clients of others are not installed; run scripts/client-tools.sh"
	if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
		t.Fatal(cure)
	}
	t.Skip(cure)
	return ""
}
