// Package buildinfo identifies the build of Sheaf that this process runs.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// version, commit and date are set by the linker, -ldflags "-X
// sheaf/internal/buildinfo.version=…"; empty in a build not made by the Makefile.
var version, commit, date string

// Info describes a build.
type Info struct {
	Version  string `json:"version" doc:"of the release, such as 1.2.0; dev for any other build"`
	Commit   string `json:"commit" doc:"git commit, 40 hex characters, with -dirty after it when files were changed; empty when the build does not know it"`
	Date     string `json:"date" doc:"of the commit, RFC 3339; empty when the build does not know it"`
	Go       string `json:"go" doc:"version of the Go toolchain"`
	Platform string `json:"platform" doc:"operating system and processor, such as linux/amd64"`
}

// Get describes this binary: from what the Makefile passed to the linker, otherwise
// from what the Go toolchain recorded.
var Get = sync.OnceValue(func() Info {
	recorded, _ := debug.ReadBuildInfo() // nil without module support
	return describe(version, commit, date, recorded)
})

func describe(version, commit, date string, recorded *debug.BuildInfo) Info {
	i := Info{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if recorded != nil {
		setting := func(key string) string {
			for _, s := range recorded.Settings {
				if s.Key == key {
					return s.Value
				}
			}
			return ""
		}
		if i.Commit == "" {
			if i.Commit = setting("vcs.revision"); i.Commit != "" && setting("vcs.modified") == "true" {
				i.Commit += "-dirty"
			}
		}
		i.Date = cmp.Or(i.Date, setting("vcs.time"))
		// A pseudo-version repeats the date and the commit, which are shown anyway.
		if v := recorded.Main.Version; i.Version == "" && v != "(devel)" && !strings.HasPrefix(v, "v0.0.0-") {
			i.Version = v
		}
	}
	i.Version = cmp.Or(strings.TrimPrefix(i.Version, "v"), "dev")
	return i
}

// String returns the version with the abbreviated commit: "1.2.0 (4f0c2d9e81ab)".
func (i Info) String() string {
	if i.Commit == "" {
		return i.Version
	}
	return i.Version + " (" + i.ShortCommit() + ")"
}

// ShortCommit returns the first twelve characters of the commit, with -dirty if
// files were changed; "" if unknown.
func (i Info) ShortCommit() string {
	hash, dirty, changed := strings.Cut(i.Commit, "-")
	hash = hash[:min(12, len(hash))]
	if changed {
		hash += "-" + dirty
	}
	return hash
}
