package xlsx

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

// linked is a workbook whose cells lead to addresses.
func linked(data, after string, rels ...string) []byte {
	var targets strings.Builder
	for i := 0; i+1 < len(rels); i += 2 {
		fmt.Fprintf(&targets, `<Relationship Id="%s" Type="x/hyperlink" Target="%s" TargetMode="External"/>`, rels[i], rels[i+1])
	}
	return formattest.Zip(
		"_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="x/worksheet" Target="worksheets/sheet1.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="Parts" sheetId="1" r:id="a"/></sheets></workbook>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData>`+data+`</sheetData>`+after+`</worksheet>`,
		"xl/worksheets/_rels/sheet1.xml.rels", `<Relationships>`+targets.String()+`</Relationships>`,
	)
}

func linkRow(n int, cells ...string) string {
	s := fmt.Sprintf(`<row r="%d">`, n)
	for i, c := range cells {
		if code, ok := strings.CutPrefix(c, "="); ok {
			s += fmt.Sprintf(`<c r="%c%d" t="str"><f>%s</f><v>shown</v></c>`, 'A'+i, n, code)
		} else {
			s += fmt.Sprintf(`<c r="%c%d" t="inlineStr"><is><t>%s</t></is></c>`, 'A'+i, n, c)
		}
	}
	return s + `</row>`
}

// Addresses behind cells stand at their rows, in one range as in several.
func TestAddressesBehindCellsAreRead(t *testing.T) {
	content := linked(
		linkRow(1, "Part", "Drawing")+linkRow(2, "Pump", "P-1")+linkRow(3, "Valve", "V-2")+linkRow(5, "Tank", `=HYPERLINK("https://example.org/t?a=1&amp;b=2","T")`)+linkRow(6, "Pipe", `=HYPERLINK(A1,"T")`),
		`<mergeCells/><hyperlinks><hyperlink ref="B2" r:id="p" display="P-1"/><hyperlink ref="A2:B3" r:id="s"/><hyperlink ref="A5" location="Other!A1"/><hyperlink ref="A6" r:id="f"/><hyperlink ref="!" r:id="p"/></hyperlinks>`,
		"p", "https://example.org/p1.pdf", "s", "mailto:stock@example.org", "f", "file:///C:/secret.txt")
	want := []string{
		"Pump https://example.org/p1.pdf", "Pump mailto:stock@example.org", "Valve mailto:stock@example.org", "Tank https://example.org/t?a=1&b=2",
	}
	for _, size := range []int{3000, 2, 1} {
		o := options
		o.Config.TableRows = sheaf.Set(size)
		plan, units, err := formattest.Read(t, New(), content, o, rows.New())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range units {
			for _, b := range u.Blocks {
				for _, l := range b.Links {
					if l.End != l.Start+1 {
						t.Errorf("%+v", l)
					}
					got = append(got, b.Table.Rows[l.Start-1][0]+" "+l.URI) // the header is row 0
				}
			}
		}
		if !slices.Equal(got, want) || len(plan.Ranges) != (4+size-1)/size || len(plan.Warnings) != 0 {
			t.Errorf("%d rows a range, %d of them: %q %v", size, len(plan.Ranges), got, plan.Warnings)
		}
	}
	// An address that changes changes its range alone.
	o := options
	o.Config.TableRows = sheaf.Set(2)
	first, _, _ := formattest.Read(t, New(), content, o, rows.New())
	other, _, err := formattest.Read(t, New(), linked(
		linkRow(1, "Part", "Drawing")+linkRow(2, "Pump", "P-1")+linkRow(3, "Valve", "V-2")+linkRow(5, "Tank", `=HYPERLINK("https://example.org/new","T")`)+linkRow(6, "Pipe", `=HYPERLINK(A1,"T")`),
		`<hyperlinks><hyperlink ref="B2" r:id="p"/><hyperlink ref="A2:B3" r:id="s"/></hyperlinks>`, "p", "https://example.org/p1.pdf", "s", "mailto:stock@example.org"), o, rows.New())
	if err != nil || first.Ranges[0].Fingerprint != other.Ranges[0].Fingerprint || first.Ranges[1].Fingerprint == other.Ranges[1].Fingerprint {
		t.Errorf("%v %+v %+v", err, first.Ranges, other.Ranges)
	}
}

// What is left out is said.
func TestAddressesBehindCellsAreBounded(t *testing.T) {
	var data, cells strings.Builder
	data.WriteString(linkRow(1, "Part", "Drawing"))
	for i := range 1000 {
		data.WriteString(linkRow(i+2, "Pump", fmt.Sprintf(`=HYPERLINK("https://example.org/%s%d","T")`, strings.Repeat("x", 100), i)))
	}
	o := options
	o.Config.TableRows = sheaf.Set(500)
	plan, units, err := formattest.Read(t, New(), linked(data.String(), ""), o, rows.New())
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "links_ignored" || !strings.Contains(plan.Warnings[0].Message, "32 KB of them for 500 rows") {
		t.Fatalf("%v %+v", err, plan)
	}
	if n := len(units[0].Blocks[0].Links); n == 0 || n*120 > 40_000 {
		t.Errorf("%d links", n)
	}
	// A sheet that is streamed has its links behind its rows.
	for i := range bufferedRows + 10 {
		cells.WriteString(linkRow(i+1, "a", "b"))
	}
	plan, _, err = formattest.Read(t, New(), linked(cells.String(), `<hyperlinks><hyperlink ref="A1" r:id="p"/></hyperlinks>`, "p", "https://example.org"), options, rows.New())
	if err != nil || len(plan.Warnings) != 1 || plan.Warnings[0].Code != "links_ignored" {
		t.Errorf("%v %+v", err, plan.Warnings)
	}
}
