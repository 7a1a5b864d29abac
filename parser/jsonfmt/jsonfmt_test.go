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

// Data in base64 is no text, which a warning says; a language without spaces is.
func TestOnlyDataIsLeftOut(t *testing.T) {
	thai, data := strings.Repeat("กขค", 900), strings.Repeat("iVBORw0KGgo", 300)
	record := `{"name": "one", "text": "` + thai + `", "file": "` + data + `", "thumb": "` + data + `"}`
	for mediaType, src := range map[string]string{parser.MediaJSON: record, parser.MediaJSONL: record + "\n" + record + "\n"} {
		r, units, err := formattest.Read(t, New(), []byte(src), parser.Options{MediaType: mediaType}, nil)
		if err != nil {
			t.Fatal(err)
		}
		warnings := append(r.Warnings, units[0].Warnings...)
		n := strings.Count(src, data)
		if len(warnings) != 1 || warnings[0].Code != "values_ignored" || !strings.Contains(warnings[0].Message, fmt.Sprintf("(%d)", n)) {
			t.Errorf("%s: %+v", mediaType, warnings)
		}
		said := ""
		for _, b := range units[0].Blocks {
			said += b.Text
			if b.Table != nil {
				said += fmt.Sprint(b.Table.Rows)
			}
		}
		if strings.Count(said, thai) != n/2 || strings.Contains(said, data) {
			t.Errorf("%s: read %d bytes", mediaType, len(said))
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
