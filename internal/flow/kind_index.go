package flow

// index is the end of what works on ranges. What is behind it works on the whole document.
var _ = register(Kind{Name: "index", Doc: "writes chunks to the search index", In: []Port{Chunks, Vectors}, Out: Indexed, Ends: true})
