package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the program under test: SHEAF_TEST_BINARY, or built here, which is
// not on any clock.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("SHEAF_TEST_BINARY"); path != "" {
		t.Setenv("SHEAF_TEST_MAIN", "1") // the tests of e2e, which are the product then
		return path
	}
	path := filepath.Join(t.TempDir(), "sheaf")
	build := exec.Command("go", "build", "-o", path, "./cmd/sheaf")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// TestHostile is a short run of what `make hostile` does at length.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a service")
	}
	broken, err := run(t.Context(), config{n: 200, seed: 11, bin: program(t), root: "../..", keep: filepath.Join(t.TempDir(), "kept"), clients: 4, out: t.Output(), log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		t.Error(b)
	}
}

func TestASeedMakesTheSameMutants(t *testing.T) {
	seeds, err := seedFiles("../..", "")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for i := range 200 {
		name, how, data := mutant(rand.New(rand.NewPCG(3, uint64(i))), i, seeds)
		name2, how2, again := mutant(rand.New(rand.NewPCG(3, uint64(i))), i, seeds)
		if name != name2 || how != how2 || string(data) != string(again) {
			t.Fatalf("mutant %d is %s, %s and then %s, %s", i, name, how, name2, how2)
		}
		if len(data) > 2*maxMutant {
			t.Errorf("%s (%s) has %d bytes", name, how, len(data))
		}
		kinds[how] = true
	}
	if len(kinds) != len(mutations) {
		t.Errorf("of %d mutations only %v were drawn", len(mutations), kinds)
	}
}
