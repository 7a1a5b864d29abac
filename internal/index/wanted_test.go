package index

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is wanted, as many terms come in the same order, and each that begins with
// a wanted byte is the one that comes when all are.
func TestWantedTermsAreWhereTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SampledFrom([]string{"a", "b", "Z", "0", "7", "-", "'", " ", ".", "&", "FY", "2018", "é", "ß", "日", "本", "\xff", "HTTP", "Server", "cola", "ies", "ing", "s", "of", "\u0301", "’"})
		text := ""
		for _, p := range rapid.SliceOfN(pieces, 0, 16).Draw(t, "text") {
			text += p
		}
		initials := rapid.Bool().Draw(t, "initials")
		var wanted FirstBytes
		for _, b := range rapid.SliceOf(rapid.Byte()).Draw(t, "wanted") {
			wanted[b] = true
		}
		allTerms, allExtra := AppendSpellings(nil, nil, text, initials)
		terms, extra := AppendWanted(nil, nil, text, initials, &wanted)
		for _, both := range [][2][]byte{{allTerms, terms}, {allExtra, extra}} {
			all, some := bytes.Split(both[0], []byte(" ")), bytes.Split(both[1], []byte(" "))
			if len(all) != len(some) {
				t.Fatalf("%q: %d terms, want %d", text, len(some), len(all))
			}
			for i := range all {
				if len(all[i]) > 0 && wanted[all[i][0]] && len(some[i]) == 0 || len(some[i]) > 0 && !bytes.Equal(some[i], all[i]) {
					t.Errorf("%q: term %d is %q, want %q", text, i, some[i], all[i])
				}
			}
		}
	})
}
