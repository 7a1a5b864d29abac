// Package embedded reads the files inside an office document: workbooks and
// documents that are shown in it, and files that were dropped onto it. It stands
// between the office formats and the formats of those files.
package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/richardlehane/mscfb"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/members"
	"sheaf/parser/internal/whole"
	"sheaf/parser/internal/zipfile"
)

// Limits, per document or range of slides.
const (
	maxFiles    = 50
	maxBytes    = 32 << 20         // of one file, and of the whole 4 times as many
	maxTime     = 10 * time.Second // that reading takes; LibreOffice needs some of it
	maxText     = 256 << 10        // of one file: what is shown is a part of it
	maxEntries  = 10_000           // of a compound file
	maxWarnings = 20
)

// Reader reads embedded files. It is used by one goroutine at a time.
type Reader struct {
	Archive *zipfile.Archive
	Formats *parser.Registry
	Options parser.Options // of the outer file

	files    int
	bytes    int64
	took     time.Duration
	warnings []sheaf.Warning
	dropped  int
}

// Shown returns the text of a file that is shown in the document or lies in it as an
// icon. Headings are plain paragraphs: they say nothing of what follows in the
// document. It is empty for a formula, and for what cannot be read, which Warnings
// names, with program, the name of what made it ("Visio.Drawing.15"). The error is
// ctx's.
func (r *Reader) Shown(ctx context.Context, part, program string) ([]sheaf.Block, error) {
	return r.shown(r.read(ctx, part, program))
}

func (r *Reader) shown(name string, blocks []sheaf.Block, err error) ([]sheaf.Block, error) {
	text := 0
	for i := range blocks {
		if blocks[i].Kind == sheaf.BlockHeading {
			blocks[i].Kind, blocks[i].Level = sheaf.BlockParagraph, 0
		}
		if text += whole.TextBytes(blocks[i : i+1]); text > maxText && i+1 < len(blocks) {
			r.warn("of the embedded file %s the first %d KB of text were read", name, text>>10)
			return blocks[:i+1], err
		}
	}
	return blocks, err
}

// Included returns the text of a file that is a part of the document, as Shown does,
// with its headings.
func (r *Reader) Included(ctx context.Context, part string) ([]sheaf.Block, error) {
	_, blocks, err := r.read(ctx, part, "")
	return blocks, err
}

func (r *Reader) read(ctx context.Context, part, program string) (name string, blocks []sheaf.Block, err error) {
	if !r.Archive.Has(part) {
		return "", nil, nil
	}
	if !r.admit(ctx) {
		return "", nil, nil
	}
	name = path.Base(strings.ReplaceAll(part, `\`, "/"))
	b, err := r.Archive.ReadAll(part, maxBytes)
	if err != nil {
		r.warn("the embedded file %s cannot be read: %s", name, strings.TrimSuffix(sheaf.AsFailure(err, "").Message, "."))
		return "", nil, nil
	}
	return r.content(ctx, name, program, b)
}

// File returns the text of an attached file, as Shown does.
func (r *Reader) File(ctx context.Context, name string, b []byte) ([]sheaf.Block, error) {
	if !r.admit(ctx) {
		return nil, nil
	}
	if len(b) > maxBytes {
		r.warn("the embedded file %s is larger than %d MB; upload it by itself", name, maxBytes>>20)
		return nil, nil
	}
	return r.shown(r.content(ctx, name, "", b))
}

// admit reports whether one more file is read.
func (r *Reader) admit(ctx context.Context) bool {
	if r.files++; r.files > maxFiles || r.took > maxTime || r.bytes > 4*maxBytes || members.Deep(ctx) {
		r.dropped++
		return false
	}
	return true
}

// content reads a file. Compound files may hold another.
func (r *Reader) content(ctx context.Context, name, program string, b []byte) (_ string, blocks []sheaf.Block, err error) {
	r.bytes += int64(len(b))
	if parser.IsCompound(b) {
		formula := false
		if name, b, formula = unwrap(name, b); b == nil {
			if !formula {
				r.warn("the embedded file %s is of a program whose files cannot be read (%s)", name, cmp.Or(clean.Line(clean.Clip(program, 100)), "unknown"))
			}
			return "", nil, nil
		}
	}
	from := time.Now()
	limited, cancel := context.WithTimeout(ctx, maxTime-r.took)
	defer cancel()
	u := members.Reader{Formats: r.Formats, Options: r.Options, Noun: "embedded file"}.Read(limited, 1, name, "", bytes.NewReader(b), int64(len(b)))
	r.took += time.Since(from)
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case u.Status == sheaf.UnitFailed && limited.Err() != nil:
		r.dropped++ // there is no time for it
		return "", nil, nil
	case u.Status == sheaf.UnitFailed || u.Status == sheaf.UnitSkipped:
		r.warn("%s", strings.TrimSuffix(u.Message, "."))
		return "", nil, nil
	case len(u.Blocks) == 0:
		return "", nil, nil
	}
	r.warnings = append(r.warnings, u.Warnings[:min(len(u.Warnings), max(0, maxWarnings-len(r.warnings)))]...)
	return name, u.Blocks[1:], nil // without its name as a heading
}

func (r *Reader) warn(format string, args ...any) {
	if len(r.warnings) >= maxWarnings {
		r.dropped++
		return
	}
	text := fmt.Sprintf(format, args...)
	r.warnings = append(r.warnings, sheaf.Warning{Code: Ignored, Message: strings.ToUpper(text[:1]) + text[1:] + "."})
}

// Ignored is the code of the warnings about files that were not read.
const Ignored = "embedded_ignored"

// Warnings names what was not read since the last call.
func (r *Reader) Warnings() []sheaf.Warning {
	out := r.warnings
	if r.dropped > 0 {
		out = append(out, sheaf.Warning{Code: Ignored, Message: fmt.Sprintf("More embedded files than are read (%d) were left out; upload them by themselves.", r.dropped)})
	}
	r.warnings, r.dropped = nil, 0
	return out
}

// unwrap finds the file in a compound file, as programs embed what is not OOXML:
// Word, Excel and PowerPoint before 2007 store their own streams, the packager of
// Windows any file with its name ([MS-OLEDS] 2.3.6), others a package or a PDF. file is
// nil if there is none, as for a formula.
func unwrap(name string, b []byte) (_ string, file []byte, formula bool) {
	streams := streamsOf(b)
	stem := strings.TrimSuffix(name, path.Ext(name))
	switch {
	case streams["Package"] != nil:
		return stem, streams["Package"], false
	case bytes.HasPrefix(streams["CONTENTS"], []byte("%PDF")):
		return stem + ".pdf", streams["CONTENTS"], false
	case streams["Ole10Native"] != nil:
		if label, file := native(streams["Ole10Native"]); file != nil {
			return label, file, false
		}
	case streams["WordDocument"] != nil:
		return stem + ".doc", b, false
	case streams["Workbook"] != nil || streams["Book"] != nil:
		return stem + ".xls", b, false
	case streams["PowerPoint Document"] != nil:
		return stem + ".ppt", b, false
	case streams["Equation Native"] != nil:
		return "", nil, true
	}
	return name, nil, false
}

// wrappers are the streams that hold a file. Of others, only the name matters.
var wrappers = map[string]bool{"Package": true, "CONTENTS": true, "Ole10Native": true}

// streamsOf lists the streams at the top of a compound file, as far as it is sound, and
// reads those that hold a file.
func streamsOf(b []byte) (out map[string][]byte) {
	out = map[string][]byte{}
	defer func() { _ = recover() }() // the library trusts the file's own data
	doc, err := mscfb.New(bytes.NewReader(b))
	if err != nil {
		return out
	}
	left := int64(len(b)) // streams cannot hold more than the file
	for range maxEntries {
		e, err := doc.Next()
		if err != nil {
			return out
		}
		if len(e.Path) > 0 || e.Size < 0 || e.Size > left {
			continue
		}
		left -= e.Size
		content := []byte{}
		if wrappers[e.Name] { // the library leaves out a control character at the front
			content = make([]byte, e.Size)
			n, _ := io.ReadFull(e, content)
			content = content[:n]
		}
		out[e.Name] = content
	}
	return out
}

// native reads the stream of the packager: its length, two bytes, the label, the
// path, four bytes, the length of a second path and that, the length of the file and
// the file. All but the last is in the code page of the machine.
func native(b []byte) (label string, file []byte) {
	if len(b) < 6 {
		return "", nil
	}
	b = b[6:]
	text := func() string {
		s, rest, ok := bytes.Cut(b, []byte{0})
		if !ok {
			b = nil
			return ""
		}
		b = rest
		return string(s)
	}
	number := func() int {
		if len(b) < 4 {
			b = nil
			return 0
		}
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return int(min(n, 1<<31-1))
	}
	label = text()
	_ = text()
	_ = number()
	skip := number()
	b = b[min(skip, len(b)):]
	size := number()
	if size == 0 || size > len(b) {
		return "", nil
	}
	label = clean.Line(clean.Clip(path.Base(strings.ReplaceAll(charset.Unnamed([]byte(label)), `\`, "/")), 200))
	if label == "" || label == "." || label == "/" {
		label = "file"
	}
	return label, b[:size]
}
