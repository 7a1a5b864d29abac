package formattest

import (
	"encoding/binary"
	"unicode/utf16"
)

// Node is a stream, or a folder when it has children.
type Node struct {
	Name     string
	Content  []byte
	Children []*Node
}

// Folder makes a folder.
func Folder(name string, children ...*Node) *Node { return &Node{Name: name, Children: children} }

// Stream makes a stream. It is padded with zeros, which string properties may end with, to where
// it lies in sectors of its own ([MS-CFB] 2.2: 4,096 bytes).
func Stream(name string, content []byte) *Node {
	return &Node{Name: name, Content: append(content, make([]byte, max(0, 4096-len(content)))...)}
}

// Compound writes a compound file of version 3 ([MS-CFB]).
func Compound(root *Node) []byte {
	const sector = 512
	var entries []*Node
	child, next := map[*Node]uint32{}, map[*Node]uint32{}
	var number func(n *Node)
	number = func(n *Node) {
		entries = append(entries, n)
		for i, c := range n.Children {
			at := uint32(len(entries))
			if i == 0 {
				child[n] = at
			} else {
				next[n.Children[i-1]] = at
			}
			number(c)
		}
	}
	number(root)
	dirSectors := (len(entries) + 3) / 4
	data, start := []byte{}, map[*Node]uint32{}
	chain := []uint32{} // of the data sectors, relative to the first of them
	for _, e := range entries {
		if e.Content == nil {
			continue
		}
		start[e] = uint32(len(chain))
		data = append(data, e.Content...)
		data = append(data, make([]byte, (sector-len(data)%sector)%sector)...)
		for len(chain) < len(data)/sector {
			chain = append(chain, uint32(len(chain)+1))
		}
		chain[len(chain)-1] = 0xFFFFFFFE
	}
	fatSectors := 1
	for fatSectors*128 < fatSectors+dirSectors+len(chain) {
		fatSectors++
	}
	first := uint32(fatSectors + dirSectors)

	b := make([]byte, sector)
	copy(b, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1")
	le := binary.LittleEndian
	le.PutUint16(b[24:], 0x3E)
	le.PutUint16(b[26:], 3)
	le.PutUint16(b[28:], 0xFFFE)
	le.PutUint16(b[30:], 9)
	le.PutUint16(b[32:], 6)
	le.PutUint32(b[44:], uint32(fatSectors))
	le.PutUint32(b[48:], uint32(fatSectors)) // the directory follows the table
	le.PutUint32(b[56:], 4096)
	le.PutUint32(b[60:], 0xFFFFFFFE)
	le.PutUint32(b[68:], 0xFFFFFFFE)
	for i := range 109 {
		v := uint32(0xFFFFFFFF)
		if i < fatSectors {
			v = uint32(i)
		}
		le.PutUint32(b[76+4*i:], v)
	}
	fat := []uint32{}
	for range fatSectors {
		fat = append(fat, 0xFFFFFFFD)
	}
	for i := range dirSectors {
		v := uint32(fatSectors + i + 1)
		if i == dirSectors-1 {
			v = 0xFFFFFFFE
		}
		fat = append(fat, v)
	}
	for _, v := range chain {
		if v != 0xFFFFFFFE {
			v += first
		}
		fat = append(fat, v)
	}
	for len(fat) < fatSectors*128 {
		fat = append(fat, 0xFFFFFFFF)
	}
	for _, v := range fat {
		b = le.AppendUint32(b, v)
	}
	for i := range dirSectors * 4 {
		e := make([]byte, 128)
		for _, at := range []int{68, 72, 76} {
			le.PutUint32(e[at:], 0xFFFFFFFF)
		}
		if i < len(entries) {
			n := entries[i]
			name := utf16.Encode([]rune(n.Name))
			for k, u := range name {
				le.PutUint16(e[2*k:], u)
			}
			le.PutUint16(e[64:], uint16(2*len(name)+2))
			e[66] = 1
			if n.Content != nil {
				e[66] = 2
			}
			if i == 0 {
				e[66] = 5
			}
			e[67] = 1
			if v, ok := next[n]; ok {
				le.PutUint32(e[72:], v)
			}
			if v, ok := child[n]; ok {
				le.PutUint32(e[76:], v)
			}
			le.PutUint32(e[116:], 0xFFFFFFFE)
			if n.Content != nil {
				le.PutUint32(e[116:], start[n]+first)
				le.PutUint64(e[120:], uint64(len(n.Content)))
			}
		}
		b = append(b, e...)
	}
	return append(b, data...)
}
