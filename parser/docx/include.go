package docx

import (
	"bytes"
	"errors"
	"path"
	"strings"

	"sheaf"
	"sheaf/parser/internal/charset"
	"sheaf/parser/internal/clean"
	"sheaf/parser/internal/htmlblocks"
	"sheaf/parser/internal/members"
	"sheaf/parser/internal/rtf"
)

// maxIncluded limits an included file, which is read whole.
const maxIncluded = 16 << 20

// include adds the file that an altChunk names: programs that write reports put
// their text there, as HTML, as a web archive, as RTF or as plain text, and programs
// that merge documents whole documents.
func (r *reader) include(id string) error {
	rel := r.rels[id]
	if rel.External || rel.Target == "" {
		r.included++
		return nil
	}
	b, err := r.z.ReadAll(rel.Target, maxIncluded)
	if err == nil && bytes.HasPrefix(b, []byte("PK")) {
		blocks, err := r.files.Included(r.ctx, rel.Target)
		return errors.Join(err, r.add(blocks...))
	}
	blocks, ok := included(rel.Target, b)
	if err != nil || !ok {
		r.included++
	}
	return r.add(blocks...)
}

// included reads an included file of text, if it is one.
func included(name string, b []byte) (blocks []sheaf.Block, ok bool) {
	head := bytes.TrimLeft(b, "\ufeff \t\r\n")
	switch extension := strings.ToLower(path.Ext(name)); {
	case bytes.HasPrefix(head, []byte(`{\rtf`)):
		text, html := rtf.Text(head)
		if html {
			return htmlblocks.Blocks(text), true
		}
		return paragraphs(text), true
	case extension == ".mht" || extension == ".mhtml" || members.LooksLikeMail(head):
		mail, err := members.ReadMail(head)
		if err != nil {
			return nil, false
		}
		if mail.HTML == "" {
			return paragraphs(mail.Text), mail.Text != ""
		}
		return htmlblocks.Blocks(mail.HTML), true
	}
	// No encoding is requested, so none can be unknown.
	g, _ := charset.Detect(b[:min(len(b), charset.SampleBytes)], "", htmlblocks.Declared(b), len(b) <= charset.SampleBytes)
	text := string(g.Decode(b))
	if strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "<") {
		return htmlblocks.Blocks(text), true
	}
	return paragraphs(text), clean.Readable(text)
}

func paragraphs(text string) (out []sheaf.Block) {
	for part := range strings.SplitSeq(clean.Lines(text), "\n\n") {
		if part != "" {
			out = append(out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: part})
		}
	}
	return out
}
