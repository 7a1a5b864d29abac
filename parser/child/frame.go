package child

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frames travel in both directions: one byte for the kind, a four-byte big-endian
// length, then that many bytes.
const (
	kindHello    = 'h' // child is ready, or has accepted a request: one byte, the protocol version; when ready, followed by hello as JSON
	kindRequest  = 'r' // request as JSON
	kindOpened   = 'o' // the document is open; sent once per request on one
	kindUnit     = 'u' // sheaf.UnitResult, see codec.go
	kindPlan     = 'p' // parser.Plan as JSON
	kindUnpacked = 'm' // parser.Unpacked as JSON
	kindImage    = 'i' // media type, a zero byte, the image
	kindNeed     = 'n' // child needs bytes of a sparse file to continue: offset and length, 8 bytes each, big endian
	kindFilled   = 'w' // the parent's answer: they are there
	kindRecall   = 'q' // child needs a reading to continue: its key
	kindRecalled = 'a' // the parent's answer: the reading, empty if there is none
	kindKeep     = 'k' // a reading to keep: its key, a zero byte, the reading
	kindNote     = 's' // something the operator should know: text
	kindSpent    = 't' // processor time that the request took, in µs: 8 bytes, big endian; sent before the end of the answer
	kindDone     = 'd' // end of the answer
	kindFailure  = 'f' // end of the answer: sheaf.Failure as JSON
	kindFatal    = 'x' // like kindFailure, and the child ends itself
)

// outputMark is what a child writes to its standard error between two requests; see
// tail. Text does not contain a zero byte.
const outputMark = 0

const (
	protocolVersion = 1
	frameHeader     = 5
	// maxFrameBytes limits what one side makes the other hold. A page of text is
	// some 20 KB; the largest picture of a page stays below it.
	maxFrameBytes = 64 << 20
)

var errFrame = errors.New("the parser's pipe carries something that is not a frame")

func writeFrame(w *bufio.Writer, kind byte, body []byte) error {
	if len(body) > maxFrameBytes {
		return fmt.Errorf("frame of %d bytes: the limit is %d", len(body), maxFrameBytes)
	}
	var head [frameHeader]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// readFrame returns a body that is valid until the next call with the same buffer.
// Memory grows with the bytes that arrive, not with the announced length. It
// returns io.EOF only between frames.
func readFrame(r *bufio.Reader, buf []byte) (kind byte, body, next []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: it ends inside a header", errFrame)
		}
		return 0, nil, buf, err
	}
	switch head[0] {
	case kindHello, kindRequest, kindOpened, kindUnit, kindPlan, kindUnpacked, kindImage, kindNeed, kindFilled, kindRecall, kindRecalled, kindKeep, kindNote, kindSpent, kindDone, kindFailure, kindFatal:
	default:
		return 0, nil, buf, fmt.Errorf("%w: unknown kind %#x", errFrame, head[0])
	}
	n := int(binary.BigEndian.Uint32(head[1:]))
	if n > maxFrameBytes {
		return 0, nil, buf, fmt.Errorf("%w: %d bytes announced, the limit is %d", errFrame, n, maxFrameBytes)
	}
	buf = buf[:0]
	for len(buf) < n {
		step := min(n-len(buf), 1<<20)
		if cap(buf)-len(buf) < step {
			buf = append(make([]byte, 0, min(n, 2*(len(buf)+step))), buf...)
		}
		at := len(buf)
		buf = buf[:at+step]
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return 0, nil, buf, fmt.Errorf("%w: it ends inside a frame", errFrame)
		}
	}
	return head[0], buf, buf, nil
}
