package odf

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"sheaf"
	"sheaf/parser/internal/shown"
	"sheaf/parser/internal/xmlscan"
	"sheaf/parser/internal/zipfile"
)

// Limits that only hostile files reach.
const (
	maxStyles = 20_000
	maxLevels = 10 // of lists, by the standard
	maxChain  = 12 // of styles based on others; cycles end here
	maxCount  = 1 << 30
	maxLength = 1e6
)

// style holds what a style says about its paragraphs or spans.
type style struct {
	kind   sheaf.BlockKind
	level  int // of a heading, 0 for none
	hidden bool
	head   bool   // of a table
	list   string // name of the list style
	base   string

	symbols string // font whose characters are symbols, "" for others
}

// styles are those of a file by family and name: paragraphs and spans may share names.
type styles struct {
	of      map[string]style
	lists   map[string]*listStyle
	outline *listStyle        // numbers the headings, nil for none
	layouts map[string]size   // of pages
	masters map[string]string // layout of the pages of a master
}

// size is that of a page, in points.
type size struct{ width, height float64 }

func newStyles() *styles {
	return &styles{of: map[string]style{}, lists: map[string]*listStyle{}, layouts: map[string]size{}, masters: map[string]string{}}
}

// listStyle is how the levels of a list are numbered, from 0.
type listStyle struct{ levels [maxLevels]listLevel }

type listLevel struct {
	format         string // of package shown, "" for no number
	prefix, suffix string
	levels         int    // how many levels the number shows, ≥ 1
	pattern        string // "%1%.%2%.", which says all of it
	start          int
}

// escaped is a character that the name of a style cannot have.
var escaped = regexp.MustCompile(`_([0-9a-f]{2,4})_`)

// display is a style's name as people see it, in small letters.
func display(name string) string {
	name = escaped.ReplaceAllStringFunc(name, func(s string) string {
		v, err := strconv.ParseUint(strings.Trim(s, "_"), 16, 16)
		if err != nil {
			return s
		}
		return string(rune(v))
	})
	return strings.ToLower(strings.TrimSpace(name))
}

var headingName = regexp.MustCompile(`^heading ([1-9])$`)

// named is what the name of one of LibreOffice's own styles says. They have English
// names in every language.
func named(name string) (kind sheaf.BlockKind, level int) {
	switch name {
	case "title":
		return "", 1
	case "caption", "illustration", "table", "drawing", "figure":
		return sheaf.BlockCaption, 0
	case "quotations", "quote", "block quotation", "blockquote":
		return sheaf.BlockQuote, 0
	case "preformatted text", "source code", "source text", "code", "html preformatted", "plain text":
		return sheaf.BlockCode, 0
	}
	if m := headingName.FindStringSubmatch(name); m != nil {
		return "", int(m[1][0] - '0')
	}
	return "", 0
}

// read adds the styles of a part, which stand before its text. What cannot be read is
// left out.
func (s *styles) read(z *zipfile.Archive, part string) {
	p, err := z.Part(part, zipfile.MaxPartBytes)
	if err != nil {
		return
	}
	defer p.Close()
	key, cur, layout := "", style{}, ""
	var list *listStyle
	for x := xmlscan.New(p); len(s.of) < maxStyles && len(s.lists) < maxStyles; {
		k, err := x.Next()
		if err != nil || k == xmlscan.EOF {
			return
		}
		switch el := string(x.Name()); {
		case k == xmlscan.End && el == "style" && key != "":
			s.of[key] = cur
			key = ""
		case k == xmlscan.End && (el == "list-style" || el == "outline-style"):
			list = nil
		case k != xmlscan.Start:
		case el == "body":
			return
		case el == "style":
			name, family := x.Attr("name"), x.Attr("family")
			key = family + "/" + name
			cur = style{base: family + "/" + x.Attr("parent-style-name"), list: x.Attr("list-style-name")}
			if family == "paragraph" {
				seen := cmp.Or(display(x.Attr("display-name")), display(name))
				cur.kind, cur.level = named(seen)
				cur.head = seen == "table heading"
				if v, err := strconv.Atoi(x.Attr("default-outline-level")); err == nil && v > 0 && v <= maxLevels {
					cur.level = v
				}
			}
		case el == "text-properties" && key != "":
			cur.hidden = cur.hidden || x.Attr("display") == "none"
			if font := x.Attr("font-name"); shown.HasSymbols(font) {
				cur.symbols = font
			}
		case el == "drawing-page-properties" && key != "":
			cur.hidden = x.Attr("visibility") == "hidden"
		case el == "table-properties" && key != "":
			cur.hidden = x.Attr("display") == "false"
		case el == "page-layout":
			layout = x.Attr("name")
		case el == "page-layout-properties" && len(s.layouts) < maxStyles:
			s.layouts[layout] = size{length(x.Attr("page-width")), length(x.Attr("page-height"))}
		case el == "master-page" && len(s.masters) < maxStyles:
			s.masters[x.Attr("name")] = x.Attr("page-layout-name")
		case el == "list-style":
			list = &listStyle{}
			s.lists[x.Attr("name")] = list
		case el == "outline-style":
			list = &listStyle{}
			s.outline = list
		case list != nil && (el == "list-level-style-number" || el == "outline-level-style"):
			if at, err := strconv.Atoi(x.Attr("level")); err == nil && at >= 1 && at <= maxLevels {
				list.levels[at-1] = levelOf(x)
			}
		}
	}
}

// numberFormats maps formats of numbers to those of package shown; others that are not
// empty begin with the first of their numbers.
var numberFormats = map[string]string{"": "", "1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}

func levelOf(x *xmlscan.Scanner) listLevel {
	format := x.Attr("num-format")
	l := listLevel{prefix: x.Attr("num-prefix"), suffix: x.Attr("num-suffix"), levels: 1, pattern: x.Attr("num-list-format"), start: 1}
	known := false
	if l.format, known = numberFormats[format]; !known {
		switch {
		case strings.HasPrefix(format, "一"):
			l.format = "chineseCounting"
		case strings.HasPrefix(format, "①"):
			l.format = "decimalEnclosedCircle"
		default:
			l.format = "decimal"
		}
	}
	if v, err := strconv.Atoi(x.Attr("display-levels")); err == nil && v > 1 {
		l.levels = min(v, maxLevels)
	}
	if v, err := strconv.Atoi(x.Attr("start-value")); err == nil && v >= 0 && v < maxCount {
		l.start = v
	}
	return l
}

// find resolves a style with those it is based on.
func (s *styles) find(family, name string) style {
	out, known := s.of[family+"/"+name]
	for base, n := out.base, 0; known && n < maxChain; n++ {
		var b style
		if b, known = s.of[base]; known {
			if out.kind == "" && out.level == 0 {
				out.kind, out.level = b.kind, b.level
			}
			out.hidden, out.head = out.hidden || b.hidden, out.head || b.head
			out.list, out.symbols = cmp.Or(out.list, b.list), cmp.Or(out.symbols, b.symbols)
			base = b.base
		}
	}
	return out
}

// counter counts the items of a list on its levels.
type counter struct {
	counts [maxLevels]int
	begun  [maxLevels]bool
}

// next counts an item on a level, from 0. start ≥ 0 is its own number.
func (c *counter) next(l *listStyle, at, start int) {
	switch {
	case start >= 0:
		c.counts[at] = start
	case c.begun[at]:
		c.counts[at] = min(c.counts[at]+1, maxCount)
	default:
		c.counts[at] = l.start(at)
	}
	c.begun[at] = true
	for i := at + 1; i < maxLevels; i++ {
		c.begun[i] = false
	}
}

func (l *listStyle) start(at int) int {
	if l == nil {
		return 1
	}
	return l.levels[at].start
}

// label is what is shown before an item, "" for a bullet and for none.
func (c *counter) label(l *listStyle, at int) string {
	if l == nil || l.levels[at].format == "" {
		return ""
	}
	here := l.levels[at]
	number := func(i int) string {
		if l.levels[i].format == "" {
			return ""
		}
		n := c.counts[i]
		if !c.begun[i] {
			n = l.levels[i].start
		}
		return shown.Number(l.levels[i].format, n)
	}
	var b strings.Builder
	if here.pattern != "" {
		for text := here.pattern; text != ""; {
			if i, rest, ok := place(text); ok {
				b.WriteString(number(min(i, at)))
				text = rest
				continue
			}
			b.WriteByte(text[0])
			text = text[1:]
		}
	} else {
		b.WriteString(here.prefix)
		dot := ""
		for i := max(at-here.levels+1, 0); i <= at; i++ {
			if n := number(i); n != "" {
				b.WriteString(dot + n)
				dot = "."
			}
		}
		b.WriteString(here.suffix)
	}
	label := strings.Join(strings.Fields(strings.ToValidUTF8(b.String(), "")), " ")
	if len(label) > 100 || !strings.ContainsFunc(label, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
		return ""
	}
	return label
}

// place reads "%3%" at the start of a pattern, as level 2.
func place(text string) (at int, rest string, ok bool) {
	digits, ok := strings.CutPrefix(text, "%")
	if !ok {
		return 0, "", false
	}
	digits, rest, ok = strings.Cut(digits, "%")
	if !ok {
		return 0, "", false
	}
	n, err := strconv.Atoi(digits)
	return n - 1, rest, err == nil && n >= 1 && n <= maxLevels
}

// units are lengths in points (part 3, 18.3.18).
var units = map[string]float64{"cm": 72 / 2.54, "mm": 72 / 25.4, "in": 72, "pt": 1, "pc": 12, "px": 0.75}

// length reads a length in points, 0 for none.
func length(s string) float64 {
	if len(s) < 3 {
		return 0
	}
	v, err := strconv.ParseFloat(s[:len(s)-2], 64)
	if unit := units[s[len(s)-2:]]; err == nil && v > -maxLength && v < maxLength {
		return v * unit
	}
	return 0
}
