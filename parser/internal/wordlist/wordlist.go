// Package wordlist knows the common words of English, for parsers that must
// tell a word broken over two lines from a compound with a hyphen.
package wordlist

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sort"
	"sync"
)

// en holds 63,849 words in small letters, one a line, sorted by bytes.
//
//go:embed en.txt.gz
var en []byte

// words is inflated at the first question: 0.7 MB, some milliseconds.
var words = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(en))
	if err != nil {
		return nil
	}
	all, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	return all
})

// Has reports whether word, in small letters, is in the list.
func Has(word string) bool {
	if word == "" {
		return false
	}
	all := words()
	// at is the line that holds byte i.
	at := func(i int) []byte {
		from := bytes.LastIndexByte(all[:i], '\n') + 1
		to := len(all)
		if n := bytes.IndexByte(all[i:], '\n'); n >= 0 {
			to = i + n
		}
		return all[from:to]
	}
	i := sort.Search(len(all), func(i int) bool { return string(at(i)) >= word })
	return i < len(all) && string(at(i)) == word
}
