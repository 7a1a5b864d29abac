package child

import (
	"errors"
	"fmt"
	"unsafe"

	"sheaf"
)

// The parent holds the units of a range until they are chunks, and nothing
// bounds the parent. So a range has so much room, in bytes of the parent's
// memory: what is sent, and what slices take when it is decoded, which for
// empty cells is 16 times as much. The child keeps to it and emits a unit that
// does not fit as failed; the parent counts again, since it does not trust the
// child. Both count alike: TestRoomIsWhatDecodingTakes.

// errRoom means that a child sent more than it was given room for.
var errRoom = errors.New("the parser sent more than a range may hold")

// What an element of each slice takes, in bytes.
const (
	blockHeld   = int64(unsafe.Sizeof(sheaf.Block{}))
	spanHeld    = int64(unsafe.Sizeof(sheaf.Span{}))
	linkHeld    = int64(unsafe.Sizeof(sheaf.Link{}))
	boxHeld     = int64(unsafe.Sizeof(sheaf.Box{}))
	mergeHeld   = int64(unsafe.Sizeof(sheaf.TableSpan{}))
	warningHeld = int64(unsafe.Sizeof(sheaf.Warning{}))
	unitHeld    = int64(unsafe.Sizeof(sheaf.UnitResult{}))
	tableHeld   = int64(unsafe.Sizeof(sheaf.Table{}))
	rowHeld     = int64(unsafe.Sizeof([]string{}))
	stringHeld  = int64(unsafe.Sizeof(""))
)

// held is what u takes of the room when it is sent in so many bytes. Rows count
// as wide as the widest: that is how they are shown.
func held(u *sheaf.UnitResult, sent int) int64 {
	n := unitHeld + int64(sent) + int64(len(u.Blocks))*blockHeld + int64(len(u.Running))*stringHeld + int64(len(u.Warnings))*warningHeld
	for i := range u.Blocks {
		b := &u.Blocks[i]
		n += int64(len(b.Spans))*spanHeld + int64(len(b.Links))*linkHeld
		if t := b.Table; t != nil {
			n += tableHeld + int64(len(t.Columns)+len(t.Types))*stringHeld + int64(len(t.Rows))*rowHeld + int64(len(t.RowBoxes))*boxHeld + int64(len(t.Spans))*mergeHeld
			if t.Box != nil {
				n += boxHeld
			}
			n += int64(len(t.Rows)) * int64(widest(t.Rows)) * stringHeld
		}
	}
	return n
}

func widest(rows [][]string) int {
	w := 0
	for _, r := range rows {
		w = max(w, len(r))
	}
	return w
}

// tooLarge is the failure of a unit, or of units, that do not fit into what is
// left of limit.
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

// fits encodes u, or in its place that it does not fit into what is left of
// limit. It returns the bytes and what is left then. An error ends the range.
func fits(buf []byte, u *sheaf.UnitResult, left, limit int64) ([]byte, int64, error) {
	buf = appendUnit(buf, u)
	if n := held(u, len(buf)); n <= left && len(buf) <= maxFrameBytes {
		return buf, left - n, nil
	}
	f := tooLarge(u, limit)
	if len(buf) > maxFrameBytes {
		f = sheaf.Fail(sheaf.CategoryCapacity, "range_too_large", "What was read of a single unit is larger than %d MB; split the file.", maxFrameBytes>>20)
	}
	failed := sheaf.UnitResult{Unit: u.Unit, LastUnit: max(u.Unit, u.LastUnit), Status: sheaf.UnitFailed, Code: f.Code, Message: f.Message}
	buf = appendUnit(buf[:0], &failed)
	if left -= held(&failed, len(buf)); left < 0 {
		return nil, 0, rangeTooLarge("", limit)
	}
	return buf, left, nil
}
