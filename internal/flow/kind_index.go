package flow

// index ends the work on ranges. Nodes after it work on the whole document.
var _ = register(Kind{Name: "index", Doc: "writes chunks to the search index", In: []Port{Chunks, Vectors}, Out: Indexed, Ends: true})
