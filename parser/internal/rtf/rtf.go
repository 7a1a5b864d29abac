// Package rtf reads message bodies that Outlook stores as Rich Text: it unpacks
// them ([MS-OXRTFCP]) and extracts their text, or the page wrapped in them
// ([MS-OXRTFEX]). It ignores formatting: Rich Text files are read as documents by
// the office format.
package rtf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/htmlindex"
)

const (
	// MaxBytes is the maximum size of an unpacked body.
	MaxBytes = 32 << 20
	// maxDepth limits nested groups; anything deeper belongs to the group at the
	// limit.
	maxDepth = 500
)

// Errors of Decompress.
var (
	ErrFormat = errors.New("it is not compressed Rich Text")
	ErrSize   = errors.New("it unpacks to more than 32 MB")
)

// dictionary is the initial content of the window ([MS-OXRTFCP] 2.1.3.1.3).
const dictionary = `{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0` +
	"\r\n" + `\par \pard\plain\f0\fs20\b\i\u\tab\tx`

// Decompress unpacks a body. A truncated one is unpacked as far as possible.
func Decompress(b []byte) ([]byte, error) {
	if len(b) < 16 {
		return nil, ErrFormat
	}
	size := binary.LittleEndian.Uint32(b[4:])
	if size > MaxBytes {
		return nil, ErrSize
	}
	in := b[16:]
	switch string(b[8:12]) {
	case "MELA":
		return in[:min(len(in), int(size))], nil
	case "LZFu":
	default:
		return nil, ErrFormat
	}
	var window [4096]byte
	at := copy(window[:], dictionary)
	out := make([]byte, 0, min(int(size), 16*len(in)))
	put := func(c byte) {
		out = append(out, c)
		window[at] = c
		at = (at + 1) % len(window)
	}
	for len(in) > 0 && len(out) < int(size) {
		control := in[0]
		in = in[1:]
		for bit := range 8 {
			if len(in) == 0 || len(out) >= int(size) {
				break
			}
			if control>>bit&1 == 0 {
				put(in[0])
				in = in[1:]
				continue
			}
			if len(in) < 2 {
				return out, nil
			}
			ref := binary.BigEndian.Uint16(in)
			in = in[2:]
			from, length := int(ref>>4), int(ref&15)+2
			if from == at { // the end mark
				return out, nil
			}
			for i := range length {
				put(window[(from+i)%len(window)])
			}
		}
	}
	return out[:min(len(out), int(size))], nil
}

// skipped are groups without document text.
var skipped = map[string]bool{"fonttbl": true, "colortbl": true, "stylesheet": true, "info": true, "pict": true, "object": true, "listtable": true, "listoverridetable": true,
	"generator": true, "themedata": true, "colorschememapping": true, "datastore": true, "latentstyles": true, "fldinst": true, "xmlnstbl": true, "rsidtbl": true, "header": true,
	"footer": true, "headerl": true, "headerr": true, "headerf": true, "footerl": true, "footerr": true, "footerf": true, "filetbl": true, "revtbl": true, "bkmkstart": true, "bkmkend": true}

// signs are control words that stand for a character.
var signs = map[string]string{"par": "\n", "line": "\n", "sect": "\n", "page": "\n", "row": "\n", "tab": "\t", "cell": "\t", "emdash": "—", "endash": "–", "bullet": "•", "lquote": "‘",
	"rquote": "’", "ldblquote": "“", "rdblquote": "”", "emspace": " ", "enspace": " "}

type group struct {
	skip    bool // none of its content is text
	tag     bool // contains markup of the wrapped page
	hidden  bool // repeats that markup for Rich Text readers
	unicode int  // bytes to skip after a Unicode character
}

// Text returns the text of a body. html reports that it is a page.
func Text(b []byte) (text string, html bool) {
	var out strings.Builder
	var raw []byte // in the body's code page
	page := "windows-1252"
	flush := func() {
		if len(raw) == 0 {
			return
		}
		s := strings.ToValidUTF8(string(raw), "\ufffd")
		if enc, err := htmlindex.Get(page); err == nil {
			if d, err := enc.NewDecoder().Bytes(raw); err == nil {
				s = string(d)
			}
		}
		out.WriteString(s)
		raw = raw[:0]
	}
	cur := group{unicode: 1}
	var stack []group
	leave := 0 // bytes that replace a Unicode character in old readers
	char := func(c byte) {
		if leave > 0 {
			leave--
			return
		}
		if !cur.skip && !cur.hidden {
			raw = append(raw, c)
		}
	}
	say := func(s string) {
		if !cur.skip && !cur.hidden {
			flush()
			out.WriteString(s)
		}
	}
	for i := 0; i < len(b) && out.Len() < MaxBytes; i++ {
		switch c := b[i]; c {
		case '{':
			if len(stack) < maxDepth {
				stack = append(stack, cur)
			}
			leave = 0
		case '}':
			if n := len(stack); n > 0 {
				cur, stack = stack[n-1], stack[:n-1]
			}
			leave = 0
		case '\r', '\n':
		case '\\':
			word, number, given, next := control(b, i+1)
			i = next - 1
			switch {
			case word == "'":
				if v, err := strconv.ParseUint(string(b[min(next, len(b)):min(next+2, len(b))]), 16, 8); err == nil {
					char(byte(v))
				}
				i = min(next+2, len(b)) - 1
			case word == "*":
				// A group that old readers may ignore: so may this one, except for
				// markup.
				after, _, _, _ := control(b, skipBlank(b, next)+1)
				cur.skip = cur.skip || after != "htmltag"
			case word == "htmltag":
				cur.tag, cur.hidden = true, false
			case word == "htmlrtf":
				cur.hidden = !given || number != 0
			case word == "fromhtml":
				html = true
			case word == "ansicpg" && given:
				page = codePage(number)
			case word == "uc" && given:
				cur.unicode = min(max(number, 0), 16)
			case word == "u" && given:
				if leave == 0 {
					if number < 0 {
						number += 1 << 16
					}
					if utf8.ValidRune(rune(number)) {
						say(string(rune(number)))
					}
				}
				leave = cur.unicode
			case word == "bin" && given: // binary data
				i = min(len(b), next+max(number, 0)) - 1
			case skipped[word]:
				cur.skip = true
			case word == `\`, word == "{", word == "}":
				char(word[0])
			case word == "~":
				say(" ")
			case word == "_":
				say("-")
			case signs[word] != "":
				if !html || !cur.tag || word == "par" || word == "tab" {
					say(signs[word])
				}
			}
		default:
			char(c)
		}
	}
	flush()
	return out.String(), html
}

// control reads the control word or symbol at i, its number, and where the text
// after it begins.
func control(b []byte, i int) (word string, number int, given bool, next int) {
	if i >= len(b) {
		return "", 0, false, len(b)
	}
	end := i
	for end < len(b) && end-i < 32 && (b[end] >= 'a' && b[end] <= 'z' || b[end] >= 'A' && b[end] <= 'Z') {
		end++
	}
	if end == i {
		return string(b[i : i+1]), 0, false, i + 1
	}
	word = string(b[i:end])
	digits := end
	if digits < len(b) && b[digits] == '-' {
		digits++
	}
	for digits < len(b) && digits-end < 11 && b[digits] >= '0' && b[digits] <= '9' {
		digits++
	}
	if v, err := strconv.ParseInt(string(b[end:digits]), 10, 32); err == nil {
		number, given, end = int(v), true, digits
	}
	if end < len(b) && b[end] == ' ' {
		end++
	}
	return word, number, given, end
}

func skipBlank(b []byte, i int) int {
	return i + len(b[min(i, len(b)):]) - len(bytes.TrimLeft(b[min(i, len(b)):], " \r\n"))
}

func codePage(n int) string {
	switch n {
	case 932:
		return "shift_jis"
	case 936:
		return "gbk"
	case 949:
		return "euc-kr"
	case 950:
		return "big5"
	case 65001:
		return "utf-8"
	case 874:
		return "windows-874"
	}
	return "windows-" + strconv.Itoa(n)
}
