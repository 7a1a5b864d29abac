package static

import (
	"unicode"
	"unicode/utf8"
)

// mostlyLatin reports whether at least half of the letters of text are Latin, or
// there are no letters.
func mostlyLatin(text string) bool {
	latin, other := 0, 0
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			if c|0x20 >= 'a' && c|0x20 <= 'z' {
				latin++
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case r < 0x250 && unicode.IsLetter(r), unicode.Is(unicode.Latin, r):
			latin++
		case unicode.IsLetter(r):
			other++
		}
	}
	return latin >= other
}
