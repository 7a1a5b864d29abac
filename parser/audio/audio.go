// Package audio is the format of speech recordings: planning sends a recording once
// to a server of POST /v1/audio/transcriptions (OpenAI, whisper.cpp, vLLM, …), and
// the tasks then read the transcript. A unit is about a minute of speech, labelled
// with its time. It runs in the parser's child process.
package audio

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/program"
	"sheaf/parser/internal/speech"
	"sheaf/parser/internal/tempfile"
)

// TranscriptType is the media type of a stored transcript.
const TranscriptType = "application/vnd.sheaf.transcript+json"

const (
	version = 1 // changes whenever the same file would yield other blocks; see Version
	// maxFileBytes limits a recording; OpenAI itself accepts 25 MB, others more.
	maxFileBytes = 1 << 30
	// maxTranscriptBytes limits the server's answer: a day of speech has 1 MB of
	// text, and servers may list every word with its time.
	maxTranscriptBytes = 64 << 20
)

// Config configures the format.
type Config struct {
	URL      string        // of the server, up to and including /v1; "" for none
	Model    string        // as the server names it
	APIKey   string        // sent as "Authorization: Bearer …"; "" sends none
	Language string        // of the recordings, as ISO 639-1; "" lets the server detect it
	Timeout  time.Duration // of one request; 0 means 10 minutes
	// Elsewhere means that the processes that parse documents have a server, though
	// this one does not.
	Elsewhere bool
}

// String omits the key.
func (c Config) String() string { return fmt.Sprintf("audio{%s model=%s}", c.URL, c.Model) }

// GoString omits the key.
func (c Config) GoString() string { return c.String() }

// New returns the format.
func New(c Config) parser.Format {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Minute
	}
	return &format{c}
}

type format struct{ cfg Config }

// recordings are the accepted types. The detector recognizes their bytes.
var recordings = []parser.FileType{
	{MediaType: "audio/mpeg", Name: "MP3", Extensions: []string{".mp3"}}, {MediaType: "audio/mp3", Name: "MP3"},
	{MediaType: "audio/wav", Name: "WAV", Extensions: []string{".wav"}}, {MediaType: "audio/x-wav", Name: "WAV"},
	{MediaType: "audio/mp4", Name: "M4A", Extensions: []string{".m4a"}}, {MediaType: "audio/x-m4a", Name: "M4A"},
	{MediaType: "audio/aac", Name: "AAC", Extensions: []string{".aac"}}, {MediaType: "audio/amr", Name: "AMR", Extensions: []string{".amr"}},
	{MediaType: "audio/flac", Name: "FLAC", Extensions: []string{".flac"}}, {MediaType: "audio/x-flac", Name: "FLAC"},
	{MediaType: "audio/ogg", Name: "Ogg", Extensions: []string{".ogg", ".opus"}}, {MediaType: "application/ogg", Name: "Ogg"},
	{MediaType: "audio/aiff", Name: "AIFF"}, {MediaType: "audio/webm", Name: "WebM"}, {MediaType: "video/webm", Name: "WebM"}, {MediaType: "video/mp4", Name: "MP4"},
}

func (*format) ID() string        { return "audio" }
func (*format) Options() []string { return nil }
func (*format) Types() []parser.FileType {
	types := slices.Clone(recordings)
	for i := range types {
		t := &types[i]
		t.Families, t.Unit, t.Ranges, t.Needs = []sheaf.FileFamily{sheaf.FamilyAudio}, sheaf.UnitPart, "60 minutes", "a transcription server"
	}
	return append(types, parser.FileType{MediaType: TranscriptType, Unit: sheaf.UnitPart})
}

// Version changes with the model, which determines the transcript.
func (f *format) Version() int {
	if f.cfg.URL == "" {
		return version
	}
	return version + 1000*int(1+xxhash.Sum64String(f.cfg.Model+"\x00"+f.cfg.Language)%100_000)
}

// Available implements parser.Optional. It does not call the server.
func (f *format) Available() error {
	if f.cfg.URL != "" || f.cfg.Elsewhere {
		return nil
	}
	return program.Missing("Reading audio needs a server of /v1/audio/transcriptions, and none is set: name one in parser.transcribe_url, such as that of whisper.cpp, vLLM or OpenAI.")
}

// Calls implements parser.Caller.
func (f *format) Calls() bool { return f.cfg.URL != "" }

// Open implements parser.Format.
func (f *format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	d := &document{format: f, file: file, options: o}
	if o.MediaType != TranscriptType {
		if f.cfg.URL == "" {
			return nil, New(Config{}).(parser.Optional).Available()
		}
		var err error
		d.size, err = parts.Size(file, maxFileBytes)
		return d, err
	}
	size, err := parts.Size(file, maxTranscriptBytes)
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored transcript cannot be read: %v.", err)
	}
	t := &transcript{}
	if err := json.Unmarshal(b, t); err != nil {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "invalid_audio", "The transcript cannot be read; parse the recording again.")
	}
	d.take(t)
	return d, nil
}

// transcript is a server's answer (OpenAI, "verbose_json"), and the stored form.
type transcript struct {
	Text     string           `json:"text"`
	Language string           `json:"language"`
	Duration float64          `json:"duration"` // seconds
	Segments []speech.Segment `json:"segments"`
}

type document struct {
	format     *format
	file       *os.File
	size       int64
	options    parser.Options
	transcript *transcript
	units      [][]speech.Segment
}

// Close implements parser.Document.
func (*document) Close() error { return nil }

// take cuts the transcript into units. If the server returns no times, there is one.
func (d *document) take(t *transcript) {
	if len(t.Segments) == 0 {
		t.Segments = []speech.Segment{{End: t.Duration, Text: t.Text}}
	}
	d.transcript, d.units = t, speech.Cut(t.Segments)
}

// hear transcribes the recording, once.
func (d *document) hear(ctx context.Context) error {
	if d.transcript != nil {
		return nil
	}
	t, err := d.format.cfg.transcribe(ctx, d.file, d.size, d.options)
	if err != nil {
		return err
	}
	d.take(t)
	return nil
}

// Plan implements parser.Document. The transcript is the shard of every range.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	if err := d.hear(ctx); err != nil {
		return nil, err
	}
	if len(d.units) == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "no_text", "No speech was heard in the recording; check that you uploaded the right file.")
	}
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: len(d.units), RangeSize: speech.RangeUnits, Metadata: map[string]string{}}
	for key, v := range map[string]string{"language": clean.Line(clean.Clip(d.transcript.Language, 40)), "transcribed_by": d.format.cfg.Model} {
		if v != "" {
			p.Metadata[key] = v
		}
	}
	if d.transcript.Duration > 0 {
		p.Metadata["duration_seconds"] = strconv.FormatFloat(d.transcript.Duration, 'f', 0, 64)
	}
	p.Fingerprints = speech.Fingerprints(d.units)
	if d.options.MediaType == TranscriptType {
		return p, nil
	}
	b, err := json.Marshal(d.transcript)
	if err != nil {
		return nil, err
	}
	const shard = "transcript.json"
	if err := os.WriteFile(filepath.Join(d.options.TempDir, shard), b, 0o600); err != nil {
		return nil, tempfile.Full(err)
	}
	for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: p.Units}}, speech.RangeUnits) {
		p.Ranges = append(p.Ranges, parser.PlannedRange{Range: r, Shard: shard, MediaType: TranscriptType})
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if err := d.hear(ctx); err != nil {
		return err
	}
	return speech.Emit(d.units, r, emit)
}
