package artifact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// A Parquet file ends in: footer, its length as uint32, "PAR1". The checksum is a
// value inside the footer, found without parsing: the key, one byte for the field
// and one for the length of the value (Thrift compact protocol), then 16 hex
// digits. It is the xxhash64 of the entire file with zeros for these digits.
const (
	noChecksum    = "0000000000000000"
	checksumStart = keyChecksum + "\x18\x10"
	tailBytes     = 8
	magic         = "PAR1"
)

// usualFooter is more than the footer of a small file takes.
const usualFooter = 8 << 10

// sealer forwards Parquet's output, but holds the footer back to insert the
// checksum.
type sealer struct {
	w      io.Writer
	hash   *xxhash.Digest
	footer []byte
	hold   bool
}

func newSealer(w io.Writer) *sealer { return &sealer{w: w, hash: xxhash.New()} }

func (s *sealer) Write(p []byte) (int, error) {
	if s.hold {
		if s.footer == nil {
			s.footer = make([]byte, 0, usualFooter)
		}
		s.footer = append(s.footer, p...)
		return len(p), nil
	}
	_, _ = s.hash.Write(p)
	return s.w.Write(p)
}

// finish writes what was held back, with the checksum.
func (s *sealer) finish() error {
	at := bytes.LastIndex(s.footer, []byte(checksumStart+noChecksum))
	if at < 0 {
		return fmt.Errorf("the footer has no place for the checksum")
	}
	_, _ = s.hash.Write(s.footer)
	at += len(checksumStart)
	copy(s.footer[at:at+16], fmt.Sprintf("%016x", s.hash.Sum64()))
	_, err := s.w.Write(s.footer)
	return err
}

// verify reads the entire file once and returns an error unless its bytes are
// unchanged. It holds the footer and 64 KB in memory.
func verify(r io.ReaderAt, size int64) error {
	var tail [tailBytes]byte
	if size < int64(len(magic)+tailBytes) {
		return fmt.Errorf("it has %d bytes, too few for a Parquet file", size)
	}
	if _, err := r.ReadAt(tail[:], size-tailBytes); err != nil && err != io.EOF {
		return err
	}
	footerBytes := int64(binary.LittleEndian.Uint32(tail[:4]))
	if string(tail[4:]) != magic {
		return fmt.Errorf("it does not end as a Parquet file does; it may have been cut off")
	}
	footerAt := size - tailBytes - footerBytes
	if footerBytes > maxFooterBytes || footerAt < int64(len(magic)) {
		return fmt.Errorf("it says that its footer has %d bytes", footerBytes)
	}
	footer := make([]byte, footerBytes+tailBytes)
	if _, err := r.ReadAt(footer, footerAt); err != nil && err != io.EOF {
		return err
	}
	at := bytes.LastIndex(footer, []byte(checksumStart))
	if at < 0 || at+len(checksumStart)+16 > len(footer) {
		return fmt.Errorf("it carries no checksum, so it was not written by sheaf")
	}
	digits := footer[at+len(checksumStart):][:16]
	want := string(digits)
	copy(digits, noChecksum)

	hash := xxhash.New()
	if _, err := io.CopyBuffer(onlyWriter{hash}, io.NewSectionReader(r, 0, footerAt), make([]byte, 64<<10)); err != nil {
		return err
	}
	_, _ = hash.Write(footer)
	if got := fmt.Sprintf("%016x", hash.Sum64()); got != want {
		return fmt.Errorf("its bytes have changed since they were written (checksum %s instead of %s)", got, want)
	}
	return checkThrift(footer[:footerBytes])
}

type onlyWriter struct{ io.Writer }
