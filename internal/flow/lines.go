package flow

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Lines finds the line, from 1, of each node of a TOML text, by id. In invalid TOML
// it finds what it can.
func Lines(text []byte) map[string]int {
	at, ids := linesOf(text), map[string]int{}
	for i, id := range at.ids {
		if _, known := ids[id]; id != "" && !known {
			ids[id] = at.lines[nodePath(i)+".id"]
		}
	}
	return ids
}

func nodePath(i int) string { return "node." + strconv.Itoa(i) }

var unknownField = regexp.MustCompile(`unknown field "([^"]+)"`)

// located sets the line of each problem: that of the field, or else of the closest
// enclosing value; for a node, that of its id.
func (v Invalid) located(text []byte, isTOML bool) Invalid {
	at := &linesOfJSON(text).positions
	if isTOML {
		at = &linesOf(text).positions
	}
	for i := range v {
		p := &v[i]
		if p.Line > 0 {
			continue
		}
		path, field := "", p.Field
		if m := unknownField.FindStringSubmatch(p.Message); m != nil && field == "" {
			field = m[1]
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(p.Node, "#")); err == nil && strings.HasPrefix(p.Node, "#") {
			path = nodePath(n-1) + "."
		} else if p.Node != "" {
			k := slices.Index(at.ids, p.Node)
			if p.Field == "id" { // given twice: the later one is at fault
				for i, id := range at.ids {
					if id == p.Node {
						k = i
					}
				}
			}
			if k >= 0 {
				path = nodePath(k) + "."
			}
		}
		if path != "" && field == "" { // about the node itself
			field = "id"
		}
		for path += field; ; path = path[:strings.LastIndexByte(path, '.')] {
			path = strings.TrimSuffix(path, ".")
			if line, ok := at.lines[path]; ok {
				p.Line = line
				break
			}
			if !strings.Contains(path, ".") {
				p.Line = 1
				break
			}
		}
	}
	return v
}

// positions are the lines of a text's values, by path, such as node.2.config.schema,
// and the ids of its nodes.
type positions struct {
	lines map[string]int
	ids   []string
}

func (p *positions) note(path string, line int) {
	if _, known := p.lines[path]; !known {
		p.lines[path] = line
	}
}

// say records the value of a path if it is the id of a node.
func (p *positions) say(path, value string) {
	n, inNode := strings.CutPrefix(path, "node.")
	if n, isID := strings.CutSuffix(n, ".id"); inNode && isID {
		if i, err := strconv.Atoi(n); err == nil && i >= 0 && i < MaxNodes {
			p.ids = append(p.ids, make([]string, max(0, i+1-len(p.ids)))...)
			p.ids[i] = value
		}
	}
}

// jsonWalker walks JSON, as far as it is valid.
type jsonWalker struct {
	positions
	text []byte
	in   *json.Decoder
	at   int // bytes whose lines are counted
	line int
}

func linesOfJSON(text []byte) *jsonWalker {
	w := &jsonWalker{positions{lines: map[string]int{}}, text, json.NewDecoder(bytes.NewReader(text)), 0, 1}
	w.in.UseNumber()
	if len(text) <= MaxBytes {
		w.value("", 0)
	}
	return w
}

// token returns the next token, if there is one. No token spans lines.
func (w *jsonWalker) token() (json.Token, bool) {
	t, err := w.in.Token()
	if err != nil {
		return nil, false
	}
	end := int(w.in.InputOffset())
	w.line += bytes.Count(w.text[w.at:end], []byte("\n"))
	w.at = end
	return t, true
}

// value reads a value, and reports whether it was complete.
func (w *jsonWalker) value(path string, depth int) bool {
	t, ok := w.token()
	if !ok || depth > maxOpen {
		return false
	}
	w.note(path, w.line)
	under := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch t {
	case json.Delim('{'):
		for w.in.More() {
			key, _ := w.token()
			name, ok := key.(string)
			if !ok {
				return false
			}
			w.note(under(name), w.line)
			if !w.value(under(name), depth+1) {
				return false
			}
		}
	case json.Delim('['):
		for n := 0; w.in.More(); n++ {
			if !w.value(under(strconv.Itoa(n)), depth+1) {
				return false
			}
		}
	default:
		if said, ok := t.(string); ok {
			w.say(path, said)
		}
		return true
	}
	_, ok = w.token() // the closing delimiter
	return ok
}

// walker walks TOML that the library has parsed or rejected.
type walker struct {
	positions
	b    []byte
	i    int
	line int
}

func linesOf(text []byte) *walker {
	w := &walker{positions{lines: map[string]int{}}, text, 0, 1}
	if len(text) > MaxBytes || !shallowTOML(text) { // paths would grow with its depth
		return w
	}
	table, count := "", map[string]int{}
	for w.space(); w.i < len(w.b); w.space() {
		before := w.i
		if w.b[w.i] != '[' {
			w.pair(table)
		} else {
			line, several := w.line, bytes.HasPrefix(w.b[w.i:], []byte("[["))
			w.i++
			if several {
				w.i++
			}
			keys := w.keys(']')
			for w.i < len(w.b) && w.b[w.i] == ']' {
				w.i++
			}
			if len(keys) > 1 && count[keys[0]] > 0 { // within the last of an array of tables
				keys[0] += "." + strconv.Itoa(count[keys[0]]-1)
			}
			if table = strings.Join(keys, "."); several {
				count[table]++
				w.note(table, line)
				table += "." + strconv.Itoa(count[table]-1)
			}
			w.note(table, line)
		}
		if w.i == before {
			w.i++ // not valid TOML
		}
	}
	return w
}

// space skips whitespace and comments.
func (w *walker) space() {
	for ; w.i < len(w.b); w.i++ {
		switch w.b[w.i] {
		case '\n':
			w.line++
		case '#':
			for w.i+1 < len(w.b) && w.b[w.i+1] != '\n' {
				w.i++
			}
		case ' ', '\t', '\r':
		default:
			return
		}
	}
}

// keys reads a dotted key up to an end character or the end of the line.
func (w *walker) keys(end byte) (keys []string) {
	for w.i < len(w.b) {
		switch c := w.b[w.i]; c {
		case end, '\n':
			return keys
		case ' ', '\t', '.', '\r':
			w.i++
		case '"', '\'':
			keys = append(keys, w.text())
		default:
			from := w.i
			for w.i < len(w.b) && !bytes.ContainsRune([]byte(" \t\r\n.=]\"'"), rune(w.b[w.i])) {
				w.i++
			}
			if w.i == from {
				w.i++
			}
			keys = append(keys, string(w.b[from:w.i]))
		}
	}
	return keys
}

// text reads a string, without interpreting escapes.
func (w *walker) text() string {
	from := w.i
	w.i = min(endOfString(w.b, w.i)+1, len(w.b))
	w.line += bytes.Count(w.b[from:w.i], []byte("\n"))
	return strings.Trim(string(w.b[from:w.i]), `"'`)
}

// pair reads a key and its value within a table.
func (w *walker) pair(table string) {
	line, path := w.line, table
	for _, key := range w.keys('=') {
		if path = strings.TrimPrefix(path+"."+key, "."); path != table {
			w.note(path, line)
		}
	}
	if w.i < len(w.b) && w.b[w.i] == '=' {
		w.i++
		w.value(path)
	}
}

// value reads a value. shallowTOML bounds its depth.
func (w *walker) value(path string) {
	w.space()
	if w.i >= len(w.b) {
		return
	}
	switch w.b[w.i] {
	case '"', '\'':
		w.say(path, w.text())
	case '{':
		w.each('}', func(int) { w.pair(path) })
	case '[':
		w.each(']', func(n int) {
			of := path + "." + strconv.Itoa(n)
			w.note(of, w.line)
			w.value(of)
		})
	default:
		for w.i < len(w.b) && !bytes.ContainsRune([]byte(",]}\n#"), rune(w.b[w.i])) {
			w.i++
		}
	}
}

// each reads the comma-separated elements between brackets.
func (w *walker) each(end byte, read func(n int)) {
	w.i++
	for n := 0; ; n++ {
		w.space()
		for w.i < len(w.b) && w.b[w.i] == ',' {
			w.i++
			w.space()
		}
		if w.i >= len(w.b) {
			return
		}
		if w.b[w.i] == end {
			w.i++
			return
		}
		before := w.i
		if read(n); w.i == before {
			w.i++
		}
	}
}
