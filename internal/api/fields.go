package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// FieldsInput chooses properties of the items of a list.
type FieldsInput struct {
	Fields []string `query:"fields" maxItems:"50" doc:"only these properties of each item, separated by commas, such as id,name,state"`
}

// Resolve refuses properties that the items do not have.
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

// only is the list with those properties of its items alone.
func (l List[T]) only(fields []string) (any, error) {
	out := List[map[string]json.RawMessage]{Items: make([]map[string]json.RawMessage, len(l.Items)), NextCursor: l.NextCursor}
	for i := range l.Items {
		b, err := json.Marshal(l.Items[i])
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &out.Items[i]); err != nil {
			return nil, err
		}
		for name := range out.Items[i] {
			if !slices.Contains(fields, name) {
				delete(out.Items[i], name)
			}
		}
	}
	return out, nil
}

// chooseFields is the last step of an answer.
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
