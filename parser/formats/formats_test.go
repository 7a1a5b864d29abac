package formats

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sheaf"
	"sheaf/internal/settings"
	"sheaf/parser"
	"sheaf/parser/archive"
	"sheaf/parser/internal/formattest"
)

func TestConfigSurvivesTheEnvironment(t *testing.T) {
	want := Config{Soffice: "/opt/office/soffice", OCRLanguages: "deu+eng", Archive: archive.Limits{Files: 7, FileBytes: 1 << 40, TotalBytes: 9, Ratio: 3}}
	for _, kv := range want.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	if got := FromEnviron(); got.Soffice != want.Soffice || got.OCRLanguages != want.OCRLanguages || got.Tesseract != "" || got.Archive != want.Archive {
		t.Errorf("%+v", got)
	}
}

func need(t *testing.T, command string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		if os.Getenv("SHEAF_TEST_REQUIRE") != "" {
			t.Fatalf("%s is not installed and SHEAF_TEST_REQUIRE asks for it", command)
		}
		t.Skipf("%s is not installed", command)
	}
}

// readAny sniffs and reads content as an upload would be.
func readAny(t *testing.T, content []byte, name string) (*parser.Plan, []sheaf.UnitResult, error) {
	t.Helper()
	r := known
	mediaType := r.Sniff(bytes.NewReader(content), int64(len(content)), name)
	f, ok := r.ByMediaType(mediaType)
	if !ok {
		t.Fatalf("%s is %s, which nothing reads", name, mediaType)
	}
	shards := map[string]string{parser.MediaDOC: parser.MediaDOCX, parser.MediaRTF: parser.MediaDOCX,
		parser.MediaXLS: parser.MediaXLSX, parser.MediaPPT: parser.MediaPPTX}
	in, _ := r.ByMediaType(shards[mediaType])
	return formattest.Read(t, f, content, parser.Options{Name: name, MediaType: mediaType}, in)
}

// show is what was read, a block a line.
func show(units []sheaf.UnitResult) string {
	var b strings.Builder
	for _, u := range units {
		for _, k := range u.Blocks {
			b.WriteString(string(k.Kind) + ": " + k.Text)
			if t := k.Table; t != nil {
				b.WriteString(strings.Join(t.Columns, "|"))
				for _, r := range t.Rows {
					b.WriteString(" / " + strings.Join(r, "|"))
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestOldOfficeFilesAreReadAsTheirSuccessors(t *testing.T) {
	if testing.Short() {
		t.Skip("runs LibreOffice")
	}
	need(t, "soffice")
	const text = "heading: Harvest report\nparagraph: The quince orchard yielded äpfel and pears.\nlist_item: first item\nheading: Figures\ntable: Fruit|Tons / Quince|12\n"
	const sheet = "table: Fruit|Tons / Quince|12 / Pear|7.5\n"
	for name, want := range map[string]string{
		"sample.doc": text, "sample.rtf": strings.Replace(text, "table: ", "table:  / ", 1), // no row is marked as header
		"sample.xls": sheet,
		"sample.ppt": "Second slide about pears.",
	} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("..", "office", "testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			plan, units, err := readAny(t, content, name)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(units); got != want && !(strings.Contains(name, "p") && strings.Contains(got, want)) {
				t.Errorf("%+v\n%s", plan, got)
			}
			for _, r := range plan.Ranges {
				if r.Shard == "" {
					t.Errorf("range %s would be converted again", r.Range)
				}
			}
		})
	}
}

// scripts/fuzz.sh runs the targets of the packages below parser for a minute
// each: every format has one there.
func TestEveryFormatIsFuzzed(t *testing.T) {
	for _, f := range All(DefaultConfig) {
		pkg := reflect.Indirect(reflect.ValueOf(f)).Type().PkgPath() // sheaf/parser/docx
		if path.Dir(pkg) != "sheaf/parser" {
			t.Errorf("format %s lives in %s, which scripts/fuzz.sh does not take for one of a format", f.ID(), pkg)
		}
		tests, err := filepath.Glob(filepath.Join("..", path.Base(pkg), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		fuzzed := false
		for _, name := range tests {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			fuzzed = fuzzed || strings.Contains(string(b), "\nfunc Fuzz")
		}
		if !fuzzed {
			t.Errorf("format %s has no fuzz target in %s", f.ID(), pkg)
		}
	}
}

func TestMethodsTakeTheirTypes(t *testing.T) {
	for mediaType, want := range map[string]string{
		"application/pdf": "general naive one qa paper book laws manual presentation resume",
		"text/csv":        "general naive one qa table tag",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet":         "general naive one qa table tag",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document":   "general naive one qa book laws manual resume",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation": "general naive one presentation",
		"message/rfc822":            "general naive one email",
		"image/png":                 "general naive one picture",
		"audio/mpeg":                "general naive one audio",
		"text/markdown":             "general naive one qa book laws manual resume",
		"text/plain; charset=utf-8": "general naive one qa book laws manual resume",
		"text/x-go":                 "general naive one",
		"text/x-of-no-format":       "general naive one",
		"application/epub+zip":      "general naive one book",
	} {
		var got []string
		kind, _ := known.TypeOf(mediaType)
		for _, m := range settings.MethodsFor(kind.Families) {
			if !slices.Contains([]string{"semantic", "hierarchical", "late", "code"}, m) {
				got = append(got, m)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", mediaType, got, want)
		}
	}
	if err := known.Check(sheaf.ParseConfig{ChunkMethod: sheaf.Set("picture")}, "application/pdf"); err == nil || !strings.Contains(err.Error(), "paper") {
		t.Errorf("the error does not name what is possible: %v", err)
	}
}
