package wordlist

import (
	"bytes"
	"slices"
	"testing"
)

func TestWordsAreFound(t *testing.T) {
	list := bytes.Fields(words())
	if len(list) != 63849 || !slices.IsSortedFunc(list, bytes.Compare) {
		t.Fatalf("%d words, or not in order", len(list))
	}
	for i := 0; i < len(list); i += 997 {
		if !Has(string(list[i])) {
			t.Errorf("%s is not found", list[i])
		}
	}
	for _, w := range []string{string(list[0]), string(list[len(list)-1]), "implementation", "dependent", "sequence"} {
		if !Has(w) {
			t.Errorf("%s is not found", w)
		}
	}
	for _, w := range []string{"", "a\nb", "implementationdependent", "quence", "zzzz", "Dependent"} {
		if Has(w) {
			t.Errorf("%q is found", w)
		}
	}
}
