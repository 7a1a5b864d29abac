package sheaf

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sample is a value of each setting, as JSON: one that counts, and the zero.
// A setting that takes no zero refuses it.
func sample(t *testing.T, name string) (some, zero string, refused bool) {
	t.Helper()
	i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
	s := Settings[i]
	field := reflect.TypeFor[ParseConfig]().Field(slices.Index(settingFields, name))
	switch field.Type.Kind() {
	case reflect.Int:
		return fmt.Sprint(max(s.Max/2, s.Min)), "0", s.Min > 0
	case reflect.Pointer:
		return "true", "false", false
	case reflect.Slice:
		if name == "pages" {
			return "[[2,3]]", "[]", false
		}
		return `["0123456789abcdef0123456789abcdef"]`, "[]", false
	case reflect.String:
		switch name {
		case "chunk_method":
			return `"book"`, `""`, true
		case "pii":
			return `"find"`, `""`, false
		}
		return `"text/csv"`, `""`, false
	}
	t.Fatalf("the test has no value of %s, a %s", name, field.Type)
	return "", "", false
}

func config(t *testing.T, format string, args ...any) ParseConfig {
	t.Helper()
	var c ParseConfig
	if err := json.Unmarshal(fmt.Appendf(nil, format, args...), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func written(t *testing.T, c ParseConfig) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What a layer says of a setting counts, zero included; null and silence leave
// it to the layer below, and each layer is stored and read back as it is.
func TestEverySettingGoesBackToZeroInEveryLayer(t *testing.T) {
	for _, set := range Settings {
		t.Run(set.Name, func(t *testing.T) {
			some, zero, refused := sample(t, set.Name)
			key := func(value string) string { return fmt.Sprintf(`{"%s":%s}`, set.Name, value) }
			dataset := config(t, "%s", key(some))
			if err := config(t, "%s", key(zero)).Check(); refused != (err != nil) {
				t.Errorf("%s: %v", key(zero), err)
			} else if refused && (!strings.Contains(err.Error(), set.Name) || !strings.Contains(err.Error(), "null")) {
				t.Errorf("%s is refused without a cure: %v", key(zero), err)
			}
			for upload, want := range map[string]string{"{}": some, key("null"): some, "null": some, key(zero): zero} {
				merged := config(t, "%s", upload).Merge(dataset)
				if got := written(t, merged); got != key(want) {
					t.Errorf("%s over the dataset's %s: %s", upload, key(some), got)
				}
				// A re-parse over what was stored of it; null asks the dataset of today.
				stored := config(t, "%s", written(t, merged))
				today := config(t, "%s", key(some))
				for again, then := range map[string]string{"{}": want, key(zero): zero, key(some): some, key("null"): some, "null": some} {
					if got := written(t, config(t, "%s", again).Patch(stored, today)); got != key(then) {
						t.Errorf("%s again over %s: %s", again, written(t, stored), got)
					}
				}
				if got := written(t, config(t, "%s", key("null")).Patch(stored, ParseConfig{})); got != "{}" {
					t.Errorf("null over %s, and a dataset that says nothing: %s", written(t, stored), got)
				}
			}
			if refused {
				return
			}
			// What is made with is the zero, and neither default stands in for it.
			for _, method := range ChunkMethodNames() {
				c := config(t, "%s", key(zero))
				c.ChunkMethod = method
				if v, ok := c.WithDefaults().Value(set.Name); !ok || !strings.Contains(written(t, c.WithDefaults()), fmt.Sprintf(`"%s":%s`, set.Name, zero)) {
					t.Errorf("%s with method %s became %v", key(zero), method, v)
				}
			}
		})
	}
}

func TestSettingsAreReadIntoWhatIsThere(t *testing.T) {
	c := config(t, `{"chunk_token_num":64,"tag_kb_ids":["a"],"html4excel":true,"auto_keywords":0,"pii":null}`)
	first := c // as the files before a second field have it
	if err := json.Unmarshal([]byte(`{"tag_kb_ids":["b"],"html4excel":false,"auto_keywords":3,"pii":"find","delimiter":""}`), &c); err != nil {
		t.Fatal(err)
	}
	if got, want := written(t, c), `{"chunk_token_num":64,"delimiter":"","html4excel":false,"auto_keywords":3,"pii":"find","tag_kb_ids":["b"]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := written(t, first), `{"chunk_token_num":64,"html4excel":true,"auto_keywords":0,"pii":null,"tag_kb_ids":["a"]}`; got != want {
		t.Errorf("what was read before became %s, want %s", got, want)
	}
	if err := json.Unmarshal([]byte(`{"auto_keywords":null,"PII":""}`), &c); err != nil {
		t.Fatal(err)
	}
	if got, want := written(t, c), `{"chunk_token_num":64,"delimiter":"","html4excel":false,"auto_keywords":null,"pii":"","tag_kb_ids":["b"]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Rows of earlier versions name no zeros, and those of later ones may name
// settings that are not known here.
func TestStoredSettingsOfOtherVersionsAreRead(t *testing.T) {
	old := config(t, `{"chunk_method":"paper","chunk_token_num":256,"toc_extraction":false,"pages":[[1,2]]}`)
	want := ParseConfig{ChunkMethod: "paper", ChunkTokenNum: 256, TOCExtraction: new(bool), Pages: []Range{{From: 1, To: 2}}}
	if !reflect.DeepEqual(old, want) {
		t.Errorf("%+v, want %+v", old, want)
	}
	if later := config(t, `{"a_new_setting":{"x":[1]},"chunk_token_num":64}`); later.ChunkTokenNum != 64 {
		t.Errorf("beside an unknown setting: %+v", later)
	}
	if got := UnknownSetting([]byte(`{"pages":[[1,2]],"a_new_setting":{},"z":1}`)); got != "a_new_setting" {
		t.Errorf("the unknown setting is %q", got)
	}
	if got := UnknownSetting([]byte(`{"pages":null,"delimiter":"{\"x\":1}"}`)); got != "" {
		t.Errorf("%q is called unknown", got)
	}
}

func TestSettingsOfTheWrongTypeAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"chunk_token_num":"64"}`: "chunk_token_num is a JSON string; give a whole number", `{"html4excel":1}`: "html4excel is a JSON number; give true or false",
		`{"tag_kb_ids":"a"}`: "tag_kb_ids is a JSON string; give a list", `[]`: "it is a JSON array; give an object of settings",
	} {
		var c ParseConfig
		if err := json.Unmarshal([]byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
