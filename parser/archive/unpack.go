package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sheaf"
	"sheaf/parser"
	"sheaf/parser/internal/tempfile"
)

// What one step of unpacking ends after: its files lie on the disk together.
const (
	stepBytes   = 256 << 20
	stepMembers = 500
)

// Unpack implements parser.Unpacker.
func (d *document) Unpack(ctx context.Context, from int) (*parser.Unpacked, error) {
	out := &parser.Unpacked{}
	seen := map[string]bool{}
	n, bytes, dropped := 0, int64(0), 0
	err := d.walk(ctx, func(m member, content func(io.Writer) (int64, error)) error {
		if n >= d.limits.Files {
			dropped++
			return nil
		}
		n++
		twice := seen[m.name]
		seen[m.name] = true
		if n < from {
			return nil
		}
		if len(out.Members) >= stepMembers || bytes >= stepBytes {
			out.Next = n
			return errEnough
		}
		if m.code == "" && twice {
			m.code, m.reason = duplicate, duplicateReason
		}
		u, err := d.unpackMember(ctx, m, n, content)
		bytes += u.Size
		out.Members = append(out.Members, u)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errEnough):
		return out, nil
	case err != nil && n == 0:
		return nil, asFailure(ctx, err)
	case err != nil:
		if f, ok := errors.AsType[*sheaf.Failure](err); ok && f.Retryable {
			return nil, f // the disk is full, which says nothing about the archive
		}
		out.Warnings = append(out.Warnings, damaged(ctx, n, err))
	case n == 0:
		return nil, noFiles()
	}
	if dropped > 0 {
		out.Warnings = append(out.Warnings, d.tooMany(dropped))
	}
	return out, nil
}

// unpackMember writes one file. What is wrong with it is its own verdict; the
// error is one that concerns all.
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
