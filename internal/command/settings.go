package command

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sheaf/internal/api"
	"sheaf/internal/settings"

	"github.com/spf13/cobra"
)

// assignment parses NAME=VALUE as a parser_config setting.
func assignment(text string) (name string, value any, err error) {
	name, said, ok := strings.Cut(text, "=")
	if !ok {
		return "", nil, usageError{cured(fmt.Errorf("%q is not a setting", text), "Write it as NAME=VALUE, such as chunk_token_num=256.")}
	}
	if err := checkSetting(name); err != nil {
		return "", nil, err
	}
	i := slices.IndexFunc(settings.Table, func(s settings.Setting) bool { return s.Name == name })
	if i >= 0 && settings.Table[i].Max > 0 {
		n, err := strconv.Atoi(said)
		if err != nil {
			return "", nil, usageError{fmt.Errorf("%s: %q is not a whole number", name, said)}
		}
		return name, n, nil
	}
	if said == "true" || said == "false" || said == "null" || strings.HasPrefix(said, "[") || strings.HasPrefix(said, "{") || strings.HasPrefix(said, `"`) {
		if err := json.Unmarshal([]byte(said), &value); err != nil {
			return "", nil, usageError{fmt.Errorf("%s: %s is not JSON: %w", name, said, err)}
		}
		return name, value, nil
	}
	return name, said, nil
}

func checkSetting(name string) error {
	names := settings.DatasetNames()
	if slices.Contains(names, name) {
		return nil
	}
	err := fmt.Errorf("there is no setting %q", name)
	if near := api.Nearest(name, names); near != "" {
		return usageError{cured(err, "Did you mean %s?", near)}
	}
	return usageError{cured(err, "The settings are %s.", strings.Join(names, ", "))}
}

func settingAssignments(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	if name, _, ok := strings.Cut(begun, "="); ok {
		if name == "chunk_method" {
			var out []string
			for _, m := range settings.MethodNames() {
				out = append(out, name+"="+m)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, s := range settings.Table {
		out = append(out, s.Name+"=\t"+s.Meaning)
	}
	for _, r := range settings.Runs {
		out = append(out, r.Name+"=\t"+r.Meaning)
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
