package child

import (
	"errors"
	"fmt"
	"unsafe"

	"sheaf"
)

// The parent holds the units of a range until they are chunked, with nothing else
// to limit it. So a range has a budget, in bytes of the parent's memory: what is
// sent, and what slices take once decoded, which for empty cells is 16 times as
// much. Every row counts as wide as the widest, since it is shown that wide. The
// child emits a unit that exceeds the budget as failed; the parent counts again,
// since a child may lie. Both count with the same code: see wire.

// errBudget means that a child sent more than its range may hold.
var errBudget = errors.New("the parser sent more than a range may hold")

// Memory that is not a slice element.
const (
	unitBytes   = int64(unsafe.Sizeof(sheaf.UnitResult{}))
	stringBytes = int64(unsafe.Sizeof(""))
)

func widest(rows [][]string) int {
	w := 0
	for _, r := range rows {
		w = max(w, len(r))
	}
	return w
}

// tooLarge is the failure of units that exceed what is left of limit.
func tooLarge(u *sheaf.UnitResult, limit int64) *sheaf.Failure {
	text, cells := 0, 0
	for i := range u.Blocks {
		b := &u.Blocks[i]
		text += len(b.Text)
		if b.Table != nil {
			cells += len(b.Table.Rows) * max(widest(b.Table.Rows), len(b.Table.Columns))
			for _, r := range b.Table.Rows {
				for _, c := range r {
					text += len(c)
				}
			}
		}
	}
	return rangeTooLarge(fmt.Sprintf(" Here are %d MB of text, %d cells and %d blocks.", text>>20, cells, len(u.Blocks)), limit)
}

func rangeTooLarge(holds string, limit int64) *sheaf.Failure {
	return sheaf.Fail(sheaf.CategoryCapacity, "range_too_large", "The units of one task hold more than %d MB.%s Lower task_page_size or table_rows, or raise parser.range_bytes.", limit>>20, holds)
}

// fits encodes u, or a failure in its place if it exceeds what is left of limit. It
// returns the bytes and what is left afterwards. An error ends the range.
func fits(buf []byte, u *sheaf.UnitResult, left, limit int64) ([]byte, int64, error) {
	buf, memory := encodeUnit(buf, u)
	if memory <= left && len(buf) <= maxFrameBytes {
		return buf, left - memory, nil
	}
	f := tooLarge(u, limit)
	if len(buf) > maxFrameBytes {
		f = sheaf.Fail(sheaf.CategoryCapacity, "range_too_large", "What was read of a single unit is larger than %d MB; split the file.", maxFrameBytes>>20)
	}
	failed := sheaf.UnitResult{Unit: u.Unit, LastUnit: max(u.Unit, u.LastUnit), Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}
	buf, memory = encodeUnit(buf[:0], &failed)
	if left -= memory; left < 0 {
		return nil, 0, rangeTooLarge("", limit)
	}
	return buf, left, nil
}
