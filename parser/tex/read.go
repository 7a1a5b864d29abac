package tex

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/grid"
	"sheaf/parser/internal/shown"
)

// Commands by treatment. For commands in no list, the name is dropped and the text
// in its braces stays.
var (
	// dropped commands are removed with everything in the brackets and braces after
	// them.
	dropped = set(`documentclass usepackage RequirePackage newcommand renewcommand providecommand DeclareRobustCommand newenvironment renewenvironment newtheorem theoremstyle
		DeclareMathOperator newcounter setcounter addtocounter setlength addtolength newlength definecolor hypersetup lstset tikzset pgfplotsset usetikzlibrary geometry pagestyle
		thispagestyle pagenumbering bibliographystyle graphicspath vspace hspace vskip hskip color label index markboth markright phantom hphantom vphantom cline cmidrule addlinespace
		rowcolor cellcolor columncolor arrayrulecolor captionsetup setstretch linespread fontsize selectlanguage PassOptionsToPackage lstdefinestyle hyphenation nocite fancyhead fancyfoot
		lhead rhead chead lfoot rfoot cfoot titleformat titlespacing setbeamertemplate usetheme usecolortheme setbeamercolor setbeamerfont addbibresource ifthenelse today rule`)
	// first commands lose their first argument, which is the style of the second.
	first = set("textcolor colorbox raisebox scalebox resizebox parbox foreignlanguage makebox framebox rotatebox")
	// followed commands name files that are not followed.
	followed = set("input include subfile import subimport includepdf bibliography lstinputlisting verbatiminput inputminted")
	cites    = set("cite citep citet citealp citeauthor citeyear parencite textcite autocite footcite ref eqref cref Cref autoref pageref nameref vref")
	// raw environments are kept verbatim, and formulas with their markup.
	raw      = set("verbatim verbatim* Verbatim lstlisting minted alltt")
	formulas = set("equation equation* align align* gather gather* multline multline* eqnarray eqnarray* displaymath math flalign flalign* alignat alignat* IEEEeqnarray IEEEeqnarray* dmath dmath*")
	lost     = set("comment tikzpicture pgfpicture picture filecontents filecontents* CCSXML")
	tabulars = set("tabular tabular* tabularx tabulary longtable longtable* supertabular tabu longtabu")
	// arguments counts the braced arguments of other environments.
	arguments = map[string]int{"minipage": 1, "multicols": 1, "multicols*": 1, "wrapfigure": 2, "wraptable": 2, "subfigure": 1, "subtable": 1, "adjustbox": 1, "column": 1, "tabular*": 2, "tabularx": 2, "tabulary": 2,
		"tabular": 1, "longtable": 1, "longtable*": 1, "supertabular": 1, "tabu": 1, "longtabu": 1, "thebibliography": 1, "spacing": 1, "list": 2, "otherlanguage": 1}
	sections = map[string]int{"part": 0, "chapter": 0, "section": 1, "subsection": 2, "subsubsection": 3, "paragraph": 4, "subparagraph": 5}
	signs    = map[string]string{"ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "ı", "j": "ȷ", "S": "§", "P": "¶", "copyright": "©",
		"pounds": "£", "euro": "€", "EUR": "€", "dots": "…", "ldots": "…", "textellipsis": "…", "LaTeX": "LaTeX", "LaTeXe": "LaTeX2e", "TeX": "TeX", "BibTeX": "BibTeX", "textbackslash": `\`, "textasciitilde": "~",
		"textasciicircum": "^", "textendash": "–", "textemdash": "—", "textbar": "|", "textless": "<", "textgreater": ">", "textdegree": "°", "degree": "°", "guillemotleft": "«", "guillemotright": "»",
		"textquotedblleft": "“", "textquotedblright": "”", "quad": " ", "qquad": " ", "newline": "\n", "linebreak": "\n", "textbullet": "•", "texttrademark": "™", "textregistered": "®", "slash": "/", "and": ", ", "enspace": " "}
	accents = map[string]rune{"`": 0x300, "'": 0x301, "^": 0x302, "~": 0x303, "=": 0x304, "u": 0x306, ".": 0x307, `"`: 0x308, "r": 0x30a, "H": 0x30b, "v": 0x30c, "d": 0x323, "c": 0x327, "k": 0x328, "b": 0x331}
)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// maxOption is the maximum length of an option in brackets, in bytes.
const maxOption = 1 << 10

type reader struct {
	s        string
	pos      int
	depth    int            // nesting of argument readers
	match    []int32        // offset of the "}" for each "{" in s, 0 for none
	found    map[string]int // the next offset of each closer; see find
	chapters bool

	out      []sheaf.Block
	cur      strings.Builder
	kind     sheaf.BlockKind
	level    int
	numbered []int // of each list that is open: the number of its last item, -1 for no numbers
	open     []environment
	table    *table
	notes    []string
	metadata map[string]string
	included int
	images   int
	cut      bool
}

type environment struct {
	name    string
	kind    sheaf.BlockKind
	level   int
	from    int    // number of blocks before it
	caption string // of a table, used as its name
}

type cell struct {
	text         string
	across, down int
}

type table struct {
	rows         [][]cell
	row          []cell
	across, down int
	head         int // rows of the header, -1 while unknown
	nested       int // nested tables, which are read as text
	caption      string
}

func newReader(s string, metadata map[string]string) *reader {
	r := &reader{s: s, match: make([]int32, len(s)), found: map[string]int{}, metadata: metadata, chapters: strings.Contains(s, `\chapter`)}
	r.matchBraces()
	return r
}

// matchBraces finds the end of each group. Braces and percent signs outside markup,
// as in listings and URLs, do not count.
func (r *reader) matchBraces() {
	var open []int
	for i := 0; i < len(r.s); i++ {
		switch r.s[i] {
		case '\\':
			i = r.literal(i + 1)
		case '%':
			for i+1 < len(r.s) && r.s[i+1] != '\n' {
				i++
			}
		case '{':
			open = append(open, i)
		case '}':
			if n := len(open); n > 0 {
				r.match[open[n-1]] = int32(i)
				open = open[:n-1]
			}
		}
	}
}

// literal returns the last offset of the verbatim text belonging to the command
// whose name begins at i.
func (r *reader) literal(i int) int {
	rest := r.s[min(i, len(r.s)):]
	for _, name := range []string{"url{", "href{", "path{", "nolinkurl{"} {
		if strings.HasPrefix(rest, name) {
			from := i + len(name) - 1
			if end := strings.IndexAny(rest[len(name):min(len(rest), maxOption)], "}\n"); end >= 0 && rest[len(name)+end] == '}' {
				r.match[from] = int32(from + 1 + end)
				return from + 1 + end
			}
		}
	}
	if strings.HasPrefix(rest, "verb") && len(rest) > 5 {
		at := 4
		if rest[at] == '*' {
			at++
		}
		if c := rest[at]; c < 'A' || c == '|' {
			if end := strings.IndexByte(rest[at+1:min(len(rest), at+maxOption)], c); end >= 0 {
				return i + at + 1 + end
			}
		}
	}
	if env, ok := strings.CutPrefix(rest, "begin{"); ok {
		env, _, whole := strings.Cut(env[:min(len(env), 20)], "}")
		if whole && (raw[env] || lost[env]) {
			end := strings.Index(rest, `\end{`+env+"}")
			if end < 0 {
				end = len(rest)
			}
			r.match[i+len("begin")] = int32(i + len("begin{") + len(env))
			// The language of a listing is in braces.
			if listing := rest[:end]; env == "minted" {
				if at := strings.IndexByte(listing[len("begin{minted}"):], '{'); at >= 0 {
					at += len("begin{minted}")
					if end := strings.IndexByte(listing[at:], '}'); end >= 0 {
						r.match[i+at] = int32(i + at + end)
					}
				}
			}
			return i + end - 1
		}
	}
	return i
}

func (r *reader) warnings() []sheaf.Warning {
	var out []sheaf.Warning
	if r.included > 0 {
		out = append(out, sheaf.Warning{Code: "inputs_ignored", Message: fmt.Sprintf("Other files that the source includes (%d) were not followed; upload them as well.", r.included)})
	}
	if r.images > 0 {
		out = append(out, sheaf.Warning{Code: "images_ignored", Message: fmt.Sprintf("Pictures (%d) were left out: they are files of their own.", r.images)})
	}
	if r.cut {
		out = append(out, sheaf.Warning{Code: "markup_too_deep", Message: fmt.Sprintf("Commands or environments are nested more than %d deep; what lies deeper was read without structure.", maxDepth)})
	}
	return out
}

func (r *reader) read(ctx context.Context) error {
	for n := 0; r.pos < len(r.s); n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r.step()
	}
	r.flush()
	for r.table != nil {
		r.endTable()
	}
	return nil
}

// step reads one command, symbol or run of letters.
func (r *reader) step() {
	rest := r.s[r.pos:]
	for _, sign := range [...][2]string{{"---", "—"}, {"--", "–"}, {"``", "“"}, {"''", "”"}} {
		if strings.HasPrefix(rest, sign[0]) {
			r.cur.WriteString(sign[1])
			r.pos += len(sign[0])
			return
		}
	}
	switch c := rest[0]; c {
	case '\\':
		r.command()
	case '%':
		r.comment()
	case '{', '}':
		r.pos++
	case '~':
		r.cur.WriteByte(' ')
		r.pos++
	case '$':
		mark := "$"
		if strings.HasPrefix(rest, "$$") {
			mark = "$$"
		}
		r.formula(mark, mark)
	case '\n':
		end := r.pos + len(rest) - len(strings.TrimLeft(rest, " \t\n"))
		if strings.Count(r.s[r.pos:end], "\n") > 1 && r.table == nil {
			r.flush()
		}
		r.cur.WriteByte(' ')
		r.pos = end
	case '&':
		r.pos++
		switch {
		case r.table == nil:
			r.cur.WriteByte('&')
		case r.table.nested > 0:
			r.cur.WriteString(" | ")
		default:
			r.endCell()
		}
	default:
		n := strings.IndexAny(rest, "\\%{}~$\n&-`'")
		if n < 0 {
			n = len(rest)
		}
		r.cur.WriteString(rest[:max(n, 1)])
		r.pos += max(n, 1)
	}
}

// comment drops the rest of the line and the next line's leading white space.
func (r *reader) comment() {
	i := strings.IndexByte(r.s[r.pos:], '\n')
	if i < 0 {
		r.pos = len(r.s)
		return
	}
	r.pos += i + 1
	for r.pos < len(r.s) && (r.s[r.pos] == ' ' || r.s[r.pos] == '\t') {
		r.pos++
	}
}

// find returns the offset of the next closer after pos, -1 if there is none. The
// offset is cached: it is requested repeatedly.
func (r *reader) find(closer string) int {
	at, known := r.found[closer]
	if known && (at < 0 || at >= r.pos) {
		return at
	}
	at = strings.Index(r.s[r.pos:], closer)
	if at >= 0 {
		at += r.pos
	}
	r.found[closer] = at
	return at
}

// maxFormula is the maximum length of a formula: if its end is missing, the next
// one's would match.
const maxFormula = 16 << 10

// formula keeps the text between the marks verbatim, including the marks. A
// displayed one is a paragraph of its own.
func (r *reader) formula(from, to string) {
	start := r.pos
	r.pos += len(from)
	end := r.find(to)
	if end < 0 || end-start > maxFormula || to == "$" && strings.Contains(r.s[start:end], "\n\n") {
		r.cur.WriteString(from)
		return
	}
	text := r.s[start : end+len(to)]
	r.pos = end + len(to)
	inline := to == "$" || to == `\)` || r.table != nil
	if !inline && r.kind == "" {
		r.flush()
	}
	r.cur.WriteString(text)
	if !inline && r.kind == "" {
		r.flush()
	}
}

// argument returns the content of the braces at pos; ok is false if there are none.
func (r *reader) argument() (string, bool) {
	at := r.pos
	for at < len(r.s) && (r.s[at] == ' ' || r.s[at] == '\n' || r.s[at] == '\t') && at-r.pos < 100 {
		at++
	}
	if at >= len(r.s) || r.s[at] != '{' || r.match[at] == 0 {
		return "", false
	}
	r.pos = int(r.match[at]) + 1
	return r.s[at+1 : r.match[at]], true
}

// option returns the content of the brackets at pos, "" if there are none.
func (r *reader) option() string {
	if r.pos >= len(r.s) || r.s[r.pos] != '[' {
		return ""
	}
	end := min(len(r.s), r.pos+maxOption)
	deep := 0
	for i := r.pos + 1; i < end; i++ {
		switch c := r.s[i]; {
		case c == '{':
			deep++
		case c == '}':
			deep--
		case c == ']' && deep <= 0:
			text := r.s[r.pos+1 : i]
			r.pos = i + 1
			return text
		}
	}
	return ""
}

// words returns the text of an argument on one line. Footnotes in it are collected.
func (r *reader) words(s string) string {
	if r.depth >= maxDepth/4 || !strings.ContainsAny(s, "\\%{}~$-`'\n") {
		r.cut = r.cut || r.depth >= maxDepth/4
		return clean.Line(s)
	}
	in := newReader(s, r.metadata)
	in.depth, in.kind, in.chapters = r.depth+1, sheaf.BlockParagraph, r.chapters
	for in.pos < len(in.s) {
		in.step()
	}
	r.notes = append(r.notes, in.notes...)
	r.images += in.images
	r.included += in.included
	r.cut = r.cut || in.cut
	for in.table != nil {
		in.endTable()
	}
	in.flush()
	parts := make([]string, 0, len(in.out))
	for _, b := range in.out {
		if b.Table != nil {
			b.Text = grid.Plain(b.Table)
		}
		parts = append(parts, b.Text)
	}
	return clean.Line(strings.Join(parts, " "))
}

// flush ends the current block, followed by its footnotes.
func (r *reader) flush() {
	if r.table != nil {
		return
	}
	text := norm.NFC.String(clean.Lines(r.cur.String()))
	r.cur.Reset()
	kind := r.kind
	if kind == "" {
		kind = sheaf.BlockParagraph
	}
	if text != "" {
		r.out = append(r.out, sheaf.Block{Kind: kind, Level: r.level, Text: text})
	}
	if r.depth > 0 {
		return
	}
	for _, n := range r.notes {
		r.out = append(r.out, sheaf.Block{Kind: sheaf.BlockFootnote, Text: n})
	}
	r.notes = nil
}

func (r *reader) add(b sheaf.Block) {
	r.flush()
	if b.Text = norm.NFC.String(b.Text); strings.TrimSpace(b.Text) != "" {
		r.out = append(r.out, b)
	}
}

// command reads a command, which begins with a backslash.
func (r *reader) command() {
	r.pos++
	if r.pos >= len(r.s) {
		return
	}
	end := r.pos
	for end < len(r.s) && (r.s[end] >= 'a' && r.s[end] <= 'z' || r.s[end] >= 'A' && r.s[end] <= 'Z' || r.s[end] == '@') {
		end++
	}
	if end == r.pos {
		_, n := utf8.DecodeRuneInString(r.s[r.pos:])
		name := r.s[r.pos : r.pos+n]
		r.pos += n
		r.symbol(name)
		return
	}
	name := r.s[r.pos:end]
	r.pos = end
	if r.pos < len(r.s) && r.s[r.pos] == '*' {
		r.pos++
	}
	if _, accent := accents[name]; accent && r.accent(name) {
		return
	}
	if sign, ok := signs[name]; ok {
		r.cur.WriteString(sign)
		r.blank()
		return
	}
	if level, ok := sections[name]; ok {
		_ = r.option() // the short title of the table of contents
		if title, ok := r.argument(); ok {
			if r.chapters || level == 0 {
				level++
			}
			text := r.words(title)
			r.leave()
			r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: min(level, 6), Text: text})
		}
		return
	}
	switch {
	case dropped[name]:
		r.skipArguments()
	case first[name]:
		_ = r.option() // its style
		_, _ = r.argument()
		if name == "resizebox" {
			_, _ = r.argument()
		}
	case followed[name]:
		r.included++
		r.skipArguments()
	case cites[name]:
		for r.option() != "" {
		}
		if key, ok := r.argument(); ok {
			r.cur.WriteString("[" + clean.Line(key) + "]")
		}
	default:
		r.other(name)
	}
}

// other reads the commands that need individual treatment.
func (r *reader) other(name string) {
	switch name {
	case "begin":
		if env, ok := r.argument(); ok {
			r.begin(strings.TrimSpace(env))
		}
	case "end":
		if env, ok := r.argument(); ok {
			r.end(strings.TrimSpace(env))
		}
	case "par":
		r.flush()
	case "item", "bibitem":
		r.item(name)
	case "title", "author", "date", "frametitle":
		_ = r.option() // a short form
		if arg, ok := r.argument(); ok {
			text := r.words(arg)
			if name == "frametitle" {
				r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: 2, Text: text})
			} else if text != "" {
				text = strings.ReplaceAll(text, " , ", ", ") // of several authors
				r.metadata[map[string]string{"title": "title", "author": "author", "date": "created"}[name]] = clean.Clip(text, 1000)
			}
		}
	case "maketitle":
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: r.metadata["title"]})
		r.add(sheaf.Block{Kind: sheaf.BlockParagraph, Text: r.metadata["author"]})
	case "caption", "captionof":
		if name == "captionof" {
			_, _ = r.argument()
		}
		_ = r.option() // the short form
		if arg, ok := r.argument(); ok {
			r.caption(r.words(arg))
		}
	case "footnote", "footnotetext", "thanks":
		_ = r.option() // its number
		if arg, ok := r.argument(); ok {
			if text := r.words(arg); text != "" {
				r.notes = append(r.notes, norm.NFC.String(text))
			}
		}
	case "href":
		address, _ := r.argument()
		if arg, ok := r.argument(); ok {
			r.cur.WriteString(r.words(arg) + " (" + clean.Line(address) + ")")
		}
	case "url", "path", "nolinkurl":
		if arg, ok := r.argument(); ok {
			r.cur.WriteString(clean.Line(arg))
		}
	case "includegraphics", "epsfig":
		r.images++
		r.skipArguments()
	case "verb", "lstinline", "mintinline":
		r.verb(name)
	case "def", "gdef", "edef", "let":
		r.definition(name)
	case "iffalse":
		if end := r.find(`\fi`); end >= 0 {
			r.pos = end + len(`\fi`)
		}
	case "multicolumn", "multirow":
		_ = r.option() // its place
		n, _ := r.argument()
		_, _ = r.argument()
		span, _ := strconv.Atoi(strings.TrimSpace(n))
		if t := r.table; t != nil && t.nested == 0 {
			if name == "multicolumn" {
				t.across = min(max(span, 1), grid.MaxColumns)
			} else {
				t.down = min(max(span, 1), 1000)
			}
		}
	case "tabularnewline":
		r.newline()
	case "hline", "midrule", "toprule", "bottomrule", "endhead", "endfirsthead", "endfoot", "endlastfoot":
		r.rule(name)
	default:
		_ = r.option()
		r.blank()
	}
}

// blank skips the white space that ends a command's name.
func (r *reader) blank() {
	for r.pos < len(r.s) && (r.s[r.pos] == ' ' || r.s[r.pos] == '\t') {
		r.pos++
	}
}

func (r *reader) skipArguments() {
	for {
		if r.pos < len(r.s) && r.s[r.pos] == '(' { // of cmidrule
			if end := strings.IndexByte(r.s[r.pos:min(len(r.s), r.pos+20)], ')'); end > 0 {
				r.pos += end + 1
				continue
			}
		}
		at := r.pos
		_ = r.option()
		if r.pos == at {
			if r.pos >= len(r.s) || r.s[r.pos] != '{' {
				return
			}
			if _, ok := r.argument(); !ok {
				return
			}
		}
	}
}

// definition skips a macro definition: name, parameters and body.
func (r *reader) definition(name string) {
	end := min(len(r.s), r.pos+200)
	if name == "let" {
		if i := strings.IndexByte(r.s[r.pos:end], '\n'); i >= 0 {
			r.pos += i
		}
		return
	}
	if i := strings.IndexByte(r.s[r.pos:end], '{'); i >= 0 {
		r.pos += i
		_, _ = r.argument()
	}
}

// symbol reads a command whose name is a symbol.
func (r *reader) symbol(name string) {
	switch name {
	case `\`:
		if r.pos < len(r.s) && r.s[r.pos] == '*' {
			r.pos++
		}
		_ = r.option() // the space below the line
		r.newline()
	case "[":
		r.pos -= len(`\[`)
		r.formula(`\[`, `\]`)
	case "(":
		r.pos -= len(`\(`)
		r.formula(`\(`, `\)`)
	case "/", "-", "@", "]", ")", "!":
	case ",", ";", ":", " ", "\n", "\t":
		r.cur.WriteByte(' ')
	default:
		if _, ok := accents[name]; ok && r.accent(name) {
			return
		}
		r.cur.WriteString(name)
	}
}

// accent combines an accent with the following letter, in braces or not.
func (r *reader) accent(name string) bool {
	at := r.pos
	if letter := name[0] >= 'A' && name[0] <= 'Z' || name[0] >= 'a' && name[0] <= 'z'; letter {
		r.blank()
	}
	base, ok := "", false
	if r.pos < len(r.s) && r.s[r.pos] == '{' {
		base, ok = r.argument()
	} else if r.pos < len(r.s) && (name[0] < 'A' || r.pos > at) {
		_, n := utf8.DecodeRuneInString(r.s[r.pos:])
		if base = r.s[r.pos : r.pos+n]; base == `\` && strings.HasPrefix(r.s[r.pos:], `\i`) {
			base, n = "i", 2
		}
		r.pos += n
		ok = true
	}
	if base == `\i` || base == `\j` {
		base = base[1:]
	}
	if !ok || utf8.RuneCountInString(base) != 1 || base[0] < 'A' {
		r.pos = at
		return false
	}
	r.cur.WriteString(base + string(accents[name]))
	return true
}

func (r *reader) newline() {
	if t := r.table; t != nil && t.nested == 0 {
		r.endCell()
		t.rows, t.row = append(t.rows, t.row), nil
		return
	}
	r.cur.WriteByte('\n')
}

func (r *reader) verb(name string) {
	_ = r.option()
	if name == "mintinline" {
		_, _ = r.argument()
	}
	if r.pos >= len(r.s) {
		return
	}
	if name != "verb" && r.s[r.pos] == '{' {
		if arg, ok := r.argument(); ok {
			r.cur.WriteString(clean.Line(arg))
			return
		}
	}
	_, n := utf8.DecodeRuneInString(r.s[r.pos:])
	mark, line := r.s[r.pos:r.pos+n], r.s[r.pos+n:min(len(r.s), r.pos+maxOption)]
	if end := strings.Index(line, mark); end >= 0 && !strings.Contains(line[:end], "\n") {
		r.cur.WriteString(line[:end])
		r.pos += 2*n + end
	}
}

// caption adds a caption to the enclosing table, or as a block of its own.
func (r *reader) caption(text string) {
	if r.table != nil {
		r.table.caption = text
		return
	}
	for i := len(r.open) - 1; i >= 0; i-- {
		if e := &r.open[i]; strings.HasPrefix(e.name, "table") || e.name == "sidewaystable" || e.name == "wraptable" {
			e.caption = strings.TrimSpace(e.caption + " " + text)
			return
		}
	}
	r.add(sheaf.Block{Kind: sheaf.BlockCaption, Text: text})
}

// number counts an item of a numbered list and returns what LaTeX's classes put before
// it, "" in any other list.
func (r *reader) number() string {
	at := len(r.numbered) - 1
	if at < 0 || r.numbered[at] < 0 {
		return ""
	}
	r.numbered[at]++
	depth := 0
	for _, n := range r.numbered[:at] {
		if n >= 0 {
			depth++
		}
	}
	switch n := r.numbered[at]; depth {
	case 1:
		return "(" + shown.Number("lowerLetter", n) + ") "
	case 2:
		return shown.Number("lowerRoman", n) + ". "
	case 3:
		return shown.Number("upperLetter", n) + ". "
	default:
		return shown.Number("decimal", n) + ". "
	}
}

func (r *reader) item(name string) {
	r.flush()
	if r.table == nil {
		r.kind, r.level = sheaf.BlockListItem, min(max(len(r.numbered), 1), 9)
	}
	if label := r.option(); label != "" && name == "item" {
		r.cur.WriteString(r.words(label) + " ")
	} else if name == "item" {
		r.cur.WriteString(r.number())
	}
	if name == "bibitem" {
		if key, ok := r.argument(); ok {
			r.cur.WriteString("[" + clean.Line(key) + "] ")
		}
	}
}

// leave ends the lists left open before a section's heading.
func (r *reader) leave() {
	r.flush()
	if r.depth == 0 {
		r.kind, r.level = "", 0
	}
}

func (r *reader) begin(env string) {
	switch {
	case env == "document":
		r.cur.Reset()
		r.out, r.notes = nil, nil
		return
	case lost[env], raw[env], formulas[env]:
		r.verbatim(env)
		return
	}
	if len(r.open) >= maxDepth {
		r.cut = true
		return
	}
	r.flush()
	r.open = append(r.open, environment{name: env, kind: r.kind, level: r.level, from: len(r.out)})
	label := r.option()
	for range arguments[env] {
		_, _ = r.argument()
	}
	switch env {
	case "itemize", "enumerate", "description", "compactitem", "compactenum", "inparaenum", "list":
		r.numbered = append(r.numbered, -1)
		if strings.Contains(env, "enum") {
			r.numbered[len(r.numbered)-1] = 0
		}
	case "quote", "quotation", "verse", "displayquote":
		r.kind, r.level = sheaf.BlockQuote, 0
	case "abstract":
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: "Abstract"})
	case "thebibliography":
		r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: "References"})
	case "frame":
		if title, ok := r.argument(); ok {
			r.add(sheaf.Block{Kind: sheaf.BlockHeading, Level: 2, Text: r.words(title)})
		}
	case "theorem", "lemma", "definition", "proof", "corollary", "proposition", "remark", "example":
		r.cur.WriteString(strings.ToUpper(env[:1]) + env[1:])
		if label != "" {
			r.cur.WriteString(" (" + r.words(label) + ")")
		}
		r.cur.WriteString(". ")
	}
	if tabulars[env] {
		if r.table != nil {
			r.table.nested++
			return
		}
		r.table = &table{head: -1, across: 1, down: 1}
	}
}

// verbatim reads an environment without commands.
func (r *reader) verbatim(env string) {
	start := r.pos
	option := r.option()
	language := ""
	if env == "minted" {
		language, _ = r.argument()
	}
	if _, after, ok := strings.Cut(option, "language="); ok {
		language, _, _ = strings.Cut(after, ",")
	}
	if formulas[env] {
		r.pos = start
	}
	closer := `\end{` + env + `}`
	end := r.find(closer)
	if end < 0 {
		end = len(r.s)
	}
	body := r.s[r.pos:end]
	r.pos = min(len(r.s), end+len(closer))
	switch {
	case lost[env]:
	case r.depth > 0 || r.table != nil:
		r.cur.WriteString(body)
	case formulas[env]:
		r.add(sheaf.Block{Kind: sheaf.BlockParagraph, Text: `\begin{` + env + "}\n" + clean.Lines(body) + "\n" + closer})
	default:
		r.add(sheaf.Block{Kind: sheaf.BlockCode, Text: strings.Trim(body, "\n"), Lang: strings.ToLower(clean.Line(clean.Clip(strings.Trim(language, "{} "), 40)))})
	}
}

func (r *reader) end(env string) {
	if env == "document" {
		r.pos = len(r.s)
	}
	n := len(r.open)
	if n == 0 || r.open[n-1].name != env {
		return // an error, or the end of one nested too deep
	}
	if tabulars[env] && r.table != nil {
		if r.table.nested > 0 {
			r.table.nested--
		} else {
			r.endTable()
		}
	}
	r.flush()
	e := r.open[n-1]
	r.open = r.open[:n-1]
	r.kind, r.level = e.kind, e.level
	switch env {
	case "itemize", "enumerate", "description", "compactitem", "compactenum", "inparaenum", "list":
		r.numbered = r.numbered[:max(0, len(r.numbered)-1)]
	}
	if e.caption == "" || r.table != nil {
		return
	}
	for i := min(e.from, len(r.out)); i < len(r.out); i++ {
		if t := r.out[i].Table; t != nil && t.Name == "" {
			t.Name = clean.Clip(norm.NFC.String(e.caption), 1000)
			return
		}
	}
	r.add(sheaf.Block{Kind: sheaf.BlockCaption, Text: e.caption})
}

func (r *reader) endCell() {
	t := r.table
	if len(t.row) < grid.MaxColumns {
		t.row = append(t.row, cell{norm.NFC.String(clean.Line(r.cur.String())), t.across, t.down})
	}
	r.cur.Reset()
	t.across, t.down = 1, 1
}

// rule is a line across the table. The first below a row ends the header.
func (r *reader) rule(name string) {
	t := r.table
	if t == nil || t.nested > 0 {
		return
	}
	switch {
	case name == "endfirsthead":
		t.head = len(t.rows)
	case name == "endhead" && t.head >= 0: // repeats the first header
		t.rows = t.rows[:min(t.head, len(t.rows))]
	case name == "endhead":
		t.head = len(t.rows)
	case name == "endfoot", name == "endlastfoot":
		t.rows = t.rows[:min(max(t.head, 0), len(t.rows))]
	case t.head < 0 && len(t.rows) > 0:
		t.head = len(t.rows)
	}
}

func (r *reader) endTable() {
	t := r.table
	if len(t.row) > 0 || strings.TrimSpace(r.cur.String()) != "" {
		r.newline()
	}
	r.cur.Reset()
	r.table = nil
	if t.head > 3 || t.head >= len(t.rows) {
		t.head = 0
	}
	var g grid.Builder
	var above []cell // per column, the cell that spans down: the positions below it exist, but are empty
	for i, row := range t.rows {
		g.Row()
		for _, c := range row {
			at := g.Column()
			for len(above) <= at {
				above = append(above, cell{})
			}
			if c.down > 1 {
				above[at] = c
			} else if above[at].down--; above[at].down > 0 && c.text == "" {
				c.text = above[at].text
			}
			g.Cell(c.text, c.across, 1, i < t.head)
		}
	}
	if made := g.Table(); made != nil {
		made.Name = clean.Clip(norm.NFC.String(t.caption), 1000)
		r.out = append(r.out, sheaf.Block{Kind: sheaf.BlockTable, Table: made})
	} else if t.caption != "" {
		r.add(sheaf.Block{Kind: sheaf.BlockCaption, Text: t.caption})
	}
}
