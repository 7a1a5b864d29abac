package api

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/flow"
	"sheaf/taskstore"
)

// Bounds of an export. It holds in memory one range result, the text of one
// document up to exportWhole, and a row group or an entry name per document.
const (
	exportsAtOnce  = 2       // per tenant in this process
	exportDocs     = 100     // documents per page of the list
	exportChunks   = 500     // chunks per page of a document
	exportWhole    = 8 << 20 // bytes up to which a document is written all or nothing
	exportTries    = 3       // attempts at a document that is replaced while it is read
	maxMarkdowns   = 100_000 // zip entries, whose directory is held until the end
	maxExportName  = 180     // bytes of a file name in the zip; some systems limit it to 255
	exportBuffered = 64 << 10
)

// ExportFormat is the format of a dataset export.
type ExportFormat string

// Formats of an export.
const (
	ExportMarkdown ExportFormat = "markdown"
	ExportJSONL    ExportFormat = "jsonl"
	ExportParquet  ExportFormat = "parquet"
)

// ExportFormats lists all formats.
var ExportFormats = []ExportFormat{ExportMarkdown, ExportJSONL, ExportParquet}

// exportFile is a file that streams as it is produced.
type exportFile struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	Body        func(huma.Context)
}

// ExportedChunk is one line of a JSON Lines export.
type ExportedChunk struct {
	DocumentID string `json:"document_id"`
	Document   string `json:"document"`
	MediaType  string `json:"media_type"`
	Version    int    `json:"version"`
	ListedChunk
	Generation any `json:"generation,omitempty"` // shadows the chunk's generation; Version has it
}

// exporter writes the chunks of documents into one file.
type exporter interface {
	// chunks appends some of a document's chunks. They arrive in reading order and
	// contiguously per document; first marks a document's first call.
	chunks(d *sheaf.Document, some []ListedChunk, first bool) error
	// close completes the file. Until then it is recognizably incomplete.
	close() error
}

func (s *Server) exportRoute() {
	op := get("/v1/datasets/{ds}/export", "Export a dataset")
	op.OperationID = "export-dataset"
	op.Description = "The published versions of the documents that the filters select, oldest first, with their edits. jsonl: one chunk per line. parquet: one chunk per row, in the same columns; pages, boxes and tags are lists, columns and metadata are JSON. markdown: a zip with a file for each document, of at most 100,000 documents. Documents not parsed yet, or deleted during the export, are omitted. The export is streamed: if something fails or a large document is replaced during it, the response breaks off and the file is incomplete. A tenant can run two exports at a time."
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{flow.MediaJSONL: {}, flow.MediaParquet: {}, "application/zip": {}}}}
	handle(s, op, func(ctx context.Context, in *struct {
		DatasetPath
		FilterInput
		Format ExportFormat `query:"format" enum:"markdown,jsonl,parquet" default:"jsonl" doc:"format of the export"`
	}) (*exportFile, error) {
		ds, err := s.dataset(ctx, in.DatasetPath)
		if err != nil {
			return nil, err
		}
		f := in.filter()
		f.DatasetID = ds.ID
		if in.Format == ExportMarkdown {
			counts, err := s.cfg.Catalog.Facets(ctx, ds.TenantID, f)
			if err != nil {
				return nil, err
			}
			if counts.Documents > maxMarkdowns {
				return nil, newProblem(http.StatusConflict, "too_many_documents", fmt.Sprintf("%d documents are selected, and a zip of Markdown takes %d; narrow them by filters, or export them as jsonl or parquet", counts.Documents, maxMarkdowns))
			}
		}
		// Errors before the first byte get a regular response.
		docs, next, err := s.cfg.Catalog.Documents(ctx, ds.TenantID, f, exportPage(""))
		if err != nil {
			return nil, err
		}
		if !s.exporting.enter(ds.TenantID) {
			p := newProblem(http.StatusTooManyRequests, "too_many_exports", fmt.Sprintf("%d exports of this tenant are under way here, which is the limit; wait for one to end", exportsAtOnce))
			p.Retryable = true
			return nil, p
		}
		media, ext := map[ExportFormat]string{ExportMarkdown: "application/zip", ExportJSONL: flow.MediaJSONL, ExportParquet: flow.MediaParquet}[in.Format], string(in.Format)
		if in.Format == ExportMarkdown {
			ext = "zip"
		}
		name := mime.FormatMediaType("attachment", map[string]string{"filename": safeName(ds.Name) + "." + ext})
		return &exportFile{media, name, func(hc huma.Context) {
			defer s.exporting.leave(ds.TenantID)
			if hc.Method() == http.MethodHead {
				return
			}
			if err := s.export(ctx, ds, f, docs, next, newExporter(in.Format, hc.BodyWriter())); err != nil {
				s.log.WarnContext(ctx, "an export broke off", "dataset", ds.ID, "format", in.Format, "error", err)
				panic(http.ErrAbortHandler) // a truncated file must not look complete
			}
		}}, nil
	})
}

func exportPage(cursor string) taskstore.Page {
	return taskstore.Page{Limit: exportDocs, Cursor: cursor, Ascending: true}
}

// export writes documents, starting with the page already read.
func (s *Server) export(ctx context.Context, ds *sheaf.Dataset, f taskstore.DocumentFilter, docs []sheaf.Document, next string, to exporter) (err error) {
	for {
		for i := range docs {
			if err := s.exportDocument(ctx, &docs[i], to); err != nil {
				return fmt.Errorf("exporting document %s: %w", docs[i].ID, err)
			}
		}
		if next == "" {
			break
		}
		if docs, next, err = s.cfg.Catalog.Documents(ctx, ds.TenantID, f, exportPage(next)); err != nil {
			return err
		}
	}
	// A dataset deleted in the meantime lists no more documents.
	if _, err := s.cfg.Catalog.Dataset(ctx, ds.TenantID, ds.ID); err != nil {
		return err
	}
	return to.close()
}

// exportDocument writes the published version of a document, all or nothing up to
// exportWhole. A deleted document is skipped.
func (s *Server) exportDocument(ctx context.Context, d *sheaf.Document, to exporter) error {
	for range exportTries {
		if d.LiveGeneration == 0 {
			return nil
		}
		held, begun, err := s.exportVersion(ctx, d, to)
		now, gone := s.cfg.Catalog.Document(ctx, d.TenantID, d.ID)
		switch deleted := errors.Is(gone, sheaf.ErrNotFound); {
		case gone != nil && !deleted:
			return gone
		case begun && (deleted || now.LiveGeneration != d.LiveGeneration):
			return errors.New("it was deleted or replaced while it was written; export again")
		case deleted:
			return nil
		case now.LiveGeneration != d.LiveGeneration:
			d = now
			continue
		case err != nil:
			return err
		}
		return to.chunks(d, held, !begun)
	}
	return errors.New("it is replaced again and again; export again when its jobs have ended")
}

// exportVersion reads the chunks of d's live version and starts writing them once
// they exceed exportWhole. held are the chunks not yet written.
func (s *Server) exportVersion(ctx context.Context, d *sheaf.Document, to exporter) (held []ListedChunk, begun bool, err error) {
	size := 0
	for q := (chunkQuery{generation: d.LiveGeneration, limit: exportChunks}); ; {
		some, next, err := s.chunks(ctx, d, q)
		if err != nil {
			return nil, begun, err
		}
		for i := range some {
			c := &some[i]
			size += 512 + len(c.Text) + len(c.Parent) + len(c.Context) + 64*len(c.Boxes)
		}
		if held = append(held, some...); next == "" {
			return held, begun, nil
		}
		if q.cursor = next; size > exportWhole {
			if err := to.chunks(d, held, !begun); err != nil {
				return nil, begun, err
			}
			held, size, begun = nil, 0, true
		}
	}
}

func newExporter(f ExportFormat, w io.Writer) exporter {
	out := bufio.NewWriterSize(w, exportBuffered)
	switch f {
	case ExportMarkdown:
		return &markdownExport{zip: zip.NewWriter(out), out: out, seed: maphash.MakeSeed(), names: map[uint64]bool{}}
	case ExportParquet:
		return &tableExport{artifact.NewTable(out), out}
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return &linesExport{e, out}
}

// linesExport writes JSON Lines.
type linesExport struct {
	lines *json.Encoder
	out   *bufio.Writer
}

func (e *linesExport) chunks(d *sheaf.Document, some []ListedChunk, _ bool) error {
	for _, c := range some {
		if err := e.lines.Encode(ExportedChunk{DocumentID: d.ID, Document: d.Name, MediaType: d.MediaType, Version: d.LiveGeneration, ListedChunk: c}); err != nil {
			return err
		}
	}
	return nil
}

func (e *linesExport) close() error { return e.out.Flush() }

// tableExport writes Parquet.
type tableExport struct {
	table *artifact.Table
	out   *bufio.Writer
}

func (e *tableExport) chunks(d *sheaf.Document, some []ListedChunk, _ bool) error {
	for i := range some {
		if err := e.table.Write(d, d.LiveGeneration, &some[i].Chunk); err != nil {
			return err
		}
	}
	return nil
}

func (e *tableExport) close() error {
	if err := e.table.Close(); err != nil {
		return err
	}
	return e.out.Flush()
}

// markdownExport writes a zip with one file per document.
type markdownExport struct {
	zip   *zip.Writer
	out   *bufio.Writer
	seed  maphash.Seed
	names map[uint64]bool // file names in use, hashed because names are long

	entry io.Writer
	above []string // headings of the previous chunk
}

func (e *markdownExport) chunks(d *sheaf.Document, some []ListedChunk, first bool) (err error) {
	if first {
		if e.entry, err = e.zip.CreateHeader(&zip.FileHeader{Name: e.name(d), Method: zip.Deflate, Modified: d.UpdatedAt.UTC().Truncate(time.Second)}); err != nil {
			return err
		}
		e.above = nil
		quote := func(v string) string { b, _ := json.Marshal(v); return string(b) } // a string always encodes to JSON, which is also YAML
		if _, err = fmt.Fprintf(e.entry, "---\ndocument: %s\ndocument_id: %s\nversion: %d\n---\n\n", quote(d.Name), quote(d.ID), d.LiveGeneration); err != nil {
			return err
		}
	}
	for i := range some {
		c := &some[i].Chunk
		if c.Role != "" {
			continue // repeats the content of other chunks
		}
		if _, err := io.WriteString(e.entry, markdownOf(c, e.above)); err != nil {
			return err
		}
		e.above = c.HeadingPath
	}
	return nil
}

func (e *markdownExport) close() error {
	if err := e.zip.Close(); err != nil {
		return err
	}
	return e.out.Flush()
}

// name returns the file name for a document: its own name if every system accepts
// it and it is not taken, otherwise with the id appended.
func (e *markdownExport) name(d *sheaf.Document) string {
	stem := safeName(d.Name)
	if ext := markdownName.FindString(stem); ext != "" {
		stem = strings.TrimSuffix(stem, ext)
	}
	for {
		key := maphash.String(e.seed, strings.ToLower(stem)) // some file systems ignore case
		if !e.names[key] {
			e.names[key] = true
			return stem + ".md"
		}
		stem += "-" + d.ID
	}
}

var (
	markdownName = regexp.MustCompile(`(?i)\.(md|markdown)$`)
	// unsafeName matches characters that some systems reject in a file name or
	// treat as a separator.
	unsafeName = regexp.MustCompile(`[\x00-\x1f\x7f/\\:*?"<>|]+`)
	// reservedName matches Windows device names, with any extension.
	reservedName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)
)

// safeName makes a safe file name from untrusted input.
func safeName(name string) string {
	name = strings.Trim(unsafeName.ReplaceAllString(strings.ToValidUTF8(name, "_"), "_"), ". ")
	for len(name) > maxExportName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = strings.TrimRight(name[:len(name)-size], ". ")
	}
	if name == "" || reservedName.MatchString(name) {
		name = "_" + name
	}
	return name
}

// markdownOf renders a chunk as Markdown, with the headings that the previous chunk
// does not already have.
func markdownOf(c *sheaf.Chunk, above []string) string {
	var b strings.Builder
	same := 0
	for same < min(len(c.HeadingPath), len(above)) && c.HeadingPath[same] == above[same] {
		same++
	}
	for i, h := range c.HeadingPath[same:] {
		fmt.Fprintf(&b, "%s %s\n\n", strings.Repeat("#", min(same+i+1, 6)), h)
	}
	text := withoutHeadings(c.Text, c.HeadingPath)
	if c.Kind == sheaf.ChunkCode && !strings.Contains(text, "```") {
		text = "```\n" + text + "\n```"
	}
	b.WriteString(strings.TrimRight(text, "\n"))
	b.WriteString("\n\n")
	return b.String()
}

// withoutHeadings strips leading headings from a text if they are already printed
// above it.
func withoutHeadings(text string, path []string) string {
	for {
		line, rest, more := strings.Cut(text, "\n")
		line = strings.TrimSpace(line)
		said := strings.TrimSpace(strings.TrimLeft(line, "#"))
		known := line == ""
		for _, h := range path {
			known = known || h == said || h == line
		}
		if !more || !known {
			return text
		}
		text = rest
	}
}
