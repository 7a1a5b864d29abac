package raptor

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Sentence is a sentence of a summary, word for word.
type Sentence struct {
	Text   string
	Source int // index of the text that it is from
}

const (
	maxSentences     = 2000 // that are looked at for one summary
	maxSentenceBytes = 2000 // a longer one is no sentence: a table, a list of numbers
	leadBonus        = 0.1  // of a text's first sentence, less for each that follows
	sameSentence     = 0.9  // similarity from which two say the same
)

// Extract summarises texts by their most central sentences: those nearest to what
// all of them say together, a little rather those that a text begins with, none
// that says what another does. They come in reading order and have at most
// maxTokens by count. vectors embeds sentences, one vector each, nil for none.
// Texts without a sentence make no summary.
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

// Sentences cuts a text at line ends and behind marks that end a sentence: those
// of Latin script where white space and no small letter follows, those of Chinese
// and Japanese always. What has no letter is left out.
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
