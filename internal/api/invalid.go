package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

func init() {
	// Errors from the framework look like all others: a code, the request id, and a
	// sentence that ends in what to do.
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return frameworkProblem(nil, nil, status, msg, errs)
	}
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		reg, _ := ctx.Operation().Metadata[metaSchemas].(huma.Registry)
		p := frameworkProblem(ctx.Operation(), reg, status, msg, errs)
		p.RequestID = requestID(ctx.Context())
		return p
	}
	huma.ValidateStrictCasing = true // otherwise "Filter" beside "filter" would be an undetected duplicate
}

// Keys of an operation's metadata.
const (
	metaSchemas = "schemas" // the huma.Registry of its schemas
	metaStream  = "stream"  // the liveSource of its event stream
)

func frameworkProblem(op *huma.Operation, reg huma.Registry, status int, msg string, errs []error) *Problem {
	switch {
	case msg == "request body is required":
		return newProblem(400, "", "the request needs a body; send JSON with Content-Type: application/json")
	case status == 408:
		return newProblem(408, "", "the body did not arrive in time; send the request again")
	case status == 413:
		return newProblem(413, "", fmt.Sprintf("the body is larger than %d bytes; split the request", op.MaxBodyBytes))
	case msg == "cannot read request body":
		return newProblem(400, "", "the request broke off; send it again")
	case status == 415 || strings.Contains(msg, "unknown content type"):
		return newProblem(415, "", "the body must be JSON; send it with Content-Type: application/json")
	case status >= 500:
		return newProblem(status, "", "something went wrong inside Sheaf; the log has the details under this request id")
	}
	var faults []ProblemDetail
	for _, err := range errs {
		d, ok := errors.AsType[*huma.ErrorDetail](err)
		switch {
		case ok && strings.Contains(d.Message, "unknown content type"):
			return newProblem(415, "", "the body must be JSON; send it with Content-Type: application/json")
		case ok:
			faults = append(faults, ProblemDetail{Location: d.Location, Message: explain(op, reg, d)})
		case err != nil:
			faults = append(faults, ProblemDetail{Message: err.Error()})
		}
	}
	if len(faults) == 0 {
		return newProblem(status, "", msg+"; compare the request with /docs")
	}
	return faulty(faults)
}

var rangeMessage = regexp.MustCompile(`^expected (number|length|array length) ([<>]=?) (\S+)$`)

// explain says what is wrong at one location of a request, and what is valid.
func explain(op *huma.Operation, reg huma.Registry, d *huma.ErrorDetail) string {
	where, path, _ := strings.Cut(d.Location, ".")
	what := "the property " + path
	if where != "body" {
		what = "the " + where + " parameter " + path
	}
	if path == "" {
		what = "the body"
	}
	at := schemaAt(op, reg, where, path)
	switch m := rangeMessage.FindStringSubmatch(d.Message); {
	case d.Message == "unexpected property":
		dir, name := cutLast(path)
		return unknownProperty(name, dir, propertiesOf(schemaAt(op, reg, where, dir), reg))
	case strings.HasPrefix(d.Message, "expected required property "):
		name := strings.TrimSuffix(strings.TrimPrefix(d.Message, "expected required property "), " to be present")
		if path != "" {
			name = path + "." + name
		}
		return fmt.Sprintf("the property %s is missing; give it", name)
	case strings.HasPrefix(d.Message, "expected value to be one of"):
		if at != nil && len(at.Enum) > 0 {
			return fmt.Sprintf("%s cannot be %s; %s", what, sent(d.Value), didYouMean(fmt.Sprint(d.Value), choicesOf(at)))
		}
	case m != nil:
		subject, bound := "", map[string]string{">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}[m[2]]
		switch m[1] {
		case "number":
			subject = fmt.Sprintf("%s is %v", what, d.Value)
		case "length":
			subject = fmt.Sprintf("%s has %d characters", what, len([]rune(fmt.Sprint(d.Value))))
		default:
			list, _ := d.Value.([]any)
			subject = fmt.Sprintf("%s has %d items", what, len(list))
		}
		return fmt.Sprintf("%s; give %s %s", subject, bound, m[3])
	case strings.HasPrefix(d.Message, "expected string to match pattern"), strings.HasPrefix(d.Message, "expected string to be "):
		want := strings.TrimPrefix(strings.TrimPrefix(d.Message, "expected string to "), "be ")
		if strings.HasPrefix(want, "match") {
			want = "a text to " + want
		}
		return fmt.Sprintf("%s cannot be %s; give %s", what, sent(d.Value), want)
	case strings.HasPrefix(d.Message, "expected ") && at != nil:
		return fmt.Sprintf("%s cannot be %s; %s", what, sent(d.Value), wanted(at))
	case where == "body" && d.Message == "unexpected end of JSON input":
		return "the body ends before its JSON does; send all of it, with every bracket and quote closed"
	case where == "body" && strings.HasPrefix(d.Message, "invalid character "):
		return "the body is no JSON: " + d.Message + "; mend it there, or send what a JSON library writes"
	case where == "body" && path == "":
		return "the body is not what is asked for: " + strings.TrimPrefix(d.Message, "json: ")
	}
	return what + ": " + d.Message
}

// unknownProperty is the message about a property that no one reads.
func unknownProperty(name, dir string, known []string) string {
	in := "here"
	if dir != "" {
		in = "in " + dir
	}
	if Nearest(name, []string{"dry_run"}) != "" && !slices.Contains(known, "dry_run") {
		return fmt.Sprintf("there is no property %s %s: this request cannot be tried without being carried out; leave the property out to carry it out", quoted(name), in)
	}
	return fmt.Sprintf("there is no property %s %s; %s", quoted(name), in, didYouMean(name, known))
}

// sent renders a value as it was sent.
func sent(v any) string {
	if s, ok := v.(string); ok {
		return quoted(s)
	}
	b, err := json.Marshal(v)
	if err != nil || len(b) > 60 {
		switch v.(type) {
		case map[string]any:
			return "an object"
		case []any:
			return "a list"
		}
		return "that"
	}
	return string(b)
}

// cutLast splits the last name off a path such as filter.state.
func cutLast(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

// schemaAt resolves a location such as filter.state[0] in an operation's body or
// parameters; nil if it does not exist.
func schemaAt(op *huma.Operation, reg huma.Registry, where, path string) *huma.Schema {
	if op == nil || reg == nil {
		return nil
	}
	if where != "body" {
		for _, p := range op.Parameters {
			if p.In == where && p.Name == path {
				return p.Schema
			}
		}
		return nil
	}
	if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
		return nil
	}
	sc := resolved(op.RequestBody.Content["application/json"].Schema, reg)
	for part := range strings.FieldsFuncSeq(strings.ReplaceAll(path, "[", ".["), func(c rune) bool { return c == '.' }) {
		switch {
		case sc == nil:
			return nil
		case strings.HasPrefix(part, "["):
			sc = resolved(sc.Items, reg)
		case sc.Properties[part] != nil:
			sc = resolved(sc.Properties[part], reg)
		default:
			values, _ := sc.AdditionalProperties.(*huma.Schema)
			sc = resolved(values, reg)
		}
	}
	return sc
}

func resolved(sc *huma.Schema, reg huma.Registry) *huma.Schema {
	for sc != nil && sc.Ref != "" {
		sc = reg.SchemaFromRef(sc.Ref)
	}
	return sc
}

func propertiesOf(sc *huma.Schema, reg huma.Registry) []string {
	if sc = resolved(sc, reg); sc == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(sc.Properties))
}

// strictJSON decodes JSON bodies and rejects duplicate keys, since only one of the
// two would count.
var strictJSON = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, v any) error {
	if _, first := v.(*any); first { // bodies are decoded into any for validation, then into their type
		if err := checkNames(data); err != nil {
			return err
		}
	}
	return huma.DefaultJSONFormat.Unmarshal(data, v)
}}

// mostNested bounds the nesting depth of a body.
const mostNested = 100

// checkNames walks a JSON text for duplicate names. Syntax errors are left to the
// decoder, which reports them better.
func checkNames(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	type level struct {
		names map[string]bool // nil in a list
		value bool            // the next token is a value, not a name
	}
	var stack []level
	for {
		token, err := dec.Token()
		if err == io.EOF || err != nil {
			return nil
		}
		top := len(stack) - 1
		if name, ok := token.(string); ok && top >= 0 && stack[top].names != nil && !stack[top].value {
			if stack[top].names[name] {
				return fmt.Errorf("the property %s is given twice; give it once", quoted(name))
			}
			stack[top].names[name], stack[top].value = true, true
			continue
		}
		switch token {
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
			continue
		}
		if top >= 0 {
			stack[top].value = false
		}
		switch token {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, level{})
		}
		if len(stack) > mostNested {
			return fmt.Errorf("the body is nested more than %d deep", mostNested)
		}
	}
}
