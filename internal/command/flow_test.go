package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf/internal/api"
)

// The commands of flows, against a server: what is wrong is said with its
// node, an unchanged flow makes no version, and a deleted number stays unused.
func TestFlowCommands(t *testing.T) {
	s := start(t, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "contracts.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has := func(o ending, code int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if o.code != code || !strings.Contains(o.out+o.err, text) {
				t.Fatalf("exit %d, want %d with %q: %s%s", o.code, code, text, o.out, o.err)
			}
		}
	}
	write(strings.ReplaceAll(victimsFlow("contracts"), `"chunk", from = ["read"]`, `"chunk", from = ["raed"], timeout = "90h"`))
	has(s.sheaf("flow", "validate", file), exitUsage, `node cut: from: There is no node "raed"`, "node cut: timeout: ", `node read: Nothing reads its output`)
	has(s.sheaf("flow", "apply", file), exitFailed, "and 2 more", "invalid_flow")

	write(victimsFlow("contracts"))
	has(s.must("flow", "validate", file), 0, "is valid")
	has(s.must("flow", "apply", file, "--dry-run"), 0, "contracts@1 would be")
	has(s.must("flow", "apply", file), 0, "contracts@1 is")
	has(s.must("flow", "apply", file), 0, "contracts@1 is")
	write(strings.ReplaceAll(victimsFlow("contracts"), `from = ["read"]`, `from = ["read"], config = { chunk_token_num = 64 }`))
	has(s.must("flow", "apply", file), 0, "contracts@2 is")
	has(s.must("flow", "list"), 0, "standard@1", "contracts@2", "built in")
	has(s.must("flow", "diff", "contracts"), 0, "cut", "config", `{"chunk_token_num":64}`)
	has(s.must("flow", "diff", "contracts", "--from", "2"), 0, "They do the same")
	has(s.must("flow", "show", "contracts@1"), 0, `id = "cut"`)

	// What show prints is what apply reads, in both forms.
	o := s.must("flow", "show", "contracts", "-q")
	write(o.out)
	has(s.must("flow", "apply", file), 0, "contracts@2 is")
	var shown api.FlowAnswer
	if err := json.Unmarshal([]byte(s.must("flow", "show", "contracts", "--json").out), &shown); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(shown.Flow)
	if err != nil {
		t.Fatal(err)
	}
	write(string(text))
	has(s.must("flow", "apply", file), 0, "contracts@2 is")

	has(s.sheaf("flow", "show", "contract"), exitNotFound, "no flow contract")
	has(s.sheaf("flow", "delete", "standard", "--yes"), exitBusy, "built in")
	has(s.must("flow", "delete", "contracts@2", "--yes"), 0, "Deleted contracts@2")
	has(s.must("flow", "apply", file), 0, "contracts@3 is")
	has(s.must("flow", "delete", "contracts", "--dry-run"), 0, "would delete contracts@3, contracts@1")
	has(s.must("flow", "delete", "contracts", "--yes"), 0, "Deleted contracts@1, contracts@3")
}
