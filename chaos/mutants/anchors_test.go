package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Every mutant finds its guard, below a comment of its own, and every such comment
// has a mutant.
func TestGuardsAreWhereTheirCommentsStand(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	t.Chdir("../..")
	names, err := tree(t.Context())
	if err != nil {
		t.Skip("this is no checkout: ", err)
	}
	files, err := guarded(".", names)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range mutants {
		for of := &m; of != nil; of = of.also {
			known[of.guard] = true
			text, err := os.ReadFile(files[of.guard])
			if err != nil {
				t.Errorf("no file has the comment \"guard: %s\"", of.guard)
				continue
			}
			if changed, err := of.mutate(text); err != nil || bytes.Equal(changed, text) {
				t.Errorf("%s: changed %v, error %v", of.guard, !bytes.Equal(changed, text), err)
			}
		}
	}
	for _, guard := range slices.Sorted(maps.Keys(files)) {
		if !known[guard] {
			t.Errorf("%s has the comment \"guard: %s\", of which no mutant knows", files[guard], guard)
		}
	}
}

// A guard is found under other names and lines, but not far from its comment.
func TestRenamedGuardsAreFound(t *testing.T) {
	m := mutant{guard: "g", old: `if .* \{`, new: `if false {`}
	for _, c := range []struct{ text, want string }{
		{"if a {\n// guard: g\nif b > c {\n}\nif d {\n", "if a {\n// guard: g\nif false {\n}\nif d {\n"},
		{"\t-- guard: g\n\tx()\n\tif y {\n", "\t-- guard: g\n\tx()\n\tif false {\n"},
	} {
		if got, err := m.mutate([]byte(c.text)); err != nil || string(got) != c.want {
			t.Errorf("%q becomes %q, %v", c.text, got, err)
		}
	}
	for _, text := range []string{"// guard: gg\nif a {\n", "// guard: g\n", "// guard: g\n" + strings.Repeat("x\n", reach+1) + "if a {\n"} {
		if got, err := m.mutate([]byte(text)); err == nil {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}
