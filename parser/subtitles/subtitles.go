// Package subtitles is the format of SubRip (SRT) and WebVTT files: speech, in
// units of about a minute labelled with their time. It runs in the parser's child
// process.
package subtitles

import (
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/speech"
)

const (
	version = 1 // changes whenever the same file would yield other blocks
	// maxFileBytes limits a file, which is read whole: a film has 100 KB.
	maxFileBytes = 64 << 20
)

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "subtitles" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	srt := parser.FileType{
		MediaType: "application/x-subrip", Name: "Subtitles", Extensions: []string{".srt"}, Text: true,
		Families: []sheaf.FileFamily{sheaf.FamilyAudio, sheaf.FamilyText}, Unit: sheaf.UnitPart, Ranges: "60 minutes",
	}
	vtt := srt
	vtt.MediaType, vtt.Extensions, vtt.Magic = "text/vtt", []string{".vtt"}, []parser.Magic{{Bytes: "WEBVTT"}, {Bytes: "\xef\xbb\xbfWEBVTT"}}
	return []parser.FileType{srt, vtt}
}
func (format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	b, guess, err := parts.Whole(f, maxFileBytes, o.Config.Encoding.V)
	if err != nil {
		return nil, err
	}
	d := &document{guess: guess}
	d.segments = cues(clean.Text(string(b)))
	if d.units = speech.Cut(d.segments); len(d.units) == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid_subtitles", "The file contains no subtitles: no line gives times such as 00:00:01,000 --> 00:00:02,000 with text below. Export it again, or set parser_config.media_type to text/plain.")
	}
	return d, nil
}

type document struct {
	guess    charset.Guess
	segments []speech.Segment
	units    [][]speech.Segment
}

// Close implements parser.Document.
func (*document) Close() error { return nil }

// Plan implements parser.Document.
func (d *document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{
		Unit: sheaf.UnitPart, Units: len(d.units), RangeSize: speech.RangeUnits, Fingerprints: speech.Fingerprints(d.units),
		Metadata: d.guess.Metadata(map[string]string{}), Warnings: d.guess.Warnings(),
	}
	p.Metadata["duration_seconds"] = strconv.FormatFloat(d.segments[len(d.segments)-1].End, 'f', 0, 64)
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(_ context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	return speech.Emit(d.units, r, emit)
}

var (
	timing = regexp.MustCompile(`^\s*(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})\s*-->\s*(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})`)
	tag    = regexp.MustCompile(`</?[a-zA-Z0-9][^>]{0,100}>|\{\\[^}]{0,100}\}`)
)

// seconds adds up hours, minutes, seconds and the digits after the point.
func seconds(m []string) float64 {
	var v [3]float64
	for i := range v {
		v[i], _ = strconv.ParseFloat("0"+m[i], 64) // the pattern admits only digits
	}
	fraction, _ := strconv.ParseFloat("0."+m[3], 64) // likewise
	return v[0]*3600 + v[1]*60 + v[2] + fraction
}

// cues reads the times and text of both formats: a cue is a timing line and the
// lines below it, up to the next empty one.
func cues(s string) []speech.Segment {
	var out []speech.Segment
	var said []string // of the latest cue
	within := false
	end := func() {
		if within {
			out[len(out)-1].Text = strings.Join(said, " ")
		}
		said, within = said[:0], false
	}
	for line := range strings.SplitSeq(s, "\n") {
		if strings.Contains(line, "-->") {
			if m := timing.FindStringSubmatch(line); m != nil {
				end()
				out, within = append(out, speech.Segment{Start: seconds(m[1:5]), End: seconds(m[5:9])}), true
				continue
			}
		}
		text := line
		if strings.ContainsAny(line, "<{") {
			text = tag.ReplaceAllString(line, "")
		}
		switch text = strings.TrimSpace(text); {
		case strings.TrimSpace(line) == "":
			end() // what precedes the next timing is a number, a name or a note
		case within && text != "":
			said = append(said, text)
		}
	}
	end()
	return out
}
