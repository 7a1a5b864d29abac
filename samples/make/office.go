package main

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/xuri/excelize/v2"
)

// writeDOCX writes a minimal package that Word accepts: styles for headings and
// code, tables with a repeated header row.
func writeDOCX(blocks []block) ([]byte, error) {
	const ns = `xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"`
	const head = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>` + "\n"
	var body strings.Builder
	for _, b := range blocks {
		switch b.kind {
		case title:
			docxParagraph(&body, fmt.Sprintf("Heading%d", b.level), b.text)
		case paragraph:
			docxParagraph(&body, "", b.text)
		case code:
			docxParagraph(&body, "Code", b.text)
		case table:
			docxTable(&body, b.rows)
		}
	}
	var styles strings.Builder
	for i, size := range []int{52, 36, 26} { // half points
		fmt.Fprintf(&styles, `<w:style w:type="paragraph" w:styleId="Heading%d"><w:name w:val="heading %d"/><w:pPr><w:keepNext/><w:spacing w:before="240" w:after="120"/><w:outlineLvl w:val="%d"/></w:pPr><w:rPr><w:b/><w:sz w:val="%d"/></w:rPr></w:style>`, i+1, i+1, i, size)
	}
	styles.WriteString(`<w:style w:type="paragraph" w:styleId="Code"><w:name w:val="Code"/><w:rPr><w:rFonts w:ascii="Courier New" w:hAnsi="Courier New"/><w:sz w:val="18"/></w:rPr></w:style>`)
	var name strings.Builder
	if err := xml.EscapeText(&name, []byte(blocks[0].text)); err != nil {
		return nil, err
	}

	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, part := range []struct{ name, text string }{
		{"[Content_Types].xml", head + `<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/><Override PartName="/word/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.styles+xml"/><Override PartName="/docProps/core.xml" ContentType="application/vnd.openxmlformats-package.core-properties+xml"/></Types>`},
		{"_rels/.rels", head + `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/><Relationship Id="rId2" Type="http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties" Target="docProps/core.xml"/></Relationships>`},
		{"docProps/core.xml", head + `<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>` + name.String() + `</dc:title><dc:creator>Sheaf</dc:creator></cp:coreProperties>`},
		{"word/_rels/document.xml.rels", head + `<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>`},
		{"word/styles.xml", head + `<w:styles ` + ns + `>` + styles.String() + `</w:styles>`},
		{"word/document.xml", head + `<w:document ` + ns + `><w:body>` + body.String() + `<w:sectPr/></w:body></w:document>`},
	} {
		w, err := z.Create(part.name) // without a time, so that the bytes stay the same
		if err != nil {
			return nil, err
		}
		if _, err := w.Write([]byte(part.text)); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func docxParagraph(b *strings.Builder, style, text string) {
	b.WriteString("<w:p>")
	if style != "" {
		b.WriteString(`<w:pPr><w:pStyle w:val="` + style + `"/></w:pPr>`)
	}
	b.WriteString("<w:r>")
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteString("<w:br/>")
		}
		b.WriteString(`<w:t xml:space="preserve">`)
		_ = xml.EscapeText(b, []byte(line)) // a strings.Builder never fails
		b.WriteString("</w:t>")
	}
	b.WriteString("</w:r></w:p>")
}

func docxTable(b *strings.Builder, rows [][]string) {
	b.WriteString(`<w:tbl><w:tblPr><w:tblBorders>`)
	for _, side := range []string{"top", "left", "bottom", "right", "insideH", "insideV"} {
		b.WriteString(`<w:` + side + ` w:val="single" w:sz="4"/>`)
	}
	b.WriteString(`</w:tblBorders></w:tblPr><w:tblGrid>` + strings.Repeat(`<w:gridCol w:w="3000"/>`, len(rows[0])) + `</w:tblGrid>`)
	for i, row := range rows {
		b.WriteString("<w:tr>")
		if i == 0 {
			b.WriteString("<w:trPr><w:tblHeader/></w:trPr>")
		}
		for _, cell := range row {
			b.WriteString("<w:tc>")
			docxParagraph(b, "", cell)
			b.WriteString("</w:tc>")
		}
		b.WriteString("</w:tr>")
	}
	b.WriteString("</w:tbl>")
}

// writeXLSX writes a sheet for each of the handbook's tables, named by the
// heading above it.
func writeXLSX(blocks []block) ([]byte, error) {
	f := excelize.NewFile()
	defer f.Close()
	bold, err := f.NewStyle(&excelize.Style{Font: &excelize.Font{Bold: true}})
	if err != nil {
		return nil, err
	}
	heading, sheets := "", 0
	for _, b := range blocks {
		if b.kind == title {
			heading = b.text
		}
		if b.kind != table {
			continue
		}
		if sheets == 0 {
			err = f.SetSheetName("Sheet1", heading)
		} else {
			_, err = f.NewSheet(heading)
		}
		if err != nil {
			return nil, err
		}
		sheets++
		for i, row := range b.rows {
			for c, s := range row {
				cell, err := excelize.CoordinatesToCellName(c+1, i+1)
				if err != nil {
					return nil, err
				}
				if err := f.SetCellStr(heading, cell, s); err != nil {
					return nil, err
				}
				if i == 0 {
					if err := f.SetCellStyle(heading, cell, cell, bold); err != nil {
						return nil, err
					}
				}
			}
		}
		if err := f.SetColWidth(heading, "A", "B", 28); err != nil {
			return nil, err
		}
		if err := f.SetColWidth(heading, "C", "C", 90); err != nil {
			return nil, err
		}
	}
	if err := f.SetDocProps(&excelize.DocProperties{Title: blocks[0].text, Creator: "Sheaf", Created: "2026-01-01T00:00:00Z", Modified: "2026-01-01T00:00:00Z"}); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := f.Write(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
