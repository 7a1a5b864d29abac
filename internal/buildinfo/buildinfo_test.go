package buildinfo

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestTheLinkersWordsComeFirstThenTheToolchains(t *testing.T) {
	const hash = "4f0c2d9e81ab00112233445566778899aabbccdd"
	vcs := func(mainVersion string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: mainVersion}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for name, c := range map[string]struct {
		version, commit, date string
		recorded              *debug.BuildInfo
		want, text            string
	}{
		"a release":                  {"v1.2.0", hash, "2026-11-23T10:00:00Z", nil, "1.2.0", "1.2.0 (4f0c2d9e81ab)"},
		"changed since the commit":   {"", hash + "-dirty", "", nil, "dev", "dev (4f0c2d9e81ab-dirty)"},
		"nothing is known":           {"", "", "", nil, "dev", "dev"},
		"no version control":         {"", "", "", vcs("(devel)"), "dev", "dev"},
		"recorded by go build":       {"", "", "", vcs("v0.0.0-20261123100000-4f0c2d9e81ab+dirty", "vcs.revision", hash, "vcs.modified", "true"), "dev", "dev (4f0c2d9e81ab-dirty)"},
		"recorded, nothing changed":  {"", "", "", vcs("(devel)", "vcs.revision", hash, "vcs.modified", "false"), "dev", "dev (4f0c2d9e81ab)"},
		"installed as a module":      {"", "", "", vcs("v1.3.0"), "1.3.0", "1.3.0"},
		"the linker knows it better": {"v1.2.0", "", "", vcs("v1.3.0", "vcs.revision", hash), "1.2.0", "1.2.0 (4f0c2d9e81ab)"},
	} {
		i := describe(c.version, c.commit, c.date, c.recorded)
		if i.Version != c.want || i.String() != c.text {
			t.Errorf("%s: version %q, in words %q; want %q and %q", name, i.Version, i, c.want, c.text)
		}
		if i.Go != runtime.Version() || i.Platform == "" {
			t.Errorf("%s: toolchain %q on %q", name, i.Go, i.Platform)
		}
	}
}

// The linker does not complain about a variable that does not exist.
func TestTheMakefileSetsTheVariables(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.Command("make", "-n", "build", "VERSION=v9.8.7", "COMMIT=abc", "DATE=2026-01-02T03:04:05Z")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	docker, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docker), "make build") {
		t.Error("the image is not built by the Makefile")
	}
	source, err := os.ReadFile("buildinfo.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`-X sheaf/internal/buildinfo\.(\w+)=(\S*?)['" ]`).FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = m[2]
		if !regexp.MustCompile(`(?m)^var .*\b` + m[1] + `\b.* string$`).Match(source) {
			t.Errorf("the Makefile sets %s, and there is no such variable", m[1])
		}
	}
	if found["version"] != "v9.8.7" || found["commit"] != "abc" || found["date"] != "2026-01-02T03:04:05Z" {
		t.Errorf("the linker is told %v", found)
	}
}
