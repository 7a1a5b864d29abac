package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"sheaf/parser/internal/wordlist"
)

// A hyphen at a line's end is either the typesetter's or part of the word. The text
// of nearby pages decides, then a word list.

// broken reports whether head, which ends in a hyphen, and next, which begins the
// following line, are halves of one word. texts are those of nearby pages, nil for
// the page's own.
func (s *sheet) broken(head, next string, texts []string) bool {
	if r, _ := utf8.DecodeRuneInString(next); !unicode.IsLower(r) {
		return false
	}
	stem := strings.TrimRight(head, "-\u2010")
	if k := strings.LastIndexFunc(stem, func(r rune) bool { return !unicode.IsLetter(r) }); k >= 0 {
		if _, n := utf8.DecodeRuneInString(stem[k:]); strings.ContainsRune("0123456789/_.@", rune(stem[k])) || k+n == len(stem) {
			return false
		} else {
			stem = stem[k+n:]
		}
	}
	if r, _ := utf8.DecodeLastRuneInString(stem); !unicode.IsLower(r) || utf8.RuneCountInString(stem) < 2 {
		return false
	}
	tail := next
	if k := strings.IndexFunc(tail, func(r rune) bool { return !unicode.IsLetter(r) }); k >= 0 {
		tail = tail[:k]
	}
	stem, tail = strings.ToLower(stem), strings.ToLower(tail)
	known, halves := wordlist.Has(stem+tail), wordlist.Has(stem) && wordlist.Has(tail)
	if known && !halves && !s.says(stem+"-"+tail, texts) {
		return true // as for most words
	}
	if joined, parted := s.says(stem+tail, texts), s.says(stem+"-"+tail, texts); joined != parted {
		return joined
	}
	return known || !halves
}

// says reports whether a word occurs in one of texts.
func (s *sheet) says(word string, texts []string) bool {
	if texts == nil {
		texts = []string{s.page.text}
	}
	for _, t := range texts {
		for at := 0; ; {
			k := strings.Index(t[at:], word)
			if k < 0 {
				break
			}
			from, to := at+k, at+k+len(word)
			before, _ := utf8.DecodeLastRuneInString(t[:from])
			after, _ := utf8.DecodeRuneInString(t[to:])
			if !unicode.IsLetter(before) && !unicode.IsLetter(after) && before != '-' && after != '-' {
				return true
			}
			at = to
		}
	}
	return false
}

// lastWord returns what follows the last space or newline of a text.
func lastWord(text []byte) string {
	i := len(text)
	for i > 0 && text[i-1] != ' ' && text[i-1] != '\n' {
		i--
	}
	return string(text[i:])
}
