// Package clean prepares the text that formats put into blocks: valid UTF-8 without
// control characters, whatever the file contained.
package clean

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text keeps newlines and tabs and drops every other control character, byte order
// marks, soft hyphens and zero-width spaces, which break words for search. Line
// ends become \n, no-break spaces become spaces.
func Text(s string) string {
	i := sound(s)
	if i == len(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for {
		b.WriteString(s[:i])
		if s = s[i:]; s == "" {
			return b.String()
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\r':
			if len(s) == 1 || s[1] != '\n' {
				b.WriteByte('\n')
			}
		case r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
			b.WriteByte('\n')
		case r == utf8.RuneError:
			b.WriteRune(utf8.RuneError)
		case r == 0xa0 || r == 0x202f || r == 0x2007:
			b.WriteByte(' ')
		}
		s = s[n:]
		i = sound(s)
	}
}

// sound returns how many bytes of s need no change, up to the first character that
// Text drops or replaces.
func sound(s string) int {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r <= 0xa0, r == 0xad, r == 0xfeff, r == 0xfffe, r == 0xffff,
			r >= 0x2000 && r < 0x2030 && (r == 0x2007 || r == 0x200b || r == 0x2028 || r == 0x2029 || r == 0x202f):
			return i
		}
		i += n
	}
	return len(s)
}

// Line is Text on one line: runs of white space become one space.
func Line(s string) string { return strings.Join(strings.Fields(Text(s)), " ") }

// Lines is Text with white space collapsed within each line, newlines kept, empty
// lines at the ends dropped and at most one empty line in a row.
func Lines(s string) string {
	s = Text(s)
	var b strings.Builder
	b.Grow(len(s))
	empty := 0
	for line := range strings.SplitSeq(s, "\n") {
		first := true
		for word := range strings.FieldsSeq(line) {
			switch {
			case !first:
				b.WriteByte(' ')
			case b.Len() > 0 && empty > 0:
				b.WriteString("\n\n")
			case b.Len() > 0:
				b.WriteByte('\n')
			}
			b.WriteString(word)
			first, empty = false, 0
		}
		if first {
			empty++
		}
	}
	return b.String()
}

// Clip shortens s to at most n bytes, at a rune's start.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Readable reports whether s holds a letter or a digit.
func Readable(s string) bool {
	for _, r := range s {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return true
		}
	}
	return false
}

// Counts writes two counts at the start of a sentence, "Charts (1) and pictures (2)",
// and only one if the other is 0.
func Counts(n int, of string, m int, more string) string {
	text := ""
	for _, c := range []struct {
		n  int
		of string
	}{{n, of}, {m, more}} {
		switch {
		case c.n == 0:
		case text == "":
			text = fmt.Sprintf("%s%s (%d)", strings.ToUpper(c.of[:1]), c.of[1:], c.n)
		default:
			text += fmt.Sprintf(" and %s (%d)", c.of, c.n)
		}
	}
	return text
}
