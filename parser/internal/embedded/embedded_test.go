package embedded

import (
	"bytes"
	"encoding/binary"
	"testing"

	"sheaf/parser/internal/formattest"
)

func packager(label string, size uint32, content string) []byte {
	b := make([]byte, 6)
	b = append(b, label+"\x00path\x00\x00\x00\x03\x00"...)
	b = binary.LittleEndian.AppendUint32(b, 2)
	b = append(b, "t\x00"...)
	b = binary.LittleEndian.AppendUint32(b, size)
	return append(b, content...)
}

func compound(stream string, content []byte) []byte {
	return formattest.Compound(formattest.Folder("Root Entry", formattest.Stream(stream, content)))
}

func TestUnwrap(t *testing.T) {
	pdf := append([]byte("%PDF-1.7"), make([]byte, 5000)...)
	for _, c := range []struct {
		what    string
		in      []byte
		name    string
		size    int // of the file in it; 0 for the whole
		formula bool
	}{
		{"a package", compound("Package", append([]byte("PK\x03\x04"), pdf...)), "oleObject1", len(pdf) + 4, false},
		{"a PDF", compound("CONTENTS", pdf), "oleObject1.pdf", len(pdf), false},
		{"another program's contents", compound("CONTENTS", []byte("drawing")), "oleObject1.bin", -1, false},
		{"Word", compound("WordDocument", nil), "oleObject1.doc", 0, false},
		{"Excel", compound("Workbook", nil), "oleObject1.xls", 0, false},
		{"Excel 95", compound("Book", nil), "oleObject1.xls", 0, false},
		{"PowerPoint", compound("PowerPoint Document", nil), "oleObject1.ppt", 0, false},
		{"a formula", compound("Equation Native", []byte("x")), "", -1, true},
		{"a file", compound("\x01Ole10Native", packager(`C:\Users\q\plan.csv`, 3, "a,b")), "plan.csv", 3, false},
		{"a file by its name in Latin-1", compound("\x01Ole10Native", packager("Pr\xfcfung.txt", 3, "abc")), "Prüfung.txt", 3, false},
		{"a file that is cut off", compound("\x01Ole10Native", packager("a.txt", 1<<31, "abc")), "oleObject1.bin", -1, false},
		{"nothing", []byte("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), "oleObject1.bin", -1, false},
	} {
		name, file, formula := unwrap("oleObject1.bin", c.in)
		size := len(file)
		if file == nil {
			size = -1
		}
		if c.size == 0 {
			c.size = len(c.in)
		}
		if formula != c.formula || !formula && name != c.name || size != c.size {
			t.Errorf("%s: %q, %d bytes, formula %v; want %q, %d", c.what, name, size, formula, c.name, c.size)
		}
	}
}

func FuzzUnwrap(f *testing.F) {
	f.Add(compound("\x01Ole10Native", packager("a.txt", 3, "abc")))
	f.Add(compound("Package", []byte("PK")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, file, _ := unwrap("a.bin", b); len(file) > len(b) {
			t.Errorf("%d bytes from %d", len(file), len(b))
		}
		if _, file := native(b); file != nil && !bytes.Contains(b, file) {
			t.Error("the file is not a part of the stream")
		}
	})
}
