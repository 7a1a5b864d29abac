package flow

// embed marks where vectors are made. The executor makes them in index's task.
var _ = register(Kind{Name: "embed", Doc: "makes vectors of chunks", In: []Port{Chunks}, Out: Vectors})
