package grid

import (
	"strings"

	"sheaf"
)

// maxFrameRows is up to which a table of one column counts as a frame around text.
const maxFrameRows = 200

// Cells is a Builder for tables whose cells hold blocks.
type Cells struct {
	Builder
	rows    int
	columns int           // of the widest row
	all     []sheaf.Block // of all cells, as long as they may be only a frame around these
	silent  []sheaf.Block // pictures in cells, which follow the table
}

// Row begins a row, and returns its number, from 1.
func (c *Cells) Row() int {
	c.Builder.Row()
	c.rows++
	return c.rows
}

// Text is that of the open row's next cell, from its blocks, on a line each. Their links
// become those of the row.
func (c *Cells) Text(blocks []sheaf.Block) string {
	lines := make([]string, 0, len(blocks))
	for _, b := range blocks {
		if b.Picture != "" && c.rows <= maxFrameRows {
			c.silent = append(c.silent, sheaf.Block{Kind: sheaf.BlockImage, Picture: b.Picture})
		}
		switch {
		case b.Table != nil:
			lines = append(lines, Plain(b.Table))
		case b.Text != "":
			lines = append(lines, b.Text)
		}
		for _, l := range b.Links {
			c.Link(l.URI)
		}
	}
	if c.rows <= maxFrameRows {
		c.all = append(c.all, blocks...)
	}
	return strings.Join(lines, "\n")
}

// Wide tells how many columns the open row has reached.
func (c *Cells) Wide(columns int) { c.columns = max(c.columns, columns) }

// Frame returns the blocks in a table that is only a frame around them.
func (c *Cells) Frame() (blocks []sheaf.Block, ok bool) {
	return c.all, c.columns <= 1 && c.rows <= maxFrameRows
}

// Blocks is the table, unless no cell has text, and the pictures in it.
func (c *Cells) Blocks() []sheaf.Block {
	var out []sheaf.Block
	if t := c.Table(); t != nil {
		out = append(out, sheaf.Block{Kind: sheaf.BlockTable, Table: t, Links: c.Links()})
	}
	return append(out, c.silent...)
}
