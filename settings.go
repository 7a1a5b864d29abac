package sheaf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// How parser_config is read, layered and written: a dataset's settings, an
// upload's over them, a re-parse's over those. What a layer sets counts, also
// where it is zero; only what was not set, or was set to null, is looked up
// below.

// fieldSet holds fields of ParseConfig, a bit each by their place in it.
type fieldSet uint32

func (s fieldSet) has(i int) bool { return s&(1<<i) != 0 }

func (s *fieldSet) put(i int, in bool) {
	*s &^= 1 << i
	if in {
		*s |= 1 << i
	}
}

// settingFields are the JSON names of the fields of ParseConfig, in order.
var settingFields = func() (names []string) {
	t := reflect.TypeFor[ParseConfig]()
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name) // exported fields come first
		}
	}
	return names
}()

// settingField is the place of a setting, -1 for an unknown one. Like
// encoding/json it overlooks the case.
func settingField(name string) int {
	for i, field := range settingFields {
		if strings.EqualFold(field, name) {
			return i
		}
	}
	return -1
}

// empty reports whether a field holds what it does when nothing sets it.
func empty(v reflect.Value) bool {
	if v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return v.IsZero()
}

// Value is what c sets a setting to, by its JSON name: an int, string, *bool,
// []string or []Range. ok is false where c does not set it.
func (c ParseConfig) Value(name string) (value any, ok bool) {
	i := settingField(name)
	if i < 0 {
		return nil, false
	}
	v := reflect.ValueOf(c).Field(i)
	if c.zeros.has(i) && v.Kind() == reflect.Slice && v.IsNil() {
		v = reflect.MakeSlice(v.Type(), 0, 0) // [] in JSON
	}
	return v.Interface(), c.zeros.has(i) || !empty(v)
}

// Silent reports whether c sets nothing, not even to null.
func (c ParseConfig) Silent() bool { return reflect.ValueOf(c).IsZero() }

// Merge returns c with what it does not set filled from base.
func (c ParseConfig) Merge(base ParseConfig) ParseConfig { return c.Patch(base, base) }

// Patch returns old with what c sets. What c sets to null becomes as below
// says. No setting of the result is null.
func (c ParseConfig) Patch(old, below ParseConfig) ParseConfig {
	var out ParseConfig
	to := reflect.ValueOf(&out).Elem()
	for i := range settingFields {
		from := old
		if c.nulls.has(i) {
			from = below
		}
		if c.zeros.has(i) || !empty(reflect.ValueOf(c).Field(i)) {
			from = c
		}
		v := reflect.ValueOf(from).Field(i)
		if empty(v) {
			out.zeros.put(i, from.zeros.has(i))
			continue
		}
		to.Field(i).Set(v)
	}
	return out
}

// WithDefaults fills what c does not set from its chunk method's defaults, then
// from DefaultParseConfig.
func (c ParseConfig) WithDefaults() ParseConfig {
	if m, ok := MethodByName(c.ChunkMethod); ok {
		c = c.Merge(m.Defaults)
	}
	return c.Merge(DefaultParseConfig)
}

// ReadsPictures reports whether the text in pictures shall be recognised.
func (c ParseConfig) ReadsPictures() bool { return c.OCRPictures != nil && *c.OCRPictures }

// plainConfig is ParseConfig without its methods.
type plainConfig ParseConfig

// UnmarshalJSON sets what the object names and leaves the rest as it is. A
// bare null sets every setting to null. Unknown keys are passed over, since a
// row may come from a newer version; see UnknownSetting.
func (c *ParseConfig) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*c = ParseConfig{nulls: 1<<len(settingFields) - 1}
		return nil
	}
	// Into a value of its own: lists and pointers of c may be shared.
	var values plainConfig
	if err := json.Unmarshal(b, &values); err != nil {
		return settingError(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(b, &keys); err != nil {
		return err
	}
	from, to := reflect.ValueOf(values), reflect.ValueOf(c).Elem()
	for name, raw := range keys {
		i := settingField(name)
		if i < 0 {
			continue
		}
		null := string(raw) == "null"
		c.nulls.put(i, null)
		c.zeros.put(i, !null && empty(from.Field(i)))
		to.Field(i).SetZero()
		if !empty(from.Field(i)) {
			to.Field(i).Set(from.Field(i))
		}
	}
	return nil
}

// settingError says in words which setting has a value of the wrong type.
func settingError(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	takes := map[reflect.Kind]string{
		reflect.Int: "a whole number", reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Struct: "an object of settings",
		reflect.Array: "a list of two numbers",
	}[wrong.Type.Kind()]
	if takes == "" {
		return err
	}
	if wrong.Field == "" {
		return fmt.Errorf("it is a JSON %s; give %s", wrong.Value, takes)
	}
	return fmt.Errorf("%s is a JSON %s; give %s, or null for what holds without it", wrong.Field, wrong.Value, takes)
}

// MarshalJSON writes what c sets, zeros and nulls included.
func (c ParseConfig) MarshalJSON() ([]byte, error) {
	if c.zeros|c.nulls == 0 {
		return json.Marshal(plainConfig(c))
	}
	var out bytes.Buffer
	out.WriteByte('{')
	for i, name := range settingFields {
		v, set := c.Value(name)
		if !set && !c.nulls.has(i) {
			continue
		}
		value := []byte("null")
		if set {
			var err error
			if value, err = json.Marshal(v); err != nil {
				return nil, err
			}
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, "%q:%s", name, value)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// UnknownSetting is the first key of a parser_config in JSON that is no
// setting, "" where there is none or b is no object.
func UnknownSetting(b []byte) string {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return ""
		}
		name, _ := t.(string)
		if settingField(name) < 0 {
			return name
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}
