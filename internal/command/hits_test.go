package command

import (
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/search"
)

// A hit names the slide, row, part or page where it stands, and no page where
// the document has none.
func TestHitsNameThePlaceInTheUnitOfTheirFormat(t *testing.T) {
	for mediaType, want := range map[string]string{
		"text/markdown": "1. 0.500  a\n",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document": "1. 0.500  a\n",
		"application/pdf": "1. 0.500  a, page 3\n",
		"image/png":       "1. 0.500  a, page 3\n",
		"text/csv":        "1. 0.500  a, row 3\n",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         "1. 0.500  a, row 3\n",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation": "1. 0.500  a, slide 3\n",
		"application/epub+zip": "1. 0.500  a, part 3\n",
	} {
		var h search.Hit
		h.Score, h.Document.Name, h.Document.MediaType = 0.5, "a", mediaType
		h.Chunk = sheaf.Chunk{Text: "basalt", Pages: []int{3, 4}}
		var out strings.Builder
		printHits(&out, &search.Response{Hits: []search.Hit{h}})
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: printed %q, want %q first", mediaType, out.String(), want)
		}
	}
}
