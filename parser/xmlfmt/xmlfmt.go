// Package xmlfmt is the format of XML files: articles and manuals (DocBook, JATS,
// TEI, DITA) by sections, feeds and data by elements. It runs in the parser's child
// process.
package xmlfmt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/astext"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/parts"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/xmlscan"
)

const (
	version = 2 // changes whenever the same file would yield other blocks
	// maxFileBytes and maxNodes limit the tree; a node takes some 150 bytes. Larger
	// files are read as text, in parts.
	maxFileBytes = 32 << 20
	maxNodes     = 2 << 20
	// maxDepth is the depth below which elements become text of the element above.
	// Real vocabularies nest some 30 deep.
	maxDepth     = 256
	maxAttrs     = 64 // per element
	maxAttrBytes = 1 << 10
)

// New returns the format. formats finds the readers of text and HTML; it is
// called while a file is read.
func New(formats func() *parser.Registry) parser.Format { return &format{formats} }

type format struct{ formats func() *parser.Registry }

func (*format) ID() string     { return "xml" }
func (f *format) Version() int { return version + astext.Version(f.formats()) }
func (*format) Types() []parser.FileType {
	xml := parser.FileType{
		MediaType: "application/xml", Name: "XML", Extensions: []string{".xml", ".dbk", ".dita"}, Text: true,
		Aliases: []string{"text/xml", "application/rss+xml", "application/atom+xml", "application/docbook+xml", "application/jats+xml", "application/tei+xml",
			"application/xliff+xml", "application/gpx+xml", "application/vnd.google-earth.kml+xml", "application/owl+xml", "application/rdf+xml"},
		Families: []sheaf.FileFamily{sheaf.FamilyText, sheaf.FamilyCode}, Unit: sheaf.UnitFile, Ranges: "large files only, which are read as text",
	}
	svg := xml
	svg.MediaType, svg.Name, svg.Aliases, svg.Extensions, svg.Families = "image/svg+xml", "SVG", nil, nil, []sheaf.FileFamily{sheaf.FamilyImage}
	return []parser.FileType{xml, svg}
}
func (*format) Options() []string { return []string{"encoding"} }

// Open implements parser.Format.
func (f *format) Open(ctx context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	size, err := parts.Size(file, parts.MaxFileBytes)
	if err != nil {
		return nil, err
	}
	asText := func(code, message string) (parser.Document, error) {
		o.MediaType = "application/xml"
		return astext.Open(ctx, f.formats(), file, o, sheaf.Warning{Code: code, Message: message})
	}
	if size > maxFileBytes {
		return asText("read_as_text", fmt.Sprintf("The file has %d MB; above %d MB XML is read as text, without its structure.", size>>20, maxFileBytes>>20))
	}
	head := make([]byte, min(size, 4<<10))
	_, _ = file.ReadAt(head, 0) // ReadFile reports any problem with the file
	b, guess, err := charset.ReadFile(file, maxFileBytes, "XML file", o.Config.Encoding.V, htmlblocks.Declared(declaration(head)))
	if err != nil {
		return nil, err
	}
	// The declared encoding no longer applies.
	tree, damage := build(ctx, bytes.TrimPrefix(b, declaration(b)))
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(damage, errNodes):
		return asText("read_as_text", fmt.Sprintf("The file has more than %d elements and was read as text, without its structure.", maxNodes))
	case tree == nil:
		return asText("invalid_xml", "The file holds no XML element and was read as text.")
	case tree.name == "html":
		if html, ok := f.formats().ByMediaType(parser.MediaHTML); ok {
			o.MediaType = parser.MediaHTML
			return html.Open(ctx, file, o)
		}
	}
	return whole.New(func(context.Context) (*whole.Content, error) {
		c := &whole.Content{Blocks: read(tree), Metadata: guess.Metadata(nil), Warnings: guess.Warnings()}
		if title := titleOf(tree); title != "" {
			c.Metadata["title"] = title
		}
		if damage != nil {
			c.Warnings = append(c.Warnings, sheaf.Warning{Code: "document_damaged", Message: "The XML breaks off inside or its elements are not closed; what stands before was read."})
		}
		return c, nil
	}), nil
}

// declaration is the line "<?xml … ?>" that b begins with, or nothing.
func declaration(b []byte) []byte {
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	if !bytes.HasPrefix(b, []byte("<?xml ")) {
		return nil
	}
	i := bytes.Index(b[:min(len(b), 1<<10)], []byte("?>"))
	if i < 0 {
		return nil
	}
	return b[:i+2]
}

// node is an element, or text where name is empty.
type node struct {
	name     string
	text     string
	attrs    []string // alternating names and values, without namespace declarations
	children []*node
}

// gap is the white space between elements.
var gap = &node{text: " "}

var errNodes = errors.New("too many elements")

// build reads the tree of the first element. damage is set if the file ends inside
// it or becomes unreadable; what was read so far is kept.
func build(ctx context.Context, b []byte) (root *node, damage error) {
	names := map[string]string{} // few names, many elements
	intern := func(b []byte) string {
		s, ok := names[string(b)]
		if !ok {
			if s = clean.Line(clean.Clip(string(b), 100)); s == "" {
				s = "element"
			}
			names[string(b)] = s
		}
		return s
	}
	var open []*node
	nodes, deeper := 0, 0
	for s := xmlscan.New(bytes.NewReader(b)); ; {
		k, err := s.Next()
		if err != nil {
			return root, err
		}
		if nodes++; nodes > maxNodes {
			return nil, errNodes
		}
		if nodes&0xffff == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch k {
		case xmlscan.EOF:
			if len(open) > 0 {
				return root, io.ErrUnexpectedEOF
			}
			return root, nil
		case xmlscan.Start:
			if root != nil && len(open) == 0 {
				return root, nil // only one element is the document
			}
			if len(open) >= maxDepth {
				deeper++
				continue
			}
			n := &node{name: intern(s.Name())}
			s.Attrs(func(prefix, name, value []byte) {
				if string(prefix) != "xmlns" && string(prefix) != "xsi" && string(name) != "xmlns" && len(n.attrs) < 2*maxAttrs {
					n.attrs = append(n.attrs, intern(name), clean.Line(clean.Clip(string(value), maxAttrBytes)))
				}
			})
			if root == nil {
				root = n
			} else {
				top := open[len(open)-1]
				top.children = append(top.children, n)
			}
			open = append(open, n)
		case xmlscan.End:
			switch {
			case deeper > 0:
				deeper--
			case len(open) > 0:
				open = open[:len(open)-1]
			}
		case xmlscan.Text:
			if len(open) == 0 {
				continue
			}
			top := open[len(open)-1]
			// Pieces stay separate: joining them one by one would copy them
			// repeatedly.
			if text := s.Text(); len(bytes.TrimSpace(text)) > 0 {
				top.children = append(top.children, &node{text: string(text)})
			} else if last := len(top.children) - 1; last >= 0 && top.children[last] != gap {
				top.children = append(top.children, gap)
			}
		}
	}
}
