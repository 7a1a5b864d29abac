package pdf

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf/parser/pdf/enginetest"
)

// slowly inspects by pdfcpu.
func slowly(file io.ReaderAt, size int64) (in inspection, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("pdfcpu: %v", p)
		}
	}()
	ctx, err := api.ReadContext(io.NewSectionReader(file, 0, size), pdfcpuConfig(""))
	if err != nil {
		return in, err
	}
	root, err := ctx.Catalog()
	if err != nil {
		return in, err
	}
	return inspectObjects(ctx, root)
}

// What is read object by object is what pdfcpu reads: the same fingerprints, so
// that neither makes two pages one, and the same bookmarks.
func TestObjectsAreThoseOfPdfcpu(t *testing.T) {
	files := corpus(t, "pdf/*.pdf")
	own := 0
	for _, path := range append(files, corpus(t, "pdf-large/*.pdf")...) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		info, _ := f.Stat()
		if got, err := inspectSound(f, info.Size()); err == nil {
			own++
			want, err := slowly(f, info.Size())
			if err != nil {
				t.Logf("%s is read, and pdfcpu refuses it: %v", filepath.Base(path), err)
				continue
			}
			if !slices.Equal(got.outline, want.outline) || got.metadata["language"] != want.metadata["language"] {
				t.Errorf("%s: %d bookmarks and %v, by pdfcpu %d and %v", filepath.Base(path), len(got.outline), got.metadata, len(want.outline), want.metadata)
			}
			// Pages to which files are attached hold what is in them; pdfcpu's do not.
			if len(got.files.read) == 0 && !slices.Equal(got.fingerprints, want.fingerprints) {
				t.Errorf("%s has other fingerprints", filepath.Base(path))
			}
		}
		_ = f.Close()
	}
	if own < len(files)*3/4 {
		t.Errorf("%d of %d files are read without pdfcpu", own, len(files))
	}
}

// A file that another reader may take for another is left to pdfcpu.
func TestUnusualFilesAreNotGuessed(t *testing.T) {
	sound := enginetest.File{Pages: []enginetest.Page{{Content: enginetest.Text("F1", 12, 72, 700, "first")}, {Content: enginetest.Text("F1", 12, 72, 700, "second")}}}.Bytes()
	inspected := func(b []byte) error {
		_, err := inspectSound(bytes.NewReader(b), int64(len(b)))
		return err
	}
	if err := inspected(sound); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"a stream that is longer than it says": {"endstream", "more endstream"},
		"an object in another's place":         {"3 0 obj", "9 0 obj"},
		"a key that is there twice":            {"/Type /Catalog", "/Type /Catalog /Type /Catalog"},
		"an encrypted file":                    {"/Root", "/Encrypt 1 0 R /Root"},
		"a table elsewhere":                    {"startxref\n", "startxref\n1"},
	} {
		b := bytes.Replace(sound, []byte(edit[0]), []byte(edit[1]), 1)
		if bytes.Equal(b, sound) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if inspected(b) == nil {
			t.Errorf("%s is read as if nothing were wrong", name)
		}
	}
}

// circular are files whose objects lead to themselves: a stream that says how long
// itself is, and one whose length stands in it.
func circular() (files [][]byte) {
	for _, objects := range []string{
		"1 0 obj<</Type/Catalog/Pages 1 0 R/Length 1 0 R>>stream\nendstream endobj\n%s2 0 obj<</Type/XRef/W[1 1 1]/Index[1 1]/Length 3/Root 1 0 R>>stream\n\x01\x09\x00\nendstream endobj\n",
		"1 0 obj<</Length 5 0 R/N 1/First 4>>stream\n5 0 1\nendstream endobj\n%s2 0 obj<</Type/XRef/W[1 1 1]/Index[1 1 5 1]/Length 6/Root 5 0 R>>stream\n\x01\x09\x00\x02\x01\x00\nendstream endobj\n",
	} {
		before, after, _ := strings.Cut("%PDF-1.5\n"+objects, "%s")
		files = append(files, fmt.Appendf(nil, "%s%sstartxref\n%d\n%%%%EOF", before, after, len(before)))
	}
	return files
}

func TestObjectsThatLeadToThemselvesEnd(t *testing.T) {
	for i, b := range circular() {
		o, err := openObjects(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(i, err)
		}
		if _, err := o.Dereference(o.trailer["Root"]); err == nil {
			t.Errorf("file %d is read as if nothing were wrong", i)
		}
	}
}

// A small file may not take the memory of a large one: the process would end, and
// with it a document that pdfcpu or the engine can read.
func TestObjectsAreBounded(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	if _, err := w.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	o := objects{bytes: maxUnpacked - 1500}
	s := types.StreamDict{Dict: types.Dict{"Filter": types.Name("FlateDecode")}, Raw: z.Bytes()}
	if _, err := o.unpacked(s); err != nil {
		t.Fatal(err)
	}
	if _, err := o.unpacked(s); err == nil {
		t.Error("two streams are unpacked that are too large together")
	}
	for name, table := range map[string]string{
		"a table":           "xref\n0 2000000\n" + strings.Repeat("0 0 f\n", 2_000_000) + "trailer<<>>\n",
		"a table in a pack": "1 0 obj<</W[0 1 0]/Size 2000000/Length 2000000>>stream\n" + strings.Repeat("1", 2_000_000) + "\nendstream endobj\n",
	} {
		b := []byte("%PDF-1.5\n" + table + "startxref\n9\n%%EOF")
		if o, err := openObjects(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("%s lists %d objects", name, len(o.places))
		}
	}
}

// A table can place an object after the end of the file, if that was cut off or put
// together from parts.
func TestObjectsPlacedAfterTheEndAreRefused(t *testing.T) {
	sound := enginetest.File{Pages: []enginetest.Page{{Content: "q"}}}.Bytes()
	entries := regexp.MustCompile(`(?m)^\d{10} \d{5} n`)
	found := entries.FindAllIndex(sound, -1)
	if len(found) < 3 {
		t.Fatalf("the file has %d objects", len(found))
	}
	for _, at := range found {
		b := slices.Clip(slices.Clone(sound))
		copy(b[at[0]:], "0000008064")
		if in, err := inspectSound(bytes.NewReader(b), int64(len(b))); err == nil {
			t.Errorf("with an object after the end it has %d pages", len(in.pages))
		}
	}
}

func FuzzObjects(f *testing.F) {
	f.Add(enginetest.File{Pages: []enginetest.Page{{Content: "q"}}}.Bytes())
	for _, b := range circular() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = inspectSound(bytes.NewReader(b), int64(len(b)))
	})
}

// Some programs give all objects new numbers each time they write a file, and leave
// those before unused: it is sound after a hundred times, too.
func TestObjectsOfHighNumbersAreRead(t *testing.T) {
	const above = 250_000
	var b bytes.Buffer
	b.WriteString("%PDF-1.5\n")
	var offsets []int
	for n, object := range []string{
		"<</Type/Catalog/Pages %d 0 R>>", "<</Type/Pages/Count 1/Kids[%d 0 R]>>", "<</Type/Page/MediaBox[0 0 100 100]>>",
	} {
		offsets = append(offsets, b.Len())
		fmt.Fprintf(&b, "%d 0 obj", above+n)
		if strings.Contains(object, "%d") {
			object = fmt.Sprintf(object, above+n+1)
		}
		b.WriteString(object + "endobj\n")
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n%d %d\n", above, len(offsets))
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer<</Root %d 0 R/Size %d>>\nstartxref\n%d\n%%%%EOF", above, above+len(offsets), table)
	in, err := inspectSound(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(in.fingerprints) != 1 {
		t.Errorf("%d pages: %v", len(in.fingerprints), err)
	}
}
