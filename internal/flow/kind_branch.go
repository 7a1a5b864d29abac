package flow

// branch is a place for a condition.
var _ = register(Kind{Name: "branch", Doc: "passes chunks through unchanged, to attach a condition to", In: []Port{Chunks}, Same: true})
