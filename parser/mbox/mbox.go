// Package mbox is the format of mailboxes (RFC 4155): a unit is a message, which
// the mail message format reads with its attachments. It runs in the parser's child
// process.
package mbox

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/members"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/tempfile"
	"sheaf/parser/internal/whole"
)

const (
	version = 2 // changes whenever the same file would yield other blocks
	// rangeSize is the number of messages per task: measured, one takes 1 ms
	// without its attachments.
	rangeSize   = 100
	maxMessages = 500_000
	// maxMessageBytes is the limit of the mail message format.
	maxMessageBytes = 64 << 20
	maxWarnings     = 20 // per message
)

// New returns the format. formats finds the reader of messages; it is called
// while a mailbox is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string { return "mbox" }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaMBOX, Name: "Mailbox", Extensions: []string{".mbox"}, Text: true, Magic: []parser.Magic{{Looks: looksLikeMailbox}},
		Families: []sheaf.FileFamily{sheaf.FamilyMail}, Nests: true, Unit: sheaf.UnitPart, Ranges: "100 messages",
	}}
}

// looksLikeMailbox requires two messages that begin with a separator: a single
// saved message may also have one.
func looksLikeMailbox(head []byte) bool {
	return bytes.HasPrefix(head, []byte("From ")) && (bytes.Contains(head, []byte("\n\nFrom ")) || bytes.Contains(head, []byte("\n\r\nFrom "))) && members.LooksLikeMail(head)
}
func (*format) Options() []string { return []string{"table_rows", "ocr_pictures"} }

// Version grows with that of messages.
func (f *format) Version() int {
	if in, ok := f.formats().ByMediaType(parser.MediaEML); ok {
		return version + in.Version()
	}
	return version
}

// Open implements parser.Format. It finds where messages begin, which takes one
// pass over the file.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	mail, ok := f.formats().ByMediaType(parser.MediaEML)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build reads no mail messages, and so no mailboxes.")
	}
	d := &document{file: file, mail: mail, options: o}
	return d, d.scan(ctx, size)
}

// message is the location of a message, without its separator.
type message struct {
	parts.Slice
	sum uint64
}

type document struct {
	file     *os.File
	mail     parser.Format
	options  parser.Options
	messages []message
}

func (d *document) Close() error { return nil }

var separator = []byte("From ")

// scan finds the separators: a line that begins with "From ", at the file's
// start or after an empty line.
func (d *document) scan(ctx context.Context, size int64) error {
	r := bufio.NewReaderSize(io.NewSectionReader(d.file, 0, size), 64<<10)
	hash := xxhash.New()
	at, start, blank, open := int64(0), int64(0), true, false
	end := func(to int64) {
		if open && to > start {
			d.messages = append(d.messages, message{parts.Slice{Offset: start, Length: to - start}, hash.Sum64()})
		}
		hash.Reset()
	}
	fresh := true // at the start of a line
	for n := 0; ; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, err := r.ReadSlice('\n') // long lines come in pieces
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
		}
		from := at
		at += int64(len(line))
		if fresh && blank && bytes.HasPrefix(line, separator) && err == nil {
			end(from)
			if start, open = at, true; len(d.messages) >= maxMessages {
				return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The mailbox has more than %d messages; split it into smaller ones.", maxMessages)
			}
		} else {
			_, _ = hash.Write(line) // a hash never fails
		}
		if fresh {
			blank = len(bytes.TrimRight(line, "\r\n")) == 0
		}
		fresh = err == nil
		if err == io.EOF {
			break
		}
	}
	end(at)
	if len(d.messages) == 0 {
		return sheaf.Fail(sheaf.CategoryBadInput, "invalid_mbox", "The file cannot be read as a mailbox: no line begins a message with \"From \". Export it again as mbox, or set parser_config.media_type to message/rfc822 for a single message.")
	}
	return nil
}

// Plan implements parser.Document.
func (d *document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: len(d.messages), RangeSize: rangeSize,
		Metadata: map[string]string{"messages": fmt.Sprint(len(d.messages))}}
	for _, m := range d.messages {
		p.Fingerprints = append(p.Fingerprints, m.sum)
	}
	return p, nil
}

// Parse implements parser.Document. A message that cannot be read is a failed unit.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.messages) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The mailbox has %d messages, so message %d does not exist.", len(d.messages), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		u, err := d.message(ctx, n)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f := sheaf.AsFailure(err, "")
			u = sheaf.UnitResult{Unit: n, Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

var errFull = errors.New("enough of this message was read")

func (d *document) message(ctx context.Context, n int) (u sheaf.UnitResult, err error) {
	m := d.messages[n-1]
	if m.Length > maxMessageBytes {
		return u, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The message has %d MB and the limit is %d MB; save its attachments and upload them one by one.", m.Length>>20, maxMessageBytes>>20)
	}
	raw := make([]byte, m.Length)
	if _, err := d.file.ReadAt(raw, m.Offset); err != nil && err != io.EOF {
		return u, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	}
	dir, err := os.MkdirTemp(d.options.TempDir, "message-")
	if err != nil {
		return u, tempfile.Full(err)
	}
	defer os.RemoveAll(dir)
	f, err := os.CreateTemp(dir, "content-")
	if err != nil {
		return u, tempfile.Full(err)
	}
	defer f.Close()
	if _, err := f.Write(unquote(raw)); err != nil {
		return u, tempfile.Full(err)
	}
	o := d.options
	o.MediaType, o.TempDir, o.Hint = parser.MediaEML, dir, nil
	doc, err := d.mail.Open(ctx, f, o)
	if err != nil {
		return u, err
	}
	defer doc.Close()
	plan, err := doc.Plan(ctx)
	if err != nil {
		return u, err
	}
	var blocks []sheaf.Block
	warnings, size := plan.Warnings, 0
	err = doc.Parse(ctx, sheaf.Range{From: 1, To: plan.Units}, func(in sheaf.UnitResult) error {
		warnings = append(warnings, in.Warnings...)
		if in.Status == sheaf.UnitFailed {
			warnings = append(warnings, sheaf.Warning{Code: in.Code, Message: in.Message})
		}
		if size += whole.TextBytes(in.Blocks); size > whole.MaxTextBytes {
			warnings = append(warnings, sheaf.Warning{Code: "message_clipped", Message: fmt.Sprintf("Only the first %d MB of the message's text were read; upload it by itself.", whole.MaxTextBytes>>20)})
			return errFull
		}
		for _, b := range in.Blocks {
			b.Page = n
			blocks = append(blocks, b)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return u, err
	}
	subject := plan.Metadata["title"]
	if len(blocks) > 0 {
		// Otherwise a chunk would hold the end of one message and the head of the next,
		// whose text would come under the name of an attachment of the one before.
		heading := sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: cmp.Or(subject, "(no subject)"), Page: n}
		blocks = append([]sheaf.Block{heading}, blocks...)
	}
	u = whole.Unit(n, blocks)
	u.Label = subject
	u.Warnings = warnings[:min(len(warnings), maxWarnings)]
	for i := range u.Warnings {
		u.Warnings[i].Page = n
	}
	return u, nil
}

// unquote removes the '>' that distinguishes a line beginning with "From " from a
// separator.
func unquote(raw []byte) []byte {
	if !bytes.Contains(raw, []byte("\n>")) {
		return raw
	}
	out := raw[:0] // never longer than the input
	for line := range bytes.Lines(raw) {
		if bytes.HasPrefix(line, []byte(">")) && bytes.HasPrefix(bytes.TrimLeft(line, ">"), separator) {
			line = line[1:]
		}
		out = append(out, line...)
	}
	return out
}
