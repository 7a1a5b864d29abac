// Package members reads files inside others, the attachments of a mail and the
// members of an archive, through the format for each. A problem with one is a
// verdict on its unit, never on the whole.
package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/tempfile"
	"sheaf/parser/internal/whole"
)

// Limits on what nested files can expand to.
const (
	MaxDepth = 3
	// maxParts and maxBytes apply to everything below one unit of the outermost
	// file: a reader of a range of its units sees the same as a reader of all.
	maxParts     = 256
	maxBytes     = 256 << 20
	maxUnitBytes = whole.MaxTextBytes / 2
	maxWarnings  = 50
)

// Budget is what remains for the files inside one unit of the outermost file.
type Budget struct {
	Parts int
	Bytes int64
}

// Take charges one file of that many bytes to the budget.
func (b *Budget) Take(bytes int64) bool {
	if b.Parts <= 0 || bytes > b.Bytes {
		return false
	}
	b.Parts--
	b.Bytes -= bytes
	return true
}

// place is the nesting position of the file opened with a context.
type place struct {
	depth  int     // 0 for the outermost
	budget *Budget // nil for the outermost
}

type placeKey struct{}

// Deep reports whether the file opened with ctx lies as deep inside others as files
// are read.
func Deep(ctx context.Context) bool {
	at, _ := ctx.Value(placeKey{}).(place)
	return at.depth >= MaxDepth
}

// Reader reads files inside the file that Options belong to.
type Reader struct {
	Formats *parser.Registry
	Options parser.Options // of the outer file
	Noun    string         // what a member is called: "attachment"
	Path    string         // prefix of names in headings: "archive.zip/"; may be empty
}

// Read makes unit n from the content of the file name. mediaType may be empty.
func (m Reader) Read(ctx context.Context, n int, name, mediaType string, content io.ReaderAt, size int64) sheaf.UnitResult {
	u := sheaf.UnitResult{Unit: n, Status: sheaf.UnitOK, Label: m.Path + name}
	verdict := func(s sheaf.UnitStatus, code, message string) sheaf.UnitResult {
		u.Status, u.Code, u.Message, u.Blocks = s, code, message, nil
		return u
	}
	if mediaType == "" {
		mediaType = m.Formats.Sniff(content, size, name)
	}
	format, ok := m.Formats.ByMediaType(mediaType)
	if !ok {
		u.Warnings = append(u.Warnings, sheaf.Warning{Code: m.Noun + "_unsupported", Message: fmt.Sprintf("The %s %s is %s and was not read.", m.Noun, name, mediaType), Page: n})
		return verdict(sheaf.UnitSkipped, "unsupported_format", fmt.Sprintf("The %s %s is %s, which cannot be read; convert it and upload it by itself.", m.Noun, name, mediaType))
	}
	if err := parser.Available(format); err != nil {
		f := sheaf.AsFailure(err, "")
		return verdict(sheaf.UnitSkipped, f.Code, fmt.Sprintf("The %s %s was not read. %s", m.Noun, name, f.Message))
	}
	at, _ := ctx.Value(placeKey{}).(place)
	if kind, _ := m.Formats.TypeOf(mediaType); at.depth >= MaxDepth && kind.Nests {
		return verdict(sheaf.UnitSkipped, "too_deep", fmt.Sprintf("The %s %s lies more than %d files deep and was not read; upload it by itself.", m.Noun, name, MaxDepth))
	}
	// Files in the outermost one were counted there; everything below one of its
	// units shares a budget.
	if at.budget == nil {
		at.budget = &Budget{Parts: maxParts, Bytes: maxBytes}
	} else if !at.budget.Take(size) {
		return verdict(sheaf.UnitSkipped, "too_large", fmt.Sprintf("The %s %s was not read: %d files or %d MB inside one are the limit. Upload it by itself.", m.Noun, name, maxParts, maxBytes>>20))
	}
	at.depth++
	ctx = context.WithValue(ctx, placeKey{}, at)
	blocks, warnings, err := m.blocks(ctx, format, mediaType, name, n, content, size)
	if err != nil {
		f := sheaf.AsFailure(err, "")
		return verdict(sheaf.UnitFailed, f.Code, fmt.Sprintf("The %s %s: %s", m.Noun, name, f.Message))
	}
	for _, w := range warnings {
		w.Page = n
		w.Message = name + ": " + w.Message
		u.Warnings = append(u.Warnings, w)
	}
	if len(blocks) == 0 {
		return verdict(sheaf.UnitBlank, "no_text", "The "+m.Noun+" "+name+" contains no text.")
	}
	u.Blocks = append([]sheaf.Block{{Kind: sheaf.BlockHeading, Level: 1, Text: m.Path + name, Page: n}}, blocks...)
	return u
}

func (m Reader) blocks(ctx context.Context, format parser.Format, mediaType, name string, n int, content io.ReaderAt, size int64) (blocks []sheaf.Block, warnings []sheaf.Warning, err error) {
	dir, err := os.MkdirTemp(m.Options.TempDir, "part")
	if err != nil {
		return nil, nil, tempfile.Full(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "content")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, tempfile.Full(err)
	}
	if _, err := io.Copy(f, io.NewSectionReader(content, 0, size)); err != nil {
		return nil, nil, errors.Join(tempfile.Full(err), f.Close())
	}
	if err := f.Close(); err != nil {
		return nil, nil, tempfile.Full(err)
	}
	o := parser.Options{Name: name, MediaType: mediaType, Config: sheaf.ParseConfig{TableRows: m.Options.Config.TableRows, Password: m.Options.Config.Password}, TempDir: dir}
	plan, err := openAndPlan(ctx, format, path, o)
	if err != nil {
		return nil, nil, err
	}
	warnings, o.Beside = plan.Warnings, plan.Beside
	text := 0
	emit := func(u sheaf.UnitResult) error {
		warnings = append(warnings, u.Warnings...)
		if u.Status == sheaf.UnitFailed || u.Status == sheaf.UnitSkipped {
			warnings = append(warnings, sheaf.Warning{Code: u.Code, Message: u.Message})
		}
		for _, b := range u.Blocks {
			// Positions and rows of the inner file mean nothing in the outer.
			b.Page, b.Spans, b.Picture = n, nil, ""
			if b.Kind == sheaf.BlockImage && b.Text == "" {
				continue // a picture of the inner file, which cannot be drawn
			}
			if b.Table != nil {
				t := *b.Table
				t.FirstRow, t.RowBoxes, t.Box = 0, nil, nil
				b.Table = &t
			}
			blocks = append(blocks, b)
		}
		if text += whole.TextBytes(u.Blocks); text > maxUnitBytes {
			return errFull
		}
		return nil
	}
	ranges := plan.Ranges
	if ranges == nil {
		ranges = []parser.PlannedRange{{Range: sheaf.Range{From: 1, To: plan.Units}}}
	}
	for _, r := range ranges {
		err := m.parseRange(ctx, format, path, o, r, emit)
		if errors.Is(err, errFull) {
			warnings = append(warnings, sheaf.Warning{Code: m.Noun + "_clipped", Message: fmt.Sprintf("Only its first %d MB of text were read; upload it by itself.", maxUnitBytes>>20)})
			break
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return blocks, warnings[:min(len(warnings), maxWarnings)], nil
}

var errFull = errors.New("enough of this file was read")

func openAndPlan(ctx context.Context, format parser.Format, path string, o parser.Options) (*parser.Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	doc, err := format.Open(ctx, f, o)
	if err != nil {
		return nil, err
	}
	defer doc.Close()
	return doc.Plan(ctx)
}

func (m Reader) parseRange(ctx context.Context, format parser.Format, path string, o parser.Options, r parser.PlannedRange, emit func(sheaf.UnitResult) error) error {
	o.Hint = r.Hint
	if r.Shard != "" {
		path = filepath.Join(o.TempDir, filepath.FromSlash(r.Shard))
		o.MediaType = r.MediaType
		known, ok := m.Formats.ByMediaType(r.MediaType)
		if !ok {
			return fmt.Errorf("no format for shards of type %q", r.MediaType)
		}
		format = known
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	doc, err := format.Open(ctx, f, o)
	if err != nil {
		return err
	}
	defer doc.Close()
	return doc.Parse(ctx, r.Range, emit)
}
