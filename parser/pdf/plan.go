package pdf

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
	"github.com/pdfcpu/pdfcpu/pkg/api"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/model"
	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/pdf/engine"
)

// Limits of planning.
const (
	// maxInspectBytes limits the files given to pdfcpu: it holds every object of
	// the file in memory. Measured: 58 MB and 0.2 s for 2,415 pages in 6.5 MB.
	maxInspectBytes = 64 << 20
	maxBookmarks    = 5_000
	maxMetaBytes    = 2_000 // per value
	maxHashDepth    = 200
)

// Plan implements parser.Document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	if d.doc == nil {
		if err := d.reopen(ctx); err != nil {
			return nil, sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The PDF engine failed and the document does not open again: %v.", err)
		}
	}
	f, size := d.source()
	var in inspection
	err := errTooLarge
	if size <= maxInspectBytes {
		if d.options.Fill != nil { // the whole file is read: fetch it in one request
			d.options.Fill(0, d.size)
		}
		in, err = inspect(f, size, d.options.Config.Password.V)
	}
	claimed, differ := d.pages, false
	if err != nil || len(in.fingerprints) != claimed || claimed > d.mostPages() {
		var countErr error
		if differ, countErr = d.count(ctx); countErr != nil {
			return nil, countErr
		}
	}
	p := &parser.Plan{Unit: sheaf.UnitPage, Units: d.pages, RangeSize: rangeSize, Metadata: map[string]string{}}
	warn := func(code, format string, args ...any) {
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: code, Message: fmt.Sprintf(format, args...)})
	}
	if differ {
		warn("page_count_wrong", "The file claims %d pages and holds %d.", claimed, d.pages)
	}
	if d.repaired != nil {
		warn("repaired", "The file is damaged; a repaired copy was read, in which parts may be missing.")
	}
	for key, tag := range map[string]string{
		"title": "Title", "author": "Author", "subject": "Subject", "keywords": "Keywords",
		"creator": "Creator", "producer": "Producer", "created": "CreationDate", "modified": "ModDate",
	} {
		v := d.doc.Meta(tag)
		if key == "created" || key == "modified" {
			v = pdfDate(v)
		}
		if v = cleanMeta(v); v != "" {
			p.Metadata[key] = v
		}
	}
	if err == nil && len(in.fingerprints) == d.pages {
		p.Slow = in.scans > 0
		p.Fingerprints, p.Outline, p.Beside = in.fingerprints, in.outline, in.beside
		if d.format.cfg.OCR.On() && 2*in.scans > d.pages {
			p.RangeSize = ocr.RangePages
		}
		if in.clipped+in.cut > 0 {
			warn("form_clipped", "%s: up to %d KB of a value, %d KB of a page and %d KB of a document are read.",
				clean.Counts(in.clipped, "values of the form that were left out", in.cut, "values that were cut"), maxMetaBytes/1000, maxBesideBytes/1000, maxBesideTotal/1000)
		}
		if in.xfa {
			warn("form_unread", "The document is an XFA form, whose pages Adobe's programs make when they open it; print it to a PDF and upload that.")
		}
		if in.comments > 0 {
			warn("comments_ignored", "Reviewer comments (%d) were not read; they are not part of the text.", in.comments)
		}
		if in.files.n > 0 {
			warn("attachments_ignored", "Files attached to the document (%d) were not read; save and upload them: %s.", in.files.n, in.files)
		}
		if placing, ok := d.doc.(engine.Placing); ok && in.sound && d.repaired == nil {
			placing.Place(in.pages) // so that ranges read here next need not search for them
		}
	} else {
		p.Slow = true // for all that is known
		why := "The file's structure could not be followed"
		if errors.Is(err, errTooLarge) {
			why = fmt.Sprintf("The file is larger than %d MB", maxInspectBytes>>20)
		}
		warn("not_fingerprinted", "%s, so a changed page cannot be told from an unchanged one: a new version is read whole. Form values and attached files were not looked for.", why)
		if err := d.planOutline(ctx, p); err != nil {
			return nil, err
		}
	}
	maps.Copy(p.Metadata, in.metadata)
	if size > 2<<20 {
		debug.FreeOSMemory() // the whole file was in memory; the ranges need little
	}
	return p, nil
}

// planOutline asks the engine for the bookmarks if pdfcpu could not read them.
func (d *document) planOutline(ctx context.Context, p *parser.Plan) error {
	marks, err := d.doc.Outline(maxBookmarks, true)
	if err != nil {
		// The bookmarks are at fault, not the pages: reopen for those.
		p.Warnings = append(p.Warnings, sheaf.Warning{Code: "outline_unreadable", Message: "The bookmarks could not be read."})
		if err := d.reopen(ctx); err != nil {
			return sheaf.Fail(sheaf.CategoryCrash, "parser_crash", "The PDF engine failed on the bookmarks and the document does not open again: %v.", err)
		}
	}
	for _, m := range marks {
		if m.Page >= 0 && m.Page < d.pages {
			p.Outline = append(p.Outline, sheaf.Heading{Level: m.Level, Title: m.Title, Page: m.Page + 1})
		}
	}
	return nil
}

func cleanMeta(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < 32 || r == 0x7F }), " ")
	s = strings.TrimSpace(strings.ToValidUTF8(s, ""))
	for len(s) > maxMetaBytes {
		_, n := utf8.DecodeLastRuneInString(s[:maxMetaBytes+1])
		s = s[:maxMetaBytes+1-n]
	}
	return s
}

// pdfDate turns D:YYYYMMDDHHmmSSOHH'mm' (ISO 32000-1, 7.9.4) into RFC 3339, and
// returns anything else unchanged.
func pdfDate(s string) string {
	t := strings.NewReplacer("'", "", "Z", "+").Replace(strings.TrimPrefix(strings.TrimSpace(s), "D:"))
	if i := strings.IndexAny(t, "+-"); i >= 0 && len(t)-i < 5 {
		t = t[:i] + "+0000"
	}
	for _, layout := range []string{"20060102150405-0700", "20060102150405", "200601021504", "20060102", "200601", "2006"} {
		if d, err := time.Parse(layout, t); err == nil {
			return d.Format(time.RFC3339)
		}
	}
	return s
}

// inspection is what pdfcpu, or its replacement, finds out about a file.
type inspection struct {
	fingerprints []uint64
	pages        []int // object numbers
	outline      []sheaf.Heading
	metadata     map[string]string
	sound        bool // pdfcpu was not needed
	scans        int  // pages without a font: most are pictures
	beside       map[int][]sheaf.Block
	clipped, cut int  // values of the form left out, and read in part
	comments     int  // of reviewers
	xfa          bool // the form has no pages of its own
	files        attached
}

func init() { api.DisableConfigDir() } // it would create a folder in the user's home

func pdfcpuConfig(password string) *model.Configuration {
	c := model.NewDefaultConfiguration()
	c.UserPW = password
	c.Offline = true
	c.ValidationMode = model.ValidationRelaxed
	return c
}

// inspectSound is inspect without pdfcpu, for ordinary files.
func inspectSound(file io.ReaderAt, size int64) (in inspection, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // in case a mapped file is truncated
	o, err := openObjects(file, size)
	if err != nil {
		return in, err
	}
	defer o.close()
	root := dictOf(o, o.trailer["Root"])
	if root == nil {
		return in, errUnusual
	}
	if in, err = inspectObjects(o, root); err != nil || o.err != nil {
		return in, cmp.Or(err, o.err)
	}
	if v := o.version(root); v != "" {
		in.metadata["pdf_version"] = v
	}
	return in, nil
}

// inspect never panics: pdfcpu reads a hostile file, and its results are useful but
// optional.
func inspect(file io.ReaderAt, size int64, password string) (in inspection, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("pdfcpu: %v", p)
		}
	}()
	if in, err := inspectSound(file, size); err == nil {
		in.sound = true
		return in, nil
	}
	// Everything pdfcpu reads stays live until the end: collecting each time the
	// heap doubles would free nothing. The process's memory limit applies.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	ctx, err := api.ReadContext(io.NewSectionReader(file, 0, size), pdfcpuConfig(password))
	if err != nil {
		return in, err
	}
	root, err := ctx.Catalog()
	if err != nil {
		return in, err
	}
	if in, err = inspectObjects(ctx, root); err != nil {
		return in, err
	}
	if v := ctx.VersionString(); v != "" {
		in.metadata["pdf_version"] = v
	}
	if e := ctx.E; e != nil {
		in.metadata["permissions"] = permissions(e.P)
	}
	return in, nil
}

// inspectObjects traverses a document from its catalog.
func inspectObjects(r resolver, root types.Dict) (in inspection, err error) {
	in.metadata = map[string]string{}
	if lang := root.StringEntry("Lang"); lang != nil {
		if v := cleanMeta(*lang); v != "" {
			in.metadata["language"] = v
		}
	}
	pages, ok := root["Pages"].(types.IndirectRef)
	if !ok {
		return in, errTree
	}
	h := hasher{objects: r, memo: map[int]uint64{}, walked: map[int]bool{}, pageOf: map[int]int{}}
	if err := h.tree(pages, inherited{}, 0); err != nil {
		return in, err
	}
	in.fingerprints, in.pages, in.scans = h.pages, make([]int, len(h.pages)), h.scans
	for number, n := range h.pageOf {
		in.pages[n] = number
	}
	marks := bookmarks{objects: r, pageOf: h.pageOf}
	in.outline = marks.read(root)
	f := forms{objects: r, pageOf: h.pageOf, numbers: in.pages}
	if o, ok := r.(*objects); ok {
		err := o.err
		f.read(root)
		o.err = err // a damaged annotation is no reason to doubt the pages
	} else {
		f.read(root)
	}
	in.beside, in.clipped, in.cut, in.comments, in.xfa, in.files = f.beside(), f.clipped, f.cut, f.comments, f.xfa, f.files
	for page, blocks := range in.beside { // a value that changes changes the page
		d := xxhash.New()
		_ = json.NewEncoder(d).Encode(blocks) // plain fields always encode
		in.fingerprints[page-1] ^= d.Sum64()
	}
	return in, nil
}

// permissions names what the owner of an encrypted file allows (ISO 32000-1, table
// 22). They are reported, not enforced: uploaders may read their files.
func permissions(p int) string {
	var out []string
	for _, b := range []struct {
		bit  int
		name string
	}{{3, "print"}, {4, "modify"}, {5, "copy"}, {6, "annotate"}, {9, "fill_forms"}, {10, "extract_for_accessibility"}, {11, "assemble"}, {12, "print_high_quality"}} {
		if p&(1<<(b.bit-1)) != 0 {
			out = append(out, b.name)
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, " ")
}

// hasher computes a fingerprint per page: a hash of the page's content streams, its
// resources to any depth, its boxes and its rotation. Equal fingerprints mean equal
// pages whatever the object numbers are.
type hasher struct {
	objects resolver
	memo    map[int]uint64 // by object number; 0 while it is being computed
	walked  map[int]bool   // nodes of the page tree
	pageOf  map[int]int    // object number of a page → its index
	pages   []uint64
	scans   int
	written []byte  // of the object being hashed, not yet added to its digest
	entries []entry // of the dictionaries being written, concatenated
}

// entry is one of a dictionary.
type entry struct {
	key   string
	value types.Object
}

var (
	errTooLarge = errors.New("the file is too large to be looked through")
	errTree     = errors.New("the page tree is damaged")
)

// inherited are the attributes that a page takes from its ancestors.
type inherited struct{ resources, media, crop, rotate types.Object }

func (h *hasher) tree(ref types.IndirectRef, in inherited, depth int) error {
	number := ref.ObjectNumber.Value()
	if depth > maxHashDepth || h.walked[number] {
		return errTree
	}
	h.walked[number] = true
	node := dictOf(h.objects, ref)
	if node == nil {
		return errTree
	}
	for _, a := range [...]struct {
		key string
		at  *types.Object
	}{{"Resources", &in.resources}, {"MediaBox", &in.media}, {"CropBox", &in.crop}, {"Rotate", &in.rotate}} {
		if o, ok := h.find(node, a.key); ok {
			*a.at = o
		}
	}
	kids, isNode := h.find(node, "Kids")
	if !isNode {
		var d xxhash.Digest
		d.Reset()
		contents, _ := h.find(node, "Contents")
		unit, _ := h.find(node, "UserUnit")
		for _, o := range []types.Object{contents, in.resources, in.media, in.crop, in.rotate, unit} {
			h.write(&d, o, 0)
		}
		if resources := dictOf(h.objects, in.resources); len(dictOf(h.objects, resources["Font"])) == 0 && len(dictOf(h.objects, resources["XObject"])) > 0 {
			h.scans++
		}
		h.pageOf[number] = len(h.pages)
		h.pages = append(h.pages, h.sum(&d))
		return nil
	}
	list := arrayOf(h.objects, kids)
	if list == nil {
		return errTree
	}
	for _, k := range list {
		child, ok := k.(types.IndirectRef)
		if !ok {
			return errTree
		}
		if err := h.tree(child, in, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// find returns an entry of a dictionary. pdfcpu keeps names as written, and its
// Find decodes all keys on a miss: our objects have decoded names.
func (h *hasher) find(d types.Dict, key string) (v types.Object, ok bool) {
	if _, decoded := h.objects.(*objects); decoded {
		v, ok = d[key]
		return v, ok
	}
	return d.Find(key)
}

// maxWritten is the number of bytes that are kept to add them to a digest at once.
const maxWritten = 4 << 10

// flush adds what was written to a digest.
func (h *hasher) flush(d *xxhash.Digest) {
	_, _ = d.Write(h.written) // a Digest never fails
	h.written = h.written[:0]
}

func (h *hasher) sum(d *xxhash.Digest) uint64 {
	h.flush(d)
	return d.Sum64()
}

// write adds an object to a hash, each kind under its own letter so that no two
// different objects hash the same input.
func (h *hasher) write(d *xxhash.Digest, o types.Object, depth int) {
	if len(h.written) > maxWritten {
		h.flush(d)
	}
	if depth > maxHashDepth {
		h.tag('X', "")
		return
	}
	switch v := o.(type) {
	case nil:
		h.tag('0', "")
	case types.IndirectRef:
		number := v.ObjectNumber.Value()
		content, known := h.memo[number]
		if !known {
			h.memo[number] = 0 // a cycle ends here
			target, err := h.objects.Dereference(v)
			if err != nil {
				target = nil
			}
			h.flush(d)
			var inner xxhash.Digest
			inner.Reset()
			h.write(&inner, target, depth+1)
			content = h.sum(&inner)
			h.memo[number] = content
		}
		h.number('r', content)
	case types.Dict:
		h.tag('d', "")
		h.dict(d, v, depth)
		h.tag('e', "")
	case types.StreamDict:
		h.tag('s', "")
		h.dict(d, v.Dict, depth)
		h.number('b', xxhash.Sum64(v.Raw))
	case types.Array:
		h.tag('a', "")
		for _, e := range v {
			h.write(d, e, depth+1)
		}
		h.tag('z', "")
	default:
		h.written = append(h.written, 'v', 0, 0, 0, 0, 0, 0, 0, 0)
		from := len(h.written)
		h.written = plain(h.written, v)
		binary.LittleEndian.PutUint64(h.written[from-8:], uint64(len(h.written)-from))
	}
}

// dict adds the entries of a dictionary in the order of their keys, without those
// that say where an object is or who wrote it, not what it shows.
func (h *hasher) dict(d *xxhash.Digest, m types.Dict, depth int) {
	from := len(h.entries)
	for k, v := range m {
		switch k {
		case "Parent", "StructParent", "StructParents", "Length", "LastModified", "PieceInfo", "Metadata", "OC", "OCGs":
		default:
			h.entries = append(h.entries, entry{k, v})
		}
	}
	slices.SortFunc(h.entries[from:], func(a, b entry) int { return strings.Compare(a.key, b.key) })
	for i, n := from, len(h.entries); i < n; i++ {
		e := h.entries[i] // which may move when more are added
		h.tag('k', e.key)
		h.write(d, e.value, depth+1)
	}
	clear(h.entries[from:])
	h.entries = h.entries[:from]
}

func (h *hasher) tag(kind byte, s string) {
	h.written = append(binary.LittleEndian.AppendUint64(append(h.written, kind), uint64(len(s))), s...)
}

func (h *hasher) number(kind byte, n uint64) {
	h.written = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(append(h.written, kind), 8), n)
}

// plain appends a value with its type. fmt's "%T %v" is slow for the most common
// types, and shows only two digits of a fraction.
func plain(b []byte, o types.Object) []byte {
	switch v := o.(type) {
	case types.Integer:
		return strconv.AppendInt(append(b, "types.Integer "...), int64(v), 10)
	case types.Name:
		return append(append(b, "types.Name "...), v.String()...)
	case types.Float:
		return strconv.AppendFloat(append(b, "types.Float "...), v.Value(), 'g', -1, 64)
	}
	return fmt.Appendf(b, "%T %v", o, o)
}

// repair has pdfcpu read a file that the engine refuses and rewrite it.
func (d *document) repair() (err error) {
	if d.size > maxInspectBytes || d.options.TempDir == "" {
		return errors.New("not tried")
	}
	out, err := os.CreateTemp(d.options.TempDir, "repaired-*.pdf")
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("pdfcpu: %v", p)
		}
		if err != nil {
			_ = out.Close()
			_ = os.Remove(out.Name())
		}
	}()
	ctx, err := api.ReadContext(io.NewSectionReader(d.original(), 0, d.size), pdfcpuConfig(d.options.Config.Password.V))
	if err != nil {
		return err
	}
	if err := ctx.EnsurePageCount(); err != nil {
		return err
	}
	if ctx.PageCount < 1 {
		return errTree
	}
	if err := api.WriteContext(ctx, out); err != nil {
		return err
	}
	d.repaired = out
	return nil
}
