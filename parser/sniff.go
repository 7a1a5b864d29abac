package parser

import (
	"bytes"
	"encoding/binary"
	"io"
	"path"
	"strings"
	"sync"
	"unicode/utf16"

	"github.com/gabriel-vasile/mimetype"
)

// Media types that formats and callers name.
const (
	MediaEmpty          = "application/x-empty"           // a file of no bytes
	MediaBinary         = "application/octet-stream"      // nothing is known about it
	MediaOOXMLEncrypted = "application/x-ooxml-encrypted" // DOCX, XLSX or PPTX behind a password
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

// SniffHeadBytes is what Sniff reads first, and of most files all it reads.
const (
	SniffHeadBytes int64 = 64 << 10
	sniffTailBytes int64 = 64 << 10
)

// textTypes gives the media type of a text file by its extension: the bytes of
// a Markdown file or a program do not say what they are.
var textTypes = map[string]string{
	".txt": MediaText, ".text": MediaText, ".log": MediaText,
	".md": MediaMarkdown, ".markdown": MediaMarkdown, ".mdx": MediaMarkdown,
	".csv": MediaCSV, ".tsv": MediaTSV, ".tab": MediaTSV,
	".json": MediaJSON, ".geojson": MediaJSON, ".jsonl": MediaJSONL, ".ndjson": MediaJSONL,
	".html": MediaHTML, ".htm": MediaHTML, ".xhtml": MediaHTML,
	".eml": MediaEML, ".mbox": MediaMBOX, ".ipynb": "application/x-ipynb+json",
	".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".rst": "text/x-rst", ".tex": "text/x-tex", ".latex": "text/x-tex", ".dbk": "application/xml", ".dita": "application/xml", ".srt": "application/x-subrip", ".vtt": "text/vtt",
	".go": "text/x-go", ".py": "text/x-python", ".js": "text/javascript", ".mjs": "text/javascript",
	".ts": "text/x-typescript", ".tsx": "text/x-typescript", ".jsx": "text/javascript",
	".java": "text/x-java", ".kt": "text/x-kotlin", ".scala": "text/x-scala", ".swift": "text/x-swift",
	".c": "text/x-c", ".h": "text/x-c", ".cc": "text/x-c++", ".cpp": "text/x-c++", ".cxx": "text/x-c++", ".hpp": "text/x-c++",
	".cs": "text/x-csharp", ".rs": "text/x-rust", ".rb": "text/x-ruby", ".php": "text/x-php", ".pl": "text/x-perl",
	".lua": "text/x-lua", ".r": "text/x-r", ".jl": "text/x-julia", ".hs": "text/x-haskell", ".ml": "text/x-ocaml",
	".sh": "text/x-shellscript", ".bash": "text/x-shellscript", ".ps1": "text/x-powershell", ".sql": "text/x-sql",
	".css": "text/css", ".proto": "text/x-protobuf", ".dart": "text/x-dart", ".zig": "text/x-zig", ".tf": "text/x-terraform",
	".ini": MediaText, ".cfg": MediaText, ".conf": MediaText, ".properties": MediaText,
}

// binaryTypes is believed when the bytes are recognised as nothing at all, or
// as a container whose inside is out of reach: the format then says what is
// wrong with the file, which is more useful than "unknown type".
var binaryTypes = map[string]string{
	".pdf": MediaPDF, ".docx": MediaDOCX, ".docm": MediaDOCX, ".xlsx": MediaXLSX, ".xlsm": MediaXLSX, ".pptx": MediaPPTX, ".pptm": MediaPPTX,
	".odt": MediaODT, ".ods": MediaODS, ".odp": MediaODP, ".epub": MediaEPUB,
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".m4a": "audio/mp4", ".aac": "audio/aac", ".flac": "audio/flac", ".ogg": "audio/ogg", ".opus": "audio/ogg", ".amr": "audio/amr",
	".rtf": MediaRTF, ".tar": MediaTAR, ".zip": MediaZIP,
	".doc": MediaDOC, ".xls": MediaXLS, ".ppt": MediaPPT, ".msg": MediaMSG,
}

var sniffLimit = sync.OnceFunc(func() { mimetype.SetLimit(uint32(SniffHeadBytes)) })

// Sniff says what the size bytes of r are, as a media type without parameters.
// The bytes decide; name's extension only chooses among types that the bytes
// leave open (kinds of text, damaged files). It reads at most 192 KB, opens
// nothing, and never fails: what cannot be read is MediaBinary.
func Sniff(r io.ReaderAt, size int64, name string) string {
	ext := strings.ToLower(path.Ext(strings.ReplaceAll(name, `\`, "/")))
	if size <= 0 {
		return MediaEmpty
	}
	head := make([]byte, min(size, SniffHeadBytes))
	n, err := r.ReadAt(head, 0)
	if head = head[:n]; n == 0 && err != nil {
		return MediaBinary
	}

	// Containers first: what they hold decides, and the general detector
	// guesses it from fewer places.
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return sniffZip(r, size, head, ext)
	case bytes.HasPrefix(head, oleMagic):
		return sniffOLE(r, size, head, ext)
	case bytes.Contains(head[:min(len(head), 1024)], []byte("%PDF-")):
		return MediaPDF // ISO 32000-1 annex H: readers accept the header anywhere in the first 1,024 bytes
	case len(head) >= 262 && string(head[257:262]) == "ustar": // POSIX.1-2017, pax
		return MediaTAR
	case bytes.HasPrefix(head, []byte(`{\rtf`)):
		return MediaRTF
	}

	sniffLimit()
	found := mimetype.Detect(head)
	mt := baseType(found.String())
	if !isText(found) {
		if hinted, ok := binaryTypes[ext]; ok && mt == MediaBinary {
			return hinted
		}
		if hinted, ok := textTypes[ext]; ok && mt == MediaBinary && looksLikeText(head) {
			return hinted
		}
		if mt == MediaBinary && looksLikeUTF16(head) {
			return MediaText
		}
		return mt
	}
	if hinted, ok := textTypes[ext]; ok {
		return hinted
	}
	if hinted, ok := binaryTypes[ext]; ok && mt == MediaText && hinted == MediaPDF {
		return hinted // text where a PDF was promised: a PDF whose header was lost
	}
	if looksLikeMail(head) {
		// A mailbox begins with a separator, and a message of it may too, when
		// it was saved by itself: two of them make a mailbox.
		if bytes.HasPrefix(head, []byte("From ")) && (bytes.Contains(head, []byte("\n\nFrom ")) || bytes.Contains(head, []byte("\n\r\nFrom "))) {
			return MediaMBOX
		}
		return MediaEML
	}
	switch mt {
	case MediaText:
		if bytes.HasPrefix(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), []byte("WEBVTT")) {
			return "text/vtt"
		}
	case "application/xhtml+xml":
		return MediaHTML
	}
	if within(found, "text/xml") { // feeds, drawings, maps: all are read as XML
		return "application/xml"
	}
	return mt
}

func isText(m *mimetype.MIME) bool { return within(m, MediaText) }

// within reports whether m is of a type, or of a kind of it.
func within(m *mimetype.MIME, mediaType string) bool {
	for ; m != nil; m = m.Parent() {
		if m.Is(mediaType) {
			return true
		}
	}
	return false
}

// looksLikeText accepts old 8-bit encodings, which the detector calls binary
// for a single stray control character.
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

// looksLikeUTF16 finds two-byte text without a byte order mark: nearly every
// second byte is zero, and nearly none of the others.
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

// looksLikeMail wants two of the header fields that mail systems always write
// before the first empty line, and nothing there that is not a field.
func looksLikeMail(head []byte) bool {
	fields := 0
	for line := range bytes.Lines(head[:min(len(head), 16<<10)]) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' || bytes.HasPrefix(line, []byte("From ")) {
			continue
		}
		name, _, ok := bytes.Cut(line, []byte(":"))
		if !ok || bytes.ContainsAny(name, " \t") {
			return false
		}
		switch strings.ToLower(string(name)) {
		case "received", "return-path", "mime-version", "message-id", "delivered-to", "from", "to", "subject", "date":
			fields++
		}
	}
	return fields >= 2
}

// sniffZip looks at the names of a zip's entries, in the local headers at the
// front and in the central directory at the end, without inflating anything.
func sniffZip(r io.ReaderAt, size int64, head []byte, ext string) string {
	tail := make([]byte, min(size, sniffTailBytes))
	n, _ := r.ReadAt(tail, size-int64(len(tail)))
	tail = tail[:n]

	// EPUB and OpenDocument store their type, uncompressed, as the first entry.
	if name, body, ok := zipLocal(head); ok && name == "mimetype" {
		for _, mt := range []string{MediaEPUB, MediaODT, MediaODS, MediaODP} {
			if bytes.HasPrefix(body, []byte(mt)) {
				return mt
			}
		}
	}
	see := func(name string) string {
		switch {
		case strings.HasPrefix(name, "word/"):
			return MediaDOCX
		case strings.HasPrefix(name, "xl/"):
			return MediaXLSX
		case strings.HasPrefix(name, "ppt/"):
			return MediaPPTX
		case name == "META-INF/container.xml":
			return MediaEPUB
		}
		return ""
	}
	for at := 0; ; {
		i := bytes.Index(head[at:], []byte("PK\x03\x04"))
		if i < 0 {
			break
		}
		at += i
		if name, _, ok := zipLocal(head[at:]); ok {
			if mt := see(name); mt != "" {
				return mt
			}
		}
		at += 4
	}
	for at := 0; ; {
		i := bytes.Index(tail[at:], []byte("PK\x01\x02"))
		if i < 0 {
			break
		}
		at += i
		if e := tail[at:]; len(e) >= 46 {
			if n := int(binary.LittleEndian.Uint16(e[28:])); len(e) >= 46+n {
				if mt := see(string(e[46 : 46+n])); mt != "" {
					return mt
				}
			}
		}
		at += 4
	}
	if mt, ok := binaryTypes[ext]; ok && mt != MediaPDF {
		return mt
	}
	return MediaZIP
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

// sniffOLE reads the directory of a compound file ([MS-CFB] 2.6): the names of
// its streams tell which program wrote it. At most 32 sectors are followed.
func sniffOLE(r io.ReaderAt, size int64, head []byte, ext string) string {
	fallback := MediaOLE
	if mt, ok := binaryTypes[ext]; ok && (mt == MediaDOC || mt == MediaXLS || mt == MediaPPT || mt == MediaMSG) {
		fallback = mt
	}
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
		got, _ := r.ReadAt(b, (int64(n)+1)*sectorBytes)
		return b[:got]
	}
	next := func(n uint32) (uint32, bool) {
		perSector := uint32(sectorBytes / 4)
		i := n / perSector
		if i >= 109 { // further allocation tables hang on a chain that only files over 7 MB have
			return 0, false
		}
		fat := readSector(binary.LittleEndian.Uint32(head[76+4*i:]))
		at := int(n%perSector) * 4
		if at+4 > len(fat) {
			return 0, false
		}
		return binary.LittleEndian.Uint32(fat[at:]), true
	}

	found := ""
	sector := binary.LittleEndian.Uint32(head[48:])
	for range 32 {
		if sector >= 0xFFFFFFFA || (int64(sector)+1)*sectorBytes >= size {
			break
		}
		dir := readSector(sector)
		for at := 0; at+128 <= len(dir); at += 128 {
			switch name := oleName(dir[at : at+128]); {
			case name == "EncryptedPackage":
				return MediaOOXMLEncrypted
			case name == "WordDocument":
				found = MediaDOC
			case name == "Workbook" || name == "Book":
				if found == "" { // a Word or PowerPoint file may carry a sheet
					found = MediaXLS
				}
			case name == "PowerPoint Document":
				found = MediaPPT
			case strings.HasPrefix(name, "__properties_version1.0"), strings.HasPrefix(name, "__substg1.0_"):
				return MediaMSG
			}
		}
		var ok bool
		if sector, ok = next(sector); !ok {
			break
		}
	}
	if found != "" {
		return found
	}
	return fallback
}

func oleName(entry []byte) string {
	n := int(binary.LittleEndian.Uint16(entry[64:])) // bytes, with the ending zero
	if n < 2 || n > 64 {
		return ""
	}
	u := make([]uint16, n/2-1)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(entry[2*i:])
	}
	return string(utf16.Decode(u))
}
