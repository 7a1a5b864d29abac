package csv

import (
	"fmt"
	"strings"
	"testing"

	"sheaf/parser"
	"sheaf/parser/internal/formattest"
	"sheaf/parser/rows"
)

func sample() []byte {
	return []byte("id;name;born;score\n1;\"Ann \"\"A\"\" Lee\";2001-02-03;1,5\n2;\"two\nlines\";1999-12-31;\n3;short\n")
}

var options = parser.Options{Name: "document", MediaType: parser.MediaCSV}

func TestGolden(t *testing.T) {
	plan, units, err := formattest.Read(t, New(), sample(), options, rows.New())
	if err != nil {
		t.Fatal(err)
	}
	formattest.Golden(t, "sample", plan, units)
}

func TestEmptyFileIsAFailure(t *testing.T) {
	if _, _, err := formattest.Read(t, New(), nil, options, rows.New()); err == nil {
		t.Fatal("a file without bytes was read")
	}
}

func TestRangesHoldEveryRowOnce(t *testing.T) {
	for _, encoding := range []string{"", "utf-16le"} {
		var b strings.Builder
		b.WriteString("id,text\n")
		for i := range 10_000 {
			fmt.Fprintf(&b, "%d,\"line %d\nand \"\"more\"\", here\"\n", i+1, i+1)
		}
		content := []byte(b.String())
		if encoding != "" {
			content = []byte{0xff, 0xfe}
			for _, r := range b.String() {
				content = append(content, byte(r), 0)
			}
		}
		plan, units, err := formattest.Read(t, New(), content, options, rows.New())
		if err != nil || plan.Units != 10_000 || len(plan.Ranges) != 4 {
			t.Fatalf("%q: plan %d units in %d ranges, error %v", encoding, plan.Units, len(plan.Ranges), err)
		}
		next := 1
		for _, u := range units {
			table := u.Blocks[0].Table
			if table.Columns[1] != "text" || table.Types[0] != "integer" {
				t.Fatalf("%q: header %v, types %v", encoding, table.Columns, table.Types)
			}
			for _, r := range table.Rows {
				if want := fmt.Sprintf("line %d\nand \"more\", here", next); r[0] != fmt.Sprint(next) || r[1] != want {
					t.Fatalf("%q: row %d is %q", encoding, next, r)
				}
				next++
			}
		}
	}
}

// A cell of more than a megabyte is cut, which a warning says.
func TestCutCellsAreNamed(t *testing.T) {
	src := "id,text\n1,short\n2," + strings.Repeat("a page of a crawl ", 1<<16) + "\n"
	_, units, err := formattest.Read(t, New(), []byte(src), parser.Options{Name: "a.csv", MediaType: parser.MediaCSV}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(units) != 1 || len(units[0].Warnings) != 1 || units[0].Warnings[0].Code != "cells_clipped" || !strings.Contains(units[0].Warnings[0].Message, "(1)") {
		t.Errorf("%d units, %+v", len(units), units[0].Warnings)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample())
	f.Add([]byte("sep=;\na;b\n1;2"))
	f.Add([]byte("\"a\n\"b,c\n\""))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = formattest.Read(t, New(), b, options, rows.New()) // it checks what it reads
	})
}
