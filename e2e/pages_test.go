package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"sheaf"
	"sheaf/internal/config"
	"sheaf/samples"
)

// interfacePages are the pages of docs whose blocks TestCommandsOfThePages runs.
var interfacePages = []string{"interfaces.md", "tika.md", "openwebui.md", "dify.md", "docling.md", "mcp.md", "python.md", "ragflow.md", "openai.md"}

// notRun stands in the paragraph before a block that cannot run here.
const notRun = "not run by the tests"

// prelude makes an answer that is no success fail its command, gives the key
// where the page leaves it out, and runs the inspector that is installed.
const prelude = `key='%s'
curl() {
	case "$*" in
	*"$key"*) command curl -sS --fail-with-body "$@" ;;
	*) command curl -sS --fail-with-body -H "Authorization: Bearer $key" "$@" ;;
	esac
}
npx() {
	shift
	node '%s' "$@" --header "Authorization: Bearer $key"
}
`

var fencedBlock = regexp.MustCompile("(?ms)^([^\n]*)\n+```([a-z]*)\n(.*?)^```$")

// Every command in the pages on interfaces works: each page's blocks run in
// order against a fresh server, with its address and key in place of the page's.
func TestCommandsOfThePages(t *testing.T) {
	t.Parallel()
	others, tools := clients(t), fetched(t, "python-client-*")
	client, err := filepath.Abs(filepath.Join("..", "clients", "python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	pdf, err := samples.FS.ReadFile("handbook.pdf")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range interfacePages {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "docs", page))
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, func(c *config.Config) {
				c.Server.Auth, c.Server.Interfaces = true, []string{"tika", "openwebui", "dify", "docling", "mcp", "ragflow", "openai"}
				c.Parser.UnitTimeout = config.Duration(time.Minute)
			})
			writer := s.tenant("alpha", "write", sheaf.Quota{})
			writer.newDataset("default", false)
			folder := t.TempDir()
			for _, name := range []string{"report.pdf", "heron.pdf", "contracts/lease.txt"} {
				file := filepath.Join(folder, name)
				content := pdf
				if strings.HasSuffix(name, ".txt") {
					content = []byte("The lease ends in May.")
				}
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			names := strings.NewReplacer("http://127.0.0.1:8080", s.base, "SHEAF_KEY", "SHEAF_KEY", "KEY", writer.key)
			for _, b := range fencedBlock.FindAllStringSubmatch(string(text), -1) {
				before, language, block := b[1], b[2], b[3]
				if strings.Contains(before, notRun) {
					continue
				}
				var cmd *exec.Cmd
				switch language {
				case "toml":
					var v any
					if _, err := toml.Decode(block, &v); err != nil {
						t.Errorf("%s:\n%s", err, block)
					}
					continue
				case "json":
					if !json.Valid([]byte(block)) {
						t.Errorf("no JSON:\n%s", block)
					}
					continue
				case "python":
					python, path := "python3", strings.Join([]string{client, tools}, string(os.PathListSeparator))
					switch {
					case strings.Contains(block, "ragflow_sdk"):
						python, path = filepath.Join(others, "python3.13"), filepath.Join(others, "ragflow")
					case !strings.Contains(block, "sheaf_client"):
						path = filepath.Join(others, "python")
					}
					cmd = exec.CommandContext(t.Context(), python, "-c", names.Replace(block))
					cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
				case "", "sh":
					// An answer that is no success is no success of the command, and what npm would fetch is there.
					cli := filepath.Join(others, "node_modules", "@modelcontextprotocol", "inspector", "cli", "build", "cli.js")
					shell := fmt.Sprintf(prelude, writer.key, cli)
					cmd = exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", shell+names.Replace(block))
					cmd.Env = os.Environ()
				default:
					t.Errorf("a block of %s is neither run nor checked:\n%s", language, block)
					continue
				}
				cmd.Dir = folder
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v:\n%s\n%s", err, block, out)
				}
			}
		})
	}
}
