package chunker

import (
	"fmt"
	"strconv"
	"strings"

	"sheaf"
)

// Row formats of the methods that make a chunk of each table row.

// pairHeaders are the usual names of question and answer columns.
var pairHeaders = words("question, questions, q, answer, answers, a, frage, antwort, pregunta, respuesta, réponse, 问题, 答案, 问, 答, content, text, tag, tags, label, labels, description, 标签, 内容, 描述")

// headed reports whether the header names its columns and so is not itself a pair.
func headed(columns []string) bool {
	for _, c := range columns {
		if pairHeaders[strings.ToLower(cell(c))] {
			return true
		}
	}
	return false
}

// filled returns the first two cells with text, and the rest joined.
func filled(row []string) (first, second, rest string) {
	for _, c := range row {
		switch c = cell(c); {
		case c == "":
		case first == "":
			first = c
		case second == "":
			second = c
		default:
			rest = strings.TrimSpace(rest + "\n" + c)
		}
	}
	return first, second, rest
}

// pairRow formats a row as question and answer.
func pairRow(_ *sheaf.Table, row []string) record {
	q, a, rest := filled(row)
	if a == "" {
		return record{text: q}
	}
	text := "Question: " + q + "\nAnswer: " + a
	if rest != "" {
		text += "\n" + rest
	}
	return record{text: text, questions: []string{q}}
}

// maxTags limits the tags of one row.
const maxTags = 64

// tagRow formats a row as a text and its tags.
func tagRow(_ *sheaf.Table, row []string) record {
	text, tags, rest := filled(row)
	r := record{text: strings.TrimSpace(text + "\n" + rest)}
	for t := range strings.FieldsFuncSeq(tags, func(r rune) bool { return strings.ContainsRune(",，;；、", r) }) {
		if t = strings.TrimSpace(t); t != "" && len(r.keywords) < maxTags {
			r.keywords, r.tags = append(r.keywords, t), append(r.tags, sheaf.Tag{Name: t, Weight: 1})
		}
	}
	return r
}

// valuesRow formats a row as one "column: value" line per cell, with the values by
// type.
func valuesRow(t *sheaf.Table, row []string) record {
	var lines []string
	columns := map[string]any{}
	for i, c := range row {
		value := cell(c)
		if value == "" {
			continue
		}
		name := fmt.Sprintf("column_%d", i+1)
		if i < len(t.Columns) && cell(t.Columns[i]) != "" {
			name = cell(t.Columns[i])
		}
		lines = append(lines, name+": "+value)
		kind := ""
		if i < len(t.Types) {
			kind = t.Types[i]
		}
		if _, taken := columns[name]; !taken {
			columns[name] = typed(value, kind)
		}
	}
	return record{text: strings.Join(lines, "\n"), columns: columns}
}

// typed returns a cell as its column's type, or its text if it does not convert.
func typed(value, kind string) any {
	switch kind {
	case "integer":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return n
		}
	case "number":
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			return f
		}
	case "boolean":
		switch strings.ToLower(value) {
		case "true", "yes":
			return true
		case "false", "no":
			return false
		}
	}
	return value
}

// records adds a chunk for each row, and one for a header that is really data.
func (s *splitter) records(b *sheaf.Block, make func(*sheaf.Table, []string) record) {
	t := b.Table
	first := len(s.out)
	key := t.Name + "\x00" + strings.Join(t.Columns, "\x00")
	if s.set.method != "table" && len(t.Columns) > 0 && !headed(t.Columns) && s.header != key {
		s.record(b, -1, make(t, t.Columns))
	}
	s.header = key
	for i, row := range t.Rows {
		if s.set.watch.over(len(row)) {
			break
		}
		s.record(b, i, make(t, row))
	}
	if len(t.Rows) == 0 && len(s.out) == first {
		s.headerOnly(b, s.budget())
	}
	for k := first; k < len(s.out); k++ {
		s.out[k].start, s.out[k].end = 0, 0
	}
	if len(s.out) > first {
		s.out[len(s.out)-1].after = borderHard
	}
}

// record adds the segments of one row: a single one unless it is longer than a chunk.
func (s *splitter) record(b *sheaf.Block, i int, r record) {
	if r.text == "" {
		return
	}
	begin := len(s.out)
	if _, fits := tokensWithin(r.text, s.set.limit); fits {
		s.out = append(s.out, segment{text: r.text, after: borderHard})
	} else {
		s.fit(r.text, 0, len(r.text), nil)
	}
	for k := begin; k < len(s.out); k++ {
		p := &s.out[k]
		p.after = borderHard // each fills a chunk
		p.record = &r
		p.page, p.boxes = rowPlace(b, max(i, 0))
		if p.row = i + 1; i < 0 {
			p.row = -1
		}
	}
}
