package pdf

import (
	"cmp"
	"slices"
	"unicode"
)

// namesColumns guesses whether the first row is a header: text without numbers, set
// apart by weight, by rules or by numbers below it.
func namesColumns(rows [][]string, bold, ruled bool) bool {
	if len(rows) < 2 {
		return false
	}
	named := 0
	for _, c := range rows[0] {
		if c == "" {
			continue
		}
		if mostlyNumeric(c) {
			return false
		}
		named++
	}
	if named*2 < len(rows[0]) || named == 0 {
		return false
	}
	if bold || ruled && named == len(rows[0]) {
		return true
	}
	for c := range rows[0] {
		numeric, filled := 0, 0
		for _, r := range rows[1:] {
			if r[c] != "" {
				filled++
				if mostlyNumeric(r[c]) {
					numeric++
				}
			}
		}
		if filled > 0 && numeric*10 >= filled*7 {
			return true
		}
	}
	return false
}

func mostlyNumeric(s string) bool {
	digits, letters := 0, 0
	for _, r := range s {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			letters++
		}
	}
	return digits > 0 && digits >= letters
}

// grouped reports whether the first two rows form a header: a cell of the first
// spans several columns, each named by the second.
func (t *table) grouped() bool {
	if len(t.rows) < 3 {
		return false
	}
	first, second := t.rows[0], t.rows[1]
	under, groups := make([]bool, len(first)), false
	for _, s := range t.spans {
		if s.Row == 1 || s.Row == 0 && s.Rows > 2 {
			return false
		}
		if s.Row > 0 || s.Columns == 1 {
			continue
		}
		if s.Rows > 1 || s.Columns == len(first) || first[s.Column] == "" {
			return false
		}
		for c := s.Column; c < s.Column+s.Columns; c++ {
			under[c], groups = true, true
		}
	}
	if !groups {
		return false
	}
	both := false // a name in the second row with nothing above it
	for c := range first {
		switch {
		case mostlyNumeric(second[c]), under[c] && second[c] == "", !under[c] && mostlyNumeric(first[c]):
			return false
		case !under[c] && second[c] != "":
			if first[c] != "" {
				return false // both rows fill the column: the second is like any other
			}
			both = true
		}
	}
	if both || !t.header {
		return namesColumns(t.rows[1:], false, false)
	}
	return true
}

// groupedColumns joins the two rows of a header: "Group / Column".
func (t *table) groupedColumns() []string {
	group := slices.Clone(t.rows[0])
	for _, s := range t.spans {
		for c := s.Column; s.Row == 0 && c < s.Column+s.Columns; c++ {
			group[c] = t.rows[0][s.Column]
		}
	}
	names := make([]string, len(group))
	for c, name := range t.rows[1] {
		if names[c] = cmp.Or(group[c], name); group[c] != "" && name != "" {
			names[c] = group[c] + " / " + name
		}
	}
	return names
}
