// Package chunker cuts the parsed blocks of one range into chunks: the stage
// between parsing and embedding. Apart from what Input.Embed and Input.Summarise
// return, it is pure and deterministic: the same blocks and settings give the same
// chunks, byte for byte.
package chunker

import "sheaf"

// Input is one parsed range of a document.
type Input struct {
	DocumentID string
	Generation int
	RangeID    string
	Range      sheaf.Range
	// Headings is the heading path in force where the range starts, outermost first.
	Headings []string
	// HeadingLevels are the levels of Headings; nil means 1, 2, 3 …
	HeadingLevels []int
	// Outline, if not nil, receives the headings found and the chunks' floors.
	Outline *sheaf.RangeOutline
	Units   []sheaf.UnitResult
	Config  sheaf.ParseConfig // merged with the defaults
	// Embed returns one vector per text, for the methods that cut by meaning.
	Embed func(texts []string) ([][]float32, error)
	// Summarise returns one summary per section, each of up to maxTokens, or "" for
	// a section it cannot summarise; if nil, sentences are picked instead.
	Summarise func(sections []string, maxTokens int) ([]string, error)
}
