// Package wordlist holds the common words of English, for parsers that must
// distinguish a word broken across lines from a hyphenated compound.
package wordlist

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sort"
	"sync"
)

// en holds 63,849 lower-case words, one per line, sorted by bytes.
//
//go:embed en.txt.gz
var en []byte

// words is inflated on first use: 0.7 MB, a few milliseconds.
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

// Has reports whether word, in lower case, is in the list.
func Has(word string) bool {
	if word == "" {
		return false
	}
	all := words()
	// at returns the line that contains byte i.
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
