package command

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"sheaf/internal/backup"
)

// ownNames are the files that the service keeps in its data folder.
var ownNames = map[string]bool{
	"sheaf.db": true, "sheaf.db-wal": true, "sheaf.db-shm": true, "sheaf.db-journal": true,
	"index.db": true, "index.db-wal": true, "index.db-shm": true, "index.db-journal": true, "index.db.lock": true,
	"blobs": true, "cache": true, "tmp": true, "lock": true, "server.json": true, keyFile: true,
	backup.Marker: true, database + backup.Previous: true,
}

// open are the mode bits that grant others access.
const open = fs.FileMode(0o077)

// tighten removes permissions that an earlier version, another umask or a copy gave
// to others in the data folder. It does not descend into folders that are already
// closed, so repeating it is cheap. A folder with foreign files keeps its own mode;
// that and any failure are logged.
func tighten(dir string, log *slog.Logger) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		log.Warn("the data folder cannot be listed to see who may read it", "error", err)
		return
	}
	changed, strangers := 0, 0
	var failed error
	for _, e := range entries {
		if !ownNames[e.Name()] {
			strangers++
			continue
		}
		n, err := closeToOthers(filepath.Join(dir, e.Name()))
		changed += n
		failed = errors.Join(failed, err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		failed = errors.Join(failed, err)
	case info.Mode()&open == 0:
	case strangers > 0:
		log.Warn("other users may list the data folder, and it holds files that are not Sheaf's; give Sheaf a folder of its own (--data-dir)", "folder", dir, "mode", info.Mode().String())
	default:
		if err := os.Chmod(dir, info.Mode()&^open); err != nil {
			failed = errors.Join(failed, err)
		} else {
			changed++
		}
	}
	if changed > 0 {
		log.Warn("other users could read files in the data folder; they are closed to them now", "folder", dir, "changed", changed)
	}
	if failed != nil {
		log.Warn("some of the data folder stays open to other users; run `chmod -R go=` on it as its owner", "folder", dir, "error", failed)
	}
}

// closeToOthers closes a file, or a folder from the inside out, and returns the
// number of changes. It does not follow symbolic links.
func closeToOthers(path string) (changed int, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a temporary file
	}
	if err != nil || info.Mode()&open == 0 || info.Mode()&fs.ModeSymlink != 0 {
		return 0, err
	}
	if info.IsDir() {
		entries, listErr := os.ReadDir(path)
		err = listErr
		for _, e := range entries {
			n, inner := closeToOthers(filepath.Join(path, e.Name()))
			changed += n
			if inner != nil {
				err = inner // one is enough to report
			}
		}
	}
	if mode := os.Chmod(path, info.Mode()&^open); mode != nil {
		return changed, mode
	}
	return changed + 1, err
}
