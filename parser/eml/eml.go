// Package eml is the format of mail messages (RFC 5322 and MIME): unit 1 is
// the message, each further unit an attachment, which is read by the format
// that takes its type. It runs in the parser's child process.
package eml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/jhillyerd/enmime/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/whole"
)

const (
	version = 1 // changes whenever the same file would yield other blocks
	// maxFileBytes bounds a message: its parts are held in memory, decoded.
	// Mail servers take 25 to 50 MB.
	maxFileBytes = 64 << 20
	// maxParts, maxDepth and maxTotalBytes bound what messages inside
	// messages can unfold to.
	maxParts      = 64
	maxDepth      = 3
	maxTotalBytes = 64 << 20
	// maxBoundaries stops a nest of multiparts, which the MIME reader follows
	// by recursion.
	maxBoundaries = 1_000
	maxUnitBytes  = whole.MaxTextBytes
)

// New returns the format. formats finds the reader of an attachment; it is
// called while a message is read, so that it may know this format too.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string           { return "eml" }
func (*format) Version() int         { return version }
func (*format) MediaTypes() []string { return []string{parser.MediaEML} }
func (*format) Options() []string    { return []string{"table_rows"} }

// budget is what is left for a message and all that is inside it.
type budget struct {
	depth, parts int
	bytes        int64
}

type budgetKey struct{}

type document struct {
	formats     *parser.Registry
	options     parser.Options
	envelope    *enmime.Envelope
	attachments []*enmime.Part
	warnings    []sheaf.Warning
	metadata    map[string]string
	budget      *budget
}

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	raw, guess, err := read(file)
	if err != nil {
		return nil, err
	}
	if bytes.Count(bytes.ToLower(raw), []byte("boundary=")) > maxBoundaries {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "too_deep", "The message has more than %d nested parts; forward the part you need as a message of its own and upload that.", maxBoundaries)
	}
	p := enmime.NewParser(enmime.DisableTextConversion(true), enmime.SkipMalformedParts(true), enmime.MultipartWOBoundaryAsSinglePart(true),
		enmime.MaxStoredPartErrors(10), enmime.SetReadPartErrorPolicy(func(*enmime.Part, error) bool { return true }))
	env, err := p.ReadEnvelope(bytes.NewReader(raw))
	if err != nil {
		return nil, invalid("%s", clean.Clip(clean.Line(err.Error()), 200))
	}
	d := &document{formats: f.formats(), options: o, envelope: env, metadata: guess.Metadata(nil)}
	d.budget, _ = ctx.Value(budgetKey{}).(*budget)
	if d.budget == nil {
		d.budget = &budget{parts: maxParts, bytes: maxTotalBytes}
	}
	if len(env.Root.Header) == 0 || d.header("From") == "" && d.header("To") == "" && d.header("Subject") == "" && d.header("Date") == "" && d.header("Received") == "" && d.header("Message-Id") == "" {
		return nil, invalid("it has none of the header lines of a message")
	}
	for _, h := range [][2]string{{"Subject", "title"}, {"From", "author"}, {"To", "to"}, {"Cc", "cc"}, {"Date", "created"}, {"Message-Id", "message_id"}, {"In-Reply-To", "in_reply_to"}} {
		if v := d.header(h[0]); v != "" {
			d.metadata[h[1]] = v
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

// read loads the message; one that was saved as UTF-16 is turned into UTF-8,
// others stay bytes, since their parts have encodings of their own.
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
	// A mailbox of one message, or a copy of one, begins with its separator.
	if bytes.HasPrefix(raw, []byte("From ")) {
		if i := bytes.IndexByte(raw, '\n'); i >= 0 {
			raw = raw[i+1:]
		}
	}
	return bytes.TrimLeft(raw, "\r\n\t "), charset.Guess{}, nil
}

func (d *document) header(name string) string {
	return clean.Line(clean.Clip(d.envelope.GetHeader(name), 2000))
}

// collect lists what becomes a unit of its own.
func (d *document) collect() {
	images, dropped := 0, 0
	take := func(p *enmime.Part) {
		switch {
		case strings.HasPrefix(p.ContentType, "image/"):
			images++
		case len(p.Content) == 0:
		case d.budget.parts <= 0 || int64(len(p.Content)) > d.budget.bytes:
			dropped++
		default:
			d.budget.parts--
			d.budget.bytes -= int64(len(p.Content))
			d.attachments = append(d.attachments, p)
		}
	}
	for _, p := range d.envelope.Attachments {
		take(p)
	}
	for _, p := range append(append([]*enmime.Part(nil), d.envelope.Inlines...), d.envelope.OtherParts...) {
		if p.FileName != "" || p.ContentType == parser.MediaEML {
			take(p)
		}
	}
	if images > 0 {
		d.warn("images_ignored", fmt.Sprintf("%d pictures in the message were not read.", images))
	}
	if dropped > 0 {
		d.warn("attachments_dropped", fmt.Sprintf("%d attachments were left out: a message may have %d of them with %d MB together. Save them and upload them one by one.", dropped, maxParts, maxTotalBytes>>20))
	}
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
	_, _ = body.WriteString(d.envelope.Text + "\x00" + d.envelope.HTML) // a hash never fails
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
	var body []sheaf.Block
	if strings.TrimSpace(d.envelope.Text) != "" {
		body = plain(d.envelope.Text)
	} else if d.envelope.HTML != "" {
		body = htmlblocks.Read([]byte(strings.ToValidUTF8(d.envelope.HTML, "\ufffd"))).Blocks
	}
	if whole.TextBytes(body) > maxUnitBytes {
		return sheaf.UnitResult{Unit: 1, Status: sheaf.UnitFailed, Code: "too_large", Message: fmt.Sprintf("The message's text is larger than %d MB; split it.", maxUnitBytes>>20)}
	}
	for i := range body {
		body[i].Page = 1
	}
	return whole.Unit(1, append(blocks, body...))
}

// plain reads the body of a text message; lines that begin with '>' are
// somebody else's.
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

// attachment reads one attachment through the registry. What is wrong with it
// is a verdict on its unit, never on the message.
func (d *document) attachment(ctx context.Context, n int) sheaf.UnitResult {
	part := d.attachments[n-2]
	name := d.name(part, n-2)
	u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Label: name}
	verdict := func(s sheaf.UnitStatus, code, message string) sheaf.UnitResult {
		u.Status, u.Code, u.Message = s, code, message
		u.Blocks = nil
		return u
	}
	mediaType := parser.Sniff(bytes.NewReader(part.Content), int64(len(part.Content)), name)
	if part.ContentType == parser.MediaEML {
		mediaType = parser.MediaEML
	}
	format, ok := d.formats.ByMediaType(mediaType)
	if !ok {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "attachment_unsupported", Message: fmt.Sprintf("The attachment %s is %s and was not read.", name, mediaType), Page: n})
		return verdict(sheaf.UnitSkipped, "unsupported_format", fmt.Sprintf("The attachment %s is %s, which cannot be read; convert it and upload it by itself.", name, mediaType))
	}
	if err := parser.Available(format); err != nil {
		f := sheaf.AsFailure(err, "")
		return verdict(sheaf.UnitSkipped, f.Code, fmt.Sprintf("The attachment %s was not read. %s", name, f.Message))
	}
	if d.budget.depth >= maxDepth && mediaType == parser.MediaEML {
		return verdict(sheaf.UnitSkipped, "too_deep", fmt.Sprintf("The message %s lies more than %d messages deep and was not read; upload it by itself.", name, maxDepth))
	}
	blocks, warnings, err := d.readPart(ctx, format, mediaType, name, n, part.Content)
	if err != nil {
		f := sheaf.AsFailure(err, "")
		return verdict(sheaf.UnitFailed, f.Code, fmt.Sprintf("The attachment %s: %s", name, f.Message))
	}
	for _, w := range warnings {
		w.Page = n
		w.Message = name + ": " + w.Message
		u.Warnings = append(u.Warnings, w)
	}
	if len(blocks) == 0 {
		return verdict(sheaf.UnitBlank, "no_text", "The attachment "+name+" holds no text.")
	}
	u.Blocks = append([]sheaf.Block{{Kind: sheaf.BlockHeading, Level: 1, Text: name, Page: n}}, blocks...)
	return u
}

func (d *document) readPart(ctx context.Context, format parser.Format, mediaType, name string, n int, content []byte) (blocks []sheaf.Block, warnings []sheaf.Warning, err error) {
	dir, err := os.MkdirTemp(d.options.TempDir, "part")
	if err != nil {
		return nil, nil, sheaf.FailRetryable(sheaf.CategoryCapacity, "storage_full", "The temporary folder took no more data (%v); free some space there or set another folder.", err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "content")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, nil, sheaf.FailRetryable(sheaf.CategoryCapacity, "storage_full", "The temporary folder took no more data (%v); free some space there or set another folder.", err)
	}
	inner := *d.budget
	inner.depth++
	ctx = context.WithValue(ctx, budgetKey{}, &inner)
	o := parser.Options{Name: name, MediaType: mediaType, Config: sheaf.ParseConfig{TableRows: d.options.Config.TableRows, Password: d.options.Config.Password}, TempDir: dir}
	plan, err := openAndPlan(ctx, format, path, o)
	if err != nil {
		return nil, nil, err
	}
	warnings = plan.Warnings
	size := 0
	emit := func(u sheaf.UnitResult) error {
		warnings = append(warnings, u.Warnings...)
		if u.Status == sheaf.UnitFailed {
			warnings = append(warnings, sheaf.Warning{Code: u.Code, Message: u.Message})
		}
		for _, b := range u.Blocks {
			// Places and rows of the attachment mean nothing in the message.
			b.Page, b.Spans = n, nil
			if b.Table != nil {
				t := *b.Table
				t.FirstRow, t.RowBoxes, t.Box = 0, nil, nil
				b.Table = &t
			}
			blocks = append(blocks, b)
		}
		if size += whole.TextBytes(u.Blocks); size > maxUnitBytes/2 {
			return errFull
		}
		return nil
	}
	ranges := plan.Ranges
	if ranges == nil {
		ranges = []parser.PlannedRange{{Range: sheaf.Range{From: 1, To: plan.Units}}}
	}
	for _, r := range ranges {
		err := d.parseRange(ctx, format, path, o, r, emit)
		if errors.Is(err, errFull) {
			warnings = append(warnings, sheaf.Warning{Code: "attachment_clipped", Message: fmt.Sprintf("Only its first %d MB of text were read; upload it by itself.", maxUnitBytes>>21)})
			break
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return blocks, warnings[:min(len(warnings), 50)], nil
}

var errFull = errors.New("enough of this attachment was read")

func openAndPlan(ctx context.Context, format parser.Format, path string, o parser.Options) (*parser.Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := format.Open(ctx, f, o)
	if err != nil {
		return nil, err
	}
	defer doc.Close()
	return doc.Plan(ctx)
}

func (d *document) parseRange(ctx context.Context, format parser.Format, path string, o parser.Options, r parser.PlannedRange, emit func(sheaf.UnitResult) error) error {
	o.Hint = r.Hint
	if r.Shard != "" {
		path = filepath.Join(o.TempDir, filepath.FromSlash(r.Shard))
		o.MediaType = r.MediaType
		known, ok := d.formats.ByMediaType(r.MediaType)
		if !ok {
			return fmt.Errorf("no format for shards of type %q", r.MediaType)
		}
		format = known
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	doc, err := format.Open(ctx, f, o)
	if err != nil {
		return err
	}
	defer doc.Close()
	return doc.Parse(ctx, r.Range, emit)
}
