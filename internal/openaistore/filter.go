package openaistore

import (
	"cmp"
	"slices"
)

// Bounds of a filter.
const (
	maxDepth   = 10
	maxFilters = 100 // in one "and" or "or"
	maxValues  = 1000
)

// filter compares an attribute with a value, or joins filters with "and" or "or".
type filter struct {
	Type    string    `json:"type"`
	Key     string    `json:"key"`
	Value   any       `json:"value"`
	Filters []*filter `json:"filters"`
}

// check rejects invalid filters. nil is no filter.
func (f *filter) check(depth int) error {
	const param = "filters"
	if f == nil {
		return nil
	}
	switch f.Type {
	case "and", "or":
		if depth == maxDepth || len(f.Filters) == 0 || len(f.Filters) > maxFilters {
			return invalid(param, "%q needs 1 to %d filters, and filters may lie %d deep", f.Type, maxFilters, maxDepth)
		}
		for _, one := range f.Filters {
			if one == nil {
				return invalid(param, "a filter of %q is null; leave it out", f.Type)
			}
			if err := one.check(depth + 1); err != nil {
				return err
			}
		}
		return nil
	case "eq", "ne", "gt", "gte", "lt", "lte", "in", "nin":
	default:
		return invalid(param, "the type of a filter cannot be %q; give eq, ne, gt, gte, lt, lte, in, nin, and, or", f.Type)
	}
	if f.Key == "" {
		return invalid(param, "a filter of type %s has no key; give the name of an attribute", f.Type)
	}
	values := []any{f.Value}
	if f.Type == "in" || f.Type == "nin" {
		var ok bool
		if values, ok = f.Value.([]any); !ok || len(values) > maxValues {
			return invalid(param, "the filter %s on %s needs a list of at most %d values", f.Type, f.Key, maxValues)
		}
	}
	for _, v := range values {
		switch v.(type) {
		case string, float64:
		case bool:
			if f.Type != "eq" && f.Type != "ne" && f.Type != "in" && f.Type != "nin" {
				return invalid(param, "the filter %s on %s compares the order of values, which true and false have not", f.Type, f.Key)
			}
		default:
			return invalid(param, "the filter %s on %s has a value that is neither a text, a number, true nor false", f.Type, f.Key)
		}
	}
	return nil
}

// holds reports whether attributes match a checked filter. A file without the
// attribute matches only ne and nin.
func (f *filter) holds(attributes map[string]any) bool {
	one := func(f *filter) bool { return f.holds(attributes) }
	value, there := attributes[f.Key]
	switch f.Type {
	case "and":
		return !slices.ContainsFunc(f.Filters, func(g *filter) bool { return !one(g) })
	case "or":
		return slices.ContainsFunc(f.Filters, one)
	case "eq":
		return there && value == f.Value
	case "ne":
		return !there || value != f.Value
	case "in", "nin":
		values, _ := f.Value.([]any)
		return (there && slices.Contains(values, value)) == (f.Type == "in")
	}
	order, ok := compare(value, f.Value)
	if !there || !ok {
		return false
	}
	switch f.Type {
	case "gt":
		return order > 0
	case "gte":
		return order >= 0
	case "lt":
		return order < 0
	}
	return order <= 0
}

// compare orders two numbers or two strings; ok is false for anything else.
func compare(a, b any) (order int, ok bool) {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return cmp.Compare(a, b), ok
	case string:
		b, ok := b.(string)
		return cmp.Compare(a, b), ok
	}
	return 0, false
}
