package executor

import (
	"reflect"
	"strings"
	"testing"

	"sheaf"
)

func TestWindowsAreWholeSectionsThatFit(t *testing.T) {
	words := func(n int, path ...string) sheaf.Chunk {
		return sheaf.Chunk{Text: strings.Repeat("word ", n), HeadingPath: path, Tokens: n}
	}
	chunks := []sheaf.Chunk{
		words(40, "T"), words(40, "T", "A"), words(40, "T", "A"),
		words(80, "T", "B", "1"), words(80, "T", "B", "2"), words(40, "T", "B", "2"),
		words(120, "T", "C"), words(120, "T", "C"), words(400, "T", "C"), words(10, "T", "C"),
	}
	cuts := func(limit int) (out [][2]int) {
		for _, w := range windowsOf("n", chunks, limit) {
			if len(w.texts) != w.to-w.from {
				t.Fatalf("%d texts of chunks %d to %d", len(w.texts), w.from, w.to)
			}
			out = append(out, [2]int{w.from, w.to})
		}
		return out
	}
	for limit, want := range map[int][][2]int{
		5000: {{0, 10}},                                         // all together
		800:  {{0, 1}, {1, 3}, {3, 6}, {6, 10}},                 // its sections
		300:  {{0, 1}, {1, 3}, {3, 6}, {6, 8}, {8, 9}, {9, 10}}, // a long one filled up
		150:  {{0, 1}, {1, 3}, {3, 4}, {4, 6}, {6, 7}, {7, 8}, {8, 9}, {9, 10}},
	} {
		if got := cuts(limit); !reflect.DeepEqual(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
	w := windowsOf("n", chunks, 800)[2]
	if !strings.HasPrefix(w.texts[0], "n > T > B > 1\n") || !strings.HasPrefix(w.texts[1], "n > T > B > 2\n") || !strings.HasPrefix(w.texts[2], "word") {
		t.Errorf("where chunks stand is not said once: %.20q", w.texts)
	}
	if windowsOf("n", nil, 100) != nil {
		t.Error("windows of nothing")
	}
}
