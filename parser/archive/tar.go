package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"

	"sheaf"
)

// maxWindow limits the memory that a zstd stream may request.
const maxWindow = 64 << 20

// unpack opens the stream inside the file, whatever its compression.
func (d *document) unpack() (r io.Reader, closer func(), packed bool, err error) {
	in := bufio.NewReaderSize(io.NewSectionReader(d.file, 0, d.size), 64<<10)
	head, _ := in.Peek(4) // a short file is a short stream
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		return z, func() {}, true, err
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(in), func() {}, true, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow))
		if err != nil {
			return nil, nil, true, err
		}
		return z, z.Close, true, nil
	}
	return in, func() {}, false, nil
}

// guarded stops a stream that unpacks to far more than its size.
type guarded struct {
	r         io.Reader
	n, packed int64
	limits    Limits
}

func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.r.Read(b)
	if g.n += int64(n); g.n > g.limits.TotalBytes || g.n > ratioAfter && g.n/max(1, g.packed) > int64(g.limits.Ratio) {
		return n, sheaf.Fail(sheaf.CategoryBadInput, "zip_bomb", "Unpacking the archive gives far more data than an honest one holds (%d MB so far); it was stopped. Check where the file comes from.", g.n>>20)
	}
	return n, err
}

// walkTar reads a TAR archive; a compressed file that is not one is a single member.
func (d *document) walkTar(ctx context.Context, on func(m member, content func(io.Writer) (int64, error)) error) error {
	raw, done, packed, err := d.unpack()
	if err != nil {
		return err
	}
	defer done()
	spent := budget{}
	stream := bufio.NewReaderSize(&guarded{r: raw, packed: d.size, limits: d.limits}, 64<<10)
	if head, _ := stream.Peek(512); packed && !isTar(head) {
		name := cleanName(d.options.Name)
		if ext := strings.ToLower(path.Ext(name)); ext == ".gz" || ext == ".bz2" || ext == ".zst" {
			name = name[:len(name)-len(ext)]
		}
		return on(member{name: name}, func(w io.Writer) (int64, error) {
			return d.limits.copy(w, stream, func(int64) int64 { return d.size }, &spent)
		})
	}
	t := tar.NewReader(stream)
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are cleaned, and nothing is written under them
			return err
		}
		if n > maxEntries {
			return sheaf.Fail(sheaf.CategoryCapacity, "zip_bomb", "The archive holds more than %d entries; split it.", maxEntries)
		}
		if h.Typeflag == tar.TypeDir || h.Typeflag == tar.TypeXGlobalHeader || clutter(h.Name) {
			continue
		}
		m := member{name: cleanName(h.Name), size: h.Size}
		switch {
		case h.Typeflag != tar.TypeReg:
			m.code, m.reason = "not_a_file", "it is a link or a device, not a file"
		case h.Size > d.limits.FileBytes:
			m.code, m.reason = "too_large", "it is larger than a member may be; upload it by itself"
		}
		if err := on(m, func(w io.Writer) (int64, error) { return d.limits.copy(w, t, nil, &spent) }); err != nil {
			return err
		}
	}
}

// isTar looks for the magic of POSIX and GNU tar (POSIX.1-2017, pax, "ustar").
func isTar(b []byte) bool { return len(b) >= 262 && string(b[257:262]) == "ustar" }
