package flow

// embed marks where vectors are made. The executor makes them in the task of index.
var _ = register(Kind{Name: "embed", Doc: "embeds chunks", In: []Port{Chunks}, Out: Vectors})
