package enrich

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/abadojack/whatlanggo"
	"pgregory.net/rapid"

	"sheaf"
)

func TestPersonalDataIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"Write to ada.lovelace+x@mail.example.org now.":                     "EMAIL ada.lovelace+x@mail.example.org",
		"Call +49 30 901820 or (030) 1234 5678":                             "PHONE +49 30 901820 PHONE (030) 1234 5678",
		"Call 555-123-4567.":                                                "PHONE 555-123-4567",
		"Card 4111 1111 1111 1111.":                                         "CARD 4111 1111 1111 1111",
		"Card 4111 1111 1111 1112.":                                         "", // the check digit is wrong
		"IBAN DE89 3704 0044 0532 0130 00 USA1":                             "IBAN DE89 3704 0044 0532 0130 00",
		"IBAN GB82WEST12345698765432, thanks":                               "IBAN GB82WEST12345698765432",
		"IBAN GB83WEST12345698765432":                                       "",
		"From 192.168.10.7 and 2001:db8::1 but not 300.1.1.1 or 12:30:45.":  "IP 192.168.10.7 IP 2001:db8::1",
		"DNI 12345678Z, NIE X1234567L, not 12345678A.":                      "NATIONAL_ID 12345678Z NATIONAL_ID X1234567L",
		"Steuer-ID 86095742719 but not 86095742718":                         "NATIONAL_ID 86095742719",
		"NIR 2 55 08 14 168 025 38":                                         "NATIONAL_ID 2 55 08 14 168 025 38",
		"SSN 078-05-1120, not 666-12-3456":                                  "NATIONAL_ID 078-05-1120",
		"Version 1.2.3, 2026-11-21, page 12 of 300, EUR 1,234,567.89, § 12": "",
	} {
		var got []string
		for _, f := range FindPII(text) {
			got = append(got, f.Kind+" "+text[f.From:f.To])
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q\n got %q\nwant %q", text, s, want)
		}
	}
}

func TestRedactionKeepsPlacesAndLeavesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom([]string{"a@b.example", "4111111111111111", "DE89370400440532013000", "12345678Z", "10.0.0.1", "ä@x"})
		text := strings.Join(rapid.SliceOf(rapid.OneOf(secret, rapid.StringN(0, 9, 20))).Draw(t, "parts"), " ")
		got := Redact(text, map[string]int{})
		if len(got) != len(text) || utf8.ValidString(got) != utf8.ValidString(text) {
			t.Fatalf("%q became %q", text, got)
		}
		for _, s := range []string{"a@b.example", "4111111111111111", "DE89370400440532013000"} {
			if strings.Contains(" "+got+" ", " "+s+" ") {
				t.Fatalf("%q is left in %q", s, got)
			}
		}
	})
	units := []sheaf.UnitResult{{Label: "x@y.example", Blocks: []sheaf.Block{{Text: "mail x@y.example"}, {Table: &sheaf.Table{Name: "x@y.example", Columns: []string{"x@y.example"}, Rows: [][]string{{"x@y.example"}}}}}}}
	count := func(replace bool) map[string]int {
		n, err := Units(t.Context(), units, replace)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(false)["EMAIL"]; n != 5 || units[0].Blocks[0].Text != "mail x@y.example" {
		t.Errorf("%d found, text %q", n, units[0].Blocks[0].Text)
	}
	count(true)
	if left := count(false); len(left) != 0 || units[0].Blocks[0].Text != "mail [EMAIL****]" {
		t.Errorf("%v left, %q", left, units[0].Blocks[0].Text)
	}
}

func TestLanguages(t *testing.T) {
	for text, want := range map[string]string{
		"The database replicates every write to three nodes, so that a failed disk loses nothing at all.":                              "en",
		"Die Datenbank schreibt jede Änderung auf drei Rechner, damit bei einem Ausfall nichts verloren geht und niemand warten muss.": "de",
		"La base de données écrit chaque changement sur trois machines, afin que rien ne soit perdu si un disque tombe en panne.":      "fr",
		"数据库把每次写入复制到三个节点，所以一个磁盘损坏不会丢失任何数据。":                                                                                            "zh",
		"12 34 56": "",
	} {
		if got := Language(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestLanguageFollowsTheText: a chunk goes on in the language of the one before
// only where the detector would say so too.
func TestLanguageFollowsTheText(t *testing.T) {
	texts := map[string]string{
		"en": "The database replicates every write to three nodes, so that it is safe when one of them fails and no one has to wait for the others.",
		"de": "Die Datenbank schreibt jede Änderung auf drei Rechner, damit bei einem Ausfall nichts verloren geht und niemand auf die anderen warten muss.",
		"fr": "La base de données écrit chaque changement sur trois machines, afin que rien ne soit perdu si un disque tombe en panne dans la nuit.",
		"es": "La base de datos escribe cada cambio en tres máquinas para que no se pierda nada cuando una de ellas falla y los demás no tengan que esperar.",
		"pt": "O banco de dados escreve cada mudança em três máquinas para que não se perca nada quando uma delas falha e os outros não tenham que esperar.",
		"nl": "De database schrijft elke wijziging naar drie machines, zodat er niets verloren gaat als een van hen het begeeft en de anderen niet hoeven te wachten.",
		"":   "12 34 56 78 90",
	}
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(texts))), 1, 12).Draw(t, "order")
		chunks := make([]sheaf.Chunk, len(order))
		for i, l := range order {
			chunks[i] = sheaf.Chunk{Kind: sheaf.ChunkText, Text: texts[l]}
		}
		_ = Languages(t.Context(), chunks)
		for i, l := range order {
			if want := Language(texts[l]); chunks[i].Language != want {
				t.Fatalf("chunk %d of %q is said to be in %q, want %q", i, order, chunks[i].Language, want)
			}
		}
	})
	if !goesOnIn(texts["en"], "en") {
		t.Error("English after English is compared with all languages again")
	}
}

// TestDetectorIsWhatlanggo holds the profiles that are turned round to what
// whatlanggo finds with them.
func TestDetectorIsWhatlanggo(t *testing.T) {
	if len(latinLangs) < 40 || len(cyrillicLangs) < 5 {
		t.Fatalf("whatlanggo keeps its profiles elsewhere: %d and %d were found", len(latinLangs), len(cyrillicLangs))
	}
	sentences := []string{
		"The database replicates every write to three nodes, so that it is safe when one of them fails.",
		"Die Datenbank schreibt jede Änderung auf drei Rechner, damit bei einem Ausfall nichts verloren geht.",
		"La base de données écrit chaque changement sur trois machines, afin que rien ne soit perdu.",
		"La base de datos escribe cada cambio en tres máquinas para que no se pierda nada.",
		"Baza danych zapisuje każdą zmianę na trzech komputerach, żeby nic nie zginęło.",
		"Veritabanı her değişikliği üç makineye yazar, böylece hiçbir şey kaybolmaz.",
		"Tietokanta kirjoittaa jokaisen muutoksen kolmelle koneelle, jotta mitään ei katoa.",
		"База данных записывает каждое изменение на три машины, чтобы ничего не пропало.",
		"База даних записує кожну зміну на три машини, щоб нічого не загубилося.",
		"数据库把每次写入复制到三个节点。", "データベースはすべての書き込みを複製します。",
		"كل تغيير يكتب على ثلاثة أجهزة حتى لا يضيع شيء.", "מסד הנתונים כותב כל שינוי לשלושה מחשבים.",
		"aaaa aaaa aaaa", "x", "42 % of 17 (3.5) £", "int main(void) { return f(x[i++], &y); }", "\xff\xfe broken \x80",
	}
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.SampledFrom(sentences), rapid.StringN(0, 20, 60))
		text := strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "parts"), rapid.SampledFrom([]string{" ", "", ". "}).Draw(t, "between"))
		got, want := detect(text), whatlanggo.Detect(text)
		// Where two languages are equally close whatlanggo takes any of them.
		if got.Script != want.Script || got.Confidence != want.Confidence || got.Lang != want.Lang && want.Confidence > 0 {
			t.Fatalf("%q: %v with %v, whatlanggo says %v with %v", text, got.Lang, got.Confidence, want.Lang, want.Confidence)
		}
	})
}

func BenchmarkLanguage(b *testing.B) {
	text := strings.Repeat("Table 4.2 lists file formats, byte order marks, code pages; see also 7.1, 9.3 (annex B). ", 6)
	for b.Loop() {
		Language(text)
	}
}

func TestKeywordsWithoutAModel(t *testing.T) {
	texts := []string{
		"The termination notice period is three months. The termination notice must be given in writing to the landlord.",
		"The landlord keeps the garden. The garden must be watered in the summer months.",
		"Die Kündigungsfrist beträgt drei Monate und die Kündigung ist schriftlich zu erklären.",
		"数据库备份。数据库恢复。",
	}
	got, _ := Keywords(t.Context(), texts, []string{"en", "en", "de", "zh"}, 3)
	if got[0][0] != "termination notice period" && got[0][0] != "termination notice" {
		t.Errorf("%q", got[0])
	}
	if !slices.Contains(got[1], "garden") || !strings.Contains(strings.Join(got[2], " "), "kündigung") || !slices.Contains(got[3], "数据") {
		t.Errorf("%q", got[1:])
	}
	for range 5 {
		if again, _ := Keywords(t.Context(), texts, []string{"en", "en", "de", "zh"}, 3); !slices.EqualFunc(again, got, slices.Equal[[]string]) {
			t.Fatal("not deterministic")
		}
	}
}
