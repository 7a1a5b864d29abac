package ragflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// faults collects what is wrong with the fields of a request, in the order in which
// they are checked.
type faults struct{ lines []string }

// Values in errors longer than maxShown are truncated to shownRunes.
const (
	maxShown   = 128
	shownRunes = 125
)

func (f *faults) add(field, message string, value any) {
	f.lines = append(f.lines, fault(field, message, value))
}

func fault(field, message string, value any) string {
	text := pyText(value)
	if r := []rune(text); len(r) > maxShown {
		text = string(r[:shownRunes]) + "..."
	}
	return fmt.Sprintf("Field: <%s> - Message: <%s> - Value: <%s>", field, message, text)
}

// err returns nil if nothing is wrong.
func (f *faults) err(code int) error {
	if len(f.lines) == 0 {
		return nil
	}
	return refuse(code, "%s", strings.Join(f.lines, "\n"))
}

// extras rejects unknown keys.
func (f *faults) extras(path string, in map[string]any, known ...string) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if !slices.Contains(known, key) {
			f.add(path+key, "Extra inputs are not permitted", in[key])
		}
	}
}

// pyText formats a value like Python's str.
func pyText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return pyRepr(v)
}

// pyRepr formats a value like Python's repr; members of objects by name.
func pyRepr(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		quote := `'`
		if strings.Contains(v, `'`) && !strings.Contains(v, `"`) {
			quote = `"`
		}
		r := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, quote, `\`+quote)
		return quote + r.Replace(v) + quote
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = pyRepr(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []string:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = pyRepr(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, pyRepr(key)+": "+pyRepr(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}

func pyType(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case []any:
		return "list"
	case map[string]any:
		return "dict"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "float"
		}
		return "int"
	}
	return "object"
}

// empty reports whether a value is false in Python.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	}
	return false
}

// choice is the message for a value that is not one of several.
func choice(of []string) string {
	quoted := make([]string, len(of))
	for i, s := range of {
		quoted[i] = "'" + s + "'"
	}
	last := len(quoted) - 1
	return "Input should be " + strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// str reads a string of least to most characters; most 0 is unlimited.
func (f *faults) str(field string, v any, least, most int) (string, bool) {
	s, ok := v.(string)
	switch n := utf8.RuneCountInString(s); {
	case !ok:
		f.add(field, "Input should be a valid string", v)
	case n < least:
		f.add(field, "String should have at least "+counted(least), v)
	case most > 0 && n > most:
		f.add(field, "String should have at most "+counted(most), v)
	default:
		return s, true
	}
	return "", false
}

func counted(n int) string {
	if n == 1 {
		return "1 character"
	}
	return strconv.Itoa(n) + " characters"
}

// integer reads an integer; fractions, strings and booleans are not integers.
func integer(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(n.String())
	return i, err == nil
}

// integer reads an integer from least to most.
func (f *faults) integer(field string, v any, least, most int) (int, bool) {
	n, ok := integer(v)
	switch {
	case !ok:
		f.add(field, "Input should be a valid integer", v)
	case n < least:
		f.add(field, fmt.Sprintf("Input should be greater than or equal to %d", least), v)
	case n > most:
		f.add(field, fmt.Sprintf("Input should be less than or equal to %d", most), v)
	default:
		return n, true
	}
	return 0, false
}

// number reads a number from least to most.
func (f *faults) number(field string, v any, least, most float64) {
	n, ok := v.(json.Number)
	value := math.NaN()
	if ok {
		value, _ = n.Float64()
	}
	switch {
	case !ok:
		f.add(field, "Input should be a valid number", v)
	case value < least:
		f.add(field, fmt.Sprintf("Input should be greater than or equal to %v", least), v)
	case value > most:
		f.add(field, fmt.Sprintf("Input should be less than or equal to %v", most), v)
	}
}

func (f *faults) boolean(field string, v any) (bool, bool) {
	b, ok := v.(bool)
	if !ok {
		f.add(field, "Input should be a valid boolean", v)
	}
	return b, ok
}

func (f *faults) object(field string, v any) (map[string]any, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		f.add(field, "Input should be a valid dictionary", v)
	}
	return m, ok
}

// strings reads a list of strings.
func (f *faults) strings(field string, v any) (out []string, ok bool) {
	list, ok := v.([]any)
	if !ok {
		f.add(field, "Input should be a valid list", v)
		return nil, false
	}
	out = []string{}
	for i, one := range list {
		s, text := one.(string)
		if !text {
			f.add(fmt.Sprintf("%s.%d", field, i), "Input should be a valid string", one)
			ok = false
		}
		out = append(out, s)
	}
	return out, ok
}

// among rejects anything but one of the values.
func (f *faults) among(field string, v any, values []string) (string, bool) {
	s, ok := v.(string)
	if !ok || !slices.Contains(values, s) {
		f.add(field, choice(values), v)
		return "", false
	}
	return s, true
}

// invalidID is the message for an id that is not a UUID.
const invalidID = "Invalid UUID format"

// idOf converts a UUID in any notation to the 32 hex characters of an id.
func idOf(s string) (string, bool) {
	t := strings.ToLower(strings.TrimSpace(s))
	t = strings.TrimPrefix(t, "urn:uuid:")
	t = strings.TrimSuffix(strings.TrimPrefix(t, "{"), "}")
	t = strings.ReplaceAll(t, "-", "")
	if len(t) != 32 || strings.Trim(t, "0123456789abcdef") != "" {
		return "", false
	}
	return t, true
}

// ids reads the ids in a strict body; none for null.
func (f *faults) ids(field string, v any) []string {
	if v == nil {
		return nil
	}
	list, ok := f.strings(field, v)
	if !ok {
		return nil
	}
	for i, s := range list {
		if list[i], ok = idOf(s); !ok {
			f.add(field, invalidID, s)
			return nil
		}
	}
	once, repeated := unique(list)
	if len(repeated) > 0 {
		f.add(field, fmt.Sprintf("Duplicate ids: '%s'", strings.Join(repeated, ", ")), v)
	}
	return once
}

// queryInt reads a whole number in a query; want if absent.
func (f *faults) queryInt(field, s string, given bool, want, least, most int) int {
	if !given {
		return want
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	switch {
	case err != nil:
		f.add(field, "Input should be a valid integer, unable to parse string as an integer", s)
	case n < least:
		f.add(field, fmt.Sprintf("Input should be greater than or equal to %d", least), s)
	case n > most:
		f.add(field, fmt.Sprintf("Input should be less than or equal to %d", most), s)
	default:
		return n
	}
	return want
}

// queryBool reads a boolean in a query; want if absent.
func (f *faults) queryBool(field, s string, given, want bool) bool {
	switch strings.ToLower(s) {
	case "true", "1", "yes", "y", "t", "on":
		return true
	case "false", "0", "no", "n", "f", "off":
		return false
	}
	if given {
		f.add(field, "Input should be a valid boolean, unable to interpret input", s)
	}
	return want
}

// positive reads a positive number; want for anything else.
func positive(s string, want int) int {
	if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil && n > 0 {
		return n
	}
	return want
}
