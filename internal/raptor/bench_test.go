package raptor_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sheaf/chunker"
	"sheaf/internal/embed"
	"sheaf/internal/embed/static"
	"sheaf/internal/raptor"
)

// BenchmarkTenThousandChunks makes the whole tree over 10,000 chunks of about 130
// tokens with extractive summaries by the built-in model.
func BenchmarkTenThousandChunks(b *testing.B) {
	model := static.Default()
	vectors := func(texts []string) ([][]float32, error) { return embed.Each(b.Context(), model, texts, embed.Passage) }
	r := rand.New(rand.NewPCG(1, 2))
	vocabulary := strings.Fields("heron water stands river bank fish tax law payment notice term contract party court snow winter engine valve pressure motor table result method data model search index page")
	texts := make([]string, 10_000)
	for i := range texts {
		var s strings.Builder
		for range 8 {
			for w := range 12 {
				word := vocabulary[(i/20+r.IntN(9))%len(vocabulary)]
				if w == 0 {
					word = strings.ToUpper(word[:1]) + word[1:]
				}
				s.WriteString(word + " ")
			}
			s.WriteString("ends. ")
		}
		texts[i] = s.String()
	}
	b.ReportAllocs()
	for b.Loop() {
		vs, err := vectors(texts)
		if err != nil {
			b.Fatal(err)
		}
		type node struct {
			raptor.Item
			text string
		}
		layer := make([]node, len(texts))
		for i := range texts {
			layer[i] = node{raptor.Item{Name: fmt.Sprint(i), Tokens: chunker.CountTokens(texts[i]), Vector: vs[i]}, texts[i]}
		}
		made := 0
		for n := 1; n <= raptor.MaxLayers && len(layer) > 1; n++ {
			items := make([]raptor.Item, len(layer))
			for i := range layer {
				items[i] = layer[i].Item
			}
			nodes, alone := raptor.Layer(items, n, raptor.Config{})
			if len(nodes) == 0 {
				break
			}
			var next []node
			for _, nd := range nodes {
				var said []string
				var below [][]float32
				for _, k := range nd.Children {
					said, below = append(said, layer[k].text), append(below, layer[k].Vector)
				}
				sentences, err := raptor.Extract(said, 512, chunker.CountTokens, vectors)
				if err != nil {
					b.Fatal(err)
				}
				var text strings.Builder
				for _, s := range sentences {
					text.WriteString(s.Text + " ")
				}
				next = append(next, node{raptor.Item{Name: nd.Name, Tokens: chunker.CountTokens(text.String()), Vector: raptor.Mean(below...)}, text.String()})
			}
			for _, i := range alone {
				next = append(next, layer[i])
			}
			made += len(nodes)
			layer = next
		}
		b.ReportMetric(float64(made), "summaries")
	}
}
