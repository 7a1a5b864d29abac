// Package enginetest holds the pages on which every PDF engine must agree, and a
// small writer that generates them.
package enginetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// File describes a PDF that is written byte by byte, so that a fixture contains
// exactly what it states.
type File struct {
	Pages   []Page
	Info    map[string]string // Title, Author, …
	Outline []Mark
	Scan    []byte // a JPEG in RGB instead of the picture I1, of ScanW × ScanH pixels
	ScanW   int
	ScanH   int
	Labels  string // of the catalog's PageLabels number tree: "0 << /S /r >> 2 << /S /D >>"
}

// Page is a page of a File. Its content can use the fonts F1 (Helvetica), F2
// (Helvetica-Bold), F3 (Courier) and F4 (Times-Roman), the picture I1, and the form
// X1 (a vertical rule at its x = 10).
type Page struct {
	Content  string
	MediaBox [4]int // zero means 0 0 612 792
	CropBox  [4]int // zero means none
	Rotate   int    // degrees clockwise
	Links    []Link
	Annots   []string // the entries of other annotations; those with /FT are fields of the file's form
}

// Link is an area of a page that links to an address or, if URI is empty, to a
// page, counted from 0.
type Link struct {
	Box  [4]int // left, bottom, right, top
	URI  string
	Page int
}

// Mark is a bookmark; level 2 entries belong to the preceding level 1 entry.
type Mark struct {
	Level int
	Title string
	Page  int // from 0
}

// Text shows s at x, y in a font.
func Text(font string, size, x, y float64, s string) string {
	s = strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`).Replace(s)
	return fmt.Sprintf("BT /%s %g Tf %g %g Td (%s) Tj ET\n", font, size, x, y, s)
}

// Line draws a rule.
func Line(x0, y0, x1, y1 float64) string {
	return fmt.Sprintf("0.7 w %g %g m %g %g l S\n", x0, y0, x1, y1)
}

// Wide shows a string of any script in the font F5, which has no glyphs and gives
// each character a width of one em. Right-to-left scripts must be given in visual
// order, from left to right.
func Wide(size, x, y float64, s string) string {
	var hex strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&hex, "%04X", u)
	}
	return fmt.Sprintf("BT /F5 %g Tf %g %g Td <%s> Tj ET\n", size, x, y, hex.String())
}

// Image draws the picture into a box.
func Image(x, y, w, h float64) string {
	return fmt.Sprintf("q %g 0 0 %g %g %g cm /I1 Do Q\n", w, h, x, y)
}

// Bytes returns the file.
func (f File) Bytes() []byte {
	var objects []string
	add := func(s string) int {
		objects = append(objects, s)
		return len(objects)
	}
	stream := func(dict, body string) int {
		return add(fmt.Sprintf("<< %s /Length %d >>\nstream\n%s\nendstream", dict, len(body), body))
	}
	catalog, tree := add(""), add("")
	fonts := ""
	for i, name := range []string{"Helvetica", "Helvetica-Bold", "Courier", "Times-Roman"} {
		n := add("<< /Type /Font /Subtype /Type1 /BaseFont /" + name + " /Encoding /WinAnsiEncoding >>")
		fonts += fmt.Sprintf("/F%d %d 0 R ", i+1, n)
	}
	if slices.ContainsFunc(f.Pages, func(p Page) bool { return strings.Contains(p.Content, "/F5 ") }) {
		// The codes are UTF-16, as declared in ToUnicode: a range may differ in its
		// last byte only.
		ranges := ""
		for high := range 256 {
			if high%100 == 0 {
				ranges += fmt.Sprintf("%d beginbfrange\n", min(100, 256-high))
			}
			ranges += fmt.Sprintf("<%02X00> <%02XFF> <%02X00>\n", high, high, high)
			if high%100 == 99 || high == 255 {
				ranges += "endbfrange\n"
			}
		}
		unicode := stream("", "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Wide def /CMapType 2 def\n1 begincodespacerange <0000> <FFFF> endcodespacerange\n"+ranges+"endcmap end end")
		descriptor := add("<< /Type /FontDescriptor /FontName /Wide /Flags 4 /FontBBox [0 -200 1000 800] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >>")
		cid := add(fmt.Sprintf("<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Wide /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /FontDescriptor %d 0 R /DW 1000 >>", descriptor))
		fonts += fmt.Sprintf("/F5 %d 0 R ", add(fmt.Sprintf("<< /Type /Font /Subtype /Type0 /BaseFont /Wide /Encoding /Identity-H /DescendantFonts [%d 0 R] /ToUnicode %d 0 R >>", cid, unicode)))
	}
	image := stream("/Type /XObject /Subtype /Image /Width 2 /Height 2 /ColorSpace /DeviceGray /BitsPerComponent 8", "\x00\xFF\xFF\x00")
	if f.Scan != nil {
		image = stream(fmt.Sprintf("/Type /XObject /Subtype /Image /Width %d /Height %d /ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /DCTDecode", f.ScanW, f.ScanH), string(f.Scan))
	}
	form := stream("/Type /XObject /Subtype /Form /BBox [0 0 600 600] /Matrix [1 0 0 1 5 0]", "0.7 w 10 100 m 10 300 l S")
	resources := fmt.Sprintf("<< /Font << %s>> /XObject << /I1 %d 0 R /X1 %d 0 R >> >>", fonts, image, form)

	var kids []int
	fields := ""
	for _, p := range f.Pages {
		content := stream("", p.Content)
		box := p.MediaBox
		if box == [4]int{} {
			box = [4]int{0, 0, 612, 792}
		}
		extra := ""
		if p.CropBox != [4]int{} {
			extra = fmt.Sprintf(" /CropBox [%d %d %d %d]", p.CropBox[0], p.CropBox[1], p.CropBox[2], p.CropBox[3])
		}
		if len(p.Links)+len(p.Annots) > 0 {
			annots := ""
			for _, l := range p.Links {
				to := fmt.Sprintf("/A << /S /URI /URI (%s) >>", l.URI)
				if l.URI == "" {
					to = fmt.Sprintf("/Dest [%d /Fit]", l.Page)
				}
				annots += fmt.Sprintf("%d 0 R ", add(fmt.Sprintf("<< /Type /Annot /Subtype /Link /Rect [%d %d %d %d] /Border [0 0 0] %s >>", l.Box[0], l.Box[1], l.Box[2], l.Box[3], to)))
			}
			for _, a := range p.Annots {
				ref := fmt.Sprintf("%d 0 R ", add("<< /Type /Annot "+a+" >>"))
				if annots += ref; strings.Contains(a, "/FT ") {
					fields += ref
				}
			}
			extra += " /Annots [" + annots + "]"
		}
		kids = append(kids, add(fmt.Sprintf("<< /Type /Page /Parent %d 0 R /MediaBox [%d %d %d %d]%s /Rotate %d /Resources %s /Contents %d 0 R >>",
			tree, box[0], box[1], box[2], box[3], extra, p.Rotate, resources, content)))
	}
	refs := ""
	for _, k := range kids {
		refs += fmt.Sprintf("%d 0 R ", k)
	}
	objects[tree-1] = fmt.Sprintf("<< /Type /Pages /Count %d /Kids [%s] >>", len(kids), refs)

	root := fmt.Sprintf("<< /Type /Catalog /Pages %d 0 R", tree)
	if f.Labels != "" {
		root += " /PageLabels << /Nums [" + f.Labels + "] >>"
	}
	if fields != "" {
		root += " /AcroForm << /Fields [" + fields + "] >>"
	}
	if len(f.Outline) > 0 {
		root += fmt.Sprintf(" /Outlines %d 0 R", f.outline(add, &objects, kids))
	}
	objects[catalog-1] = root + " >>"
	info := 0
	if len(f.Info) > 0 {
		s := "<<"
		for k, v := range f.Info {
			s += fmt.Sprintf(" /%s (%s)", k, v)
		}
		info = add(s + " >>")
	}

	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n%\xE2\xE3\xCF\xD3\n")
	offsets := make([]int, len(objects))
	for i, o := range objects {
		offsets[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, o := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	trailer := fmt.Sprintf("/Size %d /Root %d 0 R /ID [<00> <00>]", len(objects)+1, catalog)
	if info > 0 {
		trailer += fmt.Sprintf(" /Info %d 0 R", info)
	}
	fmt.Fprintf(&b, "trailer\n<< %s >>\nstartxref\n%d\n%%%%EOF\n", trailer, at)
	return b.Bytes()
}

// outline writes the bookmarks and returns the object number of their root.
func (f File) outline(add func(string) int, objects *[]string, kids []int) int {
	root := add("")
	nodes := make([]int, len(f.Outline))
	for i := range f.Outline {
		nodes[i] = add("")
	}
	level := func(i int) int { return f.Outline[i].Level }
	parent := func(i int) int {
		for k := i - 1; k >= 0; k-- {
			if level(k) < level(i) {
				return k
			}
		}
		return -1
	}
	children := map[int][]int{}
	for i := range f.Outline {
		children[parent(i)] = append(children[parent(i)], i)
	}
	ref := func(i int) int {
		if i < 0 {
			return root
		}
		return nodes[i]
	}
	family := func(i int) string {
		c := children[i]
		if len(c) == 0 {
			return ""
		}
		return fmt.Sprintf(" /First %d 0 R /Last %d 0 R /Count %d", nodes[c[0]], nodes[c[len(c)-1]], len(c))
	}
	(*objects)[root-1] = "<< /Type /Outlines" + family(-1) + " >>"
	for i, m := range f.Outline {
		s := fmt.Sprintf("<< /Title (%s) /Parent %d 0 R /Dest [%d 0 R /Fit]%s", m.Title, ref(parent(i)), kids[m.Page], family(i))
		sib := children[parent(i)]
		for k, n := range sib {
			if n == i && k > 0 {
				s += fmt.Sprintf(" /Prev %d 0 R", nodes[sib[k-1]])
			}
			if n == i && k+1 < len(sib) {
				s += fmt.Sprintf(" /Next %d 0 R", nodes[sib[k+1]])
			}
		}
		(*objects)[nodes[i]-1] = s + " >>"
	}
	return root
}
