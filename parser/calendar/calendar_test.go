package calendar

import (
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

var options = parser.Options{Name: "year.ics", MediaType: "text/calendar"}

const ics = "\ufeffBEGIN:VCALENDAR\r\nVERSION:2.0\r\nX-WR-CALNAME:Orchard\r\nBEGIN:VTIMEZONE\r\nTZID:Europe/Oslo\r\nEND:VTIMEZONE\r\n" +
	"BEGIN:VEVENT\r\nUID:1\r\nSUMMARY:Harvest\\, first week\r\nDTSTART;TZID=\"Europe/Oslo\":20261012T080000\r\nDTEND;TZID=Europe/Oslo:20261012T170000\r\n" +
	"LOCATION:North orch\r\n ard\r\nORGANIZER;CN=\"Ann: the boss\":mailto:ann@example.org\r\nATTENDEE:MAILTO:bo@example.org\r\nATTENDEE;CN=Cy:mailto:cy@example.org\r\n" +
	"DESCRIPTION:Bring the lad\r\n\tders.\\nAnd a lunch.\r\nATTACH;ENCODING=BASE64;VALUE=BINARY:AAAA\r\nX-APPLE:no\r\nBEGIN:VALARM\r\nDESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT\r\n" +
	"BEGIN:VTODO\r\nDUE;VALUE=DATE:20261101\r\nSUMMARY:Prune\r\nX-ALT-DESC;FMTTYPE=text/html:<p>From the <b>south</b></p>\r\nEND:VTODO\r\n" +
	"BEGIN:VFREEBUSY\r\nFREEBUSY:20261012T080000Z/20261012T090000Z\r\nEND:VFREEBUSY\r\nEND:VCALENDAR\r\n"

const vcf = "BEGIN:VCARD\nVERSION:2.1\nN:Quince;Maud\nTEL;WORK;VOICE:+47 555\nNOTE;ENCODING=QUOTED-PRINTABLE;CHARSET=UTF-8:Gr=C3=BC=\n=C3=9Fe=0D=0Afrom Oslo\nEND:VCARD\n" +
	"BEGIN:VCARD\nVERSION:4.0\nFN:Pear Ltd.\nORG:Pear;Sales\nitem1.ADR:;;1 Orchard Rd\\, North;Oslo;;0150;Norway\nEMAIL:a@example.org\nPHOTO:data:image/png;base64,AAAA\n"

// show is a line per block.
func show(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		for _, k := range u.Blocks {
			b.WriteString(string(k.Kind) + " " + strings.ReplaceAll(k.Text, "\n", " / ") + "\n")
		}
	}
	return b.String()
}

func TestEntriesBecomeUnits(t *testing.T) {
	for content, want := range map[string]string{
		ics: "heading Harvest, first week\n" +
			"paragraph Start: 2026-10-12 08:00 Europe/Oslo / End: 2026-10-12 17:00 Europe/Oslo / Location: North orchard / Organizer: Ann: the boss <ann@example.org> / Attendees: bo@example.org, Cy <cy@example.org>\n" +
			"paragraph Bring the ladders. / And a lunch.\n" +
			"heading Prune\nparagraph Due: 2026-11-01\nparagraph From the south\n" +
			"paragraph Busy: 2026-10-12 08:00 UTC – 2026-10-12 09:00 UTC\n",
		vcf: "heading Maud Quince\nparagraph Phone: +47 555\nparagraph Grüße / from Oslo\n" +
			"heading Pear Ltd.\nparagraph Organization: Pear, Sales / Address: 1 Orchard Rd, North, Oslo, 0150, Norway / Email: a@example.org\n",
	} {
		plan, units, err := formattest.Read(t, New(), []byte(content), options, nil)
		if err != nil || show(units) != want {
			t.Errorf("%v %+v\n%s", err, plan, show(units))
		}
		if content == ics && (plan.Metadata["title"] != "Orchard" || plan.Units != 3 || units[0].Label != "Harvest, first week") {
			t.Errorf("%+v %s", plan, units[0].Label)
		}
	}
}

// A cut is named, and a value of many encoded lines takes no longer than its length.
func TestEntriesAreBounded(t *testing.T) {
	content := "BEGIN:VEVENT\nSUMMARY:Fair\n" + strings.Repeat("ATTENDEE:mailto:a@example.org\n", maxValues+3) +
		"NOTE;QUOTED-PRINTABLE:" + strings.Repeat("x=\n", 300_000) + "end\nEND:VEVENT\n"
	_, units, err := formattest.Read(t, New(), []byte(content), options, nil)
	if err != nil || len(units) != 1 || len(units[0].Warnings) != 1 || !strings.HasPrefix(units[0].Warnings[0].Message, "3 values") {
		t.Fatalf("%v %d units", err, len(units))
	}
	if note := units[0].Blocks[2].Text; len(note) != 300_003 {
		t.Errorf("a note of %d bytes", len(note))
	}
}

func TestFileWithoutEntriesIsAFailure(t *testing.T) {
	for _, content := range []string{"", "BEGIN:VCALENDAR\nEND:VCALENDAR\n", "BEGIN:VEVENT\nUID:1\nEND:VEVENT\n", "a letter"} {
		if _, _, err := formattest.Read(t, New(), []byte(content), options, nil); err == nil {
			t.Errorf("%q was read", content)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(ics))
	f.Add([]byte(vcf))
	f.Add([]byte("BEGIN:VCARD\nN;X=\":\"\n:=\nEND"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
