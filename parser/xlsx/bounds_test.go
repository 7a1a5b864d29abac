package xlsx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

// repeats is a workbook of one sheet, with more parts beside it.
func repeats(sheet, texts string, more ...string) []byte {
	return formattest.Zip(append(more,
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="Sales" sheetId="1" r:id="a"/></sheets></workbook>`,
		"xl/sharedStrings.xml", `<sst><si><t>`+texts+`</t></si></sst>`,
		"xl/worksheets/sheet1.xml", `<worksheet><dimension ref="A1:XFD1048576"/><sheetData>`+sheet+`</sheetData></worksheet>`,
	)...)
}

// A small workbook that shows gigabytes is stopped by the bytes that were read
// of it, whatever its directory claims and whatever else lies in it.
func TestABombIsDetectedByWhatWasRead(t *testing.T) {
	padding := make([]byte, 5<<19)
	rand.New(rand.NewSource(1)).Read(padding)
	repeated := strings.Repeat(`<row><c t="s"><v>0</v></c></row>`, 50_000)
	text := strings.Repeat("All work and no play. ", 1_400)
	lying := repeats(repeated, text, "a", "b")
	// The first record of the directory claims 4 GB, packed and unpacked.
	record := lying[bytes.Index(lying, []byte("PK\x01\x02")):]
	binary.LittleEndian.PutUint32(record[20:], 1<<32-2)
	binary.LittleEndian.PutUint32(record[24:], 1<<32-2)
	var wide strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&wide, `<row><c r="XFD%d"><v>1</v></c></row>`, i+1)
	}
	for name, content := range map[string][]byte{
		"a claim":      lying,
		"padding":      repeats(repeated, text, "xl/media/image1.png", string(padding)),
		"empty cells":  repeats(wide.String(), "x"),
		"nothing else": repeats(repeated, text),
	} {
		_, _, err := formattest.Read(t, New(), content, options, rows.New())
		f := sheaf.AsFailure(err, "")
		if f == nil || f.Code != "zip_bomb" {
			t.Errorf("%s: error %v, want zip_bomb", name, err)
			continue
		}
		// They would show 1.5 GB. A file whose members overlap is not read at all.
		says := "stopped after 64 MB"
		if name == "a claim" {
			says = "Members of the archive overlap"
		}
		if !strings.Contains(f.Message, says) {
			t.Errorf("%s: %s", name, f.Message)
		}
	}
}
