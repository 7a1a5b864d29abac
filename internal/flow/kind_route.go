package flow

// The kinds that pass chunks on as they are: branch is a place for a condition,
// merge a place where arms meet.
var (
	_ = register(Kind{Name: "branch", In: []Port{Chunks}, Same: true})
	_ = register(Kind{Name: "merge", In: []Port{Chunks}, Same: true})
)
