package pdf

import (
	"context"
	"errors"
	"sort"

	"sheaf"
	"sheaf/parser/pdf/engine"
)

// A file says how many pages it has, and the engine repeats it. What it says is
// believed where the last page is there, or where most are and the rest may
// have been lost: those are pages that cannot be read.
const (
	// A page takes some 10 bytes of a file at least, where it is blank and lies
	// in a compressed stream of objects.
	freePages    = 1_000
	bytesPerPage = 8
	lastPages    = 8 // of which one must be there
)

// mostPages is how many pages a file of so many bytes may have.
func (d *document) mostPages() int { return freePages + int(d.size/bytesPerPage) }

// count puts the number of pages that the document has in place of the one
// that it claims, and reports whether they differ.
func (d *document) count(ctx context.Context) (differ bool, err error) {
	claimed := d.pages
	there := func(n int) bool {
		_, _, err := d.doc.Size(n)
		return err == nil
	}
	defer func() {
		if _, _, broken := d.doc.Size(0); errors.Is(broken, engine.ErrBroken) {
			err = errors.Join(err, d.reopen(ctx))
		}
	}()
	most := d.mostPages()
	for n := claimed - 1; n >= max(0, claimed-lastPages); n-- {
		if there(n) && claimed <= most {
			return false, nil
		}
	}
	// Pages are found by walking over those before them.
	found := sort.Search(claimed, func(n int) bool { return !there(n) })
	switch {
	case found > most:
		return false, sheaf.Fail(sheaf.CategoryBadInput, "too_many_pages", "The document lists %d pages, and a file of its %d bytes holds no more than %d. Check where it comes from.", found, d.size, most)
	case claimed <= 2*found && claimed <= most || claimed <= rangeSize:
		return false, nil
	}
	d.pages = max(found, 1)
	return true, nil
}
