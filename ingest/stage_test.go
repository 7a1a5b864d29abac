package ingest

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"sheaf"
	"sheaf/internal/blob"
	"sheaf/internal/blob/file"
	"sheaf/parser"
	"sheaf/parser/text"
	"sheaf/parser/xlsx"
)

// lame is a format whose program is missing.
type lame struct{ parser.Format }

func (lame) Available() error {
	return sheaf.Fail(sheaf.CategoryPolicy, "part_missing", "install it")
}

// A file whose program is missing is refused where it would be read, and kept
// where it is only held.
func TestHeldFilesNeedNoProgram(t *testing.T) {
	files, err := file.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Blobs: files, Formats: parser.NewRegistry(lame{text.New()}), Log: slog.New(slog.DiscardHandler)}
	for _, hold := range []bool{false, true} {
		_, err := s.Stage(t.Context(), &sheaf.Dataset{ID: "d", TenantID: "t"}, Upload{Name: "a.txt", Body: strings.NewReader("a short text"), Size: -1, Hold: hold})
		if (err == nil) != hold {
			t.Errorf("hold is %t: %v", hold, err)
		}
	}
}

// openedBlobs counts what is read back from the store.
type openedBlobs struct {
	blob.Store
	opened int
}

func (s *openedBlobs) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.opened++
	return s.Store.Open(ctx, key, off, n)
}

// What a file is, is seen while it comes in: each reading back would be a
// request to an object store. Only a container whose directory stands at its
// end, out of what was kept, is looked at there.
func TestUploadsAreNotReadBack(t *testing.T) {
	formats := parser.NewRegistry(text.New(), xlsx.New())
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "pad", Method: zip.Store})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, parser.SniffHeadBytes))
	if _, err := z.Create("xl/workbook.xml"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, body, want string
		opened           bool
	}{
		{"short.txt", "a short text", parser.MediaText, false},
		{"long.txt", strings.Repeat("words and more words\n", 10_000), parser.MediaText, false},
		{"exact.txt", strings.Repeat("x", int(parser.SniffHeadBytes)), parser.MediaText, false},
		{"padded.xlsx", b.String(), parser.MediaXLSX, true},
	} {
		files, err := file.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		blobs := &openedBlobs{Store: files}
		s := &Service{Blobs: blobs, Formats: formats, Log: slog.New(slog.DiscardHandler)}
		staged, err := s.Stage(t.Context(), &sheaf.Dataset{ID: "d", TenantID: "t"}, Upload{Name: c.name, Body: iotest.HalfReader(strings.NewReader(c.body)), Size: -1})
		if err != nil || staged.Document.MediaType != c.want || staged.Document.Size != int64(len(c.body)) {
			t.Errorf("%s is staged as %+v, %v", c.name, staged, err)
		}
		if blobs.opened > 0 != c.opened {
			t.Errorf("%s was read back %d times", c.name, blobs.opened)
		}
	}
}
