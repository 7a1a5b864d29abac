package pdf

import (
	"os"
	"path/filepath"
	"testing"

	"sheaf/parser"
	"sheaf/parser/child"
	"sheaf/parser/pdf/pdfium"
)

// envHelper has a parser's process read by this sheaf-pdfium.
const envHelper = "SHEAF_TEST_CHILD_PDFIUM"

func TestMain(m *testing.M) {
	child.MaybeRun([]parser.Format{New(Config{Engine: pdfium.New(pdfium.Config{Helper: os.Getenv(envHelper)})})})
	os.Exit(m.Run())
}

// corpus finds real files in the folder that SHEAF_CORPUS names.
func corpus(t testing.TB, pattern string) []string {
	t.Helper()
	dir := os.Getenv("SHEAF_CORPUS")
	if dir == "" {
		t.Skip("SHEAF_CORPUS names no folder of real files")
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Skipf("no files %s in SHEAF_CORPUS, %s", pattern, dir)
	}
	return files
}
