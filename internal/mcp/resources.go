package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"sheaf"
	"sheaf/internal/facade"
)

// Templates of the resources. Boxes are x0,y0,x1,y1 in points from the top left of
// the page, separated by semicolons.
const (
	markdownURI = "sheaf://documents/{document}/markdown"
	pageURI     = "sheaf://documents/{document}/pages/{page}"
	framedURI   = "sheaf://documents/{document}/pages/{page}?boxes={+boxes}"
)

func (s *service) resources(m *sdk.Server) {
	m.AddResourceTemplate(&sdk.ResourceTemplate{Name: "document", URITemplate: markdownURI, MIMEType: "text/markdown", Description: "the text of a document"}, s.markdown)
	m.AddResourceTemplate(&sdk.ResourceTemplate{Name: "page", URITemplate: pageURI, MIMEType: "image/jpeg", Description: "the picture of a page"}, s.page)
	m.AddResourceTemplate(&sdk.ResourceTemplate{Name: "passage", URITemplate: framedURI, MIMEType: "image/jpeg", Description: "the picture of a page with passages framed"}, s.page)
}

// maxBoxes limits the boxes framed on one page.
const maxBoxes = 100

// pageImageURI returns the URI of the picture of the first box's page.
func pageImageURI(document string, boxes []sheaf.Box) string {
	page := boxes[0].Page
	var parts []string
	for _, b := range boxes {
		if b.Page == page && len(parts) < maxBoxes {
			parts = append(parts, fmt.Sprintf("%.0f,%.0f,%.0f,%.0f", math.Floor(b.X0), math.Floor(b.Y0), math.Ceil(b.X1), math.Ceil(b.Y1)))
		}
	}
	return fmt.Sprintf("sheaf://documents/%s/pages/%d?boxes=%s", url.PathEscape(document), page, strings.Join(parts, ";"))
}

func (s *service) markdown(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.Params.URI, "sheaf://documents/"), "/")
	id, err := url.PathUnescape(id)
	if err != nil {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	chunks, err := s.client(r).Read(ctx, "-", id)
	if err != nil {
		return nil, resourceError(r.Params.URI, err)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: "text/markdown", Text: facade.Markdown(chunks)}}}, nil
}

func resourceError(uri string, err error) error {
	if e, ok := errors.AsType[*facade.Error](err); ok && e.Status == http.StatusNotFound {
		return sdk.ResourceNotFoundError(uri)
	}
	return err
}

// page draws a page, with boxes framed.
func (s *service) page(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(r.Params.URI, "sheaf://documents/"), "?boxes=")
	id, page, _ := strings.Cut(path, "/pages/")
	id, err := url.PathUnescape(id)
	if err != nil {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	boxes, err := boxesOf(query)
	if err != nil {
		return nil, err
	}
	resp, err := s.client(r).Do(ctx, http.MethodGet, facade.Path("v1", "datasets", "-", "documents", id, "pages", page, "image")+"?dpi="+strconv.Itoa(imageDPI), nil, nil)
	if err != nil {
		return nil, resourceError(r.Params.URI, err)
	}
	defer resp.Body.Close()
	picture, err := io.ReadAll(io.LimitReader(resp.Body, maxImageBytes))
	if err != nil {
		return nil, err
	}
	media := resp.Header.Get("Content-Type")
	if len(boxes) > 0 {
		if picture, err = framed(picture, boxes); err != nil {
			return nil, err
		}
		media = "image/jpeg"
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, MIMEType: media, Blob: picture}}}, nil
}

const (
	imageDPI      = 96
	maxImageBytes = 32 << 20
)

// boxesOf parses "x0,y0,x1,y1;…", in points; "" means none.
func boxesOf(text string) ([]sheaf.Box, error) {
	if text == "" {
		return nil, nil
	}
	if plain, err := url.QueryUnescape(text); err == nil {
		text = plain
	}
	parts := strings.Split(text, ";")
	if len(parts) > maxBoxes {
		return nil, fmt.Errorf("%d boxes are given; give at most %d", len(parts), maxBoxes)
	}
	out := make([]sheaf.Box, len(parts))
	for i, part := range parts {
		numbers := strings.Split(part, ",")
		to := []*float64{&out[i].X0, &out[i].Y0, &out[i].X1, &out[i].Y1}
		if len(numbers) != len(to) {
			return nil, fmt.Errorf("the box %q cannot be read; give x0,y0,x1,y1 in points from the page's top left", part)
		}
		for n, number := range numbers {
			v, err := strconv.ParseFloat(number, 64)
			if err != nil || !(v >= 0 && v <= 1e5) {
				return nil, fmt.Errorf("the box %q cannot be read; give x0,y0,x1,y1 in points from the page's top left", part)
			}
			*to[n] = v
		}
	}
	return out, nil
}

// frame is the color of the lines around a passage, frameWidth pixels wide.
var frame = image.NewUniform(color.RGBA{R: 0xd0, G: 0x20, B: 0x20, A: 0xff})

const frameWidth = 2

// framed draws boxes, in points, on the picture of a page.
func framed(picture []byte, boxes []sheaf.Box) ([]byte, error) {
	src, _, err := image.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, fmt.Errorf("the picture of the page cannot be decoded: %w", err)
	}
	dst := image.NewRGBA(src.Bounds())
	draw.Draw(dst, dst.Bounds(), src, src.Bounds().Min, draw.Src)
	const scale = imageDPI / 72.0
	for _, b := range boxes {
		r := image.Rect(int(b.X0*scale), int(b.Y0*scale), int(math.Ceil(b.X1*scale)), int(math.Ceil(b.Y1*scale))).Inset(-frameWidth)
		for _, line := range []image.Rectangle{
			{r.Min, image.Pt(r.Max.X, r.Min.Y+frameWidth)}, {image.Pt(r.Min.X, r.Max.Y-frameWidth), r.Max},
			{r.Min, image.Pt(r.Min.X+frameWidth, r.Max.Y)}, {image.Pt(r.Max.X-frameWidth, r.Min.Y), r.Max},
		} {
			draw.Draw(dst, line.Intersect(dst.Bounds()), frame, image.Point{}, draw.Src)
		}
	}
	var out bytes.Buffer
	err = jpeg.Encode(&out, dst, nil)
	return out.Bytes(), err
}

func jsonOf(v any) []byte {
	b, _ := json.Marshal(v) // strings always encode
	return b
}
