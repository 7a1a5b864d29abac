package jsonfmt

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return []byte(`{"name":"Lamp","sizes":[1,2,3],"maker":{"city":"Ulm"},"parts":[{"id":1,"name":"foot"},{"id":2,"name":"shade","new":true}]}`)
}

var options = parser.Options{Name: "document", MediaType: parser.MediaJSON}

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

func TestDeepNestingIsAFailure(t *testing.T) {
	_, _, err := formattest.Read(t, New(), bytes.Repeat([]byte("["), 100_000), options, nil)
	if f := sheaf.AsFailure(err, ""); f == nil || f.Code != "too_deep" {
		t.Fatalf("error %v, want too_deep", err)
	}
}

// A value may hold a book.
func TestLongTextIsReadWhole(t *testing.T) {
	var text strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&text, "wörd%d ", i)
	}
	for _, name := range []string{"a.json", "a.jsonl"} {
		o := parser.Options{Name: name, MediaType: map[string]string{"a.json": parser.MediaJSON, "a.jsonl": parser.MediaJSONL}[name]}
		_, units, err := formattest.Read(t, New(), []byte(`{"title": "Book", "text": "`+text.String()+`"}`), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		var words []string
		for _, u := range units {
			for _, b := range u.Blocks {
				if len(b.Text) > maxStringBytes+100 {
					t.Errorf("%s: a block of %d bytes", name, len(b.Text))
				}
				words = append(words, strings.Fields(b.Text)...)
			}
		}
		if want := append([]string{"title:", "Book", "text:"}, strings.Fields(text.String())...); !slices.Equal(words, want) {
			t.Errorf("%s: %d words of %d", name, len(words), len(want))
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte(`[{"a":1},{"a":2}]`))
	f.Add([]byte(`{"a":[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
