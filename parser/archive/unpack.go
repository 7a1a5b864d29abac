package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/tempfile"
)

// Limits of one unpacking step: its files are on disk at the same time.
const (
	stepBytes   = 256 << 20
	stepMembers = 500
)

// walk iterates over the files of an archive and pauses between two steps: a
// compressed stream is unpacked once, not once per step.
type walk struct {
	next    func() (file, bool)
	stop    func()
	ahead   *file // not consumed by the previous step
	n       int   // files so far, without ahead
	dropped int
	seen    map[string]bool
	err     error // the error that ended it
}

// file is a member and its content writer, which is valid until the next file is
// requested.
type file struct {
	member  member
	content func(io.Writer) (int64, error)
}

func (d *document) newWalk() *walk {
	w := &walk{seen: map[string]bool{}}
	w.next, w.stop = iter.Pull(func(yield func(file) bool) {
		// A step is canceled between two files; the walk outlives it.
		w.err = d.walk(context.Background(), func(m member, content func(io.Writer) (int64, error)) error {
			if !yield(file{m, content}) {
				return errEnough
			}
			return nil
		})
	})
	return w
}

func (w *walk) take() (file, bool) {
	if f := w.ahead; f != nil {
		w.ahead = nil
		return *f, true
	}
	return w.next()
}

// Unpack implements parser.Unpacker.
func (d *document) Unpack(ctx context.Context, from int) (*parser.Unpacked, error) {
	w := d.standing
	if d.standing = nil; w == nil || w.n+1 != from {
		if w != nil {
			w.stop()
		}
		w = d.newWalk()
	}
	out := &parser.Unpacked{}
	bytes := int64(0)
	var err error
	for err == nil && ctx.Err() == nil {
		f, ok := w.take()
		if !ok {
			err = w.err
			break
		}
		if w.n >= d.limits.Files {
			w.dropped++
			continue
		}
		if w.n+1 >= from && (len(out.Members) >= stepMembers || bytes >= stepBytes) {
			w.ahead, d.standing, out.Next = &f, w, w.n+1
			return out, nil
		}
		w.n++
		m := f.member
		twice := w.seen[m.name]
		w.seen[m.name] = true
		if w.n < from {
			continue
		}
		if m.code == "" && twice {
			m.code, m.reason = duplicate, duplicateReason
		}
		var u parser.Member
		u, err = d.unpackMember(ctx, m, w.n, f.content)
		bytes += u.Size
		out.Members = append(out.Members, u)
	}
	w.stop()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && w.n == 0:
		return nil, asFailure(ctx, err)
	case err != nil:
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Retryable {
			return nil, f // the disk is full, which is not the archive's fault
		}
		out.Warnings = append(out.Warnings, damaged(ctx, w.n, err))
	case w.n == 0:
		return nil, noFiles()
	}
	if w.dropped > 0 {
		out.Warnings = append(out.Warnings, d.tooMany(w.dropped))
	}
	return out, nil
}

// unpackMember writes one file. A problem with the file is its own verdict; an
// error concerns the whole archive.
func (d *document) unpackMember(ctx context.Context, m member, n int, content func(io.Writer) (int64, error)) (parser.Member, error) {
	u := parser.Member{N: n, Path: m.name}
	if m.code != "" {
		u.Status, u.Code = sheaf.UnitSkipped, m.code
		u.Message = fmt.Sprintf("%s was not read: %s.", m.name, strings.TrimSuffix(m.reason, "."))
		return u, nil
	}
	name := "member-" + strconv.Itoa(n)
	f, err := os.CreateTemp(d.options.TempDir, name)
	if err != nil {
		return u, tempfile.Full(err)
	}
	h := sha256.New()
	size, err := content(io.MultiWriter(f, h))
	err = errors.Join(err, f.Close())
	if err != nil || size == 0 {
		_ = os.Remove(f.Name())
	}
	switch {
	case err != nil:
		fail := sheaf.AsFailure(asFailure(ctx, err), "")
		if fail.Retryable || ctx.Err() != nil {
			return u, err
		}
		u.Status, u.Code, u.Message = sheaf.UnitFailed, fail.Code, m.name+": "+fail.Message
	case size == 0:
		u.Status, u.Code, u.Message = sheaf.UnitBlank, "empty_file", m.name+" has no bytes."
	default:
		u.File, u.Size, u.SHA256 = filepath.Base(f.Name()), size, hex.EncodeToString(h.Sum(nil))
	}
	return u, nil
}
