package text

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
)

func sample() []byte {
	return []byte("First paragraph\nof two lines.\n\nSecond\x07 one.\n")
}

var options = parser.Options{Name: "document", MediaType: parser.MediaText}

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

func TestLargeFileIsReadInParts(t *testing.T) {
	line := "a line of a log, number one of many\n"
	plan, units, err := formattest.Read(t, New(), []byte(strings.Repeat(line, 200_000)), options, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, u := range units {
		for _, b := range u.Blocks {
			lines += strings.Count(b.Text, "number one")
			if !strings.HasPrefix(b.Text, "a line") || !strings.HasSuffix(b.Text, "of many") {
				t.Fatalf("a line was cut: %.40q", b.Text)
			}
		}
	}
	if plan.Units < 6 || lines != 200_000 {
		t.Fatalf("%d parts with %d lines", plan.Units, lines)
	}
}

// Headings and code of documentation are found, and everything else is kept.
func TestMarkupHasHeadingsAndCode(t *testing.T) {
	for mediaType, c := range map[string]struct{ src, want string }{
		mediaRST: {"=====\nGuide\n=====\n\nIntro ``x``.\n\nPump\n----\nIt turns::\n\n    run --fast\n\n      deeper\n\nThen stop.\n\n----\n\nValves\n------\n\n.. code-block:: go\n   :linenos:\n\n   func main() {}\n\nSub\n~~~\n.. note:: Mind the gap.\n\n+---+\n| a |\n+---+\n\nTons\n====\nEnd\n",
			"h1 Guide|paragraph Intro ``x``.|h2 Pump|paragraph It turns:|code run --fast\n\n  deeper|paragraph Then stop.|h2 Valves|code(go) func main() {}|h3 Sub|paragraph .. note:: Mind the gap.|paragraph +---+\n| a |\n+---+|h4 Tons|paragraph End"},
		mediaAsciiDoc: {"= Guide\n:toc:\n// hidden\n\nIntro.\n\n== Pump\n\n[source,go]\n----\nfunc main() {}\n== not a title\n----\n\n////\nhidden\n////\n. one\n. two\n\n```\nplain\n```\n\n=== Valve: large\n|===\n|a |b\n|===\n",
			"h1 Guide|paragraph Intro.|h2 Pump|code(go) func main() {}\n== not a title|paragraph . one\n. two|code plain|h3 Valve: large|paragraph |===\n|a |b\n|==="},
		mediaOrg: {"#+TITLE: Guide\n#+AUTHOR: Ann\n* Pump\n:PROPERTIES:\n:ID: 1\n:END:\n# hidden\nIt turns.\n#+BEGIN_SRC sh :results none\n  run\n* no headline\n#+end_src\n** Valve\n- *bold* text\n| a | b |\n",
			"h1 Guide|paragraph #+AUTHOR: Ann|h2 Pump|paragraph It turns.|code(sh)   run\n* no headline|h3 Valve|paragraph - *bold* text\n| a | b |"},
	} {
		_, units, err := formattest.Read(t, New(), []byte(c.src), parser.Options{Name: "a", MediaType: mediaType}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range units[0].Blocks {
			kind := string(b.Kind)
			if b.Level > 0 {
				kind = fmt.Sprintf("h%d", b.Level)
			}
			if b.Lang != "" {
				kind += "(" + b.Lang + ")"
			}
			got = append(got, kind+" "+b.Text)
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s:\n got %q\nwant %q", mediaType, s, c.want)
		}
	}
}

// No word is lost but in comments and attributes, and nothing takes long.
func TestMarkupKeepsEveryWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"word", "Title", "====", "----", "::", "..", "* star", "== two", "  inner", "", "", "```", "[source,go]", "text::", "+++", "#+BEGIN_SRC", "|a|"}), 1, 40).Draw(t, "lines")
		src := strings.Join(words, "\n")
		for mediaType := range markups {
			var got strings.Builder
			for _, b := range (&document{mediaType: mediaType}).blocks(src, 1) {
				got.WriteString(b.Text + "\n")
			}
			for _, w := range []string{"word", "Title", "inner", "star", "two", "|a|"} {
				if a, b := strings.Count(src, w), strings.Count(got.String(), w); a != b {
					t.Fatalf("%s: %q is there %d times, not %d, in %q", mediaType, w, b, a, got.String())
				}
			}
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte("\xff\xfea\x00\n\x00"))
	f.Add([]byte("Title\n=====\n\n::\n\n  a\n\n== b\n----\n* c\n#+BEGIN_SRC\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
		for mediaType := range markups {
			_, _, _ = formattest.Read(t, New(), b, parser.Options{Name: "document", MediaType: mediaType}, nil)
		}
	})
}
