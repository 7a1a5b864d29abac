// Package calendar is the format of iCalendar and vCard files (RFC 5545, RFC 6350):
// each event, task, journal entry or contact is a unit, with its title as heading
// and its properties as lines. It runs in the parser's child process.
package calendar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/quotedprintable"
	"os"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
)

const (
	version = 2 // changes whenever the same file would yield other blocks
	// maxFileBytes limits a file, which is read whole: ten years of meetings have 20 MB.
	maxFileBytes = 64 << 20
	rangeSize    = 200 // entries per task
	// maxValues limits the values that are listed under one name, such as attendees.
	maxValues = 200
)

// New returns the format.
func New() parser.Format { return format{} }

type format struct{}

func (format) ID() string   { return "calendar" }
func (format) Version() int { return version }
func (format) Types() []parser.FileType {
	kind := func(mediaType, name, extension, begin string) parser.FileType {
		return parser.FileType{
			MediaType: mediaType, Name: name, Extensions: []string{extension}, Text: true,
			Magic:    []parser.Magic{{Bytes: begin}, {Bytes: "\xef\xbb\xbf" + begin}},
			Families: []sheaf.FileFamily{sheaf.FamilyText}, Unit: sheaf.UnitPart, Ranges: "200 entries",
		}
	}
	return []parser.FileType{
		kind("text/calendar", "Calendar", ".ics", "BEGIN:VCALENDAR"),
		kind("text/vcard", "Contacts", ".vcf", "BEGIN:VCARD"),
	}
}
func (format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (format) Open(_ context.Context, f *os.File, o parser.Options) (parser.Document, error) {
	b, guess, err := parts.Whole(f, maxFileBytes, o.Config.Encoding.V)
	if err != nil {
		return nil, err
	}
	d := &document{guess: guess}
	d.read(string(b))
	if len(d.entries) == 0 {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_document", "The file contains no event, task or contact. Export it again, or set parser_config.media_type to text/plain.")
	}
	return d, nil
}

type document struct {
	guess   charset.Guess
	title   string
	entries []entry
}

// entry is an event, a task, a journal entry, a list of busy times or a contact.
type entry struct {
	title  string
	names  []string            // of the properties, in order of first use
	values map[string][]string // by name
	notes  []string
	left   int // values left out
}

// Close implements parser.Document.
func (*document) Close() error { return nil }

// Plan implements parser.Document.
func (d *document) Plan(context.Context) (*parser.Plan, error) {
	p := &parser.Plan{Unit: sheaf.UnitPart, Units: len(d.entries), RangeSize: rangeSize, Metadata: d.guess.Metadata(map[string]string{}), Warnings: d.guess.Warnings()}
	if d.title != "" {
		p.Metadata["title"] = d.title
	}
	for i := range d.entries {
		h := xxhash.New()
		_ = json.NewEncoder(h).Encode(d.entries[i].blocks(0)) // plain fields always encode
		p.Fingerprints = append(p.Fingerprints, h.Sum64())
	}
	return p, nil
}

// Parse implements parser.Document.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	for n := r.From; n <= r.To; n++ {
		if n < 1 || n > len(d.entries) {
			return sheaf.Fail(sheaf.CategoryBadInput, "bad_range", "The file has %d entries, so entry %d does not exist.", len(d.entries), n)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		e := &d.entries[n-1]
		u := whole.Unit(n, e.blocks(n))
		u.Label = e.title
		if e.left > 0 {
			u.Warnings = append(u.Warnings, sheaf.Warning{Code: "values_clipped", Page: n, Message: fmt.Sprintf("%d values, such as attendees, were left out: of each kind %d are read.", e.left, maxValues)})
		}
		if err := emit(u); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) blocks(page int) (out []sheaf.Block) {
	if e.title != "" {
		out = append(out, sheaf.Block{Kind: sheaf.BlockHeading, Level: 1, Text: e.title, Page: page})
	}
	var lines []string
	for _, name := range e.names {
		lines = append(lines, name+": "+strings.Join(e.values[name], ", "))
	}
	if len(lines) > 0 {
		out = append(out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: strings.Join(lines, "\n"), Page: page})
	}
	for _, note := range e.notes {
		out = append(out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: note, Page: page})
	}
	return out
}

// read collects the entries. What is inside an entry, such as an alarm, and time
// zones are left out.
func (d *document) read(s string) {
	var e *entry
	inside := 0 // components within the entry
	flush := func() {
		if e != nil && (e.title != "" || len(e.names) > 0 || len(e.notes) > 0) {
			d.entries = append(d.entries, *e)
		}
		e, inside = nil, 0
	}
	for line := range unfolded(s) {
		p := parse(line)
		switch {
		case p.name == "BEGIN" && e != nil && !components[strings.ToUpper(p.value)]:
			inside++
		case p.name == "BEGIN" && components[strings.ToUpper(p.value)]:
			flush() // one that has no end
			e = &entry{values: map[string][]string{}}
		case p.name == "END" && inside > 0:
			inside--
		case p.name == "END":
			flush()
		case e != nil && inside == 0 && p.name != "":
			e.add(p)
		case e == nil && (p.name == "X-WR-CALNAME" || p.name == "NAME"):
			d.title = clean.Line(clean.Clip(p.text(), 300))
		}
	}
	flush()
}

// components are those that become entries.
var components = map[string]bool{"VEVENT": true, "VTODO": true, "VJOURNAL": true, "VFREEBUSY": true, "VCARD": true}

// readable are the names by which readers know properties; others are shown by their
// own. An empty name leaves a property out: it is for programs, or is no text.
var readable = map[string]string{
	"DTSTART": "Start", "DTEND": "End", "DUE": "Due", "COMPLETED": "Completed", "DURATION": "Duration", "LOCATION": "Location",
	"ORGANIZER": "Organizer", "ATTENDEE": "Attendees", "RRULE": "Repeats", "RDATE": "Also on", "EXDATE": "Except", "STATUS": "Status",
	"CATEGORIES": "Categories", "URL": "URL", "CONTACT": "Contact", "RESOURCES": "Resources", "FREEBUSY": "Busy", "ATTACH": "Attachment",
	"FN": "Name", "ORG": "Organization", "TITLE": "Title", "ROLE": "Role", "TEL": "Phone", "EMAIL": "Email", "ADR": "Address",
	"BDAY": "Birthday", "ANNIVERSARY": "Anniversary", "NICKNAME": "Nickname", "IMPP": "Messenger", "LABEL": "Address", "RELATED": "Related", "LANG": "Language",
	"UID": "", "DTSTAMP": "", "SEQUENCE": "", "CREATED": "", "LAST-MODIFIED": "", "REV": "", "PRODID": "", "VERSION": "", "CLASS": "", "TRANSP": "",
	"PRIORITY": "", "PHOTO": "", "LOGO": "", "SOUND": "", "KEY": "", "GEO": "", "TZ": "", "RECURRENCE-ID": "", "SORT-STRING": "", "KIND": "", "N": "", "CALADRURI": "", "CALURI": "", "FBURL": "", "SOURCE": "",
}

func (e *entry) add(p property) {
	if strings.EqualFold(p.params["VALUE"], "BINARY") || strings.HasPrefix(strings.ToLower(p.value), "data:") {
		return
	}
	switch p.name {
	case "SUMMARY", "FN":
		if e.title == "" {
			e.title = clean.Line(clean.Clip(p.text(), 1000))
			return
		}
	case "N": // an old vCard may have no other name
		if family, given, _ := strings.Cut(p.value, ";"); e.title == "" {
			given, _, _ = strings.Cut(given, ";")
			e.title = clean.Line(clean.Clip(unescaped(given+" "+family), 1000))
		}
	case "DESCRIPTION", "NOTE", "COMMENT":
		if text := clean.Lines(p.text()); text != "" {
			e.notes = append(e.notes, text)
		}
		return
	case "X-ALT-DESC":
		if len(e.notes) == 0 && strings.EqualFold(p.params["FMTTYPE"], "text/html") {
			for _, b := range htmlblocks.Blocks(p.text()) {
				e.notes = append(e.notes, b.Text)
			}
		}
		return
	}
	name, known := readable[p.name]
	if known && name == "" || strings.HasPrefix(p.name, "X-") {
		return
	}
	if !known {
		name = strings.ToUpper(p.name[:1]) + strings.ToLower(p.name[1:])
	}
	value := clean.Line(p.shown())
	switch {
	case value == "":
		return
	case len(e.values[name]) == maxValues:
		e.left++
		return
	}
	if e.values[name] == nil {
		e.names = append(e.names, name)
	}
	e.values[name] = append(e.values[name], value)
}

// property is a content line: NAME;PARAM=value:value.
type property struct {
	name   string // upper case, without a group
	params map[string]string
	value  string
}

// unfolded yields the content lines: a line that begins with white space continues
// the one before, and so does the next one of a quoted-printable value that ends in
// '='.
func unfolded(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var line strings.Builder
		encoded := false // as quoted-printable
		for next := range strings.SplitSeq(strings.ReplaceAll(s, "\r\n", "\n"), "\n") {
			if next != "" && (next[0] == ' ' || next[0] == '\t') {
				line.WriteString(next[1:])
				continue
			}
			if encoded && strings.HasSuffix(line.String(), "=") {
				line.WriteString("\n" + next)
				continue
			}
			if line.Len() > 0 && !yield(line.String()) {
				return
			}
			line.Reset()
			line.WriteString(next)
			names, _, _ := strings.Cut(next, ":")
			encoded = strings.Contains(strings.ToUpper(names), "QUOTED-PRINTABLE")
		}
		if line.Len() > 0 {
			yield(line.String())
		}
	}
}

// parse splits a content line. A colon or a semicolon in quotes separates nothing.
func parse(line string) property {
	p := property{params: map[string]string{}}
	quoted, from, key := false, 0, ""
	end := func(to int) {
		part := line[from:to]
		switch name, value, ok := strings.Cut(part, "="); {
		case key == "":
			key = part
		case ok:
			p.params[strings.ToUpper(name)] = strings.Trim(value, `"`)
		default: // vCard 2.1: ;WORK;QUOTED-PRINTABLE
			p.params[strings.ToUpper(part)] = ""
		}
		from = to + 1
	}
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case c == ';' && !quoted:
			end(i)
		case c == ':' && !quoted:
			end(i)
			p.value = line[i+1:]
			if _, name, grouped := strings.Cut(key, "."); grouped { // item1.TEL
				key = name
			}
			if p.name = strings.ToUpper(strings.TrimSpace(key)); !token(p.name) {
				return property{}
			}
			return p.decoded()
		}
	}
	return property{} // no property
}

// token reports whether a name is one of RFC 5545.
func token(s string) bool {
	for _, c := range []byte(s) {
		if c != '-' && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// decoded is the property without the transfer encoding of vCard 2.1.
func (p property) decoded() property {
	_, short := p.params["QUOTED-PRINTABLE"]
	if !short && !strings.EqualFold(p.params["ENCODING"], "QUOTED-PRINTABLE") {
		return p
	}
	b, _ := io.ReadAll(quotedprintable.NewReader(strings.NewReader(p.value))) // as far as it goes
	if name := p.params["CHARSET"]; name != "" {
		if g, err := charset.Detect(b, name, "", false); err == nil {
			b = g.Decode(b)
		}
	}
	p.value = string(b)
	return p
}

// text is the value of a property that is text.
func (p property) text() string { return unescaped(p.value) }

var escapes = strings.NewReplacer(`\n`, "\n", `\N`, "\n", `\,`, ",", `\;`, ";", `\\`, `\`)

func unescaped(s string) string { return escapes.Replace(s) }

// shown is the value as readers write it.
func (p property) shown() string {
	switch p.name {
	case "DTSTART", "DTEND", "DUE", "COMPLETED", "EXDATE", "RDATE", "FREEBUSY":
		zone := p.params["TZID"]
		var out []string
		for v := range strings.SplitSeq(p.value, ",") {
			from, to, span := strings.Cut(v, "/")
			if from = moment(from, zone); span {
				from += " – " + moment(to, zone)
			}
			out = append(out, from)
		}
		return strings.Join(out, ", ")
	case "ORGANIZER", "ATTENDEE":
		address := p.value
		if len(address) > 7 && strings.EqualFold(address[:7], "mailto:") {
			address = address[7:]
		}
		if name := p.params["CN"]; name != "" && name != address {
			return name + " <" + address + ">"
		}
		return address
	case "ADR", "ORG":
		var out []string
		for v := range strings.SplitSeq(strings.ReplaceAll(p.value, `\;`, "\x00"), ";") {
			if v = strings.TrimSpace(unescaped(strings.ReplaceAll(v, "\x00", ";"))); v != "" {
				out = append(out, v)
			}
		}
		return strings.Join(out, ", ")
	case "TEL", "IMPP":
		return strings.TrimPrefix(p.text(), "tel:")
	}
	return p.text()
}

// moment shows a date or a date with time; what is neither stays as it is.
func moment(v, zone string) string {
	for _, l := range []struct{ in, out string }{{"20060102T150405Z", "2006-01-02 15:04 UTC"}, {"20060102T150405", "2006-01-02 15:04"}, {"20060102", "2006-01-02"}} {
		if t, err := time.Parse(l.in, v); err == nil {
			if zone != "" && l.in == "20060102T150405" {
				return t.Format(l.out) + " " + zone
			}
			return t.Format(l.out)
		}
	}
	return v
}
