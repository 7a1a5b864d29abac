package wordpiece

import (
	"encoding/binary"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// builtIn is the vocabulary of the built-in model.
func builtIn(t *testing.T) []string {
	packed, err := os.Open("../static/minilm-static-256.sem.zst")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	d, err := zstd.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(table[24:24+binary.LittleEndian.Uint32(table[20:])]), "\n")
}

func TestWordsWithAnUnknownPart(t *testing.T) {
	vocab := []string{"[UNK]", "play", "##ing", "."}
	for _, c := range []struct {
		unknown int32
		want    []int32
	}{{0, []int32{1, 2, 0, 3, 0}}, {-1, []int32{1, 2, 3}}} {
		if got, _ := New(vocab, c.unknown).Tokens(nil, nil, "Playing playx. "+strings.Repeat("play", 30)); !slices.Equal(got, c.want) {
			t.Errorf("unknown %d: %v, want %v", c.unknown, got, c.want)
		}
	}
}

// Every piece is found under its number, and nothing else is.
func TestPiecesAreFoundAsInAMap(t *testing.T) {
	vocab := builtIn(t)
	first, rest := map[string]int32{}, map[string]int32{}
	for i, piece := range vocab {
		if len(piece) > 2 && piece[:2] == "##" {
			rest[piece[2:]] = int32(i)
		} else {
			first[piece] = int32(i)
		}
	}
	tok := New(vocab, -1)
	looked := 0
	for _, known := range []map[string]int32{first, rest} {
		for piece := range known {
			for end := range len(piece) + 1 {
				for part, with := range map[string]struct {
					table  pieceTable
					pieces map[string]int32
				}{piece[:end]: {tok.first, first}, piece[end:]: {tok.rest, rest}, piece[:end] + "q": {tok.first, first}} {
					want, known := with.pieces[part]
					if id, ok := with.table.find([]byte(part)); ok != known || ok && id != want {
						t.Fatalf("%q is %d, %v; want %d, %v", part, id, ok, want, known)
					}
					looked++
				}
			}
		}
	}
	if looked < 500_000 {
		t.Errorf("only %d looks", looked)
	}
}
