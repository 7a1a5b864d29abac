package flow

// merge joins branches.
var _ = register(Kind{Name: "merge", Doc: "passes on the chunks of all its inputs, each once", In: []Port{Chunks}, Same: true})
