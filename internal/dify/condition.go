package dify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nameKey is the key of a document's name in conditions and answers.
const nameKey = "document_name"

// condition restricts the metadata of a passage's document.
type condition struct {
	Logic      string       `json:"logical_operator"`
	Conditions []comparison `json:"conditions"`
}

type comparison struct {
	Name     names           `json:"name"`
	Operator string          `json:"comparison_operator"`
	Value    json.RawMessage `json:"value"`
}

// names are one or more metadata keys, one of which must match.
type names []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *names) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*n = names{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(n))
}

// lookup returns a value of a document's metadata.
type lookup func(name string) (string, bool)

// operators compare a document's value with the given ones.
var operators = map[string]func(value string, given []string) bool{
	"contains":     func(v string, g []string) bool { return strings.Contains(fold(v), fold(g[0])) },
	"not contains": func(v string, g []string) bool { return !strings.Contains(fold(v), fold(g[0])) },
	"start with":   func(v string, g []string) bool { return strings.HasPrefix(fold(v), fold(g[0])) },
	"end with":     func(v string, g []string) bool { return strings.HasSuffix(fold(v), fold(g[0])) },
	"is":           func(v string, g []string) bool { return v == g[0] },
	"is not":       func(v string, g []string) bool { return v != g[0] },
	"in":           func(v string, g []string) bool { return slices.Contains(g, v) },
	"not in":       func(v string, g []string) bool { return !slices.Contains(g, v) },
	"empty":        func(v string, _ []string) bool { return v == "" },
	"not empty":    func(v string, _ []string) bool { return v != "" },
	"=":            numbers(func(c int) bool { return c == 0 }),
	"≠":            numbers(func(c int) bool { return c != 0 }),
	">":            numbers(func(c int) bool { return c > 0 }),
	"<":            numbers(func(c int) bool { return c < 0 }),
	"≥":            numbers(func(c int) bool { return c >= 0 }),
	"≤":            numbers(func(c int) bool { return c <= 0 }),
	"before":       times(func(c int) bool { return c < 0 }),
	"after":        times(func(c int) bool { return c > 0 }),
}

// missing are the operators that a document without the value satisfies.
var missing = []string{"not contains", "is not", "not in", "empty", "≠"}

func fold(s string) string { return strings.ToLower(s) }

// numbers compares as numbers if both are, otherwise as text.
func numbers(holds func(int) bool) func(string, []string) bool {
	return func(value string, given []string) bool {
		a, errA := strconv.ParseFloat(strings.TrimSpace(value), 64)
		b, errB := strconv.ParseFloat(strings.TrimSpace(given[0]), 64)
		if errA != nil || errB != nil {
			return holds(cmp.Compare(value, given[0]))
		}
		return holds(cmp.Compare(a, b))
	}
}

// times compares points in time; anything else satisfies no comparison.
func times(holds func(int) bool) func(string, []string) bool {
	return func(value string, given []string) bool {
		a, okA := timeOf(value)
		b, okB := timeOf(given[0])
		return okA && okB && holds(a.Compare(b))
	}
}

// timeOf parses RFC 3339, a date, a date with a time, or Unix seconds.
func timeOf(s string) (time.Time, bool) {
	s = strings.TrimSpace(s)
	for _, layout := range []string{time.RFC3339, time.DateOnly, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	seconds, err := strconv.ParseFloat(s, 64)
	return time.Unix(int64(seconds), 0), err == nil
}

// given reads a comparison's value: a text, a number, or a list of them, which may
// be comma-separated text.
func (c comparison) given() ([]string, error) {
	var v any
	if len(c.Value) > 0 {
		if err := json.Unmarshal(c.Value, &v); err != nil {
			return nil, err
		}
	}
	texts := func(v any) string {
		if f, ok := v.(float64); ok {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return fmt.Sprint(v)
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []any:
		out := []string{}
		for _, one := range v {
			out = append(out, texts(one))
		}
		return out, nil
	case string:
		if c.Operator == "in" || c.Operator == "not in" {
			parts := strings.Split(v, ",")
			for i := range parts {
				parts[i] = strings.TrimSpace(parts[i])
			}
			return parts, nil
		}
	case map[string]any:
		return nil, invalid("the value of the condition on %s is an object; give a text, a number or a list", strings.Join(c.Name, ", "))
	}
	return []string{texts(v)}, nil
}

// compile turns a condition into a predicate; nil matches everything.
func (c *condition) compile() (func(lookup) bool, error) {
	if c == nil || len(c.Conditions) == 0 {
		return nil, nil
	}
	if len(c.Conditions) > maxConditions {
		return nil, invalid("%d conditions are given; give at most %d", len(c.Conditions), maxConditions)
	}
	if c.Logic != "" && c.Logic != "and" && c.Logic != "or" {
		return nil, invalid("logical_operator cannot be %q; give and, or or", c.Logic)
	}
	var tests []func(lookup) bool
	for _, one := range c.Conditions {
		holds, ok := operators[one.Operator]
		if !ok {
			return nil, invalid("comparison_operator cannot be %q; give one of contains, not contains, start with, end with, is, is not, in, not in, empty, not empty, =, ≠, >, <, ≥, ≤, before, after", one.Operator)
		}
		given, err := one.given()
		if err != nil {
			return nil, err
		}
		if len(given) == 0 && one.Operator != "empty" && one.Operator != "not empty" {
			if one.Operator != "in" && one.Operator != "not in" {
				return nil, invalid("the condition %q on %s has no value; give one", one.Operator, strings.Join(one.Name, ", "))
			}
		}
		tests = append(tests, func(find lookup) bool {
			return slices.ContainsFunc(one.Name, func(name string) bool {
				value, ok := find(name)
				if !ok {
					return slices.Contains(missing, one.Operator)
				}
				return holds(value, given)
			})
		})
	}
	return func(find lookup) bool {
		for _, test := range tests {
			if test(find) == (c.Logic == "or") {
				return c.Logic == "or"
			}
		}
		return c.Logic != "or"
	}, nil
}

// equal returns the comparisons that the search itself supports: "is" comparisons
// that must all hold.
func (c *condition) equal() map[string]string {
	var out map[string]string
	for _, one := range c.Conditions {
		if c.Logic == "or" || one.Operator != "is" || len(one.Name) != 1 || one.Name[0] == nameKey {
			continue
		}
		if given, err := one.given(); err == nil && len(given) == 1 {
			if out == nil {
				out = map[string]string{}
			}
			out[one.Name[0]] = given[0]
		}
	}
	return out
}
