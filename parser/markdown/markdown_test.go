package markdown

import (
	"strings"
	"testing"
	"time"

	"sheaf/internal/cputest"
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

// What would take the square of its length is read as the text that it is, and
// what merely is long is not.
func TestManyMarksAreReadInTime(t *testing.T) {
	const n = 200_000
	for _, c := range []struct {
		name, text string
		plain      bool
	}{
		{"links without end", strings.Repeat("[a](", n), true},
		{"pictures without end", strings.Repeat("![a](", n), true},
		{"emphasis that does not close", strings.Repeat("*a_", n), true},
		{"emphasis on lines", strings.Repeat("|*a_\n", n), true},
		{"emphasis behind a list", "- x\n" + strings.Repeat("2. *a_\n", n), true},
		{"emphasis across words", strings.Repeat("_a*b_", n), true},
		{"footnotes", strings.Repeat("[^a]: b\n", n/4), false},
		{"references to footnotes", strings.Repeat("[^b]: b\n", n/40) + "[^a]: b\n\n" + strings.Repeat("[^a] ", n/50), false},
		{"as many references as footnotes", strings.Repeat("[^b]: b\n", n/10) + "\n" + strings.Repeat("[^a] ", n/10), true},
		{"links", strings.Repeat("[a](b) ", n/10), false},
		{"a list", strings.Repeat("- *a* and _b_\n", n/10), false},
		{"numbers", strings.Repeat("7. *a* and _b_\n", n/10), false},
		{"a table", "|a|b|\n|---|---|\n" + strings.Repeat("|*a*|_b_|\n", n/10), false},
		{"paragraphs", strings.Repeat("*a* and _b_\n\n", n/10), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			begun := cputest.Used(t)
			got := New().(*format).read([]byte(c.text))
			if took := cputest.Used(t) - begun; took > 3*cputest.Slowdown*time.Second {
				t.Errorf("it took %s", took)
			}
			if plain := len(got.Warnings) > 0; plain != c.plain {
				t.Errorf("read as plain text: %v", plain)
			}
			if len(got.Blocks) == 0 {
				t.Error("nothing was read")
			}
		})
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

// Only what can be YAML is front matter: two rules may have text between them.
func TestFrontMatterIsToldFromText(t *testing.T) {
	for src, want := range map[string]string{
		"---\n---\n\n# Start\n\nText.\n\n---\n\nMore.\n":                "Start|Text.|More.",
		"---\nThe first slide.\n\n---\n\nThe second.\n":                 "The first slide.|The second.",
		"---\n# a comment\ntitle: x\nlist:\n- one\n  two\n---\nText.\n": "Text.",
		"---\ntitle: x\n---": "",
		"---\n---\n":         "",
	} {
		meta, rest := frontMatter([]byte(src))
		_, units, err := formattest.Read(t, New(), append([]byte(src), "\nEnd.\n"...), parser.Options{Name: "a.md", MediaType: parser.MediaMarkdown}, nil)
		if err != nil {
			t.Errorf("%q: %v", src, err)
			continue
		}
		var got []string
		for _, u := range units {
			for _, b := range u.Blocks {
				got = append(got, b.Text)
			}
		}
		if strings.Join(got, "|") != strings.TrimPrefix(want+"|End.", "|") {
			t.Errorf("%q: %q (%q, %q)", src, got, meta, rest)
		}
	}
}

// A footnote that nothing refers to is text all the same.
func TestFootnotesWithoutReferencesAreRead(t *testing.T) {
	notes := "[^a]: Nobody refers to gneiss.\n[^b]: Somebody does to schist.\n[^c]: Nor to basalt.\n"
	for src, want := range map[string]string{
		"Text[^b] with a note.\n\n" + notes: "Text[1] with a note.|[1] Somebody does to schist.|[2] Nobody refers to gneiss.|[3] Nor to basalt.",
		"Text.\n\n" + notes:                 "Text.|[1] Nobody refers to gneiss.|[2] Somebody does to schist.|[3] Nor to basalt.",
		notes[:31]:                          "[1] Nobody refers to gneiss.",
	} {
		_, units, err := formattest.Read(t, New(), []byte(src), parser.Options{Name: "a.md", MediaType: parser.MediaMarkdown}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range units[0].Blocks {
			got = append(got, b.Text)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q: %q", src, got)
		}
	}
}
