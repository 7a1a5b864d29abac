package e2e

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"

	"sheaf"
)

// writtenPNG is a picture of w × h pixels with lines that tesseract reads.
func writtenPNG(t *testing.T, w, h int, lines ...string) string {
	t.Helper()
	small := image.NewGray(image.Rect(0, 0, w/5, h/5))
	draw.Draw(small, small.Bounds(), image.White, image.Point{}, draw.Src)
	for i, line := range lines {
		d := font.Drawer{Dst: small, Src: image.Black, Face: basicfont.Face7x13, Dot: fixed.P(10, 25+i*30)}
		d.DrawString(line)
	}
	large := image.NewGray(image.Rect(0, 0, w, h))
	draw.BiLinear.Scale(large, large.Bounds(), small, small.Bounds(), draw.Src, nil)
	var b bytes.Buffer
	if err := png.Encode(&b, large); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// illustrated are files with a text, a picture of 1300 × 400 pixels that has no
// description, and a caption.
func illustrated(t *testing.T) map[string]string {
	picture := writtenPNG(t, 1300, 400, "The keeper counts every sheaf")
	return map[string]string{
		"report.docx": zipOf(t, "_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="word/document.xml"/></Relationships>`,
			"word/_rels/document.xml.rels", `<Relationships><Relationship Id="p1" Type="x/image" Target="media/image1.png"/><Relationship Id="st" Type="x/styles" Target="styles.xml"/></Relationships>`,
			"word/styles.xml", `<w:styles><w:style w:type="paragraph" w:styleId="C"><w:name w:val="caption"/></w:style></w:styles>`,
			"word/document.xml", `<w:document><w:body><w:p><w:r><w:t>Before the barn stands a wall.</w:t></w:r></w:p><w:p><w:r><w:drawing><wp:docPr id="1" name="Picture 1"/><a:blip r:embed="p1"/></w:drawing></w:r></w:p><w:p><w:pPr><w:pStyle w:val="C"/></w:pPr><w:r><w:t>Figure 1: The sign at the barn.</w:t></w:r></w:p></w:body></w:document>`,
			"word/media/image1.png", picture),
		"deck.pptx": zipOf(t, "_rels/.rels", `<Relationships><Relationship Id="r1" Type="x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
			"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="s1" Type="x/slide" Target="slides/slide1.xml"/></Relationships>`,
			"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="s1"/></p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/></p:presentation>`,
			"ppt/slides/_rels/slide1.xml.rels", `<Relationships><Relationship Id="p1" Type="x/image" Target="../media/image1.png"/></Relationships>`,
			"ppt/slides/slide1.xml", `<p:sld><p:sp><p:nvPr><p:ph type="title"/></p:nvPr><p:txBody><a:p><a:r><a:t>The sign at the barn</a:t></a:r></a:p></p:txBody></p:sp><p:pic><p:nvPicPr><p:cNvPr id="4" name="Picture 3"/></p:nvPicPr><p:blipFill><a:blip r:embed="p1"/></p:blipFill><p:spPr><a:xfrm><a:off x="127000" y="1270000"/><a:ext cx="2540000" cy="781538"/></a:xfrm></p:spPr></p:pic></p:sld>`,
			"ppt/media/image1.png", picture),
		"book.epub": zipOf(t, "mimetype", "application/epub+zip", "META-INF/container.xml", `<container><rootfiles><rootfile full-path="OEBPS/c.opf"/></rootfiles></container>`,
			"OEBPS/c.opf", `<package><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/><item id="i" href="img/sign.png" media-type="image/png"/></manifest><spine><itemref idref="a"/></spine></package>`,
			"OEBPS/a.xhtml", `<html><body><p>Before the barn stands a wall.</p><figure><img src="img/sign.png" alt=""/><figcaption>The sign at the barn.</figcaption></figure></body></html>`,
			"OEBPS/img/sign.png", picture),
		"letter.odt": zipOf(t, "mimetype", "application/vnd.oasis.opendocument.text",
			"META-INF/manifest.xml", `<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><manifest:file-entry manifest:full-path="/" manifest:media-type="application/vnd.oasis.opendocument.text"/><manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/><manifest:file-entry manifest:full-path="Pictures/sign.png" manifest:media-type="image/png"/></manifest:manifest>`,
			"content.xml", `<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0" xmlns:xlink="http://www.w3.org/1999/xlink" office:version="1.2"><office:body><office:text><text:p>The sign at the barn.</text:p><text:p><draw:frame text:anchor-type="as-char" svg:width="13cm" svg:height="4cm"><draw:image xlink:href="Pictures/sign.png" xlink:type="simple" xlink:show="embed" xlink:actuate="onLoad"/></draw:frame></text:p></office:text></office:body></office:document-content>`,
			"Pictures/sign.png", picture),
	}
}

// What lies in a file as a picture is drawn beside the text that it belongs to,
// and read where the settings ask for that.
func TestPicturesInsideFilesAreDrawnAndRead(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for name, body := range illustrated(t) {
		t.Run(name, func(t *testing.T) {
			doc := s.upload(name, "", `{}`, body)
			mustState(t, doc, sheaf.DocSucceeded)
			base := "/v1/datasets/default/documents/" + doc.ID
			chunks := s.chunks(doc.ID)
			i := slices.IndexFunc(chunks, func(c sheaf.Chunk) bool { return c.Metadata[sheaf.MetadataPictures] != "" })
			if i < 0 || !strings.Contains(chunks[i].Text, "The sign at the barn") || strings.Contains(chunks[i].Metadata[sheaf.MetadataPictures], "\n") {
				t.Fatalf("no chunk names the picture: %+v", chunks)
			}
			resp, b := s.request(http.MethodGet, base+"/pictures/"+chunks[i].Metadata[sheaf.MetadataPictures]+"?side=650", "")
			m, err := jpeg.Decode(bytes.NewReader(b))
			if resp.StatusCode != 200 || err != nil {
				t.Fatalf("%s: %.200s, %v", resp.Status, b, err)
			}
			if at := m.Bounds(); at.Dx() != 650 || at.Dy() != 200 {
				t.Errorf("drawn as %v", at)
			}
			for _, no := range []string{"00000000-17", "word%2Fdocument.xml", strings.Repeat("a", 300)} {
				if resp, b := s.request(http.MethodGet, base+"/pictures/"+no, ""); resp.StatusCode != 404 || !strings.Contains(string(b), "no_picture") {
					t.Errorf("picture %s: %s %s", no, resp.Status, b)
				}
			}
			if strings.Contains(chunks[i].Text, "keeper") {
				t.Errorf("the picture was read unasked: %s", chunks[i].Text)
			}
			program(t, "tesseract")
			read := s.upload(name, "", `{"ocr_pictures": true}`, body)
			mustState(t, read, sheaf.DocSucceeded)
			if chunks := s.chunks(read.ID); !slices.ContainsFunc(chunks, func(c sheaf.Chunk) bool {
				return strings.Contains(c.Text, "counts every sheaf") && c.Metadata[sheaf.MetadataPictures] != ""
			}) {
				t.Errorf("the text in the picture is missing: %+v", chunks)
			}
		})
	}
}

// A document without a drawn page shows the pictures above their text.
func TestPageShowsPicturesInsideFiles(t *testing.T) {
	s := start(t, nil)
	doc := s.add(defaultDataset, text("report.docx", illustrated(t)["report.docx"]))[0]
	page := openBrowser(t, s)
	page.open("/datasets/default/documents/" + doc.ID)
	page.wait("the picture beside its caption", `[...document.querySelectorAll(".chunk")].some(c => c.textContent.includes("The sign") && c.querySelector("img.figure")?.naturalWidth === 640)`)
	page.noErrors()
}
