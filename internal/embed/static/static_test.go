package static

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sheaf"
	"sheaf/internal/embed"
	"sheaf/internal/embed/embedtest"
)

func TestContract(t *testing.T) {
	embedtest.Run(t, Default(), embedtest.Options{LatinOnly: true})
}

func TestModelIDNamesTheTable(t *testing.T) {
	if got := Default().Model(); got != (embed.Model{ID: "minilm-static-256@673fbe01", Dim: 256, Weight: 0.3, Cheap: true}) {
		t.Errorf("%+v", got)
	}
}

// TestReference compares with vectors that the teacher model's own tokenizer
// and the same table gave in Python.
func TestReference(t *testing.T) {
	e := Default()
	b, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var refs []struct {
		Text   string
		Vector []float64
	}
	if err := json.Unmarshal(b, &refs); err != nil {
		t.Fatal(err)
	}
	if len(refs) < 40 {
		t.Fatalf("only %d reference texts", len(refs))
	}
	for _, r := range refs {
		v := make([]float32, e.dim)
		e.vector(v, r.Text, new(scratch))
		var dot, a, b float64
		for i, x := range v {
			dot += float64(x) * r.Vector[i]
			a += float64(x) * float64(x)
			b += r.Vector[i] * r.Vector[i]
		}
		switch {
		case b == 0 && a != 0:
			t.Errorf("%.60q has a vector, want none", r.Text)
		case b != 0 && (a == 0 || dot/math.Sqrt(a*b) < 0.9999):
			t.Errorf("cosine %.6f for %.60q", dot/math.Sqrt(a*b), r.Text)
		}
	}
}

func TestTokensIgnoreCaseAndAccents(t *testing.T) {
	tok := Default().tok
	got, _ := tok.Tokens(nil, nil, "Café, CAFÉ!\u200b")
	want, _ := tok.Tokens(nil, nil, "cafe , cafe !")
	if len(got) != 4 || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestUnknownTextsGiveZeros(t *testing.T) {
	texts := []string{"", " \t\n", "\x00\u200b", "\xff\xfe", strings.Repeat("x", 101), "Привет, мир", "数据库复制", "数据库 SQL 复制到三个节点"}
	vs, err := Default().Embed(t.Context(), texts, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vs {
		if slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) {
			t.Errorf("%.20q has a vector, want none", texts[i])
		}
	}
}

func TestLatinTextWithForeignWordsKeepsItsVector(t *testing.T) {
	vs, err := Default().Embed(t.Context(), []string{"The Greek letter π (pi) and the word Москва", "12 / 7 = 1.71", "Die Größe der Straße"}, embed.Passage)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vs {
		if !slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) {
			t.Errorf("text %d has no vector", i)
		}
	}
}

func TestLongWordsStayBounded(t *testing.T) {
	_, word := Default().tok.Tokens(nil, nil, strings.Repeat("q", 1<<20))
	if len(word) > 1024 {
		t.Errorf("a word of %d bytes was kept", len(word))
	}
}

// modelFile makes a small valid file.
func modelFile(bits int, vocab string, dim int) []byte {
	v := strings.Count(vocab, "\n") + 1
	b := []byte("SEM1")
	for _, x := range []int{1, bits, v, dim, len(vocab)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	b = append(b, vocab...)
	for range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(0.5))
	}
	return append(b, bytes.Repeat([]byte{0x9a}, v*dim*bits/8)...)
}

func TestParseRefusesWhatIsNotAModel(t *testing.T) {
	good := modelFile(4, "a\nb\n##c", 4)
	if _, err := Parse("t", good); err != nil {
		t.Fatal(err)
	}
	patch := func(at int, value uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], value)
		return b
	}
	nan := bytes.Clone(good)
	binary.LittleEndian.PutUint32(nan[24+7:], math.Float32bits(float32(math.NaN())))
	for name, b := range map[string][]byte{
		"empty": nil, "magic": []byte("SEM2" + string(good[4:])), "header only": good[:24], "cut": good[:len(good)-1], "longer": append(bytes.Clone(good), 0),
		"tokenizer": patch(4, 2), "bits": patch(8, 3), "no tokens": patch(12, 0), "many tokens": patch(12, 1<<31), "no width": patch(16, 0),
		"odd width": patch(16, 3), "huge width": patch(16, math.MaxUint32), "long text": patch(20, math.MaxUint32), "NaN scale": nan,
		"fewer tokens than said": []byte(strings.Replace(string(good), "a\nb", "aab", 1)),
	} {
		if _, err := Parse("t", b); !errors.Is(err, sheaf.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(modelFile(4, "a\nb\n##c", 4))
	f.Add(modelFile(8, "x", 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse("fuzz", b)
		if err != nil {
			if !errors.Is(err, sheaf.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		vs, err := e.Embed(t.Context(), []string{"a b c", "abc x", string(b)}, embed.Passage)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vs {
			var n float64
			for _, x := range v {
				n += float64(x) * float64(x)
			}
			if n != 0 && math.Abs(n-1) > 1e-3 || math.IsNaN(n) {
				t.Fatalf("squared length %g", n)
			}
		}
	})
}

func FuzzTokens(f *testing.F) {
	for _, s := range []string{"Hello, World!", "Ａ ﷺ ㍿ 数据", "\xff\xfe\x00", "e\u0301\u0301", strings.Repeat("é", 120)} {
		f.Add(s)
	}
	e := Default()
	f.Fuzz(func(t *testing.T, s string) {
		ids, _ := e.tok.Tokens(nil, nil, s)
		// A character decomposes into at most a few letters (U+FDFA: 18).
		if len(ids) > 18*utf8.RuneCountInString(s) {
			t.Fatalf("%d tokens from %d characters", len(ids), utf8.RuneCountInString(s))
		}
		for _, id := range ids {
			if int(id) >= len(e.scale) || id < 0 {
				t.Fatalf("token %d", id)
			}
		}
		// Case of ASCII does not matter.
		lower := strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' {
				return r | 0x20
			}
			return r
		}, s)
		if again, _ := e.tok.Tokens(nil, nil, lower); utf8.ValidString(s) && !slices.Equal(ids, again) {
			t.Fatalf("%v and %v", ids, again)
		}
	})
}

// TestVectorUnitRoundsAsPlainGo: an index may be filled on one kind of machine
// and searched on another.
func TestVectorUnitRoundsAsPlainGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.Int8(), 1, 300).Draw(t, "row")
		at := rapid.SliceOfN(rapid.Float32Range(-1e6, 1e6), len(row), len(row)).Draw(t, "sum")
		scale := rapid.Float32Range(-1e6, 1e6).Draw(t, "scale")
		want := slices.Clone(at)
		addRowPlain(want, row, scale)
		addRow(at, row, scale)
		if !slices.Equal(at, want) {
			t.Fatalf("got %v, want %v", at, want)
		}
	})
}

func BenchmarkEmbed(b *testing.B) {
	e := Default()
	text := strings.Repeat("Replication copies every write to three nodes, so a failed disk loses nothing. ", 15)
	for _, n := range []int{1, 64} {
		b.Run(map[int]string{1: "one", 64: "batch64"}[n], func(b *testing.B) {
			texts := slices.Repeat([]string{text}, n)
			b.SetBytes(int64(n * len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Embed(b.Context(), texts, embed.Passage); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "texts/s")
		})
	}
}
