package text

import (
	"slices"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/parser/internal/clean"
)

// Markup for documentation: what is a heading and what is code is found, so that
// chunks know their place, and the rest is read as it is written.
const (
	mediaRST      = "text/x-rst"    // docutils, "reStructuredText Markup Specification"
	mediaAsciiDoc = "text/asciidoc" // docs.asciidoctor.org, "AsciiDoc Language"
	mediaOrg      = "text/org"      // orgmode.org, "Org Syntax"
)

// maxHeading is from how many bytes on a line is no heading, whatever is around it.
const maxHeading = 500

// markups read the blocks of each.
var markups = map[string]func(*marked){mediaRST: (*marked).rst, mediaAsciiDoc: (*marked).asciiDoc, mediaOrg: (*marked).org}

// marked walks over the lines of a part.
type marked struct {
	lines []string
	at    int
	text  []string // lines of the paragraph so far
	out   []sheaf.Block
	part  int
	// styles are those of the headings so far, in reStructuredText; in Org, that there
	// is a title.
	styles []string
}

func markup(read func(*marked), s string, part int) []sheaf.Block {
	m := &marked{lines: strings.Split(s, "\n"), part: part}
	for i, l := range m.lines {
		m.lines[i] = strings.TrimRight(l, " \t")
	}
	for m.at < len(m.lines) {
		read(m)
	}
	m.end()
	return m.out
}

// line is the line n after the current one; "" behind the last.
func (m *marked) line(n int) string {
	if m.at+n < 0 || m.at+n >= len(m.lines) {
		return ""
	}
	return m.lines[m.at+n]
}

// end ends a paragraph.
func (m *marked) end() {
	m.out = append(m.out, prose(strings.Join(m.text, "\n"), m.part)...)
	m.text = nil
}

func (m *marked) heading(level int, text string) {
	if len(text) > maxHeading {
		m.text = append(m.text, text)
		return
	}
	m.end()
	if text = clean.Line(text); text != "" {
		m.out = append(m.out, sheaf.Block{Kind: sheaf.BlockHeading, Level: min(max(level, 1), 6), Text: text, Page: m.part})
	}
}

// code takes lines until one for which over is true, which is left out if it ends the
// block.
func (m *marked) code(lang string, over func(string) bool) {
	m.end()
	begin := m.at
	for m.at < len(m.lines) && !over(m.lines[m.at]) {
		m.at++
	}
	m.out = append(m.out, code(strings.Join(unindent(m.lines[begin:m.at]), "\n"), lang, m.part)...)
}

// unindent takes away what all lines are indented by.
func unindent(lines []string) []string {
	least := -1
	for _, l := range lines {
		if n := len(l) - len(strings.TrimLeft(l, " \t")); l != "" && (least < 0 || n < least) {
			least = n
		}
	}
	out := slices.Clone(lines)
	for i, l := range out {
		out[i] = l[min(max(least, 0), len(l)):]
	}
	return out
}

// plain takes the current line as text.
func (m *marked) plain() {
	if l := m.line(0); l == "" {
		m.end()
	} else {
		m.text = append(m.text, l)
	}
	m.at++
}

func indented(l string) bool { return l != "" && (l[0] == ' ' || l[0] == '\t') }

// adornment is the character of a line under or over a title in reStructuredText, 0
// for another line.
func adornment(l string) byte {
	if len(l) < 2 || !strings.ContainsRune("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", rune(l[0])) || strings.Trim(l, l[:1]) != "" {
		return 0
	}
	return l[0]
}

// rst reads headings by their adornments, whose styles have levels in the order in
// which they come, and literal blocks.
func (m *marked) rst() {
	l := m.line(0)
	free := m.line(-1) == ""
	if over := adornment(l); over != 0 && free && m.line(1) != "" && adornment(m.line(2)) == over && len(l) >= 3 && adornment(m.line(1)) == 0 {
		m.titled(string([]byte{over, over}), m.line(1))
		m.at += 3
		return
	}
	under := adornment(m.line(1))
	if l != "" && free && !indented(l) && adornment(l) == 0 && under != 0 && len(m.line(1)) >= min(utf8.RuneCountInString(l), 4) {
		m.titled(string(under), l)
		m.at += 2
		return
	}
	if adornment(l) != 0 && len(l) >= 4 && free && m.line(1) == "" { // a line between two sections
		m.at++
		return
	}
	directive, isDirective := strings.CutPrefix(l, ".. ")
	lang, isCode := "", false
	for _, name := range []string{"code-block::", "code::", "sourcecode::"} {
		if rest, ok := strings.CutPrefix(directive, name); ok && isDirective {
			lang, isCode = strings.TrimSpace(rest), true
		}
	}
	if !isCode && !(strings.HasSuffix(l, "::") && !isDirective) {
		m.plain()
		return
	}
	if !isCode {
		if l = strings.TrimSuffix(l, ":"); l != ":" {
			m.text = append(m.text, strings.TrimSpace(l))
		}
	}
	m.at++
	for isCode && strings.HasPrefix(strings.TrimSpace(m.line(0)), ":") { // its options
		m.at++
	}
	for m.line(0) == "" && m.at < len(m.lines) {
		m.at++
	}
	m.code(lang, func(l string) bool { return l != "" && !indented(l) })
}

// titled adds a heading in a style.
func (m *marked) titled(style, title string) {
	at := slices.Index(m.styles, style)
	if at < 0 {
		at = len(m.styles)
		m.styles = append(m.styles, style)
	}
	m.heading(at+1, title)
}

// asciiDoc reads section titles, and listings between lines of dashes, dots or
// backticks. Comments and attributes are not shown to readers.
func (m *marked) asciiDoc() {
	l := m.line(0)
	level := len(l) - len(strings.TrimLeft(l, "="))
	switch {
	case level > 0 && level <= 6 && strings.HasPrefix(l[level:], " "):
		m.heading(level, l[level:])
	case l == "////":
		m.skipTo(l)
	case strings.HasPrefix(l, "//"), isAttribute(l):
	case len(l) >= 4 && (strings.Trim(l, "-") == "" || strings.Trim(l, ".") == "") || strings.HasPrefix(l, "```"):
		lang := strings.TrimPrefix(l, "```")
		if lang == l {
			lang = ""
			if n := len(m.text); n > 0 && strings.HasPrefix(m.text[n-1], "[") {
				_, lang, _ = strings.Cut(strings.Trim(m.text[n-1], "[]"), ",")
				lang, _, _ = strings.Cut(lang, ",")
				m.text = m.text[:n-1]
			}
		}
		fence := l[:min(len(l), 3)]
		m.at++
		m.code(strings.TrimSpace(lang), func(x string) bool { return x == l || fence == "```" && x == fence })
	default:
		m.plain()
		return
	}
	m.at++
}

// isAttribute reports whether a line of AsciiDoc sets an attribute, such as ":toc:".
func isAttribute(l string) bool {
	name, _, ok := strings.Cut(strings.TrimPrefix(l, ":"), ":")
	return ok && len(l) > 2 && l[0] == ':' && name != "" && !strings.ContainsAny(name, " \t`")
}

// skipTo goes to the next line that says so.
func (m *marked) skipTo(end string) {
	for m.at++; m.at < len(m.lines) && !strings.EqualFold(strings.TrimSpace(m.lines[m.at]), end); m.at++ {
	}
}

// org reads headlines and blocks of code. Drawers and comments are not shown to
// readers.
func (m *marked) org() {
	l := m.line(0)
	stars := len(l) - len(strings.TrimLeft(l, "*"))
	key, value, _ := strings.Cut(strings.TrimSpace(l), " ")
	switch key = strings.ToLower(key); {
	case stars > 0 && strings.HasPrefix(l[stars:], " "):
		m.heading(stars+len(m.styles), l[stars:])
	case key == "#+title:":
		m.styles = []string{key} // headlines stand below it
		m.heading(1, value)
	case key == ":properties:", key == ":logbook:":
		m.skipTo(":end:")
	case key == "#":
	case key == "#+begin_src", key == "#+begin_example":
		lang, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		end := "#+end_" + strings.TrimPrefix(key, "#+begin_")
		m.at++
		m.code(lang, func(x string) bool { return strings.EqualFold(strings.TrimSpace(x), end) })
	default:
		m.plain()
		return
	}
	m.at++
}
