package formats

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"

	"sheaf/parser/pdf/enginetest"
)

// onePage is a PDF of one page.
func onePage(text string) []byte {
	file := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 11, 72, 700, text)}}}
	return file.Bytes()
}

// attach adds files, by name and content, to a PDF.
func attach(t *testing.T, pdf []byte, files ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for i := 0; i < len(files); i += 2 {
		paths = append(paths, filepath.Join(dir, files[i]))
		if err := os.WriteFile(paths[len(paths)-1], []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := api.AddAttachments(bytes.NewReader(pdf), &out, paths, false, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Files attached to a PDF are read on its last page, also those attached to them;
// what cannot be read is named.
func TestFilesAttachedToAPDFAreRead(t *testing.T) {
	inner := attach(t, onePage("The inner page is about gneiss."), "deep.txt", "The deep note tells of schist.\n")
	pdf := attach(t, onePage("The cover page."),
		"table.csv", "stone,price\nbasalt,41\n", "terms.docx", string(wordFile("", nil, "# Terms", "Payment within 41 days.")),
		"inner.pdf", string(inner), "noise.bin", "\x00\x01\x02\x03", "empty.pdf", string(onePage("")))
	plan, units, err := readAny(t, pdf, "portfolio.pdf")
	if err != nil || len(units) != 1 {
		t.Fatalf("%v, %d units", err, len(units))
	}
	said := show(units)
	for _, want := range []string{"The cover page.", "Attached file: table.csv", "basalt", "Attached file: terms.docx", "Payment within 41 days.", "Attached file: inner.pdf", "about gneiss", "Attached file: deep.txt", "of schist", "Attached file: noise.bin"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing:\n%s", want, said)
		}
	}
	if w := units[0].Warnings; len(plan.Warnings) != 0 || len(w) != 2 || !strings.Contains(w[0].Message+w[1].Message, "noise.bin is ") || !strings.Contains(w[0].Message+w[1].Message, "No text was found in the attached file empty.pdf.") {
		t.Errorf("plan %+v, page %+v", plan.Warnings, units[0].Warnings)
	}
	for _, b := range units[0].Blocks {
		if b.Page != 1 || b.Lang != "" {
			t.Errorf("%+v", b)
		}
	}
	// A changed file changes its page.
	other, _, err := readAny(t, attach(t, onePage("The cover page."), "table.csv", "stone,price\nbasalt,42\n"), "portfolio.pdf")
	same, _, err2 := readAny(t, attach(t, onePage("The cover page."), "table.csv", "stone,price\nbasalt,41\n"), "portfolio.pdf")
	if err != nil || err2 != nil || other.Fingerprints[0] == same.Fingerprints[0] || same.Fingerprints[0] == plan.Fingerprints[0] {
		t.Errorf("%v, %v: %x, %x and %x", err, err2, plan.Fingerprints, same.Fingerprints, other.Fingerprints)
	}
}

// A PDF that is attached to itself over and over ends somewhere.
func TestAttachmentsNestToABound(t *testing.T) {
	pdf := onePage("The innermost page.")
	for range 8 {
		pdf = attach(t, onePage("A page around it."), "inner.pdf", string(pdf))
	}
	_, units, err := readAny(t, pdf, "nested.pdf")
	if err != nil || len(units) != 1 || len(units[0].Warnings) == 0 {
		t.Fatalf("%v, %+v", err, units)
	}
	if n := strings.Count(show(units), "A page around it."); n < 2 || n > 5 {
		t.Errorf("%d pages were read", n)
	}
}
