//go:build unix

package pdfiumwasm

import (
	"context"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// withAllocator keeps the module's linear memory outside the Go heap: the kernel
// zeroes pages on first touch, growing never copies, and closing a document frees
// the memory at once, except for what is kept spare. Measured: it halves the
// resident size of a child process.
func withAllocator(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(func(_, max uint64) experimental.LinearMemory {
		if b := spare.take(int(max)); b != nil {
			return &mappedMemory{b: b}
		}
		b, err := unix.Mmap(-1, 0, int(max), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			return &heapMemory{max: max} // address space is limited: use the Go heap
		}
		adviseHuge(b[:min(len(b), hugeBytes)])
		return &mappedMemory{b: b}
	}))
}

// hugeBytes is the memory every document touches at once: the module's data, its
// stack and the start of its heap. Measured: with huge pages there, opening and
// reading small documents takes 9 % less time.
const hugeBytes = 20 << 20

// spareBytes of a closed document's memory are kept for the next one. On a virtual
// machine whose host reclaims free memory, touching a page for the first time costs
// twenty times as much as zeroing it again.
const spareBytes = 8 << 20

// spare is the memory of the last closed document, all zero.
var spare spareMemory

type spareMemory struct {
	mu sync.Mutex
	b  []byte
}

// take returns the spare memory if it has that size, otherwise nil.
func (s *spareMemory) take(size int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.b) != size {
		return nil
	}
	b := s.b
	s.b = nil
	return b
}

// put keeps b, of which the first used bytes may have been written. It returns
// false if b cannot be zeroed or there is already a spare one.
func (s *spareMemory) put(b []byte, used int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b != nil {
		return false
	}
	keep := min(used, spareBytes)
	if used > keep && forget(b[keep:used]) != nil {
		return false
	}
	clear(b[:keep])
	s.b = b
	return true
}

type mappedMemory struct {
	b    []byte
	used int // the most requested so far
}

func (m *mappedMemory) Reallocate(n uint64) []byte {
	if n > uint64(len(m.b)) {
		return nil
	}
	m.used = max(m.used, int(n))
	return m.b[:n:len(m.b)]
}

func (m *mappedMemory) Free() {
	if m.b != nil && !spare.put(m.b, m.used) {
		_ = unix.Munmap(m.b) // fails only for addresses that were never mapped
	}
	m.b = nil
}

type heapMemory struct {
	b   []byte
	max uint64
}

func (m *heapMemory) Reallocate(n uint64) []byte {
	if n > m.max {
		return nil
	}
	if n > uint64(cap(m.b)) {
		grown := make([]byte, n, min(max(n, 2*uint64(cap(m.b))), m.max))
		copy(grown, m.b)
		m.b = grown
	}
	m.b = m.b[:n]
	return m.b
}

func (m *heapMemory) Free() { m.b = nil }
