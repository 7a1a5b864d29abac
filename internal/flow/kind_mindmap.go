package flow

import "sheaf"

// mindmap makes a topic tree of the document, as a run of mindmap over its dataset
// does.
var _ = register(Kind{Name: "mindmap", Doc: "makes a mind map of the document", In: []Port{Indexed}, Over: sheaf.KindMindmap})
