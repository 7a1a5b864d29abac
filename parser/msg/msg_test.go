package msg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/eml"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry {
	return parser.NewRegistry(New(registry), eml.New(registry), text.New())
}

var options = parser.Options{Name: "mail.msg", MediaType: parser.MediaMSG}

// node is a stream, or a folder when it has children.
type node struct {
	name     string
	content  []byte
	children []*node
}

func folder(name string, children ...*node) *node { return &node{name: name, children: children} }

// stream is padded with zeros, which string properties may end with, to where
// it lies in sectors of its own ([MS-CFB] 2.2: 4,096 bytes).
func stream(name string, content []byte) *node {
	return &node{name: name, content: append(content, make([]byte, max(0, 4096-len(content)))...)}
}

func unicodeText(prop, s string) *node {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return stream("__substg1.0_"+prop+"001F", b)
}

func byteText(prop, s string) *node { return stream("__substg1.0_"+prop+"001E", []byte(s)) }

// fixedProps is the stream of properties of fixed length, after head bytes.
func fixedProps(head int, tagged ...uint64) *node {
	b := make([]byte, head)
	for i := 0; i+1 < len(tagged); i += 2 {
		b = binary.LittleEndian.AppendUint32(b, uint32(tagged[i]))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, tagged[i+1])
	}
	n := stream("__properties_version1.0", b)
	n.content = append(n.content, make([]byte, (16-(len(n.content)-head)%16)%16)...)
	return n
}

// compound writes a compound file of version 3 ([MS-CFB]).
func compound(root *node) []byte {
	const sector = 512
	var entries []*node
	child, next := map[*node]uint32{}, map[*node]uint32{}
	var number func(n *node)
	number = func(n *node) {
		entries = append(entries, n)
		for i, c := range n.children {
			at := uint32(len(entries))
			if i == 0 {
				child[n] = at
			} else {
				next[n.children[i-1]] = at
			}
			number(c)
		}
	}
	number(root)
	dirSectors := (len(entries) + 3) / 4
	data, start := []byte{}, map[*node]uint32{}
	chain := []uint32{} // of the data sectors, relative to the first of them
	for _, e := range entries {
		if e.content == nil {
			continue
		}
		start[e] = uint32(len(chain))
		data = append(data, e.content...)
		data = append(data, make([]byte, (sector-len(data)%sector)%sector)...)
		for len(chain) < len(data)/sector {
			chain = append(chain, uint32(len(chain)+1))
		}
		chain[len(chain)-1] = 0xFFFFFFFE
	}
	fatSectors := 1
	for fatSectors*128 < fatSectors+dirSectors+len(chain) {
		fatSectors++
	}
	first := uint32(fatSectors + dirSectors)

	b := make([]byte, sector)
	copy(b, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")
	le := binary.LittleEndian
	le.PutUint16(b[24:], 0x3E)
	le.PutUint16(b[26:], 3)
	le.PutUint16(b[28:], 0xFFFE)
	le.PutUint16(b[30:], 9)
	le.PutUint16(b[32:], 6)
	le.PutUint32(b[44:], uint32(fatSectors))
	le.PutUint32(b[48:], uint32(fatSectors)) // the directory follows the table
	le.PutUint32(b[56:], 4096)
	le.PutUint32(b[60:], 0xFFFFFFFE)
	le.PutUint32(b[68:], 0xFFFFFFFE)
	for i := range 109 {
		v := uint32(0xFFFFFFFF)
		if i < fatSectors {
			v = uint32(i)
		}
		le.PutUint32(b[76+4*i:], v)
	}
	fat := []uint32{}
	for range fatSectors {
		fat = append(fat, 0xFFFFFFFD)
	}
	for i := range dirSectors {
		v := uint32(fatSectors + i + 1)
		if i == dirSectors-1 {
			v = 0xFFFFFFFE
		}
		fat = append(fat, v)
	}
	for _, v := range chain {
		if v != 0xFFFFFFFE {
			v += first
		}
		fat = append(fat, v)
	}
	for len(fat) < fatSectors*128 {
		fat = append(fat, 0xFFFFFFFF)
	}
	for _, v := range fat {
		b = le.AppendUint32(b, v)
	}
	for i := range dirSectors * 4 {
		e := make([]byte, 128)
		for _, at := range []int{68, 72, 76} {
			le.PutUint32(e[at:], 0xFFFFFFFF)
		}
		if i < len(entries) {
			n := entries[i]
			name := utf16.Encode([]rune(n.name))
			for k, u := range name {
				le.PutUint16(e[2*k:], u)
			}
			le.PutUint16(e[64:], uint16(2*len(name)+2))
			e[66] = 1
			if n.content != nil {
				e[66] = 2
			}
			if i == 0 {
				e[66] = 5
			}
			e[67] = 1
			if v, ok := next[n]; ok {
				le.PutUint32(e[72:], v)
			}
			if v, ok := child[n]; ok {
				le.PutUint32(e[76:], v)
			}
			le.PutUint32(e[116:], 0xFFFFFFFE)
			if n.content != nil {
				le.PutUint32(e[116:], start[n]+first)
				le.PutUint64(e[120:], uint64(len(n.content)))
			}
		}
		b = append(b, e...)
	}
	return append(b, data...)
}

// sent is 2026-03-04 05:06:07 UTC in 100 ns since 1601.
const sent = 116_444_736_000_000_000 + 1772600767*10_000_000

func sample() []byte {
	inner := folder("__substg1.0_3701000D",
		fixedProps(24), unicodeText("0037", "Inner subject"), unicodeText("0C1A", "Carl"), unicodeText("1000", "Inner body."))
	return compound(folder("Root Entry",
		fixedProps(32, tagSubmitTime, sent, tagCodepage, 1251),
		unicodeText("0037", "Grüße aus Köln"), unicodeText("0C1A", "Ann"), unicodeText("5D01", "ann@example.org"),
		byteText("0E04", "\xc8\xe2\xe0\xed"), // Иван in Windows-1251
		unicodeText("1000", "The first paragraph.\r\n\r\n> quoted"),
		folder("__attach_version1.0_#00000000", fixedProps(8), unicodeText("3707", "note.txt"), byteText("370E", "text/plain"),
			stream("__substg1.0_37010102", []byte("An attached note."+strings.Repeat("\n", 5000)))),
		folder("__attach_version1.0_#00000001", fixedProps(8), unicodeText("3001", "Forwarded"), inner),
	))
}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, u := range units {
		fmt.Fprintf(&b, "%s %s\n", u.Label, u.Status)
		for _, k := range u.Blocks {
			fmt.Fprintf(&b, "  %s %q\n", k.Kind, k.Text)
		}
	}
	const want = ` ok
  paragraph "From: Ann <ann@example.org>\nTo: Иван\nSubject: Grüße aus Köln\nDate: Wed, 04 Mar 2026 05:06:07 +0000"
  paragraph "The first paragraph."
  quote "quoted"
note.txt ok
  heading "note.txt"
  paragraph "An attached note."
Forwarded.eml ok
  heading "Forwarded.eml"
  paragraph "From: Carl\nSubject: Inner subject"
  paragraph "Inner body."
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	if plan.Metadata["title"] != "Grüße aus Köln" || plan.Metadata["created"] != "2026-03-04T05:06:07Z" || plan.Metadata["author"] != "Ann <ann@example.org>" {
		t.Errorf("%q", plan.Metadata)
	}
	if got := parser.NewRegistry(New(nil)).Sniff(bytes.NewReader(sample()), int64(len(sample())), "x"); got != parser.MediaMSG {
		t.Errorf("sniffed as %s", got)
	}
}

func TestBodyInHTMLIsRead(t *testing.T) {
	mail := compound(folder("Root Entry", fixedProps(32, tagInternetCPID, 28605), unicodeText("0037", "x"), stream("__substg1.0_10130102", []byte("<p>costs 5 \xa4</p>"))))
	_, units, err := formattest.Read(t, New(registry), mail, options, nil)
	if err != nil || len(units) != 1 || len(units[0].Blocks) != 2 || units[0].Blocks[1].Text != "costs 5 €" {
		t.Errorf("%+v, %v", units, err)
	}
}

func TestBodyInRichTextIsRead(t *testing.T) {
	packed := func(rtf string) *node {
		b := binary.LittleEndian.AppendUint32(nil, uint32(12+len(rtf)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(rtf)))
		return stream("__substg1.0_10090102", []byte(string(b)+"MELA\x00\x00\x00\x00"+rtf))
	}
	for rtf, want := range map[string]string{
		`{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}The caf\'e9 opens.\par}`:                             "The café opens.",
		`{\rtf1\ansi\fromhtml1{\*\htmltag64 <h1>}Opening{\*\htmltag72 </h1>}\htmlrtf\par\htmlrtf0 at ten}`: "Opening",
	} {
		content := compound(folder("Root Entry", unicodeText("0037", "Tea"), packed(rtf)))
		_, units, err := formattest.Read(t, New(registry), content, options, nil)
		if err != nil || len(units) != 1 || len(units[0].Blocks) < 2 || units[0].Blocks[1].Text != want {
			t.Errorf("%s: %+v %v", rtf, units, err)
		}
	}
}

func TestBadInput(t *testing.T) {
	for title, c := range map[string]struct {
		content []byte
		code    string
	}{
		"no bytes":     {nil, "empty_file"},
		"garbage":      {[]byte(strings.Repeat("garbage", 100)), "invalid_msg"},
		"cut off":      {sample()[:600], "invalid_msg"},
		"another file": {compound(folder("Root Entry", stream("WordDocument", []byte("x")))), "invalid_msg"},
	} {
		_, _, err := formattest.Read(t, New(registry), c.content, options, nil)
		if f, ok := errors.AsType[*sheaf.Failure](err); !ok || f.Code != c.code {
			t.Errorf("%s: %v", title, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
