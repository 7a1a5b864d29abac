package index_test

import (
	"html"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"sheaf/internal/index"
)

func texts(terms []index.Term) []string {
	out := []string{}
	for _, t := range terms {
		out = append(out, t.Text)
	}
	return out
}

func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"Hello, World!":                 "hello world",
		"The user's files don't matter": "the user file don matter",
		"X-200 v1.2_b":                  "x 200 v1 2 b",
		"queries query querying":        "queri queri queri",
		"configure configured configuring configures": "configur configur configur configur",
		"index indexes indexing indexed":              "index index index index",
		"running stopped controlled hopping":          "run stop control hop",
		"status analysis process class bus":           "status analysis process class bus",
		"Café cafe\u0301 ÅNGSTRÖM ﬁle Ｗｉｄｅ x²":        "cafe cafe angstrom file wide x2",
		"ЗАЩИТА Й и\u0306":                            "защита и и",
		"検索エンジン":                                      "検索 索エ エン ンジ ジン ン",
		"猫":                                           "猫",
		"重置X-200密码":                                   "重置 置 x 200 密码 码",
		"비밀번호 변경":                                     "비밀 밀번 번호 호 변경 경",
		"हिन्दी भाषा":                                 "हिन्दी भाषा",
		"a\x00b\xffc":                                 "a b c",
		"🙂 -- \u202e":                                 "",
	} {
		if got := strings.Join(texts(index.Terms(text)), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := index.Terms(strings.Repeat("é", 1000)); len(got) != 1 || len(got[0].Text) > 64 || got[0].End != 2000 {
		t.Errorf("a long word gives %v", got)
	}
}

func TestParseWords(t *testing.T) {
	for query, want := range map[string]string{
		"":                                 "",
		"How do I reset the password?":     "reset|password",
		"the who":                          "the|who",
		`"the who" concert`:                `"the who"|concert`,
		"X-200 manual":                     "x 200|manual",
		`"unbalanced quote`:                "unbalanc|quot",
		`“exact phrase” word`:              `"exact phrase"|word`,
		"検索エンジン settings":                  "検索 索エ エン ンジ ジン|set",
		"猫 food":                           "猫*|food",
		"製品X-200":                          "製品|x 200",
		`"製品 X"`:                           `"製品"|"x"`,
		"user@example.com":                 "user exampl com",
		`""`:                               "",
		"to re\xffst\xf0\x9f":              "re st",
		"word word":                        "word",
		strings.Repeat("a b c d e ", 1000): "", // counted below
	} {
		var got []string
		for _, g := range index.ParseWords(query).Groups {
			s := strings.Join(g.Terms, " ")
			if g.Prefix {
				s += "*"
			}
			if g.Quoted {
				s = `"` + s + `"`
			}
			got = append(got, s)
		}
		if len(query) > 1000 {
			if len(got) > 32 {
				t.Errorf("%d groups of a long query", len(got))
			}
			continue
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%q: got %s, want %s", query, s, want)
		}
	}
}

func TestHighlight(t *testing.T) {
	for _, test := range []struct{ query, text, want string }{
		{"pump", "Pumps & pumping", "<mark>Pumps</mark> &amp; <mark>pumping</mark>"},
		{"<b>", "a <b> tag", "a &lt;<mark>b</mark>&gt; tag"},
		{"検索エンジン", "全文検索エンジンの設定", "全文<mark>検索エンジン</mark>の設定"},
		{"猫", "黒猫と猫車", "黒<mark>猫</mark>と<mark>猫</mark>車"},
		{"X-200", "the X-200, the X", "the <mark>X</mark>-<mark>200</mark>, the <mark>X</mark>"},
		{"nothing", "else", "else"},
		{"", "<>", "&lt;&gt;"},
	} {
		if got := index.ParseWords(test.query).Highlight(test.text); got != test.want {
			t.Errorf("%s in %s:\n got %s\nwant %s", test.query, test.text, got, test.want)
		}
	}
}

func FuzzTerms(f *testing.F) {
	for _, s := range []string{"Hello wörld", "検索エンジン", `"a b" -c`, "\xff\x00", "don't 've 's", "ing ed s ies eed y", "ａ가ー", "re\xff set\xe3\x82", "日\xff本 \xff"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, query, text string) {
		end, start := 0, 0
		for _, term := range index.Terms(text) {
			if term.Text == "" || term.Start >= term.End || term.End > len(text) || term.Start < start || term.End < end && !term.Tail {
				t.Fatalf("term %+v of %q", term, text)
			}
			start, end = term.Start, max(end, term.End)
			if len(term.Text) > 64 || !utf8.ValidString(term.Text) {
				t.Fatalf("term %q", term.Text)
			}
			for _, r := range term.Text { // nothing that a query language could take for syntax
				if !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) && r != 'ー' {
					t.Fatalf("term %q holds %q", term.Text, r)
				}
			}
		}
		w := index.ParseWords(query)
		if len(w.Groups) > 32 {
			t.Fatalf("%d groups", len(w.Groups))
		}
		marked := w.Highlight(text)
		plain := strings.NewReplacer("<mark>", "", "</mark>", "").Replace(marked)
		if html.UnescapeString(plain) != html.UnescapeString(html.EscapeString(text)) {
			t.Fatalf("highlight of %q is %q", text, marked)
		}
		if strings.Count(marked, "<mark>") != strings.Count(marked, "</mark>") {
			t.Fatalf("unbalanced marks in %q", marked)
		}
		if again := index.Terms(text); !slices.Equal(again, index.Terms(text)) {
			t.Fatal("terms differ between calls")
		}
	})
}

func TestAppendedTermsAreThoseOfTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("aesing s'’数据库ーé\u0301-1 ")), rapid.Rune())).Draw(t, "text")
		want := "before"
		for _, term := range index.Terms(text) {
			want += term.Text + " "
		}
		if got := string(index.AppendTerms([]byte("before"), text)); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
