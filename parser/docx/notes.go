package docx

import "sheaf/parser/internal/shown"

// noteMarks are what a text shows where a note belongs, and the note before its text:
// Word numbers notes when it shows them.
type noteMarks struct {
	of                  map[string]string // by "footnote" or "endnote" and the note's id
	footnotes, endnotes int
}

// add numbers the note of a reference and returns its mark, "" for one with a mark of
// its own, which is text.
func (m *noteMarks) add(kind, id, custom string) string {
	if custom != "" && custom != "0" && custom != "false" {
		return ""
	}
	if m.of == nil {
		m.of = map[string]string{}
	}
	if mark := m.of[kind+id]; mark != "" {
		return mark
	}
	mark := ""
	if kind == "footnote" {
		m.footnotes++
		mark = "[" + shown.Number("decimal", m.footnotes) + "]"
	} else {
		m.endnotes++
		mark = "[" + shown.Number("lowerRoman", m.endnotes) + "]"
	}
	m.of[kind+id] = mark
	return mark
}
