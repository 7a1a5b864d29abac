package pdf

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf"
	"sheaf/parser/internal/clean"
	"sheaf/parser/pdf/engine"
)

// What is filled into a form, or typed onto a page, is drawn by annotations (ISO
// 32000-1, 12.5 and 12.7) and is no part of the page's content, which is what the
// engine reads. The plan collects it: the ranges get it as parser.Options.Beside.

// Limits on what is read beside the pages.
const (
	maxFields      = 5_000  // fields and widgets examined
	maxFieldDepth  = 32     // of nested fields
	maxBesideBytes = 16_000 // per page; maxMetaBytes per value
	maxBesideTotal = 256_000
	annotatedPages = 100    // pages of a document whose annotations are read; each link of a manual is one, and takes 2 µs
	maxAnnotations = 20_000 // examined
)

// Flags of annotations (ISO 32000-1, table 165), and of fields (tables 221 to 228).
const (
	isHidden   = 1<<1 | 1<<5
	isPassword = 1 << 13
	isRadio    = 1 << 15
	isPush     = 1 << 16
)

// field is a line of text that an annotation shows.
type field struct {
	page int // from 0
	text string
	box  sheaf.Box // in the page's own coordinates, y upwards; zero if unknown
}

// forms reads the fields of a form and the text typed onto pages, and lists the files
// that are attached.
type forms struct {
	objects  resolver
	pageOf   map[int]int // object number of a page → its index from 0
	widgets  map[int]int // object number of a widget → page, once it is needed
	numbers  []int       // object numbers of the pages
	seen     map[int]bool
	examined int
	bytes    map[int]int // by page
	total    int
	out      []field
	clipped  int // values left out
	cut      int // values of which the beginning was read
	comments int // annotations of reviewers
	files    attached
	xfa      bool
}

// inheritedField is what a field takes from those above it.
type inheritedField struct {
	kind    string
	value   types.Object
	flags   int
	options types.Object
	label   string
}

func (f *forms) read(root types.Dict) {
	f.seen, f.bytes = map[int]bool{}, map[int]int{}
	if form := dictOf(f.objects, root["AcroForm"]); form != nil {
		fields := arrayOf(f.objects, form["Fields"])
		f.xfa = form["XFA"] != nil && len(fields) == 0
		for _, o := range fields {
			f.walk(o, inheritedField{}, 0)
		}
	}
	f.attachments(dictOf(f.objects, root["Names"])["EmbeddedFiles"], 0)
	if len(f.numbers) <= annotatedPages {
		f.typed()
	}
	slices.SortStableFunc(f.out, func(a, b field) int {
		return cmp.Or(cmp.Compare(a.page, b.page), cmp.Compare(b.box.Y1, a.box.Y1), cmp.Compare(a.box.X0, b.box.X0))
	})
}

// walk visits a field: one with its own fields, or one with the widgets that show
// it, which may be itself.
func (f *forms) walk(o types.Object, in inheritedField, depth int) {
	if f.examined++; f.examined > maxFields || depth > maxFieldDepth {
		f.clipped++
		return
	}
	number := 0
	if ref, ok := o.(types.IndirectRef); ok {
		if number = ref.ObjectNumber.Value(); f.seen[number] {
			return
		}
		f.seen[number] = true
	}
	d := dictOf(f.objects, o)
	if d == nil {
		return
	}
	if kind, ok := f.name(d["FT"]); ok {
		in.kind = kind
	}
	if v, ok := d.Find("V"); ok {
		in.value = v
	}
	if v, ok := d.Find("Opt"); ok {
		in.options = v
	}
	if n, ok := f.integer(d["Ff"]); ok {
		in.flags = n
	}
	// TU is for readers, and T for programs: "topmostSubform[0]".
	if label := cmp.Or(f.text(d["TU"]), strings.TrimSuffix(f.text(d["T"]), "[0]")); label != "" {
		in.label = label
	}
	for _, k := range arrayOf(f.objects, d["Kids"]) {
		f.walk(k, in, depth+1)
	}
	if d["Rect"] != nil {
		f.widget(d, number, in)
	}
}

// widget adds what a widget shows.
func (f *forms) widget(d types.Dict, number int, in inheritedField) {
	if flags, _ := f.integer(d["F"]); flags&isHidden != 0 {
		return
	}
	var text string
	switch in.kind {
	case "Tx":
		if in.flags&isPassword == 0 {
			text = f.text(in.value)
		}
	case "Ch":
		text = f.chosen(in)
	case "Btn":
		if state, ok := f.name(d["AS"]); ok && state != "Off" && in.flags&isPush == 0 {
			text = "yes"
			if in.flags&isRadio != 0 {
				text = state
			}
		}
	case "Sig": // one that is drawn nowhere belongs to the file, not to a page
		if b := f.rectangle(0, d["Rect"]); b.X0 < b.X1 && b.Y0 < b.Y1 {
			text = f.signed(in.value)
		}
	}
	if text == "" {
		return
	}
	if in.label != "" {
		text = in.label + ": " + text
	}
	if page, ok := f.pageBehind(d, number); ok {
		f.add(page, text, d)
	}
}

// chosen is the choice, or the choices, of a list by the names that readers see.
func (f *forms) chosen(in inheritedField) string {
	names := map[string]string{}
	for _, o := range arrayOf(f.objects, in.options) {
		if pair := arrayOf(f.objects, o); len(pair) == 2 {
			names[f.text(pair[0])] = f.text(pair[1])
		}
	}
	values := []types.Object{in.value}
	if list := arrayOf(f.objects, in.value); list != nil {
		values = list
	}
	var out []string
	for _, v := range values {
		if s := f.text(v); s != "" {
			out = append(out, cmp.Or(names[s], s))
		}
	}
	return strings.Join(out, ", ")
}

// pageBehind finds a widget's page: it may name it, and otherwise the pages are
// searched for the widget.
func (f *forms) pageBehind(d types.Dict, number int) (page int, ok bool) {
	if ref, is := d["P"].(types.IndirectRef); is {
		if page, ok = f.pageOf[ref.ObjectNumber.Value()]; ok {
			return page, true
		}
	}
	if f.widgets == nil {
		f.widgets = map[int]int{}
		for page, n := range f.numbers {
			for _, o := range f.annotations(n) {
				if ref, is := o.(types.IndirectRef); is {
					f.widgets[ref.ObjectNumber.Value()] = page
				}
			}
		}
	}
	page, ok = f.widgets[number]
	return page, ok
}

func (f *forms) annotations(page int) types.Array {
	return arrayOf(f.objects, dictOf(f.objects, *types.NewIndirectRef(page, 0))["Annots"])
}

// stamps are the texts of stamps by their names, those of Acrobat without the # or SB
// in front (ISO 32000-1, table 181). Others are pictures.
var stamps = map[string]string{
	"Accepted": "Accepted", "Approved": "Approved", "NotApproved": "Not approved", "AsIs": "As is", "Completed": "Completed", "Confidential": "Confidential",
	"Departmental": "Departmental", "Draft": "Draft", "Experimental": "Experimental", "Expired": "Expired", "Final": "Final",
	"ForComment": "For comment", "ForPublicRelease": "For public release", "InformationOnly": "Information only",
	"NotForPublicRelease": "Not for public release", "PreliminaryResults": "Preliminary results", "Rejected": "Rejected", "Sold": "Sold", "TopSecret": "Top secret", "Void": "Void",
}

// typed adds text typed onto the pages, and counts the comments of reviewers.
func (f *forms) typed() {
	looked := 0
	for page, n := range f.numbers {
		for _, o := range f.annotations(n) {
			if looked++; looked > maxAnnotations {
				f.clipped++
				return
			}
			d := dictOf(f.objects, o)
			kind, _ := f.name(d["Subtype"])
			flags, _ := f.integer(d["F"])
			if flags&isHidden != 0 {
				continue
			}
			switch kind {
			case "FileAttachment":
				f.attach(d["FS"], page)
			case "FreeText":
				if text := f.text(d["Contents"]); text != "" {
					f.add(page, text, d)
				}
			case "Stamp":
				name, _ := f.name(d["Name"])
				if text := stamps[strings.TrimPrefix(strings.TrimPrefix(name, "#"), "SB")]; text != "" {
					f.add(page, text, d)
				}
			case "Text", "Highlight", "Underline", "Squiggly", "StrikeOut", "Caret":
				if f.text(d["Contents"]) != "" {
					f.comments++
				}
			}
		}
	}
}

// attached are the files attached to a document.
type attached struct {
	read     []attachment // when their page is
	names    []string     // the first of those that are not
	n        int          // of those that are not
	examined int          // nodes and entries
}

// attachment is a file in a stream of the document.
type attachment struct {
	page   int // from 0
	number int // of the stream
	name   string
	sum    uint64 // of its bytes, as they are stored
}

// markAttached is the language of a block that stands for an attachment until its
// page is parsed, followed by the number and the sum. A program that does not know
// it reads the name.
const markAttached = "attached "

// String lists those that are not read, for a warning.
func (a attached) String() string {
	s := strings.Join(a.names, ", ")
	if more := a.n - len(a.names); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

const (
	maxAttachments = 10_000 // nodes and entries examined
	readFiles      = 50     // attachments
	namedFiles     = 8      // in the warning
)

// attachments visits the name tree of the attached files (ISO 32000-1, 7.9.6).
func (f *forms) attachments(o types.Object, depth int) {
	node := dictOf(f.objects, o)
	if f.files.examined++; node == nil || depth > maxTreeDepth || f.files.examined > maxAttachments {
		return
	}
	pairs := arrayOf(f.objects, node["Names"])
	for i := 1; i < len(pairs); i += 2 {
		f.attach(pairs[i], len(f.numbers)-1)
	}
	for _, k := range arrayOf(f.objects, node["Kids"]) {
		f.attachments(k, depth+1)
	}
}

// attach lists the file of a file specification (ISO 32000-2, 7.11.3), unless it is
// what the pages show: an invoice in XML beside its printed form. Those of the whole
// document belong to its last page.
func (f *forms) attach(o types.Object, page int) {
	if f.files.examined++; f.files.examined > maxAttachments {
		return
	}
	if ref, ok := o.(types.IndirectRef); ok {
		if f.seen[ref.ObjectNumber.Value()] {
			return // both in the tree and on a page
		}
		f.seen[ref.ObjectNumber.Value()] = true
	}
	d := dictOf(f.objects, o)
	if d["EF"] == nil {
		return
	}
	switch relation, _ := f.name(d["AFRelationship"]); relation {
	case "Alternative", "Source", "Data":
		return
	}
	name := clean.Clip(clean.Line(cmp.Or(f.text(d["UF"]), f.text(d["F"]))), 100)
	if a, ok := f.stored(dictOf(f.objects, d["EF"])); ok && len(f.files.read) < readFiles {
		a.page, a.name = page, cmp.Or(name, "file")
		f.files.read = append(f.files.read, a)
		return
	}
	f.files.n++
	if name != "" && len(f.files.names) < namedFiles {
		f.files.names = append(f.files.names, name)
	}
}

// stored finds the stream of an attached file. Files that only pdfcpu opens, such as
// encrypted ones, are not opened again to read it.
func (f *forms) stored(ef types.Dict) (a attachment, ok bool) {
	if _, own := f.objects.(*objects); !own {
		return a, false
	}
	for _, key := range []string{"UF", "F"} {
		ref, ok := ef[key].(types.IndirectRef)
		if !ok {
			continue
		}
		o, err := f.objects.Dereference(ref)
		if s, ok := o.(types.StreamDict); ok && err == nil {
			return attachment{number: ref.ObjectNumber.Value(), sum: xxhash.Sum64(s.Raw)}, true
		}
	}
	return a, false
}

func (f *forms) add(page int, text string, d types.Dict) {
	if f.bytes[page]+len(text) > maxBesideBytes || f.total+len(text) > maxBesideTotal {
		f.clipped++
		return
	}
	f.bytes[page] += len(text)
	f.total += len(text)
	f.out = append(f.out, field{page: page, text: text, box: f.rectangle(page, d["Rect"])})
}

// rectangle reads a rectangle; the zero Box if it is none.
func (f *forms) rectangle(page int, o types.Object) sheaf.Box {
	list := arrayOf(f.objects, o)
	var n [4]float64
	if len(list) != len(n) {
		return sheaf.Box{}
	}
	for i, v := range list {
		v, _ = f.objects.Dereference(v)
		switch v := v.(type) {
		case types.Integer:
			n[i] = float64(v)
		case types.Float:
			n[i] = float64(v)
		default:
			return sheaf.Box{}
		}
	}
	return sheaf.Box{Page: page + 1, X0: min(n[0], n[2]), Y0: min(n[1], n[3]), X1: max(n[0], n[2]), Y1: max(n[1], n[3])}
}

func (f *forms) text(o types.Object) string {
	o, err := f.objects.Dereference(o)
	if err != nil {
		return ""
	}
	s, ok := stringOf(o)
	if !ok {
		return ""
	}
	if len(s) > maxMetaBytes {
		f.cut++
	}
	return strings.Join(strings.Fields(cleanMeta(s)), " ")
}

func (f *forms) name(o types.Object) (string, bool) {
	o, err := f.objects.Dereference(o)
	n, ok := o.(types.Name)
	return n.Value(), ok && err == nil
}

func (f *forms) integer(o types.Object) (int, bool) {
	o, err := f.objects.Dereference(o)
	n, ok := o.(types.Integer)
	return int(n), ok && err == nil
}

// beside returns the lines of each page as a block, with boxes in the page's own
// coordinates.
func (f *forms) beside() map[int][]sheaf.Block {
	out := map[int][]sheaf.Block{}
	for _, v := range f.out {
		n := v.page + 1
		if out[n] == nil {
			out[n] = []sheaf.Block{{Kind: sheaf.BlockParagraph, Page: n}}
		}
		b := &out[n][0]
		if b.Text != "" {
			b.Text += "\n"
		}
		start := len(b.Text)
		if b.Text += v.text; v.box.Page > 0 {
			b.Spans = append(b.Spans, sheaf.Span{Start: start, End: len(b.Text), Box: v.box})
		}
	}
	for _, a := range f.files.read {
		n := a.page + 1
		out[n] = append(out[n], sheaf.Block{Kind: sheaf.BlockParagraph, Page: n, Text: "Attached file: " + a.name, Lang: fmt.Sprintf("%s%d %x", markAttached, a.number, a.sum)})
	}
	return out
}

// addBeside adds what the plan found beside the page's content, where it is
// displayed, and files attached to the page. The error is ctx's.
func (d *document) addBeside(ctx context.Context, u *sheaf.UnitResult) error {
	blocks := d.options.Beside[u.Unit]
	if len(blocks) == 0 || u.Status == sheaf.UnitFailed {
		return nil
	}
	var files []sheaf.Block
	f, known := d.frames[u.Unit]
	for _, b := range blocks {
		if strings.HasPrefix(b.Lang, markAttached) {
			files = append(files, b)
			continue
		}
		spans := b.Spans
		b.Spans = nil
		for _, s := range spans {
			x0, y0, x1, y1 := f.display(engine.Rect{L: float32(s.Box.X0), B: float32(s.Box.Y0), R: float32(s.Box.X1), T: float32(s.Box.Y1)})
			x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, float32(u.Width)), min(y1, float32(u.Height))
			if known && x0 < x1 && y0 < y1 {
				b.Spans = append(b.Spans, sheaf.Span{Start: s.Start, End: s.End, Box: (&sheet{number: u.Unit}).displayed(box{x0, y0, x1, y1})})
			}
		}
		u.Blocks = append(u.Blocks, b)
	}
	if u.Status == sheaf.UnitBlank {
		u.Status, u.Code, u.Message = sheaf.UnitOK, "", ""
	}
	if len(files) == 0 {
		return nil
	}
	return d.addFiles(ctx, u, files)
}

// addFiles adds the text of the files that marks stand for, each after its name.
func (d *document) addFiles(ctx context.Context, u *sheaf.UnitResult, marks []sheaf.Block) error {
	file, size := d.source()
	o, err := openObjects(file, size)
	if err == nil {
		defer o.close()
	}
	warn := func(format string, args ...any) {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: "attachments_ignored", Page: u.Unit, Message: fmt.Sprintf(format, args...)})
	}
	for _, b := range marks {
		number, _ := strconv.Atoi(strings.Fields(b.Lang[len(markAttached):] + " 0")[0])
		name := strings.TrimPrefix(b.Text, "Attached file: ")
		b.Lang = ""
		u.Blocks = append(u.Blocks, b)
		var content []byte
		if err == nil && d.attached.Formats != nil {
			content = o.attachment(number)
		}
		if content == nil {
			warn("The attached file %s cannot be read; save and upload it.", name)
			continue
		}
		blocks, err := d.attached.File(ctx, name, content)
		if err != nil {
			return err
		}
		for i := range blocks {
			blocks[i].Page = u.Unit
		}
		u.Blocks = append(u.Blocks, blocks...)
		said := d.attached.Warnings()
		if len(said)+len(blocks) == 0 {
			warn("No text was found in the attached file %s.", name)
		}
		for _, w := range said {
			w.Page = u.Unit
			u.Warnings = append(u.Warnings, w)
		}
	}
	return nil
}

// attachment returns the bytes of an attached file, or nil.
func (o *objects) attachment(number int) (content []byte) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // in case a mapped file is truncated
	defer func() {
		if recover() != nil {
			content = nil
		}
	}()
	v, err := o.object(number)
	s, ok := v.(types.StreamDict)
	if err != nil || !ok {
		return nil
	}
	b, err := o.unpacked(s)
	if err != nil {
		return nil
	}
	return slices.Clone(b) // not of the mapped file
}
