// Package office is the format of pre-OOXML office files and RTF: DOC, XLS and PPT.
// During planning LibreOffice, an optional program, converts a file once to DOCX, XLSX
// or PPTX, and the tasks read that. It runs in the parser's child process.
package office

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/program"
	"sheaf/parser/internal/tempfile"
)

const (
	version = 1 // changes whenever the same file would yield other blocks; see Version
	// maxFileBytes limits a file. LibreOffice takes up to 20 times the file's size
	// in memory.
	maxFileBytes = 256 << 20
	// maxMemoryBytes and timeout apply per conversion. Measured: 1.4 s and 216 MB
	// for a small file; of 20 decks one took 1.9 GB.
	maxMemoryBytes = 3 << 30
	timeout        = 5 * time.Minute
	// maxConvertedBytes limits LibreOffice's output; the formats that read it have
	// their own limits on what they unpack.
	maxConvertedBytes = 1 << 30
)

// Config configures the format.
type Config struct {
	// Soffice is the path of LibreOffice's soffice, or a name in PATH; "" to
	// disable it.
	Soffice string
	// Elsewhere means that the processes that parse documents have LibreOffice,
	// though this one does not.
	Elsewhere bool
}

// New returns the format. formats finds the reader of LibreOffice's output; it is
// called while a file is read.
func New(cfg Config, formats func() *parser.Registry) parser.Format {
	return &format{cfg: cfg, formats: formats}
}

type format struct {
	cfg     Config
	formats func() *parser.Registry
}

// kind is a family of files that LibreOffice reads with one of its components.
type kind struct {
	name   string // for display
	ext    string // file extension expected by LibreOffice
	filter string // output filter, following the extension
	out    string // media type
}

const (
	toDOCX = "docx:MS Word 2007 XML"
	toXLSX = "xlsx:Calc MS Excel 2007 XML"
	toPPTX = "pptx:Impress MS PowerPoint 2007 XML"
)

func kindOf(mediaType string) (kind, bool) {
	switch strings.TrimSuffix(mediaType, "-template") {
	case parser.MediaDOC:
		return kind{"DOC", "doc", toDOCX, parser.MediaDOCX}, true
	case parser.MediaXLS:
		return kind{"XLS", "xls", toXLSX, parser.MediaXLSX}, true
	case parser.MediaPPT:
		return kind{"PPT", "ppt", toPPTX, parser.MediaPPTX}, true
	case parser.MediaRTF, "text/rtf":
		return kind{"RTF", "rtf", toDOCX, parser.MediaDOCX}, true
	}
	return kind{}, false
}

func (*format) ID() string { return "office" }
func (*format) Types() []parser.FileType {
	types := []parser.FileType{
		{MediaType: parser.MediaDOC, Name: "Word before 2007", Extensions: []string{".doc"}, Magic: []parser.Magic{{Stream: "WordDocument"}}},
		{MediaType: parser.MediaRTF, Aliases: []string{"text/rtf"}, Name: "RTF", Extensions: []string{".rtf"}, Magic: []parser.Magic{{Bytes: `{\rtf`}}},
		// A Word or PowerPoint file may embed a sheet: sheets come after them.
		{MediaType: parser.MediaPPT, Name: "PowerPoint before 2007", Extensions: []string{".ppt"}, Magic: []parser.Magic{{Stream: "PowerPoint Document"}}},
		{MediaType: parser.MediaXLS, Name: "Excel before 2007", Extensions: []string{".xls"}, Magic: []parser.Magic{{Stream: "Workbook"}, {Stream: "Book"}}},
	}
	for i := range types {
		t := &types[i]
		t.Needs = "LibreOffice"
		switch k, _ := kindOf(t.MediaType); k.out {
		case parser.MediaDOCX:
			t.Families, t.Unit = []sheaf.FileFamily{sheaf.FamilyDocument}, sheaf.UnitFile
		case parser.MediaPPTX:
			t.Families, t.Unit = []sheaf.FileFamily{sheaf.FamilyPresentation}, sheaf.UnitSlide
		case parser.MediaXLSX:
			t.Families, t.Unit, t.Ranges = []sheaf.FileFamily{sheaf.FamilySpreadsheet}, sheaf.UnitRow, "3,000 rows"
		}
	}
	return types
}

// Version grows with that of each format that reads a converted file.
func (f *format) Version() int {
	v := version
	for _, mt := range []string{parser.MediaDOCX, parser.MediaXLSX, parser.MediaPPTX} {
		if in, ok := f.formats().ByMediaType(mt); ok {
			v += in.Version()
		}
	}
	return v
}

// Options are those of the formats that read a converted file.
func (f *format) Options() []string {
	var all []string
	for _, mt := range []string{parser.MediaDOCX, parser.MediaXLSX, parser.MediaPPTX} {
		if in, ok := f.formats().ByMediaType(mt); ok {
			all = append(all, in.Options()...)
		}
	}
	return all
}

// Available implements parser.Optional.
func (f *format) Available() error {
	if f.cfg.Elsewhere {
		return nil
	}
	_, err := f.soffice()
	return err
}

func (f *format) soffice() (string, error) {
	return program.Program{
		Name: "LibreOffice", Command: f.cfg.Soffice, Setting: "parser.soffice",
		Packages: "libreoffice-writer-nogui, libreoffice-calc-nogui and libreoffice-impress-nogui",
	}.Find("Reading DOC, XLS, PPT and RTF files")
}

// Open implements parser.Format. It checks the file's container; LibreOffice is
// started when the document is planned or parsed.
func (f *format) Open(_ context.Context, file *os.File, o parser.Options) (parser.Document, error) {
	k, ok := kindOf(o.MediaType)
	if !ok {
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "unsupported_type", "LibreOffice is not used for files of type %q; correct parser_config.media_type.", o.MediaType)
	}
	soffice, err := f.soffice()
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	switch {
	case err != nil:
		return nil, sheaf.FailRetryable(sheaf.CategorySource, "source_unreadable", "The stored file cannot be read: %v.", err)
	case st.Size() == 0:
		return nil, sheaf.Fail(sheaf.CategoryBadInput, "empty_file", "The file has no bytes; upload it again from the original.")
	case st.Size() > maxFileBytes:
		return nil, sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The %s file has %d MB and the limit is %d MB; split it, or save it as DOCX, XLSX or PPTX and upload that.", k.name, st.Size()>>20, maxFileBytes>>20)
	}
	if err := k.check(file, st.Size()); err != nil {
		return nil, err
	}
	return &document{format: f, kind: k, soffice: soffice, file: file, size: st.Size(), options: o}, nil
}

func (k kind) invalid(why string) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryBadInput, "invalid_"+k.ext, "The file cannot be read as %s: %s. Open it in the program that made it, save it anew, best as DOCX, XLSX or PPTX, and upload that.", k.name, why)
}

func (k kind) encrypted() *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryEncrypted, "encrypted", "The %s file is protected by a password, which cannot be taken off; save a copy without the password and upload that.", k.name)
}

// document is a file, converted or not yet converted.
type document struct {
	format  *format
	kind    kind
	soffice string
	file    *os.File
	size    int64
	options parser.Options

	dir       string // of the run, under options.TempDir
	converted *os.File
	inner     parser.Document // of the converted file
}

// Close implements parser.Document. The converted file stays in the temporary
// folder for tasks planned from it.
func (d *document) Close() error {
	var err error
	if d.inner != nil {
		err = d.inner.Close()
	}
	if d.converted != nil {
		err = errors.Join(err, d.converted.Close())
	}
	d.inner, d.converted = nil, nil
	return err
}

// profile keeps LibreOffice from running macros and fetching linked resources.
const profile = `<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="DisableMacrosExecution" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="MacroSecurityLevel" oor:op="fuse"><value>3</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="BlockUntrustedRefererLinks" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Calc/Content/Update"><prop oor:name="Link" oor:op="fuse"><value>2</value></prop></item>
<item oor:path="/org.openoffice.Office.Writer/Content/Update"><prop oor:name="Link" oor:op="fuse"><value>0</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Misc"><prop oor:name="FirstRun" oor:op="fuse"><value>false</value></prop></item>
</oor:items>
`

// convert runs LibreOffice once, in its own folder with its own user profile, and
// opens the result.
func (d *document) convert(ctx context.Context) error {
	if d.inner != nil {
		return nil
	}
	dir, err := os.MkdirTemp(d.options.TempDir, "office-")
	if err != nil {
		return tempfile.Full(err)
	}
	d.dir = dir
	in, user := filepath.Join(dir, "in."+d.kind.ext), filepath.Join(dir, "profile", "user")
	if err := errors.Join(os.MkdirAll(user, 0o700), copyTo(in, d.file, d.size),
		os.WriteFile(filepath.Join(user, "registrymodifications.xcu"), []byte(profile), 0o600)); err != nil {
		return tempfile.Full(err)
	}
	_, err = program.Run{
		Path: d.soffice, Dir: dir, Timeout: timeout, MemoryBytes: maxMemoryBytes, OutputBytes: 1 << 20,
		Args: []string{
			"-env:UserInstallation=" + (&url.URL{Scheme: "file", Path: filepath.Join(dir, "profile")}).String(),
			"--headless", "--norestore", "--nolockcheck", "--nodefault", "--nologo", "--convert-to", d.kind.filter, "--outdir", filepath.Join(dir, "out"), in,
		},
	}.Do(ctx)
	_ = os.RemoveAll(filepath.Join(dir, "profile")) // the whole folder is removed with the document
	_ = os.Remove(in)
	if err != nil {
		return err
	}
	ext, _, _ := strings.Cut(d.kind.filter, ":")
	out, err := os.Open(filepath.Join(dir, "out", "in."+ext))
	if err != nil {
		return d.kind.invalid("LibreOffice could not load it; it may be damaged or protected by a password")
	}
	d.converted = out
	if st, err := out.Stat(); err != nil || st.Size() > maxConvertedBytes {
		return sheaf.Fail(sheaf.CategoryCapacity, "too_large", "The %s file becomes larger than %d MB; split it.", d.kind.name, maxConvertedBytes>>20)
	}
	format, ok := d.format.formats().ByMediaType(d.kind.out)
	if !ok {
		return sheaf.Fail(sheaf.CategoryInternal, "unsupported_format", "This build does not read what LibreOffice makes of %s files.", d.kind.name)
	}
	o := d.options
	o.MediaType, o.Hint = d.kind.out, nil
	d.inner, err = format.Open(ctx, out, o)
	return err
}

func copyTo(path string, f *os.File, size int64) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(f, 0, size))
	return errors.Join(err, out.Close())
}

// Plan implements parser.Document. The converted file is the shard of every range
// without its own, so that LibreOffice runs once per document.
func (d *document) Plan(ctx context.Context) (*parser.Plan, error) {
	if err := d.convert(ctx); err != nil {
		return nil, err
	}
	p, err := d.inner.Plan(ctx)
	if err != nil {
		return nil, err
	}
	shard, err := filepath.Rel(d.options.TempDir, d.converted.Name())
	if err != nil {
		return nil, fmt.Errorf("the converted file is not in the temporary folder: %w", err)
	}
	if p.Ranges == nil {
		for _, r := range sheaf.CutRanges([]sheaf.Range{{From: 1, To: p.Units}}, p.RangeSize) {
			p.Ranges = append(p.Ranges, parser.PlannedRange{Range: r})
		}
	}
	for i := range p.Ranges {
		if r := &p.Ranges[i]; r.Shard == "" {
			r.Shard, r.MediaType = filepath.ToSlash(shard), d.kind.out
		}
	}
	if p.Metadata == nil {
		p.Metadata = map[string]string{}
	}
	p.Metadata["converted_by"] = "LibreOffice"
	delete(p.Metadata, "producer") // that is LibreOffice, not the author's program
	return p, nil
}

// Picture implements parser.Illustrated: pictures are those of the converted file,
// whose names are derived from their content.
func (d *document) Picture(ctx context.Context, name string, side int) ([]byte, error) {
	if err := d.convert(ctx); err != nil {
		return nil, err
	}
	return parser.PictureOf(ctx, d.inner, name, side)
}

// Parse implements parser.Document. In normal operation the converted file is
// parsed instead.
func (d *document) Parse(ctx context.Context, r sheaf.Range, emit func(sheaf.UnitResult) error) error {
	if err := d.convert(ctx); err != nil {
		return err
	}
	return d.inner.Parse(ctx, r, emit)
}
