package eml

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/jhillyerd/enmime/v2"

	"sheaf"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/rtf"
)

// Outlook packs the attachments of a message in Rich Text, and its text, into one part
// that only it unpacks: winmail.dat ([MS-OXTNEF]).

var tnefMagic = []byte{0x78, 0x9F, 0x3E, 0x22}

// Limits of one part.
const (
	maxWrapped    = 256 // attachments
	maxProperties = 10_000
	maxWraps      = 3 // messages in messages
)

// Attributes, and properties with their types in the lower half ([MS-OXTNEF] 2.1.3,
// [MS-OXPROPS]).
const (
	attBody       = 0x0002800C
	attRenderData = 0x00069002 // an attachment begins
	attProperties = 0x00069003 // of the message
	attTitle      = 0x00018010
	attData       = 0x0006800F
	attAttachment = 0x00069005 // properties of an attachment

	idHTML     = 0x1013
	idRTF      = 0x1009
	idBody     = 0x1000
	idData     = 0x3701
	idName     = 0x3704
	idLongName = 0x3707
	idMIME     = 0x370E
)

// wrapped is what a part holds.
type wrapped struct {
	files []*enmime.Part
	text  string
	html  string
	rtf   []byte
}

// unwrap reads a part as far as it is sound. ok is false if it holds nothing.
func unwrap(b []byte, depth int) (w wrapped, ok bool) {
	if !bytes.HasPrefix(b, tnefMagic) || len(b) < 6 || depth > maxWraps {
		return w, false
	}
	var file *enmime.Part
	for b = b[6:]; len(b) >= 11; { // level, attribute, length; checksum at the end
		attribute, size := binary.LittleEndian.Uint32(b[1:]), int64(binary.LittleEndian.Uint32(b[5:]))
		if b = b[9:]; size > int64(len(b)) {
			break
		}
		data := b[:size]
		b = b[min(size+2, int64(len(b))):]
		switch attribute {
		case attBody:
			w.text = decoded(data)
		case attProperties:
			properties(data, func(id, kind uint16, v []byte) {
				switch id {
				case idHTML:
					w.html = property(kind, v)
				case idRTF:
					w.rtf = v
				case idBody:
					w.text = property(kind, v)
				}
			})
		case attRenderData:
			if file = nil; len(w.files) < maxWrapped {
				file = &enmime.Part{ContentType: "application/octet-stream"}
				w.files = append(w.files, file)
			}
		case attTitle:
			if file != nil && file.FileName == "" {
				file.FileName = decoded(data)
			}
		case attData:
			if file != nil {
				file.Content = data
			}
		case attAttachment:
			if file != nil {
				w.describe(file, data, depth)
			}
		}
	}
	return w, len(w.files) > 0 || w.text != "" || w.html != "" || len(w.rtf) > 0
}

// describe reads the properties of an attachment: its long name, and a message, which
// is there and not in the attribute for data.
func (w *wrapped) describe(file *enmime.Part, data []byte, depth int) {
	properties(data, func(id, kind uint16, v []byte) {
		switch id {
		case idLongName, idName:
			if name := property(kind, v); name != "" && (id == idLongName || file.FileName == "") {
				file.FileName = name
			}
		case idMIME:
			if t := property(kind, v); strings.HasPrefix(t, "image/") {
				file.ContentType = t // pictures are counted, or read on request
			}
		case idData:
			if kind != typeObject || len(v) < 16 {
				file.Content = v
				return
			}
			inner, ok := unwrap(v[16:], depth+1) // after the id of its interface
			if !ok {
				return // an object of another program
			}
			if text := inner.plain(); text != "" {
				file.Content = []byte(text)
				if file.FileName == "" {
					file.FileName = "message"
				}
				file.FileName += ".txt"
			}
			w.files = append(w.files, inner.files[:min(len(inner.files), maxWrapped-min(maxWrapped, len(w.files)))]...)
		}
	})
}

// plain is the text of the message, "" for none.
func (w *wrapped) plain() string {
	if w.text != "" {
		return w.text
	}
	var parts []string
	for _, b := range w.blocks() {
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n\n")
}

// blocks is the text of the message.
func (w *wrapped) blocks() []sheaf.Block {
	if w.html != "" {
		return htmlblocks.Blocks(w.html)
	}
	if body, err := rtf.Decompress(w.rtf); err == nil && len(w.rtf) > 0 {
		if text, html := rtf.Text(body); html {
			return htmlblocks.Blocks(text)
		} else if strings.TrimSpace(text) != "" {
			return plain(text)
		}
	}
	return plain(w.text)
}

// Types of properties ([MS-OXCDATA] 2.11.1).
const (
	typeString  = 0x1E
	typeUnicode = 0x1F
	typeBinary  = 0x102
	typeObject  = 0x0D
	multiple    = 0x1000
)

// properties calls on for each property with a value of its own length, as far as the
// list is sound ([MS-OXTNEF] 2.1.3.4).
func properties(b []byte, on func(id, kind uint16, value []byte)) {
	number := func() (int64, bool) {
		if len(b) < 4 {
			return 0, false
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return int64(n), true
	}
	skip := func(n int64) bool {
		n = (n + 3) &^ 3
		if n < 0 || n > int64(len(b)) {
			return false
		}
		b = b[n:]
		return true
	}
	count, ok := number()
	for range min(count, maxProperties) {
		if !ok || len(b) < 4 {
			return
		}
		kind, id := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
		b = b[4:]
		if id >= 0x8000 { // it has a name: a number or a text
			if !skip(16) {
				return
			}
			how, _ := number()
			n, good := number()
			if !good || how == 1 && !skip(n) {
				return
			}
		}
		values := int64(1)
		single := kind &^ multiple
		long := single == typeString || single == typeUnicode || single == typeBinary || single == typeObject
		if long || kind&multiple != 0 {
			if values, ok = number(); !ok {
				return
			}
		}
		for i := range min(values, maxProperties) {
			n, good := sizes[single], true
			if long {
				n, good = number()
			}
			if !good || n > int64(len(b)) {
				return
			}
			value := b[:n]
			if !skip(n) {
				return
			}
			if long && i == 0 {
				on(id, single, value)
			}
		}
	}
}

// sizes of values by type, in bytes; any other has none.
var sizes = map[uint16]int64{0x02: 2, 0x03: 4, 0x04: 4, 0x05: 8, 0x06: 8, 0x07: 8, 0x0A: 4, 0x0B: 2, 0x14: 8, 0x40: 8, 0x48: 16}

func property(kind uint16, v []byte) string {
	if kind != typeUnicode {
		return decoded(v)
	}
	return strings.TrimRight(charset.UTF16(v), "\x00")
}

// decoded reads a text in the code page of the sender, which Windows-1252 stands for.
func decoded(b []byte) string {
	return clean.Text(charset.Unnamed(bytes.TrimRight(b, "\x00")))
}
