package ragflow

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// imageDPI is the resolution at which a chunk's area is rendered: small print is
// readable.
const imageDPI = 144

// drawn are the media types whose pages /v1 renders.
var drawn = map[string]bool{"application/pdf": true, "image/png": true, "image/jpeg": true, "image/tiff": true, "image/webp": true, "image/gif": true, "image/bmp": true}

// imageID names the picture of a chunk, or "" if it has none.
func (d *document) imageID(k *sheaf.Chunk) string {
	if d.imagePath(k) == "" {
		return ""
	}
	return d.ID + "-" + k.ID
}

// imagePath is the /v1 path of a chunk's picture, or "": one it was given, if
// pictured was called; a picture inside the file that the chunk is about; or the
// area of the page that the chunk is on.
func (d *document) imagePath(k *sheaf.Chunk) string {
	if file := d.pictures[k.ID]; file != "" {
		return facade.Path("v1", "datasets", picturesDataset, "documents", file, "content")
	}
	if name, _, _ := strings.Cut(k.Metadata[sheaf.MetadataPictures], "\n"); name != "" && !drawn[d.MediaType] {
		return facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID, "pictures", name)
	}
	if !drawn[d.MediaType] || len(k.Pages) == 0 && len(k.Boxes) == 0 {
		return ""
	}
	var on sheaf.Box
	for _, b := range k.Boxes {
		switch {
		case on.Page == 0:
			on = b
		case b.Page == on.Page:
			on.X0, on.Y0, on.X1, on.Y1 = min(on.X0, b.X0), min(on.Y0, b.Y0), max(on.X1, b.X1), max(on.Y1, b.Y1)
		}
	}
	if k.Kind == sheaf.ChunkImage { // the figure, not only its caption
		line, _, _ := strings.Cut(k.Metadata[sheaf.MetadataFigures], "\n")
		var f sheaf.Box
		if n, err := fmt.Sscanf(line, "%d:%g,%g,%g,%g", &f.Page, &f.X0, &f.Y0, &f.X1, &f.Y1); err == nil && n == 5 {
			on = f
		}
	}
	q := url.Values{"dpi": {strconv.Itoa(imageDPI)}}
	switch x0, y0 := max(on.X0, 0), max(on.Y0, 0); {
	case on.Page == 0: // the entire page
		on.Page = k.Pages[0]
	case on.X1 > x0 && on.Y1 > y0:
		q.Set("box", fmt.Sprintf("%g,%g,%g,%g", x0, y0, on.X1, on.Y1))
	}
	return facade.Path("v1", "datasets", d.DatasetID, "documents", d.ID, "pages", strconv.Itoa(on.Page), "image") + "?" + q.Encode()
}

// image serves the picture of a chunk, by the id shown with the chunk.
func image(c *call) (*answer, error) {
	none := bad("Image not found.")
	id, of, _ := strings.Cut(c.path[0], "-")
	hex, ok := idOf(id)
	if !ok || of == "" {
		return nil, none
	}
	d := &document{}
	if err := c.Call(c.ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents", hex), nil, &d.Document); missing(err) {
		return nil, none
	} else if err != nil {
		return nil, err
	}
	d.read()
	k, err := c.readOne(d, of)
	if missing(err) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	if err := c.pictured(d); err != nil {
		return nil, err
	}
	path := d.imagePath(&k.Chunk)
	if path == "" {
		return nil, none
	}
	resp, err := c.Do(c.ctx, http.MethodGet, path, nil, nil)
	if missing(err) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	resp.Header.Del("Content-Disposition") // display it inline
	return &answer{file: resp}, nil
}
