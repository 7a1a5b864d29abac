package artifact

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/klauspost/compress/zstd"

	"sheaf"
)

// Readings are what took long to read in a range, by key: see parser.Readings.
type Readings map[string][]byte

// Bounds of the readings of a file: packed, in its footer, and unpacked.
const (
	maxPackedBytes  = 1 << 20
	MaxReadingBytes = 4 << 20 // keys included
)

// WithReadings returns h with readings, or without if they are too large for a
// footer.
func (h Header) WithReadings(r Readings) Header {
	h.readings = ""
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(r)) {
		for _, part := range []string{key, string(r[key])} {
			b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
		}
	}
	if len(b) == 0 || len(b) > 2*MaxReadingBytes {
		return h
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return h
	}
	if packed := base64.StdEncoding.EncodeToString(w.EncodeAll(b, nil)); len(packed) <= maxPackedBytes {
		h.readings = packed
	}
	return h
}

// Readings returns the readings in a file, nil for none. Values are not to be
// changed. The error is of the kind sheaf.ErrInvalid.
func (h Header) Readings() (Readings, error) {
	if h.readings == "" {
		return nil, nil
	}
	damaged := fmt.Errorf("%w: the readings of range %s are damaged", sheaf.ErrInvalid, h.RangeID)
	packed, err := base64.StdEncoding.DecodeString(h.readings)
	if err != nil {
		return nil, damaged
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxReadingBytes))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	b, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, damaged
	}
	next := func() (part []byte, ok bool) {
		n, at := binary.Uvarint(b)
		if at <= 0 || n > uint64(len(b)-at) {
			return nil, false
		}
		part, b = b[at:at+int(n):at+int(n)], b[at+int(n):]
		return part, true
	}
	out := Readings{}
	for len(b) > 0 {
		key, ok := next()
		reading, also := next()
		if !ok || !also {
			return nil, damaged
		}
		out[string(key)] = reading
	}
	return out, nil
}
