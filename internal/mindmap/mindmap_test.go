package mindmap

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
)

func chunk(n int, text string, path ...string) sheaf.Chunk {
	return sheaf.Chunk{ID: fmt.Sprintf("r-%d", n), DocumentID: "d", Text: text, Tokens: len(text) / 4, Pages: []int{n + 1}, HeadingPath: path}
}

func nobody(context.Context, string) (string, error) { return "", nil }

// each visits all nodes with their levels.
func each(n *MapNode, level int, visit func(*MapNode, int)) {
	visit(n, level)
	for _, c := range n.Children {
		each(c, level+1, visit)
	}
}

func check(t *testing.T, root *MapNode, chunks []sheaf.Chunk) (nodes int) {
	t.Helper()
	ids := map[string]int{}
	for _, c := range chunks {
		ids[c.ID] = c.Pages[0]
	}
	each(root, 1, func(n *MapNode, level int) {
		nodes++
		if level > Levels || n.Label == "" || len(n.Label) > maxLabel || len(n.Chunks) == 0 || len(n.Chunks) > maxCited || len(n.Pages) == 0 || len(n.Children) > maxChildren {
			t.Errorf("level %d: %+v", level, n)
		}
		for _, id := range n.Chunks {
			if ids[id] == 0 {
				t.Errorf("%q names the chunk %s, which does not exist", n.Label, id)
			}
		}
	})
	if nodes > maxNodes+1 {
		t.Errorf("%d nodes", nodes)
	}
	return nodes
}

func TestHeadingsAreTheTree(t *testing.T) {
	chunks := []sheaf.Chunk{
		chunk(0, "This contract is between the lessor and the lessee."),
		chunk(1, "The monthly rent is paid by bank transfer.", "Rent", "Payment"),
		chunk(2, "Late payment costs interest.", "Rent", "Payment", "Late", "Very late"),
		chunk(3, "Either party may give notice of termination in writing.", "End"),
	}
	root, err := Build(t.Context(), "contract.pdf", chunks, make([][]float32, 4), nobody)
	if err != nil {
		t.Fatal(err)
	}
	check(t, root, chunks)
	if root.Label != "contract.pdf" || len(root.Children) != 2 {
		t.Fatalf("%+v", root)
	}
	rent, end := root.Children[0], root.Children[1]
	if rent.Label != "Rent" || end.Label != "End" || rent.Children[0].Label != "Payment" || rent.Children[0].Children[0].Label != "Late" || strings.Join(rent.Chunks, " ") != "r-1 r-2" {
		t.Errorf("rent is %+v, end is %+v", rent, end)
	}
	if len(rent.Children[0].Children[0].Children) != 0 {
		t.Error("there is a fifth level")
	}
	if len(end.Children) == 0 || end.Children[0].Chunks[0] != "r-3" {
		t.Errorf("no phrases below a heading without headings: %+v", end)
	}
	again, _ := Build(t.Context(), "contract.pdf", chunks, make([][]float32, 4), nobody)
	if a, b := encoded(root), encoded(again); a != b {
		t.Errorf("a second tree is another:\n%s\n%s", a, b)
	}
	if back := Load("d", root.Store()); back.Markdown() != root.Markdown() || back.SVG() != root.SVG() {
		t.Errorf("what is stored reads\n%s, not\n%s", back.Markdown(), root.Markdown())
	}
}

func encoded(n *MapNode) string {
	b, _ := json.Marshal(n) // always encodes
	return string(b)
}

func TestTextWithoutHeadingsHasTopics(t *testing.T) {
	var chunks []sheaf.Chunk
	var texts []string
	for i := range 36 {
		about := []string{"The heron wades through shallow water and hunts fish", "The locomotive pulls heavy freight trains over the pass", "The court dismissed the appeal of the defendant"}[i/12]
		chunks = append(chunks, chunk(i, fmt.Sprintf("%s in case %d.", about, i)))
		texts = append(texts, chunks[i].Text)
	}
	vectors, err := static.Default().Embed(t.Context(), texts, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	root, err := Build(t.Context(), "notes.txt", chunks, vectors, nobody)
	if err != nil {
		t.Fatal(err)
	}
	check(t, root, chunks)
	if n := len(root.Children); n < 2 || n > 2*topics {
		t.Errorf("%d topics", n)
	}
	asked := 0
	root, err = Build(t.Context(), "notes.txt", chunks, vectors, func(_ context.Context, text string) (string, error) {
		asked++
		return fmt.Sprintf("Topic %d", asked), nil
	})
	if err != nil || asked == 0 || root.Children[0].Label != "Topic 1" {
		t.Errorf("asked %d times: %+v, %v", asked, root.Children[0], err)
	}
	bad := errors.New("away")
	if _, err = Build(t.Context(), "notes.txt", chunks, vectors, func(context.Context, string) (string, error) { return "", bad }); !errors.Is(err, bad) {
		t.Errorf("%v", err)
	}
}

func TestHostileTextsAreBoundAndEscaped(t *testing.T) {
	var chunks []sheaf.Chunk
	for i := range 2000 {
		chunks = append(chunks, chunk(i, "some words", fmt.Sprintf("<script>%d</script> & [x](y) *z*", i%97), strings.Repeat("é", 1<<10)+fmt.Sprint(i), "\u202egnp.exe\x00"))
	}
	root, err := Build(t.Context(), strings.Repeat("x", 1<<20), chunks, make([][]float32, len(chunks)), nobody)
	if err != nil {
		t.Fatal(err)
	}
	check(t, root, chunks)
	svg := root.SVG()
	if strings.Contains(svg, "<script") || len(svg) > 1<<20 {
		t.Errorf("the drawing has %d bytes, script: %v", len(svg), strings.Contains(svg, "<script"))
	}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if md := root.Markdown(); strings.Contains(md, "<script") && !strings.Contains(md, `\<script`) || strings.Contains(md, "[x]") {
		t.Errorf("%.300s", md)
	}
	for _, none := range [][]sheaf.Chunk{nil, {chunk(0, "  ")}} {
		root, err := Build(t.Context(), "empty", none, make([][]float32, len(none)), nobody)
		if err != nil || len(root.Children) != 0 || len(root.Store()) != 0 || Load("d", root.Store()) != nil {
			t.Errorf("%+v, %v", root, err)
		}
	}
	if root, err := Build(t.Context(), "numbers", []sheaf.Chunk{chunk(0, "1 2 3"), chunk(1, "4 5")}, make([][]float32, 2), nobody); err != nil || root == nil {
		t.Errorf("%v", err)
	}
}
