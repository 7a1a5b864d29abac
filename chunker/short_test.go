package chunker

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
)

func TestShortTextsStandWithTheTableTheyIntroduce(t *testing.T) {
	head := func(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: s} }
	text := func(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockParagraph, Text: s} }
	rows := sheaf.Block{Kind: sheaf.BlockTable, Table: &sheaf.Table{Columns: []string{"", "2023"}, Rows: [][]string{{"Net sales", "14,694"}, {"Gross profit", "2,725"}}}}
	long := strings.Repeat("The company sells flexible and rigid packaging in forty countries. ", 8)
	for name, c := range map[string]struct {
		blocks []sheaf.Block
		config sheaf.ParseConfig
		want   string // kinds and first words of the chunks
	}{
		"title":                {[]sheaf.Block{text("Amcor plc"), text("Statements of Income"), rows}, settings.Default, "table Amcor"},
		"notes":                {[]sheaf.Block{rows, text("See notes to the statements."), head("Next"), text("Text.")}, settings.Default, "table | text Next"},
		"between":              {[]sheaf.Block{rows, text("Sales by region:"), rows}, settings.Default, "table | table Sales"},
		"long text":            {[]sheaf.Block{text(long), rows, text(long)}, settings.Default, "text The table | text The"},
		"over a heading":       {[]sheaf.Block{head("A"), text("One."), head("B"), rows}, settings.Default, "text A table B"},
		"a delimiter stays":    {[]sheaf.Block{text("One.##Two."), rows}, config("general", "`##`"), "text One.## table Two."},
		"a method of segments": {[]sheaf.Block{text("Name"), rows}, config("laws", ""), "text Name table |"},
	} {
		chunks, err := Chunk(context.Background(), Input{DocumentID: "d", Range: sheaf.Range{From: 1, To: 1}, Units: []sheaf.UnitResult{{Unit: 1, Blocks: c.blocks}}, Config: c.config})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range chunks {
			got = append(got, string(k.Kind), strings.Fields(k.Text)[0])
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}

// A stretch of just fewer than leastTokens is as short in the middle of a range
// as at its start, where no line ends stand before it.
func TestStretchesAreAsShortInTheMiddleOfARange(t *testing.T) {
	rows := sheaf.Block{Kind: sheaf.BlockTable, Table: &sheaf.Table{Rows: [][]string{{"a"}}}}
	right := []sheaf.Block{heading(1, "Head"), para("")}
	for n := range leastTokens {
		right[1].Text = strings.TrimSpace(strings.Repeat("a ", n))
		if right := append(right, rows); n > 0 {
			whole, parts := chunkTexts(t, append([]sheaf.Block{para("An end.")}, right...)), chunkTexts(t, right)
			if !slices.Equal(whole[1:], parts) {
				t.Fatalf("%d words: %q, want %q", n, whole[1:], parts)
			}
		}
	}
}

func chunkTexts(t *testing.T, blocks []sheaf.Block) (out []string) {
	t.Helper()
	chunks, err := Chunk(context.Background(), input(config("general", ""), blocks))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		out = append(out, c.Text)
	}
	return out
}

// config has a method and a delimiter where one is given.
func config(method, delimiter string) sheaf.ParseConfig {
	c := settings.Default
	c.ChunkMethod = sheaf.Set(method)
	if delimiter != "" {
		c.Delimiter = sheaf.Set(delimiter)
	}
	return c
}
