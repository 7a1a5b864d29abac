package chunker

import (
	"context"
	"errors"
	"sheaf/internal/cputest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/uax29/v2/sentences"

	"sheaf"
)

// hostile texts take the chunker longest: without spaces, and with what the
// rules of sentences look far ahead in.
func hostile(bytes int) map[string]string {
	long := func(s string) string { return strings.Repeat(s, bytes/len(s)) }
	return map[string]string{
		"letters":   long("a"),
		"han":       long("漢字"),
		"brackets":  "a." + long(")"),
		"spaces":    "a. " + long(" ") + "b",
		"marks":     "a." + long("\u0301"),
		"dots":      long(".)"),
		"digits":    "a." + strings.Repeat(")", maxTrailing-1) + long("1"),
		"sentences": long("Dr. No said so. "),
		"lines":     long("x\n"),
	}
}

func rangeOf(method string, blocks ...sheaf.Block) Input {
	return Input{RangeID: "r", DocumentID: "d", Range: sheaf.Range{From: 1, To: 1}, Config: sheaf.ParseConfig{ChunkMethod: sheaf.Set(method)}, Units: []sheaf.UnitResult{{Unit: 1, Status: sheaf.UnitOK, Blocks: blocks}}}
}

func TestHostileTextTakesTimeInProportion(t *testing.T) {
	if testing.Short() {
		t.Skip("reads megabytes of hostile text")
	}
	for name, text := range hostile(256 << 10 / cputest.Slowdown) {
		for _, kind := range []sheaf.BlockKind{sheaf.BlockParagraph, sheaf.BlockCode} {
			begun := cputest.Used(t)
			if _, err := Chunk(t.Context(), rangeOf("general", sheaf.Block{Kind: kind, Text: text})); err != nil {
				t.Fatal(err)
			}
			if took := cputest.Used(t) - begun; took > 15*time.Second { // one to two; with each bracket looked behind it is a minute
				t.Errorf("%s as %s: 256 KB take %v", name, kind, took)
			}
		}
	}
}

// A table, a page of lines with places, and a paragraph of links are walked
// once for all their segments.
func TestPlacesOfALongBlockAreWalkedOnce(t *testing.T) {
	const n = 30_000
	b := sheaf.Block{Kind: sheaf.BlockParagraph, Text: strings.Repeat("Go. ", n)}
	var tables, images []sheaf.Block
	for i := range n {
		b.Spans = append(b.Spans, sheaf.Span{Start: 4 * i, End: 4*i + 3, Box: sheaf.Box{Page: 1, X1: 9, Y0: float64(i), Y1: float64(i + 1)}})
		b.Links = append(b.Links, sheaf.Link{Start: 4 * i, End: 4*i + 3, Page: 1})
		tables = append(tables, sheaf.Block{Kind: sheaf.BlockTable, Table: &sheaf.Table{Rows: [][]string{{"a"}}}})
		images = append(images, sheaf.Block{Kind: sheaf.BlockImage, Text: "a"})
	}
	context := rangeOf("general", append(tables, images...)...)
	context.Config.TableContextSize, context.Config.ImageContextSize = sheaf.Set(64), sheaf.Set(64)
	summary := rangeOf("hierarchical", sheaf.Block{Kind: sheaf.BlockParagraph, Text: strings.Repeat("Ships carry cargo between harbours again. Harbours unload cargo slowly, whenever storms delay ships beyond any schedule anyone planned. ", n/30)})
	for name, in := range map[string]Input{"places": rangeOf("general", b), "context": context, "summary": summary} {
		begun := cputest.Used(t)
		if _, err := Chunk(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		if took := cputest.Used(t) - begun; took > 10*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

func TestAContextEndsChunkingWithinASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("reads megabytes of hostile text")
	}
	why := errors.New("the lease was lost")
	for name, text := range hostile(8 << 20 / cputest.Slowdown) {
		for _, method := range []string{"general", "book", "code", "hierarchical", "qa"} {
			kind := sheaf.BlockParagraph
			if method == "code" {
				kind = sheaf.BlockCode
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan time.Duration, 1)
			timer := time.AfterFunc(50*time.Millisecond, func() { ended <- cputest.Used(t); cancel(why) })
			_, err := Chunk(ctx, rangeOf(method, sheaf.Block{Kind: kind, Text: text}))
			if timer.Stop() {
				cancel(nil) // it was quicker than that
				continue
			}
			if late := cputest.Used(t) - <-ended; late > cputest.Slowdown*time.Second {
				t.Errorf("%s of %s: %v of CPU after its context", method, name, late)
			}
			if err != nil && !errors.Is(err, why) {
				t.Errorf("%s of %s: %v", method, name, err)
			}
		}
	}
}

func TestStretchesHaveTheSentencesOfTheWhole(t *testing.T) {
	words := strings.Fields("Ships sail. Dr. No, e.g. the one (see p. 4.) who \"asked?\" left!  Then 3.14 was pi: 1.5 kg of it… 漢字は。 Next\n\nparagraph. and lower. So")
	var b strings.Builder
	for i := range 60_000 {
		b.WriteString(words[(i*i+i/7)%len(words)])
		b.WriteString([]string{" ", "  ", "\n", " "}[i%4])
	}
	text := unwrap(b.String())
	var want []int
	for it := sentences.FromString(text); it.Next(); {
		want = append(want, it.End())
	}
	if got := slices.Collect(boundaries(text, &watch{ctx: t.Context()})); !slices.Equal(got, want) {
		t.Errorf("%d sentences in stretches, %d in the whole", len(got), len(want))
	}
	if to, _ := stretch(text); to >= len(text) {
		t.Error("the text is too short to be cut")
	}
}

func TestTokensWithin(t *testing.T) {
	for id := range uint(100_256) {
		if s, err := cl100k().Decode([]uint{id}); err == nil && len(s) > maxTokenBytes {
			t.Fatalf("token %d has %d bytes", id, len(s))
		}
	}
	for _, s := range []string{"", "a", "two words", strings.Repeat("a", 999), strings.Repeat(" ", 999), "x " + strings.Repeat("漢字", 99)} {
		n := CountTokens(s)
		for _, limit := range []int{-1, 0, 1, n - 1, n, n + 1, 9999} {
			got, fits := tokensWithin(s, limit)
			if fits != (n <= limit) || fits && got != n {
				t.Errorf("tokensWithin(%.9q, %d) = %d, %v; it has %d", s, limit, got, fits, n)
			}
		}
	}
}
