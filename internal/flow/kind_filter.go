package flow

import (
	"context"
	"fmt"
	"sync"

	"sheaf"
)

// filter passes on the chunks for which an expression is true.
var _ = register(Kind{Name: "filter", Doc: "passes on the chunks for which an expression is true", In: []Port{Chunks}, Out: Chunks, Config: map[string]Field{
	"keep": {Type: "keep", Required: true, Doc: "CEL expression over a chunk, such as chunk.tokens > 20"},
}, Run: func(ctx context.Context, in Input) (out []sheaf.Chunk, warnings []sheaf.Warning, err error) {
	expr, _ := in.Node.Config["keep"].(string)
	keep, err := compileKeep(expr)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range in.Chunks {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		yes, err := keep.Holds(variablesOf(&c))
		if err != nil {
			return nil, nil, sheaf.Fail(sheaf.CategoryPolicy, "flow_expression", "The node %s cannot say whether to keep a chunk of page %v: %v. Correct its keep: ask 'key' in chunk.metadata before chunk.metadata['key'] is read.", in.Node.ID, c.Pages, err)
		}
		if yes {
			out = append(out, c)
		}
	}
	if dropped := len(in.Chunks) - len(out); dropped > 0 {
		warnings = []sheaf.Warning{{Code: DroppedCode, Message: fmt.Sprintf("The node %s dropped %d of %d chunks.", in.Node.ID, dropped, len(in.Chunks))}}
	}
	return out, warnings, nil
}})

// DroppedCode is that of the warning which counts what a filter dropped.
const DroppedCode = "flow_dropped"

var keeps = sync.OnceValues(func() (*Conditions, error) { return newConditions(chunkVariables) })

func compileKeep(expr string) (*Condition, error) {
	c, err := keeps()
	if err != nil {
		return nil, err
	}
	return c.Compile(expr)
}

func variablesOf(c *sheaf.Chunk) map[string]any {
	return map[string]any{
		"chunk.text": c.Text, "chunk.tokens": c.Tokens, "chunk.kind": string(c.Kind), "chunk.role": string(c.Role), "chunk.language": c.Language,
		"chunk.pages": c.Pages, "chunk.heading_path": c.HeadingPath, "chunk.keywords": c.Keywords, "chunk.metadata": c.Metadata,
	}
}
