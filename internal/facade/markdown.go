package facade

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sheaf"
)

// chunksAtOnce bounds the chunks per request: a chunk may hold 8,191 tokens.
const chunksAtOnce = 200

// Chunks reads the live chunks of a document in reading order, without those that
// repeat other chunks. page 0 means all. f is called for each; its error stops the
// reading.
func (c *Client) Chunks(ctx context.Context, dataset, document string, page int, f func(*sheaf.Chunk) error) error {
	q := url.Values{"limit": {strconv.Itoa(chunksAtOnce)}}
	if page > 0 {
		q.Set("page", strconv.Itoa(page))
	}
	for {
		var list List[sheaf.Chunk]
		if err := c.Call(ctx, http.MethodGet, Path("v1", "datasets", dataset, "documents", document, "chunks")+"?"+q.Encode(), nil, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Role != "" {
				continue
			}
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
		if list.NextCursor == nil {
			return nil
		}
		q.Set("cursor", *list.NextCursor)
	}
}

// maxTextBytes bounds what is read of one document.
const maxTextBytes = 64 << 20

// Read reads all chunks of a document, up to 64 MiB of text.
func (c *Client) Read(ctx context.Context, dataset, document string) ([]sheaf.Chunk, error) {
	var out []sheaf.Chunk
	size := 0
	err := c.Chunks(ctx, dataset, document, 0, func(chunk *sheaf.Chunk) error {
		if size += len(chunk.Text); size > maxTextBytes {
			return &Error{Status: http.StatusRequestEntityTooLarge, Code: "text_too_large", Detail: fmt.Sprintf("The text of the document is larger than %d MiB; read it in pages with GET /v1/datasets/{ds}/documents/{doc}/chunks", maxTextBytes>>20)}
		}
		out = append(out, *chunk)
		return nil
	})
	return out, err
}

// ReadPages reads the chunks that touch the pages from..to.
func (c *Client) ReadPages(ctx context.Context, dataset, document string, from, to int) ([]sheaf.Chunk, error) {
	var out []sheaf.Chunk
	seen := map[string]bool{}
	for page := from; page <= to; page++ {
		if err := c.Chunks(ctx, dataset, document, page, func(chunk *sheaf.Chunk) error {
			if !seen[chunk.ID] {
				seen[chunk.ID] = true
				out = append(out, *chunk)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b sheaf.Chunk) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return out, nil
}

// Markdown renders chunks in reading order. Headings get their marks back; tables
// and code already are Markdown.
func Markdown(chunks []sheaf.Chunk) string {
	var b strings.Builder
	for i := range chunks {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(markdownOf(&chunks[i]))
	}
	return b.String()
}

// Heading is a heading at the start of a chunk's text.
type Heading struct {
	Level int // from 1
	Text  string
}

// Headings returns the headings at the start of a chunk's text, one per paragraph:
// its heading path, from some level down. body is the rest of the text.
func Headings(c *sheaf.Chunk) (headings []Heading, body string) {
	body = strings.TrimSpace(c.Text)
	for level := 0; body != ""; {
		first, rest, _ := strings.Cut(body, "\n")
		first = strings.TrimSpace(first)
		at := slices.Index(c.HeadingPath[level:], first)
		if at < 0 {
			break
		}
		level += at + 1
		headings = append(headings, Heading{level, first})
		body = strings.TrimLeft(rest, "\n")
	}
	return headings, body
}

func markdownOf(c *sheaf.Chunk) string {
	headings, body := Headings(c)
	var parts []string
	for _, h := range headings {
		parts = append(parts, strings.Repeat("#", min(h.Level, 6))+" "+h.Text)
	}
	if body != "" {
		parts = append(parts, body)
	}
	return strings.Join(parts, "\n\n")
}
