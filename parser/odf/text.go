// Package odf holds the formats of OpenDocument texts, slides and sheets (OASIS
// OpenDocument 1.3): headings, lists, tables, notes, text boxes, charts and descriptions
// of pictures, as a text reads with all tracked changes accepted, and where a slide shows
// them; the rows of sheets. They run in the parser's child process.
package odf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/embedded"
	"sheaf/parser/internal/ocr"
	"sheaf/parser/internal/picture"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/zipfile"
)

const (
	textVersion = 1 // changes whenever the same file would yield other blocks
	// maxBlocks limits what empty markup can produce, as in Word files.
	maxBlocks = 500_000
	// maxManifestBytes and maxMetaBytes limit the parts beside the text.
	maxManifestBytes = 16 << 20
	maxMetaBytes     = 4 << 20
)

// Parts of a file (OpenDocument 1.3 part 2, 3.1).
const (
	contentPart  = "content.xml"
	stylesPart   = "styles.xml"
	metaPart     = "meta.xml"
	manifestPart = "META-INF/manifest.xml"
)

// NewText returns the format of texts. recognition reads the text in pictures if the setting
// ocr_pictures is on. formats finds the readers of embedded files; it is called while
// a document is read, so the registry may include this format.
func NewText(recognition ocr.Config, formats func() *parser.Registry) parser.Format {
	return text{parts{recognition, formats}}
}

// parts read what files of both formats hold.
type parts struct {
	ocr     ocr.Config
	formats func() *parser.Registry
}

func (parts) Options() []string { return []string{"ocr_pictures", "table_rows"} } // the latter in embedded files

type text struct{ parts }

func (text) ID() string     { return "odt" }
func (f text) Version() int { return textVersion + f.ocr.Digest() }
func (text) Types() []parser.FileType {
	return []parser.FileType{{
		MediaType: parser.MediaODT, Aliases: []string{parser.MediaODT + "-template"},
		Name: "OpenDocument text", Extensions: []string{".odt", ".ott"}, Magic: []parser.Magic{{Entry: "mimetype"}},
		Families: []sheaf.FileFamily{sheaf.FamilyDocument}, Unit: sheaf.UnitFile,
	}}
}

// Open implements parser.Format.
func (f text) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	z, err := open(file, "odt")
	if err != nil {
		return nil, err
	}
	return whole.WithPictures(func(ctx context.Context) (*whole.Content, error) {
		c, err := readText(ctx, z, &embedded.Reader{Archive: z, Formats: f.formats(), Options: o})
		if err == nil && o.Config.OCRPictures.V {
			r := picture.Reader{Archive: z, OCR: f.ocr, TempDir: o.TempDir}
			c.Cost, r.Left = picture.Budget(1, c.Blocks)
			c.Finish = r.Read
		}
		return c, err
	}, func(name string, side int) ([]byte, error) { return picture.Draw(z, name, side) }), nil
}

// open opens the archive of a file, which needs no password.
func open(file *os.File, kind string) (*zipfile.Archive, error) {
	z, err := zipfile.Open(file, kind)
	if err != nil {
		return nil, err
	}
	if !z.Has(contentPart) {
		return nil, zipfile.Invalid(kind, "its part %s is missing", contentPart)
	}
	// Encrypted parts are listed in the manifest (part 2, 4.8).
	if manifest, err := z.ReadAll(manifestPart, maxManifestBytes); err == nil && bytes.Contains(manifest, []byte("encryption-data")) {
		return nil, sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The %s file is protected by a password, which cannot be taken off; save a copy without the password and upload that.", strings.ToUpper(kind))
	}
	return z, nil
}

func readText(ctx context.Context, z *zipfile.Archive, files *embedded.Reader) (*whole.Content, error) {
	r := &reader{kind: "odt", ctx: ctx, z: z, files: files, styles: newStyles()}
	r.styles.read(z, stylesPart)
	r.styles.read(z, contentPart)
	if err := r.part(contentPart, "body"); err != nil {
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code != "invalid_odt" || !ok || len(r.out) == 0 {
			return nil, err
		}
		r.warn("document_damaged", "The document breaks off inside; what stands before was read.")
	}
	if whole.TextBytes(r.out)+whole.TextBytes(r.notes) == 0 { // a letterhead; elsewhere they are on every page and say nothing of it
		if err := r.part(stylesPart, "master-styles"); err != nil && !errors.Is(err, zipfile.ErrMissing) {
			r.warn("document_damaged", "A header or footer could not be read to its end.")
		}
	}
	r.out = append(r.out, r.notes...)
	if r.bare > 0 {
		r.warn("images_ignored", fmt.Sprintf("Pictures without a description (%d) are not found by what they show; describe them (alternative text), or set ocr_pictures where they hold text.", r.bare))
	}
	if r.comments > 0 {
		r.warn("comments_ignored", fmt.Sprintf("Reviewer comments (%d) were not read; they are not part of the text.", r.comments))
	}
	return &whole.Content{Blocks: r.out, Metadata: properties(z), Warnings: append(r.warnings, files.Warnings()...)}, nil
}

// properties reads what the file says of itself (part 3, 4.3).
func properties(z *zipfile.Archive) map[string]string {
	out := map[string]string{}
	p, err := z.Part(metaPart, maxMetaBytes)
	if err != nil {
		return out
	}
	defer p.Close()
	zipfile.ReadFields(p, map[string]string{"title": "title", "initial-creator": "author", "creator": "creator", "subject": "subject", "keyword": "keywords",
		"description": "description", "creation-date": "created", "date": "modified", "language": "language", "generator": "producer"}, out)
	if out["author"] == "" && out["creator"] != "" { // who saved it last
		out["author"] = out["creator"]
	}
	delete(out, "creator")
	return out
}
