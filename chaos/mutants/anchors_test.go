package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Every guard is where its mutant looks for it.
func TestGuardsAreWhereTheyAreLookedFor(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, old := range []string{m.old, m.also[0]} {
			if n := bytes.Count(text, []byte(old)); old != "" && n != 1 {
				t.Errorf("%s: %s holds %d times %q, want once", m.guard, m.file, n, old)
			}
		}
	}
}
