package eml

import (
	"bytes"
	"encoding/base64"
	"fmt"
	goimage "image"
	"image/png"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/image"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/text"
)

func registry() *parser.Registry { return parser.NewRegistry(New(registry), text.New()) }

func sample() []byte {
	return []byte("From: Ann <a@example.org>\r\nTo: b@example.org\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nDate: Mon, 02 Jan 2026 10:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nHello.\r\n\r\n> quoted\r\n--x\r\nContent-Type: text/plain; name=a.txt\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nInside the file.\r\n--x\r\nContent-Type: application/zip\r\nContent-Disposition: attachment; filename=b.bin\r\nContent-Transfer-Encoding: base64\r\n\r\nAAECAwQFBgc=\r\n--x--\r\n")
}

var options = parser.Options{Name: "document", MediaType: parser.MediaEML}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(registry), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(registry), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

// readLines returns the text of each unit, the message's header lines left out.
func readLines(t *testing.T, lines ...string) (texts []string, plan *parser.Plan) {
	t.Helper()
	plan, units, err := formattest.Read(t, New(registry), []byte("From: Ann <a@example.org>\r\nMIME-Version: 1.0\r\n"+strings.Join(lines, "\r\n")+"\r\n"), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		var out []string
		for _, b := range u.Blocks {
			if u.Unit > 1 || !strings.HasPrefix(b.Text, "From: Ann") {
				out = append(out, b.Text)
			}
		}
		texts = append(texts, strings.Join(out, " | "))
	}
	return texts, plan
}

// A message is read whole: whichever of its alternatives says most, all its texts
// in order, and parts that have no file name.
func TestNothingOfAMessageIsLost(t *testing.T) {
	html := "<p>The tariff for the north is 14.20 from May.</p>" + strings.Repeat("<p>Each district has its own day of reading, which the table lists.</p>", 6)
	for name, c := range map[string]struct {
		message []string
		want    []string
	}{
		"a plain text that only names the HTML": {
			[]string{"Content-Type: multipart/alternative; boundary=x", "", "--x", "Content-Type: text/plain", "", "Please view this message as HTML.", "--x", "Content-Type: text/html", "", html, "--x--"},
			[]string{"The tariff for the north is 14.20 from May."},
		},
		"the same in both": {
			[]string{"Content-Type: multipart/alternative; boundary=x", "", "--x", "Content-Type: text/plain", "", "The quinces are ripe.", "--x", "Content-Type: text/html", "", "<p>The <b>quinces</b> are ripe.</p>", "--x--"},
			[]string{"The quinces are ripe."},
		},
		"a short page, and a notice as long": {
			[]string{"Content-Type: multipart/alternative; boundary=x", "", "--x", "Content-Type: text/plain", "", "Your statement is ready; to see it, open this message in a browser.", "--x", "Content-Type: text/html", "", "<p>You owe 41 crowns for nine boxes of medlars, due in March.</p>", "--x--"},
			[]string{"You owe 41 crowns for nine boxes of medlars, due in March."},
		},
		"HTML, and the footer of a list": {
			[]string{"Content-Type: multipart/mixed; boundary=x", "", "--x", "Content-Type: text/html", "", "<p>The quinces are ripe.</p>", "--x", "Content-Type: text/plain", "", "To leave the list, write to us.", "--x", "Content-Type: text/html", "", "<p>The pears are not.</p>", "--x--"},
			[]string{"The quinces are ripe. | To leave the list, write to us. | The pears are not."},
		},
		"an invitation, twice": {
			[]string{"Content-Type: multipart/mixed; boundary=x", "", "--x", "Content-Type: multipart/alternative; boundary=y", "", "--y", "Content-Type: text/plain", "", "You are invited.", "--y", "Content-Type: text/calendar; method=REQUEST", "", "SUMMARY:Harvest", "--y--",
				"--x", "Content-Type: application/ics; name=harvest.ics", "Content-Disposition: attachment; filename=harvest.ics", "", "SUMMARY:Harvest", "--x--"},
			[]string{"You are invited.", "invite.ics | SUMMARY:Harvest"},
		},
		"parts without a name": {
			[]string{"Content-Type: multipart/report; boundary=x", "", "--x", "", "It was not delivered.", "--x", "Content-Type: message/delivery-status", "", "Final-Recipient: rfc822; b@example.org", "--x", "Content-Type: application/pgp-signature", "", "-----BEGIN PGP SIGNATURE-----", "--x--"},
			[]string{"It was not delivered.", "attachment 1 | Final-Recipient: rfc822; b@example.org"},
		},
	} {
		got, plan := readLines(t, c.message...)
		if len(got) > 0 && len(got[0]) > len(c.want[0]) && strings.HasPrefix(name, "a plain text that") {
			got[0] = got[0][:len(c.want[0])]
		}
		if !slices.Equal(got, c.want) || plan.Units != len(c.want) {
			t.Errorf("%s: %d units %q, want %q", name, plan.Units, got, c.want)
		}
	}
}

// The pictures of a message are parts of it where ocr_pictures asks for that, and
// are counted otherwise.
func TestPicturesArePartsIfAskedFor(t *testing.T) {
	var scan bytes.Buffer
	if err := png.Encode(&scan, goimage.NewGray(goimage.Rect(0, 0, 40, 40))); err != nil {
		t.Fatal(err)
	}
	message := "From: Ann <a@example.org>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nThe scan.\r\n" +
		"--x\r\nContent-Type: image/png; name=scan.png\r\nContent-Disposition: attachment; filename=scan.png\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString(scan.Bytes()) + "\r\n--x--\r\n"
	formats := func() *parser.Registry { return parser.NewRegistry(text.New(), image.New(image.Config{})) } // without tesseract
	for _, asked := range []bool{false, true} {
		o := options
		o.Config.OCRPictures = sheaf.Set(asked)
		plan, units, err := formattest.Read(t, New(formats), []byte(message), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if asked && (len(units) != 2 || units[1].Label != "scan.png" || units[1].Code != "part_missing" || len(plan.Warnings) != 0) {
			t.Errorf("%+v %+v", units, plan.Warnings)
		}
		if !asked && (len(units) != 1 || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "images_ignored") {
			t.Errorf("%+v %+v", units, plan.Warnings)
		}
	}
}

// What is encrypted is named, and its letters are not taken for text.
// A mail to all has many recipients, each of whom may be looked for.
func TestRecipientsAreNotCutSilently(t *testing.T) {
	for n, last := range map[int]string{250: "person249@example.org", 2000: " and more"} {
		var to []string
		for i := range n {
			to = append(to, fmt.Sprintf("person%d@example.org", i))
		}
		mail := "From: a@example.org\nTo: " + strings.Join(to, ",\n ") + "\nSubject: All\n\nHello.\n"
		_, units, err := formattest.Read(t, New(registry), []byte(mail), options, nil)
		if err != nil {
			t.Fatal(err)
		}
		text := units[0].Blocks[0].Text
		if line := strings.Split(text, "\n")[1]; !strings.HasPrefix(line, "To: person0@") || !strings.HasSuffix(line, last) || strings.Contains(line, "example. ") {
			t.Errorf("%d: …%s", n, line[max(0, len(line)-100):])
		}
	}
}

func TestEncryptedMessageIsNamed(t *testing.T) {
	got, plan := readLines(t, "Content-Type: multipart/encrypted; boundary=x", "", "--x", "Content-Type: application/pgp-encrypted", "", "Version: 1", "--x", "Content-Type: application/octet-stream", "", "-----BEGIN PGP MESSAGE-----", "hIwDY32hYGCE8MkBA", "--x--")
	if len(got) != 1 || got[0] != "" || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "message_encrypted" {
		t.Errorf("%q %+v", got, plan.Warnings)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte("From: a@b\nSubject: =?utf-8?q?x?=\n\nhi"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(registry), b, options, nil) // it checks what it reads
	})
}
