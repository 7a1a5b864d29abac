package graph

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// WriteGraphML writes the graph as GraphML, which Gephi, yEd, Cytoscape and
// NetworkX read. The supporting chunks of a node or edge are one attribute, their
// ids separated by spaces. shown reports which sources may be named; a node or edge
// supported by none of them is omitted.
func (g *Graph) WriteGraphML(w io.Writer, shown func(Source) bool) error {
	out := bufio.NewWriter(w)
	visible := make([]bool, len(g.Sources))
	for i := range g.Sources {
		visible[i] = shown(g.Sources[i])
	}
	fmt.Fprint(out, xml.Header, `<graphml xmlns="http://graphml.graphdrawing.org/xmlns">`, "\n")
	for _, k := range [][4]string{
		{"name", "node", "name", "string"}, {"type", "node", "type", "string"}, {"count", "node", "count", "int"}, {"rank", "node", "rank", "double"},
		{"community", "node", "community", "int"}, {"nchunks", "node", "chunks", "string"},
		{"weight", "edge", "weight", "double"}, {"ecount", "edge", "count", "int"}, {"echunks", "edge", "chunks", "string"},
	} {
		fmt.Fprintf(out, "  <key id=%q for=%q attr.name=%q attr.type=%q/>\n", k[0], k[1], k[2], k[3])
	}
	fmt.Fprint(out, "  <graph id=\"dataset\" edgedefault=\"undirected\">\n")
	there := make([]bool, len(g.Entities))
	for i := range g.Entities {
		e := &g.Entities[i]
		ids := g.chunkIDs(e.Chunks, visible)
		if there[i] = ids != ""; !there[i] {
			continue
		}
		fmt.Fprintf(out, "    <node id=\"n%d\">", i)
		for _, d := range [][2]string{{"name", e.Name}, {"type", e.Type}, {"count", fmt.Sprint(e.Count)}, {"rank", fmt.Sprint(e.Rank)}, {"community", fmt.Sprint(e.Community)}, {"nchunks", ids}} {
			data(out, d[0], d[1])
		}
		fmt.Fprint(out, "</node>\n")
	}
	for i := range g.Relations {
		r := &g.Relations[i]
		ids := g.chunkIDs(r.Chunks, visible)
		if ids == "" || !there[r.A] || !there[r.B] {
			continue
		}
		fmt.Fprintf(out, "    <edge source=\"n%d\" target=\"n%d\">", r.A, r.B)
		for _, d := range [][2]string{{"weight", fmt.Sprint(r.Weight)}, {"ecount", fmt.Sprint(r.Count)}, {"echunks", ids}} {
			data(out, d[0], d[1])
		}
		fmt.Fprint(out, "</edge>\n")
	}
	fmt.Fprint(out, "  </graph>\n</graphml>\n")
	return out.Flush()
}

func data(out *bufio.Writer, key, value string) {
	fmt.Fprintf(out, "<data key=%q>", key)
	_ = xml.EscapeText(out, []byte(value)) // an error of out is returned by Flush
	fmt.Fprint(out, "</data>")
}

func (g *Graph) chunkIDs(chunks []int32, visible []bool) string {
	var b strings.Builder
	for _, c := range chunks {
		if visible[c] {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(g.Sources[c].ChunkID)
		}
	}
	return b.String()
}
