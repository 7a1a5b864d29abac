// Package ocr reads the text in pictures with tesseract, an optional program: for
// image files and for pages of PDFs without a text layer.
package ocr

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/program"
	"sheaf/parser/internal/tempfile"
)

const (
	// revision changes whenever the same picture would yield different text.
	revision = "2 "
	// timeout and the limits below apply per page. Measured: 2 CPU-seconds and 84
	// MB at 200 dpi.
	timeout        = 2 * time.Minute
	maxMemoryBytes = 1 << 30
	maxOutputBytes = 32 << 20
	// RangePages is the number of pages per task: a few seconds each, read side by
	// side, and lost when a process ends.
	RangePages = 4
	// DPI is the resolution at which pages are drawn for OCR: measured, 150 and 300
	// read equally well, and 300 costs more.
	DPI = 200
	// uncertain is the mean confidence of words below which a page gets a warning.
	uncertain = 60
	// minConfidence of a word; below it tesseract sees letters in dirt.
	minConfidence = 20
)

// Config configures OCR.
type Config struct {
	Tesseract string // path, or a name in PATH; "" to disable it
	Languages string // as tesseract names them, joined by "+": "eng+deu"; "" means eng
}

// On reports whether the program is installed.
func (c Config) On() bool {
	_, err := c.find("")
	return err == nil
}

// Find returns the failure part_missing when the program is not installed.
func (c Config) Find() error {
	_, err := c.find("Reading pictures")
	return err
}

func (c Config) find(purpose string) (string, error) {
	return program.Program{Name: "tesseract", Command: c.Tesseract, Packages: "tesseract-ocr and tesseract-ocr-eng", Setting: "parser.tesseract"}.Find(purpose)
}

func (c Config) languages() string {
	if c.Languages == "" {
		return "eng"
	}
	return c.Languages
}

// Digest is a number that goes into a format's version: the text depends on the
// languages. It is 0 if OCR is off, otherwise at least 1,000, and leaves the last
// three digits free.
func (c Config) Digest() int {
	if !c.On() {
		return 0
	}
	return 1000 * int(1+xxhash.Sum64String(revision+c.languages())%100_000)
}

// Text is the text read from a picture.
type Text struct {
	Blocks     []sheaf.Block
	Confidence int // mean over the words, in percent
}

// Verdict sets the status, blocks and message of the unit u.
func (t Text) Verdict(u *sheaf.UnitResult) {
	if len(t.Blocks) == 0 {
		u.Status, u.Code, u.Message = sheaf.UnitBlank, "no_text", "Text recognition found no text here."
		return
	}
	u.Status, u.Code, u.Blocks = sheaf.UnitOCR, "", t.Blocks
	u.Message = "Recognised with a confidence of " + strconv.Itoa(t.Confidence) + " %."
	if t.Confidence < uncertain {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "ocr_uncertain", Page: u.Unit, Message: "The text of this page was recognised with a confidence of only " + strconv.Itoa(t.Confidence) + " %; a sharper scan reads better."})
	}
}

// Lines returns the text alone, a block per line.
func (t Text) Lines() string {
	lines := make([]string, 0, len(t.Blocks))
	for _, b := range t.Blocks {
		lines = append(lines, b.Text)
	}
	return strings.Join(lines, "\n")
}

// Read recognises page number n (from 1) of the picture at path, which has dpi
// pixels per inch; temp is its folder for temporary files. The blocks are placed on
// unit page, in points. A picture that was read in an earlier version of the
// document is not read again, see parser.Readings.
func (c Config) Read(ctx context.Context, temp, path string, n, page, dpi int) (Text, error) {
	exe, err := c.find("Reading pictures")
	if err != nil {
		return Text{}, err
	}
	key, err := c.key(path, n, dpi)
	if err != nil {
		return Text{}, err
	}
	words := parser.Recall(ctx, key)
	if words == nil {
		if words, err = c.run(ctx, exe, temp, path, n, dpi); err != nil {
			return Text{}, err
		}
		parser.Keep(ctx, key, words)
	}
	return parse(string(words), page, 72/float64(dpi)), nil
}

// key names a reading by the bytes of the picture and what determines its words.
func (c Config) key(path string, n, dpi int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", tempfile.Full(err)
	}
	defer f.Close()
	h := sha256.New()
	fmt.Fprintf(h, "%d %d %s\x00", n, dpi, c.languages())
	if _, err := io.Copy(h, f); err != nil {
		return "", tempfile.Full(err)
	}
	return fmt.Sprintf("ocr %x", h.Sum(nil)[:16]), nil
}

// run returns the lines of tesseract's TSV for the page and its words, see parse.
func (c Config) run(ctx context.Context, exe, temp, path string, n, dpi int) ([]byte, error) {
	dir, err := os.MkdirTemp(temp, "ocr-")
	if err != nil {
		return nil, tempfile.Full(err)
	}
	defer os.RemoveAll(dir)
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	out, err := program.Run{
		Path: exe, Dir: dir, Timeout: timeout, MemoryBytes: maxMemoryBytes, OutputBytes: maxOutputBytes,
		Env: []string{"OMP_THREAD_LIMIT=1"}, // pages are read in parallel, not parts of one
		// Detects the page's orientation; without the data for that, pages are
		// assumed upright.
		Args: []string{path, "-", "--psm", "1", "--dpi", strconv.Itoa(dpi), "-l", c.languages(), "-c", "tessedit_page_number=" + strconv.Itoa(n-1), "tsv"},
	}.Do(ctx)
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && strings.Contains(f.Detail, "Failed loading language") {
		return nil, program.Missing("Text recognition lacks the data of a language in %q: install the packages tesseract-ocr-… of its languages, or change parser.ocr_languages.", c.languages())
	}
	if err != nil {
		return nil, err
	}
	var words []byte
	for line := range bytes.Lines(out) {
		// Of the page, which is there without words too, and of its words.
		if bytes.HasPrefix(line, []byte("1\t")) || bytes.HasPrefix(line, []byte("5\t")) {
			words = append(words, line...)
		}
	}
	return words, nil
}

// line is a line of words.
type line struct {
	text string
	box  sheaf.Box
}

// parse reads tesseract's TSV: level, page, block, paragraph, line, word,
// left, top, width, height, confidence, text. A paragraph becomes a block, a
// line a span of it. scale turns pixels into points.
func parse(tsv string, page int, scale float64) Text {
	var t Text
	var lines []line
	paragraph, current := "", ""
	sum, words := 0.0, 0
	flush := func() {
		if b, ok := join(lines, page); ok {
			t.Blocks = append(t.Blocks, b)
		}
		lines = lines[:0]
	}
	for row := range strings.Lines(tsv) {
		f := strings.SplitN(strings.TrimRight(row, "\r\n"), "\t", 12)
		if len(f) < 12 || f[0] != "5" {
			continue
		}
		var v [5]float64
		bad := false
		for i := range v {
			x, err := strconv.ParseFloat(f[6+i], 64)
			v[i], bad = x, bad || err != nil
		}
		word := clean.Line(f[11])
		if bad || word == "" || v[4] < minConfidence {
			continue
		}
		sum += v[4]
		words++
		if p := f[2] + "/" + f[3]; p != paragraph {
			flush()
			paragraph, current = p, ""
		}
		b := sheaf.Box{Page: page, X0: v[0] * scale, Y0: v[1] * scale, X1: (v[0] + v[2]) * scale, Y1: (v[1] + v[3]) * scale}
		if f[4] != current || len(lines) == 0 {
			current = f[4]
			lines = append(lines, line{word, b})
			continue
		}
		l := &lines[len(lines)-1]
		l.text += " " + word
		l.box.X0, l.box.Y0 = min(l.box.X0, b.X0), min(l.box.Y0, b.Y0)
		l.box.X1, l.box.Y1 = max(l.box.X1, b.X1), max(l.box.Y1, b.Y1)
	}
	flush()
	if words > 0 {
		t.Confidence = int(sum/float64(words) + .5)
	}
	return t
}

// join makes a paragraph of lines. A word broken at a line's end is rejoined if it
// continues in lower case.
func join(lines []line, page int) (sheaf.Block, bool) {
	var text strings.Builder
	b := sheaf.Block{Kind: sheaf.BlockParagraph, Page: page}
	readable := false
	for i, l := range lines {
		start, s, next := text.Len(), l.text, " "
		if i == len(lines)-1 {
			next = ""
		} else if first, _ := utf8.DecodeRuneInString(lines[i+1].text); strings.HasSuffix(s, "-") && unicode.IsLower(first) {
			s, next = strings.TrimSuffix(s, "-"), ""
		}
		text.WriteString(s)
		b.Spans = append(b.Spans, sheaf.Span{Start: start, End: text.Len(), Box: l.box})
		text.WriteString(next)
		readable = readable || clean.Readable(s)
	}
	b.Text = text.String()
	return b, readable
}
