package main

import "testing"

func TestSettledWhenNoCheaperForAWhile(t *testing.T) {
	for _, c := range []struct {
		name  string
		costs []float64
		want  bool
	}{
		{"nothing was done yet", nil, false},
		{"it falls", []float64{9, 6, 5, 4, 3.8, 3.6, 3.4, 3.2, 3, 2.8}, false},
		{"a noisy portion is no end", []float64{9, 6, 5, 4, 3.5, 3.9, 3.1, 3.6, 2.9, 3.2}, false},
		{"it stays", []float64{9, 6, 4, 3, 2.5, 2.6, 2.5, 2.7, 2.48, 2.5}, true},
		{"the machine became slow", []float64{9, 6, 4, 3, 2.5, 3, 3, 3, 3, 3}, true},
	} {
		if got := settled(c.costs); got != c.want {
			t.Errorf("%s: settled is %v", c.name, got)
		}
	}
}
