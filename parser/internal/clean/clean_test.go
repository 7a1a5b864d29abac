package clean_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"sheaf/parser/internal/clean"
)

// text says by single characters what clean.Text does by runs.
func text(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == '\r' && i < len(s) && s[i] == '\n':
		case r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
			b.WriteByte('\n')
		case r == 0xa0, r == 0x202f, r == 0x2007:
			b.WriteByte(' ')
		case r < ' ' && r != '\n' && r != '\t', r >= 0x7f && r < 0xa0, r == 0xad, r == 0x200b, r == 0xfeff, r == 0xfffe, r == 0xffff:
		default:
			b.WriteRune(r) // a broken one as U+FFFD
		}
	}
	return b.String()
}

func lines(s string) string {
	var out []string
	empty := false
	for _, line := range strings.Split(text(s), "\n") {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			empty = true
			continue
		}
		if len(out) > 0 && empty {
			out = append(out, "")
		}
		out, empty = append(out, line), false
	}
	return strings.Join(out, "\n")
}

func TestEveryCharacterIsCleanedByTheRules(t *testing.T) {
	pieces := []string{"a", "word", " ", "  ", "\n", "\r", "\r\n", "\t", "\v", "\f", "\x00", "\x1f", "\x7f", "\u0080", "\u0085", "\u009f", "\u00a0", "\u00ad", "ä", "日本", "\u2000", "\u2003",
		"\u2007", "\u200a", "\u200b", "\u200c", "\u2027", "\u2028", "\u2029", "\u202f", "\u2030", "\u3000", "\ufeff", "\ufffd", "\ufffe", "\uffff", "😀", "\xff", "\xe2\x80", "\xc3"}
	check := func(s string) {
		t.Helper()
		if got, want := clean.Text(s), text(s); got != want {
			t.Fatalf("Text(%q) = %q, want %q", s, got, want)
		}
		if got, want := clean.Lines(s), lines(s); got != want {
			t.Fatalf("Lines(%q) = %q, want %q", s, got, want)
		}
	}
	for r := range rune(0x3100) {
		check("a" + string(r) + "b")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		check(b.String())
	}
}

func TestCleanTextIsNotCopied(t *testing.T) {
	s := strings.Repeat("Ein Satz mit Umlauten: äöü, und 日本. ", 50)
	if n := testing.AllocsPerRun(10, func() { clean.Text(s) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
