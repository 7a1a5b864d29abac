package pdf

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pdfcpu/pdfcpu/pkg/pdfcpu/types"
	"pgregory.net/rapid"
)

// held are objects by number.
type held map[int]types.Object

func (h held) Dereference(o types.Object) (types.Object, error) {
	if ref, is := o.(types.IndirectRef); is {
		return h[ref.ObjectNumber.Value()], nil
	}
	return o, nil
}

func (h held) add(o types.Object) types.IndirectRef {
	n := len(h) + 1
	h[n] = o
	return *types.NewIndirectRef(n, 0)
}

// Bookmarks lead to the pages of their names, however the tree of names is built:
// with limits, with wrong ones, without, or beside a dictionary of names.
func TestBookmarksLeadToNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := held{}
		b := bookmarks{objects: h, pageOf: map[int]int{}}
		count := rapid.IntRange(1, 60).Draw(t, "names")
		at := make([]types.Object, count)
		for i := range at {
			page := h.add(types.Dict{"Type": types.Name("Page")})
			b.pageOf[page.ObjectNumber.Value()] = i
			at[i] = types.Array{page, types.Name("Fit")}
		}
		name := func(i int) types.StringLiteral { return types.StringLiteral(fmt.Sprintf("name%03d", i)) }
		limits := rapid.SampledFrom([]string{"right", "wrong", "none"}).Draw(t, "limits")
		root := types.Dict{"Dests": types.Dict{"old": at[0]}}
		width := rapid.IntRange(1, 7).Draw(t, "width")
		type node struct {
			ref         types.IndirectRef
			first, last int
		}
		var nodes []node
		for from := range slices.Chunk(slices.Collect(func(yield func(int) bool) {
			for i := range count {
				if !yield(i) {
					return
				}
			}
		}), width) {
			d := types.Dict{}
			var pairs types.Array
			for _, i := range from {
				pairs = append(pairs, name(i), at[i])
			}
			d["Names"] = pairs
			nodes = append(nodes, node{h.add(d), from[0], from[len(from)-1]})
		}
		bound := func(n node) {
			d := h[n.ref.ObjectNumber.Value()].(types.Dict)
			switch limits {
			case "right":
				d["Limits"] = types.Array{name(n.first), name(n.last)}
			case "wrong":
				d["Limits"] = types.Array{name(n.last + 1), name(n.last + 2)}
			}
		}
		for len(nodes) > 1 {
			var above []node
			for some := range slices.Chunk(nodes, width+1) {
				var kids types.Array
				for _, n := range some {
					bound(n)
					kids = append(kids, n.ref)
				}
				above = append(above, node{h.add(types.Dict{"Kids": kids}), some[0].first, some[len(some)-1].last})
			}
			nodes = above
		}
		root["Names"] = types.Dict{"Dests": nodes[0].ref}
		b.looked = rapid.SampledFrom([]int{0, maxLooked - 3, maxLooked}).Draw(t, "looked")
		marks := rapid.SliceOfN(rapid.IntRange(-1, count), 1, 20).Draw(t, "marks") // one that is nowhere, too
		next := types.Object(nil)
		var want []int
		for _, i := range slices.Backward(marks) {
			dest := types.Object(name(i))
			if i < 0 {
				dest = types.Name("old")
			}
			d := types.Dict{"Title": types.StringLiteral("title"), "Dest": dest}
			if next != nil {
				d["Next"] = next
			}
			next = h.add(d)
		}
		for _, i := range marks {
			if i < count {
				want = append(want, max(i, 0)+1)
			}
		}
		root["Outlines"] = types.Dict{"First": next}
		var got []int
		for _, o := range b.read(root) {
			got = append(got, o.Page)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("bookmarks lead to pages %v, want %v", got, want)
		}
	})
}

// Of thousands of names, those are read that bookmarks lead to.
func TestFewNamesAreReadForFewBookmarks(t *testing.T) {
	h := held{}
	page := h.add(types.Dict{})
	b := bookmarks{objects: h, pageOf: map[int]int{page.ObjectNumber.Value(): 0}}
	var kids types.Array
	for i := range 100 {
		var pairs types.Array
		for k := range 50 {
			pairs = append(pairs, types.StringLiteral(fmt.Sprintf("%02d.%02d", i, k)), types.Array{page})
		}
		limits := types.Array{types.StringLiteral(fmt.Sprintf("%02d.00", i)), types.StringLiteral(fmt.Sprintf("%02d.49", i))}
		kids = append(kids, h.add(types.Dict{"Names": pairs, "Limits": limits}))
	}
	mark := h.add(types.Dict{"Title": types.StringLiteral("title"), "Dest": types.StringLiteral("70.30")})
	found := b.read(types.Dict{"Outlines": types.Dict{"First": mark}, "Names": types.Dict{"Dests": types.Dict{"Kids": kids}}})
	if len(found) != 1 || b.looked > 200 || b.named != nil {
		t.Errorf("%d bookmarks, for which %d of 5,000 names and nodes were looked at, want some 120; all were read: %v", len(found), b.looked, b.named != nil)
	}
}
