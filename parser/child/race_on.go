//go:build race

package child

// raceDetector maps several times what a program allocates, so a limit on private
// memory would end children well within theirs.
const raceDetector = true
