//go:build unix

package pdfiumwasm

import (
	"bytes"
	"context"
	"testing"

	"sheaf/parser/pdf/enginetest"
)

// TestMemoryIsUsedAgain opens documents one after another: each has the memory of
// the one before it, and nothing of that is left there.
func TestMemoryIsUsedAgain(t *testing.T) {
	e := start(t, Config{})
	data := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "confidential")}}}.Bytes()
	f := enginetest.Write(t, data)
	var first *byte
	for n := range 3 {
		doc, err := e.Open(context.Background(), f, int64(len(data)), "")
		if err != nil {
			t.Fatal(err)
		}
		mem := doc.(*document).mem
		if _, ok := mem.Grow(16 << 20 / (64 << 10)); !ok {
			t.Fatal("the memory does not grow")
		}
		memory, ok := mem.Read(0, mem.Size())
		if !ok {
			t.Fatal("the memory cannot be read")
		}
		if memory[len(memory)-1] != 0 || memory[len(memory)-8<<20] != 0 {
			t.Errorf("document %d reads what the one before it wrote", n)
		}
		memory[len(memory)-1], memory[len(memory)-8<<20] = 1, 1
		if first == nil {
			first = &memory[0]
		} else if &memory[0] != first {
			t.Errorf("document %d has other memory than the one before it", n)
		}
		used := len(memory)
		if err := doc.Close(); err != nil {
			t.Fatal(err)
		}
		left := spare.take(8192 * 64 << 10)
		if left == nil {
			t.Fatal("the memory of a closed document was not kept")
		}
		if !bytes.Equal(left[:used], make([]byte, used)) {
			t.Error("something is left in the memory of a closed document")
		}
		if !spare.put(left, 0) {
			t.Fatal("the memory was not taken back")
		}
	}
}

// TestOneSpareMemory keeps one memory, for who asks for one of its size.
func TestOneSpareMemory(t *testing.T) {
	var s spareMemory
	b := bytes.Repeat([]byte{1}, 64<<10)
	if !s.put(b, len(b)) || s.put(make([]byte, len(b)), 0) {
		t.Error("not one memory is kept")
	}
	if s.take(len(b)-1) != nil {
		t.Error("memory of another size was given out")
	}
	if got := s.take(len(b)); len(got) != len(b) || !bytes.Equal(got, make([]byte, len(b))) {
		t.Error("the memory that was kept was not given out, or was not cleared")
	}
	if s.take(len(b)) != nil {
		t.Error("memory was given out twice")
	}
}
