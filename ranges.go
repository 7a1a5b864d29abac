package sheaf

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Unit is what a document is counted in.
type Unit string

const (
	UnitPage  Unit = "page"
	UnitRow   Unit = "row"
	UnitSlide Unit = "slide"
	UnitPart  Unit = "part" // an EPUB spine item, a mail part
	UnitFile  Unit = "file" // the whole file is one unit
)

// FileFamily is a group of media types that a chunk method accepts or rejects as
// one.
type FileFamily string

const (
	FamilyPDF          FileFamily = "PDF"
	FamilyDocument     FileFamily = "DOCX and other word processors"
	FamilySpreadsheet  FileFamily = "XLSX, CSV and other tables"
	FamilyPresentation FileFamily = "PPTX and other slides"
	FamilyText         FileFamily = "plain text, Markdown"
	FamilyWeb          FileFamily = "HTML"
	FamilyEbook        FileFamily = "EPUB"
	FamilyMail         FileFamily = "EML, MSG, MBOX"
	FamilyImage        FileFamily = "images"
	FamilyAudio        FileFamily = "audio, subtitles"
	FamilyCode         FileFamily = "source code, notebooks"
)

// Range is a run of units, 1-based and inclusive at both ends. In JSON it is
// the pair [from, to].
type Range struct{ From, To int }

// Len is the number of units in the range.
func (r Range) Len() int { return r.To - r.From + 1 }

// Contains reports whether unit n lies in the range.
func (r Range) Contains(n int) bool { return n >= r.From && n <= r.To }

func (r Range) String() string {
	if r.From == r.To {
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{r.From, r.To}) }

func (r *Range) UnmarshalJSON(b []byte) error {
	var p [2]int
	if err := json.Unmarshal(b, &p); err != nil {
		return fmt.Errorf("a range is [from, to]: %w", err)
	}
	r.From, r.To = p[0], p[1]
	return nil
}

// SelectUnits turns the requested ranges into sorted, disjoint runs inside 1..units.
// No ranges means all units. Adjacent runs are joined. It fails with ErrInvalid when
// a range is reversed or starts below 1, or when the request lies entirely outside
// the document.
func SelectUnits(asked []Range, units int) ([]Range, error) {
	if units < 1 {
		return nil, nil
	}
	if len(asked) == 0 {
		return []Range{{1, units}}, nil
	}
	rs := make([]Range, 0, len(asked))
	for _, r := range asked {
		if r.From < 1 || r.To < r.From {
			return nil, fmt.Errorf("%w: pages %v: a range is [from, to], counted from 1, both ends included", ErrInvalid, [2]int{r.From, r.To})
		}
		if r.From <= units {
			rs = append(rs, Range{r.From, min(r.To, units)})
		}
	}
	if len(rs) == 0 {
		return nil, fmt.Errorf("%w: the document has %d units and none of the requested pages is among them", ErrInvalid, units)
	}
	slices.SortFunc(rs, func(a, b Range) int { return a.From - b.From })
	out := rs[:1]
	for _, r := range rs[1:] {
		if last := &out[len(out)-1]; r.From <= last.To+1 {
			last.To = max(last.To, r.To)
		} else {
			out = append(out, r)
		}
	}
	return out, nil
}

// CutRanges cuts runs into ranges of at most size units, in order. A range
// never spans two runs. size < 1 leaves the runs whole.
func CutRanges(runs []Range, size int) []Range {
	if size < 1 {
		return slices.Clone(runs)
	}
	var out []Range
	for _, r := range runs {
		for from := r.From; from <= r.To; from += size {
			out = append(out, Range{from, min(from+size-1, r.To)})
		}
	}
	return out
}

// Overlaps lists the intersections of runs and others, run by run.
func Overlaps(runs, others []Range) []Range {
	var out []Range
	for _, r := range runs {
		for _, o := range others {
			if from, to := max(r.From, o.From), min(r.To, o.To); from <= to {
				out = append(out, Range{From: from, To: to})
			}
		}
	}
	return out
}
