//go:build race

package child

// raceDetector maps several times what a program allocates, so that a bound on
// private memory would end children that are well within theirs.
const raceDetector = true
