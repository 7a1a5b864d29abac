package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"sheaf"
)

// opt is the type of all fields of sheaf.ParseConfig.
type opt interface {
	Any() any
	IsSet() bool
	IsNull() bool
}

// fields are the JSON names of the fields of sheaf.ParseConfig, in order.
var fields = func() (names []string) {
	for f := range reflect.TypeFor[sheaf.ParseConfig]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// field is the index of a setting, or -1 if unknown. Like encoding/json it ignores
// case.
func field(name string) int {
	for i, f := range fields {
		if strings.EqualFold(f, name) {
			return i
		}
	}
	return -1
}

// fieldOf returns a field in place: a copy of the settings for each takes longer than
// all else that is done with them.
func fieldOf(c *sheaf.ParseConfig, i int) (reflect.Value, opt) {
	v := reflect.ValueOf(c).Elem().Field(i)
	return v, v.Addr().Interface().(opt)
}

// Value returns the value of a setting in c, by its JSON name: an int, string,
// bool, []string or []sheaf.Range. ok is false if c does not set it.
func Value(c sheaf.ParseConfig, name string) (value any, ok bool) { return valueOf(&c, name) }

func valueOf(c *sheaf.ParseConfig, name string) (value any, ok bool) {
	i := field(name)
	if i < 0 {
		return nil, false
	}
	_, o := fieldOf(c, i)
	return o.Any(), o.IsSet()
}

// Empty reports whether c sets nothing, not even to null.
func Empty(c sheaf.ParseConfig) bool { return reflect.ValueOf(c).IsZero() }

// Merge returns c with unset fields filled in from base.
func Merge(c, base sheaf.ParseConfig) sheaf.ParseConfig { return Patch(c, base, base) }

// Patch returns old overridden by c. A null in c resets the setting to that of
// below. No setting of the result is null.
func Patch(c, old, below sheaf.ParseConfig) sheaf.ParseConfig {
	var out sheaf.ParseConfig
	to := reflect.ValueOf(&out).Elem()
	for i := range fields {
		v, o := fieldOf(&c, i)
		if o.IsNull() {
			v, o = fieldOf(&below, i)
		} else if !o.IsSet() {
			v, o = fieldOf(&old, i)
		}
		if o.IsSet() {
			to.Field(i).Set(v)
		}
	}
	return out
}

// WithDefaults fills in unset fields from the chunk method's defaults, then from
// Default.
func WithDefaults(c sheaf.ParseConfig) sheaf.ParseConfig {
	if m, ok := MethodByName(c.ChunkMethod.V); ok {
		c = Merge(c, m.Defaults)
	}
	return Merge(c, Default)
}

// Decode decodes parser_config JSON into c, like its UnmarshalJSON. The error names
// the setting with a value of the wrong type.
func Decode(b []byte, c *sheaf.ParseConfig) error {
	err := json.Unmarshal(b, c)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	takes := map[reflect.Kind]string{
		reflect.Int: "a whole number", reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Struct: "an object of settings", reflect.Map: "an object",
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

// Unknown returns the first key of a parser_config in JSON that is not a setting,
// or "" if there is none or b is not an object.
func Unknown(b []byte) string {
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
		if field(name) < 0 {
			return name
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}
