package flow

import "sheaf"

// mindmap makes a tree of what the document is about, as a run of mindmap over its
// dataset does.
var _ = register(Kind{Name: "mindmap", Doc: "makes a mind map of the document", In: []Port{Indexed}, Over: sheaf.KindMindmap})
