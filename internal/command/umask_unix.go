//go:build unix

package command

import "golang.org/x/sys/unix"

// privateFiles makes everything this process and its children create readable only
// by its user, even where SQLite or a library chooses the mode.
func privateFiles() { unix.Umask(0o077) }
