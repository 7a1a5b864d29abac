package office

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"github.com/richardlehane/mscfb"
)

// check inspects the file's container: LibreOffice accepts anything, and turns
// garbage into a document instead of rejecting it.
func (k kind) check(f *os.File, size int64) error {
	if k.ext != "rtf" {
		return k.checkOLE(f, size)
	}
	head := make([]byte, 64)
	n, _ := f.ReadAt(head, 0) // a short file fails below
	if !bytes.HasPrefix(bytes.TrimLeft(head[:n], "\ufeff \r\n\t"), []byte(`{\rtf`)) {
		return k.invalid(`it does not begin with {\rtf`)
	}
	return nil
}

// maxEntries limits how many streams of a compound file are examined.
const maxEntries = 10_000

// checkOLE finds the main stream and its password flag.
func (k kind) checkOLE(f *os.File, size int64) (err error) {
	defer func() {
		if recover() != nil { // the library trusts the file's own data
			err = k.invalid("its container is damaged")
		}
	}()
	doc, openErr := mscfb.New(io.NewSectionReader(f, 0, size))
	if openErr != nil {
		return k.invalid("its container is damaged")
	}
	found := false
	for n := 0; n < maxEntries; n++ {
		e, err := doc.Next()
		if err != nil {
			break
		}
		if len(e.Path) > 0 { // belongs to an embedded object
			continue
		}
		head := make([]byte, min(max(e.Size, 0), 4096))
		got, _ := io.ReadFull(e, head) // as much as there is
		if locked, main := protected(k.ext, e.Name, head[:got]); locked {
			return k.encrypted()
		} else if main {
			found = true
		}
	}
	if !found {
		return k.invalid("its main stream is missing")
	}
	return nil
}

// protected examines the start of a stream: main reports that it is the stream that
// determines the file's type, locked that it needs a password.
func protected(ext, name string, head []byte) (locked, main bool) {
	switch {
	case ext == "doc" && name == "WordDocument":
		// [MS-DOC] 2.5.2: bit 8 of the flags at byte 10 is fEncrypted.
		return len(head) >= 12 && binary.LittleEndian.Uint16(head[10:])&0x100 != 0, true
	case ext == "xls" && (name == "Workbook" || name == "Book" || name == "WORKBOOK" || name == "BOOK"):
		return filePass(head), true
	case ext == "ppt" && name == "PowerPoint Document":
		return false, true
	case ext == "ppt" && name == "Current User":
		// [MS-PPT] 2.3.2: the header token identifies encrypted decks.
		return len(head) >= 16 && binary.LittleEndian.Uint32(head[12:]) == 0xF3D1C4DF, false
	}
	return false, false
}

// filePass finds the record FilePass among the first ones of a workbook ([MS-XLS]
// 2.4.117). Excel's built-in password is no protection, and LibreOffice knows it too.
func filePass(b []byte) bool {
	for at := 0; at+4 <= len(b); {
		id, n := binary.LittleEndian.Uint16(b[at:]), int(binary.LittleEndian.Uint16(b[at+2:]))
		if id == 0x2F {
			return true
		}
		at += 4 + n
	}
	return false
}
