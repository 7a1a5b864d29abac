package command

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"sheaf/internal/config"
)

// settingNames are all settings, as the file and as the environment name them.
func settingNames() (file, env map[string]bool) {
	c := config.Default()
	file, env = map[string]bool{}, map[string]bool{}
	for _, f := range config.Fields(&c) {
		file[f.Name] = true
		env[config.EnvPrefix+strings.ToUpper(strings.ReplaceAll(f.Name, ".", "_"))] = true
	}
	return file, env
}

// A variable that is no setting is ignored, so a typo in deploy/ would show
// only as a fleet that does not do what its file says.
func TestDeployNamesSettingsThatExist(t *testing.T) {
	file, env := settingNames()
	own := map[string]bool{ // read by the command line, by compose.yaml itself, and by scripts
		"SHEAF_CONFIG": true, "SHEAF_URL": true, "SHEAF_KEY": true, "SHEAF_DB_PASSWORD": true, "SHEAF_S3_SECRET": true, "SHEAF_SECRETS_KEY": true,
	}
	variable := regexp.MustCompile(`\bSHEAF_[A-Z0-9_]*[A-Z0-9]\b`)
	found := 0
	for _, path := range []string{
		"../../deploy/Dockerfile", "../../deploy/compose.yaml", "../../deploy/helm/sheaf/templates/config.yaml", "../../deploy/helm/sheaf/templates/_helpers.tpl",
		"../../deploy/helm/sheaf/templates/NOTES.txt", "../../docs/operations.md", "../../docs/configuration.md",
	} {
		for _, name := range variable.FindAllString(readFile(t, path), -1) {
			found++
			if !env[name] && !env[strings.TrimSuffix(name, "_FILE")] && !own[name] {
				t.Errorf("%s names %s, which is no setting", path, name)
			}
		}
	}
	var values struct {
		Config map[string]string
		Secret struct{ Keys []string }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "../../deploy/helm/sheaf/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Sorted(maps.Keys(values.Config)), values.Secret.Keys...) {
		found++
		if !env[config.EnvPrefix+name] {
			t.Errorf("the chart's values name %s, which is no setting", name)
		}
	}
	sections := map[string]bool{}
	for name := range file {
		if section, _, ok := strings.Cut(name, "."); ok {
			sections[section] = true
		}
	}
	for _, path := range []string{"../../docs/operations.md", "../../docs/configuration.md"} {
		for _, m := range regexp.MustCompile("`([a-z]+)\\.([a-z_.]+)`").FindAllStringSubmatch(readFile(t, path), -1) {
			if name := m[1] + "." + m[2]; sections[m[1]] && !file[name] && m[2] != "db" { // index.db is a file
				t.Errorf("%s names %s, which is no setting", path, name)
			}
			found++
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found", found)
	}
}

// Every command that the documents show exists, with its flags.
func TestCommandsInTheDocumentsExist(t *testing.T) {
	shown := regexp.MustCompile("(?m)(?:`|^(?:\\$ )?(?:bin/)?)sheaf ([a-z][^`\n]*)")
	found := 0
	for _, path := range []string{"../../README.md", "../../docs/operations.md", "../../docs/configuration.md", "../../docs/handbook.md", "../../docs/fidelity.md"} {
		for _, m := range shown.FindAllStringSubmatch(readFile(t, path), -1) {
			line, _, _ := strings.Cut(m[1], "#")
			for _, stop := range []string{"|", "…", ">", "&", ";"} {
				line, _, _ = strings.Cut(line, stop)
			}
			words := strings.Fields(strings.NewReplacer("'", "", `"`, "", "[", "", "]", "").Replace(line))
			root := newRoot()
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root || !cmd.Runnable() || cmd.HasAvailableSubCommands() && cmd.Name() != "jobs" && len(words) > 1 && !strings.HasPrefix(words[1], "-") {
				t.Errorf("%s shows `sheaf %s`, and there is no such command: %v", path, m[1], err)
				continue
			}
			found++
			flags := slices.DeleteFunc(slices.Clone(rest), func(w string) bool { return !strings.HasPrefix(w, "-") || w == "-" })
			for _, f := range flags {
				name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
				if !hasFlag(cmd, name) {
					t.Errorf("%s shows `sheaf %s`, and %s has no flag %s", path, m[1], cmd.CommandPath(), f)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands were found", found)
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	return name == "help" || cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil ||
		len(name) == 1 && (cmd.Flags().ShorthandLookup(name) != nil || cmd.InheritedFlags().ShorthandLookup(name) != nil)
}
