package pdf

import (
	"context"
	"errors"
	"sort"

	"sheaf"
	"sheaf/parser/pdf/engine"
)

// The page count is declared in the file and repeated by the engine. It is believed
// if the last page exists, or if most pages do and the rest may have been lost:
// those count as unreadable.
const (
	// bytesPerPage: a page takes some 10 bytes of a file at least, if it is blank
	// and in a compressed object stream.
	freePages    = 1_000
	bytesPerPage = 8
	lastPages    = 8 // at least one of which must exist
)

// mostPages is how many pages a file of this size may have.
func (d *document) mostPages() int { return freePages + int(d.size/bytesPerPage) }

// count replaces the declared number of pages by the actual one, and reports
// whether they differ.
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
	// Finding a page means walking over those before it.
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
