package pdf

import (
	"os"
	"path/filepath"
	"testing"

	"sheaf/parser"
	"sheaf/parser/child"
)

func TestMain(m *testing.M) {
	child.MaybeRun([]parser.Format{New(Config{})})
	os.Exit(m.Run())
}

// corpus finds real files: $SHEAF_CORPUS, else ../shared/corpus beside the
// repository.
func corpus(t testing.TB, pattern string) []string {
	t.Helper()
	dir := os.Getenv("SHEAF_CORPUS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "corpus")
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Skipf("no files %s in %s: set SHEAF_CORPUS to a folder of real files", pattern, dir)
	}
	return files
}
