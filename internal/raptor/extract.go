package raptor

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sentence is a sentence of a summary, verbatim.
type Sentence struct {
	Text   string
	Source int // index of the source text
}

const (
	maxSentences     = 2000 // examined for one summary
	maxSentenceBytes = 2000 // a longer one is not a sentence: a table, a list of numbers
	leadBonus        = 0.1  // for a text's first sentence, less for each following one
	sameSentence     = 0.9  // similarity from which two are considered the same
)

// Extract summarises texts by their most central sentences: those nearest to the
// mean of all, with a small preference for the beginning of a text, and without
// repetition. They are in reading order and have at most maxTokens by count.
// vectors embeds sentences, one vector each, nil for none. Texts without sentences
// have no summary.
func Extract(texts []string, maxTokens int, count func(string) int, vectors func([]string) ([][]float32, error)) ([]Sentence, error) {
	var all []Sentence
	var lead []float64
	for i, text := range texts {
		for k, s := range Sentences(text) {
			if len(all) == maxSentences {
				break
			}
			if len(s) <= maxSentenceBytes {
				all, lead = append(all, Sentence{s, i}), append(lead, leadBonus/float64(k+1))
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	said := make([]string, len(all))
	for i := range all {
		said[i] = all[i].Text
	}
	vs, err := vectors(said)
	if err != nil {
		return nil, err
	}
	center := Mean(vs...)
	order := make([]int, len(all))
	scores := make([]float64, len(all))
	for i := range all {
		order[i], scores[i] = i, cosine(vs[i], center)+lead[i]
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	var chosen []int
	left := maxTokens
	for _, i := range order {
		n := count(all[i].Text)
		if n > left || slices.ContainsFunc(chosen, func(k int) bool { return said[k] == said[i] || cosine(vs[k], vs[i]) > sameSentence }) {
			continue
		}
		chosen, left = append(chosen, i), left-n
	}
	slices.Sort(chosen)
	out := make([]Sentence, len(chosen))
	for k, i := range chosen {
		out[k] = all[i]
	}
	return out, nil
}

// Sentences splits a text at newlines and after sentence-ending marks: those of
// Latin script if white space and no lower-case letter follows, those of Chinese
// and Japanese always. Parts without letters are omitted.
func Sentences(text string) []string {
	var out []string
	add := func(s string) {
		if s = strings.Join(strings.Fields(s), " "); strings.ContainsFunc(s, unicode.IsLetter) {
			out = append(out, s)
		}
	}
	from := 0
	for i, r := range text {
		end := i + utf8.RuneLen(r)
		switch r {
		case utf8.RuneError:
			continue
		case '\n':
		case '。', '！', '？':
		case '.', '!', '?':
			rest := text[end:]
			next := strings.TrimLeft(rest, " \t")
			after, _ := utf8.DecodeRuneInString(next)
			if len(next) == len(rest) || unicode.IsLower(after) {
				continue
			}
		default:
			continue
		}
		add(text[from:end])
		from = end
	}
	add(text[from:])
	return out
}
