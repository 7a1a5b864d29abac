package docx

import (
	"strconv"
	"unicode"

	"sheaf/parser/internal/shown"
)

// symbol is the text of a character that is given by its code in a font.
func symbol(font, code string) string {
	n, err := strconv.ParseUint(code, 16, 31)
	if err != nil {
		return ""
	}
	r := rune(n)
	if s, ok := shown.Symbol(font, r); ok {
		return string(s)
	}
	if r >= 0xE000 && r <= 0xF8FF || !unicode.IsPrint(r) {
		return "" // a shape of that font alone
	}
	return string(r)
}

// maxEntries limits the entries of a list; Word allows 25.
const maxEntries = 1_000

// choice is a box or a list of a form, whose definition holds what it shows (ISO/IEC
// 29500-1, 17.16.7 and 17.16.9).
type choice struct {
	entries       []string
	value, preset string
}

// set reads an element of the definition.
func (c *choice) set(element, value string) {
	switch element {
	case "default":
		c.preset = value
	case "checked":
		if c.value = value; value == "" || value == "true" || value == "on" {
			c.value = "1"
		}
	case "result":
		c.value = value
	case "listEntry":
		if len(c.entries) < maxEntries {
			c.entries = append(c.entries, value)
		}
	}
}

// shown returns what a definition of that element shows.
func (c *choice) shown(element string) string {
	value := c.value
	if value == "" {
		value = c.preset
	}
	if element == "ddList" {
		if i, _ := strconv.Atoi(value); i >= 0 && i < len(c.entries) {
			return c.entries[i]
		}
		return ""
	}
	if value == "1" {
		return "☒"
	}
	return "☐"
}
