package main

import (
	"archive/zip"
	"bufio"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

// columns of the tables, as in an export of orders.
var columns = []string{"order", "customer", "city", "amount", "shipped"}

var cities = strings.Fields("Aachen Bergen Coimbra Dortmund Espoo Firenze Gdynia Hamburg Innsbruck Jena Kiel Lyon Malmo Nantes Oslo Porto")

// order is one row.
func order(r *rand.Rand, n int) (id int, customer, city string, amount int, shipped string) {
	return n, fmt.Sprintf("customer %05d", r.IntN(50_000)), cities[r.IntN(len(cities))], 100 + r.IntN(99_900), fmt.Sprintf("2026-%02d-%02d", 1+r.IntN(12), 1+r.IntN(28))
}

// writeTable writes a CSV file or a workbook of one sheet with a header and
// the given number of rows.
func writeTable(path, kind string, rows int) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if kind == "csv" {
		err = writeCSV(w, rows)
	} else {
		err = writeWorkbook(w, rows)
	}
	if err == nil {
		err = w.Flush()
	}
	return err
}

func writeCSV(w io.Writer, rows int) error {
	if _, err := fmt.Fprintln(w, strings.Join(columns, ",")); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 1))
	for n := range rows {
		id, customer, city, amount, shipped := order(r, n+1)
		if _, err := fmt.Fprintf(w, "%d,%s,%s,%d.%02d,%s\n", id, customer, city, amount/100, amount%100, shipped); err != nil {
			return err
		}
	}
	return nil
}

// writeWorkbook writes a minimal workbook, with shared strings as spreadsheet
// programs write them. The library that reads workbooks here takes minutes to write
// one of this size.
func writeWorkbook(w io.Writer, rows int) error {
	z := zip.NewWriter(w)
	z.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
	add := func(name, text string) error {
		part, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(part, `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>`+"\n"+text)
		}
		return err
	}
	const main = `xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"`
	for _, p := range [][2]string{
		{"[Content_Types].xml", `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/></Types>`},
		{"_rels/.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>`},
		{"xl/workbook.xml", `<workbook ` + main + ` xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="Orders" sheetId="1" r:id="rId1"/></sheets></workbook>`},
		{"xl/_rels/workbook.xml.rels", `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings" Target="sharedStrings.xml"/></Relationships>`},
	} {
		if err := add(p[0], p[1]); err != nil {
			return err
		}
	}
	index := map[string]int{}
	var shared []string
	number := func(s string) int {
		n, ok := index[s]
		if !ok {
			n = len(shared)
			index[s] = n
			shared = append(shared, s)
		}
		return n
	}
	part, err := z.Create("xl/worksheets/sheet1.xml")
	if err != nil {
		return err
	}
	sheet := bufio.NewWriterSize(part, 1<<16)
	fmt.Fprintf(sheet, `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>`+"\n"+`<worksheet %s><sheetData><row r="1">`, main)
	for i, c := range columns {
		fmt.Fprintf(sheet, `<c r="%c1" t="s"><v>%d</v></c>`, 'A'+i, number(c))
	}
	sheet.WriteString(`</row>`)
	r := rand.New(rand.NewPCG(1, 1))
	for n := range rows {
		id, customer, city, amount, shipped := order(r, n+1)
		at := n + 2
		fmt.Fprintf(sheet, `<row r="%d"><c r="A%d"><v>%d</v></c><c r="B%d" t="s"><v>%d</v></c><c r="C%d" t="s"><v>%d</v></c><c r="D%d"><v>%d.%02d</v></c><c r="E%d" t="s"><v>%d</v></c></row>`,
			at, at, id, at, number(customer), at, number(city), at, amount/100, amount%100, at, number(shipped))
	}
	sheet.WriteString(`</sheetData></worksheet>`)
	if err := sheet.Flush(); err != nil {
		return err
	}
	var strs strings.Builder
	fmt.Fprintf(&strs, `<sst %s count="%d" uniqueCount="%d">`, main, 3*rows+len(columns), len(shared))
	for _, s := range shared {
		strs.WriteString("<si><t>" + s + "</t></si>")
	}
	strs.WriteString("</sst>")
	if err := add("xl/sharedStrings.xml", strs.String()); err != nil {
		return err
	}
	return z.Close()
}
