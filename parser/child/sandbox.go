package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Modes of Config.Sandbox.
const (
	SandboxAuto    = "auto"    // use what the system offers
	SandboxRequire = "require" // a child that lacks a protection of required does not start
	SandboxOff     = "off"     // only resource limits
)

// Names of protections, in the order they are reported.
const (
	ProtectLimits     = "resource_limits"
	ProtectPrivileges = "no_new_privileges"
	ProtectSyscalls   = "system_call_filter"
	ProtectFiles      = "file_access"
	ProtectNetwork    = "network"
	ProtectSignals    = "signals"
	ProtectUser       = "user_namespace"
)

// required lists what SandboxRequire insists on. Namespaces and signal scoping are
// omitted: many containers forbid the first, and the second needs Linux 6.12.
var required = []string{ProtectLimits, ProtectPrivileges, ProtectSyscalls, ProtectFiles, ProtectNetwork}

// Protection is one measure that isolates a parser's process, which reads untrusted
// files, from the rest of the system.
type Protection struct {
	Name    string `json:"name"`
	InForce bool   `json:"in_force"`
	Detail  string `json:"detail" doc:"what is allowed, or why it is not in force"`
}

// sandbox is what a child is told to confine itself to.
type sandbox struct {
	Mode       string   // one of the modes above
	Read       []string // folders and files it may read, "/" for all
	Write      []string // folders it may write
	Ports      []int    // TCP ports it may connect to
	DataBytes  int64    // private memory it may map on top of what it starts with
	Namespaces bool     // started in its own namespaces
}

const envSandbox = "SHEAF_PARSE_SANDBOX"

// encode returns the value of envSandbox.
func (s sandbox) encode() string {
	b, _ := json.Marshal(s) // strings and numbers always encode
	return string(b)
}

// sandboxFromEnviron reads the result of encode. A child that cannot read it must
// not start unconfined.
func sandboxFromEnviron() (s sandbox, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(envSandbox)), &s); err != nil {
		return s, fmt.Errorf("%s: %w", envSandbox, err)
	}
	return s, nil
}

// hello is what a child reports once it is confined.
type hello struct {
	Protections []Protection
	// Unreachable names the folder a child cannot enter. In a user namespace root
	// has no rights to what belongs to others.
	Unreachable string
}

// unreachable tries the folders that s allows.
func unreachable(s sandbox) string {
	for _, dir := range append(slices.Clone(s.Read), s.Write...) {
		f, err := os.Open(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "it cannot read a folder that it needs: " + err.Error()
		}
		_ = f.Close() // also for what does not exist
	}
	return ""
}

// missing lists the required protections that are not in force.
func missing(all []Protection) (names []string) {
	for _, name := range required {
		if !slices.ContainsFunc(all, func(p Protection) bool { return p.Name == name && p.InForce }) {
			names = append(names, name)
		}
	}
	return names
}

// CacheDir returns the default of Config.CacheDir: the folder where engines keep
// compiled code between starts, "" if there is none.
func CacheDir() string {
	if dir := os.Getenv("SHEAF_WAZERO_CACHE"); dir != "" {
		return dir
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "sheaf", "wazero")
}
