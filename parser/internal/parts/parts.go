// Package parts cuts large line-based files into pieces of similar size, so that a
// log of 100 MB becomes many tasks that each read only their own bytes. The cuts
// follow from the bytes alone: every reader of the file finds the same ones.
package parts

import (
	"bytes"
	"io"
	"os"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser/internal/charset"
)

const (
	// WholeBytes is the size up to which a file stays one unit.
	WholeBytes = 2 << 20
	// PartBytes is the target size of a part: some 250,000 tokens, a minute of work
	// for an embedder.
	PartBytes = 1 << 20
	// maxLineBytes is how far past the target a newline is searched.
	maxLineBytes = 256 << 10
	// MaxFileBytes limits the number of parts.
	MaxFileBytes = 4 << 30
)

// Slice is a run of bytes of the file.
type Slice struct{ Offset, Length int64 }

// Cut finds the parts of f from offset start to size, each ending at the end of a
// line if there is one nearby. A file of up to WholeBytes is one part.
func Cut(f io.ReaderAt, start, size int64, g charset.Guess) ([]Slice, error) {
	if size-start <= WholeBytes {
		return []Slice{{start, size - start}}, nil
	}
	var out []Slice
	buf := make([]byte, maxLineBytes)
	for at := start; at < size; {
		end := at + PartBytes
		if size-end < PartBytes/4 { // no tiny part at the end
			out = append(out, Slice{at, size - at})
			break
		}
		n, err := f.ReadAt(buf[:min(maxLineBytes, size-end)], end)
		if err != nil && err != io.EOF {
			return nil, unreadable(err)
		}
		end += lineEnd(buf[:n], g)
		out = append(out, Slice{at, end - at})
		at = end
	}
	return out, nil
}

// lineEnd is the offset after the first newline in b, or of a character's start if
// there is none. b begins at an even distance from the text's start.
func lineEnd(b []byte, g charset.Guess) int64 {
	if g.Wide() {
		for i := 0; i+1 < len(b); i += 2 {
			if g.Name == "utf-16be" && b[i] == 0 && b[i+1] == '\n' || g.Name != "utf-16be" && b[i] == '\n' && b[i+1] == 0 {
				return int64(i + 2)
			}
		}
		return 0
	}
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return int64(i + 1)
	}
	for i := range min(len(b), utf8.UTFMax) {
		if utf8.RuneStart(b[i]) {
			return int64(i)
		}
	}
	return 0
}

// Read reads and decodes one part.
func Read(f io.ReaderAt, s Slice, g charset.Guess) ([]byte, error) {
	b := make([]byte, s.Length)
	if _, err := io.ReadFull(io.NewSectionReader(f, s.Offset, s.Length), b); err != nil {
		return nil, unreadable(err)
	}
	g.BOM = 0 // the first part begins after it
	return g.Decode(b), nil
}

// Whole reads and decodes a file of at most limit bytes. encoding is the requested
// one, "" for detection.
func Whole(f *os.File, limit int64, encoding string) ([]byte, charset.Guess, error) {
	size, err := Size(f, limit)
	if err != nil {
		return nil, charset.Guess{}, err
	}
	guess, _, err := charset.DetectFile(f, size, encoding, "")
	if err != nil {
		return nil, guess, err
	}
	b, err := Read(f, Slice{Offset: int64(guess.BOM), Length: size - int64(guess.BOM)}, guess)
	return b, guess, err
}

// Fingerprints hashes the bytes of each part.
func Fingerprints(f io.ReaderAt, slices []Slice) ([]uint64, error) {
	out := make([]uint64, len(slices))
	h := xxhash.New()
	buf := make([]byte, 128<<10)
	for i, s := range slices {
		h.Reset()
		if _, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(f, s.Offset, s.Length), buf); err != nil {
			return nil, unreadable(err)
		}
		out[i] = h.Sum64()
	}
	return out, nil
}

// Size is the length of f; an empty or too large file is a failure.
func Size(f *os.File, limit int64) (int64, error) {
	st, err := f.Stat()
	switch {
	case err != nil:
		return 0, unreadable(err)
	case st.Size() == 0:
		return 0, charset.Empty()
	case st.Size() > limit:
		return 0, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The file has %d MB and the limit is %d MB; split it into smaller files.", st.Size()>>20, limit>>20)
	}
	return st.Size(), nil
}

func unreadable(err error) error {
	return sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
}
