package chunker

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"sheaf"
	"sheaf/internal/settings"
)

// ID names this chunker in the config digest.
func ID() string { return "general" }

// Version changes whenever an existing method would yield different chunks for the
// same blocks and settings.
func Version() int { return 3 }

// Options lists the fields of sheaf.ParseConfig, by JSON name, that a chunk method
// reads. Only those go into the config digest. pages and the task size are not
// among them: the range itself is part of a reuse key.
func Options(method string) []string {
	out := []string{"chunk_method"}
	m, _ := settings.MethodByName(method)
	for _, s := range settings.Table {
		if s.Enriches || s.Methods != nil && m.Reads(s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

const (
	minTokens   = 16   // below, a table's header or a code fence alone fills a chunk
	leastTokens = 50   // minimum for a chunk that could be merged with a neighbour: a fifth of the chunks of reports were shorter, and titles outranked statements
	maxTokens   = 8191 // the longest input of common embedding models (OpenAI text-embedding-3)
)

// Chunk cuts the blocks of a range into chunks, in reading order.
//
// No chunk has more than chunk_token_num tokens. Cuts fall, in this order of
// preference, between blocks, list items and table rows, sentences; inside a
// sentence only when it alone is longer than a chunk, and then at line ends, words,
// runes. A heading starts a chunk and stays with what follows it, and no chunk
// crosses a heading. A table gets chunks of its own, as Markdown with the header
// repeated in each, together with its captions and with texts of fewer than 50
// tokens that introduce or follow it; a row that does not fit becomes lines of
// "header: value". So does an image if image_context_size is set. Code is fenced in
// every chunk that contains it.
//
// Among equally good places the cut goes where the hash of the text before it is
// smallest, so that an edit moves only the cuts around it: further on the same
// places win again.
//
// This describes method "general" (alias "naive"); for how the others differ, see
// strategies and settings.Methods. Chunks that hold a whole slide, answer, abstract
// or document have up to 8,191 tokens.
//
// Boxes are those of the lines a chunk holds, at most eight or one per page:
// vertically adjacent lines are joined first, then the neighbours whose hull wastes
// least. Columns maps a table's column names to their types, if the parser knew
// them. Pages lists units; for spreadsheets these are rows.
//
// The error is a *sheaf.Failure about the settings, or the cancellation cause of
// ctx, which is checked every few hundred segments.
func Chunk(ctx context.Context, in Input) ([]sheaf.Chunk, error) {
	set, err := optionsOf(in.Config)
	if err != nil {
		return nil, err
	}
	w := &watch{ctx: ctx}
	set.watch = w
	in = set.prepare(in, w)
	if set.imageContext > 0 {
		in = figures(in)
	}
	segments := split(in, set)
	if w.err != nil {
		return nil, w.err
	}
	if set.semantic {
		if err := breakpoints(in, segments, set.limit); err != nil {
			return nil, err
		}
	}

	var out []sheaf.Chunk
	var sections []string // the sections summarised in out,
	var summaries []int   // and the indexes of those summaries
	for from := 0; from < len(segments) && !w.over(0); {
		to := from + 1
		for to < len(segments) && segments[to-1].after != borderHard {
			to++
		}
		if set.layers {
			out = append(out, hierarchy(segments[from:to], set)...)
			if last := len(out) - 1; last >= 0 && out[last].Role == sheaf.RoleSummary {
				sections, summaries = append(sections, render(segments[from:to])), append(summaries, last)
			}
		} else {
			out = append(out, pack(segments[from:to], set.of(segments[from:to]))...)
		}
		from = to
	}
	if w.err != nil {
		return nil, w.err
	}
	if len(sections) > 0 && in.Summarise != nil {
		said, err := in.Summarise(sections, set.limit)
		if err != nil {
			return nil, err
		}
		for k, i := range summaries {
			if text := strings.TrimSpace(valid(said[k])); text != "" {
				out[i].Text = strings.TrimSpace(text[:fitting(text, set.limit, w)])
				out[i].Tokens = CountTokens(out[i].Text)
			}
		}
	}
	surround(out, set)
	if set.toc {
		out = append(out, tableOfContents(in, set)...)
	}
	for n := range out {
		c := &out[n]
		c.ID = sheaf.ChunkID(in.RangeID, n)
		c.DocumentID, c.Generation, c.RangeID = in.DocumentID, in.Generation, in.RangeID
		c.Ordinal = sheaf.OrdinalBase(in.Range.From) + n
		if o := in.Outline; o != nil && (n == 0 || c.Floor != o.Floors[len(o.Floors)-1].Level) {
			o.Floors = append(o.Floors, sheaf.Floor{From: n, Level: c.Floor})
		}
	}
	for n := range out {
		out[n].Floor = 0
	}
	return out, w.err
}

type options struct {
	strategy
	watch        *watch
	method       string
	limit        int // maximum tokens per chunk
	overlap      int // maximum tokens repeated from the previous chunk; part of limit
	soft         []rune
	hard         []string
	children     bool // cut chunks at childSoft and childHard
	childSoft    []rune
	childHard    []string
	html         bool
	toc          bool
	imageContext int // tokens on either side
	tableContext int
}

func optionsOf(c sheaf.ParseConfig) (options, error) {
	c = settings.WithDefaults(c)
	m, _ := settings.MethodByName(c.ChunkMethod.V)
	st, ok := strategies[m.Name]
	if !ok {
		return options{}, sheaf.Fail(sheaf.CategoryBadInput, "unknown_chunk_method",
			"There is no chunk method %q; use one of: %s.", c.ChunkMethod.V, strings.Join(settings.MethodNames(), ", "))
	}
	if err := settings.Check(c); err != nil {
		return options{}, sheaf.Fail(sheaf.CategoryBadInput, "invalid_parser_config", "%v.", err)
	}
	s := options{strategy: st, method: m.Name, limit: maxTokens}
	s.html = m.Reads("html4excel") && c.HTML4Excel.V
	if !m.Reads("chunk_token_num") {
		return s, nil
	}
	s.limit = c.ChunkTokenNum.V
	s.soft, s.hard = delimiters(c.Delimiter.V)
	if m.Reads("overlapped_percent") {
		s.overlap = c.ChunkTokenNum.V * c.OverlappedPercent.V / 100
	}
	if m.Reads("children_delimiter") {
		s.childSoft, s.childHard = delimiters(c.ChildrenDelimiter.V)
		s.children = len(s.childSoft)+len(s.childHard) > 0
	}
	s.toc = m.Reads("toc_extraction") && c.TOCExtraction.V
	if m.Reads("image_context_size") {
		s.imageContext = c.ImageContextSize.V
	}
	if m.Reads("table_context_size") {
		s.tableContext = c.TableContextSize.V
	}
	return s, nil
}

// joins reports whether short stretches share chunks with their neighbours: for
// methods whose chunks are not units of their own, unless tables get the text
// around them anyway.
func (s options) joins() bool {
	return !s.whole && !s.perUnit && !s.quotes && !s.syntax && !s.semantic && !s.layers && s.row == nil && s.gather == 0 && s.outline == nil && s.tableContext == 0
}

// of returns the options for one stretch between hard borders.
func (s options) of(stretch []segment) options {
	heading := ""
	if last := &stretch[len(stretch)-1]; stretch[0].block.Kind == sheaf.BlockHeading && len(last.path) > 0 {
		heading = last.path[len(last.path)-1]
	}
	if s.uncut != nil && s.uncut(heading) {
		s.limit, s.overlap = maxTokens, 0
	}
	return s
}

// delimiters parses the setting: characters, and strings in backticks. The
// two-character escapes \n, \t and \r are understood, since people type them.
func delimiters(setting string) (soft []rune, hard []string) {
	setting = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\r`, "\r").Replace(setting)
	for setting != "" {
		if rest, ok := strings.CutPrefix(setting, "`"); ok {
			if word, after, closed := strings.Cut(rest, "`"); closed {
				if word != "" {
					hard = append(hard, word)
				}
				setting = after
				continue
			}
		}
		r, n := utf8.DecodeRuneInString(setting)
		soft = append(soft, r)
		setting = setting[n:]
	}
	// longest first, so that a delimiter is not shadowed by its own prefix
	slices.SortStableFunc(hard, func(a, b string) int { return len(b) - len(a) })
	return soft, hard
}
