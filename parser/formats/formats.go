// Package formats lists the formats that Sheaf is built with. Programs hand
// the list to the parser's child processes and to the planner.
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

// Config names the optional parts: programs and services that some formats
// need and that need not be there.
type Config struct {
	Soffice      string // path or name of LibreOffice's soffice; "" for none
	Tesseract    string // path or name of tesseract; "" for none
	OCRLanguages string // of tesseract, joined by "+"
	// The server that turns speech into text; see package audio.
	TranscribeURL, TranscribeModel, TranscribeAPIKey, TranscribeLanguage string
	TranscribeTimeout                                                    string // a time.Duration as text; "" for the default
	// PDF is what reads PDFs: see pdfium.Find.
	PDF pdfium.Config
	// Archive bounds what is read of one archive.
	Archive archive.Limits
	// Remote lists the ids of formats whose part is where documents are
	// parsed, though not here: uploads for them are taken.
	Remote []string
}

// DefaultConfig looks for the programs in PATH.
var DefaultConfig = Config{Soffice: "soffice", Tesseract: "tesseract", OCRLanguages: "eng"}

// envPrefix begins the variables by which the configuration reaches the
// parser's child processes. They are named like the settings.
const envPrefix = "SHEAF_PARSER_"

// Variables that hold a part as JSON.
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

// Environ is the configuration as environment variables of a child process.
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

// FromEnviron reads what Environ wrote; what is not set has its default.
func FromEnviron() Config {
	c := DefaultConfig
	for name, v := range c.variables() {
		if s, ok := os.LookupEnv(envPrefix + name); ok {
			*v = strings.TrimSpace(s)
		}
	}
	if s, ok := os.LookupEnv(envPrefix + archiveVariable); ok {
		_ = json.Unmarshal([]byte(s), &c.Archive) // what Environ did not write changes nothing
	}
	if s, ok := os.LookupEnv(envPrefix + pdfVariable); ok {
		_ = json.Unmarshal([]byte(s), &c.PDF)
	}
	return c
}

func (c Config) recognition() ocr.Config {
	return ocr.Config{Tesseract: c.Tesseract, Languages: c.OCRLanguages}
}

// ReadsPictures reports whether the program is here that reads text in pictures.
func (c Config) ReadsPictures() bool { return c.recognition().On() }

// All returns every format, in the order in which a registry should ask them.
// Nothing is started before a file is opened. The result is the caller's; the
// formats in it are safe for use by many goroutines.
func All(c Config) []parser.Format {
	var all []parser.Format
	registry := sync.OnceValue(func() *parser.Registry { return parser.NewRegistry(all...) })
	patience, _ := time.ParseDuration(c.TranscribeTimeout) // what is none means the default
	recognition := c.recognition()
	all = []parser.Format{
		pdf.New(pdf.Config{Engine: pdfium.New(c.PDF), OCR: recognition}),
		docx.New(recognition),
		pptx.New(recognition),
		xlsx.New(),
		csv.New(),
		html.New(),
		markdown.New(),
		notebook.New(registry),
		jsonfmt.New(),
		// A file of Outlook may embed office files, and an encrypted file is
		// none of those it is written as: they stand before office.
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
		xmlfmt.New(registry),
		yaml.New(registry),
		tex.New(registry),
		text.New(),
	}
	return append([]parser.Format(nil), all...)
}
