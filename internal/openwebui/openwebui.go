// Package openwebui implements the external document loader of Open WebUI: PUT
// /process takes a file and answers with its pages. It is a facade of /v1, whose
// conversions it returns.
package openwebui

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"sheaf"
	"sheaf/internal/facade"
)

// Routes returns the routes of the API.
func Routes(v1 http.RoundTripper) map[string]http.Handler {
	return map[string]http.Handler{"PUT /process": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages, err := process(v1, r)
		if err != nil {
			e := facade.AsError(err)
			facade.Answer(w, e, map[string]string{"detail": e.Detail})
			return
		}
		facade.Answer(w, nil, pages)
	})}
}

// page is one page as the loader expects it.
type page struct {
	Content  string         `json:"page_content"`
	Metadata map[string]any `json:"metadata"`
}

// paged are the extensions of formats whose text is split by page.
var paged = []string{".pdf", ".ppt", ".pptx", ".odp"}

func process(v1 http.RoundTripper, r *http.Request) ([]page, error) {
	name, err := url.PathUnescape(r.Header.Get("X-Filename"))
	if err != nil || name == "" {
		name = "document"
	}
	dataset, err := facade.DatasetOf(r)
	if err != nil {
		return nil, err
	}
	in := facade.Conversion{Name: name, MediaType: r.Header.Get("Content-Type"), Body: r.Body, Dataset: dataset}
	if in.Dataset == "" && slices.Contains(paged, strings.ToLower(path.Ext(name))) {
		in.Settings = map[string]any{"chunk_method": "presentation"} // no chunk crosses a page boundary
	}
	docs, err := facade.Inside(v1, r.Header).Convert(r.Context(), in)
	if err != nil {
		return nil, err
	}
	pages := []page{}
	for _, d := range docs {
		for from := 0; from < len(d.Chunks); {
			n := firstPage(&d.Chunks[from])
			to := from + 1
			for to < len(d.Chunks) && firstPage(&d.Chunks[to]) == n {
				to++
			}
			pages = append(pages, page{facade.Markdown(d.Chunks[from:to]), map[string]any{"page": n, "source": d.Name, "media_type": d.MediaType, "unit": d.Unit, "total_pages": d.Units}})
			from = to
		}
	}
	return pages, nil
}

// firstPage is the page on which a chunk begins, 1 if its format has none.
func firstPage(c *sheaf.Chunk) int {
	if len(c.Pages) == 0 {
		return 1
	}
	return c.Pages[0]
}
