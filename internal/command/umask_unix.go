//go:build unix

package command

import "golang.org/x/sys/unix"

// privateFiles makes whatever this process and its children create readable to
// its user alone, also where SQLite and libraries choose the mode.
func privateFiles() { unix.Umask(0o077) }
