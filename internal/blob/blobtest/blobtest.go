// Package blobtest is a test suite for the contract of blob.Store, which every
// store must pass.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"sheaf"
	"sheaf/internal/blob"
)

// Run tests s, which must be empty, against the contract.
func Run(t *testing.T, s blob.Store) {
	t.Run("PutThenReadBack", func(t *testing.T) {
		for _, size := range []int{0, 1, 5000, 1 << 20} {
			key, data := fmt.Sprintf("read-back/%d.bin", size), Bytes(uint64(size), size)
			for _, announced := range []int64{int64(size), -1} {
				info, err := s.Put(t.Context(), key, bytes.NewReader(data), announced)
				if err != nil {
					t.Fatal(err)
				}
				if info.Key != key || info.Size != int64(size) || info.SHA256 != Digest(data) {
					t.Errorf("Put says %+v", info)
				}
				if got := read(t, s, key, 0, -1); !bytes.Equal(got, data) {
					t.Errorf("%d bytes back instead of %d", len(got), size)
				}
				stat, err := s.Stat(t.Context(), key)
				if err != nil || stat.Key != key || stat.Size != int64(size) || time.Since(stat.Modified).Abs() > time.Hour {
					t.Errorf("Stat says %+v, %v", stat, err)
				}
			}
		}
	})

	t.Run("MultipartSizes", func(t *testing.T) {
		// Around and above the part size of S3 stores, from a reader that returns
		// odd-sized pieces and does not know its length.
		for _, size := range []int{16 << 20, 16<<20 + 1, 37<<20 + 11} {
			data := Bytes(uint64(size), size)
			info, err := s.Put(t.Context(), "multi/large", onlyReader{bytes.NewReader(data)}, -1)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size != int64(size) || info.SHA256 != Digest(data) {
				t.Errorf("Put of %d bytes says %+v", size, info)
			}
			rc, err := s.Open(t.Context(), "multi/large", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			if _, err := io.Copy(h, rc); err != nil {
				t.Fatal(err)
			}
			rc.Close()
			if hex.EncodeToString(h.Sum(nil)) != info.SHA256 {
				t.Errorf("%d bytes came back changed", size)
			}
		}
		must(t, s.Delete(t.Context(), "multi/large"))
	})

	t.Run("RangedReads", func(t *testing.T) {
		data := Bytes(7, 10000)
		put(t, s, "ranged", data)
		for _, c := range [][2]int64{{0, 1}, {0, 10000}, {9999, 1}, {9999, 100}, {5000, -1}, {10000, -1}, {10000, 5}, {3, 0}, {1234, 4321}, {0, 1 << 40}} {
			end := int64(len(data))
			if c[1] >= 0 {
				end = min(end, c[0]+c[1])
			}
			if got := read(t, s, "ranged", c[0], c[1]); !bytes.Equal(got, data[c[0]:end]) {
				t.Errorf("%d bytes for %v, want %d", len(got), c, end-c[0])
			}
		}
		for _, c := range [][2]int64{{-1, 5}, {0, -2}, {10001, -1}, {10001, 1}, {20000, 0}} {
			if rc, err := s.Open(t.Context(), "ranged", c[0], c[1]); !errors.Is(err, sheaf.ErrInvalid) {
				t.Errorf("%v: got %v, want ErrInvalid", c, err)
				if err == nil {
					rc.Close()
				}
			}
		}
		put(t, s, "empty", nil)
		if got := read(t, s, "empty", 0, -1); len(got) != 0 {
			t.Errorf("%d bytes in an empty object", len(got))
		}
	})

	t.Run("AbsentIsNotFound", func(t *testing.T) {
		put(t, s, "dir/inside", []byte("x"))
		for _, key := range []string{"no", "no/such/key", "dir", "dir/inside2"} {
			for _, c := range [][2]int64{{0, -1}, {0, 0}, {5, 5}} {
				if _, err := s.Open(t.Context(), key, c[0], c[1]); !errors.Is(err, sheaf.ErrNotFound) {
					t.Errorf("Open(%q, %v): %v", key, c, err)
				}
			}
			if _, err := s.Stat(t.Context(), key); !errors.Is(err, sheaf.ErrNotFound) {
				t.Errorf("Stat(%q): %v", key, err)
			}
			if err := s.Delete(t.Context(), key); err != nil {
				t.Errorf("Delete(%q): %v", key, err)
			}
		}
		if got := read(t, s, "dir/inside", 0, -1); string(got) != "x" {
			t.Error("deleting a folder's name deleted what is in it")
		}
	})

	t.Run("BadKeysAreInvalid", func(t *testing.T) {
		for _, key := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../x", "a/./b", "a b", "é", "a\\b", "a\x00b", "a\nb", strings.Repeat("x", 256), strings.Repeat("xx/", 400) + "x"} {
			_, err1 := s.Put(t.Context(), key, strings.NewReader("x"), 1)
			_, err2 := s.Open(t.Context(), key, 0, -1)
			_, err3 := s.Stat(t.Context(), key)
			err4 := s.Delete(t.Context(), key)
			for i, err := range []error{err1, err2, err3, err4} {
				if !errors.Is(err, sheaf.ErrInvalid) {
					t.Errorf("call %d with %.20q: got %v, want ErrInvalid", i, key, err)
				}
			}
		}
		for _, prefix := range []string{"", "a", "/", "../", "a/../"} {
			if _, err := s.DeletePrefix(t.Context(), prefix); !errors.Is(err, sheaf.ErrInvalid) {
				t.Errorf("DeletePrefix(%q): %v", prefix, err)
			}
			if prefix != "" {
				if err := s.List(t.Context(), prefix, func(blob.Info) bool { return true }); !errors.Is(err, sheaf.ErrInvalid) {
					t.Errorf("List(%q): %v", prefix, err)
				}
			}
		}
		for _, key := range []string{"A", "a/b.c/d-e_f", ".hidden", "...", strings.Repeat("x", 200)} {
			put(t, s, key, []byte(key))
			if got := read(t, s, key, 0, -1); string(got) != key {
				t.Errorf("%q holds %q", key, got)
			}
			must(t, s.Delete(t.Context(), key))
		}
	})

	t.Run("PutReplacesWholeAndReadersKeepWhatTheyOpened", func(t *testing.T) {
		old, fresh := Bytes(1, 300<<10), Bytes(2, 100<<10)
		put(t, s, "replaced", old)
		rc, err := s.Open(t.Context(), "replaced", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		first := make([]byte, 10)
		if _, err := io.ReadFull(rc, first); err != nil {
			t.Fatal(err)
		}
		put(t, s, "replaced", fresh)
		rest, err := io.ReadAll(rc)
		// A remote store may abort, but never mixes two versions.
		if err == nil && !bytes.Equal(append(first, rest...), old) {
			t.Error("the reader saw two versions")
		}
		if got := read(t, s, "replaced", 0, -1); !bytes.Equal(got, fresh) {
			t.Error("the new version does not exist")
		}
	})

	t.Run("FailingReaderLeavesNothing", func(t *testing.T) {
		broken := errors.New("the line broke")
		for _, size := range []int{0, 100, 20 << 20} {
			r := io.MultiReader(bytes.NewReader(Bytes(3, size)), iotest.ErrReader(broken))
			if _, err := s.Put(t.Context(), "broken/off", r, -1); !errors.Is(err, broken) {
				t.Errorf("after %d bytes: got %v, want the reader's error", size, err)
			}
			if _, err := s.Stat(t.Context(), "broken/off"); !errors.Is(err, sheaf.ErrNotFound) {
				t.Errorf("after %d bytes: Stat %v", size, err)
			}
		}
		put(t, s, "broken/old", []byte("old"))
		if _, err := s.Put(t.Context(), "broken/old", iotest.ErrReader(broken), -1); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		if got := read(t, s, "broken/old", 0, -1); string(got) != "old" {
			t.Errorf("the old object became %q", got)
		}
	})

	t.Run("ReaderWithoutProgressFails", func(t *testing.T) {
		stuck := readerFunc(func([]byte) (int, error) { return 0, nil })
		if _, err := s.Put(t.Context(), "stuck", stuck, -1); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("got %v, want io.ErrNoProgress", err)
		}
	})

	t.Run("OtherSizeThanAnnouncedIsInvalid", func(t *testing.T) {
		for _, announced := range []int64{0, 99, 101, 40 << 20} {
			if _, err := s.Put(t.Context(), "announced", bytes.NewReader(Bytes(4, 100)), announced); !errors.Is(err, sheaf.ErrInvalid) {
				t.Errorf("100 bytes announced as %d: %v", announced, err)
			}
			if _, err := s.Stat(t.Context(), "announced"); !errors.Is(err, sheaf.ErrNotFound) {
				t.Errorf("it was kept: %v", err)
			}
		}
	})

	t.Run("EndedContext", func(t *testing.T) {
		put(t, s, "ctx", Bytes(5, 1<<20))
		ctx, cancel := context.WithCancel(t.Context())
		// Ends in the middle of the upload.
		r := io.MultiReader(bytes.NewReader(Bytes(6, 20<<20)), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }), endless{})
		if _, err := s.Put(ctx, "ctx-put", r, -1); !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v", err)
		}
		if _, err := s.Stat(t.Context(), "ctx-put"); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("it was kept: %v", err)
		}
		_, err1 := s.Open(ctx, "ctx", 0, -1)
		_, err2 := s.Stat(ctx, "ctx")
		_, err3 := s.DeletePrefix(ctx, "ctx-prefix/")
		err4 := s.Ping(ctx)
		for i, err := range []error{err1, err2, err4} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err3 != nil && !errors.Is(err3, context.Canceled) {
			t.Errorf("DeletePrefix: %v", err3)
		}
		ctx, cancel = context.WithCancel(t.Context())
		rc, err := s.Open(ctx, "ctx", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		cancel()
		if _, err := io.ReadAll(rc); !errors.Is(err, context.Canceled) {
			t.Errorf("Read: %v", err)
		}
	})

	t.Run("ListIsInKeyOrderAndStops", func(t *testing.T) {
		keys := []string{"list/a-b", "list/a.b", "list/a/b", "list/a/c/d", "list/a0", "list/b", "listing/x"}
		for _, k := range slices.Backward(keys) {
			put(t, s, k, []byte(k))
		}
		if got := list(t, s, "list/"); !slices.Equal(got, keys[:6]) {
			t.Errorf("got %v", got)
		}
		if got := list(t, s, "list/a/"); !slices.Equal(got, keys[2:4]) {
			t.Errorf("got %v", got)
		}
		if got := list(t, s, "list/none/"); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		if all := list(t, s, ""); !slices.IsSorted(all) || !slices.Contains(all, "listing/x") {
			t.Errorf("everything is %v", all)
		}
		n := 0
		must(t, s.List(t.Context(), "list/", func(i blob.Info) bool {
			n++
			if i.Size != int64(len(i.Key)) {
				t.Errorf("%+v", i)
			}
			return n < 3
		}))
		if n != 3 {
			t.Errorf("went on to %d", n)
		}
	})

	t.Run("ListAfterGoesOnWhereItStopped", func(t *testing.T) {
		keys := []string{"after/a-b", "after/a.b", "after/a/b", "after/a/c/d", "after/a/e", "after/a0", "after/b/x"}
		for _, k := range slices.Backward(keys) {
			put(t, s, k, []byte(k))
		}
		from := func(prefix, after string) (got []string) {
			must(t, s.ListAfter(t.Context(), prefix, after, func(i blob.Info) bool { got = append(got, i.Key); return true }))
			return got
		}
		for i, k := range keys {
			if got := from("after/", k); !slices.Equal(got, keys[i+1:]) {
				t.Errorf("after %s: %v", k, got)
			}
		}
		for after, want := range map[string][]string{"": keys, "after/": keys, "aft": keys, "after/a/c/~": keys[4:], "after/a/~": keys[5:], "after/a": keys, "after/~": nil, "z": nil} {
			if got := from("after/", after); !slices.Equal(got, want) {
				t.Errorf("after %q: %v, want %v", after, got, want)
			}
		}
		if got := from("after/a/", "after/a/b"); !slices.Equal(got, keys[3:5]) {
			t.Errorf("within a folder: %v", got)
		}
	})

	t.Run("ChildrenAreOneLevel", func(t *testing.T) {
		for _, k := range []string{"child/a/b", "child/a/c", "child/d.x", "child/e/f/g", "children/x"} {
			put(t, s, k, []byte(k))
		}
		under := func(prefix string) (got []string) {
			must(t, s.Children(t.Context(), prefix, func(name string) bool { got = append(got, name); return true }))
			slices.Sort(got)
			return got
		}
		if got := under("child/"); !slices.Equal(got, []string{"child/a/", "child/d.x", "child/e/"}) {
			t.Errorf("got %v", got)
		}
		if got := under("child/none/"); len(got) != 0 {
			t.Errorf("under nothing: %v", got)
		}
		if got := under(""); !slices.Contains(got, "child/") || !slices.Contains(got, "children/") || slices.Contains(got, "child/a/") {
			t.Errorf("under all: %v", got)
		}
		n := 0
		must(t, s.Children(t.Context(), "child/", func(string) bool { n++; return false }))
		if n != 1 {
			t.Errorf("went on to %d", n)
		}
	})

	t.Run("DeletePrefixTakesExactlyThePrefix", func(t *testing.T) {
		for i := range 30 {
			put(t, s, fmt.Sprintf("gone/%d/%d", i%3, i), []byte("x"))
		}
		put(t, s, "gone2/x", []byte("x"))
		if n, err := s.DeletePrefix(t.Context(), "gone/1/"); n != 10 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := s.DeletePrefix(t.Context(), "gone/"); n != 20 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := s.DeletePrefix(t.Context(), "gone/"); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
		if got := read(t, s, "gone2/x", 0, -1); string(got) != "x" {
			t.Error("a neighbour is gone")
		}
	})

	t.Run("DeleteOfManyAndAbsent", func(t *testing.T) {
		var keys []string
		for i := range 12 {
			keys = append(keys, fmt.Sprintf("many/%d", i))
			if i%2 == 0 {
				put(t, s, keys[i], []byte("x"))
			}
		}
		must(t, s.Delete(t.Context(), keys...))
		must(t, s.Delete(t.Context()))
		if got := list(t, s, "many/"); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})

	t.Run("ConcurrentPutsOfOneKeyLeaveOneWhole", func(t *testing.T) {
		var wg sync.WaitGroup
		versions := map[string]bool{}
		for i := range 6 {
			data := Bytes(uint64(100+i), 200<<10+i)
			versions[Digest(data)] = true
			wg.Go(func() {
				for range 3 {
					if _, err := s.Put(t.Context(), "race/one/key", bytes.NewReader(data), -1); err != nil {
						t.Error(err)
					}
				}
			})
			// Deletes of the neighbor remove the folder while puts use it.
			wg.Go(func() {
				for range 10 {
					if _, err := s.Put(t.Context(), fmt.Sprintf("race/other/%d", i), strings.NewReader("x"), 1); err != nil {
						t.Error(err)
					}
					if _, err := s.DeletePrefix(t.Context(), "race/other/"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := read(t, s, "race/one/key", 0, -1); !versions[Digest(got)] {
			t.Error("what is there is none of the versions")
		}
	})

	t.Run("ComposeJoinsAndLeavesTheParts", func(t *testing.T) {
		a, b, c := Bytes(1, blob.MinPartBytes), Bytes(2, blob.MinPartBytes+7), Bytes(3, 11)
		put(t, s, "compose/parts/1", a)
		put(t, s, "compose/parts/2", b)
		put(t, s, "compose/parts/3", c)
		put(t, s, "compose/whole", []byte("what was there before"))
		must(t, s.Compose(t.Context(), "compose/whole", []string{"compose/parts/1", "compose/parts/2", "compose/parts/3"}))
		if got := read(t, s, "compose/whole", 0, -1); !bytes.Equal(got, slices.Concat(a, b, c)) {
			t.Errorf("%d bytes instead of the three parts", len(got))
		}
		must(t, s.Compose(t.Context(), "compose/one", []string{"compose/parts/3"}))
		put(t, s, "compose/parts/3", []byte("what is there now"))
		must(t, s.Delete(t.Context(), "compose/parts/3"))
		if got := read(t, s, "compose/one", 0, -1); !bytes.Equal(got, c) {
			t.Error("an object of one part is not that part, or went with it")
		}
		for what, bad := range map[string][]string{"small part": {"compose/one", "compose/parts/1"}, "no part": nil, "bad key": {"../x"}} {
			if err := s.Compose(t.Context(), "compose/bad", bad); !errors.Is(err, sheaf.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := s.Compose(t.Context(), "compose/bad", []string{"compose/parts/1", "compose/parts/3"}); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("absent part: %v", err)
		}
		if _, err := s.Stat(t.Context(), "compose/bad"); !errors.Is(err, sheaf.ErrNotFound) {
			t.Errorf("a failed Compose left something: %v", err)
		}
		if _, err := s.DeletePrefix(t.Context(), "compose/"); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("Ping", func(t *testing.T) { must(t, s.Ping(t.Context())) })
}

// Bytes returns n bytes that depend on seed.
func Bytes(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// Digest is the lower-case hex SHA-256 of b.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func put(t *testing.T, s blob.Store, key string, data []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s blob.Store, key string, offset, length int64) []byte {
	t.Helper()
	rc, err := s.Open(t.Context(), key, offset, length)
	if err != nil {
		t.Fatalf("Open(%q, %d, %d): %v", key, offset, length, err)
	}
	defer rc.Close()
	b, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func list(t *testing.T, s blob.Store, prefix string) (keys []string) {
	t.Helper()
	must(t, s.List(t.Context(), prefix, func(i blob.Info) bool { keys = append(keys, i.Key); return true }))
	return keys
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// onlyReader hides everything but Read, and returns odd-sized pieces.
type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 31337)]) }

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
