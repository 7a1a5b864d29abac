package flow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
)

// Limits on an expression. Without macros CEL has no loops, so its cost is bounded
// by its length and by the texts it compares.
const (
	maxExprBytes = 1 << 10
	maxExprDepth = 32
	maxExprCost  = 100_000
)

// documentVariables are the variables of a node's when, by full name; others are
// rejected when the flow is created.
var documentVariables = map[string]*cel.Type{
	"document.name": cel.StringType, "document.media_type": cel.StringType, "document.size": cel.IntType, "document.pages": cel.IntType,
	"document.metadata": cel.MapType(cel.StringType, cel.StringType),
}

// chunkVariables are the variables of a filter's keep.
var chunkVariables = map[string]*cel.Type{
	"chunk.text": cel.StringType, "chunk.tokens": cel.IntType, "chunk.kind": cel.StringType, "chunk.role": cel.StringType, "chunk.language": cel.StringType,
	"chunk.pages": cel.ListType(cel.IntType), "chunk.heading_path": cel.ListType(cel.StringType), "chunk.keywords": cel.ListType(cel.StringType),
	"chunk.metadata": cel.MapType(cel.StringType, cel.StringType),
}

// Conditions compiles expressions. It is safe for concurrent use.
type Conditions struct{ env *cel.Env }

// NewConditions returns Conditions with the document variables.
func NewConditions() (*Conditions, error) { return newConditions(documentVariables) }

func newConditions(variables map[string]*cel.Type) (*Conditions, error) {
	options := []cel.EnvOption{cel.ClearMacros(), cel.ParserExpressionSizeLimit(maxExprBytes), cel.ParserRecursionLimit(maxExprDepth)}
	for name, kind := range variables {
		options = append(options, cel.Variable(name, kind))
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("declare the variables of expressions: %w", err)
	}
	return &Conditions{env}, nil
}

// Condition is an expression that yields true or false. It is safe for concurrent
// use.
type Condition struct{ program cel.Program }

// Compile type-checks an expression. The error is a sentence.
func (c *Conditions) Compile(expr string) (*Condition, error) {
	if len(expr) > maxExprBytes {
		return nil, fmt.Errorf("the expression has %d bytes; %d are allowed", len(expr), maxExprBytes)
	}
	ast, issues := c.env.Compile(expr)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, fmt.Errorf("at column %d: %s", first.Location.Column()+1, strings.Join(strings.Fields(first.Message), " "))
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("the expression yields %s and must yield true or false", ast.OutputType())
	}
	program, err := c.env.Program(ast, cel.CostLimit(maxExprCost))
	if err != nil {
		return nil, err
	}
	return &Condition{program}, nil
}

// Holds evaluates the condition; given holds every variable by its full name.
func (c *Condition) Holds(given map[string]any) (bool, error) {
	out, _, err := c.program.Eval(given)
	if err != nil {
		return false, err
	}
	yes, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("the expression yields no truth value")
	}
	return yes, nil
}
