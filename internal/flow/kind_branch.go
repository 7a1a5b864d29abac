package flow

// branch is a place for a condition.
var _ = register(Kind{Name: "branch", Doc: "passes chunks on as they are: a place for a condition", In: []Port{Chunks}, Same: true})
