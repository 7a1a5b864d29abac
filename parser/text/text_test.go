package text

import (
	"strings"
	"testing"

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

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte("\xff\xfea\x00\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, nil) // it checks what it reads
	})
}
