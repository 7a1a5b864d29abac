package parser

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf16"

	"github.com/gabriel-vasile/mimetype"
)

// Media types used by formats and callers.
const (
	MediaEmpty          = "application/x-empty"           // an empty file
	MediaBinary         = "application/octet-stream"      // unknown content
	MediaOOXMLEncrypted = "application/x-ooxml-encrypted" // DOCX, XLSX or PPTX protected by a password
	MediaPDF            = "application/pdf"
	MediaDOCX           = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	MediaXLSX           = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	MediaPPTX           = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	MediaODT            = "application/vnd.oasis.opendocument.text"
	MediaODS            = "application/vnd.oasis.opendocument.spreadsheet"
	MediaODP            = "application/vnd.oasis.opendocument.presentation"
	MediaEPUB           = "application/epub+zip"
	MediaZIP            = "application/zip"
	MediaDOC            = "application/msword"
	MediaXLS            = "application/vnd.ms-excel"
	MediaPPT            = "application/vnd.ms-powerpoint"
	MediaMSG            = "application/vnd.ms-outlook"
	MediaOLE            = "application/x-ole-storage"
	MediaRTF            = "application/rtf"
	MediaTAR            = "application/x-tar"
	MediaEML            = "message/rfc822"
	MediaMBOX           = "application/mbox"
	MediaHTML           = "text/html"
	MediaMarkdown       = "text/markdown"
	MediaCSV            = "text/csv"
	MediaTSV            = "text/tab-separated-values"
	MediaJSON           = "application/json"
	MediaJSONL          = "application/x-ndjson"
	MediaText           = "text/plain"
)

// SniffHeadBytes is what Sniff reads first, and for most files all it reads.
const (
	SniffHeadBytes int64 = 64 << 10
	sniffTailBytes int64 = 64 << 10
)

var sniffLimit = sync.OnceFunc(func() { mimetype.SetLimit(uint32(SniffHeadBytes)) })

// Sniff determines the type of the size bytes of src, as a media type without
// parameters. The bytes decide; name's extension only chooses among types the bytes
// leave open (kinds of text, damaged files). It reads at most 192 KB, opens
// nothing, and never fails: unreadable content is MediaBinary. For types that no
// format has declared, the general detector decides.
func (r *Registry) Sniff(src io.ReaderAt, size int64, name string) string {
	if size <= 0 {
		return MediaEmpty
	}
	head := make([]byte, min(size, SniffHeadBytes))
	n, err := src.ReadAt(head, 0)
	if head = head[:n]; n == 0 && err != nil {
		return MediaBinary
	}
	hinted, known := r.byExtension[strings.ToLower(path.Ext(strings.ReplaceAll(name, `\`, "/")))]

	// Containers first: their contents decide, and the general detector looks at
	// fewer places.
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return r.sniffZip(src, size, head, hinted)
	case IsCompound(head):
		return r.sniffOLE(src, size, head, hinted)
	}
	if mt := r.byMagic(head, false); mt != "" {
		return mt
	}

	sniffLimit()
	found := mimetype.Detect(head)
	mt := baseType(found.String())
	entry, declared := r.byMedia[mt]
	if declared {
		mt = entry.kind.MediaType
	}
	if !within(found, MediaText) {
		switch {
		case mt == MediaBinary && known && (!hinted.Text || looksLikeText(head)):
			return hinted.MediaType
		case mt == MediaBinary && looksLikeUTF16(head):
			return MediaText
		}
		return mt
	}
	if known && (hinted.Text || hinted.Repairs && mt == MediaText) {
		return hinted.MediaType
	}
	if mt := r.byMagic(head, true); mt != "" {
		return mt
	}
	if !declared && within(found, "text/xml") { // feeds, drawings, maps: all are read as XML
		return "application/xml"
	}
	return mt
}

// byMagic returns the first type, text or not, whose magic is in the head.
func (r *Registry) byMagic(head []byte, text bool) string {
	for _, t := range r.types {
		if t.Text == text && slices.ContainsFunc(t.Magic, func(m Magic) bool { return m.inHead(head) }) {
			return t.MediaType
		}
	}
	return ""
}

// inside returns the index of the first type whose container has an entry matching
// pick, or len(r.types).
func (r *Registry) inside(name string, pick func(Magic) string) int {
	for i, t := range r.types {
		if slices.ContainsFunc(t.Magic, func(m Magic) bool { return named(pick(m), name) }) {
			return i
		}
	}
	return len(r.types)
}

func zipEntry(m Magic) string  { return m.Entry }
func oleStream(m Magic) string { return m.Stream }

// held returns the type suggested by the extension if it is such a container, and
// otherwise the container type.
func held(hinted FileType, pick func(Magic) string, container string) string {
	if slices.ContainsFunc(hinted.Magic, func(m Magic) bool { return pick(m) != "" }) {
		return hinted.MediaType
	}
	return container
}

// within reports whether m is of a type or derived from it.
func within(m *mimetype.MIME, mediaType string) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is(mediaType) {
			return true
		}
	}
	return false
}

// looksLikeText accepts old 8-bit encodings, which the detector calls binary
// because of a single stray control character.
func looksLikeText(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	if looksLikeUTF16(b) {
		return true
	}
	odd := 0
	for _, c := range b {
		if c == 0 {
			return false
		}
		if c < 32 && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != 27 {
			odd++
		}
	}
	return odd*100 <= len(b)
}

// looksLikeUTF16 detects UTF-16 text without a byte order mark: nearly every other
// byte is zero, and almost none of the rest.
func looksLikeUTF16(b []byte) bool {
	b = b[:min(len(b), 4096)&^1]
	var zero [2]int
	for i, c := range b {
		if c == 0 {
			zero[i&1]++
		}
	}
	half := len(b) / 2
	return half >= 8 && (zero[0]*10 > half*9 && zero[1]*10 < half || zero[1]*10 > half*9 && zero[0]*10 < half)
}

// sniffZip looks at the entry names of a zip, in the local headers at the front and
// in the central directory at the end, without inflating anything.
func (r *Registry) sniffZip(src io.ReaderAt, size int64, head []byte, hinted FileType) string {
	// EPUB and OpenDocument store their type, uncompressed, as the first entry.
	if name, body, ok := zipLocal(head); ok && name == "mimetype" {
		for _, t := range r.types {
			if bytes.HasPrefix(body, []byte(t.MediaType)) && slices.ContainsFunc(t.Magic, func(m Magic) bool { return m.Entry == "mimetype" }) {
				return t.MediaType
			}
		}
		if mt := mediaTypeIn(body); mt != "" {
			return mt // a drawing, say: a document of a kind that no format reads
		}
	}
	foreign := ""
	for at := 0; ; at += 4 {
		i := bytes.Index(head[at:], []byte("PK\x03\x04"))
		if i < 0 {
			break
		}
		at += i
		if name, _, ok := zipLocal(head[at:]); ok && name != "mimetype" {
			if i := r.inside(name, zipEntry); i < len(r.types) {
				return r.types[i].MediaType
			}
			foreign = cmp.Or(foreign, foreignEntries[name])
		}
	}
	tail := make([]byte, min(size, sniffTailBytes))
	n, _ := src.ReadAt(tail, size-int64(len(tail)))
	tail = tail[:n]
	for at := 0; ; at += 4 {
		i := bytes.Index(tail[at:], []byte("PK\x01\x02"))
		if i < 0 {
			break
		}
		at += i
		if e := tail[at:]; len(e) >= 46 {
			if n := int(binary.LittleEndian.Uint16(e[28:])); len(e) >= 46+n && string(e[46:46+n]) != "mimetype" {
				if i := r.inside(string(e[46:46+n]), zipEntry); i < len(r.types) {
					return r.types[i].MediaType
				}
				foreign = cmp.Or(foreign, foreignEntries[string(e[46:46+n])])
			}
		}
	}
	return held(hinted, zipEntry, cmp.Or(foreign, MediaZIP))
}

// foreignEntries are entries of documents that no format reads. Taken for archives,
// they would become a document for each of their parts.
var foreignEntries = map[string]string{
	"Index/Document.iwa": "application/vnd.apple.iwork", "Index.zip": "application/vnd.apple.iwork", "index.apxl": "application/vnd.apple.keynote",
	"visio/document.xml": "application/vnd.ms-visio.drawing.main+xml",
	"FixedDocSeq.fdseq":  "application/oxps", "FixedDocumentSequence.fdseq": "application/oxps",
}

// maxMediaType is how long a media type can be (RFC 6838, 4.2).
const maxMediaType = 255

// mediaTypeIn returns the media type that the content of a container's first entry
// begins with, "" for none.
func mediaTypeIn(body []byte) string {
	slash := false
	for i, c := range body[:min(len(body), maxMediaType)] {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '+', c == '-':
			continue
		case c == '/' && !slash && i > 0:
			slash = true
			continue
		case slash && body[i-1] != '/':
			return string(body[:i])
		}
		return ""
	}
	return ""
}

// zipLocal reads a local file header (APPNOTE.TXT 4.3.7).
func zipLocal(b []byte) (name string, body []byte, ok bool) {
	if len(b) < 30 || !bytes.HasPrefix(b, []byte("PK\x03\x04")) {
		return "", nil, false
	}
	n, extra := int(binary.LittleEndian.Uint16(b[26:])), int(binary.LittleEndian.Uint16(b[28:]))
	if len(b) < 30+n {
		return "", nil, false
	}
	return string(b[30 : 30+n]), b[min(len(b), 30+n+extra):], true
}

var oleMagic = []byte{0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1}

// IsCompound reports whether a file that begins with head is a compound file ([MS-CFB]
// 2.2), as office programs wrote before 2007 and encrypt since.
func IsCompound(head []byte) bool { return bytes.HasPrefix(head, oleMagic) }

// sniffOLE reads the directory of a compound file ([MS-CFB] 2.6): the names of its
// streams tell which program wrote it. A file may embed files of other programs, so
// among the types found the one registered first wins. At most 32 sectors are
// followed.
func (r *Registry) sniffOLE(src io.ReaderAt, size int64, head []byte, hinted FileType) string {
	fallback := held(hinted, oleStream, MediaOLE)
	if len(head) < 512 {
		return fallback
	}
	shift := binary.LittleEndian.Uint16(head[30:])
	if shift != 9 && shift != 12 {
		return fallback
	}
	sectorBytes := int64(1) << shift
	readSector := func(n uint32) []byte {
		b := make([]byte, sectorBytes)
		got, _ := src.ReadAt(b, (int64(n)+1)*sectorBytes)
		return b[:got]
	}
	next := func(n uint32) (uint32, bool) {
		perSector := uint32(sectorBytes / 4)
		i := n / perSector
		if i >= 109 { // further allocation tables are in a chain that only files over 7 MB have
			return 0, false
		}
		fat := readSector(binary.LittleEndian.Uint32(head[76+4*i:]))
		at := int(n%perSector) * 4
		if at+4 > len(fat) {
			return 0, false
		}
		return binary.LittleEndian.Uint32(fat[at:]), true
	}

	found := len(r.types)
	sector := binary.LittleEndian.Uint32(head[48:])
	for range 32 {
		if sector >= 0xFFFFFFFA || (int64(sector)+1)*sectorBytes >= size {
			break
		}
		dir := readSector(sector)
		for at := 0; at+128 <= len(dir); at += 128 {
			found = min(found, r.inside(oleName(dir[at:at+128]), oleStream))
		}
		var ok bool
		if sector, ok = next(sector); !ok {
			break
		}
	}
	if found < len(r.types) {
		return r.types[found].MediaType
	}
	return fallback
}

func oleName(entry []byte) string {
	n := int(binary.LittleEndian.Uint16(entry[64:])) // bytes, including the terminating zero
	if n < 2 || n > 64 {
		return ""
	}
	u := make([]uint16, n/2-1)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(entry[2*i:])
	}
	return string(utf16.Decode(u))
}
