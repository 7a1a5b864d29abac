package ragflow

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxConditions bounds a request.
const maxConditions = 100

// comparison is one test of a document's metadata.
type comparison struct {
	name, operator string
	values         []string
}

// condition matches documents by their metadata; nil matches all.
type condition struct {
	any   bool // one matching test is enough
	tests []comparison
	also  *condition
}

func (c *condition) and(more *condition) *condition {
	if c == nil || more == nil {
		if c == nil {
			return more
		}
		return c
	}
	more.also = c
	return more
}

// operators compare a value of a document with the given ones.
var operators = map[string]func(value string, given []string) bool{
	"is":           func(v string, given []string) bool { return equal(v, given[0]) },
	"not is":       func(v string, given []string) bool { return !equal(v, given[0]) },
	"=":            func(v string, given []string) bool { return equal(v, given[0]) },
	"≠":            func(v string, given []string) bool { return !equal(v, given[0]) },
	"contains":     func(v string, given []string) bool { return strings.Contains(fold(v), fold(given[0])) },
	"not contains": func(v string, given []string) bool { return !strings.Contains(fold(v), fold(given[0])) },
	"in":           func(v string, given []string) bool { return in(v, given) },
	"not in":       func(v string, given []string) bool { return !in(v, given) },
	"start with":   func(v string, given []string) bool { return strings.HasPrefix(fold(v), fold(given[0])) },
	"end with":     func(v string, given []string) bool { return strings.HasSuffix(fold(v), fold(given[0])) },
	">":            func(v string, given []string) bool { return compare(v, given[0]) > 0 },
	"<":            func(v string, given []string) bool { return compare(v, given[0]) < 0 },
	"≥":            func(v string, given []string) bool { return compare(v, given[0]) >= 0 },
	"≤":            func(v string, given []string) bool { return compare(v, given[0]) <= 0 },
	"empty":        func(v string, _ []string) bool { return v == "" },
	"not empty":    func(v string, _ []string) bool { return v != "" },
}

// spellings are alternative names of operators.
var spellings = map[string]string{"==": "=", "!=": "≠", ">=": "≥", "<=": "≤", "is not": "not is"}

// negative are the operators that must hold for every value, and hold without any.
var negative = []string{"not is", "≠", "not contains", "not in", "empty"}

func fold(s string) string   { return strings.ToLower(s) }
func equal(a, b string) bool { return compare(a, b) == 0 }
func in(v string, given []string) bool {
	return slices.ContainsFunc(given, func(g string) bool { return equal(v, g) })
}

// compare compares as numbers if both are, otherwise as text, ignoring case.
func compare(a, b string) int {
	x, errX := strconv.ParseFloat(strings.TrimSpace(a), 64)
	y, errY := strconv.ParseFloat(strings.TrimSpace(b), 64)
	if errX == nil && errY == nil {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(fold(a), fold(b))
}

// values returns the values of a document's metadata or a comparison as strings.
func values(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		out := []string{}
		for _, one := range v {
			out = append(out, values(one)...)
		}
		return out
	case float64:
		return []string{strconv.FormatFloat(v, 'f', -1, 64)}
	case json.Number:
		return []string{v.String()}
	}
	return []string{pyText(v)}
}

// readCondition reads {"logic", "conditions": [{"name", "comparison_operator", "value"}]}.
func readCondition(m object) (*condition, error) {
	out := &condition{any: m["logic"] == "or"}
	list, ok := m["conditions"].([]any)
	if !ok && m["conditions"] != nil {
		return nil, bad("metadata_condition.conditions must be a list.")
	}
	if len(list) > maxConditions {
		return nil, bad("metadata_condition holds %d conditions; give at most %d.", len(list), maxConditions)
	}
	for _, one := range list {
		m, _ := one.(object)
		name, _ := cmp.Or(m["name"], m["key"]).(string)
		operator, _ := cmp.Or(m["comparison_operator"], m["op"]).(string)
		operator = cmp.Or(spellings[operator], operator)
		if name == "" || operators[operator] == nil {
			return nil, bad("metadata_condition: %s has no name, or an operator that there is not; the operators are is, not is, =, ≠, contains, not contains, in, not in, start with, end with, >, <, ≥, ≤, empty and not empty.", pyRepr(one))
		}
		given := values(m["value"])
		if text, ok := m["value"].(string); ok && strings.HasSuffix(operator, "in") && operator != "contains" {
			given = listed([]string{text})
		}
		if len(given) == 0 && !strings.HasSuffix(operator, "empty") && !strings.HasSuffix(operator, "in") {
			return nil, bad("metadata_condition: the condition on %s has no value.", name)
		}
		out.tests = append(out.tests, comparison{name, operator, given})
	}
	return out, nil
}

// conditionOf requires documents to have one of the given values for each key.
func conditionOf(m object) object {
	var list []any
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, object{"name": key, "comparison_operator": "in", "value": m[key]})
	}
	return object{"conditions": list}
}

func (c *condition) holds(d *document) bool {
	if c == nil {
		return true
	}
	if !c.also.holds(d) {
		return false
	}
	for _, test := range c.tests {
		if test.holds(d) == c.any {
			return c.any
		}
	}
	return !c.any || len(c.tests) == 0
}

func (t comparison) holds(d *document) bool {
	found := values(d.record.Meta[t.name])
	if d.record.Meta[t.name] == nil {
		if v, ok := d.Metadata[t.name]; ok {
			found = []string{v}
		}
	}
	holds := func(v string) bool { return operators[t.operator](v, t.values) }
	if slices.Contains(negative, t.operator) {
		return !slices.ContainsFunc(found, func(v string) bool { return !holds(v) })
	}
	return slices.ContainsFunc(found, holds)
}
