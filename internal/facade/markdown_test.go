package facade

import (
	"testing"

	"sheaf"
)

func TestHeadingsGetTheirMarks(t *testing.T) {
	for want, c := range map[string]sheaf.Chunk{
		"# Book\n\n## Part\n\nText.\nMore.": {Text: "Book\n\nPart\n\nText.\nMore.", HeadingPath: []string{"Book", "Part"}},
		"## Part\n\nText.":                  {Text: "Part\n\nText.", HeadingPath: []string{"Book", "Part"}},
		"Text that goes on.\n\nPart":        {Text: "Text that goes on.\n\nPart", HeadingPath: []string{"Book", "Part"}},
		"# Part":                            {Text: "Part", HeadingPath: []string{"Part"}},
		"# Part\n\nPart":                    {Text: "Part\n\nPart", HeadingPath: []string{"Part"}},
		"| a |\n| - |":                      {Text: "| a |\n| - |"},
	} {
		if got := Markdown([]sheaf.Chunk{c}); got != want {
			t.Errorf("%q reads %q, want %q", c.Text, got, want)
		}
	}
}
