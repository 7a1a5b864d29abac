package flow

// merge is a place where arms meet.
var _ = register(Kind{Name: "merge", Doc: "passes on the chunks of all its inputs, without duplicates", In: []Port{Chunks}, Same: true})
