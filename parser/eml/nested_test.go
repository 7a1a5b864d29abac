package eml

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/internal/members"
	"sheaf/parser/rows"
	"sheaf/parser/text"
	"sheaf/parser/xlsx"
)

func office() *parser.Registry {
	return parser.NewRegistry(New(office), xlsx.New(), rows.New(), text.New())
}

// message carries parts, each given as its content type, file name and content.
func message(subject string, parts ...[3]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "From: a@example.org\r\nTo: b@example.org\r\nSubject: %s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"b-%s\"\r\n\r\n--b-%s\r\nContent-Type: text/plain\r\n\r\nBody of %s.\r\n", subject, subject, subject, subject)
	for _, p := range parts {
		fmt.Fprintf(&b, "--b-%s\r\nContent-Type: %s\r\nContent-Disposition: attachment; filename=\"%s\"\r\n", subject, p[0], p[1])
		if p[0] == parser.MediaEML {
			fmt.Fprintf(&b, "\r\n%s\r\n", p[2])
			continue
		}
		b.WriteString("Content-Transfer-Encoding: base64\r\n\r\n")
		for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(p[2]))), 76) {
			b.Write(append(line, "\r\n"...))
		}
	}
	fmt.Fprintf(&b, "--b-%s--\r\n", subject)
	return b.String()
}

func workbook(n int) string {
	var sheet bytes.Buffer
	sheet.WriteString(`<worksheet><sheetData><row><c t="str"><v>id</v></c><c t="str"><v>name</v></c></row>`)
	for i := range n {
		fmt.Fprintf(&sheet, `<row><c><v>%d</v></c><c t="str"><v>name %d</v></c></row>`, i, i)
	}
	sheet.WriteString(`</sheetData></worksheet>`)
	return string(formattest.Zip(
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="One" r:id="a"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", sheet.String(),
	))
}

func TestAnAttachedWorkbookIsReadShardByShard(t *testing.T) {
	o := options
	o.Config.TableRows = sheaf.Set(100)
	plan, units, err := formattest.Read(t, New(office), []byte(message("m", [3]string{parser.MediaXLSX, "book.xlsx", workbook(350)})), o, nil)
	if err != nil || plan.Units != 2 {
		t.Fatal(plan, err)
	}
	u, next := units[1], 0
	if u.Status != sheaf.UnitOK || u.Label != "book.xlsx" {
		t.Fatalf("%s %s %s", u.Status, u.Message, u.Label)
	}
	for _, b := range u.Blocks {
		if b.Table == nil {
			continue
		}
		if !slices.Equal(b.Table.Columns, []string{"id", "name"}) || b.Table.FirstRow != 0 || b.Page != 2 {
			t.Fatalf("%q, first row %d, unit %d", b.Table.Columns, b.Table.FirstRow, b.Page)
		}
		for _, r := range b.Table.Rows {
			if r[1] != fmt.Sprintf("name %d", next) {
				t.Fatalf("row %d is %q", next, r)
			}
			next++
		}
	}
	if next != 350 {
		t.Fatalf("%d of 350 rows", next)
	}
}

func TestMessagesInMessagesEnd(t *testing.T) {
	inner := message("m9")
	for depth := 8; depth >= 0; depth-- {
		inner = message(fmt.Sprintf("m%d", depth), [3]string{parser.MediaEML, fmt.Sprintf("m%d.eml", depth+1), inner})
	}
	_, units, err := formattest.Read(t, New(office), []byte(inner), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, u := range units {
		for _, b := range u.Blocks {
			all.WriteString(b.Text + "\n")
		}
	}
	for depth := range 10 {
		if got, want := strings.Contains(all.String(), fmt.Sprintf("Body of m%d.", depth)), depth <= members.MaxDepth; got != want {
			t.Errorf("message %d deep was read: %v", depth, got)
		}
	}
}

func TestAttachmentsAreBounded(t *testing.T) {
	var parts [][3]string
	for i := range maxParts + 5 {
		parts = append(parts, [3]string{"text/plain", fmt.Sprintf("%d.txt", i), "text"})
	}
	plan, _, err := formattest.Read(t, New(office), []byte(message("m", parts...)), options, nil)
	if err != nil || plan.Units != 1+maxParts {
		t.Fatal(plan, err)
	}
	if !slices.ContainsFunc(plan.Warnings, func(w sheaf.Warning) bool {
		return w.Code == "attachments_dropped" && strings.HasPrefix(w.Message, "Attachments (5) ")
	}) {
		t.Error(plan.Warnings)
	}
}

func TestADamagedAttachmentIsAVerdictOnItsUnit(t *testing.T) {
	book := workbook(100)
	_, units, err := formattest.Read(t, New(office), []byte(message("m", [3]string{parser.MediaXLSX, "book.xlsx", book[:len(book)/2]}, [3]string{"text/plain", "a.txt", "whole"})), options, nil)
	if err != nil || len(units) != 3 {
		t.Fatal(units, err)
	}
	if units[1].Status != sheaf.UnitFailed || !strings.Contains(units[1].Message, "book.xlsx") || units[2].Status != sheaf.UnitOK {
		t.Errorf("%s %q, %s", units[1].Status, units[1].Message, units[2].Status)
	}
}
