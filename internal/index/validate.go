package index

import (
	"fmt"
	"math"
	"slices"

	"sheaf"
)

// Bounds of the lists in a query. Elasticsearch accepts 65,536 terms of one field.
const (
	maxFilterValues    = 1024
	maxFilterDocuments = 10_000
)

// Validate checks a query: errors are sheaf.ErrInvalid. Every engine calls it.
func (q *Query) Validate() error {
	switch {
	case q.TenantID == "":
		return fmt.Errorf("%w: a search needs a tenant", sheaf.ErrInvalid)
	case q.K < 1 || q.K > 1000:
		return fmt.Errorf("%w: a search asks for 1 to 1,000 candidates a side, not %d", sheaf.ErrInvalid, q.K)
	case q.PageFrom < 0 || q.PageTo < 0 || q.PageTo > 0 && q.PageFrom > q.PageTo:
		return fmt.Errorf("%w: pages %d to %d: pages count from 1 and both ends are included", sheaf.ErrInvalid, q.PageFrom, q.PageTo)
	}
	for name, n := range map[string]int{"datasets": len(q.DatasetIDs), "documents": len(q.DocumentIDs), "media types": len(q.MediaTypes), "metadata pairs": len(q.Metadata),
		"languages": len(q.Languages), "keywords": len(q.Keywords), "tags": len(q.Tags)} {
		most := maxFilterValues
		if name == "documents" {
			most = maxFilterDocuments
		}
		if n > most {
			return fmt.Errorf("%w: a search filters by at most %d %s, not %d", sheaf.ErrInvalid, most, name, n)
		}
	}
	for _, values := range [][]string{q.Languages, q.Keywords, q.Tags} {
		if slices.ContainsFunc(values, func(v string) bool { return Label(v) == "" }) {
			return fmt.Errorf("%w: a search filters by no empty language, keyword or tag", sheaf.ErrInvalid)
		}
	}
	return nil
}

// Validate checks an entry for an index of vectors with dim values: errors are
// sheaf.ErrInvalid. Every engine calls it before writing anything.
func (e *Entry) Validate(dim int) error {
	c := &e.Chunk
	if c.ID == "" || c.RangeID == "" || c.DocumentID == "" || e.TenantID == "" || e.DatasetID == "" {
		return fmt.Errorf("%w: an entry needs chunk, range, document, dataset and tenant ids (chunk %q)", sheaf.ErrInvalid, c.ID)
	}
	if len(c.ID) > maxIDBytes {
		return fmt.Errorf("%w: a chunk id has at most %d bytes, not %d", sheaf.ErrInvalid, maxIDBytes, len(c.ID))
	}
	for _, p := range c.Pages {
		if p < 1 || p > math.MaxInt32 {
			return fmt.Errorf("%w: chunk %s: page %d is out of range", sheaf.ErrInvalid, c.ID, p)
		}
	}
	if len(e.Vector) == 0 {
		return nil
	}
	if len(e.Vector) != dim {
		return VectorMismatch(len(e.Vector), dim)
	}
	for _, x := range e.Vector {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("%w: chunk %s: its vector holds %g", sheaf.ErrInvalid, c.ID, x)
		}
	}
	return nil
}

// maxIDBytes is Elasticsearch's limit for _id.
const maxIDBytes = 512

// VectorMismatch is the error for a vector whose width is not the index's.
func VectorMismatch(got, want int) error {
	return fmt.Errorf("%w: %w", sheaf.ErrInvalid, sheaf.Fail(sheaf.CategoryPolicy, "index_model_mismatch",
		"A vector has %d values and the index holds vectors of %d: use the model that the index was made with, or rebuild the index.", got, want))
}

// NoVector reports whether v is all zeros: it is neither indexed nor searched with.
func NoVector(v []float32) bool {
	for _, x := range v {
		if x != 0 {
			return false
		}
	}
	return true
}
