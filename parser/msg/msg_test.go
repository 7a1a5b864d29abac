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

func unicodeText(prop, s string) *formattest.Node {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return formattest.Stream("__substg1.0_"+prop+"001F", b)
}

func byteText(prop, s string) *formattest.Node {
	return formattest.Stream("__substg1.0_"+prop+"001E", []byte(s))
}

// fixedProps is the stream of properties of fixed length, after head bytes.
func fixedProps(head int, tagged ...uint64) *formattest.Node {
	b := make([]byte, head)
	for i := 0; i+1 < len(tagged); i += 2 {
		b = binary.LittleEndian.AppendUint32(b, uint32(tagged[i]))
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, tagged[i+1])
	}
	n := formattest.Stream("__properties_version1.0", b)
	n.Content = append(n.Content, make([]byte, (16-(len(n.Content)-head)%16)%16)...)
	return n
}

// sent is 2026-03-04 05:06:07 UTC in 100 ns since 1601.
const sent = 116_444_736_000_000_000 + 1772600767*10_000_000

func sample() []byte {
	inner := formattest.Folder("__substg1.0_3701000D",
		fixedProps(24), unicodeText("0037", "Inner subject"), unicodeText("0C1A", "Carl"), unicodeText("1000", "Inner body."))
	return formattest.Compound(formattest.Folder("Root Entry",
		fixedProps(32, tagSubmitTime, sent, tagCodepage, 1251),
		unicodeText("0037", "Grüße aus Köln"), unicodeText("0C1A", "Ann"), unicodeText("5D01", "ann@example.org"),
		byteText("0E04", "\xc8\xe2\xe0\xed"), // Иван in Windows-1251
		unicodeText("1000", "The first paragraph.\r\n\r\n> quoted"),
		formattest.Folder("__attach_version1.0_#00000000", fixedProps(8), unicodeText("3707", "note.txt"), byteText("370E", "text/plain"),
			formattest.Stream("__substg1.0_37010102", []byte("An attached note."+strings.Repeat("\n", 5000)))),
		formattest.Folder("__attach_version1.0_#00000001", fixedProps(8), unicodeText("3001", "Forwarded"), inner),
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
	mail := formattest.Compound(formattest.Folder("Root Entry", fixedProps(32, tagInternetCPID, 28605), unicodeText("0037", "x"), formattest.Stream("__substg1.0_10130102", []byte("<p>costs 5 \xa4</p>"))))
	_, units, err := formattest.Read(t, New(registry), mail, options, nil)
	if err != nil || len(units) != 1 || len(units[0].Blocks) != 2 || units[0].Blocks[1].Text != "costs 5 €" {
		t.Errorf("%+v, %v", units, err)
	}
}

// lines are the texts of a message's blocks.
func lines(t *testing.T, content []byte) string {
	t.Helper()
	_, units, err := formattest.Read(t, New(registry), content, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, u := range units {
		for _, b := range u.Blocks {
			out = append(out, b.Text)
		}
	}
	return strings.Join(out, "\n")
}

// The list of names has no addresses; that of recipients has, also of Exchange.
func TestRecipientsHaveAddresses(t *testing.T) {
	recipient := func(n int, kind uint64, texts ...string) *formattest.Node {
		folder := formattest.Folder(fmt.Sprintf("__recip_version1.0_#%08X", n), fixedProps(8, 0x30000003, 1, tagRecipient, kind))
		for i := 0; i+1 < len(texts); i += 2 {
			folder.Children = append(folder.Children, unicodeText(texts[i], texts[i+1]))
		}
		return folder
	}
	got := lines(t, formattest.Compound(formattest.Folder("Root Entry", fixedProps(32), unicodeText("0E04", "Bob; Cora"), unicodeText("1000", "Hello."),
		recipient(0, 1, "3001", "Bob", "3003", "/O=EXAMPLE/CN=BOB", "39FE", "bob@example.org"),
		recipient(1, 1, "3001", "'cora@example.org'", "3003", "cora@example.org"),
		recipient(2, 2, "3001", "Dora", "3003", "dora@example.org"),
		recipient(3, 3, "3001", "Unseen", "3003", "unseen@example.org"),
	)))
	if want := "To: Bob <bob@example.org>, cora@example.org\nCc: Dora <dora@example.org>\nHello."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Of two bodies the mail message format chooses, as it does in other mail.
func TestTheBodyThatSaysMoreIsRead(t *testing.T) {
	mail := func(html string) []byte {
		return formattest.Compound(formattest.Folder("Root Entry", fixedProps(32), unicodeText("0037", "x"), unicodeText("1000", "Your program cannot show this message, see it on the web."), formattest.Stream("__substg1.0_10130102", []byte(html))))
	}
	if got := lines(t, mail("<p>The pump in hall seven was replaced on Monday; the old one goes back to its maker.</p>")); !strings.Contains(got, "hall seven") {
		t.Errorf("%q", got)
	}
	if got := lines(t, mail("<p>Your program cannot show this message, see it on <b>the web</b>.</p>")); !strings.HasSuffix(got, "on the web.") || strings.Count(got, "program") != 1 {
		t.Errorf("%q", got)
	}
}

// A signed message lies in its only attachment, with its own header.
func TestSignedMessagesAreOpened(t *testing.T) {
	got := lines(t, formattest.Compound(formattest.Folder("Root Entry", fixedProps(32), unicodeText("001A", "IPM.Note.SMIME.MultipartSigned"), unicodeText("0037", "x"),
		formattest.Folder("__attach_version1.0_#00000000", fixedProps(8), unicodeText("3707", "smime.p7m"), unicodeText("370E", "multipart/signed"),
			formattest.Stream("__substg1.0_37010102", []byte("Content-Type: multipart/signed; protocol=\"application/x-pkcs7-signature\"; boundary=q\r\n\r\n--q\r\nContent-Type: text/plain\r\n\r\nThe signed text.\r\n--q\r\nContent-Type: application/x-pkcs7-signature\r\n\r\nMII\r\n--q--\r\n"))))))
	if !strings.Contains(got, "The signed text.") {
		t.Errorf("%q", got)
	}
}

// What an appointment and a contact say is in properties that each file numbers itself.
func TestFactsOfAppointmentsAndContactsAreRead(t *testing.T) {
	numbers := func(set string, ids ...uint32) *formattest.Node {
		entries := binary.LittleEndian.AppendUint64(nil, 1|5<<48) // of another set
		for i, id := range ids {
			entries = binary.LittleEndian.AppendUint32(entries, id)
			entries = binary.LittleEndian.AppendUint16(entries, 4<<1)
			entries = binary.LittleEndian.AppendUint16(entries, uint16(0x20+i))
		}
		return formattest.Folder("__nameid_version1.0", formattest.Stream("__substg1.0_00020102", []byte(strings.Repeat("x", 16)+set)), formattest.Stream("__substg1.0_00030102", entries))
	}
	got := lines(t, formattest.Compound(formattest.Folder("Root Entry", fixedProps(32, 0x80200040, sent, tagEnd, sent+36_000_000_000), numbers(setAppointment, 0x820D, 0x8208),
		unicodeText("001A", "IPM.Appointment"), unicodeText("0037", "Tea"), unicodeText("8021", "The garden"), unicodeText("1000", "Bring cake."))))
	if want := "Subject: Tea\nStart: 2026-03-04 05:06 UTC\nEnd: 2026-03-04 06:06 UTC\nLocation: The garden\nBring cake."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	got = lines(t, formattest.Compound(formattest.Folder("Root Entry", fixedProps(32), numbers(setAddress, 0x8083),
		unicodeText("001A", "IPM.Contact"), unicodeText("0037", "Ann Pear"), unicodeText("3001", "Ann Pear"), unicodeText("3A16", "Orchard Ltd"), unicodeText("8020", "ann@example.org"), unicodeText("3A1C", "+47 1234"))))
	if want := "Subject: Ann Pear\nName: Ann Pear\nCompany: Orchard Ltd\nEmail: ann@example.org\nMobile phone: +47 1234"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestBodyInRichTextIsRead(t *testing.T) {
	packed := func(rtf string) *formattest.Node {
		b := binary.LittleEndian.AppendUint32(nil, uint32(12+len(rtf)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(rtf)))
		return formattest.Stream("__substg1.0_10090102", []byte(string(b)+"MELA\x00\x00\x00\x00"+rtf))
	}
	for rtf, want := range map[string]string{
		`{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}The caf\'e9 opens.\par}`:                             "The café opens.",
		`{\rtf1\ansi\fromhtml1{\*\htmltag64 <h1>}Opening{\*\htmltag72 </h1>}\htmlrtf\par\htmlrtf0 at ten}`: "Opening",
	} {
		content := formattest.Compound(formattest.Folder("Root Entry", unicodeText("0037", "Tea"), packed(rtf)))
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
		"another file": {formattest.Compound(formattest.Folder("Root Entry", formattest.Stream("WordDocument", []byte("x")))), "invalid_msg"},
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
