package zipfile

import (
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
)

// inflaters are idle decompressors: each holds a window of 32 KB and its tables,
// and most parts of an office file are smaller than that.
var inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}

// inflate is a zip.Decompressor that takes about two thirds of the CPU of the
// standard library's.
func inflate(r io.Reader) io.ReadCloser {
	d := inflaters.Get().(io.ReadCloser)
	if err := d.(flate.Resetter).Reset(r, nil); err != nil { // never fails without a dictionary
		return io.NopCloser(failing{err})
	}
	return &inflater{d}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// inflater returns to the pool when closed.
type inflater struct{ d io.ReadCloser }

func (i *inflater) Read(b []byte) (int, error) {
	if i.d == nil {
		return 0, io.ErrClosedPipe
	}
	return i.d.Read(b)
}

func (i *inflater) Close() error {
	if i.d == nil {
		return nil
	}
	err := i.d.Close()
	inflaters.Put(i.d)
	i.d = nil
	return err
}
