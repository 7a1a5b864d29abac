// Package secrets keeps the secrets in the store unreadable to an attacker who gets
// only the database. An installation has a ring of master keys: the first seals,
// all of them open. Keys for other purposes, such as signatures, are derived from
// the same ring.
package secrets

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sheaf"
)

// KeyBytes is the size of a master key and of a derived one.
const KeyBytes = 32

const (
	// prefix begins each sealed text: prefix, key id, ":", base64 of nonce and
	// ciphertext. No plain secret that the service creates or accepts begins with it.
	prefix = "sealed:v1:"
	// idBytes of a digest identify a key.
	idBytes = 8
	// MaxKeys limits a ring: the current key and earlier ones.
	MaxKeys = 16
	// keyPrefix begins a key as text, so that people and scanners recognise one.
	keyPrefix = "sheafkey_"
	// maxFile limits a key file.
	maxFile = 64 << 10
)

// ErrUnknownKey means that a text was sealed with a key that is not in the ring.
var ErrUnknownKey = errors.New("the key that sealed it is not among this installation's keys")

// Keyring holds the master keys of an installation, the current one first. It is
// safe for concurrent use.
type Keyring struct{ keys []masterKey }

type masterKey struct {
	id    string
	bytes [KeyBytes]byte
	aead  cipher.AEAD // for the purpose "store"
}

// Parse reads keys in the format of Generate, separated by white space or commas,
// the current one first; lines that begin with # are comments. The error is
// sheaf.ErrInvalid and does not reveal any part of a key.
func Parse(text string) (*Keyring, error) {
	r := &Keyring{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for word := range strings.FieldsFuncSeq(line, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n' }) {
			encoded, ok := strings.CutPrefix(word, keyPrefix)
			raw, err := base64.RawURLEncoding.DecodeString(encoded)
			if !ok || err != nil || len(raw) != KeyBytes {
				return nil, fmt.Errorf("%w: key %d is not one that `sheaf secrets generate` prints (%s and %d bytes in base64)", sheaf.ErrInvalid, len(r.keys)+1, keyPrefix, KeyBytes)
			}
			if err := r.add([KeyBytes]byte(raw)); err != nil {
				return nil, err
			}
		}
	}
	if len(r.keys) == 0 {
		return nil, fmt.Errorf("%w: it holds no key; `sheaf secrets generate` prints one", sheaf.ErrInvalid)
	}
	return r, nil
}

func (r *Keyring) add(key [KeyBytes]byte) error {
	if slices.ContainsFunc(r.keys, func(k masterKey) bool { return k.bytes == key }) {
		return nil
	}
	if len(r.keys) == MaxKeys {
		return fmt.Errorf("%w: there are more than %d keys; take away those that `sheaf secrets status` shows as unused", sheaf.ErrInvalid, MaxKeys)
	}
	name := k256(key, "id")
	k := masterKey{bytes: key, id: hex.EncodeToString(name[:idBytes])}
	store := k256(key, "store")
	block, err := aes.NewCipher(store[:])
	if err != nil {
		return err
	}
	if k.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return err
	}
	r.keys = append(r.keys, k)
	return nil
}

// k256 derives a key for a purpose (RFC 5869, SHA-256).
func k256(master [KeyBytes]byte, purpose string) [KeyBytes]byte {
	out, err := hkdf.Key(sha256.New, master[:], nil, "sheaf/"+purpose, KeyBytes)
	if err != nil {
		panic(err) // the length is fixed and valid
	}
	return [KeyBytes]byte(out)
}

// Generate makes a new key as text.
func Generate() string {
	var key [KeyBytes]byte
	_, _ = rand.Read(key[:]) // never fails
	return keyPrefix + base64.RawURLEncoding.EncodeToString(key[:])
}

// Current returns the id of the key that seals. Key ids are not secret.
func (r *Keyring) Current() string { return r.keys[0].id }

// IDs returns the ids of all keys, the current one first.
func (r *Keyring) IDs() []string {
	ids := make([]string, len(r.keys))
	for i, k := range r.keys {
		ids[i] = k.id
	}
	return ids
}

// Has reports whether a key with that id is in the ring.
func (r *Keyring) Has(id string) bool {
	return slices.ContainsFunc(r.keys, func(k masterKey) bool { return k.id == id })
}

// Key returns a key for one purpose, such as "receipts", derived from the current
// master key. id identifies the master key: store it with what the key produced,
// and pass it to KeyOf later.
func (r *Keyring) Key(purpose string) (key [KeyBytes]byte, id string) {
	return k256(r.keys[0].bytes, "purpose/"+purpose), r.keys[0].id
}

// KeyOf returns the key for a purpose derived from the master key with that id. The
// error is ErrUnknownKey if the ring does not hold it.
func (r *Keyring) KeyOf(purpose, id string) (key [KeyBytes]byte, err error) {
	for _, k := range r.keys {
		if k.id == id {
			return k256(k.bytes, "purpose/"+purpose), nil
		}
	}
	return key, fmt.Errorf("%w (%s)", ErrUnknownKey, id)
}

// Seal encrypts a secret with the current key (AES-256-GCM). context identifies
// where it is stored, such as "webhook/ID": a sealed text moved to another place
// cannot be opened there. "" stays "": there is nothing to hide.
func (r *Keyring) Seal(plain, context string) string {
	if plain == "" {
		return ""
	}
	k := r.keys[0]
	return prefix + k.id + ":" + base64.RawStdEncoding.EncodeToString(k.aead.Seal(nil, nil, []byte(plain), []byte(context)))
}

// Open decrypts the result of Seal under the same context. A text that is not
// sealed is returned unchanged: it was written before there were keys. The error is
// ErrUnknownKey, or states that the text was altered.
func (r *Keyring) Open(text, context string) (string, error) {
	id, ok := KeyID(text)
	if !ok {
		return text, nil
	}
	for _, k := range r.keys {
		if k.id != id {
			continue
		}
		raw, err := base64.RawStdEncoding.DecodeString(text[len(prefix)+len(id)+1:])
		if err == nil {
			raw, err = k.aead.Open(nil, nil, raw, []byte(context))
		}
		if err != nil {
			return "", errors.New("a sealed secret in the store was altered or moved; enter it again")
		}
		return string(raw), nil
	}
	return "", fmt.Errorf("%w (%s)", ErrUnknownKey, id)
}

// KeyID returns the id of the key that sealed a text; ok is false if it is not sealed.
func KeyID(text string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return "", false
	}
	id, _, ok = strings.Cut(rest, ":")
	return id, ok && len(id) == 2*idBytes
}

// Stale reports whether a text should be sealed again: it is plain, or sealed with
// a key other than the current one.
func (r *Keyring) Stale(text string) bool {
	id, sealed := KeyID(text)
	return text != "" && (!sealed || id != r.Current())
}

// Load reads a key file. The error is fs.ErrNotExist if it does not exist, and
// sheaf.ErrInvalid if it is not a key file.
func Load(path string) (*Keyring, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	r, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; take the file back from the backup", path, err)
	}
	return r, nil
}

func read(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > maxFile {
		return "", fmt.Errorf("%w: %s is too large for a key file; take it back from the backup", sheaf.ErrInvalid, path)
	}
	b, err := os.ReadFile(path)
	return string(b), err
}

const header = `# The keys of this installation: the first seals secrets in the store, all of
# them open. Back this file up, apart from the database: without it webhook
# secrets and passwords of documents cannot be read. "sheaf secrets rotate" puts
# a new key first.
`

// Create creates a key file (0600) with one new key. If one appeared meanwhile, it
// is kept and read.
func Create(path string) (*Keyring, error) {
	temp, err := write(path, header+Generate()+"\n")
	if err != nil {
		return nil, err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		// A file system without links: again the first to create it wins.
		if err := copyNew(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("creating the key file: %w", err)
		}
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return Load(path)
}

// Prepend adds a new key at the front of a key file; the others stay, to open what
// they sealed. After a crash there is either the old file or the new one.
func Prepend(path string) (*Keyring, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	old, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var b bytes.Buffer
	b.WriteString(header + Generate() + "\n")
	for _, k := range old.keys {
		b.WriteString(keyPrefix + base64.RawURLEncoding.EncodeToString(k.bytes[:]) + "\n")
	}
	if _, err := Parse(b.String()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	temp, err := write(path, b.String())
	if err != nil {
		return nil, err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return nil, err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return Load(path)
}

// write creates a durable temporary file next to path; os.CreateTemp makes it 0600.
func write(path, text string) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".secrets-*")
	if err != nil {
		return "", fmt.Errorf("writing the key file: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("writing the key file: %w", err)
	}
	return f.Name(), nil
}

func copyNew(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a new name durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // some file systems cannot, and lose nothing still in use
	return nil
}
