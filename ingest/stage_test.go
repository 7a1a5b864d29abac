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
)

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
	formats := parser.NewRegistry(text.New())
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "pad", Method: zip.Store})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, parser.SniffHeadBytes))
	if _, err := z.Create("word/document.xml"); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, body, want string
		opened           bool
	}{
		{"short.txt", "a short text", "", false},
		{"long.txt", strings.Repeat("words and more words\n", 10_000), "", false},
		{"exact.txt", strings.Repeat("x", int(parser.SniffHeadBytes)), "", false},
		{"padded.docx", b.String(), parser.MediaDOCX, true},
	} {
		files, err := file.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		blobs := &openedBlobs{Store: files}
		s := &Service{Blobs: blobs, Formats: formats, Log: slog.New(slog.DiscardHandler)}
		staged, err := s.Stage(t.Context(), &sheaf.Dataset{ID: "d", TenantID: "t"}, Upload{Name: c.name, Body: iotest.HalfReader(strings.NewReader(c.body)), Size: -1})
		if c.want != "" { // which this registry has no parser for, and says so by its type
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want a word on %s", c.name, err, c.want)
			}
		} else if err != nil || staged.Document.MediaType != parser.MediaText || staged.Document.Size != int64(len(c.body)) {
			t.Errorf("%s is staged as %+v, %v", c.name, staged, err)
		}
		if blobs.opened > 0 != c.opened {
			t.Errorf("%s was read back %d times", c.name, blobs.opened)
		}
	}
}
