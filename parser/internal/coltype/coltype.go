// Package coltype infers the column types of a table, once per document, so that
// all its ranges agree.
package coltype

import (
	"strings"
)

// Types of sheaf.Table, and the letter of each in a hint.
const (
	Text    = "text"
	Integer = "integer"
	Number  = "number"
	Date    = "date"
	Boolean = "boolean"
)

var letters = map[string]byte{Text: 't', Integer: 'i', Number: 'n', Date: 'd', Boolean: 'b'}
var names = map[byte]string{'t': Text, 'i': Integer, 'n': Number, 'd': Date, 'b': Boolean}

// Pack writes types as one letter each.
func Pack(types []string) string {
	b := make([]byte, len(types))
	for i, t := range types {
		b[i] = letters[t]
	}
	return string(b)
}

// Unpack is the inverse of Pack. An unknown letter is text.
func Unpack(s string, width int) []string {
	if s == "" {
		return nil
	}
	out := make([]string, width)
	for i := range out {
		out[i] = Text
		if i < len(s) && names[s[i]] != "" {
			out[i] = names[s[i]]
		}
	}
	return out
}

const (
	canInt = 1 << iota
	canNum
	canDate
	canBool
	seen
	all = canInt | canNum | canDate | canBool
)

// Of returns the type of one value, "" for an empty one.
func Of(s string) string {
	m := mask(s)
	switch {
	case m == 0 && strings.TrimSpace(s) == "":
		return ""
	case m&canBool != 0:
		return Boolean
	case m&canInt != 0:
		return Integer
	case m&canNum != 0:
		return Number
	case m&canDate != 0:
		return Date
	}
	return Text
}

// Inferrer examines rows. A column has a type if every non-empty value has it.
type Inferrer struct{ cols []uint8 }

// Row adds a row.
func (in *Inferrer) Row(row []string) {
	for len(in.cols) < len(row) {
		in.cols = append(in.cols, all)
	}
	for i, s := range row {
		if c := in.cols[i]; c != seen {
			if s = strings.TrimSpace(s); s != "" {
				in.cols[i] = c&mask(s) | seen
			}
		}
	}
}

// Types returns the types of the columns seen so far.
func (in *Inferrer) Types() []string {
	out := make([]string, len(in.cols))
	for i, c := range in.cols {
		switch {
		case c&seen == 0:
			out[i] = Text
		case c&canBool != 0:
			out[i] = Boolean
		case c&canInt != 0:
			out[i] = Integer
		case c&canNum != 0:
			out[i] = Number
		case c&canDate != 0:
			out[i] = Date
		default:
			out[i] = Text
		}
	}
	return out
}

func mask(s string) uint8 {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > 40 {
		return 0
	}
	var m uint8
	c := s[0]
	switch {
	case c >= '0' && c <= '9', c == '-', c == '+', c == '.':
		switch numeric(s) {
		case 1:
			m = canInt | canNum
		case 2:
			m = canNum
		}
		if m == 0 && isDate(s) {
			m = canDate
		}
	case len(s) <= 5:
		if strings.EqualFold(s, "true") || strings.EqualFold(s, "false") || strings.EqualFold(s, "yes") || strings.EqualFold(s, "no") {
			m = canBool
		}
	}
	return m
}

// numeric returns 1 for an integer, 2 for a number, 0 for neither. A leading zero
// makes a code, not a number; so do more than 18 digits.
func numeric(s string) int {
	if s[0] == '-' || s[0] == '+' {
		s = s[1:]
	}
	digits, i := 0, 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	digits = i
	if digits > 1 && s[0] == '0' || digits > 18 {
		return 0
	}
	if i == len(s) {
		if digits == 0 {
			return 0
		}
		return 1
	}
	if s[i] == '.' {
		i++
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
			digits++
		}
	}
	if digits == 0 {
		return 0
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		i++
		if i < len(s) && (s[i] == '-' || s[i] == '+') {
			i++
		}
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == from {
			return 0
		}
	}
	if i != len(s) {
		return 0
	}
	return 2
}

// isDate recognizes 2026-01-31, 2026/01/31, 31.01.2026 and 31/01/2026, with or
// without a time after a space or a T.
func isDate(s string) bool {
	day, _, _ := strings.Cut(strings.Replace(s, "T", " ", 1), " ")
	if len(day) < 8 || len(day) > 10 {
		return false
	}
	var sep byte
	var parts [3]int
	var widths [3]int
	n := 0
	for i := 0; i < len(day); i++ {
		c := day[i]
		switch {
		case c >= '0' && c <= '9':
			parts[n] = parts[n]*10 + int(c-'0')
			widths[n]++
		case (c == '-' || c == '/' || c == '.') && n < 2 && (sep == 0 || sep == c):
			sep = c
			n++
		default:
			return false
		}
	}
	if n != 2 {
		return false
	}
	ok := func(month, day int) bool { return month >= 1 && month <= 12 && day >= 1 && day <= 31 }
	switch {
	case widths[0] == 4:
		return ok(parts[1], parts[2]) && widths[2] <= 2
	case widths[2] == 4:
		return ok(parts[1], parts[0]) || ok(parts[0], parts[1])
	}
	return false
}

// Header reports whether first names the columns of the rows that follow: its cells
// are short, distinct texts, and the values below them are of other types, or at
// least different.
func Header(first []string, rest [][]string) bool {
	names, filled := map[string]bool{}, 0
	for _, c := range first {
		c = strings.TrimSpace(c)
		if c == "" {
			continue
		}
		if len(c) > 120 || names[c] || Of(c) != Text {
			return false
		}
		names[c] = true
		filled++
	}
	if filled == 0 || len(rest) == 0 || filled*2 < len(first) {
		return false
	}
	typed, repeated := 0, 0
	for i, name := range first {
		kind, same := "", true
		for _, r := range rest {
			if i >= len(r) {
				continue
			}
			if strings.TrimSpace(r[i]) == strings.TrimSpace(name) && name != "" {
				repeated++
			}
			if t := Of(r[i]); t != "" {
				if kind != "" && kind != t && !(kind != Text && t != Text) {
					same = false
				}
				kind = t
			}
		}
		if same && kind != "" && kind != Text {
			typed++
		}
	}
	if typed > 0 {
		return true
	}
	return filled > 1 && filled == len(first) && repeated == 0
}
