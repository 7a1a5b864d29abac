package secrets

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sheaf"
)

func ring(t *testing.T, keys ...string) *Keyring {
	t.Helper()
	r, err := Parse(strings.Join(keys, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealedTextsOpenOnlyWhereTheyStand(t *testing.T) {
	r := ring(t, Generate())
	sealed := r.Seal("whsec_abc", "webhook/1")
	if strings.Contains(sealed, "whsec") || sealed == r.Seal("whsec_abc", "webhook/1") {
		t.Fatalf("sealed as %q, twice the same or readable", sealed)
	}
	if plain, err := r.Open(sealed, "webhook/1"); err != nil || plain != "whsec_abc" {
		t.Fatalf("opened as %q: %v", plain, err)
	}
	if _, err := r.Open(sealed, "webhook/2"); err == nil {
		t.Error("a text that was moved to another place opens there")
	}
	altered := []byte(sealed)
	altered[len(altered)-4] ^= 1
	if _, err := r.Open(string(altered), "webhook/1"); err == nil {
		t.Error("an altered text opens")
	}
	if _, err := ring(t, Generate()).Open(sealed, "webhook/1"); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("with another key: %v", err)
	}
	if plain, err := r.Open("plain of old", "x"); err != nil || plain != "plain of old" {
		t.Errorf("a plain text opens as %q: %v", plain, err)
	}
	if r.Seal("", "x") != "" {
		t.Error("nothing is sealed to something")
	}
}

func TestRotatedKeysStillOpen(t *testing.T) {
	a, b := Generate(), Generate()
	before, after := ring(t, a), ring(t, b, "# a comment", a+","+b)
	sealed := before.Seal("s", "c")
	if plain, err := after.Open(sealed, "c"); err != nil || plain != "s" {
		t.Fatalf("opened as %q: %v", plain, err)
	}
	if len(after.IDs()) != 2 || after.Current() != ring(t, b).Current() || !after.Has(before.Current()) {
		t.Errorf("the ring is %v", after.IDs())
	}
	if !after.Stale(sealed) || !after.Stale("plain") || after.Stale("") || after.Stale(after.Seal("s", "c")) {
		t.Error("what should be sealed again is told wrongly")
	}
	key, id := before.Key("receipts")
	if again, err := after.KeyOf("receipts", id); err != nil || again != key {
		t.Errorf("the key of a purpose is another after a rotation: %v", err)
	}
	if other, _ := before.Key("other"); other == key {
		t.Error("two purposes share a key")
	}
	if _, err := before.KeyOf("receipts", after.Current()); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestBadKeysAreRefusedWithoutShowingThem(t *testing.T) {
	for _, text := range []string{"", "# only a comment", "hunter2", keyPrefix + "c2hvcnQ", strings.TrimPrefix(Generate(), keyPrefix)} {
		_, err := Parse(text)
		if !errors.Is(err, sheaf.ErrInvalid) || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	var many []string
	for range MaxKeys + 1 {
		many = append(many, Generate())
	}
	if _, err := Parse(strings.Join(many, " ")); !errors.Is(err, sheaf.ErrInvalid) {
		t.Errorf("too many keys: %v", err)
	}
}

func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secrets.key")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file: %v", err)
	}
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() {
			r, err := Create(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.Current()
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("creators at once have different keys: %v", ids)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info.Mode(), err)
	}
	r, err := Prepend(path)
	if err != nil || len(r.IDs()) != 2 || r.IDs()[1] != ids[0] || r.Current() == ids[0] {
		t.Fatalf("after a rotation the ring is %v: %v", r, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("files beside the key: %v %v", left, err)
	}
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); !errors.Is(err, sheaf.ErrInvalid) || !strings.Contains(err.Error(), "backup") {
		t.Errorf("a damaged file: %v", err)
	}
}
