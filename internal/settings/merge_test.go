package settings

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sheaf"
)

// sample is a value of each setting, as JSON: one that counts, and the zero.
// A setting that takes no zero refuses it.
func sample(t *testing.T, name string) (some, zero string, refused bool) {
	t.Helper()
	i := slices.IndexFunc(Table, func(s Setting) bool { return s.Name == name })
	s := Table[i]
	field := reflect.TypeFor[sheaf.ParseConfig]().Field(slices.Index(fields, name))
	switch field.Type {
	case reflect.TypeFor[sheaf.Opt[int]]():
		return fmt.Sprint(max(s.Max/2, s.Min)), "0", s.Min > 0
	case reflect.TypeFor[sheaf.Opt[bool]]():
		return "true", "false", false
	case reflect.TypeFor[sheaf.Opt[[]sheaf.Range]]():
		return "[[2,3]]", "[]", false
	case reflect.TypeFor[sheaf.Opt[[]string]]():
		return `["0123456789abcdef0123456789abcdef"]`, "[]", false
	case reflect.TypeFor[sheaf.Opt[string]]():
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

func config(t *testing.T, format string, args ...any) sheaf.ParseConfig {
	t.Helper()
	var c sheaf.ParseConfig
	if err := json.Unmarshal(fmt.Appendf(nil, format, args...), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func written(t *testing.T, c sheaf.ParseConfig) string {
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
	for _, set := range Table {
		t.Run(set.Name, func(t *testing.T) {
			some, zero, refused := sample(t, set.Name)
			key := func(value string) string { return fmt.Sprintf(`{"%s":%s}`, set.Name, value) }
			dataset := config(t, "%s", key(some))
			if err := Check(config(t, "%s", key(zero))); refused != (err != nil) {
				t.Errorf("%s: %v", key(zero), err)
			} else if refused && (!strings.Contains(err.Error(), set.Name) || !strings.Contains(err.Error(), "null")) {
				t.Errorf("%s is refused without a cure: %v", key(zero), err)
			}
			for upload, want := range map[string]string{"{}": some, key("null"): some, "null": some, key(zero): zero} {
				merged := Merge(config(t, "%s", upload), dataset)
				if got := written(t, merged); got != key(want) {
					t.Errorf("%s over the dataset's %s: %s", upload, key(some), got)
				}
				// A re-parse over what was stored of it; null asks the dataset of today.
				stored := config(t, "%s", written(t, merged))
				today := config(t, "%s", key(some))
				for again, then := range map[string]string{"{}": want, key(zero): zero, key(some): some, key("null"): some, "null": some} {
					if got := written(t, Patch(config(t, "%s", again), stored, today)); got != key(then) {
						t.Errorf("%s again over %s: %s", again, written(t, stored), got)
					}
				}
				if got := written(t, Patch(config(t, "%s", key("null")), stored, sheaf.ParseConfig{})); got != "{}" {
					t.Errorf("null over %s, and a dataset that says nothing: %s", written(t, stored), got)
				}
			}
			if refused {
				return
			}
			// What is made with is the zero, and neither default stands in for it.
			for _, method := range MethodNames() {
				c := config(t, "%s", key(zero))
				c.ChunkMethod = sheaf.Set(method)
				if v, ok := Value(WithDefaults(c), set.Name); !ok || !strings.Contains(written(t, WithDefaults(c)), fmt.Sprintf(`"%s":%s`, set.Name, zero)) {
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
	want := sheaf.ParseConfig{ChunkMethod: sheaf.Set("paper"), ChunkTokenNum: sheaf.Set(256), TOCExtraction: sheaf.Set(false), Pages: sheaf.Set([]sheaf.Range{{From: 1, To: 2}})}
	if !reflect.DeepEqual(old, want) {
		t.Errorf("%+v, want %+v", old, want)
	}
	if later := config(t, `{"a_new_setting":{"x":[1]},"chunk_token_num":64}`); later.ChunkTokenNum.V != 64 {
		t.Errorf("beside an unknown setting: %+v", later)
	}
	if got := Unknown([]byte(`{"pages":[[1,2]],"a_new_setting":{},"z":1}`)); got != "a_new_setting" {
		t.Errorf("the unknown setting is %q", got)
	}
	if got := Unknown([]byte(`{"pages":null,"delimiter":"{\"x\":1}"}`)); got != "" {
		t.Errorf("%q is called unknown", got)
	}
}

func TestSettingsOfTheWrongTypeAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"chunk_token_num":"64"}`: "chunk_token_num is a JSON string; give a whole number", `{"html4excel":1}`: "html4excel is a JSON number; give true or false",
		`{"tag_kb_ids":"a"}`: "tag_kb_ids is a JSON string; give a list", `[]`: "it is a JSON array; give an object of settings",
	} {
		var c sheaf.ParseConfig
		if err := Decode([]byte(text), &c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
