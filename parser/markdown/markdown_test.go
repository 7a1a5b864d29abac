package markdown

import (
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return []byte("---\ntitle: Guide\ntags: [a, b]\n---\n# Start\n\nSome *text* with `code` &amp; a [link](http://x).\n\n- one\n  - inner\n- [x] two\n\n> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```go\nfunc main() {}\n```\n\n<p>raw <b>html</b></p>\n\n![A picture](x.png)\n\nNote[^1].\n\n[^1]: The note.\n")
}

var options = parser.Options{Name: "document", MediaType: parser.MediaMarkdown}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(), sample(), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(), nil, options, nil); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte(">>>>> a"))
	f.Add([]byte("- - - a\n\n[[[["))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
