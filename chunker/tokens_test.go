package chunker

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCountTokensEqualsLibrary(t *testing.T) {
	for _, s := range []string{
		"", " ", "  ", "\n", " \n ", "a", "it's", "IT'S", "we'Ll they'RE", "'ſx", "x'", "''s",
		"  leading and   inner  spaces  ", "1234567 89", "a\r\nb\n\n  c", "tab\there", "...\n\nnext",
		"e\u0301a combined", "\u00a0nbsp\u2003em", "中文没有空格，但是有标点。", "日本語のテキスト", "👩‍👩‍👧 family", "x ١٢٣٤ y",
		"func main() {\n\tfmt.Println(\"hi\")\n}\n", strings.Repeat("a", 500), "<|endoftext|>", "\ufffd\u200bzero",
	} {
		if got, want := CountTokens(s), encodeWord(s); got != want {
			t.Errorf("CountTokens(%q) = %d, the library says %d", s, got, want)
		}
	}
	alphabet := []rune("aA sStTrRvVeElLmMdD'ſ \t\n\r\u00a0\u2003\u0085\v.,;-_#12345٣中。é\u0301😀\u200d|")
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.OneOf(rapid.SampledFrom(alphabet), rapid.Rune())).Draw(t, "s")
		s = strings.ReplaceAll(s, "\x7f", "") // the library's pattern drops DEL, which has a token
		if got, want := CountTokens(s), encodeWord(s); got != want {
			t.Fatalf("CountTokens(%q) = %d, the library says %d", s, got, want)
		}
	})
}

func TestDecodeTokensTakesBackWhatWasEncoded(t *testing.T) {
	for _, s := range []string{"", "hello world", "中文没有空格", "👩‍👩‍👧 family", "x ١٢٣٤ y\r\n\tz"} {
		tokens, _, err := cl100k().Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeTokens(tokens); err != nil || got != s {
			t.Errorf("DecodeTokens(%v) = %q, %v, want %q", tokens, got, err, s)
		}
	}
	if got, err := DecodeTokens([]uint{9468}); err != nil || got != "\ufffd" { // the first bytes of an emoji
		t.Errorf("half a character is %q, %v", got, err)
	}
	if got, err := DecodeTokens([]uint{15339, 4_000_000}); err == nil {
		t.Errorf("a number that is no token is %q", got)
	}
}

func BenchmarkCountTokens(b *testing.B) {
	s := strings.Repeat("The quick brown fox jumps over the lazy dog; it costs 1,234.56 euros, doesn't it?\n", 200)
	b.Run("sheaf", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n += CountTokens(s)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("library", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n += encodeWord(s)
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	})
}

func TestJoinedTokensEqualTheCountOfTheWhole(t *testing.T) {
	seps := []string{"", " ", "  ", "\n", "\n\n", "\r\n", " \n", "\t", strings.Repeat("\n", 60), "\u00a0", "-"}
	texts := []string{"", "a", "don't", "'s", "'tis", "Word and more", "1234", ".", "\n", " a", "ſ", "é", "数据库", "x's", strings.Repeat("q", 80), "re"}
	check := func(t interface{ Errorf(string, ...any) }, sep, text string) {
		if got, want := joinedTokens(sep, text, CountTokens(text)), CountTokens(sep+text); got != want {
			t.Errorf("%q and %q: %d tokens, want %d", sep, text, got, want)
		}
	}
	for _, sep := range seps {
		for _, text := range texts {
			check(t, sep, text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune(" \n\t'asTé.1数ſ")), rapid.Rune())).Draw(t, "text")
		check(t, rapid.SampledFrom(seps).Draw(t, "sep"), strings.ToValidUTF8(text, ""))
	})
}
