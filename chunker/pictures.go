package chunker

import (
	"slices"
	"strings"

	"sheaf"
)

// maxPictures limits the pictures listed in a chunk.
const maxPictures = 16

// picturesBy finds the block whose chunk lists each picture of the units: the
// picture's own if it has text, else its caption, else the text before it in its
// unit, else the text after it. front holds pictures that precede their block's
// text, back those that follow it.
func picturesBy(units []sheaf.UnitResult) (front, back map[*sheaf.Block][]string) {
	for i := range units {
		blocks := units[i].Blocks
		says := func(k int) bool {
			return k >= 0 && k < len(blocks) && (blocks[k].Table != nil || strings.TrimSpace(blocks[k].Text) != "")
		}
		last := -1 // the last block before this one that has text
		for k := range blocks {
			name := blocks[k].Picture
			if says(k) {
				last = k
			}
			if name == "" {
				continue
			}
			if front == nil {
				front, back = map[*sheaf.Block][]string{}, map[*sheaf.Block][]string{}
			}
			caption := func(at int) bool { return says(at) && blocks[at].Kind == sheaf.BlockCaption }
			switch {
			case says(k):
				front[&blocks[k]] = append(front[&blocks[k]], name)
			case caption(k + 1):
				front[&blocks[k+1]] = append(front[&blocks[k+1]], name)
			case last >= 0:
				back[&blocks[last]] = append(back[&blocks[last]], name)
			default:
				next := k + 1
				for next < len(blocks) && !says(next) {
					next++
				}
				if next < len(blocks) {
					front[&blocks[next]] = append(front[&blocks[next]], name)
				}
			}
		}
	}
	return front, back
}

// picturesOf returns the names of the segments' pictures, without duplicates.
func picturesOf(segments []segment) []string {
	var out []string
	for i := range segments {
		for _, name := range segments[i].pictures {
			if len(out) < maxPictures && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
