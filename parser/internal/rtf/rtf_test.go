package rtf

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// The examples of [MS-OXRTFCP] 3.1 and 3.2.
func TestExamplesOfTheSpecificationAreUnpacked(t *testing.T) {
	simple := []byte("\x2d\x00\x00\x00\x2b\x00\x00\x00\x4c\x5a\x46\x75\xf1\xc5\xc7\xa7\x03\x00\x0a\x00\x72\x63\x70\x67\x31\x32\x35\x42\x32\x0a\xf3\x20\x68\x65\x6c\x09\x00\x20\x62\x77\x05\xb0\x6c\x64\x7d\x0a\x80\x0f\xa0")
	got, err := Decompress(simple)
	if want := "{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"; err != nil || string(got) != want {
		t.Errorf("%q %v", got, err)
	}
	if text, html := Text(got); text != "hello world" || html {
		t.Errorf("%q %v", text, html)
	}
	crossing := []byte("\x1a\x00\x00\x00\x1c\x00\x00\x00\x4c\x5a\x46\x75\xe2\xd4\x4b\x51\x41\x00\x04\x20\x57\x58\x59\x5a\x0d\x6e\x7d\x01\x0e\xb0")
	if got, err := Decompress(crossing); err != nil || string(got) != `{\rtf1 WXYZWXYZWXYZWXYZWXYZ}` {
		t.Errorf("%q %v", got, err)
	}
}

func TestWhatIsNotCompressedRichTextIsRefused(t *testing.T) {
	head := func(size uint32, kind, body string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(12+len(body)))
		b = binary.LittleEndian.AppendUint32(b, size)
		return append(append(b, kind...), "\x00\x00\x00\x00"+body...)
	}
	for _, c := range []struct {
		in   []byte
		want error
	}{{nil, ErrFormat}, {head(4, "ABCD", "text"), ErrFormat}, {head(1<<31, "LZFu", "text"), ErrSize}, {head(1<<31, "MELA", "text"), ErrSize}} {
		if _, err := Decompress(c.in); !errors.Is(err, c.want) {
			t.Errorf("%q: %v", c.in, err)
		}
	}
	if got, err := Decompress(head(4, "MELA", "text and more")); err != nil || string(got) != "text" {
		t.Errorf("%q %v", got, err)
	}
}

func TestTextOfBodies(t *testing.T) {
	for in, want := range map[string]string{
		`{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator x;}\pard caf\'e9\par two\tab 3\u8364?\line \{x\}}`: "café\ntwo\t3€\n{x}",
		`{\rtf1\ansicpg932 \'93\'fa\'96\'7b}`:                              "日本",
		`{\rtf1\uc2\u26085 ??x{\uc0\u26412}}`:                              "日x本",
		`{\rtf1 a{\pict\bin4 {}}}}b}`:                                      "ab",
		`{\rtf1 a\~b\_c\-d {\field{\*\fldinst HYPERLINK}{\fldrslt link}}}`: "a b-cd link",
		`not rich text`: "not rich text",
	} {
		if got, html := Text([]byte(in)); got != want || html {
			t.Errorf("%s: %q", in, got)
		}
	}
}

func TestWrappedPagesAreUnwrapped(t *testing.T) {
	in := `{\rtf1\ansi\ansicpg1252\fromhtml1 \deff0{\fonttbl{\f0 Arial;}}
{\*\htmltag64 <p>}\htmlrtf \par \htmlrtf0 Price {\*\htmltag84 &lt;}\htmlrtf <\htmlrtf0  5{\*\htmltag4 \par }{\*\htmltag72 </p>}\htmlrtf\par\htmlrtf0}`
	got, html := Text([]byte(in))
	if !html || strings.Join(strings.Fields(got), " ") != "<p>Price &lt; 5 </p>" {
		t.Errorf("%v %q", html, got)
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`{\rtf1\ansi\ansicpg932\fromhtml1{\*\htmltag64 <p>}\'93\'fa\u-3?\bin3 abc}`))
	f.Add([]byte("\x2d\x00\x00\x00\x2b\x00\x00\x00LZFu\xf1\xc5\xc7\xa7\x03\x00\x0a\x00rcpg125B2\x0a\xf3 hel\x09\x00 bw\x05\xb0ld}\x0a\x80\x0f\xa0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := Decompress(b); err == nil {
			if len(out) > MaxBytes {
				t.Fatal(len(out))
			}
			b = out
		}
		_, _ = Text(b)
	})
}
