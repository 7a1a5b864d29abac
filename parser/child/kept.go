package child

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"sync"
	"time"

	"sheaf"
)

// kept holds what was read of documents while their headings were looked for,
// until the ranges are asked for, so that no page is read twice. It is in
// files: a manual of 300 pages makes 5 MB. What is not there, because it did
// not fit, was lost, or is asked for in another process, is parsed.
type kept struct {
	dir string

	mu    sync.Mutex
	bytes int64 // of all files
	files map[uint64]*keptFile
}

// maxKeptBytes bounds what is kept at once; beyond, nothing more is. A range of
// more than maxKeptRange is not kept either: it would have to be held whole.
const (
	maxKeptBytes = 256 << 20
	maxKeptRange = 32 << 20
)

// keptFor is how long what nobody asks for stays: tasks may wait that long
// behind those of other documents.
const keptFor = 15 * time.Minute

// keptFile is what is kept of one document: of each range its units as in
// frames, each behind its length in four bytes.
type keptFile struct {
	path   string
	ranges map[sheaf.Range]keptPart
	bytes  int64
	used   time.Time
}

type keptPart struct{ offset, length int64 }

func newKept(dir string) *kept { return &kept{dir: dir, files: map[uint64]*keptFile{}} }

// keptID names the content wherever its file lies: a range may be asked for
// with another copy of it.
func (s Source) keptID() uint64 {
	if s.Key != "" {
		s.Path = ""
	}
	return s.id()
}

// keeper writes what will be kept of one document. Its methods may be called
// on nil, and do nothing after the first error.
type keeper struct {
	file *os.File
	w    *bufio.Writer
	kept keptFile
	room int64

	units []byte // of the range that is being read
	bad   bool
}

// begin opens a file, or returns nil when nothing more may be kept.
func (k *kept) begin() *keeper {
	k.mu.Lock()
	room := maxKeptBytes - k.bytes
	k.mu.Unlock()
	if room <= 0 {
		return nil
	}
	f, err := os.CreateTemp(k.dir, "kept-")
	if err != nil {
		return nil // a full disk costs time, no document
	}
	return &keeper{file: f, w: bufio.NewWriterSize(f, 64<<10), room: room, kept: keptFile{path: f.Name(), ranges: map[sheaf.Range]keptPart{}}}
}

// unit takes a unit of the range that is being read.
func (w *keeper) unit(body []byte) {
	if w == nil || w.bad {
		return
	}
	if len(w.units)+len(body) > maxKeptRange {
		w.bad = true
		return
	}
	w.units = binary.BigEndian.AppendUint32(w.units, uint32(len(body)))
	w.units = append(w.units, body...)
}

// end keeps the units since the last end as those of r.
func (w *keeper) end(r sheaf.Range) {
	if w == nil {
		return
	}
	n := int64(len(w.units))
	if !w.bad && n > 0 && w.kept.bytes+n <= w.room {
		if _, err := w.w.Write(w.units); err != nil {
			w.room = 0
		} else {
			w.kept.ranges[r] = keptPart{w.kept.bytes, n}
			w.kept.bytes += n
		}
	}
	w.units, w.bad = w.units[:0], false
}

// close hands what was written over to k.
func (w *keeper) close(k *kept, id uint64) {
	if w == nil {
		return
	}
	err := w.w.Flush()
	if e := w.file.Close(); err != nil || e != nil || len(w.kept.ranges) == 0 {
		_ = os.Remove(w.kept.path)
		return
	}
	w.kept.used = time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(id)
	k.files[id] = &w.kept
	k.bytes += w.kept.bytes
}

// take returns the units of r once, nil when they are not there or need more
// than room (see held).
func (k *kept) take(src Source, r sheaf.Range, room int64) []sheaf.UnitResult {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.files) == 0 {
		return nil
	}
	id := src.keptID()
	f := k.files[id]
	if f == nil {
		return nil
	}
	part, ok := f.ranges[r]
	if !ok {
		return nil
	}
	units := f.read(part, r, room)
	f.used = time.Now()
	if delete(f.ranges, r); len(f.ranges) == 0 || units == nil {
		k.drop(id)
	}
	return units
}

// read decodes the units of r, nil when they are not what Parse would emit.
func (f *keptFile) read(part keptPart, r sheaf.Range, room int64) []sheaf.UnitResult {
	file, err := os.Open(f.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	b := make([]byte, part.length)
	if _, err := file.ReadAt(b, part.offset); err != nil && err != io.EOF {
		return nil
	}
	var units []sheaf.UnitResult
	next := r.From
	for len(b) >= 4 {
		n := int(binary.BigEndian.Uint32(b))
		if b = b[4:]; n > len(b) {
			return nil
		}
		u, left, err := decodeUnit(b[:n], room)
		room = left
		if err != nil || u.Unit != next {
			return nil
		}
		units, next, b = append(units, u), max(u.Unit, u.LastUnit)+1, b[n:]
	}
	if len(b) > 0 || next != r.To+1 {
		return nil
	}
	return units
}

// drop forgets a document. The caller holds mu.
func (k *kept) drop(id uint64) {
	if f := k.files[id]; f != nil {
		delete(k.files, id)
		k.bytes -= f.bytes
		_ = os.Remove(f.path)
	}
}

// expire forgets documents that nobody has asked for since.
func (k *kept) expire(since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, f := range k.files {
		if f.used.Before(since) {
			k.drop(id)
		}
	}
}
