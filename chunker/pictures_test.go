package chunker

import (
	"context"
	"fmt"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
)

// A picture goes with its own text, else with its caption, else with the text
// before it, else with the text behind it.
func TestPicturesGoWithTheTextBesideThem(t *testing.T) {
	text := func(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockParagraph, Text: s} }
	head := func(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: s} }
	picture := func(name, alt string) sheaf.Block {
		return sheaf.Block{Kind: sheaf.BlockImage, Picture: name, Text: alt}
	}
	caption := func(s string) sheaf.Block { return sheaf.Block{Kind: sheaf.BlockCaption, Text: s} }
	for name, c := range map[string]struct {
		units []sheaf.UnitResult
		want  string
	}{
		"own text":       {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{head("A"), text("One."), head("B"), picture("p", "A barn")}}}, "[A: B:p]"},
		"caption below":  {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{head("A"), picture("p", ""), caption("Figure 1"), head("B"), text("Two.")}}}, "[A:p B:]"},
		"text before":    {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{head("A"), text("One."), picture("p", ""), picture("q", ""), picture("p", ""), head("B"), text("Two.")}}}, "[A:p\nq B:]"},
		"text behind":    {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{picture("p", ""), head("A"), text("One."), head("B"), text("Two.")}}}, "[A:p B:]"},
		"another unit":   {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{head("A"), text("One.")}}, {Unit: 2, Blocks: []sheaf.Block{picture("p", ""), head("B"), text("Two.")}}}, "[A: B:p]"},
		"nothing beside": {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{picture("p", "")}}, {Unit: 2, Blocks: []sheaf.Block{head("A"), text("One.")}}}, "[A:]"},
		"behind a table": {[]sheaf.UnitResult{{Unit: 1, Blocks: []sheaf.Block{head("A"), text("One."), {Kind: sheaf.BlockTable, Table: &sheaf.Table{Columns: []string{"a"}, Rows: [][]string{{"b"}}}}, picture("p", "")}}}, "[A:p]"},
	} {
		chunks, err := Chunk(context.Background(), Input{DocumentID: "d", Range: sheaf.Range{From: 1, To: 2}, Units: c.units, Config: settings.Default})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range chunks {
			got = append(got, k.HeadingPath[0]+":"+k.Metadata[sheaf.MetadataPictures])
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
