// Package chunker cuts the blocks of one range into chunks: the stage between
// parsing and embedding. It is pure and deterministic, but for what Input.Embed
// and Input.Summarise answer: the same blocks and settings give the same
// chunks, byte for byte.
package chunker

import "sheaf"

// Input is one range of a document, parsed.
type Input struct {
	DocumentID string
	Generation int
	RangeID    string
	Range      sheaf.Range
	// Headings is the heading path in force where the range starts, outermost first.
	Headings []string
	// HeadingLevels are theirs; nil means 1, 2, 3 …
	HeadingLevels []int
	// Outline, where it is not nil, is filled with the headings met and the
	// floors of the chunks.
	Outline *sheaf.RangeOutline
	Units   []sheaf.UnitResult
	Config  sheaf.ParseConfig // merged with the defaults
	// Embed returns a vector a text, for the methods that cut by meaning.
	Embed func(texts []string) ([][]float32, error)
	// Summarise returns a summary a section, each of up to maxTokens, "" for one
	// that it has nothing to say about; nil picks sentences instead.
	Summarise func(sections []string, maxTokens int) ([]string, error)
}
