package pdf

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sheaf"
)

// rawPDF makes a file of objects, the first of which is the catalog.
func rawPDF(objects ...string) []byte {
	var b strings.Builder
	b.WriteString("%PDF-1.4\n")
	var at []int
	for i, o := range objects {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, xref)
	return []byte(b.String())
}

const (
	catalog = "<</Type/Catalog/Pages 2 0 R>>"
	onePage = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]>>"
)

func TestPagesAreCountedNotBelieved(t *testing.T) {
	begun := time.Now()
	for name, c := range map[string]struct {
		content []byte
		units   int
		code    string
		warning bool
	}{
		"an honest count":      {rawPDF(catalog, "<</Type/Pages/Count 3/Kids[3 0 R 4 0 R 5 0 R]>>", onePage, onePage, onePage), 3, "", false},
		"a lie":                {rawPDF(catalog, "<</Type/Pages/Count 1000000/Kids[3 0 R]>>", onePage), 1, "", true},
		"a small lie":          {rawPDF(catalog, "<</Type/Pages/Count 500/Kids[3 0 R 4 0 R]>>", onePage, onePage), 2, "", true},
		"a page that is lost":  {rawPDF(catalog, "<</Type/Pages/Count 4/Kids[3 0 R 4 0 R 5 0 R 99 0 R]>>", onePage, onePage, onePage), 4, "", false},
		"one page many times":  {rawPDF(catalog, "<</Type/Pages/Count 50000/Kids["+strings.Repeat("3 0 R ", 50_000)+"]>>", onePage), 0, "too_many_pages", false},
		"a tree that branches": {branching(), 0, "too_many_pages", false},
	} {
		d, err := openBytes(t, c.content, sheaf.ParseConfig{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := d.Plan(t.Context())
		if err != nil {
			if f := sheaf.AsFailure(err, ""); f.Code != c.code {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		warned := len(p.Warnings) > 0 && p.Warnings[0].Code == "page_count_wrong"
		if p.Units != c.units || c.code != "" || warned != c.warning {
			t.Errorf("%s: %d pages, warnings %v", name, p.Units, p.Warnings)
		}
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("counted for %v", took)
	}
}

// branching is a tree of few nodes, each the child of its parent ten times.
func branching() []byte {
	objects := []string{catalog}
	for i, count := 2, 1_000_000; count >= 10; i, count = i+1, count/10 {
		objects = append(objects, fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]>>", count, strings.Repeat(fmt.Sprintf("%d 0 R ", i+1), 10)))
	}
	return rawPDF(append(objects, onePage)...)
}
