// Package speech makes units of timed speech: transcripts and subtitles. A unit is
// about a minute, labelled with its time.
package speech

import (
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/whole"
)

const (
	// unitSeconds is the length of speech in a unit.
	unitSeconds = 60
	// RangeUnits is the number of units per task.
	RangeUnits  = 60
	maxSegments = 200_000
)

// Segment is speech between two times, in seconds from the start.
type Segment struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Text  string  `json:"text"`
}

// Cut makes units of ordered segments. Segments without text are omitted.
func Cut(segments []Segment) [][]Segment {
	var units [][]Segment
	var unit []Segment
	for _, s := range segments[:min(len(segments), maxSegments)] {
		if s.Text = clean.Line(s.Text); s.Text == "" {
			continue
		}
		if len(unit) > 0 && s.End-unit[0].Start > unitSeconds {
			units = append(units, unit)
			unit = nil
		}
		unit = append(unit, s)
	}
	if len(unit) > 0 {
		units = append(units, unit)
	}
	return units
}

// Fingerprints holds one content hash per unit.
func Fingerprints(units [][]Segment) []uint64 {
	var out []uint64
	for _, u := range units {
		h := xxhash.New()
		for _, s := range u {
			_, _ = fmt.Fprintf(h, "%g %g %s\x00", s.Start, s.End, s.Text) // a hash never fails
		}
		out = append(out, h.Sum64())
	}
	return out
}

// clock formats seconds as "1:02:03".
func clock(seconds float64) string {
	s := int(max(0, min(seconds, 1e9)))
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Emit emits the units of r.
func Emit(units [][]Segment, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(units) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The recording has %d parts, so part %d does not exist.", len(units), n)
		}
		segments := units[n-1]
		texts := make([]string, len(segments))
		for i, s := range segments {
			texts[i] = s.Text
		}
		u := whole.Unit(n, []sheaf.Block{{Kind: sheaf.BlockParagraph, Text: strings.Join(texts, " "), Page: n}})
		u.Label = clock(segments[0].Start) + "–" + clock(segments[len(segments)-1].End)
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}
