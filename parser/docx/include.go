package docx

import (
	"bytes"
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

// include reads the file that an altChunk names: programs that write reports put
// their text there, as HTML, as a web archive, as RTF or as plain text. It reports
// whether the file could be read; Word documents inside cannot.
func (r *reader) include(id string) (blocks []sheaf.Block, ok bool) {
	rel := r.rels[id]
	if rel.External || rel.Target == "" {
		return nil, false
	}
	b, err := r.z.ReadAll(rel.Target, maxIncluded)
	if err != nil {
		return nil, false
	}
	head := bytes.TrimLeft(b, "\ufeff \t\r\n")
	switch extension := strings.ToLower(path.Ext(rel.Target)); {
	case bytes.HasPrefix(head, []byte("PK")):
		return nil, false
	case bytes.HasPrefix(head, []byte(`{\rtf`)):
		text, html := rtf.Text(head)
		if html {
			return htmlblocks.Read([]byte(text)).Blocks, true
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
		return htmlblocks.Read([]byte(strings.ToValidUTF8(mail.HTML, "\ufffd"))).Blocks, true
	case bytes.HasPrefix(head, []byte("<")):
		return htmlblocks.Read(decoded(b, htmlblocks.Declared(b))).Blocks, true
	}
	text := decoded(b, "")
	return paragraphs(string(text)), clean.Readable(string(text))
}

// decoded converts a file to UTF-8.
func decoded(b []byte, declared string) []byte {
	g, _ := charset.Detect(b[:min(len(b), charset.SampleBytes)], "", declared, len(b) <= charset.SampleBytes) // no encoding is requested, so none can be unknown
	return g.Decode(b)
}

func paragraphs(text string) (out []sheaf.Block) {
	for part := range strings.SplitSeq(clean.Lines(text), "\n\n") {
		if part != "" {
			out = append(out, sheaf.Block{Kind: sheaf.BlockParagraph, Text: part})
		}
	}
	return out
}
