package flow

// The kinds that pass chunks on as they are: branch is a place for a condition,
// merge a place where arms meet.
var (
	_ = register(Kind{Name: "branch", Doc: "passes chunks on as they are: a place for a condition", In: []Port{Chunks}, Same: true})
	_ = register(Kind{Name: "merge", Doc: "passes on the chunks of all its inputs, each once", In: []Port{Chunks}, Same: true})
)
