package capacity

// push adds x to a heap.
func push[T any](h []T, x T, before func(a, b *T) bool) []T {
	h = append(h, x)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !before(&x, &h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
	return h
}

// pop removes the first element of a heap.
func pop[T any](h []T, before func(a, b *T) bool) []T {
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	sink(h, before)
	return h
}

// sink restores the heap after its first element has changed.
func sink[T any](h []T, before func(a, b *T) bool) {
	if len(h) == 0 {
		return
	}
	x, i := h[0], 0
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && before(&h[c+1], &h[c]) {
			c++
		}
		if !before(&h[c], &x) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = x
}

// shelf stores elements by number and reuses the numbers of removed ones.
type shelf[T any] struct {
	all  []T
	free []int32
}

func (s *shelf[T]) put(x T) int32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		s.all[id] = x
		return id
	}
	s.all = append(s.all, x)
	return int32(len(s.all) - 1)
}

// at is valid until the next put.
func (s *shelf[T]) at(id int32) *T { return &s.all[id] }

func (s *shelf[T]) remove(id int32) { s.free = append(s.free, id) }
