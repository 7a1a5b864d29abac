package xlsx

import (
	"slices"
	"strings"

	"sheaf/parser/internal/links"
	"sheaf/parser/internal/zipfile"
)

// Limits of the addresses behind the cells of a sheet.
const (
	maxAddresses    = 50_000
	maxAddressBytes = 4 << 20
	maxLinkedRows   = 1_000 // of one area with a link
	maxRowAddresses = 64    // a chunk hands on fewer
	maxFormula      = 8_192 // characters, as Excel allows
)

// addresses are those behind the cells of a sheet, by the row's number in it.
type addresses struct {
	rows     map[int][]string
	n, bytes int
	lost     int
}

// addresses begins to collect those of a sheet, which may be read more than once.
func (w *workbook) addresses(part string) *addresses {
	if w.links == nil {
		w.links = map[string]*addresses{}
	}
	a := &addresses{rows: map[int][]string{}}
	w.links[part] = a
	return a
}

func (a *addresses) of(row int) []string {
	if a == nil {
		return nil
	}
	return a.rows[row]
}

func (a *addresses) add(row int, uri string) {
	if uri == "" || slices.Contains(a.rows[row], uri) {
		return
	}
	a.n++
	if a.bytes += len(uri); a.n > maxAddresses || a.bytes > maxAddressBytes || len(a.rows[row]) == maxRowAddresses {
		a.lost++
		return
	}
	a.rows[row] = append(a.rows[row], uri)
}

// area adds the link of a cell or of an area.
func (a *addresses) area(ref string, to zipfile.Rel) {
	uri := ""
	if to.External {
		uri = links.Address(to.Target, nil)
	}
	if uri == "" {
		return // a place in the workbook, or a file beside it
	}
	m, ok := area(ref)
	if !ok {
		m.r0 = rowOf(ref)
		m.r1 = m.r0
	}
	for row := m.r0; row > 0 && row <= min(m.r1, m.r0+maxLinkedRows-1); row++ {
		a.add(row, uri)
	}
}

// addressIn is the address in a formula such as HYPERLINK("https://example.org","Site").
func addressIn(formula string) string {
	const name = `HYPERLINK("`
	formula = strings.TrimSpace(formula)
	if len(formula) < len(name) || !strings.EqualFold(formula[:len(name)], name) {
		return ""
	}
	uri, _, ok := strings.Cut(formula[len(name):], `"`)
	if !ok {
		return ""
	}
	return links.Address(uri, nil)
}
