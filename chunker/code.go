package chunker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"

	"sheaf"
)

// A declaration is a stretch of source that belongs together: a function with
// its comment, a type, the imports.
type declaration struct {
	from, to int // bytes of the text
	name     string
}

// joinCode merges code blocks that follow each other in a unit into one: parsers
// cut long files anywhere between declarations.
func joinCode(blocks []sheaf.Block) []sheaf.Block {
	var out []sheaf.Block
	var more []byte // text of the last block of out, when others follow it
	end := func() {
		if more != nil {
			out[len(out)-1].Text, more = string(more), nil
		}
	}
	for _, b := range blocks {
		if n := len(out); n > 0 && b.Kind == sheaf.BlockCode && out[n-1].Kind == sheaf.BlockCode && b.Lang == out[n-1].Lang && len(b.Spans)+len(out[n-1].Spans) == 0 {
			if more == nil { // copied once per run of blocks, not once per block
				more = append(more, out[n-1].Text...)
			}
			more = append(append(more, "\n\n"...), b.Text...)
			continue
		}
		end()
		out = append(out, b)
	}
	end()
	return out
}

// syntax adds a code block declaration by declaration. Go is cut by its syntax
// tree; other languages, and Go that does not parse, by indentation: a declaration
// begins at an unindented line that is not a closing bracket. One longer than a
// chunk is cut again between its members.
func (s *splitter) syntax(b *sheaf.Block) {
	text := valid(b.Text)
	f := &frame{open: "```" + fenceLang(b.Lang) + "\n", close: "\n```"}
	if strings.Contains(text, "```") {
		f = &frame{}
	}
	f.tokens = CountTokens(f.open) + CountTokens(f.close)
	if f.tokens > s.set.limit/4 {
		f = &frame{}
	}
	path := s.path
	first := len(s.out)
	declarations := goDeclarations(text, b.Lang)
	if declarations == nil {
		declarations = byIndentation(text, 0, len(text), s.set.watch)
	}
	for _, d := range declarations {
		if s.set.watch.over(d.to - d.from) {
			break
		}
		s.declare(text, d, path, f, 0)
	}
	s.path = path
	for i := first; i < len(s.out); i++ {
		s.out[i].frame = f
	}
	s.endBlock()
}

// maxNesting limits how deep nested declarations are searched.
const maxNesting = 4

func (s *splitter) declare(text string, d declaration, path []string, f *frame, depth int) {
	if d.name != "" {
		path = append(path[:len(path):len(path)], d.name)
	}
	first := len(s.out)
	budget := s.budget() - f.tokens
	var members []declaration
	fits := codeFits(text[d.from:d.to], budget)
	if !fits && depth < maxNesting {
		members = byIndentation(text, d.from, d.to, s.set.watch)
	}
	switch {
	case fits:
		s.line(text, d.from, d.to, borderItem)
	case len(members) > 1:
		for _, m := range members {
			if s.set.watch.over(m.to - m.from) {
				return
			}
			s.declare(text, m, path, f, depth+1)
		}
		return
	default:
		s.lines(text, d.from, d.to, budget, f)
	}
	for i := first; i < len(s.out); i++ {
		s.out[i].within = path
	}
}

func fenceLang(lang string) string {
	if lang = strings.Join(strings.Fields(valid(lang)), "-"); len(lang) > 32 {
		return ""
	}
	return lang
}

// goDeclarations splits Go source by its syntax tree; nil if it does not parse.
func goDeclarations(text, lang string) []declaration {
	if lang != "go" {
		return nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || len(file.Decls) == 0 {
		return nil
	}
	offset := func(p token.Pos) int { return min(max(set.Position(p).Offset, 0), len(text)) }
	var out []declaration
	end := 0
	for _, d := range file.Decls {
		from, name := d.Pos(), ""
		switch d := d.(type) {
		case *ast.FuncDecl:
			name = "func " + d.Name.Name
			if d.Recv != nil && len(d.Recv.List) > 0 {
				name = "func " + receiver(d.Recv.List[0].Type) + "." + d.Name.Name
			}
			if d.Doc != nil {
				from = d.Doc.Pos()
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue // part of the package clause's declaration
			}
			name = d.Tok.String()
			switch s := d.Specs; {
			case len(s) == 0:
			case d.Tok == token.TYPE:
				name += " " + s[0].(*ast.TypeSpec).Name.Name
			default:
				name += " " + s[0].(*ast.ValueSpec).Names[0].Name
			}
			if d.Doc != nil {
				from = d.Doc.Pos()
			}
		}
		if at := offset(from); at > end {
			// text in between belongs to what follows, except for the file's head
			if end == 0 {
				out = append(out, declaration{0, at, ""})
				end = at
			}
		}
		to := offset(d.End())
		if i := strings.IndexByte(text[to:], '\n'); i >= 0 {
			to += i + 1
		} else {
			to = len(text)
		}
		if to > end {
			out = append(out, declaration{end, to, name})
			end = to
		}
	}
	if end < len(text) {
		out = append(out, declaration{end, len(text), ""})
	}
	return out
}

// receiver returns the type name of a method's receiver.
func receiver(e ast.Expr) string {
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return "?"
		}
	}
}

var (
	declared = regexp.MustCompile(`(?:^|\s)(?:class|interface|struct|enum|trait|impl|module|namespace|def|fn|func|function|fun|sub|proc|type|object|record|service|message)\s+([\p{L}_$][\p{L}\p{N}_$.:]*)`)
	called   = regexp.MustCompile(`^[\p{L}_$][\p{L}\p{N}_$<>\[\],*&: ]*\s[*&]?([\p{L}_$][\p{L}\p{N}_$:]*)\s*\(`)
	comment  = regexp.MustCompile(`^\s*(?://|#|/\*|\*|--|;|%|@|"""|'''|\[)`)
)

// byIndentation cuts text[from:to] before each line with the least indentation that
// begins something: not a closing bracket or a branch of the previous statement.
// The first line, which names the enclosing declaration, stays with the first member.
func byIndentation(text string, from, to int, w *watch) []declaration {
	least := -1
	head := from == 0
	lineStart := from
	first := true
	for line := range strings.SplitAfterSeq(text[from:to], "\n") {
		if w.over(len(line)) {
			return nil
		}
		if strings.TrimSpace(line) != "" {
			if n := indent(line); (head || !first && n > 0) && (least < 0 || n < least) {
				least = n
			}
			first = false
		}
	}
	if least < 0 {
		return []declaration{{from, to, ""}}
	}
	var out []declaration
	begin := from
	comments := -1 // start of comment lines that belong to what follows
	name := ""
	for line := range strings.SplitAfterSeq(text[from:to], "\n") {
		if w.over(len(line)) {
			return nil
		}
		at := lineStart
		lineStart += len(line)
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || indent(line) != least {
			if trimmed != "" {
				comments = -1
			}
			continue
		}
		if comment.MatchString(line) {
			if comments < 0 {
				comments = at
			}
			continue
		}
		if !starts(trimmed) {
			comments = -1
			continue
		}
		cut := at
		if comments >= 0 {
			cut = comments
		}
		comments = -1
		if cut > begin {
			out = append(out, declaration{begin, cut, name})
			begin = cut
		}
		name = nameOf(trimmed)
	}
	return append(out, declaration{begin, to, name})
}

// starts reports whether an unindented line begins something new.
func starts(line string) bool {
	if strings.ContainsRune("})]>{", rune(line[0])) {
		return false
	}
	for _, w := range []string{"else", "elif", "except", "finally", "catch", "end", "then", "do", "esac", "fi", "done"} {
		if rest, ok := strings.CutPrefix(line, w); ok && (rest == "" || !isWord(rest[0])) {
			return false
		}
	}
	return true
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// namedWithin is how much of a line is searched for a name, in bytes: a line of
// megabytes declares nothing after that.
const namedWithin = 4 << 10

func nameOf(line string) string {
	line = line[:min(len(line), namedWithin)]
	m := declared.FindStringSubmatch(line)
	if m == nil {
		m = called.FindStringSubmatch(line)
	}
	if m == nil || len(m[1]) > 120 {
		return ""
	}
	return m[1]
}

// indent counts leading white space; a tab counts as four.
func indent(line string) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += 4
		default:
			return n
		}
	}
	return n
}
