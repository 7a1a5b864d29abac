package chunker

import (
	"slices"
	"strings"
	"unicode/utf8"

	"sheaf"
)

// ID names this chunker in the config digest.
func ID() string { return "general" }

// Version changes whenever the same blocks and settings would yield other chunks.
func Version() int { return 1 }

// Methods lists the values of chunk_method, the default first.
func Methods() []string { return []string{"general", "naive", "one"} }

// Options lists the fields of sheaf.ParseConfig, by JSON name, that a chunk
// method reads. Only those go into the config digest.
func Options(method string) []string {
	if method == "one" {
		return []string{"chunk_method"}
	}
	return []string{"chunk_method", "chunk_token_num", "delimiter", "overlapped_percent"}
}

const (
	minTokens = 16   // below, a table's header or a code fence alone fills a chunk
	maxTokens = 8191 // the longest input of common embedding models (OpenAI text-embedding-3)
)

// Chunk cuts the blocks of a range into chunks, in reading order.
//
// No chunk has more than chunk_token_num tokens. Cuts fall, in this order of
// preference, between blocks, list items and table rows, sentences; inside a
// sentence only when it is longer than a chunk by itself, and then at line
// ends, words, runes. A heading starts a chunk and stays with what follows it,
// and chunks never reach over a heading. A table stands in chunks of its own
// with its captions, as Markdown, the header in each; a row that does not fit
// becomes lines of "header: value". Code is fenced in each chunk it reaches.
//
// Among equally good places the cut goes where the hash of the text before it
// is smallest, so that a change moves only the cuts around it: further on the
// same places win again.
//
// Method "general" (alias "naive") does that; "one" makes one chunk of the
// whole range, or as few as fit into 8,191 tokens each.
//
// Boxes are those of the lines a chunk holds, at most eight or one a page:
// lines that stand below each other are joined first, then the neighbours
// whose hull wastes least. Columns maps a table's column names to their types,
// where the parser knew them. Pages lists units; for spreadsheets these are rows.
//
// The error is a *sheaf.Failure about the settings.
func Chunk(in Input) ([]sheaf.Chunk, error) {
	set, err := settingsOf(in.Config)
	if err != nil {
		return nil, err
	}
	pieces := split(in, set)

	var out []sheaf.Chunk
	for from := 0; from < len(pieces); {
		to := from + 1
		for to < len(pieces) && pieces[to-1].after != borderHard {
			to++
		}
		for _, c := range pack(pieces[from:to], set) {
			n := len(out)
			c.ID = sheaf.ChunkID(in.RangeID, n)
			c.DocumentID, c.Generation, c.RangeID = in.DocumentID, in.Generation, in.RangeID
			c.Ordinal = sheaf.OrdinalBase(in.Range.From) + n
			out = append(out, c)
		}
		from = to
	}
	return out, nil
}

type settings struct {
	one     bool
	limit   int // most tokens of a chunk
	overlap int // most tokens taken over from the chunk before; part of limit
	soft    []rune
	hard    []string
}

func settingsOf(c sheaf.ParseConfig) (settings, error) {
	c = c.Merge(sheaf.DefaultParseConfig)
	switch c.ChunkMethod {
	case "general", "naive":
	case "one":
		return settings{one: true, limit: maxTokens}, nil
	default:
		return settings{}, sheaf.Fail(sheaf.CategoryBadInput, "unknown_chunk_method",
			"There is no chunk method %q; use one of: %s.", c.ChunkMethod, strings.Join(Methods(), ", "))
	}
	if c.ChunkTokenNum < minTokens || c.ChunkTokenNum > maxTokens {
		return settings{}, sheaf.Fail(sheaf.CategoryBadInput, "invalid_parser_config",
			"chunk_token_num is %d; choose a number from %d to %d.", c.ChunkTokenNum, minTokens, maxTokens)
	}
	if c.OverlappedPercent < 0 || c.OverlappedPercent > 50 {
		return settings{}, sheaf.Fail(sheaf.CategoryBadInput, "invalid_parser_config",
			"overlapped_percent is %d; choose a number from 0 to 50.", c.OverlappedPercent)
	}
	s := settings{limit: c.ChunkTokenNum, overlap: c.ChunkTokenNum * c.OverlappedPercent / 100}
	s.soft, s.hard = delimiters(c.Delimiter)
	return s, nil
}

// delimiters reads the setting: characters, and strings in backticks. The
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
	// the longest first, so that one that begins like another is found
	slices.SortStableFunc(hard, func(a, b string) int { return len(b) - len(a) })
	return soft, hard
}
