package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"sheaf"
	"sheaf/internal/artifact"
	"sheaf/internal/blob"
	"sheaf/internal/flow"
	"sheaf/parser"
	"sheaf/parser/child"
)

// chunkQuery selects chunks of one generation of a document.
type chunkQuery struct {
	generation int // 0 means the live one
	limit      int
	cursor     string // "<task>.<chunk>[.<n>]": position of the next chunk to return; n counts the listed chunks at that position
	page       int
	rangeID    string
}

// chunks reads a generation's artifacts in reading order. Artifacts, not the index,
// are the source of truth for chunks.
func (s *Server) chunks(ctx context.Context, d *sheaf.Document, q chunkQuery) (out []ListedChunk, next string, err error) {
	generation := cmp.Or(q.generation, d.LiveGeneration)
	if generation == 0 {
		return nil, "", nil
	}
	tasks, err := s.versionTasks(ctx, d, generation, true)
	if err != nil {
		return nil, "", err
	}
	tasks = slices.DeleteFunc(tasks, func(t sheaf.Task) bool {
		return q.page > 0 && !t.Range.Contains(q.page) || q.rangeID != "" && t.Result.RangeID != q.rangeID
	})
	edited, err := s.overlay(ctx, d, generation)
	if err != nil {
		return nil, "", err
	}
	var from [3]int
	if q.cursor != "" {
		for i, n := range strings.SplitN(q.cursor, ".", len(from)) {
			from[i] = atoi(n)
		}
	}
	// add appends the chunks at a position and reports whether the page is full.
	add := func(i, n int, some []ListedChunk) bool {
		for k, c := range some {
			switch {
			case i == from[0] && n == from[1] && k < from[2]:
				continue
			case len(out) == q.limit:
				if next = fmt.Sprintf("%d.%d", i, n); k > 0 {
					next += fmt.Sprintf(".%d", k)
				}
				return true
			}
			out = append(out, c)
		}
		return false
	}
	var last sheaf.Chunk
	first, skip := from[0], from[1]
	for i := first; i >= 0 && i < len(tasks); i++ {
		f, err := artifact.Load(ctx, s.cfg.Blobs, tasks[i].Result.ArtifactKey)
		if errors.Is(err, sheaf.ErrNotFound) && generation != d.LiveGeneration {
			return nil, "", generationGone(generation)
		}
		if err != nil {
			return nil, "", fmt.Errorf("reading the chunks of %s: %w", tasks[i].Range, err)
		}
		for n, c := range f.Chunks {
			if i == first && n < skip || q.page > 0 && !slices.Contains(c.Pages, q.page) {
				continue
			}
			c.Generation = generation
			if add(i, n, edited.listed(c)) {
				return out, next, nil
			}
			last = c
		}
	}
	if q.page == 0 && q.rangeID == "" && len(edited.after[""]) > 0 {
		switch {
		case len(tasks) == 0: // all chunks were added by users
			last.Ordinal = -1
		case last.ID == "": // the page starts here
			f, err := artifact.Load(ctx, s.cfg.Blobs, tasks[len(tasks)-1].Result.ArtifactKey)
			if err != nil || len(f.Chunks) == 0 {
				return nil, "", err
			}
			last = f.Chunks[len(f.Chunks)-1]
		}
		last.DocumentID, last.Generation, last.Pages, last.HeadingPath, last.Ordinal = d.ID, generation, nil, nil, last.Ordinal+1
		add(len(tasks), 0, edited.added("", last))
	}
	return out, next, nil
}

// presignedGet is how long a presigned download URL is valid.
const presignedGet = 15 * time.Minute

// content serves the original bytes, with byte ranges. With ?redirect=true it
// redirects to the blob store's URL, if the store presigns.
func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	d, err := s.document(r.Context(), pathOf(r))
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	if store, ok := s.cfg.Blobs.(blob.Presigner); ok && r.URL.Query().Get("redirect") == "true" {
		address, err := store.PresignGet(r.Context(), d.BlobKey, presignedGet, mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(d.Name)}))
		if err != nil {
			s.writeProblem(w, r, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, address, http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("Content-Type", d.MediaType)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(d.Name)}))
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'") // a hostile HTML file must not run here
	w.Header().Set("ETag", `"`+d.SHA256+`"`)
	w.Header().Set("Cache-Control", "private, max-age=3600")
	rs := &blobSeeker{ctx: r.Context(), s: s, key: d.BlobKey, size: d.Size}
	defer rs.Close()
	http.ServeContent(w, r, "", d.UpdatedAt, rs)
}

// artifactFile serves one range result as Parquet.
func (s *Server) artifactFile(w http.ResponseWriter, r *http.Request) {
	d, err := s.document(r.Context(), pathOf(r))
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	tasks, err := s.cfg.Catalog.Tasks(r.Context(), tenantOf(r.Context()), d.ID, d.LiveGeneration)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	want := strings.TrimSuffix(r.PathValue("range"), ".parquet")
	i := slices.IndexFunc(tasks, func(t sheaf.Task) bool { return t.Result.RangeID == want && t.Result.ArtifactKey != "" })
	if i < 0 {
		s.writeProblem(w, r, sheaf.ErrNotFound)
		return
	}
	info, err := s.cfg.Blobs.Stat(r.Context(), tasks[i].Result.ArtifactKey)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	media, name := "application/vnd.apache.parquet", want+".parquet"
	if o := tasks[i].Result.Output; tasks[i].Kind == sheaf.KindDataflow && (o == nil || o.Media == "") {
		media, name = "application/json", want+".json"
	} else if o != nil && o.Media == flow.MediaJSONL {
		media, name = o.Media, want+".jsonl"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	rs := &blobSeeker{ctx: r.Context(), s: s, key: info.Key, size: info.Size}
	defer rs.Close()
	http.ServeContent(w, r, "", time.Time{}, rs)
}

// clipOf parses a box, "x0,y0,x1,y1" in points from the page's top left; nil if
// empty.
func clipOf(s string) (*sheaf.Box, error) {
	if s == "" {
		return nil, nil
	}
	var n [4]float64
	parts := strings.Split(s, ",")
	for i, p := range parts {
		v, err := strconv.ParseFloat(p, 64)
		if err != nil || len(parts) != len(n) || !(v >= 0 && v <= 1e5) {
			return nil, fmt.Errorf("%w: box %q: give x0,y0,x1,y1 in points from the page's top left", sheaf.ErrInvalid, s)
		}
		n[i] = v
	}
	if n[2] <= n[0] || n[3] <= n[1] {
		return nil, fmt.Errorf("%w: box %q: x1 and y1 are right of and below x0 and y0", sheaf.ErrInvalid, s)
	}
	return &sheaf.Box{X0: n[0], Y0: n[1], X1: n[2], Y1: n[3]}, nil
}

// original fetches a document's file to this host; a PDF in blocks, as it is read.
func (s *Server) original(ctx context.Context, d *sheaf.Document) (path string, fill blob.Fill, release func(), err error) {
	if d.MediaType == parser.MediaPDF {
		return s.cfg.Files.FetchBlocks(ctx, d.BlobKey, d.SHA256, d.Size)
	}
	path, release, err = s.cfg.Files.Fetch(ctx, d.BlobKey, d.SHA256, d.Size)
	return path, nil, release, err
}

// pageImage renders one page, or a part of it such as a figure.
func (s *Server) pageImage(w http.ResponseWriter, r *http.Request) {
	d, err := s.document(r.Context(), pathOf(r))
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil {
		s.writeProblem(w, r, newProblem(400, "", fmt.Sprintf("the page cannot be %s; give its number, counted from 1", quoted(r.PathValue("n")))))
		return
	}
	dpi := min(max(cmp.Or(atoi(r.URL.Query().Get("dpi")), 96), 36), 300)
	clip, err := clipOf(r.URL.Query().Get("box"))
	switch {
	case err != nil:
		s.writeProblem(w, r, err)
		return
	case n < 1 || d.Units > 0 && n > d.Units:
		s.writeProblem(w, r, fmt.Errorf("%w: the document has %d pages", sheaf.ErrNotFound, d.Units))
		return
	case s.cfg.Renderer == nil || drawnBy[d.MediaType] == "":
		s.writeProblem(w, r, newProblem(404, "no_page_image", "pages of this format are not drawn; its chunks carry the text"))
		return
	}
	path, fill, release, err := s.original(r.Context(), d)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	defer release()
	ctx, end, err := s.draw(r, d)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	defer end()
	img, mediaType, err := s.cfg.Renderer.Render(ctx, s.source(ctx, d, path, fill), n, dpi, clip)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	s.writeImage(w, img, mediaType, fmt.Sprintf(`"%s-%d-%d-%x"`, d.SHA256, n, dpi, xxhash.Sum64String(r.URL.Query().Get("box"))))
}

// Bounds of images. A tenant whose pages take long, or that asks for hundreds, waits
// for its own: parsers serve in the order of requests.
const (
	imageTime    = 30 * time.Second // including the wait
	tenantImages = 2                // drawn at a time
)

// draw waits until the tenant may have another image drawn, and returns the context
// to draw it in.
func (s *Server) draw(r *http.Request, d *sheaf.Document) (ctx context.Context, end func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), imageTime)
	leave, err := s.drawing.enter(ctx, d.TenantID)
	if err != nil {
		cancel()
		if r.Context().Err() != nil {
			return nil, nil, r.Context().Err()
		}
		return nil, nil, sheaf.FailRetryable(sheaf.CategoryCapacity, "parser_busy", "Other images of this tenant took longer than %d seconds; try again when they are drawn.", int(imageTime.Seconds()))
	}
	return ctx, func() { leave(); cancel() }, nil
}

// picture renders a picture embedded in a document: DOCX, ODT, PPTX, ODP, EPUB, and formats
// that LibreOffice converts into them.
func (s *Server) picture(w http.ResponseWriter, r *http.Request) {
	d, err := s.document(r.Context(), pathOf(r))
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	name := r.PathValue("picture")
	side := min(max(cmp.Or(atoi(r.URL.Query().Get("side")), 1024), 16), 4096)
	if s.cfg.Renderer == nil || len(name) > 64 || drawnBy[d.MediaType] != "" { // pageImage renders those
		s.writeProblem(w, r, newProblem(404, "no_picture", "the document holds no picture of that name; take it from the metadata of a chunk"))
		return
	}
	path, release, err := s.cfg.Files.Fetch(r.Context(), d.BlobKey, d.SHA256, d.Size)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	defer release()
	ctx, end, err := s.draw(r, d)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	defer end()
	img, mediaType, err := s.cfg.Renderer.Picture(ctx, s.source(ctx, d, path, nil), name, side)
	if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Code == "no_picture" {
		err = newProblem(404, f.Code, f.Message)
	}
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	s.writeImage(w, img, mediaType, fmt.Sprintf(`"%s-%s-%d"`, d.SHA256, name, side))
}

// source returns the original of a document, at path, for a Renderer.
func (s *Server) source(ctx context.Context, d *sheaf.Document, path string, fill blob.Fill) child.Source {
	config := d.ParseConfig
	if full, err := s.cfg.Catalog.Document(ctx, tenantOf(ctx), d.ID); err == nil {
		config = full.ParseConfig // with the password, which d omits
	}
	return child.Source{
		Path: path, Fill: fill, Format: drawnBy[d.MediaType], Key: d.ID + "/render/" + d.BlobKey,
		Options: parser.Options{Name: d.Name, MediaType: d.MediaType, Config: config},
	}
}

func (s *Server) writeImage(w http.ResponseWriter, img []byte, mediaType, etag string) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "private, max-age=86400")
	w.Header().Set("ETag", etag)
	w.Header().Set("Content-Length", strconv.Itoa(len(img)))
	_, _ = w.Write(img) // the client may be gone
}

// drawnBy names the parser that renders pages of a media type.
var drawnBy = map[string]string{
	parser.MediaPDF: "pdf", "image/png": "image", "image/jpeg": "image", "image/tiff": "image", "image/webp": "image", "image/gif": "image", "image/bmp": "image",
}

func pathOf(r *http.Request) DocumentPath {
	return DocumentPath{DatasetPath{r.PathValue("ds")}, r.PathValue("doc")}
}

// blobSeeker reads an object for http.ServeContent: one request to the store for
// each contiguous read.
type blobSeeker struct {
	ctx  context.Context
	s    *Server
	key  string
	size int64
	off  int64
	r    io.ReadCloser
}

func (b *blobSeeker) Read(p []byte) (int, error) {
	if b.off >= b.size {
		return 0, io.EOF
	}
	if b.r == nil {
		r, err := b.s.cfg.Blobs.Open(b.ctx, b.key, b.off, -1)
		if err != nil {
			return 0, err
		}
		b.r = r
	}
	n, err := b.r.Read(p)
	b.off += int64(n)
	return n, err
}

func (b *blobSeeker) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += b.off
	case io.SeekEnd:
		off += b.size
	}
	if off < 0 {
		return 0, errors.New("seek before the start")
	}
	if off != b.off {
		b.Close()
		b.off = off
	}
	return off, nil
}

func (b *blobSeeker) Close() {
	if b.r != nil {
		_ = b.r.Close() // only read from
		b.r = nil
	}
}
