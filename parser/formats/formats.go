// Package formats lists the formats built into Sheaf. Programs pass the list to the
// parser's child processes and to the planner.
package formats

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sheaf/parser"
	"sheaf/parser/archive"
	"sheaf/parser/audio"
	"sheaf/parser/calendar"
	"sheaf/parser/csv"
	"sheaf/parser/docx"
	"sheaf/parser/eml"
	"sheaf/parser/encrypted"
	"sheaf/parser/epub"
	"sheaf/parser/html"
	"sheaf/parser/image"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/jsonfmt"
	"sheaf/parser/markdown"
	"sheaf/parser/mbox"
	"sheaf/parser/msg"
	"sheaf/parser/notebook"
	"sheaf/parser/odf"
	"sheaf/parser/office"
	"sheaf/parser/pdf"
	"sheaf/parser/pdf/pdfium"
	"sheaf/parser/pptx"
	"sheaf/parser/rows"
	"sheaf/parser/subtitles"
	"sheaf/parser/tex"
	"sheaf/parser/text"
	"sheaf/parser/xlsx"
	"sheaf/parser/xmlfmt"
	"sheaf/parser/yaml"
)

// Config names the optional parts: programs and services that some formats need and
// that may be missing.
type Config struct {
	Soffice      string // path or name of LibreOffice's soffice; "" for none
	Tesseract    string // path or name of tesseract; "" for none
	OCRLanguages string // of tesseract, joined by "+"
	// The speech-to-text server; see package audio.
	TranscribeURL, TranscribeModel, TranscribeAPIKey, TranscribeLanguage string
	TranscribeTimeout                                                    string // a time.Duration as text; "" for the default
	// PDF configures the PDF reader: see pdfium.Find.
	PDF pdfium.Config
	// Archive limits what is read of one archive.
	Archive archive.Limits
	// Remote lists the ids of formats whose part is available where documents are
	// parsed, though not here: uploads for them are accepted.
	Remote []string
}

// DefaultConfig looks for the programs in PATH.
var DefaultConfig = Config{Soffice: "soffice", Tesseract: "tesseract", OCRLanguages: "eng"}

// envPrefix begins the variables that pass the configuration to the parser's child
// processes. They are named like the settings.
const envPrefix = "SHEAF_PARSER_"

// Variables that hold a part of the configuration as JSON.
const (
	archiveVariable = "ARCHIVE_LIMITS"
	pdfVariable     = "PDF_ENGINE"
)

// variables maps each field to its variable.
func (c *Config) variables() map[string]*string {
	return map[string]*string{"SOFFICE": &c.Soffice, "TESSERACT": &c.Tesseract, "OCR_LANGUAGES": &c.OCRLanguages,
		"TRANSCRIBE_URL": &c.TranscribeURL, "TRANSCRIBE_MODEL": &c.TranscribeModel, "TRANSCRIBE_API_KEY": &c.TranscribeAPIKey,
		"TRANSCRIBE_LANGUAGE": &c.TranscribeLanguage, "TRANSCRIBE_TIMEOUT": &c.TranscribeTimeout}
}

// Environ returns the configuration as environment variables of a child process.
func (c Config) Environ() []string {
	var env []string
	for name, v := range c.variables() {
		env = append(env, envPrefix+name+"="+*v)
	}
	limits, _ := json.Marshal(c.Archive) // plain fields always encode
	engine, _ := json.Marshal(c.PDF)
	env = append(env, envPrefix+archiveVariable+"="+string(limits), envPrefix+pdfVariable+"="+string(engine))
	slices.Sort(env)
	return env
}

// FromEnviron reads what Environ wrote; unset fields have their default.
func FromEnviron() Config {
	c := DefaultConfig
	for name, v := range c.variables() {
		if s, ok := os.LookupEnv(envPrefix + name); ok {
			*v = strings.TrimSpace(s)
		}
	}
	if s, ok := os.LookupEnv(envPrefix + archiveVariable); ok {
		_ = json.Unmarshal([]byte(s), &c.Archive) // a value that Environ did not write is ignored
	}
	if s, ok := os.LookupEnv(envPrefix + pdfVariable); ok {
		_ = json.Unmarshal([]byte(s), &c.PDF)
	}
	return c
}

func (c Config) recognition() ocr.Config {
	return ocr.Config{Tesseract: c.Tesseract, Languages: c.OCRLanguages}
}

// ReadsPictures reports whether the program that reads text in pictures is installed.
func (c Config) ReadsPictures() bool { return c.recognition().On() }

// All returns every format, in registry order. Nothing is started before a file is
// opened. The caller owns the result; the formats in it are safe for concurrent use.
func All(c Config) []parser.Format {
	var all []parser.Format
	registry := sync.OnceValue(func() *parser.Registry { return parser.NewRegistry(all...) })
	patience, _ := time.ParseDuration(c.TranscribeTimeout) // anything invalid means the default
	recognition := c.recognition()
	all = []parser.Format{
		pdf.New(pdf.Config{Engine: pdfium.New(c.PDF), OCR: recognition, Formats: registry}),
		docx.New(recognition, registry),
		odf.NewText(recognition, registry),
		odf.NewSlides(recognition, registry),
		odf.NewSheets(),
		pptx.New(recognition, registry),
		xlsx.New(),
		csv.New(),
		html.New(),
		markdown.New(),
		notebook.New(registry),
		jsonfmt.New(),
		// An Outlook file may embed office files, and an encrypted file is of a
		// different type than its content: they precede office.
		msg.New(registry),
		encrypted.New(registry),
		office.New(office.Config{Soffice: c.Soffice, Elsewhere: slices.Contains(c.Remote, "office")}, registry),
		image.New(image.Config{OCR: recognition, Elsewhere: slices.Contains(c.Remote, "image")}),
		audio.New(audio.Config{
			URL: c.TranscribeURL, Model: c.TranscribeModel, APIKey: c.TranscribeAPIKey, Language: c.TranscribeLanguage,
			Timeout: patience, Elsewhere: slices.Contains(c.Remote, "audio"),
		}),
		epub.New(recognition),
		mbox.New(registry), // begins like a mail
		eml.New(registry),
		archive.New(c.Archive, registry),
		rows.New(),
		subtitles.New(),
		calendar.New(),
		xmlfmt.New(registry),
		yaml.New(registry),
		tex.New(registry),
		text.New(),
	}
	return append([]parser.Format(nil), all...)
}
