// Package diagram reads the text of drawings in office documents (DrawingML, ISO/IEC
// 29500-1 chapters 20 and 21): the points of a SmartArt diagram, and the shapes that
// float over a spreadsheet.
package diagram

import (
	"io"
	"strings"

	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/xmlscan"
)

// Limits: no one reads a drawing with more.
const (
	maxTexts = 10_000
	maxText  = 32 << 10 // bytes, of a text
)

// Points returns the texts of a diagram's data part, in the order of the file. It reads
// a damaged part up to the damage, which is the error.
func Points(r io.Reader) (texts []string, err error) {
	texts, _, err = read(r, "pt")
	return texts, err
}

// Shapes returns the texts of a drawing's visible shapes, in the order of the file,
// and the relationship ids of the diagrams that it shows, up to any damage.
func Shapes(r io.Reader) (texts, diagrams []string, err error) { return read(r, "sp") }

// read collects the text within each element of the given name.
func read(r io.Reader, each string) (texts, diagrams []string, err error) {
	var text strings.Builder
	open, inText, hidden := 0, 0, false
	put := func(b []byte) {
		if open > 0 && text.Len() < maxText {
			text.Write(b)
		}
	}
	for s := xmlscan.New(r); len(texts) < maxTexts && len(diagrams) < maxTexts; {
		k, err := s.Next()
		if err != nil || k == xmlscan.EOF {
			return texts, diagrams, err
		}
		switch name := string(s.Name()); k {
		case xmlscan.Start:
			switch name {
			case "Fallback":
				_ = s.Skip() // it repeats the content of Choice; Next reports an error again
			case each:
				if open++; open == 1 {
					hidden = false
					text.Reset()
				}
			case "cNvPr":
				v := s.Attr("hidden")
				hidden = hidden || open > 0 && (v == "1" || v == "true")
			case "relIds":
				if id := s.Attr("dm"); id != "" {
					diagrams = append(diagrams, id)
				}
			case "t":
				// A point of a diagram holds its text in an element of the same name.
				if string(s.Prefix()) == "a" {
					inText++
				}
			case "br":
				put([]byte("\n"))
			}
		case xmlscan.Text:
			if inText > 0 {
				put(s.Text())
			}
		case xmlscan.End:
			switch name {
			case "t":
				if string(s.Prefix()) == "a" {
					inText = max(0, inText-1)
				}
			case "p":
				put([]byte("\n"))
			case each:
				if open = max(0, open-1); open == 0 && !hidden {
					if t := clean.Lines(clean.Clip(text.String(), maxText)); t != "" {
						texts = append(texts, t)
					}
				}
			}
		}
	}
	return texts, diagrams, nil
}
