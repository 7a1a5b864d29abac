package api

import (
	"strings"
	"testing"

	"sheaf"
)

// Names of files are taken by every system, and lead out of no folder.
func TestSafeNames(t *testing.T) {
	for name, want := range map[string]string{
		"report.pdf": "report.pdf", "../../etc/passwd": "_.._etc_passwd", `a\b:c*d?e"f<g>h|i`: "a_b_c_d_e_f_g_h_i", "": "_", "..": "_", " . ": "_", "con": "_con", "LPT1.txt": "_LPT1.txt", "console.txt": "console.txt",
		"a\x00b\nc": "a_b_c", "übung": "übung", "bad\xff.txt": "bad_.txt", strings.Repeat("ü", 200): strings.Repeat("ü", 90), "end. . ": "end",
	} {
		if got := safeName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

// Headings stand once, where they begin; code is fenced.
func TestMarkdownOfChunks(t *testing.T) {
	chunks := []sheaf.Chunk{
		{Text: "# Fields\n\nThe harvest was dry.\n", HeadingPath: []string{"Fields"}},
		{Text: "It went on.", HeadingPath: []string{"Fields"}},
		{Text: "North\nThe north was wet.", HeadingPath: []string{"Fields", "North"}},
		{Text: "reap()", Kind: sheaf.ChunkCode, HeadingPath: []string{"Fields", "North"}},
		{Text: "Back.", HeadingPath: []string{"Mills"}},
	}
	var got strings.Builder
	var above []string
	for i := range chunks {
		got.WriteString(markdownOf(&chunks[i], above))
		above = chunks[i].HeadingPath
	}
	if want := "# Fields\n\nThe harvest was dry.\n\nIt went on.\n\n## North\n\nThe north was wet.\n\n```\nreap()\n```\n\n# Mills\n\nBack.\n\n"; got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}
