// Package eml is the format of mail messages (RFC 5322 and MIME): unit 1 is the
// message, each further unit an attachment, which is read by the format for its
// type. It runs in the parser's child process.
package eml

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"
	"github.com/jhillyerd/enmime/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/members"
	"sheaf/parser/internal/whole"
)

const (
	version = 3 // changes whenever the same file would yield other blocks
	// maxFileBytes limits a message: its parts are held in memory, decoded. Mail
	// servers accept 25 to 50 MB.
	maxFileBytes = 64 << 20
	// maxParts and maxTotalBytes limit the attachments of a message; package
	// members limits what nested messages can expand to.
	maxParts      = 64
	maxTotalBytes = 64 << 20
	maxUnitBytes  = whole.MaxTextBytes
)

// New returns the format. formats finds the reader of an attachment; it is called
// while a message is read, so the registry may include this format.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string   { return "eml" }
func (*format) Version() int { return version }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaEML, Name: "Mail", Extensions: []string{".eml", ".mht", ".mhtml"}, Text: true, Magic: []parser.Magic{{Looks: members.LooksLikeMail}},
		Families: []sheaf.FileFamily{sheaf.FamilyMail}, Nests: true, Unit: sheaf.UnitPart, Ranges: "16 parts",
	}}
}
func (*format) Options() []string { return []string{"table_rows", "ocr_pictures"} }

type document struct {
	formats     *parser.Registry
	options     parser.Options
	envelope    *enmime.Envelope
	attachments []*enmime.Part
	body        []sheaf.Block
	warnings    []sheaf.Warning
	metadata    map[string]string
	left        members.Budget // for attachments
}

// Open implements parser.Format.
func (f *format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	raw, guess, err := read(file)
	if err != nil {
		return nil, err
	}
	env, err := members.ReadMail(raw)
	if f, ok := errors.AsType[*sheaf.Failure](err); ok {
		return nil, f
	}
	if err != nil {
		return nil, invalid("%s", clean.Clip(clean.Line(err.Error()), 200))
	}
	d := &document{formats: f.formats(), options: o, envelope: env, metadata: guess.Metadata(nil)}
	d.left = members.Budget{Parts: maxParts, Bytes: maxTotalBytes}
	if len(env.Root.Header) == 0 || d.header("From") == "" && d.header("To") == "" && d.header("Subject") == "" && d.header("Date") == "" && d.header("Received") == "" && d.header("Message-Id") == "" {
		return nil, invalid("it has none of the header lines of a message")
	}
	for _, h := range [][2]string{{"Subject", "title"}, {"From", "author"}, {"To", "to"}, {"Cc", "cc"}, {"Date", "created"}, {"Message-Id", "message_id"}, {"In-Reply-To", "in_reply_to"}} {
		if v := d.header(h[0]); v != "" {
			d.metadata[h[1]] = clean.Clip(v, maxMetadata) // the text has all of it
		}
	}
	if t, err := env.Date(); err == nil {
		d.metadata["created"] = t.UTC().Format("2006-01-02T15:04:05Z")
	}
	d.collect()
	return d, nil
}

func invalid(format string, args ...any) *sheaf.Failure {
	f := sheaf.Fail(sheaf.CategoryBadInput, "invalid_eml", format, args...)
	f.Message = "The file cannot be read as a mail message: " + f.Message + ". Save the message anew as EML, or set parser_config.media_type to text/plain."
	return f
}

// read loads the message; one saved as UTF-16 is converted to UTF-8, others stay
// bytes, since their parts have their own encodings.
func read(f *os.File) ([]byte, charset.Guess, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, charset.Guess{}, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	if st.Size() == 0 {
		return nil, charset.Guess{}, charset.Empty()
	}
	if st.Size() > maxFileBytes {
		return nil, charset.Guess{}, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The message has %d MB and the limit is %d MB; save its attachments and upload them one by one.", st.Size()>>20, maxFileBytes>>20)
	}
	raw := make([]byte, st.Size())
	n, err := f.ReadAt(raw, 0)
	if n < len(raw) {
		return nil, charset.Guess{}, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	g, _ := charset.Detect(raw[:min(len(raw), charset.SampleBytes)], "", "", false) // no encoding is requested, so none can be unknown
	if g.Wide() {
		return g.Decode(raw), g, nil
	}
	raw = raw[g.BOM:]
	// A mailbox of one message, or a copy from one, begins with its separator.
	if bytes.HasPrefix(raw, []byte("From ")) {
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			raw = raw[i+1:]
		}
	}
	return bytes.TrimLeft(raw, "\r\n\t "), charset.Guess{}, nil
}

const (
	maxHeader   = 10_000 // read of a header: 200 to 300 recipients
	maxMetadata = 2_000  // of a value, as in other formats
)

func (d *document) header(name string) string {
	v := d.envelope.GetHeader(name)
	if len(v) <= maxHeader {
		return clean.Line(v)
	}
	v = clean.Clip(v, maxHeader)
	if i := strings.LastIndexByte(v, ','); i > 0 {
		v = v[:i]
	}
	return clean.Line(v) + " and more"
}

// collect makes the body and lists the attachments, in the order of the message.
func (d *document) collect() {
	images, dropped, wraps := 0, 0, 0
	calendars := map[uint64]bool{} // an invitation is often there twice
	var inner []sheaf.Block        // the text in a winmail.dat
	var attach func(p *enmime.Part)
	attach = func(p *enmime.Part) {
		if w, ok := unwrap(p.Content, wraps); ok {
			inner = append(inner, w.blocks()...)
			wraps++
			for _, f := range w.files {
				attach(f)
			}
			wraps--
			return
		}
		if isCalendar(p) {
			h := xxhash.Sum64(p.Content)
			if calendars[h] {
				return
			}
			calendars[h] = true
		}
		switch {
		case strings.HasPrefix(p.ContentType, "image/") && !d.options.Config.OCRPictures.V:
			images++
		case len(p.Content) == 0 || textless[p.ContentType]:
		case !d.left.Take(int64(len(p.Content))):
			dropped++
		default:
			d.attachments = append(d.attachments, p)
		}
	}
	root := d.envelope.Root
	if root.FirstChild != nil || isSMIME(root) {
		d.body = textOf(root, 0, attach)
	} else {
		for _, p := range append(append([]*enmime.Part(nil), d.envelope.Attachments...), d.envelope.Inlines...) {
			attach(p)
		}
		if d.body = plain(d.envelope.Text); len(d.body) == 0 && d.envelope.HTML != "" {
			d.body = htmlblocks.Blocks(d.envelope.HTML)
		}
	}
	if len(d.body) == 0 { // elsewhere it is there twice
		d.body = inner
	}
	if root.BreadthMatchFirst(encrypted) != nil {
		d.warn("message_encrypted", "The message, or a part of it, is encrypted and was not read; save it decrypted and upload that.")
	}
	if images > 0 {
		d.warn("images_ignored", fmt.Sprintf("Pictures in the message (%d) were not read; set ocr_pictures where they hold text.", images))
	}
	if dropped > 0 {
		d.warn("attachments_dropped", fmt.Sprintf("Attachments (%d) were left out: a message may have %d of them with %d MB together. Save them and upload them one by one.", dropped, maxParts, maxTotalBytes>>20))
	}
}

// textless are the types of parts that hold nothing to read: signatures, and the copy
// of the body for one mail program.
var textless = map[string]bool{
	"application/pgp-signature": true, "application/pkcs7-signature": true, "application/x-pkcs7-signature": true, "text/x-amp-html": true,
}

func encrypted(p *enmime.Part) bool {
	if isSMIME(p) {
		_, sealed := enclosed(p.Content)
		return sealed
	}
	return p.ContentType == "multipart/encrypted"
}

func isCalendar(p *enmime.Part) bool {
	return p.ContentType == "text/calendar" || p.ContentType == "application/ics"
}

// richer is by how much the text of a later alternative must exceed that of an
// earlier one to be read instead, whatever it says: many a plain text only says that
// there is HTML.
const richer = 2

// textOf reads the text of a part and of what is inside it, and hands the rest to
// attach. depth is the number of signed messages around it.
func textOf(p *enmime.Part, depth int, attach func(*enmime.Part)) []sheaf.Block {
	if encrypted(p) {
		return nil
	}
	if isSMIME(p) && depth < maxWraps {
		if message, _ := enclosed(p.Content); message != nil {
			if signed, err := members.ReadMail(message); err == nil {
				return textOf(signed.Root, depth+1, attach)
			}
		}
	}
	if p.FirstChild == nil {
		switch {
		case strings.HasPrefix(p.ContentType, "multipart/"): // empty
			return nil
		case p.Disposition == "attachment" || p.FileName != "":
		case p.ContentType == "text/plain", p.ContentType == "":
			return plain(string(p.Content))
		case p.ContentType == "text/html":
			return htmlblocks.BlocksAt(string(p.Content), foundAt(p))
		}
		attach(p)
		return nil
	}
	var out []sheaf.Block
	for c := p.FirstChild; c != nil; c = c.NextSibling {
		blocks := textOf(c, depth, attach)
		switch {
		case p.ContentType != "multipart/alternative":
			out = append(out, blocks...)
		case len(out) == 0 || whole.TextBytes(blocks) > richer*whole.TextBytes(out)+200 || saysOther(blocks, out):
			out = blocks
		}
	}
	return out
}

// foundAt is where a saved web page was found (RFC 2557, 5), nil if it does not say.
func foundAt(p *enmime.Part) *url.URL {
	at, err := url.Parse(strings.TrimSpace(p.Header.Get("Content-Location")))
	if err != nil || !at.IsAbs() {
		return nil
	}
	return at
}

// leastWords is from how many words on a text can say something else.
const leastWords = 8

// saysOther reports whether more than a third of the words of a text, each counted
// once, are not in the other: the plain text may be a notice, or that of a template.
func saysOther(text, other []sheaf.Block) bool {
	words := func(blocks []sheaf.Block) map[string]bool {
		all := map[string]bool{}
		for _, b := range blocks {
			cells := [][]string{{b.Text}}
			if b.Table != nil {
				cells = append(slices.Clip(b.Table.Rows), b.Table.Columns)
			}
			for _, row := range cells {
				for _, c := range row {
					for w := range strings.FieldsFuncSeq(strings.ToLower(c), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
						all[w] = true
					}
				}
			}
		}
		return all
	}
	known, all, unknown := words(other), words(text), 0
	for w := range all {
		if !known[w] {
			unknown++
		}
	}
	return len(all) >= leastWords && 3*unknown > len(all)
}

func (d *document) warn(code, message string) {
	d.warnings = append(d.warnings, sheaf.Warning{Code: code, Message: message})
}

func (d *document) Close() error { return nil }

// Plan implements parser.Document.
func (d *document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: 1 + len(d.attachments), RangeSize: 16, Metadata: d.metadata, Warnings: d.warnings}
	if len(d.attachments) > 0 {
		d.metadata["attachments"] = strconv.Itoa(len(d.attachments))
	}
	for i, a := range d.attachments {
		p.Outline = append(p.Outline, sheaf.Heading{Level: 1, Title: d.name(a, i), Page: i + 2})
	}
	body := xxhash.New()
	for _, h := range shown {
		_, _ = body.WriteString(d.header(h) + "\x00") // a hash never fails
	}
	_ = json.NewEncoder(body).Encode(d.body) // plain fields always encode
	p.Fingerprints = []uint64{body.Sum64()}
	for i, a := range d.attachments {
		h := xxhash.New()
		_, _ = h.WriteString(a.ContentType + "\x00" + d.name(a, i) + "\x00") // a hash never fails
		_, _ = h.Write(a.Content)
		p.Fingerprints = append(p.Fingerprints, h.Sum64())
	}
	return p, nil
}

func (d *document) name(p *enmime.Part, i int) string {
	if n := clean.Line(clean.Clip(p.FileName, 200)); n != "" {
		return n
	}
	if isCalendar(p) {
		return "invite.ics"
	}
	return "attachment " + strconv.Itoa(i+1)
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > 1+len(d.attachments) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The message has %d parts, so part %d does not exist.", 1+len(d.attachments), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var u sheaf.UnitResult
		if n == 1 {
			u = d.message()
		} else {
			u = d.attachment(ctx, n)
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

var shown = []string{"From", "To", "Cc", "Subject", "Date"}

func (d *document) message() sheaf.UnitResult {
	var lines []string
	for _, h := range shown {
		if v := d.header(h); v != "" {
			lines = append(lines, h+": "+v)
		}
	}
	blocks := []sheaf.Block{{Kind: sheaf.BlockParagraph, Text: strings.Join(lines, "\n"), Page: 1}}
	if len(lines) == 0 {
		blocks = nil
	}
	if whole.TextBytes(d.body) > maxUnitBytes {
		return sheaf.UnitResult{Unit: 1, Status: sheaf.UnitFailed, Code: "too_large", Message: fmt.Sprintf("The message's text is larger than %d MB; split it.", maxUnitBytes>>20)}
	}
	for i := range d.body {
		d.body[i].Page = 1
	}
	return whole.Unit(1, append(blocks, d.body...))
}

// plain reads the body of a text message; lines that begin with '>' are quoted.
func plain(s string) []sheaf.Block {
	var out []sheaf.Block
	var cur []string
	quoted := false
	flush := func() {
		kind := sheaf.BlockParagraph
		if quoted {
			kind = sheaf.BlockQuote
		}
		if t := clean.Lines(strings.Join(cur, "\n")); t != "" {
			out = append(out, sheaf.Block{Kind: kind, Text: t})
		}
		cur = cur[:0]
	}
	for line := range strings.SplitSeq(clean.Text(s), "\n") {
		text := strings.TrimLeft(line, "> ")
		q := strings.HasPrefix(strings.TrimLeft(line, " "), ">")
		if text == "" || q != quoted {
			flush()
		}
		if quoted = q; text != "" {
			cur = append(cur, text)
		}
	}
	flush()
	return out
}

// attachment reads one attachment through the registry.
func (d *document) attachment(ctx context.Context, n int) sheaf.UnitResult {
	part, mediaType := d.attachments[n-2], ""
	if part.ContentType == parser.MediaEML {
		mediaType = parser.MediaEML
	}
	r := members.Reader{Formats: d.formats, Options: d.options, Noun: "attachment"}
	return r.Read(ctx, n, d.name(part, n-2), mediaType, bytes.NewReader(part.Content), int64(len(part.Content)))
}
