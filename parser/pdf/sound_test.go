package pdf

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"sheaf"
)

// sound checks what holds for every block of every page.
func sound(u *sheaf.UnitResult, b *sheaf.Block) error {
	switch {
	case b.Page != u.Unit:
		return fmt.Errorf("%s on page %d", b.Kind, b.Page)
	case !utf8.ValidString(b.Text):
		return fmt.Errorf("%s is not UTF-8: %q", b.Kind, b.Text)
	case strings.ContainsFunc(b.Text, func(r rune) bool { return r < 32 && r != '\n' && r != '\t' || r == 0x7F }):
		return fmt.Errorf("%s holds control characters: %q", b.Kind, b.Text)
	case (b.Kind == sheaf.BlockTable) != (b.Table != nil) || b.Table != nil && b.Text != "":
		return fmt.Errorf("%s with table %v and text %q", b.Kind, b.Table != nil, b.Text)
	case b.Kind != sheaf.BlockTable && b.Kind != sheaf.BlockImage && strings.TrimSpace(b.Text) == "":
		return fmt.Errorf("%s without text", b.Kind)
	case b.Kind == sheaf.BlockHeading && (b.Level < 1 || b.Level > 6):
		return fmt.Errorf("heading of level %d", b.Level)
	}
	at := 0
	for _, s := range b.Spans {
		if s.Start < at || s.End < s.Start || s.End > len(b.Text) {
			return fmt.Errorf("span %d to %d after %d in %d bytes", s.Start, s.End, at, len(b.Text))
		}
		at = s.End
		if s.Box.Page != u.Unit || s.Box.X0 > s.Box.X1 || s.Box.Y0 > s.Box.Y1 {
			return fmt.Errorf("span's box %+v", s.Box)
		}
	}
	places := len(b.Text)
	if t := b.Table; t != nil {
		places = len(t.Rows) + min(1, len(t.Columns))
	}
	for _, l := range b.Links {
		if l.Start < 0 || l.End < l.Start || l.End > places || (l.URI == "") != (l.Page > 0) {
			return fmt.Errorf("link %+v in %d bytes or rows", l, places)
		}
	}
	if t := b.Table; t != nil {
		if t.Box == nil || len(t.RowBoxes) != len(t.Rows) || len(t.Rows)+len(t.Columns) == 0 {
			return fmt.Errorf("table of %d rows with %d boxes", len(t.Rows), len(t.RowBoxes))
		}
		for _, r := range t.Rows {
			if len(r) != len(t.Rows[0]) || len(t.Columns) > 0 && len(r) != len(t.Columns) {
				return fmt.Errorf("row of %d cells under %d columns", len(r), len(t.Columns))
			}
		}
	}
	return nil
}
