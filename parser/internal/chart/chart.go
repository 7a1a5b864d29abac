// Package chart reads the figures behind a chart in an office document (DrawingML,
// ISO/IEC 29500-1 chapter 21.2): a row per category, a column per series, as cached
// in the file for programs that do not calculate.
package chart

import (
	"io"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/xmlscan"
)

// Limits: no one reads a chart with more.
const (
	maxSeries = 200
	maxPoints = 5_000 // of a series
	maxText   = 1_000 // bytes, of a title or a value
)

type series struct {
	name           string
	category, data map[int]string
}

// Read makes a table of a chart's part, nil if the chart has no figures. A damaged
// part is read up to the damage.
func Read(r io.Reader) *sheaf.Table {
	var all []*series
	var cur *series
	var title strings.Builder
	in := map[string]int{} // open elements that determine what a text is
	point, last := 0, -1
	value := ""
	for s := xmlscan.New(r); ; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			break
		}
		switch name := string(s.Name()); k {
		case xmlscan.Start:
			in[name]++
			switch name {
			case "ser":
				if len(all) >= maxSeries {
					return table(title.String(), all, last)
				}
				cur = &series{category: map[int]string{}, data: map[int]string{}}
				all = append(all, cur)
			case "pt":
				point, _ = strconv.Atoi(s.Attr("idx"))
				point = min(max(point, 0), maxPoints-1)
			case "v":
				value = ""
			}
		case xmlscan.Text:
			switch {
			case in["v"] > 0:
				value = clean.Clip(value+string(s.Text()), maxText)
			case in["t"] > 0 && in["title"] > 0 && in["plotArea"] == 0 && title.Len() < maxText: // titles inside plotArea belong to axes
				title.Write(s.Text())
			}
		case xmlscan.End:
			in[name] = max(0, in[name]-1)
			switch {
			case name == "ser":
				cur = nil
			case name == "p" && title.Len() > 0:
				title.WriteByte(' ')
			case name == "v" && cur != nil:
				value = clean.Line(value)
				switch {
				case in["tx"] > 0:
					cur.name = strings.TrimSpace(cur.name + " " + value)
				case in["cat"]+in["xVal"] > 0:
					if _, ok := cur.category[point]; ok {
						value += " " + cur.category[point] // with several levels, the outer comes last
					}
					cur.category[point] = clean.Clip(value, maxText)
				case in["val"]+in["yVal"] > 0:
					cur.data[point] = value
					last = max(last, point)
				}
			}
		}
	}
	return table(title.String(), all, last)
}

func table(title string, all []*series, last int) *sheaf.Table {
	if last < 0 {
		return nil
	}
	t := &sheaf.Table{Name: clean.Line(title), Columns: []string{""}}
	for _, s := range all {
		t.Columns = append(t.Columns, s.name)
	}
	for i := 0; i <= last; i++ {
		row := make([]string, 1, len(all)+1)
		filled := false
		for _, s := range all {
			if row[0] == "" {
				row[0] = s.category[i]
			}
			row = append(row, s.data[i])
			filled = filled || s.data[i] != ""
		}
		if filled {
			t.Rows = append(t.Rows, row)
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
