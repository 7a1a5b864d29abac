// Package charset detects the encoding of a text file and decodes it. In order: the
// encoding in the request, a byte order mark, valid UTF-8, the zero bytes of
// UTF-16, the file's own declaration, a statistical guess, and windows-1252, in
// which every byte is a character.
package charset

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gogs/chardet"
	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"sheaf"
)

// SampleBytes is how much of a file the guess examines. Measured: more than 16 KB
// does not raise the hit rate of the statistical detector.
const SampleBytes = 16 << 10

// Guess is an encoding and the evidence for it.
type Guess struct {
	Name       string `json:"name"`       // IANA name in lower case: "utf-8", "windows-1252"
	BOM        int    `json:"bom"`        // bytes of the byte order mark to skip
	Confidence int    `json:"confidence"` // 0–100
	How        string `json:"how"`        // "requested", "bom", "valid", "nul", "declared", "guessed", "fallback"
}

// Lookup turns a label such as "latin1" into an encoding and its name.
func Lookup(label string) (encoding.Encoding, string, bool) {
	label = strings.ToLower(strings.TrimSpace(label))
	switch label {
	case "utf-16", "utf16":
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "utf-16", true
	case "utf-32", "utf-7", "":
		return nil, "", false
	}
	enc, name := charset.Lookup(label)
	if enc == nil || name == "replacement" || name == "x-user-defined" {
		return nil, "", false
	}
	return enc, name, true
}

// Detect examines the beginning of a file. requested comes from the API caller and
// is an error if unknown; declared comes from the file and is ignored if unknown.
// whole means that sample is the entire file.
func Detect(sample []byte, requested, declared string, whole bool) (Guess, error) {
	bom := func() (Guess, bool) {
		switch {
		case bytes.HasPrefix(sample, []byte("\xef\xbb\xbf")):
			return Guess{"utf-8", 3, 100, "bom"}, true
		case bytes.HasPrefix(sample, []byte("\xff\xfe")):
			return Guess{"utf-16le", 2, 100, "bom"}, true
		case bytes.HasPrefix(sample, []byte("\xfe\xff")):
			return Guess{"utf-16be", 2, 100, "bom"}, true
		}
		return Guess{}, false
	}
	if requested != "" {
		_, name, ok := Lookup(requested)
		if !ok {
			return Guess{}, sheaf.Fail(sheaf.CategoryBadInput, "unknown_encoding", "The encoding %q is not known; use an IANA name such as utf-8, windows-1252 or shift_jis, or leave parser_config.encoding empty.", requested)
		}
		g := Guess{Name: name, Confidence: 100, How: "requested"}
		if b, ok := bom(); ok && (b.Name == name || name == "utf-16") {
			g.Name, g.BOM = b.Name, b.BOM
		}
		return g, nil
	}
	if g, ok := bom(); ok {
		return g, nil
	}
	tested := sample
	if !whole { // a rune may be cut at the end
		for i := 0; i < utf8.UTFMax-1 && len(tested) > 0 && !utf8.RuneStart(tested[len(tested)-1]); i++ {
			tested = tested[:len(tested)-1]
		}
		if n := len(tested); n > 0 && tested[n-1] >= utf8.RuneSelf {
			tested = tested[:n-1]
		}
	}
	// Escape sequences of ISO-2022-JP are ASCII bytes: valid UTF-8, but a different
	// encoding.
	if utf8.Valid(tested) && bytes.IndexByte(tested, 0) < 0 && !bytes.Contains(tested, []byte("\x1b$")) {
		return Guess{"utf-8", 0, 100, "valid"}, nil
	}
	if name := utf16Of(sample); name != "" {
		return Guess{name, 0, 90, "nul"}, nil
	}
	if declared != "" {
		if _, name, ok := Lookup(declared); ok && name != "utf-16" && name != "utf-16le" && name != "utf-16be" {
			// Broken UTF-8 that is declared as such is decoded as declared, with
			// replacement characters.
			if name != "utf-8" || mostlyUTF8(tested) {
				return Guess{name, 0, 80, "declared"}, nil
			}
		}
	}
	if mostlyUTF8(tested) {
		return Guess{"utf-8", 0, 70, "guessed"}, nil
	}
	if r, err := chardet.NewTextDetector().DetectBest(sample[:min(len(sample), SampleBytes)]); err == nil && r.Confidence >= 20 {
		if _, name, ok := Lookup(r.Charset); ok && name != "utf-8" {
			return Guess{name, 0, r.Confidence, "guessed"}, nil
		}
	}
	return Guess{"windows-1252", 0, 0, "fallback"}, nil
}

// mostlyUTF8 distinguishes a UTF-8 file with a few broken bytes from an 8-bit one:
// of its bytes above ASCII at least nine in ten are parts of valid runes.
func mostlyUTF8(b []byte) bool {
	good, bad := 0, 0
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			bad++
		} else {
			good += n
		}
		i += n
	}
	return good > 0 && good >= 9*bad
}

// utf16Of detects UTF-16 text without a mark: the zero bytes are all on one side.
func utf16Of(b []byte) string {
	b = b[:min(len(b), 4096)&^1]
	if len(b) < 8 {
		return ""
	}
	var zero [2]int
	for i, c := range b {
		if c == 0 {
			zero[i&1]++
		}
	}
	half := len(b) / 2
	switch {
	case zero[1]*10 > half*4 && zero[0]*20 < half:
		return "utf-16le"
	case zero[0]*10 > half*4 && zero[1]*20 < half:
		return "utf-16be"
	}
	return ""
}

// DetectFile samples the head of f.
func DetectFile(f *os.File, size int64, requested, declared string) (Guess, []byte, error) {
	head := make([]byte, min(size, SampleBytes))
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return Guess{}, nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	head = head[:n]
	g, err := Detect(head, requested, declared, int64(n) == size)
	if err != nil || g.How != "valid" || int64(n) == size {
		return g, head, err
	}
	// ASCII at the start says nothing about the rest: search further, up to 1 MB,
	// for the first non-ASCII bytes.
	if asciiOnly(head) {
		rest := make([]byte, min(size, 1<<20)-int64(n))
		m, _ := f.ReadAt(rest, int64(n))
		rest = rest[:m]
		if i := firstHigh(rest); i >= 0 {
			from := max(0, i-1024)
			at := rest[from:min(len(rest), i+SampleBytes)]
			g, err = Detect(at, requested, declared, false)
		}
	}
	return g, head, err
}

func asciiOnly(b []byte) bool { return firstHigh(b) < 0 }

func firstHigh(b []byte) int {
	for i, c := range b {
		if c >= utf8.RuneSelf {
			return i
		}
	}
	return -1
}

// Unicode reports whether bytes need no decoding.
func (g Guess) Unicode() bool { return g.Name == "utf-8" || g.Name == "" }

// Wide reports whether a character takes at least two bytes.
func (g Guess) Wide() bool { return strings.HasPrefix(g.Name, "utf-16") }

// Reader decodes r, from which the mark has been skipped, to UTF-8. Invalid bytes
// become the replacement character.
func (g Guess) Reader(r io.Reader) io.Reader {
	if g.Unicode() {
		return r
	}
	if enc, _, ok := Lookup(g.Name); ok {
		return transform.NewReader(r, enc.NewDecoder())
	}
	return r
}

// Decode converts b, which may still begin with the mark, to UTF-8.
func (g Guess) Decode(b []byte) []byte {
	if g.BOM > 0 && len(b) >= g.BOM {
		b = b[g.BOM:]
	}
	if g.Unicode() {
		if !utf8.Valid(b) {
			return bytes.ToValidUTF8(b, []byte("\ufffd"))
		}
		return b
	}
	enc, _, ok := Lookup(g.Name)
	if !ok {
		return bytes.ToValidUTF8(b, []byte("\ufffd"))
	}
	out, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return bytes.ToValidUTF8(b, []byte("\ufffd"))
	}
	return out
}

// Warnings reports that the encoding was guessed.
func (g Guess) Warnings() []sheaf.Warning {
	if g.How != "guessed" && g.How != "fallback" || g.Confidence >= 80 {
		return nil
	}
	return []sheaf.Warning{{Code: "encoding_guessed", Message: "The text was read as " + g.Name + ", which is a guess; set parser_config.encoding if letters look wrong."}}
}

// Metadata notes the encoding of a file that is not plain UTF-8.
func (g Guess) Metadata(m map[string]string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	if g.Name != "" {
		m["encoding"] = g.Name
	}
	return m
}

// ReadFile reads and decodes all of f, at most limit bytes.
func ReadFile(f *os.File, limit int64, what, requested, declared string) ([]byte, Guess, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, Guess{}, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	if st.Size() == 0 {
		return nil, Guess{}, Empty()
	}
	if st.Size() > limit {
		return nil, Guess{}, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The %s has %d MB and the limit is %d MB; split it into smaller files.", what, st.Size()>>20, limit>>20)
	}
	b := make([]byte, int(min(st.Size(), math.MaxInt32)))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, st.Size()), b); err != nil {
		return nil, Guess{}, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	g, err := Detect(b, requested, declared, true)
	if err != nil {
		return nil, g, err
	}
	return g.Decode(b), g, nil
}

// Empty is the failure of a file without bytes.
func Empty() *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The file has no bytes; upload it again from the original.")
}

// UTF16 decodes little-endian UTF-16 without a mark, as Windows stores it. A byte left
// over at the end is dropped.
func UTF16(b []byte) string {
	u := make([]uint16, len(b)/2)
	for i := range u {
		u[i] = binary.LittleEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(u))
}

// Unnamed decodes a short text in the code page of a machine that the file does not
// name: UTF-8 if it is valid, and otherwise Windows-1252.
func Unnamed(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	s, _ := charmap.Windows1252.NewDecoder().Bytes(b) // every byte decodes
	return string(s)
}
