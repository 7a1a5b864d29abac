package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// FieldsInput selects properties of list items.
type FieldsInput struct {
	Fields []string `query:"fields" maxItems:"50" doc:"only these properties of each item, separated by commas, such as id,name,state"`
}

// Resolve rejects properties that the items do not have.
func (f *FieldsInput) Resolve(ctx huma.Context) []error {
	if len(f.Fields) == 0 {
		return nil
	}
	op := ctx.Operation()
	reg, _ := op.Metadata[metaSchemas].(huma.Registry)
	var known []string
	if answer := op.Responses["200"]; answer != nil && answer.Content["application/json"] != nil {
		if list := resolved(answer.Content["application/json"].Schema, reg); list != nil && list.Properties["items"] != nil {
			known = propertiesOf(resolved(list.Properties["items"].Items, reg), reg)
		}
	}
	for _, name := range f.Fields {
		if !slices.Contains(known, name) {
			return []error{&huma.ErrorDetail{Location: "query.fields", Value: name, Message: fmt.Sprintf("the items have no property %s; %s", quoted(name), didYouMean(name, known))}}
		}
	}
	return nil
}

// only returns the list with only those properties of its items.
func (l List[T]) only(fields []string) (any, error) {
	out := List[json.RawMessage]{Items: make([]json.RawMessage, len(l.Items)), NextCursor: l.NextCursor}
	for i := range l.Items {
		b, err := json.Marshal(l.Items[i])
		if err != nil {
			return nil, err
		}
		out.Items[i] = keep(b, fields)
	}
	return out, nil
}

// keep returns an object with only the named properties, in their original order.
// The input must be compact, as json.Marshal writes it: decoding a list of a
// thousand again would dominate its cost.
func keep(object []byte, names []string) []byte {
	out := make([]byte, 1, len(object))
	out[0] = '{'
	for rest := object[1:]; len(rest) > 1; {
		name := valueEnd(rest)
		end := name + 1 + valueEnd(rest[name+1:])
		if slices.Contains(names, string(rest[1:name-1])) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, rest[:end]...)
		}
		rest = rest[end+1:]
	}
	return append(out, '}')
}

// valueEnd returns the end of the JSON value at the start of b.
func valueEnd(b []byte) int {
	depth, text := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ':' || c == '}' || c == ']'):
			return i
		case c == '}' || c == ']':
			depth--
		}
	}
	return len(b)
}

// chooseFields is the last transform of a response.
func chooseFields(ctx huma.Context, _ string, v any) (any, error) {
	list, ok := v.(interface {
		only(fields []string) (any, error)
	})
	if !ok {
		return v, nil
	}
	u := ctx.URL()
	fields := u.Query()["fields"]
	if len(fields) == 0 {
		return v, nil
	}
	return list.only(strings.Split(strings.Join(fields, ","), ","))
}
