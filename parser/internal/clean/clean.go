// Package clean makes the text that formats put into blocks: valid UTF-8
// without control characters, whatever the file held.
package clean

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text keeps lines and tabs and drops every other control character, byte
// order marks, soft hyphens and zero-width spaces, which break words for
// search. Line ends become \n, no-break spaces become spaces.
func Text(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c >= ' ' && c != 0x7f, c == '\n', c == '\t':
				b.WriteByte(c)
			case c == '\r':
				if i >= len(s) || s[i] != '\n' {
					b.WriteByte('\n')
				}
			case c == '\v', c == '\f':
				b.WriteByte('\n')
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		i += n
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteRune(utf8.RuneError)
		case r == 0x85 || r == 0x2028 || r == 0x2029:
			b.WriteByte('\n')
		case r < 0xa0, r == 0xad, r == 0xfeff, r == 0x200b, r == 0xfffe, r == 0xffff:
		case r == 0xa0 || r == 0x202f || r == 0x2007:
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func plain(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// Line is Text on one line: runs of white space become one space.
func Line(s string) string { return strings.Join(strings.Fields(Text(s)), " ") }

// Lines is Text with white space folded within each line, lines kept, empty
// ones at the ends dropped and no more than one empty line in a row.
func Lines(s string) string {
	s = Text(s)
	var b strings.Builder
	b.Grow(len(s))
	empty := 0
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		if line == "" {
			empty++
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
			if empty > 0 {
				b.WriteByte('\n')
			}
		}
		empty = 0
		b.WriteString(line)
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
