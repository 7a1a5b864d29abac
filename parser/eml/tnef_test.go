package eml

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

// attribute writes an attribute with its checksum ([MS-OXTNEF] 2.1.3.2).
func attribute(level byte, id uint32, data []byte) []byte {
	b := append([]byte{level}, binary.LittleEndian.AppendUint32(nil, id)...)
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(data))), data...)
	sum := uint16(0)
	for _, c := range data {
		sum += uint16(c)
	}
	return binary.LittleEndian.AppendUint16(b, sum)
}

func le32(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

func padded(b []byte) []byte { return append(b, make([]byte, (4-len(b)%4)%4)...) }

// value writes a property of its own length.
func value(id, kind uint16, v []byte) []byte {
	b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, kind), id)
	return append(append(append(b, le32(1)...), le32(len(v))...), padded(v)...)
}

func wide(s string) (b []byte) {
	for _, u := range utf16.Encode([]rune(s + "\x00")) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

func list(properties ...[]byte) []byte {
	b := le32(len(properties))
	for _, p := range properties {
		b = append(b, p...)
	}
	return b
}

func tnef(attributes ...[]byte) []byte {
	b := append(append([]byte(nil), tnefMagic...), 1, 0)
	for _, a := range attributes {
		b = append(b, a...)
	}
	return b
}

func file(name, long, content string) []byte {
	b := attribute(2, attRenderData, make([]byte, 14))
	b = append(b, attribute(2, attTitle, []byte(name+"\x00"))...)
	b = append(b, attribute(2, attData, []byte(content))...)
	if long != "" {
		fixed := append(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, 0x0B), 0x7FFE), 1, 0, 0, 0)
		named := append(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, 0x1003), 0x8001), make([]byte, 16)...)
		named = append(append(append(named, le32(1)...), le32(6)...), padded(wide("ab"))...)
		named = append(named, append(le32(2), append(le32(7), le32(8)...)...)...)
		b = append(b, attribute(2, attAttachment, list(fixed, named, value(idLongName, typeUnicode, wide(long))))...)
	}
	return b
}

func outlook(body string, wrapped []byte) string {
	return "From: a@example.org\r\nSubject: Plans\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\n" + body +
		"\r\n--x\r\nContent-Type: application/ms-tnef; name=winmail.dat\r\nContent-Disposition: attachment; filename=winmail.dat\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString(wrapped) + "\r\n--x--\r\n"
}

func readMail(t *testing.T, content string) (*parser.Plan, string) {
	t.Helper()
	plan, units, err := formattest.Read(t, New(registry), []byte(content), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range units {
		for _, b := range u.Blocks {
			if b.Table != nil {
				out = append(out, strings.Join(b.Table.Columns, ","))
			} else if !strings.HasPrefix(b.Text, "From:") {
				out = append(out, b.Text)
			}
		}
		if u.Status != sheaf.UnitOK {
			out = append(out, string(u.Status)+" "+u.Code)
		}
	}
	return plan, strings.Join(out, "|")
}

// What Outlook packs into a winmail.dat are attachments like others.
func TestWinmailIsUnpacked(t *testing.T) {
	inner := tnef(attribute(1, attBody, []byte("The forwarded text\x00")), file("c.txt", "", "third"))
	forwarded := append(attribute(2, attRenderData, make([]byte, 14)), attribute(2, attTitle, []byte("Fw plans\x00"))...)
	forwarded = append(forwarded, attribute(2, attAttachment, list(value(idData, typeObject, append(make([]byte, 16), inner...))))...)
	whole := tnef(attribute(1, attProperties, list(value(idHTML, typeBinary, []byte("<p>Text in <b>HTML</b></p>")))), file("PLAN~1.TXT", "the plan of the orchard.txt", "first"), file("b.txt", "", "second"), forwarded)
	_, got := readMail(t, outlook("The text", whole))
	if want := "The text|the plan of the orchard.txt|first|b.txt|second|Fw plans.txt|The forwarded text|c.txt|third"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if _, got = readMail(t, outlook("", whole)); !strings.HasPrefix(got, "Text in HTML|") {
		t.Errorf("without another body: %s", got)
	}
	if _, got = readMail(t, outlook("The text", whole[:30])); got != "The text|skipped unsupported_format" {
		t.Errorf("cut off: %s", got)
	}
	if _, got = readMail(t, outlook("The text", tnef())); got != "The text|skipped unsupported_format" {
		t.Errorf("empty: %s", got)
	}
	// One in another, again and again, ends.
	deep := file("x.txt", "", "innermost")
	for range 8 {
		deep = file("winmail.dat", "", string(tnef(deep)))
	}
	if _, got = readMail(t, outlook("The text", tnef(deep))); strings.Contains(got, "innermost") || !strings.HasSuffix(got, "skipped unsupported_format") {
		t.Errorf("nested: %s", got)
	}
}

func FuzzTNEF(f *testing.F) {
	f.Add(tnef(attribute(1, attBody, []byte("x")), file("a.txt", "long name.txt", "content")))
	f.Add(tnef(attribute(1, attProperties, list(value(idRTF, typeBinary, []byte("x")), value(idBody, typeUnicode, wide("text"))))))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, ok := unwrap(b, 0)
		if !ok && len(w.files) > 0 || len(w.files) > maxWrapped {
			t.Errorf("%d files, %v", len(w.files), ok)
		}
		w.blocks()
	})
}
