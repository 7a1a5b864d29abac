// Package msg is the format of Outlook messages ([MS-OXMSG]): it converts the
// compound file to a mail message and passes that, with its attachments, to the
// mail message format. It runs in the parser's child process.
package msg

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"mime"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/richardlehane/mscfb"
	"golang.org/x/text/encoding/htmlindex"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/rtf"
	"sheaf/parser/internal/tempfile"
)

const (
	version = 3 // changes whenever the same file would yield other blocks; see Version
	// maxFileBytes is less than the mail message format accepts, since encoding
	// enlarges attachments by a third.
	maxFileBytes = 45 << 20
	maxEntries   = 20_000
	// maxDepth limits nested messages; the mail message format has a lower limit of
	// its own.
	maxDepth       = 4
	maxAttachments = 256
	maxRecipients  = 1_000
	maxHeader      = 16_000 // more than the mail message format reads
)

// New returns the format. formats finds the reader of mail messages; it is
// called while a message is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string { return "msg" }
func (*format) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaMSG, Name: "Outlook mail", Extensions: []string{".msg"}, Magic: []parser.Magic{{Stream: "__properties_version1.0"}, {Stream: "__substg1.0_*"}},
		Families: []sheaf.FileFamily{sheaf.FamilyMail}, Nests: true, Unit: sheaf.UnitPart, Ranges: "16 parts",
	}}
}
func (*format) Options() []string { return []string{"table_rows", "ocr_pictures"} }

// Version grows with that of mail messages.
func (f *format) Version() int {
	if in, ok := f.formats().ByMediaType(parser.MediaEML); ok {
		return version + in.Version()
	}
	return version
}

func invalid(why string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_msg", "The file cannot be read as an Outlook message: %s. Save the message again in Outlook, or export it as EML, and upload that.", why)
}

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, maxFileBytes)
	if err != nil {
		return nil, err
	}
	mail, ok := f.formats().ByMediaType(parser.MediaEML)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build reads no mail messages, and so no Outlook messages.")
	}
	root, err := read(file, size)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	root.write(&b, 0)
	o.MediaType = parser.MediaEML
	return tempfile.Open(o.TempDir, "message-*", b.Bytes(), func(in *os.File) (parser.Document, error) { return mail.Open(ctx, in, o) })
}

// storage is a folder of the compound file, with the relevant streams.
type storage struct {
	streams map[string][]byte
	folders map[string]*storage
	numbers map[named]uint32
}

// read loads the streams of properties, recipients and attachments.
func read(file *os.File, size int64) (root *storage, err error) {
	defer func() {
		if recover() != nil { // the library trusts the file's own data
			root, err = nil, invalid("its container is damaged")
		}
	}()
	doc, openErr := mscfb.New(io.NewSectionReader(file, 0, size))
	if openErr != nil {
		return nil, invalid("its container is damaged")
	}
	root = &storage{}
	left := size // streams cannot hold more than the file
	for range maxEntries {
		e, err := doc.Next()
		if err != nil {
			break
		}
		if len(e.Path) > 4*maxDepth || !strings.HasPrefix(e.Name, "__substg1.0_") && !strings.HasPrefix(e.Name, "__properties_") {
			continue
		}
		if e.FileInfo().IsDir() {
			continue
		}
		if e.Size < 0 || e.Size > left {
			return nil, invalid("the stream " + clean.Line(e.Name) + " claims more bytes than the file has")
		}
		left -= e.Size
		b := make([]byte, e.Size)
		n, _ := io.ReadFull(e, b) // a truncated stream is read as far as possible
		s := root
		for _, step := range e.Path {
			s = s.folder(step)
		}
		if s.streams == nil {
			s.streams = map[string][]byte{}
		}
		s.streams[strings.ToUpper(strings.TrimPrefix(e.Name, "__substg1.0_"))] = b[:n]
	}
	if root.streams["__PROPERTIES_VERSION1.0"] == nil && len(root.streams) == 0 {
		return nil, invalid("it holds no properties of a message")
	}
	root.numbers = root.readNumbers()
	return root, nil
}

func (s *storage) folder(name string) *storage {
	if s.folders == nil {
		s.folders = map[string]*storage{}
	}
	f := s.folders[name]
	if f == nil {
		f = &storage{}
		s.folders[name] = f
	}
	return f
}

// Properties of a message ([MS-OXPROPS]).
const (
	propClass         = "001A"
	propSubject       = "0037"
	propHeaders       = "007D" // PidTagTransportMessageHeaders
	propSenderName    = "0C1A"
	propSenderAddress = "0C1F"
	propSenderSMTP    = "5D01"
	propTo            = "0E04"
	propCc            = "0E03"
	propBody          = "1000"
	propHTML          = "1013"
	propRTF           = "1009" // PidTagRtfCompressed
	propMessageID     = "1035"
	propAttachData    = "3701"
	propAttachName    = "3704"
	propAttachLong    = "3707"
	propAttachMime    = "370E"
	propDisplayName   = "3001"
	propAddress       = "3003"
	propSMTPAddress   = "39FE"

	tagSubmitTime   = 0x00390040
	tagDeliveryTime = 0x0E060040
	tagCodepage     = 0x3FFD0003
	tagInternetCPID = 0x3FDE0003
	tagRecipient    = 0x0C150003 // its kind
	tagStart        = 0x00600040
	tagEnd          = 0x00610040
)

// fixed reads a fixed-length property from the list of properties ([MS-OXMSG] 2.4):
// entries of 16 bytes after a header whose length depends on the kind of folder.
func (s *storage) fixed(tag uint32) (v uint64, ok bool) {
	b := s.streams["__PROPERTIES_VERSION1.0"]
	for _, head := range []int{32, 24, 8} {
		if len(b) < head || (len(b)-head)%16 != 0 {
			continue
		}
		for at := head; at+16 <= len(b); at += 16 {
			if binary.LittleEndian.Uint32(b[at:]) == tag {
				return binary.LittleEndian.Uint64(b[at+8:]), true
			}
		}
	}
	return 0, false
}

// text reads a string property: UTF-16, or bytes in the message's code page.
func (s *storage) text(prop, page string) string {
	if b, ok := s.streams[prop+"001F"]; ok {
		return strings.TrimRight(charset.UTF16(b), "\x00")
	}
	return strings.TrimRight(decode(s.streams[prop+"001E"], page), "\x00")
}

func decode(b []byte, page string) string {
	if page == "utf-8" && !utf8.Valid(b) { // declared for the body, and wrong for the names
		page = "windows-1252"
	}
	if enc, err := htmlindex.Get(page); err == nil {
		if out, err := enc.NewDecoder().Bytes(b); err == nil {
			return string(out)
		}
	}
	return strings.ToValidUTF8(string(b), "\ufffd")
}

// codepage names the encoding of the message's byte strings; Windows-1252 if not
// declared.
func (s *storage) codepage(tags ...uint32) string {
	names := map[uint64]string{
		65001: "utf-8", 20127: "windows-1252", 932: "shift_jis", 936: "gbk", 949: "euc-kr", 950: "big5", 54936: "gb18030", 50220: "iso-2022-jp",
		20866: "koi8-r", 21866: "koi8-u", 51932: "euc-jp", 51949: "euc-kr", 874: "windows-874", 28605: "iso-8859-15",
	}
	for _, tag := range tags {
		v, _ := s.fixed(tag)
		v &= 0xffffffff
		switch {
		case names[v] != "":
			return names[v]
		case v >= 1250 && v <= 1258:
			return "windows-" + strconv.FormatUint(v, 10)
		case v >= 28591 && v <= 28599:
			return "iso-8859-" + strconv.FormatUint(v-28590, 10)
		}
	}
	return "windows-1252"
}

// fileTime writes 100 ns since 1601 in a layout; "" for no time.
func fileTime(v uint64, layout string) string {
	const epoch = 116_444_736_000_000_000 // 1970
	if v < epoch || v > epoch+1<<57 {
		return ""
	}
	return time.Unix(0, 0).Add(time.Duration(v-epoch) / 10 * time.Microsecond).UTC().Format(layout)
}

// write writes the folder as a mail message (RFC 5322).
func (s *storage) write(b *bytes.Buffer, depth int) {
	page := s.codepage(tagCodepage, tagInternetCPID)
	header := func(name, value string) {
		if value = clean.Line(clean.Clip(value, maxHeader)); value != "" {
			fmt.Fprintf(b, "%s: %s\r\n", name, mime.QEncoding.Encode("utf-8", value))
		}
	}
	from := s.text(propSenderName, page)
	address := s.text(propSenderSMTP, page)
	if plain := s.text(propSenderAddress, page); address == "" && strings.Contains(plain, "@") {
		address = plain
	}
	if address != "" && address != from {
		from = strings.TrimSpace(from + " <" + address + ">")
	}
	header("From", from)
	to, cc := s.recipients(page)
	header("To", firstOf(to, s.text(propTo, page)))
	header("Cc", firstOf(cc, s.text(propCc, page)))
	header("Subject", s.text(propSubject, page))
	header("Message-Id", s.text(propMessageID, page))
	date := ""
	for _, tag := range []uint32{tagSubmitTime, tagDeliveryTime} {
		if v, ok := s.fixed(tag); ok && date == "" {
			date = fileTime(v, time.RFC1123Z)
		}
	}
	if date == "" { // as recorded by the mail system
		for line := range strings.SplitSeq(s.text(propHeaders, page), "\n") {
			if v, ok := strings.CutPrefix(line, "Date:"); ok && date == "" {
				date = v
			}
		}
	}
	header("Date", date)
	m := mixed{b, "=_sheaf_" + strconv.Itoa(depth)}
	m.begin("mixed", "MIME-Version: 1.0\r\n")
	if facts := s.facts(page); facts != "" {
		m.part("text/plain; charset=utf-8", "", []byte(facts))
	}
	text, html := s.body(page)
	body := m
	if text != "" && html != nil { // the mail message format chooses
		body.boundary += "_body"
		fmt.Fprintf(b, "--%s\r\n", m.boundary)
		body.begin("alternative", "")
	}
	if text != "" {
		body.part("text/plain; charset=utf-8", "", []byte(text))
	}
	if html != nil {
		body.part("text/html; charset=utf-8", "", html)
	}
	if body != m {
		body.end()
	}
	for _, name := range s.attachments() {
		a := s.folders[name]
		title := clean.Line(clean.Clip(firstOf(a.text(propAttachLong, page), a.text(propAttachName, page), a.text(propDisplayName, page)), 300))
		if inner := a.folders["__substg1.0_"+propAttachData+"000D"]; inner != nil {
			if depth >= maxDepth {
				continue
			}
			var of bytes.Buffer
			inner.numbers = s.numbers
			inner.write(&of, depth+1)
			m.part("application/octet-stream", attachment(firstOf(title, "message")+".eml"), of.Bytes())
			continue
		}
		content, contentType := a.streams[propAttachData+"0102"], "application/octet-stream"
		t, _, err := mime.ParseMediaType(a.text(propAttachMime, page))
		switch {
		case t == "multipart/signed" && text == "" && html == nil: // the message itself, with its own header ([MS-OXOSMIME] 2.1.3)
			fmt.Fprintf(b, "--%s\r\n%s\r\n", m.boundary, content)
			continue
		case err == nil && !strings.HasPrefix(t, "multipart/") && !strings.HasPrefix(t, "message/"):
			contentType = t
		}
		m.part(contentType, attachment(title), content)
	}
	m.end()
}

// mixed writes the parts of a message between lines with its boundary, which content
// cannot contain: base64 has no such line.
type mixed struct {
	to       *bytes.Buffer
	boundary string
}

func (m mixed) begin(kind, header string) {
	fmt.Fprintf(m.to, "%sContent-Type: multipart/%s; boundary=%q\r\n\r\n", header, kind, m.boundary)
}

func (m mixed) part(contentType, disposition string, content []byte) {
	fmt.Fprintf(m.to, "--%s\r\nContent-Type: %s\r\n", m.boundary, contentType)
	if disposition != "" {
		fmt.Fprintf(m.to, "Content-Disposition: %s\r\n", disposition)
	}
	m.to.WriteString("Content-Transfer-Encoding: base64\r\n\r\n")
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(content)), 76) {
		m.to.Write(append(line, "\r\n"...))
	}
}

func (m mixed) end() { fmt.Fprintf(m.to, "--%s--\r\n", m.boundary) }

// body returns the plain text and the HTML of a message; nil for no HTML.
func (s *storage) body(page string) (text string, html []byte) {
	if text = s.text(propBody, page); strings.TrimSpace(text) == "" {
		text = ""
	}
	if b, ok := s.streams[propHTML+"0102"]; ok {
		return text, []byte(decode(b, s.codepage(tagInternetCPID, tagCodepage)))
	}
	if t := s.text(propHTML, page); t != "" {
		return text, []byte(t)
	}
	rich, err := rtf.Decompress(s.streams[propRTF+"0102"])
	if err != nil { // a damaged one is ignored
		return text, nil
	}
	if t, isHTML := rtf.Text(rich); isHTML {
		html = []byte(t)
	} else if text == "" {
		text = strings.TrimSpace(t)
	}
	return text, html
}

// recipients lists those a message is to, and those who get a copy, with addresses.
func (s *storage) recipients(page string) (to, cc string) {
	var lists [3][]string // by kind: others, To, Cc
	for _, name := range s.numbered("__recip_version1.0_#", maxRecipients) {
		r := s.folders[name]
		who, address := r.text(propDisplayName, page), r.text(propSMTPAddress, page)
		if plain := r.text(propAddress, page); address == "" && strings.Contains(plain, "@") {
			address = plain
		}
		if who = strings.Trim(who, "' "); who == "" || who == address {
			who = address
		} else if address != "" {
			who += " <" + address + ">"
		}
		if kind, _ := r.fixed(tagRecipient); kind&0xF < uint64(len(lists)) && who != "" {
			lists[kind&0xF] = append(lists[kind&0xF], who)
		}
	}
	return strings.Join(lists[1], ", "), strings.Join(lists[2], ", ")
}

// attachments lists the attachment folders in order.
func (s *storage) attachments() []string { return s.numbered("__attach_version1.0_#", maxAttachments) }

// numbered lists at most n folders of a kind in order.
func (s *storage) numbered(kind string, n int) []string {
	var out []string
	for name := range s.folders {
		if strings.HasPrefix(name, kind) {
			out = append(out, name)
		}
	}
	slices.Sort(out) // numbered in hexadecimal, of equal length
	return out[:min(len(out), n)]
}

func attachment(name string) string {
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": name}); v != "" && name != "" {
		return v
	}
	return "attachment"
}

func firstOf(values ...string) string {
	for _, v := range values {
		if strings.TrimSpace(v) != "" {
			return v
		}
	}
	return ""
}
